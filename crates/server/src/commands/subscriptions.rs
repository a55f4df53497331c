//! `posthorn subscriptions`.

mod push;

use std::collections::BTreeMap;

use http::Method;
use http::header::IF_MATCH;
use posthorn_domain::Span;
use serde_json::{Value, json};

use super::finding;
use super::jobs::{self, Past};
use super::noun::{Noun, given};
use super::{Context, Limit, looking, names, parse_pair, read_json};
use crate::client::Call;
use crate::terminal::{self, Paint};

use push::PushFields;

const SUBSCRIPTIONS: Noun = Noun {
    path: "subscriptions",
    columns: "ID id, STATUS status, NAME name, URL url",
    fields: "id name url destination description labels metadata status status_reason waiting \
             failing_since profile policy filter version signing_secret public_keys created_at updated_at",
};

/// Which one.
#[derive(clap::Args, Clone, Debug)]
pub struct Known {
    /// Its id or its name
    id: String,
}

/// List, show, create, change and test subscriptions
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Command {
    /// List subscriptions, oldest first
    List(Limit),
    /// Show a subscription
    Show {
        /// Its id, sub_…, or its name
        id: String,
    },
    /// Show how a subscription is doing: breaker, concurrency, rate, lanes, the last hour
    Health(Known),
    /// Create a subscription; a signing secret that is created for it is shown once
    Create {
        /// Where to, unless it is a browser
        #[arg(
            required_unless_present_any = ["push", "push_endpoint"],
            conflicts_with_all = ["push", "push_endpoint"]
        )]
        url: Option<String>,
        /// To whom, if it is a browser.
        #[command(flatten)]
        push: Box<PushFields>,
        /// What it is like.
        #[command(flatten)]
        fields: Box<Fields>,
        /// The kind of signing secret to create: hmac, or ed25519, whose private half is never shown
        #[arg(long, value_name = "KIND", value_parser = ["hmac", "ed25519"])]
        secret_kind: Option<String>,
        /// Create it, but send nothing yet
        #[arg(long)]
        paused: bool,
        /// Begin in the past: at a time, or 2h for two hours ago, or with an event (evt_…)
        #[arg(long, value_name = "TIME or EVENT")]
        start: Option<String>,
    },
    /// Change fields of a subscription; what is not given stays
    Update {
        /// Its id or its name
        id: String,
        /// Where to
        #[arg(long, conflicts_with_all = ["push", "push_endpoint"])]
        url: Option<String>,
        /// To whom, if it is a browser.
        #[command(flatten)]
        push: Box<PushFields>,
        /// What it is like.
        #[command(flatten)]
        fields: Box<Fields>,
        /// Only if this is still its version
        #[arg(long, value_name = "VERSION")]
        if_version: Option<u64>,
    },
    /// Stop sending; events go on matching and wait
    Pause(Known),
    /// Send again
    Resume(Known),
    /// Deliver events of the past to it, at a pace
    Replay {
        /// Its id or name
        id: String,
        /// Which events.
        #[command(flatten)]
        past: Past,
    },
    /// Send one test event now, and show what came of it
    Test(Known),
    /// Replace a secret; the old one goes on signing for a while
    RotateSecret {
        /// Its id or its name
        id: String,
        /// Which secret
        #[arg(long, default_value = "signing")]
        name: String,
        /// The new secret; created when it is not given
        #[arg(long)]
        secret: Option<String>,
        /// The kind of secret to create: hmac or ed25519; that of the present one when not given
        #[arg(long, value_name = "KIND", value_parser = ["hmac", "ed25519"])]
        secret_kind: Option<String>,
        /// How long both sign, e.g. 24h
        #[arg(long)]
        overlap: Option<Span>,
    },
    /// Delete a subscription; no attempt starts afterwards
    Delete(Known),
}

/// Fields that creation and change share.
#[derive(clap::Args, Clone, Debug)]
pub struct Fields {
    /// Only events of this topic; may be repeated
    #[arg(long = "topic", value_name = "TOPIC")]
    topics: Vec<String>,
    /// Only events of this type, e.g. order.*; may be repeated
    #[arg(long = "type", value_name = "TYPE")]
    types: Vec<String>,
    /// A whole filter, as JSON, @FILE or - for stdin
    #[arg(long, value_name = "JSON", conflicts_with_all = ["topics", "types"])]
    filter: Option<String>,
    /// The profile
    #[arg(long)]
    profile: Option<String>,
    /// Changes to the profile, as JSON, @FILE or - for stdin
    #[arg(long, value_name = "JSON")]
    policy: Option<String>,
    /// A name, unique in the tenant
    #[arg(long)]
    name: Option<String>,
    /// For people
    #[arg(long)]
    description: Option<String>,
    /// Something to remember; may be repeated, and replaces all there were
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = parse_pair)]
    labels: Vec<(String, String)>,
    /// Something of your own to keep with it; may be repeated, and replaces all there was
    #[arg(long = "metadata", value_name = "NAME=VALUE", value_parser = parse_pair)]
    metadata: Vec<(String, String)>,
    /// A secret, as VALUE for `signing` or NAME=VALUE; may be repeated
    #[arg(long = "secret", value_name = "[NAME=]VALUE", value_parser = parse_secret)]
    secrets: Vec<(String, String)>,
}

/// Secrets end in `=` where they are base64, so only a name before the sign makes it a pair.
fn parse_secret(text: &str) -> Result<(String, String), String> {
    let is_name = |name: &str| !name.is_empty() && !name.starts_with("wh");
    match text.split_once('=') {
        Some((name, value)) if is_name(name) && !value.is_empty() => {
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Ok(("signing".to_owned(), text.to_owned())),
    }
}

impl Fields {
    fn into_body(self) -> anyhow::Result<Value> {
        let pairs = |list: Vec<(String, String)>| -> Option<BTreeMap<_, _>> {
            (!list.is_empty()).then(|| list.into_iter().collect())
        };
        let mut body = given(json!({
            "profile": self.profile, "name": self.name, "description": self.description,
            "labels": pairs(self.labels), "metadata": pairs(self.metadata), "secrets": pairs(self.secrets),
        }));
        if let Some(filter) = &self.filter {
            body["filter"] = read_json("the filter", filter)?;
        } else if !self.topics.is_empty() || !self.types.is_empty() {
            let some = |list: Vec<String>| Some(list).filter(|list| !list.is_empty());
            let group = given(json!({"topics": some(self.topics), "types": some(self.types)}));
            body["filter"] = json!({ "any_of": [group] });
        }
        if let Some(policy) = &self.policy {
            body["policy"] = read_json("the policy", policy)?;
        }
        Ok(body)
    }

    /// The same with where to.
    fn leading(self, url: Option<String>, push: PushFields) -> anyhow::Result<Value> {
        let mut body = self.into_body()?;
        if let Some(url) = url {
            body["url"] = url.into();
        }
        if let Some(destination) = push.into_destination()? {
            body["destination"] = destination;
        }
        Ok(body)
    }
}

/// Runs it.
pub async fn run(context: &Context, command: Command) -> anyhow::Result<()> {
    let client = &context.client;
    match command {
        Command::List(limit) => list(context, limit).await,
        Command::Show { id } => SUBSCRIPTIONS.show(context, &id).await,
        Command::Health(Known { id }) => looking::health(context, &SUBSCRIPTIONS.at(&id)).await,
        Command::Create { url, push, fields, secret_kind, paused, start } => {
            let mut body = fields.leading(url, *push)?;
            if let Some(kind) = secret_kind {
                body["secret_kind"] = kind.into();
            }
            if let Some(start) = start {
                body["start"] = finding::start(&start)?;
            }
            if paused {
                body["paused"] = true.into();
            }
            let made = client.post("/v1/subscriptions", &body).await?;
            if made.get("signing_secret").is_some() {
                terminal::note(Paint::stderr().warn("the signing secret is shown once; keep it"));
            }
            context.warn(&made);
            context.show_one(&made, SUBSCRIPTIONS.fields)
        }
        Command::Update { id, url, push, fields, if_version } => {
            let body = fields.leading(url, *push)?.to_string();
            let mut call = Call::new(Method::PATCH, SUBSCRIPTIONS.at(&id)).body(body);
            if let Some(version) = if_version {
                call = call.header(IF_MATCH, format!("\"{version}\""));
            }
            let changed = client.call(call).await?.json()?;
            context.warn(&changed);
            context.show_one(&changed, SUBSCRIPTIONS.fields)
        }
        Command::Pause(Known { id }) => act(context, &id, "pause", SUBSCRIPTIONS.fields).await,
        Command::Resume(Known { id }) => act(context, &id, "resume", SUBSCRIPTIONS.fields).await,
        Command::Replay { id, past } => jobs::replay(context, &id, &past).await,
        Command::Test(Known { id }) => {
            act(context, &id, "test", "outcome status failure detail response").await
        }
        Command::RotateSecret { id, name, secret, secret_kind, overlap } => {
            let body = given(json!({
                "name": name, "secret": secret, "secret_kind": secret_kind, "overlap": overlap,
            }));
            let path = format!("{}/rotate-secret", SUBSCRIPTIONS.at(&id));
            let answer = client.post(path, &body).await?;
            if answer.get("secret").is_some() {
                terminal::note(Paint::stderr().warn("the secret is shown once; keep it"));
            }
            context.show_one(&answer, "secret public_keys")
        }
        Command::Delete(Known { id }) => SUBSCRIPTIONS.delete(context, &id, "deleted").await,
    }
}

async fn list(context: &Context, limit: Limit) -> anyhow::Result<()> {
    let mut list = SUBSCRIPTIONS.find(context, &[], limit).await?;
    if !context.json {
        // In a table, the word stands where a webhook has its URL, with the origin of another service.
        for item in names::items(&mut list) {
            let service = item.pointer("/destination/service").and_then(Value::as_str);
            let kind = item.pointer("/destination/type").and_then(Value::as_str);
            let shown = kind.map(|kind| match service {
                Some(service) => format!("{kind} {service}"),
                None => kind.to_owned(),
            });
            if let Some(shown) = shown {
                item["url"] = shown.into();
            }
        }
    }
    context.show_list(&list, SUBSCRIPTIONS.columns)
}

async fn act(context: &Context, id: &str, verb: &str, fields: &str) -> anyhow::Result<()> {
    context.show_one(&SUBSCRIPTIONS.act(context, id, verb).await?, fields)
}

#[cfg(test)]
mod tests {
    use super::parse_secret;

    #[test]
    fn secrets_keep_their_padding() {
        let pair = |name: &str, value: &str| Ok((name.to_owned(), value.to_owned()));
        assert_eq!(parse_secret("whsec_abc=="), pair("signing", "whsec_abc=="));
        assert_eq!(parse_secret("token=abc=="), pair("token", "abc=="));
        assert_eq!(parse_secret("plain"), pair("signing", "plain"));
    }
}
