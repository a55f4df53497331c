//! One trace over publish, waits and attempts.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use posthorn_domain::{
    Clock as _, Idempotency, IdempotencyKey, Outcome, Span, TraceContext, TraceId, WaitReason,
};
use posthorn_engine::{Engine, Options, Parts, Publish, TraceSpan, TraceStep, Tracer};
use posthorn_store::Store as _;
use serde_json::json;

use crate::house::{House, TENANT, answered, publish, rest, subscribe, topic};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const URL: &str = "https://a.example/in?key=secret";

/// Keeps what it is told. Records what its publisher records, and what begins here if it was told so.
#[derive(Default)]
struct Notes {
    own: bool,
    spans: Mutex<Vec<TraceSpan>>,
}

impl Tracer for Notes {
    fn samples(&self, _: TraceId, asked: Option<bool>) -> bool {
        asked.unwrap_or(self.own)
    }

    fn ended(&self, span: TraceSpan) {
        self.spans.lock().push(span);
    }
}

impl Notes {
    fn taken(&self) -> Vec<TraceSpan> {
        std::mem::take(&mut self.spans.lock())
    }
}

async fn engine(house: &House, seed: u8, tracer: Option<Arc<Notes>>) -> Engine {
    let parts = Parts {
        store: Arc::new(house.store.peer()),
        transport: house.receivers.clone(),
        push: None,
        vault: Arc::clone(&house.vault),
        clock: house.clock.clone(),
        seed: [seed; 32],
        tracer: tracer.map(|tracer| tracer as Arc<dyn Tracer>),
        options: Options::default(),
    };
    Engine::start(parts).await.expect("the engine starts")
}

fn parent() -> TraceContext {
    TraceContext::parse(PARENT).expect("valid")
}

fn traced() -> Publish {
    Publish { trace: Some(parent()), ..publish(r#"{"n":1}"#, None) }
}

fn shown(house: &House, nth: usize) -> Option<TraceContext> {
    let seen = house.receivers.of(URL);
    let header = seen[nth].headers.get("traceparent")?;
    Some(TraceContext::parse(header.to_str().expect("text")).expect("a place in a trace"))
}

fn schedule() -> serde_json::Value {
    json!({"request": {"traceparent": "send"},
        "schedule": {"backoff": {"fixed": {"wait": "60s"}}, "jitter": "none"}})
}

#[tokio::test(start_paused = true)]
async fn one_trace_goes_over_publish_waits_attempts_and_a_restart() {
    let house = House::new();
    let notes = Arc::new(Notes::default());
    let first = engine(&house, 1, Some(notes.clone())).await;
    topic(&first).await;
    house.receivers.script(URL, |nth, _| {
        (Duration::from_millis(40), answered(if nth == 0 { 503 } else { 204 }))
    });
    subscribe(&first, URL, schedule()).await;
    let before = house.clock.now();
    let published = first.publish(TENANT, traced()).await.expect("accepted");
    rest(1).await;

    let spans = notes.taken();
    let [publish, wait, attempt] = &spans[..] else { panic!("{spans:#?}") };
    for span in &spans {
        assert_eq!((span.trace, span.event), (parent().trace, published.id));
    }
    assert_eq!(publish.parent, Some(parent().span));
    assert!(publish.began >= before);
    assert!(matches!(
        publish.step,
        TraceStep::Publish { bytes: 7, deliveries: Some(1), repeats: None, refused: None }
    ));
    assert_eq!((wait.parent, attempt.parent), (Some(publish.id), Some(publish.id)));
    assert_eq!(wait.began.plus(wait.took.into()), attempt.began);
    assert_eq!((attempt.took, attempt.follows), (Duration::from_millis(40), None));
    let TraceStep::Attempt { attempt: number, outcome, succeeded, server, .. } = &attempt.step
    else {
        panic!("{attempt:#?}")
    };
    assert_eq!((*number, *outcome, *succeeded), (1, Outcome::Status(503), false));
    let server = server.as_ref().expect("a server");
    assert_eq!((server.scheme, server.host.as_str(), server.port), ("https", "a.example", 443));
    assert!(!format!("{spans:?}").contains("secret"), "{spans:#?}");
    assert_eq!(shown(&house, 0), Some(parent().at(attempt.id)), "the receiver is a child of it");

    // Another process, which has nothing but the store.
    first.kill();
    drop(first);
    rest(20).await;
    let second = engine(&house, 2, Some(notes.clone())).await;
    rest(120).await;
    let spans = notes.taken();
    let [waited, again] = &spans[..] else { panic!("{spans:#?}") };
    assert_eq!((again.trace, again.parent), (parent().trace, Some(publish.id)));
    assert_eq!(again.follows, Some(attempt.id), "a retry is linked to the attempt before");
    assert_ne!((again.id, waited.id), (attempt.id, wait.id));
    let TraceStep::Wait { attempt: 2, held, .. } = waited.step else { panic!("{waited:#?}") };
    assert_eq!(held.map(|held| held.until_due), Some(WaitReason::Schedule));
    assert!(waited.began > attempt.began.plus(Span::from_secs(59)), "from when it was due");
    assert_eq!(shown(&house, 1), Some(parent().at(again.id)));
    second.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_told_and_nothing_kept_where_no_trace_is_recorded() {
    let house = House::new();
    let notes = Arc::new(Notes::default());
    let engine = engine(&house, 1, Some(notes.clone())).await;
    topic(&engine).await;
    subscribe(&engine, URL, schedule()).await;
    let plain = engine.publish(TENANT, publish("1", None)).await.expect("accepted");
    let quiet = Some(parent().with_sampled(false));
    let asked = Publish { trace: quiet, ..traced() };
    let asked = engine.publish(TENANT, asked).await.expect("accepted");
    rest(1).await;
    assert_eq!(notes.taken(), []);
    let kept =
        async |id| house.store.event(TENANT, id).await.expect("an answer").expect("it").trace;
    assert_eq!(kept(plain.id).await, None);
    assert_eq!(kept(asked.id).await, quiet, "who comes later is told that nobody records it");
    assert_eq!((shown(&house, 0), shown(&house, 1)), (None, quiet));
}

#[tokio::test(start_paused = true)]
async fn a_trace_begins_here_when_the_publisher_has_none() {
    let house = House::new();
    let notes = Arc::new(Notes { own: true, ..Notes::default() });
    let engine = engine(&house, 1, Some(notes.clone())).await;
    topic(&engine).await;
    subscribe(&engine, URL, schedule()).await;
    let batch = vec![publish("1", None), publish("2", None)];
    engine.publish_batch(TENANT, batch).await.expect("accepted");
    rest(1).await;
    let spans = notes.taken();
    assert_eq!(spans.len(), 6, "{spans:#?}");
    let mut roots: Vec<_> = spans.iter().filter(|span| span.parent.is_none()).collect();
    assert_eq!(roots.len(), 2, "each event has a trace of its own");
    for root in roots.drain(..) {
        let own: Vec<_> = spans.iter().filter(|span| span.trace == root.trace).collect();
        assert_eq!(own.len(), 3);
        assert!(own.iter().all(|span| span.id == root.id || span.parent == Some(root.id)));
        assert!(own.iter().all(|span| span.event == root.event));
    }
}

#[tokio::test(start_paused = true)]
async fn a_repeat_is_a_step_of_the_trace_it_came_with() {
    let house = House::new();
    let notes = Arc::new(Notes::default());
    let engine = engine(&house, 1, Some(notes.clone())).await;
    topic(&engine).await;
    let keyed = |trace: TraceContext| {
        let mut publish = Publish { trace: Some(trace), ..publish("1", None) };
        let key = IdempotencyKey::new("once").expect("a key");
        publish.idempotency = Some(Idempotency { key, fingerprint: publish.fingerprint() });
        publish
    };
    let other = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
    let other = TraceContext::parse(other).expect("valid");
    let first = engine.publish(TENANT, keyed(parent())).await.expect("accepted");
    let second = engine.publish(TENANT, keyed(other)).await.expect("the same, in another trace");
    assert_eq!((first.id, second.duplicate), (second.id, true));
    let spans = notes.taken();
    assert_eq!(spans[1].trace, other.trace);
    let TraceStep::Publish { repeats, .. } = spans[1].step else { panic!("{spans:#?}") };
    assert_eq!(repeats, Some(first.id));
    let kept = house.store.event(TENANT, first.id).await.expect("an answer").expect("it").trace;
    assert_eq!(kept.map(|kept| kept.trace), Some(parent().trace));
}

#[tokio::test(start_paused = true)]
async fn without_a_tracer_the_publishers_trace_is_passed_on_as_it_is_where_that_is_wanted() {
    let house = House::new();
    let engine = engine(&house, 1, None).await;
    topic(&engine).await;
    subscribe(&engine, URL, schedule()).await;
    subscribe(&engine, "https://b/", json!({})).await;
    let own = json!({"request": {"traceparent": "send", "headers": {"traceparent": "mine"}}});
    subscribe(&engine, "https://c/", own).await;
    let id = engine.publish(TENANT, traced()).await.expect("accepted").id;
    rest(1).await;
    assert_eq!(shown(&house, 0), Some(parent()));
    assert!(!house.receivers.of("https://b/")[0].headers.contains_key("traceparent"));
    assert_eq!(house.receivers.of("https://c/")[0].headers["traceparent"], "mine");
    let kept = house.store.event(TENANT, id).await.expect("an answer").expect("it").trace;
    assert_eq!(kept, Some(parent()));
}
