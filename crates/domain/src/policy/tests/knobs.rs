//! Values, families and log lines of policies.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::policy::{Policy, Route, profiles};
use crate::{Lookup, Template};

/// Knows two attributes.
struct Partition(&'static str);

impl Lookup for Partition {
    fn lookup(&self, name: &str) -> Option<Cow<'_, str>> {
        match name {
            "event.attributes.partition" => Some(Cow::Borrowed(self.0)),
            "event.id" => Some(Cow::Borrowed("evt_1")),
            _ => None,
        }
    }
}

fn with(patch: &Value) -> Policy {
    profiles::default_profile().patched(patch).unwrap_or_else(|e| panic!("{patch}: {e}"))
}

#[track_caller]
fn renders(policy: &Policy, text: &str, partition: &'static str, expected: Option<&str>) {
    let template: Template = text.parse().expect("a template");
    let others = Partition(partition);
    let rendered = template.render(&policy.with_values(&others), str::to_owned).ok();
    assert_eq!(rendered.as_deref(), expected, "{text} of {partition}");
}

#[test]
fn values_are_said_once_and_used_anywhere() {
    let policy = with(&json!({"values": {
        "domain": "hub.example",
        "tenant": {"from": "{event.attributes.partition}", "after": "acme."},
        "issuer": "https://{values.tenant}.{values.domain}/auth",
    }}));
    renders(&policy, "{values.issuer}", "acme.t1", Some("https://t1.hub.example/auth"));
    renders(&policy, "{values.tenant}/{event.id}", "acme.t1", Some("t1/evt_1"));
    // Without the beginning, or with nothing after it, there is no value, nor what is made of it.
    for partition in ["t1", "acme.", "", "ACME.t1"] {
        renders(&policy, "{values.tenant}", partition, None);
        renders(&policy, "{values.issuer}", partition, None);
    }
    renders(&policy, "{values.unknown}", "acme.t1", None);
    let text = serde_json::to_value(&policy).expect("serialises");
    assert_eq!(text["values"]["domain"], "hub.example");
    assert_eq!(text["values"]["tenant"]["after"], "acme.");
    // A patch changes one and leaves the others; null takes one away.
    let changed = policy.patched(&json!({"values": {"domain": "other", "issuer": null}}));
    let changed = changed.expect("valid");
    renders(&changed, "{values.tenant}.{values.domain}", "acme.t1", Some("t1.other"));
    assert!(!changed.values.contains_key("issuer"));
}

#[test]
fn a_value_that_is_longer_than_a_header_is_none() {
    let long = "x".repeat(1_500);
    let policy = with(&json!({"values": {"a": long, "b": "{values.a}{values.a}",
        "c": "{values.a}{values.a}{values.a}"}}));
    assert_eq!(policy.with_values(&Partition("")).lookup("values.b").map(|b| b.len()), Some(3_000));
    renders(&policy, "{values.c}", "", None);
}

#[test]
fn values_families_and_lines_that_can_never_work_are_refused() {
    let many: serde_json::Map<String, Value> =
        (0..51).map(|n| (format!("v{n}"), json!("x"))).collect();
    let nine = "{event.id}".repeat(9);
    for (patch, path) in [
        (json!({"values": {"a": "{values.a}"}}), "values.a"),
        (json!({"values": {"a": "{values.b}", "b": "{values.a}"}}), "values.a"),
        (
            json!({"values": {"a": "{values.b}", "b": "{values.c}", "c": "{values.d}", "d": "x"}}),
            "values.a",
        ),
        (json!({"values": {"a": nine}}), "values.a"),
        (json!({"values": {"": "x"}}), "values"),
        (json!({"values": {"a.b": "x"}}), "values"),
        (json!({"values": many}), "values"),
        (json!({"values": {"a": 1}}), "values.a"),
        (json!({"values": {"a": {"after": "x"}}}), "values.a.from"),
        (json!({"values": {"a": {"from": "x", "afer": "x"}}}), "values.a.afer"),
        (json!({"values": {"a": "{open"}}), "values.a"),
        (json!({"request": {"families": {"user": "users"}}}), "request.families.user"),
        (json!({"request": {"families": {"user": true}}}), "request.families.user"),
        (json!({"request": {"families": {"user": "/{open"}}}), "request.families.user"),
        (json!({"request": {"families": {"user.created": "/users"}}}), "request.families"),
        (json!({"request": {"families": {"": "/users"}}}), "request.families"),
        (json!({"request": {"path": "/a", "families": {"user": "/users"}}}), "request.families"),
        (json!({"log": {"field": ""}}), "log.field"),
        (json!({"log": {"field": "a b"}}), "log.field"),
        (json!({"log": {"field": "timestamp"}}), "log.field"),
        (json!({"log": {"fields": {"target": "x"}}}), "log.fields"),
        (json!({"log": {"fields": {"message": "x"}}}), "log.fields"),
        (json!({"log": {"field": "mt", "fields": {"mt": "x"}}}), "log.fields"),
    ] {
        let error = profiles::default_profile().patched(&patch).expect_err(&patch.to_string());
        assert_eq!(error.path, path, "{patch}: {error}");
    }
}

#[test]
fn families_have_a_path_are_off_or_unknown() {
    let policy = with(&json!({"request": {"families": {"user": "/users", "group": "off",
        "odd": false}}}));
    let path: Template = "/users".parse().expect("a template");
    assert_eq!(policy.request.route("user"), Route::Path(&path));
    assert_eq!(policy.request.route("group"), Route::Off);
    assert_eq!(policy.request.route("odd"), Route::Off);
    for unknown in ["users", "User", "*", ""] {
        assert_eq!(policy.request.route(unknown), Route::Unknown, "{unknown}");
    }
    assert_eq!(profiles::default_profile().request.route("user"), Route::Any);
    let rest = policy.patched(&json!({"request": {"families": {"*": "/rest", "group": null}}}));
    let rest = rest.expect("valid");
    let path: Template = "/rest".parse().expect("a template");
    assert_eq!(rest.request.route("group"), Route::Path(&path));
    let text = serde_json::to_string(&rest).expect("serialises");
    assert_eq!(serde_json::from_str::<Policy>(&text).expect("reads back"), rest);
}

#[test]
fn a_profile_may_leave_values_open_and_says_which() {
    for policy in [profiles::pca_hub(), profiles::pca_hub_interim()] {
        let error = policy.check_complete().expect_err("open");
        assert_eq!(error.path, "values.hub_domain", "{error}");
        let whole = policy.patched(&json!({"values": {"hub_domain": "hub.example"}}));
        assert_eq!(whole.expect("valid").check_complete(), Ok(()));
    }
    for (name, policy) in profiles::shipped() {
        if !name.as_str().starts_with("pca-hub") {
            assert_eq!(policy.check_complete(), Ok(()), "{name}");
        }
    }
    // A header that may be left out needs no value.
    let policy = with(&json!({"request": {"headers": {"X-A?": "{values.a}"}}}));
    assert_eq!(policy.check_complete(), Ok(()));
    let policy = with(&json!({"request": {"headers": {"X-A": "{values.a}"}}}));
    assert_eq!(policy.check_complete().map_err(|e| e.path), Err("values.a".to_owned()));
}

#[test]
fn keys_of_lanes_are_made_of_what_an_event_can_supply() {
    let with = |key: Value, values: Value| {
        let patch = json!({"order": {"scope": "key", "key": key}, "values": values});
        profiles::default_profile().patched(&patch)
    };
    for good in [
        "{event.key}",
        "{event.attributes.user}-{tenant.id}",
        "{event.payload.user.id|event.id}",
        "{subscription.name|event.key}",
        "{values.user}",
        "{values.open}",
        "all",
    ] {
        with(json!(good), json!({"user": {"from": "{event.attributes.user}"}})).expect(good);
    }
    for good in [json!(["{event.key}"]), json!(["{event.key}", "{event.payload.user}", "all"])] {
        let policy = with(good.clone(), json!({})).expect("good");
        let shown = serde_json::to_value(&policy.order).expect("JSON");
        let expected =
            if good.as_array().is_some_and(|list| list.len() == 1) { &good[0] } else { &good };
        assert_eq!(&shown["key"], expected);
    }
    for bad in [
        "{delivery.id}",
        "{attempt.number}",
        "{subscription.id}",
        "{subscription.labels.team}",
        "{event.attributes.}",
        "{event.nonsense}",
        "{response.status}",
        "{event.key}{attempt.at|delivery.id}",
        "{values.user}",
        "{values.deeper}",
    ] {
        let values =
            json!({"user": {"from": "x{delivery.id}"}, "deeper": {"from": "{values.user}"}});
        let refused = with(json!(bad), values.clone()).expect_err(bad);
        assert_eq!(refused.path, "order.key", "{bad}");
        let refused = with(json!(["{event.key}", bad]), values).expect_err(bad);
        assert_eq!(refused.path, "order.key", "{bad}");
    }
    for bad in [json!([]), json!(["all", "{event.key}"]), json!(vec!["{event.key}"; 6])] {
        let refused = with(bad.clone(), json!({})).expect_err("refused");
        assert_eq!(refused.path, "order.key", "{bad}");
    }
}
