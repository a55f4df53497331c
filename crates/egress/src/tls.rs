//! The one TLS configuration all connections share, so that sessions can be resumed.

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use crate::client::Error;

/// Sessions remembered for resumption; a full handshake costs ten times a resumed one.
const SESSIONS_MAX: usize = 4_096;

/// Certificates are always verified: against the public roots, and `extra_roots_pem` if given.
pub(crate) fn config(extra_roots_pem: Option<&[u8]>) -> Result<Arc<ClientConfig>, Error> {
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
    // The provider is named, so that another crate's choice of provider cannot change or break it.
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])
        .map_err(Error::Tls)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.resumption = Resumption::in_memory_sessions(SESSIONS_MAX);
    Ok(Arc::new(config))
}
