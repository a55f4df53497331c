//! What is done to the server: kills, pauses, and a database that goes away.

use std::sync::Arc;
use std::time::Duration;

use posthorn_testkit::postgres::TestPostgres;
use tokio::time::sleep;

use crate::crash::cluster::{Cluster, LEASE, StoreKind};
use crate::crash::dice::Dice;
use crate::crash::evidence::{Fault, Journal};
use crate::crash::upheaval::Upheaval;

/// How long after a recovery its effects may still show: shards whose owner died are free when
/// their lease has run out, after an outage half a lease later, and move once more when the node is back.
const AFTERMATH: Duration = Duration::from_millis(5 * LEASE.as_millis() as u64 / 2 + 1_000);

/// One fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// `SIGKILL` to some nodes, which are started again after a while.
    Kill {
        /// Which.
        nodes: Vec<usize>,
        /// How long they are away.
        away: Duration,
        /// Kill them once more, so long after the start.
        again: Option<Duration>,
    },
    /// `SIGSTOP`, and `SIGCONT` later than the lease lasts.
    Pause {
        /// Which.
        node: usize,
        /// How long.
        away: Duration,
    },
    /// The database goes away without a checkpoint, and comes back.
    Database {
        /// With `SIGKILL` rather than an immediate stop.
        kill: bool,
        /// How long it is away.
        away: Duration,
    },
    /// Something happens to a database of two machines.
    Upheaval(Upheaval),
}

impl Fate {
    /// What happens in a cycle.
    pub fn choose(dice: &mut Dice, cycle: u64, nodes: usize, store: StoreKind) -> Self {
        let database = store == StoreKind::Postgres;
        if store == StoreKind::Patroni
            && let Some(upheaval) = Upheaval::choose(dice, cycle, nodes)
        {
            return Self::Upheaval(upheaval);
        }
        let all = u64::try_from(nodes).unwrap_or(1);
        let node = |dice: &mut Dice| usize::try_from(dice.roll() % all).unwrap_or(0);
        match cycle % 5 {
            3 if database => {
                Self::Database { kill: dice.percent(50), away: dice.millis(0..=3_000) }
            }
            4 => {
                let lease = u64::try_from(LEASE.as_millis()).unwrap_or(u64::MAX);
                let node = node(dice);
                Self::Pause { node, away: dice.millis(lease * 6 / 5..=lease * 5 / 2) }
            }
            _ => {
                let mut order: Vec<usize> = (0..nodes).collect();
                for index in 0..nodes {
                    order.swap(index, node(dice));
                }
                // Mostly one, often two, now and then all.
                let count =
                    [1, 1, 1, 2, 2, 2, 2, nodes][usize::try_from(dice.roll() % 8).unwrap_or(0)];
                order.truncate(count.clamp(1, nodes));
                let again = dice.percent(25).then(|| dice.millis(0..=400));
                Self::Kill { nodes: order, away: dice.millis(0..=1_500), again }
            }
        }
    }

    /// In words.
    pub fn describe(&self) -> String {
        match self {
            Self::Kill { nodes, away, again } => {
                let again = again.map_or(String::new(), |after| {
                    format!(", killed again {} ms after the start", after.as_millis())
                });
                format!("killed {nodes:?} for {} ms{again}", away.as_millis())
            }
            Self::Pause { node, away } => format!("paused [{node}] for {} ms", away.as_millis()),
            Self::Database { kill, away } => {
                let how = if *kill { "killed" } else { "stopped" };
                format!("{how} the database for {} ms", away.as_millis())
            }
            Self::Upheaval(upheaval) => upheaval.describe(),
        }
    }

    /// Does it, waits until every node is ready again, and writes it down. Returns the nodes that
    /// ended by themselves meanwhile.
    pub async fn strike(
        &self,
        cluster: &mut Cluster,
        journal: &Journal,
    ) -> anyhow::Result<Vec<String>> {
        let from = journal.now();
        let mut promoted = None;
        let hits = match self {
            Self::Kill { nodes, away, again } => {
                kill(cluster, nodes, *away, *again).await?;
                nodes.len() * if again.is_some() { 2 } else { 1 }
            }
            Self::Pause { node, away } => {
                cluster.nodes[*node].signal("STOP").await?;
                sleep(*away).await;
                cluster.nodes[*node].signal("CONT").await?;
                1
            }
            Self::Database { kill, away } => {
                if let Some(server) = &cluster.postgres {
                    interrupt(Arc::clone(server), *kill, *away).await?;
                }
                // Every node may have had to give up what it was doing.
                cluster.nodes.len()
            }
            Self::Upheaval(upheaval) => {
                if let Some(ground) = &cluster.ground {
                    promoted = ground.strike(upheaval, journal).await?;
                }
                cluster.nodes.len()
            }
        };
        let ends = cluster.revive()?;
        for node in &mut cluster.nodes {
            node.wait_ready().await?;
        }
        let aftermath = u64::try_from(AFTERMATH.as_micros()).unwrap_or(u64::MAX);
        let until = journal.now() + aftermath;
        let hits = u64::try_from(hits).unwrap_or(u64::MAX);
        journal.fault(&Fault { what: self.describe(), from, until, hits, blind: false, promoted });
        Ok(ends)
    }
}

async fn kill(
    cluster: &mut Cluster,
    nodes: &[usize],
    away: Duration,
    again: Option<Duration>,
) -> anyhow::Result<()> {
    for index in nodes {
        cluster.nodes[*index].kill().await?;
    }
    sleep(away).await;
    for index in nodes {
        cluster.nodes[*index].start()?;
    }
    if let Some(after) = again {
        sleep(after).await;
        for index in nodes {
            cluster.nodes[*index].kill().await?;
            cluster.nodes[*index].start()?;
        }
    }
    Ok(())
}

async fn interrupt(server: Arc<TestPostgres>, kill: bool, away: Duration) -> anyhow::Result<()> {
    let down = Arc::clone(&server);
    tokio::task::spawn_blocking(
        move || {
            if kill { down.kill_postmaster() } else { down.stop_immediate() }
        },
    )
    .await??;
    sleep(away).await;
    tokio::task::spawn_blocking(move || server.restart()).await??;
    Ok(())
}
