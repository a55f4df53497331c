//! Mailboxes that do as they are told, and engines that know them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use posthorn_domain::push::KeyHash;
use posthorn_domain::{AgentId, ChannelId, PushMessage, TenantId};
use posthorn_engine::{
    Delivering, DestinationInput, Engine, Looking, NewSubscription, Opening, Options, Parts,
    PushDelivery, PushInput, PushKeys, PushLimits, PushOutcome, PushProblem, SubscriptionView,
};
use posthorn_sealing::endpoint_token::Endpoint;
use posthorn_sealing::vault::Vault;
use posthorn_sealing::web_push::ReceiverKeys;
use serde_json::Value;

use crate::house::{House, TENANT};

type Script = Box<dyn Fn(usize) -> (Duration, PushOutcome) + Send + Sync>;

/// The mailboxes of all agents.
#[derive(Default)]
pub(crate) struct Mailboxes {
    endpoints: Mutex<BTreeMap<String, Result<Endpoint, PushProblem>>>,
    script: Mutex<Option<Script>>,
    limits: Mutex<PushLimits>,
    /// Who is not registered any more.
    forgotten: Mutex<Vec<AgentId>>,
    /// Every message that was brought, also those that were refused.
    pub(crate) brought: Mutex<Vec<PushMessage>>,
    /// What is in the mailboxes, in the order it came.
    kept: Mutex<Vec<PushMessage>>,
}

impl Mailboxes {
    pub(crate) fn put(&self, url: &str, endpoint: Result<Endpoint, PushProblem>) {
        self.endpoints.lock().insert(url.to_owned(), endpoint);
    }

    pub(crate) fn limit(&self, limits: PushLimits) {
        *self.limits.lock() = limits;
    }

    pub(crate) fn forget(&self, agent: AgentId) {
        self.forgotten.lock().push(agent);
    }

    /// Says what becomes of the nth message (from 0). What is not refused as gone is kept, whatever
    /// the answer: an unknown outcome is the worst case.
    pub(crate) fn script(
        &self,
        script: impl Fn(usize) -> (Duration, PushOutcome) + Send + Sync + 'static,
    ) {
        *self.script.lock() = Some(Box::new(script));
    }

    pub(crate) fn kept(&self) -> Vec<PushMessage> {
        self.kept.lock().clone()
    }

    /// The payloads of the envelopes in the mailboxes.
    pub(crate) fn payloads(&self) -> Vec<Value> {
        self.kept().iter().map(|message| envelope(message)["payload"].clone()).collect()
    }
}

/// What is in a message that was not encrypted.
pub(crate) fn envelope(message: &PushMessage) -> Value {
    assert_eq!(message.headers, None, "it is not encrypted");
    serde_json::from_slice(message.body.as_ref().expect("a body")).expect("JSON")
}

impl PushDelivery for Mailboxes {
    fn limits(&self) -> PushLimits {
        *self.limits.lock()
    }

    fn open(&self, endpoint: &str) -> Opening {
        let found = self.endpoints.lock().get(endpoint).cloned();
        Box::pin(std::future::ready(found.unwrap_or(Err(PushProblem::NotOurs))))
    }

    fn look_up(&self, endpoint: Endpoint) -> Looking {
        let gone = self.forgotten.lock().contains(&endpoint.agent);
        Box::pin(std::future::ready(if gone { Err(PushProblem::Gone) } else { Ok(()) }))
    }

    fn deliver(&self, message: PushMessage) -> Delivering {
        let mut brought = self.brought.lock();
        let (wait, outcome) = match &*self.script.lock() {
            Some(script) => script(brought.len()),
            None => (Duration::from_millis(5), PushOutcome::Kept),
        };
        brought.push(message.clone());
        let mut kept = self.kept.lock();
        let known = kept.iter().any(|m| (m.agent, m.id) == (message.agent, message.id));
        if outcome != PushOutcome::Gone && !known {
            kept.push(message);
        }
        Box::pin(async move {
            tokio::time::sleep(wait).await;
            outcome
        })
    }
}

/// An endpoint of some agent, for the sender with this key.
pub(crate) fn endpoint(agent: u128, key: Option<KeyHash>) -> Endpoint {
    Endpoint { agent: AgentId::from_random(agent), channel: ChannelId::from_random(agent + 1), key }
}

pub(crate) fn to(url: &str) -> PushInput {
    PushInput { endpoint: url.to_owned(), ..PushInput::default() }
}

pub(crate) fn keys_of(agent: &ReceiverKeys) -> PushKeys {
    let auth = agent.receiver().auth_text();
    PushKeys {
        p256dh: agent.receiver().key().to_text(),
        auth: auth.expose_str().expect("text").to_owned(),
    }
}

/// An engine with mailboxes, or without.
pub(crate) async fn engine_of(
    house: &House,
    push: Option<&Arc<Mailboxes>>,
    vault: Arc<Vault>,
    seed: u8,
) -> Engine {
    engine_with(house, push, vault, seed, Options::default()).await
}

pub(crate) async fn engine_with(
    house: &House,
    push: Option<&Arc<Mailboxes>>,
    vault: Arc<Vault>,
    seed: u8,
    options: Options,
) -> Engine {
    let parts = Parts {
        store: Arc::new(house.store.peer()),
        transport: house.receivers.clone(),
        push: push.map(|push| Arc::clone(push) as Arc<dyn PushDelivery>),
        vault,
        clock: house.clock.clone(),
        seed: [seed; 32],
        tracer: None,
        options,
    };
    Engine::start(parts).await.expect("the engine starts")
}

/// A house with one open endpoint, `https://push/a`, and an engine in it.
pub(crate) async fn house() -> (House, Arc<Mailboxes>, Engine) {
    let house = House::new();
    let mailboxes = Arc::new(Mailboxes::default());
    mailboxes.put("https://push/a", Ok(endpoint(1, None)));
    let engine = engine_of(&house, Some(&mailboxes), Arc::clone(&house.vault), 1).await;
    crate::house::topic(&engine).await;
    (house, mailboxes, engine)
}

pub(crate) async fn subscribe(
    engine: &Engine,
    push: PushInput,
    overrides: Value,
) -> posthorn_engine::Result<Arc<SubscriptionView>> {
    subscribe_in(engine, TENANT, push, overrides).await
}

pub(crate) async fn subscribe_in(
    engine: &Engine,
    tenant: TenantId,
    push: PushInput,
    overrides: Value,
) -> posthorn_engine::Result<Arc<SubscriptionView>> {
    let new = NewSubscription {
        destination: DestinationInput::Push(push),
        overrides,
        ..NewSubscription::default()
    };
    let (view, secret) = engine.create_subscription(tenant, new).await?;
    assert_eq!(secret, None, "nothing signs a push message");
    Ok(view)
}
