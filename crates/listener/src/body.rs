//! Reading request bodies: media type, size, time and memory are bounded before anything is parsed.

use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header};
use http_body_util::BodyExt as _;
use tokio::time::{Instant, timeout_at};

use crate::bodies::{Bodies, Loan, Owner};

/// Why a body was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// It has more bytes than it may.
    #[error("the body must be at most {limit} bytes")]
    TooLarge {
        /// How many it may have.
        limit: usize,
    },
    /// It came too slowly.
    #[error(
        "the body was too slow: {arrived} bytes arrived; it must begin within 5 s, arrive at 1 \
         KiB/s or faster, and be complete within 30 s"
    )]
    TooSlow {
        /// What had arrived by then.
        arrived: usize,
    },
    /// The connection, or its framing, ended before the body did.
    #[error("the body ended early")]
    BrokeOff,
    /// It is compressed, or worse.
    #[error("encoded bodies are not accepted: send no Content-Encoding")]
    Encoded,
    /// The caller has as many bytes of bodies under way as it may.
    #[error("too many large request bodies of the same caller are in progress; send fewer at once")]
    ShareTaken,
    /// All callers together have.
    #[error("too many large request bodies are in progress; retry later")]
    NoRoom,
    /// It does not say that it is JSON.
    #[error("send Content-Type: application/json")]
    NotJson,
}

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

/// Refuses bodies that are not plain JSON by what their headers say.
pub fn check_json(headers: &HeaderMap) -> Result<(), BodyError> {
    check_coding(headers)?;
    let kind = headers.get(header::CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes());
    // What nearly everybody sends.
    if kind == b"application/json" || is_json(kind) {
        return Ok(());
    }
    Err(BodyError::NotJson)
}

/// Refuses bodies that are compressed or otherwise encoded.
pub fn check_coding(headers: &HeaderMap) -> Result<(), BodyError> {
    match headers.get(header::CONTENT_ENCODING) {
        Some(coding) if !coding.as_bytes().eq_ignore_ascii_case(b"identity") => {
            Err(BodyError::Encoded)
        }
        _ => Ok(()),
    }
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

/// A body, and what it was lent. The loan is to be kept as long as the bytes are.
#[derive(Debug)]
pub struct Whole {
    /// The bytes.
    pub bytes: Bytes,
    /// Its memory, when it did not fit into what its connection has anyway.
    pub loan: Option<Loan>,
}

/// The least that is lent for a body that does not say how large it is; then it doubles.
const GROWTH_BYTES: usize = 64 * 1024;

/// Reads a body of at most `limit` bytes. One that arrives in one piece is not copied. `lender` gives
/// memory for any other, on the account of its owner; without one, `limit` must be small.
pub async fn read(
    headers: &HeaderMap,
    mut body: Body,
    limit: usize,
    lender: Option<(&Bodies, Owner)>,
) -> Result<Whole, BodyError> {
    let announced = announced(headers);
    if announced.is_some_and(|length| length > limit) {
        return Err(BodyError::TooLarge { limit });
    }
    let mut began = Instant::now();
    let mut first = Bytes::new();
    let mut whole = BytesMut::new();
    let mut loan: Option<Loan> = None;
    let mut lent = 0;
    loop {
        let arrived = first.len().max(whole.len());
        let next = timeout_at(began + patience(arrived), body.frame()).await;
        let Ok(next) = next else { return Err(BodyError::TooSlow { arrived }) };
        let Some(frame) = next else { break };
        let frame = frame.map_err(|e| {
            tracing::debug!(error = %e, "a request body ended early");
            BodyError::BrokeOff
        })?;
        let Ok(data) = frame.into_data() else { continue };
        let needed = arrived + data.len();
        if needed > limit {
            return Err(BodyError::TooLarge { limit });
        }
        if first.is_empty() && whole.is_empty() {
            first = data;
            continue;
        }
        if needed > lent {
            let grown = announced.unwrap_or_else(|| (2 * needed).max(GROWTH_BYTES).min(limit));
            let grown = grown.max(needed);
            match (&mut loan, lender) {
                (_, None) => {}
                (Some(loan), Some(_)) => loan.grow_to(grown)?,
                (None, Some((bodies, owner))) => {
                    let asked = Instant::now();
                    loan = Some(bodies.lend(owner, grown).await?);
                    // The sender had to wait for us.
                    began += asked.elapsed();
                }
            }
            lent = grown;
            whole.reserve(grown - whole.len());
        }
        if whole.is_empty() {
            whole.extend_from_slice(&first);
            first = Bytes::new();
        }
        whole.extend_from_slice(&data);
    }
    let bytes = if whole.is_empty() { first } else { whole.freeze() };
    Ok(Whole { bytes, loan })
}
