//! Names, units and labels of the API's metrics. Labels are bounded: operations and status classes.

use metrics::{Counter, Unit, counter, describe_counter};

/// Requests answered, by `operation` and `class` (`2xx`, `4xx`, `5xx`).
pub const REQUESTS: &str = "posthorn_http_requests_total";

/// Tells the recorder what these mean.
pub fn describe() {
    describe_counter!(REQUESTS, Unit::Count, "Requests answered, by operation and class");
}

/// The counters of one operation, looked up once.
#[derive(Clone)]
pub(crate) struct Tally {
    fine: Counter,
    refused: Counter,
    failed: Counter,
}

impl Tally {
    pub(crate) fn of(operation: &'static str) -> Self {
        let class =
            |class: &'static str| counter!(REQUESTS, "operation" => operation, "class" => class);
        Self { fine: class("2xx"), refused: class("4xx"), failed: class("5xx") }
    }

    pub(crate) fn count(&self, status: http::StatusCode) {
        match status.as_u16() {
            500.. => self.failed.increment(1),
            400.. => self.refused.increment(1),
            _ => self.fine.increment(1),
        }
    }
}
