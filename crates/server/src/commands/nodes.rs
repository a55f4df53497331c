//! `posthorn nodes`, for operators.

use serde_json::{Value, json};

use super::Context;

/// List nodes, with the shards they hold
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Command {
    /// List nodes with their versions, their shards, and when each was heard of last
    ///
    /// A node that stopped without a word is shown as not alive for a day.
    List,
}

/// Runs it.
pub async fn run(context: &Context, command: &Command) -> anyhow::Result<()> {
    let Command::List = command;
    let mut list = context.client.get("/v1/nodes").await?;
    if !context.json {
        for node in list.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
            let held = node.get("shards").and_then(Value::as_array).map_or(0, Vec::len);
            node["held"] = json!(held);
        }
    }
    let columns =
        "ID id, ALIVE alive, VERSION version, SEEN since:seen_at, SHARDS held, THIS ONE here";
    context.show_list(&list, columns)
}
