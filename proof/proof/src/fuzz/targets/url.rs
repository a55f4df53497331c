//! URLs through the guard, against another idea of what a URL is.

use std::net::IpAddr;

use posthorn_egress::{Guard, Host, Scheme};

use super::address;

pub(super) const WORDS: &[&str] = &[
    "http://",
    "https://",
    "HTTPS://",
    "ftp://",
    "//",
    "/",
    "\\",
    "@",
    "#",
    "?",
    ":",
    ":80",
    ":443",
    ":0",
    ":22",
    ":65536",
    ".",
    "..",
    "%2e",
    "%00",
    "[",
    "]",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "[64:ff9b::a9fe:a9fe]",
    "127.0.0.1",
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "127.1",
    "localhost",
    "LOCALHOST",
    ".localhost",
    ".internal",
    ".local",
    "example.com",
    "xn--",
    "*",
    "169.254.169.254",
    "168.63.129.16",
    "\u{3002}",
    "\u{2460}",
    "\u{AD}",
    "\t",
    "\r\n",
    " ",
    "%25eth0",
];

/// Ends of names that never lead to the public internet, written down once more.
const PRIVATE: [&str; 11] = [
    "localhost",
    "local",
    "internal",
    "lan",
    "intranet",
    "corp",
    "svc",
    "arpa",
    "onion",
    "test",
    "invalid",
];

pub(super) fn check(input: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(input) else { return false };
    let guard = Guard::default();
    let Ok(target) = guard.check_url(text) else { return false };
    let normal = target.as_str();

    // What is stored and shown is what would be read again.
    let again = guard.check_url(normal).expect("the normal form is allowed too");
    assert_eq!(again.as_str(), normal, "the normal form of {text:?} has another one");
    assert_eq!(
        (again.scheme(), again.host(), again.port(), again.path_and_query()),
        (target.scheme(), target.host(), target.port(), target.path_and_query()),
        "{text:?} and {normal:?} lead to different places"
    );

    // Another parser, and no parser at all, find the same place.
    let uri: http::Uri = normal.parse().expect("another parser reads the normal form");
    let scheme = match target.scheme() {
        Scheme::Http => "http",
        Scheme::Https => "https",
    };
    assert_eq!(uri.scheme_str(), Some(scheme));
    let host = match target.host() {
        Host::Name(name) => name.to_string(),
        Host::Ip(IpAddr::V4(ip)) => ip.to_string(),
        Host::Ip(IpAddr::V6(ip)) => format!("[{ip}]"),
    };
    assert_eq!(uri.host(), Some(host.as_str()), "{text:?}");
    assert_eq!(uri.port_u16().unwrap_or(target.scheme().default_port()), target.port());
    assert_eq!(uri.path_and_query().map(|p| p.as_str()), Some(target.path_and_query()));
    let authority = normal[scheme.len() + 3..].split(['/', '?']).next().unwrap_or_default();
    assert!(authority == host || authority.strip_prefix(&host).is_some_and(is_port), "{normal:?}");

    // Nothing that could end the request line or begin another.
    assert!(normal.bytes().all(|byte| byte.is_ascii_graphic()), "{normal:?}");
    assert!(!normal.contains(['#', '@', '\\']) || !authority.contains(['#', '@', '\\']));
    assert!(target.path_and_query().starts_with('/'), "{normal:?}");

    match target.host() {
        Host::Ip(ip) => assert!(address::is_public(*ip), "{text:?} leads to {ip}"),
        Host::Name(name) => {
            assert!(name.contains('.') && !name.ends_with('.') && name.parse::<IpAddr>().is_err());
            assert_eq!(name.to_ascii_lowercase(), name.to_string());
            let last = name.rsplit('.').next().unwrap_or_default();
            assert!(!PRIVATE.contains(&last), "{text:?} leads to {name}");
            // A last label of digits would be read as an address by somebody.
            assert!(!last.bytes().all(|byte| byte.is_ascii_digit()), "{name}");
        }
    }
    true
}

fn is_port(rest: &str) -> bool {
    rest.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok_and(|port| port > 0))
}
