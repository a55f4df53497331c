//! What the Hub asks of a call before it looks at its body.

use aws_lc_rs::hmac;

use super::Agreement;
use crate::wire::Request;

/// How long one code is valid, in seconds.
const STEP: i64 = 30;

/// What is wrong with a call: the status it gets, and why.
pub(super) fn head(
    agreement: &Agreement,
    head: &Request,
    path: &str,
    unix: i64,
) -> Option<(u16, String)> {
    let header = |name: &str| head.header(name).unwrap_or_default();
    let family = match path {
        "/user-events" => "user",
        "/organization-events" => "organization",
        _ => return Some((404, format!("there is no webhook `{path}`"))),
    };
    if head.method != "POST" {
        return Some((405, format!("the method is {}", head.method)));
    }
    if !header("content-type").starts_with("application/json") {
        return Some((415, format!("the body is `{}`", header("content-type"))));
    }
    if let Some(problem) = identity(agreement, head, unix) {
        return Some((401, problem));
    }
    for name in ["x-pca-organization-id", "x-pca-service-partition", "x-pca-event-sender"] {
        if header(name).is_empty() {
            return Some((400, format!("`{name}` is missing")));
        }
    }
    let event_type = header("x-pca-event-type");
    if event_type.split('.').next() != Some(family) {
        return Some((400, format!("`{event_type}` came to {path}")));
    }
    None
}

/// Who calls.
fn identity(agreement: &Agreement, head: &Request, unix: i64) -> Option<String> {
    let header = |name: &str| head.header(name).unwrap_or_default();
    let tenant = header("x-pca-tenant");
    if tenant.is_empty() || tenant.contains('.') {
        return Some(format!("`{tenant}` is not the name of a tenant"));
    }
    if !agreement.api_keys.iter().any(|key| key == header("x-pca-event-apikey")) {
        return Some("the key of the event is wrong".to_owned());
    }
    let (code, shared) = (header("authorization"), header("x-pca-shared-internal-key"));
    let issuer = header("x-pca-issuer");
    if agreement.interim {
        let silent = code.is_empty() && shared.is_empty() && issuer.is_empty();
        return (!silent).then(|| "nobody asked for a code, a shared key or an issuer".to_owned());
    }
    if shared != agreement.shared_key {
        return Some("the shared key is wrong".to_owned());
    }
    if issuer != format!("https://{tenant}.{}/auth", agreement.domain) {
        return Some(format!("the issuer is `{issuer}`"));
    }
    let skew = agreement.skew_steps;
    let fits = (-skew..=skew).any(|off| totp(agreement, unix / STEP + off) == code);
    (!fits).then(|| format!("the code `{code}` is not of this time"))
}

/// RFC 6238 with SHA-1 and six digits; the key is the salt and then the secret.
pub(super) fn totp(agreement: &Agreement, step: i64) -> String {
    let key = format!("{}{}", agreement.otp_salt, agreement.otp_secret);
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, key.as_bytes());
    let tag = hmac::sign(&key, &step.to_be_bytes());
    let bytes = tag.as_ref();
    let offset = usize::from(bytes[bytes.len() - 1] & 0x0f);
    let cut: [u8; 4] = std::array::from_fn(|index| bytes[offset + index]);
    format!("{:06}", (u32::from_be_bytes(cut) & 0x7fff_ffff) % 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_rfc_6238() {
        let agreement = Agreement {
            otp_salt: "12345678".to_owned(),
            otp_secret: "901234567890".to_owned(),
            ..Agreement::default()
        };
        // The last six of the eight digits in the appendix of the RFC.
        for (at, code) in [(59, "287082"), (1_111_111_109, "081804"), (2_000_000_000, "279037")] {
            assert_eq!(totp(&agreement, at / STEP), code);
        }
    }
}
