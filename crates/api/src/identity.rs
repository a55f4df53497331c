//! Callers who showed a certificate to a proxy in front of us, and have no key.
//!
//! The proxy ends their TLS and says in headers whose certificate it saw. Anybody can write such
//! headers, so they are read only when the connection comes from an address the operator named.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, header};
use ipnet::IpNet;
use posthorn_engine::{Engine, Principal};
use posthorn_sealing::proxy_identity;

use crate::limits::Peer;

/// Which proxy is believed, and how it speaks.
#[derive(Clone, Debug)]
pub struct ProxyIdentity {
    /// The header with the SHA-256 of the certificate.
    pub thumbprint_header: HeaderName,
    /// The header with the certificate's subject, whose country must be that of the caller.
    pub subject_header: Option<HeaderName>,
    /// Where the proxy connects from.
    pub proxies: Vec<IpNet>,
}

impl ProxyIdentity {
    /// Who calls, when a proxy that is believed says so and no key is shown.
    pub(crate) fn principal(
        &self,
        engine: &Engine,
        peer: Option<&Peer>,
        headers: &HeaderMap,
    ) -> Option<Principal> {
        if headers.contains_key(header::AUTHORIZATION) || !self.believes(peer?.address()) {
            return None;
        }
        let thumbprint = proxy_identity::thumbprint(only(headers, &self.thumbprint_header)?)?;
        let country = match &self.subject_header {
            None => None,
            Some(name) => proxy_identity::subject_part(only(headers, name)?, "C"),
        };
        engine.authenticate_certificate(thumbprint, country.as_deref())
    }

    fn believes(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.proxies.iter().any(|net| net.contains(&address))
    }
}

/// The value of a header that is there exactly once: two of them mean that one is not the proxy's.
fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}
