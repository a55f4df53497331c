//! Who is at the other end of a connection.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use posthorn_domain::Thumbprint;
use tokio::sync::watch;

use crate::bodies::Bodies;
use crate::open::{Held, Open};

/// A request that follows a refusal on the same connection within this time (in nanoseconds) came at
/// once.
const REPEATS_AT_ONCE: u64 = 50_000_000;

/// Where a request comes from: one connection of one address. It is in the extensions of every
/// request.
#[derive(Clone, Debug)]
pub struct Peer(Arc<Connection>);

#[derive(Debug)]
struct Connection {
    address: IpAddr,
    tls: bool,
    certificate: Option<PeerCertificate>,
    /// When something asked on it was last refused because of overload.
    refused_at: AtomicU64,
    /// Its place among the open ones. Weak, so that whoever keeps a peer does not keep the place.
    open: Weak<Open>,
    bodies: Option<Bodies>,
    /// Closed when its listener stops.
    stopping: Option<watch::Receiver<()>>,
}

/// The client certificate that was shown in the handshake. That the other end has its key is proven;
/// whether anybody vouches for it is not asked here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerCertificate {
    /// SHA-256 over the certificate as it is encoded.
    pub thumbprint: Thumbprint,
    /// The country its subject names.
    pub country: Option<String>,
}

impl Peer {
    /// One new connection, which no listener counts.
    pub fn new(address: IpAddr, certificate: Option<PeerCertificate>) -> Self {
        Self::with(address, false, certificate, Weak::new(), None, None)
    }

    /// One new connection of a listener.
    pub(crate) fn of(
        address: IpAddr,
        tls: bool,
        certificate: Option<PeerCertificate>,
        open: &Arc<Open>,
        bodies: Option<Bodies>,
        stopping: watch::Receiver<()>,
    ) -> Self {
        Self::with(address, tls, certificate, Arc::downgrade(open), bodies, Some(stopping))
    }

    fn with(
        address: IpAddr,
        tls: bool,
        certificate: Option<PeerCertificate>,
        open: Weak<Open>,
        bodies: Option<Bodies>,
        stopping: Option<watch::Receiver<()>>,
    ) -> Self {
        let refused_at = AtomicU64::new(0);
        let peer = Connection { address, tls, certificate, refused_at, open, bodies, stopping };
        Self(Arc::new(peer))
    }

    /// Waits until its listener stops: answers that would go on for ever end then.
    pub async fn closing(&self) {
        match self.0.stopping.clone() {
            // Nothing is ever sent; it closes.
            Some(mut stopping) => drop(stopping.changed().await),
            None => std::future::pending().await,
        }
    }

    /// The memory of large bodies, where it is bounded.
    pub fn bodies(&self) -> Option<&Bodies> {
        self.0.bodies.as_ref()
    }

    /// Keeps the connection counted as open after its HTTP has ended; `None` when there are as many
    /// sockets as there may be. To be taken while the request that upgrades it is being answered: of a
    /// connection that has ended, nothing is left to keep.
    pub fn hold(&self) -> Option<Held> {
        Held::new(self.0.open.upgrade(), self.0.address)
    }

    /// The address it comes from.
    pub fn address(&self) -> IpAddr {
        self.0.address
    }

    /// Whether the connection itself is under TLS. What stands in front of the server may have it all the same.
    pub fn is_tls(&self) -> bool {
        self.0.tls
    }

    /// The certificate that was shown.
    pub fn certificate(&self) -> Option<&PeerCertificate> {
        self.0.certificate.as_ref()
    }

    /// Notes a refusal at `now` (nanoseconds of any one clock); true when the last one was just now,
    /// so that the client repeats at once although it was asked to wait.
    pub fn refused(&self, now: u64) -> bool {
        let last = self.0.refused_at.swap(now.max(1), Ordering::Relaxed);
        last != 0 && now.saturating_sub(last) < REPEATS_AT_ONCE
    }
}

/// What counts as one address: whoever has one IPv6 address has a whole /64 of them.
pub(crate) fn source(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let prefix = v6.to_bits() & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from_bits(prefix))
        }
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_whole_network_where_networks_are_given_out() {
        let same = |a: &str, b: &str| source(a.parse().unwrap()) == source(b.parse().unwrap());
        assert!(same("2001:db8::1", "2001:db8::ffff:1:2:3"));
        assert!(!same("2001:db8::1", "2001:db8:0:1::1"));
        assert!(same("::ffff:192.0.2.1", "192.0.2.1"));
        assert!(!same("192.0.2.1", "192.0.2.2"));
    }
}
