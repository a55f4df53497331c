//! What a benchmark says.

use serde::Serialize;

/// The figures of one run. Fields that do not apply are absent.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// What was measured.
    pub scenario: &'static str,
    /// On what.
    pub store: String,
    /// Different events at the sink, per second, from the first publish to the last delivery.
    pub deliveries_per_s: f64,
    /// The bare baseline of the same run.
    pub bare_per_s: f64,
    /// The former by the latter; for a dead neighbour: with it by without it.
    pub ratio: f64,
    /// Publish to the receiver's first byte.
    pub p50_ms: f64,
    /// The same, for the slowest hundredth.
    pub p99_ms: f64,
    /// The server's resident memory at its highest, in MiB.
    pub rss_mib: f64,
    /// Accepted, but never delivered.
    pub lost: i64,
    /// Delivered more than once.
    pub duplicates: u64,
    /// Publishes answered with something else than a 2xx.
    pub refused: u64,
    /// Resident memory before the load, in MiB.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_rss_mib: Option<f64>,
    /// Deliveries pending when it was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pending: Option<u64>,
    /// From the start of the process to the first delivery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_delivery_s: Option<f64>,
    /// Overload: publishes accepted per second, with nothing else asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_per_s: Option<f64>,
    /// Overload: publishes accepted per second, under overload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goodput_per_s: Option<f64>,
    /// The latter by the former; 0.9 is wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goodput_ratio: Option<f64>,
    /// Overload: publishes sent by peak; 10 is meant, less is what two cores could send.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offered_ratio: Option<f64>,
    /// Overload: from sending a publish to its refusal, for the slowest hundredth; 50 ms are wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reject_p99_ms: Option<f64>,
    /// The same, for the middle one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reject_p50_ms: Option<f64>,
    /// Overload: from sending a publish to its acceptance, for the slowest hundredth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub accept_p99_ms: Option<f64>,
    /// Overload: `GET /healthz` meanwhile, for the slowest hundredth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health_p99_ms: Option<f64>,
    /// Overload: deliveries of accepted events that never arrived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub acked_lost: Option<i64>,
    /// Overload: from its end until publishes are accepted within 100 ms again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovery_s: Option<f64>,
    /// How long the measured load ran.
    pub seconds: f64,
    /// Publishers, or requests, at once.
    pub publishers: usize,
    /// Bytes of one payload.
    pub payload_bytes: usize,
}

impl Report {
    /// Prints it on stdout.
    #[expect(clippy::print_stdout, reason = "this is the data the command exists for")]
    pub fn print(&self, json: bool) {
        let value = serde_json::to_value(self).unwrap_or_default();
        if json {
            println!("{value}");
            return;
        }
        for (name, value) in value.as_object().into_iter().flatten() {
            match value.as_f64() {
                Some(number) if number.fract() != 0.0 => println!("{name:>18}  {number:.2}"),
                _ => println!("{name:>18}  {}", value.to_string().trim_matches('"')),
            }
        }
    }
}
