//! Clients of dialects: who signs with which secret, and may do what, as it is said at run time. Only
//! operators change them: whoever could make clients could give themselves rights they do not have.

use http::StatusCode;
use posthorn_domain::{ClientName, Timestamp};
use posthorn_engine::{ClientChange, ClientView};
use posthorn_sealing::vault::Secret;
use serde::{Deserialize, Deserializer, Serialize};

use crate::call::{Answer, Call};
use crate::problem::Problem;
use crate::respond;
use crate::wire::Page;

#[derive(Serialize)]
pub(crate) struct ClientBody<'a> {
    name: &'a ClientName,
    has_secret: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    scopes: Option<&'a [String]>,
    updated_at: Timestamp,
}

impl<'a> From<&'a ClientView> for ClientBody<'a> {
    fn from(view: &'a ClientView) -> Self {
        Self {
            name: &view.client.name,
            has_secret: view.client.sealed_secret.is_some(),
            scopes: view.client.scopes.as_deref(),
            updated_at: view.client.updated_at,
        }
    }
}

/// `GET /v1/clients`.
pub(crate) async fn list(call: Call) -> Answer {
    let clients = call.engine().catalog().clients(call.tenant());
    let items = clients.iter().map(|view| ClientBody::from(&**view)).collect();
    respond::ok(&Page::forward(items, None))
}

/// `GET /v1/clients/{name}`.
pub(crate) async fn one(mut call: Call) -> Answer {
    let name: ClientName = call.named("client").await?;
    let found = call.engine().catalog().client(call.tenant(), &name);
    let view = found.ok_or_else(|| Problem::not_found("client"))?;
    respond::ok(&ClientBody::from(&*view))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    secret: Option<String>,
    /// Absent: as before; null: as the configuration has it.
    #[serde(default, deserialize_with = "said")]
    scopes: Option<Option<Vec<String>>>,
}

fn said<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Option<Vec<String>>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// `PUT /v1/clients/{name}`.
pub(crate) async fn put(mut call: Call) -> Answer {
    let tenant = call.named_tenant()?;
    let text: String = call.named("client").await?;
    let name = ClientName::new(&text).map_err(|e| Problem::field("name", e.to_string()))?;
    let Contents { secret, scopes } = call.json().await?;
    let change = ClientChange { secret: secret.map(Secret::from), scopes };
    let (view, _) = call.engine().put_client(tenant, &name, change).await?;
    respond::ok(&ClientBody::from(&*view))
}

/// `DELETE /v1/clients/{name}`.
pub(crate) async fn delete(mut call: Call) -> Answer {
    let tenant = call.named_tenant()?;
    let name: ClientName = call.named("client").await?;
    call.engine().delete_client(tenant, &name).await?;
    Ok(respond::empty(StatusCode::NO_CONTENT))
}
