//! Addresses through the guard, against the ranges written down once more: first and last address
//! instead of prefixes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use posthorn_egress::{AddressRefusal, AddressRule, Guard, Rules};

pub(super) const WORDS: &[&str] =
    &["/", ":", "[", "]", "0.0.0.0/0", "10.0.0.0/8", "::/0", "fd00::", ":8080", "/33", "/129", "%"];

const V4_CLOSED: [(&str, &str); 19] = [
    ("0.0.0.0", "0.255.255.255"),
    ("10.0.0.0", "10.255.255.255"),
    ("100.64.0.0", "100.127.255.255"),
    ("127.0.0.0", "127.255.255.255"),
    ("168.63.129.16", "168.63.129.16"),
    ("169.254.0.0", "169.254.255.255"),
    ("172.16.0.0", "172.31.255.255"),
    ("192.0.0.0", "192.0.0.255"),
    ("192.0.2.0", "192.0.2.255"),
    ("192.31.196.0", "192.31.196.255"),
    ("192.52.193.0", "192.52.193.255"),
    ("192.88.99.0", "192.88.99.255"),
    ("192.168.0.0", "192.168.255.255"),
    ("192.175.48.0", "192.175.48.255"),
    ("198.18.0.0", "198.19.255.255"),
    ("198.51.100.0", "198.51.100.255"),
    ("203.0.113.0", "203.0.113.255"),
    ("224.0.0.0", "239.255.255.255"),
    ("240.0.0.0", "255.255.255.255"),
];

const V6_CLOSED: [(&str, &str); 7] = [
    ("::", "1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("2001::", "2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("2001:db8::", "2001:db8:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("2002::", "2002:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("2620:4f:8000::", "2620:4f:8000:ffff:ffff:ffff:ffff:ffff"),
    ("3fff::", "3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff"),
    ("4000::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
];

/// Closed to everybody, whatever an operator opens.
const NEVER: [(&str, &str); 4] = [
    ("169.254.0.0", "169.254.255.255"),
    ("168.63.129.16", "168.63.129.16"),
    ("100.100.100.200", "100.100.100.200"),
    ("fe80::", "febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
];

fn within(ip: IpAddr, (first, last): (&str, &str)) -> bool {
    match (ip, first.parse(), last.parse()) {
        (IpAddr::V4(ip), Ok(IpAddr::V4(first)), Ok(IpAddr::V4(last))) => {
            (first..=last).contains(&ip)
        }
        (IpAddr::V6(ip), Ok(IpAddr::V6(first)), Ok(IpAddr::V6(last))) => {
            (first..=last).contains(&ip)
        }
        _ => false,
    }
}

/// Whether an ordinary host on the public internet can have this address.
pub(super) fn is_public(ip: IpAddr) -> bool {
    let closed: &[(&str, &str)] = if ip.is_ipv4() { &V4_CLOSED } else { &V6_CLOSED };
    !closed.iter().any(|range| within(ip, *range))
}

fn opened_by(rules: &[AddressRule]) -> Guard {
    Guard::new(Rules { allow: rules.to_vec(), ..Rules::default() })
}

pub(super) fn check(input: &[u8]) -> bool {
    let ip = if let Ok(bytes) = <[u8; 4]>::try_from(input) {
        IpAddr::V4(Ipv4Addr::from(bytes))
    } else if let Ok(bytes) = <[u8; 16]>::try_from(input) {
        IpAddr::V6(Ipv6Addr::from(bytes))
    } else if let Some(ip) = std::str::from_utf8(input).ok().and_then(|text| text.parse().ok()) {
        ip
    } else {
        return false;
    };
    let verdict = Guard::default().check_address(ip, 443);
    assert_eq!(verdict.is_ok(), is_public(ip), "{ip}: {verdict:?}");
    let open = ["0.0.0.0/0", "::/0"].map(|rule| rule.parse().expect("a rule"));
    let verdict = opened_by(&open).check_address(ip, 443);
    if NEVER.iter().any(|range| within(ip, *range)) {
        assert_eq!(verdict, Err(AddressRefusal::Metadata), "{ip}");
    }
    if let IpAddr::V4(v4) = ip {
        // Every way to write it in IPv6 shares its fate at worst, and is closed by default.
        let [a, b, c, d] = v4.octets().map(u16::from);
        let (high, low) = (a << 8 | b, c << 8 | d);
        for v6 in [
            v4.to_ipv6_mapped(),
            v4.to_ipv6_compatible(),
            Ipv6Addr::new(0x64, 0xFF9B, 0, 0, 0, 0, high, low),
            Ipv6Addr::new(0x2002, high, low, 0, 0, 0, 0, 1),
            Ipv6Addr::new(0xFE80, 0, 0, 0, 0, 0x5EFE, high, low),
        ] {
            assert!(Guard::default().check_address(v6.into(), 443).is_err(), "{v6}");
            if verdict.is_err() {
                let opened = opened_by(&open).check_address(v6.into(), 443);
                assert_eq!(opened, Err(AddressRefusal::Metadata), "{v6} stands for {v4}");
            }
        }
    }
    verdict.is_ok()
}

pub(super) fn rule(input: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(input) else { return false };
    let Ok(rule) = text.parse::<AddressRule>() else { return false };
    let again: AddressRule = rule.to_string().parse().expect("its own text form");
    assert_eq!(again, rule, "{text:?} came back as {rule}");
    // It opens what it names and, with a port, nothing else.
    let inside = rule.net.addr();
    let port = rule.port.unwrap_or(443);
    assert!(rule.covers(inside, port), "{rule} does not cover its own first address");
    if let Some(port) = rule.port {
        assert!(!rule.covers(inside, port ^ 1), "{rule} covers another port");
    }
    let guard = opened_by(&[rule]);
    if !matches!(guard.check_address(inside, port), Err(AddressRefusal::Metadata)) {
        assert!(guard.check_address(inside, port).is_ok(), "{rule} does not open {inside}");
    }
    true
}
