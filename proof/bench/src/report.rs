//! What a benchmark says.

use serde::Serialize;

use crate::figures::meaning;

/// The figures of one run, explained in [`figures`](crate::figures). Fields that do not apply are absent.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    pub(crate) scenario: &'static str,
    pub(crate) store: String,
    pub(crate) deliveries_per_s: f64,
    pub(crate) bare_per_s: f64,
    pub(crate) ratio: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) rss_mib: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cpu_us_per_delivery: Option<f64>,
    pub(crate) lost: i64,
    pub(crate) duplicates: u64,
    pub(crate) refused: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) idle_rss_mib: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pending: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) first_delivery_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) peak_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) goodput_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) goodput_ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) offered_ratio: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reject_p99_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) reject_p50_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) accept_p99_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) health_p99_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) acked_lost: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) recovery_s: Option<f64>,
    #[serde(flatten)]
    pub(crate) hostile: Option<Hostile>,
    pub(crate) seconds: f64,
    pub(crate) publishers: usize,
    pub(crate) payload_bytes: usize,
}

/// The figures of the hostile scenario.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Hostile {
    pub(crate) hostile_receivers: usize,
    pub(crate) hostile_modes: usize,
    pub(crate) hostile_deliveries: u64,
    pub(crate) hostile_attempts: u64,
    pub(crate) hostile_connections: u64,
    pub(crate) baseline_p50_ms: f64,
    pub(crate) baseline_p99_ms: f64,
    pub(crate) healthy_p50_ratio: f64,
    pub(crate) healthy_p99_ratio: f64,
    pub(crate) rss_growth_mib: f64,
    pub(crate) descriptors_before: usize,
    pub(crate) descriptors_after: usize,
    pub(crate) late_attempts: u64,
    pub(crate) slowest_attempt_ms: u64,
    pub(crate) slots_leaked: u64,
    pub(crate) stuck_deliveries: u64,
    pub(crate) lured: u64,
    pub(crate) unexpected_outcomes: u64,
    pub(crate) unexpected: Vec<String>,
    pub(crate) limits_broken: Vec<String>,
}

/// Prints figures on stdout.
#[expect(clippy::print_stdout, reason = "this is the data the command exists for")]
pub(crate) fn print(report: &impl Serialize, json: bool) {
    let value = serde_json::to_value(report).unwrap_or_default();
    if json {
        println!("{value}");
        return;
    }
    let mark = |kind: &str, name: &str| value.get(kind)?.get(name)?.as_f64();
    for (name, figure) in value.as_object().into_iter().flatten() {
        let shown = match figure.as_f64() {
            Some(number) if number.fract() != 0.0 => format!("{number:.2}"),
            // What is wanted stands beside the figure it is about.
            _ if figure.is_object() => continue,
            _ => figure.to_string().trim_matches('"').to_owned(),
        };
        let wanted = match mark("floor", name).zip(mark("goal", name)) {
            Some((floor, goal)) => format!(" (floor {floor}, goal {goal})"),
            None => String::new(),
        };
        println!("{name:>25}  {shown:<12}  {}{wanted}", meaning(name));
    }
}
