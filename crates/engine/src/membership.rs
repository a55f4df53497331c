//! Membership: who is alive, which shards are ours, and is our catalog fresh?
//!
//! Every heartbeat renews all leases at once. The term until which the scheduler may use them counts
//! from before the heartbeat was sent, less a margin, by this process's own monotonic clock: a node
//! that was paused or cut off stops by itself before the store lets anybody else in.
//!
//! Each shard has one rightful owner among the living (rendezvous hashing). A node takes the shards
//! that are rightfully its own and free, and gives back, once they are quiet, those that are not.
//!
//! When the store was away for longer than leases last, they have all run out, and whoever reaches it first would
//! find everything free. Heartbeats renew such leases under their epochs, so each node has only to give the others
//! the time for theirs: after an outage of its own it takes nothing for half a lease. Nor does one that starts and hears of
//! several others that all fell silent.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use posthorn_domain::{Epoch, NodeId, Shard};
use posthorn_store::{Grant, Heartbeat, Membership as Members, Result, Store};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::catalog::Catalog;
use crate::error::chain;
use crate::metrics;
use crate::nodes::KnownNodes;
use crate::options::Options;
use crate::scheduler::{self, Input, LeaseTerm};
use crate::wakes::Wakes;

/// What runs here, which other nodes may want to know while they are renewed one by one.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The part of a lease that is not used, for what clocks and schedulers may be off by.
const MARGIN: u32 = 5;

pub(crate) struct Membership {
    pub(crate) node: NodeId,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) options: Arc<Options>,
    pub(crate) scheduler: mpsc::Sender<Input>,
    pub(crate) term: LeaseTerm,
    pub(crate) wakes: Wakes,
    pub(crate) known: KnownNodes,
    /// That this node gives no signs of life any more.
    pub(crate) leaving: watch::Receiver<bool>,
    /// Where it is told that the store cannot be worked with any more.
    pub(crate) failed: mpsc::UnboundedSender<String>,
}

/// What a run of the membership service keeps in mind.
#[derive(Default)]
struct Mind {
    held: BTreeMap<Shard, Epoch>,
    /// Shards that are being given back, and the word that they are quiet.
    retiring: Option<(Vec<Grant>, oneshot::Receiver<()>)>,
    /// When the last heartbeat was sent that was answered, and whether one since then was not.
    answered: Option<Instant>,
    failed: bool,
    /// Until when nothing is taken, because others may only just be coming back as well.
    patient: Option<Instant>,
}

impl Membership {
    /// Runs until it is dropped, or the node leaves.
    pub(crate) async fn run(self) {
        let mut leaving = self.leaving.clone();
        let mut mind = Mind::default();
        let mut beat = tokio::time::interval(self.options.heartbeat_interval);
        beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut poll = tokio::time::interval(self.options.poll_interval);
        poll.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                // The handle on it lives as long as the engine.
                () = async { drop(leaving.wait_for(|leaves| *leaves).await) } => return,
                _ = beat.tick() => self.beat(&mut mind).await,
                shards = self.store.notified() => self.hinted(shards, &mut mind).await,
                shards = self.wakes.next() => {
                    if let Err(e) = self.store.notify(&shards).await {
                        warn!(error = %chain(&e), "other nodes could not be notified; they will \
                                                   poll");
                    }
                }
                _ = poll.tick() => {
                    let held = mind.held.keys().copied().collect();
                    drop(self.scheduler.send(Input::Scan(held)).await);
                }
            }
        }
    }

    async fn hinted(&self, shards: Vec<Shard>, mind: &mut Mind) {
        if shards.is_empty() {
            // Whoever changed the catalog waits for this node to say that it has seen it.
            if self.refresh_catalog().await {
                self.beat(mind).await;
            }
        } else {
            drop(self.scheduler.send(Input::Scan(shards)).await);
        }
    }

    async fn beat(&self, mind: &mut Mind) {
        let sent = Instant::now();
        let ttl = self.options.lease;
        let heartbeat =
            Heartbeat { node: self.node, ttl, catalog: self.catalog.version(), version: VERSION };
        let result = match self.store.heartbeat(heartbeat).await {
            Ok(members) => {
                self.known.set(&members);
                self.follow(mind, &members, sent).await
            }
            Err(e) => Err(e),
        };
        if let Err(e) = result {
            mind.failed = true;
            if matches!(e, posthorn_store::Error::Fatal { .. }) {
                drop(self.failed.send(chain(&e)));
            }
            ::metrics::counter!(metrics::STORE_ERRORS, "operation" => "heartbeat").increment(1);
            warn!(error = %chain(&e), "leases could not be renewed");
        }
        ::metrics::gauge!(metrics::SHARDS).set(mind.held.len() as f64);
        self.wakes.set_held(mind.held.keys().copied());
    }

    async fn follow(&self, mind: &mut Mind, members: &Members, sent: Instant) -> Result<()> {
        self.notice_outage(mind, members, sent);
        // A node must not start anything on a catalog that is older than its sign of life says.
        if members.catalog > self.catalog.version() && !self.refresh_catalog().await {
            return Ok(());
        }
        self.lose_what_is_gone(mind, members).await;
        // Ours by the store and unknown here: the answer to an earlier taking got lost. Looked for
        // before anything is given back, since `members` does not know of that yet.
        let orphans: Vec<Shard> = members
            .holders
            .iter()
            .filter(|h| h.node == self.node && !mind.held.contains_key(&h.shard))
            .map(|h| h.shard)
            .collect();
        self.give_back(mind, members).await?;
        self.take_what_is_ours(mind, members, orphans).await?;
        let usable = self.options.lease - self.options.lease / MARGIN;
        self.term.set(sent + usable);
        drop(self.scheduler.send(Input::Renewed).await);
        Ok(())
    }

    fn notice_outage(&self, mind: &mut Mind, members: &Members, sent: Instant) {
        let lease = self.options.lease;
        let failed = std::mem::take(&mut mind.failed);
        let was_away = match mind.answered.replace(sent) {
            // Answers that are only slow are no outage: whoever is dead must be replaced all the same.
            Some(last) => {
                let silence = sent.saturating_duration_since(last);
                let away = silence >= if failed { lease / 2 } else { lease };
                if away {
                    info!(?silence, "the store can be reached again");
                }
                away
            }
            // One that is gone has died or was replaced by us. Several at once cannot reach the store either, or could not.
            None => members.lost.len() > 1 && members.nodes.iter().all(|n| n.node == self.node),
        };
        if was_away {
            mind.patient = Some(Instant::now() + lease / 2);
        }
    }

    async fn lose_what_is_gone(&self, mind: &mut Mind, members: &Members) {
        let still = |shard: &Shard, epoch: &Epoch| {
            members
                .holders
                .iter()
                .any(|h| h.shard == *shard && h.epoch == *epoch && h.node == self.node)
        };
        let lost: Vec<Shard> =
            mind.held.iter().filter(|(s, e)| !still(s, e)).map(|(s, _)| *s).collect();
        if lost.is_empty() {
            return;
        }
        warn!(shards = lost.len(), "leases were lost");
        ::metrics::counter!(metrics::LEASE_CHANGES, "change" => "lost")
            .increment(lost.len() as u64);
        for shard in &lost {
            mind.held.remove(shard);
        }
        self.term.lost();
        // What was being given back and is lost must not be given back later, when it may be ours
        // again under another epoch.
        if let Some((grants, _)) = &mut mind.retiring {
            grants.retain(|grant| !lost.contains(&grant.shard));
        }
        drop(self.scheduler.send(Input::Lost(lost)).await);
    }

    async fn give_back(&self, mind: &mut Mind, members: &Members) -> Result<()> {
        if let Some((grants, quiet)) = &mut mind.retiring {
            match quiet.try_recv() {
                Err(oneshot::error::TryRecvError::Empty) => return Ok(()),
                _ => {
                    self.store.release_shards(self.node, grants).await?;
                    let count = grants.len() as u64;
                    ::metrics::counter!(metrics::LEASE_CHANGES, "change" => "released")
                        .increment(count);
                    for grant in grants.iter() {
                        mind.held.remove(&grant.shard);
                    }
                    mind.retiring = None;
                    return Ok(());
                }
            }
        }
        let surplus: Vec<Grant> = mind
            .held
            .iter()
            .filter(|(shard, _)| rightful(**shard, members) != Some(self.node))
            .map(|(shard, epoch)| Grant { shard: *shard, epoch: *epoch })
            .collect();
        if !surplus.is_empty() {
            let (done, quiet) = oneshot::channel();
            let shards = surplus.iter().map(|grant| grant.shard).collect();
            drop(self.scheduler.send(Input::Retire(shards, done)).await);
            mind.retiring = Some((surplus, quiet));
        }
        Ok(())
    }

    async fn take_what_is_ours(
        &self,
        mind: &mut Mind,
        members: &Members,
        orphans: Vec<Shard>,
    ) -> Result<()> {
        let patient = mind.patient.is_some_and(|until| Instant::now() < until);
        let free = |shard: &Shard| !patient && !members.holders.iter().any(|h| h.shard == *shard);
        let wanted: Vec<Shard> = Shard::all()
            .filter(|shard| free(shard) && rightful(*shard, members) == Some(self.node))
            .chain(orphans)
            .collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let grants = self.store.acquire_shards(self.node, &wanted, self.options.lease).await?;
        if grants.is_empty() {
            return Ok(());
        }
        info!(shards = grants.len(), "shards were gained");
        ::metrics::counter!(metrics::LEASE_CHANGES, "change" => "gained")
            .increment(grants.len() as u64);
        for grant in &grants {
            mind.held.insert(grant.shard, grant.epoch);
        }
        drop(self.scheduler.send(Input::Gained(grants)).await);
        Ok(())
    }

    /// Brings the catalog up to date; false when the store could not answer.
    async fn refresh_catalog(&self) -> bool {
        match self.store.catalog_since(self.catalog.version()).await {
            Ok(delta) => {
                scheduler::tell(&self.scheduler, self.catalog.apply(delta)).await;
                true
            }
            Err(e) => {
                warn!(error = %chain(&e), "the catalog could not be read");
                false
            }
        }
    }
}

/// Whose a shard is by right: the living node with the highest score for it.
fn rightful(shard: Shard, members: &Members) -> Option<NodeId> {
    let score = |node: NodeId| {
        let mut hasher = DefaultHasher::new();
        (shard.number(), node.as_bytes()).hash(&mut hasher);
        hasher.finish()
    };
    members.nodes.iter().map(|live| live.node).max_by_key(|node| (score(*node), *node))
}

/// Waits until every living node works with a catalog at least this new, or could no longer start
/// anything: after this, what was deleted or paused stays so everywhere.
pub(crate) async fn settle_catalog(
    store: &dyn Store,
    node: NodeId,
    catalog: &Catalog,
    ttl: Duration,
    version: posthorn_domain::CatalogVersion,
) -> Result<()> {
    let deadline = Instant::now() + ttl;
    let mut wait = Duration::from_millis(10);
    loop {
        let beat = Heartbeat { node, ttl, catalog: catalog.version(), version: VERSION };
        let members = store.heartbeat(beat).await?;
        let behind = |n: &posthorn_store::LiveNode| n.node != node && n.catalog < version;
        if !members.nodes.iter().any(behind) || Instant::now() >= deadline {
            return Ok(());
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(Duration::from_millis(200));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use posthorn_domain::{CatalogVersion, Timestamp};
    use posthorn_store::LiveNode;

    #[test]
    fn shards_spread_and_mostly_stay_when_a_node_joins() {
        let nodes = |count: u128| Members {
            nodes: (0..count)
                .map(|n| LiveNode {
                    node: NodeId::new(Timestamp::from_millis(1), n),
                    catalog: CatalogVersion(0),
                })
                .collect(),
            ..Members::default()
        };
        let (three, four) = (nodes(3), nodes(4));
        let moved = Shard::all()
            .filter(|shard| rightful(*shard, &three) != rightful(*shard, &four))
            .count();
        assert!(moved < 32, "only the newcomer's share moves, not {moved} of 64");
        for node in &three.nodes {
            let own = Shard::all().filter(|s| rightful(*s, &three) == Some(node.node)).count();
            assert!(own > 8, "every node gets a fair share, not {own} of 64");
        }
    }
}
