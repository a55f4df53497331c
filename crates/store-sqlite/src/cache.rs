//! What the writer knows by heart: the numbers behind ids, and the versions plans are checked
//! against. It changes only through the writer, so it is never stale; after a rollback it is read
//! again.

use std::collections::{HashMap, HashSet};

use posthorn_domain::{CatalogVersion, SubscriptionId, TenantId};
use rusqlite::Connection;

use crate::codec::Columns;
use crate::error::Failure;

/// A tenant by heart.
#[derive(Clone, Copy)]
pub(crate) struct KnownTenant {
    pub(crate) no: i64,
    pub(crate) version: CatalogVersion,
    /// Whether it is being deleted, or was.
    pub(crate) closed: bool,
}

/// A subscription that is not deleted, by heart.
#[derive(Clone, Copy)]
pub(crate) struct KnownSubscription {
    pub(crate) no: i64,
    pub(crate) tenant: i64,
}

#[derive(Default)]
pub(crate) struct Cache {
    pub(crate) version: CatalogVersion,
    pub(crate) tenants: HashMap<TenantId, KnownTenant>,
    pub(crate) subscriptions: HashMap<SubscriptionId, KnownSubscription>,
    /// Deleted subscriptions that may have unfinished deliveries. Nearly always empty, which saves
    /// the hot path a lookup.
    pub(crate) unswept: HashSet<i64>,
    /// The greatest number of a subscription, deleted ones included.
    pub(crate) greatest_subscription: i64,
}

impl Cache {
    pub(crate) fn load(conn: &Connection) -> Result<Self, Failure> {
        let mut cache = Self::default();
        let version: i64 =
            conn.query_row("select catalog_version from store", [], |row| row.get(0))?;
        cache.version = CatalogVersion(version.unsigned_abs());
        let mut statement = conn.prepare(
            "select t.no, t.id, e.version, t.closed from tenant t \
             join entry e on e.tenant = t.id and e.kind = 'tenant'",
        )?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let columns = Columns::of(row, "tenant", 0);
            let id = TenantId::from_bytes(columns.array(1)?);
            let version = CatalogVersion(columns.number(2)?);
            let (no, closed) = (columns.int(0)?, columns.int(3)? != 0);
            cache.tenants.insert(id, KnownTenant { no, version, closed });
        }
        let mut statement =
            conn.prepare("select no, id, tenant, deleted_at, swept from subscription")?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let columns = Columns::of(row, "subscription", 0);
            let (no, tenant) = (columns.int(0)?, columns.int(2)?);
            cache.greatest_subscription = cache.greatest_subscription.max(no);
            if columns.maybe_int(3)?.is_none() {
                let id = SubscriptionId::from_bytes(columns.array(1)?);
                cache.subscriptions.insert(id, KnownSubscription { no, tenant });
            } else if columns.int(4)? == 0 {
                cache.unswept.insert(no);
            }
        }
        Ok(cache)
    }
}
