//! A browser, as far as the server can tell: a session, connections that are kept, what a page loads, and what a tab does
//! that stays open.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::child::Server;
use crate::wire::{Message, Reader, status};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Somebody who is logged in.
#[derive(Clone)]
pub(super) struct Session {
    address: SocketAddr,
    cookie: String,
}

/// What came back.
struct Answer {
    status: u16,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let pairs = self.head.lines().filter_map(|line| line.split_once(':'));
        let mut own = pairs.filter(|(own, _)| own.eq_ignore_ascii_case(name));
        own.next().map(|(_, value)| value.trim())
    }
}

impl Session {
    /// Logs in with the operator's key, as the form does.
    pub(super) async fn open(server: &Server) -> anyhow::Result<Self> {
        let key = server.key.as_deref().context("the server under test printed no key")?;
        let mut session = Self { address: server.address, cookie: String::new() };
        let mut connection = session.connect().await?;
        let body = format!("key={key}");
        let heads = format!(
            "origin: http://{}\r\ncontent-type: application/x-www-form-urlencoded\r\n",
            server.address
        );
        let answer = connection.ask("POST", "/console/login", &heads, &body).await?;
        ensure!(answer.status == 303, "the login was answered with {}", answer.status);
        let cookie = answer.header("set-cookie").context("no cookie")?;
        session.cookie = cookie.split(';').next().unwrap_or_default().to_owned();
        Ok(session)
    }

    pub(super) async fn connect(&self) -> anyhow::Result<Connection> {
        let stream = TcpStream::connect(self.address).await?;
        stream.set_nodelay(true)?;
        Ok(Connection { session: self.clone(), stream, reader: Reader::new() })
    }
}

/// One connection of a browser.
pub(super) struct Connection {
    session: Session,
    stream: TcpStream,
    reader: Reader,
}

impl Connection {
    fn request(&self, method: &str, path: &str, heads: &str, body: &str) -> String {
        let Session { address, cookie } = &self.session;
        let cookie = match cookie.is_empty() {
            true => String::new(),
            false => format!("cookie: {cookie}\r\n"),
        };
        format!(
            "{method} {path} HTTP/1.1\r\nhost: {address}\r\n{cookie}{heads}content-length: {}\r\n\r\n{body}",
            body.len()
        )
    }

    async fn ask(
        &mut self,
        method: &str,
        path: &str,
        heads: &str,
        body: &str,
    ) -> anyhow::Result<Answer> {
        let request = self.request(method, path, heads, body);
        self.stream.write_all(request.as_bytes()).await?;
        let read = tokio::time::timeout(PATIENCE, self.reader.next(&mut self.stream, || {}));
        let message = read.await.with_context(|| format!("{path} takes too long"))??;
        let message: Message = message.with_context(|| format!("{path} was not answered"))?;
        let bytes = self.reader.bytes();
        let head = String::from_utf8_lossy(&bytes[..message.head]).into_owned();
        let answer = Answer {
            status: status(head.as_bytes()),
            body: bytes[message.head..message.head + message.body].to_vec(),
            head,
        };
        self.reader.consume(&message);
        Ok(answer)
    }

    /// A page or a part of one, packed as browsers ask for it; how many bytes came.
    pub(super) async fn packed(&mut self, path: &str) -> anyhow::Result<usize> {
        let answer = self.ask("GET", path, "accept-encoding: gzip\r\n", "").await?;
        ensure!(answer.status == 200, "{path} was answered with {}", answer.status);
        ensure!(!answer.body.is_empty(), "{path} was answered with nothing");
        Ok(answer.body.len())
    }

    /// The same as text.
    pub(super) async fn text(&mut self, path: &str) -> anyhow::Result<String> {
        let answer = self.ask("GET", path, "", "").await?;
        ensure!(answer.status == 200, "{path} was answered with {}", answer.status);
        Ok(String::from_utf8(answer.body)?)
    }

    /// Follows a stream until it ends; every byte is counted, and every message told.
    async fn follow(
        mut self,
        path: &str,
        told: &Told,
        mut message: impl FnMut(),
    ) -> anyhow::Result<()> {
        let heads = "accept: text/event-stream\r\naccept-encoding: gzip\r\n";
        let request = self.request("GET", path, heads, "");
        self.stream.write_all(request.as_bytes()).await?;
        let mut buffer = vec![0; 16 << 10];
        let mut code = None;
        loop {
            let read = self.stream.read(&mut buffer).await?;
            if read == 0 {
                bail!("the stream {path} ended");
            }
            let code = *code.get_or_insert_with(|| status(&buffer[..read]));
            ensure!(code == 200, "the stream {path} was answered with {code}");
            told.bytes.fetch_add(read as u64, Ordering::Relaxed);
            let messages = buffer[..read].windows(5).filter(|part| part == b"data:").count();
            (0..messages).for_each(|_| message());
        }
    }
}

/// What all tabs have been told.
#[derive(Default)]
pub(super) struct Told {
    pub(super) bytes: AtomicU64,
    pub(super) updates: AtomicU64,
}

/// The stream that a page follows, if it is live.
fn stream_of(html: &str) -> Option<String> {
    let (_, after) = html.split_once(" data-stream=\"")?;
    let (path, _) = after.split_once('"')?;
    Some(path.replace("&#38;", "&").replace("&amp;", "&"))
}

/// A tab that stays open on a page, as a browser has it: first the page, then its stream, and the page again whenever that
/// tells of something. Runs until it is dropped.
pub(super) async fn stay(session: Session, path: String, told: Arc<Told>) -> anyhow::Result<()> {
    let mut page = session.connect().await?;
    let stream = stream_of(&page.text(&path).await?);
    let stream = stream.with_context(|| format!("{path} is not live"))?;
    let (hint, mut hinted) = tokio::sync::mpsc::channel::<()>(1);
    let following = session.connect().await?.follow(&stream, &told, || {
        // A tab that is still asking asks once more, not once for each message.
        let _ = hint.try_send(());
    });
    let asking = async {
        while hinted.recv().await.is_some() {
            let bytes = match page.packed(&path).await {
                Ok(bytes) => bytes,
                // The server ends connections that are idle for long; browsers open another.
                Err(_) => {
                    page = session.connect().await?;
                    page.packed(&path).await?
                }
            };
            told.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
            told.updates.fetch_add(1, Ordering::Relaxed);
        }
        anyhow::Ok(())
    };
    tokio::try_join!(following, asking)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_live_page_names_its_stream() {
        let live = "<p>x</p><button data-live-button data-stream=\"/console/live?a=1&amp;b=2\">";
        assert_eq!(stream_of(live).as_deref(), Some("/console/live?a=1&b=2"));
        assert_eq!(stream_of("<a href=\"/console/stream\">x</a>"), None);
    }
}
