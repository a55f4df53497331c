//! Live pages: a stream that says that something of a page has changed, and no more than that.
//!
//! # Theory of operation
//! The page that hears of a change asks for itself again, and puts what is new in the place of what was. So everything
//! that is shown is made in one way, by the page's own handler, and nothing is kept for a tab that does not read: what
//! happens while one is told, or right afterwards, becomes one more word. Pages of a tenant follow its tail, which
//! the engine reads once for all; what the tail does not tell (a delivery that is cancelled, a job that moves on) is looked at
//! every other second. The overview of the server has a pulse that one task takes for all who look at it. How often a tab is told
//! depends on what pages cost and how many listen, so that deliveries hardly notice ([`pace`]).
//!
//! A page has a mark of how things were before it was made ([`Mark`]), and its stream begins there: what happened between the
//! two is told at once, and when nothing did, the page is not asked for a second time. Every word has the mark of its
//! moment, which browsers send along when they come back.
//!
//! A stream looks at its session every other second, and ends with it, with the listener and with the engine, and after
//! some minutes, so that no place is held for somebody who is gone. Browsers come back by themselves. Tabs that nobody
//! sees have no stream.
//!
//! # What it must not know
//! What is on the pages.

mod mark;
mod pace;
mod pulse;

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream;
use http::{HeaderValue, StatusCode, header};
use parking_lot::Mutex;
use posthorn_domain::{
    CatalogVersion, Delivery, DeliveryId, EventId, Job, JobId, Redrive, RedriveId, SessionId,
    SubscriptionId,
};
use posthorn_engine::{Health, Heard, Tail, TailItem};
use posthorn_store::Counts;
use tokio::sync::watch;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep_until};

use self::mark::{Mark, print_of};
use self::pulse::{Pulse, Vitals};
use crate::pages::Answer;
use crate::trouble::Trouble;
use crate::visit::Visit;
use pace::Pace;

/// Streams of all sessions on this node.
const STREAMS_MAX: usize = 200;
/// Streams of one session: as many tabs are seen at once, at most.
const PER_SESSION_MAX: usize = 10;
/// The least time between two words to one tab.
const GAP: Duration = Duration::from_secs(1);
/// The same for the overview of the server, which is made of more.
const SERVER_GAP: Duration = Duration::from_secs(2);
/// How often it is looked whether the session is still there, and at what the tail does not tell.
const LOOK: Duration = Duration::from_secs(2);
/// Who hears nothing for so long is told that all is well.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How long a stream lasts.
const LIFE: Duration = Duration::from_secs(300);

/// The streams that are open, by session.
#[derive(Default)]
pub(crate) struct Streams {
    open: Mutex<HashMap<SessionId, usize>>,
    pulse: Arc<Pulse>,
    pace: Pace,
}

impl Streams {
    /// A page was made in so long.
    pub(crate) fn page_took(&self, span: Duration) {
        self.pace.took(span);
    }

    /// How long a tab waits between two words, at least.
    fn gap(&self, least: Duration) -> Duration {
        let tabs = self.open.lock().values().sum();
        self.pace.gap(tabs, least)
    }

    fn enter(self: &Arc<Self>, session: SessionId) -> Option<StreamPlace> {
        let mut open = self.open.lock();
        let all: usize = open.values().sum();
        let own = open.get(&session).copied().unwrap_or_default();
        if all >= STREAMS_MAX || own >= PER_SESSION_MAX {
            return None;
        }
        open.insert(session, own + 1);
        Some(StreamPlace { streams: Arc::clone(self), session })
    }
}

/// A place among the open streams.
struct StreamPlace {
    streams: Arc<Streams>,
    session: SessionId,
}

impl Drop for StreamPlace {
    fn drop(&mut self) {
        let mut open = self.streams.open.lock();
        if let Some(own) = open.get_mut(&self.session) {
            *own -= 1;
            if *own == 0 {
                open.remove(&self.session);
            }
        }
    }
}

/// What a page is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum About {
    Server,
    Tenant,
    Event(EventId),
    Delivery(DeliveryId),
    Subscription(SubscriptionId),
    Job(JobId),
    Redrive(RedriveId),
}

impl About {
    /// By an id of whatever kind; anything else is about the whole tenant.
    fn read(text: &str) -> Self {
        let event = || text.parse().map(Self::Event);
        let delivery = || text.parse().map(Self::Delivery);
        let subscription = || text.parse().map(Self::Subscription);
        let job = || text.parse().map(Self::Job);
        let redrive = || text.parse().map(Self::Redrive);
        let found = event().or_else(|_| delivery()).or_else(|_| subscription());
        found.or_else(|_| job()).or_else(|_| redrive()).unwrap_or(Self::Tenant)
    }

    /// Whether what was heard is on the page.
    fn concerns(self, heard: &Heard) -> bool {
        let Heard::Item(item) = heard else { return true };
        match (self, &**item) {
            (Self::Server | Self::Tenant, _) => true,
            (Self::Event(id), TailItem::Attempt(made)) => made.line.event == id,
            (Self::Delivery(id), TailItem::Attempt(made)) => made.line.attempt.delivery == id,
            (Self::Subscription(id), TailItem::Attempt(made)) => made.line.subscription == id,
            (_, TailItem::Event { .. }) | (Self::Job(_) | Self::Redrive(_), _) => false,
        }
    }
}

/// What the tail does not tell, as it was seen last.
#[derive(Debug, PartialEq)]
struct Seen {
    catalog: CatalogVersion,
    what: What,
}

#[derive(Debug, PartialEq)]
enum What {
    Nothing,
    Counts(Counts),
    Delivery(Option<Box<Delivery>>),
    Job(Option<Box<Job>>),
    Redrive(Option<Box<Redrive>>),
}

impl Seen {
    async fn of(visit: &Visit, about: About) -> Result<Self, Trouble> {
        let (engine, store) = (visit.engine(), visit.engine().store());
        let catalog = engine.catalog().version();
        let of_store = |_| Trouble::Away;
        let what = match (about, visit.tenant().map(|tenant| tenant.id)) {
            (About::Server, _) | (_, Err(_)) => What::Nothing,
            (About::Subscription(_), _) => What::Nothing,
            (About::Tenant | About::Event(_), Ok(tenant)) => {
                What::Counts(store.counts(Some(tenant)).await.map_err(of_store)?)
            }
            (About::Delivery(id), Ok(tenant)) => {
                What::Delivery(store.delivery(tenant, id).await.map_err(of_store)?.map(Box::new))
            }
            (About::Job(id), Ok(tenant)) => {
                What::Job(store.job(tenant, id).await.map_err(of_store)?.map(Box::new))
            }
            (About::Redrive(id), Ok(tenant)) => {
                What::Redrive(store.redrive(tenant, id).await.map_err(of_store)?.map(Box::new))
            }
        };
        Ok(Self { catalog, what })
    }
}

/// Takes the mark of a page that is about to be made. Nothing of the page may be read before.
pub(crate) async fn mark(visit: &Visit) -> Option<String> {
    let mark = if visit.tenant().is_ok() {
        let about = visit.named.first().map_or(About::Tenant, |name| About::read(name));
        let log = visit.engine().log_end().await.ok()?;
        let seen = Seen::of(visit, about).await.ok()?;
        if let What::Counts(counts) = seen.what {
            visit.counted(counts);
        }
        Mark { log: Some(log), print: print_of(&seen) }
    } else {
        Mark { log: None, print: print_of(&Vitals::of(visit.engine()).await) }
    };
    Some(mark.to_string())
}

/// Where changes are heard of.
enum Source {
    Tail(Box<Tail>),
    Pulse(watch::Receiver<u64>),
}

impl Source {
    /// Waits for something that is on the page; false when there is nothing more to hear.
    async fn hear(&mut self, about: About) -> bool {
        match self {
            Self::Pulse(beats) => beats.changed().await.is_ok(),
            Self::Tail(tail) => loop {
                match tail.next().await {
                    Ok(Some(heard)) if about.concerns(&heard) => return true,
                    Ok(Some(_)) => {}
                    Ok(None) | Err(_) => return false,
                }
            },
        }
    }

    /// How things are now.
    fn mark(&self, seen: &Seen) -> Mark {
        match self {
            Self::Pulse(beats) => Mark { log: None, print: *beats.borrow() },
            Self::Tail(tail) => Mark { log: Some(tail.cursor()), print: print_of(seen) },
        }
    }

    /// Lets go of what the page will show when it asks for itself again.
    fn forget(&mut self) {
        match self {
            Self::Pulse(beats) => drop(beats.borrow_and_update()),
            Self::Tail(tail) => while tail.try_next().is_some() {},
        }
    }
}

/// `GET /console/live`.
pub(crate) async fn server(visit: Arc<Visit>) -> Answer {
    let beats = visit.console.streams.pulse.follow(visit.engine());
    let changed = match Mark::of_listener(&visit) {
        Some(mark) => mark.print != print_of(&Vitals::of(visit.engine()).await),
        None => false,
    };
    open(visit, About::Server, Source::Pulse(beats), Since { changed, missed: None }).await
}

/// `GET …/live`, with the id of what the page is about as `of`.
pub(crate) async fn tenant(visit: Arc<Visit>) -> Answer {
    let about = About::read(visit.query.get("of").unwrap_or_default());
    let tenant = visit.tenant()?.id;
    let tail = visit.engine().changes(tenant, None).await?;
    let mark = Mark::of_listener(&visit);
    let before = mark.and_then(|mark| mark.log).filter(|log| *log != tail.cursor());
    let missed = match before {
        Some(log) => Some(Box::new(visit.engine().changes(tenant, Some(log)).await?)),
        None => None,
    };
    let changed = match mark {
        Some(mark) => mark.print != print_of(&Seen::of(&visit, about).await?),
        None => false,
    };
    open(visit, about, Source::Tail(Box::new(tail)), Since { changed, missed }).await
}

/// What happened between a page and its stream.
struct Since {
    changed: bool,
    /// Reads what is in the log of that time, until something is found that is on the page.
    missed: Option<Box<Tail>>,
}

/// Waits for something on the page that was missed; for ever when nothing can be.
async fn hear_missed(missed: &mut Option<Box<Tail>>, about: About) {
    let Some(tail) = missed else { return std::future::pending().await };
    loop {
        match tail.next().await {
            Ok(Some(heard)) if !about.concerns(&heard) => {}
            // Whoever cannot tell says so.
            _ => return,
        }
    }
}

async fn open(visit: Arc<Visit>, about: About, source: Source, since: Since) -> Answer {
    let mut response = Response::new(Body::empty());
    let Some(place) = visit.console.streams.enter(visit.session.id) else {
        // The page goes on asking, now and then, until there is room.
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("5"));
        return Ok(response);
    };
    let seen = Seen::of(&visit, about).await?;
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let now = Instant::now();
    let gap = if about == About::Server { SERVER_GAP } else { GAP };
    let following = Following {
        gap,
        step: Step::Greet,
        changed: since.changed,
        missed: since.missed,
        spoke: now,
        // What happened before is told at once, where few listen: a page has just been made for this tab.
        told: now.checked_sub(gap).unwrap_or(now),
        ends: now + LIFE,
        visit,
        about,
        source,
        seen,
        look,
        _place: place,
    };
    *response.body_mut() = Body::from_stream(stream::unfold(following, Following::next));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    // Proxies that would keep the answer back until it is complete are asked not to.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    Ok(response)
}

/// How far a stream is.
#[derive(PartialEq)]
enum Step {
    Greet,
    Follow,
    End,
}

/// One stream.
struct Following {
    visit: Arc<Visit>,
    about: About,
    source: Source,
    seen: Seen,
    /// Whether something happened that the page was not told of.
    changed: bool,
    /// The log of the time between the page and this stream.
    missed: Option<Box<Tail>>,
    /// When the page was last told of a change.
    told: Instant,
    /// When it was last told anything.
    spoke: Instant,
    /// The least time between two words, however few listen.
    gap: Duration,
    ends: Instant,
    look: Interval,
    step: Step,
    _place: StreamPlace,
}

/// What a look has found.
enum Looked {
    Same,
    Changed,
    /// The session is no more.
    Over,
}

impl Following {
    /// The next part of the body; none when the stream ends.
    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        match self.step {
            Step::Greet => {
                self.step = Step::Follow;
                return Some(self.say("retry: 2000\n: following\n\n"));
            }
            Step::Follow => {}
            Step::End => return None,
        }
        loop {
            let due = self.told + self.visit.console.streams.gap(self.gap);
            let looks = tokio::select! {
                biased;
                () = self.visit.ending() => return None,
                () = sleep_until(self.ends) => return None,
                () = sleep_until(due), if self.changed => {
                    self.changed = false;
                    self.told = Instant::now();
                    self.source.forget();
                    let mark = self.source.mark(&self.seen);
                    return Some(self.say(format!("id: {mark}\ndata: changed\n\n")));
                }
                () = hear_missed(&mut self.missed, self.about), if !self.changed => {
                    self.missed = None;
                    self.changed = true;
                    false
                }
                _ = self.look.tick() => true,
                goes_on = self.source.hear(self.about), if !self.changed => {
                    if !goes_on {
                        return None;
                    }
                    self.changed = true;
                    false
                }
            };
            if !looks {
                continue;
            }
            match self.look().await {
                // The browser comes back, and is told then how things are.
                Err(_) => return None,
                Ok(Looked::Over) => {
                    self.step = Step::End;
                    return Some(self.say("event: over\ndata: over\n\n"));
                }
                Ok(Looked::Changed) => self.changed = true,
                Ok(Looked::Same) if self.spoke.elapsed() < KEEP_ALIVE => {}
                Ok(Looked::Same) => return Some(self.say(": all is well\n\n")),
            }
        }
    }

    fn say(mut self, text: impl Into<Bytes>) -> (Result<Bytes, Infallible>, Self) {
        self.spoke = Instant::now();
        (Ok(text.into()), self)
    }

    async fn look(&mut self) -> Result<Looked, Trouble> {
        if !self.visit.is_still_allowed().await? {
            return Ok(Looked::Over);
        }
        let seen = Seen::of(&self.visit, self.about).await?;
        let is_new = seen != self.seen;
        self.seen = seen;
        Ok(if is_new { Looked::Changed } else { Looked::Same })
    }
}

impl Visit {
    /// Waits until answers that go on for ever have to end.
    async fn ending(&self) {
        let mut health = self.engine().health();
        let closing = async {
            match self.peer() {
                Some(peer) => peer.closing().await,
                None => std::future::pending().await,
            }
        };
        let stopping = async { drop(health.wait_for(|health| *health != Health::Running).await) };
        tokio::select! {
            () = closing => {}
            () = stopping => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthorn_domain::Timestamp;

    #[test]
    fn a_page_is_about_what_its_id_names() {
        let at = Timestamp::from_millis(1_000);
        let (delivery, job) = (DeliveryId::new(at, 7), JobId::new(at, 7));
        assert_eq!(About::read(&delivery.to_string()), About::Delivery(delivery));
        assert_eq!(About::read(&job.to_string()), About::Job(job));
        assert_eq!(About::read(""), About::Tenant);
        assert_eq!(About::read("<script>"), About::Tenant);
    }

    #[test]
    fn places_are_bounded_and_given_back() {
        let streams = Arc::new(Streams::default());
        let session = |number| SessionId::new(Timestamp::from_millis(1_000), number);
        let mut own: Vec<_> = (0..PER_SESSION_MAX).map(|_| streams.enter(session(1))).collect();
        assert!(own.iter().all(Option::is_some) && streams.enter(session(1)).is_none());
        own.pop();
        assert!(streams.enter(session(1)).is_some(), "one has left, and this one does at once");
        let others: Vec<_> = (2..).map_while(|number| streams.enter(session(number))).collect();
        assert_eq!(others.len() + own.len(), STREAMS_MAX);
        drop((own, others));
        assert!(streams.open.lock().is_empty());
    }
}
