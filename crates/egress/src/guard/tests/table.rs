//! Every spelling we know of, with its verdict. The numbers group spellings of one idea.

use super::*;

#[test]
fn every_spelling_gets_its_verdict() {
    let guard = Guard::default();
    let table: [(u8, Verdict, &[&str]); 46] = [
        (1, Blocked, &["http://127.0.0.1/", "http://127.255.255.254/"]),
        (2, Blocked, &["http://2130706433/"]),
        (3, Blocked, &["http://0x7f000001/", "http://0x7f.1/", "http://0x7F.0x0.0x0.0x1/"]),
        (5, Blocked, &["http://0177.0.0.1/", "http://017700000001/"]),
        (6, Blocked, &["http://127.1/", "http://127.0.1/"]),
        (7, Blocked, &["http://0.0.0.0/", "http://0/", "http://0.1.2.3/"]),
        (8, Blocked, &["http://127.0.0.1./"]),
        (10, Blocked, &["http://4294967295/"]),
        (
            11,
            Policy,
            &[
                "http://4294967296/",
                "http://256.0.0.1/",
                "http://1.2.3.4.5/",
                "http://09.0.0.1/",
                "http://foo.1/",
                "http://127.0.0.1../",
            ],
        ),
        (13, Policy, &["http://127。0。0。1/", "http://１２７.０.０.１/", "http://①②⑦.⓪.⓪.①/"]),
        (14, Policy, &["http://%31%32%37.0.0.1/", "http://127.0.0.1%00.example.com/"]),
        (15, Policy, &["http://127.0.\n0.1/", "http://127.0.\t0.1/", "http://127.0.\r0.1/"]),
        (16, Policy, &["http:\\\\127.0.0.1\\x", "http://example.com\\@127.0.0.1/"]),
        (17, Policy, &["http:127.0.0.1", "http:/127.0.0.1", "http:///127.0.0.1/", "//127.0.0.1/"]),
        (18, Policy, &["http://example.com@127.0.0.1/", "http://a:b@example.com/"]),
        (19, Policy, &["http://127.0.0.1@example.com/", "http://127.0.0.1:80@example.com/"]),
        (20, Policy, &["http://us%40er@example.com/", "http://:@example.com:@127.0.0.1/"]),
        (
            21,
            Policy,
            &["http://example.com#@127.0.0.1/", "http://example.com/#", "http://example.com#"],
        ),
        (23, Blocked, &["http://[::1]/", "http://[0:0:0:0:0:0:0:1]/", "http://[0000::0001]/"]),
        (24, Blocked, &["http://[::]/"]),
        (25, Blocked, &["http://[::ffff:127.0.0.1]/", "http://[::ffff:7f00:1]/"]),
        (
            26,
            Blocked,
            &["http://[::ffff:8.8.8.8]/", "http://[::8.8.8.8]/", "http://[::ffff:0:808:808]/"],
        ),
        (29, Blocked, &["http://[::5efe:a9fe:a9fe]/", "http://[::200:5efe:a9fe:a9fe]/"]),
        (30, Blocked, &["http://[64:ff9b::a9fe:a9fe]/", "http://[64:ff9b::169.254.169.254]/"]),
        (31, Blocked, &["http://[64:ff9b::808:808]/", "http://[64:ff9b:1::808:808]/"]),
        (
            33,
            Blocked,
            &["http://[2002:7f00:1::1]/", "http://[2002:808:808::1]/", "http://[2001::1]/"],
        ),
        (
            35,
            Blocked,
            &[
                "http://[fd00:ec2::254]/",
                "http://[fd20:ce::254]/",
                "http://[fd00:42::42]/",
                "http://[fc00::1]/",
            ],
        ),
        (36, Blocked, &["http://[fe80::1]/", "http://[fe80::a9fe:a9fe]/"]),
        (36, Policy, &["http://[fe80::1%25eth0]/", "http://[::1%25lo]/", "http://[fe80::1%eth0]/"]),
        (37, Blocked, &["http://[fec0::1]/"]),
        (38, Blocked, &["http://[ff02::1]/", "http://[ff0e::1]/"]),
        (
            40,
            Blocked,
            &[
                "http://[5f00::1]/",
                "http://[3fff::1]/",
                "http://[2001:db8::1]/",
                "http://[2001:2::1]/",
                "http://[4000::1]/",
                "http://[100::1]/",
                "http://[100:0:0:1::1]/",
                "http://[2001:10::1]/",
                "http://[2001:20::1]/",
                "http://[2001:30::1]/",
                "http://[2620:4f:8000::1]/",
            ],
        ),
        (41, Allowed, &["http://[2001:4860:4860::8888]/", "http://[2606:4700:4700::1111]/"]),
        (
            42,
            Policy,
            &[
                "http://[127.0.0.1]/",
                "http://[example.com]/",
                "http://[[::1]]/",
                "http://::1/",
                "http://[::1].example.com/",
            ],
        ),
        (
            44,
            Blocked,
            &[
                "http://169.254.169.254/latest/",
                "http://0251.0376.0251.0376/",
                "http://0xa9fea9fe/",
                "http://2852039166/",
            ],
        ),
        (45, Blocked, &["http://168.63.129.16/"]),
        (
            46,
            Blocked,
            &["http://100.100.100.200/", "http://100.64.0.1/", "http://100.127.255.255/"],
        ),
        (
            49,
            Allowed,
            &[
                "http://172.15.255.255/",
                "http://172.32.0.1/",
                "http://192.167.1.1/",
                "http://198.17.0.1/",
                "http://198.20.0.1/",
                "http://223.255.255.255/",
                "http://169.253.1.1/",
                "http://168.63.129.15/",
                "http://168.63.129.17/",
                "http://100.63.255.255/",
                "http://100.128.0.0/",
            ],
        ),
        (
            50,
            Policy,
            &[
                "http://localhost/",
                "http://LOCALHOST/",
                "http://localhost./",
                "http://loc\u{AD}alhost/",
                "http://ⓛocalhost/",
                "http://a.localhost/",
                "http://A.LocalHost.:8080/",
            ],
        ),
        (52, Allowed, &["http://127.0.0.1.nip.io/", "http://10-0-0-1.sslip.io/"]),
        (
            54,
            Policy,
            &["http://exámple.com/", "http://ex%C3%A1mple.com/", "http:///ex%C3%A1mple.com/"],
        ),
        (
            55,
            Allowed,
            &[
                "https://example.com./",
                "https://xn--exmple-qta.com/",
                "https://a_b.example.com/%20?x=%0A",
                "https://notlocalhost.com/",
            ],
        ),
        (
            56,
            Policy,
            &[
                "http://.example.com/",
                "http://example..com/",
                "http://example.com../",
                "http://*.example.com/",
                "http://*/",
                "http://./",
            ],
        ),
        (
            57,
            Policy,
            &[
                "http://example.com:0/",
                "http://example.com:22/",
                "http://example.com:25/",
                "http://example.com:6379/",
                "http://example.com:5432/",
                "http://example.com:10250/",
                "http://example.com:1023/",
            ],
        ),
        (
            58,
            Policy,
            &["http://example.com:65536/", "http://example.com:+80/", "http://example.com:-1/"],
        ),
        (
            58,
            Allowed,
            &[
                "http://example.com:080/",
                "http://example.com:/",
                "http://example.com:8443/a?b=1",
                "HTTPS://EXAMPLE.COM/",
            ],
        ),
    ];
    for (row, verdict, texts) in table {
        for text in texts {
            eprintln!("row {row}: {text}");
            check(&guard, text, verdict);
        }
    }
}

#[test]
fn schemes_other_than_http_are_refused() {
    let guard = Guard::default();
    for text in [
        "ftp://example.com/",
        "file:///etc/passwd",
        "gopher://127.0.0.1:6379/_x",
        "javascript:alert(1)",
        "data:text/plain,x",
        "unix:/var/run/docker.sock",
        "http+unix://%2Fvar%2Frun%2Fdocker.sock/",
        "ws://example.com/",
        "dict://127.0.0.1:11211/stat",
        "ldap://127.0.0.1/",
        "example.com",
        "//example.com/",
        "",
        " https://example.com/",
        "https://example.com/\n",
        "\u{feff}https://example.com/",
        "http://example.com/\r\nX: y",
        "http://example.com/\0",
        "http://example.com/\u{7f}",
    ] {
        check(&guard, text, Policy);
    }
}

#[test]
fn every_block_of_the_policy_is_closed_from_end_to_end() {
    let guard = Guard::default();
    for (first, last) in [
        ("0.0.0.0", "0.255.255.255"),
        ("10.0.0.0", "10.255.255.255"),
        ("100.64.0.0", "100.127.255.255"),
        ("127.0.0.0", "127.255.255.255"),
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
        ("224.0.0.0", "255.255.255.255"),
    ] {
        for address in [first, last] {
            check(&guard, &format!("http://{address}/"), Blocked);
        }
    }
    // Where clouds hand out credentials.
    for address in [
        "169.254.169.254",
        "169.254.170.2",
        "169.254.170.23",
        "169.254.169.123",
        "169.254.42.42",
        "169.254.0.23",
        "168.63.129.16",
        "100.100.100.200",
        "192.0.0.192",
        "fd00:ec2::254",
        "fd20:ce::254",
        "fd00:42::42",
        "fe80::a9fe:a9fe",
    ] {
        assert_eq!(guard.check_address(ip(address), 80), Err(AddressRefusal::Metadata));
    }
}

#[test]
fn names_that_are_not_on_the_public_internet_are_refused_before_dns() {
    let guard = Guard::default();
    for name in [
        "kubernetes",
        "metadata",
        "metadata.google.internal",
        "instance-data",
        "instance-data.ec2.internal",
        "printer.local",
        "db.prod.svc.cluster.local",
        "router.lan",
        "1.0.0.127.in-addr.arpa",
        "x.onion",
        "x.test",
        "x.invalid",
        "x.home.arpa",
        "x.corp",
        "x.intranet",
        "x.svc",
        "x.internal",
        "x.localhost",
        "x.localdomain",
    ] {
        for text in [format!("http://{name}/"), format!("http://{}./", name.to_uppercase())] {
            check(&guard, &text, Policy);
        }
    }
}

#[test]
fn lengths_are_bounded() {
    let guard = Guard::default();
    check(&guard, &format!("https://example.com/{}", "a".repeat(2_029)), Policy);
    check(&guard, &format!("https://example.com/{}", "a".repeat(2_028)), Allowed);
    let label = "a".repeat(63);
    check(&guard, &format!("https://{label}.example.com/"), Allowed);
    check(&guard, &format!("https://{label}a.example.com/"), Policy);
    let long = format!("{label}.{label}.{label}.{}", "a".repeat(61));
    assert_eq!(long.len(), 253);
    check(&guard, &format!("https://{long}/"), Allowed);
    check(&guard, &format!("https://{long}a/"), Policy);
}
