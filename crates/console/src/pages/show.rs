//! What several pages show in the same way: states, times, ids, subscriptions by name, pages of a list.

use posthorn_domain::{SubscriptionId, TenantId, Timestamp};
use posthorn_engine::Engine;
use serde::Deserialize;

use crate::form::Fields;
use crate::words;

/// A page of a list, as the API gives it.
#[derive(Deserialize)]
pub(crate) struct Listed<T> {
    pub(crate) items: Vec<T>,
    pub(crate) next: Option<String>,
    pub(crate) previous: Option<String>,
    pub(crate) scanned_until: Option<Timestamp>,
}

impl<T> Listed<T> {
    /// One with nothing in it.
    pub(crate) const fn none() -> Self {
        Self { items: Vec::new(), next: None, previous: None, scanned_until: None }
    }
}

/// The links to the pages of a list before and after this one.
pub(crate) struct Pager {
    pub(crate) previous: Option<String>,
    pub(crate) next: Option<String>,
    pub(crate) scanned_until: Option<Time>,
}

impl Pager {
    /// Of a list whose filter is in the query under these names.
    pub(crate) fn of<T>(list: &Listed<T>, query: &Fields, filter: &[&str], now: Timestamp) -> Self {
        let link = |cursor: &String| format!("?{}", query.query(filter, &[("cursor", cursor)]));
        Self {
            previous: list.previous.as_ref().map(link),
            next: list.next.as_ref().map(link),
            scanned_until: list.scanned_until.map(|at| Time::new(at, now)),
        }
    }
}

/// A moment: its age at a glance, and exactly.
#[derive(Clone, Debug)]
pub(crate) struct Time {
    pub(crate) iso: String,
    pub(crate) exact: String,
    pub(crate) age: String,
}

impl Time {
    pub(crate) fn new(at: Timestamp, now: Timestamp) -> Self {
        Self { iso: at.to_string(), exact: words::moment(at), age: words::age(at, now) }
    }
}

/// A time that was typed, as the API reads it. What a field for times sends has no zone: it is in UTC, as the page says beside it.
/// What is no time stays as it is, so that the API can say so.
pub(crate) fn moment(typed: &str) -> String {
    let typed = typed.trim();
    if typed.is_empty() || typed.parse::<Timestamp>().is_ok() {
        return typed.to_owned();
    }
    let zoned = [format!("{typed}Z"), format!("{typed}:00Z")];
    let read = zoned.iter().find_map(|text| text.parse::<Timestamp>().ok());
    read.map_or_else(|| typed.to_owned(), |at| at.to_string())
}

/// The same for the range of a filter.
pub(crate) fn moments(query: &Fields) -> Fields {
    query.rewritten(&["from", "until"], moment)
}

/// A field for a time of a filter.
pub(crate) struct Moment {
    pub(crate) name: &'static str,
    pub(crate) label: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) value: String,
    pub(crate) wrong: bool,
}

impl Moment {
    /// With what was typed. What a field for times cannot show, because it is none or has fractions of a second, stands in one for texts.
    pub(crate) fn new(name: &'static str, label: &'static str, typed: &str, wrong: bool) -> Self {
        let typed = typed.trim();
        let read = moment(typed).parse::<Timestamp>().ok();
        let whole = read.filter(|at| at.as_millis() % 1_000 == 0);
        let shown = whole.and_then(|at| at.to_string().get(..19).map(str::to_owned));
        let (kind, value) = match shown {
            Some(value) => ("datetime-local", value),
            None if typed.is_empty() => ("datetime-local", String::new()),
            None => ("text", typed.to_owned()),
        };
        Self { name, label, kind, value, wrong }
    }

    /// The two of a range.
    pub(crate) fn range(query: &Fields, wrong: Option<&(String, String)>) -> [Self; 2] {
        let of = |name, label| {
            let wrong = wrong.is_some_and(|(field, _)| field == name);
            Self::new(name, label, query.typed(name), wrong)
        };
        [of("from", "From (UTC)"), of("until", "Until (UTC)")]
    }
}

/// A state: its word, and the shape and colour it has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) class: &'static str,
    pub(crate) word: String,
}

impl Shown {
    pub(crate) fn new(class: &'static str, word: impl Into<String>) -> Self {
        Self { class, word: word.into() }
    }

    /// Of a delivery.
    pub(crate) fn delivery(state: &str, reason: Option<&str>, failed: bool) -> Self {
        let (class, word) = match (state, failed) {
            ("delivered", _) => ("good", "delivered"),
            ("pending", true) => ("bad", "failing"),
            ("pending", false) => ("wait", "waiting"),
            ("in_flight", _) => ("wait", "in flight"),
            ("dead", _) => ("bad", "dead"),
            ("cancelled", _) => ("off", "cancelled"),
            (other, _) => ("off", other),
        };
        match reason {
            Some(reason) => Self::new(class, format!("{word}, {}", reason.replace('_', " "))),
            None => Self::new(class, word),
        }
    }

    /// Of a subscription.
    pub(crate) fn subscription(status: &str, failing: bool) -> Self {
        match (status, failing) {
            ("active", true) => Self::new("bad", "failing"),
            ("active", false) => Self::new("good", "active"),
            ("paused", _) => Self::new("off", "paused"),
            ("disabled", _) => Self::new("bad", "disabled"),
            (other, _) => Self::new("off", other),
        }
    }
}

/// A subscription as a row names it.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub(crate) id: String,
    pub(crate) name: String,
    /// Where it goes, without what comes after the host.
    pub(crate) place: String,
}

impl Named {
    /// By its id; one that is gone has only that.
    pub(crate) fn find(engine: &Engine, tenant: TenantId, id: SubscriptionId) -> Self {
        let view = engine.catalog().subscription(tenant, id).ok();
        let name = view.as_ref().and_then(|view| view.subscription.name.as_ref());
        let place = view.as_ref().map(|view| place(&view.subscription.destination));
        Self {
            id: id.to_string(),
            name: name.map_or_else(|| words::short(&id.to_string()), ToString::to_string),
            place: place.unwrap_or_else(|| "deleted".to_owned()),
        }
    }
}

/// The host of a destination, or what it is.
pub(crate) fn place(destination: &posthorn_domain::Destination) -> String {
    use posthorn_domain::Destination;
    match destination {
        Destination::Webhook { url } => {
            let parsed = url::Url::parse(url).ok();
            let host = parsed.as_ref().and_then(url::Url::host_str).map(str::to_owned);
            host.unwrap_or_else(|| crate::text::line(url, 60))
        }
        Destination::Push(_) => "a browser here".to_owned(),
        Destination::PushService(target) => crate::text::line(&target.origin, 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_and_without_a_zone() {
        assert_eq!(moment("2026-11-17T10:30"), "2026-11-17T10:30:00.000Z");
        assert_eq!(moment(" 2026-11-17T10:30:05 "), "2026-11-17T10:30:05.000Z");
        for same in ["2026-11-17T10:30:05+01:00", "2026-11-17T10:30:05.5Z", "yesterday", ""] {
            assert_eq!(moment(same), same);
        }
        let query = Fields::parse(b"from=2026-11-17T10%3A30&until=no&order=2026-11-17T10%3A30");
        let query = moments(&query);
        assert_eq!(query.get("from"), Some("2026-11-17T10:30:00.000Z"));
        assert_eq!(
            (query.get("until"), query.get("order")),
            (Some("no"), Some("2026-11-17T10:30"))
        );
    }

    #[test]
    fn a_field_for_times_shows_what_was_typed() {
        let field = |typed| {
            let Moment { kind, value, .. } = Moment::new("from", "From", typed, false);
            (kind, value)
        };
        let time = |value: &str| ("datetime-local", value.to_owned());
        assert_eq!(field(""), time(""));
        assert_eq!(field("2026-11-17T10:30"), time("2026-11-17T10:30:00"));
        assert_eq!(field("2026-11-17T10:30:05+01:00"), time("2026-11-17T09:30:05"), "in UTC");
        for text in ["yesterday", "2026-11-17T10:30:05.500Z"] {
            assert_eq!(field(text), ("text", text.to_owned()));
        }
    }
}
