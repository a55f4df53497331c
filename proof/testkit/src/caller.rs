//! A small HTTP client: one request a connection, plain or over TLS, with any head, for tests that
//! block ([`Call::send`]) and for tests that do not, which await the call itself.

use std::borrow::Borrow;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::authority::{Pair, calling};

/// How long an answer may take that a busy server owes many.
const PATIENCE: Duration = Duration::from_secs(120);

/// What came back.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: String,
}

impl Reply {
    /// The body, as JSON where it is that, when the status is right.
    #[track_caller]
    pub fn expect(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{:?}\n{}", self.headers, self.body);
        match serde_json::from_str(&self.body) {
            Ok(json) => json,
            Err(_) if self.body.is_empty() => Value::Null,
            Err(_) => Value::String(self.body.clone()),
        }
    }

    /// Itself, when the status is right.
    #[track_caller]
    pub fn with(self, status: u16) -> Self {
        self.expect(status);
        self
    }

    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }

    /// The value of a header.
    #[track_caller]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().expect("text"))
    }

    /// Checks headers, by name and value; an empty value is for those that must not be there.
    #[track_caller]
    pub fn has(self, headers: &[(&str, &str)]) -> Self {
        for (name, value) in headers {
            let wanted = Some(*value).filter(|value| !value.is_empty());
            assert_eq!(self.header(name), wanted, "{name}: {self:?}");
        }
        self
    }

    fn read(answer: &[u8]) -> Option<Self> {
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n")?;
        let head = std::str::from_utf8(&answer[..end]).expect("a head of text");
        let mut lines = head.split("\r\n");
        let status = lines.next()?.split(' ').nth(1)?.parse().ok()?;
        let mut headers = HeaderMap::new();
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            let name: HeaderName = name.parse().expect("a name");
            headers.append(name, HeaderValue::from_str(value.trim()).expect("a value"));
        }
        let body = &answer[end + 4..];
        let body = match headers.get("transfer-encoding") {
            Some(_) => pieces(body)?,
            None => body.to_vec(),
        };
        Some(Self { status, headers, body: String::from_utf8(body).expect("text") })
    }
}

/// The body of pieces with their lengths.
fn pieces(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let end = rest.windows(2).position(|two| two == b"\r\n")?;
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..end]).ok()?, 16).ok()?;
        if size == 0 {
            return Some(body);
        }
        body.extend_from_slice(rest.get(end + 2..end + 2 + size)?);
        rest = rest.get(end + 4 + size..)?;
    }
}

/// What is done with every answer before the test gets it.
pub type Check = fn(&Call, &Reply);

/// A request being put together.
#[derive(Clone, Debug)]
pub struct Call {
    url: String,
    /// The method.
    pub method: String,
    /// Path and query.
    pub path: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    tls: Option<Arc<ClientConfig>>,
    check: Option<Check>,
}

/// A request to a server: its URL, and a path there. Of a path that is a whole URL only that counts.
pub fn call(url: &str, method: &str, path: &str) -> Call {
    let path = match path.split_once("://") {
        Some((_, rest)) if !path.starts_with('/') => rest.find('/').map_or("/", |at| &rest[at..]),
        _ => path,
    };
    let (url, method, path) = (url.to_owned(), method.to_owned(), path.to_owned());
    Call { url, method, path, headers: vec![], body: vec![], tls: None, check: None }
}

impl Call {
    /// With a header, also if there is one of that name.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// With headers.
    #[must_use]
    pub fn headers(self, headers: &[(&str, &str)]) -> Self {
        headers.iter().fold(self, |call, (name, value)| call.header(name, value))
    }

    /// As who has this key.
    #[must_use]
    pub fn key(self, key: &str) -> Self {
        self.header("authorization", &format!("Bearer {key}"))
    }

    /// With JSON.
    #[must_use]
    pub fn json(self, value: impl Borrow<Value>) -> Self {
        self.text(&value.borrow().to_string())
    }

    /// With what says it is JSON.
    #[must_use]
    pub fn text(self, body: &str) -> Self {
        self.header("content-type", "application/json").raw(body)
    }

    /// With a body.
    #[must_use]
    pub fn raw(mut self, body: impl AsRef<[u8]>) -> Self {
        self.body = body.as_ref().to_vec();
        self
    }

    /// Over TLS, to whom this root vouches for, and with what is shown.
    #[must_use]
    pub fn over_tls(mut self, root: &str, shown: Option<&Pair>) -> Self {
        self.tls = Some(calling(root, shown));
        self
    }

    /// Has every answer checked.
    #[must_use]
    pub fn checked(mut self, check: Check) -> Self {
        self.check = Some(check);
        self
    }

    /// Sends it, blocking.
    #[track_caller]
    pub fn send(self) -> Reply {
        self.try_send().expect("an answer")
    }

    /// The same; none when there was no answer.
    pub fn try_send(self) -> Option<Reply> {
        let tcp = dial(&self.url);
        let request = self.bytes();
        let answer = match &self.tls {
            None => exchange_on(tcp, &request),
            Some(config) => {
                let (host, _) = self.authority().rsplit_once(':').expect("a port");
                let name = ServerName::try_from(host.to_owned()).expect("a name");
                let tls = ClientConnection::new(Arc::clone(config), name).expect("a connection");
                exchange_on(StreamOwned::new(tls, tcp), &request)
            }
        };
        self.read(&answer)
    }

    #[expect(clippy::disallowed_methods, reason = "the test's own client talks to its own server")]
    async fn sent(self) -> Reply {
        assert!(self.tls.is_none(), "TLS is for those who block");
        let exchange = async {
            let mut tcp =
                tokio::net::TcpStream::connect(self.authority()).await.expect("a connection");
            // A server may refuse a body before it has read it.
            drop(tcp.write_all(&self.bytes()).await);
            let mut answer = Vec::new();
            drop(tcp.read_to_end(&mut answer).await);
            answer
        };
        let answer = tokio::time::timeout(PATIENCE, exchange).await.expect("an answer in time");
        self.read(&answer).expect("an answer")
    }

    fn read(&self, answer: &[u8]) -> Option<Reply> {
        let reply = Reply::read(answer)?;
        if let Some(check) = self.check {
            check(self, &reply);
        }
        Some(reply)
    }

    fn authority(&self) -> &str {
        authority(&self.url)
    }

    fn bytes(&self) -> Vec<u8> {
        let Self { method, path, .. } = self;
        let has = |name: &str| self.headers.iter().any(|(own, _)| own.eq_ignore_ascii_case(name));
        let mut head = format!("{method} {path} HTTP/1.1\r\n");
        let mut add = |name: &str, value: &str| head.push_str(&format!("{name}: {value}\r\n"));
        if !has("host") {
            add("host", self.authority());
        }
        if !has("connection") {
            add("connection", "close");
        }
        let bodiless = self.body.is_empty() && ["GET", "HEAD"].contains(&method.as_str());
        if !bodiless && !has("content-length") && !has("transfer-encoding") {
            add("content-length", &self.body.len().to_string());
        }
        for (name, value) in &self.headers {
            add(name, value);
        }
        [head.as_bytes(), b"\r\n", &self.body].concat()
    }
}

impl IntoFuture for Call {
    type Output = Reply;
    type IntoFuture = Pin<Box<dyn Future<Output = Reply> + Send>>;

    /// Sends it, without blocking.
    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.sent())
    }
}

/// A connection to a server.
#[expect(clippy::disallowed_methods, reason = "the test's own client talks to its own server")]
#[track_caller]
pub fn dial(url: &str) -> TcpStream {
    let tcp = TcpStream::connect(authority(url)).expect("a connection");
    tcp.set_read_timeout(Some(PATIENCE)).expect("a limit");
    tcp.set_write_timeout(Some(PATIENCE)).expect("a limit");
    tcp
}

/// Sends these bytes and reads until the connection ends; what came until then when it breaks.
pub fn exchange(url: &str, request: impl AsRef<[u8]>) -> String {
    String::from_utf8_lossy(&exchange_on(dial(url), request.as_ref())).into_owned()
}

fn exchange_on(mut stream: impl Read + Write, request: &[u8]) -> Vec<u8> {
    // A server may refuse a body before it has read it.
    drop(stream.write_all(request));
    let (mut answer, mut chunk) = (Vec::new(), [0; 4_096]);
    while let Ok(length @ 1..) = stream.read(&mut chunk) {
        answer.extend_from_slice(&chunk[..length]);
    }
    answer
}

fn authority(url: &str) -> &str {
    let (_, authority) = url.split_once("://").expect("a URL");
    authority.trim_end_matches('/')
}
