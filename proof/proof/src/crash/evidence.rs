//! What was seen: the records of the logs, and the files they are in.
//!
//! Publishers and receivers append; nothing is ever changed. The checker reads a folder of these
//! files, so that a verdict can be repeated long after the run.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::Path;
use std::time::Instant;

use anyhow::Context;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::crash::later::Later;
use crate::crash::plan::Plan;

/// Microseconds since the run began.
pub type Micros = u64;

/// What a publisher did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum PublishRecord {
    /// It is about to publish an event; nothing has been sent yet.
    Intent(Intent),
    /// The server said 2xx. There may be several for one number: repeats with the same key.
    Ack(Ack),
    /// The server refused it, and said so clearly. It must never appear.
    Refused {
        /// Which event.
        n: u64,
        /// When.
        at: Micros,
        /// The answer.
        status: u16,
        /// The problem's code.
        code: String,
    },
    /// The publisher gave up without an answer. It may appear, or not.
    Abandoned {
        /// Which event.
        n: u64,
        /// When.
        at: Micros,
    },
    /// The key of an acknowledged event was used again with other contents.
    Conflict {
        /// Whose key.
        n: u64,
        /// When.
        at: Micros,
        /// What the server said to that.
        status: u16,
    },
    /// An answer that means a defect, whatever happened around it.
    Defect {
        /// When.
        at: Micros,
        /// The answer.
        status: u16,
        /// Its code or text.
        text: String,
    },
}

/// An event that somebody means to publish.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// Its number in this run.
    pub n: u64,
    /// When it was about to be sent first.
    pub at: Micros,
    /// Whose it is.
    pub tenant: String,
    /// Its topic.
    pub topic: String,
    /// Its type.
    pub kind: String,
    /// Its ordering key.
    pub key: Option<String>,
    /// Its idempotency key.
    pub idempotency: String,
    /// SHA-256 of the payload, hexadecimal.
    pub sha: String,
    /// The batch it went out with, and its place there.
    pub batch: Option<(u64, u32)>,
    /// When it is to be delivered, where that is not at once.
    #[serde(default)]
    pub deliver_at: Option<Later>,
}

/// A 2xx.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ack {
    /// Which event.
    pub n: u64,
    /// When the answer had arrived.
    pub at: Micros,
    /// The event's id.
    pub id: String,
    /// To how many subscriptions it goes, as the server says.
    pub deliveries: u64,
    /// Whether the server had seen the key before.
    pub duplicate: bool,
    /// How often it was sent.
    pub tries: u32,
    /// Whether an earlier try may have been stored, as far as the publisher can know.
    pub uncertain: bool,
}

/// What a receiver saw and did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// When the whole request had arrived.
    pub at: Micros,
    /// When the answer was about to leave.
    pub answered: Micros,
    /// The subscription it was made for, by its name in the plan.
    pub subscription: String,
    /// The `webhook-id`.
    pub event: String,
    /// SHA-256 of the body, hexadecimal.
    pub sha: String,
    /// Whether the signature fits this subscription's secret and its time is about now.
    pub signature: bool,
    /// The status of the answer; 0 when the connection was reset instead.
    pub status: u16,
}

impl Receipt {
    /// Whether the receiver took it.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// A fault, from its beginning until everything had recovered from it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// What was done.
    pub what: String,
    /// When.
    pub from: Micros,
    /// When its effects had ended.
    pub until: Micros,
    /// How many processes were killed or paused by it.
    pub hits: u64,
    /// Whether outcomes could not be written before it, so that more than what was under way may be
    /// repeated.
    #[serde(default)]
    pub blind: bool,
    /// When another machine became the primary of the database because of it.
    #[serde(default)]
    pub promoted: Option<Micros>,
}

/// What the server said at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finale {
    /// Whether everything was delivered in time.
    pub drained: bool,
    /// By tenant.
    pub tenants: Vec<TenantEnd>,
    /// Tenants that were deleted during the run.
    #[serde(default)]
    pub deleted: Vec<DeletedTenant>,
    /// What SQLite's integrity check said; absent where it was not asked.
    pub integrity: Option<String>,
    /// Lines of the servers' logs that mean a defect: panics and the like.
    pub alarms: Vec<String>,
    /// Nodes that ended although nobody killed them.
    pub own_ends: Vec<String>,
}

/// What the server said of one tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TenantEnd {
    /// Its name.
    pub tenant: String,
    /// Its counts.
    pub stats: Stats,
    /// The ids of all its events.
    pub events: Vec<String>,
}

/// What was seen of a tenant that was deleted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeletedTenant {
    /// Its name.
    pub tenant: String,
    /// Where its deletion stands.
    pub state: String,
    /// Attempts that arrived.
    pub attempts: u64,
    /// Those of them that arrived when no more should.
    pub late: u64,
    /// The status of a look at it by its id.
    pub shown: u16,
    /// The same by its name.
    pub named: u16,
}

/// The answer to `GET /v1/stats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Accepted.
    pub events: u64,
    /// Deliveries not ended.
    pub pending: u64,
    /// Deliveries with success.
    pub delivered: u64,
    /// Dead letters.
    pub dead: u64,
    /// Deliveries given up on request.
    pub cancelled: u64,
}

/// Everything the checker looks at.
#[derive(Clone, Debug)]
pub struct Evidence {
    /// Who was to get what.
    pub plan: Plan,
    /// What publishers did, in the order of their log.
    pub publishes: Vec<PublishRecord>,
    /// What receivers saw, in the order of their log.
    pub receipts: Vec<Receipt>,
    /// What was done to the server.
    pub faults: Vec<Fault>,
    /// What the server said at the end.
    pub finale: Finale,
}

const PLAN: &str = "plan.json";
const PUBLISHES: &str = "publishes.jsonl";
const RECEIPTS: &str = "receipts.jsonl";
const FAULTS: &str = "faults.jsonl";
const FINALE: &str = "finale.json";

impl Evidence {
    /// Reads what a run left in a folder.
    pub fn read(folder: &Path) -> anyhow::Result<Self> {
        Ok(Self {
            plan: read_one(&folder.join(PLAN))?,
            publishes: read_lines(&folder.join(PUBLISHES))?,
            receipts: read_lines(&folder.join(RECEIPTS))?,
            faults: read_lines(&folder.join(FAULTS))?,
            finale: read_one(&folder.join(FINALE))?,
        })
    }
}

fn read_one<T: DeserializeOwned>(path: &Path) -> anyhow::Result<T> {
    let text = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("understanding {}", path.display()))
}

fn read_lines<T: DeserializeOwned>(path: &Path) -> anyhow::Result<Vec<T>> {
    let file = File::open(path).with_context(|| format!("reading {}", path.display()))?;
    let mut items = Vec::new();
    for (index, line) in BufReader::new(file).lines().enumerate() {
        let item = serde_json::from_str(&line?)
            .with_context(|| format!("understanding {} line {}", path.display(), index + 1))?;
        items.push(item);
    }
    Ok(items)
}

/// The logs of a run, and its clock.
#[derive(Debug)]
pub struct Journal {
    began: Instant,
    publishes: Mutex<BufWriter<File>>,
    receipts: Mutex<BufWriter<File>>,
    faults: Mutex<BufWriter<File>>,
}

impl Journal {
    /// Fresh logs in a folder.
    pub fn new(folder: &Path) -> anyhow::Result<Self> {
        let open = |name: &str| -> anyhow::Result<_> {
            let path = folder.join(name);
            let file = File::create_new(&path);
            let file = file.with_context(|| format!("making {}", path.display()))?;
            Ok(Mutex::new(BufWriter::new(file)))
        };
        Ok(Self {
            began: Instant::now(),
            publishes: open(PUBLISHES)?,
            receipts: open(RECEIPTS)?,
            faults: open(FAULTS)?,
        })
    }

    /// The time.
    pub fn now(&self) -> Micros {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Notes what a publisher did.
    pub fn publish(&self, record: &PublishRecord) {
        append(&self.publishes, record);
    }

    /// Notes what a receiver saw.
    pub fn receipt(&self, receipt: &Receipt) {
        append(&self.receipts, receipt);
    }

    /// Notes a fault.
    pub fn fault(&self, fault: &Fault) {
        append(&self.faults, fault);
    }

    /// Writes the rest, and completes the evidence.
    pub fn finish(&self, folder: &Path, plan: &Plan, finale: &Finale) -> anyhow::Result<()> {
        for log in [&self.publishes, &self.receipts, &self.faults] {
            log.lock().flush().context("writing a log")?;
        }
        std::fs::write(folder.join(PLAN), serde_json::to_vec_pretty(plan)?)?;
        std::fs::write(folder.join(FINALE), serde_json::to_vec(finale)?)?;
        Ok(())
    }
}

/// A log that cannot be written proves nothing, so that ends the run at once.
fn append<T: Serialize>(log: &Mutex<BufWriter<File>>, item: &T) {
    let mut line = serde_json::to_vec(item).expect("records have plain fields only");
    line.push(b'\n');
    log.lock().write_all(&line).expect("the log must be writable");
}
