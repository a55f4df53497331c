//! Receivers that do exactly what a test scripts, and short ways to send to them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use posthorn_domain::{Answer, AttemptOutcome, FailureCode, TenantId};
use posthorn_egress::{Deadlines, Egress, Options, PoolKey, Request, Sent};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A listening socket with a script per connection.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    accepted: Arc<AtomicUsize>,
}

impl Receiver {
    /// Runs `script` for every connection, with its number from 0.
    pub(crate) async fn start<F, R>(script: F) -> Self
    where
        F: Fn(TcpStream, usize) -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bind");
        Self::on(listener, script)
    }

    /// The same on a socket that listens already.
    pub(crate) fn on<F, R>(listener: TcpListener, script: F) -> Self
    where
        F: Fn(TcpStream, usize) -> R + Send + Sync + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let address = listener.local_addr().expect("address");
        let accepted = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&accepted);
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let number = counter.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(script(tcp, number));
            }
        });
        Self { address, accepted }
    }

    /// Answers the first request of every connection with these bytes and closes it.
    pub(crate) async fn once(answer: impl Into<Vec<u8>>) -> Self {
        let answer = Arc::new(answer.into());
        Self::start(move |mut tcp, _| {
            let answer = Arc::clone(&answer);
            async move {
                read_request(&mut tcp).await;
                let _ = tcp.write_all(&answer).await;
                linger(tcp).await;
            }
        })
        .await
    }

    /// Answers every request of every connection with these bytes.
    pub(crate) async fn always(answer: &'static str) -> Self {
        Self::always_on("127.0.0.1:0", answer).await.expect("bind")
    }

    /// The same at an address, if it is free.
    pub(crate) async fn always_on(address: &str, answer: &'static str) -> Option<Self> {
        let listener = TcpListener::bind(address).await.ok()?;
        Some(Self::on(listener, move |mut tcp, _| async move {
            while read_request(&mut tcp).await.is_some() {
                if tcp.write_all(answer.as_bytes()).await.is_err() {
                    return;
                }
            }
        }))
    }

    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook?a=1", self.address)
    }
}

/// Reads one request with its body; None when the peer closed instead.
pub(crate) async fn read_request(tcp: &mut (impl AsyncReadExt + Unpin)) -> Option<String> {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        if tcp.read(&mut byte).await.ok()? == 0 {
            return None;
        }
        bytes.push(byte[0]);
    }
    let head = String::from_utf8(bytes).expect("head");
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "))
        .map_or(0, |digits| digits.parse().expect("length"));
    let mut body = vec![0; length];
    tcp.read_exact(&mut body).await.ok()?;
    Some(head + &String::from_utf8(body).expect("body"))
}

/// Half-closes and waits for the peer, so that what was written is not lost to a reset.
pub(crate) async fn linger(mut tcp: TcpStream) {
    let _ = tcp.shutdown().await;
    let mut sink = [0; 1024];
    while matches!(tcp.read(&mut sink).await, Ok(n) if n > 0) {}
}

/// Loopback is open, everything else as by default.
pub(crate) fn options() -> Options {
    Options { allow: vec!["127.0.0.0/8".parse().expect("rule")], ..Options::default() }
}

pub(crate) fn egress() -> Egress {
    Egress::new(options()).expect("egress")
}

pub(crate) fn request(egress: &Egress, url: &str) -> Request {
    Request {
        tenant: TenantId::DEFAULT,
        pool: PoolKey::new([1; 16]),
        target: Arc::new(egress.guard().check_url(url).expect("target")),
        tls: None,
        proxy: None,
        vet_always: false,
        path_and_query: None,
        method: http::Method::POST,
        headers: http::HeaderMap::new(),
        body: "hello".into(),
        deadlines: Deadlines {
            connect: Duration::from_secs(5),
            tls: Duration::from_secs(5),
            response: Duration::from_secs(5),
            total: Duration::from_secs(8),
        },
    }
}

pub(crate) async fn send(egress: &Egress, url: &str) -> Sent {
    egress.send(request(egress, url)).await
}

#[track_caller]
pub(crate) fn answer(sent: &Sent) -> &Answer {
    match &sent.outcome {
        AttemptOutcome::Answered(answer) => answer,
        AttemptOutcome::Failed { code, detail } => panic!("failed with {code:?}: {detail}"),
    }
}

#[track_caller]
pub(crate) fn failure(sent: &Sent) -> FailureCode {
    match &sent.outcome {
        AttemptOutcome::Answered(answer) => panic!("answered with {}", answer.status),
        AttemptOutcome::Failed { code, .. } => *code,
    }
}
