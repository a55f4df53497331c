//! What operators can open and close, and what they cannot.

use super::*;

fn guard(allow: &[&str], deny: &[&str]) -> Guard {
    Guard::new(Rules { allow: rules(allow), deny: rules(deny), ..Rules::default() })
}

#[test]
fn operators_open_networks() {
    let guard = guard(&["10.1.0.0/16:8080", "127.0.0.0/8"], &[]);
    check(&guard, "http://10.1.2.3:8080/", Allowed);
    check(&guard, "http://10.1.2.3:8081/", Blocked);
    check(&guard, "http://10.2.2.3:8080/", Blocked);
    check(&guard, "http://127.0.0.1:9999/", Allowed);
    check(&guard, "http://127.0.0.1:22/", Allowed);
    check(&guard, "http://127.0.0.1:0/", Blocked);
    check(&guard, "http://localhost:9999/", Policy);
    check(&guard, "http://[::ffff:127.0.0.1]:9999/", Blocked);
    check(&guard, "http://example.com:22/", Policy);
}

const METADATA: [&str; 15] = [
    "http://169.254.169.254/",
    "http://168.63.129.16/",
    "http://100.100.100.200/",
    "http://192.0.0.192/",
    "http://[fe80::1]/",
    "http://[fd00:ec2::254]/",
    "http://[::ffff:169.254.169.254]/",
    "http://[::169.254.169.254]/",
    "http://[64:ff9b::a9fe:a9fe]/",
    "http://[64:ff9b:1::a9fe:a9fe]/",
    "http://[2002:a9fe:a9fe::1]/",
    "http://[2001:0:1::5601:5601]/",
    "http://[::5efe:a9fe:a9fe]/",
    "http://[2002:808:808::5efe:a9fe:a9fe]/",
    "http://[::ffff:0:a9fe:a9fe]/",
];

#[test]
fn metadata_needs_a_rule_and_the_second_switch() {
    let everything = rules(&["0.0.0.0/0", "::/0"]);
    let all = Guard::new(Rules { allow: everything.clone(), ..Rules::default() });
    let switch = Guard::new(Rules { dangerously_allow_metadata: true, ..Rules::default() });
    let both = Guard::new(Rules {
        allow: everything,
        dangerously_allow_metadata: true,
        ..Rules::default()
    });
    for text in METADATA {
        assert_eq!(code(&all, text), "address_metadata", "{text}");
        assert_eq!(code(&switch, text), "address_metadata", "{text}");
        check(&both, text, Allowed);
    }
    check(&all, "http://[::1]:1/", Allowed);
    check(&switch, "http://10.0.0.1/", Blocked);
}

#[test]
fn a_closed_network_is_closed_whatever_opens_it() {
    let guard = guard(&["10.0.0.0/8", "::/0"], &["10.1.0.0/16", "8.8.8.8:443", "2606:4700::/32"]);
    check(&guard, "http://10.2.0.1/", Allowed);
    assert_eq!(code(&guard, "http://10.1.0.1/"), "address_denied");
    assert_eq!(code(&guard, "https://8.8.8.8/"), "address_denied");
    check(&guard, "http://8.8.8.8/", Allowed);
    assert_eq!(code(&guard, "http://[2606:4700:4700::1111]/"), "address_denied");
    // The same network in other spellings, which the rule for ::/0 would have opened.
    for text in [
        "http://[::ffff:10.1.0.1]/",
        "http://[::10.1.0.1]/",
        "http://[2002:a01:1::1]/",
        "http://[64:ff9b::10.1.0.1]/",
        "http://[2a00::5efe:a01:1]/",
    ] {
        assert_eq!(code(&guard, text), "address_denied", "{text}");
    }
}

#[test]
fn nat64_takes_the_verdict_of_the_address_inside() {
    let off = Guard::default();
    let on = Guard::new(Rules {
        nat64: true,
        allow: rules(&["10.1.0.0/16"]),
        deny: rules(&["9.9.9.9"]),
        ..Rules::default()
    });
    for (text, verdict) in [
        ("http://[64:ff9b::808:808]/", Allowed),
        ("http://[64:ff9b::8.8.8.8]:8443/", Allowed),
        ("http://[64:ff9b::8.8.8.8]:22/", Blocked),
        ("http://[64:ff9b::10.1.0.1]/", Allowed),
        ("http://[64:ff9b::10.2.0.1]/", Blocked),
        ("http://[64:ff9b::9.9.9.9]/", Blocked),
        ("http://[64:ff9b::a9fe:a9fe]/", Blocked),
        ("http://[64:ff9b::7f00:1]/", Blocked),
        ("http://[64:ff9b:1::808:808]/", Blocked),
        ("http://[::ffff:808:808]/", Blocked),
    ] {
        check(&on, text, verdict);
        check(&off, text, Blocked);
    }
    let deny = rules(&["[64:ff9b::]/96"]);
    let closed = Guard::new(Rules { nat64: true, deny, ..Rules::default() });
    check(&closed, "http://[64:ff9b::808:808]/", Blocked);
}

#[test]
fn hosts_outside_ascii_are_kept_in_their_ascii_form() {
    let guard = Guard::new(Rules { allow_idn: true, ..Rules::default() });
    let target = guard.check_url("https://EXÁMPLE.com:8443/a?b").expect("target");
    assert_eq!(target.as_str(), "https://xn--exmple-qta.com:8443/a?b");
    assert_eq!(target.host_header(), "xn--exmple-qta.com:8443");
    check(&guard, "https://例え.jp", Allowed);
    for text in ["https://example.com/ä", "https://example.com/?ä", "httpſ://example.com/"] {
        check(&guard, text, Policy);
    }
    for text in ["http://ⓛocalhost/", "http://loc\u{AD}alhost/", "http://ex%C3%A1mple.com/"] {
        check(&guard, text, Policy);
    }
    for text in ["http://127。0。0。1/", "http://１２７.０.０.１/", "http://①②⑦.⓪.⓪.①/"]
    {
        check(&guard, text, Blocked);
    }
}

#[test]
fn names_of_an_inner_network_can_be_opened_but_not_their_addresses() {
    let names = ["openzaak", "*.svc.cluster.local", "Nrc.Internal"];
    let names = names.iter().map(|rule| rule.parse().expect("a rule")).collect();
    let guard = Guard::new(Rules { names, ..Rules::default() });
    for text in [
        "http://openzaak:8000/x",
        "http://OPENZAAK./",
        "http://a.b.svc.cluster.local/",
        "http://nrc.internal/",
    ] {
        check(&guard, text, Allowed);
        check(&Guard::default(), text, Policy);
    }
    for text in [
        "http://openzaak2/",
        "http://svc.cluster.local/",
        "http://localhost/",
        "http://other.internal/",
        "http://metadata/",
    ] {
        check(&guard, text, Policy);
    }
    for text in ["http://127.0.0.1/", "http://10.0.0.1/", "http://169.254.169.254/"] {
        check(&guard, text, Blocked);
    }
    for bad in ["", "*", "*.", "a b", "127.0.0.1", "http://a", "a..b", "*.*.a", "[::1]"] {
        assert!(bad.parse::<NameRule>().is_err(), "{bad}");
    }
}

#[test]
fn every_name_can_be_opened_but_no_address_by_that() {
    let guard = Guard::new(Rules { names: vec![NameRule::every()], ..Rules::default() });
    for text in ["http://localhost:8081/", "http://node-1/", "http://a.internal/"] {
        check(&guard, text, Allowed);
    }
    check(&guard, "http://a..b/", Policy);
    for text in ["http://127.0.0.1/", "http://10.0.0.1/", "http://169.254.169.254/"] {
        check(&guard, text, Blocked);
    }
}

#[test]
fn ports_can_be_narrowed_and_a_rule_can_add_one() {
    let guard = Guard::new(Rules {
        ports: vec![443, 9_443],
        allow: rules(&["10.1.0.0/16:6379"]),
        ..Rules::default()
    });
    check(&guard, "https://example.com/", Allowed);
    check(&guard, "https://example.com:9443/", Allowed);
    check(&guard, "http://example.com/", Policy);
    check(&guard, "https://example.com:8443/", Policy);
    check(&guard, "https://8.8.8.8:8443/", Blocked);
    check(&guard, "https://8.8.8.8/", Allowed);
    check(&guard, "http://10.1.0.9:6379/", Allowed);
    // Whether the rule opens the port is decided by the address the name has.
    check(&guard, "http://hooks.example.com:6379/", Allowed);
    assert_eq!(guard.check_address(ip("10.1.0.9"), 6379), Ok(()));
    assert_eq!(guard.check_address(ip("8.8.8.8"), 6379), Err(AddressRefusal::Port { port: 6379 }));
    // Ports that are closed by default can be opened by name.
    let data = Guard::new(Rules { ports: vec![22], ..Rules::default() });
    check(&data, "http://example.com:22/", Allowed);
}

#[test]
fn plain_http_can_be_switched_off() {
    let guard = Guard::new(Rules { https_only: true, ..Rules::default() });
    assert_eq!(code(&guard, "http://example.com/"), "url_https_only");
    check(&guard, "https://example.com/", Allowed);
}

#[test]
fn what_belongs_to_us_is_closed() {
    let guard = guard(&["127.0.0.0/8", "10.0.0.0/8"], &[]);
    guard.set_own(Own {
        listeners: vec![
            "127.0.0.1:8080".parse().expect("address"),
            "10.0.0.5:5432".parse().expect("address"),
        ],
        addresses: vec![ip("10.0.0.5"), ip("93.184.216.34")],
        names: vec!["DB.example.com.".to_owned()],
        servers: vec![("Proxy.example.com.".to_owned(), 3128)],
    });
    // A rule opens an address of ours, but no server of ours.
    assert_eq!(code(&guard, "http://127.0.0.1:8080/"), "address_own_listener");
    check(&guard, "http://127.0.0.1:8081/", Allowed);
    assert_eq!(code(&guard, "http://127.0.0.2:8080/"), "address_own_listener");
    check(&guard, "http://127.0.0.2:8081/", Allowed);
    assert_eq!(code(&guard, "http://10.0.0.5:5432/"), "address_own_listener");
    check(&guard, "http://10.0.0.5:8080/", Allowed);
    // Without a rule the address is closed on every port.
    assert_eq!(code(&guard, "http://93.184.216.34/"), "address_own");
    assert_eq!(code(&guard, "https://93.184.216.34:8443/"), "address_own");
    assert_eq!(code(&guard, "https://db.EXAMPLE.com/"), "url_host_own");
    // One that is ours on one port only.
    assert_eq!(code(&guard, "http://proxy.example.com:3128/"), "url_host_own");
    check(&guard, "https://proxy.example.com/", Allowed);
    check(&guard, "https://hooks.example.com/", Allowed);
    guard.set_own(Own::default());
    check(&guard, "http://93.184.216.34/", Allowed);
}

#[test]
fn no_spelling_of_our_own_listener_is_open() {
    let guard = guard(&["0.0.0.0/0", "::/0"], &[]);
    for listener in ["0.0.0.0:8080", "[::]:8080", "127.0.0.1:8080", "[::ffff:0.0.0.0]:8080"] {
        let listeners = vec![listener.parse().expect(listener)];
        guard.set_own(Own { listeners, ..Own::default() });
        for host in [
            "127.0.0.1",
            "0.0.0.0",
            "[::]",
            "[::ffff:127.0.0.1]",
            "[::127.0.0.1]",
            "[64:ff9b::127.0.0.1]",
            "[::ffff:0.0.0.0]",
        ] {
            let text = format!("http://{host}:8080/");
            assert_eq!(code(&guard, &text), "address_own_listener", "{listener} {text}");
            check(&guard, &format!("http://{host}:8081/"), Allowed);
        }
    }
    // Whoever is named by one address of this machine may listen on all of them; on others not.
    assert_eq!(code(&guard, "http://[::1]:8080/"), "address_own_listener");
    check(&guard, "http://10.0.0.1:8080/", Allowed);
    let listeners = vec!["[::]:8080".parse().expect("address")];
    guard.set_own(Own { listeners, ..Own::default() });
    assert_eq!(code(&guard, "http://[::1]:8080/"), "address_own_listener");
    assert_eq!(code(&guard, "http://127.9.9.9:8080/"), "address_own_listener");
}

#[test]
fn addresses_of_network_interfaces_are_ours() {
    let guard = guard(&["0.0.0.0/0", "::/0"], &[]);
    guard.refresh(Instant::now());
    let interfaces = if_addrs::get_if_addrs().expect("interfaces");
    assert!(!interfaces.is_empty());
    let listeners = vec!["0.0.0.0:8080".parse().expect("address")];
    guard.set_own(Own { listeners, ..Own::default() });
    let strict = Guard::default();
    strict.refresh(Instant::now());
    for interface in interfaces {
        let ip = interface.ip();
        assert!(strict.check_address(ip, 443).is_err(), "{ip}");
        if !interface.is_link_local() {
            let refused = guard.check_address(ip, 8080);
            assert_eq!(refused, Err(AddressRefusal::OwnListener), "{ip}");
        }
    }
}
