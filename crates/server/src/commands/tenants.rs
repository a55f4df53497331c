//! `posthorn tenants`, for operators.

use std::collections::BTreeMap;
use std::io::Write as _;

use http::Method;
use serde_json::{Value, json};

use super::noun::{Noun, given};
use super::{Context, Limit, parse_pair};
use crate::client::Call;
use crate::exit::{Code, Failure};

const TENANTS: Noun = Noun {
    path: "tenants",
    columns: "ID id, NAME name, REALM realm, EXTERNAL external_id, AGE since:created_at",
    fields: "id name realm external_id metadata labels deliveries_per_second created_at deleting_since",
};

/// What is shown of a deletion.
const DELETION: &str = "id kind state done created_by created_at finished_at problem";

/// List, show, create, change, export and delete tenants
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Command {
    /// List tenants, oldest first
    List {
        /// Only those in this realm
        #[arg(long)]
        realm: Option<String>,
        /// Only those with this external id
        #[arg(long, value_name = "ID")]
        external_id: Option<String>,
        /// Only those whose name begins so
        #[arg(long, value_name = "TEXT")]
        name_prefix: Option<String>,
        /// How many.
        #[command(flatten)]
        limit: Limit,
    },
    /// Show a tenant
    Show(Known),
    /// Create a tenant
    Create {
        /// Its name
        name: String,
        /// The realm it is in, for ever; `default` when not given
        #[arg(long)]
        realm: Option<String>,
        /// What it is like.
        #[command(flatten)]
        fields: Fields,
    },
    /// Change fields of a tenant; what is not given stays
    Update {
        /// Its id, ten_…, or its name
        id: String,
        /// Another name
        #[arg(long)]
        name: Option<String>,
        /// What it is like.
        #[command(flatten)]
        fields: Fields,
        /// Take its external id away
        #[arg(long, conflicts_with = "external_id")]
        no_external_id: bool,
        /// Take its own limit away; that of the realm counts again
        #[arg(long, conflicts_with = "deliveries_per_second")]
        no_deliveries_per_second: bool,
    },
    /// Delete a tenant with everything it has; no attempt starts afterwards, and nothing brings it back
    Delete(Known),
    /// Show how far the deletion of a tenant is
    Deletion(Known),
    /// Write everything a tenant has as lines of JSON to stdout, without secrets
    Export(Known),
}

/// Which one.
#[derive(clap::Args, Clone, Debug)]
pub struct Known {
    /// Its id, ten_…, or its name
    id: String,
}

/// What a tenant is like.
#[derive(clap::Args, Clone, Debug)]
pub struct Fields {
    /// Your own id of it; unique in the realm
    #[arg(long, value_name = "ID")]
    external_id: Option<String>,
    /// Something to remember; may be repeated, and replaces all there were
    #[arg(long = "metadata", value_name = "NAME=VALUE", value_parser = parse_pair)]
    metadata: Vec<(String, String)>,
    /// A label; may be repeated, and replaces all there were
    #[arg(long = "label", value_name = "NAME=VALUE", value_parser = parse_pair)]
    labels: Vec<(String, String)>,
    /// Attempts that all its subscriptions together may begin in a second, on each node
    #[arg(long, value_name = "NUMBER")]
    deliveries_per_second: Option<u32>,
}

impl Fields {
    fn body(&self) -> Value {
        let pairs = |list: &[(String, String)]| -> Option<BTreeMap<_, _>> {
            (!list.is_empty()).then(|| list.iter().cloned().collect())
        };
        given(json!({
            "external_id": self.external_id,
            "metadata": pairs(&self.metadata),
            "labels": pairs(&self.labels),
            "deliveries_per_second": self.deliveries_per_second,
        }))
    }
}

/// Runs it.
pub async fn run(context: &Context, command: &Command) -> anyhow::Result<()> {
    match command {
        Command::List { realm, external_id, name_prefix, limit } => {
            let query =
                [("realm", realm), ("external_id", external_id), ("name_prefix", name_prefix)];
            let query: Vec<(&str, String)> =
                query.into_iter().filter_map(|(name, text)| Some((name, text.clone()?))).collect();
            let list = TENANTS.find(context, &query, *limit).await?;
            context.show_list(&list, TENANTS.columns)
        }
        Command::Show(Known { id }) => TENANTS.show(context, id).await,
        Command::Create { name, realm, fields } => {
            let mut body = fields.body();
            body["name"] = json!(name);
            if let Some(realm) = realm {
                body["realm"] = json!(realm);
            }
            TENANTS.create(context, &body).await
        }
        Command::Update { id, name, fields, no_external_id, no_deliveries_per_second } => {
            let mut body = fields.body();
            if let Some(name) = name {
                body["name"] = json!(name);
            }
            if *no_external_id {
                body["external_id"] = Value::Null;
            }
            if *no_deliveries_per_second {
                body["deliveries_per_second"] = Value::Null;
            }
            let call = Call::new(Method::PATCH, TENANTS.at(id)).body(body.to_string());
            context.show_one(&context.client.call(call).await?.json()?, TENANTS.fields)
        }
        Command::Delete(Known { id }) => {
            let call = Call::new(Method::DELETE, TENANTS.at(id));
            context.show_one(&context.client.call(call).await?.json()?, DELETION)
        }
        Command::Deletion(Known { id }) => {
            let deletion = context.client.get(format!("{}/deletion", TENANTS.at(id))).await?;
            context.show_one(&deletion, DELETION)
        }
        Command::Export(Known { id }) => export(context, id).await,
    }
}

/// Writes the lines as they come. The last one says that it was all.
async fn export(context: &Context, id: &str) -> anyhow::Result<()> {
    let call = Call::new(Method::GET, format!("{}/export", TENANTS.at(id)));
    let mut out = std::io::stdout().lock();
    // Enough to hold the last line, which is short.
    let mut end: Vec<u8> = Vec::new();
    context
        .client
        .download(call, |part| {
            out.write_all(part)?;
            end.extend_from_slice(part);
            let passed = end.len().saturating_sub(END_BYTES);
            end.drain(..passed);
            Ok(())
        })
        .await?;
    out.flush()?;
    let text = String::from_utf8_lossy(&end);
    match text.trim_end().rsplit('\n').next().is_some_and(|line| line.starts_with(END)) {
        true => Ok(()),
        false => Err(Failure::new(Code::Failure, "the export was cut off before its end")
            .hint("run the command again; what was written so far is not complete")
            .into()),
    }
}

/// How the last line begins, and how long it is at most.
const END: &str = r#"{"kind":"end""#;
const END_BYTES: usize = 256;
