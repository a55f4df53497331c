//! A new endpoint in three steps: where, which events, and its secret with a way to try it.
//!
//! What was typed travels from step to step in the form. Only the second step creates something.

use std::sync::Arc;

use askama::Template;
use http::{Method, StatusCode};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use url::Url;

use super::frame::{Frame, Place};
use super::guest::Guest;
use super::snippets::{self, Snippet};
use super::texts::Texts;
use crate::form::Fields;
use crate::pages::Answer;
use crate::pages::show::Listed;
use crate::pages::subscriptions::Given;
use crate::pages::typed::{self, Typed, Wrong};
use crate::text;
use crate::trouble::Trouble;

/// Fields of the two forms.
const FIELDS: &[&str] = &["url", "name", "events", "type", "types"];
/// Types that are offered at once.
const OFFERED_MAX: usize = 200;

/// An event type as the API gives it.
#[derive(Deserialize)]
pub(crate) struct EventKind {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) group: Option<String>,
    pub(crate) schemas: Map<String, Value>,
    pub(crate) examples: Vec<Value>,
    pub(crate) archived: bool,
    pub(crate) deprecated: bool,
}

impl EventKind {
    /// The schema of the newest version: names of versions are numbers mostly.
    pub(crate) fn schema(&self) -> Option<String> {
        let newest = self.schemas.iter().max_by_key(|(version, _)| {
            (version.parse::<u64>().unwrap_or(0), version.as_str().to_owned())
        });
        newest.map(|(_, schema)| text::Body::of(schema.to_string().as_bytes()).text)
    }

    pub(crate) fn example(&self) -> Option<String> {
        let first = self.examples.first()?;
        Some(text::Body::of(first.to_string().as_bytes()).text)
    }
}

/// A type that can be chosen.
pub(crate) struct Offer {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) deprecated: bool,
    pub(crate) schema: Option<String>,
    pub(crate) example: Option<String>,
}

/// Types of the realm's catalogue that are in use.
pub(crate) async fn offers(guest: &Guest) -> Result<Vec<Offer>, Trouble> {
    let path = format!("/v1/event-types?archived=false&limit={OFFERED_MAX}");
    let list: Listed<EventKind> = guest.get(&path).await?;
    Ok(list
        .items
        .iter()
        .filter(|kind| !kind.archived)
        .map(|kind| Offer {
            name: text::line(&kind.name, 200),
            description: text::visible(&kind.description),
            deprecated: kind.deprecated,
            schema: kind.schema(),
            example: kind.example(),
        })
        .collect())
}

#[derive(Template)]
#[template(path = "portal/endpoint-where.html")]
struct WherePage {
    frame: Frame,
    form: Typed,
    /// Whether it stands where the list would.
    first: bool,
    /// The key that this browser would subscribe with.
    push_key: Option<String>,
}

#[derive(Template)]
#[template(path = "portal/endpoint-which.html")]
struct WhichPage {
    frame: Frame,
    form: Typed,
    offers: Vec<Offer>,
    example: Option<(String, String)>,
    all: bool,
}

/// A secret that is shown once, and what to do with it.
#[derive(Template)]
#[template(path = "portal/endpoint-secret.html")]
pub(crate) struct SecretPage {
    pub(crate) frame: Frame,
    pub(crate) id: String,
    pub(crate) secret: Option<String>,
    pub(crate) lead: &'static str,
    /// Whether it is the third step of something new.
    pub(crate) step: bool,
    pub(crate) snippets: &'static [Snippet],
}

impl SecretPage {
    pub(crate) async fn new(guest: &Guest, id: String, secret: Option<String>, step: bool) -> Self {
        let t: &'static Texts = guest.t;
        let title = if step { t.new_title } else { t.rotated_title };
        Self {
            frame: Frame::new(guest, Place::Endpoints, title).await.below("", t.endpoints),
            lead: if step { t.secret_once } else { t.secret_rotated },
            snippets: snippets::ALL,
            id,
            secret,
            step,
        }
    }
}

/// The first step in place of an empty list.
pub(crate) async fn first(guest: &Guest) -> Answer {
    where_page(guest, guest.query.clone(), None, true).await
}

/// `GET /portal/endpoints/new`.
pub(crate) async fn show(guest: Arc<Guest>) -> Answer {
    where_page(&guest, guest.query.clone(), None, false).await
}

async fn where_page(guest: &Guest, typed: Fields, wrong: Option<Wrong>, first: bool) -> Answer {
    let t = guest.t;
    let form = Typed::new(FIELDS, typed).wrong(wrong);
    let mut frame =
        Frame::new(guest, Place::Endpoints, if first { t.endpoints } else { t.new_title }).await;
    if !first {
        frame = frame.below("", t.endpoints);
    }
    let status = form.status();
    let push_key = if first { super::browsers::key(guest).await? } else { None };
    Ok(guest.page(status, WherePage { frame, form, first, push_key }.render()?))
}

async fn which_page(guest: &Guest, typed: Fields, wrong: Option<Wrong>) -> Answer {
    let t = guest.t;
    let offers = offers(guest).await?;
    let example =
        offers.iter().find_map(|offer| Some((offer.name.clone(), offer.example.clone()?)));
    let form = Typed::new(FIELDS, typed).wrong(wrong);
    // With nothing to choose from, all is what most want.
    let chosen = form.value("events");
    let all = chosen == "all" || chosen.is_empty() && offers.is_empty();
    let frame = Frame::new(guest, Place::Endpoints, t.new_title).await.below("", t.endpoints);
    let status = form.status();
    Ok(guest.page(status, WhichPage { frame, form, offers, example, all }.render()?))
}

/// Whether a URL can be one of an endpoint, before anybody is asked.
pub(crate) fn check_url(t: &Texts, text: Option<&str>) -> Result<String, Wrong> {
    let wrong = |text: &str| Err(("url".to_owned(), text.to_owned()));
    let Some(text) = text else { return wrong(t.url_missing) };
    match Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => {
            Ok(text.to_owned())
        }
        _ => wrong(t.url_wrong),
    }
}

/// The filter that somebody has chosen.
pub(crate) fn filter(t: &Texts, form: &Fields) -> Result<Value, Wrong> {
    let chosen = form.all("type").map(str::to_owned);
    let typed = form.typed("types").split([',', '\n', ' ', '\r']).map(str::trim);
    let types: Vec<String> =
        chosen.chain(typed.filter(|word| !word.is_empty()).map(str::to_owned)).collect();
    match (form.get("events"), types.is_empty()) {
        (Some("all"), _) => Ok(json!({"any_of": [{}]})),
        (_, true) => Err(("type".to_owned(), t.events_missing.to_owned())),
        (_, false) => Ok(json!({"any_of": [{"types": types}]})),
    }
}

/// `POST /portal/endpoints/new`: the next step, or the one before.
pub(crate) async fn step(guest: Arc<Guest>) -> Answer {
    let (t, form) = (guest.t, &guest.form);
    let typed = form.without(crate::form::TOKEN_FIELD);
    let url = match check_url(t, form.get("url")) {
        Ok(url) => url,
        Err(wrong) => return where_page(&guest, typed, Some(wrong), false).await,
    };
    match form.get("step") {
        Some("where") => return where_page(&guest, typed, None, false).await,
        Some("create") => {}
        _ => return which_page(&guest, typed, None).await,
    }
    let filter = match filter(t, form) {
        Ok(filter) => filter,
        Err(wrong) => return which_page(&guest, typed, Some(wrong)).await,
    };
    let mut body = Map::new();
    body.insert("url".to_owned(), json!(url));
    body.insert("filter".to_owned(), filter);
    if let Some(name) = form.get("name") {
        body.insert("name".to_owned(), json!(name));
    }
    match guest.send::<Given>(Method::POST, "/v1/subscriptions", Some(&Value::Object(body))).await {
        Ok(made) => {
            let page =
                SecretPage::new(&guest, made.id.to_string(), made.signing_secret, true).await;
            Ok(guest.page(StatusCode::OK, page.render()?))
        }
        Err(trouble) => {
            let wrong = typed::refused(trouble)?;
            match wrong.0.as_str() {
                "filter" => which_page(&guest, typed, Some(("type".to_owned(), wrong.1))).await,
                _ => where_page(&guest, typed, Some(wrong), false).await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_chosen_is_a_filter() {
        let t = super::super::Language::English.texts();
        let chosen = |text: &str| filter(t, &Fields::parse(text.as_bytes()));
        assert_eq!(chosen("events=all&type=a"), Ok(json!({"any_of": [{}]})));
        let wanted = json!({"any_of": [{"types": ["a", "b", "c.*"]}]});
        assert_eq!(chosen("events=some&type=a&type=b&types=c.*%2C"), Ok(wanted));
        assert_eq!(chosen("events=some").unwrap_err().0, "type");
    }

    #[test]
    fn urls_are_looked_at_first() {
        let t = super::super::Language::English.texts();
        assert!(check_url(t, Some("https://a.example/x?y")).is_ok());
        for bad in [None, Some("a.example"), Some("javascript:alert(1)"), Some("ftp://a.example")] {
            assert!(check_url(t, bad).is_err(), "{bad:?}");
        }
    }
}
