//! The notifier: webhooks of a payment server, as a library in its own process.
//!
//! # What it is for
//! A payment server says "this was paid" or "this was refunded" and goes on; the notifier brings it
//! to the configured URL, signed, with retries. There are three [`Notifier`]s:
//! * [`NoopNotifier`] when no URL is configured,
//! * [`RetryableNotifier`] in memory: quick, and lost with the process,
//! * [`PersistentNotifier`] on the engine: committed before the call returns, and resumed after a
//!   crash.
//!
//! # Theory of operation
//! [`CallbacksConfig`] becomes a policy over the profile `cedros`. Both notifiers make their
//! attempts with the engine's own request builder and way out, so that the wire contract exists
//! once: headers, signature and timestamp are of the attempt, redirects are never followed, and
//! addresses are vetted.
//!
//! # What it must not know
//! No HTTP routes.
//!
//! # Where to start
//! `examples/payment_server.rs`; [`start`] for the notifier a block asks for,
//! [`RetryableNotifier::builder`] and [`PersistentNotifier::sqlite`] for more choice.

mod clock;
pub mod config;
pub mod dlq;
mod error;
pub mod event;
mod notifier;
pub mod observe;
mod once;
mod persistent;
mod retryable;
mod standing;

pub use clock::SystemClock;
pub use config::{Backend, Callbacks, CallbacksConfig, ConfigError, RetryConfig};
pub use dlq::{DlqError, DlqStore, FailedWebhook, FileDlqStore, MemoryDlqStore, NoopDlqStore};
pub use error::Error;
pub use event::{EventTime, PaymentEvent, RefundEvent, prepare_payment, prepare_refund};
pub use notifier::{NoopNotifier, Notifier, start};
pub use observe::{
    MetricsFacade, ObserveWebhook, WebhookObservation, WebhookStatus, describe_metrics,
    observe_outcomes,
};
pub use once::{SentOnce, send_json_once, send_once, send_once_through};
pub use persistent::{Enqueued, PersistentBuilder, PersistentNotifier};
pub use posthorn_egress::{AddressRule, Options as EgressOptions};
pub use posthorn_engine::{Engine, Transport};
pub use posthorn_sealing::vault::VaultKey;
pub use retryable::{RetryableBuilder, RetryableNotifier};
pub use standing::{PROFILE, SUBSCRIPTION_NAME, Standing, keep_subscription, retire_subscriptions};
