//! A small HTTP client that knows the one thing a publisher must know: whether a request that got
//! no answer may have been carried out.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its status.
    pub status: u16,
    /// Its JSON; null when it has none.
    pub body: Value,
}

impl Answer {
    /// Whether it is a 2xx.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// The stable code of a problem document.
    pub fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or("")
    }
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// There was no connection: nothing was done.
    NotSent,
    /// It broke, or took too long. Nobody knows.
    Unknown,
}

/// A connection that is made again when it breaks.
#[derive(Debug, Default)]
pub struct Client {
    open: Option<(SocketAddr, http1::SendRequest<Full<Bytes>>)>,
}

/// What to ask.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// The method.
    pub method: &'a str,
    /// Path and query.
    pub path: &'a str,
    /// The API key.
    pub key: &'a str,
    /// Further headers.
    pub headers: &'a [(&'a str, &'a str)],
    /// The body.
    pub body: &'a str,
}

impl Client {
    /// Asks, and waits for the answer.
    pub async fn call(
        &mut self,
        address: SocketAddr,
        call: Call<'_>,
        patience: Duration,
    ) -> Result<Answer, Silence> {
        let mut sender = match self.open.take() {
            Some((to, sender)) if to == address && !sender.is_closed() => sender,
            _ => timeout(patience, connect(address))
                .await
                .map_err(|_| Silence::NotSent)?
                .ok_or(Silence::NotSent)?,
        };
        let mut request = Request::builder()
            .method(call.method)
            .uri(call.path)
            .header("host", address.to_string())
            .header("authorization", format!("Bearer {}", call.key))
            .header("content-type", "application/json");
        for (name, value) in call.headers {
            request = request.header(*name, *value);
        }
        let request = request
            .body(Full::new(Bytes::copy_from_slice(call.body.as_bytes())))
            .expect("calls are made of valid parts");
        let exchange = async {
            sender.ready().await.map_err(|_| Silence::NotSent)?;
            let response = sender.send_request(request).await.map_err(|_| Silence::Unknown)?;
            let status = response.status().as_u16();
            let body = response.into_body().collect().await.map_err(|_| Silence::Unknown)?;
            let body = serde_json::from_slice(&body.to_bytes()).unwrap_or(Value::Null);
            Ok(Answer { status, body })
        };
        let answer = timeout(patience, exchange).await.map_err(|_| Silence::Unknown)??;
        self.open = Some((address, sender));
        Ok(answer)
    }
}

#[expect(clippy::disallowed_methods, reason = "the harness only ever speaks to loopback")]
async fn connect(address: SocketAddr) -> Option<http1::SendRequest<Full<Bytes>>> {
    let stream = TcpStream::connect(address).await.ok()?;
    stream.set_nodelay(true).ok()?;
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.ok()?;
    // Its end shows in the sender.
    tokio::spawn(async move { connection.await.ok() });
    Some(sender)
}
