//! The embedded store: one SQLite file, one writer, no server.
//!
//! # What it is for
//! [`SqliteStore`] implements [`posthorn_store::Store`] and [`posthorn_store::PushStore`] in a data
//! directory that one process owns.
//! It is the default store, and fast enough that it is not the limit of a small machine.
//!
//! # Theory of operation
//! * **One writer thread** owns the only connection that writes, and the checkpoints. Callers hand
//!   it commands over a bounded queue. It takes everything that is queued, applies it in one
//!   transaction, commits with a sync of the log (`synchronous=full`), and answers everybody. While
//!   it syncs, the next group forms: no delay is added, and no call waits for more than one other
//!   commit. See `writer`.
//! * **A command that fails** takes nobody with it: its group is rolled back and run again one by
//!   one. A full disk refuses the moment's commands; an I/O error ends the store, because after a
//!   failed sync nobody knows what is on disk.
//! * **Readers** are a few threads with read-only connections. Each question is one short
//!   transaction on one snapshot.
//! * **Leases** of shards live in the writer's memory and run by the monotonic clock: only this
//!   process can hold any. Their epochs are in the file and grow for ever.
//! * **Small numbers inside.** Rows refer to tenants, subscriptions and events by integers, and the
//!   writer keeps the translation in memory; see `migrations/0001_initial.sql`.
//!
//! # Invariants
//! No second process opens the directory. No write happens outside the writer thread. Nothing is
//! answered before it is synced. At most one delivery of a lane is neither parked nor ended.
//!
//! # What it must not know
//! The engine, HTTP, and when anything should be retried.

mod backup;
mod cache;
mod codec;
mod consistency;
mod copy;
mod error;
mod files;
mod integrity;
mod leases;
mod log;
mod metrics;
mod migrate;
mod open;
mod push;
mod read;
mod readers;
mod restore;
mod shared;
mod sql;
mod store;
mod write;
mod writer;

pub use backup::{BackupError, Progress, backup_file};
pub use consistency::{inconsistencies, repair};
pub use copy::{CopyError, CopyReading, CopySource, CopyTarget, is_populated};
pub use error::OpenError;
pub use integrity::{Damage, Depth, check_file};
pub use migrate::SCHEMA_VERSION;
pub use open::{Options, files};
pub use restore::{Backup, Contents, RestoreError, look, restore};
pub use store::SqliteStore;
