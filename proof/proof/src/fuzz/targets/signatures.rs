//! Signatures and the secrets behind them: what is accepted is exactly what would be sent.

use std::sync::LazyLock;

use posthorn_sealing::body_hmac::{BodyHmac, Scheme};
use posthorn_sealing::id_token::{self, Expected, Keys};
use posthorn_sealing::jwt::{self, ZgwClaims};
use posthorn_sealing::standard_webhooks::{PublicKey, SigningSecret};

use super::first_line;

pub(super) const WORDS: &[&str] = &[
    "v1,",
    "v1a,",
    "v2,",
    " ",
    "  ",
    ",",
    ".",
    "=",
    "==",
    "+",
    "/",
    "-",
    "_",
    "whsec_",
    "whsk_",
    "whpk_",
    "sha256=",
    "t=",
    ",v1=",
    "1700000000",
    "1700000300",
    "1700000301",
    "eyJhbGciOiJub25lIn0.",
    "eyJhbGciOiJIUzI1NiJ9",
    "{\"alg\":\"none\"}",
    "AAAA",
];

const NOW: i64 = 1_700_000_000;
const TOLERANCE: i64 = 300;
const ID: &str = "msg_1";

static SECRET: LazyLock<SigningSecret> = LazyLock::new(|| {
    SigningSecret::parse("whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=").expect("a secret")
});

pub(super) fn secret(input: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(input) else { return false };
    if let Ok(key) = PublicKey::parse(text) {
        let signed = SECRET.sign(ID, NOW, b"x");
        assert!(key.verify(ID, NOW, &signed, b"x", NOW, TOLERANCE).is_err(), "{text}");
        return true;
    }
    let Ok(secret) = SigningSecret::parse(text) else { return false };
    let again = SigningSecret::parse(&secret.to_text()).expect("its own text form");
    assert_eq!(again.to_text(), secret.to_text());
    assert_eq!(secret.to_text(), text, "one secret has two spellings");
    let signed = secret.sign(ID, NOW, b"body");
    assert_eq!(again.sign(ID, NOW, b"body"), signed);
    assert!(secret.verify(ID, NOW, &signed, b"body", NOW, TOLERANCE).is_ok());
    assert!(secret.verify(ID, NOW, &signed, b"bodz", NOW, TOLERANCE).is_err());
    if let Some(public) = secret.public_key() {
        assert!(public.verify(ID, NOW, &signed, b"body", NOW, TOLERANCE).is_ok());
    }
    true
}

/// The time, the header, the body.
pub(super) fn webhook(input: &[u8]) -> bool {
    let (time, rest) = first_line(input);
    let (header, body) = first_line(rest);
    let (Ok(time), Ok(header)) = (std::str::from_utf8(time), std::str::from_utf8(header)) else {
        return false;
    };
    let Ok(time) = time.parse::<i64>() else { return false };
    let accepted = SECRET.verify(ID, time, header, body, NOW, TOLERANCE).is_ok();
    let ours = SECRET.sign(ID, time, body);
    let listed = header.split(' ').any(|one| one == ours);
    let timely = time.abs_diff(NOW) <= TOLERANCE as u64;
    assert_eq!(accepted, listed && timely, "time {time}, header {header:?}, ours {ours}");
    // A right signature is found among anything else.
    let among = format!("{header} {ours}");
    assert_eq!(SECRET.verify(ID, time, &among, body, NOW, TOLERANCE).is_ok(), timely, "{among:?}");
    listed
}

/// The format, the time, the header, the body.
pub(super) fn body_hmac(input: &[u8]) -> bool {
    let (format, rest) = first_line(input);
    let (time, rest) = first_line(rest);
    let (header, body) = first_line(rest);
    let texts = [format, time, header].map(std::str::from_utf8);
    let [Ok(format), Ok(time), Ok(header)] = texts else { return false };
    let Ok(time) = time.parse::<i64>() else { return false };
    let mut accepted = false;
    for (hash, encoding, content) in
        [("sha256", "hex", "body"), ("sha512", "base64", "timestamp_and_body")]
    {
        let scheme = Scheme {
            hash: hash.parse().expect("a hash"),
            encoding: encoding.parse().expect("an encoding"),
            content: content.parse().expect("a content"),
            format: format.to_owned(),
        };
        let Ok(hmac) = BodyHmac::new(b"secret", scheme) else {
            assert!(!format.contains("{signature}"), "{format:?}");
            return false;
        };
        let ours = hmac.sign(time, body);
        assert!(hmac.verify(time, body, &ours));
        assert_eq!(hmac.verify(time, body, header), header == ours, "{header:?}, ours {ours:?}");
        let mut longer = body.to_vec();
        longer.push(0);
        assert!(!hmac.verify(time, &longer, &ours), "{format:?} does not depend on the body");
        accepted |= header == ours;
    }
    accepted
}

pub(super) fn jwt(input: &[u8]) -> bool {
    let Ok(token) = std::str::from_utf8(input) else { return false };
    let ours = jwt::sign(b"secret", &ZgwClaims::of_client("client", NOW, 60));
    let accepted = jwt::verify(token, b"secret", NOW, 5);
    if let Ok(claims) = &accepted {
        // Signed by us over exactly these bytes, with the one algorithm there is.
        let (signed, _) = token.rsplit_once('.').expect("a token has three parts");
        let tag = BodyHmac::new(
            b"secret",
            Scheme {
                hash: "sha256".parse().expect("a hash"),
                encoding: "base64".parse().expect("an encoding"),
                content: "body".parse().expect("a content"),
                format: "{signature}".to_owned(),
            },
        );
        let tag = tag.expect("a format").sign(0, signed.as_bytes());
        let plain = tag.replace('+', "-").replace('/', "_").replace('=', "");
        assert!(token.ends_with(&format!(".{plain}")), "{token}");
        assert!(claims.exp.is_none_or(|exp| exp + 5 > NOW));
        assert_eq!(jwt::read_unverified(token).as_ref(), Ok(claims));
    }
    assert!(jwt::verify(token, b"another secret", NOW, 5).is_err(), "{token}");
    assert!(jwt::verify(&ours, b"secret", NOW, 5).is_ok());
    accepted.is_ok()
}

/// The keys of a provider: the one of RFC 8037, appendix A.
const KEYS: &str = r#"{"keys": [{"kty": "OKP", "crv": "Ed25519", "kid": "a", "use": "sig", "alg": "EdDSA",
    "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;
/// The tokens that the provider has signed for this login.
const TOKENS: [&str; 2] =
    [include_str!("../../../corpus/id-token/00"), include_str!("../../../corpus/id-token/01")];

/// Of all texts, what the provider has signed and meant is believed, and in one spelling. The same bytes are read as a
/// list of keys.
pub(super) fn id_token(input: &[u8]) -> bool {
    static PROVIDER: LazyLock<Keys> =
        LazyLock::new(|| Keys::parse(KEYS.as_bytes()).expect("a list of keys"));
    if let Ok(keys) = Keys::parse(input) {
        assert!(keys.len() <= 64);
    }
    let Ok(token) = std::str::from_utf8(input) else { return false };
    let expected = Expected {
        issuer: "https://id.example.com",
        client_id: "posthorn",
        nonce: "n-0",
        now: NOW,
        leeway: 60,
    };
    let accepted = id_token::verify(token, &PROVIDER, &expected).is_ok();
    assert_eq!(accepted, TOKENS.contains(&token), "{token}");
    let stranger = Expected { nonce: "n-2", ..expected };
    assert!(id_token::verify(token, &PROVIDER, &stranger).is_err(), "{token}");
    accepted
}
