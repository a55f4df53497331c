//! `posthorn deliveries timeline`, `posthorn deliveries request` and `posthorn subscriptions health`: what one looks at
//! when a delivery does not arrive.

use posthorn_domain::Timestamp;
use serde_json::{Value, json};

use super::{Context, rows};
use crate::terminal::{self, Paint};

/// Shows what happened to a delivery, step by step, and what the last trouble means.
pub(super) async fn timeline(context: &Context, delivery: &str) -> anyhow::Result<()> {
    let told = context.client.get(format!("{delivery}/timeline")).await?;
    if context.json {
        return Ok(terminal::json(&told)?);
    }
    let steps = told.get("steps").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let lines: Vec<Value> = steps.iter().map(line).collect();
    let columns = "AT at, LASTS lasts, STEP step, WHAT what, TIMINGS timings, SAID said";
    terminal::data(rows(&lines, columns))?;
    // One explanation is enough: that of the last step that has one.
    if let Some(explain) = steps.iter().rev().find_map(|step| step.get("explain")) {
        let paint = Paint::stdout();
        terminal::data(format_args!(
            "\n{}: {}\n\n{} {}",
            paint.bold(terminal::cell(explain, "code")),
            terminal::cell(explain, "meaning"),
            paint.bold("What to do:"),
            terminal::cell(explain, "remedy"),
        ))?;
    }
    Ok(())
}

/// A step as a row: what it was in one field, and what was said about it in another.
fn line(step: &Value) -> Value {
    let first = |names: &[&str]| names.iter().find_map(|name| step.get(*name).cloned());
    let group = |index: &Value| json!(format!("any_of[{}]", terminal::plain(index)));
    let what = match step.get("step").and_then(Value::as_str) {
        Some("matched") => step.get("group").map(group),
        _ => first(&["failure", "status", "reason", "state"]),
    };
    let removed = || step.get("response_expunged_at").map(|_| json!("(removed)"));
    json!({
        "at": step.get("at"), "step": step.get("step"), "lasts": lasts(step), "what": what,
        "timings": timings(step),
        "said": first(&["detail", "response"]).or_else(removed),
    })
}

/// What an attempt spent its time with, as far as it came: those that were not measured are left out.
fn timings(step: &Value) -> Option<String> {
    let timings = step.get("timings_ms")?;
    let part = |(name, label): &(&str, &str)| {
        timings.get(*name)?.as_u64().map(|millis| format!("{label} {millis}ms"))
    };
    let names =
        [("dns", "dns"), ("connect", "connect"), ("tls", "tls"), ("first_byte", "first byte")];
    let parts: Vec<String> = names.iter().filter_map(part).collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// How long a step took, or will take at least.
fn lasts(step: &Value) -> Option<String> {
    let time = |name: &str| step.get(name)?.as_str()?.parse::<Timestamp>().ok();
    Some(time("until")?.since(time("at")?).to_string())
}

/// Shows the request that an attempt sent or would send now, as it goes over the wire.
pub(super) async fn request(
    context: &Context,
    delivery: &str,
    rebuild: bool,
) -> anyhow::Result<()> {
    let query = if rebuild { "?rebuild=true" } else { "" };
    let shown = context.client.get(format!("{delivery}/request{query}")).await?;
    if context.json {
        return Ok(terminal::json(&shown)?);
    }
    if shown.get("failure").is_some() {
        terminal::note("the request cannot be built; an attempt would fail so:");
        return context.show_one(&shown, "failure detail explain");
    }
    let (method, url) = (terminal::cell(&shown, "method"), terminal::cell(&shown, "url"));
    terminal::data(format_args!("{} {}", Paint::stdout().bold(method), terminal::clean(&url)))?;
    for pair in shown.get("headers").and_then(Value::as_array).into_iter().flatten() {
        let part = |index: usize| pair.get(index).and_then(Value::as_str).unwrap_or_default();
        terminal::data(terminal::clean(&format!("{}: {}", part(0), part(1))))?;
    }
    let body = ["body", "body_base64"].iter().find_map(|name| shown.get(*name)?.as_str());
    match body {
        Some(body) => {
            let lines: Vec<String> = body.lines().map(terminal::clean).collect();
            terminal::data(format_args!("\n{}", lines.join("\n")))?;
        }
        None if shown.get("as_sent") == Some(&Value::Bool(true)) => {
            let (attempt, bytes) =
                (terminal::cell(&shown, "attempt"), terminal::cell(&shown, "body_bytes"));
            terminal::note(format!(
                "as attempt {attempt} sent it, with a body of {bytes} bytes, which is not kept; --rebuild shows \
                 what would be sent now"
            ));
            return Ok(());
        }
        None => terminal::note(format!(
            "the body is encrypted: {} bytes",
            terminal::cell(&shown, "body_bytes")
        )),
    }
    terminal::note("built from the present policy; nothing was sent");
    Ok(())
}

/// Shows how a subscription is doing.
pub(super) async fn health(context: &Context, subscription: &str) -> anyhow::Result<()> {
    let health = context.client.get(format!("{subscription}/health")).await?;
    let fields = "owner breaker concurrency rate waiting failing_since pending oldest_due_at \
                  blocked_lanes_count last_hour";
    if context.json {
        return Ok(terminal::json(&health)?);
    }
    context.show_one(&in_words(&health), fields)?;
    let lanes = health.get("blocked_lanes").and_then(Value::as_array);
    if let Some(lanes) = lanes.filter(|lanes| !lanes.is_empty()) {
        let table = rows(lanes, "LANE lane, WAITS since:since, FOR delivery");
        terminal::data(format_args!("\n{table}"))?;
    }
    if health.get("owner") == Some(&Value::Bool(false)) {
        terminal::note("another node works on it; only that one knows its breaker and its rate");
    }
    Ok(())
}

/// The same with one line of words for each thing within it.
fn in_words(health: &Value) -> Value {
    let words = |value: &Value| match value.as_object() {
        Some(inner) => {
            let pair = |(name, value): (&String, &Value)| match name.as_str() {
                "state" => terminal::plain(value),
                _ => format!("{} {}", name.replace('_', " "), terminal::plain(value)),
            };
            json!(inner.iter().map(pair).collect::<Vec<_>>().join(", "))
        }
        None => value.clone(),
    };
    let fields = health.as_object().into_iter().flatten();
    Value::Object(fields.map(|(name, value)| (name.clone(), words(value))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_become_rows() {
        let row = |step: Value| {
            let line = line(&step);
            ["lasts", "step", "what", "said"].map(|field| terminal::cell(&line, field))
        };
        let (at, until) = ("2026-01-01T00:00:00Z", "2026-01-01T00:01:30Z");
        let waited = json!({"at": at, "until": until, "step": "waited", "reason": "rate"});
        assert_eq!(row(waited), ["1m30s", "waited", "rate", "-"]);
        let attempt = json!({"at": at, "step": "attempt", "status": 500, "response": "no"});
        assert_eq!(row(attempt), ["-", "attempt", "500", "no"]);
        let removed =
            json!({"at": at, "step": "attempt", "status": 500, "response_expunged_at": at});
        assert_eq!(row(removed), ["-", "attempt", "500", "(removed)"]);
        assert_eq!(row(json!({"at": at, "step": "expunged"})), ["-", "expunged", "-", "-"]);
        let ended = json!({"at": at, "step": "ended", "state": "dead", "reason": "exhausted"});
        assert_eq!(row(ended), ["-", "ended", "exhausted", "-"]);
        let matched = json!({"at": at, "step": "matched", "group": 0, "detail": "it does"});
        assert_eq!(row(matched), ["-", "matched", "any_of[0]", "it does"]);
    }
}
