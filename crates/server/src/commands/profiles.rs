//! `posthorn profiles`.

use serde_json::{Value, json};

use super::noun::{Name, Noun, given};
use super::{Context, read_json, rows};
use crate::terminal;

const PROFILES: Noun = Noun {
    path: "profiles",
    columns: "NAME name, CHANGES base, ATTEMPTS policy.schedule.max_attempts, \
              BACKOFF policy.schedule.backoff, ORDER policy.order.scope, \
              EXHAUSTED policy.on_exhausted",
    fields: "name base changes problem updated_at policy",
};
/// What is shown of one that was just changed: who did so knows the rest.
const CHANGED: Noun = Noun { fields: "name base changes problem updated_at", ..PROFILES };

/// List profiles, and change them while everything runs
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Command {
    /// List the profiles that subscriptions may name
    List,
    /// Show a profile with every knob
    Show(Name),
    /// Create or change a profile of the tenant; its subscriptions follow at once
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
    /// Take back what was changed of a profile
    Delete(Name),
}

/// Runs it.
pub async fn run(context: &Context, command: &Command) -> anyhow::Result<()> {
    match command {
        Command::List => list(context).await,
        Command::Show(Name { name }) => PROFILES.show(context, name).await,
        Command::Put { name, base, policy } => {
            let mut body = given(json!({ "base": base }));
            body["policy"] = read_json("the policy", policy)?;
            CHANGED.put(context, name, &body).await
        }
        Command::Delete(Name { name }) => {
            PROFILES.delete(context, name, "took back the changes of profile").await
        }
    }
}

async fn list(context: &Context) -> anyhow::Result<()> {
    let list = context.client.get("/v1/profiles").await?;
    if context.json {
        return Ok(terminal::json(&list)?);
    }
    let items = list.get("items").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    Ok(terminal::data(rows(items, PROFILES.columns))?)
}
