use super::*;

enum Verdict {
    /// Not parseable, or against policy.
    Policy,
    /// Refused by address.
    Blocked,
    Allowed,
}
use Verdict::{Allowed, Blocked, Policy};

#[track_caller]
fn check(guard: &Guard, text: &str, verdict: &Verdict) {
    let got = guard.check_url(text);
    let fits = match verdict {
        Policy => matches!(&got, Err(refusal) if !matches!(refusal, UrlRefusal::Address(_))),
        Blocked => matches!(&got, Err(UrlRefusal::Address(_))),
        Allowed => got.is_ok(),
    };
    assert!(fits, "{text:?} gave {got:?}");
    if let Err(refusal) = got {
        assert!(refusal.code().bytes().all(|b| b.is_ascii_lowercase() || b == b'_'));
        assert!(refusal.to_string().len() > 20);
    }
}

fn rule(text: &str) -> AllowRule {
    text.parse().expect(text)
}

#[test]
fn urls_get_the_verdict_of_the_table() {
    let guard = Guard::default();
    let blocked = [
        "http://127.0.0.1/",
        "http://2130706433/",
        "http://0x7f000001/",
        "http://0x7f.1/",
        "http://0177.0.0.1/",
        "http://127.1/",
        "http://127.0.1/",
        "http://127.0.0.1./",
        "http://%31%32%37.0.0.1/",
        "http://4294967295/",
        "http://0.0.0.0/",
        "http://0.1.2.3/",
        "http://[::1]/",
        "http://[0:0:0:0:0:0:0:1]/",
        "http://[::]/",
        "http://[::ffff:127.0.0.1]/",
        "http://[::ffff:7f00:1]/",
        "http://[::ffff:8.8.8.8]/",
        "http://[::127.0.0.1]/",
        "http://[::5efe:a9fe:a9fe]/",
        "http://[64:ff9b::a9fe:a9fe]/",
        "http://[64:ff9b::808:808]/",
        "http://[64:ff9b:1::1]/",
        "http://[2002:7f00:1::1]/",
        "http://[2002:808:808::1]/",
        "http://[2001::1]/",
        "http://[fd00:ec2::254]/",
        "http://[fd20:ce::254]/",
        "http://[fe80::1]/",
        "http://[fe80::a9fe:a9fe]/",
        "http://[fec0::1]/",
        "http://[ff02::1]/",
        "http://[ff0e::1]/",
        "http://[5f00::1]/",
        "http://[3fff::1]/",
        "http://[2001:db8::1]/",
        "http://[2001:2::1]/",
        "http://[4000::1]/",
        "http://[2620:4f:8000::1]/",
        "http://169.254.169.254/latest/",
        "http://0251.0376.0251.0376/",
        "http://0xa9fea9fe/",
        "http://2852039166/",
        "http://168.63.129.16/",
        "http://100.100.100.200/",
        "http://100.64.0.1/",
        "http://100.127.255.255/",
        "http://10.0.0.1/",
        "http://172.16.0.1/",
        "http://172.31.255.255/",
        "http://192.168.1.1/",
        "http://192.0.0.192/",
        "http://192.0.2.1/",
        "http://192.88.99.1/",
        "http://198.18.0.1/",
        "http://198.19.255.255/",
        "http://198.51.100.1/",
        "http://203.0.113.1/",
        "http://224.0.0.1/",
        "http://240.0.0.1/",
        "http://10.1.2.3:8080/",
    ];
    for text in blocked {
        check(&guard, text, &Blocked);
    }
    let allowed = [
        "http://[2001:4860:4860::8888]/",
        "http://[2606:4700:4700::1111]/",
        "http://172.15.255.255/",
        "http://172.32.0.1/",
        "http://192.167.1.1/",
        "http://198.17.0.1/",
        "http://198.20.0.1/",
        "http://223.255.255.255/",
        "http://169.253.1.1/",
        "http://168.63.129.15/",
        "http://100.63.255.255/",
        "http://100.128.0.0/",
        "http://127.0.0.1.nip.io/",
        "http://10-0-0-1.sslip.io/",
        "https://example.com./",
        "http://example.com:080/",
        "http://example.com:/",
        "http://example.com:8443/a?b=1",
        "HTTPS://EXAMPLE.COM/",
        "https://xn--exmple-qta.com/",
        "https://a_b.example.com/%20?x=%0A",
        "https://notlocalhost.com/",
    ];
    for text in allowed {
        check(&guard, text, &Allowed);
    }
}

#[test]
fn malformed_and_disallowed_urls_are_refused() {
    let guard = Guard::default();
    let policy = [
        "",
        " https://example.com/",
        "https://example.com/\n",
        "http://4294967296/",
        "http://256.0.0.1/",
        "http://1.2.3.4.5/",
        "http://09.0.0.1/",
        "http://foo.1/",
        "http://127。0。0。1/",
        "http://１２７.０.０.１/",
        "http://127.0.\n0.1/",
        "http:\\\\127.0.0.1\\x",
        "http://example.com@127.0.0.1/",
        "http://127.0.0.1@example.com/",
        "http://127.0.0.1:80@example.com/",
        "http://example.com#@127.0.0.1/",
        "http://example.com/#",
        "http://[fe80::1%25eth0]/",
        "http://[::1%25lo]/",
        "http://[127.0.0.1]/",
        "http://[example.com]/",
        "http://[[::1]]/",
        "http://::1/",
        "http://[::1].example.com/",
        "http://localhost/",
        "http://LOCALHOST/",
        "http://localhost./",
        "http://loc\u{AD}alhost/",
        "http://ⓛocalhost/",
        "http://a.localhost/",
        "http://exámple.com/",
        "http://.example.com/",
        "http://example..com/",
        "http://example.com../",
        "http://127.0.0.1../",
        "http://*.example.com/",
        "http://example.com:0/",
        "http://example.com:22/",
        "http://example.com:25/",
        "http://example.com:6379/",
        "http://example.com:65536/",
        "http://example.com:+80/",
        "ftp://example.com/",
        "file:///etc/passwd",
        "gopher://127.0.0.1:6379/_x",
        "javascript:alert(1)",
        "data:text/plain,x",
        "unix:/var/run/docker.sock",
        "http+unix://%2Fvar%2Frun%2Fdocker.sock/",
        "http://example.com/\r\nX: y",
        "http://kubernetes/",
        "http://metadata/",
        "http://metadata.google.internal/",
        "http://instance-data/",
        "http://printer.local/",
        "http://db.prod.svc.cluster.local/",
        "http://router.lan/",
        "http://1.0.0.127.in-addr.arpa/",
        "http://x.onion/",
        "http://x.test/",
        "http://x.invalid/",
        "http://x.home.arpa/",
        "http://x.corp/",
        "http://x.intranet/",
        "http://x.svc/",
    ];
    for text in policy {
        check(&guard, text, &Policy);
    }
    check(&guard, &format!("https://example.com/{}", "a".repeat(2_029)), &Policy);
    check(&guard, &format!("https://example.com/{}", "a".repeat(2_028)), &Allowed);
    let label = "a".repeat(63);
    check(&guard, &format!("https://{label}.example.com/"), &Allowed);
    check(&guard, &format!("https://{label}a.example.com/"), &Policy);
    let long = format!("{label}.{label}.{label}.{}", "a".repeat(61));
    assert_eq!(long.len(), 253);
    check(&guard, &format!("https://{long}/"), &Allowed);
    check(&guard, &format!("https://{long}a/"), &Policy);
}

#[test]
fn operators_open_networks_but_not_metadata() {
    let guard = Guard::new(vec![rule("10.1.0.0/16:8080"), rule("127.0.0.0/8")], false);
    check(&guard, "http://10.1.2.3:8080/", &Allowed);
    check(&guard, "http://10.1.2.3:8081/", &Blocked);
    check(&guard, "http://10.2.2.3:8080/", &Blocked);
    check(&guard, "http://127.0.0.1:9999/", &Allowed);
    check(&guard, "http://127.0.0.1:22/", &Allowed);
    check(&guard, "http://127.0.0.1:0/", &Blocked);
    check(&guard, "http://localhost:9999/", &Policy);
    check(&guard, "http://[::ffff:127.0.0.1]:9999/", &Blocked);
    check(&guard, "http://example.com:22/", &Policy);

    let all = Guard::new(vec![rule("0.0.0.0/0"), rule("::/0")], false);
    for text in [
        "http://169.254.169.254/",
        "http://168.63.129.16/",
        "http://100.100.100.200/",
        "http://[fe80::1]/",
        "http://[fd00:ec2::254]/",
        "http://[::ffff:169.254.169.254]/",
        "http://[::169.254.169.254]/",
        "http://[64:ff9b::a9fe:a9fe]/",
        "http://[64:ff9b:1::a9fe:a9fe]/",
        "http://[2002:a9fe:a9fe::1]/",
        "http://[2001:0:1::5601:5601]/",
        "http://[::5efe:a9fe:a9fe]/",
        "http://[::ffff:0:a9fe:a9fe]/",
    ] {
        check(&all, text, &Blocked);
    }
    check(&all, "http://[::1]:1/", &Allowed);
}

#[test]
fn a_port_opened_by_a_rule_is_decided_by_the_address_a_name_has() {
    let guard = Guard::new(vec![rule("10.1.0.0/16:6379")], false);
    check(&guard, "http://hooks.example.com:6379/", &Allowed);
    let inside = "10.1.0.9".parse().expect("address");
    let outside = "8.8.8.8".parse().expect("address");
    assert_eq!(guard.check_address(inside, 6379), Ok(()));
    assert_eq!(guard.check_address(outside, 6379), Err(AddressRefusal::Port { port: 6379 }));
    assert_eq!(guard.check_address(outside, 443), Ok(()));
}

#[test]
fn plain_http_can_be_switched_off() {
    let guard = Guard::new(vec![], true);
    assert_eq!(guard.check_url("http://example.com/").expect_err("http").code(), "url_https_only");
    assert!(guard.check_url("https://example.com/").is_ok());
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
    for text in ["https://example.com/a?b", "http://8.8.8.8:8080/%7B"] {
        let once = guard.check_url(text).expect(text);
        let twice = guard.check_url(once.as_str()).expect(text);
        assert_eq!(once.as_str(), twice.as_str());
    }
}

#[test]
fn allow_rules_read_and_write() {
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
        assert!(bad.parse::<AllowRule>().is_err(), "{bad}");
    }
}

/// An independent statement of the IPv4 policy, in another representation: sorted ranges.
#[test]
fn v4_policy_agrees_with_ranges() {
    let ranges: [(u32, u32); 17] = [
        (0x0000_0000, 0x00FF_FFFF),
        (0x0A00_0000, 0x0AFF_FFFF),
        (0x6440_0000, 0x647F_FFFF),
        (0x7F00_0000, 0x7FFF_FFFF),
        (0xA83F_8110, 0xA83F_8110),
        (0xA9FE_0000, 0xA9FE_FFFF),
        (0xAC10_0000, 0xAC1F_FFFF),
        (0xC000_0000, 0xC000_00FF),
        (0xC000_0200, 0xC000_02FF),
        (0xC01F_C400, 0xC01F_C4FF),
        (0xC034_C100, 0xC034_C1FF),
        (0xC058_6300, 0xC058_63FF),
        (0xC0A8_0000, 0xC0A8_FFFF),
        (0xC0AF_3000, 0xC0AF_30FF),
        (0xC612_0000, 0xC613_FFFF),
        (0xC633_6400, 0xC633_64FF),
        (0xCB00_7100, 0xCB00_71FF),
    ];
    let denied = |bits: u32| {
        bits >= 0xE000_0000 || ranges.iter().any(|(first, last)| (*first..=*last).contains(&bits))
    };
    // Every edge and its neighbours, and a coarse walk over everything.
    let edges = ranges
        .iter()
        .flat_map(|(first, last)| [*first, *last])
        .flat_map(|edge| [edge.wrapping_sub(1), edge, edge.wrapping_add(1)]);
    let walk = (0..=u32::MAX).step_by(4_093);
    for bits in edges.chain(walk).chain([0xDFFF_FFFF, 0xE000_0000, u32::MAX]) {
        let ip = IpAddr::V4(std::net::Ipv4Addr::from_bits(bits));
        assert_eq!(address::is_public(ip), !denied(bits), "{ip}");
    }
}
