//! The overview: five figures, a chart of the range, who needs attention. Of the server, or of one tenant.

use std::sync::Arc;

use askama::Template;
use http::{StatusCode, header};
use posthorn_domain::{
    RollupCounts, RollupScope, RollupStep, Shard, SubscriptionId, Tenant, TenantId, Timestamp,
};
use posthorn_store::Counts;

use super::Answer;
use super::deliveries::{self, Line, Row};
use super::show::{Listed, Named, Shown, Time};
use crate::chart::Bars;
use crate::cookie;
use crate::frame::{Frame, Place, home};
use crate::trouble::Trouble;
use crate::visit::{Visit, page, see};
use crate::words;

/// Receivers that are shown as failing, at most.
const FAILING_MAX: usize = 10;

/// How far back one looks.
struct Range {
    key: &'static str,
    name: &'static str,
    step: RollupStep,
    millis: i64,
}

const RANGES: [Range; 4] = [
    Range { key: "15m", name: "15 minutes", step: RollupStep::Minute, millis: 15 * 60_000 },
    Range { key: "1h", name: "Last hour", step: RollupStep::Minute, millis: 60 * 60_000 },
    Range { key: "24h", name: "24 hours", step: RollupStep::Minute, millis: 24 * 3_600_000 },
    Range { key: "7d", name: "7 days", step: RollupStep::Hour, millis: 7 * 24 * 3_600_000 },
];

/// A figure that matters.
struct Figure {
    name: &'static str,
    value: String,
    note: String,
    class: &'static str,
}

/// A row of the chart's table.
struct Point {
    at: i64,
    time: String,
    delivered: f64,
    failed: f64,
}

/// A receiver that only fails.
struct Failing {
    base: String,
    to: Named,
    since: Time,
    bars: Bars,
    shown: Shown,
}

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    frame: Frame,
    ranges: Vec<(&'static str, &'static str, bool)>,
    figures: Vec<Figure>,
    points: Vec<Point>,
    failing: Vec<Failing>,
    more_failing: usize,
    dead: Vec<Line>,
    dead_base: Option<String>,
    banners: Vec<String>,
    live_path: String,
    first: bool,
}

/// `GET /console/`.
pub(crate) async fn server(visit: Arc<Visit>) -> Answer {
    match visit.is_operator() {
        true => show(&visit, None).await,
        // Others have no server to look at, only what is theirs.
        false => {
            let own = visit.usual_tenant().ok_or(Trouble::NotFound("tenant"))?;
            Ok(see(&home(&own)))
        }
    }
}

/// `GET /console/t/{tenant}`.
pub(crate) async fn tenant(visit: Arc<Visit>) -> Answer {
    let tenant = visit.tenant()?.clone();
    show(&visit, Some(&tenant)).await
}

/// `GET /console/switch`: on to the same page of another tenant.
pub(crate) async fn switch(visit: Arc<Visit>) -> Answer {
    let wanted = visit.query.get("tenant").unwrap_or_default();
    let found = visit.find_tenant(wanted).ok_or(Trouble::NotFound("tenant"))?;
    let place = Place::named(visit.query.get("to").unwrap_or_default());
    let place = place.unwrap_or(Place::Overview).path();
    let base = home(&found);
    let path = if place.is_empty() { base } else { format!("{base}/{place}") };
    let mut response = see(&path);
    let kept = cookie::Kept::Seconds(30 * 24 * 3600);
    let last = cookie::write(cookie::TENANT, &found.id.to_string(), &kept, false);
    response.headers_mut().append(header::SET_COOKIE, last);
    Ok(response)
}

async fn show(visit: &Visit, tenant: Option<&Tenant>) -> Answer {
    let engine = visit.engine();
    let wanted = visit.query.get("range").unwrap_or("1h");
    let range = RANGES.iter().find(|range| range.key == wanted).unwrap_or(&RANGES[1]);
    let now = visit.now();
    let scope = tenant.map_or(RollupScope::Server, |tenant| RollupScope::Tenant(tenant.id));
    let from = Timestamp::from_millis(now.as_millis() - range.millis);
    let series = engine.series(scope, range.step, from, now).await?;
    let counts = engine.store().counts(tenant.map(|tenant| tenant.id)).await;
    let counts = counts.map_err(|_| Trouble::Away)?;
    let (failing, more_failing) = failing(visit, tenant.map(|tenant| tenant.id), now).await?;
    let usual = tenant.cloned().or_else(|| visit.usual_tenant());
    let (dead, dead_base) = match &usual {
        Some(usual) => (latest_dead(visit, usual, now).await?, Some(home(usual))),
        None => (Vec::new(), None),
    };
    let base = tenant.map_or_else(|| "/console/".to_owned(), home);
    let title = tenant.map_or("Overview", |tenant| tenant.name.as_str());
    let html = OverviewPage {
        frame: Frame::new(visit, Place::Overview, title).await.live().charts(),
        ranges: RANGES.iter().map(|own| (own.key, own.name, own.key == range.key)).collect(),
        figures: figures(&series, counts, range),
        points: points(&series, range.step),
        banners: banners(visit),
        live_path: format!("{base}?range={}", range.key),
        first: counts.events == 0,
        failing,
        more_failing,
        dead,
        dead_base,
    };
    Ok(page(&visit.headers, StatusCode::OK, html.render()?))
}

fn figures(series: &[(Timestamp, RollupCounts)], counts: Counts, range: &Range) -> Vec<Figure> {
    let mut all = RollupCounts::default();
    for (_, step) in series {
        all.add(step);
    }
    let failed: u64 = all.failed.iter().sum();
    let span = u64::try_from(range.millis).unwrap_or(1);
    let most = series.iter().max_by_key(|(_, step)| step.failed.iter().sum::<u64>());
    let peak = most.filter(|_| failed > 0).map(|(at, step)| {
        let count: u64 = step.failed.iter().sum();
        let each = words::rate(count, step_millis(range.step));
        format!("peak {each} at {}", clock(*at))
    });
    let mut p95 = String::new();
    if let Some(millis) = all.quantile_ms(0.95) {
        p95 = format!("p95 {}", words::span(millis.round() as u64));
    }
    let share = words::percent(all.attempts().saturating_sub(failed), all.attempts());
    vec![
        Figure {
            name: "Published",
            value: words::rate(all.published, span),
            note: format!("{} in all", words::number(all.published)),
            class: "",
        },
        Figure {
            name: "Delivered",
            value: words::rate(all.delivered, span),
            note: format!("{share} of attempts succeed"),
            class: "",
        },
        Figure {
            name: "Failed attempts",
            value: words::rate(failed, span),
            note: peak.unwrap_or_else(|| "none".to_owned()),
            class: if failed > 0 { "bad" } else { "" },
        },
        Figure { name: "Waiting", value: words::number(counts.pending), note: p95, class: "" },
        Figure {
            name: "Dead letters",
            value: words::number(counts.dead),
            note: match all.dead {
                0 => "none new".to_owned(),
                new => format!("{} new", words::number(new)),
            },
            class: if counts.dead > 0 { "bad" } else { "" },
        },
    ]
}

const fn step_millis(step: RollupStep) -> u64 {
    match step {
        RollupStep::Minute => 60_000,
        RollupStep::Hour => 3_600_000,
    }
}

/// The time of day.
fn clock(at: Timestamp) -> String {
    words::moment(at).get(11..16).unwrap_or_default().to_owned()
}

fn points(series: &[(Timestamp, RollupCounts)], step: RollupStep) -> Vec<Point> {
    let each = |count: u64| (count as f64 * 1e6 / step_millis(step) as f64).round() / 1e3;
    series
        .iter()
        .map(|(at, counts)| Point {
            at: at.as_millis() / 1_000,
            time: words::moment(*at),
            delivered: each(counts.delivered),
            failed: each(counts.failed.iter().sum()),
        })
        .collect()
}

async fn failing(
    visit: &Visit,
    tenant: Option<TenantId>,
    now: Timestamp,
) -> Result<(Vec<Failing>, usize), Trouble> {
    let engine = visit.engine();
    let shards: Vec<Shard> = Shard::all().collect();
    let all = engine.store().failing(&shards).await.map_err(|_| Trouble::Away)?;
    let mut known: Vec<(SubscriptionId, Timestamp, Tenant)> = Vec::new();
    for failing in all {
        let Some(view) = engine.catalog().view(failing.subscription) else { continue };
        let own = view.subscription.tenant;
        if tenant.is_some_and(|tenant| tenant != own) {
            continue;
        }
        if let Some(own) = visit.find_tenant(&own.to_string()) {
            known.push((failing.subscription, failing.streak.since, own));
        }
    }
    known.sort_by_key(|(_, since, _)| *since);
    let more = known.len().saturating_sub(FAILING_MAX);
    let mut shown = Vec::new();
    let from = Timestamp::from_millis(now.as_millis() - 3_600_000);
    for (id, since, own) in known.into_iter().take(FAILING_MAX) {
        let scope = RollupScope::Subscription(id);
        let series = engine.series(scope, RollupStep::Minute, from, now).await?;
        shown.push(Failing {
            base: home(&own),
            to: Named::find(engine, own.id, id),
            since: Time::new(since, now),
            bars: Bars::of(&series),
            shown: Shown::new("bad", "failing"),
        });
    }
    Ok((shown, more))
}

/// The newest dead letters of a tenant.
async fn latest_dead(visit: &Visit, tenant: &Tenant, now: Timestamp) -> Result<Vec<Line>, Trouble> {
    let list: Listed<Row> = visit.get_of(tenant, "/v1/dead-letters?limit=5").await?;
    Ok(list.items.iter().map(|row| deliveries::line(visit, tenant.id, row, now)).collect())
}

/// What is wrong with the whole server, in sentences.
fn banners(visit: &Visit) -> Vec<String> {
    let admission = visit.engine().admission();
    let mut banners = Vec::new();
    if admission.is_disk_full() {
        banners.push(
            "The disk is full. Nothing is accepted until there is room; what was accepted is kept and delivered."
                .to_owned(),
        );
    }
    if admission.is_overloaded() {
        banners.push(
            "The server is overloaded: commits take too long, and some publishes are refused with 503.".to_owned(),
        );
    }
    banners
}
