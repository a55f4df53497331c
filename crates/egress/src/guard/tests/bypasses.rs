//! Holes that guards like this one have had, each closed for good.

use super::*;

#[test]
fn trailing_dots_and_case_change_nothing() {
    let guard = Guard::default();
    for text in [
        "http://LocalHost./",
        "http://metadata.google.INTERNAL./",
        "http://Printer.LOCAL./",
        "http://169.254.169.254./",
        "http://169.254.169.254../",
    ] {
        assert!(guard.check_url(text).is_err(), "{text}");
    }
    let own = Own { names: vec!["api.example.com".to_owned()], ..Own::default() };
    guard.set_own(own);
    check(&guard, "https://API.example.com./", Policy);
}

#[test]
fn brackets_hold_ipv6_addresses_only() {
    let guard = Guard::default();
    for text in [
        "http://[example.com]/",
        "http://[127.0.0.1]/",
        "http://[localhost]/",
        "http://[::1]]/",
        "http://[::1/",
        "http://[]/",
        "http://[::1]:80:80/",
        "http://[v1.fe80::a]/",
    ] {
        check(&guard, text, Policy);
    }
}

#[test]
fn mapped_and_translated_addresses_are_not_a_way_round() {
    let guard = Guard::default();
    for v4 in ["127.0.0.1", "10.0.0.1", "169.254.169.254", "168.63.129.16", "8.8.8.8"] {
        let [a, b, c, d] = v4.parse::<std::net::Ipv4Addr>().expect(v4).octets();
        for text in [
            format!("http://[::ffff:{v4}]/"),
            format!("http://[::{v4}]/"),
            format!("http://[::ffff:0:{v4}]/"),
            format!("http://[64:ff9b::{v4}]/"),
            format!("http://[64:ff9b:1::{v4}]/"),
            format!("http://[2002:{a:02x}{b:02x}:{c:02x}{d:02x}::]/"),
            format!("http://[::5efe:{v4}]/"),
            format!("http://[fe80::5efe:{v4}]/"),
        ] {
            check(&guard, &text, Blocked);
        }
        // By way of DNS, which no URL parser sees.
        let mapped = v4.parse::<std::net::Ipv4Addr>().expect(v4).to_ipv6_mapped();
        assert!(guard.check_address(IpAddr::V6(mapped), 443).is_err());
    }
}

#[test]
fn leading_zeros_mean_octal_here_and_are_never_dialled_as_written() {
    let guard = Guard::default();
    // 010.8.8.8 is 8.8.8.8 to this parser and 10.8.8.8 to others: only what was parsed is used.
    let target = guard.check_url("http://010.8.8.8/").expect("target");
    assert_eq!(*target.host(), Host::Ip(ip("8.8.8.8")));
    assert_eq!(target.as_str(), "http://8.8.8.8/");
    assert_eq!(target.host_header(), "8.8.8.8");
    for text in ["http://0127.0.0.1/", "http://012.1.2.3/", "http://0300.0250.0.1/"] {
        let verdict = guard.check_url(text);
        let literal = verdict.as_ref().map(|target| target.host().clone());
        assert!(!matches!(literal, Ok(Host::Name(_))), "{text} stayed a name");
    }
    check(&guard, "http://012.1.2.3/", Blocked);
    check(&guard, "http://0300.0250.0.1/", Blocked);
    check(&guard, "http://127.0.0.08/", Policy);
}

#[test]
fn punycode_that_decodes_to_ascii_is_no_other_name() {
    let guard = Guard::default();
    for text in ["http://xn--example-.org/", "http://xn--localhost-/", "http://xn--/"] {
        check(&guard, text, Policy);
    }
}

#[test]
fn metadata_and_transition_ranges_are_not_private_but_closed() {
    let guard = Guard::default();
    for address in [
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "198.18.0.1",
        "0.1.2.3",
        "240.0.0.1",
        "64:ff9b::1",
        "2002::1",
        "2001::1",
        "fec0::1",
        "ff0e::1",
        "5f00::1",
    ] {
        assert!(guard.check_address(ip(address), 443).is_err(), "{address}");
    }
}

#[test]
fn public_names_for_private_addresses_are_judged_by_address() {
    let guard = Guard::default();
    for text in ["http://127.0.0.1.nip.io/", "http://10-0-0-1.sslip.io/"] {
        let target = guard.check_url(text).expect("a name like any other");
        assert!(matches!(target.host(), Host::Name(_)));
    }
    assert!(guard.check_address(ip("127.0.0.1"), 80).is_err());
    assert!(guard.check_address(ip("10.0.0.1"), 80).is_err());
}
