//! Dialects: other systems' wire APIs, spoken on top of the same engine. One folder a system.
//!
//! # Where to start
//! [`Dialect`] for what each of them is, [`configured`] for the list of all.
//!
//! # What it must not know
//! No SQL, no sockets. What is delivered, when and how often is decided by the engine and by the
//! profile a system names; a dialect only translates between its wire and the engine's words.

pub mod cedros;
mod dialect;
mod document;
pub mod efgs;
pub mod notificaties;
pub mod svix;

use serde::{Deserialize, Deserializer, de::Error};

pub use dialect::{Around, Dialect, Home, Services, Settings, StartError, Started};

/// All dialects that the configuration turns on. This is the list: a new one is a folder and a line here.
///
/// Of the six systems, the two others need no wire API of their own: PCA Hub is a profile
/// (`posthorn_domain::policy::profiles`), and Web Push is the crate `push-node`.
pub fn configured(settings: &mut impl Settings, around: &mut Around<'_>) -> Vec<Box<dyn Dialect>> {
    let all = [
        efgs::configured(settings, around),
        cedros::configured(settings, around),
        notificaties::configured(settings, around),
        svix::configured(settings, around),
    ];
    all.into_iter().flatten().collect()
}

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
