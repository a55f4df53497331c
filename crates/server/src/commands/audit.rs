//! `posthorn audit`.

use serde_json::{Value, json};

use super::finding::{self, Part};
use super::noun::Noun;
use super::{Context, Limit};

const AUDIT: Noun = Noun {
    path: "audit",
    columns: "AT at, ACTION action, OBJECT object, ACTOR actor, SURFACE surface, ADDRESS address, DETAIL detail",
    fields: "",
};

/// List who changed what
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Command {
    /// List lines of the audit log, newest first
    ///
    /// An operator key sees all lines; name a tenant with --tenant to see only its lines.
    List {
        /// Only of this realm and its tenants
        #[arg(long)]
        realm: Option<String>,
        /// Only what this key, certificate, client or session did, by id
        #[arg(long, value_name = "ID")]
        actor: Option<String>,
        /// Only this action, or all of one word: subscription.created, subscription
        #[arg(long)]
        action: Option<String>,
        /// Only what was done to this, by id (or name, where it has no id)
        #[arg(long, value_name = "ID")]
        object: Option<String>,
        /// Which part.
        #[command(flatten)]
        part: Part,
        /// How many.
        #[command(flatten)]
        limit: Limit,
    },
}

/// Runs it.
pub async fn run(context: &Context, command: &Command) -> anyhow::Result<()> {
    let Command::List { realm, actor, action, object, part, limit } = command;
    let mut query = finding::given(&[
        ("realm", realm),
        ("actor", actor),
        ("action", action),
        ("object", object),
    ]);
    query.extend(part.query());
    let mut list = AUDIT.find(context, &query, *limit).await?;
    if !context.json {
        list["items"].as_array_mut().into_iter().flatten().for_each(flatten);
    }
    context.show_list(&list, AUDIT.columns)
}

/// Has each column be one text.
fn flatten(line: &mut Value) {
    for name in ["actor", "object"] {
        let part = |field: &str| line[name][field].as_str().map(str::to_owned);
        let named = part("name").map(|text| format!("({text})"));
        let words: Vec<String> = [part("kind"), part("id"), named].into_iter().flatten().collect();
        line[name] = json!(words.join(" "));
    }
    let detail = match line["detail"].as_object() {
        Some(detail) if !detail.is_empty() => line["detail"].to_string(),
        _ => String::new(),
    };
    line["detail"] = json!(detail);
}
