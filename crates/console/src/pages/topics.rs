//! Topics: named streams of events, with who wants them.

use std::sync::Arc;

use askama::Template;
use http::Method;
use posthorn_domain::{
    EventId, RollupScope, RollupStep, Span, SubscriptionStatus, TenantId, Timestamp, TopicName,
};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Answer;
use super::show::{Listed, Named, Pager, Shown, Time};
use super::typed::{self, Typed};
use crate::chart::Bars;
use crate::form::Fields;
use crate::frame::{Frame, Place, home};
use crate::text;
use crate::trouble::Trouble;
use crate::visit::{Visit, page, see};
use crate::words;

/// Subscribers of one topic that are shown.
const SUBSCRIBERS_MAX: usize = 100;
/// Fields of the forms, as the API calls them.
const FIELDS: &[&str] = &["name", "description", "attributes"];

/// A topic, as the API gives it.
#[derive(Deserialize)]
struct Topic {
    name: String,
    description: String,
    attributes: Vec<String>,
    #[serde(default)]
    labels: Map<String, Value>,
    created_at: Timestamp,
}

#[derive(Deserialize)]
struct Event {
    id: EventId,
    #[serde(rename = "type")]
    kind: String,
    accepted_at: Timestamp,
}

struct Line {
    name: String,
    href: String,
    description: String,
    attributes: String,
    subscribers: usize,
    /// What was published in the last day.
    published: String,
    bars: Bars,
    made: Time,
}

#[derive(Template)]
#[template(path = "topics.html")]
struct TopicsPage {
    frame: Frame,
    base: String,
    form: Typed,
    lines: Vec<Line>,
    next: Option<String>,
}

/// Whoever wants a topic: subscriptions that name it, and those that name none.
fn subscribers(visit: &Visit, tenant: TenantId, topic: &str) -> Vec<(Named, Shown, bool)> {
    let all = visit.engine().catalog().subscriptions(tenant);
    let found = all.iter().filter_map(|view| {
        let groups = &view.subscription.filter.any_of;
        let named = groups.iter().any(|group| group.topics.iter().any(|own| own.as_str() == topic));
        // A group that names no topic wants them all. Without any group, nothing is wanted.
        let open = groups.iter().any(|group| group.topics.is_empty());
        if !named && !open {
            return None;
        }
        let status = match view.subscription.status {
            SubscriptionStatus::Active => "active",
            SubscriptionStatus::Paused => "paused",
            SubscriptionStatus::Disabled { .. } => "disabled",
        };
        let to = Named::find(visit.engine(), tenant, view.subscription.id);
        Some((to, Shown::subscription(status, false), named))
    });
    found.collect()
}

/// `GET …/topics`.
pub(crate) async fn list(visit: Arc<Visit>) -> Answer {
    show_list(&visit, Typed::new(FIELDS, Fields::default())).await
}

async fn show_list(visit: &Visit, form: Typed) -> Answer {
    let tenant = visit.tenant()?.clone();
    let wanted = visit.query.query(&["cursor"], &[("limit", "50")]);
    let list: Listed<Topic> = visit.get(&format!("/v1/topics?{wanted}")).await?;
    let now = visit.now();
    let counts = counts(visit, tenant.id);
    let base = home(&tenant);
    let from = now.minus(Span::from_secs(24 * 3_600));
    let mut lines = Vec::new();
    for topic in &list.items {
        let Ok(name) = TopicName::new(&topic.name) else { continue };
        let scope = RollupScope::Topic(tenant.id, name);
        let series = visit.engine().series(scope, RollupStep::Hour, from, now).await?;
        let published = series.iter().map(|(_, counts)| counts.published).sum();
        let line = Line {
            published: words::number(published),
            bars: Bars::published(&series),
            name: text::line(&topic.name, 128),
            href: format!("{base}/topics/{}", typed::part(&topic.name)),
            description: text::line(&topic.description, 160),
            attributes: text::line(&topic.attributes.join(", "), 200),
            subscribers: counts.open + counts.named.get(&topic.name).copied().unwrap_or(0),
            made: Time::new(topic.created_at, now),
        };
        lines.push(line);
    }
    let status = form.status();
    let html = TopicsPage {
        frame: Frame::new(visit, Place::Topics, "Topics").await,
        lines,
        next: Pager::of(&list, &visit.query, &[], now).next,
        base,
        form,
    };
    Ok(page(&visit.headers, status, html.render()?))
}

/// `POST …/topics`: a new one.
pub(crate) async fn create(visit: Arc<Visit>) -> Answer {
    let wrong = |field: &str, text: &str| Some((field.to_owned(), text.to_owned()));
    let again =
        async |wrong| show_list(&visit, Typed::new(FIELDS, visit.form.clone()).wrong(wrong)).await;
    let Some(name) = visit.form.get("name") else {
        return again(wrong("name", "a topic needs a name")).await;
    };
    let path = format!("/v1/topics/{}", typed::part(name));
    if visit.find::<Topic>(&path).await.is_ok_and(|known| known.is_some()) {
        return again(wrong("name", "there is such a topic already")).await;
    }
    let attributes = typed::list(&visit.form, "attributes");
    let description = visit.form.get("description").unwrap_or_default();
    let body = json!({"description": description, "attributes": attributes});
    match visit.send::<Value>(Method::PUT, &path, Some(&body)).await {
        Ok(_) => {
            let base = home(visit.tenant()?);
            Ok(see(&format!("{base}/topics/{}?done=created", typed::part(name))))
        }
        Err(trouble) => again(Some(typed::refused(trouble)?)).await,
    }
}

/// `POST …/topics/{name}`: another description. All else stays.
pub(crate) async fn change(visit: Arc<Visit>) -> Answer {
    let name = visit.named.first().ok_or(Trouble::NotFound("topic"))?;
    let path = format!("/v1/topics/{}", typed::part(name));
    let topic: Topic = visit.get(&path).await?;
    let description = visit.form.typed("description").trim();
    let body = json!({
        "description": description, "attributes": topic.attributes, "labels": topic.labels,
    });
    match visit.send::<Value>(Method::PUT, &path, Some(&body)).await {
        Ok(_) => {
            let base = home(visit.tenant()?);
            Ok(see(&format!("{base}/topics/{}?done=changed", typed::part(name))))
        }
        Err(trouble) => {
            let form = Typed::new(FIELDS, visit.form.clone());
            show(&visit, Some(form.wrong(Some(typed::refused(trouble)?)))).await
        }
    }
}

/// How many want each topic, in one walk over all subscriptions.
struct Counts {
    named: std::collections::HashMap<String, usize>,
    /// Those that want all topics.
    open: usize,
}

fn counts(visit: &Visit, tenant: TenantId) -> Counts {
    let mut counts = Counts { named: std::collections::HashMap::new(), open: 0 };
    for view in visit.engine().catalog().subscriptions(tenant) {
        let groups = &view.subscription.filter.any_of;
        if groups.iter().any(|group| group.topics.is_empty()) {
            counts.open += 1;
            continue;
        }
        let mut own: Vec<&str> =
            groups.iter().flat_map(|group| group.topics.iter().map(|name| name.as_str())).collect();
        own.sort_unstable();
        own.dedup();
        for name in own {
            *counts.named.entry(name.to_owned()).or_default() += 1;
        }
    }
    counts
}

struct EventLine {
    id: String,
    short: String,
    kind: String,
    at: Time,
}

#[derive(Template)]
#[template(path = "topic.html")]
struct TopicPage {
    frame: Frame,
    path: String,
    form: Typed,
    base: String,
    name: String,
    events_href: String,
    description: String,
    attributes: Vec<String>,
    labels: Vec<(String, String)>,
    made: Time,
    subscribers: Vec<(Named, Shown, bool)>,
    more: usize,
    events: Vec<EventLine>,
}

/// `GET …/topics/{name}`.
pub(crate) async fn one(visit: Arc<Visit>) -> Answer {
    show(&visit, None).await
}

async fn show(visit: &Visit, typed: Option<Typed>) -> Answer {
    let tenant = visit.tenant()?.clone();
    let name = visit.named.first().ok_or(Trouble::NotFound("topic"))?;
    let topic: Topic = visit.get(&format!("/v1/topics/{}", typed::part(name))).await?;
    let query = format!("topic={}", typed::part(&topic.name));
    let latest: Listed<Event> = visit.get(&format!("/v1/events?{query}&limit=10")).await?;
    let now = visit.now();
    let mut subscribers = subscribers(visit, tenant.id, &topic.name);
    let more = subscribers.len().saturating_sub(SUBSCRIBERS_MAX);
    subscribers.truncate(SUBSCRIBERS_MAX);
    let label = |(name, value): (&String, &Value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        (text::line(name, 64), text::line(&value, 300))
    };
    let event = |event: &Event| EventLine {
        id: event.id.to_string(),
        short: words::short(&event.id.to_string()),
        kind: text::line(&event.kind, 128),
        at: Time::new(event.accepted_at, now),
    };
    let base = home(&tenant);
    let kept = || Fields::of([("description", topic.description.clone())]);
    let form = typed.unwrap_or_else(|| Typed::new(FIELDS, kept()));
    let status = form.status();
    let html = TopicPage {
        path: format!("{base}/topics/{}", typed::part(&topic.name)),
        form,
        frame: Frame::new(visit, Place::Topics, text::line(&topic.name, 128))
            .await
            .below(format!("{base}/topics"), "Topics"),
        events_href: format!("{base}/events?{query}"),
        name: text::line(&topic.name, 128),
        description: text::visible(&topic.description),
        attributes: topic.attributes.iter().map(|name| text::line(name, 128)).collect(),
        labels: topic.labels.iter().map(label).collect(),
        made: Time::new(topic.created_at, now),
        events: latest.items.iter().map(event).collect(),
        base,
        subscribers,
        more,
    };
    Ok(page(&visit.headers, status, html.render()?))
}
