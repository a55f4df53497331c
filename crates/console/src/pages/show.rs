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
