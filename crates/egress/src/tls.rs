//! TLS configurations: one for everybody, and one for each identity and trust of its own.
//!
//! Theory of operation. A configuration says what we present and whom we trust. A session cache
//! belongs to one tenant and one configuration: a ticket from one tenant's connection must not
//! tell a receiver that another tenant is the same machine, and a session opened with a client
//! certificate must never serve a request that has none. So configurations are kept without a
//! cache, and each tenant gets a cheap copy with its own, made at its first handshake.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use aws_lc_rs::digest::{self, SHA256};
use parking_lot::Mutex;
use posthorn_domain::TenantId;
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use crate::certificate::{CertificateError, Identity, certificates};
use crate::client::Error;

/// Sessions remembered for each tenant; a full handshake costs ten times a resumed one. The
/// library sets the room aside at once, eight sessions to a receiver.
const SESSIONS_PER_TENANT: usize = 1_024;
/// Session caches kept at a time. Whoever is away longest loses its own.
const CACHES_MAX: usize = 256;
/// Most authorities one trust can have.
const AUTHORITIES_MAX: usize = 64;

/// What tells two configurations apart: a hash over everything that is in them.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TlsId([u8; 32]);

/// A client certificate to present, authorities to trust, or both. Made by
/// [`crate::Egress::client_tls`]; make it once and share it.
pub struct ClientTls {
    id: TlsId,
    config: ClientConfig,
    has_identity: bool,
}

impl ClientTls {
    pub(crate) fn id(&self) -> TlsId {
        self.id
    }

    /// Whether it presents a client certificate. Without TLS nobody could see it, so such
    /// requests are not sent over plain http.
    pub fn has_identity(&self) -> bool {
        self.has_identity
    }
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientTls")
            .field("has_identity", &self.has_identity)
            .finish_non_exhaustive()
    }
}

/// Every TLS configuration in use.
pub(crate) struct Tls {
    roots: Arc<RootCertStore>,
    plain: ClientConfig,
    caches: Mutex<Caches>,
}

#[derive(Default)]
struct Caches {
    configs: HashMap<(TenantId, Option<TlsId>), (Arc<ClientConfig>, u64)>,
    /// Counts uses; a clock that only orders.
    uses: u64,
}

impl Tls {
    /// Certificates are always verified: against the public roots, and `extra_roots_pem` if given.
    pub(crate) fn new(extra_roots_pem: Option<&[u8]>) -> Result<Self, Error> {
        let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
        if let Some(pem) = extra_roots_pem {
            let before = roots.len();
            for certificate in CertificateDer::pem_slice_iter(pem) {
                roots.add(certificate.map_err(Error::RootsPem)?).map_err(Error::Tls)?;
            }
            if roots.len() == before {
                return Err(Error::RootsEmpty);
            }
        }
        let roots = Arc::new(roots);
        let plain = config(Arc::clone(&roots), None).map_err(Error::Tls)?;
        Ok(Self { roots, plain, caches: Mutex::default() })
    }

    pub(crate) fn client(
        &self,
        identity: Option<&Identity>,
        authorities_pem: &[&[u8]],
    ) -> Result<ClientTls, CertificateError> {
        let mut authorities = Vec::new();
        for pem in authorities_pem {
            authorities.extend(certificates(pem)?);
            if authorities.len() > AUTHORITIES_MAX {
                return Err(CertificateError::TooMany { max: AUTHORITIES_MAX });
            }
        }
        let roots = if authorities.is_empty() {
            Arc::clone(&self.roots)
        } else {
            let mut roots = RootCertStore::empty();
            for (index, authority) in authorities.iter().enumerate() {
                roots.add(authority.clone()).map_err(|source| {
                    CertificateError::AuthorityUnusable { number: index + 1, source }
                })?;
            }
            Arc::new(roots)
        };
        Ok(ClientTls {
            id: id_of(identity, authorities),
            config: config(roots, identity).map_err(CertificateError::Tls)?,
            has_identity: identity.is_some(),
        })
    }

    /// The configuration for a handshake of this tenant, with the session cache that only this
    /// tenant and this `client` use.
    pub(crate) fn for_tenant(
        &self,
        tenant: TenantId,
        client: Option<&ClientTls>,
    ) -> Arc<ClientConfig> {
        let key = (tenant, client.map(ClientTls::id));
        let mut caches = self.caches.lock();
        caches.uses += 1;
        let now = caches.uses;
        if let Some((config, used)) = caches.configs.get_mut(&key) {
            *used = now;
            return Arc::clone(config);
        }
        if caches.configs.len() >= CACHES_MAX
            && let Some(oldest) =
                caches.configs.iter().min_by_key(|(_, (_, used))| *used).map(|(key, _)| *key)
        {
            caches.configs.remove(&oldest);
        }
        let mut config = client.map_or(&self.plain, |client| &client.config).clone();
        config.resumption = Resumption::in_memory_sessions(SESSIONS_PER_TENANT);
        let config = Arc::new(config);
        caches.configs.insert(key, (Arc::clone(&config), now));
        config
    }
}

/// The provider is named, so that another crate's choice of provider cannot change or break it.
pub(crate) fn provider() -> CryptoProvider {
    rustls::crypto::aws_lc_rs::default_provider()
}

fn config(
    roots: Arc<RootCertStore>,
    identity: Option<&Identity>,
) -> Result<ClientConfig, rustls::Error> {
    let builder = ClientConfig::builder_with_provider(Arc::new(provider()))
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
        .with_root_certificates(roots);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let single = SingleCertAndKey::from(Arc::clone(identity.certified()));
            builder.with_client_cert_resolver(Arc::new(single))
        }
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// A hash over the chain we present and the authorities we trust. The key needs no part in it:
/// the certificate names its public half.
fn id_of(identity: Option<&Identity>, mut authorities: Vec<CertificateDer<'static>>) -> TlsId {
    // Neither order nor repetition changes whom we trust.
    authorities.sort_unstable_by(|one, other| one.as_ref().cmp(other.as_ref()));
    authorities.dedup();
    let chain = identity.map_or(&[][..], |identity| &identity.certified().cert);
    let mut hash = digest::Context::new(&SHA256);
    for list in [chain, &authorities] {
        hash.update(&length(list.len()));
        for certificate in list {
            hash.update(&length(certificate.len()));
            hash.update(certificate);
        }
    }
    let mut id = [0; 32];
    id.copy_from_slice(hash.finish().as_ref());
    TlsId(id)
}

fn length(length: usize) -> [u8; 8] {
    u64::try_from(length).unwrap_or(u64::MAX).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use posthorn_domain::Timestamp;
    use posthorn_testkit::authority::Pair;

    use super::*;

    #[test]
    fn session_caches_are_bounded_and_whoever_is_away_longest_loses_its_own() {
        let tls = Tls::new(None).expect("TLS");
        let tenant = |number: usize| TenantId::new(Timestamp::from_millis(1), number as u128);
        let first = tls.for_tenant(tenant(0), None);
        let second = tls.for_tenant(tenant(1), None);
        assert!(!Arc::ptr_eq(&first, &second), "never shared");
        for number in 2..2 * CACHES_MAX {
            tls.for_tenant(tenant(number), None);
            assert!(Arc::ptr_eq(&first, &tls.for_tenant(tenant(0), None)), "in use, so kept");
        }
        assert_eq!(tls.caches.lock().configs.len(), CACHES_MAX);
        assert!(!Arc::ptr_eq(&second, &tls.for_tenant(tenant(1), None)), "away, so lost");
    }

    #[test]
    fn what_is_in_a_configuration_tells_it_apart() {
        let tls = Tls::new(None).expect("TLS");
        let pem = |name: &str| {
            let pair = Pair::self_signed(name);
            (pair.certificate, pair.key)
        };
        let ((one, one_key), (other, _)) = (pem("one.example"), pem("other.example"));
        let identity = Identity::parse(one.as_bytes(), one_key.as_bytes()).expect("identity");
        let id = |identity: Option<&Identity>, trusted: &[&str]| {
            let trusted: Vec<&[u8]> = trusted.iter().map(|pem| pem.as_bytes()).collect();
            tls.client(identity, &trusted).expect("client").id()
        };
        let different = [
            id(None, &[]),
            id(Some(&identity), &[]),
            id(None, &[&one]),
            id(None, &[&other]),
            id(None, &[&one, &other]),
            id(Some(&identity), &[&one]),
        ];
        for (index, id) in different.iter().enumerate() {
            assert!(!different[..index].contains(id), "{index}");
        }
        assert!(id(None, &[&other, &one, &one]) == different[4], "order changes nothing");
        assert!(id(None, &[&(one.clone() + &other)]) == different[4], "nor how it is written");
        let debug = format!("{:?}", tls.client(Some(&identity), &[]).expect("client"));
        assert!(debug.contains("has_identity: true") && !debug.contains("KEY"), "{debug}");
    }
}
