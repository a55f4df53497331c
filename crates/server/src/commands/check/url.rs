//! `posthorn check url`: what the guard says about URLs, without connecting or resolving.

use posthorn_egress::{Egress, Guard, Target, UrlRefusal};
use serde::Serialize;
use serde_json::json;

use crate::config;
use crate::exit::{Code, Failure};
use crate::own_addresses::OwnAddresses;
use crate::serve::ConfigArgs;
use crate::storage::chain;
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

/// What is said about one URL, in this order.
#[derive(Serialize)]
struct Line<'a> {
    url: &'a str,
    allowed: bool,
    reason: Option<&'static str>,
    normalised: Option<&'a str>,
}

/// Runs it.
pub(super) fn run(args: &Args, json: bool) -> anyhow::Result<()> {
    let guard = guard(&args.config)?;
    let mut refused = 0_usize;
    for url in &args.urls {
        let checked = guard.check_url(url);
        refused += usize::from(checked.is_err());
        if json {
            let line = Line {
                url,
                allowed: checked.is_ok(),
                reason: checked.as_ref().err().map(UrlRefusal::code),
                normalised: checked.as_ref().ok().map(Target::as_str),
            };
            terminal::data(serde_json::to_string(&line)?)?;
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
        let message = format!("{refused} of {} URLs are not allowed as receivers", args.urls.len());
        return Err(Failure::new(Code::Failure, message)
            .hint("correct the URL, or allow its network with egress.allow (--allow)")
            .into());
    }
    Ok(())
}

/// The guard as `serve` would have it, except that no name is looked up.
fn guard(config: &ConfigArgs) -> anyhow::Result<Guard> {
    let config = config::load(&config.inputs())?.config;
    let internal = config.push.and_then(|push| push.internal.listen);
    let listeners = std::iter::once(config.server.listen).chain(internal);
    let own_addresses = OwnAddresses::new(
        listeners.collect(),
        &config.server.public_names,
        &config.store,
        config.egress.proxies.values(),
    )
    .with_collector(config.telemetry.otlp.place(), None);
    let egress = Egress::new(config.egress).map_err(|e| {
        Failure::new(Code::Config, format!("egress cannot be set up: failed to {}", chain(&e)))
    })?;
    let guard = egress.guard().clone();
    guard.set_own(own_addresses.written());
    Ok(guard)
}
