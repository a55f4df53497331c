//! The notifier in memory: events are taken over at once, sent in the background, tried again, and
//! given up into a dead letter store. What is under way is lost with the process.
//!
//! The number of events it holds is bounded: one more than fits is not waited for, but goes to the dead letters at
//! once. What becomes of the others is in [`dispatch`].

mod dispatch;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use posthorn::SystemClock;
use posthorn_domain::policy::{Auth, profiles};
use posthorn_domain::{Clock, EventType, TopicName};
use posthorn_engine::Transport;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{Instrument, Span, warn};

use crate::config::{Callbacks, CallbacksConfig, RetryConfig};
use crate::dlq::{DlqStore, FileDlqStore, NoopDlqStore};
use crate::error::Error;
use crate::event::{PaymentEvent, Prepared, RefundEvent};
use crate::notifier::{NoopNotifier, Notifier};
use crate::observe::{MetricsFacade, ObserveWebhook};
use dispatch::{Dispatch, Webhook};

/// Events held at once, unless the builder says otherwise.
const CAPACITY: usize = 10_000;
/// Events that did not fit and are on their way to the dead letters at once.
const REFUSED_MAX: usize = 4_096;
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
    clock: Arc<dyn Clock>,
    outside: posthorn::Builder,
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
    pub fn egress(mut self, options: posthorn::egress::Options) -> Self {
        self.outside = self.outside.egress(options);
        self
    }

    /// Another way out altogether.
    #[must_use]
    pub fn transport(mut self, transport: Arc<dyn Transport>) -> Self {
        self.outside = self.outside.transport(transport);
        self
    }

    /// Another clock.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Arc::clone(&clock);
        self.outside = self.outside.clock(clock);
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
        let policy = callbacks.policy.clone();
        let concurrency = policy.limits.concurrency as usize;
        let dispatch = Dispatch {
            courier: self.outside.courier(&callbacks.url, policy, &callbacks.secrets)?,
            clock: self.clock,
            headers: header_names(&callbacks),
            dlq,
            observer: self.observer,
            turns: Semaphore::new(concurrency),
            closing: CancellationToken::new(),
            stopping: CancellationToken::new(),
        };
        Ok(RetryableNotifier {
            dispatch: Arc::new(dispatch),
            places: Arc::new(Semaphore::new(self.capacity)),
            refused: Arc::new(Semaphore::new(REFUSED_MAX)),
            tasks: TaskTracker::new(),
            topic: callbacks.topic,
            drain: self.drain,
            span: self.span,
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
    dispatch: Arc<Dispatch>,
    places: Arc<Semaphore>,
    refused: Arc<Semaphore>,
    tasks: TaskTracker,
    topic: TopicName,
    drain: Duration,
    span: Span,
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
            clock: Arc::new(SystemClock),
            outside: posthorn::Builder::default(),
        }
    }

    /// Stops: takes nothing more in and waits a while for attempts under way. What is not delivered
    /// by then goes to the dead letters. Dropping the notifier instead lets it deliver what it
    /// holds for as long as the runtime lives.
    pub async fn close(&self) {
        self.places.close();
        self.dispatch.closing.cancel();
        self.tasks.close();
        if tokio::time::timeout(self.drain, self.tasks.wait()).await.is_err() {
            self.dispatch.stopping.cancel();
            self.tasks.wait().await;
        }
    }

    fn take_over(&self, prepared: Prepared) {
        // Whoever closes meanwhile waits for what is handed over here.
        let _counted = self.tasks.token();
        let dispatch = Arc::clone(&self.dispatch);
        let event_type = match EventType::new(&prepared.event_type) {
            Ok(event_type) => event_type,
            Err(problem) => {
                let reason = problem.to_string();
                return self.spawn(async move { dispatch.give_up_unsent(prepared, reason).await });
            }
        };
        let (topic, media_type) = (self.topic.clone(), "application/json".to_owned());
        let work = dispatch.courier.work(topic, event_type, media_type, prepared.payload);
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            let webhook = Webhook::new(work, prepared.event_id, Some(place));
            return self.spawn(async move { dispatch.bring(webhook).await });
        }
        let webhook = Webhook::new(work, prepared.event_id, None);
        let closed = self.places.is_closed();
        let reason = if closed { "the notifier is closed" } else { "too many are waiting" };
        match Arc::clone(&self.refused).try_acquire_owned() {
            Ok(place) => self.spawn(async move {
                dispatch.give_up(&webhook, reason.to_owned()).await;
                drop(place);
            }),
            Err(_) => dispatch.lose(&webhook),
        }
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(task.instrument(self.span.clone()));
    }
}

#[async_trait]
impl Notifier for RetryableNotifier {
    async fn payment_succeeded(&self, event: PaymentEvent) {
        self.take_over(Prepared::payment(event, &*self.dispatch.clock));
    }

    async fn refund_succeeded(&self, event: RefundEvent) {
        self.take_over(Prepared::refund(event, &*self.dispatch.clock));
    }

    async fn close(&self) {
        self.close().await;
    }
}
