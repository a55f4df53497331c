//! The log: how lists, filters and counts are read without reading the history.
//!
//! # Theory of operation
//! Events, deliveries and attempts are rows in the order in which they were written. A B-tree for everything
//! somebody may filter by would make each commit touch many more pages, one for each tenant and value, and the
//! hot path would pay for questions that are seldom asked. So rows are indexed later and in bulk: [`BLOCK`]
//! neighbours at a time are read by a thread of their own ([`indexer`]), which writes for each value *where in the
//! block* it occurs: a posting. All postings of a block lie together. A list ([`walk`]) goes from block to block,
//! looks up the few postings it needs, and reads exactly the rows that they name. The newest rows, which are in no
//! block yet, are looked at one by one.
//!
//! Every row is checked again against the filter before it is shown, so that a posting can only ever name too
//! much, never decide. What must not happen is that one names too little:
//! * Events and attempts do not change, they only vanish.
//! * Deliveries change their state and their outcome. Whoever changes one marks its block as stale in the same
//!   transaction ([`changes`]); of a stale block all rows of the owner are looked at. The indexer writes stale
//!   blocks anew when they have come to rest.
//!
//! [`changes`] also keeps the tally: how many events and deliveries in which state each tenant has.
//!
//! # What it must not know
//! When anything is delivered, and who asks.

pub(crate) mod build;
pub(crate) mod changes;
pub(crate) mod indexer;
pub(crate) mod places;
pub(crate) mod walk;

/// Rows of a block. A list of nothing reads one entry of an index for each block, and looks at this many of the
/// newest rows at most, give or take what the indexer has not caught up with.
pub(crate) const BLOCK: i64 = 4_096;

/// A table whose rows are indexed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum List {
    Events = 1,
    Deliveries = 2,
    Attempts = 3,
}

impl List {
    pub(crate) const ALL: [Self; 3] = [Self::Events, Self::Deliveries, Self::Attempts];

    pub(crate) const fn code(self) -> i64 {
        self as i64
    }

    pub(crate) const fn index(self) -> usize {
        self as usize - 1
    }
}

/// The block of a row.
pub(crate) const fn block_of(row: i64) -> i64 {
    row.div_euclid(BLOCK)
}

/// What postings of events are about.
pub(crate) mod about {
    pub(crate) const ALL: i64 = 0;
    pub(crate) const TOPIC: i64 = 1;
    pub(crate) const TYPE: i64 = 2;
    pub(crate) const KEY: i64 = 3;
    pub(crate) const PUBLISHER_ID: i64 = 4;
    pub(crate) const UNWANTED: i64 = 5;
}

/// The states of a delivery that are neither here nor there: pending and in flight count as one.
pub(crate) const OPEN: i64 = 0;

/// In place of an outcome where there was no attempt.
pub(crate) const NO_OUTCOME: i64 = 0;

/// The number of a text in postings (FNV-1a). Two texts may share one; rows are checked anyway.
pub(crate) fn hash(text: &[u8]) -> i64 {
    let hash = text.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash.cast_signed()
}
