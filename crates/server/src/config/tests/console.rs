//! `console`: what must hold between the ways in.

use std::time::Duration;

use super::{bad, good};

const OIDC: &str = "
console:
  oidc:
    issuer: https://id.example.com/realms/main
    client_id: posthorn
    client_secret: env:SECRET
    rights: [{group: admins, scopes: [operator]}]
";
const PROXY: &str = "
console:
  key_login: false
  proxy_login:
    user_header: X-Forwarded-Email
    groups_header: X-Forwarded-Groups
    proxies: [10.0.0.5, 'fd00::/8']
    rights: [{group: acme, scopes: [read, manage], tenant: acme}, {group: live, scopes: [read], realm: live}]
";

#[test]
fn keys_are_the_way_in_unless_something_else_is_said() {
    let console = good("", &[], &[]).config.console;
    let usual = posthorn_console::Options::default();
    assert!(console.key_login && console.oidc.issuer.is_none());
    assert!(console.proxy_login.user_header.is_none() && console.proxy_rights.is_empty());
    assert_eq!(console.requests_per_second, usual.requests_per_second);
    assert_eq!(console.session_time, Duration::from_secs(8 * 3_600));
}

#[test]
fn a_provider_and_a_proxy_are_read_and_no_secret_is_shown() {
    let config = good(OIDC, &[("SECRET", "c4nary")], &[]).config;
    let oidc = &config.console.oidc;
    assert_eq!(
        oidc.issuer.as_ref().map(|issuer| issuer.as_str()),
        Some("https://id.example.com/realms/main")
    );
    let secret = oidc.client_secret.as_ref().and_then(|secret| secret.expose_str());
    assert_eq!(secret, Some("c4nary"));
    assert!(!format!("{config:?}").contains("c4nary"));
    let config = good(PROXY, &[], &[]).config;
    assert_eq!(config.console.proxy_login.proxies.len(), 2);
    assert!(!config.console.proxy_rights.is_empty());
}

#[test]
fn half_a_way_in_is_refused_with_its_key() {
    let without = |yaml: &str, line: &str| {
        assert!(yaml.contains(line), "{line}");
        let lines = yaml.lines().filter(|own| !own.contains(line));
        lines.collect::<Vec<_>>().join("\n")
    };
    let env = [("SECRET", "x")];
    for (line, expected) in [
        ("issuer", "console.oidc.issuer: must be given too"),
        ("client_id", "console.oidc.client_id: must be given"),
        ("rights", "console.oidc.rights: must say what groups may do"),
    ] {
        bad(&without(OIDC, line), &env, &[expected]);
    }
    for (line, expected) in [
        ("user_header", "console.proxy_login.user_header: must be given too"),
        ("groups_header", "console.proxy_login.groups_header: must be given too"),
        ("proxies", "console.proxy_login.proxies: must name where the proxy connects from"),
        ("rights", "console.proxy_login.rights: must say what groups may do"),
    ] {
        bad(&without(PROXY, line), &[], &[expected]);
    }
    bad("console: {key_login: false}\n", &[], &["console.key_login", "nobody could log in"]);
    good("console: {key_login: false, enabled: false}\n", &[], &[]);
    bad(OIDC, &[], &["console.oidc.client_secret", "SECRET is not set"]);
    let plain = OIDC.replace("env:SECRET", "hunter2");
    bad(&plain, &[], &["console.oidc.client_secret", "env:NAME or file:PATH"]);
    let http = OIDC.replace("https://id", "http://id");
    bad(&http, &env, &["console.oidc.issuer", "must be the https URL"]);
    let wrong = OIDC.replace("[operator]", "[operator], tenant: acme");
    bad(&wrong, &env, &["console.oidc.rights", "an operator has no tenant"]);
    let wrong = PROXY.replace("10.0.0.5", "0.0.0.0/0");
    bad(&wrong, &[], &["console.proxy_login.proxies", "must not be all addresses"]);
}
