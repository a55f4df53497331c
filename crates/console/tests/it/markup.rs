//! What strangers write is shown as text, wherever it is shown.

use std::collections::BTreeMap;

use posthorn_domain::{EventType, ExternalId, Metadata, RealmName, Scope, TopicName};
use posthorn_engine::{Bound, NewTenant};
use posthorn_testkit::authority::Pair;
use serde_json::{Value, json};

use crate::harness::{MARKUP, Site, ask};

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
        ..NewTenant::default()
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
    let labels = json!({"kanaal": MARKUP, "documentatie_link": MARKUP});
    let topic = json!({"description": MARKUP, "attributes": [MARKUP], "labels": labels});
    ask(&site, &key, "PUT", "/v1/topics/orders", topic).await;
    let subscription = json!({
        "url": "https://ok.example/hook", "name": MARKUP, "description": MARKUP,
        "labels": {"client_id": MARKUP, "country": MARKUP, "callbackId": MARKUP},
    });
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
        "/console/t/acme/topics".to_owned(),
        "/console/t/acme/topics/orders".to_owned(),
        "/console/t/acme/notificaties".to_owned(),
        "/console/t/acme/efgs".to_owned(),
        "/console/t/acme/cedros".to_owned(),
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
        format!("/console/system/config?q={typed}"),
        format!("/console/system/explain?code={typed}"),
        format!("/console/t/acme/topics/{typed}"),
        format!("/console/push/agents/{typed}"),
    ] {
        let html = operator.get(&path).await.text;
        assert!(!html.contains("<img"), "{path} has it as markup: {html}");
    }
    let form = [("name", MARKUP), ("metadata", "</textarea><img src=x>")];
    let html = operator.submit("/console/tenants/new", &form).await.expect(400);
    assert!(!html.contains("<img") && html.contains("&#60;/textarea&#62;"), "{html}");
}
