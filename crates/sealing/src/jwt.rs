//! JSON Web Tokens as the Dutch ZGW APIs use them: HS256 and nothing else.
//!
//! The algorithm is fixed here and compared with the token's, never taken from it.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

const HEADER: &[u8] = br#"{"typ":"JWT","alg":"HS256"}"#;
/// No client has a reason for a longer token; bounds what is decoded before it is verified.
const TOKEN_BYTES_MAX: usize = 8_192;

/// What a token says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZgwClaims {
    /// Who issued it; by custom the client.
    #[serde(default)]
    pub iss: String,
    /// When, in Unix seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iat: Option<i64>,
    /// Whose secret it is signed with.
    #[serde(default)]
    pub client_id: String,
    /// On whose behalf, for the audit trail.
    #[serde(default)]
    pub user_id: String,
    /// The same for people.
    #[serde(default)]
    pub user_representation: String,
    /// Until when, in Unix seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exp: Option<i64>,
    /// From when, in Unix seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nbf: Option<i64>,
}

impl ZgwClaims {
    /// The claims of a client that speaks for itself from `now` on.
    pub fn of_client(client_id: &str, now: i64, lifetime_seconds: i64) -> Self {
        Self {
            iss: client_id.to_owned(),
            iat: Some(now),
            client_id: client_id.to_owned(),
            user_id: String::new(),
            user_representation: String::new(),
            exp: Some(now.saturating_add(lifetime_seconds)),
            nbf: None,
        }
    }
}

/// Why a token is not accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JwtError {
    /// Not a token.
    #[error("the token cannot be read")]
    Malformed,
    /// Signed with something other than HS256, or not at all.
    #[error("the token must be signed with HS256")]
    Algorithm,
    /// Not signed with this secret.
    #[error("the signature of the token does not fit")]
    Signature,
    /// Its time is over.
    #[error("the token has expired")]
    Expired,
    /// Its time has not come.
    #[error("the token is not valid yet")]
    NotYetValid,
}

/// A signed token.
pub fn sign(secret: &[u8], claims: &ZgwClaims) -> String {
    let claims = serde_json::to_vec(claims).expect("claims are texts and numbers");
    let mut token = URL_SAFE_NO_PAD.encode(HEADER);
    token.push('.');
    URL_SAFE_NO_PAD.encode_string(claims, &mut token);
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), token.as_bytes());
    token.push('.');
    URL_SAFE_NO_PAD.encode_string(tag, &mut token);
    token
}

/// What a token claims, before anything is proven: only to look up the secret of its client.
pub fn read_unverified(token: &str) -> Result<ZgwClaims, JwtError> {
    Parts::of(token)?.claims()
}

/// What a token says, when it is signed with this secret and its time is now.
///
/// Without an `exp` it is up to the caller how long after `iat` a token counts.
pub fn verify(
    token: &str,
    secret: &[u8],
    now: i64,
    leeway_seconds: i64,
) -> Result<ZgwClaims, JwtError> {
    let parts = Parts::of(token)?;
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    hmac::verify(&key, parts.signed.as_bytes(), &parts.signature)
        .map_err(|_| JwtError::Signature)?;
    let claims = parts.claims()?;
    if claims.exp.is_some_and(|exp| now >= exp.saturating_add(leeway_seconds)) {
        return Err(JwtError::Expired);
    }
    if claims.nbf.is_some_and(|nbf| now < nbf.saturating_sub(leeway_seconds)) {
        return Err(JwtError::NotYetValid);
    }
    Ok(claims)
}

struct Parts<'a> {
    signed: &'a str,
    claims: &'a str,
    signature: Vec<u8>,
}

impl<'a> Parts<'a> {
    fn of(token: &'a str) -> Result<Self, JwtError> {
        #[derive(Deserialize)]
        struct Header {
            alg: String,
        }
        if token.len() > TOKEN_BYTES_MAX {
            return Err(JwtError::Malformed);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(JwtError::Malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(JwtError::Malformed)?;
        let header: Header = decode(header)?;
        if header.alg != "HS256" {
            return Err(JwtError::Algorithm);
        }
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| JwtError::Malformed)?;
        Ok(Self { signed, claims, signature })
    }

    fn claims(&self) -> Result<ZgwClaims, JwtError> {
        decode(self.claims)
    }
}

fn decode<T: for<'de> Deserialize<'de>>(part: &str) -> Result<T, JwtError> {
    let json = URL_SAFE_NO_PAD.decode(part).map_err(|_| JwtError::Malformed)?;
    serde_json::from_slice(&json).map_err(|_| JwtError::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_700_000_000;

    fn token_of(header: &str, claims: &str, secret: &[u8]) -> String {
        let signed =
            format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag))
    }

    #[test]
    fn tokens_come_back() {
        let claims = ZgwClaims { user_id: "u".into(), ..ZgwClaims::of_client("c", NOW, 60) };
        let token = sign(b"secret", &claims);
        assert_eq!(read_unverified(&token), Ok(claims.clone()));
        assert_eq!(verify(&token, b"secret", NOW, 0), Ok(claims));
        assert_eq!(verify(&token, b"other", NOW, 0), Err(JwtError::Signature));
        assert_eq!(verify(&token, b"secret", NOW + 60, 0), Err(JwtError::Expired));
        assert!(verify(&token, b"secret", NOW + 60, 5).is_ok());
        let later = ZgwClaims { nbf: Some(NOW + 1), ..ZgwClaims::of_client("c", NOW, 60) };
        let token = sign(b"secret", &later);
        assert_eq!(verify(&token, b"secret", NOW, 0), Err(JwtError::NotYetValid));
    }

    #[test]
    fn a_published_token_verifies() {
        // The token every reader of jwt.io has seen, with its secret.
        let token = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.\
                     eyJzdWIiOiIxMjM0NTY3ODkwIiwibmFtZSI6IkpvaG4gRG9lIiwiaWF0IjoxNTE2MjM5MDIyfQ.\
                     SflKxwRJSMeKKF2QT4fwpMeJf36POk6yJV_adQssw5c";
        let claims = verify(token, b"your-256-bit-secret", NOW, 0).expect("verifies");
        assert_eq!(claims.iat, Some(1_516_239_022));
    }

    #[test]
    fn other_algorithms_and_broken_tokens_are_refused() {
        for header in
            [r#"{"alg":"none"}"#, r#"{"alg":"HS512"}"#, r#"{"alg":"RS256"}"#, r#"{"alg":"hs256"}"#]
        {
            let token = token_of(header, r#"{"client_id":"c"}"#, b"s");
            assert_eq!(verify(&token, b"s", NOW, 0), Err(JwtError::Algorithm), "{header}");
        }
        let good = sign(b"s", &ZgwClaims::of_client("c", NOW, 60));
        for bad in ["", ".", "..", "a.b.c", &good[1..], &format!("{good}="), &"a".repeat(9_000)] {
            assert!(verify(bad, b"s", NOW, 0).is_err(), "{bad}");
        }
        let unsigned = good.rsplit_once('.').expect("parts").0.to_owned() + ".";
        assert_eq!(verify(&unsigned, b"s", NOW, 0), Err(JwtError::Signature));
        let odd = token_of(r#"{"alg":"HS256"}"#, r#"{"iat":"x"}"#, b"s");
        assert_eq!(verify(&odd, b"s", NOW, 0), Err(JwtError::Malformed));
    }
}
