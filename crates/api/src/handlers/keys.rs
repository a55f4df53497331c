//! Tenants and keys, for operators.

use std::sync::Arc;

use http::StatusCode;
use posthorn_access::find_tenant;
use posthorn_domain::{KeyId, Scope, Tenant, TenantId, Timestamp, TopicName};
use posthorn_engine::{KnownKey, Resealed};
use serde::{Deserialize, Serialize};

use super::scopes::{self, ScopeInput};
use super::{check_description, page};
use crate::call::{Answer, Call};
use crate::cursor::{self, List};
use crate::problem::{Problem, Result};
use crate::respond;
use crate::wire::{KeyView, TenantView};

/// `GET /v1/tenants`.
pub(crate) async fn list_tenants(call: Call) -> Answer {
    let after = call.query.text("cursor").map(|text| cursor::decode_id(List::Tenants, text));
    let after = after.transpose()?.map(TenantId::from_bytes);
    let tenants = call.engine().catalog().tenants();
    respond::ok(&page::<_, TenantView<'_>>(
        &tenants,
        List::Tenants,
        call.query.limit()?,
        |tenant: &Tenant| after.is_none_or(|after| tenant.id > after),
        |tenant| tenant.id.as_bytes().to_vec(),
    ))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewTenant {
    name: String,
}

/// `POST /v1/tenants`.
pub(crate) async fn create_tenant(mut call: Call) -> Answer {
    let NewTenant { name } = call.json().await?;
    check_tenant_name(&name)?;
    let tenant = call.engine().create_tenant(name).await?;
    let place = format_args!("/v1/tenants/{}", tenant.id).to_string();
    respond::created(place, &TenantView::from(&tenant))
}

/// A tenant's name is sent in a header and stands beside ids there, so it must look like neither a
/// header's delimiter nor an id.
fn check_tenant_name(name: &str) -> Result<()> {
    if TopicName::new(name).is_err() || name.starts_with("ten_") {
        let detail = "a tenant name must be 1 to 128 characters of A-Z a-z 0-9 . _ - : / and must \
                      not begin with ten_";
        return Err(Problem::field("name", detail));
    }
    Ok(())
}

/// `GET /v1/tenants/{id}`.
pub(crate) async fn one_tenant(mut call: Call) -> Answer {
    let text: String = call.named("tenant").await?;
    let id = find_tenant(call.engine(), &text).ok_or_else(|| Problem::not_found("tenant"))?;
    respond::ok(&TenantView::from(&call.engine().catalog().tenant(id)?))
}

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
    scopes: Vec<ScopeInput>,
    #[serde(default)]
    description: String,
    expires_at: Option<Timestamp>,
    rate_limit: Option<u32>,
}

/// `POST /v1/keys`.
pub(crate) async fn create(mut call: Call) -> Answer {
    let NewKey { tenant, scopes, description, expires_at, rate_limit } = call.json().await?;
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
    let refuse = |detail: &'static str| Err(Problem::field("tenant", detail));
    let tenant = match (tenant, scopes.contains(&Scope::Operator)) {
        (None, true) => None,
        (Some(_), true) => return refuse("a key with scope operator has no tenant"),
        (None, false) => return refuse("a key without scope operator needs a tenant"),
        (Some(text), false) => match find_tenant(engine, &text) {
            Some(tenant) => Some(tenant),
            None => return refuse("there is no such tenant"),
        },
    };
    let made = engine.create_key(tenant, scopes, description, expires_at, rate_limit).await?;
    let mut view = KeyView::from(&made.key);
    view.key = Some(&made.text);
    respond::json(StatusCode::CREATED, &view)
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
