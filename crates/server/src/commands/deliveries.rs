//! `posthorn deliveries` and `posthorn dead-letters`: what became of events, and another chance.

use std::time::Duration;

use serde_json::{Value, json};

use super::events::show_attempts;
use super::noun::{Id, Noun, given};
use super::{Context, Limit, names};
use crate::lifecycle::Signals;
use crate::terminal;

/// How often a redrive is asked how far it is.
const REDRIVE_POLL: Duration = Duration::from_millis(500);

const DELIVERIES: Noun = Noun {
    path: "deliveries",
    columns: "ID id, STATE state, WHY why, N attempts_made, NEXT until:due_at, TO to",
    fields: "id event subscription state reason due_at waiting attempts_made lane \
             created_at ended_at",
};
const DEAD_LETTERS: Noun = Noun {
    path: "dead-letters",
    columns: "ID id, REASON reason, TRIES attempts_made, AGE since:ended_at, TO to",
    ..DELIVERIES
};
const REDRIVES: Noun = Noun {
    path: "redrives",
    columns: "ID id, STATE state, MOVED moved, TOTAL total, PER SECOND per_second, \
              AGE since:created_at",
    fields: "id state filter per_second total moved created_at finished_at",
};

/// List, show, retry, cancel and forget deliveries
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Command {
    /// List deliveries, newest first
    List {
        /// Only of this event
        #[arg(long)]
        event: Option<String>,
        /// Only of this subscription, by id or name
        #[arg(long)]
        subscription: Option<String>,
        /// Only in this state: pending, delivered, dead or cancelled
        #[arg(long)]
        state: Option<String>,
        /// How many.
        #[command(flatten)]
        limit: Limit,
    },
    /// Show a delivery with all its attempts
    Show {
        /// Its id, dlv_…
        id: String,
    },
    /// Try a delivery now, ended or waiting, with a fresh budget
    Retry(Id),
    /// Give up a delivery that has not ended
    Cancel(Id),
    /// Remove a delivery with its attempts for good; one that has not ended is cancelled
    Forget(Id),
}

/// List, show and redrive dead letters
#[derive(clap::Subcommand, Clone, Debug)]
pub enum DeadLetters {
    /// List dead letters, newest first
    List {
        /// Only of this subscription, by id or name
        #[arg(long)]
        subscription: Option<String>,
        /// How many.
        #[command(flatten)]
        limit: Limit,
    },
    /// Show a dead letter with all its attempts
    Show {
        /// Its id, dlv_…
        id: String,
    },
    /// Try one again, with a fresh budget
    Retry(Id),
    /// Try many again, at a pace, and wait until all are on their way
    Redrive {
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
    /// List redrives, newest first
    Redrives(Limit),
    /// Cancel a redrive; what it has moved stays moved
    Cancel {
        /// Its id, rdr_…
        id: String,
    },
}

/// Runs `deliveries`.
pub async fn run(context: &Context, command: &Command) -> anyhow::Result<()> {
    match command {
        Command::List { event, subscription, state, limit } => {
            let query = [("event", event), ("subscription", subscription), ("state", state)];
            list(context, &DELIVERIES, &query, *limit).await
        }
        Command::Show { id } => show(context, &DELIVERIES, id).await,
        Command::Retry(Id { id }) => act(context, &DELIVERIES, id, "retry").await,
        Command::Cancel(Id { id }) => act(context, &DELIVERIES, id, "cancel").await,
        Command::Forget(Id { id }) => DELIVERIES.delete(context, id, "forgot").await,
    }
}

/// Runs `dead-letters`.
pub async fn run_dead_letters(context: &Context, command: &DeadLetters) -> anyhow::Result<()> {
    match command {
        DeadLetters::List { subscription, limit } => {
            list(context, &DEAD_LETTERS, &[("subscription", subscription)], *limit).await
        }
        DeadLetters::Show { id } => show(context, &DEAD_LETTERS, id).await,
        DeadLetters::Retry(Id { id }) => act(context, &DEAD_LETTERS, id, "retry").await,
        DeadLetters::Redrive { subscription, reason, since, until, per_second, no_wait } => {
            let body = given(json!({
                "per_second": per_second, "subscription": subscription, "reason": reason,
                "since": since, "until": until,
            }));
            let redrive = context.client.post("/v1/redrives", &body).await?;
            let redrive = if *no_wait { redrive } else { follow(context, redrive).await? };
            context.show_one(&redrive, REDRIVES.fields)
        }
        DeadLetters::Redrives(limit) => REDRIVES.list(context, *limit).await,
        DeadLetters::Cancel { id } => act(context, &REDRIVES, id, "cancel").await,
    }
}

async fn list(
    context: &Context,
    noun: &Noun,
    query: &[(&str, &Option<String>)],
    limit: Limit,
) -> anyhow::Result<()> {
    let mut list = noun.find(context, query, limit).await?;
    if !context.json {
        names::add_receivers(context, names::items(&mut list)).await?;
        names::items(&mut list).iter_mut().for_each(say_why);
    }
    context.show_list(&list, noun.columns)
}

/// In a table, one word says why a delivery ended, or what it waits for.
fn say_why(delivery: &mut Value) {
    let why = delivery.get("reason").or_else(|| delivery.pointer("/waiting/reason")).cloned();
    delivery["why"] = why.unwrap_or_default();
}

async fn show(context: &Context, noun: &Noun, id: &str) -> anyhow::Result<()> {
    let delivery = context.client.get(noun.at(id)).await?;
    context.show_one(&delivery, noun.fields)?;
    if context.json {
        return Ok(());
    }
    terminal::data("")?;
    show_attempts(&delivery)
}

async fn act(context: &Context, noun: &Noun, id: &str, verb: &str) -> anyhow::Result<()> {
    context.show_one(&noun.act(context, id, verb).await?, noun.fields)
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
            () = tokio::time::sleep(REDRIVE_POLL) => {}
            _ = signals.next() => {
                bar.abandon();
                terminal::note(format!(
                    "{id} goes on in the server; `posthorn dead-letters cancel {id}` stops it"
                ));
                return Ok(redrive);
            }
        }
        redrive = context.client.get(REDRIVES.at(&id)).await?;
    }
    bar.finish_and_clear();
    Ok(redrive)
}
