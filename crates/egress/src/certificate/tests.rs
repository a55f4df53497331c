use super::*;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};

fn key() -> KeyPair {
    KeyPair::generate().expect("key")
}

fn params() -> CertificateParams {
    let mut params =
        CertificateParams::new(vec!["Hooks.example.com".to_owned(), "192.0.2.7".to_owned()])
            .expect("names");
    params.distinguished_name.push(DnType::CountryName, "DE");
    params.distinguished_name.push(DnType::CommonName, "callback, O=Bank\n");
    params.not_before = date_time_ymd(2020, 1, 2);
    params.not_after = date_time_ymd(2040, 3, 4);
    params
}

#[test]
fn facts_are_those_of_the_first_certificate() {
    let mut authority = CertificateParams::new(vec![]).expect("names");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    authority.distinguished_name.push(DnType::CommonName, "Test authority");
    let authority_key = key();
    let authority_cert = authority.self_signed(&authority_key).expect("authority");
    let issuer = Issuer::new(authority, authority_key);
    let leaf = params().signed_by(&key(), &issuer).expect("leaf");

    let pem = leaf.pem() + &authority_cert.pem();
    let facts = certificate_facts(pem.as_bytes()).expect("facts");
    assert_eq!(facts.thumbprint[..], *digest(&SHA256, leaf.der()).as_ref());
    assert!(facts.subject.contains("C=DE"), "{}", facts.subject);
    assert!(facts.subject.contains(r"CN=callback\, O\=Bank\u{a}"), "{}", facts.subject);
    assert_eq!(facts.not_before.to_string(), "2020-01-02T00:00:00.000Z");
    assert_eq!(facts.not_after.to_string(), "2040-03-04T00:00:00.000Z");
    assert!(!facts.is_authority);

    let facts = certificate_facts(authority_cert.pem().as_bytes()).expect("facts");
    assert!(facts.is_authority);
}

#[test]
fn certificate_texts_are_bounded_and_must_be_certificates() {
    let cert = params().self_signed(&key()).expect("certificate");
    let pem = cert.pem();
    let check = |text: &[u8]| certificate_facts(text).expect_err("refused");
    assert!(matches!(check(b""), CertificateError::NoCertificate));
    assert!(matches!(check(b"hello"), CertificateError::NoCertificate));
    let cut = &pem[..pem.len() - 10];
    assert!(matches!(check(cut.as_bytes()), CertificateError::Pem(_)));
    assert!(matches!(check(&vec![b' '; 64 * 1024 + 1]), CertificateError::TooLarge { .. }));
    assert!(certificate_facts(pem.repeat(10).as_bytes()).is_ok());
    assert!(matches!(check(pem.repeat(11).as_bytes()), CertificateError::TooMany { max: 10 }));
    let garbage = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    assert!(matches!(check(garbage.as_bytes()), CertificateError::Malformed { number: 1 }));
    let second = pem.clone() + garbage;
    assert!(matches!(check(second.as_bytes()), CertificateError::Malformed { number: 2 }));
    let with_key = pem.clone() + &key().serialize_pem();
    assert!(matches!(check(with_key.as_bytes()), CertificateError::KeyAmongCertificates));
    let sealed =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    let with_key = pem + sealed;
    assert!(matches!(check(with_key.as_bytes()), CertificateError::KeyAmongCertificates));
}

#[test]
fn an_identity_is_a_chain_and_its_own_key() {
    let own = key();
    let pem = params().self_signed(&own).expect("certificate").pem();
    let identity = Identity::parse(pem.as_bytes(), own.serialize_pem().as_bytes()).expect("pair");
    assert_eq!(*identity.facts(), certificate_facts(pem.as_bytes()).expect("facts"));
    assert!(!format!("{identity:?}").contains("PRIVATE"));

    let check = |key: &str| Identity::parse(pem.as_bytes(), key.as_bytes()).expect_err("refused");
    assert!(matches!(check(&key().serialize_pem()), CertificateError::KeyMismatch));
    assert!(matches!(check(""), CertificateError::NoKey));
    assert!(matches!(check(&pem), CertificateError::NoKey));
    let twice = own.serialize_pem().repeat(2);
    assert!(matches!(check(&twice), CertificateError::ManyKeys));
    assert!(matches!(check(&" ".repeat(64 * 1024 + 1)), CertificateError::TooLarge { .. }));
    let broken = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    assert!(matches!(check(broken), CertificateError::KeyUnsupported(_)));
    let sealed =
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
    assert!(matches!(check(sealed), CertificateError::KeyEncrypted));
}

#[test]
fn every_common_kind_of_key_can_be_an_identity() {
    for algorithm in [
        &rcgen::PKCS_ECDSA_P256_SHA256,
        &rcgen::PKCS_ECDSA_P384_SHA384,
        &rcgen::PKCS_ED25519,
        &rcgen::PKCS_RSA_SHA256,
    ] {
        let own = KeyPair::generate_for(algorithm).expect("key");
        let pem = params().self_signed(&own).expect("certificate").pem();
        Identity::parse(pem.as_bytes(), own.serialize_pem().as_bytes()).expect("pair");
    }
}
