//! The oracle: an independent account of what is true, and of what must always hold.
//!
//! # Theory of operation
//! Every effect on the store and every request to a receiver is told to the oracle at the moment it
//! happens. It keeps its own catalog, leases, lanes and deliveries, decides by itself what should
//! have come out, and reports a [`Violation`] where the store, the engine or a receiver disagrees.
//! It shares the domain's plain data types with the engine, and nothing that decides.
//!
//! * [`catalog`]: subscriptions and their versions; who must get an event.
//! * [`leases`]: who owns which shard.
//! * [`intake`]: events, idempotency keys, fan-out.
//! * [`work`]: claims, records, lanes; [`steps`]: what a record may say.
//! * [`telling`]: operational events, each with its cause.
//! * [`requests`]: what receivers see; [`messages`]: what agents do.
//! * [`profiles`]: what tenants make of profiles.
//! * [`chores`]: operators, redrives, sweeps, pruning; [`jobs`]: replays; [`expunging`]: what was removed;
//!   [`deletion`]: tenants that go with everything they have.
//! * [`ending`]: what must be true when all is over.

mod audit;
mod catalog;
mod chores;
mod deletion;
mod ending;
mod expunging;
mod intake;
mod jobs;
mod leases;
mod messages;
mod profiles;
mod requests;
mod steps;
mod telling;
#[cfg(test)]
mod tests;
mod work;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use posthorn_domain::{
    Attempt, CatalogVersion, Delivery, DeliveryId, Event, EventId, Fence, JobId, Lane, MessageId,
    Policy, ProfileName, Redrive, RedriveId, Shard, Span, SubscriptionId, TenantId, Timestamp,
    TopicName,
};
use posthorn_sealing::vault::Vault;

pub(crate) use deletion::Left;
pub(crate) use intake::PublishVerdict;
pub(crate) use messages::Message;
pub(crate) use requests::{Arrival, Seen};

/// Violations kept of one run; more say nothing new.
const VIOLATIONS_MAX: usize = 20;

/// What must always hold, by the numbers of the design.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "each is spelled out in the design document")]
pub enum Invariant {
    I1,
    I2,
    I3,
    I4,
    I5,
    I6,
    I7,
    I8,
    I9,
    I10,
    I11,
    I12,
    I13,
    I14,
    I15,
    I16,
    I17,
    I18,
    I20,
    I21,
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// Something that must never happen, and did.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Which invariant.
    pub invariant: Invariant,
    /// In which run.
    pub seed: u64,
    /// When, in virtual time.
    pub at: Timestamp,
    /// What.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} seed {} at {}: {}", self.invariant, self.seed, self.at, self.what)
    }
}

/// One delivery as it should be.
pub(super) struct Entry {
    pub(super) delivery: Delivery,
    /// A dead head that stops its lane.
    pub(super) blocks: bool,
    /// The durable lease of an attempt under way.
    claimed: Option<Fence>,
    /// When it was due before the lease was written down.
    ready_at: Timestamp,
    /// Non-late attempts, in the order they were written.
    written: Vec<Attempt>,
    /// Fresh budgets so far: retries by hand and redrives.
    budgets: u32,
    /// When somebody last changed it by hand, or brought another back that has to go before it. Until
    /// every node has heard of it, an older copy may be sent.
    handled_at: Option<Timestamp>,
    /// Somebody was told that no attempt of it starts any more.
    quiet: bool,
    /// It was brought back while a written lease said that an attempt of this one was under way.
    behind: Option<DeliveryId>,
    /// While it is parked: when it would be due if nobody had to go before it.
    held_until: Option<Timestamp>,
    /// When it enters which lane, as long as it has not.
    enters: Option<(Timestamp, Lane)>,
    /// Whether a receiver has said yes, and under which budget.
    accepted: Option<u32>,
    /// Every request for it.
    requests: Vec<usize>,
}

impl Entry {
    /// One that nothing has happened to yet.
    pub(super) fn new(delivery: Delivery, ready_at: Timestamp) -> Self {
        Self {
            delivery,
            blocks: false,
            claimed: None,
            ready_at,
            written: Vec::new(),
            budgets: 0,
            handled_at: None,
            quiet: false,
            behind: None,
            held_until: None,
            enters: None,
            accepted: None,
            requests: Vec::new(),
        }
    }
}

/// Counts for the summary.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Events committed.
    pub events: u64,
    /// Deliveries committed.
    pub deliveries: u64,
    /// Requests that reached a receiver.
    pub requests: u64,
    /// Deliveries that arrived.
    pub delivered: u64,
    /// Dead letters written.
    pub dead: u64,
    /// Writes that were fenced off.
    pub fenced: u64,
    /// Requests a receiver had accepted before.
    pub repeats: u64,
    /// Shards that changed hands.
    pub handovers: u64,
}

/// The account.
pub(crate) struct Oracle {
    seed: u64,
    pub(crate) violations: Vec<Violation>,
    pub(crate) tally: Tally,
    lease_ms: i64,
    slots: usize,
    profiles: BTreeMap<ProfileName, Arc<Policy>>,
    own_profiles: BTreeMap<(TenantId, ProfileName), profiles::Own>,
    /// Whose message it is, by the message's id.
    messages: BTreeMap<MessageId, DeliveryId>,
    vault: Arc<Vault>,
    tenants: BTreeMap<TenantId, CatalogVersion>,
    topics: BTreeSet<(TenantId, TopicName)>,
    subscriptions: BTreeMap<SubscriptionId, catalog::Known>,
    leases: BTreeMap<Shard, leases::Lease>,
    events: BTreeMap<EventId, Arc<Event>>,
    by_payload: BTreeMap<Bytes, Vec<EventId>>,
    keys: BTreeMap<(TenantId, String), intake::KnownKey>,
    deliveries: BTreeMap<DeliveryId, Entry>,
    by_event: BTreeMap<EventId, Vec<DeliveryId>>,
    lanes: BTreeMap<(SubscriptionId, Lane), BTreeSet<DeliveryId>>,
    redrives: BTreeMap<RedriveId, (Redrive, Option<DeliveryId>)>,
    jobs: BTreeMap<JobId, jobs::Known>,
    /// Deliveries that were not there when their event was accepted.
    made_by_jobs: BTreeSet<DeliveryId>,
    seq: u64,
    requests: Vec<requests::Request>,
    open: BTreeMap<SubscriptionId, Vec<usize>>,
    last_of_subscription: BTreeMap<SubscriptionId, usize>,
    last_of_lane: BTreeMap<(SubscriptionId, Lane), usize>,
    dead_lives: BTreeSet<usize>,
    /// Deliveries that were removed by hand.
    forgotten: BTreeMap<DeliveryId, chores::Forgotten>,
    pruned: BTreeSet<EventId>,
    /// Events whose payloads were removed.
    expunged: BTreeMap<EventId, expunging::Expunged>,
    /// Tenants that are being deleted, or were, and whether somebody was told so.
    closed: BTreeMap<TenantId, bool>,
    /// When something last went wrong that may explain why others are late.
    disturbed: Timestamp,
}

impl Oracle {
    pub(crate) fn new(
        seed: u64,
        lease: std::time::Duration,
        slots: usize,
        profiles: &BTreeMap<ProfileName, Policy>,
        vault: Arc<Vault>,
    ) -> Self {
        let profiles = profiles.iter().map(|(n, p)| (n.clone(), Arc::new(p.clone()))).collect();
        Self {
            seed,
            violations: Vec::new(),
            tally: Tally::default(),
            lease_ms: i64::try_from(lease.as_millis()).unwrap_or(i64::MAX),
            slots,
            profiles,
            own_profiles: BTreeMap::new(),
            messages: BTreeMap::new(),
            vault,
            tenants: BTreeMap::from([(TenantId::DEFAULT, CatalogVersion(1))]),
            topics: BTreeSet::new(),
            subscriptions: BTreeMap::new(),
            leases: BTreeMap::new(),
            events: BTreeMap::new(),
            by_payload: BTreeMap::new(),
            keys: BTreeMap::new(),
            deliveries: BTreeMap::new(),
            by_event: BTreeMap::new(),
            lanes: BTreeMap::new(),
            redrives: BTreeMap::new(),
            jobs: BTreeMap::new(),
            made_by_jobs: BTreeSet::new(),
            seq: 0,
            requests: Vec::new(),
            open: BTreeMap::new(),
            last_of_subscription: BTreeMap::new(),
            last_of_lane: BTreeMap::new(),
            dead_lives: BTreeSet::new(),
            forgotten: BTreeMap::new(),
            pruned: BTreeSet::new(),
            expunged: BTreeMap::new(),
            closed: BTreeMap::new(),
            disturbed: Timestamp::MIN,
        }
    }

    /// Writes a violation down.
    pub(crate) fn blame(&mut self, invariant: Invariant, at: Timestamp, what: String) {
        if self.violations.len() < VIOLATIONS_MAX {
            self.violations.push(Violation { invariant, seed: self.seed, at, what });
        }
    }

    /// Blames unless something holds.
    fn expect(
        &mut self,
        holds: bool,
        invariant: Invariant,
        at: Timestamp,
        what: impl FnOnce() -> String,
    ) {
        if !holds {
            self.blame(invariant, at, what());
        }
    }

    /// Something went wrong that may explain lateness.
    pub(crate) fn disturb(&mut self, at: Timestamp) {
        self.disturbed = self.disturbed.max(at);
    }

    /// A node died; what it had under way explains repeats.
    pub(crate) fn died(&mut self, life: usize, at: Timestamp) {
        self.dead_lives.insert(life);
        self.disturb(at);
    }

    /// How long after something was done by hand an older copy may be sent, if nobody was told before.
    fn hearsay(&self) -> Span {
        Span::from_millis(u64::try_from(self.lease_ms).unwrap_or(0) + 1_000)
    }

    /// The earliest due time of work that may be attempted.
    pub(crate) fn next_due(&self) -> Option<Timestamp> {
        self.deliveries.values().filter_map(|entry| self.awaits(entry)).min()
    }

    /// When something is to happen to a delivery: it may be attempted, or it enters its lane.
    fn awaits(&self, entry: &Entry) -> Option<Timestamp> {
        let known = self.subscriptions.get(&entry.delivery.subscription);
        match &entry.enters {
            Some((at, _)) if known.is_some_and(catalog::Known::is_active) => Some(*at),
            Some(_) => None,
            None => self.is_live(entry).then_some(entry.delivery.due_at),
        }
    }

    /// Unfinished, not parked, and of a subscription that takes part.
    fn is_live(&self, entry: &Entry) -> bool {
        let delivery = &entry.delivery;
        !delivery.state.is_terminal()
            && !delivery.is_parked()
            && self.subscriptions.get(&delivery.subscription).is_some_and(catalog::Known::is_active)
    }

    /// Whether any request is under way.
    pub(crate) fn is_busy(&self) -> bool {
        self.open.values().any(|open| !open.is_empty())
    }
}
