//! `posthorn verify`: checks a received request by hand, and says what is wrong with it. Needs no
//! server.
//!
//! This part reads what was asked; `message` takes requests apart, `examine` judges them.

mod examine;
mod hmac_header;
mod message;
mod variants;

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;

use posthorn_domain::{Clock, Span, Timestamp};
use posthorn_sealing::body_hmac::Content;
use posthorn_sealing::standard_webhooks::{PublicKey, SigningSecret};
use serde_json::json;

use crate::clock::WallClock;
use crate::config::values::SecretRef;
use crate::exit::{Code, Failure};
use crate::terminal::{self, Paint};

use examine::{Key, Report, standard_webhooks};
use hmac_header::Expected;
use message::Message;

/// Check the signature of a request that was received
///
/// Exit codes: 0 when the request is what it claims to be, 1 when it is not (what is wrong is on
/// stdout), 2 when it could not be checked.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// What to check with: env:NAME, file:PATH, or a public key whpk_…; repeat it for a rotation
    #[arg(long = "secret", value_name = "SECRET", required = true)]
    secrets: Vec<String>,
    /// A header of the request, as `Name: value`; may be repeated
    #[arg(long = "header", short = 'H', value_name = "HEADER")]
    headers: Vec<String>,
    /// The file with the body, byte for byte; - for stdin
    #[arg(long, value_name = "FILE")]
    body: Option<String>,
    /// The file with the whole request as it was received, head and body; - for stdin
    #[arg(long, value_name = "FILE", conflicts_with_all = ["headers", "body"])]
    request: Option<String>,
    /// How far the request's time may be from ours
    #[arg(long, default_value = "5m", value_name = "DURATION")]
    tolerance: Span,
    /// When the request arrived, as 2026-01-31T12:00:00Z or in Unix seconds; now when not given
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
    /// An HMAC in a header instead of Standard Webhooks: sha256=hex, sha1=hex, sha512=base64, …
    #[arg(long, value_name = "HASH=ENCODING", requires = "signature_header")]
    scheme: Option<String>,
    /// The header with that HMAC
    #[arg(long, value_name = "NAME", requires = "scheme")]
    signature_header: Option<String>,
    /// What that header looks like, with {signature} and perhaps {timestamp}; HASH={signature}
    #[arg(long, value_name = "FORMAT", requires = "scheme")]
    format: Option<String>,
    /// What that HMAC covers
    #[arg(long, default_value = "body", value_parser = ["body", "timestamp_and_body"], requires = "scheme")]
    content: String,
    /// The header with the time of the attempt, where it is not in the format
    #[arg(long, value_name = "NAME", requires = "scheme")]
    timestamp_header: Option<String>,
}

/// Runs it.
pub fn run(args: &Args, json: bool) -> anyhow::Result<()> {
    let message = read_message(args)?;
    let now = match &args.at {
        None => WallClock.now(),
        Some(text) => parse_time(text)?,
    };
    let tolerance = i64::try_from(args.tolerance.as_millis() / 1_000).unwrap_or(i64::MAX);
    let report = match &args.scheme {
        None => {
            let keys = args
                .secrets
                .iter()
                .map(|text| standard_key(text))
                .collect::<Result<Vec<_>, _>>()?;
            standard_webhooks(&message, &keys, now.as_seconds(), tolerance)
        }
        Some(scheme) => {
            let expected = expected(args, scheme)?;
            let mut keys = Vec::new();
            for text in &args.secrets {
                keys.push((text.clone(), resolve(text)?));
            }
            hmac_header::examine(&message, &expected, &keys, now.as_seconds(), tolerance)
        }
    };
    show(&report, json)?;
    if report.verified() {
        return Ok(());
    }
    Err(Failure::new(Code::Failure, "the request is not verified").into())
}

fn usage(message: impl Into<String>) -> Failure {
    Failure::new(Code::Usage, message)
}

fn read_message(args: &Args) -> anyhow::Result<Message> {
    if let Some(place) = &args.request {
        let bytes = read_bytes("the request", place)?;
        return Ok(Message::parse(&bytes).map_err(|e| usage(format!("the request: {e}")))?);
    }
    let Some(place) = &args.body else {
        return Err(usage("no request was given")
            .hint("give --request FILE, or --header for each header and --body FILE")
            .into());
    };
    let mut message = Message { body: read_bytes("the body", place)?, ..Message::default() };
    for line in &args.headers {
        message.add_line(line).map_err(|e| usage(format!("--header: {e}")))?;
    }
    Ok(message)
}

fn read_bytes(what: &str, place: &str) -> anyhow::Result<Vec<u8>> {
    let read = if place == "-" {
        let mut all = Vec::new();
        std::io::stdin().read_to_end(&mut all).map(|_| all)
    } else {
        fs::read(place)
    };
    Ok(read.map_err(|e| usage(format!("{what} cannot be read from {place}: {e}")))?)
}

fn parse_time(text: &str) -> anyhow::Result<Timestamp> {
    if let Ok(seconds) = text.parse::<i64>()
        && let Some(millis) = seconds.checked_mul(1_000)
    {
        return Ok(Timestamp::from_millis(millis));
    }
    let parsed = text.parse::<Timestamp>();
    Ok(parsed.map_err(|_| {
        usage(format!("--at: `{text}` is not a time"))
            .hint("write 2026-01-31T12:00:00Z, or seconds since 1970")
    })?)
}

/// A secret from its place. The command line is no place for one.
fn resolve(text: &str) -> anyhow::Result<String> {
    let Some(place) = SecretRef::parse(text) else {
        return Err(usage("--secret: a secret must not be given on the command line")
            .hint(
                "other users of this machine could see it in the process list, and the shell \
                 keeps it in its history: use --secret env:NAME or --secret file:PATH (a public \
                 key, whpk_…, may be given directly)",
            )
            .into());
    };
    let env: BTreeMap<String, String> = std::env::vars().collect();
    Ok(place.resolve(&env).map_err(|e| usage(format!("--secret: {e}")))?)
}

fn standard_key(text: &str) -> anyhow::Result<(String, Key)> {
    let is_public = |text: &str| text.starts_with("whpk_");
    let secret = if is_public(text) { text.to_owned() } else { resolve(text)? };
    let key = if is_public(&secret) {
        PublicKey::parse(&secret).map(Key::Public)
    } else {
        SigningSecret::parse(&secret).map(Key::Secret)
    };
    let key = key.map_err(|e| {
        usage(format!("--secret {text}: {e}")).hint(
            "for an HMAC in a header with a plain secret, add --scheme and --signature-header",
        )
    })?;
    Ok((text.to_owned(), key))
}

fn expected(args: &Args, scheme: &str) -> anyhow::Result<Expected> {
    let bad = |e: String| {
        usage(format!("--scheme: {e}")).hint("write it as HASH=ENCODING, for example sha256=hex")
    };
    let (hash, encoding) =
        scheme.split_once('=').ok_or_else(|| bad(format!("`{scheme}` has no `=`")))?;
    let header = args.signature_header.clone().unwrap_or_default();
    let expected = Expected {
        hash: hash.parse().map_err(|e| bad(format!("the hash {e}")))?,
        encoding: encoding.parse().map_err(|e| bad(format!("the encoding {e}")))?,
        content: args.content.parse::<Content>().map_err(|e| usage(format!("--content: {e}")))?,
        format: args.format.clone().unwrap_or_else(|| format!("{hash}={{signature}}")),
        header,
        timestamp_header: args.timestamp_header.clone(),
    };
    expected.check().map_err(usage)?;
    Ok(expected)
}

fn show(report: &Report, json: bool) -> anyhow::Result<()> {
    if json {
        let findings: Vec<_> = report
            .findings
            .iter()
            .map(|finding| json!({"code": finding.code, "detail": finding.detail}))
            .collect();
        return Ok(terminal::json(&json!({
            "verified": report.verified(),
            "scheme": report.scheme,
            "signed_by": report.signed_by,
            "age_seconds": report.age,
            "findings": findings,
            "notes": report.notes,
        }))?);
    }
    let paint = Paint::stdout();
    let mut lines = Vec::new();
    if report.verified() {
        let by = report.signed_by.as_deref().unwrap_or_default();
        lines.push(format!("{}: {} by {by}", paint.good("verified"), report.scheme));
    } else {
        lines.push(paint.bad("not verified"));
    }
    for finding in &report.findings {
        let detail = terminal::clean(&finding.detail);
        lines.push(format!("  {}: {detail}", paint.bold(finding.code)));
    }
    lines.extend(report.notes.iter().map(|note| format!("  {}", paint.dim(note))));
    Ok(terminal::data(lines.join("\n"))?)
}
