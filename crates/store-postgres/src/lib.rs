//! Shared storage on PostgreSQL 14 or newer, for one node or several.
//!
//! # What it is for
//! [`PostgresStore`] implements [`Store`] so that any number of nodes can work on one database at
//! the same time: events fan out exactly, lanes keep their order, and a shard has one owner. It
//! implements [`PushStore`](posthorn_store::PushStore) as well, on tables of its own (`push`).
//!
//! # Theory of operation
//! * **Batches.** A batch is one transaction and, on the hot path, one round trip: `intake` and
//!   `record` send locks, one statement over arrays, and the commit, without waiting in between.
//! * **Tables.** `delivery_live` holds only what is not finished and stays narrow and small; what
//!   has ended moves to `delivery_done` in the same transaction. Events, ended deliveries and
//!   attempts are partitioned by day, so that history is dropped, not deleted.
//! * **Lists** merge ranges of indexes: see `log`. **Counts** are kept, not counted: see `tally`.
//! * **Locks** are advisory, few in kind and always taken in one order: see `lock`.
//! * **Time.** Leases are judged by the database's clock; all other times are handed in.
//! * **Upgrades.** Every connection shows what its program knows of the schema: see `gate` and `migrate`.
//! * **Failures.** Deadlocks are repeated here. A caller hears `Unavailable` when nothing was
//!   changed, and `Unknown` when the connection broke while a commit was on its way: see `failure`.
//!
//! # Invariants
//! No transaction outlives its call, also when the caller gives up (`session`). No notification is
//! sent from a transaction that stores or records (`wake`). No lane has two heads: a unique index
//! says so. No statement reads a whole table except to check the tally.
//!
//! # What it must not know
//! The engine, HTTP, and when anything should be retried.
//!
//! # Where to start
//! `migrations/0001_base.sql`, then `sql/accept.sql` and `sql/record.sql`.

mod audit;
mod catalog;
mod codec;
mod connect;
mod consistency;
mod copy;
mod entry;
mod expunge;
mod failure;
mod gate;
mod intake;
mod integrity;
mod job;
mod kept_answer;
mod lease;
mod lock;
mod log;
mod metrics;
mod migrate;
mod moves;
mod options;
mod page_session;
mod partition;
mod probe;
mod prune;
mod push;
mod query;
mod record;
mod redrive;
mod replay;
mod rollup;
mod server;
mod session;
#[doc(hidden)]
pub mod sql;
mod standing;
mod tally;
mod tenant;
mod told;
mod wake;
mod work;

use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use posthorn_domain::delivery::Wish;
use posthorn_domain::{
    Attempt, AuditEntry, CatalogVersion, Delivery, DeliveryId, DeliveryState, Event, EventId, Job,
    JobId, KeyId, NodeId, Redrive, RedriveId, Session as PageSession, SessionId, Shard,
    SubscriptionId, TenantId, Timestamp,
};
use posthorn_store::schema::Schema;
use posthorn_store::{
    Accepted, Advanced, Along, AnswerClaim, AnswerClaimed, AnswerKey, AttemptFilter, AttemptLine,
    AttemptMade, AuditFilter, Bite, Bitten, CatalogChange, CatalogDelta, Claim, Counts,
    DeliveryFilter, DueSubscription, EndSessions, Ending, Entered, Error, EventFilter, EventLine,
    EventTally, FailingSubscription, FollowAsk, Followed, Grant, Heartbeat, KeptAnswer, Listing,
    Membership, Moved, NewEvent, Page, PendingAsk, Place, Prune, Pruned, Record, Recorded,
    RedrivePage, Result, Rollups, Series, SeriesAsk, SessionFilter, Store, Sums, SumsAsk, Swept,
    TendRollups, Work,
};
use tokio::time::Instant;
use tracing::warn;

pub use consistency::{inconsistencies, repair};
pub use copy::{CopyError, CopyReading, CopySource, CopyTarget, unfinished_copy};
pub use integrity::{Checked, check};
pub use migrate::SCHEMA_VERSION;
pub use options::Options;
pub use probe::{Probed, Refused, probe};

use connect::Connector;
use prune::Pruner;
use server::Pooling;
use session::Session;
use wake::{Door, Wake};

/// How often partitions for the next days are looked after.
const UPKEEP: Duration = Duration::from_secs(3600);

/// A store on PostgreSQL. Cheap to share behind an `Arc`; dropping it closes its connections.
pub struct PostgresStore {
    session: Session,
    wake: Wake,
    pruner: Pruner,
    upkeep: Mutex<Instant>,
}

impl PostgresStore {
    /// Connects, brings the schema up to date and makes partitions for the next days. Several nodes
    /// may do so at once. Fails with `Unavailable` when the database cannot be reached, or none of its servers takes
    /// writes, and with `Fatal` when it is not one to work with.
    pub async fn connect(options: Options) -> Result<Self> {
        Self::connect_as(options, Self::schema()).await
    }

    /// What this program knows of the schema, to make older and newer programs of it in tests of upgrades.
    #[doc(hidden)]
    pub fn schema() -> &'static Schema {
        &migrate::SCHEMA
    }

    /// Connects as a program does that knows another schema.
    #[doc(hidden)]
    pub async fn connect_as(options: Options, schema: &Schema) -> Result<Self> {
        metrics::describe();
        let (config, tls) = options.parse()?;
        let connector = Connector::new(&config, tls);
        let pooling = server::check(&connector, &options).await?;
        let session = Session::new(&options, connector.clone(), pooling, schema.known())?;
        migrate::run(&session, &options, pooling, schema).await?;
        copy::check_complete(&session).await?;
        partition::ensure(&session).await?;
        // Through a pooler that shares sessions, only the one that listens lasts, and nothing is done before it has the gate.
        let door = (pooling == Pooling::Transaction).then(|| Door {
            enter: options.gate(schema.known()),
            known: schema.known(),
            session: session.clone(),
        });
        let guarded = door.is_some();
        let (wake, begun) = Wake::start(&options, options.listening(connector)?, door);
        if guarded {
            begun.await.map_err(|gone| Error::unavailable("listen to other nodes", gone))??;
        }
        let upkeep = Mutex::new(Instant::now() + UPKEEP);
        Ok(Self { session, wake, pruner: Pruner::default(), upkeep })
    }

    /// Makes partitions for `count` days from the day of `first`, for a measurement whose time is not the database's.
    #[doc(hidden)]
    pub async fn make_days(&self, first: Timestamp, count: i64) -> Result<()> {
        partition::make_days(&self.session, first, count).await
    }

    /// Statements that are put together at run time, with their names, for the test that looks at lists.
    #[doc(hidden)]
    pub fn list_statements() -> Vec<(String, String)> {
        log::statements()
    }

    /// Every statement with its name, also those that are put together at run time, for the test that asks for plans.
    #[doc(hidden)]
    pub fn every_statement() -> Vec<(String, String)> {
        probe::statements()
    }

    /// Compares the counts that [`Store::counts`] gives with what is stored, and corrects them; for how many
    /// tenants they were wrong. Reads whole tables. The store does so itself, once a day.
    pub async fn recount(&self) -> Result<u64> {
        tally::recount(&self.session).await
    }

    /// What every connection begins with, for the test that asks for plans.
    #[doc(hidden)]
    pub fn session_statements(options: &Options) -> String {
        options.session(Self::schema().known())
    }

    /// What a transaction begins with that lists something, for the same test.
    #[doc(hidden)]
    pub fn list_settings() -> &'static str {
        session::LIST_SETTINGS
    }

    /// Makes partitions and checks the tally when it is time, without keeping the caller waiting.
    fn look_after_partitions(&self) {
        let now = Instant::now();
        {
            let mut next = self.upkeep.lock();
            if now < *next {
                return;
            }
            *next = now + UPKEEP;
        }
        let session = self.session.clone();
        tokio::spawn(async move {
            if let Err(error) = partition::ensure(&session).await {
                warn!(%error, "Failed to create partitions; those for the next days exist already");
            }
            if let Err(error) = tally::look_after(&session).await {
                warn!(%error, "Failed to check the counts of events and deliveries; trying again later");
            }
        });
    }
}

#[async_trait]
impl Store for PostgresStore {
    async fn change_catalog_with(
        &self,
        change: CatalogChange,
        along: Along,
    ) -> Result<CatalogVersion> {
        catalog::change(&self.session, change, along).await
    }

    async fn catalog_since(&self, since: CatalogVersion) -> Result<CatalogDelta> {
        catalog::since(&self.session, since).await
    }

    async fn touch_keys(&self, uses: Vec<(KeyId, Timestamp)>) -> Result<()> {
        catalog::touch_keys(&self.session, uses).await
    }

    async fn keys_used(&self) -> Result<Vec<(KeyId, Timestamp)>> {
        catalog::keys_used(&self.session).await
    }

    async fn accept(&self, batch: Vec<NewEvent>) -> Result<Vec<Accepted>> {
        intake::accept(&self.session, batch).await
    }

    async fn due_subscriptions(&self, shards: &[Shard]) -> Result<Vec<DueSubscription>> {
        work::due_subscriptions(&self.session, shards).await
    }

    async fn pending(&self, asks: Vec<PendingAsk>, max_bytes: usize) -> Result<Vec<Vec<Work>>> {
        work::pending(&self.session, asks, max_bytes).await
    }

    async fn failing(&self, shards: &[Shard]) -> Result<Vec<FailingSubscription>> {
        standing::failing(&self.session, shards).await
    }

    async fn claim(&self, batch: Vec<Claim>) -> Result<Vec<bool>> {
        work::claim(&self.session, batch).await
    }

    async fn record_with(
        &self,
        batch: Vec<Record>,
        rollups: Option<Rollups>,
    ) -> Result<Vec<Recorded>> {
        record::record(&self.session, batch, rollups).await
    }

    async fn move_delivery(
        &self,
        wish: Wish,
        tenant: TenantId,
        delivery: DeliveryId,
        at: Timestamp,
        along: Along,
    ) -> Result<Moved> {
        moves::by_hand(&self.session, wish, tenant, delivery, at, along).await
    }

    async fn expunge_event_with(
        &self,
        tenant: TenantId,
        event: EventId,
        responses: bool,
        at: Timestamp,
        along: Along,
    ) -> Result<Event> {
        expunge::event(&self.session, tenant, event, responses, at, along).await
    }

    async fn expunge_response_with(
        &self,
        tenant: TenantId,
        delivery: DeliveryId,
        number: u32,
        at: Timestamp,
        along: Along,
    ) -> Result<()> {
        expunge::response(&self.session, tenant, delivery, number, at, along).await
    }

    async fn create_redrive_with(&self, redrive: Redrive, along: Along) -> Result<Redrive> {
        redrive::create(&self.session, redrive, along).await
    }

    async fn redrive(&self, tenant: TenantId, id: RedriveId) -> Result<Option<Redrive>> {
        redrive::find(&self.session, tenant, id).await
    }

    async fn redrives(&self, tenant: TenantId, page: RedrivePage) -> Result<Page<Redrive>> {
        redrive::list(&self.session, tenant, page).await
    }

    async fn running_redrives(&self, limit: usize) -> Result<Vec<Redrive>> {
        redrive::running(&self.session, limit).await
    }

    async fn cancel_redrive_with(
        &self,
        tenant: TenantId,
        id: RedriveId,
        at: Timestamp,
        ending: Option<Ending>,
        along: Along,
    ) -> Result<Redrive> {
        redrive::cancel(&self.session, tenant, id, at, ending, along).await
    }

    async fn advance_redrive(
        &self,
        id: RedriveId,
        limit: usize,
        at: Timestamp,
        ending: Option<Ending>,
    ) -> Result<Advanced> {
        redrive::advance(&self.session, id, limit, at, ending).await
    }

    async fn create_job_with(
        &self,
        job: Job,
        change: Option<CatalogChange>,
        along: Along,
    ) -> Result<Option<CatalogVersion>> {
        job::create(&self.session, job, change, along).await
    }

    async fn job(&self, tenant: TenantId, id: JobId) -> Result<Option<Job>> {
        job::find(&self.session, tenant, id).await
    }

    async fn jobs(&self, tenant: TenantId, listing: Listing) -> Result<Page<Job>> {
        job::list(&self.session, tenant, listing).await
    }

    async fn running_jobs(&self, limit: usize) -> Result<Vec<(Job, Option<Place>)>> {
        job::running(&self.session, limit).await
    }

    async fn cancel_job_with(
        &self,
        tenant: TenantId,
        id: JobId,
        at: Timestamp,
        ending: Option<Ending>,
        along: Along,
    ) -> Result<Job> {
        job::cancel(&self.session, tenant, id, at, ending, along).await
    }

    async fn advance_job(&self, bite: Bite) -> Result<Bitten> {
        job::advance(&self.session, bite).await
    }

    async fn audit(&self, filter: AuditFilter, listing: Listing) -> Result<Page<AuditEntry>> {
        audit::list(&self.session, filter, listing).await
    }

    async fn note(&self, along: Along) -> Result<()> {
        audit::note(&self.session, along).await
    }

    async fn create_session(&self, session: PageSession, along: Along) -> Result<()> {
        page_session::create(&self.session, session, along).await
    }

    async fn session(&self, id: SessionId) -> Result<Option<PageSession>> {
        page_session::find(&self.session, id).await
    }

    async fn redeem_session(
        &self,
        link: SessionId,
        session: PageSession,
        along: Along,
    ) -> Result<bool> {
        page_session::redeem(&self.session, link, session, along).await
    }

    async fn sessions(&self, which: SessionFilter, listing: Listing) -> Result<Page<PageSession>> {
        page_session::list(&self.session, which, listing).await
    }

    async fn count_sessions(&self, tenant: TenantId, at: Timestamp) -> Result<u64> {
        page_session::count(&self.session, tenant, at).await
    }

    async fn end_sessions(&self, which: EndSessions, along: Along) -> Result<u64> {
        page_session::end(&self.session, which, along).await
    }

    async fn prune_sessions(&self, expired_before: Timestamp, limit: usize) -> Result<usize> {
        page_session::prune(&self.session, expired_before, limit).await
    }

    async fn claim_answer(&self, claim: AnswerClaim) -> Result<AnswerClaimed> {
        kept_answer::claim(&self.session, claim).await
    }

    async fn keep_answer(&self, key: AnswerKey, answer: KeptAnswer) -> Result<bool> {
        kept_answer::keep(&self.session, key, answer).await
    }

    async fn release_answer(&self, key: AnswerKey, holder: u128) -> Result<()> {
        kept_answer::release(&self.session, key, holder).await
    }

    async fn prune_answers(&self, expired_before: Timestamp, limit: usize) -> Result<usize> {
        kept_answer::prune(&self.session, expired_before, limit).await
    }

    async fn sweep_cancelled(&self, limit: usize, at: Timestamp) -> Result<Swept> {
        moves::sweep(&self.session, limit, at).await
    }

    async fn enter_lanes(&self, limit: usize, at: Timestamp) -> Result<Entered> {
        entry::enter(&self.session, limit, at).await
    }

    async fn prune(&self, prune: Prune) -> Result<Pruned> {
        self.look_after_partitions();
        self.pruner.prune(&self.session, prune).await
    }

    async fn pruned_before(&self) -> Result<Option<Timestamp>> {
        prune::pruned_before(&self.session).await
    }

    async fn tend_rollups(&self, tend: TendRollups) -> Result<bool> {
        rollup::tend(&self.session, tend).await
    }

    async fn heartbeat(&self, beat: Heartbeat) -> Result<Membership> {
        self.look_after_partitions();
        lease::heartbeat(&self.session, beat).await
    }

    async fn acquire_shards(
        &self,
        node: NodeId,
        shards: &[Shard],
        ttl: Duration,
    ) -> Result<Vec<Grant>> {
        lease::acquire(&self.session, node, shards, ttl).await
    }

    async fn release_shards(&self, node: NodeId, grants: &[Grant]) -> Result<()> {
        lease::release(&self.session, node, grants).await
    }

    async fn depart(&self, node: NodeId) -> Result<()> {
        lease::depart(&self.session, node).await
    }

    async fn notify(&self, shards: &[Shard]) -> Result<()> {
        self.wake.notify(shards);
        Ok(())
    }

    async fn notified(&self) -> Vec<Shard> {
        self.wake.notified().await
    }

    async fn event(&self, tenant: TenantId, id: EventId) -> Result<Option<Event>> {
        query::event(&self.session, tenant, id).await
    }

    async fn events_by_id(&self, tenant: TenantId, ids: Vec<EventId>) -> Result<Vec<Event>> {
        query::events_by_id(&self.session, tenant, &ids).await
    }

    async fn delivery_states(
        &self,
        tenant: TenantId,
        pairs: Vec<(EventId, SubscriptionId)>,
    ) -> Result<Vec<Option<DeliveryState>>> {
        replay::states(&self.session, tenant, pairs).await
    }

    async fn fan_outs(&self, tenant: TenantId, events: Vec<EventId>) -> Result<Vec<usize>> {
        replay::fan_outs(&self.session, tenant, events).await
    }

    async fn event_tallies(
        &self,
        tenant: TenantId,
        events: Vec<EventId>,
        limit: usize,
    ) -> Result<Vec<EventTally>> {
        replay::tallies(&self.session, tenant, events, limit).await
    }

    async fn events(
        &self,
        tenant: TenantId,
        filter: EventFilter,
        listing: Listing,
    ) -> Result<Page<Event>> {
        log::events::events(&self.session, tenant, filter, listing).await
    }

    async fn event_lines(
        &self,
        tenant: TenantId,
        filter: EventFilter,
        listing: Listing,
    ) -> Result<Page<EventLine>> {
        log::events::lines(&self.session, tenant, filter, listing).await
    }

    async fn deliveries_by_id(
        &self,
        tenant: TenantId,
        ids: Vec<DeliveryId>,
    ) -> Result<Vec<Delivery>> {
        query::deliveries_by_id(&self.session, tenant, &ids).await
    }

    async fn delivery(&self, tenant: TenantId, id: DeliveryId) -> Result<Option<Delivery>> {
        query::delivery(&self.session, tenant, id).await
    }

    async fn deliveries(
        &self,
        tenant: TenantId,
        filter: DeliveryFilter,
        listing: Listing,
    ) -> Result<Page<Delivery>> {
        log::deliveries::deliveries(&self.session, tenant, filter, listing).await
    }

    async fn attempts_made(
        &self,
        tenant: TenantId,
        filter: AttemptFilter,
        listing: Listing,
    ) -> Result<Page<AttemptLine>> {
        log::attempts::attempts(&self.session, tenant, filter, listing).await
    }

    async fn events_after(&self, ask: FollowAsk) -> Result<Followed<EventLine>> {
        log::follow::events(&self.session, ask).await
    }

    async fn attempts_after(&self, ask: FollowAsk) -> Result<Followed<AttemptMade>> {
        log::follow::attempts(&self.session, ask).await
    }

    async fn attempts(&self, tenant: TenantId, delivery: DeliveryId) -> Result<Vec<Attempt>> {
        query::attempts(&self.session, tenant, delivery).await
    }

    async fn counts(&self, tenant: Option<TenantId>) -> Result<Counts> {
        tally::counts(&self.session, tenant).await
    }

    async fn counts_by_tenant(&self, tenants: Vec<TenantId>) -> Result<Vec<Counts>> {
        tally::counts_by_tenant(&self.session, &tenants).await
    }

    async fn pending_by_tenant(&self) -> Result<Vec<(TenantId, u64)>> {
        tally::pending_by_tenant(&self.session).await
    }

    async fn pending_by_subscription(&self) -> Result<Vec<(TenantId, SubscriptionId, u64)>> {
        rollup::pending_by_subscription(&self.session).await
    }

    async fn series(&self, ask: SeriesAsk) -> Result<Series> {
        rollup::series(&self.session, ask).await
    }

    async fn sums(&self, ask: SumsAsk) -> Result<Sums> {
        rollup::sums(&self.session, ask).await
    }

    async fn ping(&self) -> Result<()> {
        query::ping(&self.session).await
    }
}
