//! The receivers of the demo. They keep books of their own, to be compared with the server's.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::receiver::{self, Handler, Received, Verifier};
use crate::terminal::{self, Paint};

/// Requests that are shown one by one: all of the calm beginning, and a few of the storm.
const SHOWN_CALM: i64 = 6;
const SHOWN_STORM: i64 = 3;

/// One receiver.
pub(super) struct Actor {
    name: &'static str,
    address: SocketAddr,
    verifier: Mutex<Option<Verifier>>,
    down: AtomicBool,
    fail_first: u64,
    /// One of so many requests fails; 0 for none.
    fail_one_of: AtomicU64,
    seen: AtomicU64,
    /// How many more requests are shown.
    to_show: AtomicI64,
    refused: AtomicU64,
    unverified: AtomicU64,
    /// How often each event was taken.
    taken: Mutex<HashMap<String, u64>>,
    _stop: DropGuard,
}

impl Actor {
    /// Listens; the first requests are answered with an error.
    pub(super) async fn start(name: &'static str, fail_first: u64) -> anyhow::Result<Arc<Self>> {
        let listener = receiver::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await?;
        let stop = CancellationToken::new();
        let actor = Arc::new(Self {
            name,
            address: listener.local_addr()?,
            verifier: Mutex::new(None),
            down: AtomicBool::new(false),
            fail_first,
            fail_one_of: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            to_show: AtomicI64::new(SHOWN_CALM),
            refused: AtomicU64::new(0),
            unverified: AtomicU64::new(0),
            taken: Mutex::new(HashMap::new()),
            _stop: stop.clone().drop_guard(),
        });
        let weak = Arc::downgrade(&actor);
        let handler: Handler = Arc::new(move |received| {
            let status = weak.upgrade().map(|actor| actor.receive(&received));
            Box::pin(async move { status })
        });
        tokio::spawn(receiver::run(listener, handler, stop, Duration::ZERO));
        Ok(actor)
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/{}", self.address, self.name)
    }

    pub(super) fn verify_with(&self, secret: &str) -> anyhow::Result<()> {
        *self.verifier.lock() = Some(Verifier::parse(secret)?);
        Ok(())
    }

    /// Answers everything with an error, or no longer so.
    pub(super) fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::SeqCst);
        self.to_show.store(SHOWN_STORM, Ordering::SeqCst);
    }

    /// From now on one of so many requests is answered with an error, and nothing is shown any more.
    pub(super) fn fail_one_of(&self, many: u64) {
        self.fail_one_of.store(many, Ordering::SeqCst);
        self.to_show.store(-1, Ordering::SeqCst);
    }

    /// Different events taken.
    pub(super) fn taken(&self) -> usize {
        self.taken.lock().len()
    }

    /// Events taken again.
    pub(super) fn repeated(&self) -> u64 {
        self.taken.lock().values().map(|times| times - 1).sum()
    }

    /// Requests answered with an error.
    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::SeqCst)
    }

    /// Requests whose signature did not fit.
    pub(super) fn unverified(&self) -> u64 {
        self.unverified.load(Ordering::SeqCst)
    }

    fn receive(&self, received: &Received) -> StatusCode {
        let number = self.seen.fetch_add(1, Ordering::SeqCst) + 1;
        let verifier = self.verifier.lock().clone();
        let verified = verifier.is_some_and(|verifier| verifier.check(received).is_ok());
        if !verified {
            self.unverified.fetch_add(1, Ordering::SeqCst);
        }
        let id = received.header("webhook-id").unwrap_or("-").to_owned();
        let many = self.fail_one_of.load(Ordering::SeqCst);
        let due = many > 0 && number.is_multiple_of(many);
        let fails = self.down.load(Ordering::SeqCst) || number <= self.fail_first || due;
        if fails {
            self.refused.fetch_add(1, Ordering::SeqCst);
        } else {
            *self.taken.lock().entry(id.clone()).or_insert(0) += 1;
        }
        self.show(&id, verified, fails);
        if fails { StatusCode::INTERNAL_SERVER_ERROR } else { StatusCode::OK }
    }

    fn show(&self, id: &str, verified: bool, fails: bool) {
        let left = self.to_show.fetch_sub(1, Ordering::SeqCst);
        if left <= 0 {
            if left == 0 {
                terminal::note(format!("  {:5} … and more", self.name));
            }
            return;
        }
        let paint = Paint::stderr();
        let signature =
            if verified { paint.good("signature verified") } else { paint.bad("signature WRONG") };
        let answer =
            if fails { paint.warn("500, will be retried") } else { paint.good("200, delivered") };
        let id = terminal::clean(id);
        terminal::note(format!("  {:5} ← {id}  {signature}  {answer}", self.name));
    }
}
