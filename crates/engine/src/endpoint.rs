//! Where one request goes: a normalised URL, with what egress made of it kept beside the text.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use posthorn_domain::Problem;
use posthorn_domain::policy::UrlPolicy;
use posthorn_egress::Target;

use crate::transport::UrlProblem;

/// Where a subscription's requests go, with the parsed form kept beside the text.
pub struct Endpoint {
    /// The normalised URL.
    pub url: String,
    /// Filled by the transport at the first use.
    pub(crate) target: OnceLock<Result<Arc<Target>, Problem>>,
}

impl Endpoint {
    /// An endpoint that was not used yet.
    pub fn new(url: String) -> Self {
        Self { url, target: OnceLock::new() }
    }

    /// Scheme, host and port.
    pub(crate) fn origin(&self) -> &str {
        &self.url[..self.path_at()]
    }

    /// What comes behind the origin.
    pub(crate) fn path_and_query(&self) -> &str {
        &self.url[self.path_at()..]
    }

    /// The URL, or that of another path and query at its origin.
    pub(crate) fn url_with(&self, path_and_query: Option<&str>) -> String {
        match path_and_query {
            None => self.url.clone(),
            Some(path) => format!("{}{path}", self.origin()),
        }
    }

    fn path_at(&self) -> usize {
        let host = self.url.find("://").map_or(0, |at| at + 3);
        self.url[host..].find(['/', '?']).map_or(self.url.len(), |at| host + at)
    }

    /// What policies ask about a URL. It is normalised, so its parts stand where they must: this
    /// cuts a text we wrote ourselves, it does not judge one that somebody else did.
    pub(crate) fn parts(&self) -> UrlParts<'_> {
        let (scheme, rest) = self.url.split_once("://").unwrap_or(("", &self.url));
        let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let host = match authority.strip_prefix('[') {
            Some(bracketed) => bracketed.split(']').next().unwrap_or_default(),
            None => authority.split(':').next().unwrap_or_default(),
        };
        UrlParts { https: scheme == "https", host, query: path.contains('?') }
    }
}

/// What policies ask about a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UrlParts<'a> {
    pub(crate) https: bool,
    pub(crate) host: &'a str,
    pub(crate) query: bool,
}

impl UrlParts<'_> {
    /// Whether a policy's rules allow its scheme: that of every URL the policy leads to.
    pub(crate) fn check_scheme(&self, rules: &UrlPolicy) -> Result<(), UrlProblem> {
        if rules.https_only && !self.https {
            let message = "the profile allows https only".to_owned();
            return Err(UrlProblem { code: "https_only", message });
        }
        Ok(())
    }

    /// Whether a secret may be sent there: over https, or without leaving this machine. Names are not
    /// believed, whatever they resolve to at the moment.
    pub(crate) fn check_private(&self, rules: &UrlPolicy) -> Result<(), UrlProblem> {
        self.check_scheme(rules)?;
        let loopback = self.host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
        if !self.https && !loopback {
            let message = "secrets are sent over https only; use https".to_owned();
            return Err(UrlProblem { code: "https_only", message });
        }
        Ok(())
    }

    /// Whether a policy's own rules allow it.
    pub(crate) fn check(&self, rules: &UrlPolicy) -> Result<(), UrlProblem> {
        let problem = |code, message: &str| Err(UrlProblem { code, message: message.to_owned() });
        self.check_scheme(rules)?;
        if !rules.query && self.query {
            return problem("query_not_allowed", "the profile allows no query; remove it");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_are_those_the_guard_sees() {
        let guard = posthorn_egress::Guard::default();
        for text in [
            "https://a.example/",
            "http://a.example:8080/b?c=d://e",
            "https://[2606:4700:4700::1111]:8443/?",
            "https://93.184.216.34/x?y",
            "HTTPS://B.Example",
        ] {
            let target = guard.check_url(text).expect(text);
            let endpoint = Endpoint::new(target.as_str().to_owned());
            let host = match target.host() {
                posthorn_egress::Host::Name(name) => name.to_string(),
                posthorn_egress::Host::Ip(ip) => ip.to_string(),
            };
            let expected = UrlParts {
                https: target.scheme() == posthorn_egress::Scheme::Https,
                host: &host,
                query: target.path_and_query().contains('?'),
            };
            assert_eq!(endpoint.parts(), expected, "{text}");
        }
    }
}
