//! Who is told a secret: the origins that requests carry it to.
//!
//! Some secrets are sent as they are, or as a token that opens the same doors. They were given for the
//! origins they went to when they were given. Whoever may change a subscription must not learn them by
//! sending them elsewhere, so that every new pair of secret and origin needs the secret again, in the
//! same request: a changed URL or token server, another way of authentication for a stored secret, another
//! profile, and other contents of a profile are all the same here. Keys that only sign, and seeds of
//! one-time codes, are sent nowhere and stay.

use std::collections::BTreeSet;

use posthorn_domain::policy::{Policy, ToldTo};
use posthorn_domain::{Destination, SecretName};

use crate::engine::Engine;
use crate::error::{Error, Result};

/// Pairs of a secret and an origin it is sent to.
#[derive(Default)]
pub(crate) struct Told(BTreeSet<(SecretName, String)>);

impl Told {
    /// Refuses what is told to somebody who was not told `before`, and was not given anew.
    pub(crate) fn check<'s>(
        &self,
        before: &Self,
        given: impl Iterator<Item = &'s SecretName> + Clone,
    ) -> Result<()> {
        let is_new = |pair: &&(SecretName, String)| {
            !before.0.contains(*pair) && given.clone().all(|name| *name != pair.0)
        };
        let fresh: Vec<&(SecretName, String)> = self.0.iter().filter(is_new).collect();
        let Some((_, origin)) = fresh.first() else { return Ok(()) };
        let mut names: Vec<SecretName> = fresh.iter().map(|(name, _)| name.clone()).collect();
        names.dedup();
        Err(Error::SecretRequired { names, origin: origin.clone(), subscription: None })
    }
}

impl Engine {
    /// Which secrets a policy sends where.
    pub(crate) fn told(&self, policy: &Policy, destination: &Destination) -> Told {
        let Some(url) = destination.url() else { return Told::default() };
        let mut pairs = BTreeSet::new();
        for (secret, to) in policy.auth.iter().flat_map(|auth| auth.told()) {
            let origin = match to {
                ToldTo::Receiver => origin(url).to_owned(),
                // What the guard refuses is reached by nobody; as it is written, it is still one place.
                ToldTo::TokenServer(url) => match self.check_url(url) {
                    Ok(normal) => origin(&normal).to_owned(),
                    Err(_) => origin(url).to_owned(),
                },
            };
            pairs.insert((secret.clone(), origin));
        }
        Told(pairs)
    }
}

/// Scheme, host and port of a normalised URL.
fn origin(url: &str) -> &str {
    let rest = url.find("://").map_or(0, |at| at + 3);
    let end = url[rest..].find(['/', '?', '#']).map_or(url.len(), |at| rest + at);
    &url[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_ends_where_the_path_begins() {
        for (url, wanted) in [
            ("https://a.example/b?c=https://d/", "https://a.example"),
            ("https://a.example:8443", "https://a.example:8443"),
            ("http://[::1]:80/x", "http://[::1]:80"),
            ("https://a.example?x", "https://a.example"),
        ] {
            assert_eq!(origin(url), wanted);
        }
    }
}
