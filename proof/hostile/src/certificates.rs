//! An authority of one's own, and certificates good and bad.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType,
    date_time_ymd,
};
use rustls::ServerConfig;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::mode::Mode;

/// Signs what the receivers of one fleet show.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names, none invalid");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "posthorn-hostile authority");
        let key = KeyPair::generate().expect("keys can be made");
        let pem = params.self_signed(&key).expect("the key signs").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// Its own certificate, for a sender to trust.
    pub(crate) fn pem(&self) -> &str {
        &self.pem
    }

    /// A receiver everybody who trusts this authority trusts.
    pub(crate) fn good(&self) -> TlsAcceptor {
        let key = KeyPair::generate().expect("keys can be made");
        let certificate = self.sign(&loopback(), &key);
        acceptor(vec![certificate.der().clone()], &key)
    }

    /// What this mode shows; nothing when it never gets as far as a certificate.
    pub(crate) fn bad(&self, mode: Mode) -> Option<TlsAcceptor> {
        let key = KeyPair::generate().expect("keys can be made");
        let mut params = loopback();
        let certificate = match mode {
            Mode::ExpiredCertificate => {
                params.not_before = date_time_ymd(2001, 1, 1);
                params.not_after = date_time_ymd(2002, 1, 1);
                self.sign(&params, &key)
            }
            Mode::FutureCertificate => {
                params.not_before = date_time_ymd(2090, 1, 1);
                params.not_after = date_time_ymd(2091, 1, 1);
                self.sign(&params, &key)
            }
            Mode::WrongName => {
                params.subject_alt_names.clear();
                let other = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
                params.subject_alt_names.push(SanType::IpAddress(other));
                self.sign(&params, &key)
            }
            Mode::SelfSigned => params.self_signed(&key).expect("the key signs"),
            Mode::UnknownAuthority => Self::new().sign(&params, &key),
            Mode::TlsHugeChain => return Some(self.huge(&key)),
            _ => return None,
        };
        Some(acceptor(vec![certificate.der().clone()], &key))
    }

    /// A good certificate with so many names, and so many of its like behind it, that the handshake
    /// message which carries them is larger than any honest one.
    fn huge(&self, key: &KeyPair) -> TlsAcceptor {
        let mut params = loopback();
        for index in 0..400 {
            let name = format!("host-{index}.a-rather-long-domain-name-for-nobody.example");
            let name = name.try_into().expect("ASCII");
            params.subject_alt_names.push(SanType::DnsName(name));
        }
        let certificate = self.sign(&params, key).der().clone();
        acceptor(vec![certificate; 12], key)
    }

    fn sign(&self, params: &CertificateParams, key: &KeyPair) -> Certificate {
        params.signed_by(key, &self.issuer).expect("the authority signs")
    }
}

fn loopback() -> CertificateParams {
    CertificateParams::new(vec![Ipv4Addr::LOCALHOST.to_string()]).expect("an address is a name")
}

fn acceptor(chain: Vec<CertificateDer<'static>>, key: &KeyPair) -> TlsAcceptor {
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("the provider knows them")
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .expect("the key belongs to the certificate");
    TlsAcceptor::from(Arc::new(config))
}
