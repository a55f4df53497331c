//! Just enough HTTP/1.1 to read one request and write one answer.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;

/// The largest head that is read.
const HEAD_MAX: usize = 64 << 10;
/// The largest body that is read.
const BODY_MAX: usize = 4 << 20;

/// The head of a request.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The method.
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Headers, names in lower case.
    pub headers: BTreeMap<String, String>,
}

impl Request {
    /// A header, or an empty text.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// Reads a head, byte by byte: what comes after it stays in the socket.
pub(super) fn read_head(stream: &mut TcpStream) -> Option<Request> {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        if bytes.len() > HEAD_MAX || stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        bytes.push(byte[0]);
    }
    let text = String::from_utf8_lossy(&bytes);
    let mut lines = text.split("\r\n");
    let mut first = lines.next()?.split(' ');
    let (method, target) = (first.next()?.to_owned(), first.next()?.to_owned());
    let headers = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    Some(Request { method, target, headers })
}

pub(super) fn read_body(stream: &mut TcpStream, head: &Request) -> Option<Vec<u8>> {
    let length: usize = head.header("content-length").parse().ok()?;
    let mut body = vec![0; length.min(BODY_MAX)];
    stream.read_exact(&mut body).ok()?;
    Some(body)
}

/// Answers and closes. A caller that has gone is no concern of ours.
pub(super) fn answer(stream: &mut TcpStream, status: u16, media_type: &str, body: &str) {
    let length = body.len();
    let text = format!(
        "HTTP/1.1 {status} Said\r\nContent-Type: {media_type}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    );
    drop(stream.write_all(text.as_bytes()));
    drop(stream.flush());
    drop(stream.shutdown(std::net::Shutdown::Write));
}
