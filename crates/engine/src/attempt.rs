//! One attempt of a delivery: what every destination has in common.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use posthorn_domain::policy::{Policy, Route};
use posthorn_domain::{
    AttemptOutcome, Clock, DeliveryId, FailureCode, Fence, Held, SentRequest, Span, SubscriptionId,
    Timestamp, Timings,
};
use posthorn_store::Work;
use tokio::time::Instant;

use crate::catalog::{Catalog, SubscriptionView};
use crate::destination::push::{PushDelivery, PushOptions};
use crate::hold::Hold;
use crate::metrics;
use crate::options::WebhookOrigin;
use crate::policy_log::PolicyLog;
use crate::scheduler::{LeaseTerm, Slot};
use crate::tokens::Tokens;
use crate::trace::{self, Tracer};
use crate::transport::Transport;

/// What attempts need besides their work.
pub(crate) struct Context {
    pub(crate) hold: Hold,
    pub(crate) transport: Arc<dyn Transport>,
    pub(crate) push: Option<Arc<dyn PushDelivery>>,
    pub(crate) push_options: PushOptions,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) term: LeaseTerm,
    pub(crate) tokens: Tokens,
    /// Who we are in handshakes, and in the requests that follow.
    pub(crate) origin: Option<WebhookOrigin>,
    /// For the lines that policies ask for.
    pub(crate) log: Arc<PolicyLog>,
    /// Who records traces.
    pub(crate) tracer: Option<Arc<dyn Tracer>>,
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
    /// What must still hold when it is sent.
    pub(crate) needs: Needs,
    /// What had held it back.
    pub(crate) held: Option<Held>,
    /// When it was given away to be made.
    pub(crate) made: Instant,
}

/// What must still hold when an attempt is sent.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Needs {
    /// The leases, with no shard lost since so many were.
    Lease(u64),
    /// The subscription as it was when it began: a test.
    Subscription,
    /// Nothing: a rehearsal of a subscription that does not exist.
    Nothing,
}

/// An attempt that was made, or not.
pub(crate) struct Done {
    pub(crate) job: Job,
    pub(crate) started_at: Timestamp,
    pub(crate) took: Span,
    /// How long it waited for a processor before it began.
    pub(crate) waited: Duration,
    /// How long the phases of the request took.
    pub(crate) timings: Timings,
    /// What it sent, when it failed.
    pub(crate) sent: Option<Box<SentRequest>>,
    pub(crate) result: Ended,
}

/// What a destination made of an attempt.
pub(crate) struct Made {
    pub(crate) result: Ended,
    pub(crate) timings: Timings,
    /// What was sent, when it failed.
    pub(crate) sent: Option<Box<SentRequest>>,
}

impl From<Ended> for Made {
    fn from(result: Ended) -> Self {
        Self { result, timings: Timings::default(), sent: None }
    }
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
pub(crate) async fn run(around: Arc<Context>, job: Job) -> Done {
    let (made, began) = (job.made, Instant::now());
    let started_at = around.clock.now();
    let ended = AssertUnwindSafe(attempt(&around, &job)).catch_unwind().await;
    let Made { result, timings, sent } = ended.unwrap_or_else(|_| {
        ::metrics::counter!(metrics::ATTEMPT_PANICS).increment(1);
        failed(FailureCode::Internal, "the attempt crashed; this is a defect".to_owned()).into()
    });
    let elapsed = began.elapsed();
    let took = Span::from(elapsed);
    let done = Done { job, started_at, took, waited: began - made, timings, sent, result };
    if let Some(tracer) = &around.tracer {
        trace::attempted(&**tracer, &done, elapsed);
    }
    done
}

pub(crate) fn failed(code: FailureCode, detail: String) -> Ended {
    Ended::Outcome(AttemptOutcome::Failed { code, detail })
}

async fn attempt(around: &Context, job: &Job) -> Made {
    if let Some(problem) = not_routed(job) {
        return failed(FailureCode::FamilyNotRouted, problem).into();
    }
    job.view.destination.attempt(around, job).await
}

/// Whether an attempt must not be made any more. Nothing may be awaited between this and the
/// sending: once an unsubscribe has returned, nothing of the old subscription begins, and once a cancel
/// or retry by hand has, nothing of an older copy of the delivery. The lease may
/// have run out while the gate was asked or the claim written, and with it the promise that this
/// node's catalog is fresh.
pub(crate) fn is_overtaken(around: &Context, job: &Job) -> bool {
    let leased = match job.needs {
        Needs::Lease(losses) => around.term.holds_since(losses),
        Needs::Subscription => true,
        Needs::Nothing => return false,
    };
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
pub(crate) fn not_routed(job: &Job) -> Option<String> {
    let family = job.work.event.family();
    match job.policy.request.route(family) {
        Route::Any | Route::Path(_) => None,
        Route::Off => Some(format!(
            "request.families turns the family `{family}` off; give it a path and redrive"
        )),
        Route::Unknown => Some(format!(
            "request.families has no path for the family `{family}`; add one and redrive"
        )),
    }
}
