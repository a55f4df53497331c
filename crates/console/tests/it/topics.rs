//! Topics, and who wants them.

use posthorn_domain::Scope;
use serde_json::json;

use crate::harness::{Browser, Site};
use crate::looking::check_page;

#[tokio::test]
async fn a_topic_shows_its_attributes_its_subscribers_and_its_latest_events() {
    let site = Site::open().await;
    let acme = site.of_acme(&[Scope::Read]).await;
    let empty = acme.get("/console/t/acme/topics").await.expect(200);
    assert!(empty.contains("No topic yet."), "{empty}");
    let ask = async |method: &str, path: &str, body| Browser::api(&site, method, path, body).await;
    let topic = json!({"description": "of the shop", "attributes": ["region"]});
    ask("PUT", "/v1/topics/orders", topic).await;
    ask("PUT", "/v1/topics/a%2Fb", json!({})).await;
    let subscribe = async |name: &str, filter| {
        let body = json!({"url": "https://ok.example/", "name": name, "filter": filter});
        ask("POST", "/v1/subscriptions", body).await;
    };
    subscribe("one", json!({"any_of": [{"topics": ["orders"]}, {"topics": ["orders"]}]})).await;
    subscribe("elsewhere", json!({"any_of": [{"topics": ["a/b"]}]})).await;
    subscribe("everything", json!({"any_of": [{}]})).await;
    subscribe("nothing", json!({"any_of": []})).await;
    let event = json!({"topic": "orders", "type": "order.paid", "payload": 1});
    let event = ask("POST", "/v1/events", event).await;

    let shown = acme.get("/console/t/acme/topics").await;
    check_page("topics", &shown);
    let row = shown.text.split("<tr data-row>").find(|row| row.contains(">orders<")).unwrap();
    assert!(row.contains("of the shop") && row.contains("region"), "{row}");
    assert!(row.contains("<td class=\"number\">2</td>"), "it and whoever wants all: {row}");
    // What was published is counted, and written a moment later.
    let mut row = String::new();
    for _ in 0..500 {
        let html = acme.get("/console/t/acme/topics").await.expect(200);
        row = html.split("<tr data-row>").find(|row| row.contains(">orders<")).unwrap().to_owned();
        if row.contains("aria-label=\"1 published\"") {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert!(row.contains("<td>1<svg") && row.contains("aria-label=\"1 published\""), "{row}");
    let shown = acme.get("/console/t/acme/topics/orders").await;
    check_page("topic", &shown);
    let html = shown.text;
    for text in [">one</a>", ">everything</a>", "this topic", "every topic", "order.paid"] {
        assert!(html.contains(text), "{text}: {html}");
    }
    assert!(html.contains(event["id"].as_str().unwrap()) && !html.contains(">elsewhere</a>"));
    // A name with a slash is one part of a path.
    let html = acme.get("/console/t/acme/topics/a%2Fb").await.expect(200);
    assert!(html.contains("<h1>a/b</h1>") && html.contains(">elsewhere</a>"), "{html}");
    acme.get("/console/t/acme/topics/none").await.expect(404);
}

#[tokio::test]
async fn topics_are_created_and_described_by_whoever_manages() {
    let site = Site::open().await;
    let acme = site.of_acme(&[Scope::Read, Scope::Manage]).await;
    let list = "/console/t/acme/topics";
    let html = acme.submit(list, &[("name", "")]).await.expect(400);
    assert!(html.contains("id=\"w-name\""), "{html}");
    let html =
        acme.submit(list, &[("name", "no spaces"), ("description", "kept")]).await.expect(400);
    assert!(html.contains("value=\"kept\""), "what was typed stays: {html}");
    let form = [("name", "a/b"), ("description", "of the shop"), ("attributes", "region, kind")];
    assert_eq!(acme.submit(list, &form).await.leads(), "/console/t/acme/topics/a%2Fb?done=created");
    let html = acme.submit(list, &form).await.expect(400);
    assert!(html.contains("there is such a topic already"), "{html}");
    let path = "/console/t/acme/topics/a%2Fb";
    let place = acme.submit(path, &[("description", "<i>of all shops</i>")]).await.leads();
    assert_eq!(place, format!("{path}?done=changed"));
    let topic = Browser::api(&site, "GET", "/v1/topics/a%2Fb", json!(null)).await;
    assert_eq!(topic["description"], "<i>of all shops</i>");
    assert_eq!(topic["attributes"], json!(["region", "kind"]), "all else stays");
    let reader = site.of_acme(&[Scope::Read]).await;
    for page in [list, path] {
        let html = reader.get(page).await.expect(200);
        assert!(!html.contains(&format!("action=\"{page}\"")), "{html}");
        reader.submit(page, &form).await.expect(403);
    }
}

#[tokio::test]
async fn an_event_type_shows_who_wants_it_and_its_latest_events() {
    let site = Site::open().await;
    let acme = site.of_acme(&[Scope::Read]).await;
    let ask = async |method: &str, path: &str, body| Browser::api(&site, method, path, body).await;
    ask("PUT", "/v1/topics/orders", json!({})).await;
    let operator = site.operator().await;
    let new = [("realm", "default"), ("name", "order.paid"), ("description", "")];
    operator.submit("/console/event-types/new", &new).await.leads();
    let subscribe = async |name: &str, filter| {
        let body = json!({"url": "https://ok.example/", "name": name, "filter": filter});
        ask("POST", "/v1/subscriptions", body).await;
    };
    subscribe("by-name", json!({"any_of": [{"types": ["order.*"]}]})).await;
    subscribe("elsewhere", json!({"any_of": [{"types": ["refund.*"]}]})).await;
    subscribe("everything", json!({"any_of": []})).await;
    for kind in ["order.paid", "order.paid", "refund.made"] {
        let event = json!({"topic": "orders", "type": kind, "payload": 1});
        ask("POST", "/v1/events", event).await;
    }
    let shown = acme.get("/console/event-types/default/order.paid").await;
    check_page("event type", &shown);
    let html = shown.text;
    assert!(html.contains(">by-name</a>") && html.contains(">everything</a>"), "{html}");
    assert!(!html.contains(">elsewhere</a>"), "{html}");
    assert!(html.contains("2 in the last 24 hours"), "{html}");
    assert_eq!(html.matches("/console/t/acme/events/evt_").count(), 2, "{html}");
}
