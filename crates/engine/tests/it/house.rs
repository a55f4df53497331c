//! What the tests stand on: a clock that is tokio's, receivers that do as they are told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use posthorn_conformance::model::ModelStore;
use posthorn_domain::{
    Answer, AttemptOutcome, CatalogVersion, Clock, EventType, FailureCode, Labels, LaneKey, NodeId,
    Span, TenantId, Timestamp, TopicName,
};
use posthorn_engine::{
    Engine, NewSubscription, Options, Outbound, Parts, Publish, SubscriptionView, Transport,
    UrlProblem,
    transport::{Sending, Sent},
};
use posthorn_sealing::vault::{Vault, VaultKey};
use posthorn_store::{Heartbeat, ShardHolder, Store};
use posthorn_testkit::clock::VirtualClock;

/// One request as a receiver saw it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) url: String,
    /// Path and query, where they are not those of the URL.
    pub(crate) path: Option<String>,
    pub(crate) method: http::Method,
    pub(crate) body: Bytes,
    pub(crate) headers: http::HeaderMap,
    /// How long it may take in all.
    pub(crate) total: Span,
    pub(crate) at: Timestamp,
}

type Script = Box<dyn Fn(usize, &Seen) -> (Duration, AttemptOutcome) + Send + Sync>;

/// Receivers that do as they are told, by URL.
pub(crate) struct Receivers {
    clock: Arc<dyn Clock>,
    scripts: Mutex<BTreeMap<String, Script>>,
    /// What URLs say in the headers of an answer to OPTIONS.
    pub(crate) heads: Mutex<BTreeMap<String, http::HeaderMap>>,
    pub(crate) seen: Mutex<Vec<Seen>>,
}

pub(crate) fn answered(status: u16) -> AttemptOutcome {
    AttemptOutcome::Answered(Answer {
        status,
        retry_after: None,
        content_type: None,
        body: Bytes::new(),
    })
}

pub(crate) fn refused() -> AttemptOutcome {
    AttemptOutcome::Failed { code: FailureCode::ConnectFailed, detail: "refused".to_owned() }
}

impl Receivers {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self {
            clock,
            scripts: Mutex::default(),
            heads: Mutex::default(),
            seen: Mutex::default(),
        })
    }

    /// Says what a URL answers to its nth request (from 0).
    pub(crate) fn script(
        &self,
        url: &str,
        script: impl Fn(usize, &Seen) -> (Duration, AttemptOutcome) + Send + Sync + 'static,
    ) {
        self.scripts.lock().insert(url.to_owned(), Box::new(script));
    }

    pub(crate) fn of(&self, url: &str) -> Vec<Seen> {
        self.seen.lock().iter().filter(|seen| seen.url == url).cloned().collect()
    }

    pub(crate) fn bodies(&self, url: &str) -> Vec<String> {
        self.of(url).iter().map(|s| String::from_utf8_lossy(&s.body).into_owned()).collect()
    }
}

impl Transport for Receivers {
    fn check_url(&self, url: &str) -> Result<String, UrlProblem> {
        if url.contains("10.0.0.") {
            return Err(UrlProblem { code: "address_not_allowed", message: "private".to_owned() });
        }
        Ok(url.to_owned())
    }

    fn send(&self, request: Outbound) -> Sending {
        let seen = Seen {
            url: request.endpoint.url.clone(),
            path: request.path_and_query,
            method: request.method,
            body: request.body,
            headers: request.headers,
            total: request.deadlines.total.into(),
            at: self.clock.now(),
        };
        let nth = self.seen.lock().iter().filter(|s| s.url == seen.url).count();
        let (wait, outcome) = match self.scripts.lock().get(&seen.url) {
            Some(script) => script(nth, &seen),
            None => (Duration::from_millis(5), answered(204)),
        };
        let asked = seen.method == http::Method::OPTIONS;
        let head = asked.then(|| self.heads.lock().get(&seen.url).cloned()).flatten();
        self.seen.lock().push(seen);
        Box::pin(async move {
            tokio::time::sleep(wait).await;
            Sent { headers: head.map(Box::new), ..Sent::from(outcome) }
        })
    }
}

/// A store, receivers, and engines on them.
pub(crate) struct House {
    pub(crate) clock: Arc<VirtualClock>,
    pub(crate) store: ModelStore,
    pub(crate) receivers: Arc<Receivers>,
    pub(crate) vault: Arc<Vault>,
}

pub(crate) const TENANT: TenantId = TenantId::DEFAULT;

impl House {
    pub(crate) fn new() -> Self {
        let clock = VirtualClock::start();
        Self {
            store: ModelStore::new(clock.clone()),
            receivers: Receivers::new(clock.clone()),
            vault: Arc::new(Vault::new(vec![VaultKey::generate()]).expect("one key")),
            clock,
        }
    }

    /// One with an engine and the topic of the tests.
    pub(crate) async fn open() -> (Self, Engine) {
        let house = Self::new();
        let engine = house.engine(1).await;
        topic(&engine).await;
        (house, engine)
    }

    pub(crate) async fn engine(&self, seed: u8) -> Engine {
        self.engine_with(seed, Options::default()).await
    }

    /// An engine on another clock than the house's.
    pub(crate) async fn engine_on(&self, clock: Arc<dyn Clock>, seed: u8) -> Engine {
        self.engine_of(clock, seed, Options::default()).await
    }

    pub(crate) async fn engine_with(&self, seed: u8, options: Options) -> Engine {
        self.engine_of(self.clock.clone(), seed, options).await
    }

    async fn engine_of(&self, clock: Arc<dyn Clock>, seed: u8, options: Options) -> Engine {
        let parts = Parts {
            store: Arc::new(self.store.peer()),
            transport: self.receivers.clone(),
            push: None,
            vault: Arc::clone(&self.vault),
            clock,
            seed: [seed; 32],
            tracer: None,
            options,
        };
        Engine::start(parts).await.expect("the engine starts")
    }

    /// Who holds which shard. Asked by somebody who is not there a moment later.
    pub(crate) async fn holders(&self) -> Vec<ShardHolder> {
        let node = NodeId::new(self.clock.now(), u128::MAX);
        let (ttl, catalog) = (Duration::from_millis(1), CatalogVersion(u64::MAX));
        let beat = Heartbeat { node, ttl, catalog, version: "0" };
        self.store.heartbeat(beat).await.expect("answers").holders
    }

    pub(crate) async fn counts(&self) -> posthorn_store::Counts {
        self.store.counts(None).await.expect("the model answers")
    }
}

pub(crate) fn publish(payload: &str, key: Option<&str>) -> Publish {
    Publish {
        topic: TopicName::new("orders").expect("a name"),
        event_type: EventType::new("order.created").expect("a type"),
        attributes: BTreeMap::new(),
        key: key.map(|k| LaneKey::new(k).expect("a key")),
        content_type: "application/json".to_owned(),
        payload: Bytes::from(payload.to_owned()),
        idempotency: None,
        publisher_id: None,
        deliver_at: None,
        retention: None,
        trace: None,
    }
}

pub(crate) async fn topic(engine: &Engine) {
    let name = TopicName::new("orders").expect("a name");
    engine
        .put_topic(TENANT, name, String::new(), vec![], Labels::default())
        .await
        .expect("a topic");
}

pub(crate) async fn subscribe(
    engine: &Engine,
    url: &str,
    overrides: serde_json::Value,
) -> Arc<SubscriptionView> {
    let new = NewSubscription { destination: url.into(), overrides, ..NewSubscription::default() };
    engine.create_subscription(TENANT, new).await.expect("a subscription").0
}

pub(crate) async fn rest(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}
