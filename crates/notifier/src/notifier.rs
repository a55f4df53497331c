//! The interface payment servers talk to.

use async_trait::async_trait;
use posthorn::VaultKey;

use crate::config::{Backend, CallbacksConfig};
use crate::error::Error;
use crate::event::{PaymentEvent, RefundEvent};
use crate::persistent::PersistentNotifier;
use crate::retryable::RetryableNotifier;

/// Tells the world about payments. Nothing a receiver does ever comes back to the caller: the calls
/// return as soon as the notifier has taken the event over, which for the persistent one means that
/// it is committed.
#[async_trait]
pub trait Notifier: Send + Sync + 'static {
    /// Somebody paid.
    async fn payment_succeeded(&self, event: PaymentEvent);

    /// Somebody got their money back.
    async fn refund_succeeded(&self, event: RefundEvent);

    /// Stops in good order. To be called before the process ends, and only once.
    async fn close(&self);
}

/// Starts the notifier a block asks for: none of any effect without a URL, else the one of its
/// `backend`. `place` is where a backend that outlives the process keeps its work: the URL of a
/// PostgreSQL database, which needs a seal key that all processes on it share, or a folder.
pub async fn start(
    config: CallbacksConfig,
    place: Option<&str>,
    seal_key: Option<VaultKey>,
) -> Result<Box<dyn Notifier>, Error> {
    let Some(callbacks) = config.check()? else { return Ok(Box::new(NoopNotifier)) };
    let needs = |what: &str| Error::Open(format!("callbacks.backend needs {what}"));
    Ok(match callbacks.backend {
        Backend::Memory => Box::new(RetryableNotifier::builder(config).start()?),
        Backend::Postgres => {
            let url = place.ok_or_else(|| needs("the URL of a database"))?;
            let mut builder = PersistentNotifier::postgres(config, url);
            if let Some(key) = seal_key {
                builder = builder.seal_key(key);
            }
            Box::new(builder.start().await?)
        }
        Backend::Sqlite => {
            let folder = place.ok_or_else(|| needs("a folder for its database"))?;
            let mut builder = PersistentNotifier::sqlite(config, folder);
            if let Some(key) = seal_key {
                builder = builder.seal_key(key);
            }
            Box::new(builder.start().await?)
        }
    })
}

/// Discards everything: callbacks are off.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoopNotifier;

#[async_trait]
impl Notifier for NoopNotifier {
    async fn payment_succeeded(&self, _event: PaymentEvent) {}

    async fn refund_succeeded(&self, _event: RefundEvent) {}

    async fn close(&self) {}
}
