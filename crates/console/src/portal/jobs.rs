//! How far sending again is.

use std::sync::Arc;

use askama::Template;
use http::{Method, StatusCode};
use posthorn_domain::{JobId, Timestamp};
use serde::Deserialize;

use super::frame::{Frame, Place};
use super::guest::Guest;
use super::say::Moment;
use crate::pages::Answer;
use crate::pages::show::Shown;
use crate::trouble::Trouble;
use crate::words;

#[derive(Deserialize)]
struct Job {
    id: JobId,
    subscription: Option<String>,
    state: String,
    seen: u64,
    done: u64,
    created_at: Timestamp,
    finished_at: Option<Timestamp>,
}

#[derive(Template)]
#[template(path = "portal/job.html")]
struct JobPage {
    frame: Frame,
    id: String,
    shown: Shown,
    running: bool,
    progress: String,
    endpoint: Option<String>,
    made: Moment,
    ended: Option<Moment>,
}

fn named(guest: &Guest) -> Result<JobId, Trouble> {
    let text = guest.named.first().ok_or(Trouble::NotFound("job"))?;
    text.parse().map_err(|_| Trouble::NotFound("job"))
}

/// `GET /portal/jobs/{id}`.
pub(crate) async fn one(guest: Arc<Guest>) -> Answer {
    let id = named(&guest)?;
    let t = guest.t;
    let job: Job = guest.get(&format!("/v1/jobs/{id}")).await?;
    let shown = match job.state.as_str() {
        "running" => Shown::new("wait", t.job_running),
        "done" => Shown::new("good", t.job_done),
        "failed" => Shown::new("bad", t.job_failed),
        _ => Shown::new("off", t.job_cancelled),
    };
    let progress = t.job_progress.replacen("{}", &words::number(job.done), 1);
    let html = JobPage {
        frame: Frame::new(&guest, Place::Endpoints, t.job_title).await.below("", t.endpoints),
        id: job.id.to_string(),
        shown,
        running: job.state == "running",
        progress: progress.replacen("{}", &words::number(job.seen), 1),
        endpoint: job.subscription,
        made: Moment::new(job.created_at),
        ended: job.finished_at.map(Moment::new),
    };
    Ok(guest.page(StatusCode::OK, html.render()?))
}

/// `POST /portal/jobs/{id}/cancel`.
pub(crate) async fn cancel(guest: Arc<Guest>) -> Answer {
    let id = named(&guest)?;
    guest.send_bytes(Method::POST, &format!("/v1/jobs/{id}/cancel"), None).await?;
    Ok(guest.see(&format!("jobs/{id}?done=stopped")))
}
