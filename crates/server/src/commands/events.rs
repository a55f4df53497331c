//! `posthorn events`.

use http::Method;
use serde_json::Value;

use super::{Context, Limit, rows};
use crate::client::{Call, segment};
use crate::terminal::{self, Paint};

/// List events, explain what became of one, publish one again
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Command {
    /// List events, newest first
    List {
        /// Only of this topic
        #[arg(long)]
        topic: Option<String>,
        /// Only of this type
        #[arg(long = "type", value_name = "TYPE")]
        event_type: Option<String>,
        /// How many.
        #[command(flatten)]
        limit: Limit,
    },
    /// Show an event: its payload, who got it, who did not and why, and every attempt
    Show {
        /// Its id, evt_…
        id: String,
    },
    /// Publish an event again, to all who want it now
    Republish {
        /// Its id
        id: String,
    },
}

/// Runs it.
pub async fn run(context: &Context, command: &Command) -> anyhow::Result<()> {
    match command {
        Command::List { topic, event_type, limit } => {
            let mut query = Vec::new();
            query.extend(topic.clone().map(|topic| ("topic", topic)));
            query.extend(event_type.clone().map(|kind| ("type", kind)));
            let list = context.client.list("/v1/events", &query, limit.items()).await?;
            let columns = [
                ("ID", "id"),
                ("TOPIC", "topic"),
                ("TYPE", "type"),
                ("KEY", "key"),
                ("BYTES", "payload_bytes"),
                ("ACCEPTED", "accepted_at"),
            ];
            context.show_list(&list, &columns)
        }
        Command::Republish { id } => {
            let path = format!("/v1/events/{}/republish", segment(id));
            let published = context.client.call(Call::new(Method::POST, path)).await?.json()?;
            context.show_one(&published, &["id", "accepted_at", "deliveries"])
        }
        Command::Show { id } => {
            let event = context.client.get(format!("/v1/events/{}", segment(id))).await?;
            let fields = [
                "id",
                "topic",
                "type",
                "attributes",
                "key",
                "content_type",
                "accepted_at",
                "payload_bytes",
                "payload",
                "payload_base64",
            ];
            context.show_one(&event, &fields)?;
            if context.json { Ok(()) } else { explain(&event) }
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
        terminal::data(format_args!(
            "\n{} {} to {}: {state}{}",
            paint.bold("delivery"),
            terminal::cell(delivery, "id"),
            terminal::cell(delivery, "subscription"),
            waits(delivery),
        ))?;
        show_attempts(delivery)?;
    }
    for missed in event.get("not_delivered").and_then(Value::as_array).into_iter().flatten() {
        terminal::data(format_args!(
            "\n{} to {}: {}",
            paint.bold("not delivered"),
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
    let columns = [
        ("ATTEMPT", "number"),
        ("STARTED", "started_at"),
        ("MS", "took_ms"),
        ("STATUS", "status"),
        ("FAILURE", "failure"),
        ("DETAIL", "detail"),
        ("RESPONSE", "response"),
    ];
    Ok(terminal::data(rows(attempts, &columns))?)
}
