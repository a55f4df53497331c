//! Keys, for operators.

use std::sync::Arc;

use http::StatusCode;
use posthorn_access::find_tenant;
use posthorn_domain::{KeyId, RealmName, Scope, Timestamp};
use posthorn_engine::{Bound, KnownKey, Resealed};
use serde::{Deserialize, Serialize};

use super::scopes::{self, ScopeInput};
use super::{check_description, page};
use crate::call::{Answer, Call};
use crate::cursor::{self, List};
use crate::problem::{Problem, Result};
use crate::respond;
use crate::wire::KeyView;

/// `GET /v1/keys`.
pub(crate) async fn list(call: Call) -> Answer {
    let after = call.query.text("cursor").map(|text| cursor::decode_id(List::Keys, text));
    let after = after.transpose()?.map(KeyId::from_bytes);
    let keys = call.engine().catalog().keys();
    let mut page = page::<_, KeyView<'_>>(
        &keys,
        List::Keys,
        call.query.limit()?,
        |key: &Arc<KnownKey>| after.is_none_or(|after| key.id > after),
        |key| key.id.as_bytes().to_vec(),
    );
    let used = call.engine().keys_used().await?;
    for view in &mut page.items {
        view.last_used_at = used.get(&view.id).copied();
    }
    respond::ok(&page)
}

/// `GET /v1/keys/{id}`.
pub(crate) async fn one(mut call: Call) -> Answer {
    let id: KeyId = call.named("key").await?;
    let key = call.engine().catalog().key(id).ok_or_else(|| Problem::not_found("key"))?;
    let used = call.engine().keys_used().await?;
    let mut view = KeyView::from(&key);
    view.last_used_at = used.get(&id).copied();
    respond::ok(&view)
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewKey {
    tenant: Option<String>,
    realm: Option<RealmName>,
    scopes: Vec<ScopeInput>,
    #[serde(default)]
    description: String,
    expires_at: Option<Timestamp>,
    rate_limit: Option<u32>,
}

/// `POST /v1/keys`.
pub(crate) async fn create(mut call: Call) -> Answer {
    let NewKey { tenant, realm, scopes, description, expires_at, rate_limit } = call.json().await?;
    let engine = call.engine();
    check_description(&description)?;
    let scopes = scopes::distinct(scopes);
    if scopes.is_empty() {
        return Err(Problem::field("scopes", "a key needs at least one scope"));
    }
    if expires_at.is_some_and(|at| at <= engine.now()) {
        return Err(Problem::field("expires_at", "must be in the future"));
    }
    if rate_limit == Some(0) {
        return Err(Problem::field("rate_limit", "must be at least 1"));
    }
    let bound = bound(&call, tenant.as_deref(), realm, scopes.contains(&Scope::Operator))?;
    let made = engine.create_key(bound, scopes, description, expires_at, rate_limit).await?;
    let mut view = KeyView::from(&made.key);
    view.key = Some(&made.text);
    respond::json(StatusCode::CREATED, &view)
}

/// Whom a new key is to act for.
fn bound(
    call: &Call,
    tenant: Option<&str>,
    realm: Option<RealmName>,
    operator: bool,
) -> Result<Bound> {
    let refuse = |field: &'static str, detail: &'static str| Err(Problem::field(field, detail));
    match (tenant, realm) {
        (None, None) if operator => Ok(Bound::Nobody),
        (None, None) => refuse("tenant", "a key without scope operator needs a tenant or a realm"),
        (Some(_), Some(_)) => refuse("realm", "a key has a tenant or a realm, not both"),
        (Some(_), None) if operator => refuse("tenant", "a key with scope operator has no tenant"),
        (None, Some(_)) if operator => refuse("realm", "a key with scope operator has no realm"),
        (Some(text), None) => match find_tenant(call.engine(), text) {
            Some(tenant) if tenant.deletion.is_none() => Ok(Bound::Tenant(tenant.id)),
            _ => refuse("tenant", "there is no such tenant"),
        },
        (None, Some(realm)) => match call.engine().catalog().realm(&realm) {
            Ok(realm) => Ok(Bound::Realm(realm.name.clone())),
            Err(_) => refuse("realm", "there is no such realm"),
        },
    }
}

/// `DELETE /v1/keys/{id}`.
pub(crate) async fn revoke(mut call: Call) -> Answer {
    let id = call.named("key").await?;
    call.engine().revoke_key(id).await?;
    Ok(respond::empty(StatusCode::NO_CONTENT))
}

/// Subscriptions whose secrets are sealed anew by one request: bounded work, and progress to show.
const RESEALED_AT_ONCE: usize = 100;

#[derive(Serialize)]
struct SealRotation {
    key: String,
    total: usize,
    resealed: usize,
    remaining: usize,
    unopenable: usize,
}

/// `POST /v1/seal/rotate`.
pub(crate) async fn rotate_seal(call: Call) -> Answer {
    let Resealed { key, total, resealed, remaining, unopenable } =
        call.engine().reseal(RESEALED_AT_ONCE).await?;
    respond::ok(&SealRotation { key, total, resealed, remaining, unopenable })
}
