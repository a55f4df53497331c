//! Names and units of the listener's metrics.

use metrics::{Unit, counter, describe_counter, describe_gauge};

/// Connections open.
pub const CONNECTIONS: &str = "posthorn_http_connections";
/// Connections that were upgraded and are open, where they have places of their own.
pub const SOCKETS: &str = "posthorn_http_sockets";
/// Connections that could not be accepted.
pub const ACCEPT_ERRORS: &str = "posthorn_http_accept_errors_total";
/// Connections that were cut, by `reason` (`slow_reader`: it did not take its answer).
pub const CUT: &str = "posthorn_http_connections_cut_total";
/// Bytes lent to request bodies under way; those that fit into one read are not counted.
pub const BODY_BYTES: &str = "posthorn_http_body_bytes";
/// TLS handshakes that did not come about, by `reason` (`time`, `failed`).
pub const HANDSHAKE_FAILURES: &str = "posthorn_tls_handshake_failures_total";
/// What was not let in, by `reason`: the series of the engine, to which connections beyond what there
/// may be, and bodies without room, are added here.
pub const ADMISSION_REFUSED: &str = "posthorn_admission_refused_total";

/// Tells the recorder what these mean.
pub fn describe() {
    describe_gauge!(CONNECTIONS, Unit::Count, "Open connections");
    describe_gauge!(SOCKETS, Unit::Count, "Open upgraded connections");
    describe_counter!(ACCEPT_ERRORS, Unit::Count, "Connections that could not be accepted");
    describe_counter!(CUT, Unit::Count, "Connections closed by the server, by reason");
    describe_gauge!(BODY_BYTES, Unit::Bytes, "Memory used by request bodies in progress");
    describe_counter!(HANDSHAKE_FAILURES, Unit::Count, "TLS handshakes that failed, by reason");
    // There from the start, so that a rate misses nothing.
    counter!(ACCEPT_ERRORS).increment(0);
    counter!(CUT, "reason" => "slow_reader").increment(0);
    counter!(ADMISSION_REFUSED, "reason" => "connections").increment(0);
    for reason in ["failed", "time"] {
        counter!(HANDSHAKE_FAILURES, "reason" => reason).increment(0);
    }
}
