//! PCA Hub: the gate that is asked before each attempt, and the lanes that keep the order of each user.

use std::sync::Arc;

use askama::Template;
use http::StatusCode;
use posthorn_domain::policy::{DeadHead, Gate, OnClosed, OrderScope};
use posthorn_domain::{DeliveryId, Timestamp};
use serde::Deserialize;

use super::Answer;
use super::show::{Listed, Time};
use super::systems::{self, Row};
use crate::frame::{Frame, Place, home};
use crate::text;
use crate::visit::{Visit, page};
use crate::words;

/// Subscriptions whose lanes are looked at; the rest has its own page.
const LOOKED_AT: usize = 20;

/// What the API says of a subscription's health, as far as it is shown.
#[derive(Deserialize)]
struct Health {
    waiting: Option<Waiting>,
    blocked_lanes: Vec<Lane>,
    blocked_lanes_count: usize,
    pending: Option<u64>,
}

#[derive(Deserialize)]
struct Waiting {
    reason: String,
}

#[derive(Deserialize)]
struct Lane {
    lane: String,
    since: Timestamp,
    delivery: Option<DeliveryId>,
}

struct BlockedLane {
    key: String,
    since: Time,
    delivery: Option<(String, String)>,
}

/// An environment of the Hub.
struct Environment {
    row: Row,
    gate: String,
    closed: String,
    order: String,
    waits: Option<String>,
    pending: String,
    blocked: Vec<BlockedLane>,
    more_blocked: usize,
}

#[derive(Template)]
#[template(path = "pca_hub.html")]
struct HubPage {
    frame: Frame,
    base: String,
    counts: Vec<(&'static str, String)>,
    environments: Vec<Environment>,
    more: bool,
    by_gate: usize,
    by_gate_more: bool,
}

/// `GET …/pca-hub`.
pub(crate) async fn show(visit: Arc<Visit>) -> Answer {
    let tenant = systems::check(&visit, Place::PcaHub)?;
    let (all, _) = systems::subscriptions(&visit).await?;
    let now = visit.now();
    let mut environments = Vec::new();
    let mut more = false;
    for given in &all {
        let view = visit.engine().catalog().subscription(tenant.id, given.id);
        let policy = view.ok().and_then(|view| view.policy.as_ref().ok().cloned());
        let Some(policy) = policy else { continue };
        let Some(gate) = &policy.gate else { continue };
        if environments.len() == LOOKED_AT {
            more = true;
            break;
        }
        let health: Health = visit.get(&format!("/v1/subscriptions/{}/health", given.id)).await?;
        let lane = |lane: &Lane| BlockedLane {
            key: text::line(&lane.lane, 128),
            since: Time::new(lane.since, now),
            delivery: lane.delivery.map(|id| (id.to_string(), words::short(&id.to_string()))),
        };
        environments.push(Environment {
            row: Row::new(given),
            gate: text::line(gate.url.source(), 300),
            closed: closed(gate),
            order: order(policy.order.scope, policy.order.dead_head),
            waits: health.waiting.map(|waiting| text::line(&waiting.reason, 40).replace('_', " ")),
            pending: health.pending.map_or_else(|| "–".to_owned(), words::number),
            more_blocked: health.blocked_lanes_count.saturating_sub(health.blocked_lanes.len()),
            blocked: health.blocked_lanes.iter().map(lane).collect(),
        });
    }
    let closed: Listed<serde::de::IgnoredAny> =
        visit.get("/v1/dead-letters?reason=gate&limit=100").await?;
    let html = HubPage {
        frame: Frame::new(&visit, Place::PcaHub, "PCA Hub").await,
        base: home(&tenant),
        counts: systems::counts(&visit).await?,
        by_gate: closed.items.len(),
        by_gate_more: closed.next.is_some(),
        environments,
        more,
    };
    Ok(page(&visit.headers, StatusCode::OK, html.render()?))
}

/// What happens when the gate is closed.
fn closed(gate: &Gate) -> String {
    match &gate.on_closed {
        OnClosed::DeadLetter => "dead letter at once".to_owned(),
        OnClosed::Postpone { wait } => {
            format!("asked again after {}", words::span(wait.as_millis()))
        }
    }
}

/// Which deliveries wait for which.
fn order(scope: OrderScope, dead: DeadHead) -> String {
    let scope = match scope {
        OrderScope::None => return "no order".to_owned(),
        OrderScope::Subscription => "one after the other",
        OrderScope::Key => "one after the other for each key",
    };
    match dead {
        DeadHead::Skip => format!("{scope}; a dead letter lets the next one go"),
        DeadHead::Block => format!("{scope}; a dead letter blocks its lane"),
    }
}
