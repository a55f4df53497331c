//! Host names and ports that are refused before anything is looked up.

use super::UrlRefusal;

/// Longest name DNS can carry, without the trailing dot.
const NAME_BYTES_MAX: usize = 253;
/// Longest label DNS can carry.
const LABEL_BYTES_MAX: usize = 63;

/// Domains that do not lead to the public internet. A name is refused when it is one of these or
/// below one of these.
const DENIED_DOMAINS: [&str; 18] = [
    "localhost",
    "localdomain",
    "local",
    "internal",
    "home.arpa",
    "home",
    "lan",
    "intranet",
    "private",
    "corp",
    "cluster.local",
    "svc",
    "arpa",
    "onion",
    "test",
    "invalid",
    "metadata",
    "instance-data",
];

/// A host name that the operator opens: the name itself, or with `*.` in front all names below it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameRule {
    name: String,
    scope: Scope,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    This,
    Below,
    Every,
}

/// Not a name that can be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a name: write openzaak, or *.svc.cluster.local for all names below")]
pub struct NameRuleError(String);

impl std::str::FromStr for NameRule {
    type Err = NameRuleError;

    fn from_str(text: &str) -> Result<Self, NameRuleError> {
        let (name, scope) = match text.strip_prefix("*.") {
            Some(name) => (name, Scope::Below),
            None => (text, Scope::This),
        };
        let name = name.to_ascii_lowercase();
        let number = name.parse::<std::net::IpAddr>().is_ok();
        if number || name.len() > NAME_BYTES_MAX || !name.split('.').all(label_is_valid) {
            return Err(NameRuleError(text.to_owned()));
        }
        Ok(Self { name, scope })
    }
}

impl NameRule {
    /// Opens every name: only for a way out to URLs that nobody but the operator writes. There is no
    /// text for it, so that no configuration can open it to tenants.
    pub const fn every() -> Self {
        Self { name: String::new(), scope: Scope::Every }
    }

    /// Whether it opens this name, which is lower case and without the trailing dot.
    pub(super) fn covers(&self, name: &str) -> bool {
        match self.scope {
            Scope::This => name == self.name,
            Scope::Below => name
                .strip_suffix(&self.name)
                .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
            Scope::Every => true,
        }
    }
}

/// Ports from 1024 on where something other than an HTTP receiver listens: the browsers' list of
/// bad ports, and data services that would take an HTTP request for commands.
const CLOSED_PORTS: [u16; 63] = [
    1433, 1434, 1521, 1719, 1720, 1723, 1883, 2049, 2181, 2375, 2376, 2377, 2379, 2380, 3306, 3389,
    3659, 4045, 4190, 4222, 4369, 5060, 5061, 5432, 5433, 5671, 5672, 5900, 5984, 5985, 5986, 6000,
    6379, 6380, 6432, 6443, 6566, 6665, 6666, 6667, 6668, 6669, 6679, 6697, 7000, 7001, 8500, 9042,
    9092, 9160, 9200, 9300, 10080, 10250, 10255, 11211, 11434, 26379, 27017, 27018, 27019, 33060,
    61616,
];

/// The rules for names that can be judged without DNS. `name` is lower case and without the
/// trailing dot, as the URL parser and its caller leave it.
pub(super) fn check(name: &str) -> Result<(), UrlRefusal> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.split('.').all(label_is_valid) {
        return Err(UrlRefusal::HostInvalid);
    }
    let denied = DENIED_DOMAINS.iter().any(|domain| {
        name.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    });
    if denied {
        return Err(UrlRefusal::HostDenied);
    }
    // The resolver's search list must never get a chance to complete it.
    if !name.contains('.') {
        return Err(UrlRefusal::HostNotQualified);
    }
    Ok(())
}

fn label_is_valid(label: &str) -> bool {
    !label.is_empty()
        && label.len() <= LABEL_BYTES_MAX
        && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
}

/// Whether receivers are expected on this port when the operator says nothing about ports.
pub(super) fn port_is_open(port: u16) -> bool {
    match port {
        80 | 443 => true,
        0..=1023 => false,
        _ => !CLOSED_PORTS.contains(&port),
    }
}
