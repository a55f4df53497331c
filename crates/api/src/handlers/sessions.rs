//! Sessions of pages: who is in, and how to have them leave. Tokens are never shown.

use http::StatusCode;
use posthorn_access::TENANT_HEADER;
use posthorn_domain::{
    Capability, CertificateId, KeyId, RealmName, Scope, Session, SessionId, SessionKind, TenantId,
    Timestamp,
};
use posthorn_store::SessionFilter;
use serde::Serialize;

use crate::call::{Answer, Call};
use crate::cursor::{List, Paging};
use crate::problem::{Problem, Result};
use crate::respond;

#[derive(Serialize)]
struct View<'a> {
    id: SessionId,
    kind: SessionKind,
    name: &'a str,
    tenant: Option<TenantId>,
    realm: Option<&'a RealmName>,
    scopes: &'a [Scope],
    capabilities: &'a [Capability],
    label: Option<&'a str>,
    return_url: Option<&'a str>,
    opener: &'static str,
    key: Option<String>,
    created_at: Timestamp,
    expires_at: Timestamp,
}

/// The id of the key, or of the certificate that stands in its place.
fn bearer(call: &Call, key: KeyId) -> String {
    match call.engine().catalog().key(key) {
        Some(_) => key.to_string(),
        None => CertificateId::from_bytes(*key.as_bytes()).to_string(),
    }
}

fn view<'a>(call: &Call, session: &'a Session) -> View<'a> {
    View {
        id: session.id,
        kind: session.kind,
        name: &session.name,
        tenant: session.tenant(),
        realm: session.realm(),
        scopes: &session.scopes,
        capabilities: &session.capabilities,
        label: session.label.as_deref(),
        return_url: session.back.as_deref(),
        opener: session.opener.as_str(),
        key: session.opener.key().map(|key| bearer(call, key)),
        created_at: session.created_at,
        expires_at: session.expires_at,
    }
}

/// The tenant whose sessions are meant. Operators who name none mean all of them, their own included.
fn whose(call: &Call) -> Option<TenantId> {
    let all = call.is_operator() && !call.parts.headers.contains_key(TENANT_HEADER);
    (!all).then(|| call.tenant())
}

/// `GET /v1/sessions`.
pub(crate) async fn list(call: Call) -> Answer {
    let filter = SessionFilter {
        kind: call.query.value::<SessionKind>("kind")?,
        tenant: whose(&call),
        realm: None,
        label: call.query.text("label").map(str::to_owned),
        unexpired_at: Some(call.engine().now()),
    };
    let paging = Paging::read(List::Sessions, &call.query)?;
    let page = call.engine().sessions(filter, paging.listing()).await?;
    let mut shown = paging.show(page);
    let sessions = std::mem::take(&mut shown.items);
    respond::ok(&shown.page(sessions.iter().map(|session| view(&call, session)).collect()))
}

/// `DELETE /v1/sessions/{id}`.
pub(crate) async fn end(mut call: Call) -> Answer {
    let id: SessionId = call.named("session").await?;
    let session = call.engine().session(id).await?;
    if whose(&call).is_some_and(|tenant| session.tenant() != Some(tenant)) {
        return Err(Problem::not_found("session"));
    }
    call.engine().end_session(id).await?;
    Ok(respond::empty(StatusCode::NO_CONTENT))
}

#[derive(Serialize)]
struct Ended {
    ended: u64,
}

/// `DELETE /v1/sessions?label=…`.
pub(crate) async fn end_labelled(call: Call) -> Answer {
    let label = label(&call)?;
    let ended = call.engine().end_labelled_sessions(call.tenant(), label).await?;
    respond::ok(&Ended { ended })
}

fn label(call: &Call) -> Result<&str> {
    let missing = || Problem::field("label", "must be given: sessions with this label are ended");
    call.query.text("label").ok_or_else(missing)
}
