//! `posthorn keys`: API keys over the API, and seal keys without a server.

mod recover;
mod rotate;

use std::path::{Path, PathBuf};

use posthorn_domain::{Clock as _, KeyId};
use posthorn_sealing::api_key;
use posthorn_sealing::endpoint_token::EndpointKey;
use posthorn_sealing::node_key::NodeKey;
use posthorn_sealing::vapid::SenderKey;
use posthorn_sealing::vault::VaultKey;
use serde_json::{Value, json};

use super::noun::{Id, Noun, given};
use super::{Context, Limit, names};
use crate::client::Access;
use crate::clock::WallClock;
use crate::private_file;
use crate::terminal::{self, Paint};

const KEYS: Noun = Noun {
    path: "keys",
    columns: "ID id, TENANT tenant, SCOPES scopes, DESCRIPTION description, ENDS ends, \
              USED since:last_used_at",
    fields: "key id tenant scopes description created_at expires_at rate_limit",
};

/// List, make, revoke and recover API keys; make a seal key
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Command {
    /// List keys; the secret halves are never shown again
    List(Limit),
    /// Make a key; it is shown once
    ///
    /// A key with the scope `operator` belongs to no tenant; any other belongs to --tenant, or to
    /// the tenant `default`.
    Create {
        /// What it may do: publish, subscriptions, read, operator; may be repeated
        #[arg(long = "scope", required = true, value_name = "SCOPE")]
        scopes: Vec<String>,
        /// For people
        #[arg(long, default_value = "")]
        description: String,
        /// When it stops working, e.g. 2027-01-01T00:00:00Z
        #[arg(long, value_name = "TIME")]
        expires_at: Option<String>,
        /// Requests, and events of batches, per second; the server's default when absent
        #[arg(long, value_name = "NUMBER")]
        rate_limit: Option<u32>,
    },
    /// Revoke a key; it opens nothing from then on
    Revoke(Id),
    /// Change the key that seals secrets at rest, while the server runs
    ///
    /// Three steps, each of which may be repeated or be cut short: `--begin FILE` puts a new key in
    /// front of the old one; then the server is started anew; `--finish FILE` seals everything anew,
    /// checks it, and takes the old key out. Without either, everything is sealed anew.
    RotateSeal {
        /// The file of the key, e.g. posthorn-data/seal.key: put a new key first; needs no server
        #[arg(long, value_name = "FILE", conflicts_with = "finish")]
        begin: Option<PathBuf>,
        /// The same file: seal everything anew, and move the old key to FILE.former
        #[arg(long, value_name = "FILE")]
        finish: Option<PathBuf>,
    },
    /// Show the key for which browsers subscribe to events of this tenant (applicationServerKey)
    Push,
    /// Show the keys of Web Push endpoints that belong to seal keys; needs no server
    ///
    /// Whoever takes a seal key out by hand keeps its endpoint key in push.endpoint_keys or in
    /// endpoint.keys beside the seal key, or endpoints made with it are dead. `rotate-seal --finish`
    /// does so itself.
    EndpointKeys {
        /// The file of seal keys, e.g. posthorn-data/seal.key; /dev/stdin reads what is typed
        file: PathBuf,
    },
    /// Make a new operator key without a server, when nobody has one that works
    Recover(Box<recover::Args>),
    /// Make a key of any kind that the configuration or a sender needs; needs no server
    ///
    /// `operator` is the first key of a new server (keys.bootstrap), which takes it in at its start,
    /// `seal` seals secrets at rest (seal.key), `endpoint` makes endpoints of Web Push
    /// (push.endpoint_keys), `node` signs calls between nodes (push.internal.key), `sender` is a VAPID
    /// key of an application server, whose public half is shown too.
    Generate {
        /// operator, seal, endpoint, node or sender
        kind: Kind,
        /// Write it to a new file that only its owner can read, instead of stdout
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
    /// Make a key for sealing secrets at rest; needs no server
    GenerateSeal {
        /// Write it to a new file that only its owner can read, instead of stdout
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
}

/// A kind of key.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The first operator key of a new server
    Operator,
    /// Seals secrets at rest
    Seal,
    /// Makes endpoints of Web Push
    Endpoint,
    /// Signs calls between nodes
    Node,
    /// Signs what an application server sends (VAPID)
    Sender,
}

/// In a table, one word says until when a key works.
fn say_end(key: &mut Value) {
    let revoked = key.get("revoked_at").is_some();
    let ends = if revoked { "revoked".to_owned() } else { terminal::cell(key, "until:expires_at") };
    key["ends"] = Value::String(ends);
}

/// Runs it.
pub async fn run(access: &Access, json: bool, command: &Command) -> anyhow::Result<()> {
    if let Command::GenerateSeal { to } = command {
        return generate(Kind::Seal, to.as_deref(), json);
    }
    if let Command::Generate { kind, to } = command {
        return generate(*kind, to.as_deref(), json);
    }
    if let Command::Recover(args) = command {
        return recover::run(args, json).await;
    }
    if let Command::RotateSeal { begin: Some(file), .. } = command {
        return rotate::begin(file);
    }
    if let Command::EndpointKeys { file } = command {
        return rotate::endpoint_keys(file);
    }
    let context = Context::new(access, json)?;
    match command {
        Command::RotateSeal { finish, .. } => rotate::run(&context, finish.as_deref()).await,
        Command::Push => context.show_one(&context.client.get("/v1/push/key").await?, "public_key"),
        Command::List(limit) => {
            let mut list = KEYS.find(&context, &[], *limit).await?;
            if !context.json {
                names::name_tenants(&context, names::items(&mut list)).await?;
                names::items(&mut list).iter_mut().for_each(say_end);
            }
            context.show_list(&list, KEYS.columns)
        }
        Command::Create { scopes, description, expires_at, rate_limit } => {
            let of_tenant = !scopes.iter().any(|scope| scope == "operator");
            let tenant = of_tenant.then(|| access.tenant.as_deref().unwrap_or("default"));
            let body = given(json!({
                "scopes": scopes, "description": description, "tenant": tenant,
                "expires_at": expires_at, "rate_limit": rate_limit,
            }));
            let made = context.client.post("/v1/keys", &body).await?;
            terminal::note(Paint::stderr().warn("the key is shown once; keep it"));
            context.show_one(&made, KEYS.fields)
        }
        Command::Revoke(Id { id }) => KEYS.delete(&context, id, "revoked").await,
        Command::Generate { .. }
        | Command::GenerateSeal { .. }
        | Command::EndpointKeys { .. }
        | Command::Recover(_) => Ok(()),
    }
}

fn generate(kind: Kind, to: Option<&Path>, json: bool) -> anyhow::Result<()> {
    let (text, public, place) = match kind {
        Kind::Operator => {
            let (secret, _) = api_key::generate(KeyId::new(WallClock.now(), rand::random()));
            let text = secret.expose_str().unwrap_or_default().to_owned();
            (text, None, "keys: {bootstrap: file:FILE}")
        }
        Kind::Seal => (VaultKey::generate().to_text(), None, "seal: {key: file:FILE}"),
        Kind::Endpoint => {
            (EndpointKey::generate().to_text(), None, "push: {endpoint_keys: [file:FILE]}")
        }
        Kind::Node => (NodeKey::generate().to_text(), None, "push: {internal: {key: file:FILE}}"),
        Kind::Sender => {
            let key = SenderKey::generate();
            let text = key.to_text().expose_str().unwrap_or_default().to_owned();
            (text, Some(key.public_key().to_text()), "vapid_private_key of a Web Push library")
        }
    };
    match to {
        None if json => {
            let mut shown = json!({"key": text});
            if let Some(public) = public {
                shown["public_key"] = public.into();
            }
            return Ok(terminal::json(&shown)?);
        }
        None => terminal::data(text)?,
        Some(path) => {
            private_file::write_new(path, "the key", std::iter::once(text))?;
            let shown = path.display().to_string();
            let place = place.replace("FILE", &shown);
            terminal::note(format!("wrote {shown}; use it with `{place}`"));
        }
    }
    if let Some(public) = public {
        terminal::note(format!("its public half (applicationServerKey): {public}"));
    }
    Ok(())
}
