//! What strangers write is shown as text, wherever it is shown.

use std::collections::BTreeMap;

use axum::body::Body;
use http::Request;
use posthorn_domain::{EventType, ExternalId, Metadata, RealmName, Scope, TopicName};
use posthorn_engine::{Bound, NewTenant};
use posthorn_testkit::authority::Pair;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::harness::{MARKUP, Site};

/// Asks the API as tenant `acme`.
async fn ask(site: &Site, key: &str, method: &str, path: &str, body: Value) -> Value {
    let api = posthorn_api::router(site.engine.clone(), posthorn_api::Options::default());
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("authorization", format!("Bearer {key}"))
        .header("content-type", "application/json")
        .body(Body::from(body.to_string()))
        .unwrap();
    let answer = api.oneshot(request).await.unwrap();
    let status = answer.status();
    let bytes = axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap();
    let answer: Value = serde_json::from_slice(&bytes).unwrap();
    assert!(status.is_success(), "{method} {path}: {answer}");
    answer
}

#[tokio::test]
async fn stored_markup_is_shown_and_never_done() {
    let site = Site::open().await;
    let operator = site.operator().await;
    let engine = &site.engine;
    // Tenants: even their names, which the API would not take like that.
    let shop = NewTenant {
        name: MARKUP.to_owned(),
        realm: RealmName::new("live").unwrap(),
        external_id: Some(ExternalId::new(MARKUP).unwrap()),
        metadata: Metadata::try_from(BTreeMap::from([(MARKUP.to_owned(), MARKUP.to_owned())]))
            .unwrap(),
        deliveries_per_second: None,
    };
    let shop = engine.create_tenant_in(shop).await.unwrap().id;
    for bound in [Bound::Tenant(shop), Bound::Tenant(site.acme)] {
        let scopes = vec![Scope::Read, Scope::Publish, Scope::Manage];
        engine.create_key(bound, scopes, MARKUP.to_owned(), None, None).await.unwrap();
    }
    operator.submit("/console/realms/live", &[("description", MARKUP)]).await.leads();
    let quoted = json!(MARKUP).to_string();
    let form = [
        ("realm", "live"),
        ("name", "order.paid"),
        ("description", MARKUP),
        ("group", MARKUP),
        ("schemas", &format!("{{\"1\": {{\"description\": {quoted}}}}}")),
        ("examples", &format!("[{quoted}]")),
    ];
    operator.submit("/console/event-types/new", &form).await.leads();
    let pair = Pair::self_signed("ok.example");
    let form = [
        ("kind", "client"),
        ("description", MARKUP),
        ("owner", MARKUP),
        ("certificate", &pair.certificate),
        ("key", &pair.key),
    ];
    let certificate = operator.submit("/console/t/acme/certificates/new", &form).await.leads();
    let key = engine.create_key(
        Some(site.acme),
        vec![Scope::Read, Scope::Publish, Scope::Manage],
        String::new(),
        None,
        None,
    );
    let key = key.await.unwrap().text;
    let topic = json!({"description": MARKUP, "labels": {}});
    ask(&site, &key, "PUT", "/v1/topics/orders", topic).await;
    let subscription =
        json!({"url": "https://ok.example/hook", "name": MARKUP, "description": MARKUP});
    ask(&site, &key, "POST", "/v1/subscriptions", subscription).await;
    let event = json!({
        "topic": TopicName::new("orders").unwrap(),
        "type": EventType::new("order.paid").unwrap(),
        "key": MARKUP,
        "attributes": {"note": MARKUP},
        "payload": {"html": MARKUP},
    });
    let event = ask(&site, &key, "POST", "/v1/events", event).await;
    let event = event["id"].as_str().unwrap();
    let delivery =
        ask(&site, &key, "GET", &format!("/v1/deliveries?event={event}"), Value::Null).await;
    let delivery = delivery["items"][0]["id"].as_str().unwrap().to_owned();

    let shows = [
        "/console/tenants".to_owned(),
        format!("/console/tenants/{shop}"),
        "/console/keys".to_owned(),
        "/console/realms".to_owned(),
        "/console/realms/live".to_owned(),
        "/console/event-types?realm=live".to_owned(),
        "/console/event-types/live/order.paid".to_owned(),
        "/console/event-types/live/order.paid/change".to_owned(),
        "/console/t/acme/certificates".to_owned(),
        certificate,
        "/console/audit".to_owned(),
        "/console/t/acme/events".to_owned(),
        format!("/console/t/acme/events/{event}"),
        "/console/t/acme/deliveries".to_owned(),
        format!("/console/t/acme/deliveries/{delivery}"),
        format!("/console/t/{shop}/certificates"),
    ];
    for path in &shows {
        let html = operator.get(path).await.expect(200);
        assert!(
            html.contains("&#60;img src=x onerror=alert(1)&#62;"),
            "{path} does not show it: {html}"
        );
        assert!(!html.contains("<img"), "{path} has it as markup");
    }
    // What is typed into filters and forms comes back as text as well.
    let typed: String =
        url::form_urlencoded::byte_serialize(format!("\">{MARKUP}").as_bytes()).collect();
    for path in [
        format!("/console/tenants?name_prefix={typed}"),
        format!("/console/audit?object={typed}"),
        format!("/console/audit?action={typed}"),
        format!("/console/event-types?group={typed}"),
        format!("/console/keys/new?tenant={typed}"),
        format!("/console/tenants/new?name={typed}"),
        format!("/console/realms/{typed}"),
    ] {
        let html = operator.get(&path).await.text;
        assert!(!html.contains("<img"), "{path} has it as markup: {html}");
    }
    let form = [("name", MARKUP), ("metadata", "</textarea><img src=x>")];
    let html = operator.submit("/console/tenants/new", &form).await.expect(400);
    assert!(!html.contains("<img") && html.contains("&#60;/textarea&#62;"), "{html}");
}
