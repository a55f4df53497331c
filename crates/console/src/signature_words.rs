//! How a receiver checks that a request is ours, in sentences: which header, what is signed, with which key.
//!
//! The words are those of `docs/reference/authentication.md`; pages link to nothing outside.

use posthorn_domain::policy::{Auth, HmacHeader, SignatureHeaders, SignedContent};

/// One sentence for each thing to know; none when nothing is signed.
pub(crate) fn sentences(auth: &[Auth]) -> Vec<String> {
    auth.iter().flat_map(of).collect()
}

fn of(auth: &Auth) -> Vec<String> {
    match auth {
        Auth::StandardWebhooks { headers, .. } => standard(*headers),
        Auth::HmacHeader(own) => hmac(own),
        _ => Vec::new(),
    }
}

fn standard(headers: SignatureHeaders) -> Vec<String> {
    let (name, also) = match headers {
        SignatureHeaders::Webhook => ("webhook", ""),
        SignatureHeaders::Svix => ("svix", ""),
        SignatureHeaders::Both => {
            ("webhook", " The headers that begin with svix- have the same values.")
        }
    };
    vec![
        format!(
            "The header {name}-signature has one signature for each secret in use, separated by spaces.{also}"
        ),
        format!(
            "Signed is the value of {name}-id, a dot, the value of {name}-timestamp, a dot, and the body, byte for byte as \
             it came, before anything reads it."
        ),
        "v1 is HMAC-SHA-256 in Base64; its key is the secret after whsec_, read as Base64. v1a is Ed25519, for the public \
         key of the subscription."
            .to_owned(),
        "Accept a request when one of its signatures is valid and its time is within five minutes of your own.".to_owned(),
        format!(
            "By hand: posthorn verify --secret whsec_… -H '{name}-id: …' -H '{name}-timestamp: …' -H '{name}-signature: …' \
             --body FILE. The reference page Authentication has more, under Standard Webhooks."
        ),
    ]
}

fn hmac(own: &HmacHeader) -> Vec<String> {
    let HmacHeader { header, hash, encoding, content, format: around, .. } = own;
    let signed = match content {
        SignedContent::Body => "the body, byte for byte as it came",
        SignedContent::TimestampAndBody => {
            "the time of the attempt in seconds, a dot, and the body, byte for byte as it came"
        }
    };
    vec![
        format!("The header {header} is {around}: an HMAC with {hash}, in {encoding}."),
        format!("Signed is {signed}. The key is the text of the secret, byte for byte."),
        "The reference page Authentication has more, under HMAC in a header.".to_owned(),
    ]
}

#[cfg(test)]
mod tests {
    use posthorn_domain::SecretName;

    use super::*;

    #[test]
    fn each_signature_is_told_with_its_header_and_what_is_signed() {
        let secret = SecretName::new("signing").expect("a name");
        let auth = Auth::StandardWebhooks {
            secret: secret.clone(),
            headers: SignatureHeaders::Svix,
            ids: Default::default(),
        };
        let told = sentences(&[Auth::Bearer { secret: secret.clone() }, auth]).join(" ");
        assert!(told.contains("The header svix-signature has"), "{told}");
        assert!(
            told.contains("the value of svix-id, a dot, the value of svix-timestamp"),
            "{told}"
        );
        let own = HmacHeader {
            secret: secret.clone(),
            header: "X-Signature".to_owned(),
            hash: "sha256".to_owned(),
            encoding: "hex".to_owned(),
            content: SignedContent::TimestampAndBody,
            format: "t={timestamp},v1={signature}".to_owned(),
        };
        let told = sentences(&[Auth::HmacHeader(own)]).join(" ");
        assert!(told.contains("The header X-Signature is t={timestamp},v1={signature}"), "{told}");
        assert!(told.contains("the time of the attempt in seconds, a dot, and the body"), "{told}");
        assert!(sentences(&[Auth::Bearer { secret }]).is_empty(), "that is no signature");
    }
}
