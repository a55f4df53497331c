//! Figures: one observation for each webhook that has ended.

use std::sync::Arc;
use std::time::Duration;

use ::metrics::{Unit, describe_counter, describe_histogram};
use posthorn_domain::DeliveryState;
use posthorn_engine::{EndedDelivery, OutcomeStream};
use posthorn_store::Store;
use tracing::warn;

use crate::event::family;
use crate::standing::Standing;

/// Webhooks that have ended, by `event_type` and `status`.
pub const TOTAL: &str = "cedros_webhooks_total";
/// Webhooks that took more than one attempt, by `event_type` and `attempt` (2 to 9, or `10+`).
pub const RETRIES: &str = "cedros_webhook_retries_total";
/// Webhooks that became dead letters, by `event_type`.
pub const DEAD: &str = "cedros_webhook_dlq_total";
/// From the first attempt to the end of the last, by `event_type`.
pub const DURATION: &str = "cedros_webhook_duration_seconds";
/// The bounds of [`DURATION`]'s buckets.
pub const DURATION_BUCKETS: [f64; 6] = [0.1, 0.5, 1.0, 2.0, 5.0, 10.0];

/// How a webhook ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WebhookStatus {
    /// The receiver has it.
    Success,
    /// It was given up, and nothing is left of it.
    Failed,
    /// It was given up and is kept as a dead letter.
    Dlq,
}

impl WebhookStatus {
    /// As the label says it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failed => "failed",
            Self::Dlq => "dlq",
        }
    }
}

/// One webhook that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookObservation {
    /// The family of the event: `payment`, `refund`, `subscription`, or `other`.
    pub event_type: &'static str,
    /// How it ended.
    pub status: WebhookStatus,
    /// From the first attempt to the end of the last.
    pub duration: Duration,
    /// The number of the attempt that succeeded, or of the last one.
    pub attempt: u32,
    /// Whether it is kept as a dead letter.
    pub dlq: bool,
}

/// Somebody who counts webhooks.
pub trait ObserveWebhook: Send + Sync + 'static {
    /// A webhook has ended.
    fn observe_webhook(&self, observation: &WebhookObservation);
}

impl<F: Fn(&WebhookObservation) + Send + Sync + 'static> ObserveWebhook for F {
    fn observe_webhook(&self, observation: &WebhookObservation) {
        self(observation);
    }
}

/// Counts with whatever recorder the program has installed for the `metrics` crate.
#[derive(Clone, Copy, Debug, Default)]
pub struct MetricsFacade;

impl ObserveWebhook for MetricsFacade {
    fn observe_webhook(&self, observation: &WebhookObservation) {
        let event_type = observation.event_type;
        let status = observation.status.as_str();
        ::metrics::counter!(TOTAL, "event_type" => event_type, "status" => status).increment(1);
        if observation.attempt > 1 {
            let attempt = match observation.attempt {
                few @ 0..10 => few.to_string(),
                // Labels are bounded, whatever a block allows.
                _ => "10+".to_owned(),
            };
            ::metrics::counter!(RETRIES, "event_type" => event_type, "attempt" => attempt)
                .increment(1);
        }
        if observation.dlq {
            ::metrics::counter!(DEAD, "event_type" => event_type).increment(1);
        }
        ::metrics::histogram!(DURATION, "event_type" => event_type)
            .record(observation.duration.as_secs_f64());
    }
}

/// Registers the descriptions of the metrics; once, at start.
pub fn describe_metrics() {
    describe_counter!(TOTAL, "Webhooks that have ended, by family of event and status");
    describe_counter!(
        RETRIES,
        "Webhooks that needed more than one attempt, by number of the last attempt"
    );
    describe_counter!(DEAD, "Webhooks that became dead letters, by family of event");
    describe_histogram!(
        DURATION,
        Unit::Seconds,
        "Time from the first attempt to the end of the \
                                                  last"
    );
}

/// The family as a label: bounded, whatever publishers call their events.
pub(crate) fn family_label(event_type: &str) -> &'static str {
    match family(event_type) {
        "payment" => "payment",
        "refund" => "refund",
        "subscription" => "subscription",
        _ => "other",
    }
}

/// Observes every webhook of a standing subscription that this node ends, until the engine is gone, or
/// until `stop` and everything that was told before.
pub async fn observe_outcomes(
    store: Arc<dyn Store>,
    mut outcomes: OutcomeStream,
    standing: Standing,
    observer: Arc<dyn ObserveWebhook>,
    stop: impl Future<Output = ()>,
) {
    let mut stop = std::pin::pin!(stop);
    let mut stopping = false;
    loop {
        let ended = if stopping {
            outcomes.try_next()
        } else {
            tokio::select! {
                ended = outcomes.next() => ended,
                () = &mut stop => {
                    stopping = true;
                    continue;
                }
            }
        };
        let Some(ended) = ended else { return };
        if ended.tenant != standing.tenant || ended.subscription != standing.subscription {
            continue;
        }
        let Some(status) = status_of(ended.state) else { continue };
        let duration = match (ended.spent, ended.took) {
            (0 | 1, took) => took.map(|took| took.to_duration()).unwrap_or_default(),
            _ => whole_duration(&*store, &ended).await,
        };
        observer.observe_webhook(&WebhookObservation {
            event_type: family_label(ended.event_type.as_str()),
            status,
            duration,
            attempt: ended.spent,
            dlq: status == WebhookStatus::Dlq,
        });
    }
}

fn status_of(state: DeliveryState) -> Option<WebhookStatus> {
    match state {
        DeliveryState::Delivered => Some(WebhookStatus::Success),
        DeliveryState::Dead(_) => Some(WebhookStatus::Dlq),
        DeliveryState::Cancelled(_) => Some(WebhookStatus::Failed),
        DeliveryState::Pending | DeliveryState::InFlight => None,
    }
}

/// From the first attempt of the budget to the end; the history knows when that was.
async fn whole_duration(store: &dyn Store, ended: &EndedDelivery) -> Duration {
    let first = match store.attempts(ended.tenant, ended.delivery).await {
        Ok(attempts) => {
            let own = attempts.iter().map(|a| a.started_at).filter(|at| *at >= ended.began_at);
            own.min().unwrap_or(ended.began_at)
        }
        Err(error) => {
            warn!(%error, delivery = %ended.delivery, "the attempts of a webhook could not be read");
            ended.began_at
        }
    };
    ended.ended_at.since(first).to_duration()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_bounded() {
        for (event_type, label) in [
            ("payment.succeeded", "payment"),
            ("refund.processed", "refund"),
            ("subscription.renewed", "subscription"),
            ("payment", "payment"),
            ("payments.x", "other"),
            ("", "other"),
        ] {
            assert_eq!(family_label(event_type), label, "{event_type}");
        }
    }
}
