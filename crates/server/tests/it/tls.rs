//! The real program speaks TLS itself, and knows callers by the certificates they show.

use std::time::Duration;

use crate::authority::{Authority, Pair, of_country, valid_for};
use crate::caller::{Identity, Reply, call};
use crate::harness::{Home, Server, assert_exit, assert_says, eventually, run};

/// Adds TLS to the configuration, with a certificate of this authority.
pub(crate) fn configure(home: &Home, authority: &Authority, clients: &str) -> Pair {
    let own = authority.sign("127.0.0.1");
    write(home, &own);
    std::fs::write(home.path().join("ca.pem"), &authority.pem).expect("written");
    let file = home.path().join("posthorn.yaml");
    let text = std::fs::read_to_string(&file).expect("there");
    let server = format!(
        "server:\n  listen: 127.0.0.1:0\n  tls: {{certificate: own.pem, key: 'file:own.key', \
         client_certificates: {clients}}}\n"
    );
    let text = text.replace("server: {listen: '127.0.0.1:0'}\n", &server);
    assert!(text.contains("own.pem"), "{text}");
    std::fs::write(file, text).expect("written");
    own
}

fn write(home: &Home, own: &Pair) {
    std::fs::write(home.path().join("own.pem"), &own.certificate).expect("written");
    std::fs::write(home.path().join("own.key"), &own.key).expect("written");
}

/// Registers a caller; returns the id.
fn register(server: &Server, home: &Home, pair: &Pair, owner: &str) -> String {
    std::fs::write(home.path().join("c.pem"), &pair.certificate).expect("written");
    let args = ["certificates", "add", "--kind", "caller", "--certificate", "c.pem"];
    let made = ask(server, &[&args[..], &["--owner", owner, "--scope", "read"]].concat());
    made["id"].as_str().expect("an id").to_owned()
}

/// A command that trusts the test's authority.
fn ask(server: &Server, args: &[&str]) -> serde_json::Value {
    server.ask(&[args, &["--ca", "ca.pem"]].concat())
}

#[test]
fn callers_are_known_by_the_certificates_they_show() {
    let authority = Authority::new("ours");
    let mut home = Home::new();
    configure(&home, &authority, "ask");
    let server = home.serve();
    assert!(server.url.starts_with("https://"), "{}", server.url);
    let topics = |shown: Option<&Pair>, headers: &[(&str, &str)]| -> Reply {
        let identity = Identity { root: &authority.pem, shown };
        call(&server.url, Some(&identity), "GET", "/v1/topics", headers).expect("an answer")
    };
    let (german, dutch) = (of_country("DE"), of_country("NL"));
    let short = valid_for("DE", Duration::from_secs(6));
    let id = register(&server, &home, &german, "DE");
    register(&server, &home, &dutch, "DE");
    register(&server, &home, &short, "DE");

    topics(None, &[]).expect(401);
    topics(None, &[("authorization", &format!("Bearer {}", server.key))]).expect(200);
    topics(Some(&german), &[]).expect(200);
    topics(Some(&dutch), &[]).expect(401);
    topics(Some(&of_country("DE")), &[]).expect(401);
    // A key that does not work is not mended by a certificate, nor is a header believed from anybody.
    topics(Some(&german), &[("authorization", "Bearer ph_wrong")]).expect(401);
    let thumbprint = german.thumbprint();
    topics(None, &[("x-ssl-client-sha256", &thumbprint), ("x-ssl-client-dn", "C=DE")]).expect(401);
    eventually("the end of a certificate", || {
        (topics(Some(&short), &[]).status != 200).then_some(())
    });
    ask(&server, &["certificates", "revoke", &id]);
    let reply = topics(Some(&german), &[]);
    assert!(reply.status == 401 || reply.status == 429, "{reply:?}");
    server.stop();
}

#[test]
fn without_a_certificate_there_is_no_connection_where_one_is_required() {
    let authority = Authority::new("ours");
    let mut home = Home::new();
    configure(&home, &authority, "require");
    let server = home.serve();
    let health = |shown: Option<&Pair>| {
        let identity = Identity { root: &authority.pem, shown };
        call(&server.url, Some(&identity), "GET", "/healthz", &[])
    };
    assert!(health(None).is_none());
    health(Some(&of_country("DE"))).expect("an answer").expect(200);
    server.stop();
}

#[test]
fn a_renewed_certificate_is_used_without_a_restart() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let mut home = Home::new();
    configure(&home, &old, "off");
    let server = home.serve();
    let health = |authority: &Authority| {
        let identity = Identity { root: &authority.pem, shown: None };
        call(&server.url, Some(&identity), "GET", "/healthz", &[])
    };
    health(&old).expect("an answer").expect(200);
    // Half a renewal changes nothing.
    std::fs::write(home.path().join("own.pem"), new.sign("127.0.0.1").certificate)
        .expect("written");
    server.running.signal("HUP");
    eventually("the warning", || {
        server.running.stderr().contains("the old one stays").then_some(())
    });
    health(&old).expect("an answer").expect(200);
    write(&home, &new.sign("127.0.0.1"));
    server.running.signal("HUP");
    eventually("the new certificate", || health(&new));
    assert!(health(&old).is_none());
    server.stop();
}

#[test]
fn what_cannot_be_used_is_said_before_anything_starts() {
    let authority = Authority::new("ours");
    let home = Home::new();
    configure(&home, &authority, "ask");
    let other = authority.sign("127.0.0.1");
    std::fs::write(home.path().join("other.key"), &other.key).expect("written");
    let check = |args: &[&str], says: &[&str]| {
        let output = run(home.path(), &[&["check"], args].concat());
        assert_exit(&output, 78);
        assert_says(&output, says);
    };
    assert_exit(&run(home.path(), &["check"]), 0);
    check(&["--set", "server.tls.key=file:other.key"], &["server.tls.key", "does not belong"]);
    check(&["--set", "server.tls.key=env:NOTHING"], &["server.tls.key", "NOTHING is not set"]);
    check(&["--set", "server.tls.certificate=none.pem"], &["server.tls.certificate", "none.pem"]);
    check(&["--set", "server.tls.certificate=own.key"], &["server.tls.certificate", "no cert"]);
    check(&["--set", "server.tls.client_certificates=maybe"], &["maybe", "off, ask and require"]);
}
