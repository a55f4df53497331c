//! The words of Posthorn as types, and every decision that can be made without touching the world.
//!
//! # What it is for
//! A reader who knows this crate knows what Posthorn promises: what an [`Event`] is, how a
//! [`Filter`] chooses, when the next attempt of a [`Delivery`] is due, and which of its states may
//! follow which. All of it is plain data and pure functions of (state, input, now, dice).
//!
//! # What it must not know
//! There is no async here, no I/O, no HTTP client, no SQL, no wall clock and no global randomness.
//! Time comes in as [`Timestamp`], chance as a `u64` drawn by the caller. The serde forms of
//! [`Policy`] and [`Filter`] are the one JSON shape that config files, API and stores all share, so
//! that every knob is spelled once. Their JSON schemas come from the same types: what the comments of
//! their fields say is what the OpenAPI document says.
//!
//! # Where to start
//! [`delivery::step`] is the state machine; [`policy::Policy`] lists every knob;
//! [`policy::profiles`] holds the shipped ones.

pub mod alternatives;
mod attempt;
mod audit;
pub mod base62;
mod base64_text;
mod catalog;
mod certificate;
pub mod cloudevent;
pub mod delivery;
mod delivery_filter;
mod event;
pub mod filter;
mod footprint;
mod id;
mod job;
mod labels;
pub mod limits;
mod names;
mod operational;
pub mod plain;
pub mod policy;
mod problem;
pub mod push;
mod push_target;
mod rate;
mod realm;
mod redrive;
mod rollup;
mod schema;
mod sent_request;
mod session;
pub mod setting;
mod shard;
mod span;
mod stops;
mod template;
mod time;
pub mod timeline;
mod trace;
mod waiting;

pub use attempt::{Answer, Attempt, AttemptOutcome, FailureCode, Outcome, Timings};
pub use audit::{
    AUDIT_DETAIL_BYTES_MAX, ActionFilter, Actor, ActorKind, AuditAction, AuditEntry, AuditObject,
    Home, Origin, UnknownAction,
};
pub use catalog::{
    ApiKey, CatalogVersion, Client, Deletion, Destination, Metadata, MetadataError, Scope,
    SealedSecret, Subscription, SubscriptionStatus, Tenant, TenantChange, TenantProfile, Topic,
};
pub use certificate::{Certificate, CertificateKind, Thumbprint, ThumbprintError};
pub use delivery::{Budget, CancelReason, DeadReason, Delivery, DeliveryState, Lane};
pub use delivery_filter::{DeliveryFilter, OutcomeFilter, Period, StateKind};
pub use event::{Event, Idempotency};
pub use filter::Filter;
pub use footprint::footprint;
pub use id::{
    AuditId, CertificateId, DeliveryId, EventId, IdParseError, JobId, KeyId, NodeId, RedriveId,
    Seed, SessionId, SubscriptionId, TenantId,
};
pub use job::{Job, JobState, JobWork, ReplayStatus, Replayed, Selection};
pub use labels::{Labels, LabelsError};
pub use names::{
    ClientName, EventType, ExternalId, IdempotencyKey, LaneKey, NameError, ProfileName, ProxyName,
    RealmName, SecretName, SubscriptionName, TopicName,
};
pub use operational::{FAILING_AFTER, OPERATIONAL_TOPIC, OperationalType, SYSTEM_TENANT};
pub use policy::Policy;
pub use problem::Problem;
pub use push::{
    AgentId, ChannelId, MessageId, MessageSeq, PUSH_BODY_BYTES_MAX, PUSH_TOPIC_BYTES_MAX,
    PUSH_TTL_SECONDS_MAX, PushEncoding, PushEncodingError, PushHeaders, PushMessage, PushTopic,
    PushTopicError, StoredMessage, UuidParseError,
};
pub use push_target::{
    MadeTopic, PushServiceTarget, PushTarget, PushTopicRule, PushTopicRuleError, PushUrgency,
    PushUrgencyError,
};
pub use rate::{Bucket, Rate};
pub use realm::{
    KnownType, Realm, RealmDefaults, SchemaVersion, SchemaVersionError, Validation,
    check_feature_flags,
};
pub use redrive::{Redrive, RedriveFilter, RedriveState};
pub use rollup::{
    FailureClass, LATENCY_BOUNDS_MS, LATENCY_BUCKETS, RollupCounts, RollupScope, RollupStep,
    UnknownScope,
};
pub use sent_request::{SENT_REQUEST_BYTES_MAX, SentRequest};
pub use session::{
    Capability, Opener, SESSION_BACK_BYTES_MAX, SESSION_GROUP_BYTES_MAX, SESSION_GROUPS_MAX,
    SESSION_LABEL_BYTES_MAX, SESSION_NAME_BYTES_MAX, Session, SessionKind, UnknownName,
};
pub use shard::{Epoch, Fence, SHARD_COUNT, Shard};
pub use span::{Span, SpanParseError};
pub use stops::Stops;
pub use template::{Lookup, Template, TemplateError};
pub use time::{Clock, Timestamp};
pub use trace::{SpanId, TraceContext, TraceId};
pub use waiting::{Held, WaitReason, Waiting};
