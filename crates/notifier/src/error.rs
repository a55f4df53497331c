//! What can go wrong when a notifier is set up or used directly.

use posthorn_domain::NameError;

use crate::config::ConfigError;
use crate::dlq::DlqError;

/// What can go wrong.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The `callbacks:` block is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Callbacks are off: there is no URL to send to.
    #[error("callbacks.payment_success_url is not set, so there is nowhere to send to")]
    NoUrl,
    /// The way out cannot be set up.
    #[error("outgoing connections cannot be set up")]
    Egress(#[source] posthorn::egress::Error),
    /// The engine said no.
    #[error(transparent)]
    Engine(#[from] posthorn_engine::Error),
    /// The database cannot be opened.
    #[error("the database cannot be opened: {0}")]
    Open(String),
    /// The key that seals secrets is missing or unreadable.
    #[error("{0}")]
    SealKey(String),
    /// Dead letters cannot be kept.
    #[error(transparent)]
    Dlq(#[from] DlqError),
    /// An event's id or type cannot be used.
    #[error("{field}: {source}")]
    Event {
        /// Which field.
        field: &'static str,
        /// Why.
        #[source]
        source: NameError,
    },
    /// What should be sent is not an event.
    #[error("the payload is not an event: a JSON object whose eventId and eventType are texts")]
    Payload(#[source] serde_json::Error),
    /// The one attempt did not succeed.
    #[error("the webhook was not accepted: {0}")]
    NotDelivered(String),
}

impl From<posthorn::Error> for Error {
    fn from(error: posthorn::Error) -> Self {
        use posthorn::Error::{Egress, Engine, NoSealKey, Postgres, SealKey, Sqlite};
        match error {
            Egress(source) => Self::Egress(source),
            Engine(source) => Self::Engine(source),
            SealKey { path, source } => Self::SealKey(format!("{}: {source}", path.display())),
            missing @ NoSealKey => Self::SealKey(missing.to_string()),
            Sqlite(source) => Self::Open(chain(&source)),
            Postgres(source) => Self::Open(chain(&source)),
            other => Self::Open(chain(&other)),
        }
    }
}

/// An error with all its causes, for one line.
fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
