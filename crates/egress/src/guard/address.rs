//! The address policy: a deny list for IPv4, an allow list for IPv6.
//!
//! IPv4 is full, so what is special is listed. IPv6 is mostly unassigned, so what is ordinary is
//! listed; every transition form that smuggles an IPv4 address falls out without being named.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Everything in IPv4 that is not an ordinary public host: first address and prefix length.
const V4_DENIED: [(Ipv4Addr, u32); 20] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8), // "this network"; Linux connects it to itself
    (Ipv4Addr::new(10, 0, 0, 0), 8), // private
    (Ipv4Addr::new(100, 64, 0, 0), 10), // carrier-grade NAT
    (Ipv4Addr::new(127, 0, 0, 0), 8), // loopback
    (Ipv4Addr::new(168, 63, 129, 16), 32), // a cloud's host agent, in the midst of public space
    (Ipv4Addr::new(169, 254, 0, 0), 16), // link-local, metadata
    (Ipv4Addr::new(172, 16, 0, 0), 12), // private
    (Ipv4Addr::new(192, 0, 0, 0), 24), // protocol assignments
    (Ipv4Addr::new(192, 0, 2, 0), 24), // documentation
    (Ipv4Addr::new(192, 31, 196, 0), 24), // AS112
    (Ipv4Addr::new(192, 52, 193, 0), 24), // AMT
    (Ipv4Addr::new(192, 88, 99, 0), 24), // 6to4 relays
    (Ipv4Addr::new(192, 168, 0, 0), 16), // private
    (Ipv4Addr::new(192, 175, 48, 0), 24), // AS112
    (Ipv4Addr::new(198, 18, 0, 0), 15), // benchmarks
    (Ipv4Addr::new(198, 51, 100, 0), 24), // documentation
    (Ipv4Addr::new(203, 0, 113, 0), 24), // documentation
    (Ipv4Addr::new(224, 0, 0, 0), 4), // multicast
    (Ipv4Addr::new(240, 0, 0, 0), 4), // reserved
    (Ipv4Addr::BROADCAST, 32),
];

/// The only part of IPv6 where public hosts live.
const V6_GLOBAL: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

/// Special blocks inside [`V6_GLOBAL`].
const V6_DENIED: [(Ipv6Addr, u32); 5] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23), // Teredo, benchmarks, ORCHID
    (Ipv6Addr::new(0x2001, 0xDB8, 0, 0, 0, 0, 0, 0), 32), // documentation
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16), // 6to4
    (Ipv6Addr::new(0x2620, 0x4F, 0x8000, 0, 0, 0, 0, 0), 48), // AS112
    (Ipv6Addr::new(0x3FFF, 0, 0, 0, 0, 0, 0, 0), 20), // documentation
];

/// Where clouds hand out credentials to whoever asks from the machine.
const V4_METADATA: [(Ipv4Addr, u32); 4] = [
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(168, 63, 129, 16), 32),
    (Ipv4Addr::new(100, 100, 100, 200), 32),
    (Ipv4Addr::new(192, 0, 0, 192), 32),
];

/// The same in IPv6; the single addresses lie inside private space that operators do allow.
const V6_METADATA: [(Ipv6Addr, u32); 4] = [
    (Ipv6Addr::new(0xFE80, 0, 0, 0, 0, 0, 0, 0), 10),
    (Ipv6Addr::new(0xFD00, 0xEC2, 0, 0, 0, 0, 0, 0x254), 128),
    (Ipv6Addr::new(0xFD20, 0xCE, 0, 0, 0, 0, 0, 0x254), 128),
    (Ipv6Addr::new(0xFD00, 0x42, 0, 0, 0, 0, 0, 0x42), 128),
];

/// What kind of address it is, before any rule of the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// An ordinary host on the public internet can have it.
    Public,
    /// Private, reserved, or special in another way.
    Special,
    /// Link-local, or where clouds hand out credentials: an allow rule alone does not open it.
    Metadata,
}

/// The class of an address.
pub(crate) fn classify(ip: IpAddr) -> Class {
    if is_metadata(ip) {
        Class::Metadata
    } else if is_public(ip) {
        Class::Public
    } else {
        Class::Special
    }
}

fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !V4_DENIED.iter().any(|block| v4_in(ip, *block)),
        IpAddr::V6(ip) => v6_in(ip, V6_GLOBAL) && !V6_DENIED.iter().any(|block| v6_in(ip, *block)),
    }
}

fn is_metadata(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => V4_METADATA.iter().any(|block| v4_in(ip, *block)),
        IpAddr::V6(ip) => {
            V6_METADATA.iter().any(|block| v6_in(ip, *block))
                || embedded_v4(ip).into_iter().flatten().any(|v4| is_metadata(IpAddr::V4(v4)))
        }
    }
}

fn v4_in(ip: Ipv4Addr, (first, prefix): (Ipv4Addr, u32)) -> bool {
    (ip.to_bits() ^ first.to_bits()) >> (32 - prefix) == 0
}

fn v6_in(ip: Ipv6Addr, (first, prefix): (Ipv6Addr, u32)) -> bool {
    (ip.to_bits() ^ first.to_bits()) >> (128 - prefix) == 0
}

/// The IPv4 address inside the well-known NAT64 prefix.
pub(super) fn nat64(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    match ip.segments() {
        [0x64, 0xFF9B, 0, 0, 0, 0, high, low] => {
            Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)))
        }
        _ => None,
    }
}

/// The IPv4 addresses a transition form could reach: by its prefix, and by its interface part.
/// Only matters when an operator's rule opened the IPv6 block: all of these forms are closed
/// otherwise.
pub(super) fn embedded_v4(ip: Ipv6Addr) -> [Option<Ipv4Addr>; 2] {
    let parts = ip.segments();
    let join =
        |high: u16, low: u16| Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    let by_prefix = match parts {
        // Mapped, compatible and translated forms.
        [0, 0, 0, 0, 0, 0 | 0xFFFF, high, low] | [0, 0, 0, 0, 0xFFFF, 0, high, low] => {
            join(high, low)
        }
        // NAT64, well-known and local-use prefix.
        [0x64, 0xFF9B, 0, 0, 0, 0, high, low] | [0x64, 0xFF9B, 1, _, _, _, high, low] => {
            join(high, low)
        }
        // 6to4.
        [0x2002, high, low, ..] => join(high, low),
        // Teredo keeps the client's address inverted.
        [0x2001, 0, _, _, _, _, high, low] => join(!high, !low),
        _ => None,
    };
    // ISATAP, under any prefix.
    let by_interface = match parts {
        [_, _, _, _, 0 | 0x200, 0x5EFE, high, low] => join(high, low),
        _ => None,
    };
    [by_prefix, by_interface]
}
