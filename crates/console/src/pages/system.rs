//! The system: the nodes, the store, what limits this node, how long things are kept, and who is logged in.

use std::sync::Arc;
use std::time::{Duration, Instant};

use askama::Template;
use http::StatusCode;
use posthorn_domain::{Home, Scope, Session, SessionId, SessionKind, Span, TenantId, Timestamp};
use posthorn_engine::Health;
use posthorn_store::{Listing, Order, Place as ListPlace, SessionFilter};
use serde::Deserialize;

use super::Answer;
use super::nodes::{self, NodeLine};
use super::show::{Listed, Shown, Time};
use super::typed;
use crate::frame::{Frame, Place, home};
use crate::text;
use crate::trouble::Trouble;
use crate::visit::{Visit, page, see};
use crate::words;

/// How long the store may take to answer.
const PING_TIME: Duration = Duration::from_secs(2);
/// Sessions on a page.
const SESSIONS: usize = 50;

struct SessionLine {
    id: String,
    name: String,
    home: String,
    home_href: Option<String>,
    opener: &'static str,
    key: Option<String>,
    made: Time,
    ends: Time,
    own: bool,
}

#[derive(Template)]
#[template(path = "system.html")]
struct SystemPage {
    frame: Frame,
    node: String,
    version: &'static str,
    health: Shown,
    publishes: Shown,
    publishes_why: Option<&'static str>,
    store: Option<&'static str>,
    ping: Shown,
    work: Vec<(&'static str, String)>,
    counts: Vec<(&'static str, String)>,
    kept: Vec<(&'static str, String)>,
    limits: Vec<(&'static str, String)>,
    nodes: Vec<NodeLine>,
    oldest: Option<(String, String, Time)>,
    sessions: Vec<SessionLine>,
    next: Option<String>,
}

/// `GET /console/system`.
pub(crate) async fn show(visit: Arc<Visit>) -> Answer {
    let engine = visit.engine();
    let began = Instant::now();
    let answered = tokio::time::timeout(PING_TIME, engine.store().ping()).await;
    let took = began.elapsed();
    let ping = match answered {
        Ok(Ok(())) => Shown::new("good", format!("answers in {}", fine(took))),
        Ok(Err(_)) => Shown::new("bad", "cannot be reached"),
        Err(_) => Shown::new("bad", "does not answer"),
    };
    let health = match &*engine.health().borrow() {
        Health::Running => Shown::new("good", "running"),
        Health::Stopping => Shown::new("wait", "stopping"),
        Health::Failed(_) => Shown::new("bad", "the store has failed; restart the server"),
    };
    let admission = engine.admission();
    let (publishes, publishes_why) = match (admission.is_disk_full(), admission.is_overloaded()) {
        (true, _) => (
            Shown::new("bad", "refused"),
            Some(
                "The disk is nearly full. Deliveries go on; publishes are taken when there is space again.",
            ),
        ),
        (false, true) => (
            Shown::new("bad", "partly refused"),
            Some(
                "Publishes come faster than they can be stored, so some tenants are told to come back later.",
            ),
        ),
        (false, false) => (Shown::new("good", "accepted"), None),
    };
    let snapshot = engine.inspect().await;
    let counts = engine.store().counts(None).await.map_err(|_| Trouble::Away)?;
    let number = |count: usize| words::number(count as u64);
    let now = visit.now();
    let (sessions, next) = sessions(&visit, now).await?;
    let html = SystemPage {
        frame: Frame::new(&visit, Place::System, "System").await,
        node: engine.node().to_string(),
        version: env!("CARGO_PKG_VERSION"),
        health,
        publishes,
        publishes_why,
        store: visit.console.options.store,
        ping,
        work: vec![
            ("Attempts under way", number(snapshot.in_flight)),
            ("Deliveries in memory", number(snapshot.window)),
            ("Outcomes not yet written", number(snapshot.recording)),
            ("Events that wait for their commit", number(admission.waiting())),
        ],
        counts: vec![
            ("Tenants", number(engine.catalog().tenants().len())),
            ("Events", words::number(counts.events)),
            ("Waiting", words::number(counts.pending)),
            ("Delivered", words::number(counts.delivered)),
            ("Dead letters", words::number(counts.dead)),
            ("Cancelled", words::number(counts.cancelled)),
        ],
        kept: kept(&visit),
        limits: limits(&visit),
        nodes: nodes::lines(&visit).await?,
        oldest: oldest(&visit, now).await?,
        sessions,
        next,
    };
    Ok(page(&visit.headers, StatusCode::OK, html.render()?))
}

/// A short time with a fraction of a millisecond.
fn fine(took: Duration) -> String {
    match took.as_micros() {
        micros @ 0..1_000 => format!("{micros} µs"),
        micros @ 1_000..10_000 => format!("{}.{} ms", micros / 1_000, micros % 1_000 / 100),
        _ => words::span(u64::try_from(took.as_millis()).unwrap_or(u64::MAX)),
    }
}

/// The oldest event of the tenant that one looks at: its path, whose it is, and when it was accepted.
async fn oldest(visit: &Visit, now: Timestamp) -> Result<Option<(String, String, Time)>, Trouble> {
    #[derive(Deserialize)]
    struct Event {
        id: String,
        accepted_at: Timestamp,
    }
    let Some(tenant) = visit.usual_tenant() else { return Ok(None) };
    let list: Listed<Event> = visit.get_of(&tenant, "/v1/events?order=oldest&limit=1").await?;
    let found = list.items.first();
    Ok(found.map(|event| {
        let href = format!("{}/events/{}", home(&tenant), event.id);
        (href, text::line(&tenant.name, 128), Time::new(event.accepted_at, now))
    }))
}

/// How long things are kept.
fn kept(visit: &Visit) -> Vec<(&'static str, String)> {
    let options = visit.engine().options();
    let span = |span: Span| words::span(span.as_millis());
    vec![
        ("Events whose deliveries have ended", span(options.event_retention)),
        ("Dead letters", span(options.dead_letter_retention)),
        ("Idempotency keys", span(options.idempotency_retention)),
        ("Lines of the audit log", span(options.audit_retention)),
    ]
}

/// What bounds the work of this node and of each tenant.
fn limits(visit: &Visit) -> Vec<(&'static str, String)> {
    let options = visit.engine().options();
    let admission = &options.admission;
    let some = |count: u64| if count == 0 { "no limit".to_owned() } else { words::number(count) };
    let wait = u64::try_from(admission.commit_delay.as_millis()).unwrap_or(u64::MAX);
    let wait = if wait == 0 { "no limit".to_owned() } else { words::span(wait) };
    vec![
        ("Attempts under way at once", words::number(options.slots as u64)),
        ("Payload of an event", words::bytes(options.payload_max as u64)),
        ("Wait of a publish for its commit", wait),
        ("Unfinished deliveries of a tenant", some(admission.pending_per_tenant)),
        ("Requests of a key per second", some(admission.key_requests_per_second.into())),
        ("Subscriptions of a tenant", some(options.quotas.subscriptions as u64)),
        ("Topics of a tenant", some(options.quotas.topics as u64)),
        ("Deliveries of one event", some(options.quotas.fan_out as u64)),
    ]
}

async fn sessions(
    visit: &Visit,
    now: Timestamp,
) -> Result<(Vec<SessionLine>, Option<String>), Trouble> {
    let after = visit.query.get("after").and_then(|text| text.parse::<SessionId>().ok());
    let after = after.map(|id| ListPlace(u128::from_be_bytes(*id.as_bytes())));
    let listing = Listing { order: Order::NewestFirst, after, limit: SESSIONS };
    let filter = SessionFilter {
        kind: Some(SessionKind::Console),
        unexpired_at: Some(now),
        ..SessionFilter::default()
    };
    let part = visit.engine().sessions(filter, listing).await?;
    let next = part.last.filter(|_| part.more).map(|ListPlace(bits)| {
        format!("?after={}#sessions", SessionId::from_bytes(bits.to_be_bytes()))
    });
    Ok((part.items.iter().map(|session| session_line(visit, session, now)).collect(), next))
}

fn session_line(visit: &Visit, session: &Session, now: Timestamp) -> SessionLine {
    let (home, home_href) = match &session.home {
        Home::Operator if session.scopes.contains(&Scope::Operator) => {
            ("operator".to_owned(), None)
        }
        Home::Operator => ("all tenants".to_owned(), None),
        Home::Realm(realm) => {
            let href = format!("/console/realms/{}", typed::part(realm.as_str()));
            (format!("realm {realm}"), Some(href))
        }
        Home::Tenant(id) => {
            let known = visit.engine().catalog().tenant_or_tombstone(*id);
            let name = known.map_or_else(|| id.to_string(), |(tenant, _)| tenant.name);
            (format!("tenant {}", text::line(&name, 80)), Some(format!("/console/tenants/{id}")))
        }
    };
    SessionLine {
        id: session.id.to_string(),
        name: text::line(&session.name, 80),
        home,
        home_href,
        opener: session.opener.as_str(),
        key: session.opener.key().map(|key| key.to_string()),
        made: Time::new(session.created_at, now),
        ends: Time::new(session.expires_at, now),
        own: session.id == visit.session.id,
    }
}

/// `POST /console/system/sessions/{id}/end`.
pub(crate) async fn end(visit: Arc<Visit>) -> Answer {
    let id = visit.named.first().and_then(|text| text.parse::<SessionId>().ok());
    let id = id.ok_or(Trouble::NotFound("session"))?;
    visit.engine().acting(visit.acting()).end_session(id).await?;
    // Back to where the button was.
    let tenant = visit.form.get("tenant").and_then(|text| text.parse::<TenantId>().ok());
    Ok(match tenant {
        Some(tenant) => see(&format!("/console/tenants/{tenant}?done=ended#portal")),
        None => see("/console/system?done=ended"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_times_are_not_rounded_to_nothing() {
        let written = [
            (0, "0 µs"),
            (480, "480 µs"),
            (1_250, "1.2 ms"),
            (12_000, "12 ms"),
            (2_140_000, "2.1 s"),
        ];
        for (micros, wanted) in written {
            assert_eq!(fine(Duration::from_micros(micros)), wanted);
        }
    }
}
