//! The notifier in memory: events are taken over at once, sent in the background, tried again, and
//! given up into a dead letter store. What is under way is lost with the process.
//!
//! One task owns everything that is under way; see [`worker`]. The number of events it holds is
//! bounded: one more than fits is not waited for, but goes to the dead letters at once.

mod worker;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use posthorn_domain::policy::{Auth, profiles};
use posthorn_domain::{Clock, EventType};
use posthorn_egress::Egress;
use posthorn_engine::{Courier, CourierParts, EgressTransport, Transport};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use tracing::{Instrument, Span, warn};

use crate::clock::SystemClock;
use crate::config::{Callbacks, CallbacksConfig, RetryConfig};
use crate::dlq::{DlqStore, FileDlqStore, NoopDlqStore};
use crate::error::Error;
use crate::event::{PaymentEvent, Prepared, RefundEvent};
use crate::notifier::{NoopNotifier, Notifier};
use crate::observe::{MetricsFacade, ObserveWebhook};
use worker::{Command, Ending, Item, Worker};

/// Events held at once, unless the builder says otherwise.
const CAPACITY: usize = 10_000;
/// How long a close waits for attempts under way.
const DRAIN: Duration = Duration::from_secs(10);

/// How an in-memory notifier is made.
pub struct RetryableBuilder {
    config: CallbacksConfig,
    dlq: Option<Arc<dyn DlqStore>>,
    observer: Arc<dyn ObserveWebhook>,
    span: Span,
    capacity: usize,
    drain: Duration,
    outside: Outside,
}

/// Where a notifier gets time and network from.
pub(crate) struct Outside {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) transport: Option<Arc<dyn Transport>>,
    pub(crate) egress: posthorn_egress::Options,
}

impl Default for Outside {
    fn default() -> Self {
        let egress = posthorn_egress::Options::default();
        Self { clock: Arc::new(SystemClock), transport: None, egress }
    }
}

impl Outside {
    /// The way out: the one that was given, or a guarded one of its own.
    pub(crate) fn transport(&self) -> Result<Arc<dyn Transport>, Error> {
        match &self.transport {
            Some(transport) => Ok(Arc::clone(transport)),
            None => {
                let egress = Egress::new(self.egress.clone()).map_err(Error::Egress)?;
                Ok(Arc::new(EgressTransport::new(egress)))
            }
        }
    }
}

impl RetryableBuilder {
    /// Where webhooks go that were given up; over `dlq_enabled` and `dlq_path`.
    #[must_use]
    pub fn dlq_store(mut self, store: Arc<dyn DlqStore>) -> Self {
        self.dlq = Some(store);
        self
    }

    /// When to try again; over `callbacks.retry`.
    #[must_use]
    pub fn retry(mut self, retry: RetryConfig) -> Self {
        self.config.retry = retry;
        self
    }

    /// Who counts; the `metrics` crate's recorder when nobody is named.
    #[must_use]
    pub fn metrics(mut self, observer: impl ObserveWebhook) -> Self {
        self.observer = Arc::new(observer);
        self
    }

    /// The span in which everything is logged; that of the caller of [`RetryableBuilder::start`]
    /// when none is named.
    #[must_use]
    pub fn span(mut self, span: Span) -> Self {
        self.span = span;
        self
    }

    /// Events held at once, waiting or under way.
    #[must_use]
    pub fn capacity(mut self, events: usize) -> Self {
        self.capacity = events.max(1);
        self
    }

    /// How long [`RetryableNotifier::close`] waits for attempts under way.
    #[must_use]
    pub fn drain(mut self, wait: Duration) -> Self {
        self.drain = wait;
        self
    }

    /// The rules of the way out, such as which private networks are open to receivers.
    #[must_use]
    pub fn egress(mut self, options: posthorn_egress::Options) -> Self {
        self.outside.egress = options;
        self
    }

    /// Another way out altogether.
    #[must_use]
    pub fn transport(mut self, transport: Arc<dyn Transport>) -> Self {
        self.outside.transport = Some(transport);
        self
    }

    /// Another clock.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.outside.clock = clock;
        self
    }

    /// Starts it, inside a tokio runtime. Fails with [`Error::NoUrl`] when callbacks are off.
    pub fn start(self) -> Result<RetryableNotifier, Error> {
        let callbacks = self.config.check()?.ok_or(Error::NoUrl)?;
        for warning in &callbacks.warnings {
            warn!("{warning}");
        }
        let dlq: Arc<dyn DlqStore> = match (self.dlq, &callbacks.dlq_path) {
            (Some(store), _) => store,
            (None, Some(path)) => Arc::new(FileDlqStore::open(path)?),
            (None, None) => Arc::new(NoopDlqStore),
        };
        let courier = courier(&callbacks, &self.outside)?;
        let url = courier.url().to_owned();
        let ending = Ending::new(url, header_names(&callbacks), dlq, self.observer);
        let (queue, commands) = mpsc::channel(self.capacity + 1);
        let worker = Worker::new(
            Arc::new(courier),
            Arc::clone(&ending),
            Arc::clone(&self.outside.clock),
            self.drain,
        );
        let courier = worker.courier();
        let task = tokio::spawn(worker.run(commands).instrument(self.span.clone()));
        Ok(RetryableNotifier {
            courier,
            ending,
            clock: self.outside.clock,
            places: Arc::new(Semaphore::new(self.capacity)),
            queue,
            topic: callbacks.topic,
            span: self.span,
            task: Mutex::new(Some(task)),
        })
    }

    /// Starts it, or a [`NoopNotifier`] when callbacks are off.
    pub fn start_or_noop(self) -> Result<Box<dyn Notifier>, Error> {
        match self.start() {
            Ok(notifier) => Ok(Box::new(notifier)),
            Err(Error::NoUrl) => Ok(Box::new(NoopNotifier)),
            Err(error) => Err(error),
        }
    }
}

/// The engine's courier to the configured URL.
pub(crate) fn courier(callbacks: &Callbacks, outside: &Outside) -> Result<Courier, Error> {
    let parts = CourierParts {
        transport: outside.transport()?,
        clock: Arc::clone(&outside.clock),
        seed: rand::random(),
    };
    let policy = callbacks.policy.clone();
    Ok(Courier::new(parts, &callbacks.url, policy, &callbacks.secrets)?)
}

/// The names of the headers that dead letters tell of besides those of the webhook itself.
fn header_names(callbacks: &Callbacks) -> Vec<String> {
    let own = profiles::cedros().request.headers;
    let secret = callbacks.policy.auth.iter().filter_map(|auth| match auth {
        Auth::SecretHeader { header, .. } => Some(header.clone()),
        _ => None,
    });
    let plain = callbacks.policy.request.headers.keys().filter(|name| !own.contains_key(*name));
    secret.chain(plain.cloned()).collect()
}

/// The notifier in memory.
pub struct RetryableNotifier {
    courier: Arc<Courier>,
    ending: Arc<Ending>,
    clock: Arc<dyn Clock>,
    places: Arc<Semaphore>,
    queue: mpsc::Sender<Command>,
    topic: posthorn_domain::TopicName,
    span: Span,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl RetryableNotifier {
    /// Begins to make one.
    pub fn builder(config: CallbacksConfig) -> RetryableBuilder {
        RetryableBuilder {
            config,
            dlq: None,
            observer: Arc::new(MetricsFacade),
            span: Span::current(),
            capacity: CAPACITY,
            drain: DRAIN,
            outside: Outside::default(),
        }
    }

    /// Stops: takes nothing more in and waits a while for attempts under way. What is not delivered
    /// by then goes to the dead letters. Dropping the notifier instead lets it deliver what it
    /// holds for as long as the runtime lives.
    pub async fn close(&self) {
        let (done, ended) = oneshot::channel();
        self.places.close();
        if self.queue.send(Command::Close(done)).await.is_ok() {
            // An error means that it ended, which is what was asked for.
            let _ = ended.await;
        }
        let task = self.task.lock().take();
        if let Some(task) = task {
            let _ = task.await;
        }
    }

    async fn take_over(&self, prepared: Prepared) {
        let event_type = match EventType::new(&prepared.event_type) {
            Ok(event_type) => event_type,
            Err(problem) => {
                let (reason, now) = (problem.to_string(), self.clock.now());
                return self.ending.give_up_unsent(prepared, reason, now);
            }
        };
        let media_type = "application/json".to_owned();
        let work = self.courier.work(self.topic.clone(), event_type, media_type, prepared.payload);
        let item = Item::new(work, prepared.event_id);
        let Ok(place) = Arc::clone(&self.places).try_acquire_owned() else {
            let closed = self.places.is_closed();
            let reason = if closed { "the notifier is closed" } else { "too many are waiting" };
            return self.ending.give_up_aside(item, reason, self.clock.now());
        };
        let command = Command::Take(Box::new(item.holding(place)));
        if let Err(mpsc::error::SendError(Command::Take(item))) = self.queue.send(command).await {
            self.ending.give_up_aside(*item, "the notifier has ended", self.clock.now());
        }
    }
}

#[async_trait]
impl Notifier for RetryableNotifier {
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
