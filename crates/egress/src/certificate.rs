//! Certificates as people bring them: PEM texts, read into facts and into client identities.
//!
//! It knows X.509 and PEM, and nothing of connections, storage or the time of day: whether a
//! certificate is out of date is decided by whoever has a clock, from the facts.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use posthorn_domain::Timestamp;
use rustls::sign::CertifiedKey;
use rustls::{Error as TlsError, InconsistentKeys, RootCertStore};
use rustls_pki_types::pem::{self, PemObject, SectionKind};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::objects::{oid_registry, oid2abbrev};
use x509_parser::prelude::X509Certificate;
use x509_parser::x509::{AttributeTypeAndValue, X509Name};
use zeroize::Zeroize as _;

use crate::tls;

/// Longest PEM text that is looked at; real chains are a tenth of it.
const PEM_BYTES_MAX: usize = 64 * 1024;
/// Most certificates in one text. Chains have two to four.
const CERTIFICATES_MAX: usize = 10;

/// What a certificate says, as far as anybody here needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFacts {
    /// SHA-256 over the certificate as it is encoded (DER).
    pub thumbprint: [u8; 32],
    /// Whom it names, like `C=DE, O=Example, CN=hooks`; separators inside values are escaped.
    pub subject: String,
    /// Not to be used before.
    pub not_before: Timestamp,
    /// Not to be used after.
    pub not_after: Timestamp,
    /// Whether it may sign other certificates.
    pub is_authority: bool,
}

/// Why a certificate, a key or an identity cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CertificateError {
    /// More bytes than any real chain has.
    #[error("the PEM text is longer than {max} bytes; give only the certificate and its chain")]
    TooLarge {
        /// The most that is read.
        max: usize,
    },
    /// More certificates than any real chain has.
    #[error("the PEM text has more than {max} certificates; give only those that are needed")]
    TooMany {
        /// The most that are read.
        max: usize,
    },
    /// Not PEM.
    #[error("the text is not PEM; it must have sections from -----BEGIN to -----END")]
    Pem(#[source] pem::Error),
    /// PEM without a certificate.
    #[error("the PEM text has no certificate; it must have a section -----BEGIN CERTIFICATE-----")]
    NoCertificate,
    /// A certificate text is public; a key in it would be kept and shown as if it were, too.
    #[error("the certificate text also has a private key; give the key separately")]
    KeyAmongCertificates,
    /// PEM, but not X.509 inside.
    #[error("certificate {number} of the PEM text cannot be read as X.509")]
    Malformed {
        /// Counted from 1.
        number: usize,
    },
    /// PEM without a private key.
    #[error("the PEM text has no private key; PKCS #8, PKCS #1 and SEC 1 sections are supported")]
    NoKey,
    /// More than one private key.
    #[error("the PEM text has more than one private key; give only the one of the certificate")]
    ManyKeys,
    /// There is nobody here to ask for its password.
    #[error("the private key is encrypted; decrypt it first, Posthorn stores it sealed")]
    KeyEncrypted,
    /// A kind of key TLS cannot sign with.
    #[error("the private key is of a kind that is not supported; use RSA, ECDSA or Ed25519")]
    KeyUnsupported(#[source] TlsError),
    /// Key and certificate do not belong together.
    #[error("the private key does not belong to the first certificate of the chain")]
    KeyMismatch,
    /// Not usable as the beginning of trust.
    #[error("certificate {number} of the authorities cannot be used to verify others")]
    AuthorityUnusable {
        /// Counted from 1, over all texts.
        number: usize,
        /// What the TLS library says.
        #[source]
        source: TlsError,
    },
    /// Refused by the TLS library.
    #[error("set up TLS with the client certificate")]
    Tls(#[source] TlsError),
}

/// Reads what the first certificate of a PEM text says. The others are only counted and checked
/// to be certificates.
pub fn certificate_facts(pem: &[u8]) -> Result<CertificateFacts, CertificateError> {
    let chain = certificates(pem)?;
    for (index, certificate) in chain.iter().enumerate().skip(1) {
        parse(certificate, index + 1)?;
    }
    facts(&chain[0], 1)
}

/// The certificates of a PEM text and nothing else, in the usual form: whatever stood around them,
/// perhaps a key in a form nobody here knows, is left out.
pub fn certificates_only(pem: &[u8]) -> Result<String, CertificateError> {
    let mut text = String::new();
    for certificate in certificates(pem)? {
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        let encoded = STANDARD.encode(&certificate);
        for line in encoded.as_bytes().chunks(64) {
            text.push_str(&String::from_utf8_lossy(line));
            text.push('\n');
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    Ok(text)
}

/// Reads a certificate that others are to be judged by: exactly one, and fit for it.
pub fn authority_facts(pem: &[u8]) -> Result<CertificateFacts, CertificateError> {
    let facts = certificate_facts(pem)?;
    let all = certificates(pem)?;
    let [authority] = all.as_slice() else {
        return Err(CertificateError::TooMany { max: 1 });
    };
    RootCertStore::empty()
        .add(authority.clone())
        .map_err(|source| CertificateError::AuthorityUnusable { number: 1, source })?;
    Ok(facts)
}

/// A client certificate with its private key: how we prove to a receiver who we are.
#[derive(Clone)]
pub struct Identity {
    certified: Arc<CertifiedKey>,
    facts: Arc<CertificateFacts>,
}

impl Identity {
    /// Reads a chain (the client's own certificate first) and the private key, and checks that
    /// they belong together.
    pub fn parse(chain_pem: &[u8], key_pem: &[u8]) -> Result<Self, CertificateError> {
        let chain = certificates(chain_pem)?;
        for (index, certificate) in chain.iter().enumerate().skip(1) {
            parse(certificate, index + 1)?;
        }
        let facts = Arc::new(facts(&chain[0], 1)?);
        let certified = CertifiedKey::new(chain, signing_key(key_pem)?);
        match certified.keys_match() {
            Ok(()) => {}
            Err(TlsError::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
                return Err(CertificateError::KeyMismatch);
            }
            // A kind of key whose public half the library cannot tell would be trusted unseen.
            Err(error @ TlsError::InconsistentKeys(_)) => {
                return Err(CertificateError::KeyUnsupported(error));
            }
            Err(_) => return Err(CertificateError::Malformed { number: 1 }),
        }
        Ok(Self { certified: Arc::new(certified), facts })
    }

    /// What its own certificate says.
    pub fn facts(&self) -> &CertificateFacts {
        &self.facts
    }

    pub(crate) fn certified(&self) -> &Arc<CertifiedKey> {
        &self.certified
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("facts", &self.facts).field("key", &"redacted").finish()
    }
}

/// All certificates of a PEM text, at least one, within the limits.
pub(crate) fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, CertificateError> {
    check_size(pem)?;
    let mut found = Vec::new();
    for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(pem) {
        match section.map_err(CertificateError::Pem)? {
            (SectionKind::Certificate, _) if found.len() == CERTIFICATES_MAX => {
                return Err(CertificateError::TooMany { max: CERTIFICATES_MAX });
            }
            (SectionKind::Certificate, der) => found.push(CertificateDer::from(der)),
            (
                SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey,
                mut der,
            ) => {
                der.zeroize();
                return Err(CertificateError::KeyAmongCertificates);
            }
            _ => {}
        }
    }
    if has_encrypted_key(pem) {
        return Err(CertificateError::KeyAmongCertificates);
    }
    if found.is_empty() {
        return Err(CertificateError::NoCertificate);
    }
    Ok(found)
}

fn check_size(pem: &[u8]) -> Result<(), CertificateError> {
    if pem.len() > PEM_BYTES_MAX {
        return Err(CertificateError::TooLarge { max: PEM_BYTES_MAX });
    }
    Ok(())
}

/// The PEM reader skips sections it does not know, and this is one.
fn has_encrypted_key(pem: &[u8]) -> bool {
    const MARK: &[u8] = b"-----BEGIN ENCRYPTED PRIVATE KEY-----";
    pem.windows(MARK.len()).any(|window| window == MARK)
}

fn signing_key(pem: &[u8]) -> Result<Arc<dyn rustls::sign::SigningKey>, CertificateError> {
    check_size(pem)?;
    let mut found: Option<PrivateKeyDer<'static>> = None;
    for key in PrivateKeyDer::pem_slice_iter(pem) {
        let key = key.map_err(CertificateError::Pem)?;
        if let Some(mut first) = found.replace(key) {
            first.zeroize();
            if let Some(mut second) = found {
                second.zeroize();
            }
            return Err(CertificateError::ManyKeys);
        }
    }
    match found {
        Some(key) => tls::provider()
            .key_provider
            .load_private_key(key)
            .map_err(CertificateError::KeyUnsupported),
        None if has_encrypted_key(pem) => Err(CertificateError::KeyEncrypted),
        None => Err(CertificateError::NoKey),
    }
}

fn parse(der: &[u8], number: usize) -> Result<X509Certificate<'_>, CertificateError> {
    match x509_parser::parse_x509_certificate(der) {
        Ok(([], certificate)) => Ok(certificate),
        _ => Err(CertificateError::Malformed { number }),
    }
}

fn facts(der: &[u8], number: usize) -> Result<CertificateFacts, CertificateError> {
    let certificate = parse(der, number)?;
    let mut thumbprint = [0; 32];
    thumbprint.copy_from_slice(digest(&SHA256, der).as_ref());
    Ok(CertificateFacts {
        thumbprint,
        subject: name(certificate.subject()),
        not_before: timestamp(certificate.validity().not_before.timestamp()),
        not_after: timestamp(certificate.validity().not_after.timestamp()),
        is_authority: certificate.is_ca(),
    })
}

fn timestamp(seconds: i64) -> Timestamp {
    Timestamp::from_millis(seconds.saturating_mul(1_000))
}

/// A distinguished name in the order it is encoded in. Values are escaped, because whoever asks
/// for a certificate chooses them, and a common name of `x, O=Bank` must not read as two parts.
fn name(name: &X509Name<'_>) -> String {
    let mut text = String::new();
    for part in name.iter_rdn() {
        for (index, attribute) in part.iter().enumerate() {
            let separator = match (text.is_empty(), index) {
                (true, _) => "",
                (false, 0) => ", ",
                (false, _) => " + ",
            };
            text.push_str(separator);
            push_attribute(&mut text, attribute);
        }
    }
    text
}

fn push_attribute(text: &mut String, attribute: &AttributeTypeAndValue<'_>) {
    match oid2abbrev(attribute.attr_type(), oid_registry()) {
        Ok(short) => text.push_str(short),
        Err(_) => text.push_str(&attribute.attr_type().to_id_string()),
    }
    text.push('=');
    let Ok(value) = attribute.as_str() else {
        text.push('#');
        text.extend(attribute.as_slice().iter().map(|byte| format!("{byte:02x}")));
        return;
    };
    for character in value.chars() {
        match character {
            ',' | '+' | '"' | '\\' | '<' | '>' | ';' | '=' => text.extend(['\\', character]),
            _ if character.is_control() => text.extend(character.escape_unicode()),
            _ => text.push(character),
        }
    }
}

#[cfg(test)]
mod tests;
