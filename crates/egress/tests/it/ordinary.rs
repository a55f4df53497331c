//! What every attempt relies on, and plain failures.

use std::sync::Arc;

use http::HeaderValue;
use parking_lot::Mutex;
use posthorn_domain::FailureCode;
use posthorn_egress::{Egress, Options};
use tokio::io::AsyncWriteExt;

use crate::receiver::{Receiver, answer, egress, failure, options, read_request, request, send};

#[tokio::test]
async fn a_request_arrives_as_given_and_its_answer_comes_back() {
    let seen = Arc::new(Mutex::new(String::new()));
    let heard = Arc::clone(&seen);
    let receiver = Receiver::start(move |mut tcp, _| {
        let heard = Arc::clone(&heard);
        async move {
            let text = read_request(&mut tcp).await.expect("request");
            *heard.lock() = text;
            let reply = "HTTP/1.1 202 Accepted\r\nRetry-After: 7\r\nContent-Type: text/plain\r\n\
                         Content-Length: 2\r\n\r\nok";
            tcp.write_all(reply.as_bytes()).await.expect("write");
        }
    })
    .await;
    let egress = egress();
    let mut wanted = request(&egress, &receiver.url());
    wanted.headers.insert("x-custom", HeaderValue::from_static("1"));
    let sent = egress.send(wanted).await;
    let got = answer(&sent);
    assert_eq!((got.status, &got.body[..]), (202, &b"ok"[..]));
    assert_eq!(got.retry_after.as_deref(), Some("7"));
    assert_eq!(got.content_type.as_deref(), Some("text/plain"));
    assert!(!sent.reused);
    assert!(sent.timings.dns.is_none() && sent.timings.tls.is_none());
    assert!(sent.timings.connect.is_some());
    assert!(sent.timings.first_byte.is_some_and(|first| first <= sent.timings.total));
    let text = seen.lock().clone();
    assert!(text.starts_with("POST /hook?a=1 HTTP/1.1\r\n"), "{text}");
    assert!(text.ends_with("\r\n\r\nhello"), "{text}");
    for line in [
        format!("host: {}", receiver.address),
        "accept-encoding: identity".to_owned(),
        "content-length: 5".to_owned(),
        format!("user-agent: {}", Options::default().user_agent),
        "x-custom: 1".to_owned(),
    ] {
        assert!(text.contains(&format!("\r\n{line}\r\n")), "{line} not in {text}");
    }
}

#[tokio::test]
async fn headers_of_an_answer_are_kept_only_where_they_are_asked_for() {
    let said = "HTTP/1.1 204 No Content\r\nWebHook-Allowed-Origin: *\r\n\r\n";
    let receiver = Receiver::always(said).await;
    let egress = egress();
    let mut question = request(&egress, &receiver.url());
    question.method = http::Method::OPTIONS;
    let asked = egress.ask(question).await;
    assert_eq!(answer(&asked).status, 204);
    assert_eq!(asked.headers.expect("kept")["webhook-allowed-origin"], "*");
    let sent = send(&egress, &receiver.url()).await;
    assert_eq!(answer(&sent).status, 204);
    assert!(sent.headers.is_none());
}

#[tokio::test]
async fn a_rendered_path_replaces_the_targets() {
    let receiver = Receiver::start(|mut tcp, _| async move {
        let text = read_request(&mut tcp).await.expect("request");
        let line = text.lines().next().expect("request line").to_owned();
        let reply = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{line}", line.len());
        tcp.write_all(reply.as_bytes()).await.expect("write");
    })
    .await;
    let egress = egress();
    let mut wanted = request(&egress, &receiver.url());
    wanted.method = http::Method::GET;
    wanted.path_and_query = Some("/x/y?z=%20".to_owned());
    assert_eq!(&answer(&egress.send(wanted).await).body[..], b"GET /x/y?z=%20 HTTP/1.1");
    for bad in ["x", "/a b", "/a#b", "/ä", "//\u{7f}", "/a\r\nX: y", ""] {
        let mut wanted = request(&egress, &receiver.url());
        wanted.path_and_query = Some(bad.to_owned());
        assert_eq!(failure(&egress.send(wanted).await), FailureCode::RequestInvalid, "{bad:?}");
    }
}

#[tokio::test]
async fn headers_that_frame_messages_are_refused() {
    let egress = egress();
    for name in ["host", "content-length", "transfer-encoding", "connection", "expect", "te"] {
        let mut wanted = request(&egress, "http://127.0.0.1:9/");
        wanted.headers.insert(name, HeaderValue::from_static("1"));
        assert_eq!(failure(&egress.send(wanted).await), FailureCode::RequestInvalid, "{name}");
    }
    let mut wanted = request(&egress, "http://127.0.0.1:9/");
    wanted.method = http::Method::CONNECT;
    assert_eq!(failure(&egress.send(wanted).await), FailureCode::RequestInvalid);
}

#[tokio::test]
async fn closed_addresses_and_ports_are_not_dialled() {
    let receiver = Receiver::always("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
    let open = egress();
    // A target that was fine for one guard is judged again by the guard that sends.
    let wanted = request(&open, &receiver.url());
    let closed = Egress::new(Options::default()).expect("egress");
    assert_eq!(failure(&closed.send(wanted.clone()).await), FailureCode::AddressNotAllowed);
    let rule = format!("127.0.0.0/8:{}", receiver.address.port() ^ 1).parse().expect("rule");
    let other_port = Egress::new(Options { allow: vec![rule], ..options() }).expect("egress");
    assert_eq!(failure(&other_port.send(wanted.clone()).await), FailureCode::AddressNotAllowed);
    let https_only = Egress::new(Options { https_only: true, ..options() }).expect("egress");
    assert_eq!(failure(&https_only.send(wanted).await), FailureCode::UrlNotAllowed);
    assert_eq!(receiver.accepted(), 0);
}

#[tokio::test]
async fn a_refused_connection_is_said_to_be_one() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind");
    let address = listener.local_addr().expect("address");
    drop(listener);
    let sent = send(&egress(), &format!("http://{address}/")).await;
    assert_eq!(failure(&sent), FailureCode::ConnectFailed);
}
