//! Endpoints of the tenant: where messages go. With none yet, the form for the first.

use std::sync::Arc;

use askama::Template;
use http::StatusCode;
use posthorn_domain::{Destination, Filter, Subscription};
use serde_json::Value;

use super::figures::{self, Range};
use super::frame::{Frame, Place};
use super::guest::Guest;
use super::{endpoint_new, say};
use crate::chart::Bars;
use crate::pages::Answer;
use crate::pages::show::{Listed, Pager, Shown};
use crate::pages::subscriptions::Given;
use crate::{text, words};

/// The reserved topic of what the server tells about itself.
pub(crate) const OPERATIONAL: &str = "posthorn.operational";

/// Whether a subscription is an address for notifications: it wants only what the server tells about itself.
pub(crate) fn is_notification(filter: &Filter) -> bool {
    let groups = &filter.any_of;
    let own = |topics: &[posthorn_domain::TopicName]| {
        !topics.is_empty() && topics.iter().all(|topic| topic.as_str() == OPERATIONAL)
    };
    !groups.is_empty() && groups.iter().all(|group| own(&group.topics))
}

/// How many endpoints the tenant has.
pub(crate) fn count(guest: &Guest) -> usize {
    let Ok(tenant) = guest.tenant() else { return 0 };
    let all = guest.engine().catalog().subscriptions(tenant.id);
    all.iter().filter(|view| !is_notification(&view.subscription.filter)).count()
}

/// Where an endpoint is: its URL, or what browser it is.
pub(crate) fn place(guest: &Guest, destination: &Destination) -> String {
    match destination {
        Destination::Webhook { url } => text::line(url, 200),
        Destination::Push(_) | Destination::PushService(_) => guest.t.a_browser.to_owned(),
    }
}

/// The same of a subscription, with which browser it said it was.
pub(crate) fn place_of(guest: &Guest, own: &Subscription) -> String {
    let place = place(guest, &own.destination);
    match (&own.destination, own.description.as_str()) {
        (Destination::Webhook { .. }, _) | (_, "") => place,
        (_, which) => format!("{place}: {}", text::line(which, 40)),
    }
}

/// Endpoints to choose from: id and name.
pub(crate) fn choices(guest: &Guest) -> Vec<(String, String)> {
    let Ok(tenant) = guest.tenant() else { return Vec::new() };
    let all = guest.engine().catalog().subscriptions(tenant.id);
    let mut named: Vec<(String, String)> = all
        .iter()
        .take(200)
        .map(|view| {
            let own = &view.subscription;
            let name = own.name.as_ref().map(ToString::to_string);
            (own.id.to_string(), name.unwrap_or_else(|| place_of(guest, own)))
        })
        .collect();
    named.sort_by(|a, b| a.1.cmp(&b.1));
    named
}

/// The events that a filter wants, in a few words.
pub(crate) fn wanted(guest: &Guest, filter: &Value) -> String {
    let t = guest.t;
    let (types, more) = types_of(filter);
    match (types.len(), more) {
        (0, false) => t.all_events.to_owned(),
        (_, true) => t.some_events.to_owned(),
        (1..=3, false) => text::line(&types.join(", "), 80),
        (many, false) => t.many_types.replace("{}", &words::number(many as u64)),
    }
}

/// The types that a filter names, and whether it asks for anything that cannot be chosen here.
pub(crate) fn types_of(filter: &Value) -> (Vec<String>, bool) {
    let groups = filter.get("any_of").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let mut types = Vec::new();
    // No group at all wants nothing.
    let mut more = groups.len() > 1 || groups.is_empty() && filter.get("any_of").is_some();
    for group in groups.iter().filter_map(Value::as_object) {
        let named = group.get("types").and_then(Value::as_array).into_iter().flatten();
        types.extend(named.filter_map(Value::as_str).map(str::to_owned));
        let empty = |value: &Value| match value {
            Value::Array(list) => list.is_empty(),
            Value::Object(map) => map.is_empty(),
            Value::Null => true,
            _ => false,
        };
        more |= group.iter().any(|(name, value)| name != "types" && !empty(value));
    }
    (types, more)
}

struct Line {
    id: String,
    name: String,
    place: String,
    wants: String,
    shown: Shown,
    why: Option<&'static str>,
    bars: Bars,
    failing: String,
    p95: String,
}

#[derive(Template)]
#[template(path = "portal/endpoints.html")]
struct EndpointsPage {
    frame: Frame,
    lines: Vec<Line>,
    pager: Pager,
    /// The key that this browser would subscribe with.
    push_key: Option<String>,
    wrong: Option<String>,
}

/// `GET /portal/`.
pub(crate) async fn list(guest: Arc<Guest>) -> Answer {
    show(&guest, None).await
}

/// The list, and what was wrong with what somebody asked for there.
pub(crate) async fn show(guest: &Guest, wrong: Option<String>) -> Answer {
    let wanted_page = guest.query.query(&["cursor"], &[("limit", "25")]);
    let list: Listed<Given> = guest.get(&format!("/v1/subscriptions?{wanted_page}")).await?;
    let tenant = guest.tenant()?.id;
    let (t, now) = (guest.t, guest.now());
    if wrong.is_none()
        && count(guest) == 0
        && guest.query.get("cursor").is_none()
        && guest.can(posthorn_domain::Capability::ManageEndpoints)
    {
        return endpoint_new::first(guest).await;
    }
    let mut lines = Vec::new();
    for given in &list.items {
        let Ok(view) = guest.engine().catalog().subscription(tenant, given.id) else { continue };
        if is_notification(&view.subscription.filter) {
            continue;
        }
        let state = guest.engine().subscription_state(tenant, given.id).await;
        let series = figures::series(guest, given.id, Range::Day).await?;
        let all = figures::sum(&series);
        let failed = figures::failed(&all);
        let mut bars = Bars::of(&series);
        bars.label = figures::label(t, all.attempts(), failed);
        lines.push(Line {
            id: given.id.to_string(),
            name: text::line(&given.title(), 80),
            place: place_of(guest, &view.subscription),
            wants: wanted(guest, &given.filter),
            shown: say::endpoint(t, &given.status, state.failing_since.is_some()),
            why: given.status_reason.as_deref().map(|reason| say::disabled(t, reason)),
            bars,
            failing: words::percent(failed, all.attempts()).replace('.', t.decimal),
            p95: figures::p95(t, &all),
        });
    }
    let html = EndpointsPage {
        frame: Frame::new(guest, Place::Endpoints, t.endpoints).await,
        push_key: super::browsers::key(guest).await?,
        pager: Pager::of(&list, &guest.query, &[], now),
        lines,
        wrong,
    };
    let status = if html.wrong.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    Ok(guest.page(status, html.render()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_filter_wants_is_known() {
        let types = |filter: Value| types_of(&filter);
        assert_eq!(types(json!({"any_of": [{}]})), (vec![], false));
        assert!(types(json!({"any_of": []})).1, "that wants nothing");
        assert_eq!(
            types(json!({"any_of": [{"types": ["a", "b.*"]}]})),
            (vec!["a".into(), "b.*".into()], false)
        );
        assert!(types(json!({"any_of": [{"types": ["a"], "topics": ["x"]}]})).1);
        assert!(!types(json!({"any_of": [{"types": ["a"], "topics": [], "attributes": {}}]})).1);
    }

    #[test]
    fn addresses_for_notifications_want_nothing_else() {
        let check = |filter: Value| is_notification(&serde_json::from_value(filter).unwrap());
        assert!(check(
            json!({"any_of": [{"topics": [OPERATIONAL], "types": ["subscription.failing"]}]})
        ));
        assert!(!check(json!({"any_of": [{"topics": [OPERATIONAL, "orders"]}]})));
        assert!(!check(json!({"any_of": []})) && !check(json!({"any_of": [{"types": ["a"]}]})));
    }
}
