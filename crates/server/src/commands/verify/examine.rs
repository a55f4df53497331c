//! What is wrong with a request, as precisely as can be known.
//!
//! A signature that does not fit has two possible causes that look the same: another secret, or
//! another message. To tell them apart, the usual ways in which bodies change on their way are undone
//! one after the other; when the signature fits then, it was the body.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use posthorn_domain::Span;
use posthorn_sealing::standard_webhooks::{HeaderNames, PublicKey, SecretKind, SigningSecret};

use super::message::{Found, Message};
use super::variants::variants;

/// What is checked with.
pub(super) enum Key {
    /// A shared or private secret.
    Secret(SigningSecret),
    /// A public key.
    Public(PublicKey),
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    /// Stable.
    pub(super) code: &'static str,
    /// What is wrong, and where.
    pub(super) detail: String,
}

/// What came out.
#[derive(Clone, Debug, Default)]
pub(super) struct Report {
    /// What the signature is.
    pub(super) scheme: String,
    /// Which secret it fits, in the words of the command line.
    pub(super) signed_by: Option<String>,
    /// How old the request is, in seconds.
    pub(super) age: Option<i64>,
    /// Everything that is wrong; nothing when it is verified.
    pub(super) findings: Vec<Finding>,
    /// What one should know although it is not wrong.
    pub(super) notes: Vec<String>,
}

impl Report {
    /// Whether the request is what it claims to be.
    pub(super) fn verified(&self) -> bool {
        self.findings.is_empty() && self.signed_by.is_some()
    }

    pub(super) fn find(&mut self, code: &'static str, detail: impl Into<String>) {
        self.findings.push(Finding { code, detail: detail.into() });
    }

    /// A header that must be there once.
    pub(super) fn need<'m>(&mut self, message: &'m Message, name: &str) -> Option<&'m str> {
        match message.header(name) {
            Found::Once("") => {
                self.find("malformed_header", format!("the header {name} is empty"));
                None
            }
            Found::Once(value) => Some(value),
            Found::Missing => {
                self.find("missing_header", format!("the header {name} is missing"));
                None
            }
            Found::Repeated => {
                self.find("malformed_header", format!("the header {name} is given more than once"));
                None
            }
        }
    }

    /// A time in seconds, compared with ours.
    pub(super) fn time(
        &mut self,
        place: &str,
        text: &str,
        now: i64,
        tolerance: i64,
    ) -> Option<i64> {
        let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let Some(at) = text.parse::<i64>().ok().filter(|_| digits) else {
            let detail = format!("{place} `{text:.40}` is not a number of seconds since 1970");
            self.find("malformed_header", detail);
            return None;
        };
        let age = now.saturating_sub(at);
        self.age = Some(age);
        let span = |seconds: i64| Span::from_secs(seconds.unsigned_abs());
        if age > tolerance {
            let detail = format!(
                "it was sent {} ago, {} more than the tolerance of {}; --at says when it arrived",
                span(age),
                span(age - tolerance),
                span(tolerance)
            );
            self.find("timestamp_too_old", detail);
        } else if age < -tolerance {
            let milliseconds =
                if at > 100_000_000_000 { "; it looks like milliseconds" } else { "" };
            let detail = format!(
                "its time is {} ahead, {} more than the tolerance of {}{milliseconds}",
                span(age),
                span(age.saturating_add(tolerance)),
                span(tolerance)
            );
            self.find("timestamp_too_new", detail);
        }
        Some(at)
    }

    /// Says that no signature fits, and why as far as that can be known: `fits` tells whether a
    /// secret signed another body than the one that is here.
    pub(super) fn blame(&mut self, body: &[u8], fits: impl Fn(&[u8]) -> Option<String>) {
        for (change, variant) in variants(body) {
            if let Some(label) = fits(&variant) {
                let detail =
                    format!("the secret {label} is correct, but the body was changed: {change}");
                return self.find("body_changed", detail);
            }
        }
        self.find(
            "signature_mismatch",
            "no signature matches: it was created with another secret, or the id, the time or the \
             body was changed in transit; the usual changes of a body were tried",
        );
    }
}

/// Judges a request with Standard Webhooks headers.
pub(super) fn standard_webhooks(
    message: &Message,
    keys: &[(String, Key)],
    now: i64,
    tolerance: i64,
) -> Report {
    let mut report = Report { scheme: "Standard Webhooks".to_owned(), ..Report::default() };
    for (code, detail) in &message.oddities {
        report.find(code, detail.clone());
    }
    let names = HeaderNames::in_use(|name| message.header(name) != Found::Missing);
    let id = report.need(message, names.id);
    let at = report
        .need(message, names.timestamp)
        .and_then(|text| report.time(names.timestamp, text, now, tolerance));
    let signatures = report.need(message, names.signature);
    let Some(signatures) = signatures else { return report };
    let kinds = kinds(names, signatures, &mut report);
    let (Some(id), Some(at)) = (id, at) else { return report };
    let fits = |body: &[u8]| keys.iter().find(|(_, key)| key.fits(id, at, signatures, body));
    if let Some((label, key)) = fits(&message.body) {
        report.signed_by = Some(label.clone());
        report.scheme = match key.kind() {
            SecretKind::Hmac => "v1 (HMAC-SHA-256)".to_owned(),
            SecretKind::Ed25519 => "v1a (Ed25519)".to_owned(),
        };
        // Signatures of other secrets may be broken for all we care.
        report.findings.retain(|finding| finding.code != "malformed_signature");
        return report;
    }
    let usable = keys.iter().any(|(_, key)| kinds.contains(&key.kind()));
    if !usable {
        let detail = match (kinds.as_slice(), keys.first().map(|(_, key)| key.kind())) {
            ([], _) => "the header with the signatures has none of a known version (v1, v1a)",
            (_, Some(SecretKind::Hmac)) => {
                "there are only v1a signatures (Ed25519); check with the public key, whpk_…"
            }
            _ => "there are only v1 signatures (HMAC); check with the shared secret, whsec_…",
        };
        report.find("no_usable_signature", detail);
        return report;
    }
    report.blame(&message.body, |body| fits(body).map(|(label, _)| label.clone()));
    report
}

impl Key {
    fn kind(&self) -> SecretKind {
        match self {
            Self::Secret(secret) => secret.kind(),
            Self::Public(_) => SecretKind::Ed25519,
        }
    }

    /// Whether it signed this; the time is judged elsewhere.
    fn fits(&self, id: &str, at: i64, signatures: &str, body: &[u8]) -> bool {
        match self {
            Self::Secret(secret) => secret.verify(id, at, signatures, body, at, 0).is_ok(),
            Self::Public(key) => key.verify(id, at, signatures, body, at, 0).is_ok(),
        }
    }
}

/// The kinds of signatures there are; those that can never fit are findings.
fn kinds(names: HeaderNames, signatures: &str, report: &mut Report) -> Vec<SecretKind> {
    let mut kinds = Vec::new();
    for (nth, signature) in signatures.split(' ').enumerate() {
        let place = format!("signature {} of {}", nth + 1, names.signature);
        let Some((version, encoded)) = signature.split_once(',') else {
            report.find(
                "malformed_signature",
                format!("{place} is not a version, a comma and base64"),
            );
            continue;
        };
        let (kind, length) = match version {
            "v1" => (SecretKind::Hmac, 32),
            "v1a" => (SecretKind::Ed25519, 64),
            // Senders may add versions that nobody here knows.
            _ => continue,
        };
        match STANDARD.decode(encoded) {
            Ok(bytes) if bytes.len() == length => kinds.push(kind),
            Ok(bytes) => report.find(
                "malformed_signature",
                format!("{place} has {} bytes; {version} has {length}", bytes.len()),
            ),
            Err(_) => report.find("malformed_signature", format!("{place} is not base64")),
        }
    }
    kinds
}
