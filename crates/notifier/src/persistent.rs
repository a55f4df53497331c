//! The notifier on the engine: an event is committed before the call returns, tried again by the
//! engine's schedule, and resumed after a restart.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use posthorn::{Posthorn, SystemClock, VaultKey};
use posthorn_domain::{Clock, EventType, Idempotency, IdempotencyKey, Span as Length};
use posthorn_engine::{Engine, Options, Publish, Transport};
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tracing::{Instrument, Span, error, warn};

use crate::config::{Callbacks, CallbacksConfig};
use crate::error::Error;
use crate::event::{PaymentEvent, Prepared, RefundEvent};
use crate::notifier::Notifier;
use crate::observe::{
    MetricsFacade, ObserveWebhook, WebhookObservation, WebhookStatus, family_label,
    observe_outcomes,
};
use crate::standing::{Standing, keep_subscription, retire_subscriptions};

/// How long an event's id is remembered: as long as receivers should.
const IDS_KEPT: Length = Length::from_secs(7 * 86_400);

/// How a persistent notifier is made.
pub struct PersistentBuilder {
    config: CallbacksConfig,
    /// Makes an engine, unless there is one.
    own: posthorn::Builder,
    engine: Option<Engine>,
    /// Whether nobody else works on its database.
    alone: bool,
    clock: Arc<dyn Clock>,
    observer: Arc<dyn ObserveWebhook>,
    span: Span,
}

impl PersistentBuilder {
    /// The key that seals secrets in the database. With SQLite one is made beside the data when none
    /// is given; every process on one PostgreSQL needs the same, and does not start without.
    #[must_use]
    pub fn seal_key(mut self, key: VaultKey) -> Self {
        self.own = self.own.seal_key(key);
        self
    }

    /// Who counts; the `metrics` crate's recorder when nobody is named.
    #[must_use]
    pub fn metrics(mut self, observer: impl ObserveWebhook) -> Self {
        self.observer = Arc::new(observer);
        self
    }

    /// The span in which the notifier itself logs.
    #[must_use]
    pub fn span(mut self, span: Span) -> Self {
        self.span = span;
        self
    }

    /// The rules of the way out, such as which private networks are open to receivers.
    #[must_use]
    pub fn egress(mut self, options: posthorn::egress::Options) -> Self {
        self.own = self.own.egress(options);
        self
    }

    /// Another way out altogether.
    #[must_use]
    pub fn transport(mut self, transport: Arc<dyn Transport>) -> Self {
        self.own = self.own.transport(transport);
        self
    }

    /// Another clock.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Arc::clone(&clock);
        self.own = self.own.clock(clock);
        self
    }

    /// Starts it, and with it everything a former process left to be done. Fails with
    /// [`Error::NoUrl`] when callbacks are off.
    pub async fn start(self) -> Result<PersistentNotifier, Error> {
        let callbacks = self.config.check()?.ok_or(Error::NoUrl)?;
        for warning in &callbacks.warnings {
            warn!("{warning}");
        }
        let (engine, outcomes, own) = match self.engine {
            Some(engine) => {
                let outcomes = engine.outcomes();
                (engine, outcomes, None)
            }
            None => {
                let own = self.own.engine(options(&callbacks)).build().await?;
                (own.engine().clone(), own.outcome_stream(), Some(own))
            }
        };
        let standing = match stand(&engine, &callbacks, self.alone).await {
            Ok(standing) => standing,
            Err(error) => {
                if let Some(own) = own {
                    own.shutdown().await;
                }
                return Err(error);
            }
        };
        let store = Arc::clone(engine.store());
        let observer = Arc::clone(&self.observer);
        let (stop, stopped) = oneshot::channel::<()>();
        let stopped = async move {
            // That it is dropped means the same.
            let _ = stopped.await;
        };
        let observing = observe_outcomes(store, outcomes, standing.clone(), observer, stopped);
        let task = tokio::spawn(observing.instrument(self.span.clone()));
        Ok(PersistentNotifier {
            clock: self.clock,
            engine,
            own,
            standing,
            span: self.span,
            observer: self.observer,
            observing: Mutex::new(Some(Observing { stop, task })),
        })
    }
}

fn options(callbacks: &Callbacks) -> Options {
    let mut options = Options { idempotency_retention: IDS_KEPT, ..Options::default() };
    if let Some(poll) = callbacks.poll_interval {
        options.poll_interval = poll.to_duration();
    }
    options
}

/// The subscription of the block. In a database of its own, what an earlier block asked for is paused.
async fn stand(engine: &Engine, callbacks: &Callbacks, alone: bool) -> Result<Standing, Error> {
    let standing = keep_subscription(engine, callbacks).await?;
    if alone {
        retire_subscriptions(engine, Some(standing.subscription)).await?;
    }
    Ok(standing)
}

/// The task that observes, and how it is told to end.
struct Observing {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

/// An event that was committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Enqueued {
    /// The event's id, as receivers see it.
    pub event_id: String,
    /// Whether it had been enqueued before.
    pub duplicate: bool,
}

/// The notifier on the engine.
pub struct PersistentNotifier {
    engine: Engine,
    /// What this notifier started itself, and has to stop.
    own: Option<Posthorn>,
    standing: Standing,
    clock: Arc<dyn Clock>,
    span: Span,
    observer: Arc<dyn ObserveWebhook>,
    observing: Mutex<Option<Observing>>,
}

impl PersistentNotifier {
    fn builder(config: CallbacksConfig, own: posthorn::Builder) -> PersistentBuilder {
        PersistentBuilder {
            config,
            own,
            engine: None,
            alone: false,
            clock: Arc::new(SystemClock),
            observer: Arc::new(MetricsFacade),
            span: Span::current(),
        }
    }

    /// One that keeps its work in an embedded database in this folder; one process at a time.
    pub fn sqlite(config: CallbacksConfig, folder: impl Into<PathBuf>) -> PersistentBuilder {
        let builder = Self::builder(config, Posthorn::builder().sqlite(folder));
        PersistentBuilder { alone: true, ..builder }
    }

    /// One that keeps its work in a PostgreSQL database, beside others that do.
    pub fn postgres(config: CallbacksConfig, url: impl Into<String>) -> PersistentBuilder {
        Self::builder(config, Posthorn::builder().postgres(url))
    }

    /// One on an engine that runs already, and goes on running when the notifier is closed.
    pub fn on(config: CallbacksConfig, engine: Engine) -> PersistentBuilder {
        let builder = Self::builder(config, Posthorn::builder());
        PersistentBuilder { engine: Some(engine), ..builder }
    }

    /// Commits a payment event. Repeating what was said under the same id is fine and changes
    /// nothing; saying something else under it is refused.
    pub async fn enqueue_payment(&self, event: PaymentEvent) -> Result<Enqueued, Error> {
        self.enqueue(Prepared::payment(event, &*self.clock)).await
    }

    /// Commits a refund event, under the same rules.
    pub async fn enqueue_refund(&self, event: RefundEvent) -> Result<Enqueued, Error> {
        self.enqueue(Prepared::refund(event, &*self.clock)).await
    }

    async fn enqueue(&self, prepared: Prepared) -> Result<Enqueued, Error> {
        let event_type = EventType::new(&prepared.event_type)
            .map_err(|source| Error::Event { field: "eventType", source })?;
        let key = IdempotencyKey::new(&prepared.event_id)
            .map_err(|source| Error::Event { field: "eventId", source })?;
        let fingerprint = Sha256::digest(&prepared.as_said).into();
        let publish = Publish {
            topic: self.standing.topic.clone(),
            event_type,
            attributes: std::collections::BTreeMap::new(),
            key: None,
            content_type: "application/json".to_owned(),
            payload: prepared.payload,
            publisher_id: Some(key.clone()),
            idempotency: Some(Idempotency { key, fingerprint }),
            deliver_at: None,
            retention: None,
            trace: None,
        };
        let published = self.engine.publish(self.standing.tenant, publish).await?;
        Ok(Enqueued { event_id: prepared.event_id, duplicate: published.duplicate })
    }

    /// The engine, for everything else one may want to ask or do.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Where its events are published.
    pub fn standing(&self) -> &Standing {
        &self.standing
    }

    /// Stops: an engine of its own finishes or hands back what is under way, and its database is
    /// closed. What is not delivered by then is resumed at the next start.
    pub async fn close(&self) {
        if let Some(own) = &self.own {
            own.shutdown().await;
        }
        let observing = self.observing.lock().take();
        if let Some(Observing { stop, task }) = observing {
            // What has ended by now is still observed.
            let _ = stop.send(());
            let _ = task.await;
        }
    }

    async fn take_over(&self, prepared: Prepared) {
        let event = prepared.event_id.clone();
        let event_type = family_label(&prepared.event_type);
        if let Err(problem) = self.enqueue(prepared).await {
            // Nobody waits for an answer; whoever wants one enqueues.
            error!(%event, %problem, "a webhook could not be committed and is lost");
            self.observer.observe_webhook(&WebhookObservation {
                event_type,
                status: WebhookStatus::Failed,
                duration: Duration::ZERO,
                attempt: 0,
                dlq: false,
            });
        }
    }
}

#[async_trait]
impl Notifier for PersistentNotifier {
    async fn payment_succeeded(&self, event: PaymentEvent) {
        let prepared = Prepared::payment(event, &*self.clock);
        self.take_over(prepared).instrument(self.span.clone()).await;
    }

    async fn refund_succeeded(&self, event: RefundEvent) {
        let prepared = Prepared::refund(event, &*self.clock);
        self.take_over(prepared).instrument(self.span.clone()).await;
    }

    async fn close(&self) {
        self.close().await;
    }
}
