//! Questions about the audit log: a range of the index that serves the filter, and the rest line by line.

use posthorn_domain::AuditEntry;
use posthorn_store::{AuditFilter, Listing, Order, Page, audit_page};
use rusqlite::{Connection, ToSql};

use crate::codec::{Columns, int};
use crate::error::Failure;

/// The statement for a filter: the index is named, so that it is a range of it whatever SQLite believes. Its values are
/// the first and the last id, how many, and then what is asked for.
pub(crate) fn statement(scope: Option<&str>, facet: Option<&str>, order: Order) -> String {
    let direction = match order {
        Order::NewestFirst => "desc",
        Order::OldestFirst => "asc",
    };
    let mut index = String::new();
    let mut wanted = String::new();
    for (place, column) in scope.into_iter().chain(facet).enumerate() {
        index.push('_');
        index.push_str(column);
        wanted.push_str(&format!("{column} = ?{} and ", place + 4));
    }
    let by = if index.is_empty() { String::new() } else { format!("indexed by audit{index} ") };
    format!(
        "select document from audit {by}where {wanted}id between ?1 and ?2 order by id {direction} limit ?3"
    )
}

/// Lines of the audit log.
pub(crate) fn audit(
    conn: &Connection,
    filter: &AuditFilter,
    listing: &Listing,
) -> Result<Page<AuditEntry>, Failure> {
    let Some((low, high)) = filter.ids(listing) else { return Ok(Page::empty()) };
    let (low, high) = (low.as_bytes().as_slice(), high.as_bytes().as_slice());
    let looks = int(filter.looks(listing) as u64);
    let tenant = filter.tenant.as_ref().map(|tenant| tenant.as_bytes().as_slice());
    let realm = filter.realm.as_ref().map(|realm| realm.as_str());
    let mut values: Vec<&dyn ToSql> = vec![&low, &high, &looks];
    let scope = match (&tenant, &realm) {
        (Some(tenant), _) => {
            values.push(tenant);
            Some("tenant")
        }
        (None, Some(realm)) => {
            values.push(realm);
            Some("realm")
        }
        (None, None) => None,
    };
    let facet = filter.facet();
    if let Some((_, value)) = &facet {
        values.push(value);
    }
    let sql = statement(scope, facet.map(|(column, _)| column), listing.order);
    let mut prepared = conn.prepare_cached(&sql)?;
    let mut rows = prepared.query(values.as_slice())?;
    let mut found: Vec<AuditEntry> = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(Columns::of(row, "audit", 0).json(0)?);
    }
    Ok(audit_page(filter, listing, found))
}
