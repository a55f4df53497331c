//! Gathers questions of many askers into batches: while one batch is under way, the next forms.
//!
//! Nothing waits for a batch to fill. Somebody who asks alone is answered at once; when many ask, the
//! store sees few large batches instead of many small ones.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::{Semaphore, oneshot};

/// Where questions of one kind are handed in.
///
/// A session has one question out at a time, so there are never more than connections. Requests
/// may give up waiting and ask again, so the questions of those are bounded here.
pub(crate) struct Gather<T> {
    queue: UnboundedSender<T>,
    length: Arc<AtomicUsize>,
}

/// So many questions of requests may wait; more are not answered.
const QUEUE_MAX: usize = 16_384;

impl<T: Send + 'static> Gather<T> {
    /// Batches of at most `largest`, at most `abreast` of them under way. Ends with the last sender.
    pub(crate) fn start<F, Fut>(largest: usize, abreast: usize, work: F) -> Self
    where
        F: Fn(Vec<T>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = ()> + Send + 'static,
    {
        let (sender, queue) = mpsc::unbounded_channel();
        let length = Arc::new(AtomicUsize::new(0));
        let places = Arc::new(Semaphore::new(abreast));
        tokio::spawn(forward(queue, Arc::clone(&length), largest, places, work));
        Self { queue: sender, length }
    }

    /// Hands in a question. What is handed in after the runtime began to end is dropped.
    pub(crate) fn hand_in(&self, question: T) {
        self.length.fetch_add(1, Ordering::Relaxed);
        let _ = self.queue.send(question);
    }
}

/// A question with somebody who waits for its answer.
pub(crate) type Waiting<Q, A> = (Q, oneshot::Sender<A>);

impl<Q: Send + 'static, A: Send + 'static> Gather<Waiting<Q, A>> {
    /// Asks and waits. `None` when nobody knows the answer, or too many wait for theirs.
    pub(crate) async fn ask(&self, question: Q) -> Option<A> {
        if self.length.load(Ordering::Relaxed) >= QUEUE_MAX {
            return None;
        }
        let (reply, answer) = oneshot::channel();
        self.hand_in((question, reply));
        answer.await.ok()
    }
}

async fn forward<T, F, Fut>(
    mut queue: UnboundedReceiver<T>,
    length: Arc<AtomicUsize>,
    largest: usize,
    abreast: Arc<Semaphore>,
    work: F,
) where
    T: Send + 'static,
    F: Fn(Vec<T>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    loop {
        // The place comes first: whatever is asked until there is one belongs to the same batch.
        let Ok(place) = Arc::clone(&abreast).acquire_owned().await else { return };
        let mut batch = Vec::new();
        if queue.recv_many(&mut batch, largest).await == 0 {
            return;
        }
        length.fetch_sub(batch.len(), Ordering::Relaxed);
        let done = work(batch);
        tokio::spawn(async move {
            done.await;
            drop(place);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn questions_that_come_while_a_batch_is_under_way_share_the_next() {
        let batches = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&batches);
        let (go, gate) = tokio::sync::watch::channel(false);
        let gather: Arc<Gather<Waiting<u32, u32>>> =
            Arc::new(Gather::start(100, 1, move |batch: Vec<Waiting<u32, u32>>| {
                let mut gate = gate.clone();
                counted.fetch_add(1, Ordering::SeqCst);
                async move {
                    gate.wait_for(|open| *open).await.expect("the gate stays");
                    for (question, reply) in batch {
                        let _ = reply.send(question * 2);
                    }
                }
            }));
        let first = tokio::spawn({
            let gather = Arc::clone(&gather);
            async move { gather.ask(1).await }
        });
        while batches.load(Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        let rest: Vec<_> = (2..50)
            .map(|n| {
                let gather = Arc::clone(&gather);
                tokio::spawn(async move { gather.ask(n).await })
            })
            .collect();
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        go.send(true).expect("somebody waits");
        assert_eq!(first.await.expect("no panic"), Some(2));
        for (n, answer) in (2..50).zip(rest) {
            assert_eq!(answer.await.expect("no panic"), Some(n * 2));
        }
        assert_eq!(batches.load(Ordering::SeqCst), 2);
    }
}
