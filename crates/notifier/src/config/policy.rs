//! From a `callbacks:` block to a policy over the profile `cedros`.

use std::collections::BTreeMap;

use posthorn_domain::policy::{Policy, profiles};
use posthorn_domain::{SecretName, Span};
use posthorn_engine::SecretInput;
use serde_json::{Map, Value, json};

use super::{CallbacksConfig, ConfigError};

/// What the policy calls the secret that signs.
pub(super) const HMAC_SECRET: &str = "hmac";
/// The header with the signature.
pub(crate) const SIGNATURE_HEADER: &str = "X-Cedros-Signature";
/// For a connection, whatever the whole attempt may take.
const CONNECT: Span = Span::from_secs(5);
/// How much longer than an attempt its lease is. It is written down before each attempt, which is what
/// makes a webhook `processing`; after a crash nobody repeats it before the lease has ended.
const LEASE_MARGIN: Span = Span::from_secs(10);

type Built = (Value, Policy, Vec<SecretInput>);

/// The changes, the policy they make, and the secrets it needs.
pub(super) fn build(
    config: &CallbacksConfig,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<Built, ConfigError> {
    let base = profiles::cedros();
    let mut auth = Vec::new();
    let mut secrets = Vec::new();
    if let Some(secret) = &config.hmac_secret {
        let key = "callbacks.hmac_secret";
        let value = secret.resolve(env).map_err(|e| ConfigError::new(key, e))?;
        // An empty one means: not signed. One that is kept elsewhere was meant to be there.
        if !value.is_empty() {
            secrets.push(secret_input(HMAC_SECRET, value));
            auth.push(json!({"kind": "hmac_header", "secret": HMAC_SECRET,
                "header": SIGNATURE_HEADER, "hash": "sha256", "encoding": "hex",
                "content": "body", "format": "sha256={signature}"}));
        }
    }
    let mut request = Map::new();
    let mut plain = BTreeMap::new();
    for (number, (name, value)) in config.headers.iter().enumerate() {
        let key = format!("callbacks.headers.{name}");
        let value = value.resolve(env).map_err(|e| ConfigError::new(&key, e))?;
        let own = base.request.headers.keys().map(String::as_str).chain([SIGNATURE_HEADER]);
        if own.into_iter().any(|own| own.eq_ignore_ascii_case(name)) {
            return Err(ConfigError::new(key, "is set for each webhook; remove it here"));
        }
        posthorn_domain::policy::headers::check_name(name)
            .and_then(|()| posthorn_domain::policy::headers::check_value(&value))
            .map_err(|e| ConfigError::new(&key, e.to_string()))?;
        match name.to_ascii_lowercase().as_str() {
            "content-type" => drop(request.insert("content_type".to_owned(), json!(value))),
            "user-agent" => drop(request.insert("user_agent".to_owned(), json!(value))),
            _ if value.is_empty() => drop(plain.insert(name.clone(), String::new())),
            // Whatever it is, it may be a secret: it is kept like one.
            _ => {
                let secret = format!("header-{number}");
                auth.push(json!({"kind": "secret_header", "header": name, "secret": secret}));
                secrets.push(secret_input(&secret, value));
            }
        }
    }
    if !plain.is_empty() {
        request.insert("headers".to_owned(), json!(plain));
    }
    let (limits, lease) = limits(config)?;
    let overrides = json!({
        "request": request,
        "auth": auth,
        "schedule": schedule(config)?,
        "limits": limits,
        "lease": {"time": lease, "durable": true},
    });
    let policy =
        base.patched(&overrides).map_err(|e| ConfigError::new(key_of(&e.path), e.problem))?;
    Ok((overrides, policy, secrets))
}

fn secret_input(name: &str, value: String) -> SecretInput {
    SecretInput { name: SecretName::new(name).expect("made of letters, digits and hyphens"), value }
}

fn schedule(config: &CallbacksConfig) -> Result<Value, ConfigError> {
    let retry = &config.retry;
    let (initial, cap) = (retry.initial_interval.span(), retry.max_interval.span());
    if retry.enabled && retry.max_attempts == 0 {
        let problem = "must be at least 1; to try once only, set retry.enabled to false";
        return Err(ConfigError::new("callbacks.retry.max_attempts", problem));
    }
    if initial == Span::ZERO {
        return Err(ConfigError::new("callbacks.retry.initial_interval", "must be more than zero"));
    }
    if cap < initial {
        let problem = format!("must not be shorter than initial_interval ({initial})");
        return Err(ConfigError::new("callbacks.retry.max_interval", problem));
    }
    let attempts = if retry.enabled { retry.max_attempts } else { 1 };
    Ok(json!({
        "backoff": {"exponential": {"initial": initial, "factor": retry.multiplier, "cap": cap}},
        "max_attempts": attempts,
    }))
}

/// Deadlines, and how long an attempt is protected, which must be longer.
fn limits(config: &CallbacksConfig) -> Result<(Value, Span), ConfigError> {
    let base = profiles::cedros();
    let total = config.retry.timeout.or(config.timeout).map_or(base.limits.total, |t| t.span());
    if total == Span::ZERO {
        return Err(ConfigError::new("callbacks.timeout", "must be more than zero"));
    }
    let lease = total.as_millis().saturating_add(LEASE_MARGIN.as_millis());
    let lease = Span::from_millis(lease);
    Ok((json!({"connect": CONNECT, "response": total, "total": total}), lease))
}

/// Which key of the block a field of the policy comes from.
fn key_of(path: &str) -> String {
    let key = match path {
        "schedule.max_attempts" => "retry.max_attempts",
        "schedule.backoff.exponential.factor" => "retry.multiplier",
        "schedule.backoff.exponential.cap" => "retry.max_interval",
        "limits.response" | "limits.total" | "lease.time" => "timeout",
        _ if path.starts_with("auth") || path.starts_with("request") => "headers",
        _ => return "callbacks".to_owned(),
    };
    format!("callbacks.{key}")
}
