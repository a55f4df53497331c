//! Answers that are the same bytes every time.

use super::Then;
use crate::bomb;
use crate::mode::Mode;
use crate::receiver::Stage;

/// What a fooled sender would take for the answer to its next request.
pub(super) const FORGED: &str = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged";

/// The whole answer of a mode, and what follows it; nothing when it takes more than that.
pub(super) fn reply(stage: &Stage) -> Option<(Vec<u8>, Then)> {
    let mode = stage.mode;
    let text = |text: &str, then| Some((text.as_bytes().to_vec(), then));
    let head = |lines: &str, then| text(&format!("HTTP/1.1 200 OK\r\n{lines}\r\n\r\nab"), then);
    let status =
        |line: &str| text(&format!("HTTP/1.1 {line}\r\nContent-Length: 0\r\n\r\n"), Then::Next);
    let fine = |lines: &str| {
        text(&format!("HTTP/1.1 200 OK\r\n{lines}\r\nContent-Length: 0\r\n\r\n"), Then::Next)
    };
    match mode {
        Mode::Silent | Mode::TlsThenSilent => Some((Vec::new(), Then::Hold)),
        Mode::CloseAfterRequest => Some((Vec::new(), Then::Close)),
        Mode::ResetAfterRequest => Some((Vec::new(), Then::Reset)),
        Mode::CutInStatusLine => text("HTTP/1.1 20", Then::Close),
        Mode::CutInHeaders => text("HTTP/1.1 200 OK\r\nContent-Le", Then::Close),
        Mode::CutInBody => text("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", Then::Close),
        Mode::ResetInBody => text("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", Then::Reset),
        Mode::TlsTruncated => text("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc", Then::Drop),
        Mode::CloseWhenIdle => text("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", Then::Close),

        Mode::HugeLength => head("Content-Length: 9223372036854775808", Then::Hold),
        Mode::OverflowLength => head("Content-Length: 18446744073709551616", Then::Hold),
        Mode::HugeChunk => chunked("ffffffffffffffff\r\nabc", Then::Hold),
        Mode::OverflowChunk => chunked("1ffffffffffffffffff\r\nabc", Then::Hold),
        Mode::BrokenChunk => chunked("3\r\nabc\r\nzz\r\n", Then::Hold),
        Mode::GzipBomb => encoded("gzip", &bomb::GZIP),
        Mode::DeflateBomb => encoded("deflate", &bomb::ZLIB),
        Mode::ZstdBomb => encoded("zstd", &bomb::ZSTD),
        Mode::StackedEncodings => encoded("br, gzip, deflate", &bomb::ZLIB),
        Mode::GiantHeader => head(&format!("X: {}", "x".repeat(1_000_000)), Then::Close),
        Mode::ManyHeaders => head("X: y\r\n".repeat(10_000).trim_end(), Then::Close),
        Mode::FatInformational => {
            let fat = format!("HTTP/1.1 103 Early Hints\r\nX: {}\r\n\r\n", "x".repeat(20_000));
            text(&(fat.repeat(8) + FORGED), Then::Close)
        }
        Mode::SwitchingProtocols => text(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\nx says hello",
            Then::Next,
        ),

        Mode::TwoAnswers => {
            text(&format!("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood{FORGED}"), Then::Next)
        }
        Mode::LengthAndChunked => text(
            &format!(
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{FORGED}"
            ),
            Then::Next,
        ),
        Mode::TwoLengths => head("Content-Length: 1\r\nContent-Length: 2", Then::Next),
        Mode::ListOfLengths => head("Content-Length: 1, 2", Then::Next),
        Mode::ChunkedNotLast => coded("chunked, identity"),
        Mode::UnknownCoding => coded("xchunked"),
        Mode::ObsoleteFold => head("X: a\r\n b\r\nContent-Length: 2", Then::Next),
        Mode::BareLineFeed => {
            text(&format!("HTTP/1.1 200 OK\nContent-Length: 2\n\nab{FORGED}"), Then::Next)
        }
        Mode::SpaceBeforeColon => head("X : a\r\nContent-Length: 2", Then::Next),
        Mode::NegativeLength => head("Content-Length: -1", Then::Next),
        Mode::SignedLength => head("Content-Length: +2", Then::Next),
        Mode::HexLength => head("Content-Length: 0x2", Then::Next),
        Mode::NulInHeader => head("X: a\0b\r\nContent-Length: 2", Then::Next),
        Mode::Http09 => text("<html>hello</html>\r\n\r\n", Then::Close),
        Mode::Http10 => text("HTTP/1.0 200 OK\r\n\r\nabc", Then::Close),
        Mode::Http20 => text("HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n", Then::Next),
        Mode::Http2Preface => text("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", Then::Next),
        // An empty SETTINGS frame and a GOAWAY.
        Mode::Http2Frames => Some((
            b"\0\0\0\x04\0\0\0\0\0\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\0".to_vec(),
            Then::Next,
        )),

        Mode::Status000 => status("000 Nothing"),
        Mode::Status99 => status("99 Little"),
        Mode::Status1000 => status("1000 Much"),
        Mode::StatusWord => status("abc Word"),
        Mode::Status600 => status("600 Unknown"),
        Mode::Status999 => status("999 Unknown"),
        Mode::NoContentWithBody => text(&with_hidden_answer("204 No Content"), Then::Next),
        Mode::NotModifiedWithBody => text(&with_hidden_answer("304 Not Modified"), Then::Next),
        Mode::ErrorIn200 => {
            body("200 OK", "application/json", br#"{"error":"it did not work at all"}"#)
        }
        Mode::Gone => status("410 Gone"),
        Mode::TooManyRequests => status("429 Too Many Requests"),
        Mode::BadGateway => status("502 Bad Gateway"),
        Mode::GatewayTimeout => status("504 Gateway Timeout"),

        Mode::RetryAfterExponent => later("9e18"),
        Mode::RetryAfterNegative => later("-1"),
        Mode::RetryAfterNan => later("NaN"),
        Mode::RetryAfterInfinity => later("inf"),
        Mode::RetryAfterDigits => later("99999999999999999999"),
        Mode::RetryAfterYear9999 => later("Fri, 01 Jan 9999 00:00:00 GMT"),
        Mode::RetryAfterLong => later(&"9".repeat(8_000)),
        Mode::RetryAfterMegabyte => later(&"9".repeat(1_000_000)),

        Mode::Redirect301 => elsewhere("301 Moved Permanently", &trap(stage)),
        Mode::Redirect302 => elsewhere("302 Found", &trap(stage)),
        Mode::Redirect303 => elsewhere("303 See Other", &trap(stage)),
        Mode::Redirect307 => elsewhere("307 Temporary Redirect", &trap(stage)),
        Mode::Redirect308 => elsewhere("308 Permanent Redirect", &trap(stage)),
        Mode::RedirectLoop => elsewhere("302 Found", &format!("http://{}/loop", stage.address)),
        Mode::RedirectMetadata => {
            elsewhere("307 Temporary Redirect", "//169.254.169.254/latest/meta-data/")
        }
        Mode::SetCookie => fine("Set-Cookie: id=1; Path=/; Max-Age=99999999"),
        Mode::StrictTransport => {
            fine("Strict-Transport-Security: max-age=99999999; includeSubDomains; preload")
        }
        Mode::AltSvc => fine(&format!("Alt-Svc: http/1.1=\"{}\"; ma=99999999", stage.trap)),
        Mode::Refresh => fine(&format!(
            "Refresh: 0; url={0}\r\nLink: <{0}>; rel=preload\r\nContent-Location: {0}",
            trap(stage)
        )),
        Mode::Hoard => fine("Keep-Alive: timeout=99999999, max=99999999"),

        Mode::BodyNotUtf8 => {
            body("500 No", "text/plain; charset=utf-8", b"\xFF\xFE\xC3\x28\xED\xA0\x80\xF0\x28")
        }
        Mode::BodyNul => body("500 No", "text/plain", b"before\0after\0"),
        Mode::BodyAnsi => {
            body("500 No", "text/plain", b"\x1B[2J\x1B]0;title\x07\x1B[31mred\r\n\x08")
        }
        Mode::BodyBidi => body(
            "500 No",
            "text/plain; charset=utf-8",
            "\u{202E}drowssap\u{2066}\u{200B}".as_bytes(),
        ),
        Mode::BodyScript => body(
            "500 No",
            "text/html",
            b"<script>alert(1)</script><svg onload=alert(2)>{{7*7}}</textarea>\xE2\x80\xA8",
        ),
        _ => None,
    }
}

fn trap(stage: &Stage) -> String {
    format!("http://{}/trap", stage.trap)
}

fn chunked(body: &str, then: Then) -> Option<(Vec<u8>, Then)> {
    Some((
        format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}").into_bytes(),
        then,
    ))
}

fn coded(coding: &str) -> Option<(Vec<u8>, Then)> {
    let head = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: {coding}\r\n\r\n");
    Some((format!("{head}2\r\nab\r\n0\r\n\r\n{FORGED}").into_bytes(), Then::Close))
}

fn encoded(coding: &str, bytes: &[u8]) -> Option<(Vec<u8>, Then)> {
    let length = bytes.len();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\nContent-Length: {length}\r\n\r\n"
    );
    Some(([head.as_bytes(), bytes].concat(), Then::Next))
}

/// These statuses have no body whatever the length says, so this one is left in the connection.
fn with_hidden_answer(status: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{FORGED}", FORGED.len())
}

fn body(status: &str, kind: &str, bytes: &[u8]) -> Option<(Vec<u8>, Then)> {
    let length = bytes.len();
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n");
    Some(([head.as_bytes(), bytes].concat(), Then::Next))
}

fn later(value: &str) -> Option<(Vec<u8>, Then)> {
    let head = "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\nRetry-After: ";
    Some((format!("{head}{value}\r\n\r\n").into_bytes(), Then::Next))
}

fn elsewhere(status: &str, location: &str) -> Option<(Vec<u8>, Then)> {
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nLocation: {location}\r\n\r\n");
    Some((head.into_bytes(), Then::Next))
}
