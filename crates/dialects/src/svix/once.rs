//! Doing what a POST asks for once, however often it is sent.
//!
//! Clients give every POST a key, and send it again when they do not hear an answer. The first to come claims the key in the store,
//! with a seed that ids are made of; its answer is kept for twelve hours. Whoever comes again gets that answer; whoever comes while
//! the first is still at it waits. Where the first was killed in the middle, the next one does it again with the same seed, and
//! so makes nothing that is there already. Answers that are no 2xx are not kept.

use std::time::Duration;

use axum::body::to_bytes;
use bytes::Bytes;
use http::{HeaderName, StatusCode};
use posthorn_domain::Timestamp;
use posthorn_engine::{Engine, Once, Turn};
use posthorn_listener::only;
use posthorn_sealing::hash;

use super::call::{Answer, Call, raw};
use super::failure::Failure;

/// Where clients give the key.
const HEADER: HeaderName = HeaderName::from_static("idempotency-key");
/// The longest key.
const KEY_BYTES_MAX: usize = 256;
/// How often it is looked whether the first has an answer, and how long.
const LOOK: Duration = Duration::from_millis(200);
const LOOKS_MAX: usize = 25;
/// Answers that are kept are small.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// What ids of new things are made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seed {
    at: Timestamp,
    random: u128,
}

impl Seed {
    /// For the engine.
    pub(super) const fn of_id(self) -> (Timestamp, u128) {
        (self.at, self.random)
    }

    /// For one of several things that a request makes, by its number.
    pub(super) const fn part(self, number: u128) -> (Timestamp, u128) {
        (self.at, self.random.wrapping_add(number << 8))
    }

    /// When the first try began.
    pub(super) const fn at(self) -> Timestamp {
        self.at
    }

    pub(super) const fn dice(self) -> u64 {
        self.random as u64
    }

    /// Whether something was made by an earlier try of the same request.
    pub(super) fn is_again(self, made_at: Timestamp) -> bool {
        made_at == self.at
    }
}

/// The key that a client gave, if any.
pub(super) fn key(call: &Call) -> Result<Option<&str>, Failure> {
    if !call.parts.headers.contains_key(HEADER) {
        return Ok(None);
    }
    let text = only(&call.parts.headers, &HEADER).filter(|text| text.len() <= KEY_BYTES_MAX);
    let problem = format!("must be given once, with at most {KEY_BYTES_MAX} characters");
    text.map(Some)
        .ok_or_else(|| Failure::at(&["header", "idempotency-key"], problem, super::failure::VALUE))
}

/// Under which name an answer is kept.
pub(super) fn name(call: &Call, key: &str) -> [u8; 32] {
    let url = call.parts.uri.path_and_query().map_or("", |own| own.as_str());
    hash::fingerprint(&[b"svix answer", &call.caller.token, key.as_bytes(), url.as_bytes()])
}

/// Does something, or repeats what was answered when it was done.
pub(super) async fn answer<F, Fut>(call: Call, act: F) -> Answer
where
    F: FnOnce(Call, Option<Seed>) -> Fut,
    Fut: Future<Output = Answer>,
{
    let Some(key) = key(&call)? else { return act(call, None).await };
    let (name, engine) = (name(&call, key), call.service.engine.clone());
    for _ in 0..LOOKS_MAX {
        match engine.once(name).await? {
            Once::Kept { status, body } => {
                let status = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
                return Ok(raw(status, body));
            }
            Once::Yours(turn) => {
                let (at, random) = turn.seed;
                let answer = act(call, Some(Seed { at, random })).await;
                return keep(&engine, turn, answer).await;
            }
            Once::Busy => tokio::time::sleep(LOOK).await,
        }
    }
    Err(Failure::Later {
        status: StatusCode::SERVICE_UNAVAILABLE,
        detail: "The same request is still being answered; try again.".to_owned(),
        wait: Some(Duration::from_secs(1)),
    })
}

async fn keep(engine: &Engine, turn: Turn, answer: Answer) -> Answer {
    let response = match answer {
        Ok(response) if response.status().is_success() => response,
        // Whether it is kept or not, the request was refused: the next try is a new one.
        other => {
            drop(engine.release(turn).await);
            return other;
        }
    };
    let (parts, body) = response.into_parts();
    let body = to_bytes(body, ANSWER_BYTES_MAX).await.unwrap_or_else(|_| Bytes::new());
    // What was done is done. When its answer cannot be kept, a repeat makes the same ids, and so the same thing.
    if let Err(error) = engine.keep(turn, parts.status.as_u16(), &body).await {
        tracing::warn!(%error, "the answer to a request cannot be kept for a repeat of it");
    }
    let mut again = raw(parts.status, body);
    if parts.status == StatusCode::NO_CONTENT {
        *again.headers_mut() = parts.headers;
    }
    Ok(again)
}
