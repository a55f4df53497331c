//! The real program shows client certificates to a receiver that demands them, and trusts an
//! authority of one subscription only; on both stores.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use posthorn_testkit::postgres::TestPostgres;
use rustls::pki_types::CertificateDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};

use crate::authority::{Authority, Pair, der};
use crate::harness::{Home, Server, eventually};
use crate::postgres::configure;

/// A receiver that lets in only those with a certificate of `clients`, and remembers them.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<CertificateDer<'static>>>>,
}

impl Receiver {
    pub(crate) fn start(own: &Pair, clients: &Authority) -> Self {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut roots = RootCertStore::empty();
        roots.add(der(&clients.pem)).expect("a root");
        let verifier =
            WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(&provider))
                .build()
                .expect("a verifier");
        let key = own.private();
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![der(&own.certificate)], key)
            .expect("a pair");
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&seen);
        thread::spawn(move || {
            for tcp in listener.incoming().flatten() {
                let (config, into) = (Arc::clone(&config), Arc::clone(&into));
                thread::spawn(move || answer(tcp, config, &into));
            }
        });
        Self { address, seen }
    }

    pub(crate) fn seen(&self) -> Vec<CertificateDer<'static>> {
        self.seen.lock().expect("not poisoned").clone()
    }
}

/// Answers one request and closes; whoever is not let in gets an alert.
fn answer(
    mut tcp: TcpStream,
    config: Arc<ServerConfig>,
    seen: &Mutex<Vec<CertificateDer<'static>>>,
) {
    let mut connection = ServerConnection::new(config).expect("a connection");
    let mut tls = rustls::Stream::new(&mut connection, &mut tcp);
    let mut request = Vec::new();
    let mut piece = [0; 4096];
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        match tls.read(&mut piece) {
            Ok(0) | Err(_) => return,
            Ok(n) => request.extend_from_slice(&piece[..n]),
        }
    }
    if let Some([first, ..]) = tls.conn.peer_certificates() {
        seen.lock().expect("not poisoned").push(first.clone().into_owned());
    }
    let reply = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    drop(tls.write_all(reply.as_bytes()));
    tls.conn.send_close_notify();
    drop(tls.flush());
}

pub(crate) fn add(
    server: &Server,
    home: &Home,
    kind: &str,
    certificate: &str,
    key: Option<&str>,
) -> String {
    let (file, key_file) = (home.path().join("c.pem"), home.path().join("k.pem"));
    std::fs::write(&file, certificate).expect("written");
    let mut args = vec!["certificates", "add", "--kind", kind, "--certificate", "c.pem"];
    if let Some(key) = key {
        std::fs::write(&key_file, key).expect("written");
        args.extend(["--key-file", "k.pem"]);
    }
    server.ask(&args)["id"].as_str().expect("an id").to_owned()
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
    sent["id"].as_str().expect("an id").to_owned()
}

fn check(home: &mut Home) {
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let receiver = Receiver::start(&servers.sign("127.0.0.1"), &clients);
    let server = home.serve();
    server.ask(&["topics", "put", "orders"]);
    let url = format!("https://{}/", receiver.address);
    let authority = add(&server, home, "authority", &servers.pem, None);
    let first = clients.sign("first");
    let client = add(&server, home, "client", &first.certificate, Some(&first.key));

    // Without the authority the receiver is a stranger; without a certificate we are.
    let subscribe = |policy: &str| {
        let args = ["subscriptions", "create", &url, "--topic", "orders", "--profile", "once"];
        let made = server.ask(&[&args[..], &["--policy", policy]].concat());
        made["id"].as_str().expect("an id").to_owned()
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
    eventually("the first certificate", || {
        (receiver.seen() == [der(&first.certificate)]).then_some(())
    });
    let second = clients.sign("second");
    std::fs::write(home.path().join("c.pem"), &second.certificate).expect("written");
    std::fs::write(home.path().join("k.pem"), &second.key).expect("written");
    let files = ["--certificate", "c.pem", "--key-file", "k.pem"];
    server.ask(&[&["certificates", "rotate", &client], &files[..]].concat());
    send(&server);
    eventually("the second certificate", || {
        (receiver.seen() == [der(&first.certificate), der(&second.certificate)]).then_some(())
    });
    // A restart finds everything where it was, the key sealed and still of use.
    server.stop();
    let server = home.serve();
    send(&server);
    eventually("the second certificate again", || (receiver.seen().len() == 3).then_some(()));
    server.ask(&["certificates", "revoke", &client]);
    assert_eq!(failure(&server, &send(&server)), "certificate_unavailable");
    assert_eq!(receiver.seen().len(), 3, "nothing is sent without it");
    server.stop();
}

#[test]
fn certificates_are_demanded_shown_rotated_and_taken_back() {
    check(&mut Home::new());
}

#[test]
fn certificates_are_demanded_shown_rotated_and_taken_back_on_postgresql() {
    let database = TestPostgres::start().expect("PostgreSQL, which ./test installs");
    let mut home = Home::new();
    configure(&home, &database.url());
    check(&mut home);
}
