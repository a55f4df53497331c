//! `posthorn sessions`.

use http::Method;

use super::finding;
use super::noun::Noun;
use super::{Context, Limit};
use crate::client::{Call, with_query};

const SESSIONS: Noun = Noun {
    path: "sessions",
    columns: "ID id, KIND kind, NAME name, LABEL label, TENANT tenant, AGE since:created_at, EXPIRES expires_at",
    fields: "",
};

/// List and end sessions of console and portal
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Command {
    /// List sessions, and links that were not redeemed, newest first
    ///
    /// An operator key sees all of them; name a tenant with --tenant to see only its own.
    List {
        /// Only of this kind: console, portal or link
        #[arg(long)]
        kind: Option<String>,
        /// Only with this label
        #[arg(long)]
        label: Option<String>,
        /// How many.
        #[command(flatten)]
        limit: Limit,
    },
    /// End a session, or all of a tenant with a label
    End {
        /// Its id
        #[arg(required_unless_present = "label", conflicts_with = "label")]
        id: Option<String>,
        /// All of the tenant with this label
        #[arg(long)]
        label: Option<String>,
    },
}

/// Runs it.
pub async fn run(context: &Context, command: &Command) -> anyhow::Result<()> {
    match command {
        Command::List { kind, label, limit } => {
            let query = finding::given(&[("kind", kind), ("label", label)]);
            let list = SESSIONS.find(context, &query, *limit).await?;
            context.show_list(&list, SESSIONS.columns)
        }
        Command::End { id: Some(id), .. } => SESSIONS.delete(context, id, "ended session").await,
        Command::End { id: None, label } => {
            let query = finding::given(&[("label", label)]);
            let call = Call::new(Method::DELETE, with_query("/v1/sessions", &query));
            context.show_one(&context.client.call(call).await?.json()?, "ended")
        }
    }
}
