//! Figures of all tenants and of all subscriptions at once, summed up aside.
//!
//! Summing up takes as long as there is much, so that no page waits for it: a page gets what was summed up last, and has
//! the next begin when that is old. How long it took says how soon it may be done again. Only a page that comes first
//! waits, a moment.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use posthorn_domain::Timestamp;
use posthorn_engine::Engine;
use posthorn_store::{RollupKind, Sums};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::overview::Range;

/// Rows that are looked at, at most: what 1,000 subscriptions have in a week, by the hour.
const ROWS_MAX: usize = 200_000;
/// The least time between two sums.
const EVERY: Duration = Duration::from_secs(2);
/// So many times as long as it took is also the least time between two.
const PART: u32 = 50;
/// How long it is left alone after it did not work.
const AFTER_TROUBLE: Duration = Duration::from_secs(5);
/// How long a page waits for the first sums, and for others than old ones.
const FIRST: Duration = Duration::from_millis(15);
/// What is older than this is not shown without having waited.
const OLD: Duration = Duration::from_secs(10);

/// What was summed up last, by kind and range.
#[derive(Default)]
pub(crate) struct Figures(Mutex<HashMap<(&'static str, &'static str), Arc<Slot>>>);

#[derive(Default)]
struct Slot {
    state: Mutex<State>,
    news: Notify,
}

#[derive(Default)]
struct State {
    summed: Option<Arc<Sums>>,
    /// When it was.
    at: Option<Instant>,
    again: Option<Instant>,
    busy: bool,
}

impl Figures {
    /// What all of a kind come to in a range; nothing while that is not known yet.
    pub(crate) async fn get(
        &self,
        engine: &Engine,
        kind: RollupKind,
        range: &Range,
    ) -> Option<Arc<Sums>> {
        let slot = Arc::clone(self.0.lock().entry((kind.bounds().0, range.key)).or_default());
        let begins = {
            let mut state = slot.state.lock();
            let begins = !state.busy && state.again.is_none_or(|again| again <= Instant::now());
            state.busy |= begins;
            begins
        };
        let news = slot.news.notified();
        if begins {
            let from = engine.now().as_millis() - range.millis;
            let from = Timestamp::from_millis(from);
            tokio::spawn(sum(Arc::clone(&slot), engine.clone(), kind, from));
        }
        let waits = {
            let state = slot.state.lock();
            state.busy && state.at.is_none_or(|at| at.elapsed() > OLD)
        };
        if waits {
            // Whoever comes too early gets what is there.
            drop(timeout(FIRST, news).await);
        }
        slot.state.lock().summed.clone()
    }
}

async fn sum(slot: Arc<Slot>, engine: Engine, kind: RollupKind, from: Timestamp) {
    let began = Instant::now();
    let found = engine.sums(kind, from, ROWS_MAX).await;
    let mut state = slot.state.lock();
    state.busy = false;
    state.again = Some(match found {
        Ok(sums) => {
            (state.summed, state.at) = (Some(Arc::new(sums)), Some(began));
            began + (began.elapsed() * PART).max(EVERY)
        }
        Err(_) => Instant::now() + AFTER_TROUBLE,
    });
    drop(state);
    slot.news.notify_waiters();
}
