//! The server of the demo, as a child process that can be killed for real.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::exit::{Code, Failure};
use crate::first_key;

/// How long a start may take.
const START_PATIENCE: Duration = Duration::from_secs(20);
/// How long a stop may take; nothing is under way then.
const STOP_PATIENCE: Duration = Duration::from_secs(10);

/// The temporary directory, and what is known about the server in it.
pub(super) struct Home {
    dir: TempDir,
}

/// A server that listens.
pub(super) struct Server {
    child: Child,
    pid: u32,
    url: String,
    key: String,
}

impl Home {
    pub(super) fn new() -> anyhow::Result<Self> {
        let dir = tempfile::Builder::new().prefix("posthorn-demo-").tempdir().map_err(|e| {
            Failure::new(Code::CannotCreate, format!("no temporary directory can be created: {e}"))
        })?;
        // JSON is YAML, and escapes whatever the path has in it.
        let config = json!({
            "server": {"listen": "127.0.0.1:0"},
            "store": {"path": dir.path().join("data")},
            "egress": {"allow": ["127.0.0.0/8"]},
            "admission": {"disk_refuse_percent": 100},
            "log": {"level": "warn", "format": "json"},
            "engine": {"drain_timeout": "3s"},
            "profiles": {"demo": {"base": "default", "policy": {"schedule": {
                "backoff": {"fixed": {"wait": "1s"}}, "jitter": "none", "max_attempts": 30,
            }}}},
        });
        std::fs::write(dir.path().join("posthorn.yaml"), config.to_string())?;
        Ok(Self { dir })
    }

    pub(super) fn data(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// Leaves the directory behind.
    pub(super) fn keep(self) -> PathBuf {
        self.dir.keep().join("data")
    }

    /// Starts a server on the data and waits until it listens.
    pub(super) async fn start(&self) -> anyhow::Result<Server> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args(["serve", "--config"])
            .arg(self.dir.path().join("posthorn.yaml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        // The demo is the same whatever this shell is set up for.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("POSTHORN_") {
                command.env_remove(name);
            }
        }
        let mut child = command.spawn()?;
        let seen = tokio::time::timeout(START_PATIENCE, self.follow(&mut child)).await;
        let url = seen.map_err(|_| {
            Failure::new(Code::Failure, "the demo's server did not start in time")
        })??;
        let key = std::fs::read_to_string(first_key::file(&self.data())).map_err(|e| {
            Failure::new(
                Code::Failure,
                format!(
                    "the demo's server did not create an operator \
                                                 key: {e}"
                ),
            )
        })?;
        let key = key.trim().to_owned();
        let pid = child.id().unwrap_or_default();
        Ok(Server { child, pid, url, key })
    }

    /// Reads what the server says until its address is known; its key is written down by then.
    async fn follow(&self, child: &mut Child) -> anyhow::Result<String> {
        let Some(stderr) = child.stderr.take() else {
            return Err(Failure::new(
                Code::Failure,
                "the output of the demo's server cannot be read",
            )
            .into());
        };
        let mut lines = BufReader::new(stderr).lines();
        let mut url = None;
        let mut said = String::new();
        while url.is_none() {
            let Some(line) = lines.next_line().await? else {
                return Err(Failure::new(
                    Code::Failure,
                    format!("the demo's server ended before it listened:\n{said}"),
                )
                .into());
            };
            let mut words = line.split(|c: char| c.is_whitespace() || c == '"');
            if line.contains("listening on") {
                url = words.find(|word| word.starts_with("http://")).map(str::to_owned);
            }
            said.push_str(&line);
            said.push('\n');
        }
        // Somebody has to go on listening, or the server would block on a full pipe.
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        url.ok_or_else(|| Failure::new(Code::Failure, "the demo's server has no address").into())
    }
}

impl Server {
    pub(super) fn pid(&self) -> u32 {
        self.pid
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// SIGKILL: nothing is finished, nothing is written.
    pub(super) async fn kill(mut self) -> anyhow::Result<()> {
        Ok(self.child.kill().await?)
    }

    /// Ends it; its work is done. A polite end needs a signal, which the standard library cannot
    /// send, so the system's own tool does.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        let asked = Command::new("kill").arg(self.pid.to_string()).status().await;
        let polite = asked.is_ok_and(|status| status.success());
        if !polite || tokio::time::timeout(STOP_PATIENCE, self.child.wait()).await.is_err() {
            self.child.kill().await?;
        }
        Ok(())
    }
}
