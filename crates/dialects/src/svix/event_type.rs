//! Event types: entries of the realm's catalogue. Deleting one archives it, unless it is to be gone for good.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use posthorn_domain::{EventType, KnownType, SchemaVersion, TenantId, check_feature_flags};
use posthorn_engine::{Error, Import, TypeFilter};
use serde_json::{Map, Value, json};

use super::body::{Given, Object};
use super::call::{Answer, Call, created, nothing, ok};
use super::failure::Failure;
use super::once::Seed;
use super::page::{Paging, list as shown_list};

/// Entries that are looked at for one page. A realm has no more.
const ALL: usize = 10_000;

fn view(known: &KnownType, with_content: bool) -> Value {
    let mut view = json!({
        "name": known.name,
        "description": known.description,
        "archived": known.archived,
        "deprecated": known.deprecated,
        "createdAt": super::id::time(known.created_at),
        "updatedAt": super::id::time(known.updated_at),
    });
    view["schemas"] = match with_content && !known.schemas.is_empty() {
        true => json!(known.schemas),
        false => Value::Null,
    };
    if let Some(first) = known.feature_flags.first() {
        // Former clients know one.
        view["featureFlag"] = json!(first);
        view["featureFlags"] = json!(known.feature_flags);
    }
    if let Some(group) = &known.group {
        view["groupName"] = json!(group);
    }
    view
}

fn find(call: &Call, name: &str) -> Result<Arc<KnownType>, Failure> {
    let name = EventType::new(name).map_err(|_| Failure::NotFound)?;
    let known = call.service.engine.catalog().event_type(&call.caller.realm, &name)?;
    if call.caller.sees(&known) { Ok(known) } else { Err(Failure::NotFound) }
}

/// `GET /event-type`.
pub(super) fn list(call: &Call) -> Answer {
    let paging = Paging::ordered(&call.query, true)?;
    let with_content = call.query.flag("with_content")?.unwrap_or(false);
    let archived = call.query.flag("include_archived")?.unwrap_or(false);
    let filter = TypeFilter { archived: (!archived).then_some(false), ..TypeFilter::default() };
    let catalog = call.service.engine.catalog();
    let (mut all, _) = catalog.event_types(&call.caller.realm, &filter, None, ALL);
    all.retain(|known| call.caller.sees(known));
    if !paging.ascending {
        all.reverse();
    }
    let (found, done) = paging.cut(all, |known| known.name.to_string());
    let end = |known: Option<&Arc<KnownType>>| known.map(|known| known.name.to_string());
    let (first, last) = (end(found.first()), end(found.last()));
    let data = found.iter().map(|known| view(known, with_content)).collect();
    ok(&shown_list(data, done, first, last))
}

/// What somebody says about an event type.
struct Contents {
    description: Option<String>,
    group: Option<Option<String>>,
    schemas: Option<BTreeMap<SchemaVersion, Value>>,
    archived: Option<bool>,
    deprecated: Option<bool>,
    flags: Option<BTreeSet<String>>,
}

impl Contents {
    fn read(body: &mut Object, change: bool) -> Self {
        let description = match change {
            true => body.text("description").or_absent(),
            false => Some(body.needed("description")),
        };
        let group = body.text("groupName").change();
        let archived = body.flag("archived").or_absent();
        let deprecated = body.flag("deprecated").or_absent();
        let schemas = match body.value("schemas") {
            Given::Absent => None,
            Given::Null => Some(BTreeMap::new()),
            Given::Some(Value::Object(versions)) => read_schemas(body, versions),
            Given::Some(_) => {
                body.refuse("schemas", "must be an object of JSON Schemas by version");
                None
            }
        };
        let flags = read_flags(body);
        Self { description, group, schemas, archived, deprecated, flags }
    }

    /// The entry with what was said, whole or as a change of what was there.
    fn put(self, old: Option<&KnownType>, new: &KnownType, whole: bool) -> KnownType {
        let base = match old {
            Some(old) if !whole => old.clone(),
            Some(old) => KnownType { created_at: old.created_at, ..new.clone() },
            None => new.clone(),
        };
        let schemas = self.schemas.unwrap_or(base.schemas);
        KnownType {
            description: self.description.unwrap_or(base.description),
            group: self.group.unwrap_or(base.group),
            examples: examples(&schemas).unwrap_or(base.examples),
            schemas,
            archived: self.archived.unwrap_or(base.archived),
            deprecated: self.deprecated.unwrap_or(base.deprecated),
            feature_flags: self.flags.unwrap_or(base.feature_flags),
            updated_at: new.updated_at,
            ..base
        }
    }
}

/// Which applications may know of it. Former clients give one flag.
fn read_flags(body: &mut Object) -> Option<BTreeSet<String>> {
    let former = body.text("featureFlag").change().map(BTreeSet::from_iter);
    let flags = body.set("featureFlags", None).change().map(Option::unwrap_or_default);
    let flags = flags.or(former)?;
    if let Err(problem) = check_feature_flags(&flags) {
        body.refuse("featureFlags", problem);
    }
    Some(flags)
}

/// Versions are numbers, as everybody writes them.
fn read_schemas(
    body: &mut Object,
    versions: Map<String, Value>,
) -> Option<BTreeMap<SchemaVersion, Value>> {
    let mut schemas = BTreeMap::new();
    for (version, schema) in versions {
        match SchemaVersion::try_from(version) {
            Ok(version) => drop(schemas.insert(version, schema)),
            Err(error) => {
                body.refuse("schemas", error.to_string());
                return None;
            }
        }
    }
    Some(schemas)
}

/// The examples of the newest schema, which is where clients write them.
pub(super) fn examples(schemas: &BTreeMap<SchemaVersion, Value>) -> Option<Vec<Value>> {
    let (_, newest) = schemas.last_key_value()?;
    newest.get("examples")?.as_array().cloned()
}

fn fresh(call: &Call, name: EventType) -> KnownType {
    let now = call.service.engine.now();
    KnownType {
        realm: call.caller.realm.clone(),
        name,
        description: String::new(),
        group: None,
        schemas: BTreeMap::new(),
        examples: Vec::new(),
        archived: false,
        deprecated: false,
        feature_flags: BTreeSet::new(),
        created_at: now,
        updated_at: now,
    }
}

fn read_name(text: &str, place: &[&str]) -> Result<EventType, Failure> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let name = EventType::new(text).ok().filter(|_| text.chars().all(plain));
    name.ok_or_else(|| {
        let problem = format!("must be 1 to {} characters of A-Z a-z 0-9 - _ .", EventType::MAX);
        Failure::at(place, problem, super::failure::VALUE)
    })
}

/// `POST /event-type`: new, or an archived one that comes back.
pub(super) async fn create(mut call: Call, seed: Option<Seed>) -> Answer {
    let mut body = call.object(TenantId::DEFAULT).await?;
    let name = body.needed("name");
    let contents = Contents::read(&mut body, false);
    body.done()?;
    let name = read_name(&name, &["body", "name"])?;
    let old = find(&call, name.as_str()).ok();
    // What an earlier try of the same request has made is what is asked for.
    let again = |old: &KnownType| seed.is_some_and(|seed| seed.is_again(old.created_at));
    if let Some(old) = old.as_deref().filter(|old| !old.archived && !again(old)) {
        let detail = format!("An event type with the name {} already exists.", old.name);
        return Err(Failure::Conflict { code: "event_type_exists", detail });
    }
    let mut new = fresh(&call, name);
    if let (Some(seed), None) = (seed, &old) {
        new.created_at = seed.at();
    }
    let known = contents.put(old.as_deref(), &new, true);
    let known = KnownType { archived: false, ..known };
    created(&view(&*call.service.engine.put_event_type(known).await?, true))
}

/// `GET /event-type/{name}`.
pub(super) fn get(call: &Call, name: &str) -> Answer {
    ok(&view(&*find(call, name)?, true))
}

/// `PUT /event-type/{name}`.
pub(super) async fn put(mut call: Call, name: &str) -> Answer {
    let mut body = call.object(TenantId::DEFAULT).await?;
    let contents = Contents::read(&mut body, false);
    body.done()?;
    let name = read_name(name, &["path", "event_type_name"])?;
    let old = find(&call, name.as_str()).ok();
    let known = contents.put(old.as_deref(), &fresh(&call, name), true);
    let view = view(&*call.service.engine.put_event_type(known).await?, true);
    if old.is_some() { ok(&view) } else { created(&view) }
}

/// `PATCH /event-type/{name}`.
pub(super) async fn patch(mut call: Call, name: &str) -> Answer {
    let old = find(&call, name)?;
    let mut body = call.object(TenantId::DEFAULT).await?;
    let contents = Contents::read(&mut body, true);
    body.done()?;
    let known = contents.put(Some(&old), &fresh(&call, old.name.clone()), false);
    ok(&view(&*call.service.engine.put_event_type(known).await?, true))
}

/// `DELETE /event-type/{name}`: archived, or gone for good.
pub(super) async fn delete(call: &Call, name: &str) -> Answer {
    let old = find(call, name)?;
    let engine = &call.service.engine;
    if call.query.flag("expunge")?.unwrap_or(false) {
        engine.delete_event_type(old.realm.clone(), old.name.clone()).await?;
    } else {
        let updated_at = engine.now();
        let archived = KnownType { archived: true, updated_at, ..(*old).clone() };
        engine.put_event_type(archived).await?;
    }
    Ok(nothing())
}

/// `POST /event-type/import/openapi`.
pub(super) async fn import(mut call: Call) -> Answer {
    let mut body = call.object(TenantId::DEFAULT).await?;
    let (spec, raw) = (body.value("spec").or_absent(), body.text("specRaw").or_absent());
    let dry_run = body.flag("dryRun").or_absent().unwrap_or(false);
    let replace_all = body.flag("replaceAll").or_absent().unwrap_or(false);
    body.done()?;
    let document = match (spec, raw) {
        (Some(spec), None) => spec,
        (None, Some(raw)) => serde_json::from_str(&raw).map_err(|error| {
            Failure::field("specRaw", format!("must be an OpenAPI document as JSON: {error}"))
        })?,
        _ => {
            let detail = "Exactly one of spec and specRaw must be given.";
            return Err(Failure::bad_request("generic_error", detail));
        }
    };
    let import = Import { realm: call.caller.realm.clone(), document, replace_all, dry_run };
    let imported = call.service.engine.import_event_types(import).await.map_err(|e| match e {
        Error::Schema { field, problem } => Failure::field(&field, problem),
        other => other.into(),
    })?;
    let lists = [imported.created, imported.changed, imported.archived];
    let touched: Vec<EventType> = lists.into_iter().flatten().collect();
    let data = match dry_run {
        true => {
            let to_modify: Vec<Value> = touched
                .iter()
                .map(|name| json!({"name": name, "description": "", "schemas": null}))
                .collect();
            json!({"modified": [], "to_modify": to_modify})
        }
        false => json!({"modified": touched}),
    };
    ok(&json!({"data": data}))
}
