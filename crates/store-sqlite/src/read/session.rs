//! Questions about sessions of pages: one by its id, and a range of the index of their tenant or realm.

use posthorn_domain::{Session, SessionId, TenantId, Timestamp};
use posthorn_store::{Listing, Order, Page, SessionFilter, session_page};
use rusqlite::{Connection, OptionalExtension, ToSql, params};

use crate::codec::{Columns, int};
use crate::error::Failure;
use crate::sql;

/// One session or link.
pub(crate) fn find(conn: &Connection, id: SessionId) -> Result<Option<Session>, Failure> {
    let mut statement = conn.prepare_cached(sql::SESSION_FIND)?;
    let mut rows = statement.query([id.as_bytes().as_slice()])?;
    match rows.next()? {
        Some(row) => Ok(Some(Columns::of(row, "page_session", 0).json(0)?)),
        None => Ok(None),
    }
}

/// The statement for a list: the index is named, so that it is a range of it whatever SQLite believes. Its values are
/// the first and the last id, how many, and then what is asked for.
pub(crate) fn statement(scope: Option<&str>, order: Order) -> String {
    let direction = match order {
        Order::NewestFirst => "desc",
        Order::OldestFirst => "asc",
    };
    let (by, wanted) = match scope {
        None => (String::new(), String::new()),
        Some(column) => {
            (format!("indexed by page_session_{column} "), format!("{column} = ?4 and "))
        }
    };
    format!(
        "select document from page_session {by}where {wanted}id between ?1 and ?2 \
         order by id {direction} limit ?3"
    )
}

/// Sessions and links.
pub(crate) fn list(
    conn: &Connection,
    filter: &SessionFilter,
    listing: &Listing,
) -> Result<Page<Session>, Failure> {
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
    let mut prepared = conn.prepare_cached(&statement(scope, listing.order))?;
    let mut rows = prepared.query(values.as_slice())?;
    let mut found: Vec<Session> = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(Columns::of(row, "page_session", 0).json(0)?);
    }
    Ok(session_page(filter, listing, found))
}

/// How many of a tenant's have time left.
pub(crate) fn count(conn: &Connection, tenant: TenantId, at: Timestamp) -> Result<u64, Failure> {
    let values = params![tenant.as_bytes().as_slice(), at.as_millis()];
    let mut statement = conn.prepare_cached(sql::COUNT_SESSIONS)?;
    Ok(statement.query_row(values, |row| row.get::<_, i64>(0))?.unsigned_abs())
}

/// Whether any ended before a time.
pub(crate) fn may_prune(conn: &Connection, before: Timestamp) -> Result<bool, Failure> {
    let mut statement = conn.prepare_cached(sql::SESSION_OVER)?;
    Ok(statement.query_row([before.as_millis()], |_| Ok(())).optional()?.is_some())
}
