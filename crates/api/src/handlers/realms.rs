//! Realms, for operators.

use std::sync::Arc;

use http::StatusCode;
use posthorn_domain::{Realm, RealmDefaults, RealmName, Timestamp, Validation};
use posthorn_engine::RealmContents;
use serde::{Deserialize, Serialize};

use super::{check_description, page};
use crate::call::{Answer, Call};
use crate::cursor::{self, List};
use crate::problem::Problem;
use crate::respond;

#[derive(Serialize)]
struct RealmView<'a> {
    name: &'a RealmName,
    description: &'a str,
    defaults: &'a RealmDefaults,
    validation: Validation,
    created_at: Timestamp,
    updated_at: Timestamp,
}

impl<'a> From<&'a Arc<Realm>> for RealmView<'a> {
    fn from(realm: &'a Arc<Realm>) -> Self {
        Self {
            name: &realm.name,
            description: &realm.description,
            defaults: &realm.defaults,
            validation: realm.validation,
            created_at: realm.created_at,
            updated_at: realm.updated_at,
        }
    }
}

/// `GET /v1/realms`.
pub(crate) async fn list(call: Call) -> Answer {
    let after = call.query.text("cursor").map(|text| cursor::decode(List::Realms, text));
    let after = after.transpose()?.unwrap_or_default();
    let realms = call.engine().catalog().realms();
    respond::ok(&page::<_, RealmView<'_>>(
        &realms,
        List::Realms,
        call.query.limit()?,
        |realm| realm.name.as_str().as_bytes() > after.as_slice(),
        |realm| realm.name.as_str().as_bytes().to_vec(),
    ))
}

/// `GET /v1/realms/{name}`.
pub(crate) async fn one(mut call: Call) -> Answer {
    let name: RealmName = call.named("realm").await?;
    respond::ok(&RealmView::from(&call.engine().catalog().realm(&name)?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    #[serde(default)]
    description: String,
    #[serde(default)]
    defaults: RealmDefaults,
    #[serde(default)]
    validation: Validation,
}

/// `PUT /v1/realms/{name}`.
pub(crate) async fn put(mut call: Call) -> Answer {
    let text: String = call.named("realm").await?;
    let name = RealmName::new(&text).map_err(|e| Problem::field("name", e.to_string()))?;
    let Contents { description, defaults, validation } = call.json().await?;
    check_description(&description)?;
    let contents = RealmContents { description, defaults, validation };
    let realm = call.engine().put_realm(name, contents).await?;
    respond::ok(&RealmView::from(&realm))
}

/// `DELETE /v1/realms/{name}`.
pub(crate) async fn delete(mut call: Call) -> Answer {
    let name: RealmName = call.named("realm").await?;
    call.engine().delete_realm(name).await?;
    Ok(respond::empty(StatusCode::NO_CONTENT))
}
