//! Lines in the log: errors with all their causes, and not without end where others could make us
//! write them.

use std::error::Error;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicI64, Ordering};

use posthorn_domain::{Span, Timestamp};

/// An error and its causes, in one line.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let _ = write!(text, ": {error}");
        cause = error.source();
    }
    text
}

/// So long a line is not repeated.
const APART: Span = Span::from_millis(10_000);

/// Says when a line may be written again. What is left out is in the metrics.
#[derive(Debug, Default)]
pub(crate) struct Seldom {
    /// Before this moment, in milliseconds, it may not.
    next: AtomicI64,
}

impl Seldom {
    /// Whether the line may be written now; then not again for a while.
    pub(crate) fn may(&self, now: Timestamp) -> bool {
        let next = self.next.load(Ordering::Relaxed);
        let after = now.plus(APART).as_millis();
        // A clock that was set back must not make it silent for longer than that.
        (now.as_millis() >= next || next > after)
            && self.next.compare_exchange(next, after, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_comes_once_and_then_again_after_a_while() {
        let line = Seldom::default();
        let may = |millis| line.may(Timestamp::from_millis(millis));
        assert!(may(1_000_000));
        assert!(!may(1_000_000) && !may(1_009_999));
        assert!(may(1_010_000));
        assert!(!may(1_010_001));
        // The clock was set back by a lot.
        assert!(may(500_000));
        assert!(!may(500_001));
    }
}
