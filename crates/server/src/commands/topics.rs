//! `posthorn topics`.

use std::collections::BTreeMap;

use serde_json::json;

use super::noun::{Name, Noun};
use super::{Context, Limit, parse_pair};

const TOPICS: Noun = Noun {
    path: "topics",
    columns: "NAME name, ATTRIBUTES attributes, DESCRIPTION description, AGE since:created_at",
    fields: "name description attributes labels created_at",
};

/// List, show, put and delete topics
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Command {
    /// List topics
    List(Limit),
    /// Show a topic
    Show(Name),
    /// Create a topic, or replace its description, attributes and labels
    Put {
        /// Its name
        name: String,
        /// For people
        #[arg(long, default_value = "")]
        description: String,
        /// An attribute that subscriptions may filter on; may be repeated
        #[arg(long = "attribute", value_name = "NAME")]
        attributes: Vec<String>,
        /// Something to remember; may be repeated, and replaces all there were
        #[arg(long = "label", value_name = "NAME=VALUE", value_parser = parse_pair)]
        labels: Vec<(String, String)>,
    },
    /// Delete a topic; events published on it stay
    Delete(Name),
}

/// Runs it.
pub async fn run(context: &Context, command: &Command) -> anyhow::Result<()> {
    match command {
        Command::List(limit) => TOPICS.list(context, *limit).await,
        Command::Show(Name { name }) => TOPICS.show(context, name).await,
        Command::Put { name, description, attributes, labels } => {
            let labels: BTreeMap<_, _> = labels.iter().cloned().collect();
            let body =
                json!({"description": description, "attributes": attributes, "labels": labels});
            TOPICS.put(context, name, &body).await
        }
        Command::Delete(Name { name }) => TOPICS.delete(context, name, "deleted topic").await,
    }
}
