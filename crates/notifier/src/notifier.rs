//! The interface payment servers talk to.

use async_trait::async_trait;

use crate::event::{PaymentEvent, RefundEvent};

/// Tells the world about payments. Nothing a receiver does ever comes back to the caller: the calls
/// return as soon as the notifier has taken the event over, which for the persistent one means that
/// it is committed.
#[async_trait]
pub trait Notifier: Send + Sync + 'static {
    /// Somebody paid.
    async fn payment_succeeded(&self, event: PaymentEvent);

    /// Somebody got their money back.
    async fn refund_succeeded(&self, event: RefundEvent);
}

/// Discards everything: callbacks are off.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoopNotifier;

#[async_trait]
impl Notifier for NoopNotifier {
    async fn payment_succeeded(&self, _event: PaymentEvent) {}

    async fn refund_succeeded(&self, _event: RefundEvent) {}
}
