//! `posthorn keys`: API keys, over the API and without a server.

mod recover;

use posthorn_domain::{Clock as _, KeyId};
use posthorn_sealing::api_key;
use serde_json::{Value, json};

use super::new_key::{NewKey, To};
use super::noun::{Id, Noun, given};
use super::{Context, Limit, names, parse_scope};
use crate::client::Access;
use crate::clock::WallClock;
use crate::terminal::{self, Paint};

const KEYS: Noun = Noun {
    path: "keys",
    columns: "ID id, TENANT tenant, REALM realm, SCOPES scopes, DESCRIPTION description, ENDS ends, \
              USED since:last_used_at",
    fields: "key id tenant realm scopes description created_at expires_at revoked_at rate_limit \
             last_used_at",
};

/// List, show, create, revoke and recover API keys
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Command {
    /// List keys; the secret halves are never shown again
    List(Limit),
    /// Show a key, but for its secret half
    Show(Id),
    /// Create a key; it is shown once
    ///
    /// A key with the scope `operator` belongs to no tenant; any other belongs to --tenant, to
    /// --realm, or to the tenant `default`. One of a realm acts for each of its tenants.
    Create {
        /// The realm it belongs to, instead of a tenant
        #[arg(long, value_name = "REALM")]
        realm: Option<String>,
        /// What it may do: publish, manage, read, operator; may be repeated
        #[arg(long = "scope", required = true, value_name = "SCOPE", value_parser = parse_scope)]
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
    /// Create a new operator key without a server, when nobody has one that works
    Recover(Box<recover::Args>),
    /// Create a key without a server, for the configuration of one that is new
    ///
    /// `operator` is the first key of a new server (keys.bootstrap), which takes it in at its start.
    Generate {
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
    /// The first operator key of a new server
    Operator,
}

/// In a table, one word says until when a key works.
fn say_end(key: &mut Value) {
    let revoked = key.get("revoked_at").is_some();
    let ends = if revoked { "revoked".to_owned() } else { terminal::cell(key, "until:expires_at") };
    key["ends"] = Value::String(ends);
}

/// Runs it.
pub async fn run(access: &Access, json: bool, command: &Command) -> anyhow::Result<()> {
    let context = || Context::new(access, json);
    match command {
        Command::Generate { kind, to } => generate(*kind).give(to, json),
        Command::Recover(args) => recover::run(args, json).await,
        Command::List(limit) => list(&context()?, *limit).await,
        Command::Show(Id { id }) => KEYS.show(&context()?, id).await,
        Command::Create { realm, scopes, description, expires_at, rate_limit } => {
            let of_tenant = realm.is_none() && !scopes.iter().any(|scope| scope == "operator");
            let tenant = of_tenant.then(|| access.tenant.as_deref().unwrap_or("default"));
            let body = given(json!({
                "scopes": scopes, "description": description, "tenant": tenant, "realm": realm,
                "expires_at": expires_at, "rate_limit": rate_limit,
            }));
            let context = context()?;
            let made = context.client.post("/v1/keys", &body).await?;
            terminal::note(Paint::stderr().warn("the key is shown once; keep it"));
            context.show_one(&made, KEYS.fields)
        }
        Command::Revoke(Id { id }) => KEYS.delete(&context()?, id, "revoked").await,
    }
}

async fn list(context: &Context, limit: Limit) -> anyhow::Result<()> {
    let mut list = KEYS.find(context, &[], limit).await?;
    if !context.json {
        names::name_tenants(context, names::items(&mut list)).await?;
        names::items(&mut list).iter_mut().for_each(say_end);
    }
    context.show_list(&list, KEYS.columns)
}

fn generate(kind: Kind) -> NewKey {
    match kind {
        Kind::Operator => {
            let (secret, _) = api_key::generate(KeyId::new(WallClock.now(), rand::random()));
            let text = secret.expose_str().unwrap_or_default().to_owned();
            NewKey::secret(text, "keys: {bootstrap: file:FILE}")
        }
    }
}
