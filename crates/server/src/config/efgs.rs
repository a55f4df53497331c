//! `dialects.efgs`: the callbacks of the European Federation Gateway Service.

use std::collections::BTreeMap;

use posthorn_dialects::efgs::{CallbackIdScope, Options};
use posthorn_domain::policy::Auth;
use posthorn_domain::{Policy, ProfileName, TopicName};
use posthorn_listener::ProxyIdentity;
use serde::Deserialize;

use super::{Check, Server};

const SECTION: &str = "dialects.efgs";
/// What the store can keep of a name with its country before it, in characters of any length.
const ID_LENGTH_MAX: usize = 60;
/// What labels can keep of a URL beside the rest.
const URL_LENGTH_MAX: usize = 2_048;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawEfgs {
    pub(super) enabled: bool,
    pub(super) prefix: String,
    pub(super) tenant: String,
    pub(super) profile: String,
    pub(super) topic: String,
    pub(super) thumbprint_header: String,
    pub(super) subject_header: String,
    pub(super) proxies: Vec<String>,
    pub(super) mode: String,
    pub(super) callback_id_scope: String,
    pub(super) callback_id_length: usize,
    pub(super) url_length: usize,
}

/// The dialect's knobs; `None` when it is off. Changes its profile where the mode asks for it.
pub(super) fn build(
    check: &mut Check<'_>,
    raw: RawEfgs,
    server: Option<&Server>,
    profiles: &mut BTreeMap<ProfileName, Policy>,
) -> Option<Options> {
    let key = |name: &str| format!("{SECTION}.{name}");
    let prefix = raw.prefix.trim_end_matches('/').to_owned();
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~/".contains(&b);
    if !prefix.starts_with('/') || prefix.contains("//") || !prefix.bytes().all(plain) {
        check.refuse(&key("prefix"), "must be a path such as /diagnosiskeys");
    }
    if prefix == "/v1" || prefix.starts_with("/v1/") {
        check.refuse(&key("prefix"), "must not lie below /v1, where the native API is");
    }
    if raw.tenant.trim().is_empty() {
        check.refuse(&key("tenant"), "must be the name of a tenant");
    }
    for (name, number, max) in [
        ("callback_id_length", raw.callback_id_length, ID_LENGTH_MAX),
        ("url_length", raw.url_length, URL_LENGTH_MAX),
    ] {
        if !(1..=max).contains(&number) {
            check.refuse(&key(name), format!("must be 1 to {max}"));
        }
    }
    let scope = match raw.callback_id_scope.as_str() {
        "global" => Ok(CallbackIdScope::Global),
        "per_country" => Ok(CallbackIdScope::PerCountry),
        other => Err(format!("`{other}` is neither global nor per_country")),
    };
    let scope = check.accept(&key("callback_id_scope"), scope);
    let topic = check.accept(&key("topic"), TopicName::new(&raw.topic));
    let profile = check.accept(&key("profile"), ProfileName::new(&raw.profile));
    let identity = identity(check, &raw, server);
    if !raw.enabled {
        return None;
    }
    let profile = profile?;
    match profiles.get_mut(&profile) {
        Some(policy) => apply_mode(check, &raw.mode, policy),
        None => check.refuse(&key("profile"), format!("there is no profile `{profile}`")),
    }
    let tls = server.and_then(|server| server.tls.as_ref());
    let shakes_hands = tls.is_some_and(|tls| tls.tls.asks());
    let identity = identity?;
    if identity.is_none() && !shakes_hands {
        let problem = "must name where the proxy that ends the callers' TLS connects from (or \
                       server.identity.proxies), unless server.tls asks for certificates";
        check.refuse(&key("proxies"), problem);
    }
    Some(Options {
        tenant: raw.tenant,
        profile,
        topic: topic?,
        prefix,
        identity,
        callback_id_scope: scope?,
        callback_id_length: raw.callback_id_length,
        url_length: raw.url_length,
    })
}

/// The proxy that is believed here: with its own headers, from its own addresses or those of
/// `server.identity`. `Some(None)` when there is none.
fn identity(
    check: &mut Check<'_>,
    raw: &RawEfgs,
    server: Option<&Server>,
) -> Option<Option<ProxyIdentity>> {
    let key = |name: &str| format!("{SECTION}.{name}");
    let mut header = |name: &str, text: &str| {
        let parsed = http::HeaderName::try_from(text);
        check.accept(&key(name), parsed.map_err(|_| format!("`{text}` is not a header name")))
    };
    let thumbprint_header = header("thumbprint_header", &raw.thumbprint_header);
    let subject_header = header("subject_header", &raw.subject_header);
    let mut proxies = check.proxies(&key("proxies"), &raw.proxies)?;
    if proxies.is_empty() {
        let shared = server.and_then(|server| server.identity.as_ref());
        proxies = shared.map(|shared| shared.proxies.clone()).unwrap_or_default();
    }
    if proxies.is_empty() {
        return Some(None);
    }
    Some(Some(ProxyIdentity {
        thumbprint_header: thumbprint_header?,
        subject_header: Some(subject_header?),
        proxies,
    }))
}

/// In mode `native_mtls` the certificates that the profile would name to a proxy are shown in the
/// handshake.
fn apply_mode(check: &mut Check<'_>, mode: &str, policy: &mut Policy) {
    match mode {
        "proxy_header" => {}
        "native_mtls" => {
            for auth in &mut policy.auth {
                if let Auth::CertificateThumbprint(header) = auth {
                    *auth = Auth::ClientCertificate(header.choice.clone());
                }
            }
        }
        other => {
            let problem = format!("`{other}` is neither proxy_header nor native_mtls");
            check.refuse(&format!("{SECTION}.mode"), problem);
        }
    }
}
