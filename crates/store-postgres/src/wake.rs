//! Hints between nodes, by LISTEN and NOTIFY.
//!
//! # Theory of operation
//! One connection of its own, outside the pool, both listens and notifies, driven by one task. A
//! transaction that notifies takes a lock on the whole database at its commit, so hints are never
//! sent from the transactions they are about: they are gathered in a small set and sent at most
//! once in [`PAUSE`]. A node knows its own hints by the process id of that connection's backend and
//! ignores them.
//!
//! Through a pooler that shares sessions, this is the only connection that lasts, so it has the gate for all of them
//! ([`Door`]). While it is lost, nobody is told of this program. When it comes back, it looks whether the schema is still one to
//! work with, as every connection does elsewhere.
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
use posthorn_store::schema::Mismatch;
use posthorn_store::{Error, Result};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::{AsyncMessage, Client, Statement};
use tracing::debug;

use crate::connect::{Connector, PgConnection};
use crate::options::Options;
use crate::session::Session;
use crate::{gate, lock};

/// Between two notifications of one node.
const PAUSE: Duration = Duration::from_millis(25);
/// Between two tries to connect: doubled up to the larger one.
const RECONNECT_FIRST: Duration = Duration::from_millis(100);
const RECONNECT_MAX: Duration = Duration::from_secs(5);
/// Silence after which the server is asked whether it is still there. Nobody else would notice: listening is silence.
const ASK: Duration = Duration::from_secs(5);

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

/// What tells others of this program, where no other connection can.
pub(crate) struct Door {
    /// The statement that takes the gate.
    pub(crate) enter: String,
    /// The newest schema version that this program knows.
    pub(crate) known: u32,
    /// What is closed when a newer program has changed the schema.
    pub(crate) session: Session,
}

/// What became of the first try to listen.
pub(crate) type Begun = oneshot::Receiver<Result<()>>;

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
    /// Nobody else needs to wait for the first try; without it, it is tried again.
    pub(crate) fn start(
        options: &Options,
        connector: Connector,
        door: Option<Door>,
    ) -> (Self, Begun) {
        let (tell, begun) = oneshot::channel();
        let (outbox, inbox) = (Arc::new(HintBox::default()), Arc::new(HintBox::default()));
        let line = Line {
            outbox: Arc::clone(&outbox),
            inbox: Arc::clone(&inbox),
            channel: channel(options.schema.as_deref()),
            connect_timeout: options.connect_timeout,
            connector,
            door,
            begun: Some(tell),
        };
        (Self { outbox, inbox, task: tokio::spawn(line.run()) }, begun)
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
    connector: Connector,
    door: Option<Door>,
    /// Whoever waits for the first try, until it is over.
    begun: Option<oneshot::Sender<Result<()>>>,
}

impl Line {
    async fn run(mut self) {
        let mut pause = RECONNECT_FIRST;
        let mut first = true;
        loop {
            match timeout(self.connect_timeout, self.connector.connect()).await {
                Ok(Ok((client, connection))) => {
                    let lost = self.serve(client, connection, first).await;
                    debug!(error = ?lost, "The connection for notifications was lost; \
                                                 polling instead");
                    match lost {
                        Some(error) => self.has_begun(Err(failed(error))),
                        None => self.has_begun(Err(failed("no answer in time"))),
                    }
                    (pause, first) = (RECONNECT_FIRST, false);
                }
                Ok(Err(error)) => {
                    debug!(%error, "No connection for notifications; polling instead");
                    self.has_begun(Err(failed(error)));
                }
                Err(late) => {
                    debug!("The connection for notifications timed out; polling instead");
                    self.has_begun(Err(failed(late)));
                }
            }
            if self.door.as_ref().is_some_and(|door| door.session.is_closed()) {
                return;
            }
            sleep(pause).await;
            pause = (pause * 2).min(RECONNECT_MAX);
        }
    }

    /// Says what became of the first try. Later ones are nobody's business.
    fn has_begun(&mut self, begun: Result<()>) {
        if let Some(tell) = self.begun.take() {
            // Mostly nobody waits for it.
            drop(tell.send(begun));
        }
    }

    /// Until the connection is lost; why, as far as it is known.
    async fn serve(
        &mut self,
        client: Client,
        connection: PgConnection,
        first: bool,
    ) -> Option<tokio_postgres::Error> {
        let made = Instant::now();
        let own = Arc::new(AtomicI32::new(0));
        let inbox = Arc::clone(&self.inbox);
        let mut reader = AbortOnDrop(tokio::spawn(read(connection, inbox, Arc::clone(&own))));
        let notify = match timeout(self.connect_timeout, self.listen(&client, &own)).await {
            Ok(Ok(Ok(notify))) => notify,
            Ok(Ok(Err(mismatch))) => {
                if let Some(door) = &self.door {
                    door.session.leave(mismatch.clone());
                }
                self.has_begun(Err(Error::fatal("use the database", mismatch)));
                return None;
            }
            Ok(Err(error)) => return Some(error),
            Err(_) => return None,
        };
        self.has_begun(Ok(()));
        if !first {
            self.inbox.put(Hints::ALL);
        }
        loop {
            let hints = tokio::select! {
                _ = &mut reader.0 => return None,
                () = self.outbox.wake.notified() => {
                    std::mem::take(&mut *self.outbox.hints.lock())
                }
                () = sleep(ASK) => Hints::default(),
            };
            if self.connector.is_outdated(made.into_std()) {
                // What it was about to say is said again, to everybody, on the next connection.
                self.outbox.put(hints);
                return None;
            }
            let said = async {
                match hints.is_empty() {
                    true => client.batch_execute("").await,
                    false => {
                        let text = hints.encode();
                        client.execute(&notify, &[&self.channel, &text]).await.map(drop)
                    }
                }
            };
            match timeout(self.connect_timeout, said).await {
                Ok(Ok(())) => sleep(PAUSE).await,
                Ok(Err(error)) => return Some(error),
                Err(_) => return None,
            }
        }
    }

    /// Begins to listen; the statement that notifies.
    async fn listen(
        &self,
        client: &Client,
        own: &AtomicI32,
    ) -> Result<Result<Statement, Mismatch>, tokio_postgres::Error> {
        if let Some(door) = &self.door {
            // The server gives up as well when we do: nobody tells it.
            let limit = self.connect_timeout.as_millis();
            let enter = format!("set lock_timeout = {limit}; {}", door.enter);
            client.batch_execute(&enter).await?;
            if let Err(mismatch) = gate::look(client, door.known).await? {
                return Ok(Err(mismatch));
            }
        }
        // Known before we listen, so that nothing of our own is ever heard.
        let pid = client.query_one("select pg_backend_pid()", &[]).await?.try_get(0)?;
        own.store(pid, Ordering::Relaxed);
        client.batch_execute(&format!("listen {}", self.channel)).await?;
        client.prepare("select pg_notify($1, $2)").await.map(Ok)
    }
}

fn failed(cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::unavailable("listen to other nodes", cause)
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
