//! Texts that may be secrets, written down or kept elsewhere.

use std::fmt;

use posthorn_domain::Problem;
use serde::{Deserialize, Deserializer};

/// A text that nobody sees in logs: as written, or `env:NAME` or `file:PATH` where it is kept.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(String);

impl SecretText {
    /// As written.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, fetched from where it is kept. A file's last line end is not part of it.
    pub(super) fn resolve(&self, env: &dyn Fn(&str) -> Option<String>) -> Result<String, Problem> {
        if let Some(name) = self.0.strip_prefix("env:") {
            return env(name).ok_or_else(|| {
                Problem::new(format!(
                    "the environment variable {name} is not set; set it, or use another source"
                ))
            });
        }
        if let Some(path) = self.0.strip_prefix("file:") {
            let text = std::fs::read_to_string(path)
                .map_err(|e| format!("the file {path} cannot be read: {e}"))?;
            let text = text.strip_suffix('\n').unwrap_or(&text);
            return Ok(text.strip_suffix('\r').unwrap_or(text).to_owned());
        }
        Ok(self.0.clone())
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(…)")
    }
}

impl<'de> Deserialize<'de> for SecretText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        super::text_of(deserializer).map(Self)
    }
}
