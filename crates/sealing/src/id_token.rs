//! ID tokens of OpenID Connect: who has logged in, by the word of a provider of identities.
//!
//! A token is believed when one of the provider's keys has signed it, for this client, for this login, and its time is
//! now. Which algorithm is used is decided by the key: RS256, PS256, ES256 and EdDSA are what providers sign with. A
//! token without a signature is none, and one that is "signed" with a public key as a shared secret is none either.
//!
//! # What it must not know
//! Where keys are fetched from, and what the claims mean for anybody's rights.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde::Deserialize;
use serde_json::{Map, Value};

/// The longest token that is read. Those with hundreds of groups have some ten thousand bytes.
pub const ID_TOKEN_BYTES_MAX: usize = 64 << 10;
/// Keys of a provider that are read; providers have two or three.
const KEYS_MAX: usize = 64;
/// Audiences of a token that are read.
const AUDIENCES_MAX: usize = 64;

/// Why a token is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdTokenRefusal {
    /// Not a token.
    #[error("the token cannot be read")]
    Malformed,
    /// Signed in a way that is not accepted, or not at all.
    #[error("the token is not signed with RS256, PS256, ES256 or EdDSA")]
    Algorithm,
    /// The provider has no such key, as far as is known here.
    #[error("the token is signed with a key that the provider does not list")]
    UnknownKey,
    /// Not signed with the key it names.
    #[error("the signature of the token is wrong")]
    Signature,
    /// Of another provider.
    #[error("the token is from another issuer")]
    Issuer,
    /// For another client.
    #[error("the token is for another client")]
    Audience,
    /// Its time is over.
    #[error("the token has expired")]
    Expired,
    /// Its time has not come.
    #[error("the token is not valid yet; check the clocks")]
    NotYetValid,
    /// For another login.
    #[error("the token is for another login")]
    Nonce,
    /// It does not say who it is about.
    #[error("the token does not say who it is about")]
    Subject,
}

/// Why a list of keys cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the list of keys cannot be read")]
pub struct KeysError;

/// How a token may be signed, by the name of the way.
fn accepted(name: &str) -> Option<Algorithm> {
    match name {
        "RS256" => Some(Algorithm::RS256),
        "PS256" => Some(Algorithm::PS256),
        "ES256" => Some(Algorithm::ES256),
        "EdDSA" => Some(Algorithm::EdDSA),
        _ => None,
    }
}

#[derive(Clone)]
struct Key {
    id: Option<String>,
    /// What it can sign with; only one, where the provider says so.
    signs: Vec<Algorithm>,
    public: DecodingKey,
}

/// The keys of a provider.
#[derive(Clone, Default)]
pub struct Keys(Vec<Key>);

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.iter().map(|key| &key.id)).finish()
    }
}

/// A key as it is written. Fields of keys of other kinds are passed over.
#[derive(Deserialize)]
struct WrittenKey {
    kty: String,
    #[serde(default)]
    kid: Option<String>,
    #[serde(default, rename = "use")]
    purpose: Option<String>,
    #[serde(default)]
    alg: Option<String>,
    #[serde(default)]
    crv: Option<String>,
    #[serde(default)]
    n: Option<String>,
    #[serde(default)]
    e: Option<String>,
    #[serde(default)]
    x: Option<String>,
    #[serde(default)]
    y: Option<String>,
}

impl WrittenKey {
    /// The key, if it is one that signs in a way that is accepted here.
    fn read(self) -> Option<Key> {
        if self.purpose.is_some_and(|purpose| purpose != "sig") {
            return None;
        }
        let part = |text: &Option<String>| text.clone().unwrap_or_default();
        let (family, public): (&[Algorithm], _) = match (self.kty.as_str(), self.crv.as_deref()) {
            ("RSA", _) => {
                let public = DecodingKey::from_rsa_components(&part(&self.n), &part(&self.e));
                (&[Algorithm::RS256, Algorithm::PS256], public)
            }
            ("EC", Some("P-256")) => {
                let public = DecodingKey::from_ec_components(&part(&self.x), &part(&self.y));
                (&[Algorithm::ES256], public)
            }
            ("OKP", Some("Ed25519")) => {
                (&[Algorithm::EdDSA], DecodingKey::from_ed_components(&part(&self.x)))
            }
            _ => return None,
        };
        let named = self.alg.as_deref();
        let signs = family.iter().copied();
        let signs = signs.filter(|own| named.is_none_or(|name| accepted(name) == Some(*own)));
        let signs: Vec<Algorithm> = signs.collect();
        (!signs.is_empty()).then_some(Key { id: self.kid, signs, public: public.ok()? })
    }
}

impl Keys {
    /// Reads a set of keys (RFC 7517). Keys of kinds that are not known are left out, as its section 5 asks for.
    pub fn parse(json: &[u8]) -> Result<Self, KeysError> {
        #[derive(Deserialize)]
        struct Set {
            keys: Vec<Value>,
        }
        let set: Set = serde_json::from_slice(json).map_err(|_| KeysError)?;
        let written = set.keys.into_iter().take(KEYS_MAX);
        let read = |key| serde_json::from_value::<WrittenKey>(key).ok()?.read();
        Ok(Self(written.filter_map(read).collect()))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The key that a token must be signed with. One that names none is only believed when there is no choice.
    fn find(&self, id: Option<&str>, algorithm: Algorithm) -> Result<&Key, IdTokenRefusal> {
        let may = |key: &&Key| key.signs.contains(&algorithm);
        let Some(id) = id else {
            let mut fitting = self.0.iter().filter(may);
            return match (fitting.next(), fitting.next()) {
                (Some(key), None) => Ok(key),
                _ => Err(IdTokenRefusal::UnknownKey),
            };
        };
        let mut named = self.0.iter().filter(|key| key.id.as_deref() == Some(id)).peekable();
        named.peek().ok_or(IdTokenRefusal::UnknownKey)?;
        named.find(may).ok_or(IdTokenRefusal::Algorithm)
    }
}

/// What a token must say.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'e> {
    /// Who issues it.
    pub issuer: &'e str,
    /// For whom.
    pub client_id: &'e str,
    /// For which login.
    pub nonce: &'e str,
    /// What time it is, in Unix seconds.
    pub now: i64,
    /// By how much the clocks of both sides may differ, in seconds.
    pub leeway: i64,
}

/// What a token says, when it may be believed.
pub fn verify(
    token: &str,
    keys: &Keys,
    expected: &Expected<'_>,
) -> Result<Map<String, Value>, IdTokenRefusal> {
    if token.len() > ID_TOKEN_BYTES_MAX {
        return Err(IdTokenRefusal::Malformed);
    }
    let header = object(token.split('.').next().unwrap_or_default())?;
    // Extensions that must be understood: there is none that is.
    if header.contains_key("crit") {
        return Err(IdTokenRefusal::Malformed);
    }
    let text = |name: &str| header.get(name).and_then(Value::as_str);
    let algorithm = accepted(text("alg").unwrap_or_default()).ok_or(IdTokenRefusal::Algorithm)?;
    let key = keys.find(text("kid"), algorithm)?;
    // The signature and nothing else: it would ask the system what time it is.
    let mut only = Validation::new(algorithm);
    only.required_spec_claims.clear();
    (only.validate_exp, only.validate_nbf, only.validate_aud) = (false, false, false);
    let proven = jsonwebtoken::decode::<Map<String, Value>>(token, &key.public, &only);
    let claims = proven.map_err(|e| match e.kind() {
        ErrorKind::InvalidSignature | ErrorKind::Provider(_) => IdTokenRefusal::Signature,
        _ => IdTokenRefusal::Malformed,
    })?;
    check(&claims.claims, expected)?;
    Ok(claims.claims)
}

fn object(part: &str) -> Result<Map<String, Value>, IdTokenRefusal> {
    let json = URL_SAFE_NO_PAD.decode(part).map_err(|_| IdTokenRefusal::Malformed)?;
    serde_json::from_slice(&json).map_err(|_| IdTokenRefusal::Malformed)
}

/// Section 3.1.3.7 of OpenID Connect Core.
fn check(claims: &Map<String, Value>, expected: &Expected<'_>) -> Result<(), IdTokenRefusal> {
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    if text("iss") != Some(expected.issuer) {
        return Err(IdTokenRefusal::Issuer);
    }
    let audiences: Vec<&str> = match claims.get("aud") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(all)) if all.len() <= AUDIENCES_MAX => {
            all.iter().filter_map(Value::as_str).collect()
        }
        _ => Vec::new(),
    };
    // Whatever is there must be this client.
    let party = claims.get("azp").map(|party| party.as_str().unwrap_or_default());
    let for_us = audiences.contains(&expected.client_id)
        && party.is_none_or(|party| party == expected.client_id)
        && (audiences.len() == 1 || party.is_some());
    if !for_us {
        return Err(IdTokenRefusal::Audience);
    }
    let time = |name: &str| {
        let number = claims.get(name)?;
        number.as_i64().or_else(|| number.as_f64().map(|at| at.floor() as i64))
    };
    let until = time("exp").ok_or(IdTokenRefusal::Expired)?;
    if expected.now >= until.saturating_add(expected.leeway) {
        return Err(IdTokenRefusal::Expired);
    }
    let latest = expected.now.saturating_add(expected.leeway);
    if ["nbf", "iat"].into_iter().filter_map(time).any(|from| from > latest) {
        return Err(IdTokenRefusal::NotYetValid);
    }
    let nonce = text("nonce").unwrap_or_default();
    if !bool::from(subtle::ConstantTimeEq::ct_eq(nonce.as_bytes(), expected.nonce.as_bytes())) {
        return Err(IdTokenRefusal::Nonce);
    }
    if text("sub").is_none_or(str::is_empty) {
        return Err(IdTokenRefusal::Subject);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
