//! `posthorn push`: what there is of Web Push, one agent of it, and its keys.

use std::path::{Path, PathBuf};

use posthorn_sealing::endpoint_token::EndpointKey;
use posthorn_sealing::node_key::NodeKey;
use posthorn_sealing::vapid::SenderKey;
use serde_json::json;

use super::new_key::{NewKey, To};
use super::{Context, read_argument, seal};
use crate::client::{Access, segment};
use crate::seal::endpoints;
use crate::terminal;

/// Look at Web Push and its agents; show and create its keys
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Command {
    /// Show how many agents and messages there are, and where agents are connected; for operators
    Status,
    /// Show an agent: its channels, when it was seen last, how many messages wait; for operators
    ///
    /// Contents of messages and keys are never shown.
    Agent {
        /// Its UAID, or an endpoint of it; @FILE or - to read it from elsewhere
        who: String,
    },
    /// Show the key for which browsers subscribe to events of this tenant (applicationServerKey)
    ShowKey,
    /// Show the keys of endpoints that belong to seal keys; needs no server
    ///
    /// If you remove a seal key by hand, keep its endpoint key in push.endpoint_keys, or in
    /// endpoint.keys beside the seal key. Otherwise the endpoints created with it stop working.
    /// `seal rotate --finish` keeps it for you.
    ShowEndpointKeys {
        /// The file of seal keys, e.g. posthorn-data/seal.key; /dev/stdin reads what is typed
        file: PathBuf,
    },
    /// Create a key that the configuration or a sender needs; needs no server
    ///
    /// `endpoint` creates endpoints (push.endpoint_keys), `node` signs calls between nodes
    /// (push.internal.key), `sender` is a VAPID key of an application server, whose public half is
    /// shown too. A server that is given none has its own endpoint and node keys from the seal key.
    CreateKey {
        /// What it is for
        kind: Kind,
        /// Where it goes.
        #[command(flatten)]
        to: To,
    },
}

/// A kind of key.
#[derive(clap::ValueEnum, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Creates endpoints
    Endpoint,
    /// Signs calls between nodes
    Node,
    /// Signs what an application server sends (VAPID)
    Sender,
}

/// Runs it.
pub async fn run(access: &Access, json: bool, command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Status => {
            let context = Context::new(access, json)?;
            let status = context.client.get("/v1/push").await?;
            context.show_one(&status, "enabled agents messages more nodes")
        }
        Command::Agent { who } => agent(&Context::new(access, json)?, who).await,
        Command::ShowKey => {
            let context = Context::new(access, json)?;
            context.show_one(&context.client.get("/v1/push/key").await?, "public_key")
        }
        Command::ShowEndpointKeys { file } => show_endpoint_keys(file),
        Command::CreateKey { kind, to } => create(*kind).give(to, json),
    }
}

async fn agent(context: &Context, who: &str) -> anyhow::Result<()> {
    let who = read_argument("the agent", who)?;
    let who = who.trim();
    let agent = match who.contains("://") {
        true => context.client.post("/v1/push/agents/find", &json!({"endpoint": who})).await?,
        false => context.client.get(format!("/v1/push/agents/{}", segment(who))).await?,
    };
    let fields = "uaid node seen_at connected_at created_at waiting more_waiting channel_count channel channels";
    context.show_one(&agent, fields)
}

fn create(kind: Kind) -> NewKey {
    match kind {
        Kind::Endpoint => {
            NewKey::secret(EndpointKey::generate().to_text(), "push: {endpoint_keys: [file:FILE]}")
        }
        Kind::Node => {
            NewKey::secret(NodeKey::generate().to_text(), "push: {internal: {key: file:FILE}}")
        }
        Kind::Sender => {
            let key = SenderKey::generate();
            let text = key.to_text().expose_str().unwrap_or_default().to_owned();
            let public = Some(key.public_key().to_text());
            NewKey { text, public, place: "vapid_private_key of a Web Push library" }
        }
    }
}

/// Shows the endpoint keys of the seal keys of a file.
fn show_endpoint_keys(file: &Path) -> anyhow::Result<()> {
    for key in endpoints::derived(&seal::present(file)?) {
        terminal::data(key.to_text())?;
    }
    Ok(())
}
