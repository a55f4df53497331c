//! Just enough HTTP/1.1 to read one request, and to write and read one answer.

use std::collections::BTreeMap;
use std::io::Read;
use std::time::Instant;

use serde_json::Value;

/// The largest head that is read.
const HEAD_MAX: usize = 64 << 10;
/// The largest body that is read.
const BODY_MAX: usize = 4 << 20;

/// One request as the other end saw it.
#[derive(Clone, Debug)]
pub struct Request {
    /// When its head was there.
    pub at: Instant,
    /// How many came before it.
    pub nth: usize,
    /// The method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// The head as it came.
    pub head: String,
    /// Headers, names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The body.
    pub body: Vec<u8>,
    /// SHA-256 of the certificate that the handshake showed, in hex.
    pub shown: Option<String>,
}

impl Request {
    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(&name.to_ascii_lowercase()).map(String::as_str)
    }

    /// The value of a query parameter.
    #[track_caller]
    pub fn query(&self, name: &str) -> &str {
        let (_, query) = self.path.split_once('?').expect("a query");
        let value = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
        value.unwrap_or_else(|| panic!("no {name} in {}", self.path))
    }

    /// The body as text.
    #[track_caller]
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }

    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }
}

/// Reads a head, byte by byte: what comes after it stays in the socket. None when the caller ends
/// before its head does: it was killed, or only looked whether somebody listens.
pub(crate) fn read_head(stream: &mut impl Read) -> Option<Request> {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        if bytes.len() > HEAD_MAX || stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        bytes.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&bytes).into_owned();
    let mut lines = head.split("\r\n");
    let mut first = lines.next()?.split(' ');
    let (method, path) = (first.next()?.to_owned(), first.next()?.to_owned());
    let headers = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    let (at, body) = (Instant::now(), Vec::new());
    Some(Request { at, nth: 0, method, path, head, headers, body, shown: None })
}

/// Reads the body that a head announces.
pub(crate) fn read_body(stream: &mut impl Read, request: &mut Request) -> Option<()> {
    let length = request.header("content-length").map_or(Some(0), |text| text.parse().ok())?;
    request.body = vec![0; BODY_MAX.min(length)];
    stream.read_exact(&mut request.body).ok()
}
