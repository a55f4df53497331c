//! Commands that talk to a server, and those that need none.

use std::path::Path;

use posthorn_testkit::caller::call;
use posthorn_testkit::program::{Home, Running, id_of};
use posthorn_testkit::wait::{eventually, until};
use serde_json::{Value, json};

#[test]
fn what_is_sent_arrives_signed_and_as_it_was_written() {
    let (_home, server) = Home::new().served();
    let (mut listener, _) = server.listen("--subscribe orders --count 1 --json");
    let payload = "{\"total\":  12, \"b\":1,\"a\":2}";
    let sent = server.ask(&format!(
        "send orders order.created '{payload}' -a region=eu --ordering-key c7 --idempotency-key k1"
    ));
    assert_eq!(sent["deliveries"], 1);
    assert_eq!(listener.wait().code(), Some(0), "{}", listener.stderr());
    let received: Value = serde_json::from_str(&listener.stdout()).expect("one JSON line");
    assert_eq!(received["verified"], true, "{received}");
    assert_eq!(received["body"], payload);
    assert_eq!(received["headers"]["webhook-id"], sent["id"]);
    let left = server.ask("subscriptions list");
    assert_eq!(left["items"], Value::Array(vec![]), "removed at the end");

    let again = server.ask(&format!(
        "send orders order.created '{payload}' -a region=eu --ordering-key c7 --idempotency-key k1"
    ));
    assert_eq!((&again["id"], &again["duplicate"]), (&sent["id"], &Value::Bool(true)));
    let id = sent["id"].as_str().expect("an id");
    let shown = server.run(&["events", "show", id]).exits(0);
    for part in [id, "order.created", "region", "delivery", "delivered", "RESULT"] {
        assert!(shown.out.contains(part), "`{part}` is not in:\n{}", shown.out);
    }
    server.stop();
}

#[test]
fn failures_are_retried_and_a_wrong_secret_is_noticed() {
    let (_home, server) = Home::new().served();
    let (mut listener, _) =
        server.listen("--subscribe orders --profile quick --fail-first 2 --count 3");
    server.ask("send orders order.created");
    assert_eq!(listener.wait().code(), Some(0), "{}", listener.stderr());
    let text = listener.stdout();
    assert_eq!(text.matches("signature verified").count(), 3, "{text}");
    assert_eq!(text.matches("→ 503").count(), 2, "{text}");

    let other = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let (mut listener, _) =
        server.listen(&["--subscribe", "orders", "--verify", other, "--count", "1"]);
    server.ask("send orders order.created");
    assert_eq!(listener.wait().code(), Some(1));
    assert!(listener.stdout().contains("signature does not fit"), "{}", listener.stdout());
    server.stop();
}

#[test]
fn dead_letters_are_redriven() {
    let (_home, server) = Home::new().served();
    server.ask("topics put orders");
    let (listener, address) = server.listen("--status 500");
    let made = server.ask(&["subscriptions", "create", &address, "--profile", "once"]);
    let subscription = id_of(&made);
    let tested = server.ask(&["subscriptions", "test", &subscription]);
    assert_eq!((&tested["outcome"], &tested["status"]), (&"answered".into(), &500.into()));
    server.ask("send orders order.created --count 3");
    let dead = eventually("dead letters", || {
        let list = server.ask(&["dead-letters", "list", "--subscription", &subscription]);
        list["items"].as_array().filter(|items| items.len() == 3).cloned()
    });
    let id = dead[0]["id"].as_str().expect("an id");
    let shown = server.run(&["dead-letters", "show", id]).exits(0);
    assert!(shown.out.contains("500") && shown.out.contains("exhausted"), "{}", shown.out);
    drop(listener);

    let port = address.rsplit(':').next().expect("a port");
    let (_listener, _) = server.listen(&["--port", port]);
    let one = server.ask(&["dead-letters", "retry", id]);
    assert_eq!(one["id"], id);
    let redrive = server.ask(&["redrives", "create", "--subscription", &subscription]);
    assert_eq!((&redrive["state"], &redrive["moved"]), (&"done".into(), &2.into()), "{redrive}");
    assert_eq!(server.ask("redrives list")["items"][0]["id"], redrive["id"]);
    server.settles(&[("delivered", 3)]);
    server
        .run(&["deliveries", "cancel", id])
        .exits(1)
        .says(&["delivery_ended", "posthorn explain delivery_ended"]);
    server.stop();
}

#[test]
fn all_deliveries_that_match_are_retried() {
    let (_home, server) = Home::new().served();
    server.ask("topics put orders");
    let (listener, address) = server.listen("--status 503");
    server.ask(&["subscriptions", "create", &address, "--profile", "once"]);
    server.ask("send orders order.created --count 3");
    server.settles(&[("dead", 3)]);
    drop(listener);
    let port = address.rsplit(':').next().expect("a port");
    let (_listener, _) = server.listen(&["--port", port]);
    for (condition, count) in [("--status 404", 0), ("--status 503", 3), ("--state delivered", 0)] {
        let counted = server.ask(format!("deliveries retry {condition} --dry-run").as_str());
        assert_eq!(counted["count"], count, "{condition}");
    }
    let job = server.ask("deliveries retry --status 503");
    assert_eq!((&job["kind"], &job["done"]), (&"retry".into(), &3.into()), "{job}");
    server.settles(&[("delivered", 3)]);
    server.run("deliveries retry").exits(1).says(&["condition"]);
    server.stop();
}

#[test]
fn what_happened_to_a_delivery_is_told_step_by_step() {
    let (_home, server) = Home::new().served();
    let (_listener, address) = server.listen("--status 500");
    server.ask("topics put orders");
    let policy =
        r#"{"schedule": {"max_attempts": 1}, "auth": [{"kind": "bearer", "secret": "token"}]}"#;
    let made = server.ask(&[
        "subscriptions",
        "create",
        &address,
        "--name",
        "billing",
        "--policy",
        policy,
        "--secret",
        "token=hush-hush-hush",
        "--paused",
    ]);
    let subscription = id_of(&made);
    server.ask("send orders order.created {}");
    let find = |state: &str| {
        eventually("the delivery", || {
            let list = server.ask(&["deliveries", "list", "--state", state]);
            list["items"][0]["id"].as_str().map(str::to_owned)
        })
    };
    let id = find("pending");
    let text = server.run(&["deliveries", "timeline", &id]).exits(0).out;
    assert!(text.contains("accepted") && text.contains("paused"), "{text}");
    assert!(text.contains("What to do:") && text.contains("subscriptions resume"), "{text}");
    let health = server.ask("subscriptions health billing");
    assert_eq!((&health["waiting"]["reason"], &health["pending"]), (&"paused".into(), &1.into()));

    server.ask(&["subscriptions", "resume", &subscription]);
    assert_eq!(find("dead"), id);
    let steps = server.ask(&["deliveries", "timeline", &id])["steps"].clone();
    let last = steps.as_array().and_then(|steps| steps.last()).expect("steps");
    assert_eq!((&last["step"], &last["reason"]), (&"ended".into(), &"exhausted".into()));
    let text = server.run(&["deliveries", "timeline", &id]).exits(0).out;
    assert!(text.contains("500") && text.contains("exhausted"), "{text}");
    // What an attempt spent its time with; there is no TLS.
    assert!(text.contains("TIMINGS") && text.contains("connect "), "{text}");
    let made =
        steps.as_array().expect("steps").iter().find(|step| step.get("timings_ms").is_some());
    let timings = &made.expect("an attempt")["timings_ms"];
    assert!(timings["connect"].is_u64() && timings["first_byte"].is_u64(), "{timings}");
    assert!(timings.get("tls").is_none(), "{timings}");
    let shown = server.run(&["deliveries", "request", &id]).exits(0);
    assert!(shown.out.contains("POST") && shown.out.contains("authorization: …"), "{}", shown.out);
    assert!(!format!("{}{}", shown.out, shown.err).contains("hush-hush"), "{}", shown.out);
    let health = server.ask(&["subscriptions", "health", &subscription]);
    assert_eq!((&health["last_hour"]["sampled"], &health["pending"]), (&1.into(), &0.into()));
    let text = server.run("subscriptions health billing").exits(0).out;
    assert!(text.contains("breaker") && text.contains("closed") && !text.contains('{'), "{text}");
    let nobody = "dlv_01hf7yat00000000000000000z";
    server.run(&["deliveries", "timeline", nobody]).exits(1).says(&["not_found"]);
    server.stop();
}

#[test]
fn profiles_can_be_changed_while_the_server_runs() {
    let (mut home, server) = Home::new().served();
    let topic = server.ask("topics put labelled --label link=https://a/?b=c");
    assert_eq!(topic["labels"]["link"], "https://a/?b=c");
    let listed = server.ask("profiles list");
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
    assert_eq!(server.ask("profiles show mine")["changes"]["schedule"]["max_attempts"], 2);
    server.run("profiles delete mine").exits(1).says(&["in_use"]);
    let sent = server.ask(&["send", "orders", "order.created", "{}", "--create-topic"]);
    let id = sent["id"].as_str().expect("an id");
    let again = server.ask(&["events", "republish", id]);
    assert_ne!(again["id"], sent["id"]);
    server.stop();
}

#[test]
fn subscriptions_can_be_changed() {
    let (_home, server) = Home::new().served();
    let made = server.ask("subscriptions create http://127.0.0.1:9/ --topic orders --type order.* --policy '{\"schedule\": {\"max_attempts\": 3}}' --description mine --paused");
    let id = made["id"].as_str().expect("an id");
    assert_eq!(made["status"], "paused");
    assert_eq!(server.ask(&["subscriptions", "resume", id])["status"], "active");
    assert_eq!(server.ask(&["subscriptions", "pause", id])["status"], "paused");
    let changed = server.ask(&["subscriptions", "update", id, "--description", "ours"]);
    assert_eq!(changed["description"], "ours");
    assert_eq!(changed["filter"], made["filter"]);
    server
        .run(&["subscriptions", "update", id, "--description", "x", "--if-version", "1"])
        .exits(1)
        .says(&["version_mismatch"]);
    let rotated = server.ask(&["subscriptions", "rotate-secret", id, "--overlap", "1h"]);
    assert!(rotated["secret"].as_str().expect("text").starts_with("whsec_"));
    let named = ["subscriptions", "update", id, "--name", "billing", "--label", "team=a=b"];
    let named = server.ask(&named);
    assert_eq!((&named["name"], &named["labels"]["team"]), (&json!("billing"), &json!("a=b")));
    server
        .run("subscriptions create http://10.0.0.1/")
        .exits(1)
        .says(&["url_not_allowed", "hint: posthorn explain url_not_allowed"]);
    server.ask(&["subscriptions", "delete", id]);
    server.run(&["subscriptions", "show", id]).exits(1).says(&["not_found"]);
    server.stop();
}

#[test]
fn keys_open_only_what_they_should() {
    let (home, server) = Home::new().served();
    let wrong =
        server.run("topics list --key ph_wrong").exits(77).says(&["unauthorized", "POSTHORN_KEY"]);
    assert!(wrong.out.is_empty());

    server.ask("tenants create acme");
    let tenants = server.ask("tenants list");
    assert_eq!(tenants["items"].as_array().expect("a list").len(), 3, "with `system`");
    let made = server.ask("keys create --scope publish --tenant acme");
    let key = made["key"].as_str().expect("shown once");
    server.ask("topics put orders --tenant acme");
    server.ask(&["send", "orders", "order.created", "--key", key]);
    server.run(&["topics", "list", "--key", key]).exits(77).says(&["forbidden"]);
    server.ask(&["keys", "revoke", made["id"].as_str().expect("an id")]);
    server.run(&["send", "orders", "x", "--key", key]).exits(77);
    home.write("key", format!("{}\n", server.key));
    server.ask("topics list --key file:key");
    server.stop();
}

#[test]
fn mistakes_are_explained() {
    let mut home = Home::new();
    home.run("topics list --server http://127.0.0.1:9").exits(69).says(&[
        "cannot reach http://127.0.0.1:9",
        "posthorn serve",
        "POSTHORN_SERVER",
    ]);
    home.run("topics list --server nowhere").exits(2);
    home.run("sing").exits(2);
    home.run("--version").exits(0);

    let server = home.serve();
    let ask = |args: &[&str]| server.run(&args);
    ask(&["send", "nowhere", "order.created"]).exits(1).says(&[
        "unknown_topic",
        "`nowhere`",
        "posthorn explain unknown_topic",
    ]);
    ask(&["send", "orders", "order.created", "hello"])
        .exits(2)
        .says(&["the payload is not JSON", "'\"hello\"'"]);
    ask(&["send", "orders", "order.created", "\"hello\"", "--create-topic"]).exits(0);
    ask(&["send", "orders", "order.created", "@gone.json"]).exits(2);
    server.stop();
}

#[test]
fn codes_are_explained_without_a_server() {
    let home = Home::new();
    let output = home.run("explain unknown_topic").exits(0);
    assert!(output.out.contains("422") && output.out.contains("What to do:"));
    let output = home.run("explain 75 --json");
    let value = output.json();
    assert_eq!(value["exit_code"], 75);
    let output = home.run("explain");
    assert!(output.out.contains("outcome_unknown") && output.out.contains("EXIT CODE"));
    home.run("explain no_such_code").exits(1);
    // Whatever `waiting` may say.
    for reason in posthorn_domain::WaitReason::ALL {
        let output = home.run(&["explain", reason.as_str()]).exits(0);
        let told = output.out;
        assert!(told.contains("why a delivery waits") && told.contains("What to do:"), "{told}");
    }
    let output = home.run("explain gate");
    assert!(output.out.contains("reason of a dead letter"), "both: {}", output.out);
    let output = home.run("seal create");
    assert!(output.out.starts_with("phvk_"), "{}", output.err);
}

#[test]
fn a_former_name_is_an_error_that_names_the_new_one() {
    let home = Home::new();
    for (old, new) in [
        ("dead-letters redrive --reason gate", "`dead-letters redrive` is now `redrives create`"),
        ("keys rotate-seal --begin x", "`keys rotate-seal` is now `seal rotate`"),
        ("keys generate node --to x", "`keys generate node` is now `push create-key node`"),
        ("keys create --scope subscriptions", "`subscriptions` is now `manage`"),
        ("certificates add --kind caller", "`certificates add` is now `certificates create`"),
    ] {
        home.run(old).exits(2).says(&[new]);
    }
    home.run("dead-letters nothing").exits(2).says(&["unrecognized subcommand"]);
}

#[test]
fn one_of_each_noun_can_be_shown() {
    let (_home, server) = Home::new().served();
    server.ask("topics put orders --description ours");
    assert_eq!(server.ask("topics show orders")["description"], "ours");
    let tenant = server.ask("tenants create acme");
    assert_eq!(server.ask("tenants show acme"), tenant);
    let key = server.ask("keys create --scope manage --tenant acme");
    let shown = server.ask(&["keys", "show", &id_of(&key)]);
    assert_eq!((&shown["scopes"], shown.get("key")), (&json!(["manage"]), None));
    let redrive = server.ask("redrives create");
    assert_eq!(server.ask(&["redrives", "show", &id_of(&redrive)])["id"], redrive["id"]);
    server.stop();
}

#[test]
fn a_backup_is_a_store() {
    let (home, server) = Home::new().served();
    server.ask("topics put orders");
    server.ask("send orders order.created");
    // The server goes on working meanwhile.
    let output = home.run("backup --to copy.db --json");
    server.stop();
    output.exits(0).says(&["seal.key"]);
    home.run("backup --to copy.db").exits(73).says(&["copy.db already exists"]);
    home.run("backup --to none.db --data nowhere").exits(1);
    assert!(!home.path().join("nowhere").exists() && !home.path().join("none.db").exists());

    let mut other = Home::new();
    std::fs::create_dir(other.data()).expect("made");
    std::fs::rename(home.path().join("copy.db"), other.data().join("posthorn.db")).expect("moved");
    std::fs::copy(home.data().join("seal.key"), other.data().join("seal.key")).expect("copied");
    other.key.clone_from(&home.key);
    let server = other.serve();
    assert_eq!(server.ask("stats")["events"], 1);
    server.stop();
}

#[test]
fn the_demo_ends_well_by_itself() {
    let home = Home::new();
    let output = home.run("demo --json").exits(0);
    let value = output.json();
    assert_eq!(value["lost"], 0);
    assert_eq!(value["receivers"]["taken"], 46);
    assert_eq!(value["server"]["pending"], 0);
    output.says(&["kill -9", "signature verified", "will be retried"]);
}

#[test]
fn the_demo_can_be_looked_at_until_it_is_ended_and_leaves_nothing_behind() {
    let home = Home::new();
    let mut demo = Running::start(home.command().args(["demo", "--console"]));
    let word = |text: &str, mark: &str| -> Option<String> {
        let (_, rest) = text.split_once(mark)?;
        rest.split_once('\n').map(|(line, _)| line.trim().to_owned())
    };
    let key = demo.wait_for("a key", |text| word(text, "  Key  "));
    let said = demo.stderr();
    let url = word(&said, "  Open ").expect("an address").replace("/console/", "");
    assert_eq!(said.matches(&key).count(), 1, "the key is shown once");
    let data = word(&said, ", data in ").expect("where the data is");
    assert!(Path::new(&data).exists());
    let get = |path: &str| call(&url, "GET", path).key(&key).send().expect(200);
    let stats = || get("/v1/stats");
    let before = stats()["events"].as_u64();
    until("live traffic", || stats()["events"].as_u64() > before);
    until("a receiver that works", || stats()["delivered"].as_u64() > Some(50));
    until("one that is dead", || stats()["pending"].as_u64() > Some(0));
    let names = get("/v1/subscriptions");
    let names: Vec<&str> = names["items"]
        .as_array()
        .expect("items")
        .iter()
        .filter_map(|s| s["name"].as_str())
        .collect();
    assert_eq!(names, ["calm", "moody", "dead"]);
    let page = call(&url, "GET", "/console/").send();
    assert_eq!(page.status, 303);
    assert!(page.header("location").is_some_and(|to| to.starts_with("/console/login")));
    demo.signal("INT");
    assert_eq!(demo.wait().code(), Some(0), "{}", demo.stderr());
    demo.says("nothing is left behind");
    assert!(!Path::new(&data).exists(), "the data is gone");
}

#[test]
fn a_filter_is_tried_out_before_anybody_has_it() {
    let (home, server) = Home::new().served();
    server.ask("topics put orders");
    let region = r#"{"any_of": [{"attributes": {"region": ["eu", "us"]}}]}"#;
    let made = server.ask(&[
        "subscriptions",
        "create",
        "https://example.com/",
        "--name",
        "billing",
        "--filter",
        region,
    ]);
    assert_eq!(made["filter"]["any_of"][0]["attributes"]["region"], json!(["eu", "us"]));
    let sent = server.ask("send orders order.created '{\"total\": 3}' -a region=asia");
    let event = id_of(&sent);
    let why = "attribute `region` is none of the filter's values or is missing";

    let file = format!("@{}", home.write("filter.json", region).display());
    for whose in [["--filter", region], ["--filter", &file], ["--subscription", "billing"]] {
        let stored = [&["filters", "test"], &whose[..], &["--event", &event]].concat();
        let no = server.run(&stored).exits(1);
        assert!(no.out.starts_with("does not match") && no.out.contains(why), "{}", no.out);
        let made_up = ["--topic", "new", "--type", "a", "-a", "region=us"];
        let yes = server.run(&[&["filters", "test"], &whose[..], &made_up].concat()).exits(0);
        assert!(yes.out.starts_with("matches"), "{}", yes.out);
    }
    let total =
        r#"{"any_of": [{"payload": {"test": {"path": "/total", "op": "in", "value": [3]}}}]}"#;
    let tested = server.ask(&[
        "filters",
        "test",
        "--filter",
        total,
        "--topic",
        "orders",
        "--type",
        "a",
        "--payload",
        r#"{"total": 3.0}"#,
    ]);
    assert_eq!((&tested["matches"], &tested["reasons"]), (&true.into(), &json!([])), "{tested}");
    assert!(tested["cost"].as_u64().is_some_and(|cost| cost > 0), "{tested}");

    let unknown =
        ["filters", "test", "--filter", region, "--event", "evt_01hf7yat00000000000000000z"];
    server.run(&unknown).exits(1);
    server.run(&["filters", "test", "--filter", "{", "--event", &event]).exits(2);
    server.run(&["filters", "test", "--filter", region]).exits(2);
    server.run(&["filters", "test", "--filter", region, "--topic", "orders"]).exits(2);
    let both =
        ["filters", "test", "--filter", region, "--subscription", "billing", "--event", &event];
    server.run(&both).exits(2);
    let empty = r#"{"any_of": [{"attributes": {"region": []}}]}"#;
    let refused = server.run(&["filters", "test", "--filter", empty, "--event", &event]).exits(1);
    assert!(refused.err.contains("`region` is empty"), "{}", refused.err);
    server.stop();
}
