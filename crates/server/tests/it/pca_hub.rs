//! Calls of a PCA Hub by the real program, as its operators set it up.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use posthorn_testkit::fake_hub::{Agreement, Call, FakeHub, Reply, standard};
use posthorn_testkit::program::{Home, Ran, Server, id_of};
use posthorn_testkit::wait::{eventually, until};
use serde_json::{Value, json};

/// Adds a profile to a home's configuration: a Hub on loopback, with waits that a test can wait for.
/// `more` is added to its policy.
pub(crate) fn profile(home: &Home, base: &str, hub: &FakeHub, more: &str) {
    patient_profile(home, base, hub, 2, more);
}

/// The same, waiting so many seconds for an answer. A lock lasts four seconds longer.
pub(crate) fn patient_profile(home: &Home, base: &str, hub: &FakeHub, patience: u64, more: &str) {
    let (total, lock) = (patience + 1, patience + 4);
    let gate = hub.gate("{values.tenant}");
    let text = format!(
        "
  hub:
    base: {base}
    policy:
      values: {{hub_domain: hub.example}}
      url: {{https_only: false}}
      gate: {{url: '{gate}', timeout: 2s}}
      limits: {{connect: 1s, tls: 1s, response: {patience}s, total: {total}s}}
      lease: {{time: {lock}s}}
      schedule: {{backoff: {{list: {{waits: [100ms, 100ms, 100ms, 100ms, 100ms]}}}}, jitter: none}}
{more}
"
    );
    home.write("posthorn.yaml", format!("{}{text}", home.read("posthorn.yaml").trim_end()));
}

/// Subscribes the Hub under the profile `hub`.
pub(crate) fn subscribe(server: &Server, hub: &FakeHub, agreement: &Agreement) -> String {
    server.ask("topics put pca-id");
    let secrets = [
        format!("otp={}", agreement.otp_secret),
        format!("otp-salt={}", agreement.otp_salt),
        format!("shared-internal-key={}", agreement.shared_key),
        format!("event-api-key={}", agreement.api_keys[0]),
    ];
    let url = hub.root();
    let mut args = vec!["subscriptions", "create", &url, "--profile", "hub", "--topic", "pca-id"];
    for secret in &secrets {
        args.extend(["--secret", secret]);
    }
    id_of(&server.ask(&args))
}

/// A Hub, a server with a profile for it, and the id of its subscription.
fn scene(agreement: &Agreement, base: &str, more: &str) -> (FakeHub, Home, Server, String) {
    let hub = FakeHub::start(agreement.clone()).expect("starts");
    let home = Home::new();
    profile(&home, base, &hub, more);
    let (home, server) = home.served();
    let id = subscribe(&server, &hub, agreement);
    (hub, home, server, id)
}

/// Publishes as the identity service does; returns the event's id.
pub(crate) fn send(server: &Server, kind: &str, tenant: &str, account: &str, n: u32) -> String {
    let body = json!({"account_id": account, "login_name": "太郎", "n": n,
        "organization_id": "org-9", "service_partition": format!("pca.hub.{tenant}")});
    let partition = format!("service_partition=pca.hub.{tenant}");
    let args = ["send", "pca-id", kind, &body.to_string(), "-a", &partition, "-a"];
    let sent = server.ask(&[&args[..], &["eventSender=user"]].concat());
    id_of(&sent)
}

/// The only delivery of an event, once it is what is asked for.
fn delivery(server: &Server, event: &str, state: &str) -> Value {
    eventually(state, || {
        let shown = server.ask(&["events", "show", event]);
        let delivery = shown["deliveries"][0].clone();
        (delivery["state"] == state).then_some(delivery)
    })
}

pub(crate) fn number(call: &Call) -> u64 {
    call.body["n"].as_u64().expect("a number")
}

/// The lines of a JSON log that a policy wrote.
fn policy_lines(server: &Server) -> Vec<Value> {
    let text = server.running.stderr();
    let lines = text.lines().filter_map(|line| serde_json::from_str(line).ok());
    lines.filter(|line: &Value| line["mt"].is_string()).collect()
}

#[test]
fn the_hub_finds_everything_it_asks_for_in_each_call() {
    let agreement = Agreement::default();
    let (hub, _home, server, id) = scene(&agreement, "pca-hub", "");
    let user = send(&server, "user.created", "tenant1", "acc-1", 1);
    let organization = send(&server, "organization.created", "tenant2", "acc-2", 2);
    delivery(&server, &user, "delivered");
    delivery(&server, &organization, "delivered");
    assert_eq!(hub.complaints(), [""; 0]);
    let mut calls = hub.calls();
    calls.sort_by_key(number);
    assert_eq!(calls[0].path, "/user-events");
    assert_eq!(calls[1].path, "/organization-events");
    for (name, value) in [
        ("x-pca-issuer", "https://tenant1.hub.example/auth"),
        ("x-pca-tenant", "tenant1"),
        ("x-pca-service-partition", "pca.hub.tenant1"),
        ("x-pca-organization-id", "org-9"),
        ("x-pca-event-type", "user.created"),
        ("x-pca-event-sender", "user"),
        ("x-pca-event-apikey", "event key 1"),
        ("x-pca-shared-internal-key", "the shared internal key"),
    ] {
        assert_eq!(calls[0].header(name), value, "{name}");
    }
    for name in ["x-pca-event-sourceclient", "x-pca-event-type-version"] {
        assert!(!calls[0].headers.contains_key(name), "{name} is not known");
    }
    assert_eq!(calls[0].body["login_name"], "太郎");
    let mut asked = hub.asked();
    asked.sort();
    assert_eq!(asked, ["tenant1", "tenant2"], "each tenant's own gate");
    // The Hub knows two generations of the event key, so that it can be changed while calls go on.
    let key = &agreement.api_keys[1];
    let rotate =
        ["subscriptions", "rotate-secret", &id, "--name", "event-api-key", "--secret", key];
    server.ask(&rotate);
    let user = send(&server, "user.updated", "tenant1", "acc-3", 3);
    delivery(&server, &user, "delivered");
    let calls = hub.calls();
    assert_eq!(calls[2].header("x-pca-event-apikey"), key);
    assert_eq!(hub.complaints(), [""; 0]);
    server.stop();
}

/// One-time codes by Python's standard library, for the steps around a moment.
fn codes_of_python(program: &str, unix: i64) -> Vec<String> {
    let program = format!(
        "import base64, hashlib, hmac, struct\nfor step in range({unix} // 60 - 1, {unix} // 60 + 2):\n{program}"
    );
    let output = Command::new("python3").args(["-c", &program]).output().expect("python3 runs");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    text.lines().map(str::to_owned).collect()
}

#[test]
fn codes_of_other_schemes_are_those_of_another_language() {
    let agreement = Agreement::default();
    let hub = FakeHub::start(agreement.clone()).expect("starts");
    let totp = "
        - {kind: otp, secret: otp, salt: otp-salt, salt_use: suffix, method: totp, hash: sha512,
           digits: 8, step: 60s, format: 'Bearer {otp}'}";
    let hmac = "
        - {kind: otp, secret: otp, salt: otp-salt, method: hmac, hash: sha256, step: 60s,
           message: '{tenant}:{issuer}:{step}:{shared_key}:{salt}', encode: base64url,
           values: {tenant: '{values.tenant}', issuer: '{values.issuer}'},
           secret_values: {shared_key: shared-internal-key}}";
    let with_totp = "
    tag = hmac.new(b'the one-time secretthe salt', struct.pack('>Q', step), 'sha512').digest()
    at = tag[-1] & 15
    code = (struct.unpack('>I', tag[at:at + 4])[0] & 0x7fffffff) % 100000000
    print('Bearer %08d' % code)";
    let with_hmac = "
    said = 'tenant1:https://tenant1.hub.example/auth:%d:the shared internal key:the salt' % step
    tag = hmac.new(b'the one-time secret', said.encode(), 'sha256').digest()
    print(base64.urlsafe_b64encode(tag).decode().rstrip('='))";
    for (auth, program) in [(totp, with_totp), (hmac, with_hmac)] {
        let mut home = Home::new();
        let keys = "
        - {kind: secret_header, header: X-PCA-SHARED-INTERNAL-KEY, secret: shared-internal-key}
        - {kind: secret_header, header: X-PCA-Event-APIKey, secret: event-api-key}";
        profile(&home, "pca-hub", &hub, &format!("      auth:{auth}{keys}"));
        let server = home.serve();
        subscribe(&server, &hub, &agreement);
        let before = hub.calls().len();
        send(&server, "user.created", "tenant1", "acc-1", 1);
        let call = eventually("the call", || hub.calls().get(before).cloned());
        // The Hub expects its own scheme, so it refuses this one; what matters is the code.
        let codes = codes_of_python(program, call.unix);
        assert_eq!(codes.len(), 3);
        let sent = call.header("authorization").trim_end_matches('=').to_owned();
        assert!(codes.contains(&sent), "{sent} is none of {codes:?}");
        server.stop();
    }
}

#[test]
fn interim_mode_is_another_base_and_nothing_else() {
    let (hub, _home, server, _) =
        scene(&Agreement { interim: true, ..Agreement::default() }, "pca-hub-interim", "");
    let sent = send(&server, "user.created", "tenant1", "acc-1", 1);
    delivery(&server, &sent, "delivered");
    assert_eq!(hub.complaints(), [""; 0]);
    let call = &hub.calls()[0];
    for name in ["authorization", "x-pca-shared-internal-key", "x-pca-issuer"] {
        assert!(!call.headers.contains_key(name), "{name}");
    }
    assert_eq!(call.header("x-pca-tenant"), "tenant1");
    server.stop();
}

#[test]
fn every_answer_has_the_end_it_should_have() {
    let (hub, _home, server, _) = scene(
        &Agreement { gap: Duration::ZERO, ..Agreement::default() },
        "pca-hub",
        "      spacing: 10ms",
    );
    let again = [
        Reply::Empty(204),
        Reply::Empty(201),
        Reply::Standard(409),
        Reply::Standard(500),
        Reply::Html(502),
        Reply::Html(400),
        Reply::Empty(503),
        Reply::Reset,
    ];
    for (n, reply) in (0..).zip(again) {
        hub.script([reply]);
        let sent = send(&server, "user.updated", "tenant1", &format!("acc-{n}"), n);
        let delivered = delivery(&server, &sent, "delivered");
        assert_eq!(delivered["attempts_made"], 2, "{reply:?}: {delivered}");
        let first = &delivered["attempts"][0];
        match reply {
            Reply::Reset => assert_eq!(first["failure"], "connection_closed", "{first}"),
            _ => assert!(first["status"].is_number(), "{first}"),
        }
    }
    for (n, status) in (100..).zip([400, 401, 403, 404, 503]) {
        hub.script([Reply::Standard(status)]);
        let sent = send(&server, "user.updated", "tenant1", &format!("acc-{n}"), n);
        let dead = delivery(&server, &sent, "dead");
        assert_eq!((&dead["reason"], &dead["attempts_made"]), (&json!("permanent"), &json!(1)));
    }
    hub.script([Reply::Html(502); 6]);
    let sent = send(&server, "user.updated", "tenant1", "acc-200", 200);
    let dead = delivery(&server, &sent, "dead");
    assert_eq!((&dead["reason"], &dead["attempts_made"]), (&json!("exhausted"), &json!(6)));
    assert_eq!(hub.complaints(), [""; 0]);
    // A Hub that is slower than our patience is still at work when it is asked again, and says so.
    hub.script([Reply::Slow(Duration::from_secs(4))]);
    let sent = send(&server, "user.updated", "tenant1", "acc-300", 300);
    let dead = delivery(&server, &sent, "dead");
    assert_eq!(dead["attempts"][0]["failure"], "response_timeout", "{dead}");
    assert_eq!(dead["attempts"][1]["status"], 409, "{dead}");
    server.stop();
}

#[test]
fn a_closed_gate_is_a_dead_letter_that_one_command_brings_back() {
    let (hub, _home, server, id) = scene(&Agreement::default(), "pca-hub", "");
    let mut sent = Vec::new();
    let closed = [(200, r#"{"Status": 1}"#), (200, r#"{"Status": "2"}"#), (503, ""), (200, "OK")];
    for (n, (status, body)) in (0..).zip(closed) {
        hub.set_gate(status, body);
        sent.push(send(&server, "user.updated", "tenant1", &format!("acc-{}", n % 2), n));
        let dead = delivery(&server, &sent[sent.len() - 1], "dead");
        assert_eq!((&dead["reason"], &dead["attempts_made"]), (&json!("gate"), &json!(0)));
    }
    assert!(hub.calls().is_empty());
    assert_eq!(hub.asked().len(), 4);
    hub.set_gate(200, r#"{"Status": 2, "more": true}"#);
    let redrive = ["redrives", "create", "--subscription", &id, "--reason", "gate"];
    let done = server.ask(&redrive);
    assert_eq!((&done["state"], &done["moved"]), (&json!("done"), &json!(4)), "{done}");
    for event in &sent {
        delivery(&server, event, "delivered");
    }
    assert_eq!(hub.asked().len(), 8, "the gate was asked again");
    // A number is its value, however the Hub writes it.
    for (n, open) in (4..).zip([r#"{"Status": 2.0}"#, r#"{"Status":2e0}"#]) {
        hub.set_gate(200, open);
        let sent = send(&server, "user.updated", "tenant1", &format!("acc-{n}"), n);
        delivery(&server, &sent, "delivered");
    }
    for account in [0, 1] {
        let calls = hub.calls();
        let own = calls.iter().filter(|call| call.body["account_id"] == format!("acc-{account}"));
        assert_eq!(own.map(number).collect::<Vec<_>>(), [account, account + 2], "in their order");
    }
    assert_eq!(hub.complaints(), [""; 0]);
    server.stop();
}

/// Publishes what happened to an organisation, as the identity service does: no account is in it.
fn send_organization(server: &Server, tenant: &str, organization: &str, n: u32) -> String {
    let body = json!({"organization_id": organization, "organization_name": "会社", "n": n});
    let partition = format!("service_partition=pca.hub.{tenant}");
    let args =
        ["send", "pca-id", "organization.created", &body.to_string(), "-a", &partition, "-a"];
    let sent = server.ask(&[&args[..], &["eventSender=admin"]].concat());
    id_of(&sent)
}

#[test]
fn organisations_wait_for_nobody_but_themselves() {
    let agreement = Agreement { gap: Duration::ZERO, ..Agreement::default() };
    let hub = FakeHub::start(agreement.clone()).expect("starts");
    let mut home = Home::new();
    // The failed call is not repeated while this test runs.
    let waits = "      spacing: 10ms
      order: {dead_head: skip}";
    profile(&home, "pca-hub", &hub, waits);
    home.edit("waits: [100ms,", "waits: [10m,");
    let server = home.serve();
    subscribe(&server, &hub, &agreement);
    hub.script([Reply::Standard(500)]);
    let failed = send_organization(&server, "tenant1", "org-a", 1);
    until("the failed call", || hub.calls().len() == 1);
    let behind = send_organization(&server, "tenant1", "org-a", 2);
    // Another organisation of the same partition, the same id in another one, and a user.
    let others = [
        send_organization(&server, "tenant1", "org-b", 3),
        send_organization(&server, "tenant2", "org-a", 4),
        send(&server, "user.updated", "tenant1", "org-a", 5),
    ];
    for other in &others {
        delivery(&server, other, "delivered");
    }
    assert_eq!(delivery(&server, &failed, "pending")["attempts_made"], 1);
    assert_eq!(
        delivery(&server, &behind, "pending")["attempts_made"],
        0,
        "one organisation's order"
    );
    let mut called: Vec<u64> = hub.calls().iter().map(number).collect();
    called.sort_unstable();
    assert_eq!(called, [1, 3, 4, 5]);
    assert_eq!(hub.complaints(), [""; 0]);
    server.stop();
}

#[test]
fn families_that_are_off_or_unknown_are_explained() {
    let (hub, _home, server, _) =
        scene(&Agreement::default(), "pca-hub", "      request: {families: {organization: off}}");
    let off = send(&server, "organization.created", "tenant1", "acc-1", 1);
    let shown = server.ask(&["events", "show", &off]);
    assert_eq!(shown["deliveries"], json!([]));
    let reasons = shown["not_delivered"][0]["reasons"].to_string();
    assert!(reasons.contains("turns the family `organization` off"), "{shown}");
    let unknown = send(&server, "group.created", "tenant1", "acc-1", 2);
    let dead = delivery(&server, &unknown, "dead");
    assert_eq!(dead["reason"], "permanent");
    assert_eq!(dead["attempts"][0]["failure"], "family_not_routed");
    let detail = dead["attempts"][0]["detail"].to_string();
    assert!(detail.contains("no path for the family `group`"), "{dead}");
    assert!(hub.calls().is_empty() && hub.asked().is_empty());
    server.stop();
}

#[test]
fn log_lines_have_the_exact_text_and_no_secrets() {
    let agreement = Agreement {
        otp_secret: "canary-otp-secret-1".to_owned(),
        otp_salt: "canary-otp-salt-2".to_owned(),
        shared_key: "canary-shared-key-3".to_owned(),
        api_keys: vec!["canary-event-key-4".to_owned()],
        ..Agreement::default()
    };
    let hub = FakeHub::start(agreement.clone()).expect("starts");
    let mut home = Home::new();
    profile(&home, "pca-hub", &hub, "");
    home.configure("log: {level: trace, format: json}\n");
    let server = home.serve();
    subscribe(&server, &hub, &agreement);
    hub.script([Reply::Standard(409), Reply::Html(502), Reply::Echo(500), Reply::Empty(200)]);
    let sent = send(&server, "user.email-verified", "tenant1", "acc-1", 1);
    delivery(&server, &sent, "delivered");
    let lines = eventually("the lines", || {
        let lines = policy_lines(&server);
        (lines.len() == 7).then_some(lines)
    });
    let call = "Call PCA Hub Webhook (tenantname:tenant1, accountid:acc-1)";
    let error = |body: &str| {
        format!("Error PCA Hub Webhook (tenantname:tenant1, accountid:acc-1, res:{body})")
    };
    assert_eq!(lines[0]["mt"], call);
    assert_eq!(lines[0]["level"], "INFO");
    assert_eq!(lines[1]["mt"], error(&standard(409)), "the full body");
    assert_eq!(lines[1]["level"], "WARN");
    assert_eq!(lines[2]["mt"], call);
    assert_eq!(lines[3]["mt"], error("<html><h1>502</h1>\nnot the Hub</html>"));
    assert_eq!((&lines[4]["mt"], &lines[6]["mt"]), (&json!(call), &json!(call)));
    let echo = lines[5]["mt"].as_str().expect("text");
    assert!(echo.contains("\"x-pca-tenant\": \"tenant1\""), "{echo}");
    assert!(echo.contains("\"x-pca-event-apikey\": \"[secret removed]\""), "{echo}");
    assert!(echo.contains("\"authorization\": \"111111\""), "{echo}");
    for (name, value) in [
        ("tenantname", "tenant1"),
        ("accountid", "acc-1"),
        ("event_type", "user.email-verified"),
        ("attempt", "1"),
        ("status", "409"),
        ("trace", "trace-of-409"),
    ] {
        assert_eq!(lines[1][name], value, "{name}");
    }
    assert_eq!(lines[2]["attempt"], "2");
    assert!(lines[2]["status"].is_null() && lines[3]["trace"].is_null(), "only what is known");
    assert!(lines.iter().all(|line| line["timestamp"].is_string() && line["message"].is_null()));

    // What an event does not have is empty in the text, and there is a line all the same.
    let organization = r#"{"organization_id": "org-9"}"#;
    let of = ["-a", "service_partition=pca.hub.tenant1", "-a", "eventSender=service"];
    server.ask(&[&["send", "pca-id", "organization.created", organization], &of[..]].concat());
    let line = eventually("the line", || policy_lines(&server).get(7).cloned());
    assert_eq!(line["mt"], "Call PCA Hub Webhook (tenantname:tenant1, accountid:)");
    assert!(line["accountid"].is_null(), "{line}");

    let mut canaries: Vec<String> = hub
        .calls()
        .iter()
        .map(|call| format!("\\\"authorization\\\": \\\"{}", call.header("authorization")))
        .collect();
    canaries.extend([agreement.otp_secret, agreement.otp_salt, agreement.shared_key]);
    canaries.extend(agreement.api_keys);
    // The level is in effect.
    server.running.says("an attempt did not succeed");
    let log = server.running.stderr();
    assert_nowhere(&canaries, log.as_bytes(), "the log");
    for entry in std::fs::read_dir(home.data()).expect("reads").flatten() {
        if entry.path().is_file() {
            let bytes = std::fs::read(entry.path()).expect("reads");
            assert_nowhere(&canaries, &bytes, &entry.path().display().to_string());
        }
    }
    server.stop();
}

#[test]
fn a_long_answer_is_logged_up_to_16_kib() {
    let (hub, _home, server, _) = scene(&Agreement::default(), "pca-hub", "");
    hub.script([Reply::Long(502)]);
    let sent = send(&server, "user.updated", "tenant1", "acc-1", 1);
    delivery(&server, &sent, "delivered");
    let text = eventually("the line", || {
        policy_lines(&server).into_iter().find(|line| line["level"] == "WARN")
    });
    let text = text["mt"].as_str().expect("text").to_owned();
    let body = text.split_once("res:").and_then(|(_, rest)| rest.strip_suffix(')'));
    let body = body.expect("a whole line");
    assert_eq!(body.len(), 16 << 10);
    assert!(body.starts_with("<p>Hub<p>Hub"));
    server.stop();
}

fn assert_nowhere(canaries: &[String], bytes: &[u8], place: &str) {
    for canary in canaries {
        let found = bytes.windows(canary.len()).any(|window| window == canary.as_bytes());
        assert!(!found, "{canary} is in {place}");
    }
}

#[test]
fn a_killed_server_leaves_the_lock_and_calls_again_when_it_ends() {
    let agreement = Agreement::default();
    let hub = FakeHub::start(agreement.clone()).expect("starts");
    let mut home = Home::new();
    patient_profile(&home, "pca-hub", &hub, 7, "");
    let mut server = home.serve();
    subscribe(&server, &hub, &agreement);
    hub.script([Reply::Slow(Duration::from_secs(6))]);
    let first = send(&server, "user.updated", "tenant1", "acc-1", 1);
    let second = send(&server, "user.updated", "tenant1", "acc-1", 2);
    until("the call", || !hub.calls().is_empty());
    server.running.signal("KILL");
    server.running.wait();
    let server = home.serve();
    let shown = server.ask(&["events", "show", &first]);
    assert_eq!(shown["deliveries"][0]["state"], "in_flight", "{shown}");
    delivery(&server, &second, "delivered");
    let calls = hub.calls();
    assert_eq!(calls.iter().map(number).collect::<Vec<_>>(), [1, 1, 2]);
    let waited = calls[1].begun.duration_since(calls[0].begun);
    // The lock was taken before the gate was asked, a moment before the call.
    assert!(waited > Duration::from_secs(10), "the lock of 11 s held for {waited:?}");
    assert_eq!(hub.complaints(), [""; 0]);
    server.stop();
}

#[test]
fn a_restart_between_retries_keeps_the_number_and_the_time() {
    let agreement = Agreement::default();
    let hub = FakeHub::start(agreement.clone()).expect("starts");
    let mut home = Home::new();
    profile(&home, "pca-hub", &hub, "");
    home.edit("waits: [100ms, 100ms, 100ms, 100ms, 100ms]", "waits: [1h]");
    let mut server = home.serve();
    subscribe(&server, &hub, &agreement);
    hub.script([Reply::Html(502)]);
    let sent = send(&server, "user.updated", "tenant1", "acc-1", 1);
    let before = eventually("the first attempt", || {
        let shown = server.ask(&["events", "show", &sent])["deliveries"][0].clone();
        (shown["attempts_made"] == 1).then_some(shown)
    });
    assert_eq!(before["state"], "pending");
    server.running.signal("KILL");
    server.running.wait();
    let server = home.serve();
    let after = server.ask(&["events", "show", &sent])["deliveries"][0].clone();
    assert_eq!((&after["attempts_made"], &after["due_at"]), (&json!(1), &before["due_at"]));
    assert_eq!(hub.calls().len(), 1);
    server.stop();
}

/// Checks a configuration with this profile.
fn check(policy: &str) -> Ran {
    let home = Home::new();
    let text = format!("profiles:\n  hub:\n    base: pca-hub\n    policy: {policy}\n");
    home.write("one.yaml", text);
    home.run("check --config one.yaml")
}

#[test]
fn what_can_never_work_is_refused_when_the_configuration_is_read() {
    for (policy, place) in [
        ("{lease: {time: 45s}}", "profiles.hub.policy.lease.time"),
        ("{limits: {total: 180s}}", "profiles.hub.policy.lease.time"),
        ("{gate: {timeout: 150s}}", "profiles.hub.policy.lease.time"),
        ("{schedule: {backoff: {list: {waits: []}}}}", "policy.schedule.backoff.list.waits"),
        ("{request: {families: {user: user-events}}}", "must begin with `/`, or be `off`"),
        ("{request: {path: /x}}", "policy.request.families"),
        ("{values: {a: '{values.b}', b: '{values.a}'}}", "profiles.hub.policy.values.a"),
        ("{values: {'a b': x}}", "profiles.hub.policy.values"),
        ("{log: {field: level}}", "profiles.hub.policy.log.field"),
        ("{log: {fields: {mt: x}}}", "profiles.hub.policy.log.fields"),
        ("{spacing: 2s, order: {scope: none, key: null}}", "profiles.hub.policy.spacing"),
    ] {
        check(policy).exits(78).says(&[place]);
    }
    for policy in [
        "{values: {hub_domain: hub.example}}",
        "{request: {families: {organization: off}}}",
        "{request: {families: {organization: 'off'}}}",
        "{gate: {on_closed: {postpone: {wait: 1m}}}}",
    ] {
        check(policy).exits(0);
    }
    let home = Home::new();
    let shown = home.run("check --profiles");
    let shown = shown.json();
    for name in ["pca-hub", "pca-hub-interim"] {
        let waits = &shown[name]["schedule"]["backoff"]["list"]["waits"];
        assert_eq!(*waits, json!(["10s", "5m", "10m", "30m", "1h40m"]), "{name}");
        assert_eq!(shown[name]["schedule"]["max_attempts"], 6);
        assert_eq!(shown[name]["lease"], json!({"time": "3m", "durable": true}));
    }
}

/// The configuration in the operators' page is one that the program takes.
#[test]
fn the_example_of_the_page_is_valid() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/systems/pca-hub.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let example = page.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next());
    let home = Home::new();
    home.write("page.yaml", example.expect("an example"));
    let output = home.run("check --config page.yaml --profiles").exits(0);
    let shown = output.json();
    for name in ["hub-production", "hub-staging"] {
        assert!(shown[name]["values"]["hub_domain"].is_string(), "{name}");
        assert_eq!(shown[name]["request"]["families"]["organization"], "off", "{name}");
    }
    assert_eq!(shown["hub-staging"]["auth"].as_array().map(Vec::len), Some(1), "interim");
    assert_eq!(shown["hub-production"]["auth"].as_array().map(Vec::len), Some(3));
}
