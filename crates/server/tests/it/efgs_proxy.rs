//! EFGS callbacks through an outbound proxy, as the gateway sends them.

use std::time::Duration;

use posthorn_testkit::program::{Home, Ran, Server};
use posthorn_testkit::wait::eventually;

use crate::efgs_stage::{Country, Stage, announce};
use crate::outbound_proxy::OutboundProxy;

/// A configuration with this proxy in this mode, which the profile names and only this tenant may use.
fn home(stage: &Stage, url: &str, mode: &str, more: &str) -> Home {
    let policy = "{proxy: gateway, schedule: {backoff: {fixed: {wait: 300ms}}, max_attempts: 90}}";
    let home = stage.home(policy, more);
    let password = home.path().join("password");
    std::fs::write(&password, "the proxy's password\n").expect("written");
    let proxies = format!(
        "egress: {{proxies: {{gateway: {{url: '{url}', user: gateway, password: 'file:{}', mode: {mode}, \
         tenants: [efgs]}}}}, ",
        password.display()
    );
    home.edit("egress: {", &proxies);
    home
}

/// What the attempts of the newest delivery failed with.
fn failure(server: &Server) -> String {
    eventually("a failed attempt", || {
        let list = server.ask("deliveries list --state pending");
        let shown = server.ask(&["deliveries", "show", list["items"][0]["id"].as_str()?]);
        Some(shown["attempts"][0]["failure"].as_str()?.to_owned())
    })
}

#[test]
fn the_proxy_shows_the_certificate_that_the_header_names() {
    let stage = Stage::new();
    let proxy = OutboundProxy::start(&stage.authority.pem);
    let (_home, server) = home(&stage, &proxy.url, "forward", "").served();
    server.running.says("this proxy resolves names itself");
    let [de, nl] = ["cb.de.example", "cb.nl.example"].map(|host| stage.backend(host));
    for (name, backend) in [("DE", &de), ("NL", &nl)] {
        let pair = Country::register(&server, name).subscribe(&server, name, backend);
        proxy.hold(&pair);
        announce(&server, &format!("for-{name}"));
        let seen = &backend.wait_for(1)[0];
        let thumbprint = pair.thumbprint();
        assert_eq!(seen.path, format!("/callback?batchTag=for-{name}&date=2020-08-17"));
        assert_eq!(seen.shown.as_deref(), Some(thumbprint.as_str()), "the country's own");
        assert_eq!(seen.header("x-ssl-client-sha256"), Some(thumbprint.as_str()));
        assert_eq!(
            seen.header("host"),
            Some(format!("{}:{}", backend.host, backend.port).as_str())
        );
        assert_eq!(seen.header("proxy-authorization"), None);
    }
    let heard = proxy.heard();
    let line = format!("GET {}?batchTag=for-DE&date=2020-08-17 HTTP/1.1\r\n", de.url());
    assert!(heard[0].starts_with(&line), "{}", heard[0]);
    // The guard judges the target although the proxy would go anywhere.
    de.wait_for(2);
    server.settles(&[("delivered", 3)]);
    stage.names.set("cb.de.example", &[[10, 0, 0, 1]]);
    std::thread::sleep(Duration::from_secs(6));
    let before = proxy.heard().len();
    announce(&server, "inside");
    nl.wait_for(2);
    assert_eq!(failure(&server), "address_not_allowed");
    let heard = proxy.heard();
    assert!(heard[before..].iter().all(|head| !head.contains("cb.de.example")), "{heard:?}");
    // Neither log nor API say the password.
    let all = format!("{}{}", server.running.stderr(), server.ask("profiles list"));
    assert!(!all.contains("the proxy's password") && !all.contains("Z2F0ZXdheTp0"), "{all}");
    server.stop();
}

#[test]
fn a_tunnel_carries_our_own_handshake() {
    let stage = Stage::new();
    let proxy = OutboundProxy::start(&stage.authority.pem);
    let (_home, server) = home(&stage, &proxy.url, "connect", ", mode: native_mtls").served();
    let backend = stage.backend("cb.de.example");
    let germany = Country::register(&server, "DE");
    let (pair, _) = germany.certify(&server, &backend.host, true);
    germany.put(&server, "cb", &backend.url()).expect(200);
    announce(&server, "1");
    let seen = &backend.wait_for(1)[0];
    assert_eq!(seen.path, "/callback?batchTag=1&date=2020-08-17");
    assert_eq!(seen.shown.as_deref(), Some(pair.thumbprint().as_str()));
    assert_eq!(seen.header("proxy-authorization"), None, "the backend is not told");
    let heard = proxy.heard();
    let line = format!("CONNECT 127.0.0.1:{} HTTP/1.1\r\n", backend.port);
    assert!(heard.len() == 1 && heard[0].starts_with(&line), "{heard:?}");
    server.stop();
}

#[test]
fn a_proxy_that_is_away_or_refuses_us_is_a_failed_attempt() {
    let stage = Stage::new();
    let proxy = OutboundProxy::start(&stage.authority.pem);
    // Nobody listens at the discard port.
    for (url, mode, password) in [
        ("http://127.0.0.1:9", "connect", "x"),
        ("http://127.0.0.1:9", "forward", "x"),
        (proxy.url.as_str(), "connect", "wrong"),
        (proxy.url.as_str(), "forward", "wrong"),
    ] {
        let mut home = home(&stage, url, mode, "");
        home.write("password", password);
        let server = home.serve();
        let backend = stage.backend("cb.de.example");
        Country::register(&server, "DE").subscribe(&server, "cb", &backend);
        announce(&server, "1");
        assert_eq!(failure(&server), "proxy_failed", "{url} {mode}");
        assert!(backend.seen().is_empty(), "and nobody goes round it");
        server.stop();
    }
}

#[test]
fn tenants_neither_choose_nor_drop_a_proxy() {
    let stage = Stage::new();
    let proxy = OutboundProxy::start(&stage.authority.pem);
    let (_home, server) = home(&stage, &proxy.url, "forward", "").served();
    server.ask("tenants create other");
    let refused = |args: &[&str], parts: &[&str]| {
        let output = server.run(&args);
        assert_ne!(output.code, Some(0));
        output.says(parts);
    };
    let create = ["subscriptions", "create", "https://cb.de.example/", "--tenant"];
    for policy in [r#"{"proxy": "gateway"}"#, r#"{"proxy": "else"}"#] {
        let args = [&create[..], &["other", "--policy", policy]].concat();
        refused(&args, &["proxy", "only the operator"]);
        let args = [
            "profiles", "put", "mine", "--tenant", "other", "--base", "default", "--policy", policy,
        ];
        refused(&args, &["proxy", "only the operator"]);
    }
    let args =
        [&create[..], &["efgs", "--profile", "efgs", "--policy", r#"{"proxy": null}"#]].concat();
    refused(&args, &["proxy", "only the operator"]);
    // The profile leads through a proxy that another tenant has no part in.
    let args = [&create[..], &["other", "--profile", "efgs"]].concat();
    refused(&args, &["gateway", "this tenant may not use"]);
    assert!(proxy.heard().is_empty());
    server.stop();
}

#[test]
fn a_proxy_that_cannot_work_is_named_before_anything_starts() {
    let stage = Stage::new();
    let good = "http://127.0.0.1:3128";
    home(&stage, good, "forward", "").run("check").exits(0);
    for (url, mode, more, says) in [
        ("https://127.0.0.1:3128", "forward", "", "egress.proxies.gateway.url"),
        ("http://u:p@127.0.0.1:3128", "forward", "", "egress.proxies.gateway.url"),
        (good, "both", "", "egress.proxies.gateway.mode"),
        (good, "forward", ", mode: native_mtls", "profiles.efgs.policy.proxy"),
    ] {
        home(&stage, url, mode, more).run("check").exits(78).says(&[says]);
    }
    let home = home(&stage, good, "forward", "");
    let file = home.path().join("posthorn.yaml");
    let text = std::fs::read_to_string(&file).expect("there");
    for (old, new, says) in [
        ("proxy: gateway,", "proxy: another,", "no proxy `another`"),
        ("password: 'file:", "password: '", "env:NAME or file:PATH"),
        ("user: gateway, ", "", "must be given with the password"),
        ("tenants:", "tenant:", "tenant"),
        ("tenants: [efgs]", "tenants: [acme]", "must name `efgs`"),
    ] {
        std::fs::write(&file, text.replace(old, new)).expect("written");
        home.run("check").exits(78).says(&[says]);
    }
    // What the environment says about proxies is nobody's business here.
    std::fs::write(&file, &text).expect("written");
    let shown =
        Ran::of(home.command().env("HTTPS_PROXY", "http://127.0.0.1:1").args(["check", "--json"]))
            .exits(0);
    assert!(!shown.out.contains("127.0.0.1:1\""), "{}", shown.out);
}
