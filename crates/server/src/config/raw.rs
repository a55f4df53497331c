//! The configuration as it is written: the shape of the default file, and nothing else.
//!
//! No field has a default here; the lowest layer has them all. So the default file cannot lack a
//! key, and a key cannot lack its documentation.

use std::collections::BTreeMap;

use posthorn_domain::Span;
use posthorn_notifier::CallbacksConfig;
use serde::Deserialize;
use serde_json::Value;

use super::efgs::RawEfgs;
use super::notificaties::RawNotificaties;
use super::proxies::RawProxy;
use super::push::RawPush;
use super::tls::RawTls;
use super::values::{ByteSize, Port};

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawConfig {
    pub(super) server: RawServer,
    pub(super) store: RawStore,
    pub(super) egress: RawEgress,
    pub(super) engine: RawEngine,
    pub(super) admission: RawAdmission,
    pub(super) quotas: RawQuotas,
    pub(super) profiles: BTreeMap<String, RawProfile>,
    pub(super) callbacks: CallbacksConfig,
    pub(super) dialects: RawDialects,
    pub(super) push: RawPush,
    pub(super) keys: RawKeys,
    pub(super) seal: RawSeal,
    pub(super) log: RawLog,
    pub(super) telemetry: RawTelemetry,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawServer {
    pub(super) listen: String,
    pub(super) surfaces: Vec<String>,
    pub(super) admin_listen: Option<String>,
    pub(super) admin_surfaces: Vec<String>,
    pub(super) admin_tls: bool,
    pub(super) public_names: Vec<String>,
    pub(super) connections: usize,
    pub(super) connections_per_address: usize,
    pub(super) body: ByteSize,
    pub(super) batch_body: ByteSize,
    pub(super) bodies: ByteSize,
    pub(super) bodies_per_tenant: ByteSize,
    pub(super) write_timeout: Span,
    pub(super) write_rate: ByteSize,
    pub(super) head: ByteSize,
    pub(super) head_timeout: Span,
    pub(super) stop_timeout: Span,
    pub(super) identity: RawIdentity,
    pub(super) tls: RawTls,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawIdentity {
    pub(super) thumbprint_header: Option<String>,
    pub(super) subject_header: Option<String>,
    pub(super) proxies: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawStore {
    pub(super) url: String,
    pub(super) path: String,
    pub(super) pool: usize,
    pub(super) schema: Option<String>,
    pub(super) connect_timeout: Span,
    pub(super) statement_timeout: Span,
    pub(super) wait: Span,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawEgress {
    pub(super) allow: Vec<String>,
    pub(super) deny: Vec<String>,
    pub(super) names: Vec<String>,
    pub(super) ports: Vec<Port>,
    pub(super) https_only: bool,
    pub(super) allow_idn: bool,
    pub(super) nat64: bool,
    pub(super) dangerously_allow_metadata: bool,
    pub(super) resolvers: Vec<String>,
    pub(super) proxies: BTreeMap<String, RawProxy>,
    pub(super) extra_roots: Option<String>,
    pub(super) user_agent: Option<String>,
    pub(super) connections: usize,
    pub(super) idle_per_subscription: usize,
    pub(super) idle_timeout: Span,
    pub(super) connection_age: Span,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawEngine {
    pub(super) payload: ByteSize,
    pub(super) slots: usize,
    pub(super) window: usize,
    pub(super) window_per_subscription: usize,
    pub(super) window_bytes: ByteSize,
    pub(super) horizon: Span,
    pub(super) accept_batch: usize,
    pub(super) accept_deliveries: usize,
    pub(super) accept_pipeline: usize,
    pub(super) record_pipeline: usize,
    pub(super) lease: Span,
    pub(super) heartbeat: Span,
    pub(super) poll: Span,
    pub(super) maintenance: Span,
    pub(super) retention: Span,
    pub(super) dead_retention: Span,
    pub(super) key_retention: Span,
    pub(super) drain: Span,
    pub(super) rotation_overlap: Span,
    pub(super) rotation_overlap_max: Span,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawAdmission {
    pub(super) key_rate: u32,
    pub(super) pending_quota: u64,
    pub(super) pending_refresh: Span,
    pub(super) commit_delay: Span,
    pub(super) commit_interval: Span,
    pub(super) refusal_hold: Span,
    pub(super) disk_warn: u8,
    pub(super) disk_refuse: u8,
    pub(super) disk_refresh: Span,
    pub(super) auth_failures: u32,
    pub(super) tests: u32,
    pub(super) redrives: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawQuotas {
    pub(super) subscriptions: usize,
    pub(super) topics: usize,
    pub(super) profiles: usize,
    pub(super) catalog: ByteSize,
    pub(super) fan_out: usize,
    pub(super) match_event: ByteSize,
    pub(super) match_second: ByteSize,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawProfile {
    #[serde(default)]
    pub(super) base: Option<String>,
    #[serde(default)]
    pub(super) policy: Value,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawDialects {
    pub(super) efgs: RawEfgs,
    pub(super) cedros: RawCedros,
    pub(super) notificaties: RawNotificaties,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCedros {
    pub(super) enabled: bool,
    pub(super) origins: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawKeys {
    pub(super) bootstrap: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawSeal {
    pub(super) key: Option<String>,
    pub(super) former: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawLog {
    pub(super) level: String,
    pub(super) format: String,
    pub(super) policy: bool,
    pub(super) policy_lines: u32,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawTelemetry {
    pub(super) metrics: bool,
    pub(super) upkeep: Span,
}
