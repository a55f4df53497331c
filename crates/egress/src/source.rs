//! Where connections come from, when the operator says so: receivers keep lists of addresses they admit.
//!
//! At most one address of each family. With one family only, the other cannot be reached: a connection from an address
//! that nobody announced is what the setting is there to prevent.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use serde::{Deserialize, Deserializer, de};
use tokio::net::{TcpSocket, TcpStream};

/// The addresses that connections come from. Without any, the system chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Source {
    v4: Option<Ipv4Addr>,
    v6: Option<Ipv6Addr>,
}

/// Why addresses cannot be those that connections come from.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// Not an address.
    #[error("`{0}` is not an address: write 203.0.113.7 or 2001:db8::7")]
    NotAnAddress(String),
    /// No single machine has it.
    #[error("{0} is not an address of one machine; name the one that receivers should see")]
    NotOne(IpAddr),
    /// Two of one family.
    #[error("{0} is the second address of its family; name at most one IPv4 and one IPv6 address")]
    Second(IpAddr),
    /// The system does not let us use it.
    #[error(
        "{address} cannot be used; it must be an address of this machine (`ip address` shows them)"
    )]
    NotHere {
        /// Which.
        address: IpAddr,
        /// What the system says.
        #[source]
        error: io::Error,
    },
}

impl Source {
    /// One address of each family at most.
    pub fn new(addresses: impl IntoIterator<Item = IpAddr>) -> Result<Self, SourceError> {
        let mut source = Self::default();
        for address in addresses {
            let one = match address {
                IpAddr::V4(v4) => !v4.is_broadcast(),
                // The same place as an IPv4 address, which has to be written as one.
                IpAddr::V6(v6) => v6.to_ipv4_mapped().is_none(),
            };
            if !one || address.is_unspecified() || address.is_multicast() {
                return Err(SourceError::NotOne(address));
            }
            let second = match address {
                IpAddr::V4(v4) => source.v4.replace(v4).is_some(),
                IpAddr::V6(v6) => source.v6.replace(v6).is_some(),
            };
            if second {
                return Err(SourceError::Second(address));
            }
        }
        Ok(source)
    }

    /// Whether the system lets us use the addresses. Nothing is sent.
    #[expect(clippy::disallowed_methods, reason = "a socket that is never used to send")]
    pub fn check(&self) -> Result<(), SourceError> {
        let v4 = self.v4.map(IpAddr::V4).into_iter();
        for address in v4.chain(self.v6.map(IpAddr::V6)) {
            UdpSocket::bind(SocketAddr::new(address, 0))
                .map_err(|error| SourceError::NotHere { address, error })?;
        }
        Ok(())
    }

    /// Whether there is a way to addresses of this family.
    pub(crate) fn reaches(&self, to: IpAddr) -> bool {
        *self == Self::default() || self.beside(to).is_some()
    }

    /// Connects. To be called with vetted addresses only.
    #[expect(clippy::disallowed_methods, reason = "the dialer calls it, with vetted addresses")]
    pub(crate) async fn connect(self, to: SocketAddr) -> io::Result<TcpStream> {
        let Some(from) = self.beside(to.ip()) else { return TcpStream::connect(to).await };
        let socket = match from {
            IpAddr::V4(_) => TcpSocket::new_v4()?,
            IpAddr::V6(_) => TcpSocket::new_v6()?,
        };
        socket.bind(SocketAddr::new(from, 0))?;
        socket.connect(to).await
    }

    /// The source address of the same family.
    fn beside(&self, to: IpAddr) -> Option<IpAddr> {
        match to {
            IpAddr::V4(_) => self.v4.map(IpAddr::V4),
            IpAddr::V6(_) => self.v6.map(IpAddr::V6),
        }
    }
}

impl<'de> Deserialize<'de> for Source {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = |text: String| match text.parse() {
            Ok(address) => Ok(address),
            Err(_) => Err(SourceError::NotAnAddress(text)),
        };
        let addresses = Vec::<String>::deserialize(deserializer)?.into_iter().map(read);
        let addresses: Result<Vec<IpAddr>, SourceError> = addresses.collect();
        addresses.and_then(Self::new).map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(texts: &[&str]) -> Result<Source, SourceError> {
        Source::new(texts.iter().map(|text| text.parse().expect(text)))
    }

    #[test]
    fn one_address_of_each_family_at_most() {
        for fine in [&[][..], &["192.0.2.1"], &["2001:db8::1"], &["2001:db8::1", "192.0.2.1"]] {
            source(fine).expect("fine");
        }
        for (odd, expected) in [
            (&["192.0.2.1", "192.0.2.1"][..], "second"),
            (&["::1", "192.0.2.1", "::2"], "second"),
            (&["0.0.0.0"], "one machine"),
            (&["::"], "one machine"),
            (&["224.0.0.1"], "one machine"),
            (&["255.255.255.255"], "one machine"),
            (&["ff02::1"], "one machine"),
            (&["::ffff:192.0.2.1"], "one machine"),
        ] {
            let problem = source(odd).expect_err("odd").to_string();
            assert!(problem.contains(expected), "{odd:?}: {problem}");
        }
    }

    #[test]
    fn a_family_without_a_source_is_not_reached_where_there_is_another() {
        let (v4, v6) = ("192.0.2.9".parse().expect("v4"), "2001:db8::9".parse().expect("v6"));
        for (texts, expected) in [
            (&[][..], (true, true)),
            (&["192.0.2.1"], (true, false)),
            (&["2001:db8::1"], (false, true)),
            (&["192.0.2.1", "2001:db8::1"], (true, true)),
        ] {
            let source = source(texts).expect("fine");
            assert_eq!((source.reaches(v4), source.reaches(v6)), expected, "{texts:?}");
        }
    }

    #[test]
    fn only_addresses_of_this_machine_can_be_used() {
        source(&["127.0.0.2"]).expect("fine").check().expect("loopback is here");
        source(&[]).expect("fine").check().expect("nothing to check");
        let elsewhere = source(&["192.0.2.1"]).expect("fine").check().expect_err("nobody has it");
        assert!(elsewhere.to_string().contains("192.0.2.1"), "{elsewhere}");
    }
}
