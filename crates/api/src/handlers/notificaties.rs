//! What operators do with the Notificaties API: setup files, applied while everything runs, and messages that are
//! sent again. What a document means is the dialect's affair; here is only who may send one, and the form of the
//! answer.

use posthorn_domain::TenantId;
use posthorn_engine::NewReplay;
use serde_json::{Map, Value};

use super::jobs;
use crate::call::{Answer, Call};
use crate::codes;
use crate::problem::{Problem, Result};
use crate::respond;
use crate::{Notificaties, SetupRefusal};

fn served(call: &Call) -> Result<Notificaties> {
    let off = "the Notificaties API is off; operators turn it on with dialects.notificaties";
    call.api.options.notificaties.clone().ok_or_else(|| Problem::new(codes::NOT_FOUND, off))
}

/// `PUT /v1/notificaties/setup`.
pub(crate) async fn setup(mut call: Call) -> Answer {
    let document: Value = call.json().await?;
    let apply = served(&call)?.setup;
    let applied =
        apply(call.engine().clone(), document).await.map_err(|refusal| match refusal {
            SetupRefusal::Invalid(problem) => Problem::field("setup", problem),
            SetupRefusal::Engine(error) => error.into(),
        })?;
    respond::ok(&applied)
}

/// What is to be sent again. The job belongs to the tenant of that API, so it must be the one that is named:
/// otherwise nobody finds the job again.
async fn wanted(call: &mut Call) -> Result<(TenantId, NewReplay)> {
    let document: Value = call.json().await?;
    let api = served(call)?;
    if call.named_tenant()? != api.tenant {
        let tenant = call.engine().catalog().tenant(api.tenant);
        let name = tenant.map(|tenant| tenant.name.clone()).unwrap_or_default();
        let detail = format!("name the tenant of the Notificaties API, which is {name}");
        return Err(Problem::field("Posthorn-Tenant", detail));
    }
    // What was made on another node a moment ago can be named here.
    call.engine().refresh_catalog().await?;
    let replay = (api.resend)(&document, call.who()).map_err(|faults| refusal(&faults))?;
    Ok((api.tenant, replay))
}

/// All that is wrong, at the first field that is.
fn refusal(faults: &[(String, String)]) -> Problem {
    let Some((first, reason)) = faults.first() else {
        return Problem::new(codes::INVALID_REQUEST, "the body cannot be read");
    };
    let detail = if faults.len() == 1 {
        reason.clone()
    } else {
        let all = faults.iter().map(|(name, reason)| format!("{name}: {reason}"));
        all.collect::<Vec<String>>().join(" ")
    };
    Problem::field(first.clone(), detail)
}

/// `POST /v1/notificaties/resend`.
pub(crate) async fn resend(mut call: Call) -> Answer {
    let (tenant, replay) = wanted(&mut call).await?;
    jobs::create(&call, tenant, replay).await
}

/// `POST /v1/notificaties/resend/count`.
pub(crate) async fn count_resend(mut call: Call) -> Answer {
    let (tenant, replay) = wanted(&mut call).await?;
    jobs::count_of(&call, tenant, replay).await
}

/// `GET /v1/notificaties/settings`.
pub(crate) async fn settings(call: Call) -> Answer {
    settle(&call, None).await
}

/// `PATCH /v1/notificaties/settings`.
pub(crate) async fn change_settings(mut call: Call) -> Answer {
    let change: Map<String, Value> = call.json().await?;
    settle(&call, Some(change)).await
}

async fn settle(call: &Call, change: Option<Map<String, Value>>) -> Answer {
    let settings = served(call)?.settings;
    let shown = settings(call.engine().clone(), change).await.map_err(|problem| {
        let named = problem.split(' ').next().unwrap_or_default();
        let field = if named.starts_with("notification") { named } else { "settings" };
        let rest = problem.strip_prefix(field).unwrap_or(&problem).trim_start().to_owned();
        Problem::field(field.to_owned(), rest)
    })?;
    respond::ok(&shown)
}
