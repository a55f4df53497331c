use posthorn_testkit::id_tokens::{Signer, Signs, shared_secret, unsigned};
use serde_json::json;

use super::*;

const NOW: i64 = 1_800_000_000;

fn expected() -> Expected<'static> {
    Expected {
        issuer: "https://id.example.com",
        client_id: "posthorn",
        nonce: "n-0",
        now: NOW,
        leeway: 60,
    }
}

fn claims() -> Value {
    json!({
        "iss": "https://id.example.com", "aud": "posthorn", "sub": "u-1", "nonce": "n-0",
        "iat": NOW, "exp": NOW + 300, "groups": ["ops"],
    })
}

fn keys(all: &[&Signer]) -> Keys {
    let all: Vec<Value> = all.iter().map(|signer| signer.jwk()).collect();
    Keys::parse(json!({"keys": all}).to_string().as_bytes()).expect("keys")
}

#[test]
fn tokens_of_every_accepted_way_are_believed() {
    for signs in Signs::ALL {
        let (signer, other) = (Signer::new(signs, "a"), Signer::new(signs, "a"));
        let token = signer.token(&claims());
        let said = verify(&token, &keys(&[&signer]), &expected()).expect("a token");
        assert_eq!(said["groups"], json!(["ops"]));
        let wrong = verify(&token, &keys(&[&other]), &expected());
        assert_eq!(wrong.err(), Some(IdTokenRefusal::Signature), "{}", signs.name());
        // One bit of the claims, and one of the signature.
        let (head, rest) = token.split_once('.').expect("a token");
        let (body, signature) = rest.split_once('.').expect("a token");
        let mut changed = claims();
        changed["sub"] = json!("u-2");
        let changed = URL_SAFE_NO_PAD.encode(changed.to_string());
        let flipped = match signature.strip_prefix('A') {
            Some(rest) => format!("B{rest}"),
            None => format!("A{}", &signature[1..]),
        };
        for forged in [format!("{head}.{changed}.{signature}"), format!("{head}.{body}.{flipped}")]
        {
            let refused = verify(&forged, &keys(&[&signer]), &expected());
            assert_eq!(refused.err(), Some(IdTokenRefusal::Signature), "{}", signs.name());
        }
    }
}

#[test]
fn a_key_signs_only_in_its_own_way() {
    let all: Vec<Signer> = Signs::ALL.map(|signs| Signer::new(signs, signs.name())).into();
    let listed: Vec<&Signer> = all.iter().collect();
    for signer in &all {
        for other in &all {
            let header = json!({"alg": other.signs.name(), "kid": signer.kid});
            let said = verify(&signer.token_with(&header, &claims()), &keys(&listed), &expected());
            assert_eq!(said.is_ok(), signer.kid == other.kid, "{} as {}", signer.kid, other.kid);
        }
    }
    // A key of RSA that says nothing about its way signs in both.
    let mut jwk = all[0].jwk();
    jwk.as_object_mut().expect("a key").remove("alg");
    let both = Keys::parse(json!({"keys": [jwk]}).to_string().as_bytes()).expect("keys");
    assert!(verify(&all[0].token(&claims()), &both, &expected()).is_ok());
}

#[test]
fn what_is_not_signed_or_with_a_public_key_is_refused() {
    let signer = Signer::new(Signs::Rs256, "a");
    let set = json!({"keys": [signer.jwk()]});
    let jwk = signer.jwk();
    let known = keys(&[&signer]);
    let n = URL_SAFE_NO_PAD.decode(jwk["n"].as_str().expect("a number")).expect("base64");
    let refused = |token: String| verify(&token, &known, &expected()).err();
    for alg in ["none", "None", "NONE", "", "HS256", "HS384", "HS512", "RS512", "rs256"] {
        let header = json!({"alg": alg, "kid": "a"});
        assert_eq!(refused(unsigned(&header, &claims())), Some(IdTokenRefusal::Algorithm), "{alg}");
        for secret in [&n[..], set.to_string().as_bytes(), jwk["n"].as_str().unwrap().as_bytes()] {
            let token = shared_secret(secret, &header, &claims());
            assert_eq!(refused(token), Some(IdTokenRefusal::Algorithm), "{alg}");
        }
    }
    let header = json!({"alg": "RS256", "kid": "a"});
    assert_eq!(refused(unsigned(&header, &claims())), Some(IdTokenRefusal::Signature));
    assert_eq!(refused(shared_secret(&n, &header, &claims())), Some(IdTokenRefusal::Signature));
    // A key that the token brings along is nobody's.
    let own = Signer::new(Signs::Rs256, "a");
    let header = json!({"alg": "RS256", "kid": "a", "jwk": own.jwk(), "jku": "http://evil.test/"});
    assert_eq!(refused(own.token_with(&header, &claims())), Some(IdTokenRefusal::Signature));
    let header = json!({"alg": "RS256", "kid": "a", "crit": ["b64"], "b64": false});
    assert_eq!(refused(signer.token_with(&header, &claims())), Some(IdTokenRefusal::Malformed));
    for broken in ["", ".", "..", "a.b", "a.b.c", "e30.e30.", &"x".repeat(ID_TOKEN_BYTES_MAX + 1)] {
        assert!(refused(broken.to_owned()).is_some(), "{broken}");
    }
}

#[test]
fn keys_are_found_by_their_names() {
    let (one, two) = (Signer::new(Signs::Es256, "one"), Signer::new(Signs::Es256, "two"));
    let refused = |token: &str, known: &[&Signer]| verify(token, &keys(known), &expected()).err();
    assert_eq!(refused(&two.token(&claims()), &[&one]), Some(IdTokenRefusal::UnknownKey));
    assert_eq!(refused(&two.token(&claims()), &[&one, &two]), None);
    let nameless = one.token_with(&json!({"alg": "ES256"}), &claims());
    assert_eq!(refused(&nameless, &[&one]), None, "there is no choice");
    assert_eq!(refused(&nameless, &[&one, &two]), Some(IdTokenRefusal::UnknownKey));
    let rsa = Signer::new(Signs::Rs256, "rsa");
    assert_eq!(refused(&nameless, &[&one, &rsa]), None, "only one can have signed it");
}

#[test]
fn keys_that_cannot_be_used_are_left_out() {
    let good = Signer::new(Signs::EdDsa, "good");
    let set = json!({"keys": [
        {"kty": "oct", "k": "AQAB", "kid": "shared", "alg": "HS256"},
        {"kty": "RSA", "use": "enc", "n": "AQAB", "e": "AQAB"},
        {"kty": "RSA", "alg": "RSA-OAEP", "n": "AQAB", "e": "AQAB"},
        {"kty": "RSA", "n": "not base64!", "e": "AQAB"},
        {"kty": "EC", "crv": "secp256k1", "x": "AQAB", "y": "AQAB"},
        {"kty": "OKP", "crv": "Ed448", "x": "AQAB"},
        {"kid": "nothing"}, 7, null,
        good.jwk(),
    ]});
    let keys = Keys::parse(set.to_string().as_bytes()).expect("keys");
    assert_eq!(keys.len(), 1, "{keys:?}");
    assert!(verify(&good.token(&claims()), &keys, &expected()).is_ok());
    for broken in ["", "{}", "[]", "{\"keys\": 1}"] {
        assert_eq!(Keys::parse(broken.as_bytes()).err(), Some(KeysError), "{broken}");
    }
    assert!(Keys::parse(b"{\"keys\": []}").expect("none").is_empty());
}

#[test]
fn a_token_is_for_this_client_this_login_and_now() {
    use IdTokenRefusal::{Audience, Expired, Issuer, Nonce, NotYetValid, Subject};
    let signer = Signer::new(Signs::EdDsa, "a");
    let keys = keys(&[&signer]);
    let nothing = Value::Null;
    let cases = [
        ("iss", json!("https://id.example.com/"), Some(Issuer)),
        ("iss", json!("https://evil.test"), Some(Issuer)),
        ("iss", nothing.clone(), Some(Issuer)),
        ("aud", json!("another"), Some(Audience)),
        ("aud", json!(["another"]), Some(Audience)),
        ("aud", json!([]), Some(Audience)),
        ("aud", json!(["posthorn", "another"]), Some(Audience)),
        ("aud", json!(["posthorn"]), None),
        ("aud", nothing.clone(), Some(Audience)),
        ("azp", json!("another"), Some(Audience)),
        ("azp", json!("posthorn"), None),
        ("azp", json!(7), Some(Audience)),
        ("exp", json!(NOW - 60), Some(Expired)),
        ("exp", json!(NOW - 59), None),
        ("exp", json!(NOW as f64 + 0.5), None),
        ("exp", json!("tomorrow"), Some(Expired)),
        ("exp", nothing.clone(), Some(Expired)),
        ("nbf", json!(NOW + 61), Some(NotYetValid)),
        ("nbf", json!(NOW + 60), None),
        ("iat", json!(NOW + 61), Some(NotYetValid)),
        ("nonce", json!("n-1"), Some(Nonce)),
        ("nonce", json!(""), Some(Nonce)),
        ("nonce", nothing.clone(), Some(Nonce)),
        ("sub", json!(""), Some(Subject)),
        ("sub", nothing, Some(Subject)),
    ];
    for (name, value, wanted) in cases {
        let mut claims = claims();
        claims[name] = value.clone();
        let said = verify(&signer.token(&claims), &keys, &expected());
        assert_eq!(said.err(), wanted, "{name} = {value}");
    }
    let mut for_two = claims();
    for_two["aud"] = json!(["another", "posthorn"]);
    for_two["azp"] = json!("posthorn");
    assert!(verify(&signer.token(&for_two), &keys, &expected()).is_ok());
}
