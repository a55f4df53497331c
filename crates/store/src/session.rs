//! Questions about sessions of pages, and which of them are to end.

use posthorn_domain::{KeyId, RealmName, Session, SessionId, SessionKind, TenantId, Timestamp};

use crate::{Listing, Order, Page, Place};

/// Sessions that are looked at for one part of a list, at most, where no index serves all that is asked for.
const LOOKS_MAX: usize = 2_000;

/// Which sessions to list. What is absent does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SessionFilter {
    /// Only of this kind.
    pub kind: Option<SessionKind>,
    /// Only of this tenant.
    pub tenant: Option<TenantId>,
    /// Only of this realm itself; those of its tenants are theirs.
    pub realm: Option<RealmName>,
    /// Only with this label.
    pub label: Option<String>,
    /// Only those whose time was not over then.
    pub unexpired_at: Option<Timestamp>,
}

impl SessionFilter {
    /// Whether a session is meant.
    pub fn wants(&self, session: &Session) -> bool {
        self.kind.is_none_or(|kind| session.kind == kind)
            && self.tenant.is_none_or(|tenant| session.tenant() == Some(tenant))
            && self.realm.as_ref().is_none_or(|realm| session.realm() == Some(realm))
            && self.label.as_ref().is_none_or(|label| session.label.as_ref() == Some(label))
            && self.unexpired_at.is_none_or(|at| session.is_alive(at))
    }

    /// How many sessions a store looks at for one part of a list: by tenant or realm, and row by row for the rest.
    pub fn looks(&self, listing: &Listing) -> usize {
        let page = listing.limit.saturating_add(1);
        let exact = self.kind.is_none() && self.label.is_none() && self.unexpired_at.is_none();
        let exact = exact && (self.tenant.is_none() || self.realm.is_none());
        if exact { page } else { page.max(LOOKS_MAX) }
    }

    /// The ids that a part of the list may have: from the first to the last, both included. `None` when there are none.
    pub fn ids(&self, listing: &Listing) -> Option<(SessionId, SessionId)> {
        let (mut low, mut high) = (0, u128::MAX);
        match (listing.after, listing.order) {
            (None, _) => {}
            (Some(Place(after)), Order::NewestFirst) => high = after.checked_sub(1)?,
            (Some(Place(after)), Order::OldestFirst) => low = after.checked_add(1)?,
        }
        let id = |bits: u128| SessionId::from_bytes(bits.to_be_bytes());
        Some((id(low), id(high)))
    }
}

/// Which sessions are to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndSessions {
    /// This one.
    One(SessionId),
    /// All that stand and fall with this key: those that it opened, its links, and what these were redeemed for.
    OfKey(KeyId),
    /// All of a tenant with this label.
    Labelled(TenantId, String),
    /// All of a tenant.
    OfTenant(TenantId),
}

impl EndSessions {
    /// Whether a session is meant.
    pub fn wants(&self, session: &Session) -> bool {
        match self {
            Self::One(id) => session.id == *id,
            Self::OfKey(key) => session.opener.key() == Some(*key),
            Self::Labelled(tenant, label) => {
                session.tenant() == Some(*tenant) && session.label.as_ref() == Some(label)
            }
            Self::OfTenant(tenant) => session.tenant() == Some(*tenant),
        }
    }
}

/// Where a session stands in its list.
pub fn session_place(id: SessionId) -> Place {
    Place(u128::from_be_bytes(*id.as_bytes()))
}

/// A part of a list, of sessions that were looked at in its order: as many as [`SessionFilter::looks`] says, unless there
/// are no more.
pub fn session_page(
    filter: &SessionFilter,
    listing: &Listing,
    looked_at: Vec<Session>,
) -> Page<Session> {
    let looked = looked_at.len();
    let left = looked >= filter.looks(listing);
    let last_seen = looked_at.last().map(|session| session.id);
    let mut items: Vec<Session> =
        looked_at.into_iter().filter(|session| filter.wants(session)).collect();
    let full = items.len() > listing.limit;
    items.truncate(listing.limit);
    let places: Vec<Place> = items.iter().map(|session| session_place(session.id)).collect();
    let stopped = last_seen.filter(|_| !full && left);
    let last = stopped.map(session_place).or(places.last().copied());
    Page {
        first: places.first().copied(),
        last,
        more: full || left,
        scanned_until: stopped.map(|id| id.made_at()),
        looked,
        items,
        places,
    }
}
