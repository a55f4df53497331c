//! Reading request bodies: media type, size and time are bounded before anything is parsed.

use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header};
use http_body_util::BodyExt as _;
use tokio::time::{Instant, timeout_at};

use crate::codes;
use crate::problem::{Problem, Result};

/// How long a body may take to arrive.
const BODY_TIME: Duration = Duration::from_secs(30);
/// How long it may take to begin.
const BODY_GRACE: Duration = Duration::from_secs(5);
/// How fast it must come from then on: a sender that drips bytes holds a connection and its memory.
const BODY_BYTES_PER_SECOND: usize = 1_024;

/// Until when the next piece must be there, when so much has arrived.
fn patience(arrived: usize) -> Duration {
    let earned = Duration::from_millis((arrived * 1_000 / BODY_BYTES_PER_SECOND) as u64);
    (BODY_GRACE + earned).min(BODY_TIME)
}

/// Refuses bodies that are not plain JSON.
pub(crate) fn check_media_type(headers: &HeaderMap) -> Result<()> {
    let refuse = |detail| Err(Problem::new(codes::UNSUPPORTED_MEDIA_TYPE, detail));
    if let Some(coding) = headers.get(header::CONTENT_ENCODING)
        && !coding.as_bytes().eq_ignore_ascii_case(b"identity")
    {
        return refuse("encoded bodies are not accepted: send no Content-Encoding");
    }
    let kind = headers.get(header::CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    // What nearly everybody sends.
    if kind == b"application/json" || is_json(kind) {
        return Ok(());
    }
    refuse("send Content-Type: application/json")
}

fn is_json(kind: &[u8]) -> bool {
    let Ok(kind) = std::str::from_utf8(kind) else { return false };
    let mut parts = kind.split(';').map(str::trim);
    if !parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case("application/json")) {
        return false;
    }
    parts.all(|parameter| match parameter.split_once('=') {
        Some((name, value)) if name.trim().eq_ignore_ascii_case("charset") => {
            let value = value.trim().trim_matches('"');
            value.eq_ignore_ascii_case("utf-8") || value.eq_ignore_ascii_case("utf8")
        }
        _ => true,
    })
}

/// The length a request announces.
fn announced(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Reads a body of at most `limit` bytes. One that arrives in one piece is not copied.
pub(crate) async fn read(headers: &HeaderMap, mut body: Body, limit: usize) -> Result<Bytes> {
    let announced = announced(headers);
    if announced.is_some_and(|length| length > limit) {
        return Err(too_large(limit));
    }
    let began = Instant::now();
    {
        let mut first = Bytes::new();
        let mut whole = BytesMut::new();
        loop {
            let arrived = first.len().max(whole.len());
            let next = timeout_at(began + patience(arrived), body.frame()).await;
            let Ok(next) = next else { return Err(too_slow(arrived)) };
            let Some(frame) = next else { break };
            let frame = frame.map_err(|e| {
                tracing::debug!(error = %e, "a body broke off");
                Problem::new(codes::INVALID_JSON, "the body broke off")
            })?;
            let Ok(data) = frame.into_data() else { continue };
            if arrived + data.len() > limit {
                return Err(too_large(limit));
            }
            if first.is_empty() && whole.is_empty() {
                first = data;
            } else {
                if whole.is_empty() {
                    whole.reserve(announced.unwrap_or(first.len() + data.len()));
                    whole.extend_from_slice(&first);
                }
                whole.extend_from_slice(&data);
            }
        }
        Ok(if whole.is_empty() { first } else { whole.freeze() })
    }
}

fn too_slow(arrived: usize) -> Problem {
    let detail = format!(
        "the body came too slowly: {arrived} bytes arrived; it must begin within 5 s, come with at \
         least 1 KiB/s, and be complete within 30 s"
    );
    Problem::new(codes::REQUEST_TIMEOUT, detail)
}

fn too_large(limit: usize) -> Problem {
    Problem::new(codes::PAYLOAD_TOO_LARGE, format!("the body may have at most {limit} bytes"))
}
