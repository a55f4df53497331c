//! Values as people write them: sizes with units, and secrets that are kept elsewhere.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, de};

/// A number of bytes, such as `256KiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteSize(pub usize);

/// Units from large to small. Powers of two only: nobody means 256,000 by 256K.
const UNITS: [(&str, usize); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, size) =
            UNITS.iter().find(|(_, size)| self.0.is_multiple_of(*size)).unwrap_or(&("B", 1));
        write!(f, "{}{unit}", self.0 / size)
    }
}

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is not a size: write 512B, 256KiB, 8MiB or 1GiB");
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let number: usize = text[..digits].parse().map_err(|_| bad())?;
        let unit = text[digits..].trim();
        let (_, size) =
            UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).ok_or_else(bad)?;
        number.checked_mul(*size).map(Self).ok_or_else(bad)
    }
}

impl<'de> Deserialize<'de> for ByteSize {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// A port, as a number or, from the environment, as its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Port(pub u16);

impl<'de> Deserialize<'de> for Port {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(i64),
            Text(String),
        }
        let port = match Written::deserialize(deserializer) {
            Ok(Written::Number(number)) => u16::try_from(number).ok(),
            Ok(Written::Text(text)) => text.parse().ok(),
            Err(_) => None,
        };
        port.filter(|port| *port != 0)
            .map(Self)
            .ok_or_else(|| de::Error::custom("a port is a number from 1 to 65535"))
    }
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
    pub fn resolve(&self, env: &BTreeMap<String, String>) -> Result<String, String> {
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
            });
        }
        Ok(text.to_owned())
    }
}
