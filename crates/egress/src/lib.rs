//! The only way out to the network: it sends one HTTP request and says what came of it.
//!
//! Theory of operation. [`Guard::check_url`] parses a URL exactly once into a [`Target`].
//! [`Egress::send`] takes a target, finds an idle connection or opens one (resolve, vet every
//! address, connect to a vetted address, TLS), exchanges one request for one answer under
//! absolute deadlines and byte limits, and gives the connection back when it is clean.
//!
//! A request may name a proxy of the operator's ([`Proxy`]); its target is judged all the same.
//!
//! What never happens here: a redirect is followed, a proxy is taken from the environment, a
//! name is resolved twice, a body is decompressed, a cookie is kept, a connection is shared by
//! two subscriptions, a task is spawned per connection.
//!
//! What it leaves to others: retries, storage, signatures, and what a delivery is.
//!
//! Start reading at `client`, then `exchange` and `link`; `guard` stands alone.

mod certificate;
mod client;
mod counters;
mod dial;
mod exchange;
mod failure;
mod flights;
mod guard;
mod link;
mod pool;
mod proxy;
mod resolve;
mod source;
mod stream;
mod target;
mod tls;

pub use certificate::{
    CertificateError, CertificateFacts, Identity, authority_facts, certificate_facts,
    certificates_only,
};
pub use client::{Deadlines, Egress, Error, Options, Request, Sent, Timings};
pub use guard::{
    AddressRefusal, AddressRule, AddressRuleError, Guard, NameRule, NameRuleError, Own, Rules,
    UrlRefusal, audit,
};
pub use pool::PoolKey;
pub use proxy::{Proxy, ProxyError, ProxyMode};
pub use source::{Source, SourceError};
pub use target::{Host, Scheme, Target};
pub use tls::ClientTls;
