//! Events on their way to a browser: subscribed with the tenant's key, encrypted, kept while it is
//! away.

use posthorn_agent::Agent;
use posthorn_domain::ChannelId;
use posthorn_sealing::web_push::ReceiverKeys;
use posthorn_testkit::program::Server;
use posthorn_testkit::wait::{eventually, until};
use serde_json::{Value, json};

use crate::push::{connected, home, notified, wait};

const CHANNEL: ChannelId = ChannelId::from_bytes([9; 16]);

/// The application server key of the tenant `default`.
#[track_caller]
fn sender_key(server: &Server) -> String {
    let authorization = format!("Bearer {}", server.key);
    let headers = [("authorization", authorization.as_str())];
    let reply = server.open("GET", "/v1/push/key").headers(&headers).send();
    reply.expect(200)["public_key"].as_str().expect("a key").to_owned()
}

/// The next event that a browser gets; acknowledged.
fn event(agent: &mut Agent, keys: &ReceiverKeys) -> Value {
    let notification = notified(agent);
    wait(agent.ack(&[notification.ack()])).expect("acknowledged");
    serde_json::from_slice(&notification.open(keys).expect("for these keys")).expect("JSON")
}

fn state(server: &Server, event: &Value) -> Option<String> {
    let shown = server.ask(&["events", "show", event["id"].as_str().expect("an id")]);
    shown["deliveries"][0]["state"].as_str().map(str::to_owned)
}

#[tokio::test(flavor = "multi_thread")]
async fn events_reach_a_browser_that_subscribed_and_wait_while_it_is_away() {
    let (mut home, server) = home("").served();
    let (mut agent, id) = connected(&server, None);
    let endpoint = wait(agent.register(CHANNEL, Some(&sender_key(&server)))).expect("an endpoint");
    assert!(endpoint.contains("/wpush/v2/"), "{endpoint}");
    let keys = ReceiverKeys::generate();
    let auth = keys.receiver().auth_text();
    let browser = json!({
        "endpoint": endpoint, "expirationTime": null,
        "keys": {"p256dh": keys.receiver().key().to_text(), "auth": auth.expose_str()},
    });
    home.write("browser.json", browser.to_string());
    server.ask("topics put orders");
    let create =
        ["subscriptions", "create", "--push", "@browser.json", "--topic", "orders", "--ttl", "1h"];
    let made = server.ask(&create);
    let shown = json!({"type": "push", "encrypted": true, "ttl": "1h", "urgency": "normal"});
    assert_eq!(made["destination"], shown);
    let list = server.run("subscriptions list");
    assert!(list.out.contains("  push\n"), "{}", list.out);

    let sent = server.ask(&["send", "orders", "order.created", r#"{"total":12}"#]);
    let got = event(&mut agent, &keys);
    assert_eq!((&got["id"], &got["payload"]), (&sent["id"], &json!({"total": 12})));
    drop(agent);
    let while_away = server.ask(&["send", "orders", "order.paid", r#"{"total":13}"#]);
    eventually("the delivery", || state(&server, &while_away).filter(|s| s == "delivered"));
    server.stop();
    let server = home.serve();
    let (mut agent, _) = connected(&server, Some(id));
    let got = event(&mut agent, &keys);
    assert_eq!((&got["id"], &got["type"]), (&while_away["id"], &json!("order.paid")));

    // Who unsubscribes gets nothing more, and the subscription says so.
    wait(agent.unregister(CHANNEL)).expect("unregistered");
    let lost = server.ask("send orders order.paid 1");
    let subscription = made["id"].as_str().expect("an id");
    until("the end of the subscription", || {
        let shown = server.ask(&["subscriptions", "show", subscription]);
        shown["status"] == "disabled"
    });
    assert_eq!(state(&server, &lost).as_deref(), Some("pending"));
    // The server has another port by now, and its endpoints another beginning.
    let path = &endpoint[endpoint.find("/wpush/").expect("an endpoint")..];
    let browser = json!({"endpoint": format!("{}{path}", server.url)});
    home.write("browser.json", browser.to_string());
    server.run(&create).exits(1).says(&["the agent has unsubscribed"]);
    server.stop();

    home.run(&["subscriptions", "create", "https://a.example/", "--push", "{}"]).exits(2);
}
