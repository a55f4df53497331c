//! TLS of the listener: our certificate, and those that clients show.
//!
//! # Theory of operation
//! A client certificate is accepted from any issuer, and even when it has expired: the handshake only
//! proves that the client has its private key. Whether the certificate is anybody's is decided per
//! request by the registry, where it can be revoked within a moment; an alert in a handshake would
//! tell a caller less than an answer does, and would need a restart to change its mind.
//!
//! The configuration is exchanged as a whole by [`Tls::replace`], so that a new certificate of ours is
//! used from the next handshake on. Sessions are kept per configuration and with the certificate of
//! the client, so that a resumed connection is known like the first one.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use aws_lc_rs::digest::{SHA256, digest};
use posthorn_domain::Thumbprint;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoClientAuth, ServerConfig};
use rustls::sign::CertifiedKey;
use rustls::{DigitallySignedStruct, DistinguishedName, InconsistentKeys, SignatureScheme};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::metrics;
use crate::peer::PeerCertificate;

/// Longest certificate of a client that is looked at; real ones are a tenth of it.
const CERTIFICATE_BYTES_MAX: usize = 32 * 1024;

/// Whether clients are asked for certificates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientCertificates {
    /// They are not.
    #[default]
    Off,
    /// They are; those without one are let in all the same, and need a key.
    Ask,
    /// They are; those without one are not let in at all.
    Require,
}

/// Why a certificate and its key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// Not PEM, or no certificate in it.
    #[error("has no certificate; it must have sections -----BEGIN CERTIFICATE-----")]
    Certificate,
    /// Not PEM, or no key in it.
    #[error("has no private key; PKCS #8, PKCS #1 and SEC 1 sections in PEM are supported")]
    Key,
    /// Key and certificate do not belong together.
    #[error("does not belong to the first certificate of server.tls.certificate")]
    Mismatch,
    /// Refused by the TLS library.
    #[error("cannot be used: {0}")]
    Unusable(#[from] rustls::Error),
}

/// TLS as the listener speaks it.
pub struct Tls {
    clients: ClientCertificates,
    config: ArcSwap<ServerConfig>,
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("clients", &self.clients).finish_non_exhaustive()
    }
}

impl Tls {
    /// From PEM texts: the chain, our own certificate first, and its private key.
    pub fn new(
        chain_pem: &[u8],
        key_pem: &[u8],
        clients: ClientCertificates,
    ) -> Result<Self, TlsError> {
        let config = config(chain_pem, key_pem, clients)?;
        Ok(Self { clients, config: ArcSwap::from_pointee(config) })
    }

    /// Whether clients are asked for certificates at all.
    pub fn asks(&self) -> bool {
        self.clients != ClientCertificates::Off
    }

    /// Uses another certificate from the next handshake on. When it cannot be used, nothing changes.
    pub fn replace(&self, chain_pem: &[u8], key_pem: &[u8]) -> Result<(), TlsError> {
        self.config.store(Arc::new(config(chain_pem, key_pem, self.clients)?));
        Ok(())
    }

    /// Shakes hands within `limit`; `None` when it does not come about, which is the client's loss.
    pub(crate) async fn accept(
        &self,
        stream: TcpStream,
        limit: Duration,
    ) -> Option<(TlsStream<TcpStream>, Option<PeerCertificate>)> {
        let acceptor = TlsAcceptor::from(self.config.load_full());
        let failed = |reason: &'static str| {
            ::metrics::counter!(metrics::HANDSHAKE_FAILURES, "reason" => reason).increment(1);
        };
        match tokio::time::timeout(limit, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => {
                let chain = stream.get_ref().1.peer_certificates();
                let certificate = chain.and_then(<[_]>::first).map(peer_certificate);
                Some((stream, certificate))
            }
            Ok(Err(e)) => {
                tracing::debug!(error = %e, "a TLS handshake failed");
                failed("failed");
                None
            }
            Err(_) => {
                tracing::debug!("a TLS handshake timed out");
                failed("time");
                None
            }
        }
    }
}

/// The provider is named, so that another crate's choice of provider cannot change or break it.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}

fn config(
    chain_pem: &[u8],
    key_pem: &[u8],
    clients: ClientCertificates,
) -> Result<ServerConfig, TlsError> {
    let provider = provider();
    let chain: Vec<_> = CertificateDer::pem_slice_iter(chain_pem)
        .collect::<Result<_, _>>()
        .map_err(|_| TlsError::Certificate)?;
    if chain.is_empty() {
        return Err(TlsError::Certificate);
    }
    let key = PrivateKeyDer::from_pem_slice(key_pem).map_err(|_| TlsError::Key)?;
    let key = provider.key_provider.load_private_key(key)?;
    match CertifiedKey::new(chain.clone(), Arc::clone(&key)).keys_match() {
        // Some kinds of keys cannot say what their public half is.
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => {}
        Err(rustls::Error::InconsistentKeys(_)) => return Err(TlsError::Mismatch),
        Err(e) => return Err(e.into()),
    }
    let verifier: Arc<dyn ClientCertVerifier> = match clients {
        ClientCertificates::Off => Arc::new(NoClientAuth),
        ClientCertificates::Ask | ClientCertificates::Require => Arc::new(AnyIssuer {
            required: clients == ClientCertificates::Require,
            provider: Arc::clone(&provider),
        }),
    };
    let key = Arc::new(CertifiedKey::new(chain, key));
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13, &rustls::version::TLS12])?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(rustls::sign::SingleCertAndKey::from(key)));
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

fn peer_certificate(certificate: &CertificateDer<'_>) -> PeerCertificate {
    let mut thumbprint = [0; 32];
    thumbprint.copy_from_slice(digest(&SHA256, certificate).as_ref());
    PeerCertificate { thumbprint: Thumbprint(thumbprint), country: country(certificate) }
}

/// The first country of the subject.
fn country(certificate: &CertificateDer<'_>) -> Option<String> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let country = parsed.subject().iter_country().next()?.as_str().ok()?;
    Some(country.to_owned())
}

/// Lets any certificate pass whose private key the client has.
#[derive(Debug)]
struct AnyIssuer {
    required: bool,
    provider: Arc<CryptoProvider>,
}

impl ClientCertVerifier for AnyIssuer {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn client_auth_mandatory(&self) -> bool {
        self.required
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let malformed = rustls::Error::InvalidCertificate(rustls::CertificateError::BadEncoding);
        if end_entity.len() > CERTIFICATE_BYTES_MAX {
            return Err(malformed);
        }
        X509Certificate::from_der(end_entity).map_err(|_| malformed)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
