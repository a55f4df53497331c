//! Streams of live pages: what they tell, to whom, for how long.

use std::time::Duration;

use axum::body::BodyDataStream;
use axum::response::Response;
use futures_util::StreamExt as _;
use http::StatusCode;
use posthorn_console::{Ask, OidcOptions, Options, Rights};
use posthorn_domain::{Home, Labels, Opener, Scope, TopicName};
use posthorn_engine::NewSession;
use posthorn_listener::ProxyPerson;
use serde_json::json;
use tokio::time::timeout;

use crate::harness::{Browser, Site};

const STREAM: &str = "/console/t/acme/live";

/// A stream that is open.
struct Heard(BodyDataStream);

impl Heard {
    #[track_caller]
    fn of(answer: Response) -> Self {
        assert_eq!(answer.status(), StatusCode::OK);
        assert_eq!(answer.headers()["content-type"], "text/event-stream");
        assert_eq!(answer.headers()["cache-control"], "no-store");
        Self(answer.into_body().into_data_stream())
    }

    /// What it says next, within a time; nothing at its end. On a busy machine so much time may have passed that it says
    /// that all is well, which is no news.
    async fn next(&mut self, within: Duration) -> Option<String> {
        let news = async {
            loop {
                let part = self.0.next().await?.unwrap();
                let said = String::from_utf8(part.to_vec()).unwrap();
                if said != ": all is well\n\n" {
                    return Some(said);
                }
            }
        };
        timeout(within, news).await.ok()?
    }

    /// Waits until it says this.
    async fn says(&mut self, wanted: &str) {
        for _ in 0..10 {
            let said = self.next(Duration::from_secs(20)).await;
            if said.as_ref().is_some_and(|said| said.contains(wanted)) {
                return;
            }
            assert!(said.is_some(), "it ends, or is silent, before {wanted}");
        }
        panic!("it says much, and not {wanted}");
    }

    /// Waits until it has ended.
    async fn ends(mut self) {
        let rest = async { while self.0.next().await.is_some() {} };
        timeout(Duration::from_secs(6), rest).await.expect("it goes on");
    }
}

async fn furnish(site: &Site) -> Browser {
    let name = TopicName::new("orders").unwrap();
    site.engine
        .put_topic(site.acme, name, String::new(), Vec::new(), Labels::default())
        .await
        .unwrap();
    site.of_acme(&[Scope::Read, Scope::Manage, Scope::Publish]).await
}

async fn publish(browser: &Browser) {
    let form = [("topic", "orders"), ("type", "order.paid"), ("payload", "{}")];
    browser.submit("/console/t/acme/events/new", &form).await.leads();
}

#[tokio::test]
async fn a_page_is_told_of_what_happens_and_of_nothing_else() {
    let site = Site::open().await;
    let acme = furnish(&site).await;
    let operator = site.operator().await;
    let mut own = Heard::of(acme.open(STREAM).await);
    let mut server = Heard::of(operator.open("/console/live").await);
    let mut elsewhere = Heard::of(operator.open("/console/t/other/live").await);
    let mut one = Heard::of(acme.open(&format!("{STREAM}?of=dlv_{}", "0".repeat(26))).await);
    for heard in [&mut own, &mut server, &mut elsewhere, &mut one] {
        heard.says(": following").await;
    }
    let silence = Duration::from_millis(1_500);
    assert_eq!(own.next(silence).await, None, "nothing happens");
    assert_eq!(server.next(silence).await, None, "nothing happens");
    publish(&acme).await;
    own.says("data: changed").await;
    server.says("data: changed").await;
    assert_eq!(elsewhere.next(silence).await, None, "another tenant does not hear of it");
    assert_eq!(one.next(silence).await, None, "nor does a page about something else");
}

/// The stream of a page, as the page names it.
async fn stream_of(browser: &Browser, page: &str) -> String {
    let html = browser.get(page).await.expect(200);
    let (_, rest) = html.split_once("data-stream=\"").expect("a live page");
    rest.split('"').next().unwrap().replace("&#38;", "&")
}

#[tokio::test]
async fn what_happens_between_a_page_and_its_stream_is_told_at_once_and_only_that() {
    let site = Site::open().await;
    let acme = furnish(&site).await;
    let operator = site.operator().await;
    publish(&acme).await;
    let pages = ["/console/t/acme", "/console/t/acme/deliveries", "/console/t/acme/events"];
    let silence = Duration::from_millis(1_500);
    // Figures of what was published come a moment later, and are on no page of these.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let mut streams = Vec::new();
    for page in pages {
        streams.push(Heard::of(acme.open(&stream_of(&acme, page).await).await));
    }
    streams.push(Heard::of(operator.open(&stream_of(&operator, "/console/").await).await));
    let elsewhere = stream_of(&operator, "/console/t/other").await;
    for heard in &mut streams {
        heard.says(": following").await;
        assert_eq!(heard.next(silence / 3).await, None, "nothing happened");
    }
    drop(streams);
    // The page is there, then something happens, then its stream is opened.
    let mut between = Vec::new();
    for page in pages {
        between.push((false, stream_of(&acme, page).await));
    }
    between.push((true, stream_of(&operator, "/console/").await));
    publish(&acme).await;
    let mut mark = String::new();
    for (all, stream) in &between {
        let browser = if *all { &operator } else { &acme };
        let mut heard = Heard::of(browser.open(stream).await);
        heard.says(": following").await;
        let said = heard.next(Duration::from_secs(20)).await.expect("it is told");
        assert!(said.contains("data: changed"), "{stream}: {said}");
        if !*all {
            mark =
                said.split("id: ").nth(1).and_then(|rest| rest.lines().next()).unwrap().to_owned();
        }
    }
    // Whoever comes back with the mark of what they heard last is told nothing twice.
    let stream = &between[1].1;
    let heads = [("last-event-id", mark.as_str())];
    let mut heard = Heard::of(acme.open_with(stream, &heads).await);
    heard.says(": following").await;
    assert_eq!(heard.next(silence).await, None, "nothing more happened");
    // Another tenant has nothing of it, however old its page is; marks that nobody gave out do no harm.
    let mut heard = Heard::of(operator.open(&elsewhere).await);
    heard.says(": following").await;
    assert_eq!(heard.next(silence).await, None, "another tenant does not hear of it");
    for wrong in ["x", "1.2.3", "0.99999999999.1.99999999999.1", "ffffffffffffffff.0.0.0.0"] {
        let stream = format!("{STREAM}?since={wrong}");
        Heard::of(acme.open(&stream).await).says(": following").await;
    }
}

#[tokio::test]
async fn much_that_happens_at_once_is_one_word_a_second() {
    let site = Site::open().await;
    let acme = furnish(&site).await;
    let mut heard = Heard::of(acme.open(STREAM).await);
    heard.says(": following").await;
    let began = tokio::time::Instant::now();
    let count = async {
        let mut count = 0_u64;
        while began.elapsed() < Duration::from_secs(3) {
            if heard
                .next(Duration::from_millis(300))
                .await
                .is_some_and(|said| said.contains("changed"))
            {
                count += 1;
            }
        }
        count
    };
    let load = async {
        while began.elapsed() < Duration::from_millis(2_500) {
            publish(&acme).await;
            // A session may not ask more often than so.
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    };
    let (count, ()) = tokio::join!(count, load);
    // Fewer on a busy machine.
    assert!((1..=4).contains(&count), "{count} words in three seconds");
}

#[tokio::test]
async fn a_stream_ends_with_its_session_its_key_and_the_server() {
    let site = Site::open().await;
    let acme = furnish(&site).await;
    let mut heard = Heard::of(acme.open(STREAM).await);
    heard.says(": following").await;
    acme.submit("/console/logout", &[]).await.leads();
    heard.says("event: over").await;
    heard.ends().await;

    let reader = site.of_acme(&[Scope::Read]).await;
    let mut heard = Heard::of(reader.open(STREAM).await);
    let keys = site.engine.catalog().keys();
    for key in keys.iter().filter(|key| key.tenant == Some(site.acme)) {
        site.engine.revoke_key(key.id).await.unwrap();
    }
    heard.says("event: over").await;

    let operator = site.operator().await;
    let (tenant, server) =
        (operator.open("/console/t/acme/live").await, operator.open("/console/live").await);
    let (tenant, server) = (Heard::of(tenant), Heard::of(server));
    site.engine.stop().await;
    tenant.ends().await;
    server.ends().await;
}

/// Hears for longer than two looks at the session that nothing is over.
async fn goes_on(heard: &mut Heard) {
    heard.says(": following").await;
    let end = tokio::time::Instant::now() + Duration::from_millis(4_500);
    while let Some(left) = end.checked_duration_since(tokio::time::Instant::now()) {
        let said = heard.next(left).await;
        assert!(!said.as_ref().is_some_and(|said| said.contains("over")), "{said:?}");
    }
}

#[tokio::test]
async fn a_stream_has_the_rights_of_its_page_when_groups_stand_for_others_now() {
    let site = Site::open().await;
    let rights = || -> Rights {
        let rights = json!([
            {"group": "ops", "scopes": ["operator"]},
            {"group": "other", "scopes": ["read"], "tenant": "other"},
        ]);
        serde_json::from_value(rights).unwrap()
    };
    let oidc = || OidcOptions {
        issuer: Some("http://127.0.0.1:9".parse().unwrap()),
        client_id: Some("posthorn".to_owned()),
        rights: rights(),
        ..OidcOptions::default()
    };
    let options = || Options {
        oidc: oidc(),
        ask: Some(Ask::new(|_| Box::pin(async { Err("nobody is there".into()) }))),
        proxy_login: ProxyPerson {
            user_header: Some("x-user".parse().unwrap()),
            groups_header: Some("x-groups".parse().unwrap()),
            proxies: vec!["127.0.0.1/32".parse().unwrap()],
        },
        proxy_rights: rights(),
        ..Options::default()
    };
    // Opened when the group stood for tenant `acme`.
    let open = async |opener, group: &str| {
        let new = NewSession {
            opener,
            name: "jo".to_owned(),
            home: Home::Tenant(site.acme),
            scopes: vec![Scope::Read],
            groups: vec![group.to_owned()],
            lasts: Duration::from_secs(600),
        };
        let (_, token) = site.engine.open_session(new).await.unwrap();
        site.with_session(options(), token.expose_str().unwrap())
    };
    let by_provider = open(Opener::Provider, "ops").await;
    let mut by_proxy = open(Opener::Proxy, "ops").await;
    by_proxy.heads = vec![("x-user", "jo"), ("x-groups", "ops")];
    let elsewhere = open(Opener::Provider, "other").await;
    let cases = [
        (by_provider, "/console/", "/console/live"),
        (by_proxy, "/console/", "/console/live"),
        (elsewhere, "/console/t/other", "/console/t/other/live"),
    ];
    let mut streams = Vec::new();
    for (browser, page, stream) in &cases {
        assert_eq!(browser.get(page).await.status, StatusCode::OK, "{page}");
        streams.push(Heard::of(browser.open(stream).await));
    }
    futures_util::future::join_all(streams.iter_mut().map(goes_on)).await;
    // What the group stood for once opens no stream.
    let gone = cases[2].0.open(STREAM).await;
    assert_eq!(gone.status(), StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn streams_are_for_those_who_may_look_and_bounded() {
    let site = Site::open().await;
    let acme = furnish(&site).await;
    assert_eq!(acme.open("/console/t/other/live").await.status(), StatusCode::NOT_FOUND);
    assert_eq!(acme.open("/console/live").await.status(), StatusCode::FORBIDDEN);
    let mut open = Vec::new();
    for _ in 0..10 {
        open.push(Heard::of(acme.open(STREAM).await));
    }
    let full = acme.open(STREAM).await;
    assert_eq!(full.status(), StatusCode::SERVICE_UNAVAILABLE);
    open.pop();
    drop(Heard::of(acme.open(STREAM).await));
}
