//! Notices what no transaction causes, and tells it: certificates that end, quotas and disks that fill up, nodes that
//! are lost.
//!
//! The node that holds the first shard looks every few seconds at what concerns all; every node looks at its own disk. What is
//! found is told once for each occurrence, under a key that names it; what was told already is remembered here, so that the
//! store is not asked each time. A quota or a disk is told again only after it was all right in between. Whoever takes the duty
//! over may tell of a quota again, once an hour at most: the hour is part of its key. A node that is started anew is another
//! one, and tells of its disk again.
//!
//! It also makes sure of the tenant that operators are told in.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use posthorn_domain::{
    Actor, AuditAction, AuditEntry, AuditId, AuditObject, Certificate, Clock, IdempotencyKey,
    NodeId, Origin, SYSTEM_TENANT, Shard, Span, Tenant, TenantId, Timestamp,
};
use posthorn_store::{CatalogChange, Error, Refusal, Result, Store};
use tokio::time::MissedTickBehavior;
use tracing::{info, warn};

use crate::admission::Admission;
use crate::catalog::{Catalog, CertificateView};
use crate::error::chain;
use crate::metrics;
use crate::nodes::KnownNodes;
use crate::told::{Fact, Teller};
use crate::wakes::Wakes;

/// How often it is looked.
const EVERY: Duration = Duration::from_secs(5);
/// How long before its end a certificate is told of.
const CERTIFICATE_LEFT: Span = Span::from_secs(30 * 86_400);
/// From which part of its quota on a tenant is near it, in percent.
const QUOTA_NEAR: u64 = 80;
/// What the tenant is called where somebody has its name.
const SYSTEM_OTHERWISE: &str = "posthorn-system";
const HOUR: i64 = 3_600_000;

pub(crate) struct Watch {
    pub(crate) node: NodeId,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) admission: Arc<Admission>,
    pub(crate) wakes: Wakes,
    pub(crate) known: KnownNodes,
    pub(crate) teller: Arc<Teller>,
}

/// What is the case and was told, by what it is about.
type Told = BTreeSet<String>;

/// Something that is the case.
enum Noticed {
    Certificate(Arc<CertificateView>),
    Quota { tenant: TenantId, pending: u64, quota: u64 },
    Disk { node: NodeId, used: u8 },
    Lost(NodeId),
}

impl Noticed {
    fn about(&self) -> String {
        match self {
            Self::Certificate(view) => {
                let Certificate { id, not_after, .. } = &view.certificate;
                format!("certificate.expiring/{id}/{}", not_after.as_millis())
            }
            Self::Quota { tenant, .. } => format!("quota.near/{tenant}"),
            Self::Disk { node, .. } => format!("disk.near_full/{node}"),
            Self::Lost(node) => format!("node.lost/{node}"),
        }
    }

    /// The key of this occurrence. What lasts is told under the hour in which it was noticed.
    fn key(&self, about: &str, now: Timestamp) -> String {
        match self {
            Self::Certificate(_) | Self::Lost(_) => about.to_owned(),
            Self::Quota { .. } | Self::Disk { .. } => {
                format!("{about}/{}", now.as_millis() / HOUR)
            }
        }
    }

    fn tenant(&self) -> Option<TenantId> {
        match self {
            Self::Certificate(view) => Some(view.certificate.tenant),
            Self::Quota { tenant, .. } => Some(*tenant),
            Self::Disk { .. } | Self::Lost(_) => None,
        }
    }

    fn fact(&self, now: Timestamp) -> Fact {
        match self {
            Self::Certificate(view) => Fact::certificate(&view.certificate, now),
            Self::Quota { tenant, pending, quota } => Fact::quota(*tenant, *pending, *quota, now),
            Self::Disk { node, used } => Fact::disk(*node, *used, now),
            Self::Lost(node) => Fact::node(*node, now),
        }
    }
}

impl Watch {
    /// Runs until it is dropped.
    pub(crate) async fn run(self) {
        let mut ticks = tokio::time::interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut told = Told::new();
        loop {
            ticks.tick().await;
            let mut found = self.own();
            if Shard::new(0).is_some_and(|first| self.wakes.holds(first)) {
                if self.catalog.tenant(TenantId::SYSTEM).is_err() {
                    let line = self.teller.chance.audit_id(self.clock.now());
                    ensure_system(&*self.store, &self.catalog, line, Some(&*self.teller)).await;
                }
                found.extend(self.found(self.clock.now()));
            }
            self.tell(found, &mut told).await;
        }
    }

    async fn tell(&self, found: Vec<Noticed>, told: &mut Told) {
        let now = self.clock.now();
        let found: Vec<(String, Noticed)> =
            found.into_iter().map(|noticed| (noticed.about(), noticed)).collect();
        // What is not the case any more may happen again.
        let about: BTreeSet<&str> = found.iter().map(|(about, _)| about.as_str()).collect();
        told.retain(|known| about.contains(known.as_str()));
        for (about, noticed) in &found {
            if told.contains(about) || !self.is_wanted(noticed.tenant()) {
                continue;
            }
            let Ok(key) = IdempotencyKey::new(&noticed.key(about, now)) else { continue };
            let fact = noticed.fact(now);
            match self.teller.publish(&fact, &key).await {
                Ok(_) => drop(told.insert(about.clone())),
                Err(e) => {
                    ::metrics::counter!(metrics::STORE_ERRORS, "operation" => "tell").increment(1);
                    warn!(error = %chain(&e), kind = %fact.kind, "an operational event could not \
                                                                  be stored; it will be retried");
                }
            }
        }
    }

    fn is_wanted(&self, tenant: Option<TenantId>) -> bool {
        tenant.map_or_else(
            || self.catalog.wants_operational(TenantId::SYSTEM),
            |tenant| self.teller.is_wanted(tenant),
        )
    }

    /// What is the case on this node.
    fn own(&self) -> Vec<Noticed> {
        let node = self.node;
        let near_full = self.admission.disk_near_full();
        near_full.map(|used| Noticed::Disk { node, used }).into_iter().collect()
    }

    /// What is the case for all of them.
    fn found(&self, now: Timestamp) -> Vec<Noticed> {
        let ending = self.catalog.certificates_ending(now.plus(CERTIFICATE_LEFT));
        let mut found: Vec<Noticed> = ending.into_iter().map(Noticed::Certificate).collect();
        let quota = self.admission.options().pending_per_tenant;
        for (tenant, pending) in self.admission.most_pending(quota, QUOTA_NEAR) {
            // Its deliveries are what is told.
            if tenant != TenantId::SYSTEM {
                found.push(Noticed::Quota { tenant, pending, quota });
            }
        }
        found.extend(self.known.lost().into_iter().map(Noticed::Lost));
        found
    }
}

/// Makes sure of the tenant that operators are told in. Without it operators are told nothing, but everything else
/// works: so trouble with the store is no reason not to start.
///
/// In a running engine, what changed meanwhile concerns others as well, which `teller` sees to.
pub(crate) async fn ensure_system(
    store: &dyn Store,
    catalog: &Catalog,
    line: AuditId,
    teller: Option<&Teller>,
) {
    if catalog.tenant(TenantId::SYSTEM).is_ok() {
        return;
    }
    if let Err(e) = make_system(store, catalog, line, teller).await {
        warn!(error = %chain(&e), "the tenant for operational events could not be created; it will \
                                   be retried");
    }
}

async fn make_system(
    store: &dyn Store,
    catalog: &Catalog,
    line: AuditId,
    teller: Option<&Teller>,
) -> Result<()> {
    for name in [SYSTEM_TENANT, SYSTEM_OTHERWISE] {
        let tenant = Tenant::new(TenantId::SYSTEM, name.to_owned(), line.made_at());
        let entry = AuditEntry {
            id: line,
            actor: Actor::SERVER,
            origin: Origin { surface: "server".to_owned(), address: None },
            action: AuditAction::TenantCreated,
            tenant: Some(tenant.id),
            realm: Some(tenant.realm.clone()),
            object: AuditObject {
                kind: "tenant".to_owned(),
                id: tenant.id.to_string(),
                name: Some(name.to_owned()),
            },
            detail: serde_json::Map::new(),
        };
        let create = CatalogChange::CreateTenant(tenant);
        match store.change_catalog_with(create, entry.into()).await {
            // Another node was faster, or somebody has the name.
            Ok(_) | Err(Error::Refused(Refusal::AlreadyExists)) => {}
            Err(e) => return Err(e),
        }
        match teller {
            Some(teller) => teller.refresh().await?,
            None => drop(catalog.apply(store.catalog_since(catalog.version()).await?)),
        }
        if catalog.tenant(TenantId::SYSTEM).is_ok() {
            return Ok(());
        }
        info!(name, "another tenant has the name of the tenant for operational events");
    }
    Ok(())
}
