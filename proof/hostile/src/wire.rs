//! Just enough HTTP to hear a request out.

use tokio::io::{AsyncRead, AsyncReadExt};

/// The longest head that is heard.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// As much of a body as is kept to be echoed.
const BODY_KEPT_BYTES_MAX: usize = 64 * 1024;

/// One request.
#[derive(Debug, Default)]
pub(crate) struct Request {
    pub(crate) body: Vec<u8>,
    /// Whether it carries a cookie; nobody ever should.
    pub(crate) cookie: bool,
}

/// Reads requests from a connection, and keeps what came after one for the next.
#[derive(Default)]
pub(crate) struct Reader {
    held: Vec<u8>,
}

impl Reader {
    /// One whole request; `None` when the sender closed or talks nonsense.
    pub(crate) async fn next(&mut self, from: &mut (impl AsyncRead + Unpin)) -> Option<Request> {
        let head = loop {
            if let Some(at) = self.held.windows(4).position(|four| four == b"\r\n\r\n") {
                break self.held.drain(..at + 4).collect::<Vec<u8>>();
            }
            if self.held.len() > HEAD_BYTES_MAX {
                return None;
            }
            self.more(from).await?;
        };
        let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
        let mut left = 0;
        let mut cookie = false;
        for line in head.lines() {
            if let Some(digits) = line.strip_prefix("content-length:") {
                left = digits.trim().parse().ok()?;
            }
            cookie |= line.starts_with("cookie:");
        }
        let mut body = Vec::new();
        while left > 0 {
            if self.held.is_empty() {
                self.more(from).await?;
            }
            let taken = self.held.len().min(left);
            let room = BODY_KEPT_BYTES_MAX.saturating_sub(body.len()).min(taken);
            body.extend_from_slice(&self.held[..room]);
            self.held.drain(..taken);
            left -= taken;
        }
        Some(Request { body, cookie })
    }

    async fn more(&mut self, from: &mut (impl AsyncRead + Unpin)) -> Option<()> {
        self.held.reserve(4 * 1024);
        (from.read_buf(&mut self.held).await.ok()? > 0).then_some(())
    }
}
