//! Which push services may be sent to, and who answers for what is sent: the operator's part of Web Push to others.
//!
//! Web Push has no registry of services. The list keeps a tenant from using push destinations for URLs that are no
//! push services; that nothing reaches a private address is the guard's business, whatever stands here.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use posthorn_domain::setting;
use serde::Deserialize;

/// The services of the browsers: Chrome and most others, Firefox, Safari, Edge.
const VENDORS: [&str; 4] = [
    "fcm.googleapis.com",
    "updates.push.services.mozilla.com",
    "*.push.apple.com",
    "*.notify.windows.com",
];
/// Longest name DNS can carry, and more than any address of a person needs.
const TEXT_BYTES_MAX: usize = 253;

/// Web Push to other services: a part of the section `push` of the configuration.
#[derive(Clone, Debug, Deserialize)]
pub struct PushOptions {
    /// Whom a push service may write to about what this server sends.
    #[serde(deserialize_with = "setting::text_if_any")]
    pub contact: Option<Contact>,
    /// The services that may be sent to.
    #[serde(deserialize_with = "setting::texts")]
    pub services: Vec<ServiceRule>,
}

impl Default for PushOptions {
    fn default() -> Self {
        let vendor = |text: &str| text.parse().expect("the names of the vendors are names");
        Self { contact: None, services: VENDORS.into_iter().map(vendor).collect() }
    }
}

impl PushOptions {
    /// Whether endpoints of this host may be sent to. It is lower case, and an IPv6 address has no brackets.
    pub(crate) fn allows(&self, host: &str) -> bool {
        self.services.iter().any(|rule| rule.covers(host))
    }
}

/// Hosts of a push service: one name, all names below one (`*.push.apple.com`), or all there are (`*`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceRule {
    host: String,
    scope: Scope,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    This,
    Below,
    Every,
}

/// Not a host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a host: write push.example.com, *.push.example.com for all names below, or * for \
     every host; no scheme, no port"
)]
pub struct ServiceRuleError(String);

impl FromStr for ServiceRule {
    type Err = ServiceRuleError;

    fn from_str(text: &str) -> Result<Self, ServiceRuleError> {
        if text == "*" {
            return Ok(Self { host: String::new(), scope: Scope::Every });
        }
        let (host, scope) = match text.strip_prefix("*.") {
            Some(host) => (host, Scope::Below),
            None => (text, Scope::This),
        };
        let label = |label: &str| {
            !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        };
        let name = host.len() <= TEXT_BYTES_MAX && host.split('.').all(label);
        let address = scope == Scope::This && host.parse::<IpAddr>().is_ok();
        if !name && !address {
            return Err(ServiceRuleError(text.to_owned()));
        }
        Ok(Self { host: host.to_ascii_lowercase(), scope })
    }
}

impl ServiceRule {
    fn covers(&self, host: &str) -> bool {
        match self.scope {
            Scope::This => host == self.host,
            Scope::Below => host
                .strip_suffix(&self.host)
                .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
            Scope::Every => true,
        }
    }
}

/// Domains that mean nothing to others. Senders report that Apple's service refuses a contact in one of them.
const OWN_DOMAINS: [&str; 3] = ["localhost", "local", "invalid"];

/// Whom a push service may write to (`sub` of RFC 8292): a `mailto:` or `https:` URL of a public domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contact(String);

/// Not a contact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be mailto:NAME@DOMAIN or an https: URL, with a public domain, e.g. \
     mailto:operations@example.com"
)]
pub struct ContactError;

impl Contact {
    /// The URL.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Contact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Contact {
    type Err = ContactError;

    fn from_str(text: &str) -> Result<Self, ContactError> {
        let plain = text.len() <= TEXT_BYTES_MAX && text.bytes().all(|b| b.is_ascii_graphic());
        let domain = match text.split_once(':') {
            Some(("mailto", address)) => {
                address.split_once('@').filter(|(name, _)| !name.is_empty()).map(|(_, at)| at)
            }
            Some(("https", rest)) => rest
                .strip_prefix("//")
                .and_then(|rest| rest.split(['/', '?', '#']).next())
                .and_then(|host| host.split(':').next()),
            _ => None,
        };
        let fine = plain && domain.is_some_and(is_public);
        if fine { Ok(Self(text.to_owned())) } else { Err(ContactError) }
    }
}

/// Whether a text is a domain that others can know.
fn is_public(domain: &str) -> bool {
    let label = |label: &str| {
        !label.is_empty() && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    let mut labels = domain.rsplit('.');
    let top = labels.next().unwrap_or_default().to_ascii_lowercase();
    domain.contains('.')
        && domain.split('.').all(label)
        && !OWN_DOMAINS.contains(&top.as_str())
        && !top.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(services: &[&str]) -> PushOptions {
        let services = services.iter().map(|text| text.parse().expect(text)).collect();
        PushOptions { contact: None, services }
    }

    #[test]
    fn the_vendors_are_known_and_nobody_else() {
        let usual = PushOptions::default();
        for host in [
            "fcm.googleapis.com",
            "updates.push.services.mozilla.com",
            "web.push.apple.com",
            "wns2-par02p.notify.windows.com",
        ] {
            assert!(usual.allows(host), "{host}");
        }
        for host in [
            "",
            "googleapis.com",
            "x.fcm.googleapis.com",
            "push.apple.com",
            ".push.apple.com",
            "webpush.apple.com",
            "web.push.apple.com.example.com",
            "127.0.0.1",
        ] {
            assert!(!usual.allows(host), "{host}");
        }
    }

    #[test]
    fn operators_may_name_hosts_and_addresses_or_open_all() {
        assert!(options(&["Push.Example.COM"]).allows("push.example.com"));
        assert!(options(&["127.0.0.1"]).allows("127.0.0.1"));
        assert!(options(&["::1"]).allows("::1"));
        assert!(options(&["*"]).allows("anything.example"));
        assert!(!options(&[]).allows("fcm.googleapis.com"));
        for text in ["", "*.", "**", "a.*", "https://a.example", "a.example:443", "a..b", "*.::1"] {
            assert!(text.parse::<ServiceRule>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_contact_is_a_mail_address_or_a_page() {
        for text in
            ["mailto:a@b.example", "https://example.com/contact", "https://a.example:8443?x"]
        {
            assert_eq!(text.parse::<Contact>().expect(text).as_str(), text);
        }
        for text in [
            "",
            "a@b.example",
            "mailto:",
            "mailto:a",
            "mailto:@b",
            "mailto:a@",
            "mailto:a@b@c",
            "mailto:a b@c.example",
            "http://example.com",
            "https:",
            "https:///",
            "https://",
            "https://a",
            "https://user@a.example/",
            "https://192.0.2.1/",
            "mailto:a@localhost",
            "mailto:a@server.LOCAL",
            "mailto:a@b.invalid",
            "mailto:a@b..example",
        ] {
            assert!(text.parse::<Contact>().is_err(), "{text}");
        }
    }
}
