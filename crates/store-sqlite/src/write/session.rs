//! Sessions of pages: creating, redeeming, ending, pruning.

use posthorn_domain::{Session, SessionId, SessionKind, TenantId, Timestamp};
use posthorn_store::{Along, EndSessions, Refusal};
use rusqlite::{Connection, params};

use super::audit;
use crate::cache::Cache;
use crate::codec::{int, json};
use crate::error::Failure;
use crate::read;
use crate::sql;
use crate::writer::Writer;

/// Refuses a session that cannot be created.
fn check(conn: &Connection, cache: &Cache, session: &Session) -> Result<(), Failure> {
    if let Some(tenant) = session.tenant() {
        let known = cache.tenants.get(&tenant).filter(|tenant| !tenant.closed);
        known.ok_or(Refusal::NotFound)?;
    }
    match read::session::find(conn, session.id)? {
        Some(_) => Err(Refusal::AlreadyExists.into()),
        None => Ok(()),
    }
}

fn put(conn: &Connection, session: &Session) -> Result<(), Failure> {
    let (tenant, key) = (session.tenant(), session.opener.key());
    conn.prepare_cached(sql::SESSION_PUT)?.execute(params![
        session.id.as_bytes().as_slice(),
        session.kind.as_str(),
        tenant.as_ref().map(|tenant| tenant.as_bytes().as_slice()),
        session.realm().map(|realm| realm.as_str()),
        key.as_ref().map(|key| key.as_bytes().as_slice()),
        session.label,
        session.expires_at.as_millis(),
        json(session),
    ])?;
    Ok(())
}

/// Writes down a session or a link.
pub(crate) fn create(writer: &mut Writer, session: &Session, along: &Along) -> Result<(), Failure> {
    check(&writer.conn, &writer.cache, session)?;
    audit::check(&writer.cache, along)?;
    put(&writer.conn, session)?;
    audit::write(writer, along)
}

/// Removes a link and creates the session it is redeemed for; whether there was one.
pub(crate) fn redeem(
    writer: &mut Writer,
    link: SessionId,
    session: &Session,
    along: &Along,
) -> Result<bool, Failure> {
    let found = read::session::find(&writer.conn, link)?;
    if found.is_none_or(|found| found.kind != SessionKind::Link) {
        return Ok(false);
    }
    check(&writer.conn, &writer.cache, session)?;
    audit::check(&writer.cache, along)?;
    writer.conn.prepare_cached(sql::SESSION_END)?.execute([link.as_bytes().as_slice()])?;
    put(&writer.conn, session)?;
    audit::write(writer, along)?;
    Ok(true)
}

/// Removes those that are meant; how many.
pub(crate) fn end(writer: &mut Writer, which: &EndSessions, along: &Along) -> Result<u64, Failure> {
    audit::check(&writer.cache, along)?;
    let conn = &writer.conn;
    let ended = match which {
        EndSessions::One(id) => {
            conn.prepare_cached(sql::SESSION_END)?.execute([id.as_bytes().as_slice()])?
        }
        EndSessions::OfKey(key) => {
            conn.prepare_cached(sql::SESSIONS_OF_KEY)?.execute([key.as_bytes().as_slice()])?
        }
        EndSessions::Labelled(tenant, label) => conn
            .prepare_cached(sql::SESSIONS_LABELLED)?
            .execute(params![tenant.as_bytes().as_slice(), label])?,
        EndSessions::OfTenant(tenant) => forget(conn, *tenant, usize::MAX)?,
    };
    if ended > 0 {
        audit::write(writer, along)?;
    }
    Ok(ended as u64)
}

/// Removes sessions of a tenant; how many.
pub(crate) fn forget(conn: &Connection, tenant: TenantId, limit: usize) -> Result<usize, Failure> {
    let values = params![tenant.as_bytes().as_slice(), int(limit as u64)];
    Ok(conn.prepare_cached(sql::SESSIONS_OF_TENANT)?.execute(values)?)
}

/// Removes those whose time was over before a time; how many.
pub(crate) fn prune(conn: &Connection, before: Timestamp, limit: usize) -> Result<usize, Failure> {
    let values = params![before.as_millis(), int(limit as u64)];
    Ok(conn.prepare_cached(sql::PRUNE_SESSIONS)?.execute(values)?)
}
