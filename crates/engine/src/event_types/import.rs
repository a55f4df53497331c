//! Event types from the `webhooks` of an OpenAPI 3.1 document.
//!
//! What an event type needs is taken out of the document as a whole: a schema that refers to the document's components
//! gets them as definitions of its own.

use std::collections::{BTreeMap, BTreeSet};

use posthorn_domain::{EventType, KnownType, RealmName, SchemaVersion, Timestamp};
use posthorn_store::CatalogChange;
use serde_json::{Map, Value};

use super::check;
use crate::catalog::TypeFilter;
use crate::engine::Engine;
use crate::error::{Error, Result};

/// Webhooks of one document.
const WEBHOOKS_MAX: usize = 1_000;
/// Where schemas are in a document.
const SCHEMAS: &str = "#/components/schemas/";
/// Operations of a path, the usual one of a webhook first.
const METHODS: [&str; 8] = ["post", "put", "patch", "get", "delete", "options", "head", "trace"];

/// A document to be taken in.
#[derive(Clone, Debug)]
pub struct Import {
    /// Whose catalogue.
    pub realm: RealmName,
    /// The document.
    pub document: Value,
    /// Whether event types that are not in it are archived.
    pub replace_all: bool,
    /// Whether it is only said what would change.
    pub dry_run: bool,
}

/// What an import changes, or would change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Event types that are new.
    pub created: Vec<EventType>,
    /// Event types that say something else now.
    pub changed: Vec<EventType>,
    /// Event types that are archived, because the document does not have them.
    pub archived: Vec<EventType>,
    /// Event types that are as they were.
    pub unchanged: Vec<EventType>,
}

impl Engine {
    /// Takes in the webhooks of a document. The changes are made one after the other; when one fails, those before it
    /// stay, and the same import can be repeated.
    pub async fn import_event_types(&self, import: Import) -> Result<Imported> {
        let Import { realm, document, replace_all, dry_run } = import;
        self.catalog().realm(&realm)?;
        let now = self.now();
        let found = read(&document, &realm, now)?;
        let mut imported = Imported::default();
        let mut puts = Vec::new();
        for new in found.values() {
            match self.catalog().event_type(&realm, &new.name) {
                Err(_) => {
                    imported.created.push(new.name.clone());
                    puts.push(new.clone());
                }
                Ok(old) => {
                    let merged = merged(&old, new);
                    if merged.says_the_same(&old) {
                        imported.unchanged.push(new.name.clone());
                    } else {
                        imported.changed.push(new.name.clone());
                        puts.push(merged);
                    }
                }
            }
        }
        if replace_all {
            let filter = TypeFilter { archived: Some(false), ..TypeFilter::default() };
            let (all, _) = self.catalog().event_types(&realm, &filter, None, usize::MAX);
            for old in all.iter().filter(|old| !found.contains_key(&old.name)) {
                imported.archived.push(old.name.clone());
                puts.push(KnownType { archived: true, updated_at: now, ..KnownType::clone(old) });
            }
        }
        puts.iter().try_for_each(check)?;
        self.check_room(&realm, &puts)?;
        if !dry_run && !puts.is_empty() {
            self.put_all(puts).await?;
        }
        Ok(imported)
    }

    /// Makes all changes, and then waits once until every node knows them.
    async fn put_all(&self, puts: Vec<KnownType>) -> Result<()> {
        let all = async {
            let mut last = None;
            for put in puts {
                let put = CatalogChange::PutEventType(Box::new(put));
                let line = self.line_of(&put);
                let write = |along| self.store().change_catalog_with(put.clone(), along);
                last = Some(self.writing(None, line, true, write).await?);
            }
            Ok(last)
        };
        self.change_with(all).await.map_err(|e| e.about("realm"))
    }
}

/// An entry with what a document says now. Schemas that were there stay: another one is the next version.
fn merged(old: &KnownType, new: &KnownType) -> KnownType {
    let mut schemas = old.schemas.clone();
    if let Some(schema) = new.schemas.values().next() {
        let newest = schemas.last_key_value();
        if newest.is_none_or(|(_, known)| known != schema) {
            let next = newest.map_or(1, |(version, _)| version.0.saturating_add(1));
            schemas.insert(SchemaVersion(next), schema.clone());
        }
    }
    KnownType { schemas, created_at: old.created_at, ..new.clone() }
}

fn refuse(field: impl Into<String>, problem: impl Into<String>) -> Error {
    Error::Schema { field: field.into(), problem: problem.into() }
}

/// The event types of a document.
fn read(
    document: &Value,
    realm: &RealmName,
    now: Timestamp,
) -> Result<BTreeMap<EventType, KnownType>> {
    let version = document.get("openapi").and_then(Value::as_str);
    match version {
        Some(version) if version == "3.1" || version.starts_with("3.1.") => {}
        Some(version) => {
            let problem = format!("is an OpenAPI document of version {version}; 3.1 is needed");
            return Err(refuse("document.openapi", problem));
        }
        None => {
            let problem = "is not an OpenAPI document: there is no `openapi` with a version";
            return Err(refuse("document.openapi", problem));
        }
    }
    let webhooks = document.get("webhooks").and_then(Value::as_object).ok_or_else(|| {
        refuse("document.webhooks", "the document has no webhooks; event types are made of those")
    })?;
    if webhooks.len() > WEBHOOKS_MAX {
        let problem = format!("at most {WEBHOOKS_MAX} webhooks are allowed");
        return Err(refuse("document.webhooks", problem));
    }
    let mut found = BTreeMap::new();
    for (name, item) in webhooks {
        let field = format!("document.webhooks.{name}");
        let name = EventType::new(name).map_err(|e| refuse(&field, e.to_string()))?;
        let known = webhook(document, item, &field, (realm, &name), now)?;
        found.insert(name, known);
    }
    Ok(found)
}

/// What one webhook says.
fn webhook(
    document: &Value,
    item: &Value,
    field: &str,
    (realm, name): (&RealmName, &EventType),
    now: Timestamp,
) -> Result<KnownType> {
    let item = resolved(document, item, field)?;
    let operation = METHODS.iter().find_map(|method| item.get(*method));
    let operation = operation.ok_or_else(|| refuse(field, "has no operation, such as `post`"))?;
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let description = text(operation, "description")
        .or_else(|| text(operation, "summary"))
        .or_else(|| text(item, "description"))
        .or_else(|| text(item, "summary"))
        .unwrap_or_default();
    let group = operation.get("tags").and_then(|tags| tags.get(0)).and_then(Value::as_str);
    let group = group.map(str::to_owned);
    let deprecated = operation.get("deprecated").and_then(Value::as_bool).unwrap_or_default();
    let media = match operation.get("requestBody") {
        None => None,
        Some(body) => json_media(resolved(document, body, field)?),
    };
    let mut schemas = BTreeMap::new();
    if let Some(schema) = media.and_then(|media| media.get("schema")) {
        schemas.insert(SchemaVersion(1), alone(document, schema, field)?);
    }
    let examples = media.map(|media| examples(document, media, field)).transpose()?;
    Ok(KnownType {
        realm: realm.clone(),
        name: name.clone(),
        description,
        group,
        schemas,
        examples: examples.unwrap_or_default(),
        archived: false,
        deprecated,
        created_at: now,
        updated_at: now,
    })
}

/// What a reference means, or the value itself.
fn resolved<'a>(document: &'a Value, value: &'a Value, field: &str) -> Result<&'a Value> {
    let Some(reference) = value.get("$ref").and_then(Value::as_str) else { return Ok(value) };
    let found = reference.strip_prefix('#').and_then(|pointer| document.pointer(pointer));
    let found = found
        .ok_or_else(|| refuse(field, format!("`{reference}` refers to nothing in the document")))?;
    match found.get("$ref") {
        None => Ok(found),
        Some(_) => Err(refuse(field, format!("`{reference}` refers to another reference"))),
    }
}

/// The part of a body that is JSON.
fn json_media(body: &Value) -> Option<&Value> {
    let content = body.get("content")?.as_object()?;
    let is_json = |kind: &str| {
        let kind = kind.split(';').next().unwrap_or_default().trim();
        kind == "application/json" || kind.ends_with("+json")
    };
    content
        .get("application/json")
        .or_else(|| content.iter().find(|(kind, _)| is_json(kind)).map(|(_, media)| media))
}

fn examples(document: &Value, media: &Value, field: &str) -> Result<Vec<Value>> {
    let mut all: Vec<Value> = media.get("example").cloned().into_iter().collect();
    for example in media.get("examples").and_then(Value::as_object).into_iter().flatten() {
        all.extend(resolved(document, example.1, field)?.get("value").cloned());
    }
    all.truncate(super::EXAMPLES_MAX);
    Ok(all)
}

/// A schema of a document that needs the document no longer.
fn alone(document: &Value, schema: &Value, field: &str) -> Result<Value> {
    let (mut schema, mut open) = (schema.clone(), BTreeSet::new());
    rewrite(&mut schema, &mut open);
    let mut defs = Map::new();
    while let Some(name) = open.pop_first() {
        if defs.contains_key(&name) {
            continue;
        }
        let place = format!("{SCHEMAS}{name}");
        let found = document.pointer(place.trim_start_matches('#'));
        let mut found = found
            .cloned()
            .ok_or_else(|| refuse(field, format!("`{place}` refers to nothing in the document")))?;
        rewrite(&mut found, &mut open);
        // As it is written in references: a name with a slash is escaped there.
        defs.insert(name, found);
    }
    if defs.is_empty() {
        return Ok(schema);
    }
    let defs = defs.into_iter().map(|(name, part)| (unescaped(&name), part)).collect();
    match schema.as_object_mut() {
        Some(fields) if !fields.contains_key("$defs") => {
            fields.insert("$defs".to_owned(), Value::Object(defs));
            Ok(schema)
        }
        _ => Err(refuse(
            field,
            "the schema has $defs and refers to components; only one is possible",
        )),
    }
}

fn unescaped(name: &str) -> String {
    name.replace("~1", "/").replace("~0", "~")
}

/// Has references to the document's schemas refer to definitions instead, and notes which.
fn rewrite(value: &mut Value, open: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (key, part) in fields {
                match part {
                    Value::String(text) if key == "$ref" => {
                        if let Some(rest) = text.strip_prefix(SCHEMAS) {
                            open.insert(rest.split('/').next().unwrap_or(rest).to_owned());
                            *text = format!("#/$defs/{rest}");
                        }
                    }
                    part => rewrite(part, open),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|part| rewrite(part, open)),
        _ => {}
    }
}
