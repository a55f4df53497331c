//! Random mixtures of everything that has ever confused a URL parser: whatever is let through must
//! mean one thing only.

use posthorn_testkit::dice::Dice;

use super::*;

const PIECES: [&str; 64] = [
    "http://",
    "https://",
    "HTTP://",
    "http:/",
    "http:",
    "//",
    "/",
    "\\",
    "?",
    "#",
    "@",
    ":",
    ".",
    "..",
    "。",
    "．",
    "127",
    "0",
    "1",
    "0x7f",
    "0177",
    "255",
    "256",
    "4294967296",
    "2130706433",
    "169.254.169.254",
    "127.0.0.1",
    "10.0.0.1",
    "8.8.8.8",
    "[",
    "]",
    "[::1]",
    "[::ffff:8.8.8.8]",
    "[2606:4700:4700::1111]",
    "::",
    "%25",
    "%31",
    "%2f",
    "%00",
    "%C3%A1",
    ":80",
    ":443",
    ":0",
    ":65536",
    ":22",
    "user",
    "pass",
    "localhost",
    "example",
    ".com",
    "a.b.example.com",
    "xn--",
    "xn--exmple-qta",
    "-",
    "_",
    "*",
    "á",
    "ⓛ",
    "\u{ad}",
    "\u{200b}",
    "\t",
    "\n",
    " ",
    "path?q=1",
];

fn mixture(dice: &mut Dice) -> String {
    let scheme = PIECES[dice.below(3)];
    let mut text = if dice.below(8) == 0 { String::new() } else { scheme.to_owned() };
    for _ in 0..=dice.below(6) {
        text.push_str(PIECES[dice.below(PIECES.len())]);
    }
    text
}

#[test]
fn what_is_let_through_means_one_thing_to_every_parser() {
    let strict = Guard::default();
    let lenient = Guard::new(Rules { allow_idn: true, ..Rules::default() });
    let mut dice = Dice(42);
    let mut allowed = 0;
    for _ in 0..200_000 {
        let text = mixture(&mut dice);
        for guard in [&strict, &lenient] {
            let Ok(target) = guard.check_url(&text) else { continue };
            allowed += 1;
            let shown = target.as_str();
            assert!(shown.is_ascii(), "{text:?} became {shown:?}");
            let authority = split(shown).1;
            assert!(!authority.contains(['@', '%', '*']), "{text:?} became {shown:?}");
            assert!(!shown.contains(['#', '\\', ' ']), "{text:?} became {shown:?}");
            // Read again, it is the same.
            let again = strict.check_url(shown).unwrap_or_else(|e| panic!("{shown:?}: {e}"));
            assert_eq!((again.as_str(), again.host()), (shown, target.host()), "{text:?}");
            // Another parser finds the same host, port and path in it.
            let uri: http::Uri = shown.parse().unwrap_or_else(|e| panic!("{shown:?}: {e}"));
            let host = uri.host().expect("a host").trim_matches(['[', ']']).to_owned();
            match target.host() {
                Host::Name(name) => {
                    assert_eq!(**name, host, "{text:?}");
                    assert!(host.parse::<IpAddr>().is_err(), "{text:?}");
                    assert_eq!(names::check(name), Ok(()), "{text:?}");
                }
                Host::Ip(ip) => {
                    assert_eq!(host.parse(), Ok(*ip), "{text:?}");
                    assert_eq!(guard.check_address(*ip, target.port()), Ok(()), "{text:?}");
                }
            }
            let port = uri.port_u16().unwrap_or(target.scheme().default_port());
            assert_eq!(port, target.port(), "{text:?}");
            let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
            assert_eq!(path, target.path_and_query(), "{text:?}");
        }
    }
    assert!(allowed > 5_000, "only {allowed} were let through");
}
