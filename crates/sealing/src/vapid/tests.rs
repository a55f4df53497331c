use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use posthorn_domain::TenantId;

use super::*;
use crate::vault::{Vault, VaultKey};

const NOW: i64 = 1_700_000_000;
const ORIGIN: &str = "https://push.example.org";

fn signed_by(sender: &SenderKey, header: &str, claims: &str) -> String {
    let pair = EcdsaKeyPair::from_private_key_and_public_key(
        &aws_lc_rs::signature::ECDSA_P256_SHA256_FIXED_SIGNING,
        &base64_any(sender.to_text().expose_str().expect("text")).expect("base64"),
        sender.public_key().as_bytes(),
    )
    .expect("a pair");
    let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
    let signature = pair.sign(&SystemRandom::new(), signed.as_bytes()).expect("signs");
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
}

fn header_of(sender: &SenderKey, token: &str) -> String {
    format!("vapid t={token},k={}", sender.public_key().to_text())
}

#[track_caller]
fn check_claims(claims: &str, expected: Result<(), VapidRefusal>) {
    let sender = SenderKey::generate();
    let token = signed_by(&sender, r#"{"typ":"JWT","alg":"ES256"}"#, claims);
    let found = verify(&header_of(&sender, &token), None, ORIGIN, NOW);
    assert_eq!(found.map(|_| ()), expected, "{claims}");
}

#[test]
fn the_example_of_rfc_8292_verifies() {
    // Section 2.4.
    let header = "vapid t=eyJ0eXAiOiJKV1QiLCJhbGciOiJFUzI1NiJ9.eyJhdWQiOiJodHRwczovL3B1c2guZXhhbX\
                  BsZS5uZXQiLCJleHAiOjE0NTM1MjM3NjgsInN1YiI6Im1haWx0bzpwdXNoQGV4YW1wbGUuY29tIn0.i3\
                  CYb7t4xfxCDquptFOepC9GAu_HLGkMlMuCGSK2rpiUfnK9ojFwDXb1JrErtmysazNjjvW2L9OkSSHzvo\
                  D1oA, k=BA1Hxzyi1RUM1b5wjxsn7nGxAszw2u61m164i3MrAIxHF6YK5h4SDYic-dRuU_RCPCfA5aq9\
                  ojSwk5Y2EmClBPs";
    let vapid = verify(header, None, "https://push.example.net", 1_453_523_000).expect("verifies");
    assert_eq!(vapid.form, Form::Rfc8292);
    assert_eq!(vapid.expires_at, 1_453_523_768);
    assert_eq!(vapid.subject.as_deref(), Some("mailto:push@example.com"));
    let late = verify(header, None, "https://push.example.net", NOW);
    assert_eq!(late, Err(VapidRefusal::Expired));
}

#[test]
fn every_form_of_the_header_is_read() {
    let sender = SenderKey::generate();
    let token = sender.token(ORIGIN, NOW + 60, Some("mailto:a@b.example"));
    let key = sender.public_key().to_text();
    let (padded, plain) = (
        URL_SAFE.encode(sender.public_key().as_bytes()),
        STANDARD.encode(sender.public_key().as_bytes()),
    );
    for header in [
        format!("vapid t={token},k={key}"),
        format!("vapid t={token}, k={key}"),
        format!("vapid   t={token} ,\tk={key} "),
        format!("VAPID k={key},t={token}"),
        format!("Vapid t=\"{token}\",k=\"{key}\""),
        format!("vapid t={token},k={padded}"),
        format!("vapid t={token},k={plain}"),
        format!("vapid t={token},k={key},x=y,z"),
    ] {
        let vapid = verify(&header, None, ORIGIN, NOW).unwrap_or_else(|e| panic!("{header}: {e}"));
        assert_eq!((vapid.form, &vapid.key), (Form::Rfc8292, sender.public_key()));
        // A key of the other form changes nothing.
        let other = format!("p256ecdsa={}", SenderKey::generate().public_key().to_text());
        assert_eq!(verify(&header, Some(&other), ORIGIN, NOW).as_ref(), Ok(&vapid));
    }
    for scheme in ["WebPush", "webpush", "Bearer", "BEARER"] {
        for crypto_key in [
            format!("p256ecdsa={key}"),
            format!("p256ecdsa=\"{padded}\""),
            format!("p256ecdsa={plain}"),
            format!("dh=abc;p256ecdsa={key}"),
            format!("keyid=p256dh;dh=abc==, p256ecdsa={key}"),
            format!("keyid=\"a\"; p256ecdsa={key} , dh=abc"),
        ] {
            let vapid = verify(&format!("{scheme} {token}"), Some(&crypto_key), ORIGIN, NOW);
            let vapid = vapid.unwrap_or_else(|e| panic!("{crypto_key}: {e}"));
            assert_eq!((vapid.form, &vapid.key), (Form::Draft01, sender.public_key()));
        }
    }
}

#[track_caller]
fn check_header(header: &str, crypto_key: Option<&str>, expected: VapidRefusal) {
    let found = verify(header, crypto_key, ORIGIN, NOW);
    assert_eq!(found, Err(expected), "{header} with {crypto_key:?}");
}

#[test]
fn headers_that_say_too_little_are_refused() {
    let sender = SenderKey::generate();
    let token = sender.token(ORIGIN, NOW + 60, None);
    let key = sender.public_key().to_text();
    for other in ["Basic", "Token", "vapid2", "v", "", "vapid=", "WebPush,"] {
        check_header(
            &format!("{other} {token}"),
            Some(&format!("p256ecdsa={key}")),
            VapidRefusal::Scheme,
        );
        check_header(other, None, VapidRefusal::Scheme);
    }
    for bare in ["vapid", "WebPush", "Bearer", " vapid "] {
        check_header(bare, Some(&format!("p256ecdsa={key}")), VapidRefusal::NoToken);
    }
    check_header(&format!("vapid k={key}"), None, VapidRefusal::NoToken);
    check_header(&format!("vapid t=,k={key}"), None, VapidRefusal::NoToken);
    check_header(&format!("vapid {token}"), None, VapidRefusal::NoToken);
    check_header(&format!("vapid t={token}"), None, VapidRefusal::NoKey);
    check_header(&format!("vapid t={token};k={key}"), None, VapidRefusal::NoKey);
    check_header(
        &format!("vapid t={token};k={key}"),
        Some(&format!("p256ecdsa={key}")),
        VapidRefusal::NoKey,
    );
    check_header(&format!("vapid t={token},k={key},k={key}"), None, VapidRefusal::Repeated);
    check_header(&format!("vapid t={token},k={key},t={token}"), None, VapidRefusal::Repeated);
    for bad in [String::new(), "AAAA".to_owned(), key[1..].to_owned(), format!("{key}AAAA")] {
        check_header(&format!("vapid t={token},k={bad}"), None, VapidRefusal::Key);
    }
    let drafts = [None, Some(""), Some("dh=abc"), Some("p256ecdsa"), Some("p256ecdsa="), Some(";")];
    for crypto_key in drafts {
        check_header(&format!("WebPush {token}"), crypto_key, VapidRefusal::NoCryptoKey);
    }
    check_header(&format!("WebPush {token}"), Some("p256ecdsa=AAAA"), VapidRefusal::Key);
    // A header is read as a whole or not at all.
    let half = format!("p256ecdsa={key};nonsense");
    check_header(&format!("WebPush {token}"), Some(&half), VapidRefusal::NoCryptoKey);
    let numbers = [
        VapidRefusal::NoCryptoKey.errno(),
        VapidRefusal::Missing.errno(),
        VapidRefusal::Key.errno(),
    ];
    assert_eq!(numbers, [110, 109, 109]);
}

#[test]
fn tokens_that_prove_nothing_are_refused() {
    let sender = SenderKey::generate();
    let claims = format!(r#"{{"aud":"{ORIGIN}","exp":{NOW}}}"#);
    for header in [
        r#"{"alg":"none"}"#,
        r#"{"alg":"HS256"}"#,
        r#"{"alg":"RS256"}"#,
        r#"{"alg":"es256"}"#,
        r#"{"alg":"ES256","crit":["b64"],"b64":false}"#,
    ] {
        let token = signed_by(&sender, header, &claims);
        check_header(&header_of(&sender, &token), None, VapidRefusal::Algorithm);
    }
    for header in ["", "[]", "{}", r#"{"alg":1}"#, r#"{"alg":"ES256","alg":"ES256"}"#] {
        let token = signed_by(&sender, header, &claims);
        check_header(&header_of(&sender, &token), None, VapidRefusal::Token);
    }
    let good = signed_by(&sender, r#"{"alg":"ES256"}"#, &claims);
    assert!(verify(&header_of(&sender, &good), None, ORIGIN, NOW).is_ok(), "typ is not needed");
    let (signed, signature) = good.rsplit_once('.').expect("parts");
    for bad in ["a", ".", "..", "a.b.c", &good[1..], &format!("{good}="), &format!("{good}.a")] {
        check_header(&header_of(&sender, bad), None, VapidRefusal::Token);
    }
    check_header(&header_of(&sender, &"a".repeat(9_000)), None, VapidRefusal::Token);
    check_header(&header_of(&sender, &"a".repeat(90_000)), None, VapidRefusal::Token);
    check_header(&header_of(&sender, &format!("{signed}.")), None, VapidRefusal::Signature);
    // Another key, a changed claim, a changed signature, and the other encoding of signatures.
    check_header(&header_of(&SenderKey::generate(), &good), None, VapidRefusal::Signature);
    let mut bytes = URL_SAFE_NO_PAD.decode(signature).expect("base64");
    assert_eq!(bytes.len(), 64);
    bytes[40] ^= 1;
    let changed = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(&bytes));
    check_header(&header_of(&sender, &changed), None, VapidRefusal::Signature);
    let zero = format!("{signed}.{}", URL_SAFE_NO_PAD.encode([0; 64]));
    check_header(&header_of(&sender, &zero), None, VapidRefusal::Signature);
    let scalar = base64_any(sender.to_text().expose_str().expect("text")).expect("base64");
    let pair = EcdsaKeyPair::from_private_key_and_public_key(
        &ECDSA_P256_SHA256_ASN1_SIGNING,
        &scalar,
        sender.public_key().as_bytes(),
    );
    let der = pair.expect("a pair").sign(&SystemRandom::new(), signed.as_bytes()).expect("signs");
    let der = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(der));
    check_header(&header_of(&sender, &der), None, VapidRefusal::Signature);
}

#[test]
fn the_end_of_a_token_is_looked_at_to_the_second() {
    let at = |exp: i64| format!(r#"{{"aud":"{ORIGIN}","exp":{exp}}}"#);
    check_claims(&at(NOW + 1), Ok(()));
    check_claims(&at(NOW), Ok(()));
    check_claims(&at(NOW - 60), Ok(()));
    check_claims(&at(NOW - 61), Err(VapidRefusal::Expired));
    check_claims(&at(0), Err(VapidRefusal::Expired));
    check_claims(&at(NOW + 86_400), Ok(()));
    check_claims(&at(NOW + 86_401), Err(VapidRefusal::TooLong));
    check_claims(&at(i64::MAX), Err(VapidRefusal::TooLong));
    let exp = |value: &str| format!(r#"{{"aud":"{ORIGIN}","exp":{value}}}"#);
    check_claims(&exp("18446744073709551615"), Err(VapidRefusal::TooLong));
    for value in ["null", "-1", "1.7e9", "1700000000.0", "\"1700000000\"", "[]", "true", "1e400"] {
        let expected = if value == "1e400" { VapidRefusal::Token } else { VapidRefusal::Expiry };
        check_claims(&exp(value), Err(expected));
    }
    check_claims(&exp("99999999999999999999"), Err(VapidRefusal::Expiry));
    check_claims(&format!(r#"{{"aud":"{ORIGIN}"}}"#), Err(VapidRefusal::Expiry));
    check_claims(
        &format!(r#"{{"aud":"{ORIGIN}","exp":{NOW},"exp":{NOW}}}"#),
        Err(VapidRefusal::Token),
    );
}

#[test]
fn the_audience_is_compared_letter_by_letter() {
    for aud in [
        "null",
        "7",
        "\"\"",
        "\"https://push.example.org/\"",
        "\"https://push.example.org:443\"",
        "\"https://PUSH.example.org\"",
        "\"http://push.example.org\"",
        "\"push.example.org\"",
        "\"https://push.example.org \"",
        "[\"https://push.example.org\"]",
        "{}",
    ] {
        check_claims(&format!(r#"{{"aud":{aud},"exp":{NOW}}}"#), Err(VapidRefusal::Audience));
    }
    check_claims(&format!(r#"{{"exp":{NOW}}}"#), Err(VapidRefusal::Audience));
    check_claims("[]", Err(VapidRefusal::Token));
    check_claims("", Err(VapidRefusal::Token));
}

#[test]
fn subjects_and_other_claims_are_passed_over() {
    for (sub, expected) in [
        ("\"mailto:a@b.example\"", Some("mailto:a@b.example")),
        ("\"junk\"", Some("junk")),
        ("\"\"", None),
        ("null", None),
        ("7", None),
        ("[\"a\"]", None),
    ] {
        let sender = SenderKey::generate();
        let claims =
            format!(r#"{{"aud":"{ORIGIN}","exp":{NOW},"sub":{sub},"nbf":{},"x":[1]}}"#, NOW * 2);
        let token = signed_by(&sender, r#"{"alg":"ES256"}"#, &claims);
        let vapid = verify(&header_of(&sender, &token), None, ORIGIN, NOW).expect("verifies");
        assert_eq!(vapid.subject.as_deref(), expected, "{sub}");
    }
    check_claims(&format!(r#"{{"aud":"{ORIGIN}","exp":{NOW}}}"#), Ok(()));
}

#[test]
fn an_endpoint_belongs_to_one_key_however_it_is_spelled() {
    let (sender, other) = (SenderKey::generate(), SenderKey::generate());
    let bytes = sender.public_key().as_bytes();
    for text in [URL_SAFE.encode(bytes), STANDARD.encode(bytes), sender.public_key().to_text()] {
        let hash = hash_key_text(&text).expect("base64");
        let header = sender.authorization(ORIGIN, NOW + 60, None);
        let vapid = verify(&header, None, ORIGIN, NOW).expect("verifies");
        assert_eq!(check_key(Some(&vapid), &hash), Ok(()));
        assert_eq!(check_key(None, &hash), Err(VapidRefusal::Missing));
        let header = other.authorization(ORIGIN, NOW + 60, None);
        let vapid = verify(&header, None, ORIGIN, NOW).expect("verifies");
        assert_eq!(check_key(Some(&vapid), &hash), Err(VapidRefusal::OtherKey));
    }
    assert_eq!(hash_key_text("AAAA"), Some(hash_key(&[0, 0, 0])));
    for bad in ["", "=", "A", "!!!!", "AA AA", &"A".repeat(2_000)] {
        assert_eq!(hash_key_text(bad), None, "{bad}");
    }
}

#[test]
fn sender_keys_are_read_as_tools_write_them_and_keep_quiet() {
    // One key, by OpenSSL: SEC 1, PKCS#8, and the number.
    let sec1 = "MHcCAQEEIHhjdZ8DYciLGayb6zGhHZUQh0DhC+Qj36661y0bqF9noAoGCCqGSM49\n\
                AwEHoUQDQgAE2cdZduOwlBBH7FDfPp0Kk6E3ignkX49LUshHGNzfECpX5qpCgpg1\n\
                pJtYUcIxz/erDdkjdgP8cGEgUUHiay4b7w==";
    let pkcs8 = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgeGN1nwNhyIsZrJvr\n\
                 MaEdlRCHQOEL5CPfrrrXLRuoX2ehRANCAATZx1l247CUEEfsUN8+nQqToTeKCeRf\n\
                 j0tSyEcY3N8QKlfmqkKCmDWkm1hRwjHP96sN2SN2A/xwYSBRQeJrLhvv";
    let pem =
        |what: &str, text: &str| format!("-----BEGIN {what}-----\n{text}\n-----END {what}-----\n");
    let parameters = pem("EC PARAMETERS", "BggqhkjOPQMBBw==");
    for form in [
        pem("EC PRIVATE KEY", sec1),
        parameters + &pem("EC PRIVATE KEY", sec1),
        pem("PRIVATE KEY", pkcs8),
        pkcs8.to_owned(),
    ] {
        let key = SenderKey::parse(&form).unwrap_or_else(|e| panic!("{form}: {e}"));
        let text = key.to_text();
        assert_eq!(text.expose_str(), Some("eGN1nwNhyIsZrJvrMaEdlRCHQOEL5CPfrrrXLRuoX2c"));
        assert!(key.public_key().to_text().starts_with("BNnHWXbjsJQQR-xQ3z6dCpOh"));
    }
    assert_eq!(SenderKey::parse(&pem("PRIVATE KEY", &pkcs8[..100])).err(), Some(SenderKeyError));
    let key = SenderKey::generate();
    let text = key.to_text();
    let text = text.expose_str().expect("text");
    let again = SenderKey::parse(&format!(" {text}\n")).expect("its own text");
    assert_eq!(again.public_key(), key.public_key());
    assert!(!format!("{key:?}").contains(text));
    for bad in ["", "AAAA", "!", &URL_SAFE_NO_PAD.encode([0; 32]), &"A".repeat(5_000)] {
        assert_eq!(SenderKey::parse(bad).err(), Some(SenderKeyError), "{bad}");
    }
}

#[test]
fn the_key_of_a_tenant_follows_from_the_key_of_the_vault() {
    // Computed apart, with HKDF and the curve written out.
    let root = VaultKey::parse("phvk_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=").expect("a key");
    let tenant = TenantId::from_bytes([7; 16]);
    let key = SenderKey::derived_from(&root, tenant);
    assert_eq!(key.to_text().expose_str(), Some("3DIeGY2eKVm07hPfM5b99JFcBIuhgSzU8ADek8SDjCw"));
    assert_eq!(
        key.public_key().to_text(),
        "BMT9Zvo2njz59Eg4_wdmBC3AyDgPUPtbLG9qW33qZCT2umvjkaqnzsXaX7c5mGWGwzPJC0m2vuJkqQQNfFXTVjw"
    );
    let other = SenderKey::derived_from(&root, TenantId::from_bytes([8; 16]));
    assert_ne!(other.public_key(), key.public_key());

    // After a change of keys the new one leads, and the former ones are still known.
    let fresh = VaultKey::generate();
    let vault = Vault::new(vec![fresh.clone(), root]).expect("keys");
    let all: Vec<_> = vault.sender_keys(tenant).map(|key| *key.public_key()).collect();
    let first = *SenderKey::derived_from(&fresh, tenant).public_key();
    assert_eq!(all, [first, *key.public_key()]);
}
