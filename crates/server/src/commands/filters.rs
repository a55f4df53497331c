//! `posthorn filters`: tries a filter out, without a subscription and without publishing.

use std::collections::BTreeMap;

use clap::ArgGroup;
use http::Method;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Context, not_json, parse_pair, read_argument};
use crate::client::Call;
use crate::exit::{Code, Failure};
use crate::terminal::{self, Paint};

/// Try out which events a filter matches
#[derive(clap::Subcommand, Clone, Debug)]
pub enum Command {
    /// Tell whether a filter matches an event, and why not; exits with 1 when it does not
    Test(Box<Test>),
}

/// Which filter, and which event.
#[derive(clap::Args, Clone, Debug)]
#[command(group(ArgGroup::new("whose").required(true).args(["filter", "subscription"])))]
#[command(group(ArgGroup::new("what").required(true).args(["event", "topic"])))]
pub struct Test {
    /// The filter, as JSON, @FILE or - for stdin
    #[arg(long, value_name = "JSON")]
    filter: Option<String>,
    /// The filter of this subscription, by id or name
    #[arg(long, value_name = "ID")]
    subscription: Option<String>,
    /// An event that was published, evt_…
    #[arg(long, value_name = "ID")]
    event: Option<String>,
    /// Instead of a published event: the topic of one that is not published
    #[arg(long, requires = "event_type")]
    topic: Option<String>,
    /// Its type
    #[arg(long = "type", value_name = "TYPE", requires = "topic")]
    event_type: Option<String>,
    /// Its payload, as JSON, @FILE or - for stdin; {} when absent
    #[arg(long, value_name = "JSON", requires = "topic")]
    payload: Option<String>,
    /// An attribute of it; may be repeated
    #[arg(
        long = "attribute", short = 'a', value_name = "NAME=VALUE", value_parser = parse_pair,
        requires = "topic"
    )]
    attributes: Vec<(String, String)>,
    /// Its key
    #[arg(long, value_name = "KEY", requires = "topic")]
    ordering_key: Option<String>,
    /// What receivers would be told the payload is
    #[arg(long, value_name = "TYPE", requires = "topic")]
    content_type: Option<String>,
}

/// The wire form. Filter and payload are passed on as they were written.
#[derive(Serialize)]
struct Request<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    filter: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    subscription: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<Event<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event_id: Option<&'a str>,
}

/// An event that is not published.
#[derive(Serialize)]
struct Event<'a> {
    topic: &'a str,
    #[serde(rename = "type")]
    event_type: &'a str,
    payload: Box<RawValue>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    attributes: BTreeMap<&'a str, &'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_type: Option<&'a str>,
}

impl Test {
    fn event(&self) -> anyhow::Result<Option<Event<'_>>> {
        let (Some(topic), Some(event_type)) = (&self.topic, &self.event_type) else {
            return Ok(None);
        };
        let attributes =
            self.attributes.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        Ok(Some(Event {
            topic,
            event_type,
            payload: raw("the payload", self.payload.as_deref().unwrap_or("{}"))?,
            attributes: attributes.collect(),
            key: self.ordering_key.as_deref(),
            content_type: self.content_type.as_deref(),
        }))
    }

    fn request(&self) -> anyhow::Result<Request<'_>> {
        let filter = self.filter.as_deref().map(|text| raw("the filter", text));
        Ok(Request {
            filter: filter.transpose()?,
            subscription: self.subscription.as_deref(),
            event: self.event()?,
            event_id: self.event.as_deref(),
        })
    }
}

fn raw(what: &str, text: &str) -> anyhow::Result<Box<RawValue>> {
    let text = read_argument(what, text)?;
    serde_json::from_str(&text).map_err(|e| not_json(what, &e).into())
}

/// Runs it.
pub async fn run(context: &Context, command: &Command) -> anyhow::Result<()> {
    let Command::Test(test) = command;
    let body = serde_json::to_vec(&test.request()?)?;
    let call = Call::new(Method::POST, "/v1/filters/test").body(body);
    let outcome = context.client.call(call).await?.json()?;
    let matches = outcome.get("matches") == Some(&Value::Bool(true));
    if context.json {
        terminal::json(&outcome)?;
    } else {
        show(&outcome, matches)?;
    }
    match matches {
        true => Ok(()),
        false => Err(Failure::new(Code::Failure, "the filter does not match the event").into()),
    }
}

fn show(outcome: &Value, matches: bool) -> anyhow::Result<()> {
    let paint = Paint::stdout();
    let cost = terminal::cell(outcome, "cost");
    let mut lines = vec![match matches {
        true => format!("{} (cost {cost})", paint.good("matches")),
        false => format!("{} (cost {cost})", paint.bad("does not match")),
    }];
    let reasons = outcome.get("reasons").and_then(Value::as_array).into_iter().flatten();
    let reasons = reasons.filter_map(Value::as_str);
    lines.extend(reasons.map(|reason| format!("  {}", terminal::clean(reason))));
    Ok(terminal::data(lines.join("\n"))?)
}
