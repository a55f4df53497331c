//! Connections that come from the operator's own address: to receivers and to proxies.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use parking_lot::Mutex;
use posthorn_domain::{AttemptOutcome, FailureCode, ProxyName};
use posthorn_egress::{Egress, Error, Options, Proxy, ProxyMode, Request, Source};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use crate::dns::{AAAA, NameServer, Record, Reply};
use crate::receiver::{Receiver, answer, linger, read_request, request};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

type Callers = Arc<Mutex<Vec<IpAddr>>>;

/// A receiver that remembers where it was called from.
async fn receiver(address: &str) -> Option<(Receiver, Callers)> {
    let callers = Callers::default();
    let noting = Arc::clone(&callers);
    let listener = TcpListener::bind(address).await.ok()?;
    let receiver = Receiver::on(listener, move |mut tcp, _| {
        noting.lock().push(tcp.peer_addr().expect("a caller").ip());
        async move {
            read_request(&mut tcp).await;
            let _ = tcp.write_all(OK).await;
            linger(tcp).await;
        }
    });
    Some((receiver, callers))
}

fn options(source: &[&str]) -> Options {
    let parse = |text: &&str| text.parse::<IpAddr>().expect("an address");
    Options {
        allow: vec!["127.0.0.0/8".parse().expect("rule"), "::1".parse().expect("rule")],
        source: Source::new(source.iter().map(parse)).expect("addresses"),
        ..Options::default()
    }
}

fn url(address: SocketAddr) -> String {
    format!("http://{address}/")
}

#[tokio::test]
async fn receivers_see_the_source_address() {
    let (receiver, callers) = receiver("127.0.0.1:0").await.expect("a port");
    for (source, seen) in [(&[][..], "127.0.0.1"), (&["127.0.0.2"], "127.0.0.2")] {
        let egress = Egress::new(options(source)).expect("set up");
        let sent = egress.send(request(&egress, &url(receiver.address))).await;
        assert_eq!(answer(&sent).status, 200);
        assert_eq!(callers.lock().last(), Some(&seen.parse().expect("an address")));
    }
}

#[tokio::test]
async fn so_does_a_proxy() {
    let (proxy, callers) = receiver("127.0.0.1:0").await.expect("a port");
    let name = ProxyName::new("way-out").expect("a name");
    let by = Proxy::new(&format!("http://{}", proxy.address), None, ProxyMode::Forward);
    let proxies = BTreeMap::from([(name.clone(), by.expect("a proxy"))]);
    let egress = Egress::new(Options { proxies, ..options(&["127.0.0.2"]) }).expect("set up");
    let through = Request { proxy: Some(name), ..request(&egress, "http://127.0.0.9:8080/") };
    assert_eq!(answer(&egress.send(through).await).status, 200);
    assert_eq!(*callers.lock(), ["127.0.0.2".parse::<IpAddr>().expect("an address")]);
}

#[tokio::test]
async fn a_family_without_a_source_is_skipped_and_its_absence_is_said() {
    let egress = Egress::new(options(&["127.0.0.2"])).expect("set up");
    let sent = egress.send(request(&egress, "http://[::1]:8080/")).await;
    let AttemptOutcome::Failed { code: FailureCode::ConnectFailed, detail } = sent.outcome else {
        panic!("{sent:?}");
    };
    assert!(detail.contains("only IPv6 addresses") && detail.contains("egress.source"), "{detail}");

    // A name with both is reached over the other, whichever comes first.
    let (receiver, callers) = receiver("127.0.0.1:0").await.expect("a port");
    let names = NameServer::start(|question| {
        let ip = if question.kind == AAAA { "::1" } else { "127.0.0.1" };
        Reply::Records(vec![Record::address(&question.name, 60, ip.parse().expect("an address"))])
    });
    let egress = names.await.egress(options(&["127.0.0.2"]));
    let there = format!("http://both.example.com:{}/", receiver.address.port());
    assert_eq!(answer(&egress.send(request(&egress, &there)).await).status, 200);
    assert_eq!(*callers.lock(), ["127.0.0.2".parse::<IpAddr>().expect("an address")]);
}

#[test]
fn an_address_of_another_machine_is_refused_at_the_start() {
    let refused = Egress::new(options(&["192.0.2.1"])).err();
    assert!(matches!(refused, Some(Error::Source(_))), "{refused:?}");
}
