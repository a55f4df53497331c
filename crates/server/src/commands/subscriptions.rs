//! `posthorn subscriptions`.

mod push;

use http::Method;
use http::header::IF_MATCH;
use posthorn_domain::Span;
use serde_json::{Map, Value, json};

use super::{Context, Limit, parse_pair, read_json};
use crate::client::{Call, segment};
use crate::terminal::{self, Paint};

use push::PushFields;

const FIELDS: [&str; 18] = [
    "id",
    "name",
    "url",
    "destination",
    "description",
    "labels",
    "status",
    "status_reason",
    "waiting",
    "failing_since",
    "profile",
    "policy",
    "filter",
    "version",
    "signing_secret",
    "public_keys",
    "created_at",
    "updated_at",
];

/// List, make, change and test subscriptions
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Command {
    /// List subscriptions, oldest first
    List(Limit),
    /// Show a subscription
    Show {
        /// Its id, sub_…, or its name
        id: String,
    },
    /// Make a subscription; a signing secret that is made for it is shown once
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
        /// The kind of signing secret to make: hmac, or ed25519, whose private half is never shown
        #[arg(long, value_name = "KIND", value_parser = ["hmac", "ed25519"])]
        secret_kind: Option<String>,
        /// Make it, but send nothing yet
        #[arg(long)]
        paused: bool,
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
    Pause {
        /// Its id or its name
        id: String,
    },
    /// Send again
    Resume {
        /// Its id or its name
        id: String,
    },
    /// Send one test event now, and show what came of it
    Test {
        /// Its id or its name
        id: String,
    },
    /// Replace a secret; the old one goes on signing for a while
    RotateSecret {
        /// Its id or its name
        id: String,
        /// Which secret
        #[arg(long, default_value = "signing")]
        name: String,
        /// The new secret; made when it is not given
        #[arg(long)]
        secret: Option<String>,
        /// The kind of secret to make: hmac or ed25519; that of the present one when not given
        #[arg(long, value_name = "KIND", value_parser = ["hmac", "ed25519"])]
        secret_kind: Option<String>,
        /// How long both sign, e.g. 24h
        #[arg(long)]
        overlap: Option<Span>,
    },
    /// Delete a subscription; no attempt starts afterwards
    Delete {
        /// Its id or its name
        id: String,
    },
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
    fn into_body(self) -> anyhow::Result<Map<String, Value>> {
        let mut body = Map::new();
        if let Some(filter) = &self.filter {
            body.insert("filter".to_owned(), read_json("the filter", filter)?);
        } else if !self.topics.is_empty() || !self.types.is_empty() {
            let mut group = Map::new();
            for (name, list) in [("topics", self.topics), ("types", self.types)] {
                if !list.is_empty() {
                    group.insert(name.to_owned(), json!(list));
                }
            }
            body.insert("filter".to_owned(), json!({ "any_of": [group] }));
        }
        if let Some(policy) = &self.policy {
            body.insert("policy".to_owned(), read_json("the policy", policy)?);
        }
        if !self.labels.is_empty() {
            let labels = self.labels.into_iter().map(|(name, value)| (name, Value::String(value)));
            body.insert("labels".to_owned(), Value::Object(labels.collect()));
        }
        let texts =
            [("profile", self.profile), ("name", self.name), ("description", self.description)];
        for (name, value) in texts {
            if let Some(value) = value {
                body.insert(name.to_owned(), Value::String(value));
            }
        }
        if !self.secrets.is_empty() {
            let secrets: Map<String, Value> = self
                .secrets
                .into_iter()
                .map(|(name, value)| (name, Value::String(value)))
                .collect();
            body.insert("secrets".to_owned(), Value::Object(secrets));
        }
        Ok(body)
    }
}

/// Runs it.
pub async fn run(context: &Context, command: Command) -> anyhow::Result<()> {
    let client = &context.client;
    let path = |id: &str| format!("/v1/subscriptions/{}", segment(id));
    match command {
        Command::List(limit) => list(context, limit).await,
        Command::Show { id } => context.show_one(&client.get(path(&id)).await?, &FIELDS),
        Command::Create { url, push, fields, secret_kind, paused } => {
            let mut body = fields.into_body()?;
            body.extend(secret_kind.map(|kind| ("secret_kind".to_owned(), Value::String(kind))));
            body.extend(url.map(|url| ("url".to_owned(), Value::String(url))));
            body.extend(push.into_destination()?.map(|push| ("destination".to_owned(), push)));
            if paused {
                body.insert("paused".to_owned(), Value::Bool(true));
            }
            let made = client.post("/v1/subscriptions", &Value::Object(body)).await?;
            if made.get("signing_secret").is_some() {
                terminal::note(Paint::stderr().warn("the signing secret is shown once; keep it"));
            }
            context.warn(&made);
            context.show_one(&made, &FIELDS)
        }
        Command::Update { id, url, push, fields, if_version } => {
            let mut body = fields.into_body()?;
            body.extend(url.map(|url| ("url".to_owned(), Value::String(url))));
            body.extend(push.into_destination()?.map(|push| ("destination".to_owned(), push)));
            let body = Value::Object(body).to_string();
            let mut call = Call::new(Method::PATCH, path(&id)).body(body);
            if let Some(version) = if_version {
                call = call.header(IF_MATCH, format!("\"{version}\""));
            }
            let changed = client.call(call).await?.json()?;
            context.warn(&changed);
            context.show_one(&changed, &FIELDS)
        }
        Command::Pause { id } => act(context, &format!("{}/pause", path(&id)), &FIELDS).await,
        Command::Resume { id } => act(context, &format!("{}/resume", path(&id)), &FIELDS).await,
        Command::Test { id } => {
            let fields = ["outcome", "status", "failure", "detail", "response"];
            act(context, &format!("{}/test", path(&id)), &fields).await
        }
        Command::RotateSecret { id, name, secret, secret_kind, overlap } => {
            let mut body = json!({ "name": name });
            if let Some(secret) = secret {
                body["secret"] = Value::String(secret);
            }
            if let Some(kind) = secret_kind {
                body["secret_kind"] = Value::String(kind);
            }
            if let Some(overlap) = overlap {
                body["overlap"] = Value::String(overlap.to_string());
            }
            let answer = client.post(format!("{}/rotate-secret", path(&id)), &body).await?;
            if answer.get("secret").is_some() {
                terminal::note(Paint::stderr().warn("the secret is shown once; keep it"));
            }
            context.show_one(&answer, &["secret", "public_keys"])
        }
        Command::Delete { id } => {
            client.call(Call::new(Method::DELETE, path(&id))).await?;
            context.done(format_args!("deleted {id}"));
            Ok(())
        }
    }
}

async fn list(context: &Context, limit: Limit) -> anyhow::Result<()> {
    let mut list = context.client.list("/v1/subscriptions", &[], limit.items()).await?;
    if !context.json {
        // In a table, the word stands where a webhook has its URL.
        for item in list.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(kind) = item.pointer("/destination/type").cloned() {
                item["url"] = kind;
            }
        }
    }
    let columns = [("ID", "id"), ("STATUS", "status"), ("NAME", "name"), ("URL", "url")];
    context.show_list(&list, &columns)
}

async fn act(context: &Context, path: &str, fields: &[&str]) -> anyhow::Result<()> {
    let answer = context.client.call(Call::new(Method::POST, path)).await?.json()?;
    context.show_one(&answer, fields)
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
