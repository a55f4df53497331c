//! What a payload is wrapped in before it is sent, and what of the event stands in headers. Signatures come
//! afterwards: they cover the body as it is sent.

mod svix;

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use posthorn_domain::cloudevent::json::{Data, Object, is_json_text};
use posthorn_domain::cloudevent::{self, Context, DATA_TYPE_DEFAULT};
use posthorn_domain::policy::Envelope;
use posthorn_domain::{Event, Template};

use super::{AttemptLookup, BuildError, percent_encode, value};

const EVENT_TYPE: &str = "posthorn-event-type";
const TOPIC: &str = "posthorn-topic";
/// The content type of a CloudEvent in structured mode.
const STRUCTURED: &str = "application/cloudevents+json; charset=utf-8";

/// Adds the headers that name the event's type and topic. Both are names whose characters every header may
/// have.
pub(super) fn name_event(event: &Event, headers: &mut HeaderMap) -> Result<(), BuildError> {
    let kind = value(EVENT_TYPE, event.event_type.as_str())?;
    headers.insert(HeaderName::from_static(EVENT_TYPE), kind);
    let topic = value(TOPIC, event.topic.as_str())?;
    headers.insert(HeaderName::from_static(TOPIC), topic);
    Ok(())
}

/// Wraps a form of an event. Returns the media type and the body as they are sent.
pub(super) fn wrap<'e>(
    values: &AttemptLookup<'e>,
    (form, body): (Cow<'e, str>, Bytes),
    headers: &mut HeaderMap,
) -> Result<(Cow<'e, str>, Bytes), BuildError> {
    let shape = &values.policy.request;
    let event = &values.work.event;
    match shape.envelope {
        Envelope::None => Ok((form, body)),
        Envelope::SvixOperational => match svix::operational(event) {
            Some(told) => Ok((Cow::Borrowed("application/json"), told)),
            None => Ok((form, body)),
        },
        Envelope::StandardWebhooks => {
            Ok((Cow::Borrowed("application/json"), standard_webhooks(event, &form, &body)))
        }
        // A payload that is a CloudEvent already is not wrapped once more.
        Envelope::CloudeventsStructured if read(&form, &body).is_some() => {
            Ok((Cow::Borrowed(STRUCTURED), body))
        }
        Envelope::CloudeventsStructured => {
            let context = context(values, &form)?;
            let whole = cloudevent::json::write(&context, &body);
            Ok((Cow::Borrowed(STRUCTURED), whole.into()))
        }
        Envelope::CloudeventsBinary => {
            let (context, form, body) = match read(&form, &body) {
                None => (context(values, &form)?, form, body),
                Some((context, data)) => {
                    let kind = context.data_content_type.as_deref().unwrap_or(DATA_TYPE_DEFAULT);
                    let form = Cow::Owned(kind.to_owned());
                    let data = match data {
                        Data::None => Bytes::new(),
                        Data::Json(json) => body.slice_ref(json.as_bytes()),
                        Data::Text(text) => text.into(),
                        Data::Bytes(bytes) => bytes.into(),
                    };
                    (context, form, data)
                }
            };
            for (name, text) in cloudevent::headers::write(&context) {
                let header = HeaderName::try_from(&name)
                    .map_err(|_| BuildError::Request(format!("header `{name}` is not a name")))?;
                headers.insert(header, long_value(&name, &text)?);
            }
            Ok((form, body))
        }
    }
}

/// The payload as a CloudEvent, when it says that it is one and is.
fn read<'b>(form: &str, body: &'b Bytes) -> Option<(Context, Data<'b>)> {
    if !cloudevent::is_structured(form) {
        return None;
    }
    cloudevent::json::read(std::str::from_utf8(body).ok()?).ok()
}

/// What the event says of itself.
fn context(values: &AttemptLookup<'_>, form: &str) -> Result<Context, BuildError> {
    let source = || match &values.policy.request.source {
        None => Ok(format!("/topics/{}", values.work.event.topic)),
        Some(template) => render(template, values),
    };
    Context::of_event(&values.work.event, form, source)
}

fn render(template: &Template, values: &AttemptLookup<'_>) -> Result<String, BuildError> {
    template
        .render(values, |text| percent_encode(text).into_owned())
        .map_err(|e| BuildError::Request(format!("request.source: {e}")))
}

/// Attributes have bounds of their own, which percent-encoding may take to three times as much.
fn long_value(name: &str, text: &str) -> Result<HeaderValue, BuildError> {
    HeaderValue::from_str(text)
        .map_err(|_| BuildError::Request(format!("header `{name}`: not a header value")))
}

/// Type, time and data, as Standard Webhooks recommends. Data that is not JSON is base64, with its media type.
fn standard_webhooks(event: &Event, form: &str, body: &Bytes) -> Bytes {
    let mut out = Object::default();
    out.text("type", event.event_type.as_str());
    out.text("timestamp", &event.accepted_at.to_string());
    if cloudevent::is_json(form) && is_json_text(body) {
        out.raw("data", body);
    } else {
        out.text("content_type", form);
        out.text("data_base64", &STANDARD.encode(body));
    }
    out.finish().into()
}
