//! What is done to all deliveries that match a filter, however many: a job, with the number asked first.
//!
//! Delivering again is a redrive or a replay, which select by less than the list does; so for some filters the page says why
//! there is no such job. Cancelling and deleting take the filter of the list as it is.

use std::sync::Arc;

use askama::Template;
use http::{Method, StatusCode};
use posthorn_domain::{JobId, RedriveId};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Answer;
use super::bulk::Act;
use super::dead_letters;
use super::deliveries::FILTER;
use super::show::Named;
use crate::form::Fields;
use crate::frame::{Frame, Place, home};
use crate::trouble::Trouble;
use crate::visit::{Visit, page, see};
use crate::words;

/// The job that does what a filter of the list means.
#[derive(Debug, PartialEq)]
enum Doing {
    /// Dead letters, by subscription and reason.
    Redrive,
    /// Those of a time, failed or delivered: of one subscription, or of all.
    Replay(&'static str),
    /// Cancels or deletes what the filter means.
    Move(&'static str),
}

/// What somebody wants; of what waits most likely that it is not sent.
fn chosen(query: &Fields) -> Act {
    match (query.get("act"), query.get("state")) {
        (None, Some("pending")) => Act::Cancel,
        _ => Act::read(query),
    }
}

/// Which job means the same as a filter; or why none does.
fn doing(query: &Fields) -> Result<Doing, &'static str> {
    match chosen(query) {
        Act::Retry => {}
        act => return Ok(Doing::Move(act.name())),
    }
    let has = |name: &str| query.get(name).is_some();
    if has("event") || has("status") || has("failure") {
        return Err(
            "A job selects by state, subscription, reason and time. This filter has an event, a status or a failure as well: \
             leave that out, or select rows of the list.",
        );
    }
    let timed = has("from") || has("until");
    match (query.get("state"), has("reason"), timed) {
        (Some("dead"), _, false) => Ok(Doing::Redrive),
        (Some("dead"), false, true) => Ok(Doing::Replay("failed")),
        (Some("delivered"), false, _) => Ok(Doing::Replay("delivered")),
        (Some("dead"), true, true) => Err(
            "A job selects dead letters by reason or by time, not by both. Leave one of them out.",
        ),
        (Some("pending" | "in_flight"), ..) => Err(
            "What waits is tried by its schedule anyway. To try some of it now, select rows of the list.",
        ),
        (Some("cancelled"), ..) => {
            Err("No job delivers cancelled ones again. Select rows of the list.")
        }
        _ => Err(
            "Choose one of the states first: Dead, to retry what failed, or Delivered, to deliver again.",
        ),
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
}

#[derive(Deserialize)]
struct Count {
    count: u64,
    complete: bool,
}

#[derive(Deserialize)]
struct Made<T> {
    id: T,
}

/// `GET …/deliveries/matching`: how many match, and what can be done to all of them.
pub(crate) async fn ask(visit: Arc<Visit>) -> Answer {
    confirm(&visit, None).await
}

/// What was asked for, in words.
fn meant(visit: &Visit) -> Result<String, Trouble> {
    let query = &visit.query;
    let tenant = visit.tenant()?;
    let mut words = vec![match query.get("state") {
        Some("dead") => "All dead letters".to_owned(),
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

/// The path and the body of the job, but for its pace.
fn call(query: &Fields, doing: &Doing) -> (String, Map<String, Value>) {
    let (wanted, more): (&[&str], _) = match doing {
        Doing::Redrive => (&["subscription", "reason"], None),
        Doing::Replay(what) => (&["from", "until"], Some(("status", *what))),
        Doing::Move(act) => (&CONDITIONS, Some(("action", *act))),
    };
    let mut body = Map::new();
    for name in wanted {
        body.extend(query.get(name).map(|value| ((*name).to_owned(), json!(value))));
    }
    body.extend(more.map(|(name, value)| (name.to_owned(), json!(value))));
    let path = match (doing, query.get("subscription")) {
        (Doing::Redrive, _) => "/v1/redrives".to_owned(),
        (Doing::Move(_), _) => "/v1/deliveries/bulk".to_owned(),
        (Doing::Replay(_), None) => "/v1/deliveries/resend".to_owned(),
        (Doing::Replay(_), Some(id)) => {
            let id: String = url::form_urlencoded::byte_serialize(id.as_bytes()).collect();
            format!("/v1/subscriptions/{id}/replay")
        }
    };
    (path, body)
}

/// How many it would be.
async fn count(visit: &Visit, doing: &Doing) -> Result<String, Trouble> {
    if *doing == Doing::Redrive {
        let by = (visit.query.get("subscription"), visit.query.get("reason"));
        return dead_letters::count(visit, by).await;
    }
    let (path, body) = call(&visit.query, doing);
    let body = Value::Object(body);
    let found: Count = visit.send(Method::POST, &format!("{path}/count"), Some(&body)).await?;
    Ok(counted(found.count, found.complete))
}

async fn confirm(visit: &Visit, wrong: Option<String>) -> Answer {
    let base = home(visit.tenant()?);
    let (mut wrong, mut number, mut why_not) = (wrong, None, None);
    match doing(&visit.query) {
        Err(why) => why_not = Some(why),
        Ok(doing) => match count(visit, &doing).await {
            Ok(found) => number = Some(found),
            Err(Trouble::Refused(refusal)) => wrong = Some(refusal.detail),
            Err(trouble) => return Err(trouble),
        },
    }
    let act = chosen(&visit.query);
    let (would, class) = match act {
        Act::Retry => ("would be delivered again", "main-action"),
        Act::Cancel => ("would be cancelled", "danger"),
        Act::Forget => ("would be deleted for good", "danger"),
    };
    let acts = [(Act::Retry, "Retry"), (Act::Cancel, "Cancel"), (Act::Forget, "Delete")];
    let acts = acts
        .map(|(own, name)| (name, visit.query.query(&FILTER, &[("act", own.name())]), own == act));
    let status = if wrong.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK };
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
    };
    Ok(page(&visit.headers, status, html.render()?))
}

pub(crate) fn counted(count: u64, complete: bool) -> String {
    match complete {
        true => words::number(count),
        false => format!("{} or more", words::number(count)),
    }
}

/// `POST …/deliveries/matching`.
pub(crate) async fn start(visit: Arc<Visit>) -> Answer {
    let base = home(visit.tenant()?);
    let pace = match visit.form.get("per_second").map(str::parse::<u32>) {
        None => None,
        Some(Ok(pace)) => Some(pace),
        Some(Err(_)) => {
            return confirm(&visit, Some("The pace must be a number.".to_owned())).await;
        }
    };
    let Ok(doing) = doing(&visit.query) else { return confirm(&visit, None).await };
    let (path, mut body) = call(&visit.query, &doing);
    body.extend(pace.map(|pace| ("per_second".to_owned(), json!(pace))));
    let body = Value::Object(body);
    let made = if doing == Doing::Redrive {
        let made = visit.send::<Made<RedriveId>>(Method::POST, &path, Some(&body)).await;
        made.map(|made| format!("{base}/redrives/{}?done=started", made.id))
    } else {
        let made = visit.send::<Made<JobId>>(Method::POST, &path, Some(&body)).await;
        made.map(|made| format!("{base}/jobs/{}?done=started", made.id))
    };
    match made {
        Ok(place) => Ok(see(&place)),
        Err(Trouble::Refused(refusal)) => confirm(&visit, Some(refusal.detail)).await,
        Err(trouble) => Err(trouble),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(query: &str, wanted: Option<&Doing>) {
        assert_eq!(doing(&Fields::parse(query.as_bytes())).ok().as_ref(), wanted, "{query}");
    }

    #[test]
    fn a_filter_becomes_a_job_only_where_both_mean_the_same() {
        check("state=dead", Some(&Doing::Redrive));
        check("state=dead&subscription=x&reason=exhausted", Some(&Doing::Redrive));
        check("state=dead&from=2026-01-01T00:00:00Z", Some(&Doing::Replay("failed")));
        check("state=delivered&until=2026-01-01T00:00:00Z", Some(&Doing::Replay("delivered")));
        check("state=pending", Some(&Doing::Move("cancel")));
        for none in [
            "",
            "state=pending&act=retry",
            "state=cancelled",
            "state=dead&status=5xx",
            "state=dead&event=x",
        ] {
            check(none, None);
        }
        check("state=dead&reason=exhausted&from=2026-01-01T00:00:00Z", None);
        for any in ["", "state=pending", "state=dead&status=5xx&event=x"] {
            check(&format!("{any}&act=cancel"), Some(&Doing::Move("cancel")));
            check(&format!("{any}&act=forget"), Some(&Doing::Move("forget")));
        }
    }

    #[test]
    fn a_job_that_cancels_gets_every_condition_of_the_list() {
        let query =
            Fields::parse(b"act=cancel&state=dead&status=5xx&order=oldest&event=&reason=gate");
        let (path, body) = call(&query, &Doing::Move("cancel"));
        assert_eq!(path, "/v1/deliveries/bulk");
        let wanted =
            json!({"action": "cancel", "state": "dead", "status": "5xx", "reason": "gate"});
        assert_eq!(Value::Object(body), wanted);
    }
}
