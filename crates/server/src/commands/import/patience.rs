//! Calls that are repeated for a while when a server is busy or away, and no longer.

use std::time::Duration;

use http::StatusCode;
use http::header::RETRY_AFTER;

use crate::client::{Call, Client, Reply};
use crate::exit::{self, Code};

/// Tries of one call, and the wait before the second. Each further wait is twice as long.
pub(super) const TRIES: u32 = 5;
const WAIT: Duration = Duration::from_millis(200);
/// The longest wait that a server may ask for.
const WAIT_MAX: Duration = Duration::from_secs(30);

/// Whether the same call may get another answer later.
pub(super) fn is_passing(status: StatusCode) -> bool {
    status == StatusCode::TOO_MANY_REQUESTS
        || (status.is_server_error() && status != StatusCode::NOT_IMPLEMENTED)
}

/// How long to wait after so many tries, unless the answer says it.
pub(super) async fn pause(tries: u32, reply: Option<&Reply>) {
    let asked = reply.and_then(|reply| reply.headers.get(RETRY_AFTER)?.to_str().ok()?.parse().ok());
    let wait = asked.map_or_else(|| WAIT * 2_u32.saturating_pow(tries), Duration::from_secs);
    tokio::time::sleep(wait.min(WAIT_MAX)).await;
}

/// Makes a call that may be repeated, until it gets an answer that counts or has been tried often enough.
pub(super) async fn exchange(client: &Client, call: &Call) -> anyhow::Result<Reply> {
    for tries in 0..TRIES - 1 {
        match client.exchange(call.clone()).await {
            Ok(reply) if is_passing(reply.status) => pause(tries, Some(&reply)).await,
            Ok(reply) => return Ok(reply),
            Err(error) if exit::code_of(&error) == Code::Usage => return Err(error),
            Err(_) => pause(tries, None).await,
        }
    }
    client.exchange(call.clone()).await
}
