//! A receiver on a real socket of this machine.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use posthorn_notifier::EgressOptions;

/// How long anything may take before a test gives up on it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// One request, headers with small letters.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn event_id(&self) -> String {
        let event: serde_json::Value = serde_json::from_slice(&self.body).expect("JSON");
        event["eventId"].as_str().expect("an id").to_owned()
    }
}

/// The receiver; stops listening when it is dropped.
pub(crate) struct SocketReceiver {
    pub(crate) url: String,
    pub(crate) seen: Arc<Mutex<Vec<Request>>>,
    over: Arc<AtomicBool>,
}

impl SocketReceiver {
    /// One that answers the nth request (from 0) with these lines of a response head.
    pub(crate) fn start(answer: impl Fn(usize) -> String + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/webhooks/payment", listener.local_addr().expect("bound"));
        let seen: Arc<Mutex<Vec<Request>>> = Arc::default();
        let over = Arc::new(AtomicBool::new(false));
        let (written, ended) = (Arc::clone(&seen), Arc::clone(&over));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let Some(request) = read(&stream) else { continue };
                let nth = {
                    let mut seen = written.lock();
                    seen.push(request);
                    seen.len() - 1
                };
                let head = answer(nth);
                let response =
                    format!("HTTP/1.1 {head}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
                let _ = (&stream).write_all(response.as_bytes());
            }
        });
        Self { url, seen, over }
    }

    /// Waits until it has seen so many requests.
    #[track_caller]
    pub(crate) fn wait_for(&self, count: usize) -> Vec<Request> {
        let begun = Instant::now();
        loop {
            let seen = self.seen.lock().clone();
            if seen.len() >= count {
                return seen;
            }
            assert!(begun.elapsed() < PATIENCE, "{} of {count} requests came", seen.len());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for SocketReceiver {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

fn read(stream: &TcpStream) -> Option<Request> {
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let method = line.split(' ').next()?.to_owned();
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        // The end before the empty line: whoever called was killed, and this is no request.
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(": ")?;
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Request { method, headers, body })
}

/// Rules of the way out that let receivers be on this machine.
pub(crate) fn open_to_loopback() -> EgressOptions {
    EgressOptions { allow: vec!["127.0.0.0/8".parse().expect("a rule")], ..Default::default() }
}
