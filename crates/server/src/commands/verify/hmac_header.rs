//! Requests with an HMAC in a header of their own.

use posthorn_domain::Problem;
use posthorn_sealing::body_hmac::{BodyHmac, Content, Scheme};
use posthorn_sealing::encoding::{Encoding, SecretEncoding};
use posthorn_sealing::hash::HashKind;

use super::examine::Report;
use super::message::Message;

/// What the header should look like.
#[derive(Clone, Debug)]
pub(super) struct Expected {
    pub(super) hash: HashKind,
    pub(super) encoding: Encoding,
    pub(super) content: Content,
    pub(super) format: String,
    pub(super) header: String,
    pub(super) timestamp_header: Option<String>,
}

/// What a header's value says.
#[derive(Debug, PartialEq, Eq)]
struct Parts<'v> {
    signature: &'v str,
    timestamp: Option<&'v str>,
}

const SIGNATURE: &str = "{signature}";
const TIMESTAMP: &str = "{timestamp}";

impl Expected {
    /// Refuses what can never be checked.
    pub(super) fn check(&self) -> Result<(), Problem> {
        if self.format.matches(SIGNATURE).count() != 1 || self.format.matches(TIMESTAMP).count() > 1
        {
            return Err(
                "--format: must contain {signature} once, and {timestamp} at most once".into()
            );
        }
        let timed = self.format.contains(TIMESTAMP) || self.timestamp_header.is_some();
        if self.content == Content::TimestampAndBody && !timed {
            return Err(
                "--content timestamp_and_body: the time is missing; give --timestamp-header, or \
                 {timestamp} in --format"
                    .into(),
            );
        }
        Ok(())
    }

    fn signer(&self, secret: &[u8]) -> Option<BodyHmac> {
        let scheme = Scheme {
            hash: self.hash,
            encoding: self.encoding,
            content: self.content,
            format: SIGNATURE.to_owned(),
        };
        BodyHmac::new(secret, scheme).ok()
    }

    /// How long a signature is, written down.
    fn length(&self) -> usize {
        self.signer(b"any").map_or(0, |signer| signer.sign(0, b"").len())
    }

    /// Takes a value apart, after the format.
    fn read<'v>(&self, value: &'v str) -> Option<Parts<'v>> {
        let mut parts = Parts { signature: "", timestamp: None };
        let (mut format, mut value) = (self.format.as_str(), value);
        loop {
            let next = [SIGNATURE, TIMESTAMP]
                .into_iter()
                .filter_map(|name| Some((format.find(name)?, name)))
                .min();
            let Some((at, name)) = next else {
                return (format == value).then_some(parts);
            };
            value = value.strip_prefix(&format[..at])?;
            format = &format[at + name.len()..];
            // What a placeholder stands for ends where the text after it begins.
            let text = format.split(['{']).next().unwrap_or_default();
            let end = if text.is_empty() { value.len() } else { value.find(text)? };
            let (found, rest) = value.split_at(end);
            if name == SIGNATURE {
                parts.signature = found;
            } else {
                parts.timestamp = Some(found);
            }
            value = rest;
        }
    }
}

/// Judges a request.
pub(super) fn examine(
    message: &Message,
    expected: &Expected,
    keys: &[(String, String)],
    now: i64,
    tolerance: i64,
) -> Report {
    let name = expected.header.to_ascii_lowercase();
    let mut report = Report { scheme: format!("HMAC in {}", expected.header), ..Report::default() };
    for (code, detail) in &message.oddities {
        report.find(code, detail.clone());
    }
    let value = report.need(message, &name);
    let parts = value.and_then(|value| {
        let parts = expected.read(value);
        if parts.is_none() {
            let detail = format!("the header {name} is not of the form {}", expected.format);
            report.find("malformed_header", detail);
        }
        parts
    });
    let at = match (&expected.timestamp_header, parts.as_ref().and_then(|parts| parts.timestamp)) {
        (_, Some(text)) => report.time(&format!("the time in {name}"), text, now, tolerance),
        (Some(header), None) => {
            let header = header.to_ascii_lowercase();
            report
                .need(message, &header)
                .and_then(|text| report.time(&header, text, now, tolerance))
        }
        (None, None) => {
            report.notes.push(
                "the signature does not cover a time, so a replay cannot be detected".to_owned(),
            );
            Some(0)
        }
    };
    let (Some(Parts { signature, .. }), Some(at)) = (parts, at) else { return report };
    let wanted = expected.length();
    if signature.len() != wanted {
        let detail = format!(
            "the signature in {name} has {} characters; one of this scheme has {wanted}",
            signature.len()
        );
        report.find("malformed_signature", detail);
        return report;
    }
    // Hexadecimal digits mean the same in either case.
    let lower = signature.to_ascii_lowercase();
    let signature = if expected.encoding == Encoding::Hex { lower.as_str() } else { signature };
    let fits = |body: &[u8]| {
        let signed = |secret: &[u8]| {
            expected.signer(secret).is_some_and(|signer| signer.verify(at, body, signature))
        };
        keys.iter().find(|(_, secret)| signed(secret.as_bytes())).map(|(label, _)| label.clone())
    };
    if let Some(label) = fits(&message.body) {
        report.signed_by = Some(label);
        return report;
    }
    for (label, secret) in keys {
        for (form, encoding) in [("hex", SecretEncoding::Hex), ("base64", SecretEncoding::Base64)] {
            let decoded = encoding.decode(secret.as_bytes()).ok();
            let signer = decoded.and_then(|secret| expected.signer(secret.expose()));
            if signer.is_some_and(|signer| signer.verify(at, &message.body, signature)) {
                let detail = format!(
                    "it matches when the secret {label} is decoded as {form}; Posthorn uses the \
                     text of the secret as it is"
                );
                report.find("secret_encoding", detail);
                return report;
            }
        }
    }
    report.blame(&message.body, fits);
    report
}
