//! What this store tells about itself: names, units, labels.

use std::time::Duration;

use metrics::{counter, describe_counter, describe_histogram, histogram};

const COMMIT_SECONDS: &str = "posthorn_store_commit_seconds";
const CALL_SECONDS: &str = "posthorn_store_call_seconds";
const ROWS_TOTAL: &str = "posthorn_store_rows_total";
const FAILURES_TOTAL: &str = "posthorn_store_failures_total";
const REPEATS_TOTAL: &str = "posthorn_store_repeats_total";
const MOVES_TOTAL: &str = "posthorn_store_moves_total";
const UNREPLICATED_TOTAL: &str = "posthorn_store_unreplicated_commits_total";

/// Once for each process; repeating it is harmless.
pub(crate) fn describe() {
    use metrics::Unit::{Count, Seconds};
    describe_histogram!(
        COMMIT_SECONDS,
        Seconds,
        "time from a batch's arrival to its durable \
                                                  commit"
    );
    describe_histogram!(CALL_SECONDS, Seconds, "time of a query to the store");
    describe_counter!(ROWS_TOTAL, Count, "items of the batches that were written");
    describe_counter!(FAILURES_TOTAL, Count, "calls that failed, not counting refusals");
    describe_counter!(REPEATS_TOTAL, Count, "transactions repeated after a deadlock");
    describe_counter!(MOVES_TOTAL, Count, "how often another server took over the database");
    describe_counter!(
        UNREPLICATED_TOTAL,
        Count,
        "commits that were told not to wait for the standby, and count as unknown"
    );
    counter!(MOVES_TOTAL, "backend" => "postgres").absolute(0);
    counter!(UNREPLICATED_TOTAL, "backend" => "postgres").absolute(0);
}

pub(crate) fn call(operation: &'static str, writes: bool, took: Duration) {
    let name = if writes { COMMIT_SECONDS } else { CALL_SECONDS };
    histogram!(name, "backend" => "postgres", "operation" => operation).record(took.as_secs_f64());
}

pub(crate) fn rows(operation: &'static str, number: usize) {
    counter!(ROWS_TOTAL, "backend" => "postgres", "operation" => operation)
        .increment(u64::try_from(number).unwrap_or(u64::MAX));
}

pub(crate) fn failure(operation: &'static str) {
    counter!(FAILURES_TOTAL, "backend" => "postgres", "operation" => operation).increment(1);
}

pub(crate) fn repeat(operation: &'static str) {
    counter!(REPEATS_TOTAL, "backend" => "postgres", "operation" => operation).increment(1);
}

pub(crate) fn moved() {
    counter!(MOVES_TOTAL, "backend" => "postgres").increment(1);
}

pub(crate) fn unreplicated() {
    counter!(UNREPLICATED_TOTAL, "backend" => "postgres").increment(1);
}
