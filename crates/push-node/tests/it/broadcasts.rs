//! Where broadcasts come from.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use http::StatusCode;
use parking_lot::Mutex;
use posthorn_egress::{Egress, Options};
use posthorn_push::session::{BroadcastError, Broadcasts};
use posthorn_push_node::broadcasts::{PollError, Poller, Table, table};
use posthorn_testkit::wait::PATIENCE;
use tokio_util::sync::CancellationToken;

use crate::house::{Server, counted};

/// A server with a table.
struct Source {
    answer: Arc<Mutex<(StatusCode, String)>>,
    asked: Arc<AtomicUsize>,
    server: Server,
}

impl Source {
    async fn start() -> Self {
        let answer = Arc::new(Mutex::new((StatusCode::OK, String::new())));
        let asked = Arc::new(AtomicUsize::new(0));
        let (given, counted) = (answer.clone(), asked.clone());
        let handler = get(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            let answer = given.lock().clone();
            async move { answer }
        });
        let server = Server::start(Router::new().route("/v1/broadcasts", handler)).await;
        Self { answer, asked, server }
    }

    fn says(&self, status: u16, text: &str) {
        *self.answer.lock() = (StatusCode::from_u16(status).expect("a status"), text.to_owned());
    }

    fn poller(&self, table: &Table, interval: Duration) -> Poller {
        let allow = vec!["127.0.0.1".parse().expect("a rule")];
        let egress = Egress::new(Options { allow, ..Options::default() }).expect("a way out");
        let url = format!("{}/v1/broadcasts", self.server.url());
        Poller::new(table.clone(), egress, &url, interval).expect("a URL")
    }

    /// Waits until it was asked so often.
    async fn was_asked(&self, times: usize) {
        let asked = async {
            while self.asked.load(Ordering::Relaxed) < times {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, asked).await.expect("it is asked");
    }
}

fn fixed(rows: &[(&str, &str)]) -> Table {
    let rows: BTreeMap<_, _> =
        rows.iter().map(|(id, version)| ((*id).to_owned(), (*version).to_owned())).collect();
    table(&rows).expect("a table")
}

/// Whether the table has exactly these rows.
fn has(table: &Table, rows: &[(&str, &str)]) -> bool {
    let mut copy = Broadcasts::clone(&table.load());
    rows.len() == copy.len() && rows.iter().all(|(id, version)| copy.set(id, version) == Ok(false))
}

#[test]
fn a_table_can_be_given() {
    assert!(fixed(&[]).load().is_empty());
    assert!(has(&fixed(&[("a", "1"), ("b", "2")]), &[("b", "2"), ("a", "1")]));
    let reserved = BTreeMap::from([("errors".to_owned(), "1".to_owned())]);
    assert_eq!(table(&reserved).map(|_| ()), Err(BroadcastError::Reserved));
}

#[tokio::test]
async fn a_polled_table_goes_on_top_of_the_given_one() {
    let source = Source::start().await;
    let table = fixed(&[("a", "1"), ("b", "1")]);
    let poller = source.poller(&table, PATIENCE);
    source.says(200, r#"{"broadcasts":{"b":"2","c":"1"},"more":[]}"#);
    poller.poll().await.expect("a table");
    assert!(has(&table, &[("a", "1"), ("b", "2"), ("c", "1")]));
    // Nothing new leaves even the pointer alone; what is left out stays.
    let before = table.load_full();
    source.says(200, r#"{"broadcasts":{"c":"1"}}"#);
    poller.poll().await.expect("a table");
    assert!(Arc::ptr_eq(&before, &table.load_full()));
}

#[tokio::test]
async fn whatever_is_wrong_the_last_table_stays() {
    let source = Source::start().await;
    let table = fixed(&[("a", "1")]);
    let poller = source.poller(&table, PATIENCE);
    let good = r#"{"broadcasts":{"a":"2"}}"#;
    let padded = format!("{good}{}", " ".repeat(16 * 1024 - good.len()));
    let many: BTreeMap<_, _> = (0..1_100).map(|nth| (format!("{nth}"), "")).collect();
    let many = serde_json::json!({"broadcasts": many}).to_string();
    assert!(many.len() < 16 * 1024);
    type Fits = fn(&PollError) -> bool;
    let json: Fits = |e| matches!(e, PollError::Json(_));
    let answers: [(u16, &str, Fits); 10] = [
        (500, good, |e| matches!(e, PollError::Status(500))),
        (302, good, |e| matches!(e, PollError::Status(302))),
        (204, "", |e| matches!(e, PollError::Status(204))),
        (200, "", json),
        (200, "{}", json),
        (200, r#"{"broadcasts":{"a":2}}"#, json),
        (200, r#"{"broadcasts":["a"]}"#, json),
        (200, &padded, |e| matches!(e, PollError::TooLarge)),
        (200, r#"{"broadcasts":{"a":"2","errors":"1"}}"#, |e| {
            matches!(e, PollError::Table(BroadcastError::Reserved))
        }),
        (200, &many, |e| matches!(e, PollError::Table(BroadcastError::TooMany))),
    ];
    for (status, text, fits) in answers {
        source.says(status, text);
        let error = poller.poll().await.expect_err(text);
        assert!(fits(&error), "{error:?}");
        assert!(has(&table, &[("a", "1")]));
    }
    source.server.stop().await;
    assert!(matches!(poller.poll().await, Err(PollError::NoAnswer(_))));
    assert!(has(&table, &[("a", "1")]));
}

/// A server whose paths lead to each other.
async fn moved(rows: &[(&'static str, u16, String)]) -> Server {
    let mut router = Router::new();
    for (path, status, location) in rows.iter().cloned() {
        let status = StatusCode::from_u16(status).expect("a status");
        router = router.route(
            path,
            get(move || async move { (status, [(http::header::LOCATION, location)], "moved") }),
        );
    }
    let table = || async { r#"{"broadcasts":{"a":"2"}}"# };
    Server::start(router.route("/table", get(table))).await
}

#[tokio::test]
async fn redirects_are_followed_within_the_own_origin_and_a_few_times() {
    let other = moved(&[]).await;
    let elsewhere = format!("{}/table", other.url());
    let port = other.url().rsplit(':').next().expect("a port").to_owned();
    let rows = [
        ("/a", 301, "/table".to_owned()),
        ("/b", 302, "a".to_owned()),
        ("/c", 307, "b?x=1".to_owned()),
        ("/d", 308, "./c".to_owned()),
        ("/e", 303, "/d".to_owned()),
        ("/f", 302, "/e".to_owned()),
        ("/ring", 302, "/ring".to_owned()),
        ("/away", 302, elsewhere),
        ("/port", 302, format!("//127.0.0.1:{port}/table")),
        ("/tls", 302, "https://127.0.0.1/table".to_owned()),
        ("/file", 302, "file:///etc/passwd".to_owned()),
        ("/choice", 300, "/table".to_owned()),
    ];
    let server = moved(&rows).await;
    let allow = vec!["127.0.0.1".parse().expect("a rule")];
    let egress = Egress::new(Options { allow, ..Options::default() }).expect("a way out");
    let poll = async |path: &str| {
        let table = fixed(&[("a", "1")]);
        let url = format!("{}{path}", server.url());
        let poller = Poller::new(table.clone(), egress.clone(), &url, PATIENCE).expect("a URL");
        let polled = poller.poll().await;
        assert_eq!(has(&table, &[("a", "2")]), polled.is_ok(), "{path}: all or nothing");
        polled
    };
    for path in ["/table", "/a", "/b", "/c", "/d", "/e"] {
        poll(path).await.expect(path);
    }
    for path in ["/f", "/ring"] {
        assert!(matches!(poll(path).await, Err(PollError::Redirects)), "{path}");
    }
    for path in ["/away", "/port", "/tls", "/file"] {
        assert!(matches!(poll(path).await, Err(PollError::Elsewhere)), "{path}");
    }
    assert!(matches!(poll("/choice").await, Err(PollError::Status(300))));
}

#[test]
fn it_polls_until_it_is_stopped_whatever_the_first_answer() {
    let text = counted(async {
        let source = Source::start().await;
        let table = fixed(&[]);
        source.says(500, "");
        let stop = CancellationToken::new();
        let poller = source.poller(&table, Duration::from_millis(5));
        let task = tokio::spawn(poller.run(stop.clone()));
        source.was_asked(2).await;
        source.says(200, r#"{"broadcasts":{"a":"1"}}"#);
        source.was_asked(source.asked.load(Ordering::Relaxed) + 2).await;
        assert!(has(&table, &[("a", "1")]));
        stop.cancel();
        tokio::time::timeout(PATIENCE, task).await.expect("it stops").expect("no panic");
    });
    for outcome in ["ok", "failed"] {
        let line = format!("posthorn_push_broadcast_polls_total{{outcome=\"{outcome}\"}}");
        assert!(text.contains(&line), "{line} in {text}");
    }
}

#[tokio::test]
async fn the_guard_has_its_say_about_the_url() {
    let egress = Egress::new(Options::default()).expect("a way out");
    let poller = |url| Poller::new(fixed(&[]), egress.clone(), url, PATIENCE);
    assert!(poller("http://127.0.0.1/").is_err());
    assert!(poller("nonsense").is_err());
    assert!(poller("https://example.com/v1/broadcasts").is_ok());
}
