//! `posthorn events tail` and `posthorn deliveries tail`: what happens, as it happens.
//!
//! The stream is read until somebody ends the command. When it breaks, it is opened again where it was.

use std::time::Duration;

use serde_json::Value;

use super::Context;
use crate::client::{Stream, with_query};
use crate::terminal::{self, Paint};

/// Waits between two tries to open a stream again, from the first to the longest.
const WAITS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(15)];

/// Shows what a stream tells, with the columns of a kind of items.
pub(super) async fn follow(
    context: &Context,
    query: &[(&str, String)],
    line: fn(Paint, &Value) -> String,
) -> anyhow::Result<()> {
    let path = with_query("/v1/stream", query);
    let mut last: Option<String> = None;
    let mut wait = WAITS[0];
    loop {
        let broken = match context.client.stream(&path, last.as_deref()).await {
            Ok(mut stream) => {
                if last.is_none() {
                    terminal::note("following; end with Ctrl-C");
                }
                wait = WAITS[0];
                show(context, &mut stream, &mut last, line).await?
            }
            // Nobody was there from the start, or the server says no: that is not going to change.
            Err(e) if last.is_none() || !is_passing(&e) => return Err(e),
            Err(e) => format!("{e:#}"),
        };
        let warning = format!("the stream ended ({broken}); trying again in {} s", wait.as_secs());
        terminal::note(Paint::stderr().warn(warning));
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(WAITS[1]);
    }
}

/// Shows items until the stream breaks, and says why it did.
async fn show(
    context: &Context,
    stream: &mut Stream,
    last: &mut Option<String>,
    line: fn(Paint, &Value) -> String,
) -> anyhow::Result<String> {
    loop {
        let told = match stream.next().await {
            Ok(Some(told)) => told,
            Ok(None) => return Ok("the server closed it".to_owned()),
            Err(e) => return Ok(format!("{e:#}")),
        };
        if let Some(id) = told.id {
            *last = Some(id);
        }
        let Some((name, data)) = told.item else { continue };
        if name == "skipped" {
            let text = match data.get("older_than") {
                Some(_) => {
                    let time = terminal::clean(&terminal::cell(&data, "older_than"));
                    format!("what is older than {time} was skipped: this end was away for long")
                }
                None => {
                    let count = terminal::cell(&data, "count");
                    format!("{count} were skipped: this end did not keep up")
                }
            };
            terminal::note(Paint::stderr().warn(text));
        }
        if context.json {
            terminal::data(serde_json::json!({"kind": name, "item": data}))?;
        } else if name != "skipped" {
            terminal::data(line(Paint::stdout(), &data))?;
        }
    }
}

/// Whether it may go away by itself.
fn is_passing(error: &anyhow::Error) -> bool {
    use crate::exit::{Code, code_of};
    code_of(error) == Code::Unavailable
}

/// An event as a line.
pub(super) fn event_line(paint: Paint, event: &Value) -> String {
    let cell = |name| terminal::clean(&terminal::cell(event, name));
    let (time, id) = (clock(event, "accepted_at"), cell("id"));
    let key = event.get("key").map(|_| format!(" {}", paint.dim(cell("key")))).unwrap_or_default();
    let (topic, kind) = (cell("topic"), paint.bold(cell("type")));
    format!("{} {id} {topic} {kind}{key} {} B", paint.dim(time), cell("payload_bytes"))
}

/// An attempt as a line.
pub(super) fn attempt_line(paint: Paint, attempt: &Value) -> String {
    let cell = |name| terminal::clean(&terminal::cell(attempt, name));
    let outcome = match attempt.get("status") {
        Some(_) => cell("status"),
        None => cell("failure"),
    };
    let led_to = match attempt.get("reason") {
        Some(_) => format!("{} ({})", cell("state"), cell("reason")),
        None => cell("state"),
    };
    let painted = match attempt.get("state").and_then(Value::as_str) {
        Some("delivered") => paint.good(format!("{outcome} {led_to}")),
        Some("dead" | "cancelled") => paint.bad(format!("{outcome} {led_to}")),
        _ => paint.warn(format!("{outcome} {led_to}")),
    };
    let (delivery, number) = (cell("delivery"), cell("number"));
    let (took, to) = (cell("took_ms"), cell("subscription"));
    let time = paint.dim(clock(attempt, "started_at"));
    format!("{time} {delivery} #{number} {painted} {took} ms to {to}")
}

/// The time of day.
fn clock(item: &Value, field: &str) -> String {
    let at = item.get(field).and_then(Value::as_str).unwrap_or_default();
    terminal::clean(at.split_once('T').map_or(at, |(_, time)| time.trim_end_matches('Z')))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn items_are_lines() {
        let event = json!({"id": "evt_1", "topic": "orders", "type": "order.created", "key": "k",
            "accepted_at": "2026-01-31T12:00:01.500Z", "payload_bytes": 12});
        let plain = Paint::none();
        let line = event_line(plain, &event);
        assert_eq!(line, "12:00:01.500 evt_1 orders order.created k 12 B");
        let attempt = json!({"delivery": "dlv_1", "number": 3, "status": 500, "took_ms": 8,
            "state": "dead", "reason": "exhausted", "subscription": "sub_1",
            "started_at": "2026-01-31T12:00:01.500Z"});
        let line = attempt_line(plain, &attempt);
        assert_eq!(line, "12:00:01.500 dlv_1 #3 500 dead (exhausted) 8 ms to sub_1");
        let attempt = json!({"delivery": "dlv_1", "number": 1, "failure": "connect_failed\u{1b}[2J",
            "took_ms": 8, "state": "pending", "subscription": "sub_1", "started_at": "x"});
        let line = attempt_line(plain, &attempt);
        assert!(
            line.starts_with("x dlv_1 #1 connect_failed") && !line.contains('\u{1b}'),
            "{line}"
        );
    }
}
