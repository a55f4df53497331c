//! What the operator opens or closes: networks, optionally with a port.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

/// Opens a network that is closed by default, or closes one that is open. Only the operator writes
/// these, never a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AddressRule {
    /// Which addresses.
    pub net: IpNet,
    /// Only this port; every port when absent.
    pub port: Option<u16>,
}

/// Why a text is not a rule.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a network: write it like 10.1.0.0/16, 10.1.0.0/16:8080, 127.0.0.1 or \
         [fd00::]/8:8080"
)]
pub struct AddressRuleError(String);

impl AddressRule {
    /// Whether the rule speaks about this address and port.
    pub fn covers(&self, ip: IpAddr, port: u16) -> bool {
        self.net.contains(&ip) && self.port.is_none_or(|only| only == port)
    }
}

impl FromStr for AddressRule {
    type Err = AddressRuleError;

    fn from_str(text: &str) -> Result<Self, AddressRuleError> {
        parse(text.trim()).ok_or_else(|| AddressRuleError(text.chars().take(60).collect()))
    }
}

fn parse(text: &str) -> Option<AddressRule> {
    let (ip, rest): (IpAddr, &str) = if let Some(bracketed) = text.strip_prefix('[') {
        let (ip, rest) = bracketed.split_once(']')?;
        (IpAddr::V6(ip.parse().ok()?), rest)
    } else if let Some(slash) = text.find('/') {
        (text[..slash].parse().ok()?, &text[slash..])
    } else if let Ok(ip) = text.parse() {
        (ip, "")
    } else {
        let colon = text.find(':')?;
        (text[..colon].parse().ok()?, &text[colon..])
    };
    let (length, port) = match rest.split_once(':') {
        Some((length, port)) => (length, Some(port.parse().ok().filter(|port| *port != 0)?)),
        None => (rest, None),
    };
    let length = match length.strip_prefix('/') {
        Some(digits) => digits.parse().ok()?,
        None if length.is_empty() => {
            if ip.is_ipv4() {
                32
            } else {
                128
            }
        }
        None => return None,
    };
    Some(AddressRule { net: IpNet::new(ip, length).ok()?.trunc(), port })
}

impl fmt::Display for AddressRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.net {
            IpNet::V4(net) => write!(f, "{net}")?,
            IpNet::V6(net) => write!(f, "[{}]/{}", net.addr(), net.prefix_len())?,
        }
        match self.port {
            Some(port) => write!(f, ":{port}"),
            None => Ok(()),
        }
    }
}
