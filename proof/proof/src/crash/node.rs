//! One node of the server under test: a child process that can be killed, paused and started again.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use crate::crash::publisher::Targets;
use crate::crash::wire::{Call, Client};

/// How long a node may take until it is ready, recovery included.
const READY_PATIENCE: Duration = Duration::from_secs(60);
/// How long a node may take to stop when it is asked to.
const STOP_PATIENCE: Duration = Duration::from_secs(15);
/// How long killing may take.
const KILL_PATIENCE: Duration = Duration::from_secs(10);

/// What a node said when it started.
#[derive(Clone, Debug, Default)]
struct Greeting {
    address: Option<SocketAddr>,
    key: Option<String>,
    ended: bool,
}

/// One node.
#[derive(Debug)]
pub struct Node {
    index: usize,
    binary: PathBuf,
    config: PathBuf,
    log: PathBuf,
    targets: Arc<Targets>,
    child: Option<Child>,
    greeting: watch::Receiver<Greeting>,
}

impl Node {
    /// A node that does not run yet, with its files in a folder.
    pub fn new(
        index: usize,
        binary: &Path,
        folder: &Path,
        config: &str,
        targets: Arc<Targets>,
    ) -> anyhow::Result<Self> {
        let file = folder.join(format!("node-{index}.yaml"));
        std::fs::write(&file, config).with_context(|| format!("writing {}", file.display()))?;
        Ok(Self {
            index,
            binary: binary.to_owned(),
            config: file,
            log: folder.join(format!("node-{index}.log")),
            targets,
            child: None,
            greeting: watch::channel(Greeting::default()).1,
        })
    }

    /// Its number.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Where its log is.
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Whether it was started, and neither killed nor seen to end.
    pub fn is_running(&self) -> bool {
        self.child.is_some()
    }

    /// Starts the process, and does not wait for anything.
    pub fn start(&mut self) -> anyhow::Result<()> {
        let mut command = guarded(&self.binary);
        command
            .arg("serve")
            .arg("--config")
            .arg(&self.config)
            .current_dir(self.config.parent().unwrap_or(Path::new("/")))
            .env("RUST_BACKTRACE", "1")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // Not in our group: an interrupt at the terminal is for the harness to handle.
            .process_group(0)
            .kill_on_drop(true);
        let mut child = command.spawn().with_context(|| format!("starting {:?}", self.binary))?;
        let stderr = child.stderr.take().context("the node has no stderr")?;
        let mut log = OpenOptions::new().create(true).append(true).open(&self.log)?;
        writeln!(log, "---- started, process {} ----", child.id().unwrap_or(0))?;
        let (tell, greeting) = watch::channel(Greeting::default());
        let lines = BufReader::new(stderr).lines();
        tokio::spawn(listen(lines, log, tell, Arc::clone(&self.targets), self.index));
        self.child = Some(child);
        self.greeting = greeting;
        Ok(())
    }

    /// Waits until the node serves; its operator key, when this start made one.
    pub async fn wait_ready(&mut self) -> anyhow::Result<Option<String>> {
        let deadline = Instant::now() + READY_PATIENCE;
        let index = self.index;
        let mut greeting = self.greeting.clone();
        let heard = greeting.wait_for(|greeting| greeting.address.is_some() || greeting.ended);
        let heard = timeout(READY_PATIENCE, heard).await;
        let heard = heard.with_context(|| format!("node {index} does not listen"))??.clone();
        let Some(address) = heard.address else {
            bail!("node {index} ended before it listened; see {}", self.log.display());
        };
        let mut client = Client::default();
        loop {
            let call = Call { method: "GET", path: "/readyz", key: "", headers: &[], body: "" };
            let answer = client.call(address, call, Duration::from_secs(2)).await;
            if answer.is_ok_and(|answer| answer.is_success()) {
                return Ok(self.greeting.borrow().key.clone());
            }
            if Instant::now() >= deadline || self.greeting.borrow().ended {
                bail!("node {index} does not get ready; see {}", self.log.display());
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Kills it, as a power cut would.
    pub async fn kill(&mut self) -> anyhow::Result<()> {
        if let Some(mut child) = self.child.take() {
            timeout(KILL_PATIENCE, child.kill()).await.context("a node survives SIGKILL")??;
        }
        self.targets.set(self.index, None);
        Ok(())
    }

    /// Sends it a signal by name.
    pub async fn signal(&self, name: &str) -> anyhow::Result<()> {
        let id = self.child.as_ref().and_then(Child::id).context("the node does not run")?;
        let mut command = Command::new("kill");
        let status = command.arg(format!("-{name}")).arg(id.to_string()).status().await?;
        if !status.success() {
            bail!("kill -{name} {id} failed");
        }
        Ok(())
    }

    /// How it ended, if it did although nobody asked it to.
    pub fn own_end(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        let Some(child) = self.child.as_mut() else { return Ok(None) };
        let end = child.try_wait()?;
        if end.is_some() {
            self.child = None;
            self.targets.set(self.index, None);
        }
        Ok(end)
    }

    /// Asks it to stop, and says how it did; `None` when it had to be killed.
    pub async fn stop(&mut self) -> anyhow::Result<Option<ExitStatus>> {
        self.signal("TERM").await?;
        let Some(child) = self.child.as_mut() else { return Ok(None) };
        let Ok(end) = timeout(STOP_PATIENCE, child.wait()).await else {
            self.kill().await?;
            return Ok(None);
        };
        self.child = None;
        self.targets.set(self.index, None);
        Ok(Some(end?))
    }
}

/// The command, under a guard that kills it when this process is killed itself: `kill_on_drop` only
/// helps while somebody is left to drop.
fn guarded(binary: &Path) -> Command {
    if !Path::new("/usr/bin/setpriv").exists() {
        return Command::new(binary);
    }
    let mut command = Command::new("/usr/bin/setpriv");
    command.args(["--pdeathsig", "KILL", "--"]).arg(binary);
    command
}

/// Copies what the node says to its log, and picks out where it listens and where its operator key is.
async fn listen(
    mut lines: Lines<BufReader<ChildStderr>>,
    mut log: File,
    tell: watch::Sender<Greeting>,
    targets: Arc<Targets>,
    index: usize,
) {
    while let Ok(Some(line)) = lines.next_line().await {
        // A log that cannot be written is seen by the checker's own logs too.
        let _ = writeln!(log, "{line}");
        let words = || line.split(|c: char| c.is_whitespace() || c == '"' || c == '\\');
        // A start that makes a key says where it is, before it says the address.
        if let Some(file) = words().find(|word| word.ends_with("/operator.key"))
            && let Ok(key) = std::fs::read_to_string(file)
        {
            tell.send_modify(|greeting| greeting.key = Some(key.trim().to_owned()));
        }
        if line.contains("listening on") {
            let plain = |word: &str| {
                word.trim_start_matches("http://").trim_end_matches(['/', ',', '.']).parse().ok()
            };
            if let Some(address) = words().find_map(plain) {
                targets.set(index, Some(address));
                tell.send_modify(|greeting| greeting.address = Some(address));
            }
        }
    }
    tell.send_modify(|greeting| greeting.ended = true);
}
