//! Tenants that are deleted while the run goes on: they have a backlog that their receiver refuses, so that attempts are
//! made all the time; then somebody deletes them, and the next fault strikes while their rows are being removed.
//!
//! What is promised: from the answer on no attempt starts, the deletion comes to its end whatever is killed, and
//! nothing of the tenant is left. The others of the run must not notice, which is judged as always.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::{Instant, sleep};

use crate::crash::cluster::{Cluster, LEASE};
use crate::crash::evidence::{DeletedTenant, Journal, Micros};
use crate::crash::plan::{Order, Subscription, Temper};

/// How many there are in a run.
pub const LEAVERS: usize = 3;
/// Events of each, published in batches of this size.
const EVENTS: usize = 2_000;
const BATCH: usize = 200;
/// How long a deletion may take once the faults have stopped.
const PATIENCE: Duration = Duration::from_secs(90);
/// Attempts that began before the answer may arrive a little after it.
const GRACE: Micros = 1_000_000;

/// One of them.
#[derive(Debug)]
pub struct Leaver {
    name: String,
    id: String,
    /// From when on no attempt may start.
    told: Option<Micros>,
    arrivals: Arc<Mutex<Vec<Micros>>>,
}

impl Leaver {
    /// Makes a tenant with a backlog.
    pub async fn make(
        cluster: &mut Cluster,
        journal: &Arc<Journal>,
        number: usize,
        seed: u64,
    ) -> anyhow::Result<Self> {
        let name = format!("leaver-{number}");
        cluster.make_tenant(&name, &["orders"]).await?;
        let shown = cluster.call(None, "GET", &format!("/v1/tenants/{name}"), &Value::Null).await?;
        let id = shown["id"].as_str().context("a tenant has an id")?.to_owned();
        let arrivals = Arc::new(Mutex::new(Vec::new()));
        let address = refuse_everything(Arc::clone(journal), Arc::clone(&arrivals)).await?;
        let wish = Subscription::new(&name, &name, &["orders"], Order::None, Temper::Good);
        let request = wish.request(seed, &format!("http://{address}/"));
        cluster.call(Some(&name), "POST", "/v1/subscriptions", &request).await?;
        let event =
            json!({"topic": "orders", "type": "order.created", "payload": {"leaves": name}});
        for _ in 0..EVENTS / BATCH {
            let batch = json!({"events": vec![event.clone(); BATCH]});
            cluster.call(Some(&name), "POST", "/v1/events/batch", &batch).await?;
        }
        Ok(Self { name, id, told: None, arrivals })
    }

    /// Asks for its deletion, once.
    pub async fn delete(&mut self, cluster: &mut Cluster, journal: &Journal) {
        if self.told.is_some() {
            return;
        }
        let path = format!("/v1/tenants/{}", self.id);
        match cluster.call_once(None, "DELETE", &path, &Value::Null).await {
            Ok(answer) if answer.status == 202 => self.told = Some(journal.now()),
            // An earlier call did it, and nobody heard its answer. Until all nodes know, as long as a lease may pass.
            Ok(answer) if answer.status == 410 => {
                let lease = u64::try_from(LEASE.as_micros()).unwrap_or(u64::MAX);
                self.told = Some(journal.now() + 2 * lease);
            }
            _ => {}
        }
    }

    /// Sees its deletion through, and says what is left.
    pub async fn end(
        mut self,
        cluster: &mut Cluster,
        journal: &Journal,
    ) -> anyhow::Result<DeletedTenant> {
        let deadline = Instant::now() + PATIENCE;
        while self.told.is_none() {
            if Instant::now() >= deadline {
                bail!("{} could not be deleted", self.name);
            }
            self.delete(cluster, journal).await;
            sleep(Duration::from_millis(100)).await;
        }
        let path = format!("/v1/tenants/{}/deletion", self.id);
        let mut state = String::new();
        while state != "done" && Instant::now() < deadline {
            let job = cluster.call(None, "GET", &path, &Value::Null).await?;
            state = job["state"].as_str().unwrap_or_default().to_owned();
            sleep(Duration::from_millis(100)).await;
        }
        // Other nodes hear of the end with their next look at the catalog.
        sleep(2 * LEASE).await;
        let shown = status(cluster, &self.id).await;
        let named = status(cluster, &self.name).await;
        let told = self.told.unwrap_or(Micros::MAX);
        let arrivals = self.arrivals.lock();
        let late = arrivals.iter().filter(|at| **at > told.saturating_add(GRACE)).count();
        Ok(DeletedTenant {
            tenant: self.name,
            state,
            attempts: u64::try_from(arrivals.len()).unwrap_or(u64::MAX),
            late: u64::try_from(late).unwrap_or(u64::MAX),
            shown,
            named,
        })
    }
}

/// What a look at a tenant is answered with; 0 when it is not.
async fn status(cluster: &mut Cluster, tenant: &str) -> u16 {
    let path = format!("/v1/tenants/{tenant}");
    cluster.call_once(None, "GET", &path, &Value::Null).await.map_or(0, |answer| answer.status)
}

/// A receiver that takes nothing, and notes when it was asked.
async fn refuse_everything(
    journal: Arc<Journal>,
    arrivals: Arc<Mutex<Vec<Micros>>>,
) -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("a receiver")?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        loop {
            let Ok((mut stream, _)) = listener.accept().await else {
                sleep(Duration::from_millis(20)).await;
                continue;
            };
            let (journal, arrivals) = (Arc::clone(&journal), Arc::clone(&arrivals));
            tokio::spawn(async move {
                let mut buffer = vec![0; 16 << 10];
                // The request is short, and whatever it is, the answer is no.
                if stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {
                    arrivals.lock().push(journal.now());
                    let no = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                    drop(stream.write_all(no).await);
                }
            });
        }
    });
    Ok(address)
}
