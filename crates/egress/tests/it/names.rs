//! Names: what they resolve to decides, at the moment of connecting.
//!
//! Here 127.0.0.2 stands for a public address and 127.0.0.3 for one inside: the first is opened by
//! a rule, the second is not, and receivers on both, on the same port, say whether anybody even
//! tried to connect.

use std::time::{Duration, Instant};

use posthorn_domain::FailureCode;
use posthorn_egress::{Egress, Options, Sent};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::dns::{A, AAAA, NameServer, Question, Record, Reply, addresses_reply, ips, silent};
use crate::receiver::{Receiver, answer, failure, request, send};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
const PUBLIC: &str = "127.0.0.2";
const INSIDE: &str = "127.0.0.3";

/// Only the public address is open, and every request needs a new connection.
fn options() -> Options {
    let allow = vec!["127.0.0.2".parse().expect("rule")];
    Options { allow, idle_per_subscription: 0, ..Options::default() }
}

/// The two receivers.
struct Town {
    public: Receiver,
    inside: Receiver,
}

impl Town {
    async fn new() -> Self {
        loop {
            let public = Receiver::always_on(&format!("{PUBLIC}:0"), OK).await.expect("bind");
            let beside = format!("{INSIDE}:{}", public.address.port());
            if let Some(inside) = Receiver::always_on(&beside, OK).await {
                return Self { public, inside };
            }
        }
    }

    fn url(&self, name: &str) -> String {
        format!("http://{name}:{}/", self.public.address.port())
    }

    async fn send(&self, egress: &Egress) -> Sent {
        send(egress, &self.url("hooks.example.com")).await
    }

    #[track_caller]
    fn nobody_came_inside(&self) {
        assert_eq!(self.inside.accepted(), 0, "a forbidden connection was tried");
    }
}

#[tokio::test]
async fn a_name_is_resolved_vetted_and_reached() {
    let town = Town::new().await;
    let server = NameServer::of(&[PUBLIC]).await;
    let egress = server.egress(options());
    for _ in 0..3 {
        let sent = town.send(&egress).await;
        assert_eq!(answer(&sent).status, 200);
        assert!(sent.timings.dns.is_some());
    }
    assert_eq!(town.public.accepted(), 3);
    assert_eq!(server.count(A), 1, "the answer is kept");
}

#[tokio::test]
async fn one_forbidden_address_refuses_the_whole_name() {
    let town = Town::new().await;
    for answers in [
        &[PUBLIC, INSIDE][..],
        &[INSIDE, PUBLIC],
        &[INSIDE],
        &[PUBLIC, PUBLIC, PUBLIC, PUBLIC, PUBLIC, INSIDE],
        &[PUBLIC, "::1"],
        &[PUBLIC, "10.0.0.1"],
        &[PUBLIC, "169.254.169.254"],
        &[PUBLIC, "::ffff:127.0.0.2"],
        &[PUBLIC, "64:ff9b::7f00:2"],
        &[PUBLIC, "fd00:ec2::254"],
    ] {
        let server = NameServer::of(answers).await;
        let sent = town.send(&server.egress(options())).await;
        assert_eq!(failure(&sent), FailureCode::AddressNotAllowed, "{answers:?}");
    }
    assert_eq!(town.public.accepted(), 0, "nor is it filtered");
    town.nobody_came_inside();
}

#[tokio::test]
async fn a_name_that_moves_inside_after_it_was_registered_is_refused() {
    let town = Town::new().await;
    let (public, inside) = (ips(&[PUBLIC]), ips(&[INSIDE]));
    let server = NameServer::start(move |question| {
        addresses_reply(question, 60, if question.number == 0 { &public } else { &inside })
    })
    .await;
    let registering = server.egress(options());
    let target = registering.guard().check_url(&town.url("hooks.example.com")).expect("target");
    assert_eq!(registering.vet(&target, Duration::from_secs(5)).await, Ok(()));
    // Another node, or the same one later: it has not seen the first answer.
    let sent = town.send(&server.egress(options())).await;
    assert_eq!(failure(&sent), FailureCode::AddressNotAllowed);
    assert_eq!(town.public.accepted(), 0);
    town.nobody_came_inside();
}

#[tokio::test]
async fn a_name_that_alternates_with_every_question_never_leads_inside() {
    let town = Town::new().await;
    let (public, inside) = (ips(&[PUBLIC]), ips(&[INSIDE]));
    let server = NameServer::start(move |question| {
        addresses_reply(question, 0, if question.number % 2 == 0 { &public } else { &inside })
    })
    .await;
    let egress = server.egress(options());
    let began = Instant::now();
    let (mut reached, mut refused) = (0, 0);
    // A lifetime of zero is stretched to five seconds, so this sees both answers.
    while began.elapsed() < Duration::from_secs(7) {
        let sent = town.send(&egress).await;
        match sent.outcome {
            posthorn_domain::AttemptOutcome::Answered(_) => reached += 1,
            _ => {
                assert_eq!(failure(&sent), FailureCode::AddressNotAllowed);
                refused += 1;
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(reached > 0 && refused > 0, "{reached} reached, {refused} refused");
    assert_eq!(town.public.accepted(), reached);
    assert!(server.count(A) <= 3, "asked {} times", server.count(A));
    town.nobody_came_inside();
}

#[tokio::test]
async fn an_alias_of_localhost_is_refused() {
    let town = Town::new().await;
    for target in ["localhost.", "foo.localhost."] {
        let server = NameServer::start(move |question| match question.name.as_str() {
            "hooks.example.com." => Reply::Records(vec![Record::alias(&question.name, target)]),
            _ => addresses_reply(question, 60, &ips(&["127.0.0.1", "::1"])),
        })
        .await;
        let sent = town.send(&server.egress(options())).await;
        assert_eq!(failure(&sent), FailureCode::AddressNotAllowed, "{target}");
    }
    assert_eq!(town.public.accepted(), 0);
}

/// `n0.example.` → `n1.example.` → … → `n<length>.example.`, which has the public address.
fn chain(question: &Question, length: usize, at_once: bool) -> Reply {
    let name = |at: usize| format!("n{at}.example.");
    let at = question.name[1..].split('.').next().and_then(|digits| digits.parse().ok());
    let at: usize = at.expect("a name of the chain");
    let end = Record::address(&name(length), 60, PUBLIC.parse().expect("address"));
    let ends = (question.kind == A).then_some(end);
    if at == length {
        return Reply::Records(ends.into_iter().collect());
    }
    let link = |at: usize| Record::alias(&name(at), &name(at + 1));
    if at_once {
        Reply::Records((at..length).map(link).chain(ends).collect())
    } else {
        Reply::Records(vec![link(at)])
    }
}

#[tokio::test]
async fn chains_of_aliases_end_somewhere() {
    let town = Town::new().await;
    for (length, at_once, reachable) in [
        (1, false, true),
        (4, false, true),
        (8, true, true),
        (9, true, false),
        (20, true, false),
        (20, false, false),
    ] {
        let server = NameServer::start(move |question| chain(question, length, at_once)).await;
        let sent = send(&server.egress(options()), &town.url("n0.example")).await;
        let case = format!("{length} aliases, at once: {at_once}");
        if reachable {
            assert_eq!(answer(&sent).status, 200, "{case}");
        } else {
            assert_eq!(failure(&sent), FailureCode::DnsFailed, "{case}");
        }
        assert!(server.asked().len() <= 40, "{case}: {} questions", server.asked().len());
    }
}

#[tokio::test]
async fn aliases_that_go_round_in_circles_fail() {
    for script in [
        // Itself; two in turn, one at a time; two in turn, at once.
        (|question: &Question| Reply::Records(vec![Record::alias(&question.name, &question.name)]))
            as fn(&Question) -> Reply,
        |question| {
            let other = if question.name.starts_with('a') { "b.example." } else { "a.example." };
            Reply::Records(vec![Record::alias(&question.name, other)])
        },
        |_| {
            let (a, b) = ("a.example.", "b.example.");
            Reply::Records(vec![Record::alias(a, b), Record::alias(b, a)])
        },
    ] {
        let server = NameServer::start(script).await;
        let sent = send(&server.egress(options()), "http://a.example/").await;
        assert_eq!(failure(&sent), FailureCode::DnsFailed);
        assert!(server.asked().len() <= 40, "{} questions", server.asked().len());
    }
}

#[tokio::test]
async fn names_that_do_not_resolve_fail_by_type() {
    for reply in [Reply::Code(3), Reply::Code(2), Reply::Code(5), Reply::Records(vec![])] {
        let script = reply.clone();
        let server = NameServer::start(move |_| script.clone()).await;
        let sent = send(&server.egress(options()), "http://hooks.example.com/").await;
        assert_eq!(failure(&sent), FailureCode::DnsFailed, "{reply:?}");
    }
}

#[tokio::test]
async fn an_answer_too_long_for_udp_is_had_over_tcp() {
    let town = Town::new().await;
    let public = ips(&[PUBLIC]);
    let server = NameServer::start(move |question| match question.tcp {
        false => Reply::Truncated,
        true => addresses_reply(question, 60, &public),
    })
    .await;
    assert_eq!(answer(&town.send(&server.egress(options())).await).status, 200);
    assert!(server.asked().iter().any(|question| question.tcp));
    // And what it says there is vetted all the same.
    let inside = ips(&[INSIDE]);
    let server = NameServer::start(move |question| match question.tcp {
        false => Reply::Truncated,
        true => addresses_reply(question, 60, &inside),
    })
    .await;
    let sent = town.send(&server.egress(options())).await;
    assert_eq!(failure(&sent), FailureCode::AddressNotAllowed);
    town.nobody_came_inside();
}

#[tokio::test]
async fn garbage_and_forgeries_are_no_answers() {
    let town = Town::new().await;
    let server = NameServer::start(|_| Reply::Garbage).await;
    let egress = server.egress(options());
    let mut wanted = request(&egress, &town.url("hooks.example.com"));
    wanted.deadlines.connect = Duration::from_secs(3);
    let code = failure(&egress.send(wanted).await);
    assert!(matches!(code, FailureCode::DnsFailed | FailureCode::DnsTimeout), "{code:?}");
    // An answer to another question comes first and is not believed.
    let server = NameServer::start(|question| {
        let forged = Record::address(&question.name, 60, ips(&[INSIDE])[0]);
        match addresses_reply(question, 60, &ips(&[PUBLIC])) {
            Reply::Records(right) => Reply::Spoofed(vec![forged], right),
            other => other,
        }
    })
    .await;
    assert_eq!(answer(&town.send(&server.egress(options())).await).status, 200);
    town.nobody_came_inside();
}

#[tokio::test]
async fn a_silent_name_server_is_a_dns_timeout() {
    let silent = silent().await;
    let resolvers = vec![silent.local_addr().expect("address")];
    let egress = Egress::new(Options { resolvers, ..options() }).expect("egress");
    let mut wanted = request(&egress, "http://hooks.example.com/");
    wanted.deadlines.connect = Duration::from_millis(300);
    let sent = egress.send(wanted).await;
    assert_eq!(failure(&sent), FailureCode::DnsTimeout);
    assert!(sent.timings.total < Duration::from_secs(2));
    let target = egress.guard().check_url("http://hooks.example.com/").expect("target");
    let vetted = egress.vet(&target, Duration::from_millis(200)).await;
    assert_eq!(vetted.map_err(|(code, _)| code), Err(FailureCode::DnsTimeout));
}

#[tokio::test]
async fn nothing_is_added_to_a_name_that_is_not_found() {
    let server = NameServer::start(|_| Reply::Code(3)).await;
    let sent = send(&server.egress(options()), "http://hooks.example/").await;
    assert_eq!(failure(&sent), FailureCode::DnsFailed);
    assert!(!server.asked().is_empty());
    for question in server.asked() {
        assert_eq!(question.name, "hooks.example.");
    }
}

#[tokio::test]
async fn only_addresses_are_asked_for_and_hints_are_not_believed() {
    let town = Town::new().await;
    let server = NameServer::start(|question| {
        let Reply::Records(mut records) = addresses_reply(question, 60, &ips(&[PUBLIC])) else {
            return Reply::Nothing;
        };
        records.push(Record::hint(&question.name, [127, 0, 0, 3]));
        Reply::Records(records)
    })
    .await;
    assert_eq!(answer(&town.send(&server.egress(options())).await).status, 200);
    assert!(server.asked().iter().all(|question| matches!(question.kind, A | AAAA)));
    town.nobody_came_inside();
}

#[tokio::test]
async fn at_most_so_many_addresses_are_believed() {
    let town = Town::new().await;
    for (count, fine) in [(32, true), (33, false)] {
        let all = vec![ips(&[PUBLIC])[0]; count];
        let server = NameServer::start(move |question| addresses_reply(question, 60, &all)).await;
        let sent = town.send(&server.egress(options())).await;
        if fine {
            assert_eq!(answer(&sent).status, 200);
        } else {
            assert_eq!(failure(&sent), FailureCode::DnsFailed);
        }
    }
}

#[tokio::test]
async fn those_who_need_the_same_name_share_one_lookup() {
    let town = Town::new().await;
    let public = ips(&[PUBLIC]);
    let thinks = Duration::from_millis(300);
    let server =
        NameServer::slow(thinks, move |question| addresses_reply(question, 60, &public)).await;
    let egress = server.egress(options());
    let url = town.url("hooks.example.com");
    let all = (0..40).map(|_| send(&egress, &url));
    for sent in futures_util::future::join_all(all).await {
        assert_eq!(answer(&sent).status, 200);
    }
    // On a busy machine an answer may come too late: then the one lookup asks again.
    for questions in [server.count(A), server.count(AAAA)] {
        assert!((1..=2).contains(&questions), "asked {questions} times");
    }
}

#[tokio::test]
async fn a_forbidden_family_is_no_fallback_for_the_other() {
    let town = Town::new().await;
    // IPv6 is allowed and leads nowhere; IPv4 would answer, but is inside.
    let server = NameServer::of(&["::1", INSIDE]).await;
    let mut both = options();
    both.allow.push("::1".parse().expect("rule"));
    let sent = town.send(&server.egress(both.clone())).await;
    assert_eq!(failure(&sent), FailureCode::AddressNotAllowed);
    town.nobody_came_inside();
    // When both are allowed, the one that answers is used.
    let server = NameServer::of(&["::1", PUBLIC]).await;
    assert_eq!(answer(&town.send(&server.egress(both)).await).status, 200);
}

/// A listener whose queue is full: whoever connects hears nothing.
#[expect(clippy::disallowed_methods, reason = "fills a queue of the test, on loopback")]
async fn black_hole(address: &str) -> Option<(TcpListener, Vec<TcpStream>)> {
    let socket = TcpSocket::new_v4().expect("socket");
    socket.bind(address.parse().expect("address")).ok()?;
    let listener = socket.listen(1).expect("listen");
    let mut filling = Vec::new();
    for _ in 0..8 {
        let socket = TcpSocket::new_v4().expect("socket");
        let connect = socket.connect(listener.local_addr().expect("address"));
        match tokio::time::timeout(Duration::from_millis(200), connect).await {
            Ok(connected) => filling.push(connected.expect("connected")),
            Err(_) => return Some((listener, filling)),
        }
    }
    panic!("the queue of a listener does not fill up");
}

#[tokio::test]
async fn an_address_that_does_not_answer_does_not_hold_up_the_others() {
    let town = Town::new().await;
    let port = town.public.address.port();
    let Some(_hole) = black_hole(&format!("127.0.0.4:{port}")).await else {
        panic!("port {port} of 127.0.0.4 is taken");
    };
    let mut both = options();
    both.allow.push("127.0.0.4".parse().expect("rule"));
    let server = NameServer::of(&["127.0.0.4", PUBLIC]).await;
    let sent = town.send(&server.egress(both.clone())).await;
    assert_eq!(answer(&sent).status, 200);
    let took = sent.timings.connect.expect("connected");
    assert!(took < Duration::from_secs(3), "{took:?}");

    // At most four are tried, and the phase has one deadline for all of them.
    let server =
        NameServer::of(&["127.0.0.4", "127.0.0.4", "127.0.0.4", "127.0.0.4", PUBLIC]).await;
    let egress = server.egress(both);
    let mut wanted = request(&egress, &town.url("hooks.example.com"));
    wanted.deadlines.connect = Duration::from_millis(1_500);
    let sent = egress.send(wanted).await;
    assert_eq!(failure(&sent), FailureCode::ConnectTimeout);
    assert_eq!(town.public.accepted(), 1);
}

#[tokio::test]
async fn vetting_resolves_and_judges_without_connecting() {
    let town = Town::new().await;
    let url = town.url("hooks.example.com");
    for (addresses, verdict) in [
        (&[PUBLIC][..], Ok(())),
        (&[PUBLIC, INSIDE], Err(FailureCode::AddressNotAllowed)),
        (&[], Err(FailureCode::DnsFailed)),
    ] {
        let server = NameServer::of(addresses).await;
        let egress = server.egress(options());
        let target = egress.guard().check_url(&url).expect("target");
        let vetted = egress.vet(&target, Duration::from_secs(5)).await;
        assert_eq!(vetted.map_err(|(code, _)| code), verdict, "{addresses:?}");
    }
    assert_eq!(town.public.accepted(), 0);
    town.nobody_came_inside();
}
