//! The log lines a policy asks for, word by word.
//!
//! The names of their fields come from the policy, and names of `tracing` fields are fixed at build
//! time. So a line is one event of the target [`TARGET`] with its text as the message and all its
//! fields as one JSON object in the field [`FIELDS`]; whoever writes logs spreads the object out.
//!
//! Policies are written by tenants and the log is the operator's, so lines are bounded in length and
//! number, and the operator can switch them off.

use std::borrow::Cow;
use std::time::Duration;

use parking_lot::Mutex;
use posthorn_domain::limits::LOG_TEXT_BYTES_MAX;
use posthorn_domain::{AttemptOutcome, Lookup, SubscriptionId, Template};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::attempt::Job;
use crate::catalog::Map;
use crate::metrics;
use crate::request::{AttemptLookup, member};

/// The target of these lines.
pub const TARGET: &str = "posthorn_engine::policy_log";
/// The field with the JSON object of everything a line says, its text included.
pub const FIELDS: &str = "fields";

/// Bytes of all further fields of a line together.
const FIELDS_BYTES_MAX: usize = LOG_TEXT_BYTES_MAX;
/// What lines are counted over.
const WINDOW: Duration = Duration::from_secs(1);

/// How much policies may write into the log, a part of the section `log` of the configuration. They are
/// written by tenants, the log is the operator's.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct PolicyLogOptions {
    /// Whether they may at all.
    pub policy: bool,
    /// Lines of one subscription in a second; zero means no limit.
    pub policy_lines_per_second: u32,
}

impl Default for PolicyLogOptions {
    fn default() -> Self {
        Self { policy: true, policy_lines_per_second: 100 }
    }
}

/// Writes the lines, and counts those it does not.
#[derive(Default)]
pub(crate) struct PolicyLog {
    options: PolicyLogOptions,
    /// Subscriptions that wrote something in the last second or two.
    windows: Mutex<Map<SubscriptionId, Window>>,
}

struct Window {
    began: Instant,
    written: u32,
    left_out: u64,
}

impl PolicyLog {
    pub(crate) fn new(options: PolicyLogOptions) -> Self {
        Self { options, windows: Mutex::default() }
    }

    /// Says that a request is about to be sent.
    pub(crate) fn before(&self, job: &Job, values: &AttemptLookup<'_>) {
        if let Some(template) = &job.policy.log.before
            && self.may(job.work.delivery.subscription)
        {
            let (text, fields) = line(job, template, values);
            info!(target: TARGET, fields = %fields, "{text}");
        }
    }

    /// Says that a request did not succeed.
    pub(crate) fn failure(&self, job: &Job, values: &AttemptLookup<'_>, outcome: &AttemptOutcome) {
        if let AttemptOutcome::Answered(answer) = outcome
            && job.policy.success.contains(answer.status)
        {
            return;
        }
        debug!(delivery = %job.work.delivery.id, ?outcome, "an attempt did not succeed");
        if let Some(template) = &job.policy.log.failure
            && self.may(job.work.delivery.subscription)
        {
            let json = match outcome {
                AttemptOutcome::Answered(answer) => serde_json::from_slice(&answer.body).ok(),
                AttemptOutcome::Failed { .. } => None,
            };
            let (text, fields) = line(job, template, &FailureLookup { values, outcome, json });
            warn!(target: TARGET, fields = %fields, "{text}");
        }
    }

    /// Whether a subscription may write one more line now.
    fn may(&self, subscription: SubscriptionId) -> bool {
        if !self.options.policy {
            return false;
        }
        if self.options.policy_lines_per_second == 0 {
            return true;
        }
        let now = Instant::now();
        let mut windows = self.windows.lock();
        let fresh = Window { began: now, written: 0, left_out: 0 };
        let window = windows.entry(subscription).or_insert(fresh);
        if now.saturating_duration_since(window.began) >= WINDOW {
            window.tell(subscription);
            *window = Window { began: now, written: 0, left_out: 0 };
        }
        let may = window.written < self.options.policy_lines_per_second;
        if may {
            window.written += 1;
        } else {
            window.left_out += 1;
        }
        may
    }

    /// Says what was left out of those that are silent since, and forgets them. To be called every now
    /// and then.
    pub(crate) fn tidy(&self) {
        let now = Instant::now();
        let mut windows = self.windows.lock();
        windows.retain(|subscription, window| {
            let over = now.saturating_duration_since(window.began) >= WINDOW;
            if over {
                window.tell(*subscription);
            }
            !over
        });
    }
}

impl Window {
    fn tell(&self, subscription: SubscriptionId) {
        if self.left_out > 0 {
            ::metrics::counter!(metrics::LOG_LINES_LEFT_OUT).increment(self.left_out);
            warn!(%subscription, left_out = self.left_out,
                "a subscription's policy writes more log lines than allowed; further lines are \
                 dropped (log.policy_lines_per_second)");
        }
    }
}

fn line(job: &Job, template: &Template, values: &dyn Lookup) -> (String, Value) {
    let log = &job.policy.log;
    let text = template.render(&OrEmpty(values), str::to_owned).unwrap_or_default();
    let text = cut(text, LOG_TEXT_BYTES_MAX);
    let mut fields = serde_json::Map::new();
    fields.insert(log.text_field().to_owned(), Value::String(text.clone()));
    let mut room = FIELDS_BYTES_MAX;
    for (name, template) in &log.fields {
        if let Ok(value) = template.render(values, str::to_owned) {
            let value = cut(value, room.min(LOG_TEXT_BYTES_MAX));
            room = room.saturating_sub(value.len());
            fields.insert(name.clone(), Value::String(value));
        }
    }
    (text, Value::Object(fields))
}

/// The beginning of a text that is too long.
fn cut(mut text: String, max: usize) -> String {
    if text.len() > max {
        text.truncate(text.floor_char_boundary(max));
        text.push('…');
    }
    text
}

/// The lookup of a failure line: everything of the attempt, and the response.
struct FailureLookup<'a> {
    values: &'a AttemptLookup<'a>,
    outcome: &'a AttemptOutcome,
    json: Option<Value>,
}

impl Lookup for FailureLookup<'_> {
    fn lookup(&self, name: &str) -> Option<Cow<'_, str>> {
        match (name, self.outcome) {
            ("response.body", AttemptOutcome::Answered(answer)) => {
                Some(String::from_utf8_lossy(&answer.body))
            }
            ("response.body", AttemptOutcome::Failed { code, .. }) => Some(code.as_str().into()),
            ("response.status", AttemptOutcome::Answered(answer)) => {
                Some(answer.status.to_string().into())
            }
            ("response.status", AttemptOutcome::Failed { .. }) => Some("none".into()),
            _ => match name.strip_prefix("response.json.") {
                Some(path) => member(self.json.as_ref()?, path),
                None => self.values.lookup(name),
            },
        }
    }
}

/// Nothing where there is no value: half a line is better than none.
struct OrEmpty<'a>(&'a dyn Lookup);

impl Lookup for OrEmpty<'_> {
    fn lookup(&self, name: &str) -> Option<Cow<'_, str>> {
        Some(self.0.lookup(name).unwrap_or_default())
    }
}
