//! Destinations as the API writes them: a URL, or a channel as browsers describe it; and the key they need for it.

use posthorn_domain::{PushTopicRule, PushUrgency, Span};
use posthorn_engine::{DestinationInput, PushInput, PushKeys};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

use crate::call::{Answer, Call};
use crate::problem::{Problem, Result};
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
    ttl: Option<Span>,
    urgency: Option<PushUrgency>,
    topic: Option<PushTopicRule>,
    application_server_key: Option<String>,
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

/// Where a subscription's `url` or `destination` leads; one of the two at most.
pub(super) fn one_of(
    url: Option<String>,
    destination: Option<Destination>,
) -> Result<Option<DestinationInput>> {
    match (url, destination) {
        (Some(_), Some(_)) => {
            let problem = "cannot be combined with url; leave one of the two out";
            Err(Problem::field("destination", problem))
        }
        (Some(url), None) => Ok(Some(DestinationInput::Webhook(url))),
        (None, Some(destination)) => {
            let Destination { endpoint, keys, ttl, urgency, topic, .. } = destination;
            let keys = keys.map(|Keys { p256dh, auth }| PushKeys { p256dh, auth });
            let ttl = ttl.map(whole_seconds).transpose()?;
            Ok(Some(DestinationInput::Push(PushInput {
                endpoint,
                keys,
                ttl,
                urgency: urgency.unwrap_or_default(),
                topic,
                application_server_key: destination.application_server_key,
            })))
        }
        (None, None) => Ok(None),
    }
}

/// Web Push counts in seconds. One that is too long for a number is too long for the server, too.
fn whole_seconds(ttl: Span) -> Result<u32> {
    match ttl.as_millis() % 1_000 {
        0 => Ok(u32::try_from(ttl.as_millis() / 1_000).unwrap_or(u32::MAX)),
        _ => Err(Problem::field("destination.ttl", "must be whole seconds")),
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
