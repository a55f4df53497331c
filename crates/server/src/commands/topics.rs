//! `posthorn topics`.

use std::collections::BTreeMap;

use http::Method;
use serde_json::json;

use super::{Context, Limit, parse_pair};
use crate::client::{Call, segment};

/// List, make and delete topics
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Command {
    /// List topics
    List(Limit),
    /// Make a topic, or change its description and attributes
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
    Delete {
        /// Its name
        name: String,
    },
}

const FIELDS: [&str; 5] = ["name", "description", "attributes", "labels", "created_at"];

/// Runs it.
pub async fn run(context: &Context, command: &Command) -> anyhow::Result<()> {
    let client = &context.client;
    match command {
        Command::List(limit) => {
            let list = client.list("/v1/topics", &[], limit.items()).await?;
            let columns = [
                ("NAME", "name"),
                ("ATTRIBUTES", "attributes"),
                ("DESCRIPTION", "description"),
                ("AGE", "since:created_at"),
            ];
            context.show_list(&list, &columns)
        }
        Command::Put { name, description, attributes, labels } => {
            let labels: BTreeMap<_, _> = labels.iter().cloned().collect();
            let body =
                json!({"description": description, "attributes": attributes, "labels": labels});
            let path = format!("/v1/topics/{}", segment(name));
            let call = Call::new(Method::PUT, path).body(body.to_string());
            context.show_one(&client.call(call).await?.json()?, &FIELDS)
        }
        Command::Delete { name } => {
            let path = format!("/v1/topics/{}", segment(name));
            client.call(Call::new(Method::DELETE, path)).await?;
            context.done(format_args!("deleted topic {name}"));
            Ok(())
        }
    }
}
