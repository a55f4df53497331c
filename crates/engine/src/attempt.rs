//! One attempt: ask the gate, fetch a token, build the request, send it, say how it went. Or, where
//! the destination is a channel: build the message, put it into the mailbox, say how it went.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use posthorn_domain::policy::{Gate, OnClosed, Policy, Route};
use posthorn_domain::{
    Answer, AttemptOutcome, Clock, DeliveryId, FailureCode, Fence, PushTarget, Span,
    SubscriptionId, Timestamp,
};
use posthorn_store::Work;
use tokio::time::Instant;
use tracing::info;

use crate::catalog::{Catalog, Endpoint, Place, SubscriptionView};
use crate::metrics;
use crate::policy_log::PolicyLog;
use crate::push::{self, PushDelivery, PushOutcome};
use crate::request::{self, AttemptLookup, BuildError, EventLookup, render_path};
use crate::scheduler::{LeaseTerm, Slot};
use crate::tokens::{Lent, TokenError, Tokens, Way};
use crate::transport::{Deadlines, Outbound, Transport, UrlProblem};

/// What attempts need besides their work.
pub(crate) struct Surroundings {
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) push: Option<Arc<dyn PushDelivery>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) term: LeaseTerm,
    pub(crate) tokens: Tokens,
    /// For the lines that policies ask for.
    pub(crate) log: Arc<PolicyLog>,
}

/// An attempt to be made.
pub(crate) struct Job {
    pub(crate) work: Work,
    /// The one version of the subscription this attempt uses.
    pub(crate) view: Arc<SubscriptionView>,
    pub(crate) policy: Arc<Policy>,
    pub(crate) fence: Fence,
    /// What it counts as among the attempts under way.
    pub(crate) slot: Slot,
    /// The losses of shards when it began: it may only be sent while leases hold and none was lost
    /// since. `None` for a test, which needs no lease.
    pub(crate) leased: Option<u64>,
    /// When it was given away to be made.
    pub(crate) made: Instant,
}

/// An attempt that was made, or not.
pub(crate) struct Done {
    pub(crate) job: Job,
    pub(crate) started_at: Timestamp,
    pub(crate) took: Span,
    /// How long it waited for a processor before it began.
    pub(crate) waited: Duration,
    pub(crate) result: Ended,
}

/// How it went.
pub(crate) enum Ended {
    /// A request was sent, or at least tried.
    Outcome(AttemptOutcome),
    /// The gate was closed.
    GateClosed,
    /// The subscription changed or went away before anything was sent.
    Overtaken,
}

impl Done {
    pub(crate) fn delivery(&self) -> DeliveryId {
        self.job.work.delivery.id
    }

    pub(crate) fn subscription(&self) -> SubscriptionId {
        self.job.work.delivery.subscription
    }
}

/// Makes one attempt. Never panics: a crash inside becomes a failed attempt.
pub(crate) async fn run(around: Arc<Surroundings>, job: Job) -> Done {
    let (made, began) = (job.made, Instant::now());
    let started_at = around.clock.now();
    let result = AssertUnwindSafe(attempt(&around, &job)).catch_unwind().await;
    let result = result.unwrap_or_else(|_| {
        ::metrics::counter!(metrics::ATTEMPT_PANICS).increment(1);
        failed(FailureCode::Internal, "the attempt crashed; this is a defect".to_owned())
    });
    let took = elapsed(began);
    Done { job, started_at, took, waited: began - made, result }
}

/// How long ago that was, whatever became of the wall clock since.
fn elapsed(began: Instant) -> Span {
    Span::from_millis(u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX))
}

fn failed(code: FailureCode, detail: String) -> Ended {
    Ended::Outcome(AttemptOutcome::Failed { code, detail })
}

async fn attempt(around: &Surroundings, job: &Job) -> Ended {
    if let Some(problem) = not_routed(job) {
        return failed(FailureCode::FamilyNotRouted, problem);
    }
    match &job.view.place {
        Place::Webhook(endpoint) => send(around, job, endpoint).await,
        Place::Push(target) => put(around, job, target).await,
    }
}

/// Sends a request to a webhook.
async fn send(around: &Surroundings, job: &Job, endpoint: &Arc<Endpoint>) -> Ended {
    let event = EventLookup::new(&job.work.event);
    if let Some(gate) = &job.policy.gate {
        match ask(around, job, &event, gate).await {
            Ok(true) => {}
            Ok(false) => {
                if gate.on_closed == OnClosed::DeadLetter {
                    let delivery = job.work.delivery.id;
                    info!(%delivery, "the gate is closed: nothing was sent, and it is a dead letter");
                }
                return Ended::GateClosed;
            }
            Err(detail) => return failed(FailureCode::RequestInvalid, detail),
        }
    }
    let before_token = Instant::now();
    let way = Way { transport: &*around.transport, clock: &*around.clock };
    let token = match around.tokens.for_attempt(&way, &job.view, &job.policy).await {
        Ok(token) => token,
        Err(TokenError::Secret(detail)) => return failed(FailureCode::AuthUnavailable, detail),
        Err(TokenError::Unavailable(detail)) => {
            return failed(FailureCode::TokenUnavailable, detail);
        }
    };
    let now = around.clock.now();
    let text = token.as_ref().map(Lent::text);
    let values = AttemptLookup::new(&job.view, &job.policy, &job.work, &event, now);
    let built = request::build(&around.catalog, endpoint, &values, text);
    let (mut outbound, told) = match built {
        Ok(built) => built,
        Err(BuildError::Request(detail)) => return failed(FailureCode::RequestInvalid, detail),
        Err(BuildError::Url(detail)) => return failed(FailureCode::UrlRefused, detail),
        Err(BuildError::Auth(detail)) => return failed(FailureCode::AuthUnavailable, detail),
        Err(BuildError::Certificate(missing)) => {
            return failed(FailureCode::CertificateUnavailable, missing.to_string());
        }
    };
    // What the token took is taken off, so that the whole attempt keeps its deadline.
    outbound.deadlines.shorten(elapsed(before_token));
    if is_overtaken(around, job) {
        return Ended::Overtaken;
    }
    around.log.before(job, &values);
    let mut outcome = around.transport.send(outbound).await;
    told.remove_from(&mut outcome);
    if let (Some(token), AttemptOutcome::Answered(Answer { status: 401, .. })) = (&token, &outcome)
    {
        around.tokens.refused(token);
    }
    around.log.failure(job, &values, &outcome);
    Ended::Outcome(outcome)
}

/// Puts a message into an agent's mailbox. Gates, tokens and whatever else makes a request play no
/// part.
async fn put(around: &Surroundings, job: &Job, target: &PushTarget) -> Ended {
    let Some(mailboxes) = &around.push else {
        let detail = "push is not enabled on this node (push.enabled)";
        return failed(FailureCode::PushUnavailable, detail.to_owned());
    };
    let Job { work, view, policy, .. } = job;
    let now = around.clock.now();
    let message = match push::message(view, target, mailboxes.limits(), policy, work, now) {
        Ok(message) => message,
        Err(problem) => return failed(problem.code, problem.detail),
    };
    if is_overtaken(around, job) {
        return Ended::Overtaken;
    }
    let event = EventLookup::new(&work.event);
    let values = AttemptLookup::new(view, policy, work, &event, now);
    around.log.before(job, &values);
    let total = policy.limits.total;
    let put = tokio::time::timeout(total.to_duration(), mailboxes.deliver(message)).await;
    let outcome = match put {
        Ok(PushOutcome::Kept) => answered(push::KEPT_STATUS),
        Ok(PushOutcome::Gone) => answered(push::GONE_STATUS),
        Ok(PushOutcome::Unavailable(detail)) => {
            AttemptOutcome::Failed { code: FailureCode::PushUnavailable, detail }
        }
        Err(_) => AttemptOutcome::Failed {
            code: FailureCode::PushUnavailable,
            detail: format!("the mailbox did not answer within {total}"),
        },
    };
    around.log.failure(job, &values, &outcome);
    Ended::Outcome(outcome)
}

/// An answer without a word.
fn answered(status: u16) -> AttemptOutcome {
    let body = bytes::Bytes::new();
    AttemptOutcome::Answered(Answer { status, retry_after: None, content_type: None, body })
}

/// Whether an attempt must not be made any more. Nothing may be awaited between this and the
/// sending: once an unsubscribe has returned, nothing of the old subscription begins, and once a cancel
/// or retry by hand has, nothing of an older copy of the delivery. The lease may
/// have run out while the gate was asked or the claim written, and with it the promise that this
/// node's catalog is fresh.
fn is_overtaken(around: &Surroundings, job: &Job) -> bool {
    let leased = job.leased.is_none_or(|losses| around.term.holds_since(losses));
    let leased = leased || crate::plant::active("ignore-lease-term");
    let current = around.catalog.view(job.view.subscription.id);
    let changed = !current.is_some_and(|view| Arc::ptr_eq(&view, &job.view));
    let changed = changed && !crate::plant::active("ignore-unsubscribe");
    let recalled = around.catalog.is_recalled(&job.work.delivery);
    let recalled = recalled && !crate::plant::active("no-recall");
    let recalled = recalled || crate::plant::active("turns-in-circles");
    !leased || changed || recalled
}

/// Why events of this family are not sent; found out before anybody is asked anything.
fn not_routed(job: &Job) -> Option<String> {
    let family = job.work.event.family();
    match job.policy.request.route(family) {
        Route::Any | Route::Path(_) => None,
        Route::Off => Some(format!(
            "request.families switches the family `{family}` off; give it a path and redrive"
        )),
        Route::Unknown => Some(format!(
            "request.families has no path for the family `{family}`; add one and redrive"
        )),
    }
}

/// Asks the gate. `Err` means the question itself could not be put together.
async fn ask(
    around: &Surroundings,
    job: &Job,
    event: &EventLookup<'_>,
    gate: &Gate,
) -> Result<bool, String> {
    let now = around.clock.now();
    let values = AttemptLookup::new(&job.view, &job.policy, &job.work, event, now);
    let url = render_path(&gate.url, &values).map_err(|e| format!("gate.url: {e}"))?;
    let problem = |e: UrlProblem| format!("gate.url: {e}");
    let endpoint = Endpoint::new(around.transport.check_url(&url).map_err(problem)?);
    endpoint.parts().check_scheme(&job.policy.url).map_err(problem)?;
    let timeout = gate.timeout;
    let outcome = around
        .transport
        .send(Outbound {
            tenant: job.view.subscription.tenant,
            subscription: job.view.subscription.id,
            endpoint: Arc::new(endpoint),
            path_and_query: None,
            method: http::Method::GET,
            headers: http::HeaderMap::new(),
            tls: None,
            proxy: job.policy.proxy.clone(),
            vet_always: false,
            body: bytes::Bytes::new(),
            deadlines: Deadlines {
                connect: timeout,
                tls: timeout,
                response: timeout,
                total: timeout,
            },
        })
        .await;
    Ok(match outcome {
        AttemptOutcome::Answered(answer) => is_open(gate, &answer),
        AttemptOutcome::Failed { .. } => false,
    })
}

fn is_open(gate: &Gate, answer: &Answer) -> bool {
    if !gate.status.contains(answer.status) {
        return false;
    }
    let Some(expect) = &gate.expect else { return true };
    let Ok(json) = serde_json::from_slice::<serde_json::Value>(&answer.body) else { return false };
    expect.is_met(&json)
}
