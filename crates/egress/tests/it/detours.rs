//! Ways by which something other than the vetted address could be reached: redirects, proxies from
//! the environment, headers that point elsewhere, and addresses that stopped being allowed.

use std::net::{IpAddr, SocketAddr};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use posthorn_domain::FailureCode;
use posthorn_egress::{Egress, Options, Own};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::receiver::{Receiver, answer, egress, failure, options, read_request, request, send};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";

#[tokio::test]
async fn nothing_a_receiver_says_makes_us_connect_elsewhere() {
    let lure = Receiver::always(OK).await;
    let at = lure.address;
    let places = [
        format!("http://{at}/"),
        format!("https://{at}/"),
        format!("//{at}/"),
        format!("\\\\{at}/"),
        format!("http:{at}"),
        "/elsewhere".to_owned(),
        "http://169.254.169.254/latest/".to_owned(),
        "//169.254.169.254/".to_owned(),
    ];
    for status in [300, 301, 302, 303, 305, 307, 308, 200] {
        for place in &places {
            let asked = Arc::new(AtomicUsize::new(0));
            let heard = Arc::clone(&asked);
            let reply: Arc<str> = format!(
                "HTTP/1.1 {status} Go\r\nLocation: {place}\r\nContent-Location: {place}\r\n\
                 Refresh: 0; url={place}\r\nLink: <{place}>; rel=preload\r\n\
                 Alt-Svc: h2=\"{at}\"; ma=86400, http/1.1=\"{at}\"\r\nAlt-Used: {at}\r\n\
                 Set-Cookie: a=b\r\nStrict-Transport-Security: max-age=9999\r\n\
                 Content-Length: 0\r\n\r\n"
            )
            .into();
            let receiver = Receiver::start(move |mut tcp: TcpStream, _| {
                let (heard, reply) = (Arc::clone(&heard), Arc::clone(&reply));
                async move {
                    while let Some(text) = read_request(&mut tcp).await {
                        assert!(text.starts_with("POST /hook?a=1 HTTP/1.1"), "{text}");
                        assert!(!text.to_lowercase().contains("cookie"), "{text}");
                        heard.fetch_add(1, Ordering::SeqCst);
                        if tcp.write_all(reply.as_bytes()).await.is_err() {
                            return;
                        }
                    }
                }
            })
            .await;
            let egress = egress();
            // The second must not remember anything of the first.
            for round in 1..=2 {
                let sent = send(&egress, &receiver.url()).await;
                assert_eq!(answer(&sent).status, status, "{place}");
                assert_eq!(asked.load(Ordering::SeqCst), round, "one request, one answer");
            }
            assert_eq!(receiver.accepted(), 1);
        }
    }
    assert_eq!(lure.accepted(), 0);
}

/// Runs in a process of its own, with a proxy in its environment.
#[tokio::test]
#[ignore = "part of no_proxy_of_the_environment_is_used, which runs it with an environment"]
async fn sends_to_the_receiver_of_its_environment() {
    let url = std::env::var("RECEIVER").expect("started by the other test");
    assert_eq!(answer(&send(&egress(), &url).await).status, 200);
}

#[tokio::test]
async fn no_proxy_of_the_environment_is_used() {
    let proxy = Receiver::always(OK).await;
    let receiver = Receiver::always(OK).await;
    let at = format!("http://{}", proxy.address);
    let names =
        ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];
    for no_proxy in [None, Some("*"), Some("")] {
        let mut helper = Command::new(std::env::current_exe().expect("this program"));
        helper
            .args(["--exact", "detours::sends_to_the_receiver_of_its_environment", "--ignored"])
            .env("RECEIVER", receiver.url())
            .env("REQUEST_METHOD", "")
            .envs(names.map(|name| (name, &at)))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        for name in ["NO_PROXY", "no_proxy"] {
            match no_proxy {
                None => helper.env_remove(name),
                Some(value) => helper.env(name, value),
            };
        }
        let output = tokio::task::spawn_blocking(move || helper.output()).await;
        let output = output.expect("task").expect("started");
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }
    assert_eq!(receiver.accepted(), 3);
    assert_eq!(proxy.accepted(), 0);
}

fn own(listener: SocketAddr) -> Own {
    Own { listeners: vec![listener], ..Own::default() }
}

#[tokio::test]
async fn our_own_listener_is_not_reached_by_any_spelling() {
    let api = Receiver::always(OK).await;
    let port = api.address.port();
    let everything = ["0.0.0.0/0", "::/0"].map(|rule| rule.parse().expect("rule")).to_vec();
    let egress = Egress::new(Options { allow: everything, ..Options::default() }).expect("egress");
    let hosts = ["127.0.0.1", "0.0.0.0", "[::ffff:127.0.0.1]", "[::]", "2130706433", "0x7f.1"];
    let wanted = hosts.map(|host| request(&egress, &format!("http://{host}:{port}/")));
    egress.guard().set_own(own(api.address));
    for wanted in wanted {
        let target = Arc::clone(&wanted.target);
        let sent = egress.send(wanted).await;
        assert_eq!(failure(&sent), FailureCode::AddressNotAllowed, "{target}");
    }
    for host in hosts {
        let refusal = egress.guard().check_url(&format!("http://{host}:{port}/"));
        assert_eq!(refusal.expect_err(host).code(), "address_own_listener");
    }
    assert_eq!(api.accepted(), 0);
}

#[tokio::test]
async fn a_connection_is_not_used_again_once_its_address_is_closed() {
    let receiver = Receiver::always(OK).await;
    let egress = egress();
    let wanted = request(&egress, &receiver.url());
    answer(&egress.send(wanted.clone()).await);
    assert!(egress.send(wanted.clone()).await.reused);
    egress.guard().set_own(own(receiver.address));
    let sent = egress.send(wanted.clone()).await;
    assert_eq!(failure(&sent), FailureCode::AddressNotAllowed);
    assert!(!sent.reused);
    // Opened again, it needs a new connection: the old one is gone.
    egress.guard().set_own(Own::default());
    assert!(!egress.send(wanted.clone()).await.reused);
    assert_eq!(receiver.accepted(), 2);
    // An address of ours is no obstacle when a rule opens it.
    let ip: IpAddr = "127.0.0.1".parse().expect("address");
    egress.guard().set_own(Own { addresses: vec![ip], ..Own::default() });
    assert!(egress.send(wanted).await.reused);
}

#[tokio::test]
async fn networks_the_operator_denies_are_not_dialled() {
    let receiver = Receiver::always(OK).await;
    let open = egress();
    let wanted = request(&open, &receiver.url());
    let deny = vec!["127.0.0.0/16".parse().expect("rule")];
    let denying = Egress::new(Options { deny, ..options() }).expect("egress");
    assert_eq!(failure(&denying.send(wanted).await), FailureCode::AddressNotAllowed);
    assert_eq!(receiver.accepted(), 0);
}
