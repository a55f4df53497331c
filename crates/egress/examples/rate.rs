//! How many requests a second egress makes against a bare receiver in the same process.
//!
//! `cargo run --release -p posthorn-egress --example rate -- [senders] [seconds]`

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use posthorn_domain::{AttemptOutcome, TenantId};
use posthorn_egress::{Deadlines, Egress, Options, PoolKey, Request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const BODY_BYTES: usize = 1024;

#[tokio::main(worker_threads = 2)]
async fn main() {
    let mut arguments = std::env::args().skip(1).filter_map(|text| text.parse::<u64>().ok());
    let senders = arguments.next().unwrap_or(64);
    let seconds = arguments.next().unwrap_or(5);

    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free loopback port");
    let address = listener.local_addr().expect("a bound socket has an address");
    tokio::spawn(async move {
        while let Ok((mut tcp, _)) = listener.accept().await {
            tokio::spawn(async move {
                tcp.set_nodelay(true).expect("a TCP socket");
                let mut buffer = vec![0; 16 * 1024];
                let mut filled = 0;
                // A request is complete when its body of known size has arrived.
                while let Ok(read @ 1..) = tcp.read(&mut buffer[filled..]).await {
                    filled += read;
                    let head = buffer[..filled].windows(4).position(|four| four == b"\r\n\r\n");
                    if head.is_some_and(|at| filled == at + 4 + BODY_BYTES) {
                        filled = 0;
                        if tcp.write_all(REPLY).await.is_err() {
                            return;
                        }
                    }
                }
            });
        }
    });

    let allow = vec!["127.0.0.0/8".parse().expect("a network")];
    let egress = Egress::new(Options { allow, ..Options::default() }).expect("valid options");
    let url = format!("http://{address}/hook");
    let target = Arc::new(egress.guard().check_url(&url).expect("loopback is allowed"));
    let count = Arc::new(AtomicU64::new(0));
    for sender in 0..senders {
        let (egress, count) = (egress.clone(), Arc::clone(&count));
        let request = Request {
            tenant: TenantId::DEFAULT,
            pool: PoolKey::new([(sender % 16) as u8; 16]),
            target: Arc::clone(&target),
            tls: None,
            proxy: None,
            vet_always: false,
            path_and_query: None,
            method: http::Method::POST,
            headers: http::HeaderMap::new(),
            body: vec![b'x'; BODY_BYTES].into(),
            deadlines: Deadlines::default(),
        };
        tokio::spawn(async move {
            loop {
                let sent = egress.send(request.clone()).await;
                assert!(matches!(sent.outcome, AttemptOutcome::Answered(_)), "{sent:?}");
                count.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    for _ in 0..seconds {
        let before = count.load(Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(1)).await;
        println!("{} requests/s with {senders} senders", count.load(Ordering::Relaxed) - before);
    }
}
