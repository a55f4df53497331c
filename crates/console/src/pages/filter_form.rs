//! The filter of a subscription: built from fields, or as JSON, and tried against a recent or a pasted event before it is
//! saved.

use std::sync::Arc;

use askama::Template;
use http::Method;
use posthorn_domain::{EventId, SubscriptionId, Timestamp};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Answer;
use super::show::Listed;
use super::subscription::Tested;
use super::subscriptions::{Given, wants};
use super::typed::{Typed, Wrong};
use crate::form::Fields;
use crate::frame::{Frame, Place, home};
use crate::text;
use crate::trouble::{Refusal, Trouble};
use crate::visit::{Visit, page, see};
use crate::words;

const FIELDS: [&str; 7] =
    ["topics", "types", "attributes", "payload", "filter", "event", "event_id"];

/// Events that are offered to try it with.
const RECENT: usize = 10;

#[derive(Deserialize)]
struct Head {
    id: EventId,
    topic: String,
    #[serde(rename = "type")]
    event_type: String,
    accepted_at: Timestamp,
}

#[derive(Template)]
#[template(path = "filter.html")]
struct FilterPage {
    frame: Frame,
    base: String,
    id: String,
    now: String,
    form: Typed,
    recent: Vec<(String, String)>,
    tried: Option<Tested>,
    /// Whether the fields cannot say what the filter says.
    whole: bool,
}

fn named(visit: &Visit) -> Result<SubscriptionId, Trouble> {
    let text = visit.named.first().ok_or(Trouble::NotFound("subscription"))?;
    text.parse().map_err(|_| Trouble::NotFound("subscription"))
}

/// `GET …/subscriptions/{id}/filter`.
pub(crate) async fn show(visit: Arc<Visit>) -> Answer {
    let given: Given = visit.get(&format!("/v1/subscriptions/{}", named(&visit)?)).await?;
    let mut typed = fields(&given.filter);
    typed.extend(visit.query.get("event_id").map(|id| ("event_id", id.to_owned())));
    render(&visit, Typed::new(&FIELDS, Fields::of(typed)), None).await
}

async fn render(visit: &Visit, form: Typed, tried: Option<Tested>) -> Answer {
    let id = named(visit)?;
    let base = home(visit.tenant()?);
    let given: Given = visit.get(&format!("/v1/subscriptions/{id}")).await?;
    let events: Listed<Head> = visit.get(&format!("/v1/events?limit={RECENT}")).await?;
    let now = visit.now();
    let recent = events.items.iter().map(|head| {
        let age = words::age(head.accepted_at, now);
        let name = format!("{} on {}, {age} ago", head.event_type, head.topic);
        (head.id.to_string(), text::line(&name, 100))
    });
    let html = FilterPage {
        frame: Frame::new(visit, Place::Subscriptions, format!("Filter of {}", given.title()))
            .await
            .below(format!("{base}/subscriptions"), "Subscriptions")
            .below(format!("{base}/subscriptions/{id}"), given.title()),
        id: id.to_string(),
        now: wants(&given.filter),
        recent: recent.collect(),
        whole: !form.value("filter").is_empty(),
        base,
        form,
        tried,
    };
    Ok(page(&visit.headers, html.form.status(), html.render()?))
}

/// A filter as the fields of the form; one that has more than these is shown as JSON.
fn fields(filter: &Value) -> Vec<(&'static str, String)> {
    let whole = || vec![("filter", text::indented(&filter.to_string()))];
    let groups = filter.get("any_of").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let plain = filter.as_object().is_some_and(|filter| {
        filter.iter().all(|(name, value)| match name.as_str() {
            "missing_attribute" => value == "mismatch",
            "attribute_names" => value == "exact",
            name => name == "any_of",
        })
    });
    let [group] = groups else { return whole() };
    if !plain {
        return whole();
    }
    let list = |value: &Value| -> String {
        let texts = value.as_array().into_iter().flatten().filter_map(Value::as_str);
        texts.collect::<Vec<_>>().join(", ")
    };
    let mut found = Vec::new();
    found.extend(group.get("topics").map(|topics| ("topics", list(topics))));
    found.extend(group.get("types").map(|types| ("types", list(types))));
    let attributes = group.get("attributes").and_then(Value::as_object).into_iter().flatten();
    let lines: Vec<String> = attributes
        .map(|(name, value)| match value.as_str() {
            Some(one) => format!("{name}={one}"),
            None => format!("{name}={}", list(value)),
        })
        .collect();
    found.push(("attributes", lines.join("\n")));
    found.extend(group.get("payload").map(|own| ("payload", text::indented(&own.to_string()))));
    found
}

/// The filter that was typed; or the field that cannot be read, and why.
fn build(form: &Fields) -> Result<Value, Wrong> {
    let read = |name: &'static str, typed: &str| -> Result<Value, Wrong> {
        serde_json::from_str(typed)
            .map_err(|e| (name.to_owned(), format!("is not valid JSON: {e}")))
    };
    if let Some(typed) = form.get("filter") {
        return read("filter", typed);
    }
    let words = |text: &str| -> Vec<String> {
        let words = text.split([',', '\n']).map(str::trim);
        words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    let mut group = Map::new();
    for name in ["topics", "types"] {
        let words = words(form.typed(name));
        if !words.is_empty() {
            group.insert(name.to_owned(), json!(words));
        }
    }
    let mut attributes = Map::new();
    for line in form.typed("attributes").lines().map(str::trim).filter(|line| !line.is_empty()) {
        let wrong = || {
            let text =
                format!("write name=value in each line; this is none: {}", text::line(line, 60));
            ("attributes".to_owned(), text)
        };
        let (name, value) = line.split_once('=').ok_or_else(wrong)?;
        let values = words(value);
        let value = match values.as_slice() {
            [] => return Err(wrong()),
            [one] => json!(one),
            several => json!(several),
        };
        attributes.insert(name.trim().to_owned(), value);
    }
    if !attributes.is_empty() {
        group.insert("attributes".to_owned(), Value::Object(attributes));
    }
    if let Some(typed) = form.get("payload") {
        group.insert("payload".to_owned(), read("payload", typed)?);
    }
    Ok(json!({"any_of": [group]}))
}

/// `POST …/subscriptions/{id}/filter`: tries it, or saves it.
pub(crate) async fn send(visit: Arc<Visit>) -> Answer {
    let id = named(&visit)?;
    let form = Typed::new(&FIELDS, visit.form.clone());
    let filter = match build(&visit.form) {
        Ok(filter) => filter,
        Err(wrong) => return render(&visit, form.wrong(Some(wrong)), None).await,
    };
    if visit.form.get("do") == Some("save") {
        let body = json!({"filter": filter});
        let path = format!("/v1/subscriptions/{id}");
        return match visit.send::<Value>(Method::PATCH, &path, Some(&body)).await {
            Ok(_) => Ok(see(&format!("{}/subscriptions/{id}?done=changed", home(visit.tenant()?)))),
            Err(Trouble::Refused(refusal)) => {
                render(&visit, form.wrong(Some(place(&visit.form, refusal))), None).await
            }
            Err(trouble) => Err(trouble),
        };
    }
    let mut body = Map::new();
    body.insert("filter".to_owned(), filter);
    // What was pasted counts; without it the event that was chosen.
    match (visit.form.get("event"), visit.form.get("event_id")) {
        (Some(event), _) if event.starts_with("evt_") => {
            body.insert("event_id".to_owned(), json!(event));
        }
        (Some(event), _) => match serde_json::from_str::<Value>(event) {
            Ok(event) => drop(body.insert("event".to_owned(), event)),
            Err(e) => {
                let wrong =
                    ("event".to_owned(), format!("is neither the id of an event nor JSON: {e}"));
                return render(&visit, form.wrong(Some(wrong)), None).await;
            }
        },
        (None, Some(chosen)) => drop(body.insert("event_id".to_owned(), json!(chosen))),
        (None, None) => {
            let wrong = ("event".to_owned(), "choose an event, or paste one".to_owned());
            return render(&visit, form.wrong(Some(wrong)), None).await;
        }
    }
    match visit.send::<Value>(Method::POST, "/v1/filters/test", Some(&Value::Object(body))).await {
        Ok(outcome) => {
            let matches = outcome.get("matches").and_then(Value::as_bool).unwrap_or(false);
            let reasons = outcome.get("reasons").and_then(Value::as_array).into_iter().flatten();
            let reasons: Vec<&str> = reasons.filter_map(Value::as_str).collect();
            let tried = Tested {
                class: if matches { "good" } else { "bad" },
                text: match matches {
                    true => "This filter wants that event.".to_owned(),
                    false => "It does not want that event:".to_owned(),
                },
                body: (!matches).then(|| text::Body::of(reasons.join("\n").as_bytes())),
            };
            render(&visit, form, Some(tried)).await
        }
        Err(Trouble::Refused(refusal)) => {
            render(&visit, form.wrong(Some(place(&visit.form, refusal))), None).await
        }
        Err(trouble) => Err(trouble),
    }
}

/// The field of the form that a refusal is about.
fn place(form: &Fields, refusal: Refusal) -> Wrong {
    let Refusal { field, detail, .. } = refusal;
    let field = field.unwrap_or_default();
    let of_event = field.starts_with("event") || field.is_empty();
    let part =
        ["topics", "types", "attributes", "payload"].into_iter().find(|part| field.contains(part));
    let own = match (of_event, form.get("filter"), part) {
        (true, ..) => "event",
        (false, Some(_), _) => "filter",
        (false, None, Some(part)) => part,
        (false, None, None) => "filter",
    };
    (own.to_owned(), if field.is_empty() { detail } else { format!("{field}: {detail}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_fields_show_is_what_they_build() {
        let filter = json!({"any_of": [{
            "topics": ["orders"], "types": ["order.*", "refund.made"],
            "attributes": {"region": ["eu", "us"], "tier": "*"},
            "payload": {"test": {"path": "/total", "op": "ge", "value": 100}},
        }]});
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        form.extend_pairs(fields(&filter));
        assert_eq!(build(&Fields::parse(form.finish().as_bytes())).unwrap(), filter);
    }

    #[test]
    fn what_the_fields_cannot_say_is_json() {
        for filter in [
            json!({"any_of": []}),
            json!({"any_of": [{"topics": ["a"]}, {"topics": ["b"]}]}),
            json!({"any_of": [{}], "missing_attribute": "ignore"}),
        ] {
            assert_eq!(fields(&filter)[0].0, "filter", "{filter}");
        }
        assert_eq!(build(&Fields::parse(b"")).unwrap(), json!({"any_of": [{}]}));
        assert_eq!(build(&Fields::parse(b"attributes=region")).unwrap_err().0, "attributes");
        assert_eq!(build(&Fields::parse(b"payload=%7B")).unwrap_err().0, "payload");
    }
}
