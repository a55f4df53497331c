//! What the engine says no to, with a stable code for each reason.

use posthorn_domain::filter::FilterError;
use posthorn_domain::policy::PolicyError;
use posthorn_domain::{
    CatalogVersion, EventId, EventType, ProfileName, RealmName, SecretName, Span, SubscriptionId,
    Timestamp, TopicName,
};
use posthorn_store as store;

use crate::destination::handshake::HandshakeRefusal;
use crate::destination::push::PushRefusal;
use crate::transport::UrlProblem;

/// The result of every engine call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What the engine says no to.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no such thing, or it is another tenant's.
    #[error("{0} not found")]
    NotFound(&'static str),
    /// There is one already.
    #[error("this {0} already exists")]
    AlreadyExists(&'static str),
    /// Something else needs it.
    #[error("the {0} is in use")]
    InUse(&'static str),
    /// Nobody could manage the server without it.
    #[error(
        "no other operator key stays valid as long as this one; create one that does not expire, \
         test it, and then revoke this one"
    )]
    LastOperatorKey,
    /// It was changed meanwhile.
    #[error("the subscription was changed in the meantime; read it again")]
    Changed {
        /// What it is now.
        current: CatalogVersion,
    },
    /// The topic does not exist.
    #[error("the topic `{0}` does not exist; create it first")]
    UnknownTopic(TopicName),
    /// Only Posthorn itself publishes on this topic, and nobody changes it.
    #[error(
        "the topic `{0}` is reserved for operational events; subscribe to it, but use another topic to publish"
    )]
    TopicReserved(TopicName),
    /// The tenant of operators is Posthorn's own.
    #[error(
        "the tenant `system` is reserved for operational events; subscribe in it, but use another tenant to publish"
    )]
    TenantReserved,
    /// The profile does not exist.
    #[error("the profile `{0}` does not exist")]
    UnknownProfile(ProfileName),
    /// The policy can never work.
    #[error("the policy is not valid: {0}")]
    Policy(#[from] PolicyError),
    /// The filter is too large.
    #[error("the filter is not valid: {0}")]
    Filter(#[from] FilterError),
    /// The URL may not be used.
    #[error("the URL is not allowed: {0}")]
    Url(#[from] UrlProblem),
    /// The receiver does not want to be sent to.
    #[error(transparent)]
    Handshake(#[from] HandshakeRefusal),
    /// A push destination cannot be used.
    #[error("the push destination is refused: {0}")]
    Push(#[from] PushRefusal),
    /// A secret is missing or malformed.
    #[error("secret `{name}`: {problem}")]
    Secret {
        /// Which.
        name: String,
        /// What is wrong.
        problem: String,
    },
    /// Stored secrets would be sent to an origin that they were not given for.
    #[error("{}", secret_required(names, origin, *subscription))]
    SecretRequired {
        /// Which.
        names: Vec<SecretName>,
        /// Where to.
        origin: String,
        /// Whose, when a profile is changed that others use.
        subscription: Option<SubscriptionId>,
    },
    /// A certificate cannot be registered, or one that a policy needs is not there.
    #[error("{field}: {problem}")]
    Certificate {
        /// Which part.
        field: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// A kind of signing secret was asked for that does not fit.
    #[error("secret_kind: {0}")]
    SecretKind(String),
    /// A replaced secret should go on signing for too long.
    #[error("the overlap must be at most {max} (engine.rotation_overlap_max)")]
    Overlap {
        /// The longest allowed.
        max: Span,
    },
    /// An event's field is out of bounds.
    #[error("{field}: {problem}")]
    Event {
        /// Which.
        field: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// Part of the history that is asked for is no longer kept.
    #[error("events are kept from {from} on")]
    HistoryNotKept {
        /// From when on.
        from: Timestamp,
    },
    /// The payload is too large.
    #[error("the payload has {size} bytes; at most {limit} are allowed")]
    PayloadTooLarge {
        /// Its size.
        size: usize,
        /// The limit.
        limit: usize,
    },
    /// Finding out who wants the event costs more than an event may; nothing was done.
    #[error(
        "matching the event with all subscriptions' filters costs more than {limit} \
         (quotas.match_cost_per_event); make the payload smaller, or use fewer and simpler payload \
         conditions"
    )]
    MatchingTooCostly {
        /// What it may cost.
        limit: u64,
    },
    /// More subscriptions want the event than may; nothing was done.
    #[error("{count} subscriptions match the event; the limit is {limit} (quotas.fan_out)")]
    FanOut {
        /// How many want it.
        count: usize,
        /// How many may.
        limit: usize,
    },
    /// The tenant has as much in the catalog as it may have.
    #[error("the tenant has {has} {what}; the limit is {limit} ({key})")]
    CatalogFull {
        /// What there is too much of.
        what: &'static str,
        /// The key of the configuration.
        key: &'static str,
        /// How much there is.
        has: usize,
        /// How much there may be.
        limit: usize,
    },
    /// The tenant has as many sessions of pages as it may have.
    #[error(
        "the tenant has {has} sessions and portal links; the limit is {limit} (quotas.sessions); end \
         some, or wait until they expire"
    )]
    SessionsFull {
        /// How many there are.
        has: usize,
        /// How many there may be.
        limit: usize,
    },
    /// A text is longer than it may be.
    #[error("{field}: must be at most {max} bytes")]
    TooLong {
        /// Which.
        field: &'static str,
        /// The longest allowed.
        max: usize,
    },
    /// The idempotency key was used for other contents.
    #[error("the idempotency key was already used with different content")]
    KeyReused {
        /// The event it was used for.
        event: EventId,
    },
    /// The delivery has ended.
    #[error("the delivery has already ended")]
    Ended,
    /// An attempt of the delivery is under way.
    #[error("an attempt of the delivery is in progress")]
    NotEnded,
    /// The delivery's event is to be delivered later.
    #[error("the event is to be delivered at {until}; the delivery cannot be retried before that")]
    Scheduled {
        /// When.
        until: Timestamp,
    },
    /// The payload of the event was removed.
    #[error("the payload of the event was removed; nothing of it can be sent or tested any more")]
    Expunged,
    /// The event has deliveries that have not ended.
    #[error("deliveries of the event have not ended; wait until they have, or cancel them")]
    Unfinished,
    /// The tenant is being deleted, or was.
    #[error("the tenant is being deleted, or was deleted; nothing can be done for it any more")]
    TenantDeleted,
    /// The default tenant stays.
    #[error("the default tenant cannot be deleted")]
    DefaultTenant,
    /// Others belong to it.
    #[error("{0}")]
    NotEmpty(&'static str),
    /// The realm checks the types of events, and does not know this one.
    #[error(
        "the event type `{name}` is not in the catalogue of the realm `{realm}`, or is archived"
    )]
    UnknownType {
        /// Which.
        name: EventType,
        /// Whose catalogue.
        realm: RealmName,
    },
    /// The payload does not fit the schema of its event type.
    #[error("the payload does not fit the schema of `{name}`: at `{path}`: {problem}")]
    Payload {
        /// The event type.
        name: EventType,
        /// Where in the payload, as a JSON pointer.
        path: String,
        /// What is wrong there.
        problem: String,
    },
    /// An event type, or a document with some, cannot be used.
    #[error("{field}: {problem}")]
    Schema {
        /// Which part.
        field: String,
        /// What is wrong.
        problem: String,
    },
    /// More than the tenant may have made; nothing was done.
    #[error("{what}; try again in {wait:?}")]
    TooMany {
        /// What there is too much of.
        what: &'static str,
        /// When it may work.
        wait: std::time::Duration,
    },
    /// The engine is stopping or overloaded; nothing was done.
    #[error("the server is not available: {0}")]
    Busy(&'static str),
    /// The store could not do it.
    #[error(transparent)]
    Store(store::Error),
}

fn secret_required(names: &[SecretName], origin: &str, user: Option<SubscriptionId>) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    let names = names.join(", ");
    match user {
        None => format!(
            "stored secrets would be sent to {origin}, which they were not given for; give these \
             secrets again in this request: {names}"
        ),
        Some(user) => format!(
            "stored secrets of subscription {user} would be sent to {origin}, which they were not \
             given for ({names}); create another profile, and change the subscription to it with \
             its secrets"
        ),
    }
}

impl From<store::Error> for Error {
    fn from(error: store::Error) -> Self {
        match error {
            store::Error::Refused(store::Refusal::NotFound) => Self::NotFound("thing"),
            store::Error::Refused(store::Refusal::AlreadyExists) => Self::AlreadyExists("thing"),
            store::Error::Refused(store::Refusal::VersionMismatch { current }) => {
                Self::Changed { current }
            }
            store::Error::Refused(store::Refusal::Ended) => Self::Ended,
            store::Error::Refused(store::Refusal::NotEnded) => Self::NotEnded,
            store::Error::Refused(store::Refusal::Scheduled { until }) => Self::Scheduled { until },
            store::Error::Refused(store::Refusal::Expunged) => Self::Expunged,
            store::Error::Refused(store::Refusal::Unfinished) => Self::Unfinished,
            store::Error::Refused(store::Refusal::LastOperatorKey) => Self::LastOperatorKey,
            store::Error::Refused(store::Refusal::Stale) => {
                Self::Busy("the catalog is being changed too often; try again")
            }
            store::Error::Refused(store::Refusal::Deleted) => Self::TenantDeleted,
            store::Error::Refused(store::Refusal::NotEmpty) => Self::NotEmpty("it is not empty"),
            other => Self::Store(other),
        }
    }
}

impl Error {
    /// Names the thing in errors that came from the store without one.
    #[must_use]
    pub(crate) fn about(self, what: &'static str) -> Self {
        match self {
            Self::NotFound(_) => Self::NotFound(what),
            Self::AlreadyExists(_) => Self::AlreadyExists(what),
            other => other,
        }
    }
}

/// An error with all its causes, for one log line.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
