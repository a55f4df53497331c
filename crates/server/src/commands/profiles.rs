//! `posthorn profiles`.

use http::Method;
use serde_json::{Map, Value};

use super::{Context, read_json, rows};
use crate::client::{Call, segment};
use crate::terminal;

/// List profiles, and change them while everything runs
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Command {
    /// List the profiles that subscriptions may name
    List,
    /// Show a profile with every knob
    Show {
        /// Its name
        name: String,
    },
    /// Make or change a profile of the tenant; its subscriptions follow at once
    Put {
        /// Its name
        name: String,
        /// The profile of the configuration it changes; the one with the same name when not given
        #[arg(long)]
        base: Option<String>,
        /// What differs from it, as JSON, @FILE or - for stdin
        #[arg(long, value_name = "JSON")]
        policy: String,
    },
    /// Take back what was made of a profile
    Delete {
        /// Its name
        name: String,
    },
}

const FIELDS: [&str; 6] = ["name", "base", "changes", "problem", "updated_at", "policy"];

/// Runs it.
pub async fn run(context: &Context, command: &Command) -> anyhow::Result<()> {
    let client = &context.client;
    let path = |name: &str| format!("/v1/profiles/{}", segment(name));
    match command {
        Command::List => list(context).await,
        Command::Show { name } => context.show_one(&client.get(path(name)).await?, &FIELDS),
        Command::Put { name, base, policy } => {
            let mut body = Map::new();
            body.insert("policy".to_owned(), read_json("the policy", policy)?);
            body.extend(base.clone().map(|base| ("base".to_owned(), Value::String(base))));
            let body = Value::Object(body).to_string();
            let call = Call::new(Method::PUT, path(name)).body(body);
            context.show_one(&client.call(call).await?.json()?, &FIELDS[..5])
        }
        Command::Delete { name } => {
            client.call(Call::new(Method::DELETE, path(name))).await?;
            context.done(format_args!("took back the changes of profile {name}"));
            Ok(())
        }
    }
}

async fn list(context: &Context) -> anyhow::Result<()> {
    let list = context.client.get("/v1/profiles").await?;
    if context.json {
        return Ok(terminal::json(&list)?);
    }
    let items = list.get("items").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let columns = [
        ("NAME", "name"),
        ("CHANGES", "base"),
        ("ATTEMPTS", "policy.schedule.max_attempts"),
        ("BACKOFF", "policy.schedule.backoff"),
        ("ORDER", "policy.order.scope"),
        ("EXHAUSTED", "policy.on_exhausted"),
    ];
    Ok(terminal::data(rows(items, &columns))?)
}
