//! `posthorn realms`, for operators.

use serde_json::json;

use super::noun::{Name, Noun, given};
use super::{Context, Limit};

const REALMS: Noun = Noun {
    path: "realms",
    columns: "NAME name, VALIDATION validation, DESCRIPTION description, AGE since:created_at",
    fields: "name description defaults validation created_at updated_at",
};

/// List, show, put and delete realms
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Command {
    /// List realms
    List(Limit),
    /// Show a realm
    Show(Name),
    /// Create a realm, or replace what is said about it
    Put {
        /// Its name
        name: String,
        /// For people
        #[arg(long, default_value = "")]
        description: String,
        /// The configured profile of new subscriptions of its tenants that name none
        #[arg(long, value_name = "PROFILE")]
        profile: Option<String>,
        /// Attempts a second of each of its tenants that has no limit of its own, on each node
        #[arg(long, value_name = "NUMBER")]
        deliveries_per_second: Option<u32>,
        /// What is checked of events: off, known (their type), schema (also their payload)
        #[arg(long, default_value = "off", value_parser = ["off", "known", "schema"])]
        validation: String,
    },
    /// Delete a realm that has no tenants, keys and event types
    Delete(Name),
}

/// Runs it.
pub async fn run(context: &Context, command: &Command) -> anyhow::Result<()> {
    match command {
        Command::List(limit) => REALMS.list(context, *limit).await,
        Command::Show(Name { name }) => REALMS.show(context, name).await,
        Command::Put { name, description, profile, deliveries_per_second, validation } => {
            let defaults = given(json!({
                "profile": profile, "deliveries_per_second": deliveries_per_second,
            }));
            let body = json!({
                "description": description, "defaults": defaults, "validation": validation,
            });
            REALMS.put(context, name, &body).await
        }
        Command::Delete(Name { name }) => REALMS.delete(context, name, "deleted realm").await,
    }
}
