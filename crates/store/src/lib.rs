//! The storage contract: what the engine may ask of a store, in the words of the domain.
//!
//! # What it is for
//! [`Store`] is the whole contract of the delivery engine; Web Push has one of its own, [`PushStore`].
//! Their behaviour is defined by the doc comments and by the suites of `posthorn-conformance`, one for each,
//! which every implementation runs: a model in memory, SQLite and PostgreSQL. An implementation that passes
//! is a store; how it does it is its own affair.
//!
//! # Theory of operation
//! * **Durable means durable.** A write that returned `Ok` survives `kill -9` and power loss.
//! * **A batch is one transaction** unless its comment says otherwise; replies come in the order of
//!   the batch.
//! * **Order.** Each delivery gets a `seq` from one counter. Within a lane, `seq` order equals
//!   commit order, also with concurrent writers on several nodes. Only the head of a lane has a due
//!   time; those behind it are parked with [`Timestamp::MAX`](posthorn_domain::Timestamp::MAX) and
//!   are promoted in the transaction that ends the head.
//! * **Fencing.** Writes about deliveries under way carry a
//!   [`Fence`](posthorn_domain::Fence). When the shard's epoch has moved on, the write changes
//!   nothing and says so. Expiry of leases is judged by the store's clock alone.
//! * **What is told is told by its cause.** Some writes carry operational events (`told`) with their plans. They
//!   are stored by the transaction that causes them, all of them or none, and only when it changes what it was
//!   meant to. When a plan is not of its tenant's present version, nothing is changed, and the answer says so
//!   ([`Refusal::Stale`], [`Recorded::Stale`]): plan again, repeat.
//! * **A change and its line are one.** Writes that somebody asks for carry the line of the audit log ([`Along`]). It is
//!   stored by the transaction that makes the change, and only by one that changes something.
//! * **Fan-out belongs to the commit.** [`Store::accept`] refuses an event whose plan was made on
//!   another version of its tenant's catalog.
//!
//! # What it must not know
//! Which databases exist, what HTTP is, and when anything should be retried.

mod audit;
mod catalog;
mod consistency;
pub mod copy;
pub mod entry;
mod error;
mod follow;
mod intake;
mod job;
mod kept_answer;
mod lease;
pub mod push;
mod query;
mod rollup;
pub mod schema;
mod session;
mod work;

use std::time::Duration;

use async_trait::async_trait;
use posthorn_domain::delivery::Wish;
use posthorn_domain::{
    Attempt, AuditEntry, CatalogVersion, Delivery, DeliveryId, DeliveryState, Event, EventId, Job,
    JobId, KeyId, NodeId, Redrive, RedriveId, Session, SessionId, Shard, SubscriptionId, TenantId,
    Timestamp,
};

pub use audit::{Along, AuditFilter, audit_page, audit_place, knows};
pub use catalog::{CatalogChange, CatalogDelta, Recall, TenantEntry};
pub use consistency::Inconsistency;
pub use error::{Error, Refusal, Result};
pub use follow::{AttemptMade, EventLine, FollowAsk, Followed, FollowedItem, LogPlace};
pub use intake::{Accepted, NewDelivery, NewEvent, Placed};
pub use job::{Bite, Bitten, Ending, Expunges, Moves, Redelivery};
pub use kept_answer::{AnswerClaim, AnswerClaimed, AnswerKey, KEPT_BODY_BYTES_MAX, KeptAnswer};
pub use lease::{Grant, Heartbeat, LiveNode, Membership, ShardHolder, Sign};
pub use posthorn_domain::{DeliveryFilter, OutcomeFilter, Period, StateKind};
pub use push::PushStore;
pub use query::{
    AttemptFilter, AttemptLine, Counts, EventFilter, EventTally, Listing, Order, Page, Place,
    Prune, Pruned, RedrivePage,
};
pub use rollup::{
    MinuteRollup, RollupKind, Rollups, Series, SeriesAsk, Sum, Summing, Sums, SumsAsk, TendRollups,
    add_up,
};
pub use session::{EndSessions, SessionFilter, session_page, session_place};
pub use work::{
    Advanced, Claim, DueSubscription, Entered, FailingSubscription, Moved, PendingAsk, Record,
    Recorded, Standing, Streak, Swept, Work,
};

/// What the engine may ask of a store.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    // ---- catalog -------------------------------------------------------------------------------

    /// Applies one change and returns the new catalog version, which is greater than every earlier
    /// one and becomes the version of the changed tenant (operator keys belong to no tenant).
    ///
    /// Refusals ([`Error::Refused`]) change nothing. Deleting a subscription takes effect for
    /// fan-out and lookups at once; its pending deliveries are cancelled by
    /// [`Store::sweep_cancelled`], and until then no read reports them as pending.
    async fn change_catalog(&self, change: CatalogChange) -> Result<CatalogVersion> {
        self.change_catalog_with(change, Along::default()).await
    }

    /// The same, and stores what goes along with it in the same transaction. Since the change moves the version of
    /// its own tenant, what is told is planned on the version before it. Whether a plan is stale is judged first. A change that finds
    /// everything as it should be changes nothing, tells nothing, and leaves no line.
    async fn change_catalog_with(
        &self,
        change: CatalogChange,
        along: Along,
    ) -> Result<CatalogVersion>;

    /// Everything that changed after `since`, removals included; `CatalogVersion(0)` asks for all.
    /// The answer is one consistent snapshot.
    async fn catalog_since(&self, since: CatalogVersion) -> Result<CatalogDelta>;

    /// Writes down when keys were last used. Times only ever move forward, and keys that do not
    /// exist are passed over. Not a change of the catalog: no version moves, no plan gets stale.
    async fn touch_keys(&self, uses: Vec<(KeyId, Timestamp)>) -> Result<()>;

    /// When each key was last used, as far as it was written down. Keys never used are left out.
    async fn keys_used(&self) -> Result<Vec<(KeyId, Timestamp)>>;

    // ---- intake --------------------------------------------------------------------------------

    /// Stores events with all their deliveries and idempotency keys.
    ///
    /// The batch is one transaction, but each item is judged by itself, in batch order: an item that
    /// is a duplicate, a conflict or stale changes nothing and does not disturb the others. Checks
    /// are made in this order: idempotency key (also against earlier items of the same batch), then
    /// catalog version. The order of the items is the order of their `seq`.
    ///
    /// A delivery of an ordered lane whose lane is occupied is stored parked. When its event is to be
    /// delivered later ([`Event::deliver_at`]), it is stored parked as well, but without a lane: it holds
    /// nobody up, and enters the lane with [`Store::enter_lanes`]. The age of deliveries of such an event
    /// counts from that time.
    async fn accept(&self, batch: Vec<NewEvent>) -> Result<Vec<Accepted>>;

    // ---- work ----------------------------------------------------------------------------------

    /// For each subscription of these shards with work that is not parked: its earliest due time.
    /// Cost grows with the number of such subscriptions, not with their backlog. Deleted
    /// subscriptions are left out.
    async fn due_subscriptions(&self, shards: &[Shard]) -> Result<Vec<DueSubscription>>;

    /// For each ask: up to `limit` deliveries of a subscription that are due by `until`, by due time
    /// and then `seq`, each with its event. May stop early when the events' payloads together exceed
    /// `max_bytes`, but never without returning at least one delivery if there is one for the first
    /// ask. Replies in the order of the asks.
    async fn pending(&self, asks: Vec<PendingAsk>, max_bytes: usize) -> Result<Vec<Vec<Work>>>;

    /// Writes down leases before attempts begin: state `in_flight`, due at the lease's end. `false`
    /// for those that are fenced, ended, parked, or have other attempts or another revival than
    /// expected.
    async fn claim(&self, batch: Vec<Claim>) -> Result<Vec<bool>>;

    /// Writes down what became of deliveries, with their attempts, and promotes the next of a lane
    /// where the step says so. Each item is judged by itself. A fenced or superseded item changes
    /// nothing, except that its attempt is kept, marked late. Repeating an item after an unknown
    /// outcome is harmless: it is then superseded.
    ///
    /// What an item tells ([`Record::told`]) is stored when, and only when, the item is written. Whether its plan
    /// is stale is judged before everything else: then the item leaves no trace at all, not even of its attempt or its
    /// standing.
    ///
    /// An item is superseded when the delivery has ended, or has other attempts than expected; also when
    /// it is parked or has another revival, unless the step says that it was delivered: what the receiver
    /// has, it has, whatever was done by hand meanwhile. One that was brought back from its end in the very
    /// moment may be superseded all the same.
    async fn record(&self, batch: Vec<Record>) -> Result<Vec<Recorded>> {
        self.record_with(batch, None).await
    }

    /// The same, and what a node has counted of the last minutes with it, in the same transaction. Rows of a
    /// node are its own, and need no fence; repeating is harmless for them as well, since they are replaced.
    /// What is late does not count: nothing replaces what has the same number or a greater one. May come
    /// without records.
    async fn record_with(
        &self,
        batch: Vec<Record>,
        rollups: Option<Rollups>,
    ) -> Result<Vec<Recorded>>;

    /// Subscriptions of these shards whose receivers have only failed, as far as records have said so
    /// ([`Record::standing`]). Forgotten when a subscription goes on after it was paused or disabled,
    /// and when it is deleted.
    async fn failing(&self, shards: &[Shard]) -> Result<Vec<FailingSubscription>>;

    /// Cancels one delivery on behalf of an operator, which raises its revival. Refused when it has ended or is not the
    /// tenant's. A dead letter that blocks its lane may be cancelled, which releases the lane. When a
    /// written lease says that an attempt is under way, the next of the lane is due when the lease
    /// ends: until then the attempt may still arrive. One that had not ended is recalled
    /// ([`CatalogDelta::recalls`]), so that no node sends it from an older copy. One that has not entered its
    /// lane yet never does; it gets the lane, so that it has a place should it be retried.
    async fn cancel_delivery(
        &self,
        tenant: TenantId,
        delivery: DeliveryId,
        at: Timestamp,
    ) -> Result<Moved> {
        self.move_delivery(Wish::Cancel, tenant, delivery, at, Along::default()).await
    }

    /// Has a delivery tried at `at`, with a fresh budget and a new revival, in one step. An ended one
    /// comes back to its place in commit order: a head of its lane that comes later has to wait for it,
    /// and is due no sooner than before when it is promoted again. It is parked itself when its lane is
    /// blocked, when the head comes before it, or when a written lease says that an attempt of the head is
    /// under way. When that leaves the lane without a head, the first of all that wait in it goes on, which
    /// may be one that was parked there before it. One that waits keeps its place, so a parked one stays parked. One that waited, and a
    /// head that waits now, are recalled ([`CatalogDelta::recalls`]). Refused while a written lease says
    /// that an attempt is under way, when it is not the tenant's, when its subscription is gone, when its
    /// event is to be delivered later than `at`, when it has not entered its lane yet, or when the payload of
    /// its event was removed.
    async fn retry_delivery(
        &self,
        tenant: TenantId,
        delivery: DeliveryId,
        at: Timestamp,
    ) -> Result<Moved> {
        self.move_delivery(Wish::Retry, tenant, delivery, at, Along::default()).await
    }

    /// The same with one attempt for one that has ended ([`Budget::Once`](posthorn_domain::Budget::Once)): when that fails, no other
    /// follows. One that has not ended keeps its budget. Which budget a delivery has is stored with it, until it is brought
    /// back again.
    async fn retry_delivery_once(
        &self,
        tenant: TenantId,
        delivery: DeliveryId,
        at: Timestamp,
    ) -> Result<Moved> {
        self.move_delivery(Wish::RetryOnce, tenant, delivery, at, Along::default()).await
    }

    /// Removes one delivery with its attempts, for good, on behalf of an operator. One that has not
    /// ended is cancelled by it; the lane it headed or blocked goes on, as after a cancel. Its event
    /// stays until it is pruned. Returns the delivery as it ended. One that had not ended is
    /// recalled. Refused when it is not the tenant's; what an attempt under way brings back later is
    /// superseded.
    async fn forget_delivery(
        &self,
        tenant: TenantId,
        delivery: DeliveryId,
        at: Timestamp,
    ) -> Result<Moved> {
        self.move_delivery(Wish::Forget, tenant, delivery, at, Along::default()).await
    }

    /// Cancels, retries or forgets a delivery, with what goes along with it.
    async fn move_delivery(
        &self,
        wish: Wish,
        tenant: TenantId,
        delivery: DeliveryId,
        at: Timestamp,
        along: Along,
    ) -> Result<Moved>;

    // ---- removing what was said ------------------------------------------------------------------

    /// Removes the payload of an event for good, and writes down when. The event stays with everything else,
    /// and so do its deliveries, its idempotency key and every count; nothing of it can be brought back or made
    /// any more. What its attempts had sent (`request`) goes with it: headers may be made of the payload. Returns the event
    /// as it is now. One that was expunged before stays as it is, with the first time.
    ///
    /// With `responses`, what receivers answered goes as well: all attempts of its deliveries that there are,
    /// also when the payload went before. What an attempt under way brings back later is kept; asking again
    /// removes it.
    ///
    /// Refused when the event is not the tenant's, and while it has a delivery that has not ended; those of deleted
    /// subscriptions count as ended, swept or not.
    async fn expunge_event(
        &self,
        tenant: TenantId,
        event: EventId,
        responses: bool,
        at: Timestamp,
    ) -> Result<Event> {
        self.expunge_event_with(tenant, event, responses, at, Along::default()).await
    }

    /// The same with what goes along with it. When there was nothing left to remove, nothing does.
    async fn expunge_event_with(
        &self,
        tenant: TenantId,
        event: EventId,
        responses: bool,
        at: Timestamp,
        along: Along,
    ) -> Result<Event>;

    /// Removes what the receiver answered to one attempt for good (`response` and `detail`), and writes down
    /// when. Late ones of the same number count as the same attempt. One that was expunged before stays as it is.
    /// Refused when there is no such attempt, or the delivery is not the tenant's.
    async fn expunge_response(
        &self,
        tenant: TenantId,
        delivery: DeliveryId,
        number: u32,
        at: Timestamp,
    ) -> Result<()> {
        self.expunge_response_with(tenant, delivery, number, at, Along::default()).await
    }

    /// The same with what goes along with it. When there was nothing left to remove, nothing does.
    async fn expunge_response_with(
        &self,
        tenant: TenantId,
        delivery: DeliveryId,
        number: u32,
        at: Timestamp,
        along: Along,
    ) -> Result<()>;

    // ---- redrives ------------------------------------------------------------------------------

    /// Writes down a redrive and counts what it will move (`total`). Returns it as stored. Refused with
    /// `NotFound` when the tenant is unknown or is being deleted.
    async fn create_redrive(&self, redrive: Redrive) -> Result<Redrive> {
        self.create_redrive_with(redrive, Along::default()).await
    }

    /// The same with what goes along with it.
    async fn create_redrive_with(&self, redrive: Redrive, along: Along) -> Result<Redrive>;

    /// One redrive of a tenant.
    async fn redrive(&self, tenant: TenantId, id: RedriveId) -> Result<Option<Redrive>>;

    /// Redrives of a tenant, newest first.
    async fn redrives(&self, tenant: TenantId, page: RedrivePage) -> Result<Page<Redrive>>;

    /// Redrives of all tenants that are running, oldest first. Cost grows with their number, not with
    /// the number of those that have ended.
    async fn running_redrives(&self, limit: usize) -> Result<Vec<Redrive>>;

    /// Stops a running redrive, and tells so; one that has ended stays as it is. Returns it.
    async fn cancel_redrive(
        &self,
        tenant: TenantId,
        id: RedriveId,
        at: Timestamp,
        ending: Option<Ending>,
    ) -> Result<Redrive> {
        self.cancel_redrive_with(tenant, id, at, ending, Along::default()).await
    }

    /// The same with what goes along with it. With one that has ended, nothing does.
    async fn cancel_redrive_with(
        &self,
        tenant: TenantId,
        id: RedriveId,
        at: Timestamp,
        ending: Option<Ending>,
        along: Along,
    ) -> Result<Redrive>;

    /// Moves up to `limit` more dead letters of a running redrive back to pending, each at most
    /// once per redrive, with the progress written in the same transaction. Each comes back as with
    /// [`Store::retry_delivery`]. Dead letters of deleted subscriptions, and of events that were expunged, are
    /// passed over. It ends when there are fewer than `limit` left.
    ///
    /// When its end is to be told (`ending`), it ends with a call that finds none left, so that what is told is
    /// the whole of it.
    async fn advance_redrive(
        &self,
        id: RedriveId,
        limit: usize,
        at: Timestamp,
        ending: Option<Ending>,
    ) -> Result<Advanced>;

    // ---- jobs ----------------------------------------------------------------------------------

    /// Writes down a job, and makes a change of the catalog in the same transaction where one comes along: its
    /// version is returned. The change belongs to the job's tenant: the subscription that the job is for, or that
    /// the tenant is to be deleted. What is told is planned and stored as with
    /// [`Store::change_catalog_with`]. A refusal changes nothing. Refused with
    /// `NotFound` when the tenant is unknown or is being deleted already.
    async fn create_job(
        &self,
        job: Job,
        change: Option<CatalogChange>,
        told: Vec<NewEvent>,
    ) -> Result<Option<CatalogVersion>> {
        self.create_job_with(job, change, told.into()).await
    }

    /// The same with what goes along with it.
    async fn create_job_with(
        &self,
        job: Job,
        change: Option<CatalogChange>,
        along: Along,
    ) -> Result<Option<CatalogVersion>>;

    /// One job of a tenant.
    async fn job(&self, tenant: TenantId, id: JobId) -> Result<Option<Job>>;

    /// Jobs of a tenant.
    async fn jobs(&self, tenant: TenantId, listing: Listing) -> Result<Page<Job>>;

    /// Jobs of all tenants that are running: of each tenant the oldest, then of each tenant the next, and so on, each
    /// with the place where it stands. So a limit leaves out nobody because of what others have. Cost grows with the
    /// number of all that are running, not with the number of those that have ended.
    async fn running_jobs(&self, limit: usize) -> Result<Vec<(Job, Option<Place>)>>;

    /// Stops a running job, and tells so; one that has ended stays as it is. Returns it.
    async fn cancel_job(
        &self,
        tenant: TenantId,
        id: JobId,
        at: Timestamp,
        ending: Option<Ending>,
    ) -> Result<Job> {
        self.cancel_job_with(tenant, id, at, ending, Along::default()).await
    }

    /// The same with what goes along with it. With one that has ended, nothing does.
    async fn cancel_job_with(
        &self,
        tenant: TenantId,
        id: JobId,
        at: Timestamp,
        ending: Option<Ending>,
        along: Along,
    ) -> Result<Job>;

    /// Does what one bite of a running job says, with the progress written in the same transaction. A
    /// delivery that is made comes last in its lane, and its age counts from `at`; when its event is to be
    /// delivered later than that, it is stored as [`Store::accept`] says. One that is tried again comes back
    /// as with [`Store::retry_delivery`]. Either has the budget that the job says ([`JobWork::budget`](posthorn_domain::JobWork::budget)). What cannot be done (a subscription or an event that is
    /// gone, an event that was expunged, an attempt under way; of what is to be removed, an event with deliveries
    /// that have not ended) is passed over.
    async fn advance_job(&self, bite: Bite) -> Result<Bitten>;

    // ---- audit log -----------------------------------------------------------------------------

    /// Writes a line that goes with no change, and what is told of it: that somebody has seen something. Refused with
    /// `Stale` when what is told was planned on another catalog; then nothing is written.
    async fn note(&self, along: Along) -> Result<()>;

    /// Lines of the audit log, in the order of their ids, or the other way round. What it costs does not grow with the
    /// log: a tenant or a realm, alone or with one of the other filters, is served by an index; of several of these,
    /// and where lines are left out for another reason, it stops after a bounded search and says so
    /// ([`Page::scanned_until`]).
    async fn audit(&self, filter: AuditFilter, listing: Listing) -> Result<Page<AuditEntry>>;

    // ---- sessions of pages -----------------------------------------------------------------------

    /// Writes down a session or a link, with what goes along with it. No change of the catalog: no version moves. Refused
    /// with `NotFound` when its tenant is unknown or is being deleted, and with `AlreadyExists` when there is one of this id.
    async fn create_session(&self, session: Session, along: Along) -> Result<()>;

    /// One session or link, also when its time is over. A look by its id: asked for every request of a page.
    async fn session(&self, id: SessionId) -> Result<Option<Session>>;

    /// Removes a link and creates the session it is redeemed for, in one transaction: `true` once for each link, however
    /// many try at once. `false`, and nothing is changed and no line written, when there is no link of this id: redeemed by
    /// somebody else, ended, or a session. Refused as [`Store::create_session`] says. Whether the time of the link is over
    /// is the caller's affair.
    async fn redeem_session(&self, link: SessionId, session: Session, along: Along)
    -> Result<bool>;

    /// Sessions and links by their ids, which begin with the time, or the other way round. Costs as little as
    /// [`Store::audit`]: those of a tenant, or of a realm, are a range of an index; the rest of what is asked for is looked
    /// at row by row, and a search that is too long stops and says so ([`Page::scanned_until`]).
    async fn sessions(&self, which: SessionFilter, listing: Listing) -> Result<Page<Session>>;

    /// How many sessions and links of a tenant there are whose time is not over at `at`. Looks at all that it has.
    async fn count_sessions(&self, tenant: TenantId, at: Timestamp) -> Result<u64>;

    /// Ends those that are meant, expired ones included: they are removed, and open nothing on any node from the
    /// moment this returns. How many they were; when there was none, nothing goes along.
    async fn end_sessions(&self, which: EndSessions, along: Along) -> Result<u64>;

    /// Removes up to `limit` sessions and links whose time was over before this, those first that ended first; how many.
    async fn prune_sessions(&self, expired_before: Timestamp, limit: usize) -> Result<usize>;

    // ---- kept answers ----------------------------------------------------------------------------

    /// Claims the work of a request, or says what was answered to it. The claim is the caller's when the key is new or its
    /// time is over; when nobody is at it and nothing is kept; and when the caller has it already, which renews its lease.
    /// In all of them but the first two the seed of the first claim is given back, and the key's time stays as it was. However many
    /// ask at once, one of them has it. A claim survives a crash; whether its lease does is the store's affair.
    async fn claim_answer(&self, claim: AnswerClaim) -> Result<AnswerClaimed>;

    /// Keeps an answer under a claimed key. The first one stays: whoever took a claim over has made the same things. Whether it was
    /// kept; not when there is one already, or when the key is unknown.
    async fn keep_answer(&self, key: AnswerKey, answer: KeptAnswer) -> Result<bool>;

    /// Ends the lease of a claim without an answer; its seed stays. Changes nothing when somebody else has the claim by now, or
    /// when an answer is kept.
    async fn release_answer(&self, key: AnswerKey, holder: u128) -> Result<()>;

    /// Removes up to `limit` keys whose time was over before this, those first that ended first; how many.
    async fn prune_answers(&self, expired_before: Timestamp, limit: usize) -> Result<usize>;

    // ---- maintenance ---------------------------------------------------------------------------

    /// Has up to `limit` deliveries enter their lanes whose event's time to be delivered is not after `at`:
    /// by that time, and in commit order where it is the same. Each gets a new `seq`, and so comes last in its lane, as if
    /// it was accepted now; it is due at `at`, or parked when the lane is occupied, and never promoted to be due
    /// before its time. Those of deleted
    /// subscriptions never enter.
    async fn enter_lanes(&self, limit: usize, at: Timestamp) -> Result<Entered>;

    /// Cancels up to `limit` unfinished deliveries of deleted subscriptions.
    async fn sweep_cancelled(&self, limit: usize, at: Timestamp) -> Result<Swept>;

    /// Removes history that nobody needs any more, in small bites. Never an event with an
    /// unfinished delivery, never a dead letter younger than its own limit, never one that blocks
    /// its lane, never a redrive or a job that is running. An event with a retention of its own
    /// ([`Event::expires_at`]) goes when that is over and its deliveries have ended, dead letters as well. One
    /// that cannot go then is looked at again later ([`Prune::look_again`]). Lines of the audit log go by their age
    /// alone ([`Prune::audit_before`]).
    async fn prune(&self, prune: Prune) -> Result<Pruned>;

    /// Before when history was removed for its age: the latest [`Prune::ended_before`] with which an event went, of
    /// whomever. What was accepted at that time or later went only where its own retention said so, or with its tenant.
    /// `None` while nothing went.
    async fn pruned_before(&self) -> Result<Option<Timestamp>>;

    /// Adds minutes to their hours, each once, and then removes what is too old; whether there may be more.
    /// A row that is written for a minute after it was added is not in its hour. Nothing is removed before it
    /// was added.
    async fn tend_rollups(&self, tend: TendRollups) -> Result<bool>;

    // ---- membership ----------------------------------------------------------------------------

    /// Says that a node is alive, renews all shards it holds, and returns who else is alive, when each was heard of
    /// last, and who holds what. `ttl` counts from the store's present. A lease that has run out is renewed as well,
    /// under its epoch, unless somebody else took the shard meanwhile.
    async fn heartbeat(&self, beat: Heartbeat) -> Result<Membership>;

    /// Takes those of `shards` that nobody holds, or whose lease has run out, or that the node itself holds. Each gets a new
    /// epoch: an epoch is one time of owning a shard, and who asks does not know of an earlier one. What it knows to be its own,
    /// heartbeats renew.
    async fn acquire_shards(
        &self,
        node: NodeId,
        shards: &[Shard],
        ttl: Duration,
    ) -> Result<Vec<Grant>>;

    /// Gives shards back, if the node still holds them under these epochs.
    async fn release_shards(&self, node: NodeId, grants: &[Grant]) -> Result<()>;

    /// Says that a node is gone for good: its shards are free and it no longer counts as alive.
    async fn depart(&self, node: NodeId) -> Result<()>;

    // ---- wake-ups ------------------------------------------------------------------------------

    /// Tells the other nodes that there is work in these shards, or that the catalog changed (when
    /// empty). Only a hint: it may be lost, and coalesced with others.
    async fn notify(&self, shards: &[Shard]) -> Result<()>;

    /// Waits for the next hint of another node: the shards as given to [`Store::notify`]. Stores that
    /// one process owns alone wait for ever.
    async fn notified(&self) -> Vec<Shard>;

    // ---- questions -----------------------------------------------------------------------------

    /// One event of a tenant.
    async fn event(&self, tenant: TenantId, id: EventId) -> Result<Option<Event>>;

    /// Those of these events that a tenant has, in the order of the ids; those that are not there are left out.
    async fn events_by_id(&self, tenant: TenantId, ids: Vec<EventId>) -> Result<Vec<Event>>;

    /// For each event and subscription of a tenant, in this order: the state of the delivery between them, as
    /// [`Store::advance_job`] finds it; `None` where there is none.
    async fn delivery_states(
        &self,
        tenant: TenantId,
        pairs: Vec<(EventId, SubscriptionId)>,
    ) -> Result<Vec<Option<DeliveryState>>>;

    /// For each of these events of a tenant, in this order: how many deliveries it has, nothing where it is not
    /// there. Costs a look for each event, however many it has.
    async fn fan_outs(&self, tenant: TenantId, events: Vec<EventId>) -> Result<Vec<usize>>;

    /// For each of these events of a tenant, in this order: what became of its deliveries, as readers see them; nothing where it
    /// is not there. At most `limit` of the deliveries of each event are looked at.
    async fn event_tallies(
        &self,
        tenant: TenantId,
        events: Vec<EventId>,
        limit: usize,
    ) -> Result<Vec<EventTally>>;

    /// Events of a tenant, in the order in which they were stored, or the other way round. What it costs
    /// does not grow with the history: filters are served by an index, and one that is not stops after a
    /// bounded search and says so ([`Page::scanned_until`]).
    async fn events(
        &self,
        tenant: TenantId,
        filter: EventFilter,
        listing: Listing,
    ) -> Result<Page<Event>>;

    /// The same without payloads: how large each is, is known without reading it.
    async fn event_lines(
        &self,
        tenant: TenantId,
        filter: EventFilter,
        listing: Listing,
    ) -> Result<Page<EventLine>>;

    /// One delivery of a tenant.
    async fn delivery(&self, tenant: TenantId, id: DeliveryId) -> Result<Option<Delivery>>;

    /// Those of these deliveries that a tenant has, in any order; those that are not there are left out.
    async fn deliveries_by_id(
        &self,
        tenant: TenantId,
        ids: Vec<DeliveryId>,
    ) -> Result<Vec<Delivery>>;

    /// Deliveries of a tenant, in the order in which they were stored, or the other way round. Costs as
    /// little as [`Store::events`].
    async fn deliveries(
        &self,
        tenant: TenantId,
        filter: DeliveryFilter,
        listing: Listing,
    ) -> Result<Page<Delivery>>;

    /// Attempts of all deliveries of a tenant, in the order in which they were recorded, or the other way
    /// round; those of one event may come in the order of their deliveries, and those of one batch that began in
    /// the same millisecond in any order. Costs as little as [`Store::events`].
    async fn attempts_made(
        &self,
        tenant: TenantId,
        filter: AttemptFilter,
        listing: Listing,
    ) -> Result<Page<AttemptLine>>;

    /// Events of some tenants as they were committed. Whoever goes on at [`Followed::last`] sees each event
    /// once, whichever node has taken it in: what is committed later is never put before what was read. So an
    /// event may be shown a moment after its commit. Those of one commit come in the order of their numbers or ids.
    /// Costs as much as was committed since, by whomever, looks at a bounded part of it, and reads no payload. What is removed meanwhile is left out.
    async fn events_after(&self, ask: FollowAsk) -> Result<Followed<EventLine>>;

    /// The same with attempts, as they were recorded. Places of the two have nothing to do with each other.
    async fn attempts_after(&self, ask: FollowAsk) -> Result<Followed<AttemptMade>>;

    /// All attempts of one delivery of a tenant, oldest first.
    async fn attempts(&self, tenant: TenantId, delivery: DeliveryId) -> Result<Vec<Attempt>>;

    /// How many events and deliveries there are, by state. Counted in the transactions that write the rows,
    /// so that it costs the same with any history.
    async fn counts(&self, tenant: Option<TenantId>) -> Result<Counts>;

    /// The same for each of these tenants, in this order.
    async fn counts_by_tenant(&self, tenants: Vec<TenantId>) -> Result<Vec<Counts>> {
        let mut all = Vec::with_capacity(tenants.len());
        for tenant in tenants {
            all.push(self.counts(Some(tenant)).await?);
        }
        Ok(all)
    }

    /// How many unfinished deliveries each tenant has; tenants without any are left out. Those of
    /// deleted subscriptions count until they are swept. Asked every few seconds: it looks at
    /// unfinished work only, and touches no payload, however long the history is.
    async fn pending_by_tenant(&self) -> Result<Vec<(TenantId, u64)>>;

    /// How many unfinished deliveries each subscription has, and whose it is; those without any are left out,
    /// and so are those that are deleted. Asked once a minute: it looks at all unfinished work, and at nothing
    /// else.
    async fn pending_by_subscription(&self) -> Result<Vec<(TenantId, SubscriptionId, u64)>>;

    /// What was counted of a scope, by time; steps without anything are left out. Hours that were not yet
    /// made of their minutes are added up on the way, so that nobody sees the difference. Costs a look for
    /// each step, not for what else was counted.
    async fn series(&self, ask: SeriesAsk) -> Result<Series>;

    /// What many scopes come to in a range: the newest steps first, and only whole ones. When [`SumsAsk::rows`] were
    /// looked at, the rest is left out, and [`Sums::from`] says from where on all is in. What is not yet in its hour
    /// is added on the way. Costs as many rows as there are of that kind in the range.
    async fn sums(&self, ask: SumsAsk) -> Result<Sums>;

    /// Whether the store can be used right now. Cheap.
    async fn ping(&self) -> Result<()>;
}
