//! `posthorn notificaties clients`.

use posthorn_dialects::notificaties::Scope;
use serde_json::json;

use crate::commands::noun::Noun;
use crate::commands::{Context, read_argument};
use crate::config::values::SecretRef;
use crate::exit::{Code, Failure};

const CLIENTS: Noun = Noun {
    path: "clients",
    columns: "CLIENT name, SECRET has_secret, SCOPES scopes, CHANGED updated_at",
    fields: "name has_secret scopes updated_at",
};

/// Which one.
#[derive(clap::Args, Clone, Debug)]
pub struct Client {
    /// Its client_id
    name: String,
}

/// Clients of the Notificaties API
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Command {
    /// List the clients that were created or changed at run time
    List,
    /// Show one; its secret is never shown
    Show(Client),
    /// Create a client, or change one; what is not given stays. It counts at once, on all nodes
    Put {
        /// Its client_id
        name: String,
        /// What its tokens are signed with: env:NAME, file:PATH, @FILE, or - for stdin
        #[arg(long, value_name = "PLACE")]
        secret: Option<String>,
        /// What it may do: notificaties.consumeren, notificaties.publiceren; may be repeated
        #[arg(long = "scope", value_name = "SCOPE", value_parser = parse_scope)]
        scopes: Vec<String>,
        /// It may do everything
        #[arg(long, conflicts_with = "scopes")]
        all: bool,
        /// It may do nothing
        #[arg(long, conflicts_with_all = ["scopes", "all"])]
        none: bool,
        /// It may do what the configuration or the Autorisaties API says
        #[arg(long, conflicts_with_all = ["scopes", "all", "none"])]
        as_configured: bool,
    },
    /// Take back what was said of a client at run time
    Delete(Client),
}

fn parse_scope(text: &str) -> Result<String, String> {
    let known = [Scope::Consume, Scope::Publish].map(Scope::as_str);
    match known.contains(&text) {
        true => Ok(text.to_owned()),
        false => Err(format!("write {}", known.join(" or "))),
    }
}

/// Runs it.
pub(super) async fn run(context: &Context, command: &Command) -> anyhow::Result<()> {
    match command {
        Command::List => {
            context.show_list(&context.client.get("/v1/clients").await?, CLIENTS.columns)
        }
        Command::Show(Client { name }) => CLIENTS.show(context, name).await,
        Command::Put { name, secret, scopes, all, none, as_configured } => {
            let mut body = json!({});
            if let Some(place) = secret {
                body["secret"] = read_secret(place)?.into();
            }
            if *all {
                body["scopes"] = json!([Scope::Consume.as_str(), Scope::Publish.as_str()]);
            } else if *none || !scopes.is_empty() {
                body["scopes"] = json!(scopes);
            } else if *as_configured {
                body["scopes"] = json!(null);
            }
            CLIENTS.put(context, name, &body).await
        }
        Command::Delete(Client { name }) => CLIENTS.delete(context, name, "deleted").await,
    }
}

/// Arguments are seen by everybody on the machine, so a secret is not one.
fn read_secret(place: &str) -> anyhow::Result<String> {
    let usage = |text: String| Failure::new(Code::Usage, text);
    if let Some(reference) = SecretRef::parse(place) {
        let env = std::env::vars_os().filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        });
        return Ok(reference.resolve(&env.collect()).map_err(|e| usage(e.to_string()))?);
    }
    if place != "-" && !place.starts_with('@') {
        let text =
            "a secret must not be given on the command line: use env:NAME, file:PATH, @FILE or -";
        return Err(usage(text.to_owned()).into());
    }
    let text = read_argument("the secret", place)?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}
