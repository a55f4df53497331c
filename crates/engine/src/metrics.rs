//! Names, units and labels of the engine's metrics. Labels are bounded: never an id.

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram};
use posthorn_domain::{FailureCode, OperationalType};

/// Events accepted.
pub const ACCEPTED: &str = "posthorn_events_accepted_total";
/// Deliveries made by fan-out.
pub const FANNED_OUT: &str = "posthorn_deliveries_created_total";
/// Publishes refused, by `reason`.
pub const PUBLISH_REFUSED: &str = "posthorn_publishes_refused_total";
/// Attempts, by `outcome`.
pub const ATTEMPTS: &str = "posthorn_attempts_total";
/// Attempts that crashed.
pub const ATTEMPT_PANICS: &str = "posthorn_attempt_panics_total";
/// Duration of attempts.
pub const ATTEMPT_SECONDS: &str = "posthorn_attempt_seconds";
/// Deliveries ended, by `state`.
pub const ENDED: &str = "posthorn_deliveries_ended_total";
/// Dead letters, by `reason`.
pub const DEAD: &str = "posthorn_dead_letters_total";
/// From due to begun.
pub const LAG_SECONDS: &str = "posthorn_delivery_lag_seconds";
/// Deliveries held in memory.
pub const WINDOW: &str = "posthorn_window_deliveries";
/// Attempts under way.
pub const IN_FLIGHT: &str = "posthorn_attempts_in_flight";
/// Unfinished deliveries in the store.
pub const PENDING: &str = "posthorn_deliveries_pending";
/// Dead letters in the store.
pub const DEAD_STORED: &str = "posthorn_dead_letters_stored";
/// Events in one accept transaction.
pub const ACCEPT_BATCH: &str = "posthorn_accept_batch_events";
/// Outcomes in one record transaction.
pub const RECORD_BATCH: &str = "posthorn_record_batch_outcomes";
/// Shards held.
pub const SHARDS: &str = "posthorn_shards_held";
/// Shards gained or lost, by `change`.
pub const LEASE_CHANGES: &str = "posthorn_lease_changes_total";
/// Writes refused because the shard had moved on.
pub const FENCED: &str = "posthorn_writes_fenced_total";
/// Operational events that were stored, by type.
pub const TOLD: &str = "posthorn_operational_events_total";
/// Breakers that opened.
pub const BREAKER_OPENED: &str = "posthorn_breakers_opened_total";
/// Subscriptions that were disabled because of what their receivers answered, by `reason`.
pub const DISABLED: &str = "posthorn_subscriptions_disabled_total";
/// Calls of token servers, by `outcome`.
pub const TOKEN_CALLS: &str = "posthorn_token_calls_total";
/// Publishes and other requests that were not let in, by `reason`.
pub const ADMISSION_REFUSED: &str = "posthorn_admission_refused_total";
/// Events that wait for their commit.
pub const WAITING: &str = "posthorn_publishes_waiting";
/// From publish to commit, for the youngest event of each group.
pub const COMMIT_WAIT_SECONDS: &str = "posthorn_commit_wait_seconds";
/// 1 while publishes are refused because they cannot be stored fast enough.
pub const OVERLOADED: &str = "posthorn_overloaded";
/// 1 while nothing is sent because the server was started on hold.
pub const ON_HOLD: &str = "posthorn_on_hold";
/// Ends of deliveries that somebody who follows them was too slow to hear of.
pub const OUTCOMES_MISSED: &str = "posthorn_outcomes_missed_total";
/// Log lines that policies asked for and that were left out.
pub const LOG_LINES_LEFT_OUT: &str = "posthorn_policy_log_lines_left_out_total";
/// Errors of the store, by `operation`.
pub const STORE_ERRORS: &str = "posthorn_store_errors_total";

/// Seconds until the first certificate of a `kind` ends.
pub const CERTIFICATE_EXPIRY: &str = "posthorn_certificate_expiry_seconds";

/// Registers the descriptions; once, at start.
pub fn describe() {
    describe_counter!(ACCEPTED, "Events accepted and committed");
    describe_counter!(FANNED_OUT, "Deliveries committed together with their events");
    describe_counter!(PUBLISH_REFUSED, "Publishes refused, by reason");
    describe_counter!(ATTEMPTS, "Attempts ended, by outcome");
    describe_gauge!(
        CERTIFICATE_EXPIRY,
        Unit::Seconds,
        "Seconds until the first certificate of a kind expires; negative if one has expired"
    );
    describe_counter!(ATTEMPT_PANICS, "Attempts that crashed; always a defect");
    describe_histogram!(ATTEMPT_SECONDS, Unit::Seconds, "Duration of attempts");
    describe_counter!(ENDED, "Deliveries that reached a terminal state, by state");
    describe_counter!(DEAD, "Deliveries that became dead letters, by reason");
    describe_histogram!(
        LAG_SECONDS,
        Unit::Seconds,
        "Time from the due time of a delivery to its attempt"
    );
    describe_gauge!(WINDOW, "Deliveries held in memory");
    describe_gauge!(IN_FLIGHT, "Attempts in progress");
    describe_gauge!(ON_HOLD, "1 while the server is on hold: events are accepted, nothing is sent");
    describe_gauge!(PENDING, "Unfinished deliveries in the store");
    describe_gauge!(DEAD_STORED, "Dead letters in the store");
    describe_histogram!(ACCEPT_BATCH, "Events in one accept transaction");
    describe_histogram!(RECORD_BATCH, "Outcomes in one record transaction");
    describe_gauge!(SHARDS, "Shards this node holds");
    describe_counter!(LEASE_CHANGES, "Shards gained or lost, by change");
    describe_counter!(TOLD, "Operational events stored, by type");
    describe_counter!(FENCED, "Writes refused because another node holds the shard now");
    describe_counter!(BREAKER_OPENED, "Breakers that opened");
    describe_counter!(
        DISABLED,
        "Subscriptions disabled after a response of their receiver, by \
                                 reason"
    );
    describe_counter!(TOKEN_CALLS, "Calls to OAuth 2.0 token servers, by outcome");
    describe_counter!(ADMISSION_REFUSED, "Requests refused at admission, by reason");
    describe_gauge!(WAITING, "Events waiting to be committed");
    describe_histogram!(
        COMMIT_WAIT_SECONDS,
        Unit::Seconds,
        "Time from publish to commit, for the newest event of each group"
    );
    describe_gauge!(OVERLOADED, "1 while publishes arrive faster than they can be stored");
    describe_counter!(OUTCOMES_MISSED, "Delivery outcomes that a slow follower missed");
    describe_counter!(
        LOG_LINES_LEFT_OUT,
        "Log lines of policies dropped because of log.policy_lines_per_second"
    );
    describe_counter!(STORE_ERRORS, "Errors of the store, by operation");
    at_zero();
}

/// Every counter is there from the start: a rate over one that appears with its first event misses
/// that event, and an alert on one that is not there never fires.
fn at_zero() {
    let plain = [
        ACCEPTED,
        FANNED_OUT,
        ATTEMPT_PANICS,
        FENCED,
        BREAKER_OPENED,
        OUTCOMES_MISSED,
        LOG_LINES_LEFT_OUT,
    ];
    for name in plain {
        counter!(name).increment(0);
    }
    let answers =
        ["success", "permanent", "gone", "throttled", "server_error", "not_success", "gate_closed"];
    for outcome in answers.into_iter().chain(FailureCode::ALL.map(FailureCode::as_str)) {
        counter!(ATTEMPTS, "outcome" => outcome).increment(0);
    }
    for told in OperationalType::ALL {
        counter!(TOLD, "type" => told.as_str()).increment(0);
    }
    let labelled: [(&str, &str, &[&str]); 8] = [
        (
            PUBLISH_REFUSED,
            "reason",
            &[
                "unknown_topic",
                "key_reused",
                "unknown_tenant",
                "matching_too_costly",
                "fan_out",
                "topic_reserved",
                "unknown_type",
                "payload",
                "tenant_deleted",
                "other",
            ],
        ),
        (ENDED, "state", &["delivered", "dead", "cancelled"]),
        (DEAD, "reason", &["exhausted", "permanent", "gate", "expired"]),
        (LEASE_CHANGES, "change", &["gained", "lost", "released"]),
        (DISABLED, "reason", &["gone", "exhausted", "url_refused", "failing"]),
        (TOKEN_CALLS, "outcome", &["success", "failure"]),
        (
            ADMISSION_REFUSED,
            "reason",
            &["rate_limited", "quota_exceeded", "too_many_failures", "overloaded", "disk_full"],
        ),
        (
            STORE_ERRORS,
            "operation",
            &[
                "accept",
                "record",
                "claim",
                "pending",
                "pending_by_tenant",
                "scan",
                "failing",
                "heartbeat",
                "prune",
                "prune sessions",
                "count",
                "job",
                "tail",
                "tell",
            ],
        ),
    ];
    for (name, label, values) in labelled {
        for value in values {
            counter!(name, label => *value).increment(0);
        }
    }
}
