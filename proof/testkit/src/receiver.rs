//! A receiver on loopback, plain or over TLS, that does as it is told and remembers what it saw.
//!
//! Each connection has a thread, so it serves tests that block and tests that do not. It answers one
//! request a connection unless its answer keeps it open. It stops listening when it is dropped.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::authority::{Authority, Clients, thumbprint};
use crate::wait::{PATIENCE, eventually};
use crate::wire::{read_body, read_head};

pub use crate::wire::Request;

/// No status: the body is all there is.
const RAW: u16 = 1;

/// What a receiver answers.
#[derive(Clone, Debug)]
pub struct Answer {
    status: u16,
    headers: String,
    body: Vec<u8>,
    wait: Duration,
    pause: Duration,
    keeps: bool,
}

impl From<u16> for Answer {
    /// Nothing but a status. 0 closes the connection without an answer.
    fn from(status: u16) -> Self {
        let (headers, body, keeps) = (String::new(), Vec::new(), false);
        Self { status, headers, body, wait: Duration::ZERO, pause: Duration::ZERO, keeps }
    }
}

impl Answer {
    /// These bytes, whatever they are.
    pub fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        Self::from(RAW).body(bytes)
    }

    /// With another header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push_str(&format!("{name}: {value}\r\n"));
        self
    }

    /// With a body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = body.into();
        self
    }

    /// After a while.
    #[must_use]
    pub fn after(mut self, wait: Duration) -> Self {
        self.wait = wait;
        self
    }

    /// Byte by byte, with a pause after each.
    #[must_use]
    pub fn dripping(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// And waits for the next request on the same connection.
    #[must_use]
    pub fn kept(mut self) -> Self {
        self.keeps = true;
        self
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        if self.status == RAW {
            return self.body.clone();
        }
        let close = if self.keeps { "" } else { "Connection: close\r\n" };
        let (status, length) = (self.status, self.body.len());
        let length = format!("Content-Length: {length}\r\n");
        let head = format!("HTTP/1.1 {status} Said\r\n{}{length}{close}\r\n", self.headers);
        [head.as_bytes(), &self.body].concat()
    }
}

type Script = Arc<dyn Fn(&Request) -> Answer + Send + Sync>;

struct Shared {
    seen: Mutex<Vec<Request>>,
    script: Mutex<Script>,
    over: AtomicBool,
}

/// A receiver that listens.
pub struct Receiver {
    /// Where.
    pub address: SocketAddr,
    root: String,
    shared: Arc<Shared>,
}

impl Receiver {
    /// One that answers everything with this.
    pub fn new(answer: impl Into<Answer>) -> Self {
        let answer = answer.into();
        Self::scripted(move |_| answer.clone())
    }

    /// One that answers as its script says, which runs in the thread of the connection.
    pub fn scripted<A: Into<Answer>>(
        script: impl Fn(&Request) -> A + Send + Sync + 'static,
    ) -> Self {
        Self::start(None, None, Arc::new(move |seen| script(seen).into()))
    }

    /// One over TLS with a name of its own, which answers everything with 200.
    pub fn secure(authority: &Authority, host: &str, clients: Clients<'_>) -> Self {
        let config = authority.sign(host).serving(clients);
        Self::start(Some(config), Some(host), Arc::new(|_| 200.into()))
    }

    fn start(tls: Option<Arc<ServerConfig>>, host: Option<&str>, script: Script) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (scheme, port) = (if tls.is_some() { "https" } else { "http" }, address.port());
        let root = format!("{scheme}://{}:{port}", host.unwrap_or("127.0.0.1"));
        let (seen, script) = (Mutex::default(), Mutex::new(script));
        let shared = Arc::new(Shared { seen, script, over: AtomicBool::new(false) });
        let own = Arc::clone(&shared);
        thread::spawn(move || {
            for tcp in listener.incoming().flatten() {
                if own.over.load(Ordering::Relaxed) {
                    return;
                }
                let (shared, tls) = (Arc::clone(&own), tls.clone());
                thread::spawn(move || shared.serve(tcp, tls));
            }
        });
        Self { address, root, shared }
    }

    /// Where a path of it is.
    pub fn url(&self, path: &str) -> String {
        format!("{}{path}", self.root)
    }

    /// From now on it answers as this says.
    pub fn script<A: Into<Answer>>(&self, script: impl Fn(&Request) -> A + Send + Sync + 'static) {
        *self.shared.script.lock() = Arc::new(move |seen| script(seen).into());
    }

    /// From now on it answers everything with this.
    pub fn answers(&self, answer: impl Into<Answer>) {
        let answer = answer.into();
        self.script(move |_| answer.clone());
    }

    /// Everything that came, in its order.
    pub fn seen(&self) -> Vec<Request> {
        self.shared.seen.lock().clone()
    }

    /// How much came.
    pub fn count(&self) -> usize {
        self.shared.seen.lock().len()
    }

    /// All bytes that came, as text.
    pub fn heard(&self) -> String {
        let seen = self.seen();
        seen.iter().map(|one| one.head.clone() + &String::from_utf8_lossy(&one.body)).collect()
    }

    /// Waits until so much has come.
    #[track_caller]
    pub fn wait_for(&self, count: usize) -> Vec<Request> {
        eventually("a request", || Some(self.seen()).filter(|seen| seen.len() >= count))
    }
}

impl Drop for Receiver {
    #[expect(clippy::disallowed_methods, reason = "it wakes its own thread")]
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        // The thread that accepts looks at the mark when somebody comes.
        drop(TcpStream::connect(self.address));
    }
}

impl Shared {
    fn serve(&self, tcp: TcpStream, tls: Option<Arc<ServerConfig>>) {
        drop(tcp.set_read_timeout(Some(PATIENCE)));
        match tls {
            None => {
                let mut tcp = tcp;
                while self.answer(&mut tcp, |_| None).is_some() {}
            }
            Some(config) => {
                let connection = ServerConnection::new(config).expect("a connection");
                let mut tls = StreamOwned::new(connection, tcp);
                let shown = |tls: &StreamOwned<ServerConnection, TcpStream>| {
                    tls.conn.peer_certificates().and_then(<[_]>::first).map(thumbprint)
                };
                while self.answer(&mut tls, shown).is_some() {}
                tls.conn.send_close_notify();
                drop(tls.flush());
            }
        }
    }

    /// Answers one request; none when the connection ends here.
    fn answer<S: Read + Write>(
        &self,
        stream: &mut S,
        shown: impl Fn(&S) -> Option<String>,
    ) -> Option<()> {
        let mut request = read_head(stream)?;
        read_body(stream, &mut request)?;
        request.shown = shown(stream);
        {
            let mut seen = self.seen.lock();
            request.nth = seen.len();
            seen.push(request.clone());
        }
        let script = Arc::clone(&self.script.lock());
        let answer = script(&request);
        thread::sleep(answer.wait);
        if answer.status == 0 {
            return None;
        }
        let bytes = answer.bytes();
        for piece in bytes.chunks(if answer.pause.is_zero() { bytes.len() } else { 1 }) {
            stream.write_all(piece).and_then(|()| stream.flush()).ok()?;
            thread::sleep(answer.pause);
        }
        answer.keeps.then_some(())
    }
}

#[cfg(test)]
mod tests;
