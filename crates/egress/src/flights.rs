//! Single flight: those who ask the same question at the same time share one answer.
//!
//! It keeps nothing: an answer is forgotten as soon as the first of those who waited for it has
//! it, so that a cache below stays the only one that decides how long an answer is good.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::OnceCell;

/// Questions under way.
pub(crate) struct Flights<T> {
    under_way: Mutex<HashMap<Box<str>, Weak<OnceCell<T>>>>,
}

impl<T> Default for Flights<T> {
    fn default() -> Self {
        Self { under_way: Mutex::default() }
    }
}

impl<T: Clone> Flights<T> {
    /// The answer to `question`: of somebody who is asking already, or by asking. When the one who
    /// asks gives up, the next of those who wait asks anew.
    pub(crate) async fn join<F, R>(&self, question: &str, ask: F) -> T
    where
        F: FnOnce() -> R,
        R: Future<Output = T>,
    {
        let flight = Flight { flights: self, question, cell: Some(self.board(question)) };
        match &flight.cell {
            Some(cell) => cell.get_or_init(ask).await.clone(),
            // Only taken when the flight is dropped.
            None => ask().await,
        }
    }

    fn board(&self, question: &str) -> Arc<OnceCell<T>> {
        let mut under_way = self.under_way.lock();
        if let Some(cell) = under_way.get(question).and_then(Weak::upgrade) {
            return cell;
        }
        let cell = Arc::new(OnceCell::new());
        under_way.insert(question.into(), Arc::downgrade(&cell));
        cell
    }
}

/// One who waits; also when it is dropped while waiting.
struct Flight<'a, T> {
    flights: &'a Flights<T>,
    question: &'a str,
    cell: Option<Arc<OnceCell<T>>>,
}

impl<T> Drop for Flight<'_, T> {
    fn drop(&mut self) {
        let Some(cell) = self.cell.take() else { return };
        let mut under_way = self.flights.under_way.lock();
        let ours = under_way
            .get(self.question)
            .is_some_and(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(&cell)));
        // Answered, or nobody else waits for it.
        if ours && (cell.initialized() || Arc::strong_count(&cell) == 1) {
            under_way.remove(self.question);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn those_who_ask_at_the_same_time_share_one_answer() {
        let flights = Flights::default();
        let asked = AtomicUsize::new(0);
        let ask = || async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            asked.fetch_add(1, Ordering::SeqCst)
        };
        let (a, b, c) =
            tokio::join!(flights.join("a", ask), flights.join("a", ask), flights.join("b", ask));
        assert_eq!(a, b);
        assert_ne!(a, c);
        assert_eq!(asked.load(Ordering::SeqCst), 2);
        assert!(flights.under_way.lock().is_empty(), "nothing is kept");
        assert_eq!(flights.join("a", ask).await, 2, "the next question is asked anew");
    }

    #[tokio::test(start_paused = true)]
    async fn when_the_one_who_asks_gives_up_another_asks() {
        let flights = Flights::default();
        let asked = AtomicUsize::new(0);
        let ask = || async {
            asked.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_secs(2)).await;
        };
        let impatient = tokio::time::timeout(Duration::from_secs(1), flights.join("a", ask));
        let patient = tokio::time::timeout(Duration::from_secs(5), flights.join("a", ask));
        let (impatient, patient) = tokio::join!(impatient, patient);
        assert!(impatient.is_err() && patient.is_ok());
        assert_eq!(asked.load(Ordering::SeqCst), 2);
        let alone = tokio::time::timeout(Duration::from_secs(1), flights.join("a", ask)).await;
        assert!(alone.is_err());
        assert!(flights.under_way.lock().is_empty(), "nothing is left behind");
    }
}
