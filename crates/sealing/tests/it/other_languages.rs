//! What we sign, others verify; what others sign, we verify.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use posthorn_sealing::body_hmac::{BodyHmac, Content, Scheme};
use posthorn_sealing::encoding::Encoding;
use posthorn_sealing::jwk::{Jwk, JwkSet};
use posthorn_sealing::jwt::{self, JwtError, JwtRefusal, Terms, ZgwClaims};
use posthorn_sealing::otp;
use posthorn_sealing::standard_webhooks::{
    PublicKey, SigningSecret, TOLERANCE_SECONDS, VerifyError, signature_header,
};
use posthorn_sealing::vault::Secret;
use posthorn_testkit::dice::Dice;
use serde_json::{Value, json};

use crate::interpreter::Language;
use crate::payloads::Payloads as _;

/// Cases for each language and kind of signature.
const CASES: usize = 240;

/// The libraries look at the clock themselves.
#[expect(clippy::disallowed_methods, reason = "the other side of the test uses the system's clock")]
pub(crate) fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    i64::try_from(since.as_secs()).unwrap()
}

pub(crate) fn text<'a>(answer: &'a Value, name: &str) -> &'a str {
    answer[name].as_str().unwrap_or_else(|| panic!("no {name} in {answer}"))
}

struct Message {
    secret: SigningSecret,
    id: String,
    at: i64,
    body: Vec<u8>,
}

fn messages(seed: u64, secret: impl Fn(&mut Dice) -> SigningSecret) -> Vec<Message> {
    let (mut dice, now) = (Dice(seed), now());
    (0..CASES)
        .map(|nth| Message {
            secret: secret(&mut dice),
            id: format!("evt_{:026x}", u128::from(dice.roll())),
            // Well inside of the tolerance, also when the machine is slow.
            at: now - 60 + i64::try_from(dice.below(120)).unwrap(),
            body: dice.body(nth),
        })
        .collect()
}

fn hmac_secret(dice: &mut Dice) -> SigningSecret {
    let length = 24 + dice.below(41);
    let text = format!("whsec_{}", STANDARD.encode(dice.bytes(length)));
    SigningSecret::parse(&text).unwrap()
}

fn standard_webhooks_agree(language: Language) {
    let messages = messages(1, hmac_secret);
    let mut dice = Dice(2);
    let questions: Vec<_> = messages
        .iter()
        .enumerate()
        .map(|(nth, m)| {
            // Every other one as during a rotation: with signatures of other secrets around ours.
            let others = [SigningSecret::generate_ed25519(), hmac_secret(&mut dice)];
            let secrets = [&others[0], &m.secret, &others[1]];
            let secrets = if nth % 2 == 0 { &secrets[1..2] } else { &secrets[..] };
            let signature = signature_header(secrets.iter().copied(), &m.id, m.at, &m.body);
            json!({"ask": "standard_webhooks", "secret": m.secret.to_text(), "id": m.id,
                "timestamp": m.at, "body": STANDARD.encode(&m.body), "signature": signature})
        })
        .collect();
    let answers = language.ask(&questions);
    for ((m, answer), question) in messages.iter().zip(&answers).zip(&questions) {
        assert_eq!(answer["accepted"], true, "{language:?} refuses ours: {question:.500}");
        assert_eq!(
            answer["accepted_changed"], false,
            "{language:?} takes anything: {question:.500}"
        );
        let theirs = text(answer, "signature");
        assert_eq!(theirs, m.secret.sign(&m.id, m.at, &m.body));
        let verify =
            |body: &[u8]| m.secret.verify(&m.id, m.at, theirs, body, m.at + 1, TOLERANCE_SECONDS);
        assert_eq!(verify(&m.body), Ok(()));
        assert_eq!(verify(&[&m.body[..], b"x"].concat()), Err(VerifyError::Signature));
    }
}

#[test]
fn standard_webhooks_for_python_takes_ours_and_we_take_its() {
    standard_webhooks_agree(Language::Python);
}

#[test]
fn standard_webhooks_for_javascript_takes_ours_and_we_take_its() {
    standard_webhooks_agree(Language::JavaScript);
}

#[test]
fn standard_webhooks_for_rust_takes_ours_and_we_take_its() {
    for m in messages(3, hmac_secret) {
        let theirs = standardwebhooks::Webhook::new(&m.secret.to_text()).unwrap();
        let ours = m.secret.sign(&m.id, m.at, &m.body);
        let mut headers = http::HeaderMap::new();
        headers.insert("webhook-id", m.id.parse().unwrap());
        headers.insert("webhook-timestamp", m.at.to_string().parse().unwrap());
        headers.insert("webhook-signature", ours.parse().unwrap());
        theirs.verify(&m.body, &headers).unwrap();
        assert!(theirs.verify(&[&m.body[..], b"x"].concat(), &headers).is_err());
        let signature = theirs.sign(&m.id, m.at, &m.body).unwrap();
        assert_eq!(m.secret.verify(&m.id, m.at, &signature, &m.body, m.at, 0), Ok(()));
    }
}

fn seed_of(secret: &SigningSecret) -> String {
    secret.to_text().strip_prefix("whsk_").unwrap().to_owned()
}

#[test]
fn ed25519_signatures_fit_for_python() {
    let messages = messages(4, |_| SigningSecret::generate_ed25519());
    let questions: Vec<_> = messages
        .iter()
        .map(|m| {
            let signature = m.secret.sign(&m.id, m.at, &m.body);
            let content = [format!("{}.{}.", m.id, m.at).as_bytes(), &m.body].concat();
            json!({"ask": "ed25519", "seed": seed_of(&m.secret),
                "public": STANDARD.encode(m.secret.public_key().unwrap().as_bytes()),
                "content": STANDARD.encode(content),
                "signature": signature.strip_prefix("v1a,").unwrap()})
        })
        .collect();
    let answers = Language::Python.ask(&questions);
    for (m, answer) in messages.iter().zip(&answers) {
        assert_eq!(answer["accepted"], true);
        assert_eq!(answer["accepted_changed"], false);
        let public = m.secret.public_key().unwrap();
        assert_eq!(text(answer, "public"), STANDARD.encode(public.as_bytes()));
        let theirs = format!("v1a,{}", text(answer, "signature"));
        assert_eq!(theirs, m.secret.sign(&m.id, m.at, &m.body), "Ed25519 leaves nothing to chance");
        assert_eq!(public.verify(&m.id, m.at, &theirs, &m.body, m.at, 0), Ok(()));
    }
}

#[test]
fn ed25519_signatures_fit_for_javascript_with_the_keys_of_the_page() {
    let messages = messages(5, |_| SigningSecret::generate_ed25519());
    let questions: Vec<_> = messages
        .iter()
        .map(|m| {
            // As during a rotation: the right key is found by its name.
            let own = Jwk::from(&m.secret.public_key().unwrap());
            let other = Jwk::from(&SigningSecret::generate_ed25519().public_key().unwrap());
            let signature = m.secret.sign(&m.id, m.at, &m.body);
            let content = [format!("{}.{}.", m.id, m.at).as_bytes(), &m.body].concat();
            json!({"ask": "ed25519", "kid": own.kid, "jwks": JwkSet { keys: vec![other, own] },
                "content": STANDARD.encode(content),
                "signature": signature.strip_prefix("v1a,").unwrap()})
        })
        .collect();
    let answers = Language::JavaScript.ask(&questions);
    for (m, answer) in messages.iter().zip(&answers) {
        assert_eq!(answer["accepted"], true);
        assert_eq!(answer["accepted_changed"], false);
        // A key pair made there, imported here.
        let imported = SigningSecret::parse(&format!("whsk_{}", text(answer, "seed"))).unwrap();
        let public = PublicKey::parse(&format!("whpk_{}", text(answer, "public"))).unwrap();
        assert_eq!(imported.public_key(), Some(public));
        let theirs = format!("v1a,{}", text(answer, "signature"));
        assert_eq!(public.verify(&m.id, m.at, &theirs, &m.body, m.at, 0), Ok(()));
        assert_eq!(imported.sign(&m.id, m.at, &m.body), theirs);
    }
}

#[test]
fn body_hmacs_are_those_of_other_libraries_for_any_bytes() {
    let mut dice = Dice(6);
    let cases: Vec<_> = (0..CASES)
        .map(|nth| {
            let length = [0, 1, 63, 64, 65, 1_000, 100_000][nth % 7];
            let hash = ["sha1", "sha256", "sha512"][nth % 3];
            let key_length = 1 + dice.below(200);
            (hash, dice.bytes(key_length), dice.bytes(length))
        })
        .collect();
    let questions: Vec<_> = cases
        .iter()
        .map(|(hash, key, body)| {
            json!({"ask": "hmac", "hash": hash, "key": STANDARD.encode(key),
                "content": STANDARD.encode(body)})
        })
        .collect();
    for language in [Language::Python, Language::JavaScript] {
        let answers = language.ask(&questions);
        for ((hash, key, body), answer) in cases.iter().zip(&answers) {
            let scheme = Scheme {
                hash: hash.parse().unwrap(),
                encoding: Encoding::Hex,
                content: Content::Body,
                format: format!("{hash}={{signature}}"),
            };
            let ours = BodyHmac::new(key, scheme).unwrap();
            let theirs = format!("{hash}={}", text(answer, "hex"));
            assert_eq!(ours.sign(0, body), theirs);
            assert!(ours.verify(0, body, &theirs));
        }
    }
}

#[test]
fn zgw_tokens_are_read_by_another_library_and_its_by_us() {
    let (mut dice, now) = (Dice(7), now());
    let cases: Vec<_> = (0..CASES)
        .map(|_| {
            // Short keys are weak, but the other library must not be the one to say so.
            let (key_length, id_length) = (64 + dice.below(40), 1 + dice.below(20));
            let secret = dice.bytes(key_length);
            let mut claims = ZgwClaims::of_client(&dice.text(id_length), now, 3_600);
            claims.user_id = dice.text(5);
            claims.user_representation = dice.text(5);
            (secret, claims)
        })
        .collect();
    let questions: Vec<_> = cases
        .iter()
        .map(|(secret, claims)| {
            json!({"ask": "zgw_jwt", "secret": STANDARD.encode(secret), "leeway": 60,
                "token": jwt::sign(secret, claims)})
        })
        .collect();
    let answers = Language::Python.ask(&questions);
    for ((secret, claims), answer) in cases.iter().zip(&answers) {
        assert_eq!(answer["claims"], serde_json::to_value(claims).unwrap());
        assert_eq!(answer["header"], json!({"typ": "JWT", "alg": "HS256"}));
        assert_eq!(answer["accepted_other"], false);
        assert_eq!(jwt::verify(text(answer, "token"), secret, now, 0).as_ref(), Ok(claims));
        for other in ["token_hs512", "token_none"] {
            let refused = jwt::verify(text(answer, other), secret, now, 0);
            assert_eq!(refused, Err(JwtError::Algorithm), "{other}");
        }
    }
}

#[test]
fn clients_are_let_in_with_tokens_of_another_library_for_an_hour() {
    let (mut dice, now) = (Dice(9), now());
    let cases: Vec<_> = (0..CASES)
        .map(|_| {
            let (key_length, id_length) = (64 + dice.below(40), 1 + dice.below(20));
            let secret = dice.bytes(key_length);
            // Longer than any token counts, so that it is the hour that decides.
            (secret, ZgwClaims::of_client(&dice.text(id_length), now, 86_400))
        })
        .collect();
    let questions: Vec<_> = cases
        .iter()
        .map(|(secret, claims)| {
            json!({"ask": "zgw_jwt", "secret": STANDARD.encode(secret), "leeway": 60,
                "token": jwt::sign(secret, claims)})
        })
        .collect();
    let answers = Language::Python.ask(&questions);
    for ((secret, claims), answer) in cases.iter().zip(&answers) {
        let ask = |name: &str, after: i64, leeway: i64, known: Option<&[u8]>| {
            let terms = Terms { expiry: 3_600, leeway };
            let token = text(answer, name);
            let found = jwt::admit(token, now + after, terms, |client| {
                assert_eq!(client, claims.client_id);
                known
            });
            found.map(|found| assert_eq!(found, *claims))
        };
        assert_eq!(ask("token", 0, 0, Some(secret)), Ok(()));
        assert_eq!(ask("token", 3_599, 0, Some(secret)), Ok(()));
        assert_eq!(ask("token", 3_600, 0, Some(secret)), Err(JwtRefusal::Expired));
        assert_eq!(ask("token", 3_600, 5, Some(secret)), Ok(()));
        assert_eq!(ask("token", 0, 0, Some(b"another secret")), Err(JwtRefusal::Signature));
        assert_eq!(ask("token", 0, 0, None), Err(JwtRefusal::UnknownClient));
        assert_eq!(ask("token_hs512", 0, 0, Some(secret)), Err(JwtRefusal::Algorithm));
        assert_eq!(ask("token_none", 0, 0, Some(secret)), Err(JwtRefusal::Algorithm));
    }
}

#[test]
fn one_time_codes_are_those_of_another_library() {
    let mut dice = Dice(8);
    let cases: Vec<_> = (0..CASES)
        .map(|nth| {
            let hash = ["sha1", "sha256", "sha512"][nth % 3];
            let (digits, step) = ([6, 7, 8][dice.below(3)], [30, 60, 1][dice.below(3)]);
            let length = 16 + dice.below(49);
            (hash, digits, step, dice.below(4_000_000_000), dice.bytes(length))
        })
        .collect();
    let questions: Vec<_> = cases
        .iter()
        .map(|(hash, digits, step, at, secret)| {
            json!({"ask": "totp", "hash": hash, "digits": digits, "step": step, "at": at,
                "secret": STANDARD.encode(secret)})
        })
        .collect();
    let answers = Language::Python.ask(&questions);
    for ((hash, digits, step, at, secret), answer) in cases.iter().zip(&answers) {
        let scheme = otp::Scheme {
            method: otp::Method::Totp { digits: *digits },
            hash: hash.parse().unwrap(),
            salt_use: otp::SaltUse::None,
            step_seconds: *step,
            t0: 0,
            format: "{otp}".to_owned(),
        };
        let ours = otp::Otp::new(Secret::from(secret.as_slice()), None, scheme).unwrap();
        let code = ours.code(i64::try_from(*at).unwrap(), &[]).unwrap();
        assert_eq!(code, text(answer, "code"));
    }
}
