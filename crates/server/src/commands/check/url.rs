//! `posthorn check url`: what the guard says about URLs, without connecting or resolving.

use posthorn_egress::{Egress, Guard};
use serde_json::json;

use crate::config;
use crate::exit::{Code, Failure};
use crate::serve::ConfigArgs;
use crate::storage::chain;
use crate::surroundings::Surroundings;
use crate::terminal::{self, Paint};

/// Say whether URLs may be receivers, without connecting or resolving
///
/// Applies the rules of the configuration to each URL as to one that a tenant gives. What a name
/// resolves to is judged again whenever something is sent. Ends with 1 when any is refused.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct Args {
    #[command(flatten)]
    config: ConfigArgs,
    /// The URLs; write -- before the first
    #[arg(required = true, value_name = "URL")]
    urls: Vec<String>,
}

/// Runs it.
pub(super) fn run(args: &Args, json: bool) -> anyhow::Result<()> {
    let guard = guard(&args.config)?;
    let mut refused = 0_usize;
    for url in &args.urls {
        let checked = guard.check_url(url);
        refused += usize::from(checked.is_err());
        if json {
            let line = match &checked {
                Ok(target) => json!({
                    "url": url, "allowed": true, "reason": null, "normalised": target.as_str(),
                }),
                Err(refusal) => json!({
                    "url": url, "allowed": false, "reason": refusal.code(), "normalised": null,
                }),
            };
            terminal::data(line)?;
            continue;
        }
        let paint = Paint::stdout();
        match &checked {
            Ok(target) => terminal::data(format_args!("{} {target}", paint.good("allowed")))?,
            Err(refusal) => {
                // As a JSON text, because what is refused may hold anything, also escape codes.
                let (word, shown) = (paint.bad("refused"), json!(url));
                terminal::data(format_args!("{word} {shown} ({}): {refusal}", refusal.code()))?;
            }
        }
    }
    if refused > 0 {
        let message = format!("{refused} of {} URLs may not be receivers", args.urls.len());
        return Err(Failure::new(Code::Failure, message)
            .hint("correct the URL, or open its network with egress.allow (--allow)")
            .into());
    }
    Ok(())
}

/// The guard as `serve` would have it, except that no name is looked up.
fn guard(config: &ConfigArgs) -> anyhow::Result<Guard> {
    let config = config::load(&config.inputs())?.config;
    let surroundings = Surroundings::new(config.server.listen, &config.store);
    let egress = Egress::new(config.egress).map_err(|e| {
        Failure::new(Code::Config, format!("egress cannot be set up: failed to {}", chain(&e)))
    })?;
    let guard = egress.guard().clone();
    guard.set_own(surroundings.written());
    Ok(guard)
}
