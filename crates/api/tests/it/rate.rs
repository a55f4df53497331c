//! How many publishes a second: not a test of correctness, so it only runs when asked for.
//! `POSTHORN_RATE=1 cargo test --release -p posthorn-api --test it rate -- --nocapture`

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::time::Instant;

use crate::harness::{Server, connect};

const CONNECTIONS: usize = 256;
const SECONDS: u64 = 5;

async fn measure(server: &Server, what: &str, make: impl Fn() -> Request<Full<Bytes>>) {
    let done = Arc::new(AtomicU64::new(0));
    let until = Instant::now() + Duration::from_secs(SECONDS);
    let mut tasks = Vec::new();
    for _ in 0..CONNECTIONS {
        let stream = connect(server.address).await;
        stream.set_nodelay(true).unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let done = Arc::clone(&done);
        let request = make();
        tasks.push(tokio::spawn(async move {
            while Instant::now() < until {
                let reply = sender.send_request(request.clone()).await.unwrap();
                assert!(reply.status().is_success());
                reply.into_body().collect().await.unwrap();
                done.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    println!("{what}: {} requests/s", done.load(Ordering::Relaxed) / SECONDS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rate_of_publishes() {
    if std::env::var_os("POSTHORN_RATE").is_none() {
        return;
    }
    let server = Server::start().await;
    server.as_acme("PUT", "/v1/topics/orders").json(json!({})).await.expect(200);
    let payload = "x".repeat(1_000);
    let body = json!({"topic": "orders", "type": "order.created", "payload": {"text": payload}});
    let body = Bytes::from(body.to_string());
    let build = |method: &str, path: &str, body: Bytes| {
        Request::builder()
            .method(method)
            .uri(path)
            .header("host", "api.test")
            .header("authorization", format!("Bearer {}", server.keys.acme))
            .header("content-type", "application/json")
            .body(Full::new(body))
            .unwrap()
    };
    measure(&server, "bare (healthz)", || build("GET", "/healthz", Bytes::new())).await;
    measure(&server, "with a key (topics)", || build("GET", "/v1/topics", Bytes::new())).await;
    measure(&server, "publish, no subscription", || build("POST", "/v1/events", body.clone()))
        .await;
    let made = json!({"url": "https://void.example/"});
    server.as_acme("POST", "/v1/subscriptions").json(&made).await.expect(201);
    measure(&server, "publish, one subscription", || build("POST", "/v1/events", body.clone()))
        .await;
}
