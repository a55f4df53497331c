//! Notices requests that say twice where their body ends.
//!
//! A head with both `Content-Length` and `Transfer-Encoding` is the classic way to make a proxy and a
//! server disagree about where the next request begins. The HTTP library goes by the chunks and hides
//! the other length, so that nobody behind it can refuse such a request. Here the bytes pass by before
//! the library sees them: heads are looked at line by line, bodies are skipped by their framing. The
//! result is only a [`Verdict`]; when a request is malformed in any other way the library refuses it,
//! and the connection ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How much of a line is looked at: the longest name we want, and a number.
const LINE_BYTES: usize = 64;

/// Whether a head of the connection gave two lengths. Clones are of one connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Verdict(Arc<AtomicBool>);

impl Verdict {
    /// True from the ambiguous head on: the connection ends with it.
    pub(crate) fn is_ambiguous(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In a head.
    Head,
    /// So much of a body is still to come.
    Body(u64),
    /// At the size of a chunk.
    Size,
    /// So much of a chunk is still to come, its line end included.
    Chunk(u64),
    /// Behind the last chunk, until an empty line.
    Trailers,
    /// Nothing that follows matters.
    Done,
}

/// Follows the requests of one connection.
#[derive(Debug)]
pub(crate) struct Framing {
    state: State,
    line: [u8; LINE_BYTES],
    /// Bytes of the line so far, also those that are not kept.
    length: usize,
    /// Whether the request line has passed.
    begun: bool,
    content_length: Option<u64>,
    chunked: bool,
    verdict: Verdict,
}

impl Framing {
    pub(crate) fn new(verdict: Verdict) -> Self {
        Self {
            state: State::Head,
            line: [0; LINE_BYTES],
            length: 0,
            begun: false,
            content_length: None,
            chunked: false,
            verdict,
        }
    }

    /// The next bytes that came.
    pub(crate) fn see(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match self.state {
                State::Done => return,
                State::Body(left) | State::Chunk(left) => {
                    let passed = left.min(bytes.len() as u64);
                    bytes = &bytes[passed as usize..];
                    let left = left - passed;
                    self.state = match self.state {
                        State::Body(_) if left > 0 => State::Body(left),
                        State::Body(_) => State::Head,
                        _ if left > 0 => State::Chunk(left),
                        _ => State::Size,
                    };
                }
                State::Head | State::Size | State::Trailers => {
                    let end = bytes.iter().position(|byte| *byte == b'\n');
                    let (part, rest) = match end {
                        Some(end) => (&bytes[..end], &bytes[end + 1..]),
                        None => (bytes, &[][..]),
                    };
                    let room = LINE_BYTES - self.length.min(LINE_BYTES);
                    let kept = part.len().min(room);
                    if kept > 0 {
                        self.line[self.length..self.length + kept].copy_from_slice(&part[..kept]);
                    }
                    self.length += part.len();
                    bytes = rest;
                    if end.is_some() {
                        self.line_ended();
                        self.length = 0;
                    }
                }
            }
        }
    }

    fn line_ended(&mut self) {
        let kept = &self.line[..self.length.min(LINE_BYTES)];
        let line = kept.strip_suffix(b"\r").unwrap_or(kept);
        match self.state {
            State::Size => {
                self.state = match chunk_size(line) {
                    Some(0) => State::Trailers,
                    Some(size) => State::Chunk(size.saturating_add(2)),
                    // The library does not know it either.
                    None => State::Done,
                };
            }
            State::Trailers if line.is_empty() => self.state = State::Head,
            State::Head if line.is_empty() && self.begun => self.head_ended(),
            // Empty lines before a request are passed over.
            State::Head if line.is_empty() => {}
            State::Head if !self.begun => self.begun = true,
            State::Head => {
                if let Some(value) = field(line, b"content-length") {
                    let number =
                        std::str::from_utf8(value).ok().and_then(|v| v.trim().parse().ok());
                    // One that is no number is refused by the library.
                    self.content_length = Some(number.unwrap_or(0));
                } else if field(line, b"transfer-encoding").is_some() {
                    self.chunked = true;
                }
            }
            _ => {}
        }
    }

    fn head_ended(&mut self) {
        self.begun = false;
        self.state = match (self.content_length.take(), std::mem::take(&mut self.chunked)) {
            (Some(_), true) => {
                self.verdict.0.store(true, Ordering::Relaxed);
                State::Done
            }
            (None, true) => State::Size,
            (Some(0) | None, false) => State::Head,
            (Some(length), false) => State::Body(length),
        };
    }
}

/// The value of a line with this field; names are compared without case.
fn field<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (said, value) = (line.get(..name.len())?, line.get(name.len()..)?);
    if !said.eq_ignore_ascii_case(name) {
        return None;
    }
    value.strip_prefix(b":")
}

/// The size at the start of a chunk, without its extensions.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let text = std::str::from_utf8(&line[..digits]).ok()?;
    u64::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The verdict on these bytes must not depend on how they were cut into reads.
    #[track_caller]
    fn check(text: &str, ambiguous: bool) {
        for size in [1, 2, 3, 7, 64, text.len()] {
            let verdict = Verdict::default();
            let mut framing = Framing::new(verdict.clone());
            for piece in text.as_bytes().chunks(size) {
                framing.see(piece);
            }
            assert_eq!(verdict.is_ambiguous(), ambiguous, "{size}: {text:?}");
        }
    }

    #[test]
    fn two_lengths_are_noticed_in_any_order_and_place() {
        let both =
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n";
        check(both, true);
        check("POST / HTTP/1.1\r\ntransfer-encoding:chunked\r\ncontent-length:0\r\n\r\n", true);
        check("POST / HTTP/1.1\nTRANSFER-ENCODING: chunked\nx: y\nCONTENT-LENGTH: 1\n\n", true);
        // Behind other requests of the connection.
        let plain = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
        let sized = "POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\nhello";
        let chunks = "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n\
                      5;x=y\r\nhello\r\nA\r\n0123456789\r\n0\r\ncontent-length: 3\r\n\r\n";
        for before in [plain, sized, chunks] {
            check(&format!("{before}{before}{both}"), true);
            check(&format!("\r\n{before}{before}"), false);
        }
    }

    #[test]
    fn what_looks_like_a_head_in_a_body_is_none() {
        let inner = "\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n";
        check(&format!("POST / HTTP/1.1\r\ncontent-length: {}\r\n\r\n{inner}", inner.len()), false);
        let chunk = format!("{:x}\r\n{inner}\r\n0\r\n\r\n", inner.len());
        check(&format!("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n{chunk}"), false);
        check("GET / HTTP/1.1\r\nx-content-length: 1\r\ntransfer-encoding: chunked\r\n\r\n", false);
        check(
            "GET /content-length: HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
            false,
        );
        let long = "a".repeat(5_000);
        check(&format!("GET / HTTP/1.1\r\nx: {long}\r\ncontent-length: 0\r\n\r\n"), false);
    }
}
