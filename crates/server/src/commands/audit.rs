//! `posthorn audit`.

use serde_json::{Value, json};

use super::finding::{self, Part};
use super::noun::Noun;
use super::{Context, Limit};

const AUDIT: Noun = Noun {
    path: "audit",
    columns: "OBJECT object, AGE since:at, ACTOR actor, ACTION action",
    fields: "",
};

/// List who changed what
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Command {
    /// List lines of the audit log, newest first
    ///
    /// An operator key sees all lines; name a tenant with --tenant to see only its lines. With --json, each line says
    /// also from where it came and what was changed.
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

/// Has each column be one text: a row has room for little more than ids. `--json` shows everything.
fn flatten(line: &mut Value) {
    line["object"] = line["object"]["id"].take();
    let part = |field: &str| line["actor"][field].as_str().map(str::to_owned);
    let who = part("name").or_else(|| part("id")).or_else(|| part("kind"));
    line["actor"] = json!(who);
}
