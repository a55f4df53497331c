//! Which URLs and addresses a tenant may make us talk to.
//!
//! Two gates. [`Guard::check_url`] judges everything that can be known without DNS, once, when a
//! URL is written down. [`Guard::check_address`] judges every address right before we connect to
//! it, and before a connection is used again, because a name can point elsewhere every time it is
//! asked, and because what belongs to us changes.
//!
//! It must not know about connections, DNS or deliveries.

mod address;
pub mod audit;
mod names;
mod own;
mod refusal;
mod rule;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use http::uri::PathAndQuery;
use rustls_pki_types::ServerName;
use tokio::time::Instant;
use url::{Position, Url};

pub use names::{NameRule, NameRuleError};
pub use own::Own;
pub use refusal::{AddressRefusal, UrlRefusal};
pub use rule::{AddressRule, AddressRuleError};

use crate::target::{Host, Scheme, Target};
use address::Class;

/// Longer URLs are mistakes or attacks; receivers and proxies cut them anyway.
const URL_BYTES_MAX: usize = 2_048;

/// What the operator decides about receivers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Networks opened in spite of the address policy.
    pub allow: Vec<AddressRule>,
    /// Networks closed in spite of the address policy; these win over `allow`.
    pub deny: Vec<AddressRule>,
    /// Host names opened although they have no domain, or one that does not lead to the public
    /// internet. Their addresses are judged like all others.
    pub names: Vec<NameRule>,
    /// The only ports open to receivers; when empty, those where receivers are expected.
    pub ports: Vec<u16>,
    /// Refuse plain http.
    pub https_only: bool,
    /// Accept hosts outside ASCII and use their `xn--` form.
    pub allow_idn: bool,
    /// Judge addresses of the well-known NAT64 prefix by the IPv4 address inside.
    pub nat64: bool,
    /// Let `allow` open even link-local addresses and cloud metadata services.
    pub dangerously_allow_metadata: bool,
}

/// The rules in force. Clones share what belongs to this installation.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    rules: Arc<Rules>,
    own: Arc<own::OwnState>,
}

impl Guard {
    /// A guard that denies all but public addresses, opened and closed by the operator's rules.
    pub fn new(rules: Rules) -> Self {
        Self { rules: Arc::new(rules), own: Arc::default() }
    }

    /// Says what belongs to this installation, in place of what was said before. Connections that
    /// are open already are closed when they are next looked at.
    pub fn set_own(&self, own: Own) {
        self.own.set(own);
    }

    /// Learns the addresses of this machine's network interfaces, unless it did so lately.
    pub(crate) fn refresh(&self, now: Instant) {
        self.own.refresh(now);
    }

    /// Parses a URL a tenant gave us and applies every rule that needs no DNS.
    ///
    /// The result is the only form in which a URL enters this crate, so nothing ever parses the
    /// text a second time with another idea of what it means.
    pub fn check_url(&self, text: &str) -> Result<Target, UrlRefusal> {
        self.check_raw(text)?;
        let mut url = Url::parse(text).map_err(UrlRefusal::Unparseable)?;
        // The scheme comes first: under schemes unknown to WHATWG, hosts are opaque texts and
        // `127.0.0.1` would be a name.
        let scheme = match url.scheme() {
            "https" => Scheme::Https,
            "http" if self.rules.https_only => return Err(UrlRefusal::HttpsOnly),
            "http" => Scheme::Http,
            _ => return Err(UrlRefusal::Scheme),
        };
        // `http:example.com` and `http:///example.com` would be repaired by the parser.
        if split(text).1.is_empty() {
            return Err(UrlRefusal::HostInvalid);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(UrlRefusal::Userinfo);
        }
        if url.fragment().is_some() {
            return Err(UrlRefusal::Fragment);
        }
        let port = url.port().unwrap_or(scheme.default_port());
        let host = match url.host() {
            None => return Err(UrlRefusal::HostInvalid),
            Some(url::Host::Ipv4(ip)) => Host::Ip(IpAddr::V4(ip)),
            Some(url::Host::Ipv6(ip)) => Host::Ip(IpAddr::V6(ip)),
            Some(url::Host::Domain(name)) => {
                // One trailing dot is a spelling of the same name.
                let name = name.strip_suffix('.').unwrap_or(name);
                match names::check(name) {
                    Err(UrlRefusal::HostDenied | UrlRefusal::HostNotQualified)
                        if self.rules.names.iter().any(|rule| rule.covers(name)) => {}
                    other => other?,
                }
                if self.own.has_name(name, port) {
                    return Err(UrlRefusal::HostOwn);
                }
                Host::Name(name.into())
            }
        };
        match &host {
            Host::Ip(ip) => self.check_address(*ip, port).map_err(UrlRefusal::Address)?,
            Host::Name(name) => {
                // A rule that names the port may open it, depending on the address.
                let opened = |rule: &AddressRule| rule.port == Some(port);
                if !self.port_is_open(port) && !self.rules.allow.iter().any(opened) {
                    return Err(UrlRefusal::Port { port });
                }
                let plain = name.to_string();
                url.set_host(Some(&plain)).map_err(UrlRefusal::Unparseable)?;
            }
        }
        build(&url, scheme, host, port)
    }

    /// Whether a connection to this address and port may be opened, or used again.
    pub fn check_address(&self, ip: IpAddr, port: u16) -> Result<(), AddressRefusal> {
        let written = ip;
        let ip = self.meant(ip);
        // The same place can be written as an IPv6 address, which rules must not miss.
        let embedded = match ip {
            IpAddr::V6(ip) => address::embedded_v4(ip),
            IpAddr::V4(_) => [None; 2],
        };
        let embedded = embedded.map(|v4| v4.map(IpAddr::V4));
        let spelled = || [&written, &ip].into_iter().chain(embedded.iter().flatten());
        if spelled().any(|ip| self.own.listens_on(*ip, port)) {
            return Err(AddressRefusal::OwnListener);
        }
        let class = address::classify(ip);
        if class == Class::Metadata && !self.rules.dangerously_allow_metadata {
            return Err(AddressRefusal::Metadata);
        }
        if self.rules.deny.iter().any(|rule| spelled().any(|ip| rule.covers(*ip, port))) {
            return Err(AddressRefusal::Denied);
        }
        if port != 0 && self.rules.allow.iter().any(|rule| rule.covers(ip, port)) {
            return Ok(());
        }
        match class {
            Class::Metadata => return Err(AddressRefusal::Metadata),
            Class::Special => return Err(AddressRefusal::NotPublic),
            Class::Public => {}
        }
        if self.own.has_address(ip) {
            return Err(AddressRefusal::Own);
        }
        if !self.port_is_open(port) {
            return Err(AddressRefusal::Port { port });
        }
        Ok(())
    }

    /// The address that a translator on the way will connect to, when the operator says that there
    /// is one.
    fn meant(&self, ip: IpAddr) -> IpAddr {
        match ip {
            IpAddr::V6(v6) if self.rules.nat64 => address::nat64(v6).map_or(ip, IpAddr::V4),
            _ => ip,
        }
    }

    fn port_is_open(&self, port: u16) -> bool {
        if self.rules.ports.is_empty() {
            names::port_is_open(port)
        } else {
            port != 0 && self.rules.ports.contains(&port)
        }
    }

    /// Whether plain http is refused altogether.
    pub(crate) fn https_only(&self) -> bool {
        self.rules.https_only
    }

    /// What the parser would silently repair or drop is refused before it sees it.
    fn check_raw(&self, text: &str) -> Result<(), UrlRefusal> {
        if text.len() > URL_BYTES_MAX {
            return Err(UrlRefusal::TooLong { max: URL_BYTES_MAX });
        }
        if text.trim() != text || text.is_empty() {
            return Err(UrlRefusal::Surrounded);
        }
        if text.bytes().any(|b| b < 0x20 || b == 0x7F) {
            return Err(UrlRefusal::ControlCharacter);
        }
        if text.contains('\\') {
            return Err(UrlRefusal::Backslash);
        }
        let (before, authority, after) = split(text);
        let outside = if self.rules.allow_idn { [before, after] } else { [text, ""] };
        if !outside.iter().all(|part| part.is_ascii()) {
            return Err(UrlRefusal::NotAscii);
        }
        // Decoded, it could be anything, also what is not ASCII. Credentials are refused later.
        if authority.rsplit('@').next().is_some_and(|host| host.contains('%')) {
            return Err(UrlRefusal::HostEncoded);
        }
        Ok(())
    }
}

/// The text up to the authority, the authority, and the rest. It decides nothing but which
/// characters may occur where; what the parts mean is for the parser alone.
fn split(text: &str) -> (&str, &str, &str) {
    let start = text.find("://").map_or(text.len(), |at| at + 3);
    let length = text[start..].find(['/', '?', '#']).unwrap_or(text.len() - start);
    (&text[..start], &text[start..start + length], &text[start + length..])
}

fn build(url: &Url, scheme: Scheme, host: Host, port: u16) -> Result<Target, UrlRefusal> {
    // What is stored is the normal form, in which one character may have become three; it must not be
    // refused when it is read again.
    if url.as_str().len() > URL_BYTES_MAX {
        return Err(UrlRefusal::TooLong { max: URL_BYTES_MAX });
    }
    let path_and_query = PathAndQuery::from_str(&url[Position::BeforePath..Position::AfterQuery])
        .map_err(|_| UrlRefusal::PathInvalid)?;
    let server_name = match &host {
        Host::Ip(ip) => ServerName::IpAddress((*ip).into()),
        Host::Name(name) => {
            ServerName::try_from(name.to_string()).map_err(|_| UrlRefusal::HostInvalid)?
        }
    };
    let mut authority = url.host_str().unwrap_or_default().to_owned();
    if let Some(port) = url.port() {
        authority.push(':');
        authority.push_str(&port.to_string());
    }
    let host_header =
        http::HeaderValue::try_from(authority).map_err(|_| UrlRefusal::HostInvalid)?;
    Ok(Target::new(
        scheme,
        host,
        port,
        path_and_query,
        host_header,
        server_name,
        url.as_str().into(),
    ))
}
