//! The store itself: it hands commands to the writer and questions to the readers.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use posthorn_domain::delivery::Wish;
use posthorn_domain::{
    Attempt, AuditEntry, CatalogVersion, Delivery, DeliveryId, DeliveryState, Event, EventId, Job,
    JobId, KeyId, NodeId, Redrive, RedriveId, Session, SessionId, Shard, SubscriptionId, TenantId,
    Timestamp,
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
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use crate::backup::{self, Progress};
use crate::error::{Failure, OpenError};
use crate::files::Files;
use crate::log::indexer::Indexer;
use crate::log::{List, changes};
use crate::open::{self, Options};
use crate::read;
use crate::readers::{self, Question, Questions};
use crate::shared::{Alarm, Shared};
use crate::write;
use crate::writer::{Call, Task, Thread, Weight, Writer};

/// Questions that may wait for a reader. When there are more, callers wait.
const QUESTIONS: usize = 256;

/// A store in one SQLite file. Dropping it without [`SqliteStore::close`] is like a crash, except
/// that commands under way are finished: nothing that was answered is lost.
pub struct SqliteStore {
    path: PathBuf,
    shared: Arc<Shared>,
    queues: Mutex<Option<Queues>>,
    threads: Mutex<Threads>,
    /// Where the search for old events goes on; back to 0 when it has seen all.
    prune_after: Mutex<i64>,
}

#[derive(Clone)]
struct Queues {
    writer: mpsc::Sender<Box<dyn Task>>,
    readers: mpsc::Sender<Question>,
}

#[derive(Default)]
struct Threads {
    writer: Option<JoinHandle<()>>,
    readers: Vec<JoinHandle<()>>,
    indexer: Option<JoinHandle<()>>,
}

impl std::fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SqliteStore").field("path", &self.path).finish_non_exhaustive()
    }
}

impl SqliteStore {
    /// Opens the data directory, makes or migrates the database, and starts the threads. Blocks
    /// while it does.
    pub fn open(options: &Options) -> Result<Self, OpenError> {
        Self::open_as(options, Self::schema())
    }

    /// What this program knows of the schema, to make older and newer programs of it in tests of upgrades.
    #[doc(hidden)]
    pub fn schema() -> &'static Schema {
        &crate::migrate::SCHEMA
    }

    /// Only migrates, as an older program does whose statements are not those of today.
    #[doc(hidden)]
    pub fn migrate_as(options: &Options, schema: &Schema) -> Result<(), OpenError> {
        let _lock = open::lock(&options.path)?;
        crate::migrate::migrate(&mut open::writer(options)?, schema)
    }

    /// Opens it as a program does that knows another schema.
    #[doc(hidden)]
    pub fn open_as(options: &Options, schema: &Schema) -> Result<Self, OpenError> {
        crate::metrics::describe();
        let lock = open::lock(&options.path)?;
        let mut conn = open::writer(options)?;
        if let Some(source_name) = crate::copy::marked(&conn)? {
            return Err(OpenError::HalfCopied { path: options.path.clone(), source_name });
        }
        crate::migrate::migrate(&mut conn, schema)?;
        let page_bytes: i64 = conn
            .query_row("pragma page_size", [], |row| row.get(0))
            .map_err(OpenError::sqlite("reading the page size"))?;
        let writer = Writer::load(conn).map_err(|failure| match failure {
            Failure::Sql(source) | Failure::Unsound(source) => {
                OpenError::Sqlite { doing: "reading the catalog", source }
            }
            Failure::Corrupt(corrupt) => OpenError::Damaged(corrupt.to_string()),
            Failure::Refused(_) => unreachable!("loading refuses nothing"),
        })?;
        let shared = Arc::new(Shared::of(Files::of(&options.path)));
        let (to_writer, queue) = mpsc::channel(options.queue.max(1));
        let indexer = Indexer {
            conn: open::reader(options)?,
            writer: to_writer.downgrade(),
            shared: Arc::clone(&shared),
            pulse: Arc::clone(&writer.pulse),
            next: List::ALL.map(|list| writer.log.closed(list)),
        };
        let (to_readers, questions) = mpsc::channel(QUESTIONS);
        let store = Self {
            path: options.path.clone(),
            shared: Arc::clone(&shared),
            queues: Mutex::new(Some(Queues { writer: to_writer, readers: to_readers })),
            threads: Mutex::default(),
            prune_after: Mutex::new(0),
        };
        let thread = Thread {
            writer,
            queue,
            shared,
            checkpoint_bytes: options.checkpoint_bytes,
            page_bytes: page_bytes.unsigned_abs(),
            restart_tried: 0,
            lock,
        };
        store.threads.lock().writer = Some(spawn("posthorn-writer", move || thread.run())?);
        let alarm = Alarm(Arc::clone(&store.shared));
        store.threads.lock().indexer = Some(spawn("posthorn-indexer", move || {
            let _alarm = alarm;
            indexer.run();
        })?);
        let questions: Questions = Arc::new(Mutex::new(questions));
        for _ in 0..options.readers.max(1) {
            let (conn, questions) = (open::reader(options)?, Arc::clone(&questions));
            let alarm = Alarm(Arc::clone(&store.shared));
            let reader = spawn("posthorn-reader", move || {
                let _alarm = alarm;
                readers::run(&conn, &questions);
            })?;
            store.threads.lock().readers.push(reader);
        }
        Ok(store)
    }

    /// Whether the store failed because the database is damaged: only a backup helps.
    pub fn is_damaged(&self) -> bool {
        self.shared.is_damaged()
    }

    /// Finishes what is under way, copies the log back into the database, and lets go of the
    /// directory. Later calls are refused as unavailable.
    pub async fn close(&self) -> Result<()> {
        self.shared.closing.store(true, Ordering::Release);
        self.shared.ending.store(true, Ordering::Release);
        drop(self.queues.lock().take());
        let threads = std::mem::take(&mut *self.threads.lock());
        let joined = tokio::task::spawn_blocking(move || threads.join()).await;
        joined.map_err(|error| Error::fatal("closing", error))?;
        self.shared.check()
    }

    /// Compares the counts with the rows, and puts them right; for how many tenants they were wrong. Reads
    /// everything.
    pub async fn recount(&self) -> Result<usize> {
        let off = self.read(changes::miscounted).await?;
        let wrong = off.len();
        if wrong > 0 {
            let correct = move |writer: &mut Writer| {
                writer.log.correct(&off);
                Ok(())
            };
            self.write(LIGHT, correct).await?;
        }
        Ok(wrong)
    }

    /// Copies the store as of one moment to the new file `target`, while it goes on working.
    /// `report` is called from another thread after every slice. A directory with the copy as
    /// `posthorn.db` can be opened as a store.
    pub async fn backup_to(
        &self,
        target: &Path,
        report: impl FnMut(Progress) + Send + 'static,
    ) -> Result<()> {
        self.shared.check()?;
        let (from, to) = (self.path.clone(), target.to_owned());
        let copied =
            tokio::task::spawn_blocking(move || backup::backup_file(&from, &to, report)).await;
        let copied = copied.map_err(|error| Error::unavailable("making a backup", error))?;
        copied.map_err(|error| Error::unavailable("making a backup", error))
    }

    fn queues(&self) -> Result<Queues> {
        self.shared.check()?;
        self.queues.lock().clone().ok_or_else(|| self.shared.silence())
    }

    /// Has the writer run an operation and commit it.
    pub(crate) async fn write<T, F>(&self, weight: Weight, operation: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut Writer) -> Result<T, Failure> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let call = Call { weight, operation, reply, result: None };
        let queue = self.queues()?.writer;
        queue.send(Box::new(call)).await.map_err(|_| self.shared.silence())?;
        // Holding the queue open would keep a closing store waiting.
        drop(queue);
        answer.await.map_err(|_| self.shared.silence())?
    }

    /// Has a reader answer a question on one snapshot.
    pub(crate) async fn read<T, F>(&self, question: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> Result<T, Failure> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let shared = Arc::clone(&self.shared);
        let question: Question = Box::new(move |conn| {
            let asked = snapshot(conn, question);
            drop(reply.send(asked.map_err(|failure| shared.judge(failure, "reading"))));
        });
        let queue = self.queues()?.readers;
        queue.send(question).await.map_err(|_| self.shared.silence())?;
        drop(queue);
        answer.await.map_err(|_| self.shared.silence())?
    }
}

impl Drop for SqliteStore {
    fn drop(&mut self) {
        self.shared.ending.store(true, Ordering::Release);
        drop(self.queues.get_mut().take());
        // At most one group is under way; without waiting, the directory would still be locked.
        std::mem::take(self.threads.get_mut()).join();
    }
}

impl Threads {
    /// Readers first: the writer's last checkpoint needs their snapshots gone.
    fn join(self) {
        for thread in self.readers.into_iter().chain(self.indexer).chain(self.writer) {
            if thread.join().is_err() {
                tracing::error!("a storage thread panicked");
            }
        }
    }
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, OpenError> {
    std::thread::Builder::new().name(name.to_owned()).spawn(run).map_err(OpenError::Thread)
}

fn snapshot<T>(
    conn: &Connection,
    question: impl FnOnce(&Connection) -> Result<T, Failure>,
) -> Result<T, Failure> {
    // Dropping the transaction ends it; there is nothing to roll back.
    let transaction = conn.unchecked_transaction()?;
    question(&transaction)
}

const LIGHT: Weight = Weight { rows: 1, bytes: 0 };

impl SqliteStore {
    /// Removes events whose own retention is over. Nearly always there are none, and the writer is not
    /// disturbed for that.
    async fn expire(&self, prune: Prune) -> Result<Pruned> {
        let over = move |conn: &Connection| read::queries::may_expire(conn, prune.now);
        if !self.read(over).await? {
            return Ok(Pruned::default());
        }
        let weight = Weight { rows: prune.limit, bytes: 0 };
        self.write(weight, move |writer| write::maintenance::expire(writer, &prune)).await
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn change_catalog_with(
        &self,
        change: CatalogChange,
        along: Along,
    ) -> Result<CatalogVersion> {
        let weight = write::audit::weight(&along);
        self.write(weight, move |writer| write::catalog::change(writer, &change, &along)).await
    }

    async fn catalog_since(&self, since: CatalogVersion) -> Result<CatalogDelta> {
        self.read(move |conn| read::catalog::since(conn, since)).await
    }

    async fn touch_keys(&self, uses: Vec<(KeyId, Timestamp)>) -> Result<()> {
        let weight = Weight { rows: uses.len(), bytes: 0 };
        self.write(weight, move |writer| write::catalog::touch_keys(writer, &uses)).await
    }

    async fn keys_used(&self) -> Result<Vec<(KeyId, Timestamp)>> {
        self.read(read::catalog::keys_used).await
    }

    async fn accept(&self, batch: Vec<NewEvent>) -> Result<Vec<Accepted>> {
        let weight = write::accept::weight(&batch);
        self.write(weight, move |writer| write::accept::accept(writer, &batch)).await
    }

    async fn due_subscriptions(&self, shards: &[Shard]) -> Result<Vec<DueSubscription>> {
        let shards = shards.to_vec();
        self.read(move |conn| read::work::due_subscriptions(conn, &shards)).await
    }

    async fn pending(&self, asks: Vec<PendingAsk>, max_bytes: usize) -> Result<Vec<Vec<Work>>> {
        self.read(move |conn| read::work::pending(conn, &asks, max_bytes)).await
    }

    async fn failing(&self, shards: &[Shard]) -> Result<Vec<FailingSubscription>> {
        let shards = shards.to_vec();
        self.read(move |conn| read::work::failing(conn, &shards)).await
    }

    async fn claim(&self, batch: Vec<Claim>) -> Result<Vec<bool>> {
        let weight = Weight { rows: batch.len(), bytes: 0 };
        self.write(weight, move |writer| write::record::claim(writer, &batch)).await
    }

    async fn record_with(
        &self,
        batch: Vec<Record>,
        rollups: Option<Rollups>,
    ) -> Result<Vec<Recorded>> {
        let mut weight = write::record::weight(&batch);
        weight.rows += rollups.as_ref().map_or(0, |rollups| rollups.minutes.len());
        let record = move |writer: &mut Writer| {
            if let Some(rollups) = &rollups {
                write::rollups::write(&writer.conn, rollups)?;
            }
            write::record::record(writer, &batch)
        };
        self.write(weight, record).await
    }

    async fn move_delivery(
        &self,
        wish: Wish,
        tenant: TenantId,
        delivery: DeliveryId,
        at: Timestamp,
        along: Along,
    ) -> Result<Moved> {
        let weight = write::audit::weight(&along);
        let act = move |writer: &mut Writer| {
            write::lanes::by_hand(writer, wish, tenant, delivery, at, &along)
        };
        self.write(weight, act).await
    }

    async fn expunge_event_with(
        &self,
        tenant: TenantId,
        event: EventId,
        responses: bool,
        at: Timestamp,
        along: Along,
    ) -> Result<Event> {
        let weight = write::audit::weight(&along);
        let expunge = move |writer: &mut Writer| {
            write::expunge::event(writer, tenant, event, responses, at, &along)
        };
        self.write(weight, expunge).await
    }

    async fn expunge_response_with(
        &self,
        tenant: TenantId,
        delivery: DeliveryId,
        number: u32,
        at: Timestamp,
        along: Along,
    ) -> Result<()> {
        let weight = write::audit::weight(&along);
        let expunge = move |writer: &mut Writer| {
            write::expunge::response(writer, tenant, delivery, number, at, &along)
        };
        self.write(weight, expunge).await
    }

    async fn create_redrive_with(&self, redrive: Redrive, along: Along) -> Result<Redrive> {
        let weight = write::audit::weight(&along);
        self.write(weight, move |writer| write::redrive::create(writer, &redrive, &along)).await
    }

    async fn redrive(&self, tenant: TenantId, id: RedriveId) -> Result<Option<Redrive>> {
        let found = self.read(move |conn| read::queries::redrive(conn, id)).await?;
        Ok(found.map(|(redrive, _)| redrive).filter(|redrive| redrive.tenant == tenant))
    }

    async fn redrives(&self, tenant: TenantId, page: RedrivePage) -> Result<Page<Redrive>> {
        self.read(move |conn| read::queries::redrives(conn, tenant, page)).await
    }

    async fn running_redrives(&self, limit: usize) -> Result<Vec<Redrive>> {
        self.read(move |conn| read::queries::running_redrives(conn, limit)).await
    }

    async fn cancel_redrive_with(
        &self,
        tenant: TenantId,
        id: RedriveId,
        at: Timestamp,
        ending: Option<Ending>,
        along: Along,
    ) -> Result<Redrive> {
        let cancel = move |writer: &mut Writer| {
            write::redrive::cancel(writer, tenant, id, at, ending.as_ref(), &along)
        };
        self.write(LIGHT, cancel).await
    }

    async fn advance_redrive(
        &self,
        id: RedriveId,
        limit: usize,
        at: Timestamp,
        ending: Option<Ending>,
    ) -> Result<Advanced> {
        let weight = Weight { rows: limit, bytes: 0 };
        let advance = move |writer: &mut Writer| {
            write::redrive::advance(writer, id, limit, at, ending.as_ref())
        };
        self.write(weight, advance).await
    }

    async fn create_job_with(
        &self,
        job: Job,
        change: Option<CatalogChange>,
        along: Along,
    ) -> Result<Option<CatalogVersion>> {
        let weight = write::audit::weight(&along);
        let create =
            move |writer: &mut Writer| write::job::create(writer, &job, change.as_ref(), &along);
        self.write(weight, create).await
    }

    async fn job(&self, tenant: TenantId, id: JobId) -> Result<Option<Job>> {
        let found = self.read(move |conn| read::jobs::job(conn, id)).await?;
        Ok(found.map(|(job, _)| job).filter(|job| job.tenant == tenant))
    }

    async fn jobs(&self, tenant: TenantId, listing: Listing) -> Result<Page<Job>> {
        self.read(move |conn| read::jobs::jobs(conn, tenant, &listing)).await
    }

    async fn running_jobs(&self, limit: usize) -> Result<Vec<(Job, Option<Place>)>> {
        self.read(move |conn| read::jobs::running(conn, limit)).await
    }

    async fn cancel_job_with(
        &self,
        tenant: TenantId,
        id: JobId,
        at: Timestamp,
        ending: Option<Ending>,
        along: Along,
    ) -> Result<Job> {
        let cancel = move |writer: &mut Writer| {
            write::job::cancel(writer, tenant, id, at, ending.as_ref(), &along)
        };
        self.write(LIGHT, cancel).await
    }

    async fn advance_job(&self, bite: Bite) -> Result<Bitten> {
        let expunged = bite.expunges.as_ref().map_or(0, |expunges| expunges.events.len());
        let weight = Weight { rows: bite.deeds.len() + expunged + 1, bytes: 0 };
        self.write(weight, move |writer| write::job::advance(writer, &bite)).await
    }

    async fn audit(&self, filter: AuditFilter, listing: Listing) -> Result<Page<AuditEntry>> {
        self.read(move |conn| read::audit::audit(conn, &filter, &listing)).await
    }

    async fn note(&self, along: Along) -> Result<()> {
        let weight = write::audit::weight(&along);
        self.write(weight, move |writer| write::audit::note(writer, &along)).await
    }

    async fn create_session(&self, session: Session, along: Along) -> Result<()> {
        let weight = write::audit::weight(&along);
        self.write(weight, move |writer| write::session::create(writer, &session, &along)).await
    }

    async fn session(&self, id: SessionId) -> Result<Option<Session>> {
        self.read(move |conn| read::session::find(conn, id)).await
    }

    async fn redeem_session(
        &self,
        link: SessionId,
        session: Session,
        along: Along,
    ) -> Result<bool> {
        let weight = write::audit::weight(&along);
        self.write(weight, move |writer| write::session::redeem(writer, link, &session, &along))
            .await
    }

    async fn sessions(&self, which: SessionFilter, listing: Listing) -> Result<Page<Session>> {
        self.read(move |conn| read::session::list(conn, &which, &listing)).await
    }

    async fn count_sessions(&self, tenant: TenantId, at: Timestamp) -> Result<u64> {
        self.read(move |conn| read::session::count(conn, tenant, at)).await
    }

    async fn end_sessions(&self, which: EndSessions, along: Along) -> Result<u64> {
        let weight = write::audit::weight(&along);
        self.write(weight, move |writer| write::session::end(writer, &which, &along)).await
    }

    async fn prune_sessions(&self, expired_before: Timestamp, limit: usize) -> Result<usize> {
        // Mostly there are none, and the writer is not disturbed for that.
        let over = move |conn: &Connection| read::session::may_prune(conn, expired_before);
        if !self.read(over).await? {
            return Ok(0);
        }
        let weight = Weight { rows: limit, bytes: 0 };
        let prune =
            move |writer: &mut Writer| write::session::prune(&writer.conn, expired_before, limit);
        self.write(weight, prune).await
    }

    async fn claim_answer(&self, claim: AnswerClaim) -> Result<AnswerClaimed> {
        let weight = Weight { rows: 1, bytes: 0 };
        self.write(weight, move |writer| write::kept_answer::claim(writer, &claim)).await
    }

    async fn keep_answer(&self, key: AnswerKey, answer: KeptAnswer) -> Result<bool> {
        let weight = Weight { rows: 1, bytes: answer.body().len() };
        let keep = move |writer: &mut Writer| write::kept_answer::keep(&writer.conn, &key, &answer);
        self.write(weight, keep).await
    }

    async fn release_answer(&self, key: AnswerKey, holder: u128) -> Result<()> {
        let release =
            move |writer: &mut Writer| write::kept_answer::release(&writer.conn, &key, holder);
        self.write(LIGHT, release).await
    }

    async fn prune_answers(&self, expired_before: Timestamp, limit: usize) -> Result<usize> {
        // As with sessions: the writer is disturbed when there is something to do.
        let over = move |conn: &Connection| write::kept_answer::may_prune(conn, expired_before);
        if !self.read(over).await? {
            return Ok(0);
        }
        let weight = Weight { rows: limit, bytes: 0 };
        let prune = move |writer: &mut Writer| {
            write::kept_answer::prune(&writer.conn, expired_before, limit)
        };
        self.write(weight, prune).await
    }

    async fn sweep_cancelled(&self, limit: usize, at: Timestamp) -> Result<Swept> {
        let weight = Weight { rows: limit, bytes: 0 };
        self.write(weight, move |writer| write::maintenance::sweep(writer, limit, at)).await
    }

    async fn enter_lanes(&self, limit: usize, at: Timestamp) -> Result<Entered> {
        // Nearly always there is nobody: the writer is not disturbed for that.
        let waits = move |conn: &Connection| read::work::may_enter(conn, at);
        if !self.read(waits).await? {
            return Ok(Entered::default());
        }
        let weight = Weight { rows: limit, bytes: 0 };
        self.write(weight, move |writer| write::entry::enter(writer, limit, at)).await
    }

    async fn prune(&self, prune: Prune) -> Result<Pruned> {
        let expired = self.expire(prune).await?;
        let prune = Prune { limit: prune.limit - expired.events, ..prune };
        if prune.limit == 0 {
            return Ok(expired);
        }
        // The search is a reader's, so that a long history of what must stay stalls nobody.
        let after = *self.prune_after.lock();
        let search = move |conn: &Connection| read::queries::prune_candidates(conn, after, &prune);
        let (candidates, next) = self.read(search).await?;
        let weight = Weight { rows: prune.limit, bytes: 0 };
        let remove =
            move |writer: &mut Writer| write::maintenance::prune(writer, &candidates, &prune);
        let pruned = self.write(weight, remove).await?;
        *self.prune_after.lock() = next.unwrap_or(0);
        let more = pruned.more || next.is_some() || expired.more;
        Ok(Pruned { more, events: pruned.events + expired.events, ..pruned })
    }

    async fn pruned_before(&self) -> Result<Option<Timestamp>> {
        self.read(read::queries::pruned_before).await
    }

    async fn tend_rollups(&self, tend: TendRollups) -> Result<bool> {
        let weight = Weight { rows: tend.limit, bytes: 0 };
        self.write(weight, move |writer| write::rollups::tend(writer, &tend)).await
    }

    async fn heartbeat(&self, beat: Heartbeat) -> Result<Membership> {
        self.write(LIGHT, move |writer| Ok(write::membership::heartbeat(writer, beat))).await
    }

    async fn acquire_shards(
        &self,
        node: NodeId,
        shards: &[Shard],
        ttl: Duration,
    ) -> Result<Vec<Grant>> {
        let shards = shards.to_vec();
        let acquire =
            move |writer: &mut Writer| write::membership::acquire(writer, node, &shards, ttl);
        self.write(LIGHT, acquire).await
    }

    async fn release_shards(&self, node: NodeId, grants: &[Grant]) -> Result<()> {
        let grants = grants.to_vec();
        let release = move |writer: &mut Writer| {
            writer.leases.release(node, &grants);
            Ok(())
        };
        self.write(LIGHT, release).await
    }

    async fn depart(&self, node: NodeId) -> Result<()> {
        let depart = move |writer: &mut Writer| {
            writer.leases.depart(node);
            Ok(())
        };
        self.write(LIGHT, depart).await
    }

    async fn notify(&self, _shards: &[Shard]) -> Result<()> {
        // There are no other nodes.
        self.shared.check()
    }

    async fn notified(&self) -> Vec<Shard> {
        std::future::pending().await
    }

    async fn event(&self, tenant: TenantId, id: EventId) -> Result<Option<Event>> {
        self.read(move |conn| read::queries::event(conn, tenant, id)).await
    }

    async fn events_by_id(&self, tenant: TenantId, ids: Vec<EventId>) -> Result<Vec<Event>> {
        self.read(move |conn| read::queries::events_by_id(conn, tenant, &ids)).await
    }

    async fn delivery_states(
        &self,
        tenant: TenantId,
        pairs: Vec<(EventId, SubscriptionId)>,
    ) -> Result<Vec<Option<DeliveryState>>> {
        self.read(move |conn| read::jobs::states(conn, tenant, &pairs)).await
    }

    async fn fan_outs(&self, tenant: TenantId, events: Vec<EventId>) -> Result<Vec<usize>> {
        self.read(move |conn| read::jobs::fan_outs(conn, tenant, &events)).await
    }

    async fn event_tallies(
        &self,
        tenant: TenantId,
        events: Vec<EventId>,
        limit: usize,
    ) -> Result<Vec<EventTally>> {
        self.read(move |conn| read::jobs::tallies(conn, tenant, &events, limit)).await
    }

    async fn events(
        &self,
        tenant: TenantId,
        filter: EventFilter,
        listing: Listing,
    ) -> Result<Page<Event>> {
        self.read(move |conn| read::lists::events(conn, tenant, &filter, &listing)).await
    }

    async fn event_lines(
        &self,
        tenant: TenantId,
        filter: EventFilter,
        listing: Listing,
    ) -> Result<Page<EventLine>> {
        self.read(move |conn| read::lists::event_lines(conn, tenant, &filter, &listing)).await
    }

    async fn deliveries_by_id(
        &self,
        tenant: TenantId,
        ids: Vec<DeliveryId>,
    ) -> Result<Vec<Delivery>> {
        self.read(move |conn| read::queries::deliveries_by_id(conn, tenant, &ids)).await
    }

    async fn delivery(&self, tenant: TenantId, id: DeliveryId) -> Result<Option<Delivery>> {
        self.read(move |conn| read::queries::delivery(conn, tenant, id)).await
    }

    async fn deliveries(
        &self,
        tenant: TenantId,
        filter: DeliveryFilter,
        listing: Listing,
    ) -> Result<Page<Delivery>> {
        self.read(move |conn| read::lists::deliveries(conn, tenant, &filter, &listing)).await
    }

    async fn attempts_made(
        &self,
        tenant: TenantId,
        filter: AttemptFilter,
        listing: Listing,
    ) -> Result<Page<AttemptLine>> {
        self.read(move |conn| read::lists::attempts(conn, tenant, &filter, &listing)).await
    }

    async fn events_after(&self, ask: FollowAsk) -> Result<Followed<EventLine>> {
        self.read(move |conn| read::follow::events(conn, &ask)).await
    }

    async fn attempts_after(&self, ask: FollowAsk) -> Result<Followed<AttemptMade>> {
        self.read(move |conn| read::follow::attempts(conn, &ask)).await
    }

    async fn attempts(&self, tenant: TenantId, delivery: DeliveryId) -> Result<Vec<Attempt>> {
        self.read(move |conn| read::queries::attempts(conn, tenant, delivery)).await
    }

    async fn counts(&self, tenant: Option<TenantId>) -> Result<Counts> {
        self.read(move |conn| read::queries::counts(conn, tenant)).await
    }

    async fn counts_by_tenant(&self, tenants: Vec<TenantId>) -> Result<Vec<Counts>> {
        let counts = move |conn: &Connection| {
            tenants.iter().map(|tenant| read::queries::counts(conn, Some(*tenant))).collect()
        };
        self.read(counts).await
    }

    async fn pending_by_tenant(&self) -> Result<Vec<(TenantId, u64)>> {
        self.read(read::queries::pending_by_tenant).await
    }

    async fn pending_by_subscription(&self) -> Result<Vec<(TenantId, SubscriptionId, u64)>> {
        self.read(read::rollups::pending_by_subscription).await
    }

    async fn series(&self, ask: SeriesAsk) -> Result<Series> {
        self.read(move |conn| read::rollups::series(conn, &ask)).await
    }

    async fn sums(&self, ask: SumsAsk) -> Result<Sums> {
        self.read(move |conn| read::rollups::sums(conn, &ask)).await
    }

    async fn ping(&self) -> Result<()> {
        self.read(|conn| Ok(conn.query_row("select 1", [], |_| Ok(()))?)).await?;
        self.shared.check_files()?;
        // The writer may be busy, but it must be there.
        if self.queues()?.writer.is_closed() { Err(self.shared.silence()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
