//! The configuration in effect, as it may be shown: on a terminal, and to operators over the API.

use posthorn_api::ConfigEntry;
use serde_json::Value;

use super::Loaded;
use super::values::SecretRef;

/// Every key with its value and where that comes from, without what is secret.
pub fn entries(loaded: &Loaded) -> Vec<ConfigEntry> {
    let all = loaded.layers.entries().into_iter().map(|(path, value, source)| {
        let key = path.join(".");
        ConfigEntry { value: redacted(&key, value), source: source.to_string(), key }
    });
    all.collect()
}

/// Without passwords. Secrets are references, which may be shown; a database's URL may hold one, and
/// payment servers' blocks have always held theirs.
pub fn redacted(key: &str, value: &Value) -> Value {
    match value {
        Value::String(text) if ["store.url", "store.listen_url"].contains(&key) => {
            Value::String(redact_url(text))
        }
        Value::Null => Value::Null,
        value
            if key == "callbacks.hmac_secret"
                || ["callbacks.headers.", "telemetry.otlp.headers."]
                    .iter()
                    .any(|section| key.starts_with(section)) =>
        {
            let kept_elsewhere =
                |text: &&str| text.starts_with("env:") || text.starts_with("file:");
            match value.as_str().filter(kept_elsewhere) {
                Some(_) => value.clone(),
                None => Value::String("(redacted)".to_owned()),
            }
        }
        Value::String(text) if key.ends_with(".authorizations.secret") => {
            match SecretRef::parse(text) {
                Some(_) => value.clone(),
                None => Value::String("(redacted)".to_owned()),
            }
        }
        Value::Array(items) if key.ends_with(".credentials") => {
            items.iter().cloned().map(without_secret).collect()
        }
        other if is_secret(key) => hidden(other),
        other => other.clone(),
    }
}

/// Whether a key holds a secret by its name. All that are known are references already; this is for those to come.
fn is_secret(key: &str) -> bool {
    let name = key.rsplit('.').next().unwrap_or_default();
    ["secret", "password", "token"].iter().any(|word| name.ends_with(word))
}

/// What is written out is hidden; a reference may be shown.
fn hidden(value: &Value) -> Value {
    match value {
        Value::String(text) if text.is_empty() || SecretRef::parse(text).is_some() => value.clone(),
        Value::String(_) => Value::String("(redacted)".to_owned()),
        Value::Array(items) => items.iter().map(hidden).collect(),
        other => other.clone(),
    }
}

/// A credential whose secret is written out does not show it.
fn without_secret(mut item: Value) -> Value {
    if let Some(Value::String(text)) = item.get_mut("secret")
        && SecretRef::parse(text).is_none()
    {
        *text = "(redacted)".to_owned();
    }
    item
}

fn redact_url(text: &str) -> String {
    let Ok(mut url) = ::url::Url::parse(text) else {
        return if text == "sqlite" { text.to_owned() } else { "(redacted)".to_owned() };
    };
    if matches!(url.scheme(), "env" | "file") {
        return text.to_owned();
    }
    if url.password().is_some() && url.set_password(Some("redacted")).is_err() {
        return "(redacted)".to_owned();
    }
    // A password may also be given as a parameter.
    if url.query_pairs().any(|(name, _)| name == "password") {
        return "(redacted)".to_owned();
    }
    url.to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{redact_url, redacted};

    #[test]
    fn passwords_are_not_shown() {
        for (text, shown) in [
            ("sqlite", "sqlite"),
            ("env:DATABASE", "env:DATABASE"),
            ("file:/run/db", "file:/run/db"),
            ("postgres://u:hush@h:5432/d", "postgres://u:redacted@h:5432/d"),
            ("postgres://u@h/d", "postgres://u@h/d"),
            ("postgres://h/d?password=hush", "(redacted)"),
        ] {
            assert_eq!(redact_url(text), shown);
        }
    }

    #[test]
    fn what_is_secret_by_its_name_is_hidden_unless_it_is_a_reference() {
        let shown = |key: &str, value: Value| redacted(key, &value);
        assert_eq!(shown("console.oidc.client_secret", json!("hush")), json!("(redacted)"));
        assert_eq!(shown("a.password", json!(["hush", "env:B"])), json!(["(redacted)", "env:B"]));
        assert_eq!(shown("a.token", json!("file:/run/t")), json!("file:/run/t"));
        assert_eq!(shown("a.secret", json!(null)), json!(null));
        assert_eq!(shown("engine.slots", json!(64)), json!(64));
    }
}
