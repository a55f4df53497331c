//! What goes along with a change, in its transaction: operational events and the line of the audit log. And questions
//! about these lines.

use posthorn_domain::{ActionFilter, AuditEntry, AuditId, Home, RealmName, TenantId, Timestamp};

use crate::{Listing, NewEvent, Order, Page, Period, Place};

/// Lines that are looked at for one part of a list, at most, where no index serves all that is asked for.
const LOOKS_MAX: usize = 2_000;

/// What goes along with a change: all of it is stored by the transaction that makes the change, and nothing of it when
/// the change is refused, or finds everything as it should be.
#[derive(Clone, Debug, Default)]
pub struct Along {
    /// What is told of it, with its plans. Whether one of them is stale is judged before anything is written.
    pub told: Vec<NewEvent>,
    /// Its line in the audit log.
    pub audit: Option<Box<AuditEntry>>,
}

impl From<Vec<NewEvent>> for Along {
    fn from(told: Vec<NewEvent>) -> Self {
        Self { told, audit: None }
    }
}

impl From<AuditEntry> for Along {
    fn from(entry: AuditEntry) -> Self {
        Self { told: Vec::new(), audit: Some(Box::new(entry)) }
    }
}

/// Which lines of the audit log to list. What is absent does not matter.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    /// Only of this tenant.
    pub tenant: Option<TenantId>,
    /// Only of this realm and its tenants.
    pub realm: Option<RealmName>,
    /// Only what this one did, by its id.
    pub actor: Option<String>,
    /// With an actor: only where that one is known to whoever asks.
    pub known_to: Option<Home>,
    /// Only these actions.
    pub action: Option<ActionFilter>,
    /// Only what was done to this, by its id.
    pub object: Option<String>,
    /// Only in this period.
    pub period: Period,
}

impl AuditFilter {
    /// Whether a line is meant.
    pub fn wants(&self, entry: &AuditEntry) -> bool {
        let actor = match &self.actor {
            None => true,
            Some(_) => {
                self.actor == entry.actor.id
                    && self.known_to.as_ref().is_none_or(|reader| knows(reader, entry))
            }
        };
        actor
            && self.tenant.is_none_or(|tenant| entry.tenant == Some(tenant))
            && self.realm.as_ref().is_none_or(|realm| entry.realm.as_ref() == Some(realm))
            && self.action.is_none_or(|action| action.wants(entry.action))
            && self.object.as_ref().is_none_or(|object| *object == entry.object.id)
            && self.period.contains(entry.at())
    }

    /// The column besides tenant or realm that a store looks lines up by, and its value: the one that leaves the
    /// fewest.
    pub fn facet(&self) -> Option<(&'static str, &str)> {
        if let Some(object) = &self.object {
            return Some(("object", object));
        }
        if let Some(actor) = &self.actor {
            return Some(("actor", actor));
        }
        self.action.as_ref().map(|action| match action {
            ActionFilter::Exactly(action) => ("action", action.as_str()),
            ActionFilter::Noun(noun) => ("noun", *noun),
        })
    }

    /// Whether [`Self::facet`], with the tenant or the realm, says all that is to be said.
    fn is_exact(&self) -> bool {
        let facets = [self.object.is_some(), self.actor.is_some(), self.action.is_some()];
        facets.iter().filter(|is_there| **is_there).count() <= 1
            && (self.tenant.is_none() || self.realm.is_none())
            && (self.actor.is_none() || self.known_to.is_none())
    }

    /// How many lines a store looks at for one part of a list.
    pub fn looks(&self, listing: &Listing) -> usize {
        let page = listing.limit.saturating_add(1);
        if self.is_exact() { page } else { page.max(LOOKS_MAX) }
    }

    /// The ids that a part of the list may have: from the first to the last, both included. `None` when there are none.
    pub fn ids(&self, listing: &Listing) -> Option<(AuditId, AuditId)> {
        let floor = |at: Timestamp| AuditId::floor(at);
        let (mut low, mut high) = (0, u128::MAX);
        if let Some(from) = self.period.from {
            low = u128::from_be_bytes(*floor(from).as_bytes());
        }
        if let Some(until) = self.period.until {
            high = u128::from_be_bytes(*floor(until).as_bytes()).checked_sub(1)?;
        }
        match (listing.after, listing.order) {
            (None, _) => {}
            (Some(Place(after)), Order::NewestFirst) => high = high.min(after.checked_sub(1)?),
            (Some(Place(after)), Order::OldestFirst) => low = low.max(after.checked_add(1)?),
        }
        let id = |bits: u128| AuditId::from_bytes(bits.to_be_bytes());
        (low <= high).then(|| (id(low), id(high)))
    }
}

/// Whether somebody may know who made a change: those of the same tenant or the same realm, and operators.
pub fn knows(reader: &Home, entry: &AuditEntry) -> bool {
    match (reader, &entry.actor.home) {
        (Home::Operator, _) => true,
        (Home::Realm(own), Home::Realm(realm)) => own == realm,
        (Home::Realm(own), Home::Tenant(_)) => entry.realm.as_ref() == Some(own),
        (Home::Tenant(own), Home::Tenant(tenant)) => own == tenant,
        (Home::Realm(_) | Home::Tenant(_), Home::Operator) | (Home::Tenant(_), Home::Realm(_)) => {
            false
        }
    }
}

/// Where a line stands in its list.
pub fn audit_place(id: AuditId) -> Place {
    Place(u128::from_be_bytes(*id.as_bytes()))
}

/// A part of a list, of lines that were looked at in its order: as many as [`AuditFilter::looks`] says, unless there are
/// no more.
pub fn audit_page(
    filter: &AuditFilter,
    listing: &Listing,
    looked_at: Vec<AuditEntry>,
) -> Page<AuditEntry> {
    let looked = looked_at.len();
    let left = looked >= filter.looks(listing);
    let last_seen = looked_at.last().map(|entry| entry.id);
    let mut items: Vec<AuditEntry> =
        looked_at.into_iter().filter(|entry| filter.wants(entry)).collect();
    let full = items.len() > listing.limit;
    items.truncate(listing.limit);
    let first = items.first().map(|entry| audit_place(entry.id));
    let stopped = last_seen.filter(|_| !full && left);
    let last = match stopped {
        Some(id) => Some(audit_place(id)),
        None => items.last().map(|entry| audit_place(entry.id)),
    };
    let scanned_until = stopped.map(|id| id.made_at());
    let places = items.iter().map(|entry| audit_place(entry.id)).collect();
    Page { items, places, first, last, more: full || left, scanned_until, looked }
}
