//! `posthorn listen`: a receiver that shows what arrives, and can misbehave on request.

mod identity;
mod push;
mod refusals;
mod shown;
mod subscription;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use http::{Method, StatusCode};
use parking_lot::Mutex;
use posthorn_domain::{Problem, Span};
use posthorn_sealing::standard_webhooks::HeaderNames;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{Context, send};
use crate::client::{Access, Call};
use crate::exit::{Code, Failure};
use crate::receiver::{self, Handler, Received, Verifier};
use crate::terminal::{self, Paint};

/// After the last expected request, its answer still has to reach the sender: so long, and what
/// `--delay` adds.
const LAST_ANSWER: Duration = Duration::from_secs(5);
/// And the server has to write it down before its subscription may go: so long at most, asked so often.
const LAST_RECORD: Duration = Duration::from_secs(3);
const RECORD_POLL: Duration = Duration::from_millis(50);

/// Receive webhooks and show them
///
/// With --subscribe it creates the topic and a subscription that points here, checks signatures with
/// its secret, and removes the subscription at the end. With --push nothing must reach this machine:
/// events come over a socket that it opens itself, encrypted for it alone.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The port; 0 takes a free one
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// The address
    #[arg(long, default_value = "127.0.0.1")]
    address: IpAddr,
    /// The status to answer with
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u16).range(200..=599))]
    status: u16,
    /// Answer 503 to the first N requests
    #[arg(long, default_value_t = 0, value_name = "N")]
    fail_first: u64,
    /// Wait before answering
    #[arg(long, default_value = "0s", value_name = "DURATION")]
    delay: Span,
    /// Never answer
    #[arg(long)]
    stall: bool,
    /// Check signatures with this secret or public key: whsec_…, whsk_… or whpk_…
    #[arg(long, value_name = "SECRET")]
    verify: Option<String>,
    /// Subscribe to a topic while listening
    #[arg(long, value_name = "TOPIC")]
    subscribe: Option<String>,
    /// The profile of that subscription
    #[arg(long, value_name = "PROFILE", requires = "subscribe")]
    profile: Option<String>,
    /// End after N requests; exit code 1 when a signature did not fit
    #[arg(long, value_name = "N")]
    count: Option<u64>,
    /// Get the events as messages of Web Push, over a socket to the server: no public URL is needed
    #[arg(long, requires = "subscribe", conflicts_with_all = [
        "port", "address", "status", "fail_first", "delay", "stall", "verify",
    ])]
    push: bool,
    /// Keep the agent and its subscription in this file: what comes meanwhile waits for the next start
    #[arg(long, value_name = "FILE", requires = "push")]
    keep: Option<PathBuf>,
}

/// What the handler and the end of the command share.
struct Tally {
    seen: AtomicU64,
    forged: AtomicBool,
    /// The event of the last request that was answered with success.
    taken: Mutex<Option<String>>,
    enough: CancellationToken,
}

/// Runs it.
pub async fn run(access: &Access, json: bool, args: &Args) -> anyhow::Result<()> {
    if args.push
        && let Some(topic) = &args.subscribe
    {
        return Box::pin(push::run(access, json, args, topic)).await;
    }
    let listener = receiver::bind(SocketAddr::new(args.address, args.port)).await?;
    let address = listener.local_addr()?;
    terminal::note(format!("listening on http://{address}"));
    let mut verifier = args.verify.as_deref().map(Verifier::parse).transpose()?;
    let mut subscription = None;
    if let Some(topic) = &args.subscribe {
        let context = Context::new(access, json)?;
        let (id, secret) = subscribe(&context, args, topic, address).await?;
        if verifier.is_none() {
            verifier = secret.as_deref().map(Verifier::parse).transpose()?;
        }
        terminal::note(format!("subscribed to {topic} with {id}; Ctrl-C ends and removes it"));
        subscription = Some((context, id));
    }
    let tally = Arc::new(Tally {
        seen: AtomicU64::new(0),
        forged: AtomicBool::new(false),
        taken: Mutex::new(None),
        enough: CancellationToken::new(),
    });
    let stop = CancellationToken::new();
    let handler = handler(args.clone(), json, verifier, Arc::clone(&tally));
    // One that never answers is not waited for.
    let patience = if args.stall { Duration::ZERO } else { args.delay.to_duration() + LAST_ANSWER };
    let mut serving = tokio::spawn(receiver::run(listener, handler, stop.clone(), patience));
    tokio::select! {
        () = tally.enough.cancelled() => {
            stop.cancel();
            drop((&mut serving).await);
        }
        signal = crate::lifecycle::any_signal() => signal?,
    }
    if let Some((context, id)) = subscription {
        let taken = tally.taken.lock().take();
        if let Some(event) = taken.filter(|_| tally.enough.is_cancelled()) {
            drop(tokio::time::timeout(LAST_RECORD, recorded(&context, &id, &event)).await);
        }
        let call = Call::new(Method::DELETE, format!("/v1/subscriptions/{id}"));
        context.client.call(call).await.with_context(|| format!("{id} could not be removed"))?;
        terminal::note(format!("removed {id}"));
    }
    serving.abort();
    if args.count.is_some() && tally.forged.load(Ordering::Relaxed) {
        return Err(Failure::new(Code::Failure, "at least one signature did not fit").into());
    }
    Ok(())
}

/// Waits until a delivery that was answered has ended. Whoever may not ask does not wait.
async fn recorded(context: &Context, subscription: &str, event: &str) {
    let query = [("event", event.to_owned()), ("subscription", subscription.to_owned())];
    while let Ok(list) = context.client.list("/v1/deliveries", &query, 1).await {
        let waits =
            |item: &Value| ["pending", "in_flight"].contains(&&*terminal::cell(item, "state"));
        if !list.pointer("/items/0").is_some_and(waits) {
            return;
        }
        tokio::time::sleep(RECORD_POLL).await;
    }
}

async fn subscribe(
    context: &Context,
    args: &Args,
    topic: &str,
    address: SocketAddr,
) -> anyhow::Result<(String, Option<String>)> {
    send::ensure_topic(context, topic).await?;
    let mut body = json!({
        "url": format!("http://{address}/"),
        "description": "posthorn listen",
        "filter": {"any_of": [{"topics": [topic]}]},
    });
    if let Some(profile) = &args.profile {
        body["profile"] = Value::String(profile.clone());
    }
    let made = context.client.post("/v1/subscriptions", &body).await.map_err(|error| {
        let refused = error.downcast_ref::<Failure>();
        if refused.is_some_and(|failure| failure.problem.as_deref() == Some("url_not_allowed")) {
            return Failure::new(Code::Failure, error.to_string())
                .hint(format!(
                    "receivers on this machine are closed by default; start the server with \
                     `posthorn serve --allow {}`",
                    address.ip()
                ))
                .into();
        }
        error
    })?;
    let secret = made.get("signing_secret").and_then(Value::as_str).map(str::to_owned);
    Ok((terminal::cell(&made, "id"), secret))
}

fn handler(args: Args, json: bool, verifier: Option<Verifier>, tally: Arc<Tally>) -> Handler {
    let args = Arc::new(args);
    Arc::new(move |received: Received| {
        let number = tally.seen.fetch_add(1, Ordering::Relaxed) + 1;
        let checked = verifier.as_ref().map(|verifier| verifier.check(&received));
        if let Some(Err(_)) = checked {
            tally.forged.store(true, Ordering::Relaxed);
        }
        let status = if number <= args.fail_first { 503 } else { args.status };
        if !args.stall && (200..300).contains(&status) {
            let names = HeaderNames::in_use(|name| received.header(name).is_some());
            *tally.taken.lock() = received.header(names.id).map(str::to_owned);
        }
        let shown = Shown { number, received: &received, checked: &checked, status, args: &args };
        let written = if json { shown.as_json() } else { shown.as_text() };
        if written.is_err() || args.count.is_some_and(|count| number >= count) {
            tally.enough.cancel();
        }
        let (delay, stall) = (args.delay.to_duration(), args.stall);
        Box::pin(async move {
            if stall {
                return None;
            }
            tokio::time::sleep(delay).await;
            Some(StatusCode::from_u16(status).unwrap_or(StatusCode::OK))
        })
    })
}

/// One request, to be shown.
struct Shown<'a> {
    number: u64,
    received: &'a Received,
    checked: &'a Option<Result<(), Problem>>,
    status: u16,
    args: &'a Args,
}

impl Shown<'_> {
    fn as_json(&self) -> std::io::Result<()> {
        let received = self.received;
        let headers: serde_json::Map<String, Value> = received
            .headers
            .iter()
            .map(|(name, value)| {
                (name.to_string(), Value::from(String::from_utf8_lossy(value.as_bytes())))
            })
            .collect();
        let verified = self.checked.as_ref().map(Result::is_ok);
        let problem = self.checked.as_ref().and_then(|checked| checked.as_ref().err());
        terminal::data(json!({
            "number": self.number,
            "at": received.at,
            "method": received.method.as_str(),
            "path": received.path,
            "headers": headers,
            "body": String::from_utf8_lossy(&received.body),
            "verified": verified,
            "problem": problem.map(Problem::as_str),
            "answered": if self.args.stall { Value::Null } else { Value::from(self.status) },
        }))
    }

    fn as_text(&self) -> std::io::Result<()> {
        let paint = Paint::stdout();
        let received = self.received;
        let names = HeaderNames::in_use(|name| received.header(name).is_some());
        let signature = match self.checked {
            None if received.header(names.signature).is_some() => paint.dim("signed, not checked"),
            None => paint.dim("not signed"),
            Some(Ok(())) => paint.good("signature verified"),
            Some(Err(problem)) => paint.bad(format!("signature does not fit: {problem}")),
        };
        let answer = match self.status {
            _ if self.args.stall => paint.warn("no answer"),
            status @ 200..=299 => paint.good(status),
            status => paint.warn(status),
        };
        let id = terminal::clean(received.header(names.id).unwrap_or("-"));
        terminal::data(format_args!(
            "{} #{} {} {} {id} {signature} → {answer}",
            paint.dim(received.at),
            self.number,
            paint.bold(&received.method),
            terminal::clean(&received.path),
        ))?;
        if received.body.is_empty() {
            return Ok(());
        }
        terminal::data(format_args!(
            "  {}",
            terminal::clean(&String::from_utf8_lossy(&received.body))
        ))
    }
}
