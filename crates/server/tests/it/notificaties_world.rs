//! What the tests of the Notificaties API stand on: a server with clients, and receivers of callbacks.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use posthorn_sealing::jwt::{ZgwClaims, sign};
use serde_json::{Value, json};

use crate::caller::Reply;
use crate::harness::{Home, PATIENCE, Server, eventually};

/// What callbacks of these tests ask for.
pub(crate) const AUTH: &str = "Bearer callback-secret";

/// Quick, and otherwise as shipped.
const CONFIG: &str = "
server: {listen: '127.0.0.1:0', body: 300KiB}
egress: {allow: [127.0.0.0/8]}
admission: {tests: 1000, disk_warn: 100, disk_refuse: 100}
engine: {drain: 2s}
profiles:
  nrc:
    base: notificaties
    policy:
      schedule: {backoff: {fixed: {wait: 100ms}}, max_attempts: 4}
dialects:
  notificaties:
    enabled: true
    tenant: gemeente
    profile: nrc
    credentials:
      - {identifier: both, secret: secret-of-both}
      - {identifier: consumer, secret: 'file:consumer.txt'}
      - {identifier: publisher, secret: secret-of-publisher}
      - {identifier: nobody, secret: secret-of-nobody}
    applications:
      - {client_ids: [both], all: true}
      - {client_ids: [consumer], scopes: [notificaties.consumeren]}
      - {client_ids: [publisher], scopes: [notificaties.publiceren]}
";

/// The same with other lines in the section of the API.
pub(crate) fn home_with(lines: &str) -> Home {
    let home = Home::new();
    let text = CONFIG.replace("    enabled: true\n", &format!("    enabled: true\n{lines}"));
    std::fs::write(home.path().join("posthorn.yaml"), text).expect("written");
    std::fs::write(home.path().join("consumer.txt"), "secret-of-consumer\n").expect("written");
    home
}

pub(crate) fn home() -> Home {
    home_with("")
}

#[expect(clippy::disallowed_methods, reason = "the server uses the system's clock")]
pub(crate) fn now() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    i64::try_from(since.expect("after 1970").as_secs()).expect("soon enough")
}

/// The header of a client.
pub(crate) fn token(client: &str) -> String {
    let claims = ZgwClaims { exp: None, ..ZgwClaims::of_client(client, now(), 0) };
    format!("Bearer {}", sign(format!("secret-of-{client}").as_bytes(), &claims))
}

/// One request, with everything as the test says.
pub(crate) fn send(
    server: &str,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Reply {
    let authority = server.strip_prefix("http://").expect("a URL");
    let mut tcp = connect(authority);
    let mut request = format!(
        "{method} {path} HTTP/1.1\r\nhost: nrc.test\r\nconnection: close\r\ncontent-length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        request.push_str(&format!("{name}: {value}\r\n"));
    }
    request.push_str("\r\n");
    tcp.write_all(request.as_bytes()).expect("sent");
    // A server may refuse a body before it has read it.
    drop(tcp.write_all(body));
    let mut answer = Vec::new();
    drop(tcp.read_to_end(&mut answer));
    let text = String::from_utf8(answer).expect("text");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|text| text.parse().ok()).expect("a status");
    Reply { status, head: head.to_owned(), body: body.to_owned() }
}

#[expect(clippy::disallowed_methods, reason = "the test's own client talks to its own server")]
fn connect(authority: &str) -> TcpStream {
    let tcp = TcpStream::connect(authority).expect("a connection");
    tcp.set_read_timeout(Some(PATIENCE)).expect("a limit");
    tcp
}

/// A request of a client with a JSON body, below the prefix.
pub(crate) fn ask(server: &Server, client: &str, method: &str, path: &str, body: &Value) -> Reply {
    let token = token(client);
    let headers = [("authorization", token.as_str()), ("content-type", "application/json")];
    let body = if body.is_null() { String::new() } else { body.to_string() };
    send(&server.url, method, &format!("/api/v1{path}"), &headers, body.as_bytes())
}

pub(crate) fn get(server: &Server, path: &str) -> Reply {
    ask(server, "both", "GET", path, &Value::Null)
}

/// Makes a kanaal.
#[track_caller]
pub(crate) fn kanaal(server: &Server, naam: &str, filters: &[&str]) -> Value {
    let body = json!({"naam": naam, "filters": filters});
    ask(server, "publisher", "POST", "/kanaal", &body).expect(201).json()
}

/// Makes an abonnement on kanalen.
#[track_caller]
pub(crate) fn abonnement(server: &Server, receiver: &Receiver, kanalen: &Value) -> Value {
    let body = json!({"callbackUrl": receiver.url("/cb"), "auth": AUTH, "kanalen": kanalen});
    ask(server, "consumer", "POST", "/abonnement", &body).expect(201).json()
}

/// The last part of a `url`.
#[track_caller]
pub(crate) fn path_of(thing: &Value) -> String {
    let url = thing["url"].as_str().expect("a URL");
    url.strip_prefix("http://nrc.test/api/v1").expect("below our prefix").to_owned()
}

pub(crate) fn message(kanaal: &str, kenmerken: &Value) -> Value {
    json!({"kanaal": kanaal, "hoofdObject": "http://openzaak:8000/zaken/1", "resource": "status",
        "resourceUrl": "http://openzaak:8000/statussen/2", "actie": "create",
        "aanmaakdatum": "2024-05-06T11:59:59.123Z", "kenmerken": kenmerken})
}

#[track_caller]
pub(crate) fn publish(server: &Server, message: &Value) -> Reply {
    ask(server, "publisher", "POST", "/notificaties", message)
}

/// The one fault of a problem: name and code.
#[track_caller]
pub(crate) fn fault(reply: &Reply) -> (String, String) {
    assert_eq!(reply.header("content-type"), Some("application/problem+json"), "{}", reply.body);
    let problem = reply.json();
    let faults = problem["invalidParams"].as_array().expect("faults");
    assert_eq!(faults.len(), 1, "{problem}");
    let text = |name: &str| faults[0][name].as_str().expect("a text").to_owned();
    assert!(!text("reason").is_empty());
    (text("name"), text("code"))
}

#[track_caller]
#[expect(clippy::needless_pass_by_value, reason = "checks read better without borrows")]
pub(crate) fn refused(reply: Reply, name: &str, code: &str) {
    assert_eq!(reply.status, 400, "{}", reply.body);
    assert_eq!(fault(&reply), (name.to_owned(), code.to_owned()), "{}", reply.body);
}

/// One request as a receiver saw it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) path: String,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    pub(crate) at: Instant,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }

    fn is_probe(&self) -> bool {
        serde_json::from_slice::<Value>(&self.body).is_ok_and(|body| body["kanaal"] == "test")
    }
}

type Script = Box<dyn Fn(&Seen) -> u16 + Send + Sync>;

/// A receiver that answers as it is told and remembers everything.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    status: Arc<AtomicU16>,
}

impl Receiver {
    /// Lets in who shows this header.
    pub(crate) fn new() -> Self {
        Self::scripted(|seen| if seen.header("authorization") == Some(AUTH) { 204 } else { 401 })
    }

    pub(crate) fn scripted(script: impl Fn(&Seen) -> u16 + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (seen, status) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicU16::new(0)));
        let (into, own, script): (_, _, Arc<Script>) =
            (Arc::clone(&seen), Arc::clone(&status), Arc::new(Box::new(script)));
        thread::spawn(move || {
            for tcp in listener.incoming().flatten() {
                let (into, own, script) =
                    (Arc::clone(&into), Arc::clone(&own), Arc::clone(&script));
                thread::spawn(move || serve(&tcp, &into, &own, &script));
            }
        });
        Self { address, seen, status }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Answers everything so from now on; 0: as its script says.
    pub(crate) fn answer(&self, status: u16) {
        self.status.store(status, Ordering::SeqCst);
    }

    /// Everything that arrived, test messages too.
    pub(crate) fn all(&self) -> Vec<Seen> {
        self.seen.lock().expect("not poisoned").clone()
    }

    /// What was delivered.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.all().into_iter().filter(|seen| !seen.is_probe()).collect()
    }

    /// Waits until so much was delivered.
    #[track_caller]
    pub(crate) fn wait(&self, count: usize) -> Vec<Seen> {
        eventually("a delivery", || Some(self.seen()).filter(|seen| seen.len() >= count))
    }
}

fn serve(tcp: &TcpStream, into: &Mutex<Vec<Seen>>, status: &AtomicU16, script: &Script) {
    let Some(seen) = read(tcp) else { return };
    // Its script decides about test messages, whatever it was told about others.
    let told = status.load(Ordering::SeqCst);
    let answer = if told != 0 && !seen.is_probe() { told } else { script(&seen) };
    into.lock().expect("not poisoned").push(seen);
    if answer != 0 {
        let location = if answer == 302 { "location: http://127.0.0.1:9/\r\n" } else { "" };
        let text = format!(
            "HTTP/1.1 {answer} X\r\n{location}content-length: 0\r\nconnection: close\r\n\r\n"
        );
        drop((&mut &*tcp).write_all(text.as_bytes()));
    }
}

fn read(tcp: &TcpStream) -> Option<Seen> {
    let mut reader = BufReader::new(tcp);
    let mut head = String::new();
    loop {
        let begin = head.len();
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
        if head[begin..].trim_end().is_empty() {
            break;
        }
    }
    let path = head.split(' ').nth(1)?.to_owned();
    let mut seen = Seen { path, head, body: Vec::new(), at: Instant::now() };
    let length = seen.header("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    seen.body = body;
    Some(seen)
}

/// How many deliveries there are, by state.
pub(crate) fn stats(server: &Server) -> Value {
    server.ask(&["stats", "--tenant", "gemeente"])
}
