//! `posthorn tenants`, for operators.

use serde_json::json;

use super::noun::{Name, Noun};
use super::{Context, Limit};

const TENANTS: Noun = Noun {
    path: "tenants",
    columns: "ID id, NAME name, CREATED created_at",
    fields: "id name created_at",
};

/// List, show and create tenants
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Command {
    /// List tenants
    List(Limit),
    /// Show a tenant
    Show {
        /// Its id, ten_…, or its name
        id: String,
    },
    /// Create a tenant
    Create(Name),
}

/// Runs it.
pub async fn run(context: &Context, command: &Command) -> anyhow::Result<()> {
    match command {
        Command::List(limit) => TENANTS.list(context, *limit).await,
        Command::Show { id } => TENANTS.show(context, id).await,
        Command::Create(Name { name }) => TENANTS.create(context, &json!({ "name": name })).await,
    }
}
