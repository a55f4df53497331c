//! Names and labels of the metrics of this room. Labels are bounded: never a host or an address.

use metrics::{Counter, counter, describe_counter};

/// Connections refused before they were tried, by `reason`.
const REFUSED: &str = "posthorn_egress_refused_total";
/// Lookups of names, by `result`.
const DNS: &str = "posthorn_egress_dns_total";
/// Connections used, by `how` one was had.
const CONNECTIONS: &str = "posthorn_egress_connections_total";
/// TLS handshakes, by `result`.
const HANDSHAKES: &str = "posthorn_egress_handshakes_total";

/// Why a connection may be refused.
const REFUSALS: [&str; 7] = [
    "address_not_public",
    "address_metadata",
    "address_denied",
    "address_own",
    "address_own_listener",
    "port_not_allowed",
    "mixed_answer",
];

/// The counters of the hot path, looked up once.
pub(crate) struct Counters {
    pub(crate) opened: Counter,
    pub(crate) reused: Counter,
}

impl Counters {
    /// Describes everything and finds what is counted often.
    pub(crate) fn new() -> Self {
        describe_counter!(REFUSED, "Connections refused by the guard before they were opened");
        describe_counter!(DNS, "DNS lookups of receivers' names, by result");
        describe_counter!(CONNECTIONS, "Connections used, new or reused");
        describe_counter!(HANDSHAKES, "TLS handshakes with receivers, by result");
        // There from the start, so that a rate misses nothing.
        for reason in REFUSALS {
            counter!(REFUSED, "reason" => reason).increment(0);
        }
        for result in ["found", "failed", "timeout"] {
            counter!(DNS, "result" => result).increment(0);
        }
        for result in ["full", "resumed", "failed", "timeout"] {
            counter!(HANDSHAKES, "result" => result).increment(0);
        }
        Self {
            opened: counter!(CONNECTIONS, "how" => "opened"),
            reused: counter!(CONNECTIONS, "how" => "reused"),
        }
    }
}

/// A connection was refused.
pub(crate) fn refused(reason: &'static str) {
    counter!(REFUSED, "reason" => reason).increment(1);
}

/// A name was looked up.
pub(crate) fn looked_up(result: &'static str) {
    counter!(DNS, "result" => result).increment(1);
}

/// A TLS handshake ended.
pub(crate) fn shook_hands(result: &'static str) {
    counter!(HANDSHAKES, "result" => result).increment(1);
}
