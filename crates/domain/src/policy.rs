//! Policy: every knob of how a delivery is made and retried, spelled once.
//!
//! A named policy is a profile. A subscription names one and may override fields with a JSON merge
//! patch; [`Policy::patched`] applies and validates it, so that everything downstream works with
//! one complete, checked value.

mod auth;
mod breaker;
mod classify;
mod gate;
pub mod headers;
mod log;
mod order_key;
pub mod profiles;
mod request;
mod schedule;
mod size;
mod status;
#[cfg(test)]
mod tests;
pub(crate) mod values;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::limits::{ATTEMPTS_MAX, PAYLOAD_BYTES_DEFAULT, WAIT_DAYS_MAX};
use crate::{CertificateId, ProxyName, Span, Template, plain};

pub use auth::{
    Auth, CertificateChoice, ClientAuth, HmacHeader, Oauth2, Otp, SentTo, SignatureHeaders,
    SignatureIds, SignedContent, ThumbprintHeader, ZgwJwt,
};
pub use breaker::{Breaker, Failing};
pub use classify::{BodyRule, FieldType, Gone, Permanent, Verdict, parse_retry_after};
pub use log::LogTemplates;
pub use order_key::OrderKey;
pub use request::{
    BodySource, Envelope, FamilyPath, Handshake, Method, RequestPolicy, Route, TraceHeader,
};
pub use schedule::{Backoff, Jitter, MaxAge, RetryAfter, Schedule};
pub use status::StatusSet;
pub use values::{NamedValue, WithValues};

/// Every setting of a policy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Values that every template may use as `{values.NAME}`.
    #[serde(default)]
    #[schemars(extend("maxProperties" = values::VALUES_MAX))]
    pub values: BTreeMap<String, NamedValue>,
    /// Rules for a subscription's URL, in addition to those of the URL guard.
    pub url: UrlPolicy,
    /// What the request looks like.
    pub request: RequestPolicy,
    /// How the request is authenticated. Computed for each attempt.
    pub auth: Vec<Auth>,
    /// Which authorities the receiver's certificate may come from.
    pub tls: TlsPolicy,
    /// The proxy that requests go through, one of those the operator has configured; none when
    /// absent. Only profiles of the configuration may set it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<ProxyName>,
    /// Which statuses mean success. A 3xx is never followed and never success.
    pub success: StatusSet,
    /// Which responses are permanent failures, so that a retry is pointless.
    pub permanent: Permanent,
    /// When to retry, and how often.
    pub schedule: Schedule,
    /// Timeouts and limits.
    pub limits: Limits,
    /// When deliveries pause because calls to the receiver hang or time out; absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub breaker: Option<Breaker>,
    /// When the subscription of a receiver that keeps failing is disabled; absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failing: Option<Failing>,
    /// Which deliveries wait for which.
    pub order: Order,
    /// The minimum time between the end of one attempt and the start of the next with the same key.
    pub spacing: Option<Span>,
    /// A check before each attempt.
    pub gate: Option<Gate>,
    /// What happens to a delivery after its last attempt has failed.
    pub on_exhausted: OnExhausted,
    /// What happens to a delivery after a permanent failure.
    pub on_permanent: OnPermanent,
    /// How long an attempt is protected against being repeated after a crash.
    pub lease: Lease,
    /// Extra log lines.
    pub log: LogTemplates,
}

/// Rules for a subscription's URL. Checked when it is saved and before each attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UrlPolicy {
    /// Refuse plain http, also to a gate and a token server.
    pub https_only: bool,
    /// Whether it may have a query.
    pub query: bool,
    /// Whether its host must resolve to allowed addresses only, when the URL is saved and before
    /// each attempt, even if a connection is open.
    pub resolve: bool,
    /// What happens when the URL is refused before an attempt.
    pub on_refused: OnRefused,
}

/// What follows when a URL is refused before an attempt: by the guard, by these rules, or because its
/// host leads to a closed address. A host that cannot be looked up is a failed attempt in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum OnRefused {
    /// What the guard refuses whatever the host resolves to is given up at once; the rest is a failed
    /// attempt.
    #[default]
    GiveUp,
    /// It is a failed attempt, whatever the reason.
    Retry,
    /// A failed attempt, and the subscription is disabled; its pending work is kept.
    DisableSubscription,
    /// The subscription is deleted with all its pending work.
    DeleteSubscription,
}

impl Default for UrlPolicy {
    fn default() -> Self {
        Self { https_only: false, query: true, resolve: false, on_refused: OnRefused::GiveUp }
    }
}

/// Which authorities the receiver's certificate may come from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TlsPolicy {
    /// Only from these `authority` certificates of the registry; when empty, from the public
    /// authorities and those the operator added.
    #[schemars(length(max = AUTHORITIES_MAX))]
    pub authorities: Vec<CertificateId>,
}

/// How many authorities one policy may name.
const AUTHORITIES_MAX: usize = 10;

/// Timeouts and limits of one subscription.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// The timeout for the connection, name resolution included; at most 10m.
    pub connect: Span,
    /// The timeout for the TLS handshake, after the connection; at most 10m.
    pub tls: Span,
    /// The timeout for the first byte of the response, after the request was sent; at most 10m.
    pub response: Span,
    /// The timeout for the whole attempt; at most 10m.
    pub total: Span,
    /// Concurrent attempts.
    #[schemars(range(min = 1, max = 1_000))]
    pub concurrency: u32,
    /// The maximum of attempts per second.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub rate: Option<f64>,
    /// The largest payload this policy sends.
    #[schemars(range(min = 1))]
    pub payload_bytes: usize,
}

/// Which deliveries wait for which.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// What a lane is.
    pub scope: OrderScope,
    /// The key of a lane in scope `key`; the event's own key when absent. Events without the values
    /// it needs have no lane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<OrderKey>,
    /// What a dead letter at the head of a lane means for the deliveries behind it.
    pub dead_head: DeadHead,
}

/// What a lane is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum OrderScope {
    /// No order.
    None,
    /// All deliveries of the subscription, one after the other.
    Subscription,
    /// Deliveries with the same key, one after the other. Those of events without a key are free.
    Key,
}

/// What a dead head does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum DeadHead {
    /// The next one goes on.
    Skip,
    /// The lane stands still until the dead letter is redriven or cancelled.
    Block,
}

/// A check before each attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Gate {
    /// The URL to call with GET.
    pub url: Template,
    /// How long to wait for the response.
    pub timeout: Span,
    /// The statuses of an open gate.
    pub status: StatusSet,
    /// What the JSON response of an open gate must contain.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expect: Option<GateExpect>,
    /// What to do when the gate is closed.
    pub on_closed: OnClosed,
}

/// What the JSON response of an open gate must contain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GateExpect {
    /// Where to look, a JSON pointer.
    pub pointer: String,
    /// The expected value.
    pub equals: Value,
    /// Whether the value written as text is accepted too.
    #[serde(default)]
    pub text_is_fine: bool,
}

/// What to do when the gate is closed. Neither counts as an attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum OnClosed {
    /// Give up at once; the dead letter can be redriven.
    DeadLetter,
    /// Check again later.
    Postpone {
        /// The time until the next check.
        wait: Span,
    },
}

/// What happens to a delivery after its last attempt has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum OnExhausted {
    /// It is kept as a dead letter.
    DeadLetter,
    /// It is ended without a dead letter.
    Drop,
    /// Dead letter, and the subscription is disabled.
    DisableSubscription,
    /// Dead letter, and the subscription is deleted with all its pending work.
    DeleteSubscription,
}

/// What happens to a delivery after a permanent failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum OnPermanent {
    /// It is kept as a dead letter.
    DeadLetter,
    /// It is ended without a dead letter.
    Drop,
}

/// How an attempt in progress is protected against being repeated after a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Lease {
    /// How long no other attempt of the delivery may start after an attempt has started.
    pub time: Span,
    /// `true`: the lease is stored before each attempt, so it survives a crash. `false`: owning the
    /// shard is enough, and a restart repeats attempts in progress at once.
    pub durable: bool,
}

/// What is wrong with a policy, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct PolicyError {
    /// The field, dotted.
    pub path: String,
    /// What is wrong and what would be right.
    pub problem: String,
}

impl PolicyError {
    /// Says which of the ways of authentication an error of one is about.
    pub fn of_auth(mut self, index: usize) -> Self {
        if let Some(field) = self.path.strip_prefix("auth.") {
            self.path = format!("auth[{index}].{field}");
        }
        self
    }
}

impl From<plain::Fault> for PolicyError {
    fn from(fault: plain::Fault) -> Self {
        let plain::Fault { path, problem } = fault;
        // What is wrong with the whole is wrong with what it is called.
        Self { path: if path.is_empty() { "policy".to_owned() } else { path }, problem }
    }
}

fn refuse<T>(path: &str, problem: impl Into<String>) -> Result<T, PolicyError> {
    Err(PolicyError { path: path.to_owned(), problem: problem.into() })
}

impl Policy {
    /// This policy with a JSON merge patch (RFC 7396) applied, complete and validated. The patch is a
    /// tenant's: what only the operator decides stays as it is.
    pub fn patched(&self, patch: &Value) -> Result<Policy, PolicyError> {
        let same = |proxy: &Value| proxy.as_str() == self.proxy.as_ref().map(ProxyName::as_str);
        if patch.get("proxy").is_some_and(|proxy| !same(proxy)) {
            let problem = "only the operator can set the proxy, in a profile of the \
                           configuration; leave the field out and use such a profile";
            return refuse("proxy", problem);
        }
        self.patched_by_operator(patch)
    }

    /// The same with a patch of the operator's, who decides everything.
    pub fn patched_by_operator(&self, patch: &Value) -> Result<Policy, PolicyError> {
        match patch {
            Value::Null => return self.validate().map(|()| self.clone()),
            Value::Object(fields) if fields.is_empty() => return Ok(self.clone()),
            Value::Object(_) => {}
            _ => return refuse("policy", "must be an object with the fields to change"),
        }
        let mut whole = serde_json::to_value(self)
            .map_err(|e| PolicyError { path: "policy".to_owned(), problem: e.to_string() })?;
        merge(&mut whole, patch);
        let policy: Policy = plain::read(&whole)?;
        policy.validate()?;
        Ok(policy)
    }

    /// Refuses what can never work.
    pub fn validate(&self) -> Result<(), PolicyError> {
        values::validate(&self.values)?;
        self.schedule.validate()?;
        self.request.validate()?;
        self.log.validate()?;
        self.limits.validate()?;
        self.breaker.as_ref().map_or(Ok(()), Breaker::validate)?;
        self.failing.as_ref().map_or(Ok(()), Failing::validate)?;
        for (index, auth) in self.auth.iter().enumerate() {
            auth.validate().map_err(|e| e.of_auth(index))?;
        }
        if self.auth.iter().filter(|auth| matches!(auth, Auth::ClientCertificate(_))).count() > 1 {
            return refuse("auth", "a request can use only one client certificate");
        }
        if self.tls.authorities.len() > AUTHORITIES_MAX {
            return refuse("tls.authorities", format!("must be at most {AUTHORITIES_MAX}"));
        }
        let own = self.request.headers.keys().map(|name| {
            let name = request::bare_name(name);
            (format!("request.headers.{name}"), name)
        });
        let auth = self.auth.iter().flat_map(Auth::headers).map(|name| ("auth".to_owned(), name));
        let named: Vec<(String, &str)> = own.chain(auth).collect();
        if self.request.envelope == Envelope::CloudeventsBinary
            && let Some((path, name)) = named.iter().find(|(_, name)| headers::is_cloudevent(name))
        {
            let problem =
                format!("the header {name} is one of the CloudEvent: `ce-` is its prefix");
            return refuse(path, problem);
        }
        headers::check_all(named)?;
        if self.success.is_empty() {
            return refuse("success", "needs at least one status, such as 2xx");
        }
        if self.success.contains_any(300..=399) {
            return refuse("success", "a redirect (3xx) can never be success");
        }
        if self.spacing.is_some() && self.order.scope != OrderScope::Key {
            return refuse("spacing", "needs order.scope to be key");
        }
        if self.order.key.is_some() && self.order.scope != OrderScope::Key {
            return refuse("order.key", "needs order.scope to be key");
        }
        self.check_order_key()?;
        let gate_time = self.gate.as_ref().map_or(Span::ZERO, |gate| gate.timeout);
        let busy = self.limits.total.as_millis() + gate_time.as_millis();
        if self.lease.time.as_millis() <= busy {
            return refuse(
                "lease.time",
                format!("must be longer than limits.total plus gate.timeout ({}ms)", busy),
            );
        }
        if let Some(gate) = &self.gate {
            if gate.timeout == Span::ZERO {
                return refuse("gate.timeout", "must be more than zero");
            }
            if let Some(expect) = &gate.expect
                && !expect.pointer.is_empty()
                && !expect.pointer.starts_with('/')
            {
                return refuse(
                    "gate.expect.pointer",
                    "must be a JSON pointer that starts with `/`",
                );
            }
        }
        Ok(())
    }
}

impl Limits {
    fn validate(&self) -> Result<(), PolicyError> {
        for (path, span) in [
            ("limits.connect", self.connect),
            ("limits.tls", self.tls),
            ("limits.response", self.response),
            ("limits.total", self.total),
        ] {
            if span == Span::ZERO || span > Span::from_secs(600) {
                return refuse(path, "must be more than zero and at most 10m");
            }
        }
        if self.concurrency == 0 || self.concurrency > 1_000 {
            return refuse("limits.concurrency", "must be 1 to 1000");
        }
        if self.rate.is_some_and(|rate| !rate.is_finite() || rate <= 0.0) {
            return refuse("limits.rate", "must be more than zero");
        }
        if self.payload_bytes == 0 {
            return refuse("limits.payload_bytes", "must be more than zero");
        }
        Ok(())
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect: Span::from_secs(10),
            tls: Span::from_secs(5),
            response: Span::from_secs(15),
            total: Span::from_secs(20),
            concurrency: 32,
            rate: None,
            payload_bytes: PAYLOAD_BYTES_DEFAULT,
        }
    }
}

/// RFC 7396, with one addition: an object with a `kind` (or another single tag) that differs from
/// the old one replaces it whole, since the fields of two variants do not mix.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() || is_variant(target) || is_variant(patch) {
        *target = Value::Object(serde_json::Map::new());
    }
    if let Value::Object(fields) = target {
        for (name, change) in changes {
            if change.is_null() {
                fields.remove(name);
            } else {
                merge(fields.entry(name.clone()).or_insert(Value::Null), change);
            }
        }
    }
}

/// Names of the variants that carry fields; an object with one of them is a choice, not a record.
const VARIANTS: [&str; 6] = ["fixed", "exponential", "list", "ratio", "add", "postpone"];

fn is_variant(value: &Value) -> bool {
    value
        .as_object()
        .is_some_and(|o| o.len() == 1 && o.keys().all(|k| VARIANTS.contains(&k.as_str())))
}
