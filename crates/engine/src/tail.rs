//! The live tail: events and attempts of a tenant as they happen, on whichever node.
//!
//! One task follows the log in the store for all who listen, so that a hundred listeners cost as much as one,
//! and nobody costs nothing. It looks when something was committed here, and once a second for what others
//! committed. Each tenant has a channel of a bounded number of items: a listener that does not keep up skips
//! what it missed, and is told how much. One that comes back with a [`TailCursor`] first reads by itself what
//! came since ([`catch_up`]), of the last day, and then joins the others exactly where that ends.
//!
//! Some only want to know that something happened ([`Engine::changes`]). While nobody else listens, little is read for them: where much
//! happens, they are told so once a second, and what it was is passed over.
//!
//! What is told has no payloads, responses or requests in it: they may be large, and can be asked for.

mod catch_up;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use posthorn_domain::{Event, Span, TenantId, Timestamp};
use posthorn_store::{AttemptMade, EventLine, FollowAsk, Followed, FollowedItem, LogPlace, Store};
use tokio::sync::{Notify, broadcast, mpsc, oneshot};
use tokio::task::JoinSet;
use tracing::warn;

use crate::engine::Engine;
use crate::error::{Error, Result, chain};
use crate::metrics;

pub(crate) use catch_up::CatchUps;
use catch_up::{Page, Want};

/// Items that are kept for a listener who is behind.
const BACKLOG: usize = 256;
/// Items that are read at once.
const PAGE: usize = 100;
/// How often it is looked for what other nodes committed.
const POLL: Duration = Duration::from_secs(1);
/// How long commits are gathered before it is looked.
const GATHER: Duration = Duration::from_millis(50);
/// How often those are told of much who only want to know that something happened.
const MUCH: Duration = Duration::from_secs(1);
/// How far back a listener may begin.
const RESUME_MAX: Span = Span::from_secs(24 * 60 * 60);
/// Listeners that may wait for the follower at once.
pub(crate) const JOINS: usize = 64;

/// Where a listener stands in the log. Only the store that gave it out knows what it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TailCursor {
    /// The last event it has heard of.
    pub events: LogPlace,
    /// The last attempt.
    pub attempts: LogPlace,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TailItem {
    /// An event was accepted; without its payload.
    Event {
        /// The event.
        event: Event,
        /// How large its payload is.
        payload_bytes: usize,
    },
    /// An attempt was recorded; without request and response.
    Attempt(AttemptMade),
}

/// What a listener hears.
#[derive(Clone, Debug)]
pub enum Heard {
    /// Something happened.
    Item(Arc<TailItem>),
    /// It did not keep up, and so many items of its tenant went by.
    Skipped(u64),
    /// It was away for long: what is older was passed over.
    TooOld(Timestamp),
    /// So much happened on the server that it was passed over; only those who want no more than to know that hear this.
    Much,
}

/// What is on its way to listeners.
#[derive(Clone, Debug)]
enum Told {
    /// An item with its place in its log.
    Item(LogPlace, Arc<TailItem>),
    /// So much that nobody has looked at it, up to here.
    Much(TailCursor),
}

impl Told {
    fn event(found: FollowedItem<EventLine>) -> Self {
        let FollowedItem { place, item: EventLine { event, payload_bytes }, .. } = found;
        Self::Item(place, Arc::new(TailItem::Event { event, payload_bytes }))
    }

    fn attempt(found: FollowedItem<AttemptMade>) -> Self {
        Self::Item(found.place, Arc::new(TailItem::Attempt(found.item)))
    }
}

impl TailCursor {
    /// Moves on; what is heard there, or nothing when that is behind already.
    fn pass(&mut self, told: Told) -> Option<Heard> {
        let (at, item) = match told {
            Told::Item(at, item) => (at, item),
            Told::Much(end) => {
                let is_new = end.events > self.events || end.attempts > self.attempts;
                self.events = self.events.max(end.events);
                self.attempts = self.attempts.max(end.attempts);
                return is_new.then_some(Heard::Much);
            }
        };
        let place = match *item {
            TailItem::Event { .. } => &mut self.events,
            TailItem::Attempt(_) => &mut self.attempts,
        };
        let is_new = at > *place;
        *place = at.max(*place);
        is_new.then_some(Heard::Item(item))
    }
}

/// Says that something was committed here.
#[derive(Default)]
pub(crate) struct Hints {
    /// Whether anybody listens.
    active: AtomicBool,
    some: Notify,
    /// How often something was committed here.
    commits: AtomicU64,
    /// Listeners who want to hear everything.
    thorough: AtomicUsize,
}

/// One of those who want to hear everything, as long as it listens.
struct Thorough(Arc<Hints>);

impl Thorough {
    fn new(hints: &Arc<Hints>) -> Self {
        hints.thorough.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(hints))
    }
}

impl Drop for Thorough {
    fn drop(&mut self) {
        self.0.thorough.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Hints {
    /// Costs next to nothing while nobody listens.
    pub(crate) fn committed(&self) {
        self.commits.fetch_add(1, Ordering::Relaxed);
        if self.active.load(Ordering::Relaxed) {
            self.some.notify_one();
        }
    }
}

/// Somebody who wants to listen.
pub(crate) struct Join {
    tenant: TenantId,
    reply: oneshot::Sender<posthorn_store::Result<Joined>>,
}

struct Joined {
    channel: broadcast::Receiver<Told>,
    /// All that comes after is in the channel.
    since: TailCursor,
}

/// Follows the log for all.
pub(crate) struct Follower {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) hints: Arc<Hints>,
    pub(crate) joins: mpsc::Receiver<Join>,
}

/// Where the follower stands.
struct Standing {
    cursor: TailCursor,
    /// Attempts that were read and are told once all events of before are: so an event is told before what was tried
    /// of it.
    held: Option<Followed<AttemptMade>>,
}

impl Follower {
    /// Runs until nobody can join any more.
    pub(crate) async fn run(mut self) {
        let mut channels: BTreeMap<TenantId, broadcast::Sender<Told>> = BTreeMap::new();
        let mut standing: Option<Standing> = None;
        loop {
            channels.retain(|_, channel| channel.receiver_count() > 0);
            self.hints.active.store(!channels.is_empty(), Ordering::Relaxed);
            if channels.is_empty() {
                standing = None;
                let Some(join) = self.joins.recv().await else { return };
                self.join(join, &mut channels, &mut standing).await;
                continue;
            }
            let Some(at) = &mut standing else {
                channels.clear();
                continue;
            };
            match read(&*self.store, &channels, at).await {
                Ok(true) if self.hints.thorough.load(Ordering::Relaxed) == 0 => {
                    self.pass_over(&channels, at).await;
                    let much = tokio::time::sleep(MUCH);
                    tokio::select! {
                        biased;
                        join = self.joins.recv() => match join {
                            Some(join) => self.join(join, &mut channels, &mut standing).await,
                            None => return,
                        },
                        () = much => {}
                    }
                    continue;
                }
                Ok(true) => {
                    // Others want to join in between.
                    while let Ok(join) = self.joins.try_recv() {
                        self.join(join, &mut channels, &mut standing).await;
                    }
                    continue;
                }
                Ok(false) => {}
                Err(e) => {
                    ::metrics::counter!(metrics::STORE_ERRORS, "operation" => "tail").increment(1);
                    warn!(error = %chain(&e), "the log could not be followed; retrying soon");
                }
            }
            tokio::select! {
                biased;
                join = self.joins.recv() => match join {
                    Some(join) => self.join(join, &mut channels, &mut standing).await,
                    None => return,
                },
                () = self.hints.some.notified() => tokio::time::sleep(GATHER).await,
                () = tokio::time::sleep(POLL) => {}
            }
        }
    }

    /// Goes to the end of the log, and tells all that something happened: to whom, nobody has looked.
    async fn pass_over(
        &self,
        channels: &BTreeMap<TenantId, broadcast::Sender<Told>>,
        at: &mut Standing,
    ) {
        match end(&*self.store).await {
            Ok(cursor) => *at = Standing { cursor, held: None },
            // It goes on where it was.
            Err(e) => {
                ::metrics::counter!(metrics::STORE_ERRORS, "operation" => "tail").increment(1);
                warn!(error = %chain(&e), "the log could not be followed; retrying soon");
            }
        }
        for channel in channels.values() {
            let _ = channel.send(Told::Much(at.cursor));
        }
    }

    /// From here on, what is read is read for this tenant as well.
    async fn join(
        &self,
        join: Join,
        channels: &mut BTreeMap<TenantId, broadcast::Sender<Told>>,
        standing: &mut Option<Standing>,
    ) {
        let since = match standing {
            Some(standing) => {
                // It was read without this tenant.
                standing.held = None;
                standing.cursor
            }
            None => match end(&*self.store).await {
                Ok(cursor) => standing.insert(Standing { cursor, held: None }).cursor,
                Err(e) => {
                    drop(join.reply.send(Err(e)));
                    return;
                }
            },
        };
        let channel = channels.entry(join.tenant);
        let channel = channel.or_insert_with(|| broadcast::channel(BACKLOG).0).subscribe();
        drop(join.reply.send(Ok(Joined { channel, since })));
    }
}

/// Where the log ends now.
async fn end(store: &dyn Store) -> posthorn_store::Result<TailCursor> {
    let ask = FollowAsk { tenants: Vec::new(), after: None, since: None, limit: 0 };
    let events = store.events_after(ask.clone()).await?.last;
    let attempts = store.attempts_after(ask).await?.last;
    Ok(TailCursor { events, attempts })
}

/// Tells all who listen what came next; whether there is more.
async fn read(
    store: &dyn Store,
    channels: &BTreeMap<TenantId, broadcast::Sender<Told>>,
    at: &mut Standing,
) -> posthorn_store::Result<bool> {
    let tenants: Vec<TenantId> = channels.keys().copied().collect();
    let tell = |tenant: TenantId, told: Told| {
        if let Some(channel) = channels.get(&tenant) {
            // Nobody left to hear it is fine.
            let _ = channel.send(told);
        }
    };
    let ask = |after| FollowAsk {
        tenants: tenants.clone(),
        after: Some(after),
        since: None,
        limit: PAGE,
    };
    // Attempts are asked for first and told last.
    if at.held.is_none() {
        at.held = Some(store.attempts_after(ask(at.cursor.attempts)).await?);
    }
    let events = store.events_after(ask(at.cursor.events)).await?;
    at.cursor.events = events.last;
    for found in events.items {
        tell(found.tenant, Told::event(found));
    }
    if events.more {
        return Ok(true);
    }
    let Some(attempts) = at.held.take() else { return Ok(false) };
    at.cursor.attempts = attempts.last;
    for found in attempts.items {
        tell(found.tenant, Told::attempt(found));
    }
    Ok(attempts.more)
}

/// A listener.
pub struct Tail {
    store: Arc<dyn Store>,
    catch_ups: Arc<CatchUps>,
    tenant: TenantId,
    channel: broadcast::Receiver<Told>,
    cursor: TailCursor,
    /// Whether it still reads by itself what it has missed.
    behind: bool,
    /// What it missed is told from here on; for its first page.
    since: Option<Timestamp>,
    /// A page on its way: a task, so that it goes on and lets others go on while nobody waits for it.
    reading: JoinSet<posthorn_store::Result<Page>>,
    /// Attempts it has read, until all events of before are read as well.
    held: Option<Followed<AttemptMade>>,
    too_old: Option<Timestamp>,
    /// What it has read of that.
    read: VecDeque<Told>,
    _thorough: Option<Thorough>,
}

impl Tail {
    /// Where it stands: what it has heard is behind it.
    pub fn cursor(&self) -> TailCursor {
        self.cursor
    }

    /// The next that happened; `Ok(None)` once the engine is gone. Dropping it while it waits loses nothing.
    pub async fn next(&mut self) -> Result<Option<Heard>> {
        loop {
            if let Some(since) = self.too_old.take() {
                return Ok(Some(Heard::TooOld(since)));
            }
            if let Some(told) = self.read.pop_front() {
                if let Some(heard) = self.cursor.pass(told) {
                    return Ok(Some(heard));
                }
                continue;
            }
            if self.behind {
                self.catch_up().await?;
                continue;
            }
            match self.channel.recv().await {
                Ok(told) => {
                    if let Some(heard) = self.cursor.pass(told) {
                        return Ok(Some(heard));
                    }
                }
                Err(broadcast::error::RecvError::Lagged(missed)) => {
                    return Ok(Some(Heard::Skipped(missed)));
                }
                Err(broadcast::error::RecvError::Closed) => return Ok(None),
            }
        }
    }

    /// What happened already, if anything.
    pub fn try_next(&mut self) -> Option<Heard> {
        if let Some(told) = self.read.pop_front() {
            return self.cursor.pass(told);
        }
        if self.behind {
            return None;
        }
        match self.channel.try_recv() {
            Ok(told) => self.cursor.pass(told),
            Err(broadcast::error::TryRecvError::Lagged(missed)) => Some(Heard::Skipped(missed)),
            Err(_) => None,
        }
    }

    /// Reads a part of what it has missed, until that ends where the channel begins.
    async fn catch_up(&mut self) -> Result<()> {
        if self.reading.is_empty() {
            let want = Want { attempts: self.held.is_none(), since: self.since };
            let (gate, store) = (Arc::clone(&self.catch_ups), Arc::clone(&self.store));
            self.reading.spawn(gate.page(store, self.tenant, self.cursor, want));
        }
        let Some(Ok(page)) = self.reading.join_next().await else {
            return Err(Error::Busy("it is stopping"));
        };
        let Page { events, attempts } = page?;
        let attempts = attempts.or_else(|| self.held.take());
        if let Some(since) = self.since.take()
            && (events.skipped || attempts.as_ref().is_some_and(|page| page.skipped))
        {
            self.too_old = Some(since);
        }
        // Among what others have there may be nothing for long.
        if events.items.is_empty() {
            self.cursor.events = self.cursor.events.max(events.last);
        }
        self.read.extend(events.items.into_iter().map(Told::event));
        if events.more {
            self.held = attempts;
            return Ok(());
        }
        let Some(attempts) = attempts else { return Ok(()) };
        if attempts.items.is_empty() {
            self.cursor.attempts = self.cursor.attempts.max(attempts.last);
        }
        self.read.extend(attempts.items.into_iter().map(Told::attempt));
        if !attempts.more {
            self.behind = !self.take_over();
        }
        Ok(())
    }

    /// Takes what is in the channel, which goes on where the log was read to; false when the channel could not
    /// keep all of it.
    fn take_over(&mut self) -> bool {
        loop {
            match self.channel.try_recv() {
                Ok(told) => self.read.push_back(told),
                Err(broadcast::error::TryRecvError::Lagged(_)) => return false,
                Err(_) => return true,
            }
        }
    }
}

impl Engine {
    /// A number that grows whenever events or outcomes are committed on this node: whoever sees the same number twice
    /// has missed nothing here in between. For figures of the whole server; a tenant has its [`Engine::tail`].
    pub fn commits(&self) -> u64 {
        self.inner.hints.commits.load(Ordering::Relaxed)
    }

    /// Where the log of the whole server ends now: whoever listens from here on misses nothing that comes later.
    pub async fn log_end(&self) -> Result<TailCursor> {
        Ok(end(&**self.store()).await?)
    }

    /// Events and attempts of a tenant as they happen, on whichever node: from now on, or from where an
    /// earlier listener stood, of the last day.
    pub async fn tail(&self, tenant: TenantId, from: Option<TailCursor>) -> Result<Tail> {
        // Before it joins: what comes after that is read for it.
        let thorough = Thorough::new(&self.inner.hints);
        self.listen(tenant, from, Some(thorough)).await
    }

    /// The same for somebody who only wants to know that something happened, and costs next to nothing where much does
    /// ([`Heard::Much`]).
    pub async fn changes(&self, tenant: TenantId, from: Option<TailCursor>) -> Result<Tail> {
        self.listen(tenant, from, None).await
    }

    async fn listen(
        &self,
        tenant: TenantId,
        from: Option<TailCursor>,
        thorough: Option<Thorough>,
    ) -> Result<Tail> {
        let gone = || Error::Busy("it is stopping");
        let (reply, joined) = oneshot::channel();
        let join = Join { tenant, reply };
        self.inner.tails.send(join).await.map_err(|_| gone())?;
        let Joined { channel, since } = joined.await.map_err(|_| gone())??;
        Ok(Tail {
            store: Arc::clone(self.store()),
            catch_ups: Arc::clone(&self.inner.catch_ups),
            tenant,
            channel,
            cursor: from.unwrap_or(since),
            behind: from.is_some(),
            since: from.map(|_| self.now().minus(RESUME_MAX)),
            reading: JoinSet::new(),
            held: None,
            too_old: None,
            read: VecDeque::new(),
            _thorough: thorough,
        })
    }
}
