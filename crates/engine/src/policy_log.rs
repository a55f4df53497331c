//! The log lines a policy asks for, word by word.
//!
//! The names of their fields come from the policy, and names of `tracing` fields are fixed at build
//! time. So a line is one event of the target [`TARGET`] with its text as the message and all its
//! fields as one JSON object in the field [`FIELDS`]; whoever writes logs spreads the object out.

use std::borrow::Cow;

use posthorn_domain::{AttemptOutcome, Lookup, Template};
use serde_json::{Map, Value};
use tracing::{debug, info, warn};

use crate::attempt::Job;
use crate::request::{AttemptLookup, member};

/// The target of these lines.
pub const TARGET: &str = "posthorn_engine::policy_log";
/// The field with the JSON object of everything a line says, its text included.
pub const FIELDS: &str = "fields";

/// Says that a request is about to be sent.
pub(crate) fn before(job: &Job, values: &AttemptLookup<'_>) {
    if let Some(template) = &job.policy.log.before {
        let (text, fields) = line(job, template, values);
        info!(target: TARGET, fields = %fields, "{text}");
    }
}

/// Says that a request did not succeed.
pub(crate) fn failure(job: &Job, values: &AttemptLookup<'_>, outcome: &AttemptOutcome) {
    if let AttemptOutcome::Answered(answer) = outcome
        && job.policy.success.contains(answer.status)
    {
        return;
    }
    debug!(delivery = %job.work.delivery.id, ?outcome, "an attempt did not succeed");
    if let Some(template) = &job.policy.log.failure {
        let json = match outcome {
            AttemptOutcome::Answered(answer) => serde_json::from_slice(&answer.body).ok(),
            AttemptOutcome::Failed { .. } => None,
        };
        let (text, fields) = line(job, template, &FailureLookup { values, outcome, json });
        warn!(target: TARGET, fields = %fields, "{text}");
    }
}

fn line(job: &Job, template: &Template, values: &dyn Lookup) -> (String, Value) {
    let log = &job.policy.log;
    let text = template.render(&OrEmpty(values), str::to_owned).unwrap_or_default();
    let mut fields = Map::new();
    fields.insert(log.text_field().to_owned(), Value::String(text.clone()));
    for (name, template) in &log.fields {
        if let Ok(value) = template.render(values, str::to_owned) {
            fields.insert(name.clone(), Value::String(value));
        }
    }
    (text, Value::Object(fields))
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
