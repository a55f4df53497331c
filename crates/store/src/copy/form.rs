//! What rows look like between two stores.
//!
//! The order of columns is that of the values in a [`Row`]; those of the key come first, and sheets are read in their order:
//! numbers by size, texts and bytes byte by byte.

use bytes::Bytes;

/// A value that means the same in every store.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    /// Nothing.
    Null,
    /// A number, a time in milliseconds, or yes (1) and no (0).
    Int(i64),
    /// A text; the zero character, which not every store can hold, is the replacement character.
    Text(String),
    /// Bytes, or the sixteen of an id.
    Bytes(Bytes),
}

impl Value {
    /// A text without what not every store can hold.
    pub fn text(text: &str) -> Self {
        Self::Text(if text.contains('\0') {
            text.replace('\0', "\u{fffd}")
        } else {
            text.to_owned()
        })
    }

    /// The number, where it is one.
    pub const fn int(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            _ => None,
        }
    }

    /// The text, where it is one.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The bytes, where it is some.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The sixteen bytes of an id.
    pub fn id(&self) -> Option<[u8; 16]> {
        self.as_bytes()?.try_into().ok()
    }

    /// About what it takes in memory.
    pub fn size(&self) -> usize {
        16 + match self {
            Self::Null | Self::Int(_) => 0,
            Self::Text(text) => text.len(),
            Self::Bytes(bytes) => bytes.len(),
        }
    }
}

/// The values of a row.
pub type Row = Vec<Value>;

/// A row with what belongs to it. Only events have deliveries and attempts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// The row of the sheet.
    pub row: Row,
    /// Rows of [`DELIVERY`], by id.
    pub deliveries: Vec<Row>,
    /// Rows of [`ATTEMPT`], by their key.
    pub attempts: Vec<Row>,
}

impl From<Row> for Unit {
    fn from(row: Row) -> Self {
        Self { row, deliveries: Vec::new(), attempts: Vec::new() }
    }
}

impl Unit {
    /// How many rows it is.
    pub fn rows(&self) -> usize {
        1 + self.deliveries.len() + self.attempts.len()
    }

    /// About what it takes in memory.
    pub fn size(&self) -> usize {
        let rows = self.deliveries.iter().chain(&self.attempts).chain([&self.row]);
        rows.flatten().map(Value::size).sum()
    }
}

/// What kind of value a column has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A number or a time.
    Int,
    /// Yes or no.
    Flag,
    /// A text.
    Text,
    /// Bytes.
    Bytes,
    /// Sixteen bytes.
    Id,
}

/// A column.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// Whether both sides must agree at the end. Places of jobs and redrives are translated, and may read differently.
    pub compared: bool,
}

/// A table as both sides see it.
#[derive(Debug)]
pub struct Sheet {
    /// Its name.
    pub name: &'static str,
    /// How many of the columns are the key.
    pub key: usize,
    /// All columns.
    pub columns: &'static [Column],
    /// Whether all rows are written at once when one differs, since they may exchange names. Only for what every node has
    /// in memory anyway.
    pub whole: bool,
}

impl Sheet {
    /// The key of a row.
    pub fn key_of<'r>(&self, row: &'r Row) -> &'r [Value] {
        &row[..self.key]
    }
}

const fn of(name: &'static str, kind: Kind) -> Column {
    Column { name, kind, compared: true }
}

const fn int(name: &'static str) -> Column {
    of(name, Kind::Int)
}

const fn flag(name: &'static str) -> Column {
    of(name, Kind::Flag)
}

const fn text(name: &'static str) -> Column {
    of(name, Kind::Text)
}

const fn bytes(name: &'static str) -> Column {
    of(name, Kind::Bytes)
}

const fn id(name: &'static str) -> Column {
    of(name, Kind::Id)
}

const fn place(name: &'static str) -> Column {
    Column { name, kind: Kind::Id, compared: false }
}

const fn sheet(name: &'static str, key: usize, columns: &'static [Column]) -> Sheet {
    Sheet { name, key, columns, whole: false }
}

/// Events: what was published. `expiry_at`: when to look whether one with a retention can go.
pub static EVENT: Sheet = sheet(
    "event",
    2,
    &[
        id("id"),
        id("tenant"),
        text("topic"),
        text("type"),
        text("attributes"),
        text("key"),
        text("content_type"),
        bytes("payload"),
        int("accepted_at"),
        text("publisher_id"),
        int("deliver_at"),
        int("retention"),
        int("expunged_at"),
        bytes("trace"),
        flag("unwanted"),
        int("expiry_at"),
    ],
);

/// Deliveries. `due_at` is null when one has ended; `blocks`: a dead letter that stops its lane; `enters_at` and
/// `enters_lane`: when one that is scheduled enters which lane.
pub static DELIVERY: Sheet = sheet(
    "delivery",
    1,
    &[
        id("id"),
        id("event"),
        id("subscription"),
        id("tenant"),
        int("seq"),
        int("state"),
        int("due_at"),
        int("attempts"),
        int("budget_base"),
        int("budget_began"),
        int("ended_at"),
        text("lane"),
        flag("blocks"),
        int("revival"),
        int("held_until"),
        int("outcome"),
        int("enters_at"),
        text("enters_lane"),
    ],
);

/// Attempts. `no` is their order of recording.
pub static ATTEMPT: Sheet = sheet(
    "attempt",
    3,
    &[
        id("delivery"),
        int("number"),
        int("started_at"),
        int("no"),
        int("took"),
        flag("late"),
        flag("manual"),
        int("status"),
        text("failure"),
        text("detail"),
        text("timings"),
        bytes("response"),
        int("response_expunged_at"),
        text("request"),
    ],
);

/// Everything that is copied, in this order: what others refer to comes first.
pub static SHEETS: [&Sheet; 18] = [
    &TENANT,
    &SUBSCRIPTION,
    &ENTRY,
    &KEY_USE,
    &EVENT,
    &IDEMPOTENCY,
    &REDRIVE,
    &JOB,
    &FAILING,
    &ROLLUP,
    &ROLLUP_HOUR,
    &AUDIT,
    &PAGE_SESSION,
    &KEPT_ANSWER,
    &PUSH_AGENT,
    &PUSH_CHANNEL,
    &PUSH_MESSAGE,
    &STORE,
];

static TENANT: Sheet = sheet("tenant", 1, &[id("id"), flag("closed")]);

/// `unswept`: deleted, and deliveries may still be unfinished.
static SUBSCRIPTION: Sheet =
    sheet("subscription", 1, &[id("id"), id("tenant"), int("deleted_at"), flag("unswept")]);

static ENTRY: Sheet = Sheet {
    whole: true,
    ..sheet(
        "entry",
        2,
        &[
            text("kind"),
            text("key"),
            id("tenant"),
            int("version"),
            text("unique_key"),
            flag("removed"),
            text("document"),
            text("alias"),
            text("realm"),
        ],
    )
};

static KEY_USE: Sheet = sheet("key_use", 1, &[id("key"), int("used_at")]);

static IDEMPOTENCY: Sheet = sheet(
    "idempotency",
    2,
    &[id("tenant"), text("key"), bytes("fingerprint"), id("event"), int("accepted_at")],
);

/// `cursor`: an id up to which all deliveries were looked at.
static REDRIVE: Sheet = sheet(
    "redrive",
    1,
    &[
        id("id"),
        id("tenant"),
        text("filter"),
        int("per_second"),
        int("state"),
        int("total"),
        int("moved"),
        int("created_at"),
        int("finished_at"),
        place("cursor"),
    ],
);

/// `cursor`: an id up to which all events, or all deliveries, were looked at; which of them depends on the work. All zeros: a
/// delivery of one event was made.
static JOB: Sheet = sheet(
    "job",
    1,
    &[
        id("id"),
        id("tenant"),
        text("work"),
        int("per_second"),
        int("state"),
        int("seen"),
        int("done"),
        text("created_by"),
        int("created_at"),
        int("finished_at"),
        text("problem"),
        place("cursor"),
    ],
);

static FAILING: Sheet =
    sheet("failing", 1, &[id("subscription"), int("since"), flag("exhausted"), flag("told")]);

static ROLLUP: Sheet =
    sheet("rollup", 3, &[int("at"), text("scope"), id("node"), int("number"), bytes("counts")]);

static ROLLUP_HOUR: Sheet = sheet("rollup_hour", 2, &[int("at"), text("scope"), bytes("counts")]);

static AUDIT: Sheet = sheet(
    "audit",
    1,
    &[
        id("id"),
        id("tenant"),
        text("realm"),
        text("actor"),
        text("action"),
        text("noun"),
        text("object"),
        text("document"),
    ],
);

static PAGE_SESSION: Sheet = sheet(
    "page_session",
    1,
    &[
        id("id"),
        text("kind"),
        id("tenant"),
        text("realm"),
        id("key"),
        text("label"),
        int("expires_at"),
        text("document"),
    ],
);

/// Without who is at work on one: nobody is, in a copy.
static KEPT_ANSWER: Sheet = sheet(
    "kept_answer",
    1,
    &[bytes("key"), int("seed_at"), id("seed"), int("expires_at"), int("status"), bytes("body")],
);

static PUSH_AGENT: Sheet = sheet(
    "push_agent",
    1,
    &[id("id"), text("node"), int("connected_at"), int("created_at"), int("seen_at")],
);

static PUSH_CHANNEL: Sheet =
    sheet("push_channel", 2, &[id("agent"), id("id"), bytes("key_hash"), int("created_at")]);

static PUSH_MESSAGE: Sheet = sheet(
    "push_message",
    2,
    &[
        id("agent"),
        int("seq"),
        id("channel"),
        id("id"),
        text("topic"),
        int("received_at"),
        int("ttl"),
        int("expires_at"),
        text("encoding"),
        text("encryption"),
        text("crypto_key"),
        bytes("body"),
    ],
);

/// What is true of the whole store, in one row: versions, the numbers that were given out last, how far figures are in
/// their hours, and the epochs of all shards, eight bytes each.
static STORE: Sheet = sheet(
    "store",
    1,
    &[
        int("one"),
        int("catalog_version"),
        int("pruned_before"),
        int("delivery_seq"),
        int("attempt_no"),
        int("push_seq"),
        int("folded_at"),
        text("folded_scope"),
        id("folded_node"),
        bytes("epochs"),
    ],
);
