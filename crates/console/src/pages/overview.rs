//! The overview: five figures, a chart of the range, who needs attention. Of the server, or of one tenant.

use std::sync::Arc;
use std::time::{Duration, Instant};

use askama::Template;
use http::{StatusCode, header};
use posthorn_domain::{EventId, RollupCounts, RollupScope, RollupStep, Tenant, Timestamp};
use posthorn_store::Counts;
use serde::Deserialize;

use super::Answer;
use super::attention::{self, Banner, Failures, Worst, millis};
use super::deliveries::{self, Line, Row};
use super::show::{Listed, Time};
use crate::cookie;
use crate::frame::{Frame, Place, home};
use crate::text;
use crate::trouble::Trouble;
use crate::visit::{Visit, page, see};
use crate::words;

/// How long the store may take to answer.
const PING_TIME: Duration = Duration::from_secs(2);
/// Whoever has no more events than these has just begun.
const FEW: u64 = 10;

/// How far back one looks.
pub(crate) struct Range {
    pub(crate) key: &'static str,
    pub(crate) name: &'static str,
    pub(crate) step: RollupStep,
    pub(crate) millis: i64,
}

impl Range {
    /// The one that the query names.
    pub(crate) fn of(visit: &Visit) -> &'static Self {
        let wanted = visit.query.get("range").unwrap_or("1h");
        RANGES.iter().find(|range| range.key == wanted).unwrap_or(&RANGES[1])
    }

    /// All of them, for a switch: key, name, whether it is this one.
    pub(crate) fn switch(&self) -> Vec<(&'static str, &'static str, bool)> {
        RANGES.iter().map(|own| (own.key, own.name, own.key == self.key)).collect()
    }
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

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    frame: Frame,
    ranges: Vec<(&'static str, &'static str, bool)>,
    figures: Vec<Figure>,
    points: Vec<Point>,
    failing: Failures,
    backlog: Vec<Worst>,
    backlog_at: Time,
    /// How this node stands; for operators.
    facts: Vec<(&'static str, String)>,
    arrived: Vec<Arrived>,
    dead: Vec<Dead>,
    dead_base: Option<String>,
    banners: Vec<Banner>,
    /// Whether it is about all tenants.
    everybody: bool,
    range: &'static str,
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
    let range = Range::of(visit);
    let now = visit.now();
    let scope = tenant.map_or(RollupScope::Server, |tenant| RollupScope::Tenant(tenant.id));
    let from = Timestamp::from_millis(now.as_millis() - range.millis);
    let series = engine.series(scope, range.step, from, now).await?;
    let counts = engine.store().counts(tenant.map(|tenant| tenant.id)).await;
    let counts = counts.map_err(|_| Trouble::Away)?;
    let began = Instant::now();
    let answered = tokio::time::timeout(PING_TIME, engine.store().ping()).await;
    let ping = began.elapsed();
    if !matches!(answered, Ok(Ok(()))) {
        return Err(Trouble::Away);
    }
    let whose = tenant.map(|tenant| tenant.id);
    let since = (range.step, from);
    let (backlog, backlog_at) = attention::by_backlog(visit, whose, since, now).await?;
    let operator = visit.is_operator();
    let facts =
        if operator && tenant.is_none() { facts(visit, ping, now).await } else { Vec::new() };
    let usual = tenant.cloned().or_else(|| visit.usual_tenant());
    let both = (whose, usual.as_ref().map(|usual| usual.id));
    let failing = attention::by_failures(visit, both, range, now).await?;
    let among = match tenant {
        Some(tenant) => vec![tenant.clone()],
        None => attention::lately_dead(visit, usual.as_ref(), range).await,
    };
    let dead = latest_dead(visit, &among, now).await?;
    let dead_base = usual.as_ref().map(home);
    let arrived = match &usual {
        Some(usual) if (1..=FEW).contains(&counts.events) => arrived(visit, usual, now).await?,
        _ => Vec::new(),
    };
    let title = tenant.map_or("Overview", |tenant| tenant.name.as_str());
    let html = OverviewPage {
        frame: Frame::new(visit, Place::Overview, title).await.live().charts(),
        ranges: range.switch(),
        figures: figures(&series, counts, range),
        points: points(&series, range.step),
        banners: if operator { attention::banners(visit, ping, now) } else { Vec::new() },
        everybody: tenant.is_none(),
        range: range.name,
        first: counts.events == 0,
        failing,
        backlog,
        backlog_at,
        facts,
        arrived,
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

/// Dead letters that are shown.
const DEAD_MAX: usize = 5;

/// A dead letter, and whose it is.
struct Dead {
    base: String,
    tenant: String,
    line: Line,
}

/// The newest dead letters of some tenants.
async fn latest_dead(
    visit: &Visit,
    among: &[Tenant],
    now: Timestamp,
) -> Result<Vec<Dead>, Trouble> {
    let mut found: Vec<(Timestamp, &Tenant, Row)> = Vec::new();
    for tenant in among {
        let path = format!("/v1/dead-letters?limit={DEAD_MAX}");
        let list: Listed<Row> = visit.get_of(tenant, &path).await?;
        let ended = |row: &Row| row.ended_at.unwrap_or(row.created_at);
        found.extend(list.items.into_iter().map(|row| (ended(&row), tenant, row)));
    }
    found.sort_by_key(|(at, _, row)| std::cmp::Reverse((*at, row.id)));
    let shown = found.into_iter().take(DEAD_MAX).map(|(_, tenant, row)| Dead {
        base: home(tenant),
        tenant: text::line(&tenant.name, 60),
        line: deliveries::line(visit, tenant.id, &row, now),
    });
    Ok(shown.collect())
}

/// An event that has just come, for those who wait for their first one.
pub(crate) struct Arrived {
    href: String,
    event_type: String,
    topic: String,
    at: Time,
}

/// The first events of a server that has hardly any.
async fn arrived(visit: &Visit, tenant: &Tenant, now: Timestamp) -> Result<Vec<Arrived>, Trouble> {
    #[derive(Deserialize)]
    struct Head {
        id: EventId,
        topic: String,
        #[serde(rename = "type")]
        event_type: String,
        accepted_at: Timestamp,
    }
    let list: Listed<Head> = visit.get_of(tenant, "/v1/events?limit=3").await?;
    let shown = list.items.iter().map(|head| Arrived {
        href: format!("{}/events/{}", home(tenant), head.id),
        event_type: text::line(&head.event_type, 80),
        topic: text::line(&head.topic, 80),
        at: Time::new(head.accepted_at, now),
    });
    Ok(shown.collect())
}

/// How this node stands right now.
async fn facts(visit: &Visit, ping: Duration, now: Timestamp) -> Vec<(&'static str, String)> {
    let engine = visit.engine();
    let snapshot = engine.inspect().await;
    let late = snapshot.oldest_due.filter(|due| *due < now);
    let span = |span: Duration| match span.as_micros() {
        micros @ 0..1_000 => format!("{micros} µs"),
        _ => words::span(millis(span)),
    };
    let mut facts = vec![(
        "Oldest due",
        match late {
            Some(due) => {
                format!("{} late", words::span((now.as_millis() - due.as_millis()).unsigned_abs()))
            }
            None => "nothing is late".to_owned(),
        },
    )];
    let waited = engine.admission().commit_wait();
    facts.push(("Commit wait", waited.map_or_else(|| "none yet".to_owned(), span)));
    facts.push(("Store answers in", span(ping)));
    facts.extend(engine.admission().disk_used().map(|used| ("Disk", format!("{used} % used"))));
    facts.push(("Attempts under way", words::number(snapshot.in_flight as u64)));
    facts
}
