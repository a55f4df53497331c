//! What happened to a delivery, and what would be sent now, as they look on the wire.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use posthorn_domain::timeline::{Certainty, Step, What};
use posthorn_domain::{
    Attempt, DeliveryId, DeliveryState, FailureCode, SentRequest, Timestamp, WaitReason,
};
use posthorn_engine::{Preview, RequestPreview, Timeline};
use serde::Serialize;

use super::{AttemptView, detail, shown};
use crate::reasons::Reason;

/// What stands for a value that is secret.
const SECRET: &str = "…";

/// What a word means and what to do, as `posthorn explain` says it.
#[derive(Serialize)]
struct ExplainView {
    code: &'static str,
    meaning: &'static str,
    remedy: &'static str,
}

impl From<Reason> for ExplainView {
    fn from(reason: Reason) -> Self {
        Self { code: reason.code, meaning: reason.meaning, remedy: reason.remedy }
    }
}

#[derive(Serialize)]
pub(crate) struct TimelineView<'a> {
    delivery: DeliveryId,
    as_of: Timestamp,
    steps: Vec<StepView<'a>>,
}

#[derive(Serialize)]
struct StepView<'a> {
    at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<Timestamp>,
    #[serde(flatten)]
    what: WhatView<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    explain: Option<ExplainView>,
}

#[derive(Serialize)]
#[serde(tag = "step", rename_all = "snake_case")]
enum WhatView<'a> {
    Accepted,
    Matched {
        #[serde(skip_serializing_if = "Option::is_none")]
        group: Option<usize>,
        detail: &'static str,
    },
    Made {
        detail: &'static str,
    },
    Waited {
        reason: WaitReason,
        #[serde(skip_serializing_if = "Option::is_none")]
        detail: Option<&'static str>,
    },
    Retried,
    Attempt(AttemptView<'a>),
    UnderWay,
    Ended {
        #[serde(flatten)]
        state: DeliveryState,
    },
    Expunged,
}

impl<'a> TimelineView<'a> {
    pub(crate) fn new(timeline: &'a Timeline, operator: bool) -> Self {
        let steps = timeline.steps();
        Self {
            delivery: timeline.delivery.id,
            as_of: timeline.now,
            steps: steps.iter().map(|step| StepView::new(step, timeline, operator)).collect(),
        }
    }
}

impl<'a> StepView<'a> {
    fn new(step: &Step<'a>, timeline: &Timeline, operator: bool) -> Self {
        let (what, explain) = match step.what {
            What::Accepted => (WhatView::Accepted, None),
            What::Matched => (matched(timeline.group), None),
            What::Made => {
                let detail = "a job made the delivery, for an event that was accepted before";
                (WhatView::Made { detail }, None)
            }
            What::Waited(reason, how) => {
                (WhatView::Waited { reason, detail: doubt(how) }, Some(Reason::of_waiting(reason)))
            }
            What::Retried => (WhatView::Retried, None),
            What::Attempted(attempt) => {
                let failure = attempt.failure.map(|code| shown(code, operator));
                let explained = match attempt.status {
                    Some(status) => Reason::of_status(status),
                    None => failure.map(Reason::of_failure),
                };
                let request = attempt.request.as_deref().map(SentView::from);
                let view = AttemptView { request, ..AttemptView::new(attempt, operator) };
                (WhatView::Attempt(view), explained)
            }
            What::UnderWay => (WhatView::UnderWay, None),
            What::Expunged => (WhatView::Expunged, None),
            What::Ended(state) => (WhatView::Ended { state }, Reason::of_end(state)),
        };
        Self { at: step.at, until: step.until, what, explain: explain.map(ExplainView::from) }
    }
}

fn matched(group: Option<usize>) -> WhatView<'static> {
    let detail = match group {
        Some(_) => "the filter of the subscription wants this event",
        None => {
            "the filter wanted it when it was accepted; it does not any more, or that cannot be told"
        }
    };
    WhatView::Matched { group, detail }
}

/// What is not known of a wait that is over.
const fn doubt(how: Certainty) -> Option<&'static str> {
    match how {
        Certainty::Known => None,
        Certainty::Schedule => Some(
            "the wait between two attempts; what else may have held the delivery back is not stored",
        ),
        Certainty::BeforeFirst => Some(
            "the reason is not stored: its lane, a rate, a gate, the breaker, or busy slots; or no \
             node was running",
        ),
        Certainty::BeforeRetry => {
            Some("it waited or had ended until somebody retried it; which of them is not stored")
        }
        Certainty::NotTaken => Some(
            "it was due, and nothing held it back: no node was running, or it was being read from the store",
        ),
    }
}

/// A request, or how an attempt would fail before there is one.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum PreviewView<'a> {
    Sent {
        as_of: Timestamp,
        attempt: u32,
        #[serde(flatten)]
        request: SentView<'a>,
    },
    Request(RequestView<'a>),
    Failed(FailedView<'a>),
}

#[derive(Serialize)]
pub(crate) struct RequestView<'a> {
    as_of: &'static str,
    as_sent: bool,
    method: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<&'a str>,
    headers: Vec<(&'a str, &'a str)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    body_base64: Option<String>,
    body_bytes: usize,
}

#[derive(Serialize)]
pub(crate) struct FailedView<'a> {
    as_of: &'static str,
    as_sent: bool,
    failure: FailureCode,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
    explain: ExplainView,
}

/// A request as an attempt sent it.
#[derive(Serialize)]
pub(crate) struct SentView<'a> {
    as_sent: bool,
    method: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<&'a str>,
    headers: Vec<(&'a str, &'a str)>,
    body_bytes: u64,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    cut: bool,
}

impl<'a> From<&'a SentRequest> for SentView<'a> {
    fn from(request: &'a SentRequest) -> Self {
        Self {
            as_sent: true,
            method: &request.method,
            url: request.url.as_deref(),
            headers: masked(&request.headers),
            body_bytes: request.body_bytes,
            cut: request.cut,
        }
    }
}

/// Headers with something in the place of what is secret.
fn masked(headers: &[(String, Option<String>)]) -> Vec<(&str, &str)> {
    headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_deref().unwrap_or(SECRET)))
        .collect()
}

impl<'a> PreviewView<'a> {
    /// What an attempt sent; `None` where that was not kept.
    pub(crate) fn sent(attempt: &'a Attempt) -> Option<Self> {
        let request = SentView::from(attempt.request.as_deref()?);
        Some(Self::Sent { as_of: attempt.started_at, attempt: attempt.number, request })
    }

    pub(crate) fn new(preview: &'a Preview, operator: bool) -> Self {
        match preview {
            Preview::Request(request) => Self::Request(RequestView::from(request)),
            Preview::Failed { code, detail: why } => Self::Failed(FailedView {
                as_of: "now",
                as_sent: false,
                failure: shown(*code, operator),
                detail: detail(Some(*code), why, operator),
                explain: Reason::of_failure(shown(*code, operator)).into(),
            }),
        }
    }
}

impl<'a> From<&'a RequestPreview> for RequestView<'a> {
    fn from(request: &'a RequestPreview) -> Self {
        let body = request.body.as_deref();
        let text = body.and_then(|bytes| std::str::from_utf8(bytes).ok());
        let encoded = body.filter(|_| text.is_none()).map(|bytes| STANDARD.encode(bytes));
        Self {
            as_of: "now",
            as_sent: false,
            method: &request.method,
            url: request.url.as_deref(),
            headers: masked(&request.headers),
            body: text,
            body_base64: encoded,
            body_bytes: request.body_bytes,
        }
    }
}
