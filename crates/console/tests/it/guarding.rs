//! No form does anything for somebody who may not, or that was not sent from a page of the session.

use http::{Method, StatusCode};
use posthorn_domain::{Labels, Scope, TopicName};
use posthorn_engine::Bound;
use posthorn_store::{AuditFilter, Listing};
use serde_json::json;

use crate::harness::{Browser, Site};

/// Everything the table has, with something in place of each id.
fn filled(method: &Method) -> impl Iterator<Item = String> {
    let own = posthorn_console::routes().filter(move |(own, _)| *own == method);
    own.map(|(_, path)| {
        let named =
            path.replace("{tenant}", "acme").replace("{realm}", "live").replace("{name}", "x");
        named.replace("{id}", "none")
    })
}

async fn lines(site: &Site) -> usize {
    let all = site.engine.store().audit(AuditFilter::default(), Listing::newest(200)).await;
    all.unwrap().items.len()
}

#[tokio::test]
async fn every_form_is_refused_to_a_session_that_may_only_read() {
    let site = Site::open().await;
    let reader = site.of_acme(&[Scope::Read]).await;
    let token = reader.token().await;
    let before = lines(&site).await;
    let mut tried = 0;
    for path in filled(&Method::POST) {
        let answer = reader.send(&path, &[("csrf", &token)], &[]).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path}: {}", answer.text);
        assert!(answer.text.contains("You may not do this"), "{path}: {}", answer.text);
        tried += 1;
    }
    assert!(tried >= 20, "only {tried} forms");
    assert_eq!(lines(&site).await, before, "nothing was changed");
}

#[tokio::test]
async fn every_form_is_refused_that_is_not_one_of_the_session() {
    let site = Site::open().await;
    let (one, other) = (site.operator().await, site.operator().await);
    let (own, foreign) = (one.token().await, other.token().await);
    let before = lines(&site).await;
    let elsewhere = [("sec-fetch-site", "cross-site")];
    let wrong_origin = [("origin", "http://evil.test")];
    for path in filled(&Method::POST) {
        let cases = [
            ("no token", one.send(&path, &[], &[]).await),
            ("an empty token", one.send(&path, &[("csrf", "")], &[]).await),
            ("the token of another session", one.send(&path, &[("csrf", &foreign)], &[]).await),
            ("another site", one.send(&path, &[("csrf", &own)], &elsewhere).await),
            ("another origin", one.send(&path, &[("csrf", &own)], &wrong_origin).await),
        ];
        for (case, answer) in cases {
            assert_eq!(answer.status, StatusCode::FORBIDDEN, "{path} with {case}: {}", answer.text);
            assert!(answer.text.contains("another session or another site"), "{path} with {case}");
        }
    }
    assert_eq!(lines(&site).await, before, "nothing was changed");
}

#[tokio::test]
async fn whoever_is_not_logged_in_is_led_to_the_login() {
    let site = Site::open().await;
    let stranger = site.stranger();
    for path in filled(&Method::GET) {
        let place = stranger.get(&path).await.leads();
        assert!(place.starts_with("/console/login?next=%2Fconsole%2F"), "{path}: {place}");
    }
    let before = lines(&site).await;
    for path in filled(&Method::POST) {
        let answer = stranger.send(&path, &[], &[]).await;
        assert!(answer.leads().starts_with("/console/login"), "{path}");
    }
    assert_eq!(lines(&site).await, before, "nothing was changed");
}

#[tokio::test]
async fn a_session_ends_with_its_key() {
    let site = Site::open().await;
    let operator = site.operator().await;
    let acme = site.of_acme(&[Scope::Read]).await;
    acme.get("/console/audit").await.expect(200);
    let keys = site.engine.catalog().keys();
    let own = keys.iter().find(|key| key.tenant == Some(site.acme)).unwrap().id;
    let place =
        operator.submit(&format!("/console/keys/{own}/revoke"), &[("sure", "1")]).await.leads();
    assert_eq!(place, "/console/keys?done=revoked");
    assert!(acme.get("/console/audit").await.leads().starts_with("/console/login"));
}

#[tokio::test]
async fn what_cannot_be_taken_back_is_asked_first_also_without_scripts() {
    let site = Site::open().await;
    let operator = site.operator().await;
    let topic = TopicName::new("orders").unwrap();
    let topic = site.engine.put_topic(site.acme, topic, String::new(), vec![], Labels::default());
    topic.await.unwrap();
    let new = json!({"url": "https://works.example/", "name": "works"});
    let hook = Browser::api(&site, "POST", "/v1/subscriptions", new).await;
    let event = json!({"topic": "orders", "type": "order.paid", "payload": {"<b>": 1}});
    let event = Browser::api(&site, "POST", "/v1/events", event).await;
    let kind = json!({"description": "", "schemas": {}, "examples": []});
    let made =
        site.engine.create_key(Bound::Nobody, vec![Scope::Operator], String::new(), None, None);
    let text = made.await.unwrap().text;
    crate::harness::ask(&site, &text, "PUT", "/v1/event-types/order.paid", kind).await;
    let key = site.engine.catalog().keys().iter().find(|key| key.tenant.is_some()).unwrap().id;
    let id = |of: &serde_json::Value| of["id"].as_str().unwrap().to_owned();
    let cases = [
        (format!("/console/keys/{key}/revoke"), "Revoke this key?", "/console/keys"),
        (
            format!("/console/t/acme/subscriptions/{}/rotate", id(&hook)),
            "Rotate the signing secret?",
            "/console/t/acme/subscriptions/",
        ),
        (
            format!("/console/t/acme/events/{}/republish", id(&event)),
            "Publish this event again?",
            "/console/t/acme/events/",
        ),
        (
            "/console/event-types/default/order.paid/delete".to_owned(),
            "Delete this event type?",
            "/console/event-types/default/order.paid",
        ),
    ];
    for (path, title, back) in cases {
        let before = lines(&site).await;
        let page = operator.submit(&path, &[("overlap", "2h\"<i>")]).await.expect(200);
        assert!(page.contains(&format!("<h1>{title}</h1>")), "{page}");
        assert!(page.contains(&format!("action=\"{path}\"")), "{page}");
        assert!(page.contains(&format!("class=\"button\" href=\"{back}")), "{page}");
        // What was typed before comes along, and the page asks without a script.
        assert!(page.contains("name=\"overlap\" value=\"2h&#34;&#60;i&#62;\""), "{page}");
        assert!(!page.contains("data-ask"), "{page}");
        assert_eq!(lines(&site).await, before, "{path} is only asked");
        let done = operator.submit(&path, &[("sure", "1")]).await;
        assert!(
            done.status == StatusCode::SEE_OTHER || done.text.contains("whsec_"),
            "{path}: {done:?}"
        );
    }
    // No form of these pages does it at one click.
    for path in ["/console/keys", "/console/t/acme/events", "/console/event-types"] {
        let page = operator.get(path).await.expect(200);
        assert!(!page.contains("name=\"sure\""), "{path}");
    }
}
