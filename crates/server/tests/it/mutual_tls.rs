//! The real program shows client certificates to a receiver that demands them, and trusts an
//! authority of one subscription only; on both stores.

use posthorn_testkit::authority::{Authority, Clients};
use posthorn_testkit::program::{Home, Server, id_of};
use posthorn_testkit::receiver::Receiver;
use posthorn_testkit::wait::{eventually, until};

use crate::postgres::database;

pub(crate) fn add(
    server: &Server,
    home: &Home,
    kind: &str,
    certificate: &str,
    key: Option<&str>,
) -> String {
    home.write("c.pem", certificate);
    let mut args = vec!["certificates", "create", "--kind", kind, "--certificate", "c.pem"];
    if let Some(key) = key {
        home.write("k.pem", key);
        args.extend(["--key-file", "k.pem"]);
    }
    id_of(&server.ask(&args))
}

/// The failure of the newest attempt of an event's only delivery, once it has one.
fn failure(server: &Server, event: &str) -> String {
    eventually("a failed attempt", || {
        let shown = server.ask(&["events", "show", event]);
        shown["deliveries"][0]["attempts"][0]["failure"].as_str().map(str::to_owned)
    })
}

fn send(server: &Server) -> String {
    let sent = server.ask(&["send", "orders", "order.created", "{}"]);
    id_of(&sent)
}

fn check(home: &mut Home) {
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let receiver = Receiver::secure(&servers, "127.0.0.1", Clients::Of(&clients));
    let shown_to = || receiver.seen().into_iter().filter_map(|seen| seen.shown).collect::<Vec<_>>();
    let server = home.serve();
    server.ask("topics put orders");
    let url = receiver.url("/");
    let authority = add(&server, home, "authority", &servers.pem, None);
    let first = clients.sign("first");
    let client = add(&server, home, "client", &first.certificate, Some(&first.key));

    // Without the authority the receiver is a stranger; without a certificate we are.
    let subscribe = |policy: &str| {
        let args = ["subscriptions", "create", &url, "--topic", "orders", "--profile", "once"];
        let made = server.ask(&[&args[..], &["--policy", policy]].concat());
        id_of(&made)
    };
    let shown = format!(r#""auth": [{{"kind": "client_certificate", "certificate": "{client}"}}]"#);
    let trusted = format!(r#""tls": {{"authorities": ["{authority}"]}}"#);
    for (policy, code) in [
        (format!("{{{shown}}}"), "tls_certificate_invalid"),
        (format!("{{{trusted}}}"), "tls_failed"),
    ] {
        let id = subscribe(&policy);
        let found = failure(&server, &send(&server));
        // A receiver of TLS 1.3 refuses us only after our side of the handshake is done.
        assert!(found == code || (code == "tls_failed" && found == "connection_closed"), "{found}");
        server.ask(&["subscriptions", "delete", &id]);
    }
    assert!(receiver.seen().is_empty(), "nobody was let in");

    subscribe(&format!("{{{shown}, {trusted}}}"));
    send(&server);
    until("the first certificate", || shown_to() == [first.thumbprint()]);
    let second = clients.sign("second");
    home.write("c.pem", &second.certificate);
    home.write("k.pem", &second.key);
    let files = ["--certificate", "c.pem", "--key-file", "k.pem"];
    server.ask(&[&["certificates", "rotate", &client], &files[..]].concat());
    send(&server);
    until("the second certificate", || shown_to() == [first.thumbprint(), second.thumbprint()]);
    // A restart finds everything where it was, the key sealed and still of use.
    server.stop();
    let server = home.serve();
    send(&server);
    until("the second certificate again", || receiver.count() == 3);
    server.ask(&["certificates", "revoke", &client]);
    assert_eq!(failure(&server, &send(&server)), "certificate_unavailable");
    assert_eq!(receiver.count(), 3, "nothing is sent without it");
    server.stop();
}

#[test]
fn certificates_are_demanded_shown_rotated_and_taken_back() {
    check(&mut Home::new());
}

#[test]
fn certificates_are_demanded_shown_rotated_and_taken_back_on_postgresql() {
    let database = database();
    let mut home = Home::new();
    home.store_in(&database.url());
    check(&mut home);
}
