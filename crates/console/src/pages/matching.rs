//! What is done to all deliveries that match a filter, however many: a job that takes the filter of the list as it is, with
//! the number asked first.

use std::sync::Arc;

use askama::Template;
use http::{Method, StatusCode};
use posthorn_domain::JobId;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Answer;
use super::bulk::Act;
use super::deliveries::FILTER;
use super::show::{Named, moments};
use super::typed::{Wrong, refused};
use crate::form::Fields;
use crate::frame::{Frame, Place, home};
use crate::trouble::Trouble;
use crate::visit::{Visit, page, see};
use crate::words;

/// Where the API does it.
const BULK: &str = "/v1/deliveries/bulk";

/// What somebody wants; of what waits most likely that it is not sent.
fn chosen(query: &Fields) -> Act {
    match (query.get("act"), query.get("state")) {
        (None, Some("pending")) => Act::Cancel,
        _ => Act::read(query),
    }
}

/// The state that is meant: without one, and without a reason, what an act is for.
fn state(query: &Fields) -> Option<&str> {
    let usual = match (chosen(query), query.get("reason")) {
        (Act::Retry, None) => Some("dead"),
        (Act::Cancel, None) => Some("pending"),
        _ => None,
    };
    query.get("state").or(usual)
}

/// Why there is no job that does it.
fn why_not(query: &Fields) -> Option<&'static str> {
    match (chosen(query), query.get("state")) {
        (Act::Retry, Some("pending" | "in_flight")) => Some(
            "What waits is tried by its schedule anyway. To try some of it now, select rows of the list.",
        ),
        _ => None,
    }
}

#[derive(Template)]
#[template(path = "matching.html")]
struct MatchingPage {
    frame: Frame,
    base: String,
    query: String,
    /// What can be done: what it is called, what is said of it, where, whether it is chosen.
    acts: [(&'static str, String, bool); 3],
    act: &'static str,
    meant: String,
    count: Option<String>,
    would: &'static str,
    what: &'static str,
    class: &'static str,
    pace: String,
    why_not: Option<&'static str>,
    wrong: Option<String>,
    /// What is wrong with the pace.
    wrong_pace: Option<String>,
}

#[derive(Deserialize)]
struct Count {
    count: u64,
    complete: bool,
}

#[derive(Deserialize)]
struct Made {
    id: JobId,
}

/// `GET …/deliveries/matching`: how many match, and what can be done to all of them.
pub(crate) async fn ask(visit: Arc<Visit>) -> Answer {
    confirm(&visit, None).await
}

/// What was asked for, in words.
fn meant(visit: &Visit) -> Result<String, Trouble> {
    let query = &visit.query;
    let tenant = visit.tenant()?;
    let mut words = vec![match state(query) {
        Some("dead") => "All dead letters".to_owned(),
        Some("pending") => "All deliveries that wait or are under way".to_owned(),
        Some(state) => format!("All deliveries that are {}", state.replace('_', " ")),
        None => "All deliveries".to_owned(),
    }];
    if let Some(id) = query.get("subscription") {
        let name = match id.parse() {
            Ok(id) => Named::find(visit.engine(), tenant.id, id).name,
            Err(_) => id.to_owned(),
        };
        words.push(format!("of {name}"));
    }
    let parts = [
        ("reason", "with the reason"),
        ("event", "of event"),
        ("status", "with status"),
        ("failure", "with failure"),
        ("from", "from"),
        ("until", "until"),
    ];
    for (name, word) in parts {
        words.extend(query.get(name).map(|value| format!("{word} {value}")));
    }
    Ok(crate::text::line(&format!("{}.", words.join(" ")), 300))
}

/// What has conditions of the list that a job takes as they are.
const CONDITIONS: [&str; 8] =
    ["event", "subscription", "state", "reason", "status", "failure", "from", "until"];

/// The body of the job, but for its pace.
fn body(query: &Fields) -> Map<String, Value> {
    let query = moments(query);
    let mut body = Map::new();
    for name in CONDITIONS {
        body.extend(query.get(name).map(|value| (name.to_owned(), json!(value))));
    }
    body.extend(state(&query).map(|state| ("state".to_owned(), json!(state))));
    body.insert("action".to_owned(), json!(chosen(&query).name()));
    body
}

/// How many it would be.
async fn count(visit: &Visit) -> Result<String, Trouble> {
    let body = Value::Object(body(&visit.query));
    let found: Count = visit.send(Method::POST, &format!("{BULK}/count"), Some(&body)).await?;
    Ok(counted(found.count, found.complete))
}

async fn confirm(visit: &Visit, wrong: Option<Wrong>) -> Answer {
    let base = home(visit.tenant()?);
    let (mut wrong, mut number, why_not) = (wrong, None, why_not(&visit.query));
    if why_not.is_none() {
        match count(visit).await {
            Ok(found) => number = Some(found),
            Err(trouble) => wrong = Some(refused(trouble)?),
        }
    }
    let (wrong_pace, wrong) = match wrong {
        Some((field, text)) if field == "per_second" => (Some(text), None),
        Some((field, text)) if field.is_empty() => (None, Some(text)),
        Some((field, text)) => (None, Some(format!("{field}: {text}"))),
        None => (None, None),
    };
    let bad = wrong.is_some() || wrong_pace.is_some();
    let act = chosen(&visit.query);
    let (would, class) = match act {
        Act::Retry => ("would be delivered again", "main-action"),
        Act::Cancel => ("would be cancelled", "danger"),
        Act::Forget => ("would be deleted for good", "danger"),
    };
    let acts = [(Act::Retry, "Retry"), (Act::Cancel, "Cancel"), (Act::Forget, "Delete")];
    let acts = acts
        .map(|(own, name)| (name, visit.query.query(&FILTER, &[("act", own.name())]), own == act));
    let status = if bad { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    let html = MatchingPage {
        frame: Frame::new(visit, Place::Deliveries, "All that match")
            .await
            .below(format!("{base}/deliveries"), "Deliveries"),
        query: visit.query.query(&FILTER, &[]),
        acts,
        act: act.name(),
        would,
        what: act.what(),
        class,
        meant: meant(visit)?,
        pace: visit.form.typed("per_second").to_owned(),
        base,
        count: number,
        why_not,
        wrong,
        wrong_pace,
    };
    Ok(page(&visit.headers, status, html.render()?))
}

pub(crate) fn counted(count: u64, complete: bool) -> String {
    match complete {
        true => words::number(count),
        false => format!("{} or more", words::number(count)),
    }
}

/// The pace that was typed, if any.
pub(crate) fn pace(form: &Fields) -> Result<Option<u32>, Wrong> {
    match form.get("per_second").map(str::parse::<u32>) {
        None => Ok(None),
        Some(Ok(pace)) => Ok(Some(pace)),
        Some(Err(_)) => Err(("per_second".to_owned(), "The pace must be a number.".to_owned())),
    }
}

/// `POST …/deliveries/matching`.
pub(crate) async fn start(visit: Arc<Visit>) -> Answer {
    let base = home(visit.tenant()?);
    let pace = match pace(&visit.form) {
        Ok(pace) => pace,
        Err(wrong) => return confirm(&visit, Some(wrong)).await,
    };
    if why_not(&visit.query).is_some() {
        return confirm(&visit, None).await;
    }
    let mut body = body(&visit.query);
    body.extend(pace.map(|pace| ("per_second".to_owned(), json!(pace))));
    match visit.send::<Made>(Method::POST, BULK, Some(&Value::Object(body))).await {
        Ok(made) => Ok(see(&format!("{base}/jobs/{}?done=started", made.id))),
        Err(trouble) => confirm(&visit, Some(refused(trouble)?)).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(query: &str, act: &str, possible: bool) {
        let query = Fields::parse(query.as_bytes());
        assert_eq!(
            (chosen(&query).name(), why_not(&query).is_none()),
            (act, possible),
            "{query:?}"
        );
    }

    #[test]
    fn every_filter_is_a_job_but_for_retries_of_what_waits() {
        for any in ["", "state=dead", "state=delivered", "state=dead&status=503&event=x&from=y"] {
            check(any, "retry", true);
            check(&format!("{any}&act=cancel"), "cancel", true);
            check(&format!("{any}&act=forget"), "forget", true);
        }
        check("state=pending", "cancel", true);
        check("state=pending&act=retry", "retry", false);
        check("state=in_flight&act=retry", "retry", false);
    }

    #[test]
    fn a_job_gets_every_condition_of_the_list() {
        let query = Fields::parse(
            b"act=cancel&state=dead&status=5xx&order=oldest&event=&reason=gate&from=2026-11-17T10%3A00",
        );
        let wanted = json!({"action": "cancel", "state": "dead", "status": "5xx", "reason": "gate",
                            "from": "2026-11-17T10:00:00.000Z"});
        assert_eq!(Value::Object(body(&query)), wanted);
        for (query, wanted) in [
            ("", json!({"action": "retry", "state": "dead"})),
            ("reason=operator", json!({"action": "retry", "reason": "operator"})),
            ("act=cancel", json!({"action": "cancel", "state": "pending"})),
            ("act=forget", json!({"action": "forget"})),
        ] {
            assert_eq!(Value::Object(body(&Fields::parse(query.as_bytes()))), wanted, "{query}");
        }
    }
}
