//! What things look like on the wire. Borrowed views of domain values, written straight to bytes.

mod health;
mod series;
mod timeline;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use posthorn_domain::{
    Attempt, AttemptOutcome, Certificate, CertificateId, CertificateKind, Delivery, DeliveryState,
    Destination, Event, EventId, EventType, FailureCode, Filter, IdempotencyKey, Job, JobId,
    JobState, JobWork, KeyId, Labels, LaneKey, Metadata, Outcome, ProfileName, PushServiceTarget,
    PushTarget, PushTopicRule, PushUrgency, RealmName, Redrive, RedriveFilter, RedriveId,
    RedriveState, Scope, SecretName, Span, Subscription, SubscriptionId, SubscriptionName,
    SubscriptionStatus, TenantId, Thumbprint, Timestamp, Timings, Topic, TopicName, Waiting,
};
use posthorn_engine::{
    CertificateState, EventExplanation, KnownKey, Published, SubscriptionState, VerificationKey,
};
use posthorn_store::{AttemptLine, AttemptMade};
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

pub(crate) use health::HealthView;
pub(crate) use series::SeriesView;
use timeline::SentView;
pub(crate) use timeline::{PreviewView, TimelineView};

/// One page of a list.
#[derive(Serialize)]
pub(crate) struct Page<T> {
    pub(crate) items: Vec<T>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) previous: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) scanned_until: Option<Timestamp>,
}

impl<T> Page<T> {
    /// A page of a list that goes one way.
    pub(crate) const fn forward(items: Vec<T>, next: Option<String>) -> Self {
        Self { items, next, previous: None, scanned_until: None }
    }
}

#[derive(Serialize)]
pub(crate) struct PublishedView {
    id: EventId,
    accepted_at: Timestamp,
    deliveries: usize,
    duplicate: bool,
}

impl From<&Published> for PublishedView {
    fn from(published: &Published) -> Self {
        // A repeat answers for the first event, whose id tells when it was accepted.
        let accepted_at =
            if published.duplicate { published.id.made_at() } else { published.accepted_at };
        Self {
            id: published.id,
            accepted_at,
            deliveries: published.deliveries,
            duplicate: published.duplicate,
        }
    }
}

#[derive(Serialize)]
pub(crate) struct EventView<'a> {
    id: EventId,
    topic: &'a TopicName,
    #[serde(rename = "type")]
    event_type: &'a EventType,
    attributes: &'a BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a LaneKey>,
    content_type: &'a str,
    accepted_at: Timestamp,
    payload_bytes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    publisher_id: Option<&'a IdempotencyKey>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deliver_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retention: Option<Span>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expunged_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<String>,
}

impl<'a> EventView<'a> {
    /// Of an event that was read without its payload.
    pub(crate) fn without_payload(event: &'a Event, payload_bytes: usize) -> Self {
        Self { payload_bytes, ..Self::from(event) }
    }
}

impl<'a> From<&'a Event> for EventView<'a> {
    fn from(event: &'a Event) -> Self {
        Self {
            id: event.id,
            topic: &event.topic,
            event_type: &event.event_type,
            attributes: &event.attributes,
            key: event.key.as_ref(),
            content_type: &event.content_type,
            accepted_at: event.accepted_at,
            payload_bytes: event.payload.len(),
            publisher_id: event.publisher_id.as_ref(),
            deliver_at: event.deliver_at,
            retention: event.retention,
            expunged_at: event.expunged_at,
            trace_id: event.trace.map(|place| place.trace.to_string()),
        }
    }
}

#[derive(Serialize)]
pub(crate) struct ExplainedView<'a> {
    #[serde(flatten)]
    event: EventView<'a>,
    /// As it was published; a repeated key or a large number in it comes out as it went in.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    deliveries: Vec<DeliveryView<'a>>,
    not_delivered: Vec<NotDeliveredView<'a>>,
    truncated: bool,
}

#[derive(Serialize)]
struct NotDeliveredView<'a> {
    subscription: SubscriptionId,
    reasons: &'a [String],
}

impl<'a> ExplainedView<'a> {
    pub(crate) fn new(explained: &'a EventExplanation, operator: bool) -> Self {
        let payload: Option<&RawValue> = serde_json::from_slice(&explained.event.payload).ok();
        let deliveries = explained.deliveries.iter();
        let not_delivered = explained.not_delivered.iter();
        Self {
            event: EventView::from(&explained.event),
            payload,
            payload_base64: (payload.is_none() && explained.event.expunged_at.is_none())
                .then(|| STANDARD.encode(&explained.event.payload)),
            deliveries: deliveries
                .zip(&explained.waiting)
                .map(|((delivery, attempts), waiting)| {
                    DeliveryView::whole(delivery, attempts, operator).waiting(*waiting)
                })
                .collect(),
            not_delivered: not_delivered
                .map(|not| NotDeliveredView {
                    subscription: not.subscription,
                    reasons: &not.reasons,
                })
                .collect(),
            truncated: explained.truncated,
        }
    }
}

#[derive(Serialize)]
pub(crate) struct DeliveryView<'a> {
    id: posthorn_domain::DeliveryId,
    event: EventId,
    subscription: SubscriptionId,
    #[serde(flatten)]
    state: DeliveryState,
    #[serde(skip_serializing_if = "Option::is_none")]
    due_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting: Option<Waiting>,
    attempts_made: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    lane: Option<&'a str>,
    created_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_failure: Option<FailureCode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempts: Option<Vec<AttemptView<'a>>>,
}

impl<'a> DeliveryView<'a> {
    pub(crate) fn new(delivery: &'a Delivery, operator: bool) -> Self {
        let (last_status, last_failure) = match delivery.last_outcome {
            None => (None, None),
            Some(Outcome::Status(status)) => (Some(status), None),
            Some(Outcome::Failure(code)) => (None, Some(shown(code, operator))),
        };
        let due_at = match delivery.state {
            // Nobody is before it; it enters its lane when it is due.
            DeliveryState::Pending if delivery.is_outside_its_lane() => Some(delivery.budget_began),
            DeliveryState::Pending if !delivery.is_parked() => Some(delivery.due_at),
            _ => None,
        };
        Self {
            id: delivery.id,
            event: delivery.event,
            subscription: delivery.subscription,
            state: delivery.state,
            due_at,
            waiting: None,
            attempts_made: delivery.attempts,
            lane: delivery.lane.as_ref().map(posthorn_domain::Lane::as_str),
            created_at: delivery.created_at,
            ended_at: delivery.ended_at,
            last_status,
            last_failure,
            attempts: None,
        }
    }

    pub(crate) fn whole(delivery: &'a Delivery, attempts: &'a [Attempt], operator: bool) -> Self {
        let attempts = attempts.iter().map(|a| AttemptView::new(a, operator)).collect();
        Self { attempts: Some(attempts), ..Self::new(delivery, operator) }
    }

    /// With why it waits.
    pub(crate) fn waiting(self, waiting: Option<Waiting>) -> Self {
        Self { waiting, ..self }
    }
}

#[derive(Serialize)]
struct AttemptView<'a> {
    number: u32,
    started_at: Timestamp,
    took_ms: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    timings_ms: Option<TimingsView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<FailureCode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_expunged_at: Option<Timestamp>,
    late: bool,
    trigger: Trigger,
    /// Only in a timeline: it may be long.
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<SentView<'a>>,
}

/// Who asked for an attempt.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Trigger {
    /// The schedule.
    Scheduled,
    /// Somebody, by hand or by a job.
    Manual,
}

/// An attempt in a list over many deliveries.
#[derive(Serialize)]
pub(crate) struct AttemptLineView<'a> {
    delivery: posthorn_domain::DeliveryId,
    event: EventId,
    subscription: SubscriptionId,
    #[serde(flatten)]
    attempt: AttemptView<'a>,
}

impl<'a> AttemptLineView<'a> {
    pub(crate) fn new(line: &'a AttemptLine, operator: bool) -> Self {
        Self {
            delivery: line.attempt.delivery,
            event: line.event,
            subscription: line.subscription,
            attempt: AttemptView::new(&line.attempt, operator),
        }
    }
}

/// An attempt as it is told when it was made.
#[derive(Serialize)]
pub(crate) struct AttemptToldView<'a> {
    #[serde(flatten)]
    line: AttemptLineView<'a>,
    #[serde(flatten)]
    state: DeliveryState,
}

impl<'a> AttemptToldView<'a> {
    pub(crate) fn new(made: &'a AttemptMade, operator: bool) -> Self {
        Self { line: AttemptLineView::new(&made.line, operator), state: made.state }
    }
}

impl<'a> AttemptView<'a> {
    fn new(attempt: &'a Attempt, operator: bool) -> Self {
        Self {
            number: attempt.number,
            started_at: attempt.started_at,
            took_ms: attempt.took.as_millis(),
            // How far an attempt came that failed may describe an inner network.
            timings_ms: (attempt.status.is_some() || operator).then(|| attempt.timings.into()),
            status: attempt.status,
            failure: attempt.failure.map(|code| shown(code, operator)),
            detail: detail(attempt.failure, &attempt.detail, operator),
            response: text(&attempt.response),
            response_expunged_at: attempt.response_expunged_at,
            late: attempt.late,
            trigger: if attempt.manual { Trigger::Manual } else { Trigger::Scheduled },
            request: None,
        }
    }
}

/// How long the phases of a request took; absent where one did not happen or did not end.
#[derive(Serialize)]
struct TimingsView {
    #[serde(skip_serializing_if = "Option::is_none")]
    dns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connect: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tls: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_byte: Option<u64>,
}

impl From<Timings> for TimingsView {
    fn from(timings: Timings) -> Self {
        let millis = |span: Option<Span>| span.map(|span| span.as_millis());
        Self {
            dns: millis(timings.dns),
            connect: millis(timings.connect),
            tls: millis(timings.tls),
            first_byte: millis(timings.first_byte),
        }
    }
}

fn text(bytes: &[u8]) -> Option<Cow<'_, str>> {
    (!bytes.is_empty()).then(|| String::from_utf8_lossy(bytes))
}

/// The code of a failure, for those who may see it.
fn shown(code: FailureCode, operator: bool) -> FailureCode {
    if operator { code } else { code.for_tenants() }
}

/// The detail of a failure, for those who may see it: what we met on the way to a receiver can tell
/// a tenant about the operator's network.
fn detail(failure: Option<FailureCode>, detail: &str, operator: bool) -> Option<&str> {
    let of_the_network = matches!(
        failure,
        Some(
            FailureCode::DnsFailed
                | FailureCode::DnsTimeout
                | FailureCode::AddressNotAllowed
                | FailureCode::ConnectFailed
                | FailureCode::ConnectTimeout
                | FailureCode::ProxyFailed
                | FailureCode::PushUnavailable
                | FailureCode::Internal
        )
    );
    (!detail.is_empty() && (operator || !of_the_network)).then_some(detail)
}

#[derive(Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub(crate) enum TestView<'a> {
    Answered {
        status: u16,
        #[serde(skip_serializing_if = "Option::is_none")]
        response: Option<Cow<'a, str>>,
    },
    Failed {
        failure: FailureCode,
        #[serde(skip_serializing_if = "Option::is_none")]
        detail: Option<&'a str>,
    },
}

impl<'a> TestView<'a> {
    pub(crate) fn new(outcome: &'a AttemptOutcome, operator: bool) -> Self {
        match outcome {
            AttemptOutcome::Answered(answer) => {
                Self::Answered { status: answer.status, response: text(&answer.body) }
            }
            AttemptOutcome::Failed { code, detail: why } => Self::Failed {
                failure: shown(*code, operator),
                detail: detail(Some(*code), why, operator),
            },
        }
    }
}

#[derive(Serialize)]
pub(crate) struct TopicView<'a> {
    name: &'a TopicName,
    description: &'a str,
    attributes: &'a [String],
    #[serde(skip_serializing_if = "Labels::is_empty")]
    labels: &'a Labels,
    created_at: Timestamp,
}

impl<'a> From<&'a Arc<Topic>> for TopicView<'a> {
    fn from(topic: &'a Arc<Topic>) -> Self {
        Self {
            name: &topic.name,
            description: &topic.description,
            attributes: &topic.attributes,
            labels: &topic.labels,
            created_at: topic.created_at,
        }
    }
}

#[derive(Serialize)]
pub(crate) struct SubscriptionBody<'a> {
    id: SubscriptionId,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a SubscriptionName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    destination: Option<PushView<'a>>,
    description: &'a str,
    #[serde(skip_serializing_if = "Labels::is_empty")]
    labels: &'a Labels,
    #[serde(skip_serializing_if = "Metadata::is_empty")]
    metadata: &'a Metadata,
    filter: &'a Filter,
    profile: &'a ProfileName,
    policy: Cow<'a, Value>,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status_reason: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting: Option<Waiting>,
    #[serde(skip_serializing_if = "Option::is_none")]
    failing_since: Option<Timestamp>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    public_keys: Vec<PublicKeyView>,
    version: u64,
    created_at: Timestamp,
    updated_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) signing_secret: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) warnings: Vec<Warning>,
}

/// What was accepted, but is probably not meant.
#[derive(Serialize)]
pub(crate) struct Warning {
    pub(crate) code: &'static str,
    pub(crate) detail: String,
    pub(crate) field: String,
}

/// A channel, without a word about whose it is: of an endpoint elsewhere, only the origin.
#[derive(Serialize)]
pub(crate) struct PushView<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    service: Option<&'a str>,
    encrypted: bool,
    ttl: Span,
    urgency: PushUrgency,
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<&'a PushTopicRule>,
}

impl<'a> From<&'a PushTarget> for PushView<'a> {
    fn from(target: &'a PushTarget) -> Self {
        Self {
            kind: "push",
            service: None,
            encrypted: target.p256dh.is_some(),
            ttl: Span::from_secs(target.ttl.into()),
            urgency: target.urgency,
            topic: target.topic.as_ref(),
        }
    }
}

impl<'a> From<&'a PushServiceTarget> for PushView<'a> {
    fn from(target: &'a PushServiceTarget) -> Self {
        Self {
            kind: "push",
            service: Some(&target.origin),
            encrypted: true,
            ttl: Span::from_secs(target.ttl.into()),
            urgency: target.urgency,
            topic: target.topic.as_ref(),
        }
    }
}

/// What receivers verify asymmetric signatures with.
#[derive(Serialize)]
pub(crate) struct PublicKeyView {
    secret: SecretName,
    key: String,
    kid: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<Timestamp>,
}

impl From<&VerificationKey> for PublicKeyView {
    fn from(known: &VerificationKey) -> Self {
        Self {
            secret: known.secret.clone(),
            key: known.key.to_string(),
            kid: known.jwk().kid,
            expires_at: known.expires_at,
        }
    }
}

impl<'a> SubscriptionBody<'a> {
    pub(crate) fn new(subscription: &'a Subscription, keys: &[VerificationKey]) -> Self {
        let (url, destination) = match &subscription.destination {
            Destination::Webhook { url } => (Some(url.as_str()), None),
            Destination::Push(target) => (None, Some(PushView::from(target))),
            Destination::PushService(target) => (None, Some(PushView::from(target))),
        };
        let (status, status_reason) = match &subscription.status {
            SubscriptionStatus::Active => ("active", None),
            SubscriptionStatus::Paused => ("paused", None),
            SubscriptionStatus::Disabled { reason } => ("disabled", Some(reason.as_str())),
        };
        let policy = match &subscription.overrides {
            Value::Null => Cow::Owned(Value::Object(serde_json::Map::new())),
            overrides => Cow::Borrowed(overrides),
        };
        Self {
            id: subscription.id,
            name: subscription.name.as_ref(),
            url,
            destination,
            description: &subscription.description,
            labels: &subscription.labels,
            metadata: &subscription.metadata,
            filter: &subscription.filter,
            profile: &subscription.profile,
            policy,
            status,
            status_reason,
            waiting: Waiting::of_status(&subscription.status),
            failing_since: None,
            public_keys: keys.iter().map(PublicKeyView::from).collect(),
            version: subscription.version.0,
            created_at: subscription.created_at,
            updated_at: subscription.updated_at,
            signing_secret: None,
            warnings: Vec::new(),
        }
    }

    /// With what its deliveries wait for.
    pub(crate) fn standing(self, state: &SubscriptionState) -> Self {
        Self { waiting: state.waiting, failing_since: state.failing_since, ..self }
    }
}

#[derive(Serialize)]
pub(crate) struct RedriveView<'a> {
    id: RedriveId,
    filter: &'a RedriveFilter,
    per_second: u32,
    state: RedriveState,
    total: u64,
    moved: u64,
    created_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    finished_at: Option<Timestamp>,
}

impl<'a> From<&'a Redrive> for RedriveView<'a> {
    fn from(redrive: &'a Redrive) -> Self {
        Self {
            id: redrive.id,
            filter: &redrive.filter,
            per_second: redrive.per_second,
            state: redrive.state,
            total: redrive.total,
            moved: redrive.moved,
            created_at: redrive.created_at,
            finished_at: redrive.finished_at,
        }
    }
}

#[derive(Serialize)]
pub(crate) struct JobView<'a> {
    id: JobId,
    #[serde(flatten)]
    work: &'a JobWork,
    per_second: u32,
    state: JobState,
    seen: u64,
    done: u64,
    created_by: &'a str,
    created_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    finished_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<&'a str>,
}

impl<'a> From<&'a Job> for JobView<'a> {
    fn from(job: &'a Job) -> Self {
        Self {
            id: job.id,
            work: &job.work,
            per_second: job.per_second,
            state: job.state,
            seen: job.seen,
            done: job.done,
            created_by: &job.created_by,
            created_at: job.created_at,
            finished_at: job.finished_at,
            problem: job.problem.as_deref(),
        }
    }
}

#[derive(Serialize)]
pub(crate) struct KeyView<'a> {
    pub(crate) id: KeyId,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<TenantId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    realm: Option<&'a RealmName>,
    description: &'a str,
    scopes: &'a [Scope],
    created_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    revoked_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_limit: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_used_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<&'a str>,
}

impl<'a> From<&'a Arc<KnownKey>> for KeyView<'a> {
    fn from(key: &'a Arc<KnownKey>) -> Self {
        Self {
            id: key.id,
            tenant: key.tenant,
            realm: key.realm.as_ref(),
            description: &key.description,
            scopes: &key.scopes,
            created_at: key.created_at,
            expires_at: key.expires_at,
            revoked_at: key.revoked_at,
            rate_limit: key.rate_limit,
            last_used_at: None,
            key: None,
        }
    }
}

#[derive(Serialize)]
pub(crate) struct CertificateBody<'a> {
    id: CertificateId,
    kind: CertificateKind,
    description: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    owner: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    host: &'a str,
    #[serde(skip_serializing_if = "<[Scope]>::is_empty")]
    scopes: &'a [Scope],
    thumbprint: Thumbprint,
    subject: &'a str,
    certificate: &'a str,
    has_key: bool,
    state: &'static str,
    not_before: Timestamp,
    not_after: Timestamp,
    created_at: Timestamp,
    updated_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    revoked_at: Option<Timestamp>,
}

impl<'a> CertificateBody<'a> {
    pub(crate) fn new(certificate: &'a Certificate, now: Timestamp) -> Self {
        Self {
            id: certificate.id,
            kind: certificate.kind,
            description: &certificate.description,
            owner: &certificate.owner,
            host: &certificate.host,
            scopes: &certificate.scopes,
            thumbprint: certificate.thumbprint,
            subject: &certificate.subject,
            certificate: &certificate.pem,
            has_key: certificate.sealed_key.is_some(),
            state: CertificateState::of(certificate, now).as_str(),
            not_before: certificate.not_before,
            not_after: certificate.not_after,
            created_at: certificate.created_at,
            updated_at: certificate.updated_at,
            revoked_at: certificate.revoked_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_we_met_on_the_way_to_a_receiver_is_for_operators_only() {
        let hidden = FailureCode::ALL.into_iter().filter(|code| {
            assert_eq!(detail(Some(*code), "10.0.0.7", true), Some("10.0.0.7"));
            detail(Some(*code), "10.0.0.7", false).is_none()
        });
        let hidden: Vec<&str> = hidden.map(FailureCode::as_str).collect();
        let expected = [
            "dns_failed",
            "dns_timeout",
            "address_not_allowed",
            "connect_failed",
            "connect_timeout",
            "proxy_failed",
            "push_unavailable",
            "internal",
        ];
        assert_eq!(hidden, expected);
        let (closed, nowhere) = (FailureCode::AddressNotAllowed, FailureCode::DnsFailed);
        assert_eq!(shown(closed, false), shown(nowhere, false), "one answer for both");
        assert_eq!(shown(closed, true), closed);
    }
}
