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
//! [`CallbacksConfig`] becomes a policy over the profile `cedros`. Both notifiers stand on [`posthorn`]: the persistent
//! one on a database of its own, the one in memory on its courier, which makes the same attempts without a store. So the
//! wire contract exists once: headers, signature and timestamp are of the attempt, redirects are never followed, and
//! addresses are vetted.
//!
//! # What it must not know
//! No HTTP routes.
//!
//! # Where to start
//! `examples/payment_server.rs`; [`start`] for the notifier a block asks for,
//! [`RetryableNotifier::builder`] and [`PersistentNotifier::sqlite`] for more choice.

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
pub use posthorn::egress::{AddressRule, Options as EgressOptions};
pub use posthorn::{SystemClock, VaultKey};
pub use posthorn_engine::{Engine, Transport};
pub use retryable::{RetryableBuilder, RetryableNotifier};
pub use standing::{PROFILE, SUBSCRIPTION_NAME, Standing, keep_subscription, retire_subscriptions};
