//! A payment server's world: a receiver of webhooks, and a server with a `callbacks:` block.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use posthorn_testkit::postgres::TestPostgres;
use serde_json::Value;

use crate::caller::{Reply, call};
use crate::harness::{Home, PATIENCE, Server, eventually};
use crate::postgres;

pub(crate) const SECRET: &str = "a secret of more than thirty-two characters";

/// The tenant of the block when it names none.
pub(crate) const TENANT: &str = "cedros";

/// One request, names of headers with small letters.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

/// What the receiver does next: answer with a status, after a while. 0: close without an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Conduct {
    pub(crate) status: u16,
    pub(crate) after: Duration,
}

/// A receiver on this machine that does as it is told.
pub(crate) struct Receiver {
    pub(crate) url: String,
    pub(crate) seen: Arc<Mutex<Vec<Request>>>,
    conduct: Arc<Mutex<Conduct>>,
}

impl Receiver {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/webhooks/payment", listener.local_addr().expect("bound"));
        let seen: Arc<Mutex<Vec<Request>>> = Arc::default();
        let conduct = Arc::new(Mutex::new(Conduct { status: 200, after: Duration::ZERO }));
        let (written, told) = (Arc::clone(&seen), Arc::clone(&conduct));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (written, told) = (Arc::clone(&written), Arc::clone(&told));
                std::thread::spawn(move || answer(&stream, &written, &told));
            }
        });
        Self { url, seen, conduct }
    }

    pub(crate) fn answers(&self, status: u16) {
        self.conduct.lock().expect("fine").status = status;
    }

    pub(crate) fn takes(&self, time: Duration) {
        self.conduct.lock().expect("fine").after = time;
    }

    #[track_caller]
    pub(crate) fn wait_for(&self, count: usize) -> Vec<Request> {
        eventually(&format!("{count} requests"), || {
            let seen = self.seen.lock().expect("fine").clone();
            (seen.len() >= count).then_some(seen)
        })
    }
}

fn answer(stream: &TcpStream, seen: &Mutex<Vec<Request>>, conduct: &Mutex<Conduct>) -> Option<()> {
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    let method = line.split(' ').next()?.to_owned();
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_ascii_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    let body = String::from_utf8(body).ok()?;
    seen.lock().ok()?.push(Request { method, headers, body });
    let Conduct { status, after } = *conduct.lock().ok()?;
    std::thread::sleep(after);
    if status == 0 {
        return stream.shutdown(std::net::Shutdown::Both).ok();
    }
    let text = format!(
        "HTTP/1.1 {status} Whatever\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 14\r\n\
         Connection: close\r\n\r\ncard 4111 1111"
    );
    (&mut &*stream).write_all(text.as_bytes()).ok()
}

/// A home whose server keeps its data where the test says, and sends webhooks to the receiver.
pub(crate) struct World {
    pub(crate) home: Home,
    pub(crate) receiver: Receiver,
    base: String,
    /// Ends after the server that uses it.
    _database: Option<TestPostgres>,
}

/// The store of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum On {
    Sqlite,
    Postgres,
}

impl World {
    pub(crate) fn new(on: On) -> Self {
        let home = Home::new();
        let database = match on {
            On::Sqlite => None,
            On::Postgres => Some(postgres::database()),
        };
        if let Some(database) = &database {
            postgres::configure(&home, &database.url());
        }
        let base = std::fs::read_to_string(home.path().join("posthorn.yaml")).expect("there");
        let receiver = Receiver::start();
        let world = Self { home, receiver, base, _database: database };
        world.callbacks("");
        world
    }

    /// Has the shards of a node that died taken over after two seconds.
    pub(crate) fn replace_dead_nodes_quickly(&mut self) {
        let quick = "engine: {drain: 2s, lease: 2s, heartbeat: 200ms}";
        self.base = self.base.replace("engine: {drain: 2s}", quick);
    }

    /// Writes the block anew, with these lines besides URL and secret.
    pub(crate) fn callbacks(&self, lines: &str) {
        let block = format!(
            "callbacks:\n  payment_success_url: {}\n  hmac_secret: {SECRET}\n  headers: \
             {{Authorization: Bearer hush-hush}}\n{lines}",
            self.receiver.url
        );
        self.configure(&block);
    }

    /// Writes the configuration anew with this behind it.
    pub(crate) fn configure(&self, block: &str) {
        let text = format!("{}{block}", self.base);
        std::fs::write(self.home.path().join("posthorn.yaml"), text).expect("written");
    }
}

/// Publishes a payment.
pub(crate) fn pay(server: &Server, event: &str) {
    let body = format!(r#"{{"eventId":"{event}","eventType":"payment.succeeded"}}"#);
    server.ask(&["send", "payments", "payment.succeeded", &body, "--tenant", TENANT]);
}

/// Asks an admin endpoint with a key.
#[track_caller]
pub(crate) fn admin(server: &Server, key: &str, method: &str, path: &str) -> Reply {
    let authorization = format!("Bearer {key}");
    let headers = [("Authorization", authorization.as_str())];
    let path = format!("/admin/webhooks{path}");
    call(&server.url, None, method, &path, &headers).expect("an answer")
}

/// The webhooks of a list.
#[track_caller]
pub(crate) fn listed(server: &Server, query: &str) -> Vec<Value> {
    let reply = admin(server, &server.key, "GET", query).expect(200);
    assert_eq!(reply.header("content-type"), Some("application/json"));
    let body = reply.json();
    let webhooks = body["webhooks"].as_array().expect("a list").clone();
    assert_eq!(body["count"], webhooks.len(), "the items that are there");
    webhooks
}

/// Waits until the only webhook has a status, and returns it.
#[track_caller]
pub(crate) fn becomes(server: &Server, status: &str) -> Value {
    eventually(status, || {
        let all = listed(server, "");
        all.into_iter().next().filter(|webhook| webhook["status"] == status)
    })
}

/// Checks the shape of an error, and its code.
#[track_caller]
pub(crate) fn refused(reply: &Reply, status: u16, code: &str, retryable: bool) {
    assert_eq!(reply.status, status, "{}", reply.body);
    assert_eq!(reply.header("content-type"), Some("application/json"));
    let body = reply.json();
    assert_eq!(body["error"]["code"], code, "{body}");
    assert_eq!(body["error"]["retryable"], retryable, "{body}");
    assert!(body["error"]["message"].as_str().is_some_and(|text| !text.is_empty()), "{body}");
}
