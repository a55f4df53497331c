//! A certificate authority for tests: certificates of servers and clients, and TLS made with them.
//!
//! Everything is PEM text, as operators have it; [`Pair`] gives the same in the forms of `rustls`.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::clock::since_1970;

mod anybody;

/// Signs whatever it is asked to.
#[derive(Debug)]
pub struct Authority {
    /// Its own certificate.
    pub pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, as PEM texts.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The certificate.
    pub certificate: String,
    /// Its private key.
    pub key: String,
}

impl Authority {
    /// A new one of this name.
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(vec![]).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("signed").pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// A certificate for this host, or this client.
    pub fn sign(&self, host: &str) -> Pair {
        self.sign_with(host, |_| {})
    }

    /// The same with something changed.
    pub fn sign_with(&self, host: &str, change: impl FnOnce(&mut CertificateParams)) -> Pair {
        let (params, key) = params(host, change);
        let certificate = params.signed_by(&key, &self.issuer).expect("signed").pem();
        Pair { certificate, key: key.serialize_pem() }
    }

    /// Its certificate in DER.
    pub fn der(&self) -> CertificateDer<'static> {
        der(&self.pem)
    }

    /// It and nobody else, to be trusted.
    pub fn roots(&self) -> Arc<RootCertStore> {
        roots(&self.pem)
    }
}

impl Pair {
    /// A certificate that nobody else signed.
    pub fn self_signed(host: &str) -> Self {
        Self::self_signed_with(host, |_| {})
    }

    /// The same with something changed.
    pub fn self_signed_with(host: &str, change: impl FnOnce(&mut CertificateParams)) -> Self {
        let (params, key) = params(host, change);
        let certificate = params.self_signed(&key).expect("signed").pem();
        Self { certificate, key: key.serialize_pem() }
    }

    /// One of a `backend` in this country.
    pub fn of_country(country: &str) -> Self {
        Self::self_signed_with("backend", |params| in_country(params, country))
    }

    /// The same, for so long from now.
    pub fn valid_for(country: &str, time: Duration) -> Self {
        Self::self_signed_with("backend", |params| {
            in_country(params, country);
            params.not_after = rcgen::date_time_ymd(1970, 1, 1) + since_1970() + time;
        })
    }

    /// The certificate in DER.
    pub fn der(&self) -> CertificateDer<'static> {
        der(&self.certificate)
    }

    /// The key in DER.
    pub fn private(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::from_pem_slice(self.key.as_bytes()).expect("a key")
    }

    /// SHA-256 of the certificate, in hex.
    pub fn thumbprint(&self) -> String {
        thumbprint(&self.der())
    }

    /// It and nobody else, to be trusted.
    pub fn roots(&self) -> Arc<RootCertStore> {
        roots(&self.certificate)
    }

    /// TLS of a server that shows this and asks for certificates as said.
    pub fn serving(&self, clients: Clients<'_>) -> Arc<ServerConfig> {
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .expect("versions");
        let builder = match clients.verifier() {
            None => builder.with_no_client_auth(),
            Some(verifier) => builder.with_client_cert_verifier(verifier),
        };
        Arc::new(builder.with_single_cert(vec![self.der()], self.private()).expect("a pair"))
    }
}

/// Whom a server asks for a certificate.
#[derive(Clone, Copy, Debug)]
pub enum Clients<'a> {
    /// Nobody.
    Unasked,
    /// Everybody, and takes any or none.
    Anybody,
    /// Everybody, and lets in only whom this authority signed.
    Of(&'a Authority),
    /// The same, and those who show none.
    OfOrNone(&'a Authority),
}

impl Clients<'_> {
    /// What `rustls` needs to know of it.
    pub fn verifier(self) -> Option<Arc<dyn ClientCertVerifier>> {
        let signed =
            |by: &Authority| WebPkiClientVerifier::builder_with_provider(by.roots(), provider());
        match self {
            Self::Unasked => None,
            Self::Anybody => Some(Arc::new(anybody::Anybody(provider()))),
            Self::Of(by) => Some(signed(by).build().expect("a verifier")),
            Self::OfOrNone(by) => {
                Some(signed(by).allow_unauthenticated().build().expect("a verifier"))
            }
        }
    }
}

/// TLS of a client that trusts one root, given as PEM, and may show a certificate.
pub fn calling(root: &str, shown: Option<&Pair>) -> Arc<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots(root));
    Arc::new(match shown {
        None => builder.with_no_client_auth(),
        Some(pair) => {
            builder.with_client_auth_cert(vec![pair.der()], pair.private()).expect("a pair")
        }
    })
}

/// The certificate of a PEM text.
pub fn der(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate")
}

/// SHA-256 of a certificate, in hex.
pub fn thumbprint(certificate: &CertificateDer<'_>) -> String {
    digest(&SHA256, certificate).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn roots(pem: &str) -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add(der(pem)).expect("a root");
    Arc::new(roots)
}

fn params(host: &str, change: impl FnOnce(&mut CertificateParams)) -> (CertificateParams, KeyPair) {
    let mut params = CertificateParams::new(vec![host.to_owned()]).expect("parameters");
    params.distinguished_name.push(DnType::CommonName, host);
    change(&mut params);
    (params, KeyPair::generate().expect("a key"))
}

fn in_country(params: &mut CertificateParams, country: &str) {
    params.distinguished_name.push(DnType::CountryName, country);
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::aws_lc_rs::default_provider())
}
