//! Names: what they resolve to decides, at the moment of connecting.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use posthorn_domain::FailureCode;
use posthorn_egress::{Egress, Options, ResolverChoice};
use tokio::net::UdpSocket;

use crate::receiver::{Receiver, answer, failure, options, request, send};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

/// Answers every question with these addresses, or with an error code, and counts the questions
/// for IPv4 addresses.
async fn name_server(answers: Result<Vec<IpAddr>, u8>) -> (SocketAddr, Arc<AtomicUsize>) {
    let socket = UdpSocket::bind("127.0.0.1:0").await.expect("bind");
    let address = socket.local_addr().expect("address");
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    tokio::spawn(async move {
        let mut packet = [0; 1500];
        while let Ok((length, peer)) = socket.recv_from(&mut packet).await {
            let (wants_v4, reply) = reply(&packet[..length], &answers);
            counter.fetch_add(usize::from(wants_v4), Ordering::SeqCst);
            let _ = socket.send_to(&reply, peer).await;
        }
    });
    (address, asked)
}

fn reply(query: &[u8], answers: &Result<Vec<IpAddr>, u8>) -> (bool, Vec<u8>) {
    // Header, then one question: labels up to the empty one, type, class.
    let name_end = 12 + query[12..].iter().position(|byte| *byte == 0).expect("root") + 1;
    let question = &query[12..name_end + 4];
    let wants_v4 = query[name_end + 1] == 1;
    let (code, fitting): (u8, Vec<&IpAddr>) = match answers {
        Ok(all) => (0, all.iter().filter(|ip| ip.is_ipv4() == wants_v4).collect()),
        Err(code) => (*code, vec![]),
    };
    let mut reply = query[..2].to_vec();
    reply.extend([0x81, 0x80 | code, 0, 1, 0, fitting.len() as u8, 0, 0, 0, 0]);
    reply.extend(question);
    for ip in fitting {
        let bytes = match ip {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        reply.extend([0xC0, 12, 0, if wants_v4 { 1 } else { 28 }, 0, 1, 0, 0, 0, 60, 0]);
        reply.push(bytes.len() as u8);
        reply.extend(bytes);
    }
    (wants_v4, reply)
}

fn ips(texts: &[&str]) -> Vec<IpAddr> {
    texts.iter().map(|text| text.parse().expect(text)).collect()
}

fn egress_with(server: SocketAddr, options: Options) -> Egress {
    let resolver = ResolverChoice::Servers(vec![server]);
    Egress::new(Options { resolver, ..options }).expect("egress")
}

#[tokio::test]
async fn a_name_is_resolved_vetted_and_reached() {
    let receiver = Receiver::always(OK).await;
    let (server, asked) = name_server(Ok(ips(&["127.0.0.1"]))).await;
    let no_reuse = Options { idle_per_key: 0, ..options() };
    let egress = egress_with(server, no_reuse);
    let url = format!("http://hooks.example.com:{}/", receiver.address.port());
    for _ in 0..3 {
        let sent = send(&egress, &url).await;
        assert_eq!(answer(&sent).status, 200);
        assert!(sent.timings.dns.is_some());
    }
    assert_eq!(receiver.accepted(), 3);
    assert_eq!(asked.load(Ordering::SeqCst), 1, "the answer is kept");
}

#[tokio::test]
async fn one_forbidden_address_refuses_the_whole_name() {
    let receiver = Receiver::always(OK).await;
    let url = format!("http://hooks.example.com:{}/", receiver.address.port());
    for answers in [
        &["127.0.0.1", "10.0.0.1"][..],
        &["10.0.0.1"],
        &["127.0.0.1", "::1"],
        &["127.0.0.1", "169.254.169.254"],
        &["127.0.0.1", "::ffff:8.8.8.8"],
    ] {
        let (server, _) = name_server(Ok(ips(answers))).await;
        let sent = send(&egress_with(server, options()), &url).await;
        assert_eq!(failure(&sent), FailureCode::AddressNotAllowed, "{answers:?}");
    }
    assert_eq!(receiver.accepted(), 0);
}

#[tokio::test]
async fn names_that_do_not_resolve_fail_by_type() {
    for answers in [Err(3), Err(2), Err(5), Ok(vec![])] {
        let (server, _) = name_server(answers.clone()).await;
        let sent = send(&egress_with(server, options()), "http://hooks.example.com/").await;
        assert_eq!(failure(&sent), FailureCode::DnsFailed, "{answers:?}");
    }
}

#[tokio::test]
async fn a_silent_name_server_is_a_dns_timeout() {
    let silent = UdpSocket::bind("127.0.0.1:0").await.expect("bind");
    let egress = egress_with(silent.local_addr().expect("address"), options());
    let mut wanted = request(&egress, "http://hooks.example.com/");
    wanted.deadlines.connect = Duration::from_millis(300);
    let sent = egress.send(wanted).await;
    assert_eq!(failure(&sent), FailureCode::DnsTimeout);
    assert!(sent.timings.total < Duration::from_secs(1));
}

#[tokio::test]
async fn vetting_resolves_and_judges_without_connecting() {
    let receiver = Receiver::always(OK).await;
    let url = format!("http://hooks.example.com:{}/", receiver.address.port());
    for (answers, verdict) in [
        (Ok(ips(&["127.0.0.1"])), Ok(())),
        (Ok(ips(&["127.0.0.1", "10.0.0.1"])), Err(FailureCode::AddressNotAllowed)),
        (Err(3), Err(FailureCode::DnsFailed)),
    ] {
        let (server, _) = name_server(answers).await;
        let egress = egress_with(server, options());
        let target = egress.guard().check_url(&url).expect("target");
        let vetted = egress.vet(&target, Duration::from_secs(5)).await;
        assert_eq!(vetted.map_err(|(code, _)| code), verdict);
    }
    let silent = UdpSocket::bind("127.0.0.1:0").await.expect("bind");
    let egress = egress_with(silent.local_addr().expect("address"), options());
    let target = egress.guard().check_url(&url).expect("target");
    let vetted = egress.vet(&target, Duration::from_millis(200)).await;
    assert_eq!(vetted.map_err(|(code, _)| code), Err(FailureCode::DnsTimeout));
    assert_eq!(receiver.accepted(), 0);
}
