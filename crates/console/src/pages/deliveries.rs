//! Deliveries: states with their counts, a filter, rows. Dead letters are the same with one state.

use std::sync::Arc;

use askama::Template;
use http::StatusCode;
use posthorn_domain::{DeliveryId, EventId, SubscriptionId, Timestamp, Waiting};
use posthorn_store::Counts;
use serde::Deserialize;

use super::Answer;
use super::dead_letters::{self, Groups};
use super::show::{Listed, Moment, Named, Pager, Shown, Time, moments};
use crate::form::Fields;
use crate::frame::{Frame, Place, home};
use crate::trouble::Trouble;
use crate::visit::{Visit, page};
use crate::words;

/// What the filter has fields for; all of it is in the query.
pub(crate) const FILTER: [&str; 9] =
    ["state", "subscription", "event", "reason", "status", "failure", "from", "until", "order"];

/// A delivery as the API gives it.
#[derive(Deserialize)]
pub(crate) struct Row {
    pub(crate) id: DeliveryId,
    pub(crate) event: EventId,
    pub(crate) subscription: SubscriptionId,
    pub(crate) state: String,
    pub(crate) reason: Option<String>,
    pub(crate) due_at: Option<Timestamp>,
    pub(crate) waiting: Option<Waiting>,
    pub(crate) attempts_made: u32,
    pub(crate) lane: Option<String>,
    pub(crate) created_at: Timestamp,
    pub(crate) ended_at: Option<Timestamp>,
    pub(crate) last_status: Option<u16>,
    pub(crate) last_failure: Option<String>,
}

impl Row {
    pub(crate) fn shown(&self) -> Shown {
        let failed = self.last_failure.is_some()
            || self.last_status.is_some_and(|status| !(200..300).contains(&status));
        Shown::delivery(&self.state, self.reason.as_deref(), failed)
    }

    /// What its last attempt came to.
    pub(crate) fn last(&self) -> String {
        let came_to = match (self.last_status, &self.last_failure) {
            (Some(status), _) => status.to_string(),
            (None, Some(failure)) => failure.replace('_', " "),
            (None, None) => return String::new(),
        };
        match self.attempts_made {
            1 => format!("{came_to} at first try"),
            tries => format!("{came_to} after {tries} attempts"),
        }
    }
}

/// A row of the page.
pub(crate) struct Line {
    pub(crate) id: String,
    pub(crate) short: String,
    pub(crate) event: String,
    pub(crate) event_short: String,
    pub(crate) to: Named,
    pub(crate) shown: Shown,
    pub(crate) last: String,
    pub(crate) lane: Option<String>,
    pub(crate) due: Option<Time>,
    /// What it waits for, where it waits.
    pub(crate) why: Option<String>,
    pub(crate) made: Time,
}

struct Tab {
    name: &'static str,
    href: String,
    here: bool,
    count: Option<String>,
}

#[derive(Template)]
#[template(path = "deliveries.html")]
struct DeliveriesPage<'p> {
    frame: Frame,
    base: String,
    tabs: Vec<Tab>,
    visit: &'p Visit,
    lines: Vec<Line>,
    pager: Pager,
    subscriptions: Vec<(String, String)>,
    dead_only: bool,
    /// The filter, so that one comes back to it.
    back: String,
    range: [Moment; 2],
    redrive: String,
    /// Where one is asked what to do to all that match.
    all: String,
    groups: Option<Groups>,
    wrong: Option<(String, String)>,
}

impl DeliveriesPage<'_> {
    fn typed(&self, name: &str) -> &str {
        self.visit.query.typed(name)
    }

    /// Whether something is wrong with a field.
    fn is_wrong(&self, name: &str) -> bool {
        self.wrong.as_ref().is_some_and(|(field, _)| field == name)
    }
}

/// `GET …/deliveries`.
pub(crate) async fn list(visit: Arc<Visit>) -> Answer {
    show(&visit, false).await
}

/// `GET …/dead-letters`.
pub(crate) async fn dead(visit: Arc<Visit>) -> Answer {
    show(&visit, true).await
}

async fn show(visit: &Visit, dead_only: bool) -> Answer {
    let tenant = visit.tenant()?.clone();
    let base = home(&tenant);
    let fixed: &[(&str, &str)] = if dead_only { &[("state", "dead")] } else { &[] };
    let query = moments(&visit.query);
    let wanted = query.query(&[&FILTER[..], &["cursor"]].concat(), fixed);
    let answer: Result<Listed<Row>, Trouble> = visit.get(&format!("/v1/deliveries?{wanted}")).await;
    // A filter that cannot be read keeps what was typed, and says what is wrong with it.
    let (list, wrong) = match answer {
        Ok(list) => (list, None),
        Err(Trouble::Refused(refusal)) if refusal.status == 400 || refusal.status == 422 => {
            (Listed::none(), Some((refusal.field.unwrap_or_default(), refusal.detail)))
        }
        Err(trouble) => return Err(trouble),
    };
    let now = visit.now();
    let counts = visit.engine().store().counts(Some(tenant.id)).await;
    let counts = counts.map_err(|_| Trouble::Away)?;
    let lines = list.items.iter().map(|row| line(visit, tenant.id, row, now)).collect();
    let mut subscriptions: Vec<(String, String)> = Vec::new();
    for view in visit.engine().catalog().subscriptions(tenant.id).iter().take(200) {
        let id = view.subscription.id;
        let name = view.subscription.name.as_ref();
        let text = name.map_or_else(|| words::short(&id.to_string()), ToString::to_string);
        subscriptions.push((id.to_string(), text));
    }
    subscriptions.sort_by(|a, b| a.1.cmp(&b.1));
    let place = if dead_only { Place::DeadLetters } else { Place::Deliveries };
    let title = if dead_only { "Dead letters" } else { "Deliveries" };
    let status = if wrong.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    let groups = match dead_only && wrong.is_none() {
        true => dead_letters::groups(visit, tenant.id, counts.dead, now).await?,
        false => None,
    };
    let mut frame = Frame::new(visit, place, title).await;
    // Only the newest change by themselves; what is further back stays where it is.
    frame.live = wrong.is_none()
        && visit.query.get("cursor").is_none()
        && visit.query.get("order") != Some("oldest");
    let html = DeliveriesPage {
        frame,
        groups,
        all: format!("{base}/deliveries/matching?{}", query.query(&FILTER, fixed)),
        back: back(&query, dead_only),
        range: Moment::range(&visit.query, wrong.as_ref()),
        tabs: if dead_only { Vec::new() } else { tabs(visit, counts) },
        pager: Pager::of(&list, &query, &FILTER, now),
        redrive: redrive(&base, &query),
        base,
        visit,
        lines,
        subscriptions,
        dead_only,
        wrong,
    };
    Ok(page(&visit.headers, status, html.render()?))
}

/// The filter of a list and its page, for whoever leaves it and wants to come back.
fn back(query: &Fields, dead_only: bool) -> String {
    let list = if dead_only { Place::DeadLetters.path() } else { "" };
    query.query(&[&FILTER[..], &["cursor"]].concat(), &[("back", list)])
}

/// The list that somebody came from, with its filter.
pub(crate) fn list_of(base: &str, query: &Fields) -> String {
    let place = match query.get("back") == Some(Place::DeadLetters.path()) {
        true => Place::DeadLetters,
        false => Place::Deliveries,
    };
    let filter = query.query(&[&FILTER[..], &["cursor"]].concat(), &[]);
    let mark = if filter.is_empty() { "" } else { "?" };
    format!("{base}/{}{mark}{filter}", place.path())
}

/// Where one is asked whether all dead letters of a filter are to be retried. A redrive selects by subscription and reason;
/// what says more is a job.
fn redrive(base: &str, query: &Fields) -> String {
    const MORE: [&str; 5] = ["event", "status", "failure", "from", "until"];
    match MORE.iter().any(|name| query.get(name).is_some()) {
        true => {
            let filter = query.query(&FILTER, &[("state", "dead"), ("act", "retry")]);
            format!("{base}/deliveries/matching?{filter}")
        }
        false => {
            let filter = query.query(&["subscription", "reason"], &[]);
            format!("{base}/dead-letters/redrive?{filter}")
        }
    }
}

pub(crate) fn line(
    visit: &Visit,
    tenant: posthorn_domain::TenantId,
    row: &Row,
    now: Timestamp,
) -> Line {
    Line {
        id: row.id.to_string(),
        short: words::short(&row.id.to_string()),
        event: row.event.to_string(),
        event_short: words::short(&row.event.to_string()),
        to: Named::find(visit.engine(), tenant, row.subscription),
        shown: row.shown(),
        last: row.last(),
        lane: row.lane.as_deref().map(|lane| crate::text::line(lane, 40)),
        due: row.due_at.map(|at| Time::new(at, now)),
        why: row.waiting.map(|waiting| format!("for {}", words::waiting(waiting.reason.as_str()))),
        made: Time::new(row.ended_at.unwrap_or(row.created_at), now),
    }
}

fn tabs(visit: &Visit, counts: Counts) -> Vec<Tab> {
    let all = counts.deliveries();
    let here = visit.query.get("state").unwrap_or_default();
    let tab = |name, state: &'static str, count: Option<u64>| Tab {
        name,
        href: format!("?{}", visit.query.query(&FILTER, &[("state", state), ("reason", "")])),
        here: here == state,
        count: count.map(words::number),
    };
    vec![
        tab("All", "", Some(all)),
        tab("Waiting", "pending", Some(counts.pending)),
        tab("In flight", "in_flight", None),
        tab("Delivered", "delivered", Some(counts.delivered)),
        tab("Dead", "dead", Some(counts.dead)),
        tab("Cancelled", "cancelled", Some(counts.cancelled)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_a_filter_are_retried_and_nothing_else() {
        let asked = |query: &str| redrive("/t", &Fields::parse(query.as_bytes()));
        assert_eq!(asked(""), "/t/dead-letters/redrive?");
        assert_eq!(
            asked("subscription=x&reason=gate&order=oldest"),
            "/t/dead-letters/redrive?subscription=x&reason=gate"
        );
        for more in ["event=e", "status=503", "failure=timeout", "from=2026", "until=2026"] {
            let path = asked(&format!("subscription=x&{more}"));
            let wanted =
                format!("/t/deliveries/matching?subscription=x&{more}&state=dead&act=retry");
            assert_eq!(path, wanted);
        }
    }

    #[test]
    fn whoever_leaves_a_list_comes_back_to_its_filter() {
        let query = Fields::parse(b"status=5xx&cursor=c&other=1&reason=");
        let asked = |dead| Fields::parse(back(&query, dead).as_bytes());
        assert_eq!(list_of("/t", &asked(false)), "/t/deliveries?status=5xx&cursor=c");
        assert_eq!(list_of("/t", &asked(true)), "/t/dead-letters?status=5xx&cursor=c");
        assert_eq!(list_of("/t", &Fields::default()), "/t/deliveries");
    }
}
