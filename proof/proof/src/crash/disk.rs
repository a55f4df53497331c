//! A full disk: what is refused is refused clearly, what was accepted stays, and space heals it.
//!
//! It gets full twice. The first time space comes back under the running server; the second time the
//! server is killed while the disk is full.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::time::{Instant, sleep};

use crate::crash::cluster::{self, StoreKind};
use crate::crash::plan::{Order, Plan, Subscription, TENANTS, Temper};
use crate::crash::publisher;
use crate::crash::run::{Stage, say};
use crate::crash::summary::Summary;

/// The size of the disk.
const DISK_MIB: u64 = 24;
/// What is freed each time it is full.
const BALLAST_MIB: usize = 6;
/// How long filling it may take.
const FILL_PATIENCE: Duration = Duration::from_secs(90);
/// How long load goes on after the server was healed.
const AFTERWARDS: Duration = Duration::from_millis(300);
/// How long the disk stays full.
const FULL_FOR: Duration = Duration::from_secs(4);
/// How long the server may take to accept again once there is space.
const HEAL_PATIENCE: Duration = Duration::from_secs(20);
/// The largest filling of a payload, so that the disk is soon full.
const FILLING: u64 = 12_000;

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The binary under test.
    pub binary: PathBuf,
    /// For chance.
    pub seed: u64,
    /// The folder for everything that is written.
    pub folder: PathBuf,
}

/// A small disk in memory, gone when it is dropped.
struct Disk(PathBuf);

impl Disk {
    /// `None` when we may not mount.
    fn mount(folder: &Path) -> anyhow::Result<Option<Self>> {
        let path = folder.join("disk");
        std::fs::create_dir(&path).context("making the mount point")?;
        let size = format!("size={DISK_MIB}m");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &size, "posthorn-crash"]).arg(&path);
        let output = mount.output().context("running mount")?;
        if output.status.success() {
            return Ok(Some(Self(path)));
        }
        say(&format!("mount: {}", String::from_utf8_lossy(&output.stderr).trim()));
        Ok(None)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Lazily: the server may still be on its way out.
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

/// Runs, and judges; `None` when it cannot be run here.
pub async fn run(options: &Options) -> anyhow::Result<Option<Summary>> {
    let began = Instant::now();
    let Some(disk) = Disk::mount(&options.folder)? else {
        say("skipped: a full disk needs the right to mount a tmpfs (run as root)");
        return Ok(None);
    };
    let ballast = ["ballast-1", "ballast-2"].map(|name| disk.0.join(name));
    for file in &ballast {
        std::fs::write(file, vec![0_u8; BALLAST_MIB << 20]).context("writing the ballast")?;
    }
    let cast = |tenant: &str, name: &str, order| {
        let topics = ["orders", "ledger", "audit"];
        Subscription::new(tenant, name, &topics, order, Temper::Good)
    };
    let plan = Plan {
        seed: options.seed,
        subscriptions: vec![
            cast(TENANTS[0], "plain", Order::None),
            cast(TENANTS[1], "by-key", Order::Key),
        ],
    };
    let wish = cluster::Options {
        binary: options.binary.clone(),
        store: StoreKind::Sqlite,
        nodes: 1,
        folder: options.folder.clone(),
        data: Some(disk.0.join("data")),
        seed: options.seed,
    };
    let mut stage = Stage::set(&wish, plan).await?;
    for (tenant, api_key) in stage.subscribe_all().await? {
        for index in 0..4 {
            let options_of_one = publisher::Options {
                name: format!("{tenant}-p{index}"),
                tenant: tenant.clone(),
                api_key: api_key.clone(),
                batches: index == 3,
                pace: Duration::from_millis(10),
                filling: FILLING,
                // Every publish is repeated until it is answered: so all must be accepted in the end.
                mischief: false,
            };
            stage.add_publisher(options_of_one, options.seed);
        }
    }
    let mut notes = vec![fill(&stage).await?];
    sleep(FULL_FOR).await;
    std::fs::remove_file(&ballast[0]).context("removing the ballast")?;
    notes.push(heal(&mut stage).await?);
    notes.push(fill(&stage).await?);
    notes.push(endure(&mut stage).await?);
    std::fs::remove_file(&ballast[1]).context("removing the ballast")?;
    notes.push(heal(&mut stage).await?);
    sleep(AFTERWARDS).await;
    let drain_seconds = stage.drain().await?;
    let mut summary = stage.finish().await?;
    summary.store = "sqlite, disk full".to_owned();
    summary.seed = options.seed;
    summary.notes = notes;
    summary.drain_seconds = drain_seconds;
    summary.seconds = began.elapsed().as_secs_f64();
    Ok(Some(summary))
}

fn accepted(answers: &BTreeMap<String, u64>) -> u64 {
    answers.iter().filter(|(name, _)| name.starts_with('2')).map(|(_, count)| count).sum()
}

/// Waits until publishes are refused and none is accepted any more.
async fn fill(stage: &Stage) -> anyhow::Result<String> {
    let began = Instant::now();
    let mut before = 0;
    loop {
        sleep(Duration::from_secs(1)).await;
        let answers = stage.shared.answers.lock().clone();
        let now = accepted(&answers);
        let refused: u64 = answers.values().sum::<u64>() - now;
        if now == before && now > 0 && refused > 0 {
            let text = format!("full after {now} events");
            say(&format!("{text}: {answers:?}"));
            return Ok(text);
        }
        if began.elapsed() >= FILL_PATIENCE {
            bail!("the disk did not get full: {answers:?}");
        }
        before = now;
    }
}

/// The server must stay up on a full disk, and be able to come back while it is full.
async fn endure(stage: &mut Stage) -> anyhow::Result<String> {
    sleep(FULL_FOR / 2).await;
    let ends = stage.cluster.revive()?;
    stage.finale.own_ends.extend(ends);
    let node = &mut stage.cluster.nodes[0];
    let from = stage.journal.now();
    node.kill().await?;
    node.start()?;
    let came_back = node.wait_ready().await.is_ok();
    // What does not come back is started again when there is space, as a supervisor would.
    node.kill().await?;
    if came_back {
        node.start()?;
        node.wait_ready().await?;
    }
    let until = stage.journal.now();
    let what = "killed on the full disk".to_owned();
    stage.journal.fault(&crate::crash::evidence::Fault {
        what,
        from,
        until,
        hits: 2,
        blind: true,
        promoted: None,
    });
    sleep(FULL_FOR / 2).await;
    let text = if came_back { "starts on a full disk" } else { "does not start on a full disk" };
    say(text);
    Ok(text.to_owned())
}

/// Waits until publishes are accepted again.
async fn heal(stage: &mut Stage) -> anyhow::Result<String> {
    let node = &mut stage.cluster.nodes[0];
    if !node.is_running() {
        node.start()?;
    }
    let before = accepted(&stage.shared.answers.lock());
    let began = Instant::now();
    while accepted(&stage.shared.answers.lock()) == before {
        if began.elapsed() >= HEAL_PATIENCE {
            bail!("publishes are still refused {HEAL_PATIENCE:?} after space was freed");
        }
        sleep(Duration::from_millis(20)).await;
    }
    let text = format!("accepts again {} ms after space was freed", began.elapsed().as_millis());
    say(&text);
    Ok(text)
}
