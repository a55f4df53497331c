//! The real program speaks TLS itself, and knows callers by the certificates they show.

use std::time::Duration;

use posthorn_testkit::authority::{Authority, Pair};
use posthorn_testkit::caller::{Reply, call};
use posthorn_testkit::program::{Home, Server, id_of};
use posthorn_testkit::wait::{eventually, until};

/// Adds TLS to the configuration, with a certificate of this authority.
pub(crate) fn configure(home: &Home, authority: &Authority, clients: &str) -> Pair {
    let own = authority.sign("127.0.0.1");
    write(home, &own);
    home.write("ca.pem", &authority.pem);
    let tls = "server:\n  listen: 127.0.0.1:0\n  tls: {certificate: own.pem, key: 'file:own.key', \
               client_certificates: CLIENTS}\n";
    home.edit("server: {listen: '127.0.0.1:0'}\n", &tls.replace("CLIENTS", clients));
    own
}

fn write(home: &Home, own: &Pair) {
    home.write("own.pem", &own.certificate);
    home.write("own.key", &own.key);
}

/// Registers a caller; returns the id.
fn register(server: &Server, home: &Home, pair: &Pair, owner: &str) -> String {
    home.write("c.pem", &pair.certificate);
    let args = ["certificates", "create", "--kind", "caller", "--certificate", "c.pem"];
    let made = ask(server, &[&args[..], &["--owner", owner, "--scope", "read"]].concat());
    id_of(&made)
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
        let ask = call(&server.url, "GET", "/v1/topics").headers(headers);
        ask.over_tls(&authority.pem, shown).send()
    };
    let (german, dutch) = (Pair::of_country("DE"), Pair::of_country("NL"));
    let short = Pair::valid_for("DE", Duration::from_secs(6));
    let id = register(&server, &home, &german, "DE");
    register(&server, &home, &dutch, "DE");
    register(&server, &home, &short, "DE");

    topics(None, &[]).expect(401);
    topics(None, &[("authorization", &format!("Bearer {}", server.key))]).expect(200);
    topics(Some(&german), &[]).expect(200);
    topics(Some(&dutch), &[]).expect(401);
    topics(Some(&Pair::of_country("DE")), &[]).expect(401);
    // A key that does not work is not mended by a certificate, nor is a header believed from anybody.
    topics(Some(&german), &[("authorization", "Bearer ph_wrong")]).expect(401);
    let thumbprint = german.thumbprint();
    topics(None, &[("x-ssl-client-sha256", &*thumbprint), ("x-ssl-client-dn", "C=DE")]).expect(401);
    until("the end of a certificate", || topics(Some(&short), &[]).status != 200);
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
        server.open("GET", "/healthz").over_tls(&authority.pem, shown).try_send()
    };
    assert!(health(None).is_none());
    health(Some(&Pair::of_country("DE"))).expect("an answer").expect(200);
    server.stop();
}

#[test]
fn a_renewed_certificate_is_used_without_a_restart() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let mut home = Home::new();
    configure(&home, &old, "off");
    let server = home.serve();
    let health = |authority: &Authority| {
        server.open("GET", "/healthz").over_tls(&authority.pem, None).try_send()
    };
    health(&old).expect("an answer").expect(200);
    // Half a renewal changes nothing.
    home.write("own.pem", new.sign("127.0.0.1").certificate);
    server.running.signal("HUP");
    until("the warning", || server.running.stderr().contains("the old one stays"));
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
    home.write("other.key", &other.key);
    let check = |args: &[&str], says: &[&str]| {
        home.run(&[&["check"], args].concat()).exits(78).says(says);
    };
    home.run("check").exits(0);
    check(&["--set", "server.tls.key=file:other.key"], &["server.tls.key", "does not belong"]);
    check(&["--set", "server.tls.key=env:NOTHING"], &["server.tls.key", "NOTHING is not set"]);
    check(&["--set", "server.tls.certificate=none.pem"], &["server.tls.certificate", "none.pem"]);
    check(&["--set", "server.tls.certificate=own.key"], &["server.tls.certificate", "no cert"]);
    check(&["--set", "server.tls.client_certificates=maybe"], &["maybe", "off, ask and require"]);
}
