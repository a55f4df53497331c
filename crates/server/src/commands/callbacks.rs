//! `posthorn callbacks`: what a payment server's operators do without a running server.

use posthorn_notifier::{Error, send_json_once};
use serde_json::json;

use super::read_argument;
use crate::config;
use crate::exit::{Code, Failure};
use crate::serve::ConfigArgs;
use crate::storage::chain;
use crate::terminal::{self, Paint};

/// What can be done.
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Command {
    /// Send one webhook, now, once, and say whether it was taken
    ///
    /// It goes to callbacks.payment_success_url with the headers, signature and timeout of that block. No
    /// server is needed, nothing is stored and nothing is tried again. Exit code 1 when it was not taken.
    Send(Send),
}

/// One webhook.
#[derive(clap::Args, Clone, Debug)]
pub struct Send {
    /// The event: a JSON object, or @FILE, or - for stdin. Missing eventId, eventType and times are filled in
    #[arg(default_value = "{}")]
    payload: String,
    /// What happened; the payload's eventType when it has one, otherwise payment.succeeded
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Option<String>,
    /// The configuration.
    #[command(flatten)]
    config: ConfigArgs,
}

/// Runs it.
pub async fn run(command: &Command, json: bool) -> anyhow::Result<()> {
    let Command::Send(args) = command;
    let payload = read_argument("the payload", &args.payload)?;
    let config = config::load(&args.config.inputs())?.config;
    let Some(callbacks) = config.callbacks else {
        return Err(Failure::new(Code::Config, Error::NoUrl.to_string())
            .hint("set it in the section `callbacks` of the configuration")
            .into());
    };
    for warning in &callbacks.warnings {
        terminal::note(Paint::stderr().warn(warning));
    }
    let sending =
        send_json_once(&callbacks, args.event_type.as_deref(), payload.as_bytes(), config.egress);
    match Box::pin(sending).await {
        Ok(sent) if json => Ok(terminal::json(&json!({
            "delivered": true, "eventId": sent.event_id, "url": sent.url,
        }))?),
        Ok(sent) => {
            terminal::data(&sent.event_id)?;
            terminal::note(Paint::stderr().good(format!("accepted by {}", sent.url)));
            Ok(())
        }
        Err(error) => {
            let code = match error {
                Error::Payload(_) | Error::Event { .. } => Code::Usage,
                Error::NotDelivered(_) => Code::Failure,
                _ => Code::Config,
            };
            Err(Failure::new(code, chain(&error)).into())
        }
    }
}
