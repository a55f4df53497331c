//! Who sends a push message (VAPID, RFC 8292): a short token that names its audience and its end,
//! signed with the sender's key.
//!
//! The header comes in two forms, and both are in use. RFC 8292 has token and key in
//! `Authorization: vapid t=…,k=…`; the draft before it has the token alone in `Authorization:
//! WebPush …` (or `Bearer …`), and the key in `Crypto-Key: p256ecdsa=…`.
//!
//! [`verify`] does everything, in three steps: [`read`] finds token and key, [`Presented::prove`]
//! checks the signature, which is the costly part and does not depend on the time, and
//! [`Vapid::check`] compares audience and time. Senders show one token for up to a day, so a server
//! has a [`Proven`], which does the same and remembers proofs.
//!
//! The algorithm is fixed here and compared with the token's, never taken from it. Claims other than
//! `aud`, `exp` and `sub` are passed over, and `sub` is only for the log.

mod proven;
mod sender;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use posthorn_domain::push::KeyHash;
use serde::Deserialize;
use serde_json::Value;
use subtle::ConstantTimeEq;

pub use self::proven::{PROVEN_MAX, Proven};
pub use self::sender::{SenderKey, SenderKeyError};
use crate::encoding::base64_any;
use crate::p256::PublicKey;
use crate::push_headers::Parameters;

/// For how long a token counts after its `exp`: clocks differ.
pub const GRACE_SECONDS: i64 = 60;
/// How far ahead an `exp` may lie at most.
pub const LIFETIME_SECONDS_MAX: i64 = 86_400;
/// No sender has a reason for a longer token; bounds what is decoded before it is proven.
const TOKEN_BYTES_MAX: usize = 8_192;
/// Longest text of a key worth hashing.
const KEY_TEXT_BYTES_MAX: usize = 1_024;

/// Which form the header has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// `vapid t=…,k=…`.
    Rfc8292,
    /// `WebPush …` or `Bearer …`, with the key in `Crypto-Key`.
    Draft01,
}

/// Why a sender is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VapidRefusal {
    /// An endpoint that belongs to a key was called without any.
    #[error("this endpoint needs an Authorization header: vapid t=TOKEN,k=KEY")]
    Missing,
    /// Another scheme, or none.
    #[error("the Authorization header must begin with vapid, WebPush or Bearer")]
    Scheme,
    /// No token.
    #[error("the Authorization header has no token")]
    NoToken,
    /// The form of RFC 8292 without `k`.
    #[error("the Authorization header has no key: vapid t=TOKEN,k=KEY, with a comma")]
    NoKey,
    /// `t` or `k` twice.
    #[error("the Authorization header has a parameter twice")]
    Repeated,
    /// The form of the draft without its second header.
    #[error("a WebPush or Bearer token needs the header Crypto-Key: p256ecdsa=KEY")]
    NoCryptoKey,
    /// Not a public key.
    #[error("the key must be the base64url of an uncompressed P-256 point of 65 bytes")]
    Key,
    /// Not a token.
    #[error("the token cannot be read")]
    Token,
    /// Signed with something other than ES256, or not at all.
    #[error("the token must be signed with ES256")]
    Algorithm,
    /// Not signed with this key.
    #[error("the signature of the token does not match the key")]
    Signature,
    /// `exp` is missing or not a whole number.
    #[error("the token must have exp: whole seconds since 1970, as a number")]
    Expiry,
    /// Its time is over.
    #[error("the token has expired")]
    Expired,
    /// Its time ends too far ahead.
    #[error("the token's exp must be at most 24 hours ahead")]
    TooLong,
    /// `aud` is missing, or names somebody else.
    #[error("the token's aud must be the origin of the endpoint, as one text")]
    Audience,
    /// Proven, but not the key that the endpoint was made for.
    #[error("this endpoint was created for another key")]
    OtherKey,
}

impl VapidRefusal {
    /// Its number in the errors of the push endpoint: 109 (answered 401), or 110 (answered 400) when
    /// it is the second header that is missing.
    pub const fn errno(self) -> u16 {
        match self {
            Self::NoCryptoKey => 110,
            _ => 109,
        }
    }
}

/// The hash of a key's bytes.
pub fn hash_key(bytes: &[u8]) -> KeyHash {
    let hash = digest(&SHA256, bytes);
    KeyHash(std::array::from_fn(|index| hash.as_ref()[index]))
}

/// The hash of a key as browsers send it when they ask for an endpoint: base64 in any spelling.
/// Whether it is a point on the curve is not looked at, because such an endpoint harms nobody: no
/// sender can prove to have that key.
pub fn hash_key_text(text: &str) -> Option<KeyHash> {
    if text.len() > KEY_TEXT_BYTES_MAX {
        return None;
    }
    base64_any(text).filter(|bytes| !bytes.is_empty()).map(|bytes| hash_key(&bytes))
}

/// Token and key as they stand in the headers.
struct Found {
    form: Form,
    token: String,
    key: String,
}

impl Found {
    fn presented(self) -> Result<Presented, VapidRefusal> {
        let key = PublicKey::parse(&self.key).map_err(|_| VapidRefusal::Key)?;
        Ok(Presented { form: self.form, token: self.token, key })
    }
}

/// Token and key as they were shown. Nothing is proven yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Presented {
    form: Form,
    token: String,
    key: PublicKey,
}

/// Finds token and key in the headers. Several `Crypto-Key` headers count as one, joined by commas.
pub fn read(authorization: &str, crypto_key: Option<&str>) -> Result<Presented, VapidRefusal> {
    find(authorization, crypto_key)?.presented()
}

fn find(authorization: &str, crypto_key: Option<&str>) -> Result<Found, VapidRefusal> {
    let (scheme, rest) = authorization.trim().split_once([' ', '\t']).ok_or_else(|| {
        if is_known(authorization.trim()) { VapidRefusal::NoToken } else { VapidRefusal::Scheme }
    })?;
    if !is_known(scheme) {
        return Err(VapidRefusal::Scheme);
    }
    if rest.len() > 2 * TOKEN_BYTES_MAX {
        return Err(VapidRefusal::Token);
    }
    let rest: String = rest.chars().filter(|c| !matches!(c, ' ' | '\t')).collect();
    let (form, token, key) = if scheme.eq_ignore_ascii_case("vapid") {
        let [token, key] = parameters(&rest)?;
        (Form::Rfc8292, token.ok_or(VapidRefusal::NoToken)?, key.ok_or(VapidRefusal::NoKey)?)
    } else {
        let keys = Parameters::parse(crypto_key.unwrap_or_default());
        let key = keys.as_ref().ok().and_then(|keys| keys.get("p256ecdsa"));
        let key = key.filter(|key| !key.is_empty()).ok_or(VapidRefusal::NoCryptoKey)?;
        (Form::Draft01, rest, key.to_owned())
    };
    if token.is_empty() {
        return Err(VapidRefusal::NoToken);
    }
    if token.len() > TOKEN_BYTES_MAX {
        return Err(VapidRefusal::Token);
    }
    Ok(Found { form, token, key })
}

fn is_known(scheme: &str) -> bool {
    ["vapid", "webpush", "bearer"].iter().any(|known| scheme.eq_ignore_ascii_case(known))
}

/// `t` and `k`. Other parameters are allowed by RFC 9110 and mean nothing here.
fn parameters(text: &str) -> Result<[Option<String>; 2], VapidRefusal> {
    let mut found = [None, None];
    for part in text.split(',') {
        let Some((name, value)) = part.split_once('=') else { continue };
        let at = match name {
            "t" | "T" => 0,
            "k" | "K" => 1,
            _ => continue,
        };
        let value = value.trim_matches('"').to_owned();
        if found[at].replace(value).is_some() {
            return Err(VapidRefusal::Repeated);
        }
    }
    Ok(found)
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    /// Extensions that must be understood. None is.
    crit: Option<Value>,
}

#[derive(Deserialize)]
struct Claims {
    exp: Option<Value>,
    aud: Option<Value>,
    sub: Option<Value>,
}

impl Presented {
    /// The key that was shown.
    pub const fn key(&self) -> &PublicKey {
        &self.key
    }

    /// What the token says, when it is signed with the key that was shown.
    pub fn prove(&self) -> Result<Vapid, VapidRefusal> {
        let (signed, signature) = self.token.rsplit_once('.').ok_or(VapidRefusal::Token)?;
        let (header, claims) = signed.split_once('.').ok_or(VapidRefusal::Token)?;
        let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).map_err(|_| VapidRefusal::Token);
        let (header, claims, signature) = (decode(header)?, decode(claims)?, decode(signature)?);
        let header: Header = serde_json::from_slice(&header).map_err(|_| VapidRefusal::Token)?;
        if header.alg != "ES256" || header.crit.is_some() {
            return Err(VapidRefusal::Algorithm);
        }
        if !self.key.signed(signed.as_bytes(), &signature) {
            return Err(VapidRefusal::Signature);
        }
        let claims: Claims = serde_json::from_slice(&claims).map_err(|_| VapidRefusal::Token)?;
        let expires_at = claims.exp.as_ref().and_then(Value::as_u64).ok_or(VapidRefusal::Expiry)?;
        let Some(Value::String(audience)) = claims.aud else { return Err(VapidRefusal::Audience) };
        let subject = match claims.sub {
            Some(Value::String(text)) if !text.is_empty() => Some(text),
            _ => None,
        };
        let expires_at = i64::try_from(expires_at).unwrap_or(i64::MAX);
        Ok(Vapid { form: self.form, key: self.key, audience, expires_at, subject })
    }
}

/// A sender who proved to have a key, and what its token says.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Vapid {
    /// How the header was written.
    pub form: Form,
    /// The sender's key.
    pub key: PublicKey,
    /// For which origin the token was made (`aud`).
    pub audience: String,
    /// Until when, in Unix seconds (`exp`).
    pub expires_at: i64,
    /// Whom to write to when something is wrong with the sender (`sub`), as it stands in the token:
    /// for logs only, any text is possible.
    pub subject: Option<String>,
}

impl Vapid {
    /// Whether the token was made for `origin` and counts at `now`. The audience is compared letter
    /// by letter. At `exp` plus the grace it still counts, and so does one that ends in exactly a day.
    pub fn check(&self, origin: &str, now: i64) -> Result<(), VapidRefusal> {
        if self.expires_at < now.saturating_sub(GRACE_SECONDS) {
            return Err(VapidRefusal::Expired);
        }
        if self.expires_at > now.saturating_add(LIFETIME_SECONDS_MAX) {
            return Err(VapidRefusal::TooLong);
        }
        if self.audience != origin {
            return Err(VapidRefusal::Audience);
        }
        Ok(())
    }

    /// What an endpoint keeps of the key.
    pub fn key_hash(&self) -> KeyHash {
        hash_key(self.key.as_bytes())
    }
}

/// Everything that the headers can prove. `origin` is that of the endpoint as senders know it, such
/// as `https://push.example.org`, without a slash at its end.
pub fn verify(
    authorization: &str,
    crypto_key: Option<&str>,
    origin: &str,
    now: i64,
) -> Result<Vapid, VapidRefusal> {
    let vapid = read(authorization, crypto_key)?.prove()?;
    vapid.check(origin, now)?;
    Ok(vapid)
}

/// Whether the sender is the one that an endpoint was made for, compared in constant time.
pub fn check_key(sender: Option<&Vapid>, made_for: &KeyHash) -> Result<(), VapidRefusal> {
    let sender = sender.ok_or(VapidRefusal::Missing)?;
    let same = sender.key_hash().0.ct_eq(&made_for.0);
    if same.into() { Ok(()) } else { Err(VapidRefusal::OtherKey) }
}

#[cfg(test)]
mod tests;
