//! Holding: an engine that takes everything in and sends nothing, until somebody lets it go on.
//!
//! For a store that was restored to be looked at, or to be put right first: no receiver hears of it. The hold belongs to the
//! process and begins with it ([`Options::hold`](crate::Options)). It is kept in two places: the scheduler starts no attempt,
//! so that nothing counts as tried; and the way out refuses whatever else would leave, such as a test call that an operator
//! asks for.
//!
//! # What it must not know
//! Why somebody holds, and what other nodes do.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use metrics::gauge;
use posthorn_domain::{AttemptOutcome, AuditAction, FailureCode, Timestamp};
use tracing::{info, warn};

use crate::audit::Line;
use crate::engine::Engine;
use crate::error::Result;
use crate::metrics::ON_HOLD;
use crate::scheduler::Input;
use crate::transport::{Outbound, Sending, Transport, UrlProblem, Vetting};

/// Whether nothing is sent. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Hold(Arc<Inner>);

#[derive(Default)]
struct Inner {
    on: AtomicBool,
    ended: OnceLock<Timestamp>,
}

impl Hold {
    pub(crate) fn new(on: bool) -> Self {
        gauge!(ON_HOLD).set(f64::from(u8::from(on)));
        if on {
            warn!("on hold: events are accepted and nothing is sent; `posthorn resume` goes on");
        }
        Self(Arc::new(Inner { on: AtomicBool::new(on), ended: OnceLock::new() }))
    }

    pub(crate) fn is_on(&self) -> bool {
        self.0.on.load(Ordering::Acquire)
    }

    /// When it ended, if there was one.
    pub(crate) fn ended(&self) -> Option<Timestamp> {
        self.0.ended.get().copied()
    }

    /// Ends it; false when there was none.
    fn end(&self, now: Timestamp) -> bool {
        let was_on = self.is_on();
        if was_on {
            // A hold ends once; who ends it at the same moment means the same.
            let _ = self.0.ended.set(now);
        }
        was_on && self.0.on.swap(false, Ordering::AcqRel)
    }
}

/// What becomes of an attempt that somebody asks for meanwhile.
pub(crate) fn refusal() -> AttemptOutcome {
    let detail = "the server is on hold and sends nothing; `posthorn resume` goes on".to_owned();
    AttemptOutcome::Failed { code: FailureCode::ConnectFailed, detail }
}

/// A way out that is shut while the hold lasts.
pub(crate) struct HeldTransport {
    pub(crate) inner: Arc<dyn Transport>,
    pub(crate) hold: Hold,
}

impl Transport for HeldTransport {
    fn check_url(&self, url: &str) -> Result<String, UrlProblem> {
        self.inner.check_url(url)
    }

    fn vet(&self, url: &str) -> Vetting {
        // Names are asked for outside.
        match self.hold.is_on() {
            true => Box::pin(std::future::ready(Ok(()))),
            false => self.inner.vet(url),
        }
    }

    fn send(&self, request: Outbound) -> Sending {
        if !self.hold.is_on() {
            return self.inner.send(request);
        }
        Box::pin(std::future::ready(refusal().into()))
    }
}

impl Engine {
    /// Whether nothing is sent until somebody resumes.
    pub fn is_on_hold(&self) -> bool {
        self.inner.hold.is_on()
    }

    /// Ends the hold of this process, with a line in the audit log; false when there was none. Where no line can be written, the
    /// hold stays.
    pub async fn resume(&self) -> Result<bool> {
        if !self.is_on_hold() {
            return Ok(false);
        }
        let line = Line::new(AuditAction::NodeResumed, "node", &self.node());
        self.writing(None, Some(line), true, |along| self.store().note(along)).await?;
        let was_on = self.inner.hold.end(self.inner.clock.now());
        gauge!(ON_HOLD).set(0.0);
        // Everybody who is ready has waited for this.
        drop(self.inner.scheduler.send(Input::Renewed).await);
        info!("no longer on hold: what is due is sent");
        Ok(was_on)
    }
}
