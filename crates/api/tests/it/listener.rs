//! The accept loop: slow clients, too many clients, large heads, and stopping.

use std::time::Duration;

use posthorn_listener::ServeLimits;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::harness::{Server, connect};

const REQUEST: &[u8] = b"GET /healthz HTTP/1.1\r\nhost: api.test\r\n\r\n";

/// Reads until this text has arrived, or the connection ends.
async fn read_until(stream: &mut TcpStream, wanted: &str) -> String {
    let mut seen = Vec::new();
    let mut chunk = [0; 4_096];
    loop {
        let text = String::from_utf8_lossy(&seen).into_owned();
        if text.contains(wanted) {
            return text;
        }
        let read = timeout(Duration::from_secs(10), stream.read(&mut chunk)).await;
        match read.expect("an answer in time") {
            Ok(0) | Err(_) => return text,
            Ok(length) => seen.extend_from_slice(&chunk[..length]),
        }
    }
}

async fn is_closed(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    timeout(Duration::from_secs(5), stream.read_to_end(&mut rest)).await.is_ok()
}

#[tokio::test]
async fn a_client_that_sends_its_head_too_slowly_is_cut() {
    let limits = ServeLimits { head_timeout: Duration::from_millis(300), ..ServeLimits::default() };
    let server = Server::start_with(limits).await;
    let began = Instant::now();
    let mut slow = connect(server.address).await;
    for byte in REQUEST.iter().cycle() {
        if slow.write_all(&[*byte]).await.is_err() || began.elapsed() > Duration::from_secs(2) {
            break;
        }
        if *byte == b'\n' {
            // Never the empty line that would end the head.
            slow.write_all(b"x: ").await.ok();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(is_closed(&mut slow).await);
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    // A client that is quick is served, also twice on one connection.
    let mut quick = connect(server.address).await;
    for _ in 0..2 {
        quick.write_all(REQUEST).await.unwrap();
        assert!(read_until(&mut quick, "alive").await.starts_with("HTTP/1.1 200"));
    }
}

#[tokio::test]
async fn connections_beyond_the_cap_wait_for_a_free_place() {
    let limits = ServeLimits { connections: 2, ..ServeLimits::default() };
    let server = Server::start_with(limits).await;
    let mut open = Vec::new();
    for _ in 0..2 {
        let mut stream = connect(server.address).await;
        stream.write_all(REQUEST).await.unwrap();
        read_until(&mut stream, "alive").await;
        open.push(stream);
    }
    let mut third = connect(server.address).await;
    third.write_all(REQUEST).await.unwrap();
    let mut byte = [0];
    let early = timeout(Duration::from_millis(200), third.read(&mut byte)).await;
    assert!(early.is_err(), "it was served beyond the cap");
    open.pop();
    assert!(read_until(&mut third, "alive").await.contains("200 OK"));
}

#[tokio::test]
async fn heads_that_are_too_large_are_refused() {
    let server = Server::start().await;
    let mut stream = connect(server.address).await;
    stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: api.test\r\nx: ").await.unwrap();
    let filler = vec![b'a'; 64 * 1024];
    stream.write_all(&filler).await.ok();
    stream.write_all(b"\r\n\r\n").await.ok();
    let answer = read_until(&mut stream, "\r\n\r\n").await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    assert!(is_closed(&mut stream).await);
}

/// Requests on which two servers could disagree about where the body ends.
#[tokio::test]
async fn ambiguous_framing_is_refused() {
    let server = Server::start().await;
    let start = "POST /v1/events HTTP/1.1\r\nhost: api.test\r\n";
    for head in [
        "content-length: 5\r\ncontent-length: 6\r\n\r\nhello",
        "content-length: +5\r\n\r\nhello",
        "transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        "transfer-encoding : chunked\r\n\r\n0\r\n\r\n",
        "x: a\r\n b: c\r\n\r\n",
        "x: a\r\n\tb: c\r\n\r\n",
        "transfer-encoding: identity\r\ncontent-length: 5\r\n\r\nhello",
        "transfer-encoding: xchunked\r\n\r\n0\r\n\r\n",
        "transfer-encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
        "transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n\r\n0\r\n\r\n",
        "content-length: 5, 6\r\n\r\nhello",
        "content-length: 0x5\r\n\r\nhello",
        "content-length: 99999999999999999999\r\n\r\nhello",
        "content-length : 5\r\n\r\nhello",
        "x\0y: a\r\n\r\n",
        "x: a\rb: c\r\n\r\n",
    ] {
        let mut stream = connect(server.address).await;
        stream.write_all(format!("{start}{head}").as_bytes()).await.unwrap();
        let answer = read_until(&mut stream, "\r\n\r\n").await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{head:?}: {answer}");
        assert!(is_closed(&mut stream).await, "{head:?}");
    }
}

/// Where both lengths are given, the chunks count, and nothing after them is taken for a request:
/// whatever a proxy in front believed, there is nothing to smuggle.
#[tokio::test]
async fn what_follows_ambiguous_framing_is_never_a_request() {
    let server = Server::start().await;
    let smuggled = "GET /openapi.json HTTP/1.1\r\nhost: api.test\r\n\r\n";
    for head in [
        // CL.TE and TE.CL, in both orders.
        "content-length: 6\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 6\r\n\r\n0\r\n\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n2\r\n[]\r\n0\r\n\r\n",
    ] {
        let mut stream = connect(server.address).await;
        let start = "POST /v1/events HTTP/1.1\r\nhost: api.test\r\n";
        stream.write_all(format!("{start}{head}{smuggled}").as_bytes()).await.unwrap();
        let answer = read_until(&mut stream, "no such end").await;
        assert!(answer.starts_with("HTTP/1.1 4"), "{head:?}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{head:?}: {answer}");
        assert!(!answer.contains("openapi"), "{head:?}: {answer}");
    }
    // Chunks that lie about their size end the connection.
    for body in ["-1\r\n", "5;\r\nhel\r\n0\r\n\r\n", "5\nhello\r\n0\r\n\r\n", "g\r\n"] {
        let mut stream = connect(server.address).await;
        let head = format!(
            "POST /v1/events HTTP/1.1\r\nhost: api.test\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n",
            server.keys.acme
        );
        stream.write_all(format!("{head}{body}{smuggled}").as_bytes()).await.unwrap();
        let answer = read_until(&mut stream, "no such end").await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{body:?}: {answer}");
        assert!(!answer.contains("openapi"), "{body:?}: {answer}");
    }
}

#[tokio::test]
async fn a_body_that_drips_is_cut_long_before_its_time_is_up() {
    let server = Server::start().await;
    let mut stream = connect(server.address).await;
    let head = format!(
        "POST /v1/events HTTP/1.1\r\nhost: api.test\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: 100000\r\n\r\n",
        server.keys.acme
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let began = Instant::now();
    let (mut from, mut to) = stream.into_split();
    let drip = tokio::spawn(async move {
        while to.write_all(b" ").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    let mut answer = Vec::new();
    drop(timeout(Duration::from_secs(20), from.read_to_end(&mut answer)).await.expect("it is cut"));
    let answer = String::from_utf8_lossy(&answer);
    assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("request_timeout"), "{answer}");
    assert!(began.elapsed() >= Duration::from_secs(4), "{:?}", began.elapsed());
    drip.abort();
}

#[tokio::test]
async fn heads_with_too_many_fields_are_refused() {
    let server = Server::start().await;
    let mut stream = connect(server.address).await;
    let fields: String = (0..120).map(|n| format!("x{n}: y\r\n")).collect();
    let request = format!("GET /healthz HTTP/1.1\r\nhost: api.test\r\n{fields}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let answer = read_until(&mut stream, "\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
    assert!(is_closed(&mut stream).await);
}

#[tokio::test]
async fn a_body_that_is_announced_too_large_is_refused_before_it_is_sent() {
    let server = Server::start().await;
    let mut stream = connect(server.address).await;
    let head = format!(
        "POST /v1/events HTTP/1.1\r\nhost: api.test\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: 2000000\r\n\r\n",
        server.keys.acme
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let answer = read_until(&mut stream, "payload_too_large").await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
    // Nor does one that does not say how large it is get any further.
    let mut stream = connect(server.address).await;
    let head = head.replace("content-length: 2000000", "transfer-encoding: chunked");
    stream.write_all(head.as_bytes()).await.unwrap();
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
    for _ in 0..17 {
        stream.write_all(chunk.as_bytes()).await.ok();
    }
    let answer = read_until(&mut stream, "payload_too_large").await;
    assert!(answer.starts_with("HTTP/1.1 413"), "{answer}");
}

#[tokio::test]
async fn stopping_finishes_what_is_under_way_and_refuses_what_is_new() {
    let mut server = Server::start().await;
    let mut idle = connect(server.address).await;
    idle.write_all(REQUEST).await.unwrap();
    read_until(&mut idle, "alive").await;
    let body = r#"{"topic":"nowhere","type":"a","payload":1}"#;
    let mut busy = connect(server.address).await;
    let head = format!(
        "POST /v1/events HTTP/1.1\r\nhost: api.test\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        server.keys.acme,
        body.len()
    );
    busy.write_all(head.as_bytes()).await.unwrap();
    busy.write_all(&body.as_bytes()[..10]).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    let stopped = server.begin_stop();
    assert!(is_closed(&mut idle).await, "idle connections are closed at once");
    assert!(!stopped.is_finished());
    busy.write_all(&body.as_bytes()[10..]).await.unwrap();
    let answer = read_until(&mut busy, "unknown_topic").await;
    assert!(answer.contains("422"), "{answer}");
    timeout(Duration::from_secs(2), stopped).await.expect("it ends").unwrap();
}

#[tokio::test]
async fn stopping_does_not_wait_for_ever() {
    let limits = ServeLimits { stop_timeout: Duration::from_millis(200), ..ServeLimits::default() };
    let mut server = Server::start_with(limits).await;
    let mut stuck = connect(server.address).await;
    stuck.write_all(b"POST /v1/events HTTP/1.1\r\n").await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let stopped = server.begin_stop();
    timeout(Duration::from_secs(2), stopped).await.expect("it ends").unwrap();
    assert!(is_closed(&mut stuck).await);
}
