//! What becomes of a webhook in memory: attempts until it is delivered or given up.
//!
//! Each webhook is a task that waits until it is due, takes its turn and makes an attempt. There are never more than
//! the notifier has places, so nothing here has to be bounded again.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use posthorn_domain::{Attempt, Clock, DeliveryState, Timestamp};
use posthorn_engine::Courier;
use posthorn_store::Work;
use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::{debug, error, warn};

use crate::dlq::{DlqStore, FailedWebhook, REDACTED};
use crate::event::{Prepared, family};
use crate::observe::{ObserveWebhook, WebhookObservation, WebhookStatus, family_label};

/// One webhook on its way.
pub(super) struct Webhook {
    work: Work,
    event_id: String,
    /// When its first attempt began.
    first: Option<Timestamp>,
    last: Option<Attempt>,
    /// Its place among those that may be held, given back when it is dropped.
    _place: Option<OwnedSemaphorePermit>,
}

impl Webhook {
    pub(super) fn new(work: Work, event_id: String, place: Option<OwnedSemaphorePermit>) -> Self {
        Self { work, event_id, first: None, last: None, _place: place }
    }

    /// From the beginning of the first attempt to the end of the last.
    fn duration(&self) -> Duration {
        match (&self.first, &self.last) {
            (Some(first), Some(last)) => {
                last.started_at.plus(last.took).since(*first).to_duration()
            }
            _ => Duration::ZERO,
        }
    }

    /// What the last attempt came to, in one line.
    fn summary(&self) -> String {
        self.last.as_ref().map_or_else(|| "no attempt was made".to_owned(), Attempt::summary)
    }

    fn stopped(&self) -> String {
        match &self.last {
            Some(last) => {
                format!("stopped before it was delivered; last failure: {}", last.outcome())
            }
            None => "stopped before it was delivered".to_owned(),
        }
    }
}

/// Why there was no attempt to go by.
enum Hindered {
    Stopped,
    Crashed,
}

/// What the webhooks of a notifier share.
pub(super) struct Dispatch {
    pub(super) courier: Courier,
    pub(super) clock: Arc<dyn Clock>,
    /// The names of the headers that dead letters tell of besides those of the webhook itself.
    pub(super) headers: Vec<String>,
    pub(super) dlq: Arc<dyn DlqStore>,
    pub(super) observer: Arc<dyn ObserveWebhook>,
    /// Attempts that may be under way at once, in the order in which they became due.
    pub(super) turns: Semaphore,
    /// From then on no attempt begins.
    pub(super) closing: CancellationToken,
    /// From then on attempts under way are given up.
    pub(super) stopping: CancellationToken,
}

impl Dispatch {
    /// Brings a webhook to its end.
    pub(super) async fn bring(&self, mut webhook: Webhook) {
        let mut due = Instant::now();
        let reason = loop {
            match self.attempt(&mut webhook, due).await {
                Ok(()) => {}
                Err(Hindered::Stopped) => break webhook.stopped(),
                Err(Hindered::Crashed) => break "the attempt crashed".to_owned(),
            }
            let delivery = &webhook.work.delivery;
            match delivery.state {
                DeliveryState::Delivered => return self.delivered(&webhook),
                DeliveryState::Pending | DeliveryState::InFlight => {
                    let wait = delivery.due_at.since(self.clock.now());
                    warn!(event = %webhook.event_id, delivery = %delivery.id,
                        attempt = delivery.spent(), reason = webhook.summary(), retry_in = %wait,
                        "a webhook attempt failed; it will be retried");
                    due = Instant::now() + wait.to_duration();
                }
                DeliveryState::Dead(_) | DeliveryState::Cancelled(_) => break webhook.summary(),
            }
        };
        self.give_up(&webhook, reason).await;
    }

    /// Makes an attempt when it is due and has its turn.
    async fn attempt(&self, webhook: &mut Webhook, due: Instant) -> Result<(), Hindered> {
        let turn = async {
            tokio::time::sleep_until(due).await;
            self.turns.acquire().await
        };
        let _turn = tokio::select! {
            biased;
            () = self.closing.cancelled() => return Err(Hindered::Stopped),
            turn = turn => turn,
        };
        // What is written down as given up must not arrive afterwards: an attempt that is dropped sends no more.
        let made = tokio::select! {
            biased;
            made = AssertUnwindSafe(self.courier.attempt(&mut webhook.work)).catch_unwind() => made,
            () = self.stopping.cancelled() => return Err(Hindered::Stopped),
        };
        match made {
            Ok(Ok(Some(attempt))) => {
                webhook.first.get_or_insert(attempt.started_at);
                webhook.last = Some(attempt);
            }
            Ok(Ok(None)) => {}
            Ok(Err(problem)) => warn!(%problem, "an attempt could not be made"),
            Err(_) => {
                error!(event = %webhook.event_id, "an attempt crashed; this is a defect");
                webhook.work.delivery.attempts += 1;
                return Err(Hindered::Crashed);
            }
        }
        Ok(())
    }

    fn delivered(&self, webhook: &Webhook) {
        let delivery = &webhook.work.delivery;
        debug!(event = %webhook.event_id, delivery = %delivery.id, attempt = delivery.spent(),
            "a webhook was delivered");
        let event_type = webhook.work.event.event_type.as_str();
        let status = WebhookStatus::Success;
        self.observe(event_type, status, webhook.duration(), delivery.spent());
    }

    /// Gives a webhook up and keeps it, if dead letters are kept.
    pub(super) async fn give_up(&self, webhook: &Webhook, reason: String) {
        let (delivery, event) = (&webhook.work.delivery, &webhook.work.event);
        let letter = FailedWebhook {
            id: delivery.id.to_string(),
            url: self.courier.url().to_owned(),
            payload: raw(&event.payload),
            headers: self.headers_of(&webhook.work),
            event_type: family(event.event_type.as_str()).to_owned(),
            attempts: delivery.spent(),
            last_error: reason,
            last_attempt: webhook.last.as_ref().map_or_else(|| self.clock.now(), |l| l.started_at),
            created_at: delivery.created_at,
        };
        let event_type = event.event_type.as_str();
        self.bury(letter, &webhook.event_id, event_type, webhook.duration()).await;
    }

    /// The same for an event that cannot even be sent.
    pub(super) async fn give_up_unsent(&self, prepared: Prepared, reason: String) {
        let now = self.clock.now();
        let letter = FailedWebhook {
            id: prepared.event_id.clone(),
            url: self.courier.url().to_owned(),
            payload: raw(&prepared.payload),
            headers: BTreeMap::new(),
            event_type: family(&prepared.event_type).to_owned(),
            attempts: 0,
            last_error: reason,
            last_attempt: now,
            created_at: now,
        };
        self.bury(letter, &prepared.event_id, &prepared.event_type, Duration::ZERO).await;
    }

    /// The same without a dead letter: there is no room for one.
    pub(super) fn lose(&self, webhook: &Webhook) {
        let delivery = webhook.work.delivery.id;
        error!(event = %webhook.event_id, %delivery,
            "a webhook failed and is lost: too many fail at once to be kept as dead letters");
        let event_type = webhook.work.event.event_type.as_str();
        self.observe(event_type, WebhookStatus::Failed, Duration::ZERO, 0);
    }

    async fn bury(&self, letter: FailedWebhook, event: &str, event_type: &str, took: Duration) {
        let (id, attempts) = (letter.id.clone(), letter.attempts);
        let reason = letter.last_error.clone();
        let kept = self.dlq.save(letter).await.unwrap_or_else(|problem| {
            let cause = std::error::Error::source(&problem).map(ToString::to_string);
            error!(%problem, cause, event, "a dead letter could not be stored");
            false
        });
        error!(
            event,
            delivery = id,
            attempts,
            reason,
            kept,
            "a webhook failed and is a dead \
                                                              letter"
        );
        let status = if kept { WebhookStatus::Dlq } else { WebhookStatus::Failed };
        self.observe(event_type, status, took, attempts);
    }

    fn headers_of(&self, work: &Work) -> BTreeMap<String, String> {
        let own = [
            ("Content-Type", work.event.content_type.clone()),
            ("X-Cedros-Event-Type", work.event.event_type.to_string()),
            ("X-Cedros-Delivery-ID", work.delivery.id.to_string()),
        ];
        let own = own.into_iter().map(|(name, value)| (name.to_owned(), value));
        own.chain(self.headers.iter().map(|name| (name.clone(), REDACTED.to_owned()))).collect()
    }

    fn observe(&self, event_type: &str, status: WebhookStatus, duration: Duration, attempt: u32) {
        self.observer.observe_webhook(&WebhookObservation {
            event_type: family_label(event_type),
            status,
            duration,
            attempt,
            dlq: status == WebhookStatus::Dlq,
        });
    }
}

/// The payload as it is: it is JSON, since it was made from an event.
fn raw(payload: &[u8]) -> Box<RawValue> {
    let text = String::from_utf8_lossy(payload).into_owned();
    RawValue::from_string(text).unwrap_or_else(|_| RawValue::NULL.to_owned())
}
