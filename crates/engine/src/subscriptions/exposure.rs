//! Who is told a secret: the origins that requests carry it to.
//!
//! Some secrets are sent as they are, or as a token that opens the same doors. They were given for the
//! origins they went to when they were given. Whoever may change a subscription must not learn them by
//! sending them elsewhere, so that every new pair of secret and origin needs the secret again, in the
//! same request: a changed URL or token server, another way of authentication for a stored secret, another
//! profile, and other contents of a profile are all the same here. Keys that only sign, and seeds of
//! one-time codes, are sent nowhere and stay.

use std::collections::BTreeSet;

use posthorn_domain::policy::{Policy, SentTo};
use posthorn_domain::{Destination, SecretName};

use crate::engine::Engine;
use crate::error::{Error, Result};

/// Which secrets are sent to which origins.
#[derive(Default)]
pub(crate) struct Exposure(BTreeSet<Exposed>);

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Exposed {
    secret: SecretName,
    origin: String,
    /// Not the secret itself, but a token that was given for it: who had that has not had the secret.
    token: bool,
}

impl Exposure {
    /// Refuses what is told to somebody who was not told `before`, and was not given anew.
    pub(crate) fn check(&self, before: &Self, given: &[&SecretName]) -> Result<()> {
        let is_new = |told: &&Exposed| !before.0.contains(*told) && !given.contains(&&told.secret);
        let fresh: Vec<&Exposed> = self.0.iter().filter(is_new).collect();
        let Some(first) = fresh.first() else { return Ok(()) };
        let mut names: Vec<SecretName> = fresh.iter().map(|told| told.secret.clone()).collect();
        names.dedup();
        let origin = first.origin.clone();
        Err(Error::SecretRequired { names, origin, subscription: None })
    }
}

impl Engine {
    /// Which secrets a policy sends where.
    pub(crate) fn exposure(&self, policy: &Policy, destination: &Destination) -> Exposure {
        let Some(url) = destination.url() else { return Exposure::default() };
        let mut all = BTreeSet::new();
        for (secret, to) in policy.auth.iter().flat_map(|auth| auth.sends()) {
            let (origin, token) = match to {
                SentTo::Receiver => (origin(url).to_owned(), false),
                SentTo::Bearer => (origin(url).to_owned(), true),
                // What the guard refuses is reached by nobody; as it is written, it is still one place.
                SentTo::TokenServer(url) => match self.check_url(url) {
                    Ok(normal) => (origin(&normal).to_owned(), false),
                    Err(_) => (origin(url).to_owned(), false),
                },
            };
            all.insert(Exposed { secret: secret.clone(), origin, token });
        }
        Exposure(all)
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
