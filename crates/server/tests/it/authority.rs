//! Certificates for tests.

use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Signs certificates.
pub(crate) struct Authority {
    pub(crate) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, as PEM texts.
pub(crate) struct Pair {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(vec![]).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        let pem = params.self_signed(&key).expect("signed").pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    pub(crate) fn sign(&self, host: &str) -> Pair {
        let mut params = CertificateParams::new(vec![host.to_owned()]).expect("parameters");
        params.distinguished_name.push(DnType::CommonName, host);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("signed").pem();
        Pair { certificate, key: key.serialize_pem() }
    }
}

pub(crate) fn der(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate")
}

impl Pair {
    pub(crate) fn private(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::from_pem_slice(self.key.as_bytes()).expect("a key")
    }

    /// SHA-256 of the certificate, in hex.
    pub(crate) fn thumbprint(&self) -> String {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &der(&self.certificate));
        digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// A certificate signed by nobody else that names this country.
pub(crate) fn of_country(country: &str) -> Pair {
    self_signed(country, None)
}

/// The same, for so long from now.
pub(crate) fn valid_for(country: &str, time: Duration) -> Pair {
    self_signed(country, Some(time))
}

fn self_signed(country: &str, time: Option<Duration>) -> Pair {
    let mut params = CertificateParams::new(vec!["backend".to_owned()]).expect("parameters");
    params.distinguished_name.push(DnType::CountryName, country);
    params.distinguished_name.push(DnType::CommonName, "backend");
    if let Some(time) = time {
        params.not_after = rcgen::date_time_ymd(1970, 1, 1) + since_1970() + time;
    }
    let key = KeyPair::generate().expect("a key");
    let certificate = params.self_signed(&key).expect("signed").pem();
    Pair { certificate, key: key.serialize_pem() }
}

#[expect(clippy::disallowed_methods, reason = "the program under test has the system's clock too")]
fn since_1970() -> Duration {
    let now = std::time::SystemTime::now();
    now.duration_since(std::time::UNIX_EPOCH).expect("after 1970")
}
