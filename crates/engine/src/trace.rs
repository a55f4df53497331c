//! Traces: what became of an event, step by step, for whoever records such things.
//!
//! # Theory of operation
//! An event keeps its place in a trace ([`TraceContext`]) in the store, so that attempts hours later, after a
//! restart or on another node still belong to it. Where a [`Tracer`] is given, it is told of every step that
//! ended, if the trace is recorded: the publish, the wait before each attempt, the attempt. Whether it is recorded
//! is decided once, at the publish, and kept in the flag of the place.
//!
//! Ids of steps are not kept but computed: that of a publish from the event's id, that of an attempt from the
//! delivery's id and the attempt's number. So every node can name the attempt before this one.
//!
//! Without a tracer there is one branch for each publish and one for each attempt.
//!
//! # What it must not know
//! How traces are sent and to whom. What is told has no payloads, no paths, no queries, no headers and no texts of
//! receivers.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{Context as Hash, SHA256};
use http::{HeaderName, HeaderValue};
use posthorn_domain::policy::TraceHeader;
use posthorn_domain::{
    AttemptOutcome, DeliveryId, Destination, Event, EventId, EventType, Held, Outcome, SpanId,
    SubscriptionId, TenantId, Timestamp, Timings, TopicName, TraceContext, TraceId,
};
use posthorn_store::Work;
use tokio::time::Instant;

use crate::attempt::{Context, Done, Ended};
use crate::error::Result;
use crate::intake::{Published, reason};

/// Where a trace is told to receivers.
pub(crate) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Whoever records traces.
pub trait Tracer: Send + Sync + 'static {
    /// Whether a trace is recorded. `asked` is what the publisher's flag says; `None` when the trace begins here.
    fn samples(&self, trace: TraceId, asked: Option<bool>) -> bool;

    /// A step of a recorded trace has ended. Called in the middle of the work: it must not wait.
    fn ended(&self, span: TraceSpan);
}

/// A step of a trace that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceSpan {
    /// The trace.
    pub trace: TraceId,
    /// The step.
    pub id: SpanId,
    /// The step it belongs to; `None` for the first of a trace.
    pub parent: Option<SpanId>,
    /// The attempt before this one.
    pub follows: Option<SpanId>,
    /// When it began.
    pub began: Timestamp,
    /// How long it took.
    pub took: Duration,
    /// Whose event it is.
    pub tenant: TenantId,
    /// The event.
    pub event: EventId,
    /// Its topic.
    pub topic: TopicName,
    /// Its type.
    pub event_type: EventType,
    /// What was done.
    pub step: TraceStep,
}

/// What was done.
#[derive(Clone, Debug, PartialEq)]
pub enum TraceStep {
    /// An event was taken in, or refused.
    Publish {
        /// How large the payload is.
        bytes: usize,
        /// To how many subscriptions it goes; `None` when it was refused.
        deliveries: Option<usize>,
        /// The event that it repeats.
        repeats: Option<EventId>,
        /// Why it was refused.
        refused: Option<&'static str>,
    },
    /// A delivery waited for its attempt.
    Wait {
        /// The delivery.
        delivery: DeliveryId,
        /// Whose subscription.
        subscription: SubscriptionId,
        /// For which attempt.
        attempt: u32,
        /// What held it back, when that was more than a moment.
        held: Option<Held>,
    },
    /// An attempt was made.
    Attempt {
        /// The delivery.
        delivery: DeliveryId,
        /// Whose subscription.
        subscription: SubscriptionId,
        /// Which attempt.
        attempt: u32,
        /// What kind of destination it went to.
        kind: &'static str,
        /// The method, where it was an HTTP request.
        method: Option<&'static str>,
        /// Where it was sent, where it was an HTTP request.
        server: Option<Server>,
        /// What came of it.
        outcome: Outcome,
        /// Whether that counts as success.
        succeeded: bool,
        /// Whether somebody asked for it by hand.
        manual: bool,
        /// How long its phases took.
        timings: Timings,
    },
}

/// The other end of a request, without path and query: these are the receiver's own and may hold secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// `http` or `https`.
    pub scheme: &'static str,
    /// Its name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
}

impl Server {
    /// Of a URL in its normal form.
    fn of(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let (scheme, usual) = match scheme {
            "https" => ("https", 443),
            "http" => ("http", 80),
            _ => return None,
        };
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
            _ => (authority, usual),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Some(Self { scheme, host: host.to_owned(), port })
    }
}

/// The first bytes of a hash over what names a step. All zeros means none, so that it cannot come out.
fn hashed<const N: usize>(what: &[u8], id: &[u8], number: u32) -> [u8; N] {
    let mut hash = Hash::new(&SHA256);
    for part in [b"posthorn trace 1\0", what, id, &number.to_be_bytes()] {
        hash.update(part);
    }
    let digest = hash.finish();
    let mut bytes: [u8; N] = std::array::from_fn(|index| digest.as_ref()[index]);
    if bytes == [0; N] {
        bytes[N - 1] = 1;
    }
    bytes
}

fn span(what: &[u8], id: &[u8], number: u32) -> SpanId {
    SpanId::new(hashed(what, id, number)).expect("not all zeros")
}

/// The trace that begins with an event.
fn trace_of(event: EventId) -> TraceId {
    TraceId::new(hashed(b"trace", event.as_bytes(), 0)).expect("not all zeros")
}

/// The step that publishes an event.
fn publish_of(event: EventId) -> SpanId {
    span(b"publish", event.as_bytes(), 0)
}

fn wait_of(delivery: DeliveryId, attempt: u32) -> SpanId {
    span(b"wait", delivery.as_bytes(), attempt)
}

/// The step that makes an attempt, on whichever node.
pub(crate) fn attempt_of(delivery: DeliveryId, attempt: u32) -> SpanId {
    span(b"attempt", delivery.as_bytes(), attempt)
}

/// A publish that is recorded.
pub(crate) struct Publishing {
    context: TraceContext,
    parent: Option<SpanId>,
}

/// The place of a new event in a trace, which is kept with it, and what is to be told of its publish.
pub(crate) fn begin(
    tracer: &dyn Tracer,
    event: EventId,
    given: Option<TraceContext>,
) -> (Option<TraceContext>, Option<Publishing>) {
    let trace = given.map_or_else(|| trace_of(event), |given| given.trace);
    if !tracer.samples(trace, given.map(|given| given.is_sampled())) {
        // The flag says what was decided here, so that no later step is recorded without the first.
        return (given.map(|given| given.with_sampled(false)), None);
    }
    let own = publish_of(event);
    let context = match given {
        Some(given) => given.at(own).with_sampled(true),
        None => TraceContext::new(trace, own, true),
    };
    (Some(context), Some(Publishing { context, parent: given.map(|given| given.span) }))
}

/// Publishes of one call that are recorded, by their places in it.
pub(crate) struct Publishes {
    tracer: Arc<dyn Tracer>,
    began: (Timestamp, Instant),
    open: Vec<(usize, Publishing, Arc<Event>)>,
}

impl Publishes {
    pub(crate) fn new(tracer: &Arc<dyn Tracer>, now: Timestamp) -> Self {
        Self { tracer: Arc::clone(tracer), began: (now, Instant::now()), open: Vec::new() }
    }

    /// The place of an event in a trace, and what [`Self::open`] wants.
    pub(crate) fn begin(
        &self,
        event: EventId,
        given: Option<TraceContext>,
    ) -> (Option<TraceContext>, Option<Publishing>) {
        begin(&*self.tracer, event, given)
    }

    pub(crate) fn open(&mut self, place: usize, publishing: Publishing, event: &Arc<Event>) {
        self.open.push((place, publishing, Arc::clone(event)));
    }

    /// Tells of all of them, when all are answered.
    pub(crate) fn end(self, results: &[Result<Published>]) {
        let took = self.began.1.elapsed();
        for (place, publishing, event) in self.open {
            let Some(result) = results.get(place) else { continue };
            let (deliveries, repeats, refused) = match result {
                Ok(done) if done.duplicate => (Some(done.deliveries), Some(done.id), None),
                Ok(done) => (Some(done.deliveries), None, None),
                Err(e) => (None, None, Some(reason(e))),
            };
            self.tracer.ended(TraceSpan {
                trace: publishing.context.trace,
                id: publishing.context.span,
                parent: publishing.parent,
                follows: None,
                began: self.began.0,
                took,
                tenant: event.tenant,
                event: event.id,
                topic: event.topic.clone(),
                event_type: event.event_type.clone(),
                step: TraceStep::Publish {
                    bytes: event.payload.len(),
                    deliveries,
                    repeats,
                    refused,
                },
            });
        }
    }
}

/// Tells of an attempt that was made, and of the wait before it. What was not sent is no attempt: it waits on.
pub(crate) fn attempted(tracer: &dyn Tracer, done: &Done, took: Duration) {
    let Work { delivery, event } = &done.job.work;
    let Some(context) = event.trace.filter(TraceContext::is_sampled) else { return };
    let Ended::Outcome(outcome) = &done.result else { return };
    let attempt = delivery.attempts + 1;
    let (id, subscription) = (delivery.id, delivery.subscription);
    let tell = |span: SpanId, follows, began: Timestamp, took, step| {
        tracer.ended(TraceSpan {
            trace: context.trace,
            id: span,
            parent: Some(context.span),
            follows,
            began,
            took,
            tenant: event.tenant,
            event: event.id,
            topic: event.topic.clone(),
            event_type: event.event_type.clone(),
            step,
        });
    };
    // When the attempt before this one ended is not kept with the delivery; its own span says so.
    let since = match () {
        () if delivery.attempts == 0 => delivery.created_at,
        () if delivery.spent() == 0 => delivery.budget_began,
        () => delivery.due_at,
    };
    let since = since.min(done.started_at);
    let waited = done.started_at.since(since).to_duration();
    let held = done.job.held;
    let wait = TraceStep::Wait { delivery: id, subscription, attempt, held };
    tell(wait_of(id, attempt), None, since, waited, wait);
    let policy = &done.job.policy;
    let (method, server) = match &done.job.view.subscription.destination {
        Destination::Webhook { url } => (Some(policy.request.method.as_str()), Server::of(url)),
        Destination::PushService(target) => (Some("POST"), Server::of(&target.origin)),
        Destination::Push(_) => (None, None),
    };
    let (outcome, succeeded) = match outcome {
        AttemptOutcome::Answered(answer) => {
            (Outcome::Status(answer.status), policy.success.contains(answer.status))
        }
        AttemptOutcome::Failed { code, .. } => (Outcome::Failure(*code), false),
    };
    let step = TraceStep::Attempt {
        delivery: id,
        subscription,
        attempt,
        kind: done.job.view.destination.kind(),
        method,
        server,
        outcome,
        succeeded,
        manual: delivery.is_by_hand(event),
        timings: done.timings,
    };
    let follows = (attempt > 1).then(|| attempt_of(id, attempt - 1));
    tell(attempt_of(id, attempt), follows, done.started_at, took, step);
}

/// What an attempt says about its trace to the receiver, where the policy wants it. The step is the attempt itself
/// when it is recorded; else it is the one that the publisher named, as if nobody was between.
pub(crate) fn header(around: &Context, wanted: TraceHeader, work: &Work) -> Option<HeaderValue> {
    if wanted == TraceHeader::None {
        return None;
    }
    let context = work.event.trace?;
    let told = match around.tracer.is_some() && context.is_sampled() {
        true => context.at(attempt_of(work.delivery.id, work.delivery.attempts + 1)),
        false => context,
    };
    HeaderValue::try_from(told.to_string()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Always(bool);

    impl Tracer for Always {
        fn samples(&self, _: TraceId, _: Option<bool>) -> bool {
            self.0
        }

        fn ended(&self, _: TraceSpan) {}
    }

    fn event() -> EventId {
        EventId::new(Timestamp::from_millis(1_000), 7)
    }

    fn given() -> TraceContext {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        TraceContext::parse(text).expect("valid")
    }

    #[test]
    fn steps_have_the_same_names_on_every_node_and_differ_from_each_other() {
        let delivery = DeliveryId::new(Timestamp::from_millis(1_000), 8);
        assert_eq!(attempt_of(delivery, 3), attempt_of(delivery, 3));
        let other = DeliveryId::new(Timestamp::from_millis(1_000), 9);
        let mut all = vec![publish_of(event())];
        for number in 1..4 {
            all.extend([attempt_of(delivery, number), attempt_of(other, number)]);
            all.extend([wait_of(delivery, number), wait_of(other, number)]);
        }
        let count = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), count);
        // What is written down elsewhere must stay: a later version links to attempts of this one.
        assert_eq!(attempt_of(delivery, 1).to_string(), "66619e9b21d2dd20");
    }

    #[test]
    fn a_publish_goes_on_with_the_publishers_trace() {
        let (kept, publishing) = begin(&Always(true), event(), Some(given()));
        let kept = kept.expect("kept");
        assert_eq!((kept.trace, kept.is_sampled()), (given().trace, true));
        assert_eq!(kept.span, publish_of(event()), "attempts are children of the publish");
        assert_eq!(publishing.expect("recorded").parent, Some(given().span));
        let (kept, publishing) = begin(&Always(false), event(), Some(given()));
        assert_eq!(kept, Some(given().with_sampled(false)));
        assert!(publishing.is_none());
    }

    #[test]
    fn without_a_publishers_trace_one_begins_or_nothing_is_kept() {
        let (kept, publishing) = begin(&Always(true), event(), None);
        assert_eq!(kept.expect("kept").trace, trace_of(event()));
        assert_eq!(publishing.expect("recorded").parent, None);
        let (kept, publishing) = begin(&Always(false), event(), None);
        assert!(kept.is_none() && publishing.is_none());
    }

    #[test]
    fn a_server_is_told_without_path_and_query() {
        let server = |url| Server::of(url).map(|it| (it.scheme, it.host, it.port));
        let host = |scheme, host: &str, port| Some((scheme, host.to_owned(), port));
        assert_eq!(server("https://a.example/in?key=1"), host("https", "a.example", 443));
        assert_eq!(server("http://a.example:8080"), host("http", "a.example", 8080));
        assert_eq!(server("http://[::1]:81/x"), host("http", "::1", 81));
        assert_eq!(server("https://[2001:db8::1]/"), host("https", "2001:db8::1", 443));
        assert_eq!(server("https://a.example?b=c:d"), host("https", "a.example", 443));
        assert_eq!(server("gopher://a.example/"), None);
    }
}
