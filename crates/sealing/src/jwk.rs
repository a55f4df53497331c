//! Public keys as JSON Web Keys (RFC 7517, RFC 8037), for receivers whose tools fetch them.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Serialize;

use crate::standard_webhooks::PublicKey;

/// An Ed25519 public key as receivers' tools read it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Jwk {
    /// The family of keys.
    pub kty: &'static str,
    /// The curve.
    pub crv: &'static str,
    /// The key itself, base64url.
    pub x: String,
    /// Its name: the thumbprint of RFC 7638, so that the same key has the same name everywhere.
    pub kid: String,
    /// What it is for.
    #[serde(rename = "use")]
    pub purpose: &'static str,
    /// How it signs.
    pub alg: &'static str,
}

/// A set of keys, the current one first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct JwkSet {
    /// The keys.
    pub keys: Vec<Jwk>,
}

impl From<&PublicKey> for Jwk {
    fn from(key: &PublicKey) -> Self {
        Self {
            kty: "OKP",
            crv: "Ed25519",
            x: URL_SAFE_NO_PAD.encode(key.as_bytes()),
            kid: thumbprint(key),
            purpose: "sig",
            alg: "EdDSA",
        }
    }
}

/// The name of a key: the SHA-256 of its required members in their fixed order and form.
pub fn thumbprint(key: &PublicKey) -> String {
    let x = URL_SAFE_NO_PAD.encode(key.as_bytes());
    let members = format!(r#"{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}"#);
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, members.as_bytes());
    URL_SAFE_NO_PAD.encode(hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_the_form_and_the_thumbprint_of_rfc_8037() {
        // Appendix A of RFC 8037: this key, and its thumbprint in A.3.
        let key = PublicKey::parse("whpk_11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=");
        let jwk = Jwk::from(&key.expect("a key"));
        assert_eq!(jwk.kid, "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k");
        let text = serde_json::to_string(&JwkSet { keys: vec![jwk] }).expect("texts");
        assert_eq!(
            text,
            r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo","kid":"kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k","use":"sig","alg":"EdDSA"}]}"#
        );
    }
}
