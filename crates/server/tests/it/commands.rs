//! Commands that talk to a server, and those that need none.

use serde_json::{Value, json};

use crate::harness::{Home, assert_exit, assert_says, err, eventually, out, run};

#[test]
fn what_is_sent_arrives_signed_and_as_it_was_written() {
    let mut home = Home::new();
    let server = home.serve();
    let (mut listener, _) = server.listen(&["--subscribe", "orders", "--count", "1", "--json"]);
    let payload = "{\"total\":  12, \"b\":1,\"a\":2}";
    let sent = server.ask(&[
        "send",
        "orders",
        "order.created",
        payload,
        "-a",
        "region=eu",
        "--ordering-key",
        "c7",
        "--idempotency-key",
        "k1",
    ]);
    assert_eq!(sent["deliveries"], 1);
    assert_eq!(listener.wait().code(), Some(0), "{}", listener.stderr());
    let received: Value = serde_json::from_str(&listener.stdout()).expect("one JSON line");
    assert_eq!(received["verified"], true, "{received}");
    assert_eq!(received["body"], payload);
    assert_eq!(received["headers"]["webhook-id"], sent["id"]);
    let left = server.ask(&["subscriptions", "list"]);
    assert_eq!(left["items"], Value::Array(vec![]), "removed at the end");

    let again = server.ask(&[
        "send",
        "orders",
        "order.created",
        payload,
        "-a",
        "region=eu",
        "--ordering-key",
        "c7",
        "--idempotency-key",
        "k1",
    ]);
    assert_eq!((&again["id"], &again["duplicate"]), (&sent["id"], &Value::Bool(true)));
    let id = sent["id"].as_str().expect("an id");
    let shown = server.command().args(["events", "show", id]).output().expect("runs");
    assert_exit(&shown, 0);
    for part in [id, "order.created", "region", "delivery", "delivered", "RESULT"] {
        assert!(out(&shown).contains(part), "`{part}` is not in:\n{}", out(&shown));
    }
    server.stop();
}

#[test]
fn failures_are_retried_and_a_wrong_secret_is_noticed() {
    let mut home = Home::new();
    let server = home.serve();
    let (mut listener, _) = server.listen(&[
        "--subscribe",
        "orders",
        "--profile",
        "quick",
        "--fail-first",
        "2",
        "--count",
        "3",
    ]);
    server.ask(&["send", "orders", "order.created"]);
    assert_eq!(listener.wait().code(), Some(0), "{}", listener.stderr());
    let text = listener.stdout();
    assert_eq!(text.matches("signature verified").count(), 3, "{text}");
    assert_eq!(text.matches("→ 503").count(), 2, "{text}");

    let other = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let (mut listener, _) =
        server.listen(&["--subscribe", "orders", "--verify", other, "--count", "1"]);
    server.ask(&["send", "orders", "order.created"]);
    assert_eq!(listener.wait().code(), Some(1));
    assert!(listener.stdout().contains("signature does not fit"), "{}", listener.stdout());
    server.stop();
}

#[test]
fn dead_letters_are_redriven() {
    let mut home = Home::new();
    let server = home.serve();
    server.ask(&["topics", "put", "orders"]);
    let (listener, address) = server.listen(&["--status", "500"]);
    let made = server.ask(&["subscriptions", "create", &address, "--profile", "once"]);
    let subscription = made["id"].as_str().expect("an id").to_owned();
    let tested = server.ask(&["subscriptions", "test", &subscription]);
    assert_eq!((&tested["outcome"], &tested["status"]), (&"answered".into(), &500.into()));
    server.ask(&["send", "orders", "order.created", "--count", "3"]);
    let dead = eventually("dead letters", || {
        let list = server.ask(&["dead-letters", "list", "--subscription", &subscription]);
        list["items"].as_array().filter(|items| items.len() == 3).cloned()
    });
    let id = dead[0]["id"].as_str().expect("an id");
    let shown = server.command().args(["dead-letters", "show", id]).output().expect("runs");
    assert_exit(&shown, 0);
    assert!(out(&shown).contains("500") && out(&shown).contains("exhausted"), "{}", out(&shown));
    drop(listener);

    let port = address.rsplit(':').next().expect("a port");
    let (_listener, _) = server.listen(&["--port", port]);
    let one = server.ask(&["dead-letters", "retry", id]);
    assert_eq!(one["id"], id);
    let redrive = server.ask(&["dead-letters", "redrive", "--subscription", &subscription]);
    assert_eq!((&redrive["state"], &redrive["moved"]), (&"done".into(), &2.into()), "{redrive}");
    assert_eq!(server.ask(&["dead-letters", "redrives"])["items"][0]["id"], redrive["id"]);
    eventually("deliveries", || (server.ask(&["stats"])["delivered"] == 3).then_some(()));
    let refused = server.command().args(["deliveries", "cancel", id]).output().expect("runs");
    assert_exit(&refused, 1);
    assert_says(&refused, &["delivery_ended", "posthorn explain delivery_ended"]);
    server.stop();
}

#[test]
fn profiles_can_be_changed_while_the_server_runs() {
    let mut home = Home::new();
    let server = home.serve();
    let topic = server.ask(&["topics", "put", "labelled", "--label", "link=https://a/?b=c"]);
    assert_eq!(topic["labels"]["link"], "https://a/?b=c");
    let listed = server.ask(&["profiles", "list"]);
    assert!(listed["items"].as_array().expect("a list").len() >= 7);
    let policy = "{\"schedule\": {\"max_attempts\": 2}}";
    let put = server.ask(&["profiles", "put", "mine", "--base", "quick", "--policy", policy]);
    assert_eq!(
        (&put["base"], &put["policy"]["schedule"]["max_attempts"]),
        (&json!("quick"), &json!(2))
    );
    let create = ["subscriptions", "create", "http://127.0.0.1:9/", "--profile", "mine"];
    assert_eq!(server.ask(&create)["profile"], "mine");
    server.stop();
    let server = home.serve();
    assert_eq!(server.ask(&["profiles", "show", "mine"])["changes"]["schedule"]["max_attempts"], 2);
    let used = server.command().args(["profiles", "delete", "mine"]).output().expect("runs");
    assert_exit(&used, 1);
    assert_says(&used, &["in_use"]);
    let sent = server.ask(&["send", "orders", "order.created", "{}", "--create-topic"]);
    let id = sent["id"].as_str().expect("an id");
    let again = server.ask(&["events", "republish", id]);
    assert_ne!(again["id"], sent["id"]);
    server.stop();
}

#[test]
fn subscriptions_can_be_changed() {
    let mut home = Home::new();
    let server = home.serve();
    let made = server.ask(&[
        "subscriptions",
        "create",
        "http://127.0.0.1:9/",
        "--topic",
        "orders",
        "--type",
        "order.*",
        "--policy",
        "{\"schedule\": {\"max_attempts\": 3}}",
        "--description",
        "mine",
        "--paused",
    ]);
    let id = made["id"].as_str().expect("an id");
    assert_eq!(made["status"], "paused");
    assert_eq!(server.ask(&["subscriptions", "resume", id])["status"], "active");
    assert_eq!(server.ask(&["subscriptions", "pause", id])["status"], "paused");
    let changed = server.ask(&["subscriptions", "update", id, "--description", "ours"]);
    assert_eq!(changed["description"], "ours");
    assert_eq!(changed["filter"], made["filter"]);
    let stale = server
        .command()
        .args(["subscriptions", "update", id, "--description", "x", "--if-version", "1"])
        .output()
        .expect("runs");
    assert_exit(&stale, 1);
    assert_says(&stale, &["version_mismatch"]);
    let rotated = server.ask(&["subscriptions", "rotate-secret", id, "--overlap", "1h"]);
    assert!(rotated["secret"].as_str().expect("text").starts_with("whsec_"));
    let named = ["subscriptions", "update", id, "--name", "billing", "--label", "team=a=b"];
    let named = server.ask(&named);
    assert_eq!((&named["name"], &named["labels"]["team"]), (&json!("billing"), &json!("a=b")));
    let bad = server
        .command()
        .args(["subscriptions", "create", "http://10.0.0.1/"])
        .output()
        .expect("runs");
    assert_exit(&bad, 1);
    assert_says(&bad, &["url_not_allowed", "hint: posthorn explain url_not_allowed"]);
    server.ask(&["subscriptions", "delete", id]);
    let gone = server.command().args(["subscriptions", "show", id]).output().expect("runs");
    assert_exit(&gone, 1);
    assert_says(&gone, &["not_found"]);
    server.stop();
}

#[test]
fn keys_open_only_what_they_should() {
    let mut home = Home::new();
    let server = home.serve();
    let wrong =
        server.command().args(["topics", "list", "--key", "ph_wrong"]).output().expect("runs");
    assert_exit(&wrong, 77);
    assert_says(&wrong, &["unauthorized", "POSTHORN_KEY"]);
    assert!(wrong.stdout.is_empty());

    server.ask(&["tenants", "create", "acme"]);
    let tenants = server.ask(&["tenants", "list"]);
    assert_eq!(tenants["items"].as_array().expect("a list").len(), 2);
    let made = server.ask(&["keys", "create", "--scope", "publish", "--tenant", "acme"]);
    let key = made["key"].as_str().expect("shown once");
    server.ask(&["topics", "put", "orders", "--tenant", "acme"]);
    server.ask(&["send", "orders", "order.created", "--key", key]);
    let denied = server.command().args(["topics", "list", "--key", key]).output().expect("runs");
    assert_exit(&denied, 77);
    assert_says(&denied, &["forbidden"]);
    server.ask(&["keys", "revoke", made["id"].as_str().expect("an id")]);
    let revoked =
        server.command().args(["send", "orders", "x", "--key", key]).output().expect("runs");
    assert_exit(&revoked, 77);
    std::fs::write(home.path().join("key"), format!("{}\n", server.key)).expect("written");
    server.ask(&["topics", "list", "--key", "file:key"]);
    server.stop();
}

#[test]
fn mistakes_are_explained() {
    let mut home = Home::new();
    let output = run(home.path(), &["topics", "list", "--server", "http://127.0.0.1:9"]);
    assert_exit(&output, 69);
    assert_says(&output, &["cannot reach http://127.0.0.1:9", "posthorn serve", "POSTHORN_SERVER"]);
    let output = run(home.path(), &["topics", "list", "--server", "nowhere"]);
    assert_exit(&output, 2);
    assert_exit(&run(home.path(), &["sing"]), 2);
    assert_exit(&run(home.path(), &["--version"]), 0);

    let server = home.serve();
    let ask = |args: &[&str]| server.command().args(args).output().expect("runs");
    let output = ask(&["send", "nowhere", "order.created"]);
    assert_exit(&output, 1);
    assert_says(&output, &["unknown_topic", "`nowhere`", "posthorn explain unknown_topic"]);
    let output = ask(&["send", "orders", "order.created", "hello"]);
    assert_exit(&output, 2);
    assert_says(&output, &["the payload is not JSON", "'\"hello\"'"]);
    assert_exit(&ask(&["send", "orders", "order.created", "\"hello\"", "--create-topic"]), 0);
    assert_exit(&ask(&["send", "orders", "order.created", "@gone.json"]), 2);
    server.stop();
}

#[test]
fn codes_are_explained_without_a_server() {
    let home = Home::new();
    let output = run(home.path(), &["explain", "unknown_topic"]);
    assert_exit(&output, 0);
    assert!(out(&output).contains("422") && out(&output).contains("What to do:"));
    let output = run(home.path(), &["explain", "75", "--json"]);
    let value: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(value["exit_code"], 75);
    let output = run(home.path(), &["explain"]);
    assert!(out(&output).contains("outcome_unknown") && out(&output).contains("EXIT CODE"));
    assert_exit(&run(home.path(), &["explain", "no_such_code"]), 1);
    // Whatever `waiting` may say.
    for reason in posthorn_domain::WaitReason::ALL {
        let output = run(home.path(), &["explain", reason.as_str()]);
        assert_exit(&output, 0);
        let told = out(&output);
        assert!(
            told.contains("what a delivery waits for") && told.contains("What to do:"),
            "{told}"
        );
    }
    let output = run(home.path(), &["explain", "gate"]);
    assert!(out(&output).contains("reason of a dead letter"), "both: {}", out(&output));
    let output = run(home.path(), &["keys", "generate-seal"]);
    assert!(out(&output).starts_with("phvk_"), "{}", err(&output));
}

#[test]
fn a_backup_is_a_store() {
    let mut home = Home::new();
    let server = home.serve();
    server.ask(&["topics", "put", "orders"]);
    server.ask(&["send", "orders", "order.created"]);
    // The server goes on working meanwhile.
    let output = run(home.path(), &["backup", "--to", "copy.db", "--json"]);
    server.stop();
    assert_exit(&output, 0);
    assert_says(&output, &["seal.key"]);
    let again = run(home.path(), &["backup", "--to", "copy.db"]);
    assert_exit(&again, 73);
    assert_says(&again, &["copy.db is there already"]);
    let nothing = run(home.path(), &["backup", "--to", "none.db", "--data", "nowhere"]);
    assert_exit(&nothing, 1);
    assert!(!home.path().join("nowhere").exists() && !home.path().join("none.db").exists());

    let mut other = Home::new();
    std::fs::create_dir(other.data()).expect("made");
    std::fs::rename(home.path().join("copy.db"), other.data().join("posthorn.db")).expect("moved");
    std::fs::copy(home.data().join("seal.key"), other.data().join("seal.key")).expect("copied");
    other.key.clone_from(&home.key);
    let server = other.serve();
    assert_eq!(server.ask(&["stats"])["events"], 1);
    server.stop();
}

#[test]
fn the_demo_ends_well_by_itself() {
    let home = Home::new();
    let output = run(home.path(), &["demo", "--json"]);
    assert_exit(&output, 0);
    let value: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(value["lost"], 0);
    assert_eq!(value["receivers"]["taken"], 46);
    assert_eq!(value["server"]["pending"], 0);
    assert_says(&output, &["kill -9", "signature verified", "will be retried"]);
}
