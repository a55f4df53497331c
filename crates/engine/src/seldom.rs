//! For words that would be said too often: one a second, with a count of what was left out.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// How often the word may be said.
const GAP: Duration = Duration::from_secs(1);

/// Counts how often something happens, and says when it is time to speak of it.
#[derive(Default)]
pub(crate) struct Seldom(Mutex<State>);

#[derive(Default)]
struct State {
    said_at: Option<Instant>,
    left_out: usize,
}

impl Seldom {
    /// It happened `times` more. When it is time to speak, how often it had happened since the last word.
    pub(crate) fn count(&self, times: usize) -> Option<usize> {
        let mut state = self.0.lock();
        let now = Instant::now();
        if state.said_at.is_some_and(|said| now.saturating_duration_since(said) < GAP) {
            state.left_out += times;
            return None;
        }
        state.said_at = Some(now);
        Some(std::mem::take(&mut state.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_word_a_second_and_none_is_forgotten() {
        let seldom = Seldom::default();
        assert_eq!(seldom.count(1), Some(0));
        assert_eq!((seldom.count(2), seldom.count(3)), (None, None));
        tokio::time::sleep(GAP).await;
        assert_eq!(seldom.count(1), Some(5));
        assert_eq!(seldom.count(1), None);
    }
}
