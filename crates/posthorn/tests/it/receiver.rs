//! A receiver on a socket of this machine.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// The receiver; it lives as long as the test's runtime.
pub(crate) struct Receiver {
    pub(crate) url: String,
    bodies: Arc<Mutex<Vec<String>>>,
}

impl Receiver {
    /// One that answers with this status.
    pub(crate) async fn start(status: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/", listener.local_addr().expect("bound"));
        let bodies: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = Arc::clone(&bodies);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let body = serve(stream, status).await.expect("a request");
                seen.lock().push(body);
            }
        });
        Self { url, bodies }
    }

    pub(crate) fn bodies(&self) -> Vec<String> {
        self.bodies.lock().clone()
    }
}

async fn serve(stream: TcpStream, status: &str) -> std::io::Result<String> {
    let mut stream = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 || line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().expect("a number");
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    stream.write_all(answer.as_bytes()).await?;
    Ok(String::from_utf8_lossy(&body).into_owned())
}
