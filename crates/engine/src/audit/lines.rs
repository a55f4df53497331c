//! What is to be said of each change. Of what changed in a thing, only the names of its fields.

use posthorn_domain::{
    AuditAction, Job, JobWork, RedriveFilter, Selection, Subscription, SubscriptionStatus, Tenant,
    TenantChange, TenantId,
};
use posthorn_store::CatalogChange;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::Line;
use crate::catalog::Catalog;

/// Fields that change by themselves.
const OWN: [&str; 4] = ["created_at", "updated_at", "version", "stops"];
/// Names in a list of a detail, at most.
const NAMES_MAX: usize = 20;

/// The fields in which two versions of a thing differ, by their names.
fn changed<T: Serialize>(old: &T, new: &T) -> Vec<Value> {
    let fields = |thing: &T| match serde_json::to_value(thing) {
        Ok(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    let (old, new) = (fields(old), fields(new));
    let names = new.keys().chain(old.keys().filter(|name| !new.contains_key(*name)));
    let differ =
        names.filter(|name| !OWN.contains(&name.as_str()) && old.get(*name) != new.get(*name));
    differ.map(|name| Value::from(name.strip_prefix("sealed_").unwrap_or(name))).collect()
}

/// A line for something that is made, or changed when it was there.
fn put<T: Serialize>(
    (created, updated): (AuditAction, AuditAction),
    (kind, id): (&str, impl ToString),
    old: Option<&T>,
    new: &T,
) -> Line {
    match old {
        None => Line::new(created, kind, &id),
        Some(old) => Line::new(updated, kind, &id).with("fields", changed(old, new)),
    }
}

impl Line {
    fn of(mut self, tenant: TenantId) -> Self {
        self.tenant = Some(tenant);
        self
    }

    fn within(mut self, realm: &posthorn_domain::RealmName) -> Self {
        self.realm = Some(realm.clone());
        self
    }
}

/// What is to be said of a change of the catalog, as far as this node knows what was there before; nothing of what no
/// caller can ask for.
pub(crate) fn of_change(catalog: &Catalog, change: &CatalogChange) -> Option<Line> {
    use AuditAction as A;
    Some(match change {
        CatalogChange::PutRealm(new) => {
            let old = catalog.realm(&new.name).ok();
            let id = ("realm", &new.name);
            put((A::RealmCreated, A::RealmUpdated), id, old.as_deref(), new).within(&new.name)
        }
        CatalogChange::DeleteRealm(name) => Line::new(A::RealmDeleted, "realm", name).within(name),
        CatalogChange::PutEventType(new) => {
            let old = catalog.event_type(&new.realm, &new.name).ok();
            let (actions, id) =
                ((A::EventTypeCreated, A::EventTypeUpdated), ("event_type", &new.name));
            put(actions, id, old.as_deref(), &**new).within(&new.realm)
        }
        CatalogChange::DeleteEventType { realm, name } => {
            Line::new(A::EventTypeDeleted, "event_type", name).within(realm)
        }
        CatalogChange::CreateTenant(new) => {
            let line = Line::new(A::TenantCreated, "tenant", &new.id).named(&new.name);
            line.of(new.id).within(&new.realm)
        }
        CatalogChange::ChangeTenant { tenant, realm, change } => {
            let name = catalog.tenant(*tenant).map(|tenant| tenant.name).unwrap_or_default();
            let line = Line::new(A::TenantUpdated, "tenant", tenant).named(&name);
            line.with("fields", of_tenant(change)).of(*tenant).within(realm)
        }
        CatalogChange::DeleteTenant { tenant, job, .. } => {
            let known = catalog.tenant_or_tombstone(*tenant).map(|(tenant, _)| tenant);
            let name = known.map(|Tenant { name, .. }| name).unwrap_or_default();
            let line = Line::new(A::TenantDeleted, "tenant", tenant).named(&name).of(*tenant);
            line.with("job", job.to_string())
        }
        CatalogChange::BuryTenant { .. } => return None,
        CatalogChange::CreateTopic(new) => {
            Line::new(A::TopicCreated, "topic", &new.name).of(new.tenant)
        }
        CatalogChange::PutTopic(new) => {
            let old = catalog.topic(new.tenant, &new.name).ok();
            let id = ("topic", &new.name);
            put((A::TopicCreated, A::TopicUpdated), id, old.as_deref(), new).of(new.tenant)
        }
        CatalogChange::DeleteTopic { tenant, name } => {
            Line::new(A::TopicDeleted, "topic", name).of(*tenant)
        }
        CatalogChange::CreateSubscription(new) => subscription(A::SubscriptionCreated, new),
        CatalogChange::UpdateSubscription { subscription: new, .. } => {
            let old = catalog.subscription(new.tenant, new.id).ok();
            updated(old.as_ref().map(|old| &old.subscription), new)
        }
        CatalogChange::DeleteSubscription { tenant, id, .. } => {
            match catalog.subscription(*tenant, *id) {
                Ok(view) => subscription(A::SubscriptionDeleted, &view.subscription),
                Err(_) => Line::new(A::SubscriptionDeleted, "subscription", id).of(*tenant),
            }
        }
        CatalogChange::PutProfile(new) => {
            let old = catalog.tenant_profile(new.tenant, &new.name);
            let id = ("profile", &new.name);
            put((A::ProfileCreated, A::ProfileUpdated), id, old.as_deref(), new).of(new.tenant)
        }
        CatalogChange::DeleteProfile { tenant, name } => {
            Line::new(A::ProfileDeleted, "profile", name).of(*tenant)
        }
        CatalogChange::PutClient { client: new, .. } => {
            let old = catalog.client(new.tenant, &new.name);
            let (old, id) = (old.as_ref().map(|old| &old.client), ("client", &new.name));
            put((A::ClientCreated, A::ClientUpdated), id, old, &**new).of(new.tenant)
        }
        CatalogChange::DeleteClient { tenant, name } => {
            Line::new(A::ClientDeleted, "client", name).of(*tenant)
        }
        CatalogChange::CreateKey(key) | CatalogChange::CreateFirstKey(key) => {
            let scopes = json!(key.scopes);
            Line {
                tenant: key.tenant,
                realm: key.realm.clone(),
                ..Line::new(A::KeyCreated, "key", &key.id)
            }
            .named(&key.description)
            .with("scopes", scopes)
        }
        CatalogChange::RevokeKey { id, .. } => {
            let line = Line::new(A::KeyRevoked, "key", id);
            match catalog.key(*id) {
                None => line,
                Some(key) => Line { tenant: key.tenant, realm: key.realm.clone(), ..line }
                    .named(&key.description),
            }
        }
        CatalogChange::CreateCertificate(new) => {
            let line = Line::new(A::CertificateCreated, "certificate", &new.id);
            line.named(&new.description).with("kind", new.kind.as_str()).of(new.tenant)
        }
        CatalogChange::UpdateCertificate { certificate: new, .. } => {
            let line = Line::new(A::CertificateUpdated, "certificate", &new.id);
            let line = line.named(&new.description).of(new.tenant);
            match catalog.certificate(new.tenant, new.id) {
                None => line,
                Some(old) => line.with("fields", changed(&old.certificate, new)),
            }
        }
        CatalogChange::RevokeCertificate { tenant, id, .. } => {
            certificate(catalog, A::CertificateRevoked, *tenant, *id)
        }
        CatalogChange::DeleteCertificate { tenant, id } => {
            certificate(catalog, A::CertificateDeleted, *tenant, *id)
        }
    })
}

fn certificate(
    catalog: &Catalog,
    action: AuditAction,
    tenant: TenantId,
    id: posthorn_domain::CertificateId,
) -> Line {
    let known = catalog.certificate(tenant, id);
    let name = known.map(|view| view.certificate.description.clone()).unwrap_or_default();
    Line::new(action, "certificate", &id).named(&name).of(tenant)
}

fn subscription(action: AuditAction, of: &Subscription) -> Line {
    let name = of.name.as_ref().map(ToString::to_string).unwrap_or_default();
    Line::new(action, "subscription", &of.id).named(&name).of(of.tenant)
}

/// A change of a subscription has the name of what became of it.
fn updated(old: Option<&Subscription>, new: &Subscription) -> Line {
    let Some(old) = old else { return subscription(AuditAction::SubscriptionUpdated, new) };
    let fields = changed(old, new);
    let action = match &new.status {
        status if *status == old.status => AuditAction::SubscriptionUpdated,
        SubscriptionStatus::Active => AuditAction::SubscriptionResumed,
        SubscriptionStatus::Paused => AuditAction::SubscriptionPaused,
        SubscriptionStatus::Disabled { reason } => {
            let line = subscription(AuditAction::SubscriptionDisabled, new);
            return line.with("reason", reason.as_str());
        }
    };
    let line = subscription(action, new);
    if action == AuditAction::SubscriptionUpdated { line.with("fields", fields) } else { line }
}

fn of_tenant(change: &TenantChange) -> Vec<Value> {
    let TenantChange { name, external_id, metadata, labels, deliveries_per_second } = change;
    let fields = [
        ("name", name.is_some()),
        ("external_id", external_id.is_some()),
        ("metadata", metadata.is_some()),
        ("labels", labels.is_some()),
        ("deliveries_per_second", deliveries_per_second.is_some()),
    ];
    fields.iter().filter(|(_, is_there)| *is_there).map(|(name, _)| Value::from(*name)).collect()
}

/// A line for something that is made in a tenant.
pub(crate) fn created(
    action: AuditAction,
    kind: &str,
    id: &impl ToString,
    tenant: TenantId,
) -> Line {
    Line::new(action, kind, id).of(tenant)
}

/// What a job is about.
pub(crate) fn job_detail(job: &Job) -> Map<String, Value> {
    let (kind, subscription, events) = match &job.work {
        JobWork::Replay { subscription, events, .. } => ("replay", *subscription, Some(events)),
        JobWork::Expunge { events, .. } => ("expunge", None, Some(events)),
        JobWork::Deliver { subscription, .. } => ("deliver", Some(*subscription), None),
        JobWork::Cancel { deliveries } => ("cancel", deliveries.subscription, None),
        JobWork::Forget { deliveries } => ("forget", deliveries.subscription, None),
        JobWork::Retry { deliveries } => ("retry", deliveries.subscription, None),
        JobWork::DeleteTenant => ("delete_tenant", None, None),
    };
    let mut detail = Map::new();
    detail.insert("kind".to_owned(), kind.into());
    if let Some(subscription) = subscription {
        detail.insert("subscription".to_owned(), subscription.to_string().into());
    }
    if let JobWork::Deliver { event, .. } = &job.work {
        detail.insert("event".to_owned(), event.to_string().into());
    }
    if let JobWork::Replay { status, .. } = &job.work {
        detail.insert("status".to_owned(), json!(status));
    }
    if let JobWork::Expunge { responses, .. } = &job.work {
        detail.insert("responses".to_owned(), json!(responses));
    }
    if let Some((_, deliveries)) = job.work.moves() {
        detail.insert("deliveries".to_owned(), json!(deliveries));
    }
    if let Some(events) = events {
        detail.insert("events".to_owned(), selected(events));
    }
    detail
}

/// Which events are meant. Of attributes only the names: their values may say something of what was published.
fn selected(events: &Selection) -> Value {
    let Selection { topics, types, attributes, from, until, from_event, filter } = events;
    let mut said = Map::new();
    let mut names = |name: &str, names: Vec<String>| {
        if !names.is_empty() {
            let names: Vec<String> = names.into_iter().take(NAMES_MAX).collect();
            said.insert(name.to_owned(), json!(names));
        }
    };
    names("topics", topics.iter().map(ToString::to_string).collect());
    names("types", types.iter().map(ToString::to_string).collect());
    names("attributes", attributes.keys().cloned().collect());
    for (name, at) in [("from", from), ("until", until)] {
        if let Some(at) = at {
            said.insert(name.to_owned(), json!(at));
        }
    }
    if let Some(event) = from_event {
        said.insert("from_event".to_owned(), json!(event));
    }
    if filter.is_some() {
        said.insert("filter".to_owned(), true.into());
    }
    said.into()
}

/// What a redrive is about.
pub(crate) fn redrive_detail(filter: &RedriveFilter) -> Map<String, Value> {
    match serde_json::to_value(filter) {
        Ok(Value::Object(fields)) => {
            fields.into_iter().filter(|(_, value)| !value.is_null()).collect()
        }
        _ => Map::new(),
    }
}
