//! `posthorn tenants`, for operators.

use serde_json::json;

use super::{Context, Limit};

/// List and make tenants
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Command {
    /// List tenants
    List(Limit),
    /// Make a tenant
    Create {
        /// Its name
        name: String,
    },
}

/// Runs it.
pub async fn run(context: &Context, command: &Command) -> anyhow::Result<()> {
    match command {
        Command::List(limit) => {
            let list = context.client.list("/v1/tenants", &[], limit.items()).await?;
            context.show_list(&list, &[("ID", "id"), ("NAME", "name"), ("CREATED", "created_at")])
        }
        Command::Create { name } => {
            let made = context.client.post("/v1/tenants", &json!({ "name": name })).await?;
            context.show_one(&made, &["id", "name", "created_at"])
        }
    }
}
