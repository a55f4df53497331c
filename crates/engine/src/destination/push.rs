//! Messages to a channel of Web Push: a message goes into an agent's mailbox.
//!
//! A delivery to a channel is a delivery like any other: the same scheduler, lanes, budget and
//! history. Only its attempt is another: there is no request, but a [`PushMessage`] that is kept
//! durably for the agent. `delivered` means that it is in the mailbox, where it stays until the agent
//! acknowledges it or its TTL is over.
//!
//! What it must not know: sockets, nodes, how a mailbox is stored. That is behind [`PushDelivery`].

mod message;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use posthorn_domain::policy::{Auth, Policy, PolicyError, StatusSet};
use posthorn_domain::{
    Answer, AttemptOutcome, Destination as Stored, FailureCode, PUSH_BODY_BYTES_MAX,
    PUSH_TTL_SECONDS_MAX, PushMessage, PushTarget, SecretName, Span, TenantId,
};
use posthorn_sealing::endpoint_token::Endpoint;
use posthorn_sealing::p256::PublicKey;
use posthorn_sealing::vapid::hash_key;
use posthorn_sealing::web_push::{Receiver, ReceiverError};
use tracing::warn;

use super::{Attempting, Destination, Opened};
use crate::attempt::{Context, Ended, Job, failed, is_overtaken};
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::request::{AttemptLookup, EventLookup};
use crate::subscriptions::SecretInput;
use message::message;

/// What a kept message is answered with in the history of attempts.
const KEPT_STATUS: u16 = 201;
/// What stands there when the agent or its channel no longer exists.
const GONE_STATUS: u16 = 410;
/// Under which name a subscription keeps the agent's `auth`.
const AUTH_SECRET: &str = "push.auth";

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
    /// It is not of this server, or was altered.
    NotOurs,
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PushRefusal {
    /// There are no agents here.
    #[error("push is not enabled on this server; operators enable it with push.enabled")]
    NotEnabled,
    /// Not an endpoint of ours.
    #[error("the endpoint does not belong to this server, or was altered")]
    NotOurs,
    /// The agent or its channel does not exist any more.
    #[error("the agent has unsubscribed or was removed; subscribe again in the browser")]
    Gone,
    /// The endpoint belongs to another sender.
    #[error(
        "the endpoint was created for another application server key; subscribe with the key of \
         GET /v1/push/key"
    )]
    OtherKey,
    /// The agent's keys are not keys.
    #[error(transparent)]
    Keys(#[from] ReceiverError),
    /// A TTL that cannot be.
    #[error("must be 1s to {max}")]
    Ttl {
        /// The longest.
        max: Span,
    },
}

/// A channel to deliver to, as a browser describes it.
#[derive(Clone)]
pub struct PushInput {
    /// The endpoint's URL.
    pub endpoint: String,
    /// The agent's keys. Without them messages are not encrypted.
    pub keys: Option<PushKeys>,
    /// For how many seconds a message waits for the agent; as long as possible when absent.
    pub ttl: Option<u32>,
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

fn auth_name() -> SecretName {
    SecretName::new(AUTH_SECRET).expect("a valid name")
}

/// A channel of an agent that gets messages.
pub(crate) struct Push(pub(crate) PushTarget);

impl Destination for Push {
    fn attempt<'a>(&'a self, around: &'a Context, job: &'a Job) -> Attempting<'a> {
        Box::pin(async move { put(around, job, &self.0).await.into() })
    }

    /// Refuses what can only mean that somebody expects HTTP. The rest of a policy that concerns
    /// requests has no effect here.
    fn check_policy(&self, _engine: &Engine, policy: &Policy) -> Result<()> {
        if policy.auth.iter().any(|auth| matches!(auth, Auth::ClientCertificate(_))) {
            let problem = "a push destination cannot use a client certificate".to_owned();
            return Err(PolicyError { path: "auth".to_owned(), problem }.into());
        }
        Ok(())
    }

    /// Kept is success and gone is not, whatever the policy's `success` says of HTTP. Otherwise a
    /// message that is kept would be stored anew until the budget is spent.
    fn fit(&self, policy: Arc<Policy>) -> Arc<Policy> {
        if policy.success.contains(KEPT_STATUS) && !policy.success.contains(GONE_STATUS) {
            return policy;
        }
        let success = StatusSet::of(&[KEPT_STATUS]);
        Arc::new(Policy { success, ..Policy::clone(&policy) })
    }

    /// Nothing signs a message to a channel, so that a secret for it can only be a mistake.
    fn takes_no_secrets(&self) -> Option<&'static str> {
        Some("a push destination has no secrets other than its keys")
    }

    fn own_secret(&self) -> Option<SecretName> {
        Some(auth_name())
    }
}

/// Puts a message into an agent's mailbox. Gates, tokens and whatever else makes a request play no
/// part.
async fn put(around: &Context, job: &Job, target: &PushTarget) -> Ended {
    let Some(mailboxes) = &around.push else {
        let detail = "push is not enabled on this node (push.enabled)";
        return failed(FailureCode::PushUnavailable, detail.to_owned());
    };
    let Job { work, view, policy, .. } = job;
    let now = around.clock.now();
    let message = match message(view, target, mailboxes.limits(), policy, work, now) {
        Ok(message) => message,
        Err(problem) => return failed(problem.code, problem.detail),
    };
    if is_overtaken(around, job) {
        return Ended::Overtaken;
    }
    let event = EventLookup::new(&work.event);
    let values = AttemptLookup::new(view, policy, work, &event, now);
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
    /// The public key for which agents make endpoints that this tenant's events may be delivered to
    /// (`applicationServerKey`).
    pub fn push_key(&self, tenant: TenantId) -> Result<PublicKey> {
        self.catalog().tenant(tenant)?;
        if self.inner.around.push.is_none() {
            return Err(PushRefusal::NotEnabled.into());
        }
        let mut keys = self.inner.vault.sender_keys(tenant);
        Ok(*keys.next().expect("a vault has at least one key").public_key())
    }

    /// Looks who stands behind an endpoint, and whether this tenant may send there. An endpoint that
    /// was made for a key needs one of the tenant's; one that was made for none is for everybody who
    /// knows it.
    pub(super) async fn open_push(&self, tenant: TenantId, input: &PushInput) -> Result<Opened> {
        let push = self.inner.around.push.as_ref().ok_or(PushRefusal::NotEnabled)?;
        let max = push.limits().ttl_max;
        let ttl = input.ttl.unwrap_or(max);
        if !(1..=max).contains(&ttl) {
            let max = Span::from_secs(max.into());
            return Err(PushRefusal::Ttl { max }.into());
        }
        let receiver = match &input.keys {
            None => None,
            Some(keys) => {
                Some(Receiver::parse(&keys.p256dh, &keys.auth).map_err(PushRefusal::Keys)?)
            }
        };
        let endpoint = push.open(&input.endpoint).await.map_err(refused)?;
        // Before anybody asks whether it exists: that is not for those it was not made for.
        if let Some(made_for) = endpoint.key {
            let mut keys = self.inner.vault.sender_keys(tenant);
            if !keys.any(|key| hash_key(key.public_key().as_bytes()) == made_for) {
                return Err(PushRefusal::OtherKey.into());
            }
        }
        push.look_up(endpoint).await.map_err(refused)?;
        let target = PushTarget {
            agent: endpoint.agent,
            channel: endpoint.channel,
            p256dh: receiver.as_ref().map(|receiver| receiver.key().to_text().into()),
            ttl,
        };
        let text = |receiver: &Receiver| {
            String::from_utf8_lossy(receiver.auth_text().expose()).into_owned()
        };
        let auth = receiver.as_ref().map(text);
        let auth = auth.map(|value| SecretInput { name: auth_name(), value });
        Ok(Opened { stored: Stored::Push(target), secrets: auth.into_iter().collect() })
    }
}

fn refused(problem: PushProblem) -> Error {
    match problem {
        PushProblem::NotOurs => PushRefusal::NotOurs.into(),
        PushProblem::Gone => PushRefusal::Gone.into(),
        PushProblem::Unavailable(problem) => {
            warn!(problem, "an endpoint could not be looked up");
            Error::Busy("the endpoint cannot be looked up")
        }
    }
}
