//! What is told, in the words of the API. Nothing here is secret: of a URL only the origin is told, of a receiver's
//! answer only its status.

use std::collections::BTreeMap;

use bytes::Bytes;
use posthorn_domain::{
    Attempt, AuditEntry, Certificate, DeadReason, DeliveryState, Destination, FailureCode, Home,
    Job, JobWork, LaneKey, NodeId, OperationalType, Redrive, Subscription, SubscriptionId,
    SubscriptionStatus, TenantId, Timestamp,
};
use posthorn_store::Work;
use serde_json::{Map, Value, json};

use crate::audit::view as audit_view;

/// Something that happened and may be told.
#[derive(Clone, Debug)]
pub(crate) struct Fact {
    pub(crate) kind: OperationalType,
    /// Where; nowhere in particular when it is about the server.
    pub(crate) tenant: Option<TenantId>,
    /// What filters look at.
    pub(crate) attributes: BTreeMap<String, String>,
    /// Lanes of order `key` go by it.
    pub(crate) subject: Option<LaneKey>,
    pub(crate) payload: Bytes,
    /// What operators are told, where it is more than tenants may know.
    pub(crate) for_operators: Option<Bytes>,
    /// Who is not told: one that is about to be gone.
    pub(crate) except: Option<SubscriptionId>,
}

/// What became of a delivery.
pub(crate) struct Happened<'a> {
    pub(crate) work: &'a Work,
    /// The name of its subscription.
    pub(crate) name: Option<String>,
    pub(crate) state: DeliveryState,
    pub(crate) attempts: u32,
    pub(crate) last: Option<&'a Attempt>,
    /// When it is tried again, if it is.
    pub(crate) next: Option<Timestamp>,
    pub(crate) at: Timestamp,
}

impl Fact {
    fn begin(
        kind: OperationalType,
        tenant: Option<TenantId>,
        subject: Option<(&str, String)>,
        at: Timestamp,
    ) -> Builder {
        let mut builder = Builder {
            kind,
            tenant,
            attributes: BTreeMap::new(),
            subject: None,
            fields: Map::new(),
            for_operators: Map::new(),
            except: None,
        };
        builder.field("type", kind.as_str());
        builder.field("at", at.to_string());
        builder.field("tenant", tenant.map(|tenant| tenant.to_string()));
        if let Some((name, id)) = subject {
            builder.subject = LaneKey::new(&id).ok();
            builder.about(name, id);
        }
        builder
    }

    /// A delivery that fails, recovered or died.
    pub(crate) fn delivery(kind: OperationalType, of: &Happened<'_>) -> Self {
        let (delivery, event) = (&of.work.delivery, &of.work.event);
        let subject = Some(("subscription", delivery.subscription.to_string()));
        let mut fact = Self::begin(kind, Some(delivery.tenant), subject, of.at);
        fact.about("delivery", delivery.id.to_string());
        fact.about("event", event.id.to_string());
        fact.about("event_type", event.event_type.to_string());
        fact.about("topic", event.topic.to_string());
        fact.field("publisher_id", event.publisher_id.as_ref().map(ToString::to_string));
        fact.field("subscription_name", of.name.clone());
        fact.field("attempts", of.attempts);
        fact.field("status", of.last.and_then(|last| last.status));
        fact.failure(of.last.and_then(|last| last.failure));
        match of.state {
            DeliveryState::Dead(reason) => fact.about("reason", reason_word(reason).to_owned()),
            _ => fact.field("next_attempt_at", of.next.map(|next| next.to_string())),
        }
        fact.done()
    }

    /// A subscription that was made, changed or deleted.
    pub(crate) fn subscription(
        kind: OperationalType,
        subscription: &Subscription,
        at: Timestamp,
    ) -> Self {
        let mut fact = Self::of_subscription(kind, subscription, at);
        let (destination, origin) = match &subscription.destination {
            Destination::Webhook { url } => ("webhook", origin_of(url)),
            Destination::Push(_) => ("push", None),
            Destination::PushService(_) => ("push_service", None),
        };
        fact.field("description", subscription.description.clone());
        fact.field("destination", destination);
        fact.field("origin", origin);
        fact.field("profile", subscription.profile.to_string());
        if kind == OperationalType::SubscriptionDeleted {
            fact.except = Some(subscription.id);
        }
        fact.done()
    }

    /// A receiver that has only failed for a while, or had a success after that.
    pub(crate) fn streak(
        kind: OperationalType,
        subscription: &Subscription,
        since: Timestamp,
        disabled_after: Option<Timestamp>,
        at: Timestamp,
    ) -> Self {
        let mut fact = Self::of_subscription(kind, subscription, at);
        fact.field("failing_since", since.to_string());
        if kind == OperationalType::SubscriptionFailing {
            fact.field("disabled_after", disabled_after.map(|at| at.to_string()));
        }
        fact.done()
    }

    fn of_subscription(
        kind: OperationalType,
        subscription: &Subscription,
        at: Timestamp,
    ) -> Builder {
        let subject = Some(("subscription", subscription.id.to_string()));
        let mut fact = Self::begin(kind, Some(subscription.tenant), subject, at);
        fact.field("subscription_name", subscription.name.as_ref().map(ToString::to_string));
        let (status, reason) = match &subscription.status {
            SubscriptionStatus::Active => ("active", None),
            SubscriptionStatus::Paused => ("paused", None),
            SubscriptionStatus::Disabled { reason } => ("disabled", Some(reason.clone())),
        };
        fact.field("status", status);
        if reason.is_some() {
            fact.field("reason", reason);
        }
        fact
    }

    /// A job as it ends.
    pub(crate) fn job(job: &Job, at: Timestamp) -> Self {
        let subject = Some(("job", job.id.to_string()));
        let mut fact = Self::begin(OperationalType::JobFinished, Some(job.tenant), subject, at);
        let (kind, to) = match &job.work {
            JobWork::Replay { subscription, .. } => ("replay", *subscription),
            JobWork::Expunge { .. } => ("expunge", None),
            JobWork::Deliver { subscription, .. } => ("deliver", Some(*subscription)),
            JobWork::Cancel { deliveries } => ("cancel", deliveries.subscription),
            JobWork::Forget { deliveries } => ("forget", deliveries.subscription),
            JobWork::Retry { deliveries } => ("retry", deliveries.subscription),
            JobWork::DeleteTenant => ("delete_tenant", None),
        };
        fact.about("kind", kind.to_owned());
        fact.about("state", word(&job.state));
        fact.field("subscription", to.map(|to| to.to_string()));
        if let JobWork::Replay { status, .. } = &job.work {
            fact.field("status", word(status));
        }
        fact.field("seen", job.seen);
        fact.field("done", job.done);
        fact.field("created_by", job.created_by.clone());
        fact.field("created_at", job.created_at.to_string());
        fact.field("problem", job.problem.clone());
        fact.done()
    }

    /// A redrive as it ends.
    pub(crate) fn redrive(redrive: &Redrive, at: Timestamp) -> Self {
        let subject = Some(("job", redrive.id.to_string()));
        let mut fact = Self::begin(OperationalType::JobFinished, Some(redrive.tenant), subject, at);
        fact.about("kind", "redrive".to_owned());
        fact.about("state", word(&redrive.state));
        fact.field("subscription", redrive.filter.subscription.map(|to| to.to_string()));
        fact.field("seen", redrive.total);
        fact.field("done", redrive.moved);
        fact.field("created_by", Value::Null);
        fact.field("created_at", redrive.created_at.to_string());
        fact.field("problem", Value::Null);
        fact.done()
    }

    /// A certificate that ends soon.
    pub(crate) fn certificate(certificate: &Certificate, at: Timestamp) -> Self {
        let kind = OperationalType::CertificateExpiring;
        let subject = Some(("certificate", certificate.id.to_string()));
        let mut fact = Self::begin(kind, Some(certificate.tenant), subject, at);
        fact.about("kind", certificate.kind.as_str().to_owned());
        fact.field("description", certificate.description.clone());
        fact.field("subject", certificate.subject.clone());
        fact.field("owner", certificate.owner.clone());
        fact.field("host", certificate.host.clone());
        fact.field("thumbprint", certificate.thumbprint.to_string());
        fact.field("not_after", certificate.not_after.to_string());
        fact.done()
    }

    /// A tenant with many unfinished deliveries.
    pub(crate) fn quota(tenant: TenantId, pending: u64, limit: u64, at: Timestamp) -> Self {
        let mut fact = Self::begin(OperationalType::QuotaNear, Some(tenant), None, at);
        fact.about("quota", "pending".to_owned());
        fact.field("pending", pending);
        fact.field("limit", limit);
        fact.done()
    }

    /// A disk that is nearly full.
    pub(crate) fn disk(node: NodeId, used_percent: u8, at: Timestamp) -> Self {
        let subject = Some(("node", node.to_string()));
        let mut fact = Self::begin(OperationalType::DiskNearFull, None, subject, at);
        fact.field("used_percent", used_percent);
        fact.done()
    }

    /// A line of the audit log. Of who it was, its tenant is told no more than it may read.
    pub(crate) fn audit(entry: &AuditEntry) -> Self {
        let kind = OperationalType::AuditRecorded;
        // A tenant that is being deleted is told nothing any more.
        let tenant = entry.tenant.filter(|_| !entry.outlives_its_tenant());
        let payload = |reader: &Home| {
            let mut fields = audit_view(entry, reader);
            fields["type"] = kind.as_str().into();
            Bytes::from(fields.to_string())
        };
        let mut attributes = BTreeMap::from([
            ("action".to_owned(), entry.action.to_string()),
            ("object".to_owned(), entry.object.id.clone()),
            ("surface".to_owned(), entry.origin.surface.clone()),
        ]);
        if let Some(of) = entry.tenant.filter(|_| tenant.is_none()) {
            attributes.insert("tenant".to_owned(), of.to_string());
        }
        let own = tenant.map_or(Home::Operator, Home::Tenant);
        Self {
            kind,
            tenant,
            attributes,
            subject: LaneKey::new(&entry.object.id).ok(),
            payload: payload(&own),
            for_operators: Some(payload(&Home::Operator)),
            except: None,
        }
    }

    /// A node that fell silent.
    pub(crate) fn node(node: NodeId, at: Timestamp) -> Self {
        let subject = Some(("node", node.to_string()));
        Self::begin(OperationalType::NodeLost, None, subject, at).done()
    }
}

/// A fact on its way.
struct Builder {
    kind: OperationalType,
    tenant: Option<TenantId>,
    attributes: BTreeMap<String, String>,
    subject: Option<LaneKey>,
    fields: Map<String, Value>,
    /// Fields that say something else to operators.
    for_operators: Map<String, Value>,
    except: Option<SubscriptionId>,
}

impl Builder {
    fn field(&mut self, name: &str, value: impl Into<Value>) {
        self.fields.insert(name.to_owned(), value.into());
    }

    /// Why an attempt failed, as tenants may see it; operators are told how it is.
    fn failure(&mut self, code: Option<FailureCode>) {
        let shown = code.map(FailureCode::for_tenants);
        self.field("failure", shown.map(FailureCode::as_str));
        if let Some(code) = code.filter(|_| shown != code) {
            self.for_operators.insert("failure".to_owned(), code.as_str().into());
        }
    }

    /// A field that one may filter on.
    fn about(&mut self, name: &str, value: String) {
        self.attributes.insert(name.to_owned(), value.clone());
        self.field(name, value);
    }

    fn done(self) -> Fact {
        let Self { kind, tenant, attributes, subject, mut fields, for_operators, except } = self;
        let payload = Bytes::from(Value::Object(fields.clone()).to_string());
        let for_operators = (!for_operators.is_empty()).then(|| {
            fields.extend(for_operators);
            Bytes::from(Value::Object(fields).to_string())
        });
        Fact { kind, tenant, attributes, subject, payload, for_operators, except }
    }
}

/// Scheme, host and port: paths and queries may be secrets.
fn origin_of(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    Some(format!("{scheme}://{host}"))
}

/// The word of the API for a state.
fn word(state: &impl serde::Serialize) -> String {
    json!(state).as_str().unwrap_or_default().to_owned()
}

fn reason_word(reason: DeadReason) -> &'static str {
    match reason {
        DeadReason::Exhausted => "exhausted",
        DeadReason::Permanent => "permanent",
        DeadReason::Gate => "gate",
        DeadReason::Expired => "expired",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_url_only_the_origin_is_told() {
        for (url, origin) in [
            ("https://a.example/hook?token=s3cret", "https://a.example"),
            ("https://user:s3cret@a.example:8443/x", "https://a.example:8443"),
            ("http://[::1]:9/", "http://[::1]:9"),
            ("https://a.example?x=1", "https://a.example"),
        ] {
            assert_eq!(origin_of(url).as_deref(), Some(origin), "{url}");
        }
        assert_eq!(origin_of("nonsense"), None);
    }
}
