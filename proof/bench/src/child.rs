//! The server under test, as a child process.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use crate::Args;
use crate::wire::{Reader, status};

/// How long a server may take to listen.
const START_PATIENCE: Duration = Duration::from_secs(60);

/// In what Linux counts processor time for programs, on every machine.
const TICKS_PER_SECOND: u64 = 100;

/// How much is repeated of what a server says that does not start.
const SAID_CHARS_MAX: usize = 2_000;

/// A child process that listens.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    /// The operator key, when this start made one.
    pub(crate) key: Option<String>,
    peak_kib: Arc<AtomicU64>,
    watch: tokio::task::JoinHandle<()>,
}

/// Where the server under test keeps its data.
pub(crate) struct Home {
    dir: PathBuf,
    /// Removes the folder in the end, unless it is kept.
    _temporary: Option<tempfile::TempDir>,
    binary: PathBuf,
    store: String,
    pub(crate) key: Option<String>,
    /// Certificates to trust besides the public roots.
    roots: Option<PathBuf>,
    /// Settings over those that all benchmarks have.
    settings: Vec<String>,
}

impl Home {
    pub(crate) fn new(args: &Args) -> anyhow::Result<Self> {
        let temporary = match (&args.keep, &args.dir) {
            (Some(kept), _) => {
                std::fs::create_dir_all(kept)?;
                None
            }
            (None, Some(parent)) => Some(tempfile::tempdir_in(parent)?),
            (None, None) => Some(tempfile::tempdir()?),
        };
        let dir = match (&temporary, &args.keep) {
            (None, Some(kept)) => kept.canonicalize()?,
            (Some(made), _) => made.path().to_owned(),
            (None, None) => unreachable!("a folder is kept or made"),
        };
        let (binary, store) = (args.server_binary()?, args.store.clone());
        let settings = Vec::new();
        Ok(Self { dir, _temporary: temporary, binary, store, key: None, roots: None, settings })
    }

    /// Has servers trust this authority.
    pub(crate) fn trust(&mut self, pem: &str) -> anyhow::Result<()> {
        let file = self.dir.join("roots.pem");
        std::fs::write(&file, pem)?;
        self.roots = Some(file);
        Ok(())
    }

    /// Adds settings, `KEY=VALUE`.
    pub(crate) fn set(&mut self, settings: impl IntoIterator<Item = String>) {
        self.settings.extend(settings);
    }

    /// Starts `posthorn serve` on this data.
    pub(crate) async fn start(&mut self) -> anyhow::Result<Server> {
        let path = &self.dir;
        let store = if self.store == "sqlite" {
            format!("store:\n  path: {}\n", path.join("data").display())
        } else {
            format!("store:\n  url: {}\n", self.store)
        };
        let roots = self.roots.as_ref();
        let roots = roots.map(|file| format!("  extra_roots: {}\n", file.display()));
        let roots = roots.unwrap_or_default();
        let config = format!(
            "server:\n  listen: 127.0.0.1:0\n{store}egress:\n  allow: [\"127.0.0.0/8\"]\n{roots}admission:\n  disk_refuse_percent: 100\n  key_requests_per_second: 0\nlog:\n  level: warn\nseal:\n  key: file:{}\n",
            path.join("seal.key").display()
        );
        if !path.join("seal.key").exists() {
            let key = posthorn_sealing::vault::VaultKey::generate().to_text();
            std::fs::write(path.join("seal.key"), key)?;
        }
        let file = path.join("bench.yaml");
        std::fs::write(&file, config)?;
        let mut command = Command::new(&self.binary);
        command.arg("serve").arg("--config").arg(&file).current_dir(path);
        for setting in &self.settings {
            command.arg("--set").arg(setting);
        }
        let mut server = Server::spawn(command, true).await?;
        if server.key.is_some() {
            self.key.clone_from(&server.key);
        }
        server.key.clone_from(&self.key);
        Ok(server)
    }
}

impl Server {
    /// Starts the bare relay.
    pub(crate) async fn relay(sink: SocketAddr) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("relay").arg("--sink").arg(sink.to_string());
        Self::spawn(command, false).await
    }

    /// Starts the bare WebSocket server, perhaps with a way to send to its sockets.
    pub(crate) async fn bare_sockets(mailboxes: bool) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(if mailboxes { "bare-push" } else { "bare-sockets" });
        Self::spawn(command, false).await
    }

    async fn spawn(mut command: Command, on_stderr: bool) -> anyhow::Result<Self> {
        command.stdin(Stdio::null()).kill_on_drop(true);
        if on_stderr {
            command.stdout(Stdio::null()).stderr(Stdio::piped());
        } else {
            command.stdout(Stdio::piped());
        }
        let mut child = command.spawn().context("starting the server under test")?;
        let pid = child.id().context("the server under test has ended")?;
        let output: Box<dyn tokio::io::AsyncRead + Send + Unpin> = if on_stderr {
            Box::new(child.stderr.take().context("no stderr")?)
        } else {
            Box::new(child.stdout.take().context("no stdout")?)
        };
        let mut lines = BufReader::new(output).lines();
        let found = tokio::time::timeout(START_PATIENCE, async {
            let (mut key, mut said) = (None, String::new());
            while let Some(line) = lines.next_line().await? {
                said = format!("{said} {line}").trim().chars().take(SAID_CHARS_MAX).collect();
                let words = || line.split(|c: char| c.is_whitespace() || c == '"');
                // A start that makes a key says where it is, before it says the address.
                if let Some(file) = words().find(|w| w.ends_with("/operator.key")) {
                    key = Some(std::fs::read_to_string(file)?.trim().to_owned());
                }
                if line.contains("listening on") {
                    let address = words()
                        .filter_map(|w| {
                            w.trim_start_matches("http://").trim_end_matches('/').parse().ok()
                        })
                        .next();
                    if let Some(address) = address {
                        return anyhow::Ok((address, key));
                    }
                }
            }
            bail!("the server under test ended before it listened: {said}")
        })
        .await
        .context("the server under test did not listen in time")?;
        let (address, key) = found?;
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                if on_stderr && !line.is_empty() {
                    tracing::debug!(line, "server under test");
                }
            }
        });
        let peak_kib = Arc::new(AtomicU64::new(0));
        let watch = tokio::spawn(watch_memory(pid, Arc::clone(&peak_kib)));
        Ok(Self { child, address, key, peak_kib, watch })
    }

    /// The highest resident memory so far.
    pub(crate) fn peak_mib(&self) -> f64 {
        self.peak_kib.load(Ordering::Relaxed) as f64 / 1_024.0
    }

    /// Resident memory now.
    pub(crate) fn rss_mib(&self) -> f64 {
        self.child.id().and_then(rss_kib).unwrap_or(0) as f64 / 1_024.0
    }

    /// Processor time so far.
    pub(crate) fn cpu(&self) -> Duration {
        let stat = self
            .child
            .id()
            .and_then(|pid| std::fs::read_to_string(format!("/proc/{pid}/stat")).ok());
        let stat = stat.unwrap_or_default();
        // The name of the program is in brackets and may hold anything; the 12th and 13th field after it count.
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        let ticks: u64 =
            fields.skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
        Duration::from_millis(ticks * 1_000 / TICKS_PER_SECOND)
    }

    /// Forgets the highest so far.
    pub(crate) fn reset_peak(&self) {
        self.peak_kib.store(0, Ordering::Relaxed);
    }

    /// Open descriptors.
    pub(crate) fn descriptors(&self) -> usize {
        let folder =
            self.child.id().and_then(|pid| std::fs::read_dir(format!("/proc/{pid}/fd")).ok());
        folder.map_or(0, Iterator::count)
    }

    /// A gauge or counter of its metrics, as a whole number; 0 while it was never set.
    pub(crate) async fn gauge(&self, name: &str) -> anyhow::Result<u64> {
        let mut caller = Caller::open(self).await?;
        let text = caller.text("GET", "/metrics", "").await?;
        let line = text.lines().find(|line| line.starts_with(name));
        let value = line.and_then(|line| line.rsplit(' ').next()?.parse::<f64>().ok());
        Ok(value.unwrap_or(0.0) as u64)
    }

    /// Kills it, as a power cut would.
    pub(crate) async fn kill(mut self) -> anyhow::Result<()> {
        self.watch.abort();
        self.child.kill().await?;
        Ok(())
    }

    /// One API call; the JSON answer.
    pub(crate) async fn call(
        &self,
        method: &str,
        path: &str,
        body: &serde_json::Value,
    ) -> anyhow::Result<serde_json::Value> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let text = Caller::open(self).await?.text(method, path, &body).await?;
        if text.is_empty() {
            return Ok(serde_json::Value::Null);
        }
        Ok(serde_json::from_str(&text)?)
    }
}

/// One connection to a server's API, for many calls.
pub(crate) struct Caller {
    stream: TcpStream,
    reader: Reader,
    address: SocketAddr,
    key: String,
}

impl Caller {
    pub(crate) async fn open(server: &Server) -> anyhow::Result<Self> {
        let key = server.key.clone().context("the server under test printed no key")?;
        let stream = TcpStream::connect(server.address).await?;
        Ok(Self { stream, reader: Reader::new(), address: server.address, key })
    }

    /// The same connection with another key.
    pub(crate) fn with_key(mut self, key: &str) -> Self {
        key.clone_into(&mut self.key);
        self
    }

    /// A new connection, after an answer that ended the old one.
    pub(crate) async fn reconnect(&mut self) -> anyhow::Result<()> {
        self.stream = TcpStream::connect(self.address).await?;
        self.reader = Reader::new();
        Ok(())
    }

    /// One call; the text of its answer.
    pub(crate) async fn call(
        &mut self,
        method: &str,
        path: &str,
        body: &str,
    ) -> anyhow::Result<String> {
        self.text(method, path, body).await
    }

    /// Reads something; the JSON answer.
    pub(crate) async fn get(&mut self, path: &str) -> anyhow::Result<serde_json::Value> {
        Ok(serde_json::from_str(&self.text("GET", path, "").await?)?)
    }

    /// One POST with an idempotency key.
    pub(crate) async fn post_once(
        &mut self,
        path: &str,
        body: &str,
        key: &str,
    ) -> anyhow::Result<String> {
        self.send("POST", path, body, &format!("idempotency-key: {key}\r\n")).await
    }

    async fn text(&mut self, method: &str, path: &str, body: &str) -> anyhow::Result<String> {
        self.send(method, path, body, "").await
    }

    /// One call with more header lines, each ended; the text of its answer.
    async fn send(
        &mut self,
        method: &str,
        path: &str,
        body: &str,
        headers: &str,
    ) -> anyhow::Result<String> {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n{headers}content-length: {}\r\n\r\n{body}",
            self.address,
            self.key,
            body.len(),
        );
        self.stream.write_all(request.as_bytes()).await?;
        let message = self.reader.next(&mut self.stream, || {}).await?.context("no answer")?;
        let bytes = self.reader.bytes();
        let code = status(&bytes[..message.head]);
        let text = &bytes[message.head..message.head + message.body];
        let text = String::from_utf8_lossy(text).into_owned();
        self.reader.consume(&message);
        if !(200..300).contains(&code) {
            bail!("{method} {path}: {code} {text}");
        }
        Ok(text)
    }
}

async fn watch_memory(pid: u32, peak: Arc<AtomicU64>) {
    loop {
        match rss_kib(pid) {
            Some(kib) => peak.fetch_max(kib, Ordering::Relaxed),
            None => return,
        };
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn rss_kib(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
