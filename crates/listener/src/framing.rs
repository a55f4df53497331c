//! Notices requests of which it can be said in two ways where their body ends.
//!
//! A head with both `Content-Length` and `Transfer-Encoding` is the classic way to make a proxy and a
//! server disagree about where the next request begins. The HTTP library goes by the chunks and hides
//! the other length, so that nobody behind it can refuse such a request. Here the bytes pass by before
//! the library sees them: heads are looked at line by line, bodies are skipped by their framing. The
//! result is only a [`Verdict`]; when a request is malformed in any other way the library refuses it,
//! and the connection ends.
//!
//! Little of a line is kept. A line that says how long something is and is longer than that
//! ([`LINE_BYTES`]) is as good as a second length: we would read the beginning of it, the library all
//! of it. Nobody needs such a line; chunk extensions are refused with it, which nobody sends either.
//! The same goes for lines behind the last chunk that end without a carriage return, which the library
//! takes for a part of the next line.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The longest line that may hold a length, without its end: the longest name, and a number.
const LINE_BYTES: usize = 64;
/// With the carriage return.
const KEPT_BYTES: usize = LINE_BYTES + 1;

/// Which request of a connection is ambiguous, and how many were handed on. Clones are of one
/// connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Verdict(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    /// The number of the request, from one; zero for none.
    ambiguous: AtomicU64,
    /// Those that the library has read the head of.
    begun: AtomicU64,
}

impl Verdict {
    /// Counts the next request; true when it is the ambiguous one. The connection ends with it.
    pub(crate) fn next_is_ambiguous(&self) -> bool {
        self.0.begun.fetch_add(1, Ordering::Relaxed);
        self.is_under_way()
    }

    /// Whether the ambiguous request has been handed on: nothing more of it may be read.
    pub(crate) fn is_under_way(&self) -> bool {
        let number = self.0.ambiguous.load(Ordering::Relaxed);
        number != 0 && self.0.begun.load(Ordering::Relaxed) >= number
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
    line: [u8; KEPT_BYTES],
    /// Bytes of the line so far, also those that are not kept.
    length: usize,
    /// The last of them.
    last: u8,
    /// The request that we are at.
    number: u64,
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
            line: [0; KEPT_BYTES],
            length: 0,
            last: 0,
            number: 1,
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
                        State::Body(_) => self.next(),
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
                    let room = KEPT_BYTES - self.length.min(KEPT_BYTES);
                    let kept = part.len().min(room);
                    if kept > 0 {
                        self.line[self.length..self.length + kept].copy_from_slice(&part[..kept]);
                    }
                    self.length += part.len();
                    self.last = part.last().copied().unwrap_or(self.last);
                    bytes = rest;
                    if end.is_some() {
                        self.line_ended();
                        (self.length, self.last) = (0, 0);
                    }
                }
            }
        }
    }

    fn line_ended(&mut self) {
        let kept = &self.line[..self.length.min(KEPT_BYTES)];
        let line = kept.strip_suffix(b"\r").unwrap_or(kept);
        let too_long = self.length > KEPT_BYTES || line.len() > LINE_BYTES;
        match self.state {
            State::Size if too_long => self.ambiguous(),
            State::Size => {
                self.state = match chunk_size(line) {
                    Some(0) => State::Trailers,
                    Some(size) => State::Chunk(size.saturating_add(2)),
                    // The library does not know it either.
                    None => State::Done,
                };
            }
            State::Trailers if self.last != b'\r' => self.ambiguous(),
            State::Trailers if line.is_empty() => self.state = self.next(),
            State::Head if line.is_empty() && self.begun => self.head_ended(),
            // Empty lines before a request are passed over.
            State::Head if line.is_empty() => {}
            State::Head if !self.begun => self.begun = true,
            State::Head => {
                let length = field(line, b"content-length");
                let coding = field(line, b"transfer-encoding");
                if too_long && (length.is_some() || coding.is_some()) {
                    self.ambiguous();
                } else if let Some(value) = length {
                    let number =
                        std::str::from_utf8(value).ok().and_then(|v| v.trim().parse().ok());
                    // One that is no number is refused by the library.
                    self.content_length = Some(number.unwrap_or(0));
                } else if coding.is_some() {
                    self.chunked = true;
                }
            }
            _ => {}
        }
    }

    fn head_ended(&mut self) {
        self.begun = false;
        match (self.content_length.take(), std::mem::take(&mut self.chunked)) {
            (Some(_), true) => self.ambiguous(),
            (None, true) => self.state = State::Size,
            (Some(0) | None, false) => self.state = self.next(),
            (Some(length), false) => self.state = State::Body(length),
        }
    }

    /// What follows a request.
    fn next(&mut self) -> State {
        self.number += 1;
        State::Head
    }

    fn ambiguous(&mut self) {
        self.verdict.0.ambiguous.store(self.number, Ordering::Relaxed);
        self.state = State::Done;
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

    /// The verdict on these bytes must not depend on how they were cut into reads. It is the number of
    /// the ambiguous request.
    #[track_caller]
    fn check(text: &str, ambiguous: u64) {
        for size in [1, 2, 3, 7, 64, text.len()] {
            let verdict = Verdict::default();
            let mut framing = Framing::new(verdict.clone());
            for piece in text.as_bytes().chunks(size) {
                framing.see(piece);
            }
            let found = verdict.0.ambiguous.load(Ordering::Relaxed);
            assert_eq!(found, ambiguous, "{size}: {text:?}");
        }
    }

    #[test]
    fn two_lengths_are_noticed_in_any_order_and_place() {
        let both =
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n";
        check(both, 1);
        check("POST / HTTP/1.1\r\ntransfer-encoding:chunked\r\ncontent-length:0\r\n\r\n", 1);
        check("POST / HTTP/1.1\nTRANSFER-ENCODING: chunked\nx: y\nCONTENT-LENGTH: 1\n\n", 1);
        // Behind other requests of the connection.
        let plain = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";
        let sized = "POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\nhello";
        let chunks = "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n\
                      5;x=y\r\nhello\r\nA\r\n0123456789\r\n0\r\ncontent-length: 3\r\n\r\n";
        for before in [plain, sized, chunks] {
            check(&format!("{before}{before}{both}"), 3);
            check(&format!("\r\n{before}{before}"), 0);
        }
    }

    #[test]
    fn what_looks_like_a_head_in_a_body_is_none() {
        let inner = "\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n";
        check(&format!("POST / HTTP/1.1\r\ncontent-length: {}\r\n\r\n{inner}", inner.len()), 0);
        let chunk = format!("{:x}\r\n{inner}\r\n0\r\n\r\n", inner.len());
        check(&format!("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n{chunk}"), 0);
        check("GET / HTTP/1.1\r\nx-content-length: 1\r\ntransfer-encoding: chunked\r\n\r\n", 0);
        check("GET /content-length: HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", 0);
        let long = "a".repeat(5_000);
        check(&format!("GET / HTTP/1.1\r\nx: {long}\r\ncontent-length: 0\r\n\r\n"), 0);
    }

    #[test]
    fn lines_that_hide_a_length_are_as_good_as_a_second_one() {
        let post = "POST / HTTP/1.1\r\nhost: a\r\n";
        let (spaces, zeros) = (" ".repeat(64), "0".repeat(64));
        check(&format!("{post}content-length:{spaces}4\r\n\r\ntext"), 1);
        check(&format!("{post}content-length: {zeros}4\r\n\r\ntext"), 1);
        check(&format!("{post}Content-Length: 4{spaces}\r\n\r\ntext"), 1);
        check(&format!("{post}Transfer-Encoding:{spaces}chunked\r\n\r\n0\r\n\r\n"), 1);
        let chunked = format!("{post}transfer-encoding: chunked\r\n\r\n");
        check(&format!("{chunked}{zeros}4\r\ntext\r\n0\r\n\r\n"), 1);
        check(&format!("{chunked}4{spaces}\r\ntext\r\n0\r\n\r\n"), 1);
        check(&format!("{chunked}0;{zeros}\r\n\r\n"), 1);
        check(&format!("{chunked}0\r\n\r\n{chunked}0;{zeros}\r\n\r\n"), 2);
        // At the limit.
        let fits = "0".repeat(64 - "content-length: 4".len());
        check(&format!("{post}content-length: {fits}4\r\n\r\ntext{post}\r\n"), 0);
        check(&format!("{post}content-length: {fits}04\r\n\r\ntext"), 1);
        check(&format!("{post}content-length: {fits}4\n\ntext{post}\r\n"), 0);
        check(&format!("{post}content-length: {fits}04\n\ntext"), 1);
        let fits = format!("4;{}", "x".repeat(62));
        check(&format!("{chunked}{fits}\r\ntext\r\n0\r\n\r\n"), 0);
        check(&format!("{chunked}{fits}x\r\ntext\r\n0\r\n\r\n"), 1);
    }

    #[test]
    fn behind_the_last_chunk_every_line_has_its_carriage_return() {
        let chunked = "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n";
        let long = "y".repeat(500);
        check(&format!("{chunked}0\r\nx: {long}\r\n\r\n"), 0);
        for end in ["\n".to_owned(), "x: y\n\r\n".to_owned(), format!("x: {long}\n\r\n")] {
            check(&format!("{chunked}0\r\n{end}"), 1);
        }
    }

    #[test]
    fn only_the_ambiguous_request_is_refused_and_nothing_is_read_behind_it() {
        let verdict = Verdict::default();
        let mut framing = Framing::new(verdict.clone());
        framing.see(b"GET / HTTP/1.1\r\n\r\nPOST / HTTP/1.1\r\ncontent-length: 1\r\n");
        framing.see(b"transfer-encoding: chunked\r\n\r\n");
        assert!(!verdict.is_under_way() && !verdict.next_is_ambiguous());
        assert!(!verdict.is_under_way() && verdict.next_is_ambiguous());
        assert!(verdict.is_under_way());
    }
}
