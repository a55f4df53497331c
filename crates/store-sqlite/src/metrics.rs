//! What this store tells about itself.

use std::time::Duration;

use metrics::{Unit, describe_gauge, describe_histogram, gauge, histogram};

const COMMIT_SECONDS: &str = "posthorn_store_commit_seconds";
const COMMIT_COMMANDS: &str = "posthorn_store_commit_commands";
const CHECKPOINT_SECONDS: &str = "posthorn_store_checkpoint_seconds";
const WAL_BYTES: &str = "posthorn_store_wal_bytes";

/// Says what the figures mean. Harmless to repeat.
pub(crate) fn describe() {
    describe_histogram!(
        COMMIT_SECONDS,
        Unit::Seconds,
        "Time from the start of a group of commands to the end of its commit"
    );
    describe_histogram!(COMMIT_COMMANDS, Unit::Count, "Commands that shared one commit");
    describe_histogram!(
        CHECKPOINT_SECONDS,
        Unit::Seconds,
        "Duration of checkpoints of the \
                                                            write-ahead log"
    );
    describe_gauge!(
        WAL_BYTES,
        Unit::Bytes,
        "Bytes in the write-ahead log that are not \
                                             checkpointed yet"
    );
}

/// One group was committed.
pub(crate) fn committed(took: Duration, commands: usize) {
    histogram!(COMMIT_SECONDS).record(took.as_secs_f64());
    histogram!(COMMIT_COMMANDS).record(commands as f64);
}

/// One checkpoint was made.
pub(crate) fn checkpointed(took: Duration) {
    histogram!(CHECKPOINT_SECONDS).record(took.as_secs_f64());
}

/// The log is so long.
pub(crate) fn wal(bytes: u64) {
    gauge!(WAL_BYTES).set(bytes as f64);
}
