//! How full the disk of the data directory is. A full disk would fail commits, and SQLite needs room
//! to deliver as well: it is noticed before, and only what comes in is stopped. A watermark that was
//! reached counts until the disk is clearly below it, so that nobody is let in and refused by turns.
//!
//! Messages of Web Push, which come from strangers, are stopped earlier, when twice as much is free as
//! publishes need ([`Brake`]): they cannot fill the disk so far that publishes are refused.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use metrics::{describe_gauge, gauge};
use posthorn_engine::Admission;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::config::Disk;

/// The used part of the file system, from 0 to 1.
const USED: &str = "posthorn_disk_used_ratio";

/// How far below a watermark the disk must fall until it counts as passed, in percent of the disk.
const EASE: f64 = 2.0;

/// Whether the disk is too full for messages of Web Push.
#[derive(Debug, Default)]
pub struct Brake(AtomicBool);

impl Brake {
    /// Whether none are to be taken in.
    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn judge(&self, used: f64, limits: Disk) {
        let before = self.is_on();
        let mark = push_mark(limits.refuse);
        let on = limits.refuse < 100 && is_reached(mark, used, before);
        if on == before {
            return;
        }
        let percent = (used * 100.0) as u64;
        if on {
            warn!(percent, limit = mark, "the disk is nearly full: push messages are refused");
        } else {
            info!(percent, "the disk has enough space again: push messages are accepted");
        }
        self.0.store(on, Ordering::Relaxed);
    }
}

/// Twice as far from a full disk as the watermark of publishes, and where there is not so much, at half
/// of it.
fn push_mark(refuse: u8) -> f64 {
    let refuse = f64::from(refuse);
    (2.0 * refuse - 100.0).max(refuse / 2.0)
}

/// Whether a watermark in percent is reached, or was and is not left yet.
fn is_reached(mark: f64, used: f64, before: bool) -> bool {
    // At the lowest watermarks there is less room below.
    let ease = if before { EASE.min(mark / 10.0) } else { 0.0 };
    used * 100.0 >= mark - ease
}

/// What was said last, so that each change is said once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Roomy,
    Warned,
    Full,
}

/// Looks every now and then, until it is told to stop.
pub async fn watch(
    path: PathBuf,
    limits: Disk,
    admission: Arc<Admission>,
    brake: Arc<Brake>,
    stop: CancellationToken,
) {
    describe_gauge!(USED, "Used fraction of the data directory's file system");
    let mut state = State::Roomy;
    loop {
        let looked = path.clone();
        let used = tokio::task::spawn_blocking(move || used_ratio(&looked)).await;
        match used {
            Ok(Ok(used)) => {
                gauge!(USED).set(used);
                let next = judge(state, used, limits);
                if next != state {
                    tell(state, next, used, limits, &path);
                    state = next;
                }
                admission.set_disk_used((used * 100.0) as u8);
                admission.set_disk_full(state == State::Full);
                let near = (state >= State::Warned).then_some((used * 100.0) as u8);
                admission.set_disk_near_full(near);
                brake.judge(used, limits);
            }
            Ok(Err(e)) => {
                warn!(path = %path.display(), error = %e, "the disk usage cannot be read")
            }
            Err(e) => warn!(error = %e, "the disk usage cannot be read"),
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(limits.refresh) => {}
        }
    }
}

fn judge(before: State, used: f64, limits: Disk) -> State {
    let reached = |percent: u8, state: State| {
        percent < 100 && is_reached(f64::from(percent), used, before >= state)
    };
    if reached(limits.refuse, State::Full) {
        State::Full
    } else if reached(limits.warn, State::Warned) {
        State::Warned
    } else {
        State::Roomy
    }
}

fn tell(before: State, now: State, used: f64, limits: Disk, path: &Path) {
    let (percent, path) = ((used * 100.0) as u64, path.display());
    match now {
        State::Full => error!(percent, limit = limits.refuse, %path,
            "the disk is nearly full: publishes are refused, deliveries continue; free some space"),
        State::Warned if before == State::Full => {
            warn!(percent, %path, "the disk has enough space again: publishes are accepted");
        }
        State::Warned => warn!(percent, refused_at = limits.refuse, %path,
            "the disk is getting full; free some space or shorten engine.event_retention"),
        State::Roomy => info!(percent, %path, "the disk has enough space again"),
    }
}

/// As `df` counts: what is reserved for the superuser is neither used nor free.
fn used_ratio(path: &Path) -> std::io::Result<f64> {
    let stat = rustix::fs::statvfs(path)?;
    let used = stat.f_blocks.saturating_sub(stat.f_bfree) as f64;
    let usable = used + stat.f_bavail as f64;
    Ok(if usable > 0.0 { used / usable } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_watermarks_are_where_they_say() {
        let limits = Disk { warn: 85, refuse: 92, refresh: std::time::Duration::from_secs(5) };
        for (used, state) in [
            (0.0, State::Roomy),
            (0.849, State::Roomy),
            (0.85, State::Warned),
            (0.919, State::Warned),
            (0.92, State::Full),
            (1.0, State::Full),
        ] {
            assert_eq!(judge(State::Roomy, used, limits), state, "{used}");
        }
        let off = Disk { warn: 100, refuse: 100, ..limits };
        assert_eq!(judge(State::Full, 1.0, off), State::Roomy);
    }

    #[test]
    fn a_disk_at_the_watermark_does_not_flip_between_two_states() {
        use State::{Full, Roomy, Warned};
        let limits = Disk { warn: 85, refuse: 92, refresh: std::time::Duration::from_secs(5) };
        let mut state = Roomy;
        let mut seen = Vec::new();
        for used in [0.919, 0.92, 0.919, 0.92, 0.901, 0.92, 0.899, 0.92, 0.84, 0.85, 0.831, 0.829] {
            let next = judge(state, used, limits);
            if next != state {
                seen.push((used, next));
                state = next;
            }
        }
        let expected = [
            (0.919, Warned),
            (0.92, Full),
            (0.899, Warned),
            (0.92, Full),
            (0.84, Warned),
            (0.829, Roomy),
        ];
        assert_eq!(seen, expected);
        let low = Disk { warn: 1, refuse: 1, ..limits };
        assert_eq!(judge(Full, 0.0, low), Roomy, "even the lowest watermark can be left");
    }

    #[test]
    fn push_stops_while_publishes_still_have_room() {
        let limits = Disk { warn: 85, refuse: 92, refresh: std::time::Duration::from_secs(5) };
        let brake = Brake::default();
        for (used, on) in
            [(0.5, false), (0.839, false), (0.84, true), (0.821, true), (0.819, false), (1.0, true)]
        {
            brake.judge(used, limits);
            assert_eq!(brake.is_on(), on, "{used}");
        }
        assert!(judge(State::Roomy, 0.84, limits) < State::Full);
        brake.judge(1.0, Disk { refuse: 100, ..limits });
        assert!(!brake.is_on(), "nobody looks");
        for refuse in 1..100 {
            let mark = push_mark(refuse);
            assert!(0.0 < mark && mark < f64::from(refuse), "{refuse}: {mark}");
        }
        assert_eq!([push_mark(92), push_mark(60), push_mark(1)], [84.0, 30.0, 0.5]);
    }

    #[test]
    fn the_disk_of_this_test_can_be_asked() {
        let used = used_ratio(Path::new("/")).expect("an answer");
        assert!((0.0..=1.0).contains(&used), "{used}");
        used_ratio(Path::new("/no/such/place")).expect_err("no certificate found");
    }
}
