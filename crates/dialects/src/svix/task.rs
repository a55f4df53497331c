//! Background tasks: jobs of all applications of the organisation.

use posthorn_domain::{Job, JobState, JobWork, ReplayStatus};
use posthorn_store::Listing;
use serde_json::{Value, json};

use super::access::is_application;
use super::call::{Answer, Call, ok};
use super::failure::Failure;
use super::id;
use super::page::{Paging, list as shown_list};

const PURGE: &str = "application.purge_content";
/// Jobs of one application that a list looks at.
const JOBS_MAX: usize = 50;
/// Applications that a list looks at: the ones that were made last.
const APPLICATIONS_MAX: usize = 200;

/// What clients call it. They know some kinds and fail on others, so jobs of these are not shown.
fn name(work: &JobWork) -> Option<&'static str> {
    match work {
        JobWork::Replay { status: ReplayStatus::Failed, .. } => Some("endpoint.recover"),
        JobWork::Replay { status: ReplayStatus::Missed, .. } => Some("endpoint.replay"),
        JobWork::Replay { .. } | JobWork::Retry { .. } => Some("endpoint.bulk-replay"),
        JobWork::Expunge { .. } => Some(PURGE),
        JobWork::Deliver { .. }
        | JobWork::Cancel { .. }
        | JobWork::Forget { .. }
        | JobWork::DeleteTenant => None,
    }
}

/// What a job is shown as, if it is.
pub(super) fn view(job: &Job) -> Option<Value> {
    name(&job.work).map(|name| shown(job, name))
}

/// What the removal of all payloads is shown as.
pub(super) fn purge(job: &Job) -> Value {
    shown(job, PURGE)
}

/// The same under the name of the operation that began it.
pub(super) fn view_as(job: &Job, what: &str) -> Value {
    match what {
        "recover" => shown(job, "endpoint.recover"),
        "replay-missing" => shown(job, "endpoint.replay"),
        _ => shown(job, "endpoint.bulk-replay"),
    }
}

fn shown(job: &Job, task: &str) -> Value {
    let status = match job.state {
        JobState::Running => "running",
        JobState::Done => "finished",
        JobState::Cancelled | JobState::Failed => "failed",
    };
    json!({
        "id": id::task(job.id, job.tenant),
        "status": status,
        "task": task,
        "data": {"seen": job.seen, "done": job.done, "appId": id::application(job.tenant)},
        "updatedAt": id::time(job.finished_at.unwrap_or(job.created_at)),
    })
}

/// `GET /background-task/{task}`.
pub(super) async fn get(call: &Call, text: &str) -> Answer {
    let (job, mark) = id::read_task(text).ok_or(Failure::NotFound)?;
    let store = call.service.engine.store();
    for tenant in applications(call).into_iter().filter(|tenant| id::mark(*tenant) == mark) {
        if let Some(view) = store.job(tenant, job).await?.as_ref().and_then(view) {
            return ok(&view);
        }
    }
    Err(Failure::NotFound)
}

fn applications(call: &Call) -> Vec<posthorn_domain::TenantId> {
    let filter = posthorn_engine::TenantFilter {
        realm: Some(call.caller.realm.clone()),
        ..posthorn_engine::TenantFilter::default()
    };
    let catalog = call.service.engine.catalog();
    let (all, _) = catalog.tenants_page(&filter, None, usize::MAX);
    all.iter().filter(|tenant| is_application(tenant)).map(|tenant| tenant.id).collect()
}

/// `GET /background-task`: the newest of the applications that were made last. Each application's own are found by its id.
pub(super) async fn list(call: &Call) -> Answer {
    let paging = Paging::ordered(&call.query, false)?;
    let store = call.service.engine.store();
    let (status, task) = (call.query.text("status"), call.query.text("task"));
    let mut all = Vec::new();
    for tenant in applications(call).into_iter().rev().take(APPLICATIONS_MAX) {
        let page = store.jobs(tenant, Listing::newest(JOBS_MAX)).await?;
        all.extend(page.items);
    }
    all.sort_by_key(|job| job.id);
    if !paging.ascending {
        all.reverse();
    }
    let all = all.iter().filter_map(view).filter(|view| {
        let is = |name: &str, wanted: Option<&str>| wanted.is_none_or(|own| view[name] == own);
        is("status", status) && is("task", task)
    });
    let key = |view: &Value| view["id"].as_str().unwrap_or_default().to_owned();
    let (found, done) = paging.cut(all.collect(), key);
    let (first, last) = (found.first().map(key), found.last().map(key));
    ok(&shown_list(found, done, first, last))
}
