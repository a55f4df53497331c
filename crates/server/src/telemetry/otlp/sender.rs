//! One request to the collector, and what came of it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use parking_lot::Mutex;
use posthorn_domain::{AttemptOutcome, TenantId};
use posthorn_egress::{Deadlines, Egress, PoolKey, Request, Target};
use prost::Message as _;
use tokio::time::Instant;
use tracing::warn;

/// What is read of an answer.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// How often the log speaks of failures.
const COMPLAINT_GAP: Duration = Duration::from_secs(60);

/// What is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    Traces,
    Metrics,
}

impl Signal {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Traces => "traces",
            Self::Metrics => "metrics",
        }
    }

    pub(super) const fn path(self) -> &'static str {
        match self {
            Self::Traces => "/v1/traces",
            Self::Metrics => "/v1/metrics",
        }
    }

    /// How many items of a body that was taken were not.
    fn rejected(self, answer: &[u8]) -> u64 {
        let rejected = match self {
            Self::Traces => ExportTraceServiceResponse::decode(answer)
                .ok()
                .and_then(|answer| answer.partial_success)
                .map(|partial| partial.rejected_spans),
            Self::Metrics => ExportMetricsServiceResponse::decode(answer)
                .ok()
                .and_then(|answer| answer.partial_success)
                .map(|partial| partial.rejected_data_points),
        };
        rejected.and_then(|count| u64::try_from(count).ok()).unwrap_or(0)
    }
}

/// Where one signal goes.
pub(super) struct Collector {
    pub(super) egress: Egress,
    pub(super) target: Arc<Target>,
    pub(super) headers: HeaderMap,
    pub(super) timeout: Duration,
    pub(super) signal: Signal,
    pub(super) complaints: Complaints,
}

/// When the log last spoke of failures, and how many items were lost since.
#[derive(Default)]
pub(super) struct Complaints(Mutex<(Option<Instant>, usize)>);

/// What came of a request.
pub(super) enum Posted {
    /// It was taken, but for so many items.
    Taken { rejected: u64 },
    /// It was not; `again` when it may be later.
    Failed { again: bool, problem: String },
}

impl Collector {
    pub(super) async fn post(&self, body: Bytes) -> Posted {
        let mut headers = self.headers.clone();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        let request = Request {
            tenant: TenantId::SYSTEM,
            pool: PoolKey::new(*b"opentelemetry\0\0\0"),
            target: Arc::clone(&self.target),
            tls: None,
            proxy: None,
            vet_always: false,
            path_and_query: None,
            method: Method::POST,
            headers,
            body,
            deadlines: Deadlines::all(self.timeout),
        };
        match self.egress.fetch(request, ANSWER_BYTES_MAX).await.outcome {
            AttemptOutcome::Answered(answer) if (200..300).contains(&answer.status) => {
                Posted::Taken { rejected: self.signal.rejected(&answer.body) }
            }
            AttemptOutcome::Answered(answer) => Posted::Failed {
                // Those that the protocol names.
                again: matches!(answer.status, 429 | 502..=504),
                problem: format!("it answered {}", answer.status),
            },
            AttemptOutcome::Failed { code, detail } => {
                Posted::Failed { again: true, problem: format!("{}: {detail}", code.as_str()) }
            }
        }
    }

    /// Says in the log that items were lost, once a minute at most.
    pub(super) fn complain(&self, problem: &str, lost: usize) {
        let mut state = self.complaints.0.lock();
        state.1 += lost;
        let now = Instant::now();
        if state.0.is_some_and(|said| now.saturating_duration_since(said) < COMPLAINT_GAP) {
            return;
        }
        state.0 = Some(now);
        let lost = std::mem::take(&mut state.1);
        warn!(
            signal = self.signal.name(),
            problem,
            lost,
            "the OpenTelemetry collector did not take what was sent; it is counted in \
             posthorn_otlp_dropped_total"
        );
    }
}
