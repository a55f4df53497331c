//! A PCA Hub for tests: it checks everything a real one would, and keeps a list of complaints.
//!
//! # What it is for
//! Whoever calls it wrongly is told so with the Hub's own errors, and the test finds the reason in
//! [`FakeHub::complaints`]. Above all it keeps the rule of two seconds by itself: an account that is
//! touched while another call for it is under way, or sooner than the gap after the end of the last
//! one, gets a 409. So a run without complaints proves order and spacing without looking at a clock.
//!
//! # Theory of operation
//! One thread accepts, one thread answers each connection, which is closed after one answer. Codes are
//! computed here from RFC 6238, not by the code under test.
//!
//! # What it must not know
//! Posthorn: it sees bytes on a socket.

mod checks;

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::clock::since_1970;
use crate::receiver::Answer;
use crate::wait::PATIENCE;
use crate::wire::{Request, read_body, read_head};

/// A caller may hear of the end of a call a moment before it is noted here.
const HEARD_BEFORE: Duration = Duration::from_millis(20);

/// Where the webhooks are.
const ROOT: &str = "/g/private/api/v1/pcaidwebhooks";
/// Where it says how it is.
const GATE: &str = "/g/api/pca119";

/// What the Hub and its callers have agreed upon.
#[derive(Clone, Debug)]
pub struct Agreement {
    /// The domain of this environment, without the tenant.
    pub domain: String,
    /// The secret of the one-time codes.
    pub otp_secret: String,
    /// Their salt, which comes before the secret.
    pub otp_salt: String,
    /// How many steps a code may be off, either way.
    pub skew_steps: i64,
    /// What all services know.
    pub shared_key: String,
    /// The keys of events that are valid: two generations while they change.
    pub api_keys: Vec<String>,
    /// Whether codes, shared key and issuer are not asked for yet, and must not be sent.
    pub interim: bool,
    /// The least time between two calls for one account.
    pub gap: Duration,
}

impl Default for Agreement {
    fn default() -> Self {
        Self {
            domain: "hub.example".to_owned(),
            otp_secret: "the one-time secret".to_owned(),
            otp_salt: "the salt".to_owned(),
            skew_steps: 1,
            shared_key: "the shared internal key".to_owned(),
            api_keys: vec!["event key 1".to_owned(), "event key 2".to_owned()],
            interim: false,
            gap: Duration::from_secs(2),
        }
    }
}

/// What the Hub answers to a call that it would otherwise have taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// This status without a body.
    Empty(u16),
    /// This status with the Hub's standard error.
    Standard(u16),
    /// This status with a page, as load balancers answer.
    Html(u16),
    /// This status with a page that repeats the headers of the request.
    Echo(u16),
    /// This status with a page of 100,000 bytes.
    Long(u16),
    /// 200, but only after this time.
    Slow(Duration),
    /// The connection is reset.
    Reset,
}

/// A call of a webhook, as it came in.
#[derive(Clone, Debug)]
pub struct Call {
    /// The path below the root, e.g. `/user-events`.
    pub path: String,
    /// Headers, names in lower case.
    pub headers: BTreeMap<String, String>,
    /// The body.
    pub body: Value,
    /// When it came in, in seconds since 1970.
    pub unix: i64,
    /// When it came in.
    pub begun: Instant,
    /// The answer's status; 0 when there was none.
    pub status: u16,
}

impl Call {
    /// A header, or an empty text.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }
}

/// What is known of an account.
#[derive(Clone, Copy, Default)]
struct Account {
    under_way: u32,
    ended: Option<Instant>,
}

struct State {
    agreement: Agreement,
    /// What the gate answers: a status and a body.
    gate: Mutex<(u16, String)>,
    asked: Mutex<Vec<String>>,
    replies: Mutex<VecDeque<Reply>>,
    calls: Mutex<Vec<Call>>,
    complaints: Mutex<Vec<String>>,
    accounts: Mutex<BTreeMap<(String, String), Account>>,
    stopping: AtomicBool,
}

/// A Hub on a loopback port. It stops when it is dropped.
pub struct FakeHub {
    address: SocketAddr,
    state: Arc<State>,
}

impl FakeHub {
    /// Starts one that takes calls.
    pub fn start(agreement: Agreement) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let state = Arc::new(State {
            agreement,
            gate: Mutex::new((200, json!({"Status": 2}).to_string())),
            asked: Mutex::default(),
            replies: Mutex::default(),
            calls: Mutex::default(),
            complaints: Mutex::default(),
            accounts: Mutex::default(),
            stopping: AtomicBool::new(false),
        });
        let shared = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming() {
                if shared.stopping.load(Ordering::Relaxed) {
                    return;
                }
                let state = Arc::clone(&shared);
                if let Ok(stream) = stream {
                    thread::spawn(move || state.serve(stream));
                }
            }
        });
        Ok(Self { address, state })
    }

    /// The endpoint root, without a slash at its end.
    pub fn root(&self) -> String {
        format!("http://{}{ROOT}", self.address)
    }

    /// The gate of a tenant; on loopback the tenant is a parameter and not a host.
    pub fn gate(&self, tenant: &str) -> String {
        format!("http://{}{GATE}?tenant={tenant}", self.address)
    }

    /// Changes what the gate answers.
    pub fn set_gate(&self, status: u16, body: &str) {
        *self.state.gate.lock() = (status, body.to_owned());
    }

    /// Says what the next calls are answered that keep all rules; then they are taken again.
    pub fn script(&self, replies: impl IntoIterator<Item = Reply>) {
        self.state.replies.lock().extend(replies);
    }

    /// The calls so far, in the order in which they came in.
    pub fn calls(&self) -> Vec<Call> {
        self.state.calls.lock().clone()
    }

    /// The tenants whose gates were asked, one for each question.
    pub fn asked(&self) -> Vec<String> {
        self.state.asked.lock().clone()
    }

    /// Every rule that a caller broke.
    pub fn complaints(&self) -> Vec<String> {
        self.state.complaints.lock().clone()
    }
}

impl Drop for FakeHub {
    #[expect(clippy::disallowed_methods, reason = "it wakes its own thread")]
    fn drop(&mut self) {
        self.state.stopping.store(true, Ordering::Relaxed);
        // The thread that accepts looks at the mark when somebody comes.
        drop(TcpStream::connect(self.address));
    }
}

impl State {
    fn serve(&self, mut stream: TcpStream) {
        drop(stream.set_read_timeout(Some(PATIENCE)));
        drop(stream.set_nodelay(true));
        let Some(head) = read_head(&mut stream) else { return };
        let path = head.path.split('?').next().unwrap_or_default().to_owned();
        if path == GATE {
            self.asked.lock().push(head.query("tenant").to_owned());
            let (status, body) = self.gate.lock().clone();
            answer(&mut stream, status, "application/json", &body);
            return;
        }
        match path.strip_prefix(ROOT).map(str::to_owned) {
            Some(below) => self.webhook(stream, head, &below),
            None => {
                self.complain(format!("there is nothing at {path}"));
                answer(&mut stream, 404, "application/json", &standard(404));
            }
        }
    }

    fn complain(&self, what: String) {
        self.complaints.lock().push(what);
    }

    fn webhook(&self, mut stream: TcpStream, mut head: Request, path: &str) {
        let unix = i64::try_from(since_1970().as_secs()).unwrap_or(i64::MAX);
        let refusal = checks::head(&self.agreement, &head, path, unix);
        let reply = match &refusal {
            None => self.replies.lock().pop_front().unwrap_or(Reply::Empty(200)),
            Some((status, _)) => Reply::Standard(*status),
        };
        let index = {
            let mut calls = self.calls.lock();
            calls.push(Call {
                path: path.to_owned(),
                headers: head.headers.clone(),
                body: Value::Null,
                unix,
                begun: Instant::now(),
                status: 0,
            });
            calls.len() - 1
        };
        if let Some((_, problem)) = refusal {
            self.complain(problem);
        }
        if reply == Reply::Reset {
            // What was not read when the socket is closed makes it a reset.
            return;
        }
        let _ = read_body(&mut stream, &mut head);
        let json: Value = serde_json::from_slice(&head.body).unwrap_or_default();
        let account = json["account_id"].as_str().map(str::to_owned);
        self.calls.lock()[index].body = json;
        let tenant = head.header("x-pca-tenant").unwrap_or_default();
        let key = account.map(|account| (tenant.to_owned(), account));
        let too_soon = key.as_ref().is_some_and(|key| self.begin(key));
        let reply = if too_soon { Reply::Standard(409) } else { reply };
        let status = respond(&mut stream, &head, reply);
        self.calls.lock()[index].status = status;
        if let Some(key) = key {
            self.end(&key);
        }
    }

    /// Notes that a call for an account begins; true when it comes too soon.
    fn begin(&self, key: &(String, String)) -> bool {
        let mut accounts = self.accounts.lock();
        let account = accounts.entry(key.clone()).or_default();
        account.under_way += 1;
        let busy = account.under_way > 1;
        let since = account.ended.map(|ended| ended.elapsed());
        let early = since.is_some_and(|since| since + HEARD_BEFORE < self.agreement.gap);
        if busy || early {
            self.complain(format!("{}/{} was touched again too soon: {since:?}", key.0, key.1));
        }
        busy || early
    }

    fn end(&self, key: &(String, String)) {
        if let Some(account) = self.accounts.lock().get_mut(key) {
            account.under_way -= 1;
            account.ended = Some(Instant::now());
        }
    }
}

/// The Hub's standard error.
pub fn standard(status: u16) -> String {
    let code = format!("E{status}");
    json!({"status": status, "code": code, "message": "the Hub says no", "domain": "pcaidwebhooks",
        "trace": format!("trace-of-{status}")})
    .to_string()
}

fn respond(stream: &mut TcpStream, head: &Request, reply: Reply) -> u16 {
    let (status, media_type, body) = match reply {
        Reply::Empty(status) => (status, "application/json", String::new()),
        Reply::Standard(status) => (status, "application/json", standard(status)),
        Reply::Html(status) => {
            (status, "text/html", format!("<html><h1>{status}</h1>\nnot the Hub</html>"))
        }
        Reply::Echo(status) => (status, "text/html", format!("<pre>{:?}</pre>", head.headers)),
        Reply::Long(status) => (status, "text/html", "<p>Hub".repeat(20_000)[..100_000].to_owned()),
        Reply::Slow(wait) => {
            thread::sleep(wait);
            (200, "application/json", String::new())
        }
        Reply::Reset => return 0,
    };
    answer(stream, status, media_type, &body);
    status
}

/// Answers and closes. A caller that has gone is no concern of ours.
fn answer(stream: &mut TcpStream, status: u16, media_type: &str, body: &str) {
    let answer = Answer::from(status).header("Content-Type", media_type).body(body);
    drop(stream.write_all(&answer.bytes()));
    drop(stream.flush());
    drop(stream.shutdown(std::net::Shutdown::Write));
}
