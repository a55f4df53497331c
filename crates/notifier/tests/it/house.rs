//! What the tests stand on: a virtual clock, a receiver that does as it is told, notifiers on both.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use posthorn_conformance::model::ModelStore;
use posthorn_domain::{Answer, AttemptOutcome, Clock, FailureCode, Timestamp};
use posthorn_engine::transport::Sending;
use posthorn_engine::{Engine, Options, Outbound, Parts, Transport, UrlProblem};
use posthorn_notifier::{
    CallbacksConfig, MemoryDlqStore, PaymentEvent, RetryableBuilder, RetryableNotifier,
    WebhookObservation,
};
use posthorn_sealing::vault::{Vault, VaultKey};
use posthorn_testkit::clock::VirtualClock;

/// One request as the receiver saw it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) url: String,
    pub(crate) method: http::Method,
    pub(crate) headers: http::HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) at: Timestamp,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().expect("text"))
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }
}

type Script = Box<dyn Fn(usize) -> AttemptOutcome + Send + Sync>;

/// A receiver that does as it is told.
pub(crate) struct Receiver {
    clock: Arc<VirtualClock>,
    script: Mutex<Script>,
    pub(crate) seen: Mutex<Vec<Seen>>,
}

pub(crate) fn answered(status: u16) -> AttemptOutcome {
    AttemptOutcome::Answered(Answer {
        status,
        retry_after: None,
        content_type: None,
        body: Bytes::from_static(b"card 4111 1111 1111 1111"),
    })
}

pub(crate) fn refused() -> AttemptOutcome {
    AttemptOutcome::Failed {
        code: FailureCode::ConnectFailed,
        detail: "10.1.2.3 refused".to_owned(),
    }
}

impl Receiver {
    /// Says what it answers to its nth request (from 0).
    pub(crate) fn script(&self, script: impl Fn(usize) -> AttemptOutcome + Send + Sync + 'static) {
        *self.script.lock() = Box::new(script);
    }

    pub(crate) fn all(&self) -> Vec<Seen> {
        self.seen.lock().clone()
    }

    /// Seconds after the first request at which each came.
    pub(crate) fn times(&self) -> Vec<f64> {
        let seen = self.seen.lock();
        let Some(first) = seen.first().map(|seen| seen.at) else { return Vec::new() };
        seen.iter().map(|seen| seen.at.since(first).as_millis() as f64 / 1_000.0).collect()
    }
}

impl Transport for Receiver {
    fn check_url(&self, url: &str) -> Result<String, UrlProblem> {
        Ok(url.to_owned())
    }

    fn send(&self, request: Outbound) -> Sending {
        let mut seen = self.seen.lock();
        let outcome = (self.script.lock())(seen.len());
        seen.push(Seen {
            url: request.endpoint.url.clone(),
            method: request.method,
            headers: request.headers,
            body: request.body,
            at: self.clock.now(),
        });
        Box::pin(std::future::ready(outcome.into()))
    }
}

/// The clock, the receiver, and what is written down.
pub(crate) struct House {
    pub(crate) clock: Arc<VirtualClock>,
    pub(crate) receiver: Arc<Receiver>,
    pub(crate) letters: Arc<MemoryDlqStore>,
    pub(crate) observed: Arc<Mutex<Vec<WebhookObservation>>>,
    pub(crate) store: ModelStore,
    vault: Arc<Vault>,
}

pub(crate) const URL: &str = "https://api.example.com/webhooks/payment";

/// A block with the URL of the tests and these lines.
pub(crate) fn config(lines: &str) -> CallbacksConfig {
    let yaml = format!("callbacks:\n  payment_success_url: {URL}\n{lines}");
    CallbacksConfig::from_yaml(&yaml).expect("a block")
}

pub(crate) fn payment(resource: &str) -> PaymentEvent {
    PaymentEvent {
        resource_id: resource.to_owned(),
        method: "stripe".to_owned(),
        fiat_amount_cents: 1_299,
        fiat_currency: "usd".to_owned(),
        ..PaymentEvent::default()
    }
}

impl House {
    pub(crate) fn new() -> Self {
        let clock = VirtualClock::start();
        let receiver = Arc::new(Receiver {
            clock: Arc::clone(&clock),
            script: Mutex::new(Box::new(|_| answered(200))),
            seen: Mutex::default(),
        });
        Self {
            store: ModelStore::new(clock.clone()),
            clock,
            receiver,
            letters: Arc::default(),
            observed: Arc::default(),
            vault: Arc::new(Vault::new(vec![VaultKey::generate()]).expect("a key")),
        }
    }

    pub(crate) fn observer(&self) -> impl Fn(&WebhookObservation) + Send + Sync + 'static {
        let observed = Arc::clone(&self.observed);
        move |observation| observed.lock().push(observation.clone())
    }

    pub(crate) fn builder(&self, config: CallbacksConfig) -> RetryableBuilder {
        RetryableNotifier::builder(config)
            .clock(self.clock.clone())
            .transport(self.receiver.clone())
            .dlq_store(self.letters.clone())
            .metrics(self.observer())
    }

    /// An engine on the store in memory.
    pub(crate) async fn engine(&self, seed: u8) -> Engine {
        let parts = Parts {
            store: Arc::new(self.store.peer()),
            transport: self.receiver.clone(),
            push: None,
            vault: Arc::clone(&self.vault),
            clock: self.clock.clone(),
            seed: [seed; 32],
            tracer: None,
            options: Options::default(),
        };
        Engine::start(parts).await.expect("an engine")
    }
}

pub(crate) async fn rest(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}
