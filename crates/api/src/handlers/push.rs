//! Push destinations: a subscription as browsers describe it, and the key they need for it.

use posthorn_engine::{PushInput, PushKeys};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::call::{Answer, Call};
use crate::respond;

/// What a browser's `PushSubscription.toJSON()` gives, and a little more.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Destination {
    /// Read so that there is exactly one kind now, and room for others.
    #[serde(rename = "type")]
    _kind: Kind,
    endpoint: String,
    keys: Option<Keys>,
    ttl: Option<u32>,
    /// Browsers have it and never use it: an endpoint counts until it is gone.
    #[serde(rename = "expirationTime")]
    _expiration: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Push,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    p256dh: String,
    auth: String,
}

impl From<Destination> for PushInput {
    fn from(destination: Destination) -> Self {
        let Destination { endpoint, keys, ttl, .. } = destination;
        let keys = keys.map(|Keys { p256dh, auth }| PushKeys { p256dh, auth });
        Self { endpoint, keys, ttl }
    }
}

#[derive(Serialize)]
struct SenderKey {
    public_key: String,
}

/// `GET /v1/push/key`.
pub(crate) async fn key(call: Call) -> Answer {
    let key = call.engine().push_key(call.tenant())?;
    respond::ok(&SenderKey { public_key: key.to_text() })
}
