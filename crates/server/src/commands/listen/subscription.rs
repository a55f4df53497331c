//! The subscription that leads to an agent, on the server.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::identity::Identity;
use crate::client::{Call, Client};
use crate::exit::{Code, Failure};
use crate::terminal;

fn call(method: Method, id: &str) -> Call {
    Call::new(method, format!("/v1/subscriptions/{id}"))
}

/// Whether it is there.
pub(super) async fn exists(client: &Client, id: &str) -> anyhow::Result<bool> {
    if client.exchange(call(Method::GET, id)).await?.status == StatusCode::NOT_FOUND {
        return Ok(false);
    }
    client.call(call(Method::GET, id)).await?;
    Ok(true)
}

/// Makes one for what this agent listens to; its id.
pub(super) async fn create(
    client: &Client,
    identity: &Identity,
    endpoint: &str,
    profile: Option<&str>,
) -> anyhow::Result<String> {
    let receiver = identity.keys.receiver();
    let auth = receiver.auth_text();
    let mut body = json!({
        "destination": {
            "type": "push",
            "endpoint": endpoint,
            "keys": {"p256dh": receiver.key().to_text(), "auth": auth.expose_str()},
        },
        "description": "posthorn listen --push",
        "filter": {"any_of": [{"topics": [identity.topic]}]},
    });
    if let Some(profile) = profile {
        body["profile"] = Value::from(profile);
    }
    let made = client.post("/v1/subscriptions", &body).await?;
    Ok(terminal::cell(&made, "id"))
}

/// Removes it, if it is there.
pub(super) async fn remove(client: &Client, id: &str) -> anyhow::Result<()> {
    let status = client.exchange(call(Method::DELETE, id)).await?.status;
    if status.is_success() || status == StatusCode::NOT_FOUND {
        return Ok(());
    }
    let hint = format!("remove it with `posthorn subscriptions delete {id}`");
    let message = format!("{id} could not be removed: {status}");
    Err(Failure::new(Code::Failure, message).hint(hint).into())
}
