//! What the tests of the Notificaties API stand on: a server with clients, and receivers of callbacks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use posthorn_sealing::jwt::{ZgwClaims, sign};
use posthorn_testkit::caller::{Reply, call};
use posthorn_testkit::clock::since_1970;
use posthorn_testkit::program::{Home, Server};
use posthorn_testkit::receiver::{Answer, Receiver, Request};
use posthorn_testkit::wait::eventually;
use serde_json::{Value, json};

/// What callbacks of these tests ask for.
pub(crate) const AUTH: &str = "Bearer callback-secret";

/// Quick, and otherwise as shipped.
const CONFIG: &str = "
server: {listen: '127.0.0.1:0', body_max: 300KiB}
egress: {allow: [127.0.0.0/8]}
admission: {tests_per_minute: 1000, disk_warn_percent: 100, disk_refuse_percent: 100}
engine: {drain_timeout: 2s}
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
    let home = Home::with(CONFIG);
    home.edit("    enabled: true\n", &format!("    enabled: true\n{lines}"));
    home.write("consumer.txt", "secret-of-consumer\n");
    home
}

pub(crate) fn home() -> Home {
    home_with("")
}

pub(crate) fn now() -> i64 {
    i64::try_from(since_1970().as_secs()).expect("soon enough")
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
    body: impl AsRef<[u8]>,
) -> Reply {
    call(server, method, path).header("host", "nrc.test").headers(headers).raw(body).send()
}

/// One of the operator to the native API.
pub(crate) fn native(server: &Server, method: &str, path: &str, body: &Value) -> Reply {
    server.call(method, path).header("posthorn-tenant", "gemeente").json(body).send()
}

/// A request of a client with a JSON body, below the prefix.
pub(crate) fn ask(server: &Server, client: &str, method: &str, path: &str, body: &Value) -> Reply {
    let token = token(client);
    let headers = [("authorization", token.as_str()), ("content-type", "application/json")];
    let body = if body.is_null() { String::new() } else { body.to_string() };
    send(&server.url, method, &format!("/api/v1{path}"), &headers, body)
}

pub(crate) fn get(server: &Server, path: &str) -> Reply {
    ask(server, "both", "GET", path, &Value::Null)
}

/// Makes a kanaal.
#[track_caller]
pub(crate) fn kanaal(server: &Server, naam: &str, filters: &[&str]) -> Value {
    let body = json!({"naam": naam, "filters": filters});
    ask(server, "publisher", "POST", "/kanaal", &body).expect(201)
}

/// Makes an abonnement on kanalen.
#[track_caller]
pub(crate) fn abonnement(server: &Server, receiver: &Callback, kanalen: &Value) -> Value {
    let body = json!({"callbackUrl": receiver.url("/cb"), "auth": AUTH, "kanalen": kanalen});
    ask(server, "consumer", "POST", "/abonnement", &body).expect(201)
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

/// Checks a problem with one fault: name and code.
#[track_caller]
pub(crate) fn refused(reply: Reply, name: &str, code: &str) {
    let problem = reply.has(&[("content-type", "application/problem+json")]).expect(400);
    let faults = problem["invalidParams"].as_array().expect("faults");
    assert_eq!(faults.len(), 1, "{problem}");
    assert_eq!((&faults[0]["name"], &faults[0]["code"]), (&json!(name), &json!(code)), "{problem}");
    assert!(faults[0]["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{problem}");
}

fn is_probe(seen: &Request) -> bool {
    serde_json::from_slice::<Value>(&seen.body).is_ok_and(|body| body["kanaal"] == "test")
}

/// A receiver of callbacks, whose script decides about test messages, whatever it is told of others.
pub(crate) struct Callback {
    receiver: Receiver,
    status: Arc<AtomicU16>,
}

impl Callback {
    /// Lets in who shows the right header.
    pub(crate) fn new() -> Self {
        Self::scripted(|seen| if seen.header("authorization") == Some(AUTH) { 204 } else { 401 })
    }

    pub(crate) fn scripted(script: impl Fn(&Request) -> u16 + Send + Sync + 'static) -> Self {
        let status = Arc::new(AtomicU16::new(0));
        let told = Arc::clone(&status);
        let receiver = Receiver::scripted(move |seen| {
            let told = Some(told.load(Ordering::SeqCst)).filter(|told| *told != 0);
            let status = told.filter(|_| !is_probe(seen)).unwrap_or_else(|| script(seen));
            match status {
                302 => Answer::from(302).header("location", "http://127.0.0.1:9/"),
                status => status.into(),
            }
        });
        Self { receiver, status }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        self.receiver.url(path)
    }

    /// Answers everything so from now on; 0: as its script says.
    pub(crate) fn answer(&self, status: u16) {
        self.status.store(status, Ordering::SeqCst);
    }

    /// Everything that arrived, test messages too.
    pub(crate) fn all(&self) -> Vec<Request> {
        self.receiver.seen()
    }

    /// What was delivered.
    pub(crate) fn seen(&self) -> Vec<Request> {
        self.all().into_iter().filter(|seen| !is_probe(seen)).collect()
    }

    /// Waits until so much was delivered.
    #[track_caller]
    pub(crate) fn wait(&self, count: usize) -> Vec<Request> {
        eventually("a delivery", || Some(self.seen()).filter(|seen| seen.len() >= count))
    }
}

/// How many deliveries there are, by state.
pub(crate) fn stats(server: &Server) -> Value {
    server.ask("stats --tenant gemeente")
}
