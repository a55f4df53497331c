//! `posthorn deliveries`, `posthorn attempts` and `posthorn dead-letters`: what became of events, and another chance
//! for one.

use http::Method;
use serde_json::{Value, json};

use super::events::show_attempts;
use super::finding::{self, Outcome, Part, Period};
use super::jobs::{self, Pace, Past};
use super::noun::{Id, Noun};
use super::{Context, Limit, looking, names, tail};
use crate::client::Call;
use crate::terminal;

const DELIVERIES: Noun = Noun {
    path: "deliveries",
    columns: "ID id, STATE state, WHY why, N attempts_made, NEXT until:due_at, TO to",
    fields: "id event subscription state reason due_at waiting attempts_made last_status \
             last_failure lane created_at ended_at",
};
const ATTEMPTS: Noun = Noun {
    path: "attempts",
    columns: "DELIVERY delivery, N number, OUTCOME outcome, MS took_ms, TRIGGER trigger, \
              AGE since:started_at, TO to",
    ..DELIVERIES
};
const DEAD_LETTERS: Noun = Noun {
    path: "dead-letters",
    columns: "ID id, REASON reason, TRIES attempts_made, AGE since:ended_at, TO to",
    ..DELIVERIES
};

/// List, show, explain, retry, cancel and forget deliveries; remove responses
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
        /// Only in this state: pending, in_flight, delivered, dead or cancelled
        #[arg(long)]
        state: Option<String>,
        /// Only those that ended for this reason: exhausted, permanent, gate, expired, unsubscribed,
        /// operator or dropped
        #[arg(long)]
        reason: Option<String>,
        /// What the last attempt came to.
        #[command(flatten)]
        outcome: Outcome,
        /// Which part.
        #[command(flatten)]
        part: Part,
        /// How many.
        #[command(flatten)]
        limit: Limit,
    },
    /// Show what comes of deliveries, attempt by attempt as they are made, until Ctrl-C
    Tail {
        /// Only of this event
        #[arg(long)]
        event: Option<String>,
        /// Only of this subscription, by id or name
        #[arg(long)]
        subscription: Option<String>,
        /// Only attempts that led to this state: pending, delivered, dead or cancelled
        #[arg(long)]
        state: Option<String>,
        /// Only those that somebody asked for (manual), or that a schedule made (scheduled)
        #[arg(long)]
        trigger: Option<String>,
        /// What they came to.
        #[command(flatten)]
        outcome: Outcome,
    },
    /// Show a delivery with all its attempts
    Show {
        /// Its id, dlv_…
        id: String,
    },
    /// Deliver again what failed, or what was delivered, at a pace
    Resend(Past),
    /// Show what happened to a delivery, step by step, and what it waits for
    Timeline(Id),
    /// Show the request that the last failed attempt sent, or that an attempt would send now, without secrets
    Request {
        /// Its id, dlv_…
        id: String,
        /// The request that an attempt would send now, also when one was sent before
        #[arg(long)]
        rebuild: bool,
    },
    /// Try a delivery now, ended or waiting, with a fresh budget; or, with conditions in place of an id, all that ended and match,
    /// at a pace (dead letters, unless --state says otherwise)
    Retry {
        /// Which, and at which pace.
        #[command(flatten)]
        what: Many,
        /// One attempt for one that has ended; no other follows when it fails
        #[arg(long, requires = "id")]
        once: bool,
    },
    /// Give up a delivery that has not ended; or, with conditions in place of an id, all that match, at a pace
    Cancel(Many),
    /// Remove a delivery with its attempts for good, or all that match, at a pace; what has not ended is cancelled
    Forget(Many),
    /// Remove the response to one attempt for good; the attempt stays
    Expunge {
        /// Its id, dlv_…
        id: String,
        /// The number of the attempt
        #[arg(long, value_name = "N")]
        attempt: u32,
    },
}

/// One delivery, or all that match.
#[derive(clap::Args, Clone, Debug)]
pub struct Many {
    /// Its id, dlv_…; without one, all that match the conditions
    #[arg(conflicts_with_all = ["event", "subscription", "state", "reason", "status", "failure", "from", "until", "dry_run"])]
    id: Option<String>,
    /// Only of this event
    #[arg(long)]
    event: Option<String>,
    /// Only of this subscription, by id or name
    #[arg(long)]
    subscription: Option<String>,
    /// Only in this state: pending, delivered, dead or cancelled
    #[arg(long)]
    state: Option<String>,
    /// Only those that ended for this reason
    #[arg(long)]
    reason: Option<String>,
    /// What the last attempt came to.
    #[command(flatten)]
    outcome: Outcome,
    /// Between which times.
    #[command(flatten)]
    period: Period,
    /// How fast.
    #[command(flatten)]
    pace: Pace,
}

impl Many {
    /// The conditions as fields of a body.
    fn body(&self) -> Value {
        let own = [
            ("event", &self.event),
            ("subscription", &self.subscription),
            ("state", &self.state),
            ("reason", &self.reason),
        ];
        let given = [finding::given(&own), self.outcome.query(), self.period.query()].concat();
        given.into_iter().map(|(name, value)| (name.to_owned(), Value::from(value))).collect()
    }
}

/// List attempts of all deliveries
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Attempts {
    /// List attempts, newest first
    List {
        /// Only of this event
        #[arg(long)]
        event: Option<String>,
        /// Only of this subscription, by id or name
        #[arg(long)]
        subscription: Option<String>,
        /// Only those that somebody asked for (manual), or that a schedule made (scheduled)
        #[arg(long)]
        trigger: Option<String>,
        /// What they came to.
        #[command(flatten)]
        outcome: Outcome,
        /// Which part.
        #[command(flatten)]
        part: Part,
        /// How many.
        #[command(flatten)]
        limit: Limit,
    },
}

/// List, show and retry dead letters; `redrives` tries many again
#[derive(clap::Subcommand, Clone, Debug)]
pub enum DeadLetters {
    /// List dead letters, newest first
    List {
        /// Only of this subscription, by id or name
        #[arg(long)]
        subscription: Option<String>,
        /// Only those that died for this reason: exhausted, permanent, gate or expired
        #[arg(long)]
        reason: Option<String>,
        /// What the last attempt came to.
        #[command(flatten)]
        outcome: Outcome,
        /// Which part.
        #[command(flatten)]
        part: Part,
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
    Retry(Again),
}

/// What is tried again, and how often.
#[derive(clap::Args, Clone, Debug)]
pub struct Again {
    /// Its id, dlv_…
    id: String,
    /// One attempt for one that has ended; no other follows when it fails
    #[arg(long)]
    once: bool,
}

/// Runs `deliveries`.
pub async fn run(context: &Context, command: &Command) -> anyhow::Result<()> {
    match command {
        Command::List { event, subscription, state, reason, outcome, part, limit } => {
            let own = [
                ("event", event),
                ("subscription", subscription),
                ("state", state),
                ("reason", reason),
            ];
            let query = [finding::given(&own), outcome.query(), part.query()].concat();
            list(context, &DELIVERIES, &query, *limit).await
        }
        Command::Tail { event, subscription, state, trigger, outcome } => {
            let own = [
                ("event", event),
                ("subscription", subscription),
                ("state", state),
                ("trigger", trigger),
            ];
            let mut query = [finding::given(&own), outcome.query()].concat();
            query.push(("kind", "attempts".to_owned()));
            tail::follow(context, &query, tail::attempt_line).await
        }
        Command::Show { id } => show(context, &DELIVERIES, id).await,
        Command::Resend(past) => jobs::resend(context, past).await,
        Command::Timeline(Id { id }) => looking::timeline(context, &DELIVERIES.at(id)).await,
        Command::Request { id, rebuild } => {
            looking::request(context, &DELIVERIES.at(id), *rebuild).await
        }
        Command::Retry { what: Many { id: Some(id), .. }, once } => {
            retry(context, &DELIVERIES, id, *once).await
        }
        Command::Cancel(Many { id: Some(id), .. }) => act(context, &DELIVERIES, id, "cancel").await,
        Command::Forget(Many { id: Some(id), .. }) => {
            DELIVERIES.delete(context, id, "forgot").await
        }
        Command::Retry { what, .. } => jobs::bulk(context, "retry", what.body(), what.pace).await,
        Command::Cancel(many) => jobs::bulk(context, "cancel", many.body(), many.pace).await,
        Command::Forget(many) => jobs::bulk(context, "forget", many.body(), many.pace).await,
        Command::Expunge { id, attempt } => {
            let path = format!("{}/attempts/{attempt}/response", DELIVERIES.at(id));
            let delivery = context.client.call(Call::new(Method::DELETE, path)).await?.json()?;
            show_whole(context, &DELIVERIES, &delivery)
        }
    }
}

/// Runs `dead-letters`.
pub async fn run_dead_letters(context: &Context, command: &DeadLetters) -> anyhow::Result<()> {
    match command {
        DeadLetters::List { subscription, reason, outcome, part, limit } => {
            let own = [("subscription", subscription), ("reason", reason)];
            let query = [finding::given(&own), outcome.query(), part.query()].concat();
            list(context, &DEAD_LETTERS, &query, *limit).await
        }
        DeadLetters::Show { id } => show(context, &DEAD_LETTERS, id).await,
        DeadLetters::Retry(Again { id, once }) => retry(context, &DEAD_LETTERS, id, *once).await,
    }
}

/// Runs `attempts`.
pub async fn run_attempts(context: &Context, command: &Attempts) -> anyhow::Result<()> {
    let Attempts::List { event, subscription, trigger, outcome, part, limit } = command;
    let own = [("event", event), ("subscription", subscription), ("trigger", trigger)];
    let query = [finding::given(&own), outcome.query(), part.query()].concat();
    let mut list = ATTEMPTS.find(context, &query, *limit).await?;
    if !context.json {
        names::add_receivers(context, names::items(&mut list)).await?;
        names::items(&mut list).iter_mut().for_each(|attempt| {
            let outcome = attempt.get("status").or_else(|| attempt.get("failure")).cloned();
            attempt["outcome"] = outcome.unwrap_or_default();
        });
    }
    context.show_list(&list, ATTEMPTS.columns)
}

async fn list(
    context: &Context,
    noun: &Noun,
    query: &[(&str, String)],
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
    show_whole(context, noun, &delivery)
}

fn show_whole(context: &Context, noun: &Noun, delivery: &Value) -> anyhow::Result<()> {
    context.show_one(delivery, noun.fields)?;
    if context.json {
        return Ok(());
    }
    terminal::data("")?;
    show_attempts(delivery)
}

async fn retry(context: &Context, noun: &Noun, id: &str, once: bool) -> anyhow::Result<()> {
    if !once {
        return act(context, noun, id, "retry").await;
    }
    let call = Call::new(Method::POST, format!("{}/retry", noun.at(id)));
    let call = call.body(json!({"once": true}).to_string());
    context.show_one(&context.client.call(call).await?.json()?, noun.fields)
}

async fn act(context: &Context, noun: &Noun, id: &str, verb: &str) -> anyhow::Result<()> {
    context.show_one(&noun.act(context, id, verb).await?, noun.fields)
}
