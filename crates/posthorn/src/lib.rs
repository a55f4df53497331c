//! Webhook and notification delivery inside your own process.
//!
//! You publish an event once. Everybody who subscribed gets it: signed, tried again until it is taken, and, on a
//! database, also after a crash. It is the engine of the Posthorn server as a library.
//!
//! ```
//! use posthorn::{Event, Posthorn, Subscription};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), posthorn::Error> {
//! // `.sqlite("data")` keeps everything in a folder instead.
//! let posthorn = Posthorn::builder().in_memory().build().await?;
//!
//! let shop = Subscription::to("https://shop.example/hooks").named("shop").topic("orders");
//! let shop = posthorn.subscribe(shop).await?;
//! // Shown once: the receiver needs it to verify signatures.
//! assert!(shop.secret.is_some());
//!
//! let event = Event::json("orders", "order.paid", &serde_json::json!({"order": 42}))?;
//! let published = posthorn.publish(event).await?;
//! assert_eq!(published.deliveries, 1);
//!
//! posthorn.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! # What it does
//! * [`Posthorn::publish`] returns when the event and its deliveries are committed.
//! * [`Posthorn::subscribe`] says who wants which events, where, and by which policy (*profile*). Repeated for the
//!   same name, it changes what differs, and nothing when nothing does, so it can be called at every start.
//! * [`Posthorn::outcomes`] is a stream of deliveries that have ended.
//! * [`Posthorn::shutdown`] finishes or hands back what is under way.
//! * Receivers on private networks are closed unless [`Builder::allow`] opens them. Redirects are never followed.
//!
//! Everything else that the engine can do is behind [`Posthorn::engine`], with its types in [`engine`] and [`domain`].
//!
//! # Features
//! `sqlite` (the default): [`Builder::sqlite`] and [`Builder::in_memory`]. `postgres`: `Builder::postgres`. `push`:
//! `Builder::push`.
//!
//! # What it must not know
//! Configuration files, command lines, routes of an API.

#[cfg(not(any(feature = "sqlite", feature = "postgres")))]
compile_error!("posthorn needs a database: enable the feature `sqlite` or `postgres`");

mod builder;
mod clock;
mod error;
mod event;
mod handle;
mod open;
mod outcomes;
#[cfg(feature = "push")]
mod push;
mod subscription;

pub use builder::Builder;
pub use clock::SystemClock;
pub use error::Error;
pub use event::Event;
pub use handle::Posthorn;
pub use outcomes::Outcomes;
pub use subscription::{Subscribed, Subscription};

#[doc(inline)]
pub use posthorn_engine::{EndedDelivery as Outcome, Published};
#[doc(inline)]
pub use posthorn_sealing::vault::{Secret, VaultKey};

pub use posthorn_domain as domain;
pub use posthorn_egress as egress;
pub use posthorn_engine as engine;
