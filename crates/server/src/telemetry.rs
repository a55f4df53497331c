//! Logs, metrics and traces: set up once, before anything else speaks.

mod lines;
pub mod otlp;

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

use metrics::{Unit, describe_gauge, gauge};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use posthorn_api::RenderMetrics;
use tokio_util::sync::CancellationToken;
use tracing::error;
use tracing_subscriber::EnvFilter;

use crate::config::{Log, LogFormat};
use crate::exit::{Code, Failure};
use lines::PolicyLines;

/// Upper bounds for histograms of seconds: from a store's commit to an attempt's deadline.
const SECONDS: [f64; 16] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0,
];
/// Upper bounds for histograms of sizes of batches.
const SIZES: [f64; 12] =
    [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0];

/// Memory of this process, under the name that dashboards know.
const RESIDENT: &str = "process_resident_memory_bytes";
/// Which version runs.
const BUILD: &str = "posthorn_build_info";

/// Starts logging to stderr. Returns whether people are meant to read it.
pub fn start_logs(log: &Log) -> bool {
    let filter = EnvFilter::new(&log.level);
    let terminal = std::io::stderr().is_terminal();
    let human = match log.format {
        LogFormat::Auto => terminal,
        LogFormat::Human => true,
        LogFormat::Json => false,
    };
    let colours = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    // When stderr cannot be written to any more, as at a terminal that was closed, it is no place to say so either: that
    // would be a panic, in the middle of a stop.
    let builder = builder.log_internal_errors(false);
    // A second start in one process, as in tests, keeps the first one's logs.
    drop(if human {
        let builder = builder.with_ansi(colours).with_target(false);
        builder.map_event_format(|usual| PolicyLines::around(usual, true)).try_init()
    } else {
        let builder = builder.json().flatten_event(true);
        builder.map_event_format(|usual| PolicyLines::around(usual, false)).try_init()
    });
    std::panic::set_hook(Box::new(|info| {
        let backtrace = std::backtrace::Backtrace::capture();
        error!(panic = %info, %backtrace, "a task panicked; this is a defect, please report it");
    }));
    human
}

/// The recorder of this process.
#[derive(Clone)]
pub struct Recorder(PrometheusHandle);

impl Recorder {
    /// Installs it. Metrics of services that were made before are not counted.
    pub fn install() -> anyhow::Result<Self> {
        let failed = |e| Failure::new(Code::Failure, format!("metrics cannot be set up: {e}"));
        let handle = PrometheusBuilder::new()
            .set_buckets(&SIZES)
            .and_then(|b| {
                b.set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS)
            })
            .and_then(|b| {
                let name = posthorn_notifier::observe::DURATION.to_owned();
                let bounds = &posthorn_notifier::observe::DURATION_BUCKETS;
                b.set_buckets_for_metric(Matcher::Full(name), bounds)
            })
            .and_then(PrometheusBuilder::install_recorder)
            .map_err(failed)?;
        posthorn_engine::metrics::describe();
        describe_gauge!(RESIDENT, Unit::Bytes, "Resident memory of the process");
        describe_gauge!(BUILD, "Always 1; the version is a label");
        gauge!(BUILD, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
        Ok(Self(handle))
    }

    /// What `/metrics` shows.
    pub fn render(&self) -> RenderMetrics {
        let handle = self.0.clone();
        Arc::new(move || handle.render())
    }

    /// Keeps histograms from growing and the process's own figures fresh, until it is told to stop.
    pub async fn upkeep(self, every: Duration, stop: CancellationToken) {
        loop {
            if let Some(bytes) = resident_bytes() {
                gauge!(RESIDENT).set(bytes);
            }
            self.0.run_upkeep();
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(every) => {}
            }
        }
    }
}

/// Memory in RAM, where the system has `/proc`.
fn resident_bytes() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024.0)
}
