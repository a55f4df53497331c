//! A small HTTP client of tests: one request a connection, plain or over TLS, with any head.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;

use crate::authority::{Pair, der};
use crate::harness::PATIENCE;

/// What came back.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Reply {
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}\n{}", self.head, self.body);
        self
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// Who calls, over TLS: whom to trust, and what to show.
pub(crate) struct Identity<'a> {
    pub(crate) root: &'a str,
    pub(crate) shown: Option<&'a Pair>,
}

/// Sends one request to a server's URL as it was written into the address file. `None` when there
/// was no answer.
pub(crate) fn call(
    url: &str,
    identity: Option<&Identity<'_>>,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
) -> Option<Reply> {
    let (scheme, authority) = url.split_once("://").expect("a URL");
    assert_eq!(scheme == "https", identity.is_some(), "{url}");
    let mut tcp = connect(authority);
    let mut request = format!("{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n");
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str("\r\n");
    let mut answer = Vec::new();
    match identity {
        None => {
            tcp.write_all(request.as_bytes()).ok()?;
            drop(tcp.read_to_end(&mut answer));
        }
        Some(identity) => {
            let mut tls = StreamOwned::new(handshake(identity), tcp);
            tls.write_all(request.as_bytes()).ok()?;
            drop(tls.read_to_end(&mut answer));
        }
    }
    read(answer)
}

/// Sends one request with a body over a plain connection.
#[track_caller]
pub(crate) fn call_with(
    url: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Reply {
    let mut tcp = connect(url.strip_prefix("http://").expect("a plain URL"));
    let mut request = format!("{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n");
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str(&format!("content-length: {}\r\n\r\n{body}", body.len()));
    tcp.write_all(request.as_bytes()).expect("written");
    let mut answer = Vec::new();
    drop(tcp.read_to_end(&mut answer));
    read(answer).expect("an answer")
}

fn read(answer: Vec<u8>) -> Option<Reply> {
    let text = String::from_utf8(answer).expect("text");
    let (head, body) = text.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some(Reply { status, head: head.to_owned(), body: body.to_owned() })
}

#[expect(clippy::disallowed_methods, reason = "the test's own client talks to its own server")]
fn connect(authority: &str) -> TcpStream {
    let tcp = TcpStream::connect(authority).expect("a connection");
    tcp.set_read_timeout(Some(PATIENCE)).expect("a limit");
    tcp
}

fn handshake(identity: &Identity<'_>) -> ClientConnection {
    let mut roots = RootCertStore::empty();
    roots.add(der(identity.root)).expect("a root");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots);
    let config = match identity.shown {
        None => builder.with_no_client_auth(),
        Some(pair) => builder
            .with_client_auth_cert(vec![der(&pair.certificate)], pair.private())
            .expect("a pair"),
    };
    let name = ServerName::try_from("127.0.0.1").expect("a name");
    ClientConnection::new(Arc::new(config), name).expect("a connection")
}

/// Sends JSON, or whatever is given as such, with a key, over plain HTTP.
#[track_caller]
pub(crate) fn send(url: &str, key: &str, method: &str, path: &str, body: &str) -> Reply {
    let authority = url.strip_prefix("http://").expect("a plain URL");
    let mut tcp = connect(authority);
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    tcp.write_all(request.as_bytes()).expect("sent");
    let mut answer = String::new();
    tcp.read_to_string(&mut answer).expect("an answer");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    Reply { status, head: head.to_owned(), body: body.to_owned() }
}
