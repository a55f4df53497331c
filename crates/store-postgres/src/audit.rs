//! What goes along with a change: operational events, and the line of the audit log. And questions about these lines.
//!
//! # Theory of operation
//! Whoever makes a change holds the locks of what is told first ([`hold`]), as whoever tells does, and has everything
//! written in the transaction of the change ([`write`]). A line is a row of its own that nobody else waits for.
//!
//! A list is a range of one index, which has its order: of the whole log, of a tenant, or of a realm, with the value
//! that leaves the fewest lines ([`AuditFilter::facet`]). The rest is looked at line by line, up to a limit.
//!
//! # What it must not know
//! Who may read which lines.

use std::sync::Arc;

use deadpool_postgres::Object;
use posthorn_domain::{AuditAction, AuditEntry, AuditId, Timestamp};
use posthorn_store::{Along, AuditFilter, Listing, NewEvent, Order, Page, Result, audit_page};

use crate::codec::{Reader, Uid, json, limit, text};
use crate::failure::{Corrupt, Outcome};
use crate::log::stream;
use crate::session::{Operation, Param, Session, begin, begin_list, commit, execute, query};
use crate::{sql, told};

const NOTE: Operation = Operation::write("note", "write a line of the audit log");
const LIST: Operation = Operation::read("audit", "read the audit log");

/// Takes the locks of all that is told, in one go.
pub(crate) async fn hold(client: &Object, told: &[&[NewEvent]]) -> Outcome<()> {
    told::hold(client, None, &told.concat()).await
}

/// Writes all that goes along with a change, or refuses all of it. The caller holds the locks, and rolls back what is
/// refused.
pub(crate) async fn write(client: &Object, along: &Along) -> Outcome<()> {
    told::tell(client, &along.told).await?;
    let Some(entry) = &along.audit else { return Ok(()) };
    let params: [Param<'_>; 8] = [
        &uid(entry.id),
        &entry.tenant.map(Uid::from),
        &entry.realm.as_ref().map(|realm| realm.as_str()),
        &entry.actor.id.as_deref().map(text),
        &entry.action.as_str(),
        &entry.action.noun(),
        &text(&entry.object.id),
        &json(entry),
    ];
    execute(client, sql::AUDIT_PUT, &params).await?;
    Ok(())
}

/// Writes what goes along with no change.
pub(crate) async fn note(session: &Session, along: Along) -> Result<()> {
    told::prepare(session, &along.told).await?;
    let along = Arc::new(along);
    session
        .run(NOTE, move |client| {
            let along = Arc::clone(&along);
            Box::pin(async move {
                begin(client).await?;
                told::hold(client, None, &along.told).await?;
                write(client, &along).await?;
                commit(client).await
            })
        })
        .await
}

fn uid(id: AuditId) -> Uid {
    Uid(*id.as_bytes())
}

/// Removes lines that were written before a time; how many.
pub(crate) async fn prune(client: &Object, before: Timestamp, most: i64) -> Outcome<u64> {
    let params: [Param<'_>; 2] = [&uid(AuditId::floor(before)), &most];
    execute(client, sql::PRUNE_AUDIT, &params).await
}

/// Removes lines of a tenant but the one that outlives it; how many.
pub(crate) async fn forget(client: &Object, tenant: Uid, most: i64) -> Outcome<usize> {
    let outlives = AuditAction::TenantDeleted.as_str();
    let params: [Param<'_>; 3] = [&tenant, &outlives, &most];
    let removed = execute(client, sql::TENANT_AUDIT, &params).await?;
    Ok(usize::try_from(removed).unwrap_or(usize::MAX))
}

/// The statement for a filter.
fn statement(scope: Option<&str>, facet: Option<&str>, order: Order) -> String {
    let columns: Vec<&str> = scope.into_iter().chain(facet).collect();
    let select = "select id, document from audit where";
    match columns.as_slice() {
        [] => {
            let direction = match order {
                Order::NewestFirst => "desc",
                Order::OldestFirst => "asc",
            };
            format!("{select} id > $1 and id < $2 order by id {direction} limit $3::int8")
        }
        columns => {
            let places = ["$4", "$5"];
            let values: Vec<(&str, &str)> = columns.iter().copied().zip(places).collect();
            format!("{select} {} $3::int8", stream(&values, ("$1", "$2"), order))
        }
    }
}

/// All of them, for the test that asks for their plans.
pub(crate) fn statements(order: Order) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for scope in [None, Some("tenant"), Some("realm")] {
        for facet in [None, Some("object"), Some("actor"), Some("action"), Some("noun")] {
            let name = format!("audit by {scope:?} {facet:?} {order:?}");
            all.push((name, statement(scope, facet, order)));
        }
    }
    all
}

pub(crate) async fn list(
    session: &Session,
    filter: AuditFilter,
    listing: Listing,
) -> Result<Page<AuditEntry>> {
    let filter = Arc::new(filter);
    session
        .run(LIST, move |client| {
            let filter = Arc::clone(&filter);
            Box::pin(async move {
                begin_list(client).await?;
                let page = read(client, &filter, &listing).await?;
                commit(client).await?;
                Ok(page)
            })
        })
        .await
}

async fn read(
    client: &Object,
    filter: &AuditFilter,
    listing: &Listing,
) -> Outcome<Page<AuditEntry>> {
    let Some((low, high)) = filter.ids(listing) else { return Ok(Page::empty()) };
    // Statements leave the bounds out; nobody has the first or the last id there could be.
    let bits = |id: AuditId| u128::from_be_bytes(*id.as_bytes());
    let low = Uid(bits(low).saturating_sub(1).to_be_bytes());
    let high = Uid(bits(high).saturating_add(1).to_be_bytes());
    let looks = limit(filter.looks(listing));
    let tenant = filter.tenant.map(Uid::from);
    let realm = filter.realm.as_ref().map(|realm| realm.as_str());
    let facet = filter.facet().map(|(column, value)| (column, text(value)));
    let mut params: Vec<Param<'_>> = vec![&low, &high, &looks];
    let scope = match (&tenant, &realm) {
        (Some(tenant), _) => {
            params.push(tenant);
            Some("tenant")
        }
        (None, Some(realm)) => {
            params.push(realm);
            Some("realm")
        }
        (None, None) => None,
    };
    if let Some((_, value)) = &facet {
        params.push(value);
    }
    let column = facet.as_ref().map(|(column, _)| *column);
    let rows = query(client, &statement(scope, column, listing.order), &params).await?;
    let entry = |row| Reader::new(row, "audit", "id").json("document");
    let found = rows.iter().map(entry).collect::<Result<Vec<AuditEntry>, Corrupt>>()?;
    Ok(audit_page(filter, listing, found))
}
