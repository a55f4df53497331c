//! The engine: what happens to an event between the publisher's 2xx and the receiver's.
//!
//! # Theory of operation
//! ```text
//! publish ─▶ intake ── one durable transaction ──▶ 2xx
//!                │ hand-over in memory, no re-read
//!                ▼
//!           scheduler ─▶ attempts ─▶ transport ─▶ receiver
//!                ▲           │
//!                └─ recorder ◀┘   outcomes, batched into the next commit
//! ```
//! * `intake` groups publishes, matches them with the [`catalog`] and commits both at once.
//! * `scheduler` is one task that owns everything about deliveries that are due soon: the bounded
//!   window, fairness, breakers, pace. It alone decides what is attempted.
//! * `attempt` asks the gate, fetches a token from `tokens` where one is needed, builds the request and
//!   sends it.
//! * `rehearsal` makes one such request outside of any delivery, for tests and before a receiver is
//!   written down.
//! * `filter_test` says whether a filter would match an event, without either being kept.
//! * `recorder` writes outcomes in batches and gives the answers back to the scheduler; `rollups` counts what
//!   happened, for pictures, and is written with them.
//! * `membership` keeps the leases on shards, and the catalog fresh; what it cannot renew in time,
//!   the scheduler stops using by itself.
//! * `nodes` keeps what the last heartbeat said of all of them, for people.
//! * [`admission`] says who may publish right now, from what intake and recorder tell it.
//! * `maintenance` sweeps, prunes and advances redrives; `job_rounds` has jobs take turns beside it.
//! * `told` plans operational events, which are stored with what causes them; `watch` notices what no
//!   transaction causes.
//! * `waiting` says why a delivery has not been attempted yet, `timeline` what happened to it before,
//!   `preview` what would be sent, `standing` how a subscription does.
//! * `sessions` opens and ends sessions of pages, and says whose session a token opens.
//! * `kept_answers` has a repeated request done once, and answered the same.
//! * `tail` tells whoever listens what happens, as it happens; `trace` tells whoever records traces.
//! * [`Courier`] makes the same attempts for events that no store keeps.
//!
//! # What it must not know
//! No routes, no HTML, no SQL. Time comes from a [`Clock`](posthorn_domain::Clock) and tokio's
//! timer, chance from a seeded generator, the network from a [`Transport`]: the simulator brings its
//! own of all three, and the same code runs.
//!
//! # Where to start
//! [`Engine`] is the handle; [`Engine::start`] wires the services together.

pub mod admission;
mod attempt;
mod audit;
mod bulk;
pub mod catalog;
mod certificates;
mod chance;
mod clients;
mod courier;
mod destination;
mod endpoint;
mod engine;
mod error;
mod event_types;
mod explain;
mod expunge;
mod failure_log;
mod filter_test;
mod hold;
mod in_flight;
mod intake;
mod job_rounds;
mod jobs;
mod kept_answers;
mod keys;
mod maintenance;
mod matching;
mod membership;
pub mod metrics;
mod nodes;
mod operator;
mod options;
mod outcomes;
pub mod plant;
pub mod policy_log;
mod preview;
mod profiles;
mod quotas;
mod recorder;
mod redriver;
mod rehearsal;
mod replays;
mod request;
mod rollups;
mod scheduler;
mod seal;
mod seldom;
mod sessions;
mod standing;
mod subscriptions;
mod tail;
mod tenants;
mod timeline;
mod tokens;
mod told;
mod trace;
pub mod transport;
mod trials;
mod waiting;
mod wakes;
mod watch;

pub use admission::{Admission, AdmissionOptions, Refused};
pub use audit::{Acting, view as audit_view};
pub use bulk::NewBulk;
pub use catalog::{
    CertificateView, ClientView, Holdings, KnownKey, Profile, SubscriptionView, TenantFilter,
    TypeFilter, VerificationKey,
};
pub use certificates::{CertificateContents, CertificateState, NewCertificate};
pub use chance::Chance;
pub use clients::ClientChange;
pub use courier::{Courier, CourierParts};
pub use destination::DestinationInput;
pub use destination::handshake::HandshakeRefusal;
pub use destination::push::{
    Contact, ContactError, Delivering, Looking, Opening, PushDelivery, PushInput, PushKeys,
    PushLimits, PushOptions, PushOutcome, PushProblem, PushRefusal, ServiceRule, ServiceRuleError,
};
pub use endpoint::Endpoint;
pub use engine::{Engine, Health, Parts, PublishCheck};
pub use error::{Error, Result};
pub use event_types::{Import, Imported, RealmContents};
pub use explain::{EventExplanation, NotDelivered};
pub use expunge::{Expunge, NewExpunge};
pub use failure_log::FailureNames;
pub use filter_test::{FilterOutcome, TestedEvent, TestedFilter};
pub use intake::{Publish, Published};
pub use kept_answers::{ANSWER_KEPT, ANSWER_LEASE, Once, Turn};
pub use keys::{Bound, NewKey, Principal};
pub use nodes::KnownNode;
pub use options::{Options, WebhookOrigin};
pub use outcomes::{EndedDelivery, OutcomeStream};
pub use policy_log::PolicyLogOptions;
pub use posthorn_sealing::jwk::{Jwk, JwkSet};
pub use posthorn_sealing::standard_webhooks::SecretKind;
pub use preview::{Preview, RequestPreview};
pub use quotas::Quotas;
pub use rehearsal::Rehearsal;
pub use replays::{JOB_PER_SECOND_MAX, NewReplay, ReplayCount, Terms};
pub use scheduler::{BreakerState, LiveState, Snapshot, SubscriptionState};
pub use seal::Resealed;
pub use sessions::{NewPortalLink, NewSession};
pub use standing::{BlockedLane, LastHour, Standing};
pub use subscriptions::{
    Beginning, NewSubscription, Rotation, RotationBounds, SecretInput, Start, SubscriptionChange,
};
pub use tail::{Heard, Tail, TailCursor, TailItem};
pub use tenants::NewTenant;
pub use timeline::Timeline;
pub use trace::{Server, TraceSpan, TraceStep, Tracer};
pub use transport::{EgressTransport, Outbound, Transport, UrlProblem};
