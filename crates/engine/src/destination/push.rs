//! Messages to a channel of Web Push: a message goes into an agent's mailbox, or to the push service of its browser.
//!
//! Endpoints of this server are here; those of other services are in [`service`]. Both have the same envelope and the
//! same knobs.
//!
//! A delivery to a channel is a delivery like any other: the same scheduler, lanes, budget and
//! history. Only its attempt is another: there is no request, but a [`PushMessage`] that is kept
//! durably for the agent. `delivered` means that it is in the mailbox, where it stays until the agent
//! acknowledges it or its TTL is over.
//!
//! What it must not know: sockets, nodes, how a mailbox is stored. That is behind [`PushDelivery`].

mod message;
pub(crate) mod service;
mod services;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use http::{HeaderMap, HeaderName, HeaderValue};
use posthorn_domain::policy::{Auth, Policy, PolicyError, StatusSet};
use posthorn_domain::{
    Answer, AttemptOutcome, Destination as Stored, FailureCode, PUSH_BODY_BYTES_MAX,
    PUSH_TTL_SECONDS_MAX, PushMessage, PushTarget, PushTopicRule, PushUrgency, SecretName, Span,
    TenantId,
};
use posthorn_sealing::endpoint_token::Endpoint;
use posthorn_sealing::p256::PublicKey;
use posthorn_sealing::vapid::hash_key;
use posthorn_sealing::web_push::{Receiver, ReceiverError};
use tracing::warn;

use super::{Attempting, Destination, Opened};
use crate::attempt::{Context, Ended, Job, failed, is_overtaken};
use crate::catalog::SubscriptionView;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::hold;
use crate::preview::RequestPreview;
use crate::request::{AttemptLookup, EventLookup};
use crate::subscriptions::SecretInput;
use crate::transport::UrlProblem;
use message::message;

pub use services::{Contact, ContactError, PushOptions, ServiceRule, ServiceRuleError};

/// What a kept message is answered with in the history of attempts.
const KEPT_STATUS: u16 = 201;
/// What stands there when the agent or its channel no longer exists.
const GONE_STATUS: u16 = 410;
/// Under which name a subscription keeps the agent's `auth`.
const AUTH_SECRET: &str = "push.auth";
/// Under which name it keeps the URL of an endpoint of another service.
const ENDPOINT_SECRET: &str = "push.endpoint";
/// And under which the private key that such an endpoint was made for.
const KEY_SECRET: &str = "push.key";
/// Why a subscriber gives no secrets: nothing else signs a message, so that one can only be a mistake.
const NO_SECRETS: &str = "a push destination has no secrets other than its keys";

/// An endpoint on its way to being opened.
pub type Opening = Pin<Box<dyn Future<Output = Result<Endpoint, PushProblem>> + Send>>;
/// A channel being looked up.
pub type Looking = Pin<Box<dyn Future<Output = Result<(), PushProblem>> + Send>>;
/// A message on its way to a mailbox.
pub type Delivering = Pin<Box<dyn Future<Output = PushOutcome> + Send>>;

/// The mailboxes of agents.
pub trait PushDelivery: Send + Sync + 'static {
    /// How much a message may be.
    fn limits(&self) -> PushLimits;

    /// What an endpoint's URL stands for, when it is one of ours, whoever is registered.
    fn open(&self, endpoint: &str) -> Opening;

    /// Whether its agent and channel are registered at this moment.
    fn look_up(&self, endpoint: Endpoint) -> Looking;

    /// Keeps a message durably in its agent's mailbox, also when the agent is connected right now.
    /// The same message once more is kept once. Dropping the future gives up; the message may be
    /// kept all the same.
    fn deliver(&self, message: PushMessage) -> Delivering;
}

/// How much a message may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PushLimits {
    /// The largest body in bytes.
    pub body_bytes_max: usize,
    /// For how many seconds a message is kept at most.
    pub ttl_max: u32,
}

impl Default for PushLimits {
    fn default() -> Self {
        Self { body_bytes_max: PUSH_BODY_BYTES_MAX, ttl_max: PUSH_TTL_SECONDS_MAX }
    }
}

/// Why an endpoint cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PushProblem {
    /// It is not of this server.
    NotOurs,
    /// It is of this server by its beginning, but was altered.
    Altered,
    /// Its agent or channel does not exist any more.
    Gone,
    /// Nobody can tell at the moment; why, for the operator.
    Unavailable(String),
}

/// What became of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PushOutcome {
    /// It is in the mailbox, or was.
    Kept,
    /// The agent or the channel does not exist any more.
    Gone,
    /// It may or may not be kept; why, for the operator.
    Unavailable(String),
}

/// Why a push destination is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushRefusal {
    /// There are no agents here, and no other service may be sent to.
    #[error(
        "push is not enabled on this server; operators enable it with push.enabled, or allow other \
         push services with push.services"
    )]
    NotEnabled,
    /// Nearly an endpoint of ours.
    #[error("the endpoint begins like one of this server, but is none; it was altered")]
    Altered,
    /// The agent or its channel does not exist any more.
    #[error("the agent has unsubscribed or was removed; subscribe again in the browser")]
    Gone,
    /// The endpoint belongs to another sender.
    #[error(
        "the endpoint was created for another application server key; subscribe with the key of \
         GET /v1/push/key"
    )]
    OtherKey,
    /// Not a public key at all.
    #[error("must be the base64url of an uncompressed P-256 point of 65 bytes")]
    ApplicationKey,
    /// The agent's keys are not keys.
    #[error(transparent)]
    Keys(#[from] ReceiverError),
    /// An endpoint of another service without keys.
    #[error(
        "an endpoint of another push service needs keys: browsers read encrypted messages only"
    )]
    KeysMissing,
    /// A service that the operator has not allowed.
    #[error(
        "{host} is not a push service that this server sends to; operators allow services with \
         push.services"
    )]
    ServiceNotAllowed {
        /// Its host.
        host: String,
    },
    /// Nobody answers for what this server sends.
    #[error(
        "push services ask whom to write to, and this server does not say; operators set \
         push.contact"
    )]
    NoContact,
    /// Plain HTTP.
    #[error("the endpoint of another push service must begin with https://")]
    Plain,
    /// The guard has something against the endpoint.
    #[error("the endpoint is not allowed: {0}")]
    Url(UrlProblem),
    /// A TTL that cannot be.
    #[error("must be 1s to {max}")]
    Ttl {
        /// The longest.
        max: Span,
    },
}

/// A channel to deliver to, as a browser describes it.
#[derive(Clone, Default)]
pub struct PushInput {
    /// The endpoint's URL.
    pub endpoint: String,
    /// The agent's keys. Without them messages are not encrypted.
    pub keys: Option<PushKeys>,
    /// For how many seconds a message waits for the agent; as long as possible when absent.
    pub ttl: Option<u32>,
    /// How urgent messages are.
    pub urgency: PushUrgency,
    /// Which topic messages have; none when absent.
    pub topic: Option<PushTopicRule>,
    /// Which of the tenant's public keys the endpoint was made for; the present one when absent. Only endpoints of
    /// other services need it: what ours were made for stands in them.
    pub application_server_key: Option<String>,
}

impl fmt::Debug for PushInput {
    // Whoever has the URL of an endpoint may be able to send to it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushInput").field("ttl", &self.ttl).finish_non_exhaustive()
    }
}

/// What a message is encrypted with.
#[derive(Clone)]
pub struct PushKeys {
    /// The agent's public key.
    pub p256dh: String,
    /// The secret it shares with its senders.
    pub auth: String,
}

/// A secret's name of ours.
fn named(name: &str) -> SecretName {
    SecretName::new(name).expect("a valid name")
}

fn auth_text(receiver: &Receiver) -> String {
    String::from_utf8_lossy(receiver.auth_text().expose()).into_owned()
}

/// Refuses what can only mean that somebody expects a webhook.
fn check_no_certificate(policy: &Policy) -> Result<()> {
    if policy.auth.iter().any(|auth| matches!(auth, Auth::ClientCertificate(_))) {
        let problem = "a push destination cannot use a client certificate".to_owned();
        return Err(PolicyError { path: "auth".to_owned(), problem }.into());
    }
    Ok(())
}

/// A time to live in seconds, when it is one.
fn checked_ttl(given: Option<u32>, usual: u32, max: u32) -> Result<u32> {
    let ttl = given.unwrap_or(usual);
    match (1..=max).contains(&ttl) {
        true => Ok(ttl),
        false => Err(PushRefusal::Ttl { max: Span::from_secs(max.into()) }.into()),
    }
}

/// A channel of an agent that gets messages.
pub(crate) struct Push(pub(crate) PushTarget);

impl Destination for Push {
    fn attempt<'a>(&'a self, around: &'a Context, job: &'a Job) -> Attempting<'a> {
        Box::pin(async move { put(around, job, &self.0).await.into() })
    }

    fn preview(&self, around: &Context, job: &Job) -> Result<RequestPreview, Ended> {
        let event = EventLookup::new(&job.work.event);
        let now = around.clock.now();
        let values = AttemptLookup::new(&job.view, &job.policy, &job.work, &event, now);
        let (_, message) = made(around, &self.0, &values)?;
        let body_bytes = message.body.as_ref().map_or(0, bytes::Bytes::len);
        Ok(RequestPreview::of_message(&self.headers(&message), None, body_bytes))
    }

    /// The rest of a policy that concerns requests has no effect here.
    fn check_policy(&self, _engine: &Engine, policy: &Policy) -> Result<()> {
        check_no_certificate(policy)
    }

    fn kind(&self) -> &'static str {
        "push"
    }

    /// Kept is success and gone is not, whatever the policy's `success` says of HTTP. Otherwise a
    /// message that is kept would be stored anew until the budget is spent.
    fn takes(&self, policy: &Policy) -> bool {
        policy.success.contains(KEPT_STATUS) && !policy.success.contains(GONE_STATUS)
    }

    fn fit(&self, policy: &Policy) -> Policy {
        Policy { success: StatusSet::of(&[KEPT_STATUS]), ..policy.clone() }
    }

    fn takes_no_secrets(&self) -> Option<&'static str> {
        Some(NO_SECRETS)
    }

    fn own_secrets(&self) -> &'static [&'static str] {
        &[AUTH_SECRET]
    }
}

impl Push {
    /// What a push service elsewhere would be told of a message in headers.
    fn headers(&self, message: &PushMessage) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let mut set = |name: &'static str, text: &str| {
            if let Ok(value) = HeaderValue::from_str(text) {
                headers.insert(HeaderName::from_static(name), value);
            }
        };
        if let Some(known) = &message.headers {
            set("content-encoding", known.encoding.as_str());
        }
        set("ttl", &message.ttl.to_string());
        set("urgency", self.0.urgency.as_str());
        if let Some(topic) = &message.topic {
            set("topic", topic.as_str());
        }
        headers
    }
}

/// The message of an attempt, and where it goes. `Err` says how the attempt fails without it.
fn made<'a>(
    around: &'a Context,
    target: &PushTarget,
    values: &AttemptLookup<'_>,
) -> Result<(&'a Arc<dyn PushDelivery>, PushMessage), Ended> {
    let Some(mailboxes) = &around.push else {
        let detail = "push is not enabled on this node (push.enabled)";
        return Err(failed(FailureCode::PushUnavailable, detail.to_owned()));
    };
    let message = message(values, target, mailboxes.limits());
    Ok((mailboxes, message.map_err(|problem| failed(problem.code, problem.detail))?))
}

/// Puts a message into an agent's mailbox. Gates, tokens and whatever else makes a request play no
/// part.
async fn put(around: &Context, job: &Job, target: &PushTarget) -> Ended {
    let Job { work, view, policy, .. } = job;
    let now = around.clock.now();
    let event = EventLookup::new(&work.event);
    let values = AttemptLookup::new(view, policy, work, &event, now);
    let (mailboxes, message) = match made(around, target, &values) {
        Ok(made) => made,
        Err(unsent) => return unsent,
    };
    if is_overtaken(around, job) {
        return Ended::Overtaken;
    }
    // Mailboxes are no way out to the network, and what lies in one is sent to its agent all the same.
    if around.hold.is_on() {
        return Ended::Outcome(hold::refusal());
    }
    around.log.before(job, &values);
    let total = policy.limits.total;
    let put = tokio::time::timeout(total.to_duration(), mailboxes.deliver(message)).await;
    let unavailable =
        |detail| AttemptOutcome::Failed { code: FailureCode::PushUnavailable, detail };
    let outcome = match put {
        Ok(PushOutcome::Kept) => answered(KEPT_STATUS),
        Ok(PushOutcome::Gone) => answered(GONE_STATUS),
        Ok(PushOutcome::Unavailable(detail)) => unavailable(detail),
        Err(_) => unavailable(format!("the mailbox did not answer within {total}")),
    };
    around.log.failure(job, &values, &outcome);
    Ended::Outcome(outcome)
}

/// An answer without a word.
fn answered(status: u16) -> AttemptOutcome {
    let body = bytes::Bytes::new();
    AttemptOutcome::Answered(Answer { status, retry_after: None, content_type: None, body })
}

impl Engine {
    /// The public key for which browsers make endpoints that this tenant's events may be delivered to
    /// (`applicationServerKey`), those of agents here and those of other services.
    pub fn push_key(&self, tenant: TenantId) -> Result<PublicKey> {
        self.catalog().tenant(tenant)?;
        self.check_push_enabled()?;
        let mut keys = self.inner.vault.sender_keys(tenant);
        Ok(*keys.next().expect("a vault has at least one key").public_key())
    }

    fn check_push_enabled(&self) -> Result<(), PushRefusal> {
        let around = &self.inner.around;
        match around.push.is_some() || !around.push_options.services.is_empty() {
            true => Ok(()),
            false => Err(PushRefusal::NotEnabled),
        }
    }

    /// Looks whose an endpoint is, and whether this tenant may send there. `present` is the subscription that is to
    /// be changed, if there is one.
    pub(super) async fn open_push(
        &self,
        tenant: TenantId,
        input: &PushInput,
        present: Option<&SubscriptionView>,
    ) -> Result<Opened> {
        self.check_push_enabled()?;
        let receiver = match &input.keys {
            None => None,
            Some(keys) => {
                Some(Receiver::parse(&keys.p256dh, &keys.auth).map_err(PushRefusal::Keys)?)
            }
        };
        if let Some(push) = &self.inner.around.push {
            match push.open(&input.endpoint).await {
                Ok(endpoint) => {
                    return self.open_channel(tenant, input, receiver, &**push, endpoint).await;
                }
                Err(PushProblem::NotOurs) => {}
                Err(problem) => return Err(refused(problem)),
            }
        }
        self.open_service(tenant, input, receiver, present)
    }

    /// Looks who stands behind an endpoint of this server. One that was made for a key needs one of the tenant's;
    /// one that was made for none is for everybody who knows it.
    async fn open_channel(
        &self,
        tenant: TenantId,
        input: &PushInput,
        receiver: Option<Receiver>,
        push: &dyn PushDelivery,
        endpoint: Endpoint,
    ) -> Result<Opened> {
        let max = push.limits().ttl_max;
        let ttl = checked_ttl(input.ttl, max, max)?;
        // Before anybody asks whether it exists: that is not for those it was not made for.
        if let Some(made_for) = endpoint.key {
            let mut keys = self.inner.vault.sender_keys(tenant);
            if !keys.any(|key| hash_key(key.public_key().as_bytes()) == made_for) {
                return Err(PushRefusal::OtherKey.into());
            }
        }
        if let Some(given) = &input.application_server_key {
            let given = PublicKey::parse(given).map_err(|_| PushRefusal::ApplicationKey)?;
            if endpoint.key.is_some_and(|made_for| hash_key(given.as_bytes()) != made_for) {
                return Err(PushRefusal::OtherKey.into());
            }
        }
        push.look_up(endpoint).await.map_err(refused)?;
        let target = PushTarget {
            agent: endpoint.agent,
            channel: endpoint.channel,
            p256dh: receiver.as_ref().map(|receiver| receiver.key().to_text().into()),
            ttl,
            urgency: input.urgency,
            topic: input.topic.clone(),
        };
        let auth = receiver.as_ref().map(auth_text);
        let auth = auth.map(|value| SecretInput { name: named(AUTH_SECRET), value });
        Ok(Opened { stored: Stored::Push(target), secrets: auth.into_iter().collect() })
    }
}

fn refused(problem: PushProblem) -> Error {
    match problem {
        PushProblem::NotOurs | PushProblem::Altered => PushRefusal::Altered.into(),
        PushProblem::Gone => PushRefusal::Gone.into(),
        PushProblem::Unavailable(problem) => {
            warn!(problem, "an endpoint could not be looked up");
            Error::Busy("the endpoint cannot be looked up")
        }
    }
}
