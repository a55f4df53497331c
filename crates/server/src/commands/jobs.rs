//! `posthorn jobs`, and the commands that begin one: replays, resends, one event for one subscription, removing
//! payloads, cancelling, forgetting and retrying deliveries.

use std::time::Duration;

use serde_json::{Value, json};

use super::finding::Period;
use super::noun::{Id, Noun, given};
use super::{Context, Limit, parse_pair};
use crate::client::segment;
use crate::lifecycle::Signals;
use crate::terminal;

/// How often a job is asked how far it is.
const POLL: Duration = Duration::from_millis(500);

const JOBS: Noun = Noun {
    path: "jobs",
    columns: "ID id, KIND kind, STATE state, SEEN seen, DONE done, PER SECOND per_second, AGE since:created_at",
    fields: "id kind state subscription event events deliveries status responses per_second seen done created_by created_at finished_at \
             problem",
};

/// List, show and cancel jobs: replays, resends, single events, removed payloads, cancelled and forgotten deliveries
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Command {
    /// List jobs, newest first
    List(Limit),
    /// Show a job and how far it is
    Show(Id),
    /// Cancel a job; what it has done stays done
    Cancel(Id),
}

/// Which events of the past.
#[derive(clap::Args, Clone, Debug)]
pub struct Chosen {
    /// Only of this topic; may be given several times
    #[arg(long)]
    topic: Vec<String>,
    /// Only of this type; may be given several times
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Vec<String>,
    /// Only with this attribute; may be given several times
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_pair)]
    attribute: Vec<(String, String)>,
    /// Between which times.
    #[command(flatten)]
    period: Period,
}

/// How a job goes on.
#[derive(clap::Args, Clone, Copy, Debug)]
pub struct Pace {
    /// How many per second
    #[arg(long, default_value_t = 100, value_name = "N")]
    pub(super) per_second: u32,
    /// Only count what would be done
    #[arg(long)]
    dry_run: bool,
    /// Do not wait; it goes on in the server
    #[arg(long)]
    no_wait: bool,
}

/// Which events of the past are delivered, and how fast.
#[derive(clap::Args, Clone, Debug)]
pub struct Past {
    /// Which.
    #[command(flatten)]
    chosen: Chosen,
    /// Which of them: all, missed, failed or delivered
    #[arg(long)]
    status: Option<String>,
    /// How fast.
    #[command(flatten)]
    pace: Pace,
}

impl Chosen {
    /// Whether nothing was given.
    pub(super) fn is_empty(&self) -> bool {
        self.body().is_null()
    }

    /// As fields of a body; null when there are none.
    fn body(&self) -> Value {
        let mut body = Value::Null;
        for (name, value) in self.period.query() {
            body[name] = json!(value);
        }
        for (name, values) in [("topics", &self.topic), ("types", &self.event_type)] {
            if !values.is_empty() {
                body[name] = json!(values);
            }
        }
        for (name, value) in &self.attribute {
            body["attributes"][name] = json!(value);
        }
        body
    }
}

/// Runs `jobs`.
pub async fn run(context: &Context, command: &Command) -> anyhow::Result<()> {
    match command {
        Command::List(limit) => JOBS.list(context, *limit).await,
        Command::Show(Id { id }) => JOBS.show(context, id).await,
        Command::Cancel(Id { id }) => {
            context.show_one(&JOBS.act(context, id, "cancel").await?, JOBS.fields)
        }
    }
}

/// Runs `subscriptions replay`.
pub(super) async fn replay(context: &Context, id: &str, past: &Past) -> anyhow::Result<()> {
    deliver_past(context, &format!("/v1/subscriptions/{}/replay", segment(id)), past).await
}

/// Runs `deliveries resend`.
pub(super) async fn resend(context: &Context, past: &Past) -> anyhow::Result<()> {
    deliver_past(context, "/v1/deliveries/resend", past).await
}

async fn deliver_past(context: &Context, path: &str, past: &Past) -> anyhow::Result<()> {
    let mut body = past.chosen.body();
    body["status"] = json!(past.status);
    body["per_second"] = json!(past.pace.per_second);
    start(context, path, body, past.pace, "replaying").await
}

/// Runs `events expunge` for many.
pub(super) async fn expunge(
    context: &Context,
    chosen: &Chosen,
    responses: bool,
    pace: Pace,
) -> anyhow::Result<()> {
    let mut body = chosen.body();
    body["responses"] = json!(responses);
    body["per_second"] = json!(pace.per_second);
    start(context, "/v1/events/expunge", body, pace, "expunging").await
}

/// Runs `deliveries cancel`, `deliveries forget` and `deliveries retry` for many.
pub(super) async fn bulk(
    context: &Context,
    action: &'static str,
    mut body: Value,
    pace: Pace,
) -> anyhow::Result<()> {
    body["action"] = json!(action);
    body["per_second"] = json!(pace.per_second);
    start(context, "/v1/deliveries/bulk", body, pace, "working").await
}

/// Runs `events deliver`.
pub(super) async fn deliver(context: &Context, id: &str, to: &str) -> anyhow::Result<()> {
    let path = format!("/v1/events/{}/deliver", segment(id));
    let job = context.client.post(path, &json!({"subscription": to})).await?;
    context.show_one(&job, JOBS.fields)
}

/// Begins a job, or counts what it would do.
pub(super) async fn start(
    context: &Context,
    path: &str,
    body: Value,
    pace: Pace,
    doing: &'static str,
) -> anyhow::Result<()> {
    let body = given(body);
    if pace.dry_run {
        let counted = context.client.post(format!("{path}/count"), &body).await?;
        return context.show_one(&counted, "count seen complete");
    }
    let job = context.client.post(path, &body).await?;
    let job = if pace.no_wait { job } else { follow(context, job, doing).await? };
    context.show_one(&job, JOBS.fields)
}

/// Watches a job to its end. It lives in the server: leaving here does not stop it.
async fn follow(context: &Context, mut job: Value, doing: &'static str) -> anyhow::Result<Value> {
    let id = terminal::cell(&job, "id");
    let bar = terminal::progress(0, doing);
    let mut signals = Signals::listen()?;
    while job.get("state").and_then(Value::as_str) == Some("running") {
        bar.set_position(job.get("done").and_then(Value::as_u64).unwrap_or(0));
        tokio::select! {
            () = tokio::time::sleep(POLL) => {}
            _ = signals.next() => {
                bar.abandon();
                terminal::note(format!("{id} goes on in the server; `posthorn jobs cancel {id}` stops it"));
                return Ok(job);
            }
        }
        job = context.client.get(JOBS.at(&id)).await?;
    }
    bar.finish_and_clear();
    Ok(job)
}
