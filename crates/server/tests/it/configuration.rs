//! Configuration as the program sees it: file, environment, flags, `check`.

use posthorn_testkit::program::{Home, Ran, Running};
use serde_json::Value;

fn entry(check: &Value, key: &str) -> (Value, String) {
    let entries = check.as_array().expect("a list");
    let found = entries.iter().find(|entry| entry["key"] == key).expect(key);
    (found["value"].clone(), found["source"].as_str().expect("text").to_owned())
}

#[test]
fn an_unknown_key_is_named_with_its_source_and_the_nearest_known_one() {
    let home = Home::new();
    home.write("typo.yaml", "server:\n  lisen: x\n");
    for command in ["serve", "check"] {
        home.run(&[command, "--config", "typo.yaml"]).exits(78).says(&[
            "server.lisen",
            "file typo.yaml",
            "did you mean `server.listen`?",
        ]);
    }
    Ran::of(home.command().arg("check").env("POSTHORN__ENGINE__SLOT", "3"))
        .exits(78)
        .says(&["environment POSTHORN__ENGINE__SLOT", "`engine.slots`"]);
    assert!(!home.data().exists());
}

#[test]
fn check_shows_what_is_in_effect_and_where_it_comes_from() {
    let home = Home::new();
    let output = Ran::of(
        home.command()
            .args(["check", "--json", "--set", "engine.slots=7"])
            .env("POSTHORN__ENGINE__WINDOW", "99")
            .env("POSTHORN__STORE__URL", "postgres://posthorn:hush@db/posthorn"),
    )
    .exits(0);
    let check = output.json();
    let (value, source) = entry(&check, "engine.window");
    assert_eq!((value, source.as_str()), (99.into(), "environment POSTHORN__ENGINE__WINDOW"));
    let (value, source) = entry(&check, "engine.slots");
    assert_eq!((value, source.as_str()), (7.into(), "flag --set engine.slots"));
    let (value, source) = entry(&check, "engine.drain_timeout");
    assert_eq!((value, source.as_str()), ("2s".into(), "file posthorn.yaml"));
    assert_eq!(entry(&check, "engine.poll_interval").1, "default");
    assert_eq!(entry(&check, "store.url").0, "postgres://posthorn:redacted@db/posthorn");
    assert!(!output.out.contains("hush") && !output.err.contains("hush"));

    let output = home.run("check").exits(0);
    assert!(output.out.starts_with("server.listen"), "{}", output.out);
    output.says(&["valid", "posthorn.yaml", "2 own profiles"]);
}

#[test]
fn the_defaults_are_documented_and_valid_by_themselves() {
    let home = Home::new();
    let output = home.run("check --defaults").exits(0);
    home.write("all.yaml", &output.out);
    home.run("check --config all.yaml").exits(0);
    let profiles = home.run("check --profiles");
    let profiles = profiles.json();
    assert_eq!(profiles["quick"]["schedule"]["max_attempts"], 5);
    assert!(profiles["efgs"].is_object());
}

#[test]
fn the_environment_overrides_the_file() {
    let home = Home::new();
    home.write("posthorn.yaml", "server: {listen: '203.0.113.1:1'}\n");
    home.run("serve").exits(78).says(&["203.0.113.1:1", "not an address of this machine"]);
    let mut command = home.command();
    command.arg("serve").env("POSTHORN__SERVER__LISTEN", "127.0.0.1:0");
    let mut running = Running::start(&mut command);
    running.wait_for("start", |text| text.contains("listening on http://127.0.0.1").then_some(()));
    running.signal("TERM");
    assert_eq!(running.wait().code(), Some(0));
}

#[test]
fn a_named_file_must_be_there() {
    let home = Home::new();
    home.run("serve --config gone.yaml").exits(78).says(&["gone.yaml", "cannot be read"]);
}

fn lines(output: &Ran) -> Vec<Value> {
    output.out.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn check_url_says_for_each_url_whether_it_may_be_a_receiver() {
    let home = Home::new();
    let bare = home.path().join("bare.yaml");
    std::fs::write(&bare, "").expect("written");
    let ask = |flags: &[&str], urls: &[&str]| {
        let all = [&["check", "url", "--json", "--config", "bare.yaml"], flags, &["--"], urls];
        home.run(&all.concat())
    };
    let urls = ["HTTPS://Example.COM./a", "http://2130706433/", "--json", "http://a b/", ""];
    let output = ask(&[], &urls).exits(1);
    let said = lines(&output);
    let expected = [
        (true, Value::Null, Value::from("https://example.com/a")),
        (false, "address_not_public".into(), Value::Null),
        (false, "url_unparseable".into(), Value::Null),
        (false, "url_unparseable".into(), Value::Null),
        (false, "url_surrounded_by_blanks".into(), Value::Null),
    ];
    assert_eq!(said.len(), urls.len());
    for ((line, url), (allowed, reason, normalised)) in said.iter().zip(urls).zip(expected) {
        assert_eq!(line["url"], url);
        assert_eq!(line["allowed"], allowed, "{line}");
        assert_eq!(line["reason"], reason, "{line}");
        assert_eq!(line["normalised"], normalised, "{line}");
        assert_eq!(line.as_object().expect("object").len(), 4);
    }
    ask(&[], &["https://example.com/", "https://example.org/"]).exits(0);

    // The operator's rules apply, but nothing opens the server's own port.
    let rules =
        ["--allow", "127.0.0.0/8", "--set", "egress.deny=127.0.0.9", "--listen", "127.0.0.1:7777"];
    let output =
        ask(&rules, &["http://127.0.0.1:9/", "http://127.0.0.9/", "http://127.0.0.1:7777/"])
            .exits(1);
    let reasons: Vec<Value> = lines(&output).iter().map(|line| line["reason"].clone()).collect();
    assert_eq!(reasons, [Value::Null, "address_denied".into(), "address_own_listener".into()]);

    // For people, and without making anything.
    let output =
        home.run(&["check", "url", "--", "https://example.com", "http://\u{1b}[2J/"]).exits(1);
    assert!(output.out.contains("allowed https://example.com/"), "{}", output.out);
    assert!(!output.out.contains('\u{1b}'), "{}", output.out);
    output.says(&["1 of 2 URLs are not allowed as receivers"]);
    home.run("check url").exits(2);
    assert!(!home.data().exists());
}

#[test]
fn check_url_keeps_the_database_closed() {
    let home = Home::new();
    let output = Ran::of(
        home.command()
            .args(["check", "url", "--json", "--allow", "10.0.0.0/8", "--"])
            .args(["http://10.0.0.7:6543/", "http://10.0.0.7:8080/", "https://db.example.com/"])
            .env("POSTHORN__STORE__URL", "postgres://u:p@10.0.0.7:6543,db.example.com:5432/d"),
    );
    let reasons: Vec<Value> = lines(&output).iter().map(|line| line["reason"].clone()).collect();
    assert_eq!(reasons, ["address_own_listener".into(), Value::Null, "url_host_own".into()]);
}

#[test]
fn check_guard_compares_the_address_policy_with_its_reference() {
    let home = Home::new();
    let output = home.run("check guard --json --v6 20000 --seed 5").exits(0);
    let said = output.json();
    assert_eq!(said["differences"], serde_json::json!([]));
    assert_eq!(said["v6_compared"], 20_000);
    assert!(said["v4_compared"].as_u64().expect("a number") > 4_000_000);
}

/// Whether `check` and `serve` refuse the configuration with these lines besides, and say so.
#[track_caller]
fn refused(lines: &str, says: &[&str]) {
    let home = Home::new();
    home.write("posthorn.yaml", lines);
    for command in ["check", "serve"] {
        home.run(&[command]).exits(78).says(says);
    }
    assert!(!home.data().exists());
}

#[test]
fn a_surface_is_named_once() {
    refused("server: {surfaces: [v1, health, v1]}\n", &["server.surfaces", "`v1` is listed twice"]);
    refused(
        "server: {admin_listen: '127.0.0.1:0', admin_surfaces: [metrics, metrics]}\n",
        &["server.admin_surfaces", "`metrics` is listed twice"],
    );
}

#[test]
fn the_proxy_of_a_systems_profile_is_open_to_the_systems_tenant() {
    let callbacks = "callbacks: {payment_success_url: 'https://pay.example.com/', tenant: shop, \
                     hmac_secret: a secret of more than thirty-two characters}";
    let notificaties = "dialects: {notificaties: {enabled: true, tenant: gemeente}}";
    for (profile, tenant, lines) in
        [("cedros", "shop", callbacks), ("notificaties", "gemeente", notificaties)]
    {
        let with = |open_to: &str, proxy: &str| {
            format!(
                "egress: {{proxies: {{gateway: {{url: 'http://127.0.0.1:3128', tenants: [{open_to}]}}}}}}\n\
                 profiles: {{{profile}: {{policy: {{proxy: {proxy}}}}}}}\n{lines}\n"
            )
        };
        let says = format!("must name `{tenant}`");
        refused(&with("acme", "gateway"), &["egress.proxies.gateway.tenants", &says]);
        let key = format!("profiles.{profile}.policy.proxy");
        refused(&with(tenant, "another"), &[&key, "no proxy `another`"]);
        let home = Home::new();
        home.write("posthorn.yaml", with(tenant, "gateway"));
        home.run("check").exits(0);
    }
}
