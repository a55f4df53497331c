//! Moving a store: the form that rows have between two databases, and how one store is made equal to another.
//!
//! # What it is for
//! A store can be copied into another one of either kind. Both sides speak of the same *sheets* ([`SHEETS`]), in values
//! that mean the same on both ([`Value`]) and in the same order. What a database keeps only for itself (small numbers,
//! indexes, counts, leases) is in no sheet; each side makes its own of the rest.
//!
//! # Theory of operation
//! [`bring`] walks through a sheet on both sides at once, like two sorted lists, and writes what is missing or different
//! and removes what is too much, in bites of bounded size, each one transaction. So there is no progress to remember: a
//! copy that was killed is repeated, finds what is there already equal, and goes on. The same walk brings a copy up to date.
//! An event is copied together with its deliveries and their attempts: they belong together on both sides.
//!
//! At the end the target is read once more, and compared with what was read of the source by number and hash.
//!
//! # What it must not know
//! Which databases exist, and who uses them meanwhile.

mod bring;
mod form;
mod sums;

pub use bring::{Progress, Report, bring};
pub use form::{ATTEMPT, Column, DELIVERY, EVENT, Kind, Row, SHEETS, Sheet, Unit, Value};
pub use sums::{Sum, Sums};

use async_trait::async_trait;

use crate::Result;

/// About so many rows are read and written at once.
pub const BITE_ROWS: usize = 4_000;
/// And about so many bytes.
pub const BITE_BYTES: usize = 8 << 20;

/// Everything in a store, as of one moment.
#[async_trait]
pub trait Reading: Send {
    /// How many rows there are in a sheet, with all that belongs to them.
    async fn count(&mut self, sheet: &'static Sheet) -> Result<u64>;

    /// Begins to read a sheet, in the order of its key.
    async fn open(&mut self, sheet: &'static Sheet) -> Result<()>;

    /// The next of the sheet that was opened; nothing at its end.
    async fn next(&mut self) -> Result<Vec<Unit>>;
}

/// A store that is being made.
#[async_trait]
pub trait Writing: Send {
    /// What is there now.
    async fn reading(&mut self) -> Result<Box<dyn Reading>>;

    /// Removes units by their keys and writes others, in one transaction. A key may be in both: then the unit is replaced.
    async fn apply(&mut self, sheet: &'static Sheet, gone: Vec<Row>, new: Vec<Unit>) -> Result<()>;

    /// Makes what follows from the rows: counts, and what tells numbers apart that are given out later.
    async fn derive(&mut self) -> Result<()>;

    /// From now on a server may start on it.
    async fn complete(&mut self) -> Result<()>;
}
