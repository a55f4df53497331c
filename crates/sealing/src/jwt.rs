//! JSON Web Tokens as the Dutch ZGW APIs use them: HS256 and nothing else.
//!
//! The algorithm is fixed here and compared with the token's, never taken from it.

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Deserializer, Serialize};

const HEADER: &[u8] = br#"{"typ":"JWT","alg":"HS256"}"#;
/// No client has a reason for a longer token; bounds what is decoded before it is verified.
const TOKEN_BYTES_MAX: usize = 8_192;

/// What a token says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZgwClaims {
    /// Who issued it; by custom the client.
    #[serde(default, deserialize_with = "text")]
    pub iss: String,
    /// When, in Unix seconds.
    #[serde(default, deserialize_with = "seconds", skip_serializing_if = "Option::is_none")]
    pub iat: Option<i64>,
    /// Whose secret it is signed with.
    #[serde(default, deserialize_with = "text")]
    pub client_id: String,
    /// On whose behalf, for the audit trail.
    #[serde(default, deserialize_with = "text")]
    pub user_id: String,
    /// The same for people.
    #[serde(default, deserialize_with = "text")]
    pub user_representation: String,
    /// Until when, in Unix seconds.
    #[serde(default, deserialize_with = "seconds", skip_serializing_if = "Option::is_none")]
    pub exp: Option<i64>,
    /// From when, in Unix seconds.
    #[serde(default, deserialize_with = "seconds", skip_serializing_if = "Option::is_none")]
    pub nbf: Option<i64>,
}

/// Clients that have nothing to say about a user often write null.
fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Option::<String>::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// A NumericDate may have a fraction (RFC 7519, section 2).
fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i64>, D::Error> {
    let Some(number) = Option::<serde_json::Number>::deserialize(deserializer)? else {
        return Ok(None);
    };
    let whole = number.as_i64().or_else(|| number.as_f64().map(|at| at.floor() as i64));
    whole.map(Some).ok_or_else(|| serde::de::Error::custom("not a time"))
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
    #[error("the signature of the token is wrong")]
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
    verify_as(token, secret, now, leeway_seconds)
}

/// The same for tokens that say other things.
pub fn verify_as<T: for<'de> Deserialize<'de>>(
    token: &str,
    secret: &[u8],
    now: i64,
    leeway_seconds: i64,
) -> Result<T, JwtError> {
    #[derive(Deserialize)]
    struct Times {
        #[serde(default, deserialize_with = "seconds")]
        exp: Option<i64>,
        #[serde(default, deserialize_with = "seconds")]
        nbf: Option<i64>,
    }
    let parts = Parts::of(token)?;
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret);
    hmac::verify(&key, parts.signed.as_bytes(), &parts.signature)
        .map_err(|_| JwtError::Signature)?;
    let Times { exp, nbf } = decode(parts.claims)?;
    if exp.is_some_and(|exp| now >= exp.saturating_add(leeway_seconds)) {
        return Err(JwtError::Expired);
    }
    if nbf.is_some_and(|nbf| now < nbf.saturating_sub(leeway_seconds)) {
        return Err(JwtError::NotYetValid);
    }
    decode(parts.claims)
}

/// Why somebody who shows a token is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JwtRefusal {
    /// What was shown is not a token.
    #[error("the token cannot be read; check that it was copied completely")]
    Unreadable,
    /// It does not say whose it is.
    #[error("the token has no client_id")]
    NoClient,
    /// Nobody by that name has a secret here.
    #[error("no client has this client_id")]
    UnknownClient,
    /// It was signed with another secret.
    #[error("the token was not signed with the secret of its client")]
    Signature,
    /// It was signed with something other than HS256.
    #[error("the token must be signed with HS256")]
    Algorithm,
    /// It does not say when it was made.
    #[error("the token has no iat")]
    NoIat,
    /// Its own `exp` is over.
    #[error("the token's exp has passed")]
    Ended,
    /// Its own `nbf` has not come.
    #[error("the token's nbf is in the future")]
    NotYetValid,
    /// It is older than tokens may be.
    #[error("the token is too old; create a new one for each request")]
    Expired,
}

/// How long tokens count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// After their `iat`, in seconds.
    pub expiry: i64,
    /// By how much the clocks of both sides may differ, in seconds.
    pub leeway: i64,
}

/// Who shows this token: its claims, once it is proven that the client it names has signed it and
/// that its time is now.
///
/// `secret_of` knows the secrets of clients. An unknown client costs the same HMAC as a known one;
/// that it is unknown is said all the same, because the ZGW APIs have a code for it.
pub fn admit<S: AsRef<[u8]>>(
    token: &str,
    now: i64,
    terms: Terms,
    secret_of: impl FnOnce(&str) -> Option<S>,
) -> Result<ZgwClaims, JwtRefusal> {
    let claims = read_unverified(token).map_err(|e| match e {
        JwtError::Algorithm => JwtRefusal::Algorithm,
        _ => JwtRefusal::Unreadable,
    })?;
    if claims.client_id.is_empty() {
        return Err(JwtRefusal::NoClient);
    }
    let secret = secret_of(&claims.client_id);
    // An empty secret would let in everybody who thinks of signing with nothing.
    let known = secret.as_ref().map(AsRef::as_ref).filter(|secret| !secret.is_empty());
    let verified = verify(token, known.unwrap_or(b"nobody"), now, terms.leeway);
    if known.is_none() {
        return Err(JwtRefusal::UnknownClient);
    }
    let claims = verified.map_err(|e| match e {
        JwtError::Signature => JwtRefusal::Signature,
        JwtError::Algorithm => JwtRefusal::Algorithm,
        JwtError::Expired => JwtRefusal::Ended,
        JwtError::NotYetValid => JwtRefusal::NotYetValid,
        JwtError::Malformed => JwtRefusal::Unreadable,
    })?;
    let iat = claims.iat.ok_or(JwtRefusal::NoIat)?;
    if now >= iat.saturating_add(terms.expiry).saturating_add(terms.leeway) {
        return Err(JwtRefusal::Expired);
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
            /// Extensions that must be understood; there is none that we do.
            #[serde(default, deserialize_with = "present")]
            crit: bool,
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
        if header.crit {
            return Err(JwtError::Malformed);
        }
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| JwtError::Malformed)?;
        Ok(Self { signed, claims, signature })
    }

    fn claims(&self) -> Result<ZgwClaims, JwtError> {
        decode(self.claims)
    }
}

fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    serde::de::IgnoredAny::deserialize(deserializer).map(|_| true)
}

fn decode<T: for<'de> Deserialize<'de>>(part: &str) -> Result<T, JwtError> {
    let json = URL_SAFE_NO_PAD.decode(part).map_err(|_| JwtError::Malformed)?;
    // A derived record would also take a list of its fields, which no other library does.
    if !json.trim_ascii_start().starts_with(b"{") {
        return Err(JwtError::Malformed);
    }
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
        for crit in [r#"["exp"]"#, "[]", "null"] {
            let header = format!(r#"{{"alg":"HS256","crit":{crit}}}"#);
            let token = token_of(&header, r#"{"client_id":"c"}"#, b"s");
            assert_eq!(verify(&token, b"s", NOW, 0), Err(JwtError::Malformed), "{header}");
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

    const NOON_AND_FIVE: i64 = 1_546_344_005;

    #[track_caller]
    fn check(claims: &str, after: i64, leeway: i64, expected: Result<(), JwtRefusal>) {
        let token = token_of(r#"{"alg":"HS256"}"#, claims, b"secret");
        let terms = Terms { expiry: 3_600, leeway };
        let found = admit(&token, NOON_AND_FIVE + after, terms, |id| {
            (id == "c").then_some(b"secret".as_slice())
        });
        assert_eq!(found.map(|_| ()), expected, "{claims} after {after} s, leeway {leeway}");
    }

    #[test]
    fn a_token_counts_for_an_hour_after_it_was_made() {
        let made = format!(r#"{{"client_id":"c","iat":{NOON_AND_FIVE}}}"#);
        // Made at 12:00:05; asked at 13:00:00, 13:00:05, 13:00:06 and 13:00:10.
        check(&made, 3_595, 0, Ok(()));
        check(&made, 3_600, 0, Err(JwtRefusal::Expired));
        check(&made, 3_601, 0, Err(JwtRefusal::Expired));
        check(&made, 3_601, 5, Ok(()));
        check(&made, 3_604, 5, Ok(()));
        check(&made, 3_605, 5, Err(JwtRefusal::Expired));
        // A clock that is ahead is its owner's affair.
        check(&made, -60, 0, Ok(()));
        check(&format!(r#"{{"client_id":"c","iat":{NOON_AND_FIVE}.75}}"#), 3_599, 0, Ok(()));
        check(r#"{"client_id":"c"}"#, 0, 0, Err(JwtRefusal::NoIat));
        check(r#"{"client_id":"c","iat":null}"#, 0, 0, Err(JwtRefusal::NoIat));
        check(r#"{"client_id":"c","iat":"now"}"#, 0, 0, Err(JwtRefusal::Unreadable));
        check(r#"{"client_id":"c","iat":9223372036854775807}"#, 0, 5, Ok(()));
    }

    #[test]
    fn a_token_may_set_narrower_bounds_itself() {
        let (at, soon) = (NOON_AND_FIVE, NOON_AND_FIVE + 10);
        let ends = format!(r#"{{"client_id":"c","iat":{at},"exp":{soon},"user_id":null}}"#);
        check(&ends, 9, 0, Ok(()));
        check(&ends, 10, 0, Err(JwtRefusal::Ended));
        check(&ends, 10, 5, Ok(()));
        let begins = format!(r#"{{"client_id":"c","iat":{at},"nbf":{soon}}}"#);
        check(&begins, 9, 0, Err(JwtRefusal::NotYetValid));
        check(&begins, 9, 5, Ok(()));
        check(&begins, 10, 0, Ok(()));
        // A token cannot widen them.
        let never = format!(r#"{{"client_id":"c","iat":{at},"exp":9999999999}}"#);
        check(&never, 3_600, 0, Err(JwtRefusal::Expired));
    }

    #[test]
    fn strangers_are_told_what_is_wrong() {
        let at = NOON_AND_FIVE;
        check(&format!(r#"{{"iat":{at}}}"#), 0, 0, Err(JwtRefusal::NoClient));
        check(&format!(r#"{{"client_id":"","iat":{at}}}"#), 0, 0, Err(JwtRefusal::NoClient));
        check(&format!(r#"{{"client_id":"d","iat":{at}}}"#), 0, 0, Err(JwtRefusal::UnknownClient));
        check(&format!(r#"{{"client_id":["c"],"iat":{at}}}"#), 0, 0, Err(JwtRefusal::Unreadable));
        check("[]", 0, 0, Err(JwtRefusal::Unreadable));
        let terms = Terms { expiry: 3_600, leeway: 0 };
        let claims = ZgwClaims::of_client("c", at, 60);
        let ask = |token: &str, secret: &'static [u8]| {
            admit(token, at, terms, |_| Some(secret)).map(|claims| claims.client_id)
        };
        let token = sign(b"secret", &claims);
        assert_eq!(ask(&token, b"secret").as_deref(), Ok("c"));
        assert_eq!(ask(&token, b"other"), Err(JwtRefusal::Signature));
        assert_eq!(ask(&sign(b"", &claims), b""), Err(JwtRefusal::UnknownClient));
        assert_eq!(ask(&sign(b"nobody", &claims), b""), Err(JwtRefusal::UnknownClient));
        assert_eq!(ask("not a token", b"secret"), Err(JwtRefusal::Unreadable));
        for alg in ["none", "HS512", "RS256"] {
            let header = format!(r#"{{"alg":"{alg}"}}"#);
            let token = token_of(&header, r#"{"client_id":"c","iat":1}"#, b"secret");
            assert_eq!(ask(&token, b"secret"), Err(JwtRefusal::Algorithm), "{alg}");
        }
    }
}
