//! Finding events, deliveries and attempts.

use serde_json::{Value, json};

use crate::harness::{Problem as _, Server};

/// The ids of a list, or whatever stands in this field.
async fn list(server: &Server, path: &str, field: &str) -> Vec<Value> {
    let page = server.as_acme("GET", path).await.expect(200);
    page["items"].as_array().unwrap().iter().map(|item| item[field].clone()).collect()
}

async fn publish(server: &Server, body: Value, own: &str) -> Value {
    let call = server.as_acme("POST", "/v1/events").json(&body).header("idempotency-key", own);
    let id = call.await.expect(202)["id"].clone();
    // The model lists by id, and ids of one millisecond are in no order.
    tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    id
}

#[tokio::test]
async fn events_are_found_by_what_their_publisher_said_of_them() {
    let server = Server::start().await;
    for topic in ["orders", "users"] {
        server.as_acme("PUT", &format!("/v1/topics/{topic}")).json(json!({})).await.expect(200);
    }
    let event = |topic: &str, kind: &str, region: &str| {
        json!({
            "topic": topic, "type": kind, "payload": {}, "key": format!("k/{region}"),
            "attributes": {"region": region, "odd": "a=b&c"},
        })
    };
    let one = publish(&server, event("orders", "order.created", "eu"), "mine-1").await;
    let two = publish(&server, event("orders", "order.paid", "us"), "mine-2").await;
    let three = publish(&server, event("users", "user.created", "eu"), "mine-3").await;
    for (query, wanted) in [
        ("", vec![&three, &two, &one]),
        ("?order=oldest", vec![&one, &two, &three]),
        ("?topic=orders", vec![&two, &one]),
        ("?topic=orders&topic=users&type=user.created", vec![&three]),
        ("?type=order.created&type=user.created", vec![&three, &one]),
        ("?type=nope", vec![]),
        ("?attribute=region%3Deu", vec![&three, &one]),
        ("?attribute=region%3Deu&attribute=odd%3Da%3Db%26c&topic=users", vec![&three]),
        ("?key=k/us", vec![&two]),
        ("?publisher_id=mine-3", vec![&three]),
        ("?unwanted=true", vec![&three, &two, &one]),
        ("?dead_letters=true", vec![]),
        ("?from=2020-01-01T00:00:00Z&until=2021-01-01T00:00:00Z", vec![]),
        ("?from=2020-01-01T00:00:00Z&limit=1", vec![&three]),
    ] {
        let found = list(&server, &format!("/v1/events{query}"), "id").await;
        assert_eq!(found.iter().collect::<Vec<_>>(), wanted, "{query}");
    }
    let own = list(&server, "/v1/events?limit=1", "publisher_id").await;
    assert_eq!(own, ["mine-3"]);
}

#[tokio::test]
async fn pages_lead_forth_and_back() {
    let server = Server::start().await;
    server.subscribe("https://ok.example/", json!({})).await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        let event = server.publish("1").await;
        server.delivery_in(&event, "delivered").await;
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
        ids.push(event);
    }
    ids.reverse();
    for (path, field) in
        [("/v1/events", "id"), ("/v1/deliveries", "event"), ("/v1/attempts", "event")]
    {
        let page = async |query: String| {
            let page = server.as_acme("GET", &format!("{path}?limit=2{query}")).await.expect(200);
            let items = page["items"].as_array().unwrap().iter();
            let items: Vec<String> =
                items.map(|item| item[field].as_str().unwrap().to_owned()).collect();
            let cursor = |name: &str| {
                page.get(name).map(|cursor| format!("&cursor={}", cursor.as_str().unwrap()))
            };
            (items, cursor("next"), cursor("previous"))
        };
        let (one, next, previous) = page(String::new()).await;
        assert_eq!((&one[..], previous), (&ids[..2], None), "{path}");
        let (two, next, previous) = page(next.unwrap()).await;
        assert_eq!(two, ids[2..4], "{path}");
        let (three, end, back) = page(next.clone().unwrap()).await;
        assert_eq!((&three[..], end), (&ids[4..], None), "{path}");
        let (again, on, first) = page(back.unwrap()).await;
        assert_eq!((&again, &on), (&two, &next), "{path}: the page before, as it was");
        assert_eq!(page(first.unwrap()).await.0, one, "{path}");
        let (one_again, _, before) = page(previous.unwrap()).await;
        assert_eq!((one_again, before), (one, None), "{path}: nothing is before the first page");
        let (oldest, ..) = page("&order=oldest".to_owned()).await;
        assert_eq!(oldest, [&ids[4], &ids[3]].map(Clone::clone), "{path}");
    }
}

#[tokio::test]
async fn deliveries_and_attempts_are_found_by_what_became_of_them() {
    let server = Server::start().await;
    let once = json!({"name": "dead", "policy": {"schedule": {"max_attempts": 1}}});
    let dead = server.subscribe("https://dead.example/", once).await;
    let once = json!({"name": "lost", "policy": {"schedule": {"max_attempts": 1}}});
    let lost = server.subscribe("https://unreachable.example/", once).await;
    server.subscribe("https://ok.example/", json!({"name": "ok"})).await;
    let event = server.publish("1").await;
    let path = format!("/v1/deliveries?event={event}");
    for _ in 0..1_000 {
        let states = list(&server, &path, "state").await;
        if states.iter().all(|state| state != "pending") {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let (dead, lost) = (&dead["id"], &lost["id"]);
    for (query, count) in [
        ("?state=dead", 2),
        ("?state=delivered", 1),
        ("?state=in_flight", 0),
        ("?reason=exhausted", 2),
        ("?reason=gate", 0),
        ("?status=5xx", 1),
        ("?status=500", 1),
        ("?status=2xx", 1),
        ("?failure=connect_failed", 1),
        ("?state=dead&status=2xx", 0),
        ("?subscription=dead&status=5xx", 1),
        ("?subscription=ok&status=5xx", 0),
        ("?until=2021-01-01T00:00:00Z", 0),
    ] {
        let found = list(&server, &format!("/v1/deliveries{query}"), "id").await;
        assert_eq!(found.len(), count, "deliveries{query}");
    }
    // Places of what is in flight are of their own, and so are its cursors.
    let page = server.as_acme("GET", "/v1/deliveries?limit=1").await.expect(200);
    let next = page["next"].as_str().unwrap();
    server.as_acme("GET", &format!("/v1/deliveries?cursor={next}")).await.expect(200);
    let other = format!("/v1/deliveries?state=in_flight&cursor={next}");
    server.as_acme("GET", &other).await.expect_problem(422, "invalid_request");
    let failed = list(&server, "/v1/deliveries?subscription=lost", "last_failure").await;
    assert_eq!(failed, ["connect_failed"]);
    assert_eq!(list(&server, "/v1/deliveries?subscription=dead", "last_status").await, [500]);
    assert_eq!(list(&server, "/v1/events?dead_letters=true", "id").await, [json!(event)]);
    let letters = list(&server, "/v1/dead-letters?failure=connect_failed", "subscription").await;
    assert_eq!(letters.iter().collect::<Vec<_>>(), [lost]);

    let letter = list(&server, "/v1/dead-letters?status=5xx", "id").await[0].clone();
    let retry = format!("/v1/deliveries/{}/retry", letter.as_str().unwrap());
    server.as_acme("POST", &retry).await.expect(200);
    for _ in 0..1_000 {
        if list(&server, "/v1/attempts?trigger=manual", "id").await.len() == 1 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    for (query, wanted) in [
        ("?status=5xx", vec![dead, dead]),
        ("?failure=connect_failed", vec![lost]),
        ("?trigger=manual", vec![dead]),
        ("?subscription=dead&trigger=scheduled", vec![dead]),
        ("?subscription=lost&status=5xx", vec![]),
        ("?from=2021-01-01T00:00:00Z&status=500&limit=1", vec![dead]),
    ] {
        let found = list(&server, &format!("/v1/attempts{query}"), "subscription").await;
        assert_eq!(found.iter().collect::<Vec<_>>(), wanted, "attempts{query}");
    }
    let of_event = list(&server, &format!("/v1/attempts?event={event}"), "number").await;
    assert_eq!(of_event.len(), 4);
    let newest = server.as_acme("GET", "/v1/attempts?limit=1").await.expect(200);
    assert_eq!(newest["items"][0]["delivery"], letter);
    assert_eq!(newest["items"][0]["number"], 2);
    assert_eq!(newest["items"][0]["event"], json!(event));

    // What tenants may not know of the operator's network, they cannot ask for either.
    let closed = server.as_acme("GET", "/v1/attempts?failure=address_not_allowed").await;
    closed.expect_problem(422, "invalid_request");
    server.as_operator("GET", "/v1/attempts?failure=address_not_allowed").await.expect(200);
}
