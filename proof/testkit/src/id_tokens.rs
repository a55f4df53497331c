//! Signs tokens as providers of identities do, and as nobody should.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256,
    RSA_PSS_SHA256, RsaKeyPair,
};
use aws_lc_rs::{hmac, rsa};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

/// How a signer signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signs {
    /// RSA, as most do.
    Rs256,
    /// RSA with PSS.
    Ps256,
    /// ECDSA on P-256.
    Es256,
    /// Ed25519.
    EdDsa,
}

impl Signs {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Rs256, Self::Ps256, Self::Es256, Self::EdDsa];

    /// As a token says it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rs256 => "RS256",
            Self::Ps256 => "PS256",
            Self::Es256 => "ES256",
            Self::EdDsa => "EdDSA",
        }
    }
}

enum Private {
    Rsa(Box<RsaKeyPair>),
    P256(EcdsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

/// A key that signs tokens.
pub struct Signer {
    /// Its name.
    pub kid: String,
    /// How it signs.
    pub signs: Signs,
    private: Private,
}

fn base64(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Everything of a token but the signature.
fn unsigned_part(header: &Value, claims: &Value) -> String {
    format!("{}.{}", base64(header.to_string()), base64(claims.to_string()))
}

impl Signer {
    /// A new key.
    pub fn new(signs: Signs, kid: &str) -> Self {
        let private = match signs {
            Signs::Rs256 | Signs::Ps256 => {
                let pair = rsa::KeyPair::generate(KeySize::Rsa2048).expect("a key");
                Private::Rsa(Box::new(pair))
            }
            Signs::Es256 => {
                let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING);
                Private::P256(pair.expect("a key"))
            }
            Signs::EdDsa => Private::Ed25519(Ed25519KeyPair::generate().expect("a key")),
        };
        Self { kid: kid.to_owned(), signs, private }
    }

    /// The public half, as providers list it.
    pub fn jwk(&self) -> Value {
        let mut jwk = match &self.private {
            Private::Rsa(pair) => {
                // The form of RFC 8017: a sequence of two numbers, the first with a zero before it.
                let der = pair.public_key().as_ref();
                assert!(der[..9] == [0x30, 0x82, 1, 10, 2, 0x82, 1, 1, 0] && der.len() == 270);
                json!({"kty": "RSA", "n": base64(&der[9..265]), "e": base64(&der[267..])})
            }
            Private::P256(pair) => {
                let point = pair.public_key().as_ref();
                let (x, y) = (base64(&point[1..33]), base64(&point[33..]));
                json!({"kty": "EC", "crv": "P-256", "x": x, "y": y})
            }
            Private::Ed25519(pair) => {
                json!({"kty": "OKP", "crv": "Ed25519", "x": base64(pair.public_key())})
            }
        };
        jwk["kid"] = json!(self.kid);
        jwk["use"] = json!("sig");
        jwk["alg"] = json!(self.signs.name());
        jwk
    }

    /// The head that its tokens have.
    pub fn header(&self) -> Value {
        json!({"typ": "JWT", "alg": self.signs.name(), "kid": self.kid})
    }

    /// A token with these claims.
    pub fn token(&self, claims: &Value) -> String {
        self.token_with(&self.header(), claims)
    }

    /// The same with any head.
    pub fn token_with(&self, header: &Value, claims: &Value) -> String {
        let message = unsigned_part(header, claims);
        let random = SystemRandom::new();
        let signature = match &self.private {
            Private::Rsa(pair) => {
                let way = if self.signs == Signs::Ps256 {
                    &RSA_PSS_SHA256 as &'static dyn aws_lc_rs::signature::RsaEncoding
                } else {
                    &RSA_PKCS1_SHA256
                };
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(way, &random, message.as_bytes(), &mut signature).expect("a signature");
                signature
            }
            Private::P256(pair) => {
                pair.sign(&random, message.as_bytes()).expect("a signature").as_ref().to_vec()
            }
            Private::Ed25519(pair) => pair.sign(message.as_bytes()).as_ref().to_vec(),
        };
        format!("{message}.{}", base64(signature))
    }
}

/// A token that nobody has signed.
pub fn unsigned(header: &Value, claims: &Value) -> String {
    format!("{}.", unsigned_part(header, claims))
}

/// A token "signed" with a secret that both sides know: for those who take a public key for one.
pub fn shared_secret(secret: &[u8], header: &Value, claims: &Value) -> String {
    let message = unsigned_part(header, claims);
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), message.as_bytes());
    format!("{message}.{}", base64(tag))
}
