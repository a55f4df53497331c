//! One endpoint: how it did, its settings, its secret, and what to do with it.

use std::collections::BTreeMap;
use std::sync::Arc;

use askama::Template;
use http::{Method, StatusCode};
use posthorn_domain::SubscriptionId;
use serde::Deserialize;
use serde_json::{Value, json};

use super::endpoint_new::{Offer, SecretPage, offers};
use super::endpoints::{self, types_of};
use super::figures::{self, Chart, Range};
use super::frame::{Frame, Place};
use super::guest::Guest;
use super::recover::Counted;
use super::say::{self, Moment, Tested};
use crate::form::Fields;
use crate::pages::Answer;
use crate::pages::show::Shown;
use crate::pages::subscriptions::Given;
use crate::pages::typed::{Typed, Wrong};
use crate::text;
use crate::trouble::Trouble;

/// Fields of its forms.
const FIELDS: &[&str] = &[
    "url", "name", "events", "type", "types", "headers", "rate", "since", "from", "confirm",
    "overlap",
];

#[derive(Template)]
#[template(path = "portal/endpoint.html")]
struct EndpointPage {
    frame: Frame,
    id: String,
    shown: Shown,
    /// Why it is disabled.
    disabled: Option<&'static str>,
    failing: Option<Moment>,
    paused: bool,
    place: String,
    is_webhook: bool,
    wants: String,
    made: Moment,
    chart: Chart,
    week: bool,
    success: String,
    p95: String,
    waiting: String,
    outcomes: Vec<(&'static str, String, Option<&'static str>)>,
    form: Typed,
    offers: Vec<Offer>,
    /// Whether its events can be chosen here.
    chooses: bool,
    all: bool,
    tested: Option<Tested>,
    secret: Option<String>,
    public_keys: Vec<String>,
    signs: bool,
    counted: Option<Counted>,
}

impl EndpointPage {
    /// Times to choose from.
    fn spans(&self) -> [(&'static str, &'static str); 6] {
        let t = self.frame.t;
        [
            ("1h", t.since_1h),
            ("6h", t.since_6h),
            ("24h", t.since_24h),
            ("3d", t.since_3d),
            ("7d", t.since_7d),
            ("exact", t.since_exact),
        ]
    }

    fn is_since(&self, value: &str) -> bool {
        let chosen = self.form.value("since");
        chosen == value || chosen.is_empty() && value == "24h"
    }
}

/// What else a page says than how the endpoint stands.
#[derive(Default)]
pub(crate) struct Also {
    pub(crate) wrong: Option<Wrong>,
    pub(crate) tested: Option<Tested>,
    pub(crate) secret: Option<String>,
    pub(crate) counted: Option<Counted>,
}

#[derive(Deserialize)]
struct Keys {
    #[serde(default)]
    public_keys: Vec<Key>,
}

#[derive(Deserialize)]
struct Key {
    key: String,
}

/// The endpoint that the path names.
pub(crate) fn named(guest: &Guest) -> Result<SubscriptionId, Trouble> {
    let text = guest.named.first().ok_or(Trouble::NotFound("endpoint"))?;
    text.parse().map_err(|_| Trouble::NotFound("endpoint"))
}

/// `GET /portal/endpoints/{id}`.
pub(crate) async fn show(guest: Arc<Guest>) -> Answer {
    page(&guest, Also::default()).await
}

/// Headers that requests to it carry, as lines. What is a template of the operator's is not shown.
fn headers_of(policy: &Value) -> String {
    let headers = policy.pointer("/request/headers").and_then(Value::as_object);
    let mut lines = String::new();
    for (name, value) in headers.into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        if let Some(plain) = super::settings::plain(value) {
            lines.push_str(&format!("{name}: {plain}\n"));
        }
    }
    lines
}

/// What the form has at first.
fn present(given: &Given) -> Fields {
    let (types, _) = types_of(&given.filter);
    let rate = given.policy.pointer("/limits/rate").filter(|rate| !rate.is_null());
    let mut fields = vec![
        ("url", given.url.clone().unwrap_or_default()),
        ("name", given.name.clone().unwrap_or_default()),
        ("events", if types.is_empty() { "all" } else { "some" }.to_owned()),
        ("headers", headers_of(&given.policy)),
        ("rate", rate.map(ToString::to_string).unwrap_or_default()),
    ];
    fields.extend(types.into_iter().map(|name| ("type", name)));
    Fields::of(fields)
}

pub(crate) async fn page(guest: &Guest, also: Also) -> Answer {
    let id = named(guest)?;
    let (t, tenant) = (guest.t, guest.tenant()?.id);
    let bytes = guest.send_bytes(Method::GET, &format!("/v1/subscriptions/{id}"), None).await?;
    let unread = |e: serde_json::Error| Trouble::Fault(e.to_string());
    let given: Given = serde_json::from_slice(&bytes).map_err(unread)?;
    let keys: Keys = serde_json::from_slice(&bytes).map_err(unread)?;
    let view = guest.engine().catalog().subscription(tenant, id)?;
    let is_notification = endpoints::is_notification(&view.subscription.filter);
    let range = Range::named(guest.query.get("range"));
    let series = figures::series(guest, id, range).await?;
    let all = figures::sum(&series);
    let waiting = series.iter().rev().find_map(|(_, step)| step.backlog).unwrap_or(0);
    let (_, more) = types_of(&given.filter);
    let changing = also.wrong.is_some() && guest.form.get("form") == Some("settings");
    let typed = if changing { guest.form.clone() } else { present(&given) };
    let mut offered = if is_notification || more { Vec::new() } else { offers(guest).await? };
    let form =
        Typed::new(FIELDS, merged(&typed, &guest.form, changing, &offered)).wrong(also.wrong);
    offered.retain(|offer| !offer.deprecated || form.has("type", &offer.name));
    let (place_here, parent, parent_name) = match is_notification {
        true => (Place::Notifications, "notifications", t.notifications),
        false => (Place::Endpoints, "", t.endpoints),
    };
    let title = text::line(
        &given.name.clone().unwrap_or_else(|| endpoints::place_of(guest, &view.subscription)),
        100,
    );
    let status = form.status();
    let html = EndpointPage {
        frame: Frame::new(guest, place_here, title).await.below(parent, parent_name),
        id: id.to_string(),
        shown: say::endpoint(t, &given.status, given.failing_since.is_some()),
        disabled: given.status_reason.as_deref().map(|reason| say::disabled(t, reason)),
        failing: given.failing_since.map(Moment::new),
        paused: given.status != "active",
        place: endpoints::place_of(guest, &view.subscription),
        is_webhook: given.url.is_some(),
        wants: endpoints::wanted(guest, &given.filter),
        made: Moment::new(given.created_at),
        chart: Chart::of(t, &series),
        week: range == Range::Week,
        success: figures::success(t, &all),
        p95: figures::p95(t, &all),
        waiting: crate::words::number(waiting),
        outcomes: figures::outcomes(t, &all),
        all: form.value("events") == "all",
        chooses: !is_notification && !more,
        offers: offered,
        tested: also.tested,
        secret: also.secret,
        signs: view.has_signing_secret(guest.now()) || !keys.public_keys.is_empty(),
        public_keys: keys.public_keys.into_iter().map(|own| own.key).collect(),
        counted: also.counted,
        form,
    };
    Ok(guest.page(status, html.render()?))
}

/// What stands in the forms: types that nobody offers are typed, and other forms keep what was typed in them.
fn merged(typed: &Fields, sent: &Fields, changing: bool, offers: &[Offer]) -> Fields {
    let offered = |name: &str| offers.iter().any(|offer| offer.name == name);
    let mut pairs: Vec<(&'static str, String)> = Vec::new();
    for name in ["url", "name", "events", "headers", "rate"] {
        pairs.push((name, typed.typed(name).to_owned()));
    }
    let others: Vec<&str> = typed.all("type").filter(|name| !offered(name)).collect();
    let own = typed.all("type").filter(|name| offered(name));
    pairs.extend(own.map(|name| ("type", name.to_owned())));
    let typed_types = if changing { typed.typed("types").to_owned() } else { others.join(", ") };
    pairs.push(("types", typed_types));
    let sent = super::messages::fitting(sent);
    for name in ["since", "from", "overlap"] {
        pairs.push((name, sent.typed(name).to_owned()));
    }
    Fields::of(pairs)
}

async fn act(guest: &Guest, what: &str, done: &str) -> Answer {
    let id = named(guest)?;
    guest.send_bytes(Method::POST, &format!("/v1/subscriptions/{id}/{what}"), None).await?;
    Ok(guest.see(&format!("endpoints/{id}?done={done}")))
}

/// `POST …/pause`.
pub(crate) async fn pause(guest: Arc<Guest>) -> Answer {
    act(&guest, "pause", "paused").await
}

/// `POST …/resume`: also one that was disabled.
pub(crate) async fn resume(guest: Arc<Guest>) -> Answer {
    act(&guest, "resume", "resumed").await
}

/// `POST …/test`: sends a made-up message and waits for the answer.
pub(crate) async fn test(guest: Arc<Guest>) -> Answer {
    let id = named(&guest)?;
    let outcome: Value =
        guest.send(Method::POST, &format!("/v1/subscriptions/{id}/test"), None).await?;
    let tested = Some(Tested::of(guest.t, &outcome));
    page(&guest, Also { tested, ..Also::default() }).await
}

/// `POST …/secret`: shows the secret that signs now. The audit log has that first.
pub(crate) async fn reveal(guest: Arc<Guest>) -> Answer {
    let id = named(&guest)?;
    let engine = guest.engine().acting(guest.acting());
    let secret = engine.view_secret(guest.tenant()?.id, id).await?;
    page(&guest, Also { secret, ..Also::default() }).await
}

/// `POST …/rotate`: a new secret, shown once; the old one keeps signing for a while.
pub(crate) async fn rotate(guest: Arc<Guest>) -> Answer {
    #[derive(Deserialize)]
    struct Rotated {
        secret: Option<String>,
    }
    let id = named(&guest)?;
    let overlap: BTreeMap<&str, &str> = match guest.form.get("overlap") {
        Some(overlap @ ("0s" | "1h" | "24h")) => BTreeMap::from([("overlap", overlap)]),
        _ => BTreeMap::new(),
    };
    let path = format!("/v1/subscriptions/{id}/rotate-secret");
    match guest.send::<Rotated>(Method::POST, &path, Some(&json!(overlap))).await {
        Ok(Rotated { secret: Some(secret) }) => {
            let html = SecretPage::new(&guest, id.to_string(), Some(secret), false).await;
            Ok(guest.page(StatusCode::OK, html.render()?))
        }
        // A key whose public half receivers verify with has nothing to be shown.
        Ok(Rotated { secret: None }) => Ok(guest.see(&format!("endpoints/{id}?done=changed"))),
        Err(trouble) => {
            let (_, detail) = crate::pages::typed::refused(trouble)?;
            let wrong = Some(("overlap".to_owned(), detail));
            page(&guest, Also { wrong, ..Also::default() }).await
        }
    }
}
