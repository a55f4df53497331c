//! Pages of other systems that are spoken here.

use std::sync::Arc;

use parking_lot::Mutex;
use posthorn_api::Notificaties;
use posthorn_domain::{Scope, TenantId};
use serde_json::{Map, Value, json};

use crate::harness::{Browser, Site};
use crate::looking::check_page;

/// The four settings, kept in memory, as the dialect gives them.
fn notificaties(kept: &Arc<Mutex<Map<String, Value>>>) -> posthorn_api::Options {
    let kept = Arc::clone(kept);
    let settings: posthorn_api::Settings = Arc::new(move |_, change| {
        let mut kept = kept.lock();
        let wrong = change.iter().flatten().find(|(_, value)| value.as_f64() < Some(0.0));
        let answer = match wrong {
            Some((name, _)) => Err(format!("{name} must not be negative")),
            None => {
                kept.extend(change.into_iter().flatten());
                Ok(Value::Object(kept.clone()))
            }
        };
        Box::pin(std::future::ready(answer))
    });
    let notificaties = Notificaties {
        tenant: TenantId::DEFAULT,
        setup: Arc::new(|_, _| Box::pin(std::future::ready(Ok(json!({}))))),
        resend: Arc::new(|_, _| Err(Vec::new())),
        settings,
    };
    posthorn_api::Options { notificaties: Some(notificaties), ..posthorn_api::Options::default() }
}

fn defaults() -> Arc<Mutex<Map<String, Value>>> {
    let all = json!({
        "notification_delivery_max_retries": 7, "notification_delivery_retry_backoff": 25.0,
        "notification_delivery_retry_backoff_max": 52_000.0, "notification_delivery_base_factor": 4.0,
    });
    Arc::new(Mutex::new(all.as_object().cloned().unwrap()))
}

#[tokio::test]
async fn kanalen_abonnementen_and_settings_are_on_the_page_of_notificaties() {
    let kept = defaults();
    let site = Site::open_with(notificaties(&kept)).await;
    let operator = site.operator().await;
    let ask = async |method: &str, path: &str, body| Browser::api(&site, method, path, body).await;
    let topic = json!({"attributes": ["bron"], "labels": {"kanaal": "zaken"}});
    ask("PUT", "/v1/topics/zaken", topic).await;
    ask("PUT", "/v1/topics/other", json!({})).await;
    let filter = json!({"any_of": [{"topics": ["zaken"], "attributes": {"bron": "1"}}]});
    let new = json!({
        "url": "https://zaken.example/secret-path", "name": "3f1f1d5e-uuid", "filter": filter,
        "labels": {"client_id": "open-zaak"},
    });
    let made = ask("POST", "/v1/subscriptions", new).await;
    ask("POST", "/v1/subscriptions", json!({"url": "https://ok.example/", "name": "plain"})).await;

    let path = "/console/t/acme/notificaties";
    let shown = operator.get(path).await;
    check_page(path, &shown);
    let html = &shown.text;
    let id = made["id"].as_str().unwrap();
    for text in [
        "open-zaak",
        "zaken (bron=1)",
        "https://zaken.example",
        &format!("href=\"/console/t/acme/subscriptions/{id}\""),
        "href=\"/console/t/acme/topics/zaken\"",
        "<td class=\"number\">1</td>",
        "value=\"52000\"",
    ] {
        assert!(html.contains(text), "{text}: {html}");
    }
    assert!(!html.contains("secret-path"), "only where it goes, not the rest of the URL");
    assert!(!html.contains(">plain<") && !html.contains("topics/other"), "{html}");

    let form =
        [("notification_delivery_max_retries", "3"), ("notification_delivery_base_factor", "2.5")];
    assert_eq!(operator.submit(path, &form).await.leads(), format!("{path}?done=changed"));
    assert_eq!(kept.lock()["notification_delivery_max_retries"], 3);
    assert_eq!(kept.lock()["notification_delivery_retry_backoff"], 25.0, "it stays");
    for wrong in ["-1", "many"] {
        let form = [("notification_delivery_max_retries", wrong)];
        let html = operator.submit(path, &form).await.expect(400);
        assert!(html.contains("id=\"w-notification_delivery_max_retries\""), "{html}");
        assert!(html.contains(&format!("value=\"{wrong}\"")), "{html}");
    }
    // Somebody of the tenant looks, and changes nothing.
    let acme = site.of_acme(&[Scope::Read, Scope::Manage]).await;
    let html = acme.get(path).await.expect(200);
    assert!(html.contains("open-zaak") && !html.contains("Settings of deliveries"), "{html}");
    acme.submit(path, &form).await.expect(403);
    // It is the page of one tenant.
    operator.get("/console/t/other/notificaties").await.expect(404);
    operator.submit("/console/t/other/notificaties", &form).await.expect(404);
}

#[tokio::test]
async fn callbacks_are_listed_by_country() {
    let site = Site::open().await;
    let operator = site.operator().await;
    for (country, id) in [("FR", "fr-1"), ("DE", "de-1"), ("DE", "de-2")] {
        let new = json!({
            "url": format!("https://{id}.example/cb"), "name": format!("{country}:{id}"),
            "labels": {"country": country, "callbackId": id},
        });
        Browser::api(&site, "POST", "/v1/subscriptions", new).await;
    }
    let shown = operator.get("/console/t/acme/efgs").await;
    check_page("efgs", &shown);
    let html = &shown.text;
    assert!(html.contains("<dt>Countries</dt><dd>2</dd>"), "{html}");
    let place = |text: &str| html.find(text).unwrap_or_else(|| panic!("{text}: {html}"));
    assert!(place(">DE<") < place(">de-1<") && place(">de-2<") < place(">FR<"), "{html}");
}

#[tokio::test]
async fn webhooks_and_the_dlq_have_the_words_of_cedros() {
    let site = Site::open().await;
    let operator = site.operator().await;
    let html = operator.get("/console/t/acme/cedros").await.expect(200);
    assert!(html.contains("No webhook has failed for good."), "{html}");
    let ask = async |method: &str, path: &str, body| Browser::api(&site, method, path, body).await;
    ask("PUT", "/v1/topics/payments", json!({})).await;
    let new = json!({"url": "https://pay.example/hook", "name": "cedros-callbacks"});
    ask("POST", "/v1/subscriptions", new).await;
    let event = json!({"topic": "payments", "type": "payment.succeeded", "payload": {}});
    let event = ask("POST", "/v1/events", event).await;
    let path = format!("/v1/deliveries?event={}", event["id"].as_str().unwrap());
    let mut delivery = Value::Null;
    for _ in 0..500 {
        delivery = ask("GET", &path, Value::Null).await["items"][0].clone();
        if delivery["state"] == "delivered" {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let shown = operator.get("/console/t/acme/cedros").await;
    check_page("cedros", &shown);
    let html = &shown.text;
    assert!(html.contains("<span class=\"state good\">success</span>"), "{html}");
    let id = delivery["id"].as_str().unwrap();
    assert!(html.contains(&format!("href=\"/console/t/acme/deliveries/{id}\"")), "{html}");
    assert!(html.contains("cedros-callbacks") && html.contains("pay.example"), "{html}");
}

#[tokio::test]
async fn the_page_of_pca_hub_is_there_where_a_subscription_has_a_gate() {
    let site = Site::open().await;
    let operator = site.operator().await;
    operator.get("/console/t/acme/pca-hub").await.expect(404);
    let gate = json!({
        "url": "https://gate.example/open", "timeout": "5s", "status": ["2xx"],
        "on_closed": {"postpone": {"wait": "60s"}},
    });
    let order = json!({"scope": "key", "dead_head": "block"});
    let new = json!({
        "url": "https://hub.example/root", "name": "hub-staging",
        "policy": {"gate": gate, "order": order},
    });
    Browser::api(&site, "POST", "/v1/subscriptions", new).await;
    let path = "/console/t/acme/pca-hub";
    let shown = operator.get(path).await;
    check_page(path, &shown);
    let html = &shown.text;
    for text in [
        "hub-staging",
        "https://gate.example/open",
        "asked again after 1 m",
        "a dead letter blocks its lane",
        "No lane is blocked.",
        &format!("href=\"{path}\" aria-current=\"page\""),
    ] {
        assert!(html.contains(text), "{text}: {html}");
    }
    let html = operator.get("/console/t/other/topics").await.expect(200);
    assert!(!html.contains("PCA Hub"), "another tenant has none");
    operator.get("/console/t/other/pca-hub").await.expect(404);
}
