//! Requests through the operator's proxies: a tunnel, the whole request, and proxies that mean no good.
//!
//! Here 127.0.0.2 stands for a public address and 127.0.0.3 for one inside. The proxies are on 127.0.0.1, which
//! is closed to receivers: an operator's word opens it, and nobody else's.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use posthorn_domain::{AttemptOutcome, FailureCode, ProxyName};
use posthorn_egress::{Egress, Options, Proxy, ProxyMode, Request, Sent};
use posthorn_testkit::authority::Authority;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpSocket, TcpStream};

use crate::authority::{Setup, identity};
use crate::dns::NameServer;
use crate::receiver::{Receiver, answer, failure, linger, read_request, request};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const ASKED: &str = "Basic Z2F0ZXdheTpwYXNzOndvcmQ=";

fn name() -> ProxyName {
    ProxyName::new("way-out").expect("a name")
}

/// Only 127.0.0.2 is open; the proxy is not.
fn options(proxy: SocketAddr, mode: ProxyMode) -> Options {
    let url = format!("http://{proxy}");
    let proxy = Proxy::new(&url, Some(("gateway", "pass:word")), mode).expect("a proxy");
    Options {
        allow: vec!["127.0.0.2".parse().expect("rule")],
        proxies: BTreeMap::from([(name(), proxy)]),
        ..Options::default()
    }
}

async fn send(egress: &Egress, url: &str) -> Sent {
    egress.send(Request { proxy: Some(name()), ..request(egress, url) }).await
}

type Heard = Arc<Mutex<Vec<String>>>;

/// A proxy that leads to wherever it is asked for, whoever asks with the right words.
#[expect(clippy::disallowed_methods, reason = "a proxy of the test, on loopback")]
async fn tunnelling() -> (Receiver, Heard) {
    let heard = Heard::default();
    let noting = Arc::clone(&heard);
    let proxy = Receiver::start(move |mut tcp: TcpStream, _| {
        let heard = Arc::clone(&noting);
        async move {
            let Some(asked) = read_request(&mut tcp).await else { return };
            heard.lock().push(asked.clone());
            if !asked.contains(&format!("Proxy-Authorization: {ASKED}\r\n")) {
                let _ = tcp.write_all(b"HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n").await;
                return linger(tcp).await;
            }
            let to = asked.split(' ').nth(1).expect("a target").parse().expect("an address");
            let Ok(mut on) = TcpSocket::new_v4().expect("socket").connect(to).await else {
                let _ = tcp.write_all(b"HTTP/1.1 502 Bad Gateway\r\n\r\n").await;
                return linger(tcp).await;
            };
            let _ = tcp.write_all(b"HTTP/1.1 200 Connection established\r\nX: y\r\n\r\n").await;
            let _ = copy_bidirectional(&mut tcp, &mut on).await;
        }
    })
    .await;
    (proxy, heard)
}

/// A proxy that keeps what it is sent and answers for the receiver.
async fn forwarding(reply: &'static str) -> (Receiver, Heard) {
    let heard = Heard::default();
    let noting = Arc::clone(&heard);
    let proxy = Receiver::start(move |mut tcp: TcpStream, _| {
        let heard = Arc::clone(&noting);
        async move {
            while let Some(asked) = read_request(&mut tcp).await {
                heard.lock().push(asked);
                let _ = tcp.write_all(reply.as_bytes()).await;
            }
        }
    })
    .await;
    (proxy, heard)
}

#[tokio::test]
async fn a_tunnel_leads_to_the_address_that_was_vetted() {
    let (proxy, heard) = tunnelling().await;
    let server = NameServer::of(&["127.0.0.2"]).await;
    let receiver = Receiver::always_on("127.0.0.2:0", OK).await.expect("bind");
    let egress = server.egress(options(proxy.address, ProxyMode::Connect));
    let url = format!("http://hooks.example.com:{}/a?b=c", receiver.address.port());
    let sent = send(&egress, &url).await;
    assert_eq!(&answer(&sent).body[..], b"ok");
    let asked = heard.lock()[0].clone();
    assert!(asked.starts_with(&format!("CONNECT {} HTTP/1.1\r\n", receiver.address)), "{asked}");
    assert!(!asked.contains("hooks.example.com"), "the proxy has nothing to resolve: {asked}");
    // The tunnel is kept and used again.
    let sent = send(&egress, &url).await;
    assert!(answer(&sent).status == 200 && sent.reused);
    assert_eq!((proxy.accepted(), receiver.accepted()), (1, 1));
    // Without the proxy it is another connection: what is pooled for one way is not used for the other.
    let sent = egress.send(request(&egress, &url)).await;
    assert!(answer(&sent).status == 200 && !sent.reused);
    assert_eq!((proxy.accepted(), receiver.accepted()), (1, 2));
}

#[tokio::test]
async fn tls_through_a_tunnel_is_with_the_receiver_by_its_name() {
    let (proxy, heard) = tunnelling().await;
    let authority = Authority::new("trusted");
    for (host, good) in [("127.0.0.1", true), ("127.0.0.9", false)] {
        let pair = authority.sign(host);
        let (receiver, seen) = Setup::of(&pair).start().await;
        let mut options = options(proxy.address, ProxyMode::Connect);
        options.allow.push(format!("127.0.0.1:{}", receiver.address.port()).parse().expect("rule"));
        options.extra_roots = Some(authority.pem.clone());
        let egress = Egress::new(options).expect("egress");
        let sent = send(&egress, &format!("https://{}/", receiver.address)).await;
        if good {
            assert_eq!(&answer(&sent).body[..], b"ok");
            assert!(sent.timings.tls.is_some());
            assert_eq!(seen.handshakes(), (1, 0));
        } else {
            assert_eq!(failure(&sent), FailureCode::TlsCertificateInvalid);
        }
        let asked = heard.lock().last().cloned().expect("asked");
        assert!(asked.starts_with(&format!("CONNECT {} ", receiver.address)), "{asked}");
    }
}

#[tokio::test]
async fn the_whole_request_goes_to_a_proxy_that_makes_the_tls() {
    let (proxy, heard) = forwarding(OK).await;
    let server = NameServer::of(&["127.0.0.2"]).await;
    let egress = server.egress(options(proxy.address, ProxyMode::Forward));
    for n in 0..2 {
        let sent = send(&egress, "https://hooks.example.com:8443/callback?date=2020-08-17").await;
        assert_eq!(&answer(&sent).body[..], b"ok");
        assert!(!sent.reused && sent.timings.tls.is_none());
        let text = heard.lock()[n].clone();
        let line = "POST https://hooks.example.com:8443/callback?date=2020-08-17 HTTP/1.1\r\n";
        assert!(text.starts_with(line), "{text}");
        let lower = text.to_lowercase();
        assert!(lower.contains("\r\nhost: hooks.example.com:8443\r\n"), "{text}");
        assert!(lower.contains(&format!("\r\nproxy-authorization: {}\r\n", ASKED.to_lowercase())));
        assert!(text.ends_with("hello"), "{text}");
    }
    // What the proxy cannot show must not be asked of it.
    let authority = Authority::new("clients");
    let identity = identity(&authority.sign("client"));
    let tls = Arc::new(egress.client_tls(Some(&identity), &[]).expect("tls"));
    let url = "https://hooks.example.com:8443/";
    let with = Request { proxy: Some(name()), tls: Some(tls), ..request(&egress, url) };
    let sent = egress.send(with).await;
    assert_eq!(failure(&sent), FailureCode::RequestInvalid);
    assert_eq!(heard.lock().len(), 2);
}

#[tokio::test]
async fn the_guard_judges_the_target_before_the_proxy_hears_of_it() {
    for mode in [ProxyMode::Connect, ProxyMode::Forward] {
        let (proxy, heard) = forwarding(OK).await;
        for inside in [&["127.0.0.3"][..], &["127.0.0.2", "127.0.0.3"], &["169.254.169.254"]] {
            let server = NameServer::of(inside).await;
            let egress = server.egress(options(proxy.address, mode));
            let sent = send(&egress, "https://hooks.example.com/").await;
            assert_eq!(failure(&sent), FailureCode::AddressNotAllowed, "{inside:?}");
        }
        assert_eq!((heard.lock().len(), proxy.accepted()), (0, 0), "{mode:?}");
        // The proxy's own address is no target either: it is open as a way, not as a receiver.
        let egress = Egress::new(options(proxy.address, mode)).expect("egress");
        let refused = egress.guard().check_url(&format!("http://{}/", proxy.address));
        assert!(refused.is_err());
    }
}

#[tokio::test]
async fn a_proxy_that_is_wrong_missing_or_unknown_is_a_failure_of_its_own() {
    let (proxy, _) = tunnelling().await;
    let url = "http://127.0.0.2:8081/";
    // Nobody listens behind it.
    let egress = Egress::new(options(proxy.address, ProxyMode::Connect)).expect("egress");
    let sent = send(&egress, url).await;
    assert_eq!(failure(&sent), FailureCode::ProxyFailed);
    assert!(format!("{:?}", sent.outcome).contains("did not reach the receiver (502)"));
    // Wrong credentials, in both modes.
    for mode in [ProxyMode::Connect, ProxyMode::Forward] {
        let refusing = Receiver::once("HTTP/1.1 407 No\r\nContent-Length: 0\r\n\r\n").await;
        let egress = Egress::new(options(refusing.address, mode)).expect("egress");
        let sent = send(&egress, url).await;
        let text = format!("{:?}", sent.outcome);
        assert_eq!(failure(&sent), FailureCode::ProxyFailed);
        assert!(text.contains("user and password (407)") && !text.contains("pass:word"), "{text}");
    }
    // Nobody is there.
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("bind");
    let gone = free.local_addr().expect("address");
    drop(free);
    for mode in [ProxyMode::Connect, ProxyMode::Forward] {
        let egress = Egress::new(options(gone, mode)).expect("egress");
        assert_eq!(failure(&send(&egress, url).await), FailureCode::ProxyFailed);
    }
    // Nobody configured it.
    let egress =
        Egress::new(Options { proxies: BTreeMap::new(), ..options(gone, ProxyMode::Connect) });
    assert_eq!(failure(&send(&egress.expect("egress"), url).await), FailureCode::ProxyFailed);
}

#[tokio::test]
async fn hostile_proxies_end_as_clean_failures() {
    let long: &'static str = Box::leak(
        format!("HTTP/1.1 200 OK\r\n{}\r\n", "X-Padding: aaaaaaaa\r\n".repeat(4_000))
            .into_boxed_str(),
    );
    for words in [
        "",
        "HTTP/1.1 200 OK\r\n",
        "HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1 301 Go\r\nLocation: http://169.254.169.254/\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\n",
        "HTTP/1.1 4x7 No\r\n\r\n",
        "HTTP/1.1 2\r\n\r\n",
        "ICY 200 OK\r\n\r\n",
        "\0\0\0\0\r\n\r\n",
        "\r\n\r\n",
        long,
    ] {
        let proxy = Receiver::once(words).await;
        let egress = Egress::new(options(proxy.address, ProxyMode::Connect)).expect("egress");
        let sent = send(&egress, "http://127.0.0.2:8081/").await;
        let shown = &words[..words.len().min(40)];
        assert_eq!(failure(&sent), FailureCode::ProxyFailed, "{shown:?}");
        let AttemptOutcome::Failed { detail, .. } = &sent.outcome else { panic!("answered") };
        assert!(detail.contains("way-out") && detail.len() < 600, "{detail}");
    }
    // One that says nothing, and one that never stops, cost no more than the time there is.
    let silent = Receiver::start(|mut tcp: TcpStream, _| async move {
        let _ = tcp.read_u8().await;
        tokio::time::sleep(Duration::from_secs(60)).await;
    });
    let trickling = Receiver::start(|mut tcp: TcpStream, _| async move {
        while tcp.write_all(b"H").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    for proxy in [silent.await, trickling.await] {
        let egress = Egress::new(options(proxy.address, ProxyMode::Connect)).expect("egress");
        let mut asked =
            Request { proxy: Some(name()), ..request(&egress, "http://127.0.0.2:8081/") };
        asked.deadlines.connect = Duration::from_millis(400);
        let began = Instant::now();
        assert_eq!(failure(&egress.send(asked).await), FailureCode::ProxyFailed);
        assert!(began.elapsed() < Duration::from_secs(5));
    }
}
