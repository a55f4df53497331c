//! Notificaties: kanalen, abonnementen, and the four settings of deliveries, as the admin of Open Notificaties shows
//! them.

use std::sync::Arc;

use askama::Template;
use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::Answer;
use super::show::Listed;
use super::systems::{self, Row};
use super::typed::{self, Typed, Wrong};
use crate::form::Fields;
use crate::frame::{Frame, Place, home};
use crate::text;
use crate::trouble::{Refusal, Trouble};
use crate::visit::{Visit, page, see};

/// The settings, by the names that the API has for them.
const SETTINGS: &[&str] = &[
    "notification_delivery_max_retries",
    "notification_delivery_retry_backoff",
    "notification_delivery_retry_backoff_max",
    "notification_delivery_base_factor",
];
const PATH: &str = "/v1/notificaties/settings";

/// A topic, as the API gives it.
#[derive(Deserialize)]
struct Topic {
    name: String,
    attributes: Vec<String>,
    #[serde(default)]
    labels: Map<String, Value>,
}

struct Kanaal {
    naam: String,
    href: String,
    filters: String,
    documentation: Option<String>,
    abonnementen: usize,
}

struct Abonnement {
    row: Row,
    client: String,
    kanalen: String,
}

#[derive(Template)]
#[template(path = "notificaties.html")]
struct NotificatiesPage {
    frame: Frame,
    base: String,
    counts: Vec<(&'static str, String)>,
    kanalen: Vec<Kanaal>,
    abonnementen: Vec<Abonnement>,
    more: bool,
    /// For operators; with what is in the way of them where they cannot be shown.
    settings: Option<Typed>,
    unsettled: Option<String>,
}

/// `GET …/notificaties`.
pub(crate) async fn show(visit: Arc<Visit>) -> Answer {
    list(&visit, None).await
}

async fn list(visit: &Visit, wrong: Option<Wrong>) -> Answer {
    let tenant = systems::check(visit, Place::Notificaties)?;
    let (all, more) = systems::subscriptions(visit).await?;
    let abonnementen: Vec<Abonnement> = all
        .iter()
        .filter_map(|given| {
            let client = systems::label(visit, given, "client_id")?;
            Some(Abonnement { row: Row::new(given), client, kanalen: kanalen_of(&given.filter) })
        })
        .collect();
    let topics: Listed<Topic> = visit.get("/v1/topics?limit=200").await?;
    let base = home(&tenant);
    let kanalen = topics.items.iter().filter_map(|topic| {
        let naam = topic.labels.get("kanaal")?.as_str()?;
        let wanted = |given: &&super::subscriptions::Given| names(&given.filter, &topic.name);
        let link = topic.labels.get("documentatie_link").and_then(Value::as_str);
        Some(Kanaal {
            naam: text::line(naam, 80),
            href: format!("{base}/topics/{}", typed::part(&topic.name)),
            filters: text::line(&topic.attributes.join(", "), 300),
            documentation: link.filter(|link| !link.is_empty()).map(|link| text::line(link, 200)),
            abonnementen: all.iter().filter(wanted).count(),
        })
    });
    let (settings, unsettled) = match (visit.is_operator(), wrong) {
        (false, _) => (None, None),
        (true, Some(wrong)) => {
            (Some(Typed::new(SETTINGS, visit.form.clone()).wrong(Some(wrong))), None)
        }
        (true, None) => match visit.get::<Map<String, Value>>(PATH).await {
            Ok(present) => (Some(Typed::new(SETTINGS, as_typed(&present))), None),
            Err(Trouble::Refused(Refusal { status: 400 | 404 | 422, detail, .. })) => {
                (None, Some(detail))
            }
            Err(trouble) => return Err(trouble),
        },
    };
    let status = settings.as_ref().map_or(StatusCode::OK, Typed::status);
    let html = NotificatiesPage {
        frame: Frame::new(visit, Place::Notificaties, "Notificaties").await,
        counts: systems::counts(visit).await?,
        kanalen: kanalen.collect(),
        base,
        abonnementen,
        more,
        settings,
        unsettled,
    };
    Ok(page(&visit.headers, status, html.render()?))
}

/// Settings as their form has them.
fn as_typed(present: &Map<String, Value>) -> Fields {
    let text = |name: &str| match present.get(name) {
        // Whole numbers without a fraction, as people write them.
        Some(value) => value
            .as_f64()
            .filter(|number| number.fract() == 0.0 && number.abs() < 1e15)
            .map_or_else(|| value.to_string(), |number| format!("{number:.0}")),
        None => String::new(),
    };
    Fields::of(SETTINGS.iter().map(|name| (*name, text(name))))
}

/// The groups of a filter.
fn groups(filter: &Value) -> impl Iterator<Item = &Value> {
    filter.get("any_of").and_then(Value::as_array).into_iter().flatten()
}

fn topics_of(group: &Value) -> impl Iterator<Item = &str> {
    let topics = group.get("topics").and_then(Value::as_array);
    topics.into_iter().flatten().filter_map(Value::as_str)
}

/// Whether a filter names a topic.
fn names(filter: &Value, topic: &str) -> bool {
    groups(filter).any(|group| topics_of(group).any(|own| own == topic))
}

/// The kanalen that an abonnement names, each with what its messages must be like.
fn kanalen_of(filter: &Value) -> String {
    let all = groups(filter).map(|group| {
        let topics: Vec<&str> = topics_of(group).collect();
        let filters = group.get("attributes").and_then(Value::as_object);
        let filters: Vec<String> = filters
            .into_iter()
            .flatten()
            .map(|(name, value)| {
                let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                format!("{name}={value}")
            })
            .collect();
        match filters.is_empty() {
            true => topics.join(", "),
            false => format!("{} ({})", topics.join(", "), filters.join(", ")),
        }
    });
    text::line(&all.collect::<Vec<String>>().join("; "), 300)
}

/// `POST …/notificaties`: changes the settings.
pub(crate) async fn change(visit: Arc<Visit>) -> Answer {
    let tenant = systems::check(&visit, Place::Notificaties)?;
    let body = match body(&visit.form) {
        Ok(body) => body,
        Err(wrong) => return list(&visit, Some(wrong)).await,
    };
    match visit.send::<Value>(Method::PATCH, PATH, Some(&body)).await {
        Ok(_) => Ok(see(&format!("{}/notificaties?done=changed", home(&tenant)))),
        Err(trouble) => list(&visit, Some(typed::refused(trouble)?)).await,
    }
}

fn body(form: &Fields) -> Result<Value, Wrong> {
    let mut body = Map::new();
    for name in SETTINGS {
        let Some(text) = form.get(name) else { continue };
        let number: serde_json::Number =
            text.parse().map_err(|_| ((*name).to_owned(), "must be a number".to_owned()))?;
        body.insert((*name).to_owned(), Value::Number(number));
    }
    Ok(Value::Object(body))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn kanalen_are_told_with_their_filters() {
        let filter = json!({"any_of": [
            {"topics": ["zaken"], "attributes": {"bron": "1"}}, {"topics": ["besluiten"]},
        ]});
        assert_eq!(kanalen_of(&filter), "zaken (bron=1); besluiten");
        assert!(names(&filter, "zaken") && !names(&filter, "zaak"));
        assert_eq!(kanalen_of(&json!({})), "");
    }

    #[test]
    fn settings_are_typed_as_numbers() {
        let form = Fields::parse(
            b"notification_delivery_max_retries=5&notification_delivery_base_factor=2.5",
        );
        let wanted = json!({
            "notification_delivery_max_retries": 5, "notification_delivery_base_factor": 2.5,
        });
        assert_eq!(body(&form), Ok(wanted.clone()));
        let shown = as_typed(wanted.as_object().expect("an object"));
        assert_eq!(shown.typed("notification_delivery_max_retries"), "5");
        assert_eq!(shown.typed("notification_delivery_base_factor"), "2.5");
        let (field, _) =
            body(&Fields::parse(b"notification_delivery_max_retries=many")).unwrap_err();
        assert_eq!(field, "notification_delivery_max_retries");
    }
}
