//! What a program sees that embeds Posthorn.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use posthorn::domain::{Clock as _, DeadReason, DeliveryState, Span, TraceContext, TraceId};
use posthorn::engine::{Error as EngineError, TraceSpan, Tracer};
use posthorn::{Builder, Error, Event, Outcome, Outcomes, Posthorn, Subscription, SystemClock};
use serde_json::json;

use crate::receiver::Receiver;

const PATIENCE: Duration = Duration::from_secs(30);

fn order(number: u32) -> Event {
    Event::json("orders", "order.paid", &json!({"order": number})).expect("JSON")
}

fn open() -> Builder {
    Posthorn::builder().allow("127.0.0.0/8")
}

async fn next(outcomes: &mut Outcomes) -> Outcome {
    let next = tokio::time::timeout(PATIENCE, outcomes.next()).await;
    next.expect("an end in time").expect("the engine runs")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_reaches_those_who_want_it_and_its_end_is_told() {
    let (wanted, other) = (Receiver::start("200 OK").await, Receiver::start("200 OK").await);
    let posthorn = open().in_memory().build().await.expect("starts");
    let mut outcomes = posthorn.outcomes();
    let to = |url: &str| Subscription::to(url).topic("orders").event_type("order.*");
    let shop = posthorn.subscribe(to(&wanted.url).named("shop")).await.expect("made");
    let refunds = Subscription::to(other.url.as_str()).topic("orders").event_type("refund.*");
    posthorn.subscribe(refunds).await.expect("made");
    let published = posthorn.publish(order(42)).await.expect("committed");
    assert_eq!(published.deliveries, 1);
    let ended = next(&mut outcomes).await;
    assert_eq!((ended.event, ended.subscription), (published.id, shop.id));
    assert_eq!((ended.state, ended.spent), (DeliveryState::Delivered, 1));
    assert_eq!(wanted.bodies(), [r#"{"order":42}"#]);
    assert!(other.bodies().is_empty());
    posthorn.shutdown().await;
    let late = posthorn.publish(order(43)).await.expect_err("it has stopped");
    assert!(late.is_transient(), "{late}");
}

#[tokio::test(flavor = "multi_thread")]
async fn subscribing_again_changes_only_what_differs() {
    let posthorn = open().in_memory().build().await.expect("starts");
    let shop = || Subscription::to("https://shop.example/").named("shop").topic("orders");
    let first = posthorn.subscribe(shop()).await.expect("made");
    assert!(first.changed && first.secret.is_some(), "the one time its secret is shown");
    let again = posthorn.subscribe(shop()).await.expect("fine");
    assert_eq!((again.id, again.changed, again.secret), (first.id, false, None));
    let other = posthorn.subscribe(shop().topic("refunds")).await.expect("changed");
    assert_eq!((other.id, other.changed), (first.id, true));
    let given = shop().named("signed").signing_secret("whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3");
    let given = posthorn.subscribe(given).await.expect("made");
    assert_eq!(given.secret, None, "its maker has it");
    let nameless = || Subscription::to("https://a.example/");
    let one = posthorn.subscribe(nameless()).await.expect("made");
    assert_ne!(posthorn.subscribe(nameless()).await.expect("made").id, one.id);
    posthorn.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_folder_holds_is_resumed_by_the_next_process() {
    let folder = tempfile::tempdir().expect("a folder");
    let broken = Receiver::start("500 Internal Server Error").await;
    let posthorn = open().sqlite(folder.path()).build().await.expect("starts");
    let soon = json!({"schedule": {"backoff": {"fixed": {"wait": "100ms"}}}});
    let shop = |url: &str| Subscription::to(url).named("shop").overrides(soon.clone());
    posthorn.subscribe(shop(&broken.url)).await.expect("made");
    let published = posthorn.publish(order(1).idempotency_key("order-1")).await.expect("fine");
    posthorn.shutdown().await;
    assert!(folder.path().join("seal.key").exists());
    let receiver = Receiver::start("200 OK").await;
    let posthorn = open().sqlite(folder.path()).build().await.expect("starts again");
    let mut outcomes = posthorn.outcomes();
    let moved = shop(&receiver.url).secret("signing", "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3");
    posthorn.subscribe(moved).await.expect("changed");
    let ended = next(&mut outcomes).await;
    assert_eq!((ended.event, ended.state), (published.id, DeliveryState::Delivered));
    let again = posthorn.publish(order(1).idempotency_key("order-1")).await.expect("the same");
    assert_eq!((again.id, again.duplicate), (published.id, true));
    let other = posthorn.publish(order(2).idempotency_key("order-1")).await.expect_err("another");
    assert!(matches!(other, Error::Engine(EngineError::KeyReused { .. })), "{other}");
    let second = open().sqlite(folder.path()).build().await.err().expect("in use");
    assert!(matches!(second, Error::Sqlite(_)), "{second}");
    posthorn.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_given_up_is_told_as_dead() {
    let receiver = Receiver::start("500 Internal Server Error").await;
    let posthorn = open().in_memory().build().await.expect("starts");
    let once = Subscription::to(receiver.url.as_str())
        .profile("cedros")
        .overrides(json!({"schedule": {"max_attempts": 1}}));
    posthorn.subscribe(once).await.expect("made");
    posthorn.publish(order(1)).await.expect("committed");
    let ended = next(&mut posthorn.outcomes()).await;
    assert_eq!(ended.state, DeliveryState::Dead(DeadReason::Exhausted), "told from the start on");
    posthorn.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_may_be_for_later_and_kept_for_less_long() {
    let receiver = Receiver::start("200 OK").await;
    let posthorn = open().in_memory().build().await.expect("starts");
    posthorn.subscribe(Subscription::to(receiver.url.as_str())).await.expect("made");
    let mut outcomes = posthorn.outcomes();
    let at = SystemClock.now().plus(Span::from_millis(500));
    posthorn.publish(order(1).deliver_at(at)).await.expect("committed");
    next(&mut outcomes).await;
    assert!(SystemClock.now() >= at, "not before its time");
    posthorn.publish(order(2).retention(Span::from_secs(3_600))).await.expect("committed");
    next(&mut outcomes).await;
    let refused = posthorn.publish(order(3).retention(Span::ZERO)).await.expect_err("too short");
    assert!(
        matches!(refused, Error::Engine(EngineError::Event { field: "retention", .. })),
        "{refused}"
    );
    posthorn.shutdown().await;
}

/// Records everything.
#[derive(Default)]
struct Notes(Mutex<Vec<TraceSpan>>);

impl Tracer for Notes {
    fn samples(&self, _: TraceId, _: Option<bool>) -> bool {
        true
    }

    fn ended(&self, span: TraceSpan) {
        self.0.lock().push(span);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_records_the_traces_of_its_events() {
    let receiver = Receiver::start("200 OK").await;
    let notes = Arc::new(Notes::default());
    let posthorn = open().in_memory().tracer(notes.clone()).build().await.expect("starts");
    let mut outcomes = posthorn.outcomes();
    posthorn.subscribe(Subscription::to(receiver.url.as_str())).await.expect("made");
    let header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    posthorn.publish(order(1).traceparent(header)).await.expect("committed");
    posthorn.publish(order(2).traceparent("no trace")).await.expect("committed all the same");
    for _ in 0..2 {
        next(&mut outcomes).await;
    }
    let given = TraceContext::parse(header).expect("a place in a trace");
    let spans = std::mem::take(&mut *notes.0.lock());
    let own = spans.iter().filter(|span| span.trace == given.trace).count();
    assert_eq!((own, spans.len()), (3, 6), "{spans:#?}");
    assert!(spans.iter().any(|span| span.parent == Some(given.span)));
    posthorn.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_left_of_a_database_in_memory() {
    let folder = tempfile::tempdir().expect("a folder");
    let exe = std::env::current_exe().expect("this test");
    let run = std::process::Command::new(exe)
        .args(["--exact", "facade::a_database_in_memory_in_a_folder_of_its_own", "--ignored"])
        .env("TMPDIR", folder.path())
        .status();
    assert!(run.expect("runs").success());
    assert_eq!(std::fs::read_dir(folder.path()).expect("reads").count(), 0);
}

/// Not a test by itself: it needs a folder for temporary files that nobody else uses.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "runs in a process of its own"]
async fn a_database_in_memory_in_a_folder_of_its_own() {
    let folders = || std::fs::read_dir(std::env::temp_dir()).expect("reads").count();
    let before = folders();
    let posthorn = Posthorn::builder().in_memory().build().await.expect("starts");
    assert_eq!(folders(), before + 1);
    posthorn.publish(order(1)).await.expect("committed");
    posthorn.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_work_is_a_typed_error() {
    let error = Posthorn::builder().build().await.err().expect("no place");
    assert!(matches!(error, Error::NoDatabase), "{error}");
    let error = Posthorn::builder().in_memory().allow("somewhere").build().await;
    assert!(matches!(error.err().expect("no network"), Error::Network(_)));
    let posthorn = Posthorn::builder().in_memory().build().await.expect("starts");
    let closed = Subscription::to("http://127.0.0.1:8080/");
    let error = posthorn.subscribe(closed).await.expect_err("closed unless opened");
    assert!(matches!(error, Error::Engine(EngineError::Url(_))), "{error}");
    let error = posthorn.publish(Event::new("a b", "x", "")).await.expect_err("no topic");
    assert!(matches!(error, Error::Name(_)), "{error}");
    let error = posthorn.subscribe(Subscription::to("https://a.example/").profile("nobody's"));
    assert!(error.await.is_err());
    posthorn.shutdown().await;
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread")]
async fn two_processes_share_a_database() {
    use posthorn::VaultKey;
    use posthorn_testkit::postgres::TestPostgres;

    let database = TestPostgres::start().expect("PostgreSQL, which ./test installs");
    let error = open().postgres(database.url()).build().await.err().expect("no key");
    assert!(matches!(error, Error::NoSealKey), "{error}");
    let receiver = Receiver::start("200 OK").await;
    let key = VaultKey::generate();
    let start = || open().postgres(database.url()).seal_key(key.clone()).build();
    let (one, two) = (start().await.expect("starts"), start().await.expect("starts"));
    let (mut here, mut there) = (one.outcomes(), two.outcomes());
    let shop = Subscription::to(receiver.url.as_str()).named("shop");
    one.subscribe(shop.clone()).await.expect("made");
    assert!(!two.subscribe(shop).await.expect("there").changed);
    let published = two.publish(order(1)).await.expect("committed");
    let ended = tokio::select! {
        ended = next(&mut here) => ended,
        ended = next(&mut there) => ended,
    };
    assert_eq!((ended.event, ended.state), (published.id, DeliveryState::Delivered));
    one.shutdown().await;
    two.shutdown().await;
}
