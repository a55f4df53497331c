//! Proving where a request comes from. Everything here is computed for this one attempt.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use posthorn_domain::policy::{
    Auth, HmacHeader, Otp, SignatureHeaders, SignatureIds, SignedContent,
};
use posthorn_domain::{Event, Lookup, SecretName, Timestamp, base62};
use posthorn_sealing::encoding::SecretEncoding;
use posthorn_sealing::standard_webhooks::HeaderNames;
use posthorn_sealing::vault::Secret;
use posthorn_sealing::{body_hmac, jwt, otp, standard_webhooks};

use super::{AttemptLookup, BuildError, Redaction, header_name, header_value};
use crate::catalog::{Secrets, SubscriptionView};

/// Adds the headers of every way of authentication a policy asks for. Returns what a receiver could
/// repeat of them that nobody else may know; signatures are not secret.
pub(super) fn add(
    ways: &[Auth],
    view: &SubscriptionView,
    values: &AttemptLookup<'_>,
    body: &[u8],
    token: Option<&str>,
    headers: &mut HeaderMap,
) -> Result<Redaction, BuildError> {
    let now = values.now;
    let mut redaction = Redaction::default();
    if ways.is_empty() {
        return Ok(redaction);
    }
    let secrets = view.secrets().map_err(|e| BuildError::Auth(e.to_owned()))?;
    for way in ways {
        match way {
            Auth::StandardWebhooks { secret, headers: named, ids } => {
                let id = event_id(&values.work.event, *ids);
                sign(secrets, (secret, *named), &id, body, now, headers)?;
            }
            Auth::HmacHeader(scheme) => {
                let value = hmac_header(secrets, scheme, body, now)?;
                set(headers, &scheme.header, &value)?;
            }
            Auth::Oauth2(_) => {
                let token = token
                    .ok_or_else(|| BuildError::Auth("no access token was fetched".to_owned()))?;
                redaction.add(token.as_bytes());
                authorize(headers, &format!("Bearer {token}"))?;
            }
            Auth::Bearer { secret } => {
                let token = text(current(secrets, secret, now)?)?;
                redaction.add(token.as_bytes());
                authorize(headers, &format!("Bearer {token}"))?;
            }
            Auth::Basic { user, secret } => {
                let password = text(current(secrets, secret, now)?)?;
                let pair = STANDARD.encode(format!("{user}:{password}"));
                redaction.add(pair.as_bytes());
                redaction.add(password.as_bytes());
                authorize(headers, &format!("Basic {pair}"))?;
            }
            Auth::SecretHeader { header, secret } => {
                let value = text(current(secrets, secret, now)?)?;
                redaction.add(value.as_bytes());
                set(headers, header, value)?;
            }
            Auth::Otp(scheme) => {
                let value = one_time_code(secrets, scheme, values, now)?;
                redaction.add(bare_code(scheme, &value).as_bytes());
                set(headers, &scheme.header, &value)?;
            }
            Auth::ZgwJwt(scheme) => {
                let secret = current(secrets, &scheme.secret, now)?;
                let lifetime = (scheme.lifetime.as_millis() / 1_000) as i64;
                let claims =
                    jwt::ZgwClaims::of_client(&scheme.client_id, now.as_seconds(), lifetime);
                let token = jwt::sign(secret.expose(), &claims);
                redaction.add(token.as_bytes());
                authorize(headers, &format!("Bearer {token}"))?;
            }
            // Not secrets of the subscription; see `certify`.
            Auth::ClientCertificate(_) | Auth::CertificateThumbprint(_) => {}
        }
    }
    Ok(redaction)
}

/// The code without the text around it.
fn bare_code<'v>(scheme: &Otp, value: &'v str) -> &'v str {
    let (before, after) = scheme.format.split_once("{otp}").unwrap_or_default();
    value.strip_prefix(before).and_then(|rest| rest.strip_suffix(after)).unwrap_or(value)
}

fn current<'s>(
    secrets: &'s Secrets,
    name: &SecretName,
    now: Timestamp,
) -> Result<&'s Secret, BuildError> {
    secrets
        .current(name, now)
        .ok_or_else(|| BuildError::Auth(format!("the subscription has no secret `{name}`")))
}

fn text(secret: &Secret) -> Result<&str, BuildError> {
    std::str::from_utf8(secret.expose())
        .map_err(|_| BuildError::Auth("a secret is not text".to_owned()))
}

fn set(headers: &mut HeaderMap, name: &str, value: &str) -> Result<(), BuildError> {
    let header = header_name(name).map_err(BuildError::auth)?;
    insert(headers, header, value)
}

/// Sets `Authorization`. Tokens and encoded passwords may be longer than what people may put into a
/// header of their own; what they are made of has its own bounds.
fn authorize(headers: &mut HeaderMap, value: &str) -> Result<(), BuildError> {
    let mut value = HeaderValue::from_str(value)
        .map_err(|_| BuildError::Auth("the credentials are not a valid header value".to_owned()))?;
    value.set_sensitive(true);
    headers.insert(header::AUTHORIZATION, value);
    Ok(())
}

/// Sets a header that names a certificate; the policy was checked to name one that may.
pub(super) fn set_identity(
    headers: &mut HeaderMap,
    name: &str,
    value: &str,
) -> Result<(), BuildError> {
    let header = HeaderName::try_from(name)
        .map_err(|_| BuildError::Auth(format!("`{name}` is not a header name")))?;
    insert(headers, header, value)
}

/// Sets a header that belongs to a signature and tells nothing: whoever looks at the request may see it.
fn tell(headers: &mut HeaderMap, name: &'static str, value: &str) -> Result<(), BuildError> {
    headers.insert(name, header_value(name, value).map_err(BuildError::auth)?);
    Ok(())
}

fn insert(headers: &mut HeaderMap, name: HeaderName, value: &str) -> Result<(), BuildError> {
    let mut value = header_value(name.as_str(), value).map_err(BuildError::auth)?;
    value.set_sensitive(true);
    headers.insert(name, value);
    Ok(())
}

/// What the event is called in the headers that are signed.
fn event_id(event: &Event, ids: SignatureIds) -> String {
    match ids {
        SignatureIds::Posthorn => event.id.to_string(),
        SignatureIds::Svix => format!("msg_{}", base62::to_text(event.id.as_bytes(), 0)),
    }
}

fn sign(
    secrets: &Secrets,
    (name, named): (&SecretName, SignatureHeaders),
    id: &str,
    body: &[u8],
    now: Timestamp,
    headers: &mut HeaderMap,
) -> Result<(), BuildError> {
    let signing = secrets.signing(name, now);
    let signing = match crate::plant::active("old-secret") {
        true => signing.into_iter().rev().take(1).collect(),
        false => signing,
    };
    if signing.is_empty() {
        return Err(BuildError::Auth(format!("the subscription has no signing secret `{name}`")));
    }
    let seconds = now.as_seconds();
    let signature = standard_webhooks::signature_header(signing, id, seconds, body);
    let names: &[HeaderNames] = match named {
        SignatureHeaders::Webhook => &[HeaderNames::WEBHOOK],
        SignatureHeaders::Svix => &[HeaderNames::SVIX],
        SignatureHeaders::Both => &[HeaderNames::WEBHOOK, HeaderNames::SVIX],
    };
    for names in names {
        tell(headers, names.id, id)?;
        tell(headers, names.timestamp, &seconds.to_string())?;
        insert(headers, HeaderName::from_static(names.signature), &signature)?;
    }
    Ok(())
}

fn hmac_header(
    secrets: &Secrets,
    scheme: &HmacHeader,
    body: &[u8],
    now: Timestamp,
) -> Result<String, BuildError> {
    let shape = body_hmac::Scheme {
        hash: choice("auth.hash", &scheme.hash)?,
        encoding: choice("auth.encoding", &scheme.encoding)?,
        content: match scheme.content {
            SignedContent::Body => body_hmac::Content::Body,
            SignedContent::TimestampAndBody => body_hmac::Content::TimestampAndBody,
        },
        format: scheme.format.clone(),
    };
    let secret = current(secrets, &scheme.secret, now)?;
    let hmac = body_hmac::BodyHmac::new(secret.expose(), shape)
        .map_err(|e| BuildError::Auth(e.to_string()))?;
    Ok(hmac.sign(now.as_seconds(), body))
}

/// Reads one of the words that policies are validated to hold.
fn choice<T: std::str::FromStr>(field: &str, word: &str) -> Result<T, BuildError> {
    word.parse().map_err(|_| BuildError::Auth(format!("{field}: `{word}` is not known")))
}

fn one_time_code(
    secrets: &Secrets,
    scheme: &Otp,
    values: &AttemptLookup<'_>,
    now: Timestamp,
) -> Result<String, BuildError> {
    let bad = |e: otp::OtpError| BuildError::Auth(e.to_string());
    let encoding: SecretEncoding = choice("auth.secret_encoding", &scheme.secret_encoding)?;
    let open = |name: &SecretName| {
        let secret = current(secrets, name, now)?;
        encoding
            .decode(secret.expose())
            .map_err(|e| BuildError::Auth(format!("secret `{name}`: {e}")))
    };
    let salt = scheme.salt.as_ref().map(open).transpose()?;
    let method = match scheme.method.as_str() {
        "totp" => otp::Method::Totp { digits: scheme.digits },
        "hmac" => otp::Method::Hmac {
            message: scheme.message.clone(),
            encode: choice("auth.encode", &scheme.encode)?,
        },
        _ => otp::Method::Static,
    };
    let shape = otp::Scheme {
        method,
        hash: choice("auth.hash", &scheme.hash)?,
        salt_use: choice("auth.salt_use", &scheme.salt_use)?,
        step_seconds: (scheme.step.as_millis() / 1_000) as i64,
        t0: scheme.t0,
        format: scheme.format.clone(),
    };
    let mut rendered = Vec::new();
    for (name, template) in &scheme.values {
        let value = template
            .render(values as &dyn Lookup, str::to_owned)
            .map_err(|e| BuildError::Auth(format!("one-time code: {e}")))?;
        rendered.push((name.as_str(), value));
    }
    let mut placeholders: Vec<(&str, &str)> =
        rendered.iter().map(|(name, value)| (*name, value.as_str())).collect();
    for (name, secret) in &scheme.secret_values {
        placeholders.push((name, text(current(secrets, secret, now)?)?));
    }
    let code = otp::Otp::new(open(&scheme.secret)?, salt, shape).map_err(bad)?;
    code.code(now.as_seconds(), &placeholders).map_err(bad)
}
