//! Just enough HTTP/1.1 for both ends of a benchmark.

use anyhow::{Context, bail};
use tokio::io::{AsyncRead, AsyncReadExt};

/// One message that was read: its start line and where its parts are in the buffer.
pub(crate) struct Message {
    /// Bytes up to and including the empty line.
    pub(crate) head: usize,
    /// Bytes of the body.
    pub(crate) body: usize,
}

/// Reads messages from a connection through one reused buffer.
pub(crate) struct Reader {
    buffer: Vec<u8>,
    filled: usize,
}

impl Reader {
    pub(crate) fn new() -> Self {
        Self { buffer: vec![0; 8 * 1024], filled: 0 }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[..self.filled]
    }

    /// Reads one whole message; `None` when the peer closed between messages.
    pub(crate) async fn next<R: AsyncRead + Unpin>(
        &mut self,
        from: &mut R,
        mut first_byte: impl FnMut(),
    ) -> anyhow::Result<Option<Message>> {
        let mut told = false;
        loop {
            if let Some(head) = find_head(self.bytes()) {
                let body = content_length(&self.buffer[..head])?;
                while self.filled < head + body {
                    self.read(from, head + body).await.context("the body was cut short")?;
                }
                return Ok(Some(Message { head, body }));
            }
            if self.filled == self.buffer.len() {
                let len = self.buffer.len();
                self.buffer.resize(len * 2, 0);
            }
            let read = from.read(&mut self.buffer[self.filled..]).await?;
            if read == 0 {
                if self.filled == 0 {
                    return Ok(None);
                }
                bail!("the connection closed inside a message");
            }
            if !told {
                told = true;
                first_byte();
            }
            self.filled += read;
        }
    }

    async fn read<R: AsyncRead + Unpin>(
        &mut self,
        from: &mut R,
        want: usize,
    ) -> anyhow::Result<()> {
        if self.buffer.len() < want {
            self.buffer.resize(want, 0);
        }
        let read = from.read(&mut self.buffer[self.filled..]).await?;
        if read == 0 {
            bail!("the connection closed");
        }
        self.filled += read;
        Ok(())
    }

    /// Forgets a message; what came after it stays.
    pub(crate) fn consume(&mut self, message: &Message) {
        let used = message.head + message.body;
        self.buffer.copy_within(used..self.filled, 0);
        self.filled -= used;
    }
}

fn find_head(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|w| w == b"\r\n\r\n").map(|at| at + 4)
}

fn content_length(head: &[u8]) -> anyhow::Result<usize> {
    for line in head.split(|b| *b == b'\n') {
        if line.len() > 15 && line[..15].eq_ignore_ascii_case(b"content-length:") {
            let text = std::str::from_utf8(&line[15..])?.trim();
            return Ok(text.parse()?);
        }
    }
    Ok(0)
}

/// The status of a response head.
pub(crate) fn status(head: &[u8]) -> u16 {
    let digits = head.get(9..12).and_then(|d| std::str::from_utf8(d).ok());
    digits.and_then(|d| d.parse().ok()).unwrap_or(0)
}

/// Decimal digits of fixed width, so that a request can be patched in place.
pub(crate) fn put_digits(into: &mut [u8], mut number: u64) {
    for slot in into.iter_mut().rev() {
        *slot = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// Reads what [`put_digits`] wrote.
pub(crate) fn get_digits(from: &[u8]) -> Option<u64> {
    from.iter().try_fold(0u64, |n, b| {
        b.is_ascii_digit().then(|| n.wrapping_mul(10).wrapping_add(u64::from(b - b'0')))
    })
}
