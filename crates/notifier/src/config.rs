//! The `callbacks:` block of a payment server's YAML, read exactly as it is written there.
//!
//! [`CallbacksConfig`] is what was written; [`CallbacksConfig::check`] turns it into [`Callbacks`]:
//! a policy over the profile `cedros`, with the secrets it needs. Every problem names its key.

mod duration;
mod env;
mod policy;
mod secret;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::PathBuf;

use posthorn_domain::{Policy, Span, TopicName};
use posthorn_engine::SecretInput;
use serde::{Deserialize, Deserializer, de};

pub use duration::Interval;
pub use secret::SecretText;

/// Where dead letters of the in-memory notifier go when a file is wanted and none is named.
pub const DLQ_PATH_DEFAULT: &str = "./data/webhook-dlq.json";
/// The topic on which events are published when none is named.
pub const TOPIC_DEFAULT: &str = "payments";
/// Shorter secrets are used, with a warning.
const SECRET_CHARACTERS: usize = 32;

/// The `callbacks:` block.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CallbacksConfig {
    /// Where webhooks go. Without it there are none.
    pub payment_success_url: Option<String>,
    /// Headers added to every request; values may be `env:NAME` or `file:PATH`.
    #[serde(deserialize_with = "header_map")]
    pub headers: BTreeMap<String, SecretText>,
    /// For one attempt; 10 s.
    pub timeout: Option<Interval>,
    /// When to try again.
    pub retry: RetryConfig,
    /// Whether the in-memory notifier keeps what it could not deliver.
    pub dlq_enabled: bool,
    /// In which file.
    pub dlq_path: Option<PathBuf>,
    /// Signs every request when set; may be `env:NAME` or `file:PATH`.
    pub hmac_secret: Option<SecretText>,
    /// Whether events outlive the process; in memory when absent.
    pub backend: Option<Backend>,
    /// How often the database is asked for work nobody told of; 5 s. Due work is never late by it.
    pub poll_interval: Option<Interval>,
    /// The tenant in Posthorn; its own default tenant when absent.
    pub tenant: Option<String>,
    /// The topic in Posthorn; [`TOPIC_DEFAULT`] when absent.
    pub topic: Option<String>,
}

/// `callbacks.retry`.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RetryConfig {
    /// Whether there is more than one attempt.
    pub enabled: bool,
    /// Attempts in all, the first included.
    pub max_attempts: u32,
    /// The wait before the second attempt.
    pub initial_interval: Interval,
    /// The longest wait.
    pub max_interval: Interval,
    /// Each wait is so many times the one before.
    pub multiplier: f64,
    /// For one attempt, when set here rather than in `callbacks.timeout`.
    #[serde(skip)]
    pub timeout: Option<Interval>,
}

impl Default for RetryConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            max_attempts: 5,
            initial_interval: Interval::from_millis(1_000),
            max_interval: Interval::from_millis(300_000),
            multiplier: 2.0,
            timeout: None,
        }
    }
}

/// `callbacks.backend`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    /// In memory: what is under way is lost with the process.
    #[default]
    Memory,
    /// In a PostgreSQL database.
    Postgres,
    /// In an embedded database.
    Sqlite,
}

impl std::fmt::Display for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory",
            Self::Postgres => "postgres",
            Self::Sqlite => "sqlite",
        })
    }
}

/// What is wrong with a `callbacks:` block, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct ConfigError {
    /// The key, dotted, beginning with `callbacks`.
    pub key: String,
    /// What is wrong and what would be right.
    pub problem: String,
}

impl ConfigError {
    fn new(key: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { key: key.into(), problem: problem.into() }
    }
}

/// A checked `callbacks:` block with a URL.
#[derive(Clone, Debug)]
pub struct Callbacks {
    /// Where webhooks go.
    pub url: String,
    /// What changes in the profile `cedros`, as a JSON merge patch.
    pub overrides: serde_json::Value,
    /// The complete policy: the profile with the changes.
    pub policy: Policy,
    /// The secrets the policy names.
    pub secrets: Vec<SecretInput>,
    /// The tenant's name, when one is given.
    pub tenant: Option<String>,
    /// The topic.
    pub topic: TopicName,
    /// The file for dead letters of the in-memory notifier, when they are kept.
    pub dlq_path: Option<PathBuf>,
    /// Whether events outlive the process.
    pub backend: Backend,
    /// The same, when the block says it.
    pub backend_named: Option<Backend>,
    /// How often the database is asked for work nobody told of.
    pub poll_interval: Option<Span>,
    /// What works, but should not stay so. For the log.
    pub warnings: Vec<String>,
}

impl CallbacksConfig {
    /// Reads a YAML document with a `callbacks:` block; other blocks are none of its business.
    pub fn from_yaml(text: &str) -> Result<Self, ConfigError> {
        #[derive(Deserialize)]
        struct Document {
            #[serde(default)]
            callbacks: Option<CallbacksConfig>,
        }
        // Without the lines around a mistake: they may hold secrets, and this goes to logs.
        let options = serde_saphyr::options! { with_snippet: false };
        let document: Document = serde_saphyr::from_str_with_options(text, options)
            .map_err(|e| ConfigError::new("callbacks", e.to_string()))?;
        Ok(document.callbacks.unwrap_or_default())
    }

    /// Checks everything. `None` when there is no URL: callbacks are off.
    pub fn check(&self) -> Result<Option<Callbacks>, ConfigError> {
        self.check_with(&|name| std::env::var(name).ok())
    }

    /// The same with another environment for `env:NAME`.
    pub fn check_with(
        &self,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Option<Callbacks>, ConfigError> {
        let (overrides, policy, secrets) = policy::build(self, env)?;
        let url = self.payment_success_url.as_deref().map(str::trim).unwrap_or_default();
        let topic = TopicName::new(self.topic.as_deref().unwrap_or(TOPIC_DEFAULT))
            .map_err(|e| ConfigError::new("callbacks.topic", e.to_string()))?;
        let mut warnings = Vec::new();
        if let Some(secret) = secrets.iter().find(|s| s.name.as_str() == policy::HMAC_SECRET)
            && secret.value.chars().count() < SECRET_CHARACTERS
        {
            warnings.push(format!(
                "callbacks.hmac_secret has fewer than {SECRET_CHARACTERS} characters; use a \
                 longer one"
            ));
        }
        if url.is_empty() {
            return Ok(None);
        }
        let poll_interval = match self.poll_interval.map(Interval::span) {
            Some(Span::ZERO) => {
                return Err(ConfigError::new("callbacks.poll_interval", "must be more than zero"));
            }
            other => other,
        };
        let dlq_path = || self.dlq_path.clone().unwrap_or_else(|| DLQ_PATH_DEFAULT.into());
        Ok(Some(Callbacks {
            url: url.to_owned(),
            overrides,
            policy,
            secrets,
            tenant: self.tenant.clone().filter(|name| !name.is_empty()),
            topic,
            dlq_path: self.dlq_enabled.then(dlq_path),
            backend: self.backend.unwrap_or_default(),
            backend_named: self.backend,
            poll_interval,
            warnings,
        }))
    }
}

/// Names and texts. What stands there instead is not repeated: it may be a secret.
fn header_map<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<BTreeMap<String, SecretText>, D::Error> {
    let problem = || de::Error::custom("headers must be names with texts");
    match serde_json::Value::deserialize(deserializer)? {
        serde_json::Value::Null => Ok(BTreeMap::new()),
        serde_json::Value::Object(fields) => fields
            .into_iter()
            .map(|(name, value)| {
                let text = SecretText::deserialize(value).map_err(|_| problem())?;
                Ok((name, text))
            })
            .collect(),
        _ => Err(problem()),
    }
}

/// A text, also when it is written like a number or a truth value.
pub(crate) fn text_of<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    match serde_json::Value::deserialize(deserializer)? {
        serde_json::Value::String(text) => Ok(text),
        value @ (serde_json::Value::Number(_) | serde_json::Value::Bool(_)) => {
            Ok(value.to_string())
        }
        _ => Err(de::Error::custom("must be a text")),
    }
}
