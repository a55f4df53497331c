//! Figures of the past, step by step: what pictures are drawn from.

use posthorn_access::find_tenant;
use posthorn_domain::{RollupScope, RollupStep, Span, Timestamp, TopicName};

use crate::call::{Answer, Call};
use crate::codes;
use crate::problem::{Problem, Result};
use crate::respond;
use crate::wire::SeriesView;

/// Steps in one answer at most: as many minutes as are kept.
pub(crate) const POINTS_MAX: u64 = 2_880;

/// `GET /v1/metrics/series`.
pub(crate) async fn get(mut call: Call) -> Answer {
    let scope = match call.query.text("scope") {
        Some("realm") => realm(&call)?,
        None if call.query.text("realm").is_some() => realm(&call)?,
        _ => {
            call.settle_tenant()?;
            scope(&call)?
        }
    };
    let step = step(&call)?;
    let (from, until) = range(&call, step)?;
    let points = call.engine().series(scope.clone(), step, from, until).await?;
    respond::ok(&SeriesView::new(&scope, step, &points))
}

/// A realm as a whole: its own keys see it, and operators. Whoever names another than its own names none there is.
fn realm(call: &Call) -> Result<RollupScope> {
    if call.query.text("id").is_some() {
        return Err(Problem::field("id", "must be left out; `realm` names the realm"));
    }
    let realm = call.realm()?;
    if call.is_bound_to_tenant() {
        let detail = "a realm is shared by its tenants; seeing its figures needs a key of the realm, or of \
                      an operator";
        return Err(Problem::new(codes::FORBIDDEN, detail));
    }
    Ok(RollupScope::Realm(realm))
}

/// About whom else. What the caller may not see is answered like what is not there, but for the server as a whole, of
/// which everybody knows.
fn scope(call: &Call) -> Result<RollupScope> {
    let id = call.query.text("id");
    if call.query.text("realm").is_some() {
        return Err(Problem::field("realm", "must be left out for this scope"));
    }
    match call.query.text("scope") {
        Some("server") if !call.is_operator() => {
            Err(Problem::new(codes::FORBIDDEN, "the key needs the scope `operator`"))
        }
        Some("server") if id.is_some() => {
            Err(Problem::field("id", "must be left out for the server as a whole"))
        }
        Some("server") => Ok(RollupScope::Server),
        None | Some("tenant") => {
            let Some(text) = id else { return Ok(RollupScope::Tenant(call.tenant())) };
            let found = find_tenant(call.engine(), text).filter(|tenant| call.acts_for(tenant));
            let found = found.map(|tenant| tenant.id);
            found.map(RollupScope::Tenant).ok_or_else(|| Problem::not_found("tenant"))
        }
        Some("subscription") => {
            let text = id.ok_or_else(|| Problem::field("id", "is required for a subscription"))?;
            let unknown = || Problem::not_found("subscription");
            let id = call.find_subscription(text).ok_or_else(unknown)?;
            call.engine().catalog().subscription(call.tenant(), id)?;
            Ok(RollupScope::Subscription(id))
        }
        Some("topic") => {
            let text = id.ok_or_else(|| Problem::field("id", "is required for a topic"))?;
            let name = TopicName::new(text).map_err(|_| Problem::not_found("topic"))?;
            let tenant = call.tenant();
            let known = call.engine().catalog().topic(tenant, &name).is_ok();
            known
                .then_some(RollupScope::Topic(tenant, name))
                .ok_or_else(|| Problem::not_found("topic"))
        }
        Some(_) => {
            Err(Problem::field("scope", "must be server, realm, tenant, subscription or topic"))
        }
    }
}

fn step(call: &Call) -> Result<RollupStep> {
    match call.query.text("step") {
        None | Some("minute") => Ok(RollupStep::Minute),
        Some("hour") => Ok(RollupStep::Hour),
        Some(_) => Err(Problem::field("step", "must be minute or hour")),
    }
}

/// From when until when: whole steps, none of them after the present one.
fn range(call: &Call, step: RollupStep) -> Result<(Timestamp, Timestamp)> {
    let period = call.query.period()?;
    let now = call.engine().now();
    let end = step.floor(now).plus(step.span());
    let until = period.until.map_or(end, |until| step.ceil(until).min(end));
    let usual = match step {
        RollupStep::Minute => Span::from_secs(3_600),
        RollupStep::Hour => Span::from_secs(24 * 3_600),
    };
    let from = step.floor(period.from.unwrap_or_else(|| until.minus(usual)));
    if from >= until {
        return Err(Problem::field("from", "must not be in the future"));
    }
    let points = until.since(from).as_millis() / step.span().as_millis();
    if points > POINTS_MAX {
        let detail = format!(
            "the range has {points} steps, and an answer has at most {POINTS_MAX}; make it shorter, \
             or use longer steps"
        );
        return Err(Problem::field("from", detail));
    }
    Ok((from, until))
}
