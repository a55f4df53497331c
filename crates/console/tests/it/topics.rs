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
