//! Hints between nodes, by LISTEN and NOTIFY.
//!
//! # Theory of operation
//! One connection of its own, outside the pool, both listens and notifies, driven by one task. A
//! transaction that notifies takes a lock on the whole database at its commit, so hints are never
//! sent from the transactions they are about: they are gathered in a small set and sent at most
//! once in [`PAUSE`]. A node knows its own hints by the process id of that connection's backend and
//! ignores them.
//!
//! # Invariants
//! Nothing here is ever waited for by a writer, and nothing depends on a hint arriving. When the
//! connection is lost it is made again, with growing pauses, and everything is hinted at once,
//! since hints may have been missed.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use futures_util::future::poll_fn;
use parking_lot::Mutex;
use posthorn_domain::Shard;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{AsyncMessage, Client, Config, Connection, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;
use tracing::debug;

use crate::lock;
use crate::options::Options;

/// Between two notifications of one node.
const PAUSE: Duration = Duration::from_millis(25);
/// Between two tries to connect: doubled up to the larger one.
const RECONNECT_FIRST: Duration = Duration::from_millis(100);
const RECONNECT_MAX: Duration = Duration::from_secs(5);

type PgConnection = Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>;

/// A set of hints: one bit for each shard, and whether the catalog changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Hints {
    shards: u64,
    catalog: bool,
}

impl Hints {
    const ALL: Hints = Hints { shards: u64::MAX, catalog: true };

    fn of(shards: &[Shard]) -> Self {
        let bits = shards.iter().fold(0, |bits, shard| bits | (1 << shard.number()));
        Self { shards: bits, catalog: shards.is_empty() }
    }

    fn is_empty(self) -> bool {
        self == Self::default()
    }

    fn add(&mut self, more: Hints) {
        self.shards |= more.shards;
        self.catalog |= more.catalog;
    }

    fn encode(self) -> String {
        format!("{:x},{}", self.shards, u8::from(self.catalog))
    }

    fn decode(text: &str) -> Option<Self> {
        let (shards, catalog) = text.split_once(',')?;
        Some(Self { shards: u64::from_str_radix(shards, 16).ok()?, catalog: catalog == "1" })
    }
}

#[derive(Default)]
struct HintBox {
    hints: Mutex<Hints>,
    wake: Notify,
}

impl HintBox {
    fn put(&self, hints: Hints) {
        self.hints.lock().add(hints);
        self.wake.notify_one();
    }
}

/// This node's end of the hints. The task ends with it.
pub(crate) struct Wake {
    outbox: Arc<HintBox>,
    inbox: Arc<HintBox>,
    task: JoinHandle<()>,
}

impl Drop for Wake {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Wake {
    pub(crate) fn start(options: &Options, config: Config, tls: MakeRustlsConnect) -> Self {
        let (outbox, inbox) = (Arc::new(HintBox::default()), Arc::new(HintBox::default()));
        let line = Line {
            outbox: Arc::clone(&outbox),
            inbox: Arc::clone(&inbox),
            channel: channel(options.schema.as_deref()),
            connect_timeout: options.connect_timeout,
            config,
            tls,
        };
        Self { outbox, inbox, task: tokio::spawn(line.run()) }
    }

    /// Gathers a hint; it leaves within [`PAUSE`].
    pub(crate) fn notify(&self, shards: &[Shard]) {
        self.outbox.put(Hints::of(shards));
    }

    /// Waits for hints of others. A change of the catalog is reported by itself, as an empty list.
    pub(crate) async fn notified(&self) -> Vec<Shard> {
        loop {
            {
                let mut hints = self.inbox.hints.lock();
                if hints.catalog {
                    hints.catalog = false;
                    if hints.shards != 0 {
                        self.inbox.wake.notify_one();
                    }
                    return Vec::new();
                }
                if hints.shards != 0 {
                    let bits = std::mem::take(&mut hints.shards);
                    return Shard::all().filter(|s| bits & (1 << s.number()) != 0).collect();
                }
            }
            self.inbox.wake.notified().await;
        }
    }
}

/// Names of channels are short, those of schemas need not be.
fn channel(schema: Option<&str>) -> String {
    format!("posthorn_{:016x}", lock::fnv([schema.unwrap_or_default().as_bytes(), &[]]))
}

/// What the task owns.
struct Line {
    outbox: Arc<HintBox>,
    inbox: Arc<HintBox>,
    channel: String,
    connect_timeout: Duration,
    config: Config,
    tls: MakeRustlsConnect,
}

impl Line {
    async fn run(self) {
        let mut pause = RECONNECT_FIRST;
        let mut first = true;
        loop {
            match timeout(self.connect_timeout, self.config.connect(self.tls.clone())).await {
                Ok(Ok((client, connection))) => {
                    let lost = self.serve(client, connection, first).await;
                    debug!(error = ?lost.err(), "The connection for notifications was lost; \
                                                 polling instead");
                    (pause, first) = (RECONNECT_FIRST, false);
                }
                Ok(Err(error)) => {
                    debug!(%error, "No connection for notifications; polling instead")
                }
                Err(_) => debug!("The connection for notifications timed out; polling instead"),
            }
            sleep(pause).await;
            pause = (pause * 2).min(RECONNECT_MAX);
        }
    }

    /// Until the connection is lost.
    async fn serve(
        &self,
        client: Client,
        connection: PgConnection,
        first: bool,
    ) -> Result<(), tokio_postgres::Error> {
        let own = Arc::new(AtomicI32::new(0));
        let inbox = Arc::clone(&self.inbox);
        let mut reader = AbortOnDrop(tokio::spawn(read(connection, inbox, Arc::clone(&own))));
        // Known before we listen, so that nothing of our own is ever heard.
        let pid = client.query_one("select pg_backend_pid()", &[]).await?.try_get(0)?;
        own.store(pid, Ordering::Relaxed);
        client.batch_execute(&format!("listen {}", self.channel)).await?;
        if !first {
            self.inbox.put(Hints::ALL);
        }
        let notify = client.prepare("select pg_notify($1, $2)").await?;
        loop {
            tokio::select! {
                _ = &mut reader.0 => return Ok(()),
                () = self.outbox.wake.notified() => {
                    let hints = std::mem::take(&mut *self.outbox.hints.lock());
                    if !hints.is_empty() {
                        client.execute(&notify, &[&self.channel, &hints.encode()]).await?;
                        sleep(PAUSE).await;
                    }
                }
            }
        }
    }
}

struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Drives the socket and takes in the notifications of others. It never waits for anybody here, so
/// that answers to our own statements always get through.
async fn read(mut connection: PgConnection, inbox: Arc<HintBox>, own: Arc<AtomicI32>) {
    while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
        if let AsyncMessage::Notification(heard) = message
            && heard.process_id() != own.load(Ordering::Relaxed)
        {
            // What a newer version may say more, we take for everything.
            inbox.put(Hints::decode(heard.payload()).unwrap_or(Hints::ALL));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_survive_the_round_trip() {
        let two: Vec<Shard> = Shard::all().filter(|s| [0, 63].contains(&s.number())).collect();
        for hints in [Hints::of(&[]), Hints::of(&two), Hints::ALL] {
            assert_eq!(Hints::decode(&hints.encode()), Some(hints));
        }
        assert!(Hints::of(&[]).catalog);
        assert_eq!(Hints::decode("nonsense"), None);
    }
}
