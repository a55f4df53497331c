//! The block `callbacks`: a standing subscription that is kept in step with the configuration.

use std::sync::Arc;

use posthorn_engine::{Engine, OutcomeStream};
use posthorn_notifier::{
    Callbacks, Error, MetricsFacade, describe_metrics, keep_subscription, observe_outcomes,
    retire_subscriptions,
};
use tracing::{info, warn};

use crate::exit::{Code, Failure};
use crate::storage::chain;

/// Makes what the block asks for, or brings it in step, and begins to count its webhooks.
///
/// Without a block, what an earlier one asked for is paused. `outcomes` are those since the engine's
/// start.
pub async fn keep(
    engine: &Engine,
    outcomes: OutcomeStream,
    callbacks: Option<&Callbacks>,
) -> anyhow::Result<()> {
    let Some(callbacks) = callbacks else {
        retire_subscriptions(engine, None).await.map_err(|error| explain(&error))?;
        return Ok(());
    };
    for warning in &callbacks.warnings {
        warn!("{warning}");
    }
    let standing = keep_subscription(engine, callbacks).await.map_err(|error| explain(&error))?;
    retire_subscriptions(engine, Some(standing.subscription))
        .await
        .map_err(|error| explain(&error))?;
    describe_metrics();
    let store = Arc::clone(engine.store());
    let observer = Arc::new(MetricsFacade);
    let never = std::future::pending();
    tokio::spawn(observe_outcomes(store, outcomes, standing.clone(), observer, never));
    info!(
        topic = %standing.topic,
        subscription = %standing.subscription,
        "events of this topic go to callbacks.payment_success_url"
    );
    Ok(())
}

fn explain(error: &Error) -> Failure {
    match error {
        Error::Engine(posthorn_engine::Error::Store(_) | posthorn_engine::Error::Busy(_)) => {
            Failure::new(Code::Io, format!("callbacks cannot be set up: {}", chain(error)))
                .hint("check the disk space and the database, then start again")
        }
        _ => Failure::new(Code::Config, format!("callbacks cannot be set up: {}", chain(error)))
            .hint(
                "correct the section `callbacks`; allow receivers on private networks with \
                 egress.allow",
            ),
    }
}
