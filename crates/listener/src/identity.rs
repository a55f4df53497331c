//! Callers who show a certificate: to us in the handshake, or to a proxy in front of us. And people whom a proxy has
//! logged in.
//!
//! A proxy ends their TLS and says in headers whose certificate it saw, or who they are. Anybody can write such
//! headers, so they are read only when the connection comes from an address the operator named.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName};
use ipnet::IpNet;
use posthorn_domain::Thumbprint;
use posthorn_sealing::proxy_identity;
use serde::{Deserialize, Deserializer, de::Error};

use crate::peer::Peer;

/// Which proxy is believed, and how it speaks; as the configuration says it, in several sections.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ProxyIdentity {
    /// The header with the SHA-256 of the certificate; without it nobody is told from others.
    #[serde(deserialize_with = "header_name")]
    pub thumbprint_header: Option<HeaderName>,
    /// The header with the certificate's subject, whose country must be that of the caller.
    #[serde(deserialize_with = "header_name")]
    pub subject_header: Option<HeaderName>,
    /// Where the proxy connects from; from nowhere when empty.
    #[serde(deserialize_with = "networks")]
    pub proxies: Vec<IpNet>,
}

/// Which proxy says who a person is, and in which headers: it has logged them in before it lets them through.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct ProxyPerson {
    /// The header with the name of the person; without it nobody is known.
    #[serde(deserialize_with = "header_name")]
    pub user_header: Option<HeaderName>,
    /// The header with the groups they are in, with commas between.
    #[serde(deserialize_with = "header_name")]
    pub groups_header: Option<HeaderName>,
    /// Where the proxy connects from; from nowhere when empty.
    #[serde(deserialize_with = "networks")]
    pub proxies: Vec<IpNet>,
}

/// What a request says about the person who makes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// Nothing.
    Nothing,
    /// Something, from an address that is not believed.
    Foreign,
    /// Who they are, by the word of the proxy.
    Person {
        /// Their name.
        user: String,
        /// The groups they are in, at most a thousand.
        groups: Vec<String>,
    },
}

impl ProxyPerson {
    /// The person who makes a request.
    pub fn told(&self, peer: Option<&Peer>, headers: &HeaderMap) -> Told {
        let Some(name) = &self.user_header else { return Told::Nothing };
        let said = headers.contains_key(name)
            || self.groups_header.as_ref().is_some_and(|name| headers.contains_key(name));
        if !said {
            return Told::Nothing;
        }
        if !peer.is_some_and(|peer| is_within(&self.proxies, peer.address())) {
            return Told::Foreign;
        }
        // Two names are none, and an empty one is none either.
        let Some(user) = only(headers, name).map(str::trim).filter(|user| !user.is_empty()) else {
            return Told::Nothing;
        };
        let groups = self.groups_header.as_ref().and_then(|name| only(headers, name));
        let groups = groups.unwrap_or_default().split(',').map(str::trim);
        let groups = groups.filter(|group| !group.is_empty()).take(1_000).map(str::to_owned);
        Told::Person { user: user.to_owned(), groups: groups.collect() }
    }
}

/// Whether an address is one of those that are believed.
fn is_within(proxies: &[IpNet], address: IpAddr) -> bool {
    let address = address.to_canonical();
    proxies.iter().any(|net| net.contains(&address))
}

fn header_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<HeaderName>, D::Error> {
    let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
    let name = HeaderName::try_from(&text);
    name.map(Some).map_err(|_| Error::custom(format_args!("`{text}` is not a header name")))
}

fn networks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<IpNet>, D::Error> {
    let read = |text: &String| {
        let net = text.parse::<IpNet>().or_else(|_| text.parse::<IpAddr>().map(IpNet::from));
        let net =
            net.map_err(|_| format!("`{text}` is not a network: write 10.0.0.5 or 10.0.0.0/24"))?;
        match net.prefix_len() {
            0 => {
                Err("must not be all addresses: any client could then forge the headers".to_owned())
            }
            _ => Ok(net),
        }
    };
    Vec::deserialize(deserializer)?
        .iter()
        .map(read)
        .collect::<Result<_, _>>()
        .map_err(Error::custom)
}

/// A certificate that a caller has shown. Whose it is, the registry knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Which certificate.
    pub thumbprint: Thumbprint,
    /// The country its subject names; `None` as well where nobody told the subject.
    pub country: Option<String>,
}

impl ProxyIdentity {
    /// Whether a connection from this address is the proxy's.
    pub fn believes(&self, address: IpAddr) -> bool {
        is_within(&self.proxies, address)
    }

    /// What the headers say; to be asked only about connections of the proxy.
    fn told(&self, headers: &HeaderMap) -> Option<Shown> {
        let thumbprint =
            proxy_identity::thumbprint(only(headers, self.thumbprint_header.as_ref()?)?)?;
        let country = match &self.subject_header {
            None => None,
            Some(name) => proxy_identity::subject_part(only(headers, name)?, "C"),
        };
        Some(Shown { thumbprint, country })
    }
}

/// The certificate a request was made with. On connections of a proxy that is believed, only its
/// headers count: the certificate of the connection is the proxy's own, not the caller's.
pub fn shown(
    proxy: Option<&ProxyIdentity>,
    peer: Option<&Peer>,
    headers: &HeaderMap,
) -> Option<Shown> {
    let peer = peer?;
    if let Some(proxy) = proxy.filter(|proxy| proxy.believes(peer.address())) {
        return proxy.told(headers);
    }
    let certificate = peer.certificate()?;
    Some(Shown { thumbprint: certificate.thumbprint, country: certificate.country.clone() })
}

/// The value of a header that is there exactly once: two of them mean that one is not the proxy's.
pub fn only<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::PeerCertificate;

    #[test]
    fn a_person_is_believed_only_from_the_proxy() {
        let proxy = ProxyPerson {
            user_header: Some(HeaderName::from_static("x-user")),
            groups_header: Some(HeaderName::from_static("x-groups")),
            proxies: vec!["10.0.0.0/8".parse().unwrap()],
        };
        let near = Peer::new([10, 0, 0, 1].into(), None);
        let far = Peer::new([192, 0, 2, 1].into(), None);
        let mut headers = HeaderMap::new();
        assert_eq!(proxy.told(Some(&near), &headers), Told::Nothing);
        headers.insert("x-groups", " ops, ,acme team ".parse().unwrap());
        assert_eq!(proxy.told(Some(&near), &headers), Told::Nothing, "groups of nobody");
        assert_eq!(proxy.told(Some(&far), &headers), Told::Foreign);
        headers.insert("x-user", " jo ".parse().unwrap());
        let groups = vec!["ops".to_owned(), "acme team".to_owned()];
        let jo = Told::Person { user: "jo".to_owned(), groups };
        assert_eq!(proxy.told(Some(&near), &headers), jo);
        let mapped = Peer::new("::ffff:10.0.0.1".parse().unwrap(), None);
        assert_eq!(proxy.told(Some(&mapped), &headers), jo);
        assert_eq!(proxy.told(Some(&far), &headers), Told::Foreign);
        assert_eq!(proxy.told(None, &headers), Told::Foreign);
        assert_eq!(ProxyPerson::default().told(Some(&near), &headers), Told::Nothing);
        headers.append("x-groups", "admins".parse().unwrap());
        let nobody = Told::Person { user: "jo".to_owned(), groups: Vec::new() };
        assert_eq!(proxy.told(Some(&near), &headers), nobody, "two lists are none");
        headers.append("x-user", "root".parse().unwrap());
        assert_eq!(proxy.told(Some(&near), &headers), Told::Nothing, "two names are none");
    }

    #[test]
    fn headers_count_only_from_the_proxy_and_the_handshake_only_elsewhere() {
        let proxy = ProxyIdentity {
            thumbprint_header: Some(HeaderName::from_static("x-thumbprint")),
            subject_header: Some(HeaderName::from_static("x-subject")),
            proxies: vec!["10.0.0.0/8".parse().unwrap()],
        };
        let mut headers = HeaderMap::new();
        headers.insert("x-thumbprint", "ab".repeat(32).parse().unwrap());
        headers.insert("x-subject", "C=DE".parse().unwrap());
        let certificate =
            PeerCertificate { thumbprint: Thumbprint([1; 32]), country: Some("NL".to_owned()) };
        let from = |address: [u8; 4], has_one: bool| {
            Peer::new(address.into(), has_one.then(|| certificate.clone()))
        };
        let found = |peer: &Peer, headers: &HeaderMap| {
            shown(Some(&proxy), Some(peer), headers)
                .map(|shown| (shown.thumbprint.0[0], shown.country))
        };
        let de = Some((0xab, Some("DE".to_owned())));
        let nl = Some((1, Some("NL".to_owned())));
        assert_eq!(found(&from([10, 0, 0, 1], false), &headers), de);
        assert_eq!(found(&from([10, 0, 0, 1], true), &headers), de);
        assert_eq!(found(&from([10, 0, 0, 1], true), &HeaderMap::new()), None, "the proxy's own");
        assert_eq!(found(&from([192, 0, 2, 1], false), &headers), None);
        assert_eq!(found(&from([192, 0, 2, 1], true), &headers), nl);
        assert_eq!(shown(None, Some(&from([10, 0, 0, 1], false)), &headers), None);
        assert_eq!(shown(Some(&proxy), None, &headers), None);
        headers.append("x-thumbprint", "cd".repeat(32).parse().unwrap());
        assert_eq!(found(&from([10, 0, 0, 1], false), &headers), None, "two are none");
    }
}
