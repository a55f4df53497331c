//! `posthorn metrics`: figures of the past.

use serde_json::Value;

use super::finding::{self, Period};
use super::{Context, rows};
use crate::client::with_query;
use crate::terminal;

/// Short headings, so that a line fits on a terminal.
const COLUMNS: &str = "TIME time, EVENTS published, TRIES attempts, OK delivered, \
                       FAILED failures, DEAD dead, P50MS p50_ms, P95MS p95_ms, BACKLOG backlog";

/// What happened in the past, in figures
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Command {
    /// Show what happened by the minute (kept for 48 hours) or by the hour (kept for 90 days)
    Series(Args),
}

/// Which series.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Whose: server (operators only), realm (operators and keys of the realm), tenant or subscription
    #[arg(long, value_parser = ["server", "realm", "tenant", "subscription"])]
    scope: Option<String>,
    /// The realm as a whole, by name
    #[arg(long, conflicts_with = "id")]
    realm: Option<String>,
    /// The tenant or the subscription, by id or name; without it, the tenant of the key
    #[arg(long)]
    id: Option<String>,
    /// How long the steps are
    #[arg(long, value_parser = ["minute", "hour"], default_value = "minute")]
    step: String,
    /// Between which times.
    #[command(flatten)]
    period: Period,
}

/// Runs it.
pub async fn run(context: &Context, command: &Command) -> anyhow::Result<()> {
    let Command::Series(Args { scope, realm, id, step, period }) = command;
    let step = Some(step.clone());
    let own = finding::given(&[("scope", scope), ("realm", realm), ("id", id), ("step", &step)]);
    let path = with_query("/v1/metrics/series", &[own, period.query()].concat());
    let mut series = context.client.get(path).await?;
    if context.json {
        return Ok(terminal::json(&series)?);
    }
    let points = series.get_mut("points").and_then(Value::as_array_mut);
    let points = points.map(std::mem::take).unwrap_or_default();
    let lines: Vec<Value> = points.into_iter().map(line).collect();
    Ok(terminal::data(rows(&lines, COLUMNS))?)
}

/// A point as a line of a table: a day and a time to the minute, and all failures together.
fn line(mut point: Value) -> Value {
    let at = point.get("at").and_then(Value::as_str).unwrap_or_default();
    let time: String = at.replace('T', " ").chars().skip(5).take("01-31 12:00".len()).collect();
    let classes = point.get("failed").and_then(Value::as_object).into_iter().flatten();
    let failures: u64 = classes.filter_map(|(_, count)| count.as_u64()).sum();
    point["time"] = time.into();
    point["failures"] = failures.into();
    point
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_point_is_a_line_that_fits() {
        let point = json!({"at": "2026-01-31T12:05:00.000Z", "published": 1_000_000, "attempts": 1_000_000,
            "delivered": 1_000_000, "dead": 100_000, "failed": {"4xx": 3, "timeout": 4}, "p50_ms": 12.5,
            "p95_ms": 10_000.5, "backlog": 1_000_000});
        let line = line(point);
        assert_eq!((&line["time"], &line["failures"]), (&json!("01-31 12:05"), &json!(7)));
        let table = rows(&[line], COLUMNS);
        for line in table.lines() {
            assert!(!line.contains('…'), "{table}");
        }
    }
}
