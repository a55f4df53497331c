//! The one task of the in-memory notifier: what waits, what is under way, and what has ended.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use posthorn_domain::{Attempt, Clock, DeliveryState, Timestamp};
use posthorn_engine::Courier;
use posthorn_store::Work;
use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;
use tracing::{Instrument as _, debug, error, warn};

use crate::dlq::{DlqStore, FailedWebhook, REDACTED};
use crate::event::{Prepared, family};
use crate::observe::{ObserveWebhook, WebhookObservation, WebhookStatus, family_label};

/// What the notifier tells its worker.
pub(super) enum Command {
    Take(Box<Item>),
    Close(oneshot::Sender<()>),
}

/// One webhook on its way.
#[derive(Clone)]
pub(super) struct Item {
    work: Work,
    event_id: String,
    /// When its first attempt began.
    first: Option<Timestamp>,
    last: Option<Attempt>,
    /// Its place among those that may be held, given back when it is dropped.
    _place: Option<Arc<OwnedSemaphorePermit>>,
}

impl Item {
    pub(super) fn new(work: Work, event_id: String) -> Self {
        Self { work, event_id, first: None, last: None, _place: None }
    }

    pub(super) fn holding(self, place: OwnedSemaphorePermit) -> Self {
        Self { _place: Some(Arc::new(place)), ..self }
    }

    fn event_type(&self) -> &str {
        self.work.event.event_type.as_str()
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
}

/// Webhooks that may be on their way to the dead letters at once.
const GIVEN_UP_MAX: u32 = 4_096;

/// What happens to webhooks in the end.
pub(super) struct Ending {
    url: String,
    headers: Vec<String>,
    dlq: Arc<dyn DlqStore>,
    observer: Arc<dyn ObserveWebhook>,
    /// Places on the way to the dead letters.
    places: Arc<Semaphore>,
}

impl Ending {
    pub(super) fn new(
        url: String,
        headers: Vec<String>,
        dlq: Arc<dyn DlqStore>,
        observer: Arc<dyn ObserveWebhook>,
    ) -> Arc<Self> {
        let places = Arc::new(Semaphore::new(GIVEN_UP_MAX as usize));
        Arc::new(Self { url, headers, dlq, observer, places })
    }

    /// Gives a webhook up without keeping anybody waiting for the dead letters. When far too many are
    /// on their way there already, it is only logged and counted.
    pub(super) fn give_up_aside(self: &Arc<Self>, item: Item, reason: &str, now: Timestamp) {
        let (ending, reason) = (Arc::clone(self), reason.to_owned());
        match Arc::clone(&self.places).try_acquire_owned() {
            Ok(place) => {
                let keep = async move {
                    ending.give_up(item, &reason, now).await;
                    drop(place);
                };
                tokio::spawn(keep.in_current_span());
            }
            Err(_) => {
                error!(event = %item.event_id, delivery = %item.work.delivery.id, reason,
                    "a webhook was given up and is lost: too many are being given up at once");
                self.observe(&item, WebhookStatus::Failed);
            }
        }
    }

    /// Waits until all that were given up are where they belong.
    pub(super) async fn settle(&self) {
        // Never closed, so this cannot fail.
        drop(self.places.acquire_many(GIVEN_UP_MAX).await);
    }

    fn delivered(&self, item: &Item) {
        debug!(event = %item.event_id, delivery = %item.work.delivery.id,
            attempt = item.work.delivery.spent(), "a webhook was delivered");
        self.observe(item, WebhookStatus::Success);
    }

    /// Gives a webhook up and keeps it, if dead letters are kept.
    async fn give_up(&self, item: Item, reason: &str, now: Timestamp) {
        let delivery = &item.work.delivery;
        let webhook = FailedWebhook {
            id: delivery.id.to_string(),
            url: self.url.clone(),
            payload: raw(&item.work.event.payload),
            headers: self.headers_of(&item),
            event_type: family(item.event_type()).to_owned(),
            attempts: delivery.spent(),
            last_error: reason.to_owned(),
            last_attempt: item.last.as_ref().map_or(now, |last| last.started_at),
            created_at: delivery.created_at,
        };
        let kept = self.keep(webhook, &item.event_id).await;
        error!(event = %item.event_id, delivery = %delivery.id, attempts = delivery.spent(), reason,
            kept, "a webhook was given up");
        self.observe(&item, if kept { WebhookStatus::Dlq } else { WebhookStatus::Failed });
    }

    /// The same, aside, for an event that cannot even be sent.
    pub(super) fn give_up_unsent(
        self: &Arc<Self>,
        prepared: Prepared,
        reason: String,
        now: Timestamp,
    ) {
        let ending = Arc::clone(self);
        let place = Arc::clone(&self.places).try_acquire_owned();
        let keep = async move {
            ending.unsent(prepared, &reason, now).await;
            drop(place);
        };
        tokio::spawn(keep.in_current_span());
    }

    async fn unsent(&self, prepared: Prepared, reason: &str, now: Timestamp) {
        let webhook = FailedWebhook {
            id: prepared.event_id.clone(),
            url: self.url.clone(),
            payload: raw(&prepared.payload),
            headers: BTreeMap::new(),
            event_type: family(&prepared.event_type).to_owned(),
            attempts: 0,
            last_error: reason.to_owned(),
            last_attempt: now,
            created_at: now,
        };
        let kept = self.keep(webhook, &prepared.event_id).await;
        error!(event = %prepared.event_id, reason, kept, "a webhook cannot be sent");
        self.observer.observe_webhook(&WebhookObservation {
            event_type: family_label(&prepared.event_type),
            status: if kept { WebhookStatus::Dlq } else { WebhookStatus::Failed },
            duration: Duration::ZERO,
            attempt: 0,
            dlq: kept,
        });
    }

    /// Keeps a dead letter; whether it is kept.
    async fn keep(&self, webhook: FailedWebhook, event_id: &str) -> bool {
        match self.dlq.save(webhook).await {
            Ok(kept) => kept,
            Err(problem) => {
                let cause = std::error::Error::source(&problem).map(ToString::to_string);
                error!(%problem, cause, event = event_id, "a dead letter could not be kept");
                false
            }
        }
    }

    fn headers_of(&self, item: &Item) -> BTreeMap<String, String> {
        let event = &item.work.event;
        let own = [
            ("Content-Type", event.content_type.clone()),
            ("X-Cedros-Event-Type", event.event_type.to_string()),
            ("X-Cedros-Delivery-ID", item.work.delivery.id.to_string()),
        ];
        let own = own.into_iter().map(|(name, value)| (name.to_owned(), value));
        own.chain(self.headers.iter().map(|name| (name.clone(), REDACTED.to_owned()))).collect()
    }

    fn observe(&self, item: &Item, status: WebhookStatus) {
        self.observer.observe_webhook(&WebhookObservation {
            event_type: family_label(item.event_type()),
            status,
            duration: item.duration(),
            attempt: item.work.delivery.spent(),
            dlq: status == WebhookStatus::Dlq,
        });
    }
}

/// The payload as it is: it is JSON, since it was made from an event.
fn raw(payload: &[u8]) -> Box<RawValue> {
    let text = String::from_utf8_lossy(payload).into_owned();
    RawValue::from_string(text).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

/// The worker.
pub(super) struct Worker {
    courier: Arc<Courier>,
    ending: Arc<Ending>,
    clock: Arc<dyn Clock>,
    drain: Duration,
    /// Numbers in the order of coming, by when they are due.
    due: BinaryHeap<Reverse<(Instant, u64)>>,
    waiting: HashMap<u64, Item>,
    next: u64,
    under_way: JoinSet<Item>,
    /// Copies of what is under way, should an attempt have to be given up.
    sent: HashMap<Id, Item>,
}

impl Worker {
    pub(super) fn new(
        courier: Arc<Courier>,
        ending: Arc<Ending>,
        clock: Arc<dyn Clock>,
        drain: Duration,
    ) -> Self {
        Self {
            courier,
            ending,
            clock,
            drain,
            due: BinaryHeap::new(),
            waiting: HashMap::new(),
            next: 0,
            under_way: JoinSet::new(),
            sent: HashMap::new(),
        }
    }

    pub(super) fn courier(&self) -> Arc<Courier> {
        Arc::clone(&self.courier)
    }

    /// Runs until it is closed, or until the notifier is dropped and everything has ended.
    pub(super) async fn run(mut self, mut commands: mpsc::Receiver<Command>) {
        let mut open = true;
        while open || !self.waiting.is_empty() || !self.sent.is_empty() {
            let room = self.under_way.len() < self.courier.policy().limits.concurrency as usize;
            let next = self.due.peek().filter(|_| room).map(|Reverse((at, _))| *at);
            tokio::select! {
                biased;
                Some(ended) = self.under_way.join_next_with_id() => self.returned(ended),
                command = commands.recv(), if open => match command {
                    Some(Command::Take(item)) => self.wait(*item, Instant::now()),
                    Some(Command::Close(done)) => {
                        commands.close();
                        // Those who were about to hand something over are waited for.
                        while let Some(command) = commands.recv().await {
                            if let Command::Take(item) = command {
                                self.wait(*item, Instant::now());
                            }
                        }
                        self.close().await;
                        drop(done);
                        return;
                    }
                    None => open = false,
                },
                () = until(next) => self.begin(),
            }
        }
        self.ending.settle().await;
    }

    fn wait(&mut self, item: Item, due: Instant) {
        self.next += 1;
        self.due.push(Reverse((due, self.next)));
        self.waiting.insert(self.next, item);
    }

    /// Begins the attempt that is due.
    fn begin(&mut self) {
        let Some(Reverse((_, number))) = self.due.pop() else { return };
        let Some(item) = self.waiting.remove(&number) else { return };
        let (courier, copy) = (Arc::clone(&self.courier), item.clone());
        let attempt = async move {
            let mut item = item;
            match courier.attempt(&mut item.work).await {
                Ok(Some(attempt)) => {
                    item.first.get_or_insert(attempt.started_at);
                    item.last = Some(attempt);
                }
                Ok(None) => {}
                Err(problem) => warn!(%problem, "an attempt could not be made"),
            }
            item
        };
        let handle = self.under_way.spawn(attempt);
        self.sent.insert(handle.id(), copy);
    }

    /// An attempt is over: what becomes of its webhook is in the delivery's state.
    fn returned(&mut self, ended: Result<(Id, Item), JoinError>) {
        let item = match ended {
            Ok((id, item)) => {
                self.sent.remove(&id);
                item
            }
            Err(crash) => {
                error!(%crash, "an attempt crashed; this is a defect");
                let Some(mut item) = self.sent.remove(&crash.id()) else { return };
                item.work.delivery.attempts += 1;
                self.give_up(item, "the attempt crashed");
                return;
            }
        };
        match item.work.delivery.state {
            DeliveryState::Delivered => self.ending.delivered(&item),
            DeliveryState::Pending | DeliveryState::InFlight => {
                let wait = item.work.delivery.due_at.since(self.clock.now());
                warn!(event = %item.event_id, delivery = %item.work.delivery.id,
                    attempt = item.work.delivery.spent(), reason = summary(&item), retry_in = %wait,
                    "a webhook was not taken; it will be tried again");
                self.wait(item, Instant::now() + wait.to_duration());
            }
            DeliveryState::Dead(_) | DeliveryState::Cancelled(_) => {
                let reason = summary(&item);
                self.give_up(item, &reason);
            }
        }
    }

    /// Gives a webhook up aside: a slow disk does not hold up the others.
    fn give_up(&self, item: Item, reason: &str) {
        self.ending.give_up_aside(item, reason, self.clock.now());
    }

    /// Lets attempts under way end, as long as there is time, and gives up the rest.
    async fn close(mut self) {
        let deadline = Instant::now() + self.drain;
        while !self.under_way.is_empty() {
            tokio::select! {
                Some(ended) = self.under_way.join_next_with_id() => self.returned(ended),
                () = tokio::time::sleep_until(deadline) => break,
            }
        }
        // What is written down as given up must not arrive afterwards; what did end meanwhile did.
        self.under_way.abort_all();
        while let Some(ended) = self.under_way.join_next_with_id().await {
            match ended {
                Err(stopped) if stopped.is_cancelled() => {}
                ended => self.returned(ended),
            }
        }
        let sent = std::mem::take(&mut self.sent).into_values();
        let waiting = std::mem::take(&mut self.waiting).into_values();
        for item in sent.chain(waiting) {
            let reason = match &item.last {
                Some(last) => format!("stopped before it was delivered; last: {}", last.outcome()),
                None => "stopped before it was delivered".to_owned(),
            };
            self.give_up(item, &reason);
        }
        self.ending.settle().await;
    }
}

fn summary(item: &Item) -> String {
    item.last.as_ref().map_or_else(|| "no attempt was made".to_owned(), Attempt::summary)
}

async fn until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at).await,
        None => std::future::pending().await,
    }
}
