//! `push`.

use posthorn_domain::Span;
use posthorn_push::session::{AckMode, Options as Session, Overflow};
use posthorn_push_node::{Direct, Roles};
use posthorn_sealing::endpoint_token::EndpointKey;
use posthorn_sealing::node_key::NodeKey;

use super::{bad, good};
use crate::config::push::Push;

const POSTGRES: &str = "store: {url: 'postgres://u@h/d'}\n";

#[track_caller]
fn push(yaml: &str) -> Push {
    let yaml = format!("push:\n  enabled: true\n{yaml}");
    good(&yaml, &[], &[]).config.push.expect("it is on")
}

#[track_caller]
fn refused(keys: &str, expected: &[&str]) {
    bad(&format!("push: {{enabled: true, {keys}}}\n"), &[], expected);
    // What is wrong is wrong even while it is off.
    bad(&format!("push: {{{keys}}}\n"), &[], expected);
}

#[test]
fn it_is_off_until_somebody_turns_it_on() {
    assert!(good("", &[], &[]).config.push.is_none());
    assert!(good("", &[], &[("push.enabled", "true")]).config.push.is_some());
    let push = push("");
    assert_eq!(push.options.roles, Roles { connection: true, endpoint: true });
    assert!(push.endpoint_url.is_none() && push.internal.listen.is_none());
    assert!(push.endpoint_keys.is_empty() && push.internal.keys.is_empty());
    let session = Session { stored_max: 10_000, ..Session::default() };
    assert_eq!(push.options.session, session);
    assert_eq!(push.options.limits, posthorn_push::endpoint::Limits::default());
    let options = push.options("https://push.example".to_owned(), "node".to_owned());
    assert_eq!(push.agent_ttl, Span::from_secs(60 * 86_400));
    assert_eq!(
        (options.endpoint_url.as_str(), options.node.as_str()),
        ("https://push.example", "node")
    );
}

#[test]
fn other_services_may_be_sent_to_whether_it_is_on_or_not() {
    let usual = good("", &[], &[]).config.engine.push;
    let services = posthorn_engine::PushOptions::default().services;
    assert_eq!((usual.services, usual.contact), (services, None));
    let said = good("push: {contact: 'mailto:a@b.example', services: ['*']}\n", &[], &[]);
    let said = said.config.engine.push;
    assert_eq!(said.contact.expect("given").as_str(), "mailto:a@b.example");
    assert_eq!(said.services, ["*".parse().expect("a rule")]);
    let none = good("push: {services: []}\n", &[], &[]).config.engine.push;
    assert!(none.services.is_empty());
    refused("contact: a@b.example", &["push.contact", "mailto:"]);
    refused("contact: 'http://b.example'", &["push.contact", "https:"]);
    refused("services: ['https://a.example']", &["push.services", "no scheme"]);
    bad("push: {service: []}\n", &[], &["push.service"]);
}

#[test]
fn everything_can_be_said() {
    let yaml = format!(
        "{POSTGRES}push:
  enabled: true
  roles: [endpoint]
  endpoint_url: https://push.example/behind
  internal: {{listen: '10.0.0.5:8081', url: 'http://node-1:8081'}}
  unacked_window: 1
  batch: 128
  ack: batch
  stored_max: 0
  on_overflow: drop_oldest
  direct: stored
  ttl_max: 1h
  body_max: 4KiB
  broadcasts: {{url: 'https://b.example/all', values: {{a/b: v1, c: 7}}}}
"
    );
    let push = good(&yaml, &[], &[]).config.push.expect("it is on");
    assert_eq!(push.options.roles, Roles { connection: false, endpoint: true });
    assert_eq!(push.endpoint_url.as_deref(), Some("https://push.example/behind"));
    let internal = push.internal;
    assert_eq!(internal.listen.expect("given").to_string(), "10.0.0.5:8081");
    assert_eq!(internal.url.as_deref(), Some("http://node-1:8081"));
    assert_eq!((push.options.session.unacked_window, push.options.session.batch), (1, 128));
    assert_eq!((push.options.session.ack, push.options.session.stored_max), (AckMode::Batch, 0));
    assert_eq!(
        (push.options.session.on_overflow, push.options.direct),
        (Overflow::DropOldest, Direct::Stored)
    );
    assert_eq!((push.options.limits.ttl_max, push.options.limits.body_max), (3_600, 4_096));
    assert_eq!(push.broadcasts.values["a/b"], "v1");
    assert_eq!(push.broadcasts.values["c"], "7");
}

#[test]
fn urls_are_spelled_as_senders_spell_them() {
    for (given, meant) in [
        ("https://Push.Example:443", "https://push.example"),
        ("HTTPS://push.example", "https://push.example"),
        ("http://push.example:80/Behind", "http://push.example/Behind"),
        ("https://push.example:8443", "https://push.example:8443"),
        ("https://bücher.example", "https://xn--bcher-kva.example"),
        ("http://[2001:DB8:0::1]:8080", "http://[2001:db8::1]:8080"),
    ] {
        let push = push(&format!("\n  endpoint_url: '{given}'\n"));
        assert_eq!(push.endpoint_url.as_deref(), Some(meant), "{given}");
    }
}

#[test]
fn wrong_values_are_named() {
    refused("roles: []", &["push.roles", "connection, endpoint or both"]);
    refused("roles: [router]", &["push.roles", "`router`"]);
    for url in [
        "push.example",
        "ftp://push.example",
        "https://push.example/",
        "https://u@h",
        "https://h?a",
    ] {
        refused(&format!("endpoint_url: '{url}'"), &["push.endpoint_url", url, "without a slash"]);
    }
    refused("internal: {listen: here}", &["push.internal.listen", "`here`"]);
    refused("internal: {url: 'http://10.0.0.5:1'}", &["push.internal.listen", "must be given too"]);
    let everywhere = "internal: {listen: '0.0.0.0:8081'}";
    refused(everywhere, &["push.internal.url: must be given", "http://10.0.0.5:8081"]);
    refused("internal: {listen: '10.0.0.5:1', url: 'h:1'}", &["push.internal.url", "`h:1`"]);
    let below = "internal: {listen: '10.0.0.5:1', url: 'http://h:1/below'}";
    refused(below, &["push.internal.url: must end after its port"]);
    refused("unacked_window: 0", &["push.unacked_window: must be 1 to 4096"]);
    refused("unacked_window: 4097", &["push.unacked_window: must be 1 to 4096"]);
    refused("batch: 129", &["push.batch: must be 1 to 128"]);
    refused("ack: never", &["push.ack", "each"]);
    refused("on_overflow: explode", &["push.on_overflow", "reset_agent"]);
    refused("direct: disk", &["push.direct", "memory"]);
    refused("body_max: 4095B", &["push.body_max: must be 4KiB to 64KiB"]);
    refused("ttl_max: 1ms", &["push.ttl_max: must be at least 1s"]);
    refused("ttl_max: 90000d", &["push.ttl_max", "100 years"]);
    refused("agent_ttl: 30m", &["push.agent_ttl", "push.renew_interval"]);
    refused("channels_max: 0", &["push.channels_max: must be at least 1"]);
    refused("opens_per_second: 0", &["push.opens_per_second: must be at least 1"]);
    refused("frames_per_second: 0", &["push.frames_per_second: must be at least 1"]);
    for name in [
        "handshake_timeout",
        "ping_interval",
        "pong_timeout",
        "renew_interval",
        "maintenance_interval",
    ] {
        refused(&format!("{name}: 0s"), &[&format!("push.{name}: must be more than zero")]);
    }
    refused("broadcasts: {url: nowhere}", &["push.broadcasts.url", "`nowhere`"]);
    refused("broadcasts: {interval: 0s}", &["push.broadcasts.interval"]);
    refused("broadcasts: {values: {errors: v}}", &["push.broadcasts.values.errors", "errors"]);
    refused("broadcasts: {values: {a: [b]}}", &["push.broadcasts.values.a", "a text"]);
    refused("pingo: 1s", &["push.pingo: there is no such key"]);
}

#[test]
fn keys_come_from_elsewhere_and_may_be_several() {
    let (one, two, node) =
        (EndpointKey::generate(), EndpointKey::generate(), NodeKey::generate().to_text());
    let both = format!("{}\n{}\n", one.to_text(), two.to_text());
    let env = [("PUSH", both.as_str()), ("NODE", node.as_str()), ("OTHER", "phek_short")];
    let yaml = "push: {enabled: true, endpoint_keys: [env:PUSH], internal: {key: env:NODE}}\n";
    let push = good(yaml, &env, &[]).config.push.expect("on");
    let names: Vec<String> = push.endpoint_keys.iter().map(EndpointKey::name).collect();
    assert_eq!(names, [one.name(), two.name()]);
    assert_eq!(push.internal.keys[0].to_text(), node);
    assert!(!format!("{push:?}").contains(&node[5..]));
    let plain = format!("push: {{endpoint_keys: [{}]}}\n", one.to_text());
    bad(&plain, &[], &["push.endpoint_keys", "env:NAME or file:PATH"]);
    bad("push: {endpoint_keys: [env:OTHER]}\n", &env, &["push.endpoint_keys", "phek_"]);
    bad("push: {internal: {key: env:PUSH}}\n", &env, &["push.internal.key", "phnk_"]);
    bad("push: {internal: {key: env:GONE}}\n", &env, &["push.internal.key", "GONE is not set"]);
}

#[test]
fn what_the_rest_of_the_configuration_asks_for_is_said() {
    let on = "push: {enabled: true}\n";
    let alone = format!("{POSTGRES}{on}");
    bad(&alone, &[], &["push.internal.listen: must be given with PostgreSQL", "10.0.0.5:8081"]);
    good(POSTGRES, &[], &[]);
    let listens = "push: {enabled: true, internal: {listen: '127.0.0.1:8081'}}\n";
    good(&format!("{POSTGRES}{listens}"), &[], &[]);
    let everywhere = "server: {listen: '0.0.0.0:8080'}\n";
    bad(&format!("{everywhere}{on}"), &[], &["push.endpoint_url: must be given", "server.listen"]);
    good(everywhere, &[], &[]);
    let same = "push: {enabled: true, internal: {listen: '127.0.0.1:8080'}}\n";
    bad(same, &[], &["push.internal.listen", "server.listen"]);
}

#[test]
fn sockets_have_places_of_their_own() {
    let config = good("push: {enabled: true}\n", &[], &[]).config;
    let limits = config.server.limits;
    assert_eq!((limits.connections, limits.connections_per_address), (10_000, 5_000));
    let push = config.push.expect("on");
    assert_eq!((push.connections, push.connections_per_address), (15_000, 12_000));
    bad("push: {enabled: true, connections: 0}\n", &[], &["push.connections"]);
}

#[test]
fn roles_apart_need_a_store_that_others_reach() {
    for role in ["connection", "endpoint"] {
        let yaml = format!("push: {{enabled: true, roles: [{role}]}}\n");
        bad(&yaml, &[], &["push.roles", "SQLite"]);
        let internal = "internal: {listen: '10.0.0.5:8081'}";
        good(
            &format!("{POSTGRES}push: {{enabled: true, roles: [{role}], {internal}}}\n"),
            &[],
            &[],
        );
    }
    good("push: {enabled: true, roles: [endpoint, connection]}\n", &[], &[]);
}
