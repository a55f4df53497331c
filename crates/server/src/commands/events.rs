//! `posthorn events`.

use http::Method;
use serde_json::Value;

use super::finding::{self, Part};
use super::jobs::{Chosen, Pace};
use super::noun::{Id, Noun};
use super::{Context, Limit, names, rows, tail};
use crate::client::{Call, with_query};
use crate::exit::{Code, Failure};
use crate::terminal::{self, Paint};

const EVENTS: Noun = Noun {
    path: "events",
    columns: "ID id, TOPIC topic, TYPE type, KEY key, BYTES payload_bytes, AGE since:accepted_at, EXPUNGED since:expunged_at",
    fields: "id topic type attributes key publisher_id content_type accepted_at deliver_at \
             retention expunged_at trace_id payload_bytes payload payload_base64",
};

/// List events, explain what became of one, publish one again, remove payloads
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Command {
    /// List events, newest first
    List {
        /// Only of this topic; may be given several times
        #[arg(long)]
        topic: Vec<String>,
        /// Only of this type; may be given several times
        #[arg(long = "type", value_name = "TYPE")]
        event_type: Vec<String>,
        /// Only with this attribute; may be given several times
        #[arg(long, value_name = "NAME=VALUE")]
        attribute: Vec<String>,
        /// Only with this ordering key
        #[arg(long, value_name = "KEY")]
        ordering_key: Option<String>,
        /// Only the one that was published with this idempotency key
        #[arg(long, value_name = "ID")]
        publisher_id: Option<String>,
        /// Only those with a dead letter
        #[arg(long)]
        dead_letters: bool,
        /// Only those that matched no subscription
        #[arg(long)]
        unwanted: bool,
        /// Which part.
        #[command(flatten)]
        part: Part,
        /// How many.
        #[command(flatten)]
        limit: Limit,
    },
    /// Show events as they are accepted, until Ctrl-C
    Tail {
        /// Only of this topic; may be given several times
        #[arg(long)]
        topic: Vec<String>,
        /// Only of this type; may be given several times
        #[arg(long = "type", value_name = "TYPE")]
        event_type: Vec<String>,
        /// Only with this attribute; may be given several times
        #[arg(long, value_name = "NAME=VALUE")]
        attribute: Vec<String>,
        /// Only with this ordering key
        #[arg(long, value_name = "KEY")]
        ordering_key: Option<String>,
    },
    /// Show an event: its payload, who got it, who did not and why, and every attempt
    Show {
        /// Its id, evt_…
        id: String,
    },
    /// Publish an event again, to all who want it now
    Republish(Id),
    /// Deliver an event to one subscription, whatever its filter
    Deliver {
        /// Its id, evt_…
        id: String,
        /// To whom, by id or name
        #[arg(long, value_name = "SUBSCRIPTION")]
        to: String,
    },
    /// Remove the payload of an event for good, or those of many events; that they happened stays
    ///
    /// Name one event by its id, or many by what they have in common. Of many, those with deliveries that have not
    /// ended are passed over. Backups, receivers and old pages of the store may still have what is removed here.
    Expunge {
        /// Its id, evt_…
        #[arg(conflicts_with_all = ["topic", "event_type", "attribute", "from", "until"])]
        #[arg(conflicts_with_all = ["per_second", "dry_run", "no_wait"])]
        id: Option<String>,
        /// Also remove the responses to all attempts
        #[arg(long)]
        responses: bool,
        /// Cancel deliveries of the event that have not ended
        #[arg(long, conflicts_with_all = ["topic", "event_type", "attribute", "from", "until"])]
        cancel: bool,
        /// Which events.
        #[command(flatten)]
        chosen: Chosen,
        /// How fast.
        #[command(flatten)]
        pace: Pace,
    },
}

/// Runs it.
pub async fn run(context: &Context, command: &Command) -> anyhow::Result<()> {
    match command {
        Command::List {
            topic,
            event_type,
            attribute,
            ordering_key,
            publisher_id,
            dead_letters,
            unwanted,
            part,
            limit,
        } => {
            let mut query =
                finding::given(&[("key", ordering_key), ("publisher_id", publisher_id)]);
            for (name, values) in [("topic", topic), ("type", event_type), ("attribute", attribute)]
            {
                query.extend(values.iter().map(|value| (name, value.clone())));
            }
            for (name, given) in [("dead_letters", dead_letters), ("unwanted", unwanted)] {
                query.extend(given.then(|| (name, "true".to_owned())));
            }
            query.extend(part.query());
            context.show_list(&EVENTS.find(context, &query, *limit).await?, EVENTS.columns)
        }
        Command::Tail { topic, event_type, attribute, ordering_key } => {
            let mut query = vec![("kind", "events".to_owned())];
            query.extend(finding::given(&[("key", ordering_key)]));
            for (name, values) in [("topic", topic), ("type", event_type), ("attribute", attribute)]
            {
                query.extend(values.iter().map(|value| (name, value.clone())));
            }
            tail::follow(context, &query, tail::event_line).await
        }
        Command::Deliver { id, to } => super::jobs::deliver(context, id, to).await,
        Command::Expunge { id: None, chosen, .. } if chosen.is_empty() => {
            let problem =
                "which events? Without an id or a condition, every payload would be removed";
            let hint = "give the id of an event, or one of --topic, --type, --attribute, --from and --until";
            Err(Failure::new(Code::Usage, problem).hint(hint).into())
        }
        Command::Expunge { id: None, responses, chosen, pace, .. } => {
            super::jobs::expunge(context, chosen, *responses, *pace).await
        }
        Command::Expunge { id: Some(id), responses, cancel, .. } => {
            let given = [("responses", responses), ("cancel", cancel)];
            let given = given.into_iter().filter(|(_, given)| **given);
            let query: Vec<_> = given.map(|(name, _)| (name, "true".to_owned())).collect();
            let path = with_query(&format!("{}/payload", EVENTS.at(id)), &query);
            let event = context.client.call(Call::new(Method::DELETE, path)).await?.json()?;
            context.show_one(&event, EVENTS.fields)
        }
        Command::Republish(Id { id }) => {
            let published = EVENTS.act(context, id, "republish").await?;
            context.show_one(&published, "id accepted_at deliveries")
        }
        Command::Show { id } => {
            let mut event = context.client.get(EVENTS.at(id)).await?;
            context.show_one(&event, EVENTS.fields)?;
            if context.json {
                return Ok(());
            }
            for part in ["deliveries", "not_delivered"] {
                if let Some(Value::Array(items)) = event.get_mut(part) {
                    names::add_receivers(context, items).await?;
                }
            }
            explain(&event)
        }
    }
}

/// Who got it, who did not, and every attempt.
fn explain(event: &Value) -> anyhow::Result<()> {
    let paint = Paint::stdout();
    for delivery in event.get("deliveries").and_then(Value::as_array).into_iter().flatten() {
        let state = terminal::cell(delivery, "state");
        let state = match state.as_str() {
            "delivered" => paint.good(state),
            "dead" => paint.bad(state),
            _ => paint.warn(state),
        };
        let reason = delivery.get("reason").and_then(Value::as_str);
        let reason = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
        terminal::data(format_args!(
            "\n{} {} to {} ({}): {state}{reason}{}",
            paint.bold("delivery"),
            terminal::cell(delivery, "id"),
            terminal::clean(&terminal::cell(delivery, "to")),
            terminal::cell(delivery, "subscription"),
            waits(delivery),
        ))?;
        if delivery.get("due_at").is_some() {
            terminal::data(format_args!(
                "next attempt {}, at {}",
                terminal::cell(delivery, "until:due_at"),
                terminal::cell(delivery, "due_at"),
            ))?;
        }
        show_attempts(delivery)?;
    }
    for missed in event.get("not_delivered").and_then(Value::as_array).into_iter().flatten() {
        terminal::data(format_args!(
            "\n{} to {} ({}): {}",
            paint.bold("not delivered"),
            terminal::clean(&terminal::cell(missed, "to")),
            terminal::cell(missed, "subscription"),
            terminal::clean(&terminal::cell(missed, "reasons")),
        ))?;
    }
    if event.get("truncated") == Some(&Value::Bool(true)) {
        terminal::note("there is more than is shown");
    }
    Ok(())
}

/// What a delivery waits for, in words.
fn waits(delivery: &Value) -> String {
    let Some(waiting) = delivery.get("waiting").filter(|waiting| waiting.is_object()) else {
        return String::new();
    };
    let reason = terminal::cell(waiting, "reason");
    match waiting.get("until").and_then(Value::as_str) {
        Some(until) => format!(", waits for {reason} until {until}"),
        None => format!(", waits for {reason}"),
    }
}

/// The attempts of a delivery, as a table.
pub(crate) fn show_attempts(delivery: &Value) -> anyhow::Result<()> {
    let attempts = delivery.get("attempts").and_then(Value::as_array);
    let attempts = attempts.map_or(&[][..], Vec::as_slice);
    if attempts.is_empty() {
        terminal::note("no attempt was made yet");
        return Ok(());
    }
    let columns = "N number, STARTED started_at, MS took_ms, RESULT result, SAID said";
    let attempts: Vec<Value> = attempts.iter().cloned().map(told).collect();
    Ok(terminal::data(rows(&attempts, columns))?)
}

/// An attempt with what came of it in one field, and what was said about it in another.
fn told(mut attempt: Value) -> Value {
    let first = |names: [&str; 2]| names.iter().find_map(|name| attempt.get(name).cloned());
    let (result, said) = (first(["failure", "status"]), first(["detail", "response"]));
    attempt["result"] = result.unwrap_or_default();
    let removed = attempt.get("response_expunged_at").map(|_| Value::from("(removed)"));
    attempt["said"] = said.or(removed).unwrap_or_default();
    attempt
}
