//! Which URLs and addresses a tenant may make us talk to.
//!
//! Two gates. [`Guard::check_url`] judges everything that can be known without DNS, once, when a
//! URL is written down. [`Guard::check_address`] judges every address right before we connect to
//! it, because a name can point elsewhere every time it is asked.
//!
//! It must not know about connections, DNS or deliveries: it is pure and has no clock.

mod address;
mod allow;
mod names;
mod refusal;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::str::FromStr;

use http::uri::PathAndQuery;
use rustls_pki_types::ServerName;
use url::{Position, Url};

pub use allow::{AllowRule, AllowRuleError};
pub use refusal::{AddressRefusal, UrlRefusal};

use crate::target::{Host, Scheme, Target};

/// Longer URLs are mistakes or attacks; receivers and proxies cut them anyway.
const URL_BYTES_MAX: usize = 2_048;

/// The rules in force.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    allow: Vec<AllowRule>,
    https_only: bool,
}

impl Guard {
    /// A guard that denies all but public addresses, opened by the operator's `allow` rules.
    pub fn new(allow: Vec<AllowRule>, https_only: bool) -> Self {
        Self { allow, https_only }
    }

    /// Parses a URL a tenant gave us and applies every rule that needs no DNS.
    ///
    /// The result is the only form in which a URL enters this crate, so nothing ever parses the
    /// text a second time with another idea of what it means.
    pub fn check_url(&self, text: &str) -> Result<Target, UrlRefusal> {
        check_raw(text)?;
        let mut url = Url::parse(text).map_err(UrlRefusal::Unparseable)?;
        // The scheme comes first: under schemes unknown to WHATWG, hosts are opaque texts and
        // `127.0.0.1` would be a name.
        let scheme = match url.scheme() {
            "https" => Scheme::Https,
            "http" if self.https_only => return Err(UrlRefusal::HttpsOnly),
            "http" => Scheme::Http,
            _ => return Err(UrlRefusal::Scheme),
        };
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
                names::check(name)?;
                Host::Name(name.into())
            }
        };
        match &host {
            Host::Ip(ip) => self.check_address(*ip, port).map_err(UrlRefusal::Address)?,
            Host::Name(name) => {
                if !names::port_is_open(port) && !self.allow.iter().any(|r| r.port == Some(port)) {
                    return Err(UrlRefusal::Port { port });
                }
                let plain = name.to_string();
                url.set_host(Some(&plain)).map_err(UrlRefusal::Unparseable)?;
            }
        }
        build(&url, scheme, host, port)
    }

    /// Whether a connection to this address and port may be opened.
    pub fn check_address(&self, ip: IpAddr, port: u16) -> Result<(), AddressRefusal> {
        if address::is_never_open(ip) {
            return Err(AddressRefusal::Metadata);
        }
        if port != 0 && self.allow.iter().any(|rule| rule.covers(ip, port)) {
            return Ok(());
        }
        if !address::is_public(ip) {
            return Err(AddressRefusal::NotPublic);
        }
        if !names::port_is_open(port) {
            return Err(AddressRefusal::Port { port });
        }
        Ok(())
    }

    /// Whether plain http is refused altogether.
    pub(crate) fn https_only(&self) -> bool {
        self.https_only
    }
}

/// What the parser would silently repair or drop is refused before it sees it.
fn check_raw(text: &str) -> Result<(), UrlRefusal> {
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
    if !text.is_ascii() {
        return Err(UrlRefusal::NotAscii);
    }
    Ok(())
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
