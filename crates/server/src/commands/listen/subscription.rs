//! The subscription that leads to an agent, on the server.

use http::{Method, StatusCode};
use serde_json::{Map, Value, json};

use super::identity::Identity;
use crate::client::{Call, Client};
use crate::exit::{Code, Failure};
use crate::terminal;

fn call(method: Method, id: &str) -> Call {
    Call::new(method, format!("/v1/subscriptions/{id}"))
}

/// What it is called: there is one for each channel, whoever was killed while making it.
fn name(identity: &Identity) -> String {
    format!("listen-{}", identity.channel)
}

fn destination(identity: &Identity, endpoint: &str) -> Value {
    let receiver = identity.keys.receiver();
    let auth = receiver.auth_text();
    json!({
        "type": "push",
        "endpoint": endpoint,
        "keys": {"p256dh": receiver.key().to_text(), "auth": auth.expose_str()},
    })
}

/// One that is there.
pub(super) struct Found {
    pub(super) id: String,
    status: String,
    reason: String,
    profile: String,
}

/// The one that leads to this agent, by its id or, where that was not kept any more, by its name.
pub(super) async fn find(client: &Client, identity: &Identity) -> anyhow::Result<Option<Found>> {
    let found = match &identity.subscription {
        Some(id) => {
            if client.exchange(call(Method::GET, id)).await?.status == StatusCode::NOT_FOUND {
                return Ok(None);
            }
            client.call(call(Method::GET, id)).await?.json()?
        }
        None => {
            let named = client.get(&format!("/v1/subscriptions?name={}", name(identity))).await?;
            match named["items"].as_array().and_then(|items| items.first()) {
                Some(found) => found.clone(),
                None => return Ok(None),
            }
        }
    };
    let text = |name: &str| found[name].as_str().unwrap_or_default().to_owned();
    Ok(Some(Found {
        id: text("id"),
        status: text("status"),
        reason: text("status_reason"),
        profile: text("profile"),
    }))
}

impl Found {
    /// Somebody wants nothing to be sent, and nothing would come.
    pub(super) fn refuse_paused(&self) -> Result<(), Failure> {
        if self.status != "paused" {
            return Ok(());
        }
        let message = format!("{} is paused: no event would come", self.id);
        let hint = format!("go on with `posthorn subscriptions resume {}`", self.id);
        Err(Failure::new(Code::Failure, message).hint(hint))
    }

    /// Sees to it that events come here: with the profile that is wanted, and though it was given up
    /// while nobody was here.
    pub(super) async fn freshen(
        &self,
        client: &Client,
        identity: &Identity,
        endpoint: &str,
        profile: Option<&str>,
    ) -> anyhow::Result<()> {
        let mut change = Map::new();
        if let Some(profile) = profile.filter(|profile| *profile != self.profile) {
            change.insert("profile".to_owned(), Value::from(profile));
            terminal::note(format!("{} has the profile {profile} from now on", self.id));
        }
        let disabled = self.status == "disabled";
        if disabled {
            change.insert("destination".to_owned(), destination(identity, endpoint));
        }
        if !change.is_empty() {
            let patch = call(Method::PATCH, &self.id).body(Value::Object(change).to_string());
            client.call(patch).await?;
        }
        if disabled {
            client.call(call(Method::POST, &format!("{}/resume", self.id))).await?;
            let reason = terminal::clean(&self.reason);
            terminal::note(format!("{} was disabled ({reason}) and goes on", self.id));
        }
        Ok(())
    }
}

/// Makes one for what this agent listens to; its id.
pub(super) async fn create(
    client: &Client,
    identity: &Identity,
    endpoint: &str,
    profile: Option<&str>,
) -> anyhow::Result<String> {
    let mut body = json!({
        "name": name(identity),
        "destination": destination(identity, endpoint),
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
