//! The way out, as the engine sees it: a request goes in, what came of it comes out.

mod egress;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, Method};
use posthorn_domain::{ProxyName, SubscriptionId, TenantId};

use crate::catalog::TlsChoice;
use crate::endpoint::Endpoint;

pub use egress::EgressTransport;
pub use posthorn_egress::{Deadlines, Sent};

/// One request to be sent.
pub struct Outbound {
    /// On whose behalf; connections are never shared between tenants.
    pub tenant: TenantId,
    /// For which subscription; connections are never shared between subscriptions.
    pub subscription: SubscriptionId,
    /// Where to.
    pub endpoint: Arc<Endpoint>,
    /// Path and query, when they differ from the endpoint's.
    pub path_and_query: Option<String>,
    /// How.
    pub method: Method,
    /// Headers besides those of the connection.
    pub headers: HeaderMap,
    /// Who we are in the handshake and whom we trust, when that differs from the default.
    pub tls: Option<Arc<TlsChoice>>,
    /// Whether the name is looked up and judged also where a connection is open already.
    pub vet_always: bool,
    /// The operator's proxy that it leaves through; directly when absent.
    pub proxy: Option<ProxyName>,
    /// The body.
    pub body: Bytes,
    /// How long it may take.
    pub deadlines: Deadlines,
}

/// Why a URL may not be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct UrlProblem {
    /// Stable.
    pub code: &'static str,
    /// What is wrong and what to do.
    pub message: String,
}

/// A future on the heap: attempts are large and live in one place.
pub type Sending = Pin<Box<dyn Future<Output = Sent> + Send>>;

/// The answer to whether a host may be used.
pub type Vetting = Pin<Box<dyn Future<Output = Result<(), UrlProblem>> + Send>>;

/// The way out.
pub trait Transport: Send + Sync + 'static {
    /// Checks a URL as far as that is possible without sending anything, and normalises it.
    fn check_url(&self, url: &str) -> Result<String, UrlProblem>;

    /// Whether the host of a normalised URL resolves to allowed addresses only, right now. Nothing is
    /// connected to. Transports without names have nothing to say against any.
    fn vet(&self, _url: &str) -> Vetting {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Sends a request. Ends by its total deadline, whatever the receiver does. Dropping the future
    /// gives up.
    fn send(&self, request: Outbound) -> Sending;
}
