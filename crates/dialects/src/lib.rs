//! Dialects: other systems' wire APIs, spoken on top of the same engine. One module a system.
//!
//! # What it must not know
//! No SQL, no sockets. What is delivered, when and how often is decided by the engine and by the
//! profile a system names; a dialect only translates between its wire and the engine's words.

pub mod cedros;
mod document;
pub mod efgs;
pub mod notificaties;

use serde::{Deserialize, Deserializer, de::Error};

/// What stands before all paths of a system, without a slash at its end; not where others are already.
fn prefix<'de, D: Deserializer<'de>>(deserializer: D, taken: &[&str]) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    let prefix = text.trim_end_matches('/');
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~/".contains(&b);
    if !prefix.starts_with('/') || prefix.contains("//") || !prefix.bytes().all(plain) {
        return Err(Error::custom("must be a path such as /api/v1"));
    }
    match prefix.split('/').nth(1).filter(|first| taken.contains(first)) {
        Some(first) => Err(Error::custom(format_args!(
            "must not begin with /{first}, which is the native API's"
        ))),
        None => Ok(prefix.to_owned()),
    }
}
