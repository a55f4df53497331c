//! Tables of URLs and addresses with the verdict each must get.

mod bypasses;
mod mixtures;
mod operator;
mod table;

use super::*;

/// What must become of a URL.
#[derive(Clone, Copy, Debug)]
enum Verdict {
    /// Not parseable, or against policy.
    Policy,
    /// Refused by address.
    Blocked,
    Allowed,
}
use Verdict::{Allowed, Blocked, Policy};

#[track_caller]
fn check(guard: &Guard, text: &str, verdict: Verdict) {
    let got = guard.check_url(text);
    let fits = match verdict {
        Policy => matches!(&got, Err(refusal) if !matches!(refusal, UrlRefusal::Address(_))),
        Blocked => matches!(&got, Err(UrlRefusal::Address(_))),
        Allowed => got.is_ok(),
    };
    assert!(fits, "{text:?} should be {verdict:?}, but gave {got:?}");
    match got {
        Err(refusal) => {
            assert!(refusal.code().bytes().all(|b| b.is_ascii_lowercase() || b == b'_'));
            assert!(refusal.to_string().len() > 20);
        }
        // What is shown is what is used: reading it again changes nothing.
        Ok(target) => {
            let again = guard.check_url(target.as_str()).expect("a normalised URL is allowed");
            assert_eq!(again.as_str(), target.as_str());
            assert!(target.as_str().is_ascii());
        }
    }
}

#[track_caller]
fn code(guard: &Guard, text: &str) -> &'static str {
    guard.check_url(text).expect_err(text).code()
}

fn rule(text: &str) -> AddressRule {
    text.parse().expect(text)
}

fn rules(texts: &[&str]) -> Vec<AddressRule> {
    texts.iter().map(|text| rule(text)).collect()
}

fn ip(text: &str) -> IpAddr {
    text.parse().expect(text)
}

#[test]
fn targets_are_normalised() {
    let guard = Guard::default();
    let target = guard.check_url("HTTPS://Example.COM.:443/a b?c=d e").expect("target");
    assert_eq!(target.as_str(), "https://example.com/a%20b?c=d%20e");
    assert_eq!(target.path_and_query(), "/a%20b?c=d%20e");
    assert_eq!(target.host_header(), "example.com");
    assert_eq!(target.port(), 443);
    assert_eq!(*target.host(), Host::Name("example.com".into()));
    let target = guard.check_url("http://[2606:4700:4700:0::1111]:8080").expect("target");
    assert_eq!(target.host_header(), "[2606:4700:4700::1111]:8080");
    assert_eq!(target.path_and_query(), "/");
}

#[test]
fn tenants_cannot_tell_closed_addresses_apart() {
    let guard = Guard::new(Rules { deny: rules(&["8.8.8.8"]), ..Rules::default() });
    guard.set_own(Own {
        listeners: vec!["10.0.0.7:5432".parse().expect("address")],
        addresses: vec![ip("10.0.0.7"), ip("93.184.216.34")],
        names: vec!["db.example.com".to_owned()],
        ..Own::default()
    });
    let mut codes = Vec::new();
    let mut shown = Vec::new();
    for text in [
        "http://10.0.0.7:5432/",
        "http://10.0.0.7/",
        "http://10.0.0.8/",
        "http://169.254.169.254/",
        "http://8.8.8.8/",
        "http://93.184.216.34/",
        "http://db.example.com/",
    ] {
        let refusal = guard.check_url(text).expect_err(text);
        codes.push(refusal.code());
        shown.push(refusal.for_tenants());
    }
    codes.sort_unstable();
    codes.dedup();
    assert_eq!(codes.len(), 6, "operators can: {codes:?}");
    shown.dedup();
    assert_eq!(shown.len(), 1);
    assert_eq!(shown[0].0, "address_not_allowed");
    // What is wrong with the URL itself is said as it is.
    let refusal = guard.check_url("http://a:b@example.com/").expect_err("credentials");
    assert_eq!(refusal.for_tenants(), (refusal.code(), refusal.to_string()));
}

#[test]
fn rules_read_and_write() {
    for (text, shown) in [
        ("10.1.0.0/16:8080", "10.1.0.0/16:8080"),
        ("10.1.2.3/16", "10.1.0.0/16"),
        ("127.0.0.1/32", "127.0.0.1/32"),
        ("127.0.0.1", "127.0.0.1/32"),
        ("127.0.0.1:80", "127.0.0.1/32:80"),
        ("[::1]/128", "[::1]/128"),
        ("[::1]", "[::1]/128"),
        ("[::1]:80", "[::1]/128:80"),
        ("[fd00::]/8:443", "[fd00::]/8:443"),
        ("fd00::/8", "[fd00::]/8"),
        ("::1", "[::1]/128"),
    ] {
        assert_eq!(rule(text).to_string(), shown, "{text}");
        assert_eq!(rule(&rule(text).to_string()), rule(text));
    }
    for bad in [
        "",
        "x",
        "10.0.0.0/33",
        "10.0.0.0/8:0",
        "10.0.0.0/8:99999",
        "[10.0.0.1]",
        "10.0.0.0/",
        "10.0.0.1:",
    ] {
        assert!(bad.parse::<AddressRule>().is_err(), "{bad}");
    }
}
