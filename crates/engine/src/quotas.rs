//! Quotas: how much of everybody's memory and time one tenant may have.
//!
//! The catalog is in the memory of every node, and every event of a tenant is compared with all of it.
//! So a tenant may have only so many things, and so many bytes of them as they are in memory. A change
//! is checked against what is there and what is on its way on this node; with several nodes, changes at
//! the same moment may exceed a quota by that much. What is there already stays, whatever the quota.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use posthorn_domain::TenantId;
use posthorn_domain::limits::DESCRIPTION_BYTES_MAX;
use posthorn_domain::setting;
use serde::Deserialize;
use tracing::warn;

use crate::catalog::{Catalog, Holdings};
use crate::error::{Error, Result};

/// How much one tenant may have: the section `quotas` of the configuration. Zero switches a quota off.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quotas {
    /// Subscriptions.
    pub subscriptions: usize,
    /// Topics.
    pub topics: usize,
    /// Profiles of its own.
    pub profiles: usize,
    /// Bytes of all of these, as they are in memory.
    #[serde(deserialize_with = "setting::bytes")]
    pub catalog_memory: usize,
    /// Deliveries of one event.
    pub fan_out: usize,
    /// What matching one event with all filters may cost: bytes looked at, nearly.
    #[serde(deserialize_with = "setting::bytes")]
    pub match_cost_per_event: u64,
    /// What matching may cost in a second, where it is worth counting.
    #[serde(deserialize_with = "setting::bytes")]
    pub match_cost_per_second: u64,
    /// Subscriptions that name the topic of operational events.
    pub operational_subscriptions: usize,
    /// Sessions of pages and portal links whose time is not over.
    pub sessions: usize,
    /// Bytes of all event types of a realm, as they are in memory with schemas ready for use.
    #[serde(deserialize_with = "setting::bytes")]
    pub event_types_memory: usize,
}

impl Default for Quotas {
    fn default() -> Self {
        Self {
            subscriptions: 10_000,
            topics: 1_000,
            profiles: 100,
            catalog_memory: 64 << 20,
            fan_out: 10_000,
            match_cost_per_event: 64 << 20,
            match_cost_per_second: 256 << 20,
            operational_subscriptions: 20,
            sessions: 1_000,
            event_types_memory: 64 << 20,
        }
    }
}

impl Quotas {
    pub(crate) fn fan_out(&self) -> usize {
        if self.fan_out == 0 { usize::MAX } else { self.fan_out }
    }

    pub(crate) fn match_cost_per_event(&self) -> u64 {
        if self.match_cost_per_event == 0 { u64::MAX } else { self.match_cost_per_event }
    }

    /// Whether a tenant with these may have `more` besides, and what stands against it.
    fn check(&self, has: Holdings, more: Holdings) -> Result<()> {
        let of = [
            (
                "subscriptions",
                "quotas.subscriptions",
                self.subscriptions,
                has.subscriptions,
                more.subscriptions,
            ),
            ("topics", "quotas.topics", self.topics, has.topics, more.topics),
            ("profiles of its own", "quotas.profiles", self.profiles, has.profiles, more.profiles),
            (
                "subscriptions to operational events",
                "quotas.operational_subscriptions",
                self.operational_subscriptions,
                has.operational,
                more.operational,
            ),
            (
                "bytes in its catalog",
                "quotas.catalog_memory",
                self.catalog_memory,
                has.bytes,
                more.bytes,
            ),
        ];
        for (what, key, limit, has, more) in of {
            if limit > 0 && more > 0 && has.saturating_add(more) > limit {
                return Err(Error::CatalogFull { what, key, has, limit });
            }
        }
        Ok(())
    }
}

/// Checks a text for people.
pub(crate) fn check_description(text: &str) -> Result<()> {
    if text.len() > DESCRIPTION_BYTES_MAX {
        return Err(Error::TooLong { field: "description", max: DESCRIPTION_BYTES_MAX });
    }
    Ok(())
}

/// Watches over the quotas of all tenants.
pub(crate) struct Keeper {
    quotas: Arc<Quotas>,
    catalog: Arc<Catalog>,
    /// What is on its way into the catalog.
    coming: Arc<Mutex<HashMap<TenantId, Holdings>>>,
}

/// Something on its way into the catalog, until it is there or came to nothing.
pub(crate) struct Coming {
    all: Arc<Mutex<HashMap<TenantId, Holdings>>>,
    tenant: TenantId,
    what: Holdings,
}

impl Drop for Coming {
    fn drop(&mut self) {
        let mut all = self.all.lock();
        if let Some(coming) = all.get_mut(&self.tenant) {
            *coming = coming.less(self.what);
            if coming.is_nothing() {
                all.remove(&self.tenant);
            }
        }
    }
}

impl Keeper {
    pub(crate) fn new(quotas: Arc<Quotas>, catalog: Arc<Catalog>) -> Self {
        Self { quotas, catalog, coming: Arc::default() }
    }

    pub(crate) fn quotas(&self) -> &Quotas {
        &self.quotas
    }

    /// Lets a tenant have more, if it may. To be kept until the change is in the catalog.
    pub(crate) fn admit(&self, tenant: TenantId, more: Holdings) -> Result<Coming> {
        let mut all = self.coming.lock();
        let coming = all.get(&tenant).copied().unwrap_or_default();
        self.quotas.check(self.catalog.holdings(tenant).plus(coming), more)?;
        all.insert(tenant, coming.plus(more));
        Ok(Coming { all: Arc::clone(&self.coming), tenant, what: more })
    }

    /// Says who has more than it may: from before there was a quota, or it was lowered.
    pub(crate) fn warn(&self) {
        for tenant in self.catalog.tenants() {
            let has = self.catalog.holdings(tenant.id);
            let one =
                Holdings { subscriptions: 1, topics: 1, profiles: 1, operational: 1, bytes: 1 };
            if let Err(e) = self.quotas.check(has.less(one), one) {
                warn!(tenant = %tenant.name, reason = %e,
                    "a tenant is over its quota; what it has keeps working, nothing can be added");
            }
        }
    }
}
