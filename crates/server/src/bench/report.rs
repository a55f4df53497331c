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
    /// The server's processor time for one delivery, warm-up included, in microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_us_per_delivery: Option<f64>,
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
    /// Overload: publishes accepted per second in a closed loop, the mean of before and after.
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
    /// What hostile receivers did to the server.
    #[serde(flatten)]
    pub hostile: Option<Hostile>,
    /// How long the measured load ran.
    pub seconds: f64,
    /// Publishers, or requests, at once.
    pub publishers: usize,
    /// Bytes of one payload.
    pub payload_bytes: usize,
}

/// The figures of the hostile scenario.
#[derive(Debug, Default, Serialize)]
pub struct Hostile {
    /// Hostile receivers.
    pub hostile_receivers: usize,
    /// Ways to misbehave they were spread over.
    pub hostile_modes: usize,
    /// Deliveries made for them.
    pub hostile_deliveries: u64,
    /// Attempts at them.
    pub hostile_attempts: u64,
    /// Connections they accepted.
    pub hostile_connections: u64,
    /// Publish to the healthy receiver's first byte, without the hostile.
    pub baseline_p50_ms: f64,
    /// The same, for the slowest hundredth.
    pub baseline_p99_ms: f64,
    /// With the hostile by without.
    pub healthy_p50_ratio: f64,
    /// The same, for the slowest hundredth.
    pub healthy_p99_ratio: f64,
    /// Resident memory at its highest beside the hostile, less what it was before them, in MiB.
    pub rss_growth_mib: f64,
    /// The server's descriptors before the hostile were subscribed.
    pub descriptors_before: usize,
    /// And after they were paused and idle connections were closed.
    pub descriptors_after: usize,
    /// Attempts that ended more than a second after their deadline.
    pub late_attempts: u64,
    /// The longest attempt.
    pub slowest_attempt_ms: u64,
    /// Attempts still under way when all must have ended.
    pub slots_leaked: u64,
    /// Deliveries that neither ended nor wait for anything.
    pub stuck_deliveries: u64,
    /// Redirects and other lures that were followed.
    pub lured: u64,
    /// Attempts that did not end as the receiver's mode demands.
    pub unexpected_outcomes: u64,
    /// Some of them.
    pub unexpected: Vec<String>,
    /// Promises that were not kept.
    pub limits_broken: Vec<String>,
}

/// Prints figures on stdout.
#[expect(clippy::print_stdout, reason = "this is the data the command exists for")]
pub(super) fn print(report: &impl Serialize, json: bool) {
    let value = serde_json::to_value(report).unwrap_or_default();
    if json {
        println!("{value}");
        return;
    }
    for (name, figure) in value.as_object().into_iter().flatten() {
        let shown = match figure.as_f64() {
            Some(number) if number.fract() != 0.0 => format!("{number:.2}"),
            // What is wanted stands beside the figure it is about.
            _ if figure.is_object() => continue,
            _ => figure.to_string().trim_matches('"').to_owned(),
        };
        let mark = |kind: &str| value.get(kind)?.get(name)?.as_f64();
        match mark("floor").zip(mark("goal")) {
            Some((floor, goal)) => println!("{name:>25}  {shown} (floor {floor}, goal {goal})"),
            None => println!("{name:>25}  {shown}"),
        }
    }
}
