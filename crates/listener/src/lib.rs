//! The way in: the accept loop with its limits, TLS, and who is at the other end of a connection.
//!
//! # Theory of operation
//! [`serve`] accepts connections, shakes hands where TLS is configured, and gives every request of a
//! connection to one router, with the [`Peer`] in its extensions: the address, and the client
//! certificate that was shown in the handshake. Routers that read certificates ask [`shown`], which
//! also knows of proxies that end TLS in front of us. Whoever refuses somebody for not knowing them
//! counts that in the one table of [`Failures`], so that guessing is limited over all routers of a
//! process together. A request that upgrades its connection takes [`Peer::hold`] and, once HTTP has
//! let go of it, the bare connection with [`take_stream`].
//!
//! Nobody holds a place for nothing: heads, bodies and answers have their least pace (`serve.rs`,
//! `body.rs`, `paced.rs`), large bodies share a bounded memory ([`Bodies`]), and when all places are
//! taken a small reserve still answers what operators ask (`reserve.rs`). Requests that can be read in
//! two ways are refused here (`framing.rs`, `refusal.rs`).
//!
//! # What it must not know
//! Which routes there are, what an event is, and whether a certificate is anybody's: that is for
//! those who know the registry.
//!
//! # Where to start
//! `serve.rs` for the loop, `tls.rs` for handshakes, `identity.rs` for who vouches for whom.

mod bodies;
pub mod body;
mod failures;
mod framing;
mod identity;
pub mod metrics;
mod open;
mod paced;
mod peer;
mod refusal;
mod reserve;
mod serve;
mod site;
mod table;
mod tls;
mod upgrade;

pub use bodies::{Bodies, Loan, Owner};
pub use body::BodyError;
pub use failures::Failures;
pub use identity::{ProxyIdentity, ProxyPerson, Shown, Told, only, shown};
pub use open::Held;
pub use peer::{Peer, PeerCertificate};
pub use refusal::{MALFORMED_REQUEST, TOO_MANY_CONNECTIONS};
pub use serve::{Doors, ServeLimits, Serving, serve};
pub use site::site;
pub use table::Table;
pub use tls::{ClientCertificates, Tls, TlsError};
pub use upgrade::{Stream, Taken, take_stream};
