//! What an outcome means: success, worth another try, or pointless.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{OnRefused, Policy, StatusSet};
use crate::{Answer, AttemptOutcome, FailureCode, Span, Timestamp};

/// Which responses are permanent failures, so that a retry is pointless.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Permanent {
    /// These statuses.
    #[serde(default)]
    pub status: StatusSet,
    /// Responses without success whose body has this form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<BodyRule>,
    /// What a 410 does.
    #[serde(default)]
    pub gone: Gone,
    /// What means the same as a 410 to the destination. It says so itself; no policy can.
    #[serde(skip)]
    pub gone_too: StatusSet,
}

/// A form of JSON body that means a permanent failure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BodyRule {
    /// The fields the object must have, with their types. More fields are allowed.
    pub fields: BTreeMap<String, FieldType>,
    /// Statuses for which the rule does not apply.
    #[serde(default)]
    pub except: StatusSet,
}

/// The type of a field in the body of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum FieldType {
    /// A JSON number.
    Number,
    /// A JSON string.
    String,
    /// A JSON boolean.
    Boolean,
    /// Anything, null included.
    Any,
}

/// What a 410 does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Gone {
    /// The subscription is disabled and its pending work kept, until an operator decides.
    #[default]
    Disable,
    /// It is a failed attempt like any other.
    Retry,
}

/// What an outcome means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The receiver has it.
    Success,
    /// Try again.
    Retry {
        /// How long the receiver asked us to wait.
        asked: Option<Span>,
        /// Whether the receiver is overloaded rather than broken.
        throttle: bool,
    },
    /// Pointless.
    Permanent,
    /// The receiver says the endpoint no longer exists.
    Gone,
}

impl Policy {
    /// What an outcome means under this policy. `now` is for `Retry-After` dates.
    pub fn classify(&self, outcome: &AttemptOutcome, now: Timestamp) -> Verdict {
        match outcome {
            AttemptOutcome::Failed { code, .. } => match code {
                FailureCode::UrlNotAllowed if self.url.on_refused == OnRefused::GiveUp => {
                    Verdict::Permanent
                }
                FailureCode::FamilyNotRouted | FailureCode::MessageTooLarge => Verdict::Permanent,
                _ => Verdict::Retry { asked: None, throttle: false },
            },
            AttemptOutcome::Answered(answer) => self.classify_answer(answer, now),
        }
    }

    fn classify_answer(&self, answer: &Answer, now: Timestamp) -> Verdict {
        if self.success.contains(answer.status) {
            return Verdict::Success;
        }
        let gone = answer.status == 410 || self.permanent.gone_too.contains(answer.status);
        if gone && self.permanent.gone == Gone::Disable {
            return Verdict::Gone;
        }
        if self.permanent.status.contains(answer.status) {
            return Verdict::Permanent;
        }
        if let Some(rule) = &self.permanent.body
            && !rule.except.contains(answer.status)
            && rule.fits(&answer.body)
        {
            return Verdict::Permanent;
        }
        Verdict::Retry {
            asked: answer.retry_after.as_deref().and_then(|text| parse_retry_after(text, now)),
            throttle: matches!(answer.status, 429 | 502 | 503 | 504),
        }
    }
}

impl BodyRule {
    fn fits(&self, body: &[u8]) -> bool {
        let Ok(serde_json::Value::Object(found)) = serde_json::from_slice(body) else {
            return false;
        };
        self.fields.iter().all(|(name, kind)| match (kind, found.get(name)) {
            (_, None) => false,
            (FieldType::Number, Some(value)) => value.is_number(),
            (FieldType::String, Some(value)) => value.is_string(),
            (FieldType::Boolean, Some(value)) => value.is_boolean(),
            (FieldType::Any, Some(_)) => true,
        })
    }
}

/// The one form of a date that HTTP still has.
const IMF_FIXDATE: &str = "%a, %d %b %Y %H:%M:%S GMT";

/// Reads `Retry-After`: up to seven digits of seconds, or an HTTP date. Anything else is ignored.
pub fn parse_retry_after(text: &str, now: Timestamp) -> Option<Span> {
    let text = text.trim_matches([' ', '\t']);
    if !text.is_empty() && text.len() <= 7 && text.bytes().all(|b| b.is_ascii_digit()) {
        return text.parse().ok().map(Span::from_secs);
    }
    // IMF-fixdate has exactly 29 characters; the length check keeps absurd input out of the parser.
    if text.len() != 29 || !text.ends_with(" GMT") {
        return None;
    }
    let civil = jiff::fmt::strtime::parse(IMF_FIXDATE, text).ok()?.to_datetime().ok()?;
    // The parser is more generous than the standard; what it read must be written just so.
    if jiff::fmt::strtime::format(IMF_FIXDATE, civil).ok()? != text {
        return None;
    }
    // By the calendar, which reaches further than the library's own timestamps.
    let since_1970 = civil.duration_since(jiff::civil::date(1970, 1, 1).at(0, 0, 0, 0));
    let at = Timestamp::from_millis(i64::try_from(since_1970.as_millis()).ok()?);
    Some(at.since(now))
}
