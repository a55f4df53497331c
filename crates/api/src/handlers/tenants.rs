//! Tenants, for operators.

mod export;

use http::StatusCode;
use posthorn_access::find_tenant;
use posthorn_domain::{
    ExternalId, Labels, Metadata, RealmName, Tenant, TenantChange, TenantId, Timestamp, TopicName,
};
use posthorn_engine::{Error as EngineError, NewTenant, TenantFilter};
use serde::{Deserialize, Serialize};

use crate::call::{Answer, Call};
use crate::cursor::{self, List};
use crate::json::given;
use crate::problem::{Problem, Result};
use crate::respond;
use crate::wire::{JobView, Page};

pub(crate) use export::export;

#[derive(Serialize)]
struct TenantView<'a> {
    id: TenantId,
    name: &'a str,
    realm: &'a RealmName,
    #[serde(skip_serializing_if = "Option::is_none")]
    external_id: Option<&'a ExternalId>,
    #[serde(skip_serializing_if = "Metadata::is_empty")]
    metadata: &'a Metadata,
    #[serde(skip_serializing_if = "Labels::is_empty")]
    labels: &'a Labels,
    #[serde(skip_serializing_if = "Option::is_none")]
    deliveries_per_second: Option<u32>,
    created_at: Timestamp,
    /// Present while it is being deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    deleting_since: Option<Timestamp>,
}

impl<'a> From<&'a Tenant> for TenantView<'a> {
    fn from(tenant: &'a Tenant) -> Self {
        Self {
            id: tenant.id,
            name: &tenant.name,
            realm: &tenant.realm,
            external_id: tenant.external_id.as_ref(),
            metadata: &tenant.metadata,
            labels: &tenant.labels,
            deliveries_per_second: tenant.deliveries_per_second,
            created_at: tenant.created_at,
            deleting_since: tenant.deletion.map(|deletion| deletion.at),
        }
    }
}

/// `GET /v1/tenants`.
pub(crate) async fn list(call: Call) -> Answer {
    let after = call.query.text("cursor").map(|text| cursor::decode_id(List::Tenants, text));
    let after = after.transpose()?.map(TenantId::from_bytes);
    let filter = TenantFilter {
        realm: call.query.value("realm")?,
        external_id: call.query.value("external_id")?,
        name_prefix: call.query.text("name_prefix").map(str::to_owned),
    };
    let (found, more) = call.engine().catalog().tenants_page(&filter, after, call.query.limit()?);
    let last = found.last().filter(|_| more);
    let next = last.map(|tenant| cursor::encode(List::Tenants, tenant.id.as_bytes()));
    respond::ok(&Page::forward(found.iter().map(TenantView::from).collect(), next))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct New {
    name: String,
    realm: Option<RealmName>,
    external_id: Option<ExternalId>,
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    labels: Labels,
    deliveries_per_second: Option<u32>,
}

/// `POST /v1/tenants`.
pub(crate) async fn create(mut call: Call) -> Answer {
    let New { name, realm, external_id, metadata, labels, deliveries_per_second } =
        call.json().await?;
    check_name(&name)?;
    check_rate(deliveries_per_second)?;
    let realm = realm.unwrap_or_default();
    let new =
        NewTenant { name, realm, external_id, metadata, labels, deliveries_per_second, seed: None };
    let tenant = call.engine().create_tenant_in(new).await.map_err(|e| match e {
        EngineError::NotFound("realm") => Problem::field("realm", "there is no such realm"),
        e => e.into(),
    })?;
    let place = format_args!("/v1/tenants/{}", tenant.id).to_string();
    respond::created(place, &TenantView::from(&tenant))
}

/// A tenant's name is sent in a header and stands beside ids there, so it must look like neither a
/// header's delimiter nor an id.
fn check_name(name: &str) -> Result<()> {
    if TopicName::new(name).is_err() || name.starts_with("ten_") {
        let detail = "a tenant name must be 1 to 128 characters of A-Z a-z 0-9 . _ - : / and must \
                      not begin with ten_";
        return Err(Problem::field("name", detail));
    }
    Ok(())
}

fn check_rate(rate: Option<u32>) -> Result<()> {
    match rate {
        Some(0) => Err(Problem::field("deliveries_per_second", "must be at least 1")),
        _ => Ok(()),
    }
}

/// The tenant of the path, also one that is being deleted. One that was deleted is gone.
async fn named(call: &mut Call) -> Result<Tenant> {
    let text: String = call.named("tenant").await?;
    let found = find_tenant(call.engine(), &text);
    let tenant = found.ok_or_else(|| Problem::not_found("tenant"))?;
    match call.engine().catalog().tenant_or_tombstone(tenant.id) {
        Some((_, true)) => Err(EngineError::TenantDeleted.into()),
        _ => Ok(tenant),
    }
}

/// `GET /v1/tenants/{id}`.
pub(crate) async fn one(mut call: Call) -> Answer {
    let tenant = named(&mut call).await?;
    respond::ok(&TenantView::from(&tenant))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    #[serde(default, deserialize_with = "given")]
    name: Option<String>,
    #[serde(default, deserialize_with = "given")]
    external_id: Option<Option<ExternalId>>,
    #[serde(default, deserialize_with = "given")]
    metadata: Option<Metadata>,
    #[serde(default, deserialize_with = "given")]
    labels: Option<Labels>,
    #[serde(default, deserialize_with = "given")]
    deliveries_per_second: Option<Option<u32>>,
}

/// `PATCH /v1/tenants/{id}`.
pub(crate) async fn update(mut call: Call) -> Answer {
    let tenant = named(&mut call).await?;
    let Change { name, external_id, metadata, labels, deliveries_per_second } = call.json().await?;
    name.as_deref().map_or(Ok(()), check_name)?;
    check_rate(deliveries_per_second.flatten())?;
    let change = TenantChange { name, external_id, metadata, labels, deliveries_per_second };
    let changed = call.engine().change_tenant(tenant.id, change).await?;
    respond::ok(&TenantView::from(&changed))
}

/// `DELETE /v1/tenants/{id}`.
pub(crate) async fn delete(mut call: Call) -> Answer {
    let tenant = named(&mut call).await?;
    let job = call.engine().delete_tenant(tenant.id, call.who()).await?;
    respond::json(StatusCode::ACCEPTED, &JobView::from(&job))
}

/// `GET /v1/tenants/{id}/deletion`. Also when nothing is left of the tenant, as long as the job is kept.
pub(crate) async fn deletion(mut call: Call) -> Answer {
    let text: String = call.named("tenant").await?;
    let found = find_tenant(call.engine(), &text);
    let tenant = found.ok_or_else(|| Problem::not_found("tenant"))?;
    let job = call.engine().deletion_of(tenant.id).await?;
    respond::ok(&JobView::from(&job))
}
