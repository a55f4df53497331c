//! What the writer does: one function for each command, inside a transaction that others share.
//!
//! Each may be run again from the start after a rollback, so none keeps anything outside the
//! [`Writer`](crate::writer::Writer). A refusal comes before the first write.

pub(crate) mod accept;
pub(crate) mod catalog;
pub(crate) mod lanes;
pub(crate) mod maintenance;
pub(crate) mod membership;
pub(crate) mod record;
pub(crate) mod redrive;

use crate::error::Failure;
use crate::writer::Writer;

/// Before deliveries are removed: what is removed may be the newest, and its seq must not be given
/// out again after a restart.
fn keep_seqs(writer: &Writer) -> Result<(), Failure> {
    writer
        .conn
        .prepare_cached("update store set seq_floor = ?1 where seq_floor < ?1")?
        .execute([writer.last_seq])?;
    Ok(())
}
