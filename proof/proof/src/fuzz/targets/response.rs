//! Whatever a receiver answers, read by the real way out over a real socket.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use posthorn_domain::limits::RESPONSE_KEPT_BYTES_MAX;
use posthorn_domain::{AttemptOutcome, FailureCode, TenantId};
use posthorn_egress::{Deadlines, Egress, Options, PoolKey, Request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

pub(super) const WORDS: &[&str] = &[
    "HTTP/1.1 200 OK\r\n",
    "HTTP/1.0 ",
    "HTTP/1.1 ",
    "HTTP/2.0 ",
    "HTTP/0.9",
    "\r\n",
    "\n",
    "\r\n\r\n",
    "Content-Length: ",
    "Transfer-Encoding: chunked\r\n",
    "Connection: close\r\n",
    "0\r\n\r\n",
    "5\r\nhello\r\n",
    "ffffffffffffffff\r\n",
    ";a=b",
    "Retry-After: ",
    "Content-Type: a/b\r\n",
    "100",
    "101",
    "103 Early Hints\r\n\r\n",
    "204",
    "304",
    "999",
    "X: y\r\n",
    " : ",
    "\t",
    "\0",
    "chunked, ",
    "identity",
    "Content-Encoding: gzip\r\n",
    "Upgrade: x\r\n",
];

/// An answer no input can contain by accident, for the request after the one that was attacked.
const HEALTHY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nhealthy";

struct World {
    runtime: Runtime,
    egress: Egress,
    listener: TcpListener,
}

thread_local! {
    static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
}

impl World {
    fn new() -> Self {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).expect("a listener");
        let options =
            Options { allow: vec!["127.0.0.0/8".parse().expect("a rule")], ..Options::default() };
        Self { runtime, egress: Egress::new(options).expect("egress"), listener }
    }
}

pub(super) fn check(input: &[u8]) -> bool {
    WORLD.with_borrow_mut(|world| {
        let World { runtime, egress, listener } = world.get_or_insert_with(World::new);
        runtime.block_on(exchange(egress, listener, input))
    })
}

async fn exchange(egress: &Egress, listener: &TcpListener, input: &[u8]) -> bool {
    let url = format!("http://{}/", listener.local_addr().expect("an address"));
    let request = Request {
        tenant: TenantId::DEFAULT,
        pool: PoolKey::new([1; 16]),
        target: Arc::new(egress.guard().check_url(&url).expect("allowed")),
        tls: None,
        proxy: None,
        vet_always: false,
        path_and_query: None,
        method: http::Method::POST,
        headers: http::HeaderMap::new(),
        body: "x".into(),
        deadlines: Deadlines {
            connect: Duration::from_secs(5),
            tls: Duration::from_secs(5),
            response: Duration::from_secs(5),
            total: Duration::from_secs(6),
        },
    };
    let (sent, ()) = tokio::join!(egress.send(request.clone()), answer(listener, input));
    assert!(sent.timings.total < Duration::from_secs(5), "an answer that ended was waited for");
    let accepted = match &sent.outcome {
        AttemptOutcome::Answered(answer) => {
            assert!((100..=999).contains(&answer.status) && answer.status != 101);
            assert!(answer.body.len() <= RESPONSE_KEPT_BYTES_MAX);
            let line = format!(" {}", answer.status);
            let text = String::from_utf8_lossy(input);
            let says = |line_of: &str| line_of.starts_with("HTTP/1.") && line_of.contains(&line);
            assert!(text.split('\n').any(says), "nobody said {}", answer.status);
            for kept in [&answer.retry_after, &answer.content_type].into_iter().flatten() {
                assert!(
                    kept.len() <= 256 && kept.bytes().all(|b| b == b'\t' || (32..127).contains(&b))
                );
                assert!(text.contains(kept.as_str()), "{kept:?} was not said");
            }
            true
        }
        AttemptOutcome::Failed { code, detail } => {
            assert!(
                matches!(
                    code,
                    FailureCode::ConnectionClosed
                        | FailureCode::ProtocolError
                        | FailureCode::ResponseHeadTooLarge
                ),
                "{code:?}: {detail}"
            );
            false
        }
    };
    // Whatever was said, the next request is answered by its own answer.
    let (next, ()) = tokio::join!(egress.send(request), answer(listener, HEALTHY));
    match &next.outcome {
        AttemptOutcome::Answered(answer) => assert_eq!(&answer.body[..], b"healthy"),
        AttemptOutcome::Failed { code, detail } => panic!("then failed: {code:?} {detail}"),
    }
    accepted
}

/// Hears one request, says the bytes, and closes so that they arrive.
async fn answer(listener: &TcpListener, bytes: &[u8]) {
    let (mut tcp, _): (TcpStream, _) = listener.accept().await.expect("a connection");
    let mut heard = Vec::new();
    while !heard.ends_with(b"\r\n\r\nx") {
        if tcp.read_buf(&mut heard).await.unwrap_or(0) == 0 {
            return;
        }
    }
    let _ = tcp.write_all(bytes).await;
    let _ = tcp.shutdown().await;
    while matches!(tcp.read_buf(&mut heard).await, Ok(read) if read > 0) {
        heard.clear();
    }
}
