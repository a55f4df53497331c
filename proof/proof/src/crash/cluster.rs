//! The server under test as a whole: its nodes, its database, and an operator's calls to it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use posthorn_testkit::postgres::{Settings, TestPostgres};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::crash::dice::Dice;
use crate::crash::evidence::{Stats, TenantEnd};
use crate::crash::node::Node;
use crate::crash::publisher::Targets;
use crate::crash::signature;
use crate::crash::upheaval::Ground;
use crate::crash::wire::{Answer, Call, Client, Silence};

/// How long a node keeps its shards without renewing them, in the servers' configuration.
pub const LEASE: Duration = Duration::from_secs(3);
/// How long a change of the catalog may take to be known to every node.
const CATALOG_DELAY: Duration = Duration::from_millis(1_500);
/// How long one call of the operator may take.
const CALL_PATIENCE: Duration = Duration::from_secs(10);
/// How long the operator repeats a call that fails.
const CALL_RETRY: Duration = Duration::from_secs(30);

/// Which store is tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum StoreKind {
    /// One node, its data in a folder.
    Sqlite,
    /// Several nodes on one database.
    Postgres,
    /// Several nodes on a database of two machines, which fails over.
    Patroni,
}

/// Nodes, database and the operator's key.
#[derive(Debug)]
pub struct Cluster {
    /// The nodes.
    pub nodes: Vec<Node>,
    /// The database, for PostgreSQL.
    pub postgres: Option<Arc<TestPostgres>>,
    /// The same on two machines.
    pub ground: Option<Ground>,
    /// Where the nodes listen.
    pub targets: Arc<Targets>,
    /// Where SQLite's files are.
    pub data: PathBuf,
    /// What was wrong with the start.
    surprises: Vec<String>,
    operator: String,
    dice: Dice,
}

/// How to make a cluster.
#[derive(Clone, Debug)]
pub struct Options {
    /// The binary under test.
    pub binary: PathBuf,
    /// The store.
    pub store: StoreKind,
    /// How many nodes; SQLite has one.
    pub nodes: usize,
    /// For everything that is written.
    pub folder: PathBuf,
    /// SQLite's files, when they are to be elsewhere.
    pub data: Option<PathBuf>,
    /// For chance.
    pub seed: u64,
}

impl Cluster {
    /// Starts everything. All nodes start at once on the empty store: that too must work.
    pub async fn start(options: &Options) -> anyhow::Result<Self> {
        let folder = &options.folder;
        let data = options.data.clone().unwrap_or_else(|| folder.join("data"));
        let seal = folder.join("seal.key");
        let secret = signature::sha256_hex(&options.seed.to_be_bytes());
        let secret = STANDARD.encode(&secret.as_bytes()[..32]);
        std::fs::write(&seal, format!("phvk_{secret}\n")).context("writing the seal key")?;
        let (mut postgres, mut ground) = (None, None);
        let stores: Vec<String> = match options.store {
            StoreKind::Sqlite => vec![format!("path: {}", data.display())],
            StoreKind::Postgres => {
                let server = tokio::task::spawn_blocking(|| {
                    TestPostgres::start_with(Settings {
                        max_connections: 100,
                        ..Settings::default()
                    })
                });
                let server = Arc::new(server.await??);
                let url = server.create_database("crash")?;
                postgres = Some(server);
                vec![format!("url: {url}\n  statement_timeout: 5s"); options.nodes]
            }
            StoreKind::Patroni => {
                let (found, urls) = Ground::prepare(options.nodes, "crash", folder).await?;
                ground = Some(found);
                // Calls give up before another machine can have become the primary.
                urls.iter().map(|url| format!("url: {url}\n  statement_timeout: 2s")).collect()
            }
        };
        let targets = Arc::new(Targets::new(stores.len()));
        let nodes: anyhow::Result<Vec<Node>> = stores
            .iter()
            .enumerate()
            .map(|(index, store)| {
                let config = config(store, &seal);
                Node::new(index, &options.binary, folder, &config, Arc::clone(&targets))
            })
            .collect();
        let dice = Dice::part(options.seed, "operator");
        let mut this = Self {
            nodes: nodes?,
            postgres,
            ground,
            targets,
            data,
            surprises: Vec::new(),
            operator: String::new(),
            dice,
        };
        for node in &mut this.nodes {
            node.start()?;
        }
        let mut keys = Vec::new();
        for node in &mut this.nodes {
            keys.extend(node.wait_ready().await?);
        }
        if keys.len() > 1 {
            this.surprises.push(format!("{} nodes made an operator key on one store", keys.len()));
        }
        this.operator = keys.pop().context("no node made an operator key at its first start")?;
        Ok(this)
    }

    /// One call as operator, on behalf of a tenant.
    pub async fn call_once(
        &mut self,
        tenant: Option<&str>,
        method: &str,
        path: &str,
        body: &Value,
    ) -> Result<Answer, Silence> {
        let address = self.targets.pick(&mut self.dice).ok_or(Silence::NotSent)?;
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let tenant: Vec<(&str, &str)> =
            tenant.iter().map(|tenant| ("posthorn-tenant", *tenant)).collect();
        let call = Call { method, path, key: &self.operator, headers: &tenant, body: &body };
        Client::default().call(address, call, CALL_PATIENCE).await
    }

    /// The same, repeated until it works. Only for what may be done twice.
    pub async fn call(
        &mut self,
        tenant: Option<&str>,
        method: &str,
        path: &str,
        body: &Value,
    ) -> anyhow::Result<Value> {
        let deadline = Instant::now() + CALL_RETRY;
        loop {
            let answer = self.call_once(tenant, method, path, body).await;
            match answer {
                Ok(answer) if answer.is_success() => return Ok(answer.body),
                Ok(answer) if answer.status < 500 || Instant::now() >= deadline => {
                    bail!("{method} {path}: {} {}", answer.status, answer.body);
                }
                Err(silence) if Instant::now() >= deadline => {
                    bail!("{method} {path}: no answer ({silence:?})");
                }
                _ => sleep(Duration::from_millis(100)).await,
            }
        }
    }

    /// Makes a tenant with its topics, and a key for its publishers.
    pub async fn make_tenant(&mut self, name: &str, topics: &[&str]) -> anyhow::Result<String> {
        self.call(None, "POST", "/v1/tenants", &json!({"name": name})).await?;
        // Other nodes learn of a tenant with their next heartbeat. Only fan-out is promised to be
        // exact on every node at once, so this is waited for rather than judged.
        sleep(CATALOG_DELAY).await;
        for topic in topics {
            let path = format!("/v1/topics/{topic}");
            self.call(Some(name), "PUT", &path, &json!({})).await?;
        }
        let wish = json!({"tenant": name, "scopes": ["publish"], "description": "crash test"});
        let key = self.call(None, "POST", "/v1/keys", &wish).await?;
        sleep(CATALOG_DELAY).await;
        key["key"].as_str().map(str::to_owned).context("the answer has no key")
    }

    /// A tenant's counts.
    pub async fn stats(&mut self, tenant: &str) -> anyhow::Result<Stats> {
        let answer = self.call(Some(tenant), "GET", "/v1/stats", &Value::Null).await?;
        serde_json::from_value(answer).context("understanding /v1/stats")
    }

    /// When a tenant's oldest event was accepted, if the server says so now.
    pub async fn oldest(&mut self, tenant: &str) -> Option<Value> {
        let path = "/v1/events?order=oldest&limit=1";
        let answer = self.call_once(Some(tenant), "GET", path, &Value::Null).await.ok()?;
        answer.body["items"][0].get("accepted_at").cloned()
    }

    /// Whether a job of a tenant is under way.
    pub async fn is_replaying(&mut self, tenant: &str) -> anyhow::Result<bool> {
        let jobs = self.call(Some(tenant), "GET", "/v1/jobs?limit=200", &Value::Null).await?;
        let jobs = jobs["items"].as_array().context("a page has no items")?;
        Ok(jobs.iter().any(|job| job["state"] == "running"))
    }

    /// Everything the server says of a tenant at the end.
    pub async fn tenant_end(&mut self, tenant: &str) -> anyhow::Result<TenantEnd> {
        let stats = self.stats(tenant).await?;
        let mut events = Vec::new();
        let mut path = "/v1/events?limit=200".to_owned();
        loop {
            let page = self.call(Some(tenant), "GET", &path, &Value::Null).await?;
            let items = page["items"].as_array().context("a page has no items")?;
            events.extend(items.iter().filter_map(|item| item["id"].as_str()).map(str::to_owned));
            match page["next"].as_str() {
                Some(next) => path = format!("/v1/events?limit=200&cursor={next}"),
                None => break,
            }
        }
        Ok(TenantEnd { tenant: tenant.to_owned(), stats, events })
    }

    /// What was wrong with the start, and lines of the nodes' logs that mean a defect.
    pub fn alarms(&self) -> Vec<String> {
        let mut alarms = self.surprises.clone();
        for node in &self.nodes {
            let text = std::fs::read(node.log()).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let bad = text
                .lines()
                .filter(|line| line.contains("panicked at") || line.contains("this is a defect"));
            alarms.extend(bad.map(|line| format!("node {}: {line}", node.index())));
        }
        alarms
    }

    /// Starts again, as a supervisor would, every node that ended by itself; says how they did.
    pub fn revive(&mut self) -> anyhow::Result<Vec<String>> {
        let mut ends = Vec::new();
        for node in &mut self.nodes {
            if let Some(end) = node.own_end()? {
                ends.push(format!("node {} ended by itself: {end}", node.index()));
                node.start()?;
            }
        }
        Ok(ends)
    }
}

/// Short times, so that a run sees many leases come and go.
fn config(store: &str, seal: &Path) -> String {
    format!(
        "server:\n  listen: 127.0.0.1:0\n  stop_timeout: 1s\n\
         store:\n  {store}\n  connect_timeout: 2s\n\
         egress:\n  allow: [\"127.0.0.0/8\"]\n\
         admission:\n  disk_refuse_percent: 100\n\
         engine:\n  lease: {lease}s\n  heartbeat_interval: 500ms\n  poll_interval: 1s\n  maintenance_interval: 2s\n  drain_timeout: 5s\n\
         seal:\n  key: file:{seal}\n\
         log:\n  level: info\n",
        lease = LEASE.as_secs(),
        seal = seal.display(),
    )
}
