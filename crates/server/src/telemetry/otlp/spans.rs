//! Steps as spans of OTLP, with the names that the semantic conventions for messaging and HTTP have for them. What
//! they have no name for begins with `posthorn.`.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::trace::v1::span::{Link, SpanKind};
use opentelemetry_proto::tonic::trace::v1::status::StatusCode;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span, Status};
use posthorn_domain::{Outcome, Span as Length, Timestamp, Timings};
use posthorn_engine::{TraceSpan, TraceStep};

pub(super) use opentelemetry_proto::tonic::resource::v1::Resource;

/// The trace is recorded.
const SAMPLED: u32 = 0x01;
/// It is known whether the parent is in another process, and it is.
const PARENT_KNOWN: u32 = 0x100;
const PARENT_REMOTE: u32 = 0x200;

/// Who we are. What the operator says wins.
pub(super) fn resource(service_name: &str, more: &BTreeMap<String, String>) -> Resource {
    let id = uuid_text(rand::random());
    let mut all = BTreeMap::from([
        ("service.name", service_name),
        ("service.version", env!("CARGO_PKG_VERSION")),
        // Several nodes count each for itself.
        ("service.instance.id", &id),
    ]);
    all.extend(more.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    let attributes = all.into_iter().map(|(name, value)| text(name, value)).collect();
    Resource { attributes, ..Resource::default() }
}

fn uuid_text(bits: u128) -> String {
    let hex = format!("{bits:032x}");
    format!("{}-{}-4{}-8{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..])
}

/// Who wrote it.
pub(super) fn scope() -> InstrumentationScope {
    InstrumentationScope {
        name: "posthorn".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    }
}

fn pair(name: &str, value: Value) -> KeyValue {
    KeyValue {
        key: name.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..KeyValue::default()
    }
}

pub(super) fn text(name: &str, value: &(impl ToString + ?Sized)) -> KeyValue {
    pair(name, Value::StringValue(value.to_string()))
}

fn number(name: &str, value: impl TryInto<i64>) -> KeyValue {
    pair(name, Value::IntValue(value.try_into().unwrap_or(i64::MAX)))
}

fn seconds(name: &str, length: Length) -> KeyValue {
    pair(name, Value::DoubleValue(length.to_duration().as_secs_f64()))
}

/// Nanoseconds since 1970.
pub(super) fn nanos(at: Timestamp) -> u64 {
    u64::try_from(at.as_millis()).unwrap_or(0).saturating_mul(1_000_000)
}

/// A batch, as it is posted.
pub(super) fn request(
    resource: &Resource,
    batch: impl Iterator<Item = TraceSpan>,
) -> ExportTraceServiceRequest {
    let scope_spans = ScopeSpans {
        scope: Some(scope()),
        spans: batch.map(|step| span(&step)).collect(),
        ..ScopeSpans::default()
    };
    ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(resource.clone()),
            scope_spans: vec![scope_spans],
            ..ResourceSpans::default()
        }],
    }
}

fn span(step: &TraceSpan) -> Span {
    let mut attributes = vec![
        text("messaging.system", "posthorn"),
        text("messaging.destination.name", &step.topic),
        text("messaging.message.id", &step.event),
        text("posthorn.event.type", &step.event_type),
        text("posthorn.tenant.id", &step.tenant),
    ];
    let mut flags = SAMPLED | PARENT_KNOWN;
    let (name, kind, error) = match &step.step {
        TraceStep::Publish { bytes, deliveries, repeats, refused } => {
            flags |= if step.parent.is_some() { PARENT_REMOTE } else { 0 };
            attributes.push(text("messaging.operation.name", "publish"));
            attributes.push(text("messaging.operation.type", "receive"));
            attributes.push(number("messaging.message.body.size", *bytes));
            attributes.extend(deliveries.map(|count| number("posthorn.deliveries", count)));
            attributes.extend(repeats.map(|event| text("posthorn.repeats", &event)));
            (format!("publish {}", step.topic), SpanKind::Server, refused.map(str::to_owned))
        }
        TraceStep::Wait { delivery, subscription, attempt, held } => {
            attributes.push(text("posthorn.delivery.id", delivery));
            attributes.push(text("posthorn.subscription.id", subscription));
            attributes.push(number("posthorn.attempt", *attempt));
            if let Some(held) = held {
                attributes.push(text("posthorn.wait.until_due", held.until_due.as_str()));
                attributes.push(seconds("posthorn.wait.late", held.late));
                attributes.extend(held.by.map(|by| text("posthorn.wait.by", by.as_str())));
            }
            ("wait".to_owned(), SpanKind::Internal, None)
        }
        TraceStep::Attempt {
            delivery,
            subscription,
            attempt,
            kind,
            method,
            server,
            outcome,
            succeeded,
            manual,
            timings,
        } => {
            attributes.push(text("messaging.operation.name", "attempt"));
            attributes.push(text("messaging.operation.type", "send"));
            attributes.push(text("posthorn.delivery.id", delivery));
            attributes.push(text("posthorn.subscription.id", subscription));
            attributes.push(number("posthorn.attempt", *attempt));
            attributes.push(text("posthorn.destination", kind));
            attributes.push(pair("posthorn.manual", Value::BoolValue(*manual)));
            if let Some(method) = method {
                attributes.push(text("http.request.method", method));
                if *attempt > 1 {
                    attributes.push(number("http.request.resend_count", attempt - 1));
                }
            }
            if let Some(server) = server {
                attributes.push(text("url.scheme", server.scheme));
                attributes.push(text("server.address", &server.host));
                attributes.push(number("server.port", server.port));
            }
            attributes.extend(phases(timings));
            let code = match outcome {
                Outcome::Status(status) => {
                    attributes.push(number("http.response.status_code", *status));
                    status.to_string()
                }
                Outcome::Failure(code) => code.as_str().to_owned(),
            };
            ("attempt".to_owned(), SpanKind::Client, (!succeeded).then_some(code))
        }
    };
    attributes.extend(error.as_ref().map(|code| text("error.type", code)));
    let began = nanos(step.began);
    let trace_id = step.trace.as_bytes().to_vec();
    let link = |span: posthorn_domain::SpanId| Link {
        trace_id: trace_id.clone(),
        span_id: span.as_bytes().to_vec(),
        attributes: vec![text("posthorn.link", "former_attempt")],
        flags: SAMPLED,
        ..Link::default()
    };
    Span {
        links: step.follows.map(link).into_iter().collect(),
        span_id: step.id.as_bytes().to_vec(),
        parent_span_id: step.parent.map(|it| it.as_bytes().to_vec()).unwrap_or_default(),
        flags,
        name,
        kind: kind.into(),
        start_time_unix_nano: began,
        end_time_unix_nano: began
            .saturating_add(u64::try_from(step.took.as_nanos()).unwrap_or(u64::MAX)),
        attributes,
        status: error.map(|message| Status { message, code: StatusCode::Error.into() }),
        trace_id,
        ..Span::default()
    }
}

/// How long the phases of a request took.
fn phases(timings: &Timings) -> impl Iterator<Item = KeyValue> {
    [
        ("posthorn.phase.dns", timings.dns),
        ("posthorn.phase.connect", timings.connect),
        ("posthorn.phase.tls", timings.tls),
        ("posthorn.phase.first_byte", timings.first_byte),
    ]
    .into_iter()
    .filter_map(|(name, length)| length.map(|length| seconds(name, length)))
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Duration;

    use posthorn_domain::{
        DeliveryId, EventId, EventType, FailureCode, Held, SpanId, SubscriptionId, TenantId,
        TopicName, TraceId, WaitReason,
    };
    use posthorn_engine::Server;

    use super::*;

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    pub(crate) fn span() -> TraceSpan {
        TraceSpan {
            trace: TraceId::new([1; 16]).expect("not zero"),
            id: SpanId::new([2; 8]).expect("not zero"),
            parent: SpanId::new([3; 8]),
            follows: None,
            began: at(1_000),
            took: Duration::from_micros(1_500),
            tenant: TenantId::DEFAULT,
            event: EventId::new(at(1_000), 7),
            topic: TopicName::new("orders").expect("a name"),
            event_type: EventType::new("order.created").expect("a type"),
            step: TraceStep::Publish {
                bytes: 12,
                deliveries: Some(2),
                repeats: None,
                refused: None,
            },
        }
    }

    fn said(span: &Span) -> BTreeMap<String, String> {
        let show = |value: &Option<AnyValue>| match value.as_ref().and_then(|v| v.value.as_ref()) {
            Some(Value::StringValue(text)) => text.clone(),
            Some(Value::IntValue(number)) => number.to_string(),
            Some(Value::DoubleValue(number)) => number.to_string(),
            Some(Value::BoolValue(truth)) => truth.to_string(),
            other => panic!("{other:?}"),
        };
        span.attributes.iter().map(|pair| (pair.key.clone(), show(&pair.value))).collect()
    }

    #[test]
    fn a_publish_is_a_span_of_a_server_with_the_time_to_the_microsecond() {
        let told = super::span(&span());
        assert_eq!((told.name.as_str(), told.kind), ("publish orders", SpanKind::Server as i32));
        assert_eq!((told.trace_id, told.span_id), (vec![1; 16], vec![2; 8]));
        assert_eq!((told.parent_span_id, told.flags), (vec![3; 8], 0x301));
        assert_eq!(told.start_time_unix_nano, 1_000_000_000);
        assert_eq!(told.end_time_unix_nano, 1_001_500_000);
        assert_eq!(told.status, None);
        let refused = TraceStep::Publish {
            bytes: 1,
            deliveries: None,
            repeats: None,
            refused: Some("unknown_topic"),
        };
        let told = super::span(&TraceSpan { parent: None, step: refused, ..span() });
        assert_eq!((told.flags, told.parent_span_id.len()), (0x101, 0));
        assert_eq!(said(&told)["error.type"], "unknown_topic");
    }

    #[test]
    fn a_wait_says_why() {
        let held = Held {
            until_due: WaitReason::Schedule,
            late: Length::from_millis(2_500),
            by: Some(WaitReason::Concurrency),
        };
        let step = TraceStep::Wait {
            delivery: DeliveryId::new(at(0), 1),
            subscription: SubscriptionId::new(at(0), 2),
            attempt: 2,
            held: Some(held),
        };
        let told = super::span(&TraceSpan { step, ..span() });
        let said = said(&told);
        assert_eq!(said["posthorn.wait.until_due"], "schedule");
        assert_eq!((said["posthorn.wait.late"].as_str(), told.kind), ("2.5", 1));
        assert_eq!(said["posthorn.wait.by"], "concurrency");
    }

    #[test]
    fn a_failed_attempt_is_an_error_and_links_to_the_one_before() {
        let attempt = |outcome, succeeded| TraceStep::Attempt {
            delivery: DeliveryId::new(at(0), 1),
            subscription: SubscriptionId::new(at(0), 2),
            attempt: 2,
            kind: "webhook",
            method: Some("POST"),
            server: Some(Server { scheme: "https", host: "a.example".to_owned(), port: 443 }),
            outcome,
            succeeded,
            manual: false,
            timings: Timings { dns: Some(Length::from_millis(3)), ..Timings::default() },
        };
        let step = attempt(Outcome::Failure(FailureCode::ResponseTimeout), false);
        let told = super::span(&TraceSpan { follows: SpanId::new([9; 8]), step, ..span() });
        assert_eq!((told.kind, told.links.len()), (SpanKind::Client as i32, 1));
        assert_eq!(told.links[0].span_id, vec![9; 8]);
        assert_eq!(told.links[0].trace_id, told.trace_id);
        let status = told.status.as_ref().expect("a status");
        assert_eq!(status.code, StatusCode::Error as i32);
        let words = said(&told);
        assert_eq!(words["error.type"], FailureCode::ResponseTimeout.as_str());
        assert_eq!(words["server.address"], "a.example");
        assert_eq!(words["http.request.resend_count"], "1");
        assert_eq!(words["posthorn.phase.dns"], "0.003");
        let told = super::span(&TraceSpan { step: attempt(Outcome::Status(204), true), ..span() });
        assert_eq!((said(&told)["http.response.status_code"].as_str(), told.status), ("204", None));
    }

    #[test]
    fn the_operator_says_who_we_are() {
        let more = BTreeMap::from([
            ("deployment.environment.name".to_owned(), "test".to_owned()),
            ("service.instance.id".to_owned(), "node 1".to_owned()),
        ]);
        let said = resource("hooks", &more);
        let value = |name: &str| {
            let found = said.attributes.iter().find(|pair| pair.key == name).cloned();
            found.and_then(|pair| pair.value).and_then(|value| value.value)
        };
        let is = |text: &str| Some(Value::StringValue(text.to_owned()));
        assert_eq!(value("service.name"), is("hooks"));
        assert_eq!(value("service.instance.id"), is("node 1"));
        assert_eq!(value("deployment.environment.name"), is("test"));
        let text = uuid_text(0);
        assert_eq!(text, "00000000-0000-4000-8000-000000000000");
    }
}
