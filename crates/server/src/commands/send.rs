//! `posthorn send`: publishes events.

use std::collections::BTreeMap;

use http::{HeaderName, Method};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{Context, not_json, parse_pair, read_argument};
use crate::client::{Call, segment};
use crate::exit::{Code, Failure};
use crate::terminal::{self, Paint};

/// Events in one request when there are many: a batch is one transaction for the server.
const BATCH: usize = 100;
/// Bytes in one such request, well below what a server takes by default.
const BATCH_BYTES: usize = 4 << 20;
/// What an event needs besides its payload, roughly.
const ENVELOPE_BYTES: usize = 1_024;

/// Publish an event
///
/// The payload is JSON; its bytes are delivered exactly as they are sent.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// The topic, e.g. orders
    topic: String,
    /// What happened, e.g. order.created
    #[arg(value_name = "TYPE")]
    event_type: String,
    /// JSON, or @FILE, or - for stdin
    #[arg(default_value = "{}")]
    payload: String,
    /// An attribute that subscriptions may filter on; may be repeated
    #[arg(long = "attribute", short = 'a', value_name = "NAME=VALUE", value_parser = parse_pair)]
    attributes: Vec<(String, String)>,
    /// Events with the same key are delivered in order where a policy asks for it
    #[arg(long, value_name = "KEY")]
    ordering_key: Option<String>,
    /// Publishing again with the same key and contents is one event; with --count, -1, -2, … is added
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
    /// What receivers are told the payload is
    #[arg(long, value_name = "TYPE")]
    content_type: Option<String>,
    /// When to deliver it, e.g. 2027-01-31T08:00:00Z; a time in the past means now
    #[arg(long, value_name = "TIME")]
    deliver_at: Option<String>,
    /// How long to keep it once its deliveries have ended, e.g. 1h or 7d
    #[arg(long, value_name = "TIME")]
    retention: Option<String>,
    /// The trace it belongs to, as the header `traceparent` of W3C Trace Context has it
    #[arg(long, value_name = "TRACEPARENT")]
    traceparent: Option<String>,
    /// Create the topic if it does not exist
    #[arg(long)]
    create_topic: bool,
    /// How many events to publish
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
}

/// The wire form of one event. The payload is passed on as it was written.
#[derive(Serialize)]
struct Event<'a> {
    topic: &'a str,
    #[serde(rename = "type")]
    event_type: &'a str,
    payload: &'a RawValue,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    attributes: BTreeMap<&'a str, &'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    idempotency_key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deliver_at: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retention: Option<&'a str>,
}

#[derive(Serialize)]
struct Batch<'a> {
    events: Vec<Event<'a>>,
}

impl Args {
    fn traced(&self, call: Call) -> Call {
        match &self.traceparent {
            Some(header) => call.header(HeaderName::from_static("traceparent"), header.clone()),
            None => call,
        }
    }

    fn event<'a>(&'a self, payload: &'a RawValue, number: Option<u64>) -> Event<'a> {
        let attributes =
            self.attributes.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let numbered = number.zip(self.idempotency_key.as_deref());
        Event {
            topic: &self.topic,
            event_type: &self.event_type,
            payload,
            attributes: attributes.collect(),
            key: self.ordering_key.as_deref(),
            content_type: self.content_type.as_deref(),
            idempotency_key: numbered.map(|(number, key)| format!("{key}-{number}")),
            deliver_at: self.deliver_at.as_deref(),
            retention: self.retention.as_deref(),
        }
    }
}

/// Runs it.
pub async fn run(context: &Context, args: &Args) -> anyhow::Result<()> {
    let payload = read_argument("the payload", &args.payload)?;
    let payload: Box<RawValue> =
        serde_json::from_str(&payload).map_err(|e| not_json("the payload", &e))?;
    if args.create_topic {
        ensure_topic(context, &args.topic).await?;
    }
    if args.count == 1 {
        one(context, args, &payload).await
    } else {
        many(context, args, &payload).await
    }
}

/// Makes a topic unless it is there: writing over it would lose its description and attributes.
pub(crate) async fn ensure_topic(context: &Context, topic: &str) -> anyhow::Result<()> {
    let path = format!("/v1/topics/{}", segment(topic));
    let there = context.client.exchange(Call::new(Method::GET, path.clone())).await?;
    if there.status != http::StatusCode::OK {
        context.client.call(Call::new(Method::PUT, path).body("{}")).await?;
    }
    Ok(())
}

async fn one(context: &Context, args: &Args, payload: &RawValue) -> anyhow::Result<()> {
    let body = serde_json::to_vec(&args.event(payload, None))?;
    let mut call = Call::new(Method::POST, "/v1/events").body(body);
    if let Some(key) = &args.idempotency_key {
        call = call.header(HeaderName::from_static("idempotency-key"), key.clone());
    }
    let call = args.traced(call);
    let answer = context.client.call(call).await?.json()?;
    if context.json {
        return Ok(terminal::json(&answer)?);
    }
    terminal::data(terminal::cell(&answer, "id"))?;
    let paint = Paint::stderr();
    if answer.get("duplicate") == Some(&Value::Bool(true)) {
        terminal::note(paint.warn("this is the event that was published before under that key"));
    } else {
        let deliveries = answer.get("deliveries").and_then(Value::as_u64).unwrap_or(0);
        terminal::note(paint.good(match deliveries {
            0 => "accepted; no subscription wants it".to_owned(),
            1 => "accepted, 1 delivery".to_owned(),
            many => format!("accepted, {many} deliveries"),
        }));
    }
    Ok(())
}

async fn many(context: &Context, args: &Args, payload: &RawValue) -> anyhow::Result<()> {
    let bar = terminal::progress(args.count, "publishing");
    let (mut accepted, mut duplicates, mut deliveries) = (0_u64, 0_u64, 0_u64);
    let mut refused: Option<Value> = None;
    let (mut sent, mut unavailable) = (0, false);
    let fitting = BATCH_BYTES / (payload.get().len() + ENVELOPE_BYTES);
    let batch = u64::try_from(fitting.clamp(1, BATCH)).unwrap_or(1);
    while sent < args.count && !unavailable {
        let size = batch.min(args.count - sent);
        let events = (sent + 1..=sent + size).map(|n| args.event(payload, Some(n))).collect();
        let body = serde_json::to_vec(&Batch { events })?;
        let call = args.traced(Call::new(Method::POST, "/v1/events/batch").body(body));
        let answer = context.client.call(call).await?.json()?;
        for item in answer.get("items").and_then(Value::as_array).into_iter().flatten() {
            if item.get("status").and_then(Value::as_u64) == Some(202) {
                accepted += 1;
                duplicates += u64::from(item.get("duplicate") == Some(&Value::Bool(true)));
                deliveries += item.get("deliveries").and_then(Value::as_u64).unwrap_or(0);
            } else if refused.is_none() {
                refused = item.get("error").cloned();
            }
            // A server in trouble is not helped by more of the same.
            unavailable |= item.get("status").and_then(Value::as_u64) >= Some(500);
        }
        sent += size;
        bar.set_position(sent);
    }
    bar.finish_and_clear();
    let refused_count = sent - accepted;
    if context.json {
        terminal::json(&json!({
            "accepted": accepted, "duplicates": duplicates, "deliveries": deliveries,
            "refused": refused_count, "not_sent": args.count - sent, "first_error": refused,
        }))?;
    } else {
        terminal::data(format_args!(
            "{accepted} accepted ({duplicates} of them before), {deliveries} deliveries, \
             {refused_count} refused, {} not sent",
            args.count - sent
        ))?;
    }
    let Some(problem) = refused else { return Ok(()) };
    let text = terminal::cell(&problem, "detail");
    let code = if unavailable { Code::Unavailable } else { Code::Failure };
    Err(Failure::new(code, format!("{refused_count} refused; the first: {text}"))
        .hint(format!("posthorn explain {}", terminal::cell(&problem, "code")))
        .into())
}
