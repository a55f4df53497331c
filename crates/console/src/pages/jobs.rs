//! Bulk work and how far it is: jobs (replays, expunges, retries, cancellations, deletions) and redrives of dead letters.

use std::collections::HashMap;
use std::sync::Arc;

use askama::Template;
use http::{Method, StatusCode};
use posthorn_domain::{JobId, RedriveId, Span, Timestamp};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Answer;
use super::dead_letters;
use super::matching::pace;
use super::show::{Listed, Pager, Shown, Time};
use super::typed::{Wrong, refused};
use crate::frame::{Frame, Place, home};
use crate::text;
use crate::trouble::Trouble;
use crate::visit::{Visit, page, see};
use crate::words;

#[derive(Deserialize)]
struct Job {
    id: JobId,
    kind: Option<String>,
    state: String,
    per_second: u32,
    seen: u64,
    done: u64,
    created_by: String,
    created_at: Timestamp,
    finished_at: Option<Timestamp>,
    problem: Option<String>,
}

#[derive(Deserialize)]
struct Redrive {
    id: RedriveId,
    state: String,
    per_second: u32,
    total: u64,
    moved: u64,
    created_at: Timestamp,
    finished_at: Option<Timestamp>,
}

/// Either of them, as a page shows it.
struct Work {
    path: String,
    id: String,
    name: String,
    shown: Shown,
    running: bool,
    pace: u32,
    progress: String,
    /// How many it has done a second, so far.
    rate: String,
    /// Of how many, where that is known.
    parts: Option<(u64, u64)>,
    by: String,
    made: Time,
    ended: Option<Time>,
    problem: Option<String>,
}

fn shown(state: &str) -> Shown {
    match state {
        "running" => Shown::new("wait", "running"),
        "done" => Shown::new("good", "done"),
        "failed" => Shown::new("bad", "failed"),
        other => Shown::new("off", other),
    }
}

fn of_job(job: &Job, now: Timestamp) -> Work {
    let kind = match job.kind.as_deref() {
        Some("cancel") => "cancellation of deliveries".to_owned(),
        Some("forget") => "deletion of deliveries".to_owned(),
        Some("retry") => "retry of deliveries".to_owned(),
        kind => kind.unwrap_or("job").replace('_', " "),
    };
    Work {
        path: format!("jobs/{}", job.id),
        id: job.id.to_string(),
        name: kind,
        shown: shown(&job.state),
        running: job.state == "running",
        pace: job.per_second,
        progress: format!(
            "{} done, {} looked at",
            words::number(job.done),
            words::number(job.seen)
        ),
        rate: rate(job.seen, job.created_at, job.finished_at.unwrap_or(now)),
        parts: None,
        by: text::line(&job.created_by, 60),
        made: Time::new(job.created_at, now),
        ended: job.finished_at.map(|at| Time::new(at, now)),
        problem: job.problem.as_deref().map(text::visible),
    }
}

fn of_redrive(redrive: &Redrive, now: Timestamp) -> Work {
    Work {
        path: format!("redrives/{}", redrive.id),
        id: redrive.id.to_string(),
        name: "redrive of dead letters".to_owned(),
        shown: shown(&redrive.state),
        running: redrive.state == "running",
        pace: redrive.per_second,
        progress: format!(
            "{} of {} put back",
            words::number(redrive.moved),
            words::number(redrive.total)
        ),
        rate: rate(redrive.moved, redrive.created_at, redrive.finished_at.unwrap_or(now)),
        parts: Some((redrive.moved, redrive.total)),
        by: String::new(),
        made: Time::new(redrive.created_at, now),
        ended: redrive.finished_at.map(|at| Time::new(at, now)),
        problem: None,
    }
}

fn rate(done: u64, from: Timestamp, until: Timestamp) -> String {
    // The first go is made at once; over less than some seconds it would look like a pace.
    let millis = (until.as_millis() - from.as_millis()).max(5_000).unsigned_abs();
    words::rate(done, millis)
}

/// A line of the audit log, as far as it says who has started what.
#[derive(Deserialize)]
struct Started {
    actor: Actor,
    object: Object,
}

#[derive(Deserialize)]
struct Object {
    id: String,
}

#[derive(Deserialize)]
struct Actor {
    kind: String,
    id: Option<String>,
    name: Option<String>,
}

impl Started {
    fn by(self) -> String {
        let Actor { kind, id, name } = self.actor;
        let name = name.filter(|name| !name.is_empty()).or(id).unwrap_or_default();
        text::line(&format!("{kind} {name}"), 60)
    }
}

/// Who has started a redrive: the audit log knows.
async fn starter(visit: &Visit, id: RedriveId) -> String {
    let path = format!("/v1/audit?object={id}&action=redrive.created&limit=1");
    let lines: Result<Listed<Started>, Trouble> = visit.get(&path).await;
    let line = lines.ok().and_then(|lines| lines.items.into_iter().next());
    line.map_or_else(String::new, Started::by)
}

/// The same for some redrives, newest first, in one question: nobody starts so many at once that it does not name them all.
async fn starters(visit: &Visit, redrives: &[Redrive]) -> HashMap<String, String> {
    let Some(newest) = redrives.first() else { return HashMap::new() };
    let until = newest.created_at.plus(Span::from_secs(1));
    let path = format!("/v1/audit?action=redrive.created&until={until}&limit=100");
    let lines: Result<Listed<Started>, Trouble> = visit.get(&path).await;
    let lines = lines.map_or_else(|_| Vec::new(), |lines| lines.items);
    lines.into_iter().map(|line| (line.object.id.clone(), line.by())).collect()
}

#[derive(Template)]
#[template(path = "jobs.html")]
struct JobsPage {
    frame: Frame,
    base: String,
    works: Vec<Work>,
    pager: Pager,
    /// Whether only redrives are listed.
    redrives: bool,
}

#[derive(Template)]
#[template(path = "job.html")]
struct JobPage {
    frame: Frame,
    base: String,
    work: Work,
}

/// A page of redrives, with who has started them.
async fn redrives(visit: &Visit, query: &str) -> Result<(Vec<(Timestamp, Work)>, Pager), Trouble> {
    let list: Listed<Redrive> = visit.get(&format!("/v1/redrives?{query}")).await?;
    let now = visit.now();
    let mut by = starters(visit, &list.items).await;
    let work = |redrive: &Redrive| {
        let by = by.remove(&redrive.id.to_string()).unwrap_or_default();
        (redrive.created_at, Work { by, ..of_redrive(redrive, now) })
    };
    let works = list.items.iter().map(work).collect();
    Ok((works, Pager::of(&list, &visit.query, &["kind"], now)))
}

/// `GET …/jobs`: the newest redrives stand with the first page of jobs, and all of them have a list of their own.
pub(crate) async fn list(visit: Arc<Visit>) -> Answer {
    let tenant = visit.tenant()?.clone();
    let wanted = visit.query.query(&["cursor"], &[("limit", "25")]);
    let only_redrives = visit.query.get("kind") == Some("redrives");
    let now = visit.now();
    let (mut works, pager) = if only_redrives {
        redrives(&visit, &wanted).await?
    } else {
        let jobs: Listed<Job> = visit.get(&format!("/v1/jobs?{wanted}")).await?;
        let of = |job: &Job| (job.created_at, of_job(job, now));
        let mut works: Vec<(Timestamp, Work)> = jobs.items.iter().map(of).collect();
        if visit.query.get("cursor").is_none() {
            works.extend(redrives(&visit, "limit=10").await?.0);
        }
        (works, Pager::of(&jobs, &visit.query, &[], now))
    };
    works.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    let html = JobsPage {
        frame: match visit.query.get("cursor") {
            None => Frame::new(&visit, Place::Jobs, "Jobs").await.live(),
            Some(_) => Frame::new(&visit, Place::Jobs, "Jobs").await,
        },
        base: home(&tenant),
        pager,
        redrives: only_redrives,
        works: works.into_iter().map(|(_, work)| work).collect(),
    };
    Ok(page(&visit.headers, StatusCode::OK, html.render()?))
}

/// `GET …/jobs/{id}`.
pub(crate) async fn one(visit: Arc<Visit>) -> Answer {
    let id: JobId = named(&visit, "job")?;
    let job: Job = visit.get(&format!("/v1/jobs/{id}")).await?;
    show(&visit, of_job(&job, visit.now())).await
}

/// `GET …/redrives/{id}`.
pub(crate) async fn one_redrive(visit: Arc<Visit>) -> Answer {
    let id: RedriveId = named(&visit, "redrive")?;
    let redrive: Redrive = visit.get(&format!("/v1/redrives/{id}")).await?;
    let by = starter(&visit, id).await;
    show(&visit, Work { by, ..of_redrive(&redrive, visit.now()) }).await
}

fn named<T: std::str::FromStr>(visit: &Visit, what: &'static str) -> Result<T, Trouble> {
    let text = visit.named.first().ok_or(Trouble::NotFound(what))?;
    text.parse().map_err(|_| Trouble::NotFound(what))
}

async fn show(visit: &Visit, work: Work) -> Answer {
    let base = home(visit.tenant()?);
    let mut name = work.name.clone();
    if let Some(first) = name.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    let html = JobPage {
        frame: match work.running {
            true => Frame::new(visit, Place::Jobs, name).await.live_of(&work.id),
            false => Frame::new(visit, Place::Jobs, name).await,
        }
        .below(format!("{base}/jobs"), "Jobs"),
        base,
        work,
    };
    Ok(page(&visit.headers, StatusCode::OK, html.render()?))
}

/// `POST …/jobs/{id}/cancel`.
pub(crate) async fn cancel(visit: Arc<Visit>) -> Answer {
    let id: JobId = named(&visit, "job")?;
    visit.send_bytes(Method::POST, &format!("/v1/jobs/{id}/cancel"), None).await?;
    Ok(see(&format!("{}/jobs/{id}?done=stopped", home(visit.tenant()?))))
}

/// `POST …/redrives/{id}/cancel`.
pub(crate) async fn cancel_redrive(visit: Arc<Visit>) -> Answer {
    let id: RedriveId = named(&visit, "redrive")?;
    visit.send_bytes(Method::POST, &format!("/v1/redrives/{id}/cancel"), None).await?;
    Ok(see(&format!("{}/redrives/{id}?done=stopped", home(visit.tenant()?))))
}

#[derive(Template)]
#[template(path = "redrive-new.html")]
struct RedrivePage {
    frame: Frame,
    base: String,
    count: String,
    all: bool,
    subscription: String,
    subscription_name: String,
    reason: String,
    pace: String,
    wrong: Option<String>,
    /// What is wrong with the pace.
    wrong_pace: Option<String>,
}

/// `GET …/dead-letters/redrive`: asks first, with the number.
pub(crate) async fn ask_redrive(visit: Arc<Visit>) -> Answer {
    confirm(&visit, None).await
}

async fn confirm(visit: &Visit, wrong: Option<Wrong>) -> Answer {
    let tenant = visit.tenant()?.clone();
    let base = home(&tenant);
    let typed = |name: &str| {
        let typed = visit.form.get(name).or_else(|| visit.query.get(name));
        typed.unwrap_or_default().to_owned()
    };
    let (subscription, reason) = (typed("subscription"), typed("reason"));
    let all = subscription.is_empty() && reason.is_empty();
    let some = |text: &'_ str| (!text.is_empty()).then(|| text.to_owned());
    let by = (some(&subscription), some(&reason));
    let (count, wrong) = match dead_letters::count(visit, (by.0.as_deref(), by.1.as_deref())).await
    {
        Ok(count) => (count, wrong),
        Err(trouble) => ("0".to_owned(), wrong.or(Some(refused(trouble)?))),
    };
    let id = subscription.parse().ok();
    let name = id.map(|id| super::show::Named::find(visit.engine(), tenant.id, id).name);
    let status = if wrong.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    let (wrong_pace, wrong) = match wrong {
        Some((field, text)) if field == "per_second" => (Some(text), None),
        wrong => (None, wrong.map(|(_, text)| text)),
    };
    let html = RedrivePage {
        frame: Frame::new(visit, Place::DeadLetters, "Retry dead letters")
            .await
            .below(format!("{base}/dead-letters"), "Dead letters"),
        count,
        pace: typed("per_second"),
        subscription_name: name.unwrap_or_else(|| subscription.clone()),
        base,
        all,
        subscription,
        reason,
        wrong,
        wrong_pace,
    };
    Ok(page(&visit.headers, status, html.render()?))
}

/// `POST …/dead-letters/redrive`.
pub(crate) async fn redrive(visit: Arc<Visit>) -> Answer {
    let form = &visit.form;
    let mut body = Map::new();
    for name in ["subscription", "reason"] {
        if let Some(value) = form.get(name) {
            body.insert(name.to_owned(), json!(value));
        }
    }
    match pace(form) {
        Ok(pace) => body.extend(pace.map(|pace| ("per_second".to_owned(), json!(pace)))),
        Err(wrong) => return confirm(&visit, Some(wrong)).await,
    }
    let body = Value::Object(body);
    match visit.send::<Redrive>(Method::POST, "/v1/redrives", Some(&body)).await {
        Ok(made) => {
            Ok(see(&format!("{}/redrives/{}?done=started", home(visit.tenant()?), made.id)))
        }
        Err(trouble) => confirm(&visit, Some(refused(trouble)?)).await,
    }
}
