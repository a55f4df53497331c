//! What can be known to be wrong before anything is opened. `serve` looks first, and `check` looks at the
//! same, so that what the one refuses the other refuses too.

use std::sync::Arc;

use posthorn_egress::Egress;
use posthorn_push_node::broadcasts;

use crate::config::Config;
use crate::exit::{Code, Failure};
use crate::push;
use crate::storage::chain;
use crate::telemetry::otlp;

/// The hint for URLs that are closed.
pub const OPEN_IT: &str = "egress.allow and egress.names allow what is denied by default";

/// Makes the way out, and judges every URL that the configuration wants to be asked.
pub fn way_out(config: &Config) -> anyhow::Result<Egress> {
    let egress = Egress::new(config.egress.clone()).map_err(|e| {
        let message = format!("egress cannot be set up: failed to {}", chain(&e));
        Failure::new(Code::Config, message)
    })?;
    for (key, url) in config.dialects.iter().flat_map(|dialect| dialect.asks()) {
        egress.guard().check_url(url).map_err(|e| {
            Failure::new(Code::Config, format!("{key} cannot be asked: {e}")).hint(OPEN_IT)
        })?;
    }
    if let Some(endpoint) = &config.telemetry.otlp.endpoint {
        otlp::way_out(endpoint, &config.egress).map_err(|e| {
            let message = format!("telemetry.otlp.endpoint cannot be used: {}", chain(&e));
            Failure::new(Code::Config, message)
        })?;
    }
    if let Some(push) = &config.push {
        let table = broadcasts::table(&push.broadcasts.values)?;
        push::poller(push, Arc::clone(&table), egress.clone())?;
        push::check_internal(push, config.egress.extra_roots.clone())?;
    }
    Ok(egress)
}
