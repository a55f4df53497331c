//! `posthorn event-types`.

use http::Method;
use serde_json::{Map, Value, json};

use super::noun::{Noun, given};
use super::{Context, Limit, read_json};
use crate::client::{Call, with_query};

const EVENT_TYPES: Noun = Noun {
    path: "event-types",
    columns: "NAME name, GROUP group, ARCHIVED archived, DEPRECATED deprecated, DESCRIPTION description",
    fields: "name realm description group schemas examples archived deprecated feature_flags \
             created_at updated_at",
};

/// Which realm.
#[derive(clap::Args, Clone, Debug)]
pub struct Whose {
    /// The realm; that of the key, or `default` for operator keys
    #[arg(long)]
    realm: Option<String>,
}

impl Whose {
    fn query(&self) -> Vec<(&'static str, String)> {
        self.realm.iter().map(|realm| ("realm", realm.clone())).collect()
    }
}

/// List, show, put, delete and import event types
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Command {
    /// List event types
    List {
        /// Only those of this group
        #[arg(long)]
        group: Option<String>,
        /// Only those whose name begins so
        #[arg(long, value_name = "TEXT")]
        prefix: Option<String>,
        /// Only archived ones (true), or only others (false)
        #[arg(long)]
        archived: Option<bool>,
        /// Whose.
        #[command(flatten)]
        whose: Whose,
        /// How many.
        #[command(flatten)]
        limit: Limit,
    },
    /// Show an event type with its schemas
    Show {
        /// Its name
        name: String,
        /// Whose.
        #[command(flatten)]
        whose: Whose,
    },
    /// Create an event type, or replace what is said about it
    Put {
        /// Its name
        name: String,
        /// For people
        #[arg(long, default_value = "")]
        description: String,
        /// What it belongs to, for people who look for it
        #[arg(long)]
        group: Option<String>,
        /// A JSON Schema of its payload, by version, e.g. 1=@schema.json; may be repeated
        #[arg(long = "schema", value_name = "VERSION=JSON", value_parser = super::parse_pair)]
        schemas: Vec<(String, String)>,
        /// A payload as it may be: JSON, or @FILE; may be repeated
        #[arg(long = "example", value_name = "JSON")]
        examples: Vec<String>,
        /// No more events of it are expected
        #[arg(long)]
        archived: bool,
        /// Publishers should use another
        #[arg(long)]
        deprecated: bool,
        /// Whose.
        #[command(flatten)]
        whose: Whose,
    },
    /// Delete an event type; events of it stay
    Delete {
        /// Its name
        name: String,
        /// Whose.
        #[command(flatten)]
        whose: Whose,
    },
    /// Create and change event types from the webhooks of an OpenAPI 3.1 document
    Import {
        /// The document: JSON, @FILE, or - for stdin
        document: String,
        /// Archive event types that the document does not have
        #[arg(long)]
        replace_all: bool,
        /// Only show what would change
        #[arg(long)]
        dry_run: bool,
        /// Whose.
        #[command(flatten)]
        whose: Whose,
    },
}

fn at(name: &str, whose: &Whose) -> String {
    with_query(&EVENT_TYPES.at(name), &whose.query())
}

/// Runs it.
pub async fn run(context: &Context, command: &Command) -> anyhow::Result<()> {
    match command {
        Command::List { group, prefix, archived, whose, limit } => {
            let mut query = whose.query();
            query.extend(group.iter().map(|group| ("group", group.clone())));
            query.extend(prefix.iter().map(|prefix| ("prefix", prefix.clone())));
            query.extend(archived.iter().map(|archived| ("archived", archived.to_string())));
            let list = EVENT_TYPES.find(context, &query, *limit).await?;
            context.show_list(&list, EVENT_TYPES.columns)
        }
        Command::Show { name, whose } => {
            context.show_one(&context.client.get(at(name, whose)).await?, EVENT_TYPES.fields)
        }
        Command::Put {
            name,
            description,
            group,
            schemas,
            examples,
            archived,
            deprecated,
            whose,
        } => {
            let mut all = Map::new();
            for (version, text) in schemas {
                all.insert(version.clone(), read_json("a schema", text)?);
            }
            let examples = examples.iter().map(|text| read_json("an example", text));
            let examples = examples.collect::<anyhow::Result<Vec<Value>>>()?;
            let body = given(json!({
                "description": description, "group": group, "schemas": all, "examples": examples,
                "archived": archived, "deprecated": deprecated,
            }));
            let call = Call::new(Method::PUT, at(name, whose)).body(body.to_string());
            context.show_one(&context.client.call(call).await?.json()?, EVENT_TYPES.fields)
        }
        Command::Delete { name, whose } => {
            context.client.call(Call::new(Method::DELETE, at(name, whose))).await?;
            context.done(format_args!("deleted event type {name}"));
            Ok(())
        }
        Command::Import { document, replace_all, dry_run, whose } => {
            let document = read_json("the document", document)?;
            let body = json!({
                "document": document, "replace_all": replace_all, "dry_run": dry_run,
            });
            let path = with_query("/v1/event-types/import", &whose.query());
            let imported = context.client.post(path, &body).await?;
            context.show_one(&imported, "dry_run created changed archived unchanged")
        }
    }
}
