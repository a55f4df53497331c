//! `posthorn redrives`: another chance for many dead letters at once.

use std::time::Duration;

use serde_json::{Value, json};

use super::noun::{Noun, given};
use super::{Context, Limit};
use crate::lifecycle::Signals;
use crate::terminal;

/// How often a redrive is asked how far it is.
const POLL: Duration = Duration::from_millis(500);

const REDRIVES: Noun = Noun {
    path: "redrives",
    columns: "ID id, STATE state, MOVED moved, TOTAL total, PER SECOND per_second, \
              AGE since:created_at",
    fields: "id state filter per_second total moved created_at finished_at",
};

/// Which one.
#[derive(clap::Args, Clone, Debug)]
pub struct Id {
    /// Its id, rdr_…
    id: String,
}

/// Try many dead letters again: list, show, create and cancel redrives
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Command {
    /// List redrives, newest first
    List(Limit),
    /// Show a redrive and how far it is
    Show(Id),
    /// Try many dead letters again, at a pace, and wait until all are on their way
    Create {
        /// Only of this subscription, by id or name
        #[arg(long)]
        subscription: Option<String>,
        /// Only those that died for this reason: exhausted, permanent, gate or expired
        #[arg(long)]
        reason: Option<String>,
        /// Only those that died at or after this time
        #[arg(long, value_name = "TIME")]
        since: Option<String>,
        /// Only those that died before this time
        #[arg(long, value_name = "TIME")]
        until: Option<String>,
        /// How many to move per second
        #[arg(long, default_value_t = 100, value_name = "N")]
        per_second: u32,
        /// Do not wait; it goes on in the server
        #[arg(long)]
        no_wait: bool,
    },
    /// Cancel a redrive; what it has moved stays moved
    Cancel(Id),
}

/// Runs it.
pub async fn run(context: &Context, command: &Command) -> anyhow::Result<()> {
    match command {
        Command::List(limit) => REDRIVES.list(context, *limit).await,
        Command::Show(Id { id }) => REDRIVES.show(context, id).await,
        Command::Create { subscription, reason, since, until, per_second, no_wait } => {
            let body = given(json!({
                "per_second": per_second, "subscription": subscription, "reason": reason,
                "since": since, "until": until,
            }));
            let redrive = context.client.post("/v1/redrives", &body).await?;
            let redrive = if *no_wait { redrive } else { follow(context, redrive).await? };
            context.show_one(&redrive, REDRIVES.fields)
        }
        Command::Cancel(Id { id }) => {
            context.show_one(&REDRIVES.act(context, id, "cancel").await?, REDRIVES.fields)
        }
    }
}

/// Watches a redrive to its end. It lives in the server: leaving here does not stop it.
async fn follow(context: &Context, mut redrive: Value) -> anyhow::Result<Value> {
    let id = terminal::cell(&redrive, "id");
    let number = |redrive: &Value, name| redrive.get(name).and_then(Value::as_u64).unwrap_or(0);
    let bar = terminal::progress(number(&redrive, "total"), "redriving");
    let mut signals = Signals::listen()?;
    while redrive.get("state").and_then(Value::as_str) == Some("running") {
        bar.set_position(number(&redrive, "moved"));
        tokio::select! {
            () = tokio::time::sleep(POLL) => {}
            _ = signals.next() => {
                bar.abandon();
                terminal::note(format!(
                    "{id} goes on in the server; `posthorn redrives cancel {id}` stops it"
                ));
                return Ok(redrive);
            }
        }
        redrive = context.client.get(REDRIVES.at(&id)).await?;
    }
    bar.finish_and_clear();
    Ok(redrive)
}
