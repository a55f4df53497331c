//! Deliveries as they end.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::StreamExt as _;
use futures_util::stream::{BoxStream, Stream, unfold};
use posthorn_engine::OutcomeStream;

use crate::Outcome;

/// Deliveries as they end: delivered, given up or cancelled. It ends when everything has been shut down.
///
/// It is bounded, for figures and hints: whoever reads too slowly misses the oldest, which the metric
/// `posthorn_outcomes_missed_total` counts. What became of a delivery for certain is in the store.
pub struct Outcomes(BoxStream<'static, Outcome>);

impl Outcomes {
    pub(crate) fn new(outcomes: OutcomeStream) -> Self {
        let told = unfold(outcomes, |mut outcomes| async move {
            outcomes.next().await.map(|ended| (ended, outcomes))
        });
        Self(told.boxed())
    }

    /// The next one; `None` when there will be no more.
    pub async fn next(&mut self) -> Option<Outcome> {
        self.0.next().await
    }
}

impl Stream for Outcomes {
    type Item = Outcome;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Outcome>> {
        self.0.poll_next_unpin(context)
    }
}
