//! A store that behaves like one behind a network: late, sometimes not there, and at times silent
//! about what it has done.
//!
//! A call is carried to the model, takes effect at one moment, and its reply is carried back. Each
//! of the three may go wrong. A write that is on its way when its node dies may still take effect:
//! nobody recalls a packet. The oracle is told at the moment of the effect.

mod audit;
mod checks;
mod fate;

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::FutureExt;
use posthorn_conformance::model::ModelStore;
use posthorn_domain::delivery::Wish;
use posthorn_domain::{
    Attempt, AuditEntry, CatalogVersion, Delivery, DeliveryId, DeliveryState, Event, EventId, Job,
    JobId, JobState, KeyId, NodeId, Redrive, RedriveId, RedriveState, Session, SessionId, Shard,
    SubscriptionId, TenantId, Timestamp,
};
use posthorn_store::{
    Accepted, Advanced, Along, AnswerClaim, AnswerClaimed, AnswerKey, AttemptFilter, AttemptLine,
    AttemptMade, AuditFilter, Bite, Bitten, CatalogChange, CatalogDelta, Claim, Counts,
    DeliveryFilter, DueSubscription, EndSessions, Ending, Entered, Error, EventFilter, EventLine,
    EventTally, FailingSubscription, FollowAsk, Followed, Grant, Heartbeat, KeptAnswer, Listing,
    Membership, Moved, NewEvent, Page, PendingAsk, Place, Prune, Pruned, Record, Recorded,
    RedrivePage, Result, Rollups, Series, SeriesAsk, SessionFilter, Store, Sums, SumsAsk, Swept,
    TendRollups, Work,
};
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::world::{Link, World};

/// One node's way to the store.
pub(crate) struct FaultStore {
    reach: Arc<Reach>,
}

/// What a call works on when it takes effect.
pub(crate) struct Reach {
    model: ModelStore,
    world: Arc<World>,
    link: Arc<Link>,
}

/// The model answers at once; what it says is the effect of this moment.
fn at_once<T>(call: impl Future<Output = T>) -> T {
    call.now_or_never().expect("the model store never waits")
}

fn unavailable() -> Error {
    Error::Unavailable { context: "the simulator says so", source: None }
}

impl FaultStore {
    pub(crate) fn new(model: ModelStore, world: Arc<World>, link: Arc<Link>) -> Self {
        Self { reach: Arc::new(Reach { model, world, link }) }
    }

    /// Carries a call to the model and its reply back.
    async fn call<T, F>(&self, write: bool, apply: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Reach) -> Result<T> + Send + 'static,
    {
        let fate = self.fate(write);
        let reach = &self.reach;
        reach.link.passable().await;
        if fate.fails {
            sleep(Duration::from_millis(fate.before + 1)).await;
            reach.world.oracle.lock().disturb(reach.world.now());
            reach.world.note("store unavailable", &reach.link.life);
            return Err(unavailable());
        }
        if fate.before > 100 || fate.after > 100 || fate.silent {
            let later = reach.world.now().plus(posthorn_domain::Span::from_secs(8));
            reach.world.oracle.lock().disturb(later);
        }
        let answer = if fate.silent && !fate.effective {
            sleep(Duration::from_millis(fate.before)).await;
            Err(unavailable())
        } else if fate.before == 0 {
            apply(reach)
        } else if write && fate.survives {
            let (reply, answer) = oneshot::channel();
            let reach = Arc::clone(reach);
            tokio::spawn(async move {
                sleep(Duration::from_millis(fate.before)).await;
                drop(reply.send(apply(&reach)));
            });
            answer.await.unwrap_or_else(|_| Err(unavailable()))
        } else {
            sleep(Duration::from_millis(fate.before)).await;
            reach.link.passable().await;
            apply(reach)
        };
        if fate.after > 0 {
            sleep(Duration::from_millis(fate.after)).await;
        }
        reach.link.passable().await;
        if fate.silent {
            reach.world.note("store silent", &(reach.link.life, fate.effective));
            return Err(Error::Unknown { context: "the simulator says so", source: None });
        }
        answer
    }
}

#[async_trait]
impl Store for FaultStore {
    async fn change_catalog_with(
        &self,
        change: CatalogChange,
        along: Along,
    ) -> Result<CatalogVersion> {
        self.call(true, move |reach| {
            let before = at_once(reach.model.catalog_since(CatalogVersion(u64::MAX)))?.version;
            let made = at_once(reach.model.change_catalog_with(change.clone(), along.clone()));
            let did = made.as_ref().is_ok_and(|version| *version > before);
            reach.check_line(did, change.tenant(), &along);
            let version = made?;
            reach.changed(&change, &along.told, version);
            reach.world.note("change", &(reach.link.life, version, along.told.len()));
            Ok(version)
        })
        .await
    }

    async fn catalog_since(&self, since: CatalogVersion) -> Result<CatalogDelta> {
        self.call(false, move |reach| at_once(reach.model.catalog_since(since))).await
    }

    async fn touch_keys(&self, uses: Vec<(KeyId, Timestamp)>) -> Result<()> {
        self.call(true, move |reach| at_once(reach.model.touch_keys(uses.clone()))).await
    }

    async fn keys_used(&self) -> Result<Vec<(KeyId, Timestamp)>> {
        self.call(false, move |reach| at_once(reach.model.keys_used())).await
    }

    async fn accept(&self, batch: Vec<NewEvent>) -> Result<Vec<Accepted>> {
        self.call(true, move |reach| {
            let answers = at_once(reach.model.accept(batch.clone()))?;
            let now = reach.world.now();
            reach.world.oracle.lock().accepted(now, &batch, &answers);
            for (new, answer) in batch.iter().zip(&answers) {
                let said = match answer {
                    Accepted::Stored(placed) => placed.len(),
                    Accepted::Duplicate { .. } => 1_001,
                    Accepted::Conflict { .. } => 1_002,
                    Accepted::Stale => 1_003,
                };
                reach.world.note("accept", &(reach.link.life, new.event.id, said));
            }
            Ok(answers)
        })
        .await
    }

    async fn due_subscriptions(&self, shards: &[Shard]) -> Result<Vec<DueSubscription>> {
        let shards = shards.to_vec();
        self.call(false, move |reach| {
            let due = at_once(reach.model.due_subscriptions(&shards))?;
            reach.world.note("due", &(reach.link.life, due.len()));
            Ok(due)
        })
        .await
    }

    async fn pending(&self, asks: Vec<PendingAsk>, max_bytes: usize) -> Result<Vec<Vec<Work>>> {
        self.call(false, move |reach| {
            let works = at_once(reach.model.pending(asks, max_bytes))?;
            let found: usize = works.iter().map(Vec::len).sum();
            reach.world.note("pending", &(reach.link.life, found));
            Ok(works)
        })
        .await
    }

    async fn failing(&self, shards: &[Shard]) -> Result<Vec<FailingSubscription>> {
        let shards = shards.to_vec();
        self.call(false, move |reach| at_once(reach.model.failing(&shards))).await
    }

    async fn claim(&self, batch: Vec<Claim>) -> Result<Vec<bool>> {
        self.call(true, move |reach| {
            let granted = at_once(reach.model.claim(batch.clone()))?;
            let now = reach.world.now();
            reach.world.oracle.lock().claimed(now, &batch, &granted);
            reach.world.note("claim", &(reach.link.life, &granted));
            Ok(granted)
        })
        .await
    }

    async fn record_with(
        &self,
        batch: Vec<Record>,
        rollups: Option<Rollups>,
    ) -> Result<Vec<Recorded>> {
        self.call(true, move |reach| reach.record(&batch, rollups)).await
    }

    async fn move_delivery(
        &self,
        wish: Wish,
        tenant: TenantId,
        delivery: DeliveryId,
        at: Timestamp,
        along: Along,
    ) -> Result<Moved> {
        self.call(true, move |reach| {
            let operational = reach.is_operational(tenant, delivery);
            let moved = reach.model.move_delivery(wish, tenant, delivery, at, along.clone());
            let (moved, now) = (at_once(moved), reach.world.now());
            let mut oracle = reach.world.oracle.lock();
            let kind = match wish {
                Wish::Cancel => {
                    oracle.cancelled(now, tenant, delivery, at, &moved);
                    "cancel"
                }
                Wish::Retry | Wish::RetryOnce => {
                    let budget = wish.budget().unwrap_or_default();
                    oracle.retried(now, tenant, (delivery, budget), at, &moved);
                    "retry"
                }
                Wish::Forget => {
                    oracle.forgot(now, tenant, delivery, at, &moved);
                    "forget"
                }
            };
            drop(oracle);
            match operational {
                true => reach.asked_quietly(moved.is_ok(), tenant, &along),
                false => reach.asked(moved.is_ok(), tenant, &along),
            }
            reach.moved(kind, tenant, delivery, &moved);
            moved
        })
        .await
    }

    async fn expunge_event_with(
        &self,
        tenant: TenantId,
        event: EventId,
        responses: bool,
        at: Timestamp,
        along: Along,
    ) -> Result<Event> {
        self.call(true, move |reach| {
            let before = at_once(reach.model.event(tenant, event))?;
            let expunge =
                reach.model.expunge_event_with(tenant, event, responses, at, along.clone());
            let left = at_once(expunge);
            let now = reach.world.now();
            // With responses there may have been something left to remove, or not.
            let whole = before.is_some_and(|event| event.expunged_at.is_none());
            let did = left.is_ok() && (whole || reach.has_line(&along));
            reach.asked(did, tenant, &along);
            let what = (tenant, event, responses);
            reach.world.oracle.lock().expunged(now, what, at, &left);
            reach.world.note("expunge", &(reach.link.life, event, left.is_ok()));
            left
        })
        .await
    }

    async fn expunge_response_with(
        &self,
        tenant: TenantId,
        delivery: DeliveryId,
        number: u32,
        at: Timestamp,
        along: Along,
    ) -> Result<()> {
        self.call(true, move |reach| {
            let expunge =
                reach.model.expunge_response_with(tenant, delivery, number, at, along.clone());
            let done = at_once(expunge);
            reach.asked(done.is_ok() && reach.has_line(&along), tenant, &along);
            done
        })
        .await
    }

    async fn create_redrive_with(&self, redrive: Redrive, along: Along) -> Result<Redrive> {
        self.call(true, move |reach| {
            let tenant = redrive.tenant;
            let stored = at_once(reach.model.create_redrive_with(redrive, along.clone()));
            reach.asked(stored.is_ok(), tenant, &along);
            let stored = stored?;
            let now = reach.world.now();
            reach.world.oracle.lock().redrive_made(now, &stored);
            reach.world.note("redrive", &(reach.link.life, stored.id, stored.total));
            Ok(stored)
        })
        .await
    }

    async fn redrive(&self, tenant: TenantId, id: RedriveId) -> Result<Option<Redrive>> {
        self.call(false, move |reach| at_once(reach.model.redrive(tenant, id))).await
    }

    async fn redrives(&self, tenant: TenantId, page: RedrivePage) -> Result<Page<Redrive>> {
        self.call(false, move |reach| at_once(reach.model.redrives(tenant, page))).await
    }

    async fn running_redrives(&self, limit: usize) -> Result<Vec<Redrive>> {
        // Asked every second by whoever does the chores: a shorter way keeps long runs affordable.
        if self.reach.world.faults.lock().outage {
            return Err(unavailable());
        }
        self.reach.link.passable().await;
        self.reach.model.running_redrives(limit).await
    }

    async fn cancel_redrive_with(
        &self,
        tenant: TenantId,
        id: RedriveId,
        at: Timestamp,
        ending: Option<Ending>,
        along: Along,
    ) -> Result<Redrive> {
        self.call(true, move |reach| {
            let before = at_once(reach.model.redrive(tenant, id))?;
            let runs = before.is_some_and(|redrive| redrive.state == RedriveState::Running);
            let (told, with) = (ending.clone(), along.clone());
            let stopped = at_once(reach.model.cancel_redrive_with(tenant, id, at, told, with));
            if let Ok(stopped) = &stopped {
                let now = reach.world.now();
                reach.world.oracle.lock().redrive_stopped(now, stopped, ending.as_ref());
            }
            reach.asked(runs && stopped.is_ok(), tenant, &along);
            let stopped = stopped?;
            reach.check_ending(ending.as_ref());
            Ok(stopped)
        })
        .await
    }

    async fn advance_redrive(
        &self,
        id: RedriveId,
        limit: usize,
        at: Timestamp,
        ending: Option<Ending>,
    ) -> Result<Advanced> {
        self.call(true, move |reach| {
            let advanced = at_once(reach.model.advance_redrive(id, limit, at, ending.clone()))?;
            let now = reach.world.now();
            let told = ending.as_ref();
            let ids = reach.world.oracle.lock().advanced(now, id, limit, at, (&advanced, told));
            reach.check_ending(told);
            reach.world.note("advance", &(reach.link.life, id, advanced.moved));
            let tenants = reach.world.oracle.lock().tenants_of(&ids);
            reach.check_rows(tenants.into_iter());
            Ok(advanced)
        })
        .await
    }

    async fn create_job_with(
        &self,
        job: Job,
        change: Option<CatalogChange>,
        along: Along,
    ) -> Result<Option<CatalogVersion>> {
        self.call(true, move |reach| {
            let made = reach.model.create_job_with(job.clone(), change.clone(), along.clone());
            let created = at_once(made);
            let did = created.is_ok();
            let begins = matches!(change, Some(CatalogChange::CreateSubscription(_)));
            match change {
                None => reach.asked(did, job.tenant, &along),
                Some(change) => {
                    reach.check_line(did, Some(job.tenant), &along);
                    if let Ok(Some(version)) = &created {
                        reach.changed(&change, &along.told, *version);
                    }
                }
            }
            let created = created?;
            reach.world.oracle.lock().job_made(&job, begins);
            reach.world.note("job", &(reach.link.life, job.id));
            Ok(created)
        })
        .await
    }

    async fn job(&self, tenant: TenantId, id: JobId) -> Result<Option<Job>> {
        self.call(false, move |reach| at_once(reach.model.job(tenant, id))).await
    }

    async fn jobs(&self, tenant: TenantId, listing: Listing) -> Result<Page<Job>> {
        self.call(false, move |reach| at_once(reach.model.jobs(tenant, listing))).await
    }

    async fn running_jobs(&self, limit: usize) -> Result<Vec<(Job, Option<Place>)>> {
        self.call(false, move |reach| at_once(reach.model.running_jobs(limit))).await
    }

    async fn cancel_job_with(
        &self,
        tenant: TenantId,
        id: JobId,
        at: Timestamp,
        ending: Option<Ending>,
        along: Along,
    ) -> Result<Job> {
        self.call(true, move |reach| {
            let before = at_once(reach.model.job(tenant, id))?;
            let runs = before.is_some_and(|job| job.state == JobState::Running);
            let (told, with) = (ending.clone(), along.clone());
            let job = at_once(reach.model.cancel_job_with(tenant, id, at, told, with));
            if let Ok(job) = &job {
                let now = reach.world.now();
                reach.world.oracle.lock().job_stopped(now, job, ending.as_ref());
            }
            reach.asked(runs && job.is_ok(), tenant, &along);
            let job = job?;
            reach.check_ending(ending.as_ref());
            Ok(job)
        })
        .await
    }

    async fn advance_job(&self, bite: Bite) -> Result<Bitten> {
        self.call(true, move |reach| {
            let bitten = at_once(reach.model.advance_job(bite.clone()))?;
            let now = reach.world.now();
            if bite.removes.is_some() {
                let left = reach.left_of(bite.job);
                reach.world.oracle.lock().removed(now, &bite, &bitten, &left);
                reach.world.note("remove", &(reach.link.life, bite.job, bitten.done));
                return Ok(bitten);
            }
            let ids = reach.world.oracle.lock().bitten(now, &bite, &bitten);
            reach.check_ending(bite.ending.as_ref());
            reach.world.note("bite", &(reach.link.life, bite.job, bitten.done));
            let tenants = reach.world.oracle.lock().tenants_of(&ids);
            reach.check_rows(tenants.into_iter());
            Ok(bitten)
        })
        .await
    }

    async fn audit(&self, filter: AuditFilter, listing: Listing) -> Result<Page<AuditEntry>> {
        self.call(false, move |reach| at_once(reach.model.audit(filter, listing))).await
    }

    async fn note(&self, along: Along) -> Result<()> {
        self.call(true, move |reach| {
            let tenant = along.audit.as_ref().and_then(|line| line.tenant);
            let noted = at_once(reach.model.note(along.clone()));
            reach.check_line(noted.is_ok(), tenant, &along);
            noted
        })
        .await
    }

    async fn create_session(&self, session: Session, along: Along) -> Result<()> {
        self.call(true, move |reach| {
            let tenant = session.tenant();
            let made = at_once(reach.model.create_session(session, along.clone()));
            reach.check_line(made.is_ok(), tenant, &along);
            made
        })
        .await
    }

    async fn session(&self, id: SessionId) -> Result<Option<Session>> {
        self.call(false, move |reach| at_once(reach.model.session(id))).await
    }

    async fn redeem_session(
        &self,
        link: SessionId,
        session: Session,
        along: Along,
    ) -> Result<bool> {
        self.call(true, move |reach| {
            let tenant = session.tenant();
            let redeemed = at_once(reach.model.redeem_session(link, session, along.clone()));
            reach.check_line(matches!(redeemed, Ok(true)), tenant, &along);
            redeemed
        })
        .await
    }

    async fn sessions(&self, which: SessionFilter, listing: Listing) -> Result<Page<Session>> {
        self.call(false, move |reach| at_once(reach.model.sessions(which, listing))).await
    }

    async fn count_sessions(&self, tenant: TenantId, at: Timestamp) -> Result<u64> {
        self.call(false, move |reach| at_once(reach.model.count_sessions(tenant, at))).await
    }

    async fn end_sessions(&self, which: EndSessions, along: Along) -> Result<u64> {
        self.call(true, move |reach| {
            let ended = at_once(reach.model.end_sessions(which.clone(), along.clone()));
            // What goes with a key has the line of the key.
            if !matches!(which, EndSessions::OfKey(_)) {
                let tenant = along.audit.as_ref().and_then(|line| line.tenant);
                reach.check_line(ended.as_ref().is_ok_and(|ended| *ended > 0), tenant, &along);
            }
            ended
        })
        .await
    }

    async fn prune_sessions(&self, expired_before: Timestamp, limit: usize) -> Result<usize> {
        // Nobody opens sessions here, and the chores ask all the time: a shorter way keeps long runs affordable.
        if self.reach.world.faults.lock().outage {
            return Err(unavailable());
        }
        self.reach.link.passable().await;
        self.reach.model.prune_sessions(expired_before, limit).await
    }

    async fn claim_answer(&self, claim: AnswerClaim) -> Result<AnswerClaimed> {
        self.call(true, move |reach| at_once(reach.model.claim_answer(claim))).await
    }

    async fn keep_answer(&self, key: AnswerKey, answer: KeptAnswer) -> Result<bool> {
        self.call(true, move |reach| at_once(reach.model.keep_answer(key, answer))).await
    }

    async fn release_answer(&self, key: AnswerKey, holder: u128) -> Result<()> {
        self.call(true, move |reach| at_once(reach.model.release_answer(key, holder))).await
    }

    async fn prune_answers(&self, expired_before: Timestamp, limit: usize) -> Result<usize> {
        // As with sessions.
        if self.reach.world.faults.lock().outage {
            return Err(unavailable());
        }
        self.reach.link.passable().await;
        self.reach.model.prune_answers(expired_before, limit).await
    }

    async fn sweep_cancelled(&self, limit: usize, at: Timestamp) -> Result<Swept> {
        self.call(true, move |reach| {
            let swept = at_once(reach.model.sweep_cancelled(limit, at))?;
            reach.world.note("sweep", &(reach.link.life, swept.cancelled));
            Ok(swept)
        })
        .await
    }

    async fn enter_lanes(&self, limit: usize, at: Timestamp) -> Result<Entered> {
        self.call(true, move |reach| {
            let entered = at_once(reach.model.enter_lanes(limit, at))?;
            let now = reach.world.now();
            let ids = reach.world.oracle.lock().entered(now, limit, at, &entered);
            if !ids.is_empty() {
                reach.world.note("enter", &(reach.link.life, &ids));
            }
            let tenants = reach.world.oracle.lock().tenants_of(&ids);
            reach.check_rows(tenants.into_iter());
            Ok(entered)
        })
        .await
    }

    async fn prune(&self, prune: Prune) -> Result<Pruned> {
        self.call(true, move |reach| {
            let pruned = at_once(reach.model.prune(prune))?;
            if pruned.events > 0 || pruned.keys > 0 {
                let left: BTreeSet<EventId> =
                    reach.model.all_events().iter().map(|event| event.id).collect();
                let now = reach.world.now();
                reach.world.oracle.lock().pruned(now, &prune, &pruned, &left);
            }
            let running = reach.world.oracle.lock().running_redrives();
            for (tenant, id) in running {
                let there = at_once(reach.model.redrive(tenant, id))?.is_some();
                let now = reach.world.now();
                reach.world.oracle.lock().redrive_kept(now, id, there);
            }
            let running = reach.world.oracle.lock().running_jobs();
            for (tenant, id) in running {
                let there = at_once(reach.model.job(tenant, id))?.is_some();
                let now = reach.world.now();
                reach.world.oracle.lock().job_kept(now, id, there);
            }
            reach.world.note("prune", &(reach.link.life, pruned.events, pruned.keys));
            Ok(pruned)
        })
        .await
    }

    async fn heartbeat(&self, beat: Heartbeat) -> Result<Membership> {
        self.reach.link.set_node(beat.node);
        self.call(true, move |reach| {
            let members = at_once(reach.model.heartbeat(beat))?;
            let now = reach.world.now();
            reach.world.oracle.lock().beat(now, &beat);
            let seen = (reach.link.life, members.nodes.len(), members.holders.len());
            reach.world.note("beat", &seen);
            Ok(members)
        })
        .await
    }

    async fn acquire_shards(
        &self,
        node: NodeId,
        shards: &[Shard],
        ttl: Duration,
    ) -> Result<Vec<Grant>> {
        let shards = shards.to_vec();
        self.call(true, move |reach| {
            let grants = at_once(reach.model.acquire_shards(node, &shards, ttl))?;
            let now = reach.world.now();
            reach.world.oracle.lock().acquired(now, node, &grants, ttl);
            reach.world.note("acquire", &(reach.link.life, grants.len()));
            Ok(grants)
        })
        .await
    }

    async fn release_shards(&self, node: NodeId, grants: &[Grant]) -> Result<()> {
        let grants = grants.to_vec();
        self.call(true, move |reach| {
            at_once(reach.model.release_shards(node, &grants))?;
            reach.world.oracle.lock().released(node, &grants);
            reach.world.note("release", &(reach.link.life, grants.len()));
            Ok(())
        })
        .await
    }

    async fn depart(&self, node: NodeId) -> Result<()> {
        self.call(true, move |reach| {
            at_once(reach.model.depart(node))?;
            reach.world.oracle.lock().departed(node);
            reach.world.note("depart", &reach.link.life);
            Ok(())
        })
        .await
    }

    async fn notify(&self, shards: &[Shard]) -> Result<()> {
        let loss = self.reach.world.faults.lock().hint_loss;
        if self.reach.world.store_dice.lock().chance(loss) {
            return Ok(());
        }
        let shards = shards.to_vec();
        self.call(false, move |reach| at_once(reach.model.notify(&shards))).await
    }

    async fn notified(&self) -> Vec<Shard> {
        let hint = self.reach.model.notified().await;
        self.reach.link.passable().await;
        hint
    }

    async fn event(&self, tenant: TenantId, id: EventId) -> Result<Option<Event>> {
        self.call(false, move |reach| at_once(reach.model.event(tenant, id))).await
    }

    async fn events_by_id(&self, tenant: TenantId, ids: Vec<EventId>) -> Result<Vec<Event>> {
        self.call(false, move |reach| at_once(reach.model.events_by_id(tenant, ids))).await
    }

    async fn delivery_states(
        &self,
        tenant: TenantId,
        pairs: Vec<(EventId, SubscriptionId)>,
    ) -> Result<Vec<Option<DeliveryState>>> {
        self.call(false, move |reach| at_once(reach.model.delivery_states(tenant, pairs))).await
    }

    async fn fan_outs(&self, tenant: TenantId, events: Vec<EventId>) -> Result<Vec<usize>> {
        self.call(false, move |reach| at_once(reach.model.fan_outs(tenant, events))).await
    }

    async fn event_tallies(
        &self,
        tenant: TenantId,
        events: Vec<EventId>,
        limit: usize,
    ) -> Result<Vec<EventTally>> {
        self.call(false, move |reach| at_once(reach.model.event_tallies(tenant, events, limit)))
            .await
    }

    async fn events(
        &self,
        tenant: TenantId,
        filter: EventFilter,
        listing: Listing,
    ) -> Result<Page<Event>> {
        self.call(false, move |reach| at_once(reach.model.events(tenant, filter, listing))).await
    }

    async fn event_lines(
        &self,
        tenant: TenantId,
        filter: EventFilter,
        listing: Listing,
    ) -> Result<Page<EventLine>> {
        self.call(false, move |reach| at_once(reach.model.event_lines(tenant, filter, listing)))
            .await
    }

    async fn deliveries_by_id(
        &self,
        tenant: TenantId,
        ids: Vec<DeliveryId>,
    ) -> Result<Vec<Delivery>> {
        self.call(false, move |reach| at_once(reach.model.deliveries_by_id(tenant, ids))).await
    }

    async fn delivery(&self, tenant: TenantId, id: DeliveryId) -> Result<Option<Delivery>> {
        self.call(false, move |reach| at_once(reach.model.delivery(tenant, id))).await
    }

    async fn deliveries(
        &self,
        tenant: TenantId,
        filter: DeliveryFilter,
        listing: Listing,
    ) -> Result<Page<Delivery>> {
        self.call(false, move |reach| at_once(reach.model.deliveries(tenant, filter, listing)))
            .await
    }

    async fn attempts_made(
        &self,
        tenant: TenantId,
        filter: AttemptFilter,
        listing: Listing,
    ) -> Result<Page<AttemptLine>> {
        self.call(false, move |reach| at_once(reach.model.attempts_made(tenant, filter, listing)))
            .await
    }

    async fn events_after(&self, ask: FollowAsk) -> Result<Followed<EventLine>> {
        self.call(false, move |reach| at_once(reach.model.events_after(ask))).await
    }

    async fn attempts_after(&self, ask: FollowAsk) -> Result<Followed<AttemptMade>> {
        self.call(false, move |reach| at_once(reach.model.attempts_after(ask))).await
    }

    async fn attempts(&self, tenant: TenantId, delivery: DeliveryId) -> Result<Vec<Attempt>> {
        self.call(false, move |reach| at_once(reach.model.attempts(tenant, delivery))).await
    }

    async fn counts(&self, tenant: Option<TenantId>) -> Result<Counts> {
        self.call(false, move |reach| at_once(reach.model.counts(tenant))).await
    }

    async fn pending_by_tenant(&self) -> Result<Vec<(TenantId, u64)>> {
        // Asked every few seconds by every node: by the shorter way too.
        if self.reach.world.faults.lock().outage {
            return Err(unavailable());
        }
        self.reach.link.passable().await;
        self.reach.model.pending_by_tenant().await
    }

    async fn pending_by_subscription(&self) -> Result<Vec<(TenantId, SubscriptionId, u64)>> {
        self.call(false, move |reach| at_once(reach.model.pending_by_subscription())).await
    }

    async fn pruned_before(&self) -> Result<Option<Timestamp>> {
        self.call(false, move |reach| at_once(reach.model.pruned_before())).await
    }

    async fn tend_rollups(&self, tend: TendRollups) -> Result<bool> {
        self.call(true, move |reach| at_once(reach.model.tend_rollups(tend))).await
    }

    async fn series(&self, ask: SeriesAsk) -> Result<Series> {
        self.call(false, move |reach| at_once(reach.model.series(ask))).await
    }

    async fn sums(&self, ask: SumsAsk) -> Result<Sums> {
        self.call(false, move |reach| at_once(reach.model.sums(ask))).await
    }

    async fn ping(&self) -> Result<()> {
        self.call(false, move |reach| at_once(reach.model.ping())).await
    }
}
