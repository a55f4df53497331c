//! Subscriptions: the list, and a new one.

use std::sync::Arc;

use askama::Template;
use http::{Method, StatusCode};
use posthorn_domain::{RollupCounts, RollupScope, SubscriptionId, Timestamp};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Answer;
use super::overview::Range;
use super::show::{Listed, Pager, Shown, Time, place};
use crate::chart::Bars;
use crate::form::Fields;
use crate::frame::{Frame, Place, home};
use crate::text;
use crate::trouble::{Refusal, Trouble};
use crate::visit::{Visit, page};
use crate::words;

/// A subscription as the API gives it.
#[derive(Deserialize)]
pub(crate) struct Given {
    pub(crate) id: SubscriptionId,
    pub(crate) name: Option<String>,
    pub(crate) url: Option<String>,
    pub(crate) description: String,
    pub(crate) filter: Value,
    pub(crate) profile: String,
    pub(crate) policy: Value,
    pub(crate) status: String,
    pub(crate) status_reason: Option<String>,
    pub(crate) failing_since: Option<Timestamp>,
    pub(crate) signing_secret: Option<String>,
    #[serde(default)]
    pub(crate) public_keys: Vec<PublicKey>,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
}

/// The public half of a key that signs, as the API gives it.
#[derive(Deserialize)]
pub(crate) struct PublicKey {
    pub(crate) key: String,
    pub(crate) kid: String,
    pub(crate) expires_at: Option<Timestamp>,
}

/// When an attempt failed last, as far as the figures of a range say: the beginning of the minute or hour.
pub(crate) fn last_failure(series: &[(Timestamp, RollupCounts)]) -> Option<Timestamp> {
    let failed = |counts: &RollupCounts| counts.failed.iter().any(|count| *count > 0);
    series.iter().rev().find(|(_, counts)| failed(counts)).map(|(at, _)| *at)
}

impl Given {
    pub(crate) fn title(&self) -> String {
        self.name.clone().unwrap_or_else(|| words::short(&self.id.to_string()))
    }
}

struct Line {
    id: String,
    name: String,
    place: String,
    wants: String,
    shown: Shown,
    paused: bool,
    reason: Option<String>,
    bars: Bars,
    success: String,
    p95: String,
    slow: Bars,
    waiting: String,
    last_failure: Option<Time>,
}

#[derive(Template)]
#[template(path = "subscriptions.html")]
struct SubscriptionsPage<'p> {
    frame: Frame,
    base: String,
    visit: &'p Visit,
    lines: Vec<Line>,
    pager: Pager,
    ranges: Vec<(&'static str, &'static str, bool)>,
    range: &'static str,
    /// This list, for whoever acts on a row.
    back: String,
}

impl SubscriptionsPage<'_> {
    fn typed(&self, name: &str) -> &str {
        self.visit.query.typed(name)
    }
}

/// What the list has fields for, and which page of it.
pub(crate) const LIST: [&str; 3] = ["name", "range", "cursor"];

/// `GET …/subscriptions`.
pub(crate) async fn list(visit: Arc<Visit>) -> Answer {
    let tenant = visit.tenant()?.clone();
    let wanted = visit.query.query(&["name", "cursor"], &[("limit", "25")]);
    let list: Listed<Given> = visit.get(&format!("/v1/subscriptions?{wanted}")).await?;
    let now = visit.now();
    let range = Range::of(&visit);
    let from = Timestamp::from_millis(now.as_millis() - range.millis);
    let mut lines = Vec::new();
    for given in &list.items {
        let scope = RollupScope::Subscription(given.id);
        let series = visit.engine().series(scope, range.step, from, now).await?;
        let mut all = RollupCounts::default();
        for (_, step) in &series {
            all.add(step);
        }
        let failed: u64 = all.failed.iter().sum();
        let backlog = series.iter().rev().find_map(|(_, step)| step.backlog).unwrap_or(0);
        let view = visit.engine().catalog().subscription(tenant.id, given.id).ok();
        lines.push(Line {
            id: given.id.to_string(),
            name: given.title(),
            place: view.map_or_else(String::new, |view| place(&view.subscription.destination)),
            wants: wants(&given.filter),
            shown: Shown::subscription(&given.status, given.failing_since.is_some()),
            paused: given.status != "active",
            reason: given.status_reason.as_deref().map(|reason| text::line(reason, 120)),
            bars: Bars::of(&series),
            success: words::percent(all.attempts().saturating_sub(failed), all.attempts()),
            p95: all
                .quantile_ms(0.95)
                .map_or_else(String::new, |ms| words::span(ms.round() as u64)),
            slow: Bars::p95(&series),
            waiting: words::number(backlog),
            last_failure: last_failure(&series).map(|at| Time::new(at, now)),
        });
    }
    let html = SubscriptionsPage {
        frame: Frame::new(&visit, Place::Subscriptions, "Subscriptions").await.live(),
        ranges: range.switch(),
        range: range.name,
        back: visit.query.query(&LIST, &[("back", "list")]),
        base: home(&tenant),
        pager: Pager::of(&list, &visit.query, &["name", "range"], now),
        visit: &visit,
        lines,
    };
    Ok(page(&visit.headers, StatusCode::OK, html.render()?))
}

/// What a filter wants, in a few words.
pub(crate) fn wants(filter: &Value) -> String {
    let Some(groups) = filter.get("any_of").and_then(Value::as_array) else {
        return "everything".to_owned();
    };
    // One of none cannot match.
    if groups.is_empty() {
        return "nothing".to_owned();
    }
    let texts = |group: &Value, name: &str| -> Vec<String> {
        let list = group.get(name).and_then(Value::as_array).into_iter().flatten();
        list.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let told: Vec<String> = groups
        .iter()
        .map(|group| {
            let (topics, types) = (texts(group, "topics"), texts(group, "types"));
            let more = group
                .as_object()
                .is_some_and(|group| group.keys().any(|key| key != "topics" && key != "types"));
            let mut words = [topics, types].concat();
            if words.is_empty() {
                words.push("any event".to_owned());
            }
            format!("{}{}", words.join(", "), if more { " with conditions" } else { "" })
        })
        .collect();
    text::line(&told.join(" or "), 100)
}

/// The fields of the form, and what is wrong with one of them.
#[derive(Template)]
#[template(path = "subscription-new.html")]
struct NewPage<'p> {
    frame: Frame,
    base: String,
    typed: &'p Fields,
    profiles: Vec<String>,
    wrong: Option<(String, String)>,
}

impl NewPage<'_> {
    fn wrong_at(&self, name: &str) -> Option<&str> {
        let (field, text) = self.wrong.as_ref()?;
        (field == name).then_some(text.as_str())
    }

    fn wrong_elsewhere(&self) -> Option<&str> {
        const FIELDS: [&str; 6] = ["name", "url", "description", "filter", "profile", "policy"];
        let (field, text) = self.wrong.as_ref()?;
        (!FIELDS.contains(&field.as_str())).then_some(text.as_str())
    }
}

/// A secret that is shown once.
#[derive(Template)]
#[template(path = "secret.html")]
pub(crate) struct SecretPage {
    pub(crate) frame: Frame,
    pub(crate) secret: String,
    pub(crate) text: &'static str,
    pub(crate) back: String,
}

/// `GET …/subscriptions/new`.
pub(crate) async fn new(visit: Arc<Visit>) -> Answer {
    let typed = visit.query.clone();
    form(&visit, &typed, None).await
}

async fn form(visit: &Visit, typed: &Fields, wrong: Option<(String, String)>) -> Answer {
    let tenant = visit.tenant()?.clone();
    let base = home(&tenant);
    let profiles = visit.engine().catalog().profiles(tenant.id);
    let status = if wrong.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    let html = NewPage {
        frame: Frame::new(visit, Place::Subscriptions, "New subscription")
            .await
            .below(format!("{base}/subscriptions"), "Subscriptions"),
        profiles: profiles.iter().map(|profile| profile.name.to_string()).collect(),
        typed,
        base,
        wrong,
    };
    Ok(page(&visit.headers, status, html.render()?))
}

/// `POST …/subscriptions/new`.
pub(crate) async fn create(visit: Arc<Visit>) -> Answer {
    let typed = visit.form.clone();
    let body = match settings(&typed) {
        Ok(body) => body,
        Err(wrong) => return form(&visit, &typed, Some(wrong)).await,
    };
    match visit.send::<Given>(Method::POST, "/v1/subscriptions", Some(&body)).await {
        Ok(made) => {
            let base = home(visit.tenant()?);
            let back = format!("{base}/subscriptions/{}?done=created", made.id);
            let Some(secret) = made.signing_secret else { return Ok(crate::visit::see(&back)) };
            let html = SecretPage {
                frame: Frame::new(&visit, Place::Subscriptions, "The signing secret").await,
                text: "The receiver verifies signatures with this secret. It is shown only once.",
                secret,
                back,
            };
            Ok(page(&visit.headers, StatusCode::OK, html.render()?))
        }
        Err(Trouble::Refused(Refusal { field, detail, .. })) => {
            let field = field.unwrap_or_default();
            let first = field.split(['.', '[']).next().unwrap_or_default().to_owned();
            form(&visit, &typed, Some((first, format!("{field}: {detail}")))).await
        }
        Err(trouble) => Err(trouble),
    }
}

/// What was typed to change one, as the API wants it. What a field of the form was emptied of is taken away.
pub(crate) fn change(form: &Fields) -> Result<Value, (String, String)> {
    let mut body = settings(form)?;
    if let Value::Object(body) = &mut body {
        for (name, nothing) in
            [("name", Value::Null), ("description", json!("")), ("policy", Value::Null)]
        {
            if form.has(name) {
                body.entry(name).or_insert(nothing);
            }
        }
    }
    Ok(body)
}

/// What was typed, as the API wants it; or the field that cannot be read, and why.
pub(crate) fn settings(form: &Fields) -> Result<Value, (String, String)> {
    let mut body = Map::new();
    for name in ["name", "url", "description", "profile"] {
        if let Some(value) = form.get(name) {
            body.insert(name.to_owned(), json!(value));
        }
    }
    for name in ["filter", "policy"] {
        if let Some(typed) = form.get(name) {
            let value: Value = serde_json::from_str(typed)
                .map_err(|e| (name.to_owned(), format!("is not valid JSON: {e}")))?;
            body.insert(name.to_owned(), value);
        }
    }
    let list = |name: &str| -> Vec<String> {
        let words = form.typed(name).split([',', '\n', ' ']).map(str::trim);
        words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
    };
    let (topics, types) = (list("topics"), list("types"));
    let mut group = Map::new();
    for (name, words) in [("topics", topics), ("types", types)] {
        if !words.is_empty() {
            group.insert(name.to_owned(), json!(words));
        }
    }
    if !group.is_empty() {
        body.entry("filter").or_insert_with(|| json!({"any_of": [group]}));
    }
    Ok(Value::Object(body))
}

/// The time of a change, for facts.
pub(crate) fn changed(given: &Given, now: Timestamp) -> (Time, Time) {
    (Time::new(given.created_at, now), Time::new(given.updated_at, now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_told_in_words() {
        assert_eq!(wants(&json!({})), "everything");
        assert_eq!(wants(&json!({"any_of": []})), "nothing");
        assert_eq!(wants(&json!({"any_of": [{}]})), "any event");
        assert_eq!(wants(&json!({"any_of": [{"topics": ["orders"]}]})), "orders");
        let two =
            json!({"any_of": [{"types": ["a.b", "a.c"]}, {"topics": ["x"], "conditions": []}]});
        assert_eq!(wants(&two), "a.b, a.c or x with conditions");
    }

    #[test]
    fn words_become_a_filter_and_json_is_taken_as_it_is() {
        let typed = Fields::parse(b"url=https%3A%2F%2Fx&topics=orders%2C+returns&types=");
        let wanted =
            json!({"url": "https://x", "filter": {"any_of": [{"topics": ["orders", "returns"]}]}});
        assert_eq!(settings(&typed).unwrap(), wanted);
        let typed = Fields::parse(b"topics=ignored&filter=%7B%22any_of%22%3A%5B%5D%7D");
        assert_eq!(settings(&typed).unwrap(), json!({"filter": {"any_of": []}}));
        assert_eq!(settings(&Fields::parse(b"policy=%7B")).unwrap_err().0, "policy");
        let emptied = Fields::parse(b"name=&description=+&policy=&url=&profile=");
        let wanted = json!({"name": null, "description": "", "policy": null});
        assert_eq!(change(&emptied).unwrap(), wanted);
        assert_eq!(
            change(&Fields::parse(b"url=https%3A%2F%2Fx")).unwrap(),
            json!({"url": "https://x"})
        );
    }
}
