//! One login at a provider of identities, from the redirect there to the way back.
//!
//! The browser keeps one random secret in a cookie. Everything that is sent along is made of it: the `state` that shows
//! that the way back belongs to this browser, the `nonce` that ties the ID token to this login, and the verifier of PKCE
//! that makes the code useless to anybody else. So nothing is kept on the server, any node can finish what another has
//! begun, and whoever sees one of the values learns none of the others.

use aws_lc_rs::{digest, hmac};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

const SECRET_BYTES: usize = 32;

/// The secret of one login, and what belongs to it.
pub struct Login {
    secret: Zeroizing<[u8; SECRET_BYTES]>,
    /// What the state vouches for.
    about: String,
}

impl Login {
    /// A new one. `about` is kept beside the secret, and comes back as it was or not at all.
    pub fn begin(about: impl Into<String>) -> Self {
        Self { secret: Zeroizing::new(crate::random()), about: about.into() }
    }

    /// The one whose secret a browser shows.
    pub fn resume(secret: &str, about: impl Into<String>) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(secret).ok()?;
        let secret = Zeroizing::new(bytes.try_into().ok()?);
        Some(Self { secret, about: about.into() })
    }

    /// For the browser.
    pub fn secret(&self) -> Zeroizing<String> {
        Zeroizing::new(URL_SAFE_NO_PAD.encode(*self.secret))
    }

    /// What comes back with the browser.
    pub fn state(&self) -> String {
        self.made("state", &self.about)
    }

    /// Whether a browser comes back from this login.
    pub fn is_state(&self, shown: &str) -> bool {
        self.state().as_bytes().ct_eq(shown.as_bytes()).into()
    }

    /// What comes back in the ID token.
    pub fn nonce(&self) -> String {
        self.made("nonce", "")
    }

    /// What shows the provider that whoever redeems the code is who asked for it (RFC 7636).
    pub fn verifier(&self) -> String {
        self.made("verifier", "")
    }

    /// What the provider is told beforehand about the verifier: its SHA-256.
    pub fn challenge(&self) -> String {
        let hash = digest::digest(&digest::SHA256, self.verifier().as_bytes());
        URL_SAFE_NO_PAD.encode(hash)
    }

    fn made(&self, purpose: &str, about: &str) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, &*self.secret);
        let tag = hmac::sign(&key, format!("posthorn login {purpose}\0{about}").as_bytes());
        URL_SAFE_NO_PAD.encode(tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_finished_by_whoever_has_its_secret() {
        let login = Login::begin("/console/ 5");
        let again = Login::resume(&login.secret(), "/console/ 5").expect("its own secret");
        assert!(again.is_state(&login.state()));
        assert_eq!((again.nonce(), again.verifier()), (login.nonce(), login.verifier()));
        let other = Login::resume(&login.secret(), "/console/x 5").expect("its own secret");
        assert!(!other.is_state(&login.state()), "the state vouches for what is beside it");
        assert!(!Login::begin("/console/ 5").is_state(&login.state()), "another browser");
        for wrong in ["", "x", "AAAA"] {
            assert!(Login::resume(wrong, "").is_none() && !login.is_state(wrong));
        }
    }

    #[test]
    fn each_value_is_its_own_and_has_the_form_of_a_verifier() {
        let login = Login::begin("");
        let all = [login.state(), login.nonce(), login.verifier(), login.challenge()];
        for (nth, value) in all.iter().enumerate() {
            assert_eq!(value.len(), 43, "the least that RFC 7636 allows, and enough");
            assert!(all[..nth].iter().all(|other| other != value));
        }
    }

    #[test]
    fn a_challenge_is_that_of_rfc_7636() {
        // Appendix B.
        let hash = digest::digest(&digest::SHA256, b"dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk");
        let challenge = URL_SAFE_NO_PAD.encode(hash);
        assert_eq!(challenge, "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM");
    }
}
