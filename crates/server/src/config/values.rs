//! Values as people write them here: places to listen at, and secrets that are kept elsewhere.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use posthorn_domain::{Problem, setting};
use serde::Deserializer;

/// Where to listen.
struct Address(SocketAddr);

impl FromStr for Address {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let problem =
            || format!("`{text}` is not an address: write 127.0.0.1:8080, 0.0.0.0:80 or [::]:80");
        text.parse().map(Self).map_err(|_| problem().into())
    }
}

pub(super) fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    setting::text(deserializer).map(|Address(address)| address)
}

pub(super) fn address_if_any<'de, D>(deserializer: D) -> Result<Option<SocketAddr>, D::Error>
where
    D: Deserializer<'de>,
{
    let address = setting::text_if_any(deserializer)?;
    Ok(address.map(|Address(address)| address))
}

/// Where a secret is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretRef {
    /// In an environment variable.
    Env(String),
    /// In a file.
    File(PathBuf),
}

impl SecretRef {
    /// `env:NAME` or `file:PATH`; `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(name) = text.strip_prefix("env:") {
            return Some(Self::Env(name.to_owned()));
        }
        text.strip_prefix("file:").map(|path| Self::File(PathBuf::from(path)))
    }

    /// The secret, without the line end that editors leave. The message names the place only.
    pub fn resolve(&self, env: &BTreeMap<String, String>) -> Result<String, Problem> {
        let text = match self {
            Self::Env(name) => env
                .get(name)
                .cloned()
                .ok_or_else(|| format!("the environment variable {name} is not set"))?,
            Self::File(path) => std::fs::read_to_string(path)
                .map_err(|e| format!("the file {} cannot be read: {e}", path.display()))?,
        };
        let text = text.trim_end_matches(['\r', '\n']);
        if text.is_empty() {
            return Err(match self {
                Self::Env(name) => format!("the environment variable {name} is empty"),
                Self::File(path) => format!("the file {} is empty", path.display()),
            }
            .into());
        }
        Ok(text.to_owned())
    }
}
