//! The catalogue of event types, shared by all tenants of a realm.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use http::StatusCode;
use posthorn_domain::{
    EventType, KnownType, RealmName, SchemaVersion, Timestamp, check_feature_flags,
};
use posthorn_engine::{Import, Imported, TypeFilter};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::check_description;
use crate::call::{Answer, Call};
use crate::cursor::{self, List};
use crate::problem::Problem;
use crate::respond;
use crate::wire::Page;

#[derive(Serialize)]
struct TypeView<'a> {
    name: &'a EventType,
    realm: &'a RealmName,
    description: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<&'a str>,
    schemas: &'a BTreeMap<SchemaVersion, Value>,
    examples: &'a [Value],
    archived: bool,
    deprecated: bool,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    feature_flags: &'a BTreeSet<String>,
    created_at: Timestamp,
    updated_at: Timestamp,
}

impl<'a> From<&'a Arc<KnownType>> for TypeView<'a> {
    fn from(known: &'a Arc<KnownType>) -> Self {
        Self {
            name: &known.name,
            realm: &known.realm,
            description: &known.description,
            group: known.group.as_deref(),
            schemas: &known.schemas,
            examples: &known.examples,
            archived: known.archived,
            deprecated: known.deprecated,
            feature_flags: &known.feature_flags,
            created_at: known.created_at,
            updated_at: known.updated_at,
        }
    }
}

/// `GET /v1/event-types`.
pub(crate) async fn list(call: Call) -> Answer {
    let realm = call.realm()?;
    let after = call.query.text("cursor").map(|text| cursor::decode(List::EventTypes, text));
    let after = after.transpose()?.and_then(|bytes| String::from_utf8(bytes).ok());
    let after = after.and_then(|text| EventType::new(&text).ok());
    let filter = TypeFilter {
        group: call.query.text("group").map(str::to_owned),
        archived: call.query.flag("archived")?,
        prefix: call.query.text("prefix").map(str::to_owned),
    };
    let catalog = call.engine().catalog();
    let (found, more) = catalog.event_types(&realm, &filter, after.as_ref(), call.query.limit()?);
    let last = found.last().filter(|_| more);
    let next = last.map(|known| cursor::encode(List::EventTypes, known.name.as_str().as_bytes()));
    respond::ok(&Page::forward(found.iter().map(TypeView::from).collect(), next))
}

/// `GET /v1/event-types/{name}`.
pub(crate) async fn one(mut call: Call) -> Answer {
    let name: EventType = call.named("event type").await?;
    let realm = call.realm()?;
    respond::ok(&TypeView::from(&call.engine().catalog().event_type(&realm, &name)?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    #[serde(default)]
    description: String,
    group: Option<String>,
    #[serde(default)]
    schemas: BTreeMap<SchemaVersion, Value>,
    #[serde(default)]
    examples: Vec<Value>,
    #[serde(default)]
    archived: bool,
    #[serde(default)]
    deprecated: bool,
    feature_flags: Option<BTreeSet<String>>,
}

/// `PUT /v1/event-types/{name}`.
pub(crate) async fn put(mut call: Call) -> Answer {
    let text: String = call.named("event type").await?;
    let name = EventType::new(&text).map_err(|e| Problem::field("name", e.to_string()))?;
    let realm = call.realm_to_change()?;
    let contents: Contents = call.json().await?;
    let Contents { description, group, schemas, examples, archived, deprecated, feature_flags } =
        contents;
    check_description(&description)?;
    let now = call.engine().now();
    let feature_flags = match feature_flags {
        Some(flags) => {
            check_feature_flags(&flags)
                .map_err(|problem| Problem::field("feature_flags", problem))?;
            flags
        }
        // Often said elsewhere only; they stay.
        None => {
            let old = call.engine().catalog().event_type(&realm, &name);
            old.map(|old| old.feature_flags.clone()).unwrap_or_default()
        }
    };
    let known = KnownType {
        realm,
        name,
        description,
        group,
        schemas,
        examples,
        archived,
        deprecated,
        feature_flags,
        created_at: now,
        updated_at: now,
    };
    respond::ok(&TypeView::from(&call.engine().put_event_type(known).await?))
}

/// `DELETE /v1/event-types/{name}`.
pub(crate) async fn delete(mut call: Call) -> Answer {
    let name: EventType = call.named("event type").await?;
    let realm = call.realm_to_change()?;
    call.engine().delete_event_type(realm, name).await?;
    Ok(respond::empty(StatusCode::NO_CONTENT))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewImport {
    document: Value,
    #[serde(default)]
    replace_all: bool,
    #[serde(default)]
    dry_run: bool,
}

#[derive(Serialize)]
struct ImportedView {
    dry_run: bool,
    created: Vec<EventType>,
    changed: Vec<EventType>,
    archived: Vec<EventType>,
    unchanged: Vec<EventType>,
}

/// `POST /v1/event-types/import`.
pub(crate) async fn import(mut call: Call) -> Answer {
    let realm = call.realm_to_change()?;
    let NewImport { document, replace_all, dry_run } = call.json().await?;
    let import = Import { realm, document, replace_all, dry_run };
    let imported = call.engine().import_event_types(import).await?;
    let Imported { created, changed, archived, unchanged } = imported;
    respond::ok(&ImportedView { dry_run, created, changed, archived, unchanged })
}
