//! Other systems that are spoken here: which of them the navigation leads to, and what their pages share.
//!
//! A page of a system shows what its operators look for, in their words. Everything on it is an ordinary subscription,
//! topic or delivery, and links to the page of that.

use std::collections::HashMap;

use parking_lot::Mutex;
use posthorn_domain::{CatalogVersion, Policy, Tenant, TenantId};

use super::show::{Listed, Shown};
use super::subscriptions::Given;
use super::typed;
use crate::frame::Place;
use crate::text;
use crate::trouble::Trouble;
use crate::visit::Visit;
use crate::words;

/// Subscriptions that a page of a system shows.
pub(crate) const SHOWN_MAX: usize = 500;
/// Subscriptions of one answer of the API.
const PAGE: usize = 100;

const SYSTEMS: [(&str, &str, Place); 3] = [
    ("notificaties", "Notificaties", Place::Notificaties),
    ("efgs", "EFGS callbacks", Place::Efgs),
    ("cedros", "Cedros webhooks", Place::Cedros),
];

/// The systems that a visitor may look at, each with its tenant. PCA Hub is no dialect but a profile: its page is there
/// where a subscription of the tenant has a gate.
pub(crate) fn spoken(visit: &Visit, tenant: Option<&Tenant>) -> Vec<(&'static str, Place, Tenant)> {
    let configured = &visit.console.options.systems;
    let known = SYSTEMS.iter().filter_map(|(key, name, place)| {
        let (_, tenant) = configured.iter().find(|(own, _)| own == key)?;
        Some((*name, *place, visit.find_tenant(tenant)?))
    });
    let mut all: Vec<_> = known.collect();
    if let Some(tenant) = tenant.filter(|tenant| visit.console.numbers.of(visit, tenant.id).gates) {
        all.push(("PCA Hub", Place::PcaHub, tenant.clone()));
    }
    all
}

/// What the navigation tells of a tenant's subscriptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Number {
    pub(crate) subscriptions: usize,
    /// Whether one of them has a gate.
    pub(crate) gates: bool,
}

/// The same of tenants that were looked at lately: counted once for each version of the catalog, not for each page.
#[derive(Default)]
pub(crate) struct Numbers(Mutex<HashMap<TenantId, (CatalogVersion, Number)>>);

/// Tenants that are remembered.
const NUMBERS_MAX: usize = 1_000;

impl Numbers {
    pub(crate) fn of(&self, visit: &Visit, tenant: TenantId) -> Number {
        let catalog = visit.engine().catalog();
        // Asked for first: what changes while it is counted is counted again.
        let version = catalog.version();
        if let Some((counted, number)) = self.0.lock().get(&tenant)
            && *counted == version
        {
            return *number;
        }
        let all = catalog.subscriptions(tenant);
        let gated = |policy: &Policy| policy.gate.is_some();
        let gates = all.iter().any(|view| view.policy.as_ref().is_ok_and(|policy| gated(policy)));
        let number = Number { subscriptions: all.len(), gates };
        let mut known = self.0.lock();
        if known.len() >= NUMBERS_MAX {
            known.clear();
        }
        known.insert(tenant, (version, number));
        number
    }
}

/// That a system is spoken for the tenant of this page. Of all others there is no such page.
pub(crate) fn check(visit: &Visit, wanted: Place) -> Result<Tenant, Trouble> {
    let tenant = visit.tenant()?;
    let mut all = spoken(visit, Some(tenant)).into_iter();
    let found = all.find(|(_, place, own)| *place == wanted && own.id == tenant.id);
    found.map(|(_, _, own)| own).ok_or(Trouble::NotFound("page"))
}

/// The subscriptions of the tenant, and whether there are more than are shown.
pub(crate) async fn subscriptions(visit: &Visit) -> Result<(Vec<Given>, bool), Trouble> {
    let mut all = Vec::new();
    let mut cursor = String::new();
    loop {
        let path = format!("/v1/subscriptions?limit={PAGE}{cursor}");
        let list: Listed<Given> = visit.get(&path).await?;
        all.extend(list.items);
        match list.next {
            Some(next) if all.len() < SHOWN_MAX => {
                cursor = format!("&cursor={}", typed::part(&next));
            }
            next => return Ok((all, next.is_some())),
        }
    }
}

/// A subscription in a row of one of these pages.
pub(crate) struct Row {
    pub(crate) id: String,
    pub(crate) name: String,
    /// Scheme and host of the receiver.
    pub(crate) place: String,
    pub(crate) shown: Shown,
    pub(crate) reason: Option<String>,
}

impl Row {
    pub(crate) fn new(given: &Given) -> Self {
        let url = given.url.as_deref().and_then(|url| url::Url::parse(url).ok());
        let place = url.map(|url| url.origin().ascii_serialization()).unwrap_or_default();
        Self {
            id: given.id.to_string(),
            name: text::line(&given.title(), 128),
            place: text::line(&place, 120),
            shown: Shown::subscription(&given.status, given.failing_since.is_some()),
            reason: given.status_reason.as_deref().map(|reason| text::line(reason, 160)),
        }
    }
}

/// A label of a subscription; what strangers wrote, on one line.
pub(crate) fn label(visit: &Visit, given: &Given, name: &str) -> Option<String> {
    let tenant = visit.tenant().ok()?;
    let view = visit.engine().catalog().subscription(tenant.id, given.id).ok()?;
    view.subscription.labels.get(name).map(|value| text::line(value, 128))
}

/// What the tenant has waiting and dead, as figures of these pages.
pub(crate) async fn counts(visit: &Visit) -> Result<Vec<(&'static str, String)>, Trouble> {
    let tenant = visit.tenant()?.id;
    let counts = visit.engine().store().counts(Some(tenant)).await;
    let counts = counts.map_err(|_| Trouble::Away)?;
    Ok(vec![
        ("Waiting", words::number(counts.pending)),
        ("Delivered", words::number(counts.delivered)),
        ("Dead letters", words::number(counts.dead)),
    ])
}
