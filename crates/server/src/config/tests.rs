//! Layers, values and what they mean together.

mod console;
mod push;

use std::collections::BTreeMap;

use posthorn_domain::ProfileName;

use super::layers::{Layers, Source};
use super::*;

fn inputs(yaml: &str, env: &[(&str, &str)], flags: &[(&str, &str)]) -> (tempfile::TempDir, Inputs) {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("posthorn.yaml");
    std::fs::write(&file, yaml).expect("written");
    let env = env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let flags = flags.iter().map(|(key, text)| FlagValue {
        flag: format!("--set {key}"),
        key: (*key).to_owned(),
        text: (*text).to_owned(),
    });
    let flags = flags.collect();
    (dir, Inputs { file: Some(file), env, flags })
}

#[track_caller]
fn good(yaml: &str, env: &[(&str, &str)], flags: &[(&str, &str)]) -> Loaded {
    let (_dir, inputs) = inputs(yaml, env, flags);
    load(&inputs).unwrap_or_else(|e| panic!("{e}"))
}

#[track_caller]
fn bad(yaml: &str, env: &[(&str, &str)], expected: &[&str]) {
    let (_dir, inputs) = inputs(yaml, env, &[]);
    let text = load(&inputs).expect_err("not valid").to_string();
    for part in expected {
        assert!(text.contains(part), "`{part}` is not in:\n{text}");
    }
}

#[test]
fn the_default_file_says_what_the_code_does() {
    let config = good("", &[], &[]).config;
    let engine = posthorn_engine::Options::default();
    assert_eq!(format!("{:?}", config.engine), format!("{engine:?}"));
    let egress = posthorn_egress::Options::default();
    assert_eq!(format!("{:?}", config.egress), format!("{egress:?}"));
    assert_eq!(config.server.listen.to_string(), "127.0.0.1:8080");
    assert!(matches!(config.store.kind, StoreKind::Sqlite));
}

#[test]
fn each_layer_lies_over_the_one_before() {
    let yaml = "engine:\n  slots: 10\n  window: 20\n  drain_timeout: 3s\nserver:\n";
    let env = [("POSTHORN__ENGINE__WINDOW", "30"), ("POSTHORN__ENGINE__DRAIN_TIMEOUT", "4s")];
    let loaded = good(yaml, &env, &[("engine.drain_timeout", "5s")]);
    assert_eq!(loaded.config.engine.slots, 10);
    assert_eq!(loaded.config.engine.window, 30);
    assert_eq!(loaded.config.engine.drain_timeout, Duration::from_secs(5));
    let source = |key: &str| {
        let path: Vec<String> = key.split('.').map(str::to_owned).collect();
        loaded.layers.source_of(&path).clone()
    };
    assert!(matches!(source("engine.slots"), Source::File(_)));
    assert_eq!(source("engine.window"), Source::Env("POSTHORN__ENGINE__WINDOW".to_owned()));
    assert_eq!(
        source("engine.drain_timeout"),
        Source::Flag("--set engine.drain_timeout".to_owned())
    );
    assert_eq!(source("engine.poll_interval"), Source::Default);
    let entries = loaded.layers.entries();
    assert_eq!(entries[0].0.join("."), "server.listen", "in the order of the documentation");
}

#[test]
fn unknown_keys_are_named_with_their_source_and_the_nearest_known_one() {
    bad("server:\n  lisen: x\n", &[], &["server.lisen", "file ", "`server.listen`"]);
    bad("listen: x\n", &[], &["listen: there is no such key", "`server.listen`"]);
    bad("serve:\n  listen: x\n", &[], &["serve:", "`server`"]);
    bad(
        "",
        &[("POSTHORN__ENGIN__SLOTS", "3")],
        &["environment POSTHORN__ENGIN__SLOTS", "`engine`"],
    );
    bad("", &[("POSTHORN__ENGINE__SLOT", "3")], &["engine.slot:", "`engine.slots`"]);
    bad("", &[("POSTHORN_ENGINE__SLOTS", "3")], &["write POSTHORN__ENGINE__SLOTS"]);
    bad("zebra: 1\n", &[], &["zebra", "check --defaults"]);
    bad("server: {lisen: 1, bodi: 2}\n", &[], &["server.lisen", "server.bodi"]);
    // A name of a former version leads to the new one.
    let now = "engine.drain: this key is now called `engine.drain_timeout`";
    bad("engine: {drain: 1s}\n", &[], &[now]);
    bad("", &[("POSTHORN__ADMISSION__TESTS", "5")], &["`admission.tests_per_minute`"]);
}

#[test]
fn wrong_values_are_named_with_their_source() {
    bad("engine:\n  slots: many\n", &[], &["engine.slots", "file "]);
    bad("engine:\n  slots: 0\n", &[], &["engine.slots: must be at least 1"]);
    let late = "admission: {disk_warn_percent: 95, disk_refuse_percent: 92}\n";
    bad(
        late,
        &[],
        &["admission.disk_warn_percent: must not be above admission.disk_refuse_percent"],
    );
    bad("engine:\n  drain_timeout: 5\n", &[], &["engine.drain_timeout"]);
    bad("server: 5\n", &[], &["server: is a section"]);
    bad("- a\n", &[], &["must hold sections"]);
    bad("server: [\n", &[], &["file "]);
    bad(
        "",
        &[("POSTHORN__ENGINE__PAYLOAD_MAX", "12KB")],
        &["engine.payload_max", "256KiB", "environment"],
    );
    bad("egress: {allow: [10.0.0.0/99]}\n", &[], &["egress.allow", "10.0.0.0/99"]);
    bad("egress: {source: [nowhere]}\n", &[], &["egress.source", "`nowhere`"]);
    bad("egress: {source: [0.0.0.0]}\n", &[], &["egress.source", "0.0.0.0"]);
    bad("egress: {source: [192.0.2.1, 192.0.2.2]}\n", &[], &["egress.source", "second"]);
    bad("egress: {deny: [nowhere]}\n", &[], &["egress.deny", "nowhere"]);
    bad("egress: {ports: [443, 0]}\n", &[], &["egress.ports", "1 to 65535"]);
    bad("egress: {ports: [70000]}\n", &[], &["egress.ports", "1 to 65535"]);
    bad("", &[("POSTHORN__EGRESS__PORTS", "https")], &["egress.ports", "1 to 65535"]);
    bad("log: {format: xml}\n", &[], &["log.format", "`xml` is not one of auto, human, json"]);
    bad("store: {url: 'mysql://u:pw@h'}\n", &[], &["store.url: must be sqlite"]);
    bad("engine: {lease: 2s}\n", &[], &["engine.lease", "three times"]);
    bad("server: {body_max: 1KiB}\n", &[], &["engine.payload_max", "server.body_max"]);
}

#[test]
fn texts_of_the_environment_take_the_kind_of_their_key() {
    let env = [
        ("POSTHORN__EGRESS__ALLOW", "127.0.0.1, 10.0.0.0/8:80"),
        ("POSTHORN__EGRESS__DENY", "192.0.2.0/24:443"),
        ("POSTHORN__EGRESS__PORTS", "443, 8443"),
        ("POSTHORN__EGRESS__HTTPS_ONLY", "true"),
        ("POSTHORN__EGRESS__USER_AGENT", "007"),
        ("POSTHORN__PROFILES__QUICK", "{policy: {schedule: {max_attempts: 2}}}"),
        ("POSTHORN_KEY", "not ours"),
        ("POSTHORN_PORT_8080_TCP", "tcp://10.0.0.1:8080"),
    ];
    let config = good("", &env, &[]).config;
    assert_eq!(config.egress.allow.len(), 2);
    assert_eq!(config.egress.deny.len(), 1);
    assert_eq!(config.egress.ports, [443, 8443]);
    assert!(config.egress.https_only);
    assert_eq!(config.egress.user_agent, "007");
    let quick = &config.engine.profiles[&ProfileName::new("quick").expect("a name")];
    assert_eq!(quick.schedule.max_attempts, Some(2));
}

#[test]
fn profiles_build_on_each_other_and_are_checked() {
    let yaml = "
profiles:
  a: {base: b, policy: {limits: {concurrency: 3}}}
  b: {base: cedros, policy: {schedule: {max_attempts: 2}}}
  default: {policy: {schedule: {max_attempts: 4}}}
  c: {}
";
    let profiles = good(yaml, &[], &[]).config.engine.profiles;
    let of = |name: &str| &profiles[&ProfileName::new(name).expect("a name")];
    assert_eq!(of("a").limits.concurrency, 3);
    assert_eq!(of("a").schedule.max_attempts, Some(2));
    assert_eq!(of("default").schedule.max_attempts, Some(4));
    assert_eq!(of("c").schedule.max_attempts, Some(4), "built on the changed default");
    bad("profiles: {a: {base: nowhere}}\n", &[], &["profiles.a.base", "`nowhere`", "cedros"]);
    bad("profiles: {a: {base: b}, b: {base: a}}\n", &[], &["profiles.a.base", "profiles.b.base"]);
    bad(
        "profiles: {a: {policy: {schedule: {max_attempts: 0}}}}\n",
        &[],
        &["profiles.a.policy", "max_attempts", "file "],
    );
    bad("profiles: {a: {polcy: {}}}\n", &[], &["profiles.a", "polcy"]);
    bad("profiles: {efgs: {base: cedros}}\n", &[], &["profiles.efgs", "only be itself"]);
}

#[test]
fn secrets_come_from_elsewhere() {
    let key = VaultKey::generate().to_text();
    let env = [("SEAL", key.as_str()), ("DB", "postgres://u:hush@h/d"), ("EMPTY", "")];
    let config = good("seal: {key: env:SEAL}\nstore: {url: env:DB}\n", &env, &[]).config;
    assert!(config.seal.key.is_some());
    assert!(matches!(config.store.kind, StoreKind::Postgres(_)));
    bad(&format!("seal: {{key: {key}}}\n"), &[], &["seal.key", "env:NAME or file:PATH"]);
    bad("seal: {key: env:SEAL}\n", &[("SEAL", "short")], &["seal.key", "phvk_"]);
    bad("seal: {key: env:GONE}\n", &[], &["seal.key", "GONE is not set"]);
    bad("seal: {key: env:EMPTY}\n", &env, &["seal.key", "EMPTY is empty"]);
    bad("seal: {former: [file:/no/such]}\n", &[], &["seal.former", "/no/such"]);
}

#[test]
fn a_missing_file_is_an_error_only_when_it_was_named() {
    let inputs = Inputs { file: Some("/no/such/file.yaml".into()), ..Inputs::default() };
    let text = load(&inputs).expect_err("missing").to_string();
    assert!(text.contains("/no/such/file.yaml"), "{text}");
    let env: BTreeMap<String, String> = BTreeMap::new();
    assert!(load(&Inputs { file: None, env, flags: Vec::new() }).is_ok());
}

#[test]
fn every_key_is_read_by_somebody() {
    for (path, _, _) in Layers::defaults().entries() {
        // Below these, names are chosen.
        let key = path.join(".");
        if [
            "profiles",
            "callbacks.headers",
            "push.broadcasts.values",
            "egress.proxies",
            "telemetry.otlp.headers",
            "telemetry.otlp.resource",
            "dialects.svix.organisations",
        ]
        .contains(&key.as_str())
        {
            continue;
        }
        let wrong = serde_json::json!({"of another": "kind"});
        let file = path.iter().rev().fold(wrong, |inner, name| serde_json::json!({name: inner}));
        bad(&file.to_string(), &[], &[&format!("\n  {key}: ")]);
    }
}

#[test]
fn everything_that_is_wrong_is_said_at_once() {
    let yaml = "
server: {listen: here, connections: 0, body_max: much}
engine: {slots: many, lease: 1s, heartbeat_interval: 1s}
egress: {allow: [nowhere], proxies: {a: {url: 1}, b.c: {url: 'http://b:3128', mode: both}}}
seal: {key: env:GONE, former: [plain, file:/no/such]}
profiles: {a: {polcy: {}}, b: {base: a b}}
dialects: {notificaties: {credentials: [{identifier: x, secret: env:GONE}]}}
";
    let expected = [
        "server.listen: `here`",
        "server.connections: must be at least 1",
        "server.body_max: `much` is not a size",
        "engine.slots: must be a whole number",
        "engine.lease: must be at least three times",
        "egress.allow.0: ",
        "egress.proxies.a.url: must be a text",
        "egress.proxies.b.c.mode: `both`",
        "seal.key: the environment variable GONE is not set",
        "seal.former: must be env:NAME or file:PATH",
        "seal.former: the file /no/such cannot be read",
        "profiles.a.polcy: there is no such field",
        "profiles.b.base: ",
        "dialects.notificaties.credentials.0.secret: the environment variable GONE",
    ];
    bad(yaml, &[], &expected);
    // One line each, and nothing that only follows from them.
    let (_dir, inputs) = inputs(yaml, &[], &[]);
    let ConfigError(problems) = load(&inputs).expect_err("not valid");
    assert_eq!(problems.len(), expected.len(), "{problems:?}");
}

#[test]
fn layers_keep_free_names_apart() {
    let mut layers = Layers::defaults();
    let mut problems = Vec::new();
    let layer = serde_json::json!({"profiles": {"x": {"policy": {"any": {"thing": 1}}}}});
    layers.apply(layer, &Source::Default, &mut problems);
    assert!(problems.is_empty());
    assert_eq!(layers.merged()["profiles"]["x"]["policy"]["any"]["thing"], 1);
}

#[test]
fn each_system_has_a_tenant_of_its_own() {
    let both = |tenant: &str| {
        format!(
            "dialects: {{efgs: {{enabled: true, proxies: [127.0.0.1], tenant: one}}, \
             notificaties: {{enabled: true, tenant: {tenant}}}}}\n"
        )
    };
    good(&both("two"), &[], &[]);
    bad(&both("one"), &[], &["dialects.notificaties.tenant", "`one` is another system's"]);
    let callbacks = "callbacks: {payment_success_url: 'https://a.example/', tenant: one}\n";
    good(callbacks, &[], &[]);
    let shared = format!("{}{callbacks}", both("two"));
    bad(&shared, &[], &["callbacks.tenant", "`one` is another system's"]);
}
