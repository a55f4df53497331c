//! `posthorn tenants`, for operators.

use serde_json::json;

use super::noun::{Name, Noun};
use super::{Context, Limit};

const TENANTS: Noun = Noun {
    path: "tenants",
    columns: "ID id, NAME name, CREATED created_at",
    fields: "id name created_at",
};

/// List and make tenants
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Command {
    /// List tenants
    List(Limit),
    /// Make a tenant
    Create(Name),
}

/// Runs it.
pub async fn run(context: &Context, command: &Command) -> anyhow::Result<()> {
    match command {
        Command::List(limit) => TENANTS.list(context, *limit).await,
        Command::Create(Name { name }) => TENANTS.create(context, &json!({ "name": name })).await,
    }
}
