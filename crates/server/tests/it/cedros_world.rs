//! A payment server's world: a receiver of webhooks, and a server with a `callbacks:` block.

use posthorn_testkit::caller::{Reply, call};
use posthorn_testkit::postgres::TestPostgres;
use posthorn_testkit::program::{Home, Server};
use posthorn_testkit::receiver::{Answer, Receiver};
use posthorn_testkit::wait::eventually;
use serde_json::Value;

use crate::postgres;

pub(crate) const SECRET: &str = "a secret of more than thirty-two characters";

/// The tenant of the block when it names none.
pub(crate) const TENANT: &str = "cedros";

/// What the receiver answers: words that nobody may repeat, and a place where nobody may go.
pub(crate) fn says(status: u16) -> Answer {
    Answer::from(status).header("Location", "http://127.0.0.1:1/").body("card 4111 1111")
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

impl On {
    /// Has a server of this home keep its data there. The database lasts as long as what is answered.
    pub(crate) fn store(self, home: &Home) -> Option<TestPostgres> {
        let database = match self {
            Self::Sqlite => return None,
            Self::Postgres => postgres::database(),
        };
        home.store_in(&database.url());
        Some(database)
    }
}

impl World {
    pub(crate) fn new(on: On) -> Self {
        let home = Home::new();
        let database = on.store(&home);
        let base = home.read("posthorn.yaml");
        let receiver = Receiver::new(says(200));
        let world = Self { home, receiver, base, _database: database };
        world.callbacks("");
        world
    }

    /// Has the shards of a node that died taken over after two seconds.
    pub(crate) fn replace_dead_nodes_quickly(&mut self) {
        let quick = "engine: {drain_timeout: 2s, lease: 2s, heartbeat_interval: 200ms}";
        self.base = self.base.replace("engine: {drain_timeout: 2s}", quick);
    }

    /// Where its webhooks go.
    pub(crate) fn hook(&self) -> String {
        self.receiver.url("/webhooks/payment")
    }

    /// From now on the receiver answers with this status.
    pub(crate) fn answers(&self, status: u16) {
        self.receiver.answers(says(status));
    }

    /// Writes the block anew, with these lines besides URL and secret.
    pub(crate) fn callbacks(&self, lines: &str) {
        let block = format!(
            "callbacks:\n  payment_success_url: {}\n  hmac_secret: {SECRET}\n  headers: \
             {{Authorization: Bearer hush-hush}}\n{lines}",
            self.hook()
        );
        self.configure(&block);
    }

    /// Writes the configuration anew with this behind it.
    pub(crate) fn configure(&self, block: &str) {
        self.home.write("posthorn.yaml", format!("{}{block}", self.base));
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
    call(&server.url, method, &format!("/admin/webhooks{path}")).key(key).send()
}

/// The webhooks of a list.
#[track_caller]
pub(crate) fn listed(server: &Server, query: &str) -> Vec<Value> {
    let reply =
        admin(server, &server.key, "GET", query).has(&[("content-type", "application/json")]);
    let body = reply.expect(200);
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
