//! The bare baselines: what the same machine does without a store, signatures or promises.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use axum::extract::State;
use axum::routing::post;
use bytes::Bytes;
use http::StatusCode;
use posthorn_domain::{AttemptOutcome, TenantId};
use posthorn_egress::{Deadlines, Egress, Options, PoolKey, Request, Target};

use super::sink::{DIGITS, PREFIX, Sink};
use super::wire::put_digits;

fn way_out(sink: SocketAddr) -> anyhow::Result<(Egress, Arc<Target>)> {
    let options = Options {
        allow: vec!["127.0.0.0/8".parse().context("a valid network")?],
        idle_per_subscription: 512,
        ..Options::default()
    };
    let egress = Egress::new(options)?;
    let target = egress.guard().check_url(&format!("http://{sink}/"))?;
    Ok((egress, Arc::new(target)))
}

fn request(target: &Arc<Target>, body: Bytes) -> Request {
    Request {
        tenant: TenantId::DEFAULT,
        pool: PoolKey::new([0; 16]),
        target: Arc::clone(target),
        tls: None,
        proxy: None,
        vet_always: false,
        path_and_query: None,
        method: http::Method::POST,
        headers: http::HeaderMap::new(),
        body,
        deadlines: Deadlines::default(),
    }
}

/// The bare relay: the same accept loop and HTTP client, each body forwarded, nothing else. Runs
/// until it is killed; prints its address on stdout.
pub(crate) async fn relay(sink: SocketAddr) -> anyhow::Result<()> {
    let way = way_out(sink)?;
    let router = axum::Router::new().route("/", post(forward)).with_state(way);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    {
        use std::io::Write as _;
        let mut out = std::io::stdout().lock();
        writeln!(out, "listening on {}", listener.local_addr()?)?;
        out.flush()?;
    }
    posthorn_listener::serve(
        listener,
        router,
        posthorn_listener::ServeLimits::default(),
        None,
        std::future::pending(),
    )
    .await;
    Ok(())
}

async fn forward(State((egress, target)): State<(Egress, Arc<Target>)>, body: Bytes) -> StatusCode {
    match egress.send(request(&target, body)).await.outcome {
        AttemptOutcome::Answered(answer) if (200..300).contains(&answer.status) => {
            StatusCode::ACCEPTED
        }
        _ => StatusCode::BAD_GATEWAY,
    }
}

/// The bare client: the HTTP client posting straight to the sink; requests per second.
pub(crate) async fn client(
    sink: &Sink,
    address: SocketAddr,
    senders: usize,
    payload: usize,
    time: Duration,
    numbers: &Arc<AtomicU64>,
) -> anyhow::Result<f64> {
    let (egress, target) = way_out(address)?;
    let before = sink.arrived();
    let began = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..senders {
        let (egress, target, numbers) = (egress.clone(), Arc::clone(&target), Arc::clone(numbers));
        tasks.spawn(async move {
            while began.elapsed() < time {
                let mut body = vec![b'x'; payload];
                body[..PREFIX.len()].copy_from_slice(PREFIX);
                let number = numbers.fetch_add(1, Ordering::Relaxed);
                put_digits(&mut body[PREFIX.len()..PREFIX.len() + DIGITS], number);
                let time = PREFIX.len() + DIGITS + "\",\"t\":\"".len();
                put_digits(&mut body[time..time + DIGITS], 0);
                egress.send(request(&target, Bytes::from(body))).await;
            }
        });
    }
    while tasks.join_next().await.is_some() {}
    Ok((sink.arrived() - before) as f64 / began.elapsed().as_secs_f64())
}
