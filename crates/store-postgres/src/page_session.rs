//! Sessions of pages, and links into the portal.
//!
//! # Theory of operation
//! Each is a row that is looked up by its id. Whoever creates one holds its tenant (shared) until the commit, so that a
//! deletion of the tenant which begins meanwhile finds it. A link is redeemed by whoever removes its row; others wait for
//! that, and find nothing.
//!
//! # What it must not know
//! Whose session a token opens. The connections of this crate are called sessions too; they are another thing.

use std::sync::Arc;

use deadpool_postgres::Object;
use posthorn_domain::{Session as PageSession, SessionId, SessionKind, TenantId, Timestamp};
use posthorn_store::{
    Along, EndSessions, Listing, Order, Page, Refusal, Result, SessionFilter, session_page,
};

use crate::codec::{Reader, Uid, json, limit, text};
use crate::failure::{Corrupt, Outcome};
use crate::log::stream;
use crate::session::{Operation, Param, Session, begin, begin_list, commit, execute, query};
use crate::{audit, lock, sql, told};

const CREATE: Operation = Operation::write("create_session", "open a session");
const FIND: Operation = Operation::read("session", "read a session");
const REDEEM: Operation = Operation::write("redeem_session", "redeem a portal link");
const LIST: Operation = Operation::read("sessions", "list sessions");
const COUNT: Operation = Operation::read("count_sessions", "count sessions");
const END: Operation = Operation::write("end_sessions", "end sessions");
const PRUNE: Operation = Operation::write("prune_sessions", "remove expired sessions");

/// Takes the locks of what is told and of the session's tenant; whether that is unknown or being deleted.
async fn hold(client: &Object, session: &PageSession, along: &Along) -> Outcome<bool> {
    let own = session.tenant();
    let slots = told::tenant_slots(&along.told).into_iter().chain(own.map(lock::tenant_slot));
    lock::share(client, lock::TENANTS, &lock::sorted(slots)).await?;
    let closed = match own {
        None => false,
        Some(tenant) => {
            let found = query(client, sql::TENANT_CLOSED, &[&Uid::from(tenant)]).await?;
            found.first().map_or(Ok(true), |row| row.try_get(0))?
        }
    };
    audit::hold(client, &[&along.told]).await?;
    Ok(closed)
}

async fn insert(client: &Object, session: &PageSession) -> Outcome<()> {
    let params: [Param<'_>; 8] = [
        &Uid::from(session.id),
        &session.kind.as_str(),
        &session.tenant().map(Uid::from),
        &session.realm().map(|realm| realm.as_str()),
        &session.opener.key().map(Uid::from),
        &session.label.as_deref().map(text),
        &session.expires_at.as_millis(),
        &json(session),
    ];
    let created = execute(client, sql::SESSION_PUT, &params).await?;
    if created == 0 { Err(Refusal::AlreadyExists.into()) } else { Ok(()) }
}

pub(crate) async fn create(session: &Session, new: PageSession, along: Along) -> Result<()> {
    told::prepare(session, &along.told).await?;
    let new = Arc::new((new, along));
    session
        .run(CREATE, move |client| {
            let new = Arc::clone(&new);
            Box::pin(async move {
                let (new, along) = &*new;
                begin(client).await?;
                if hold(client, new, along).await? {
                    return Err(Refusal::NotFound.into());
                }
                insert(client, new).await?;
                audit::write(client, along).await?;
                commit(client).await
            })
        })
        .await
}

pub(crate) async fn redeem(
    session: &Session,
    link: SessionId,
    new: PageSession,
    along: Along,
) -> Result<bool> {
    told::prepare(session, &along.told).await?;
    let new = Arc::new((new, along));
    session
        .run(REDEEM, move |client| {
            let new = Arc::clone(&new);
            Box::pin(async move {
                let (new, along) = &*new;
                begin(client).await?;
                let closed = hold(client, new, along).await?;
                let kind = SessionKind::Link.as_str();
                let params: [Param<'_>; 2] = [&Uid::from(link), &kind];
                let redeemed = execute(client, sql::SESSION_END, &params).await? > 0;
                if redeemed {
                    if closed {
                        return Err(Refusal::NotFound.into());
                    }
                    insert(client, new).await?;
                    audit::write(client, along).await?;
                }
                commit(client).await?;
                Ok(redeemed)
            })
        })
        .await
}

fn session_of(row: &tokio_postgres::Row) -> Result<PageSession, Corrupt> {
    Reader::new(row, "page_session", "id").json("document")
}

pub(crate) async fn find(session: &Session, id: SessionId) -> Result<Option<PageSession>> {
    session
        .run(FIND, move |client| {
            Box::pin(async move {
                let rows = query(client, sql::SESSION_FIND, &[&Uid::from(id)]).await?;
                Ok(rows.first().map(session_of).transpose()?)
            })
        })
        .await
}

/// The statement for a list.
fn statement(scope: Option<&str>, order: Order) -> String {
    let select = "select id, document from page_session where";
    match scope {
        Some(column) => {
            format!("{select} {} $3::int8", stream(&[(column, "$4")], ("$1", "$2"), order))
        }
        None => {
            let direction = match order {
                Order::NewestFirst => "desc",
                Order::OldestFirst => "asc",
            };
            format!("{select} id > $1 and id < $2 order by id {direction} limit $3::int8")
        }
    }
}

/// All of them, for the test that asks for their plans.
pub(crate) fn statements(order: Order) -> Vec<(String, String)> {
    let scopes = [None, Some("tenant"), Some("realm")].into_iter();
    let named = |scope| (format!("sessions by {scope:?} {order:?}"), statement(scope, order));
    scopes.map(named).collect()
}

pub(crate) async fn list(
    session: &Session,
    filter: SessionFilter,
    listing: Listing,
) -> Result<Page<PageSession>> {
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
    filter: &SessionFilter,
    listing: &Listing,
) -> Outcome<Page<PageSession>> {
    let Some((low, high)) = filter.ids(listing) else { return Ok(Page::empty()) };
    // Statements leave the bounds out; nobody has the first or the last id there could be.
    let bits = |id: SessionId| u128::from_be_bytes(*id.as_bytes());
    let low = Uid(bits(low).saturating_sub(1).to_be_bytes());
    let high = Uid(bits(high).saturating_add(1).to_be_bytes());
    let looks = limit(filter.looks(listing));
    let tenant = filter.tenant.map(Uid::from);
    let realm = filter.realm.as_ref().map(|realm| realm.as_str());
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
    let rows = query(client, &statement(scope, listing.order), &params).await?;
    let found = rows.iter().map(session_of).collect::<Result<Vec<PageSession>, Corrupt>>()?;
    Ok(session_page(filter, listing, found))
}

pub(crate) async fn count(session: &Session, tenant: TenantId, at: Timestamp) -> Result<u64> {
    session
        .run(COUNT, move |client| {
            Box::pin(async move {
                let params: [Param<'_>; 2] = [&Uid::from(tenant), &at.as_millis()];
                let rows = query(client, sql::SESSION_COUNT, &params).await?;
                let count: i64 = rows.first().map_or(Ok(0), |row| row.try_get(0))?;
                Ok(u64::try_from(count).unwrap_or_default())
            })
        })
        .await
}

pub(crate) async fn end(session: &Session, which: EndSessions, along: Along) -> Result<u64> {
    told::prepare(session, &along.told).await?;
    let asked = Arc::new((which, along));
    session
        .run(END, move |client| {
            let asked = Arc::clone(&asked);
            Box::pin(async move {
                let (which, along) = &*asked;
                begin(client).await?;
                audit::hold(client, &[&along.told]).await?;
                let ended = remove(client, which).await?;
                if ended > 0 {
                    audit::write(client, along).await?;
                }
                commit(client).await?;
                Ok(ended)
            })
        })
        .await
}

async fn remove(client: &Object, which: &EndSessions) -> Outcome<u64> {
    match which {
        EndSessions::One(id) => {
            let params: [Param<'_>; 2] = [&Uid::from(*id), &None::<&str>];
            execute(client, sql::SESSION_END, &params).await
        }
        EndSessions::OfKey(key) => execute(client, sql::SESSIONS_OF_KEY, &[&Uid::from(*key)]).await,
        EndSessions::Labelled(tenant, label) => {
            let params: [Param<'_>; 2] = [&Uid::from(*tenant), &text(label)];
            execute(client, sql::SESSIONS_LABELLED, &params).await
        }
        EndSessions::OfTenant(tenant) => {
            let params: [Param<'_>; 2] = [&Uid::from(*tenant), &i64::MAX];
            execute(client, sql::SESSIONS_OF_TENANT, &params).await
        }
    }
}

/// Removes sessions of a tenant that is being deleted; how many.
pub(crate) async fn forget(client: &Object, tenant: Uid, most: i64) -> Outcome<usize> {
    let removed = execute(client, sql::SESSIONS_OF_TENANT, &[&tenant, &most]).await?;
    Ok(usize::try_from(removed).unwrap_or(usize::MAX))
}

pub(crate) async fn prune(session: &Session, before: Timestamp, most: usize) -> Result<usize> {
    session
        .run(PRUNE, move |client| {
            Box::pin(async move {
                let params: [Param<'_>; 2] = [&before.as_millis(), &limit(most)];
                begin(client).await?;
                let removed = execute(client, sql::PRUNE_SESSIONS, &params).await?;
                commit(client).await?;
                Ok(usize::try_from(removed).unwrap_or(usize::MAX))
            })
        })
        .await
}
