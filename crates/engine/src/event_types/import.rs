//! Event types from the `webhooks` of an OpenAPI 3.1 document.
//!
//! What an event type needs is taken out of the document as a whole: a schema that refers to the document's components
//! gets them as definitions of its own.

use std::collections::{BTreeMap, BTreeSet};

use posthorn_domain::{EventType, KnownType, RealmName, SchemaVersion, Timestamp};
use posthorn_store::CatalogChange;
use serde_json::{Map, Value};

use super::bounds::SCHEMA_BYTES_MAX;
use super::{check, compiled};
use crate::catalog::TypeFilter;
use crate::engine::Engine;
use crate::error::{Error, Result};

/// Webhooks of one document.
const WEBHOOKS_MAX: usize = 1_000;
/// All event types of one import, as JSON.
const IMPORT_BYTES_MAX: usize = 16 << 20;
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
        let (engine, dry_run) = (self.clone(), import.dry_run);
        let (imported, puts) = compiled::aside(move || engine.planned_import(&import)).await??;
        if !dry_run && !puts.is_empty() {
            self.put_all(puts).await?;
        }
        Ok(imported)
    }

    /// What an import would change, checked.
    fn planned_import(&self, import: &Import) -> Result<(Imported, Vec<KnownType>)> {
        let Import { realm, document, replace_all, .. } = import;
        self.catalog().realm(realm)?;
        let now = self.now();
        let (mut imported, mut puts) = (Imported::default(), Vec::new());
        let mut memory: Vec<u64> = Vec::new();
        let mut bytes = 0;
        let webhooks = webhooks(document)?;
        for (name, item) in webhooks {
            let field = format!("document.webhooks.{name}");
            let name = EventType::new(name).map_err(|e| refuse(&field, e.to_string()))?;
            let new = webhook(document, item, &field, (realm, &name), now)?;
            let old = self.catalog().event_type(realm, &name).ok();
            let put = old.as_ref().map_or_else(|| new.clone(), |old| merged(old, &new));
            if old.as_ref().is_some_and(|old| put.says_the_same(old)) {
                imported.unchanged.push(name);
                continue;
            }
            // Before the next is read: components that many refer to are in each of them.
            bytes += serde_json::to_vec(&put).map_or(usize::MAX, |text| text.len());
            if bytes > IMPORT_BYTES_MAX {
                let problem = format!(
                    "with this webhook the event types have {bytes} bytes, with the components that \
                     they refer to; at most {IMPORT_BYTES_MAX} are allowed in one import"
                );
                return Err(refuse(field, problem));
            }
            memory.push(check(&put).map_err(|e| of_webhook(&field, e))?);
            puts.push(put);
            match old {
                None => imported.created.push(name),
                Some(_) => imported.changed.push(name),
            }
        }
        let coming: Vec<(&EventType, u64)> =
            puts.iter().map(|put| &put.name).zip(memory.iter().copied()).collect();
        self.check_room(realm, &coming).map_err(|e| of_webhook("document.webhooks", e))?;
        if *replace_all {
            let filter = TypeFilter { archived: Some(false), ..TypeFilter::default() };
            let (all, _) = self.catalog().event_types(realm, &filter, None, usize::MAX);
            for old in all.iter().filter(|old| !webhooks.contains_key(old.name.as_str())) {
                imported.archived.push(old.name.clone());
                puts.push(KnownType { archived: true, updated_at: now, ..KnownType::clone(old) });
            }
        }
        Ok((imported, puts))
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
    let feature_flags = old.feature_flags.clone();
    KnownType { schemas, feature_flags, created_at: old.created_at, ..new.clone() }
}

fn refuse(field: impl Into<String>, problem: impl Into<String>) -> Error {
    Error::Schema { field: field.into(), problem: problem.into() }
}

/// What is wrong with an event type, said of the webhook that it is made of.
fn of_webhook(webhook: &str, e: Error) -> Error {
    match e {
        Error::Schema { field, problem } => refuse(format!("{webhook}.{field}"), problem),
        e @ Error::TooLong { field, .. } => refuse(format!("{webhook}.{field}"), e.to_string()),
        e => e,
    }
}

/// The webhooks of a document.
fn webhooks(document: &Value) -> Result<&Map<String, Value>> {
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
    Ok(webhooks)
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
        feature_flags: Default::default(),
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

/// A schema of a document that needs the document no longer. What is too large for a schema is refused before it is copied.
fn alone(document: &Value, schema: &Value, field: &str) -> Result<Value> {
    let mut left = SCHEMA_BYTES_MAX;
    let mut fits = |value: &Value| match size(value, left) {
        Some(size) => {
            left -= size;
            Ok(())
        }
        None => {
            let problem = format!(
                "the schema has more than {SCHEMA_BYTES_MAX} bytes with the components that it refers to"
            );
            Err(refuse(field, problem))
        }
    };
    fits(schema)?;
    let (mut schema, mut open) = (schema.clone(), BTreeSet::new());
    rewrite(&mut schema, &mut open);
    let mut defs = Map::new();
    while let Some(name) = open.pop_first() {
        if defs.contains_key(&name) {
            continue;
        }
        let place = format!("{SCHEMAS}{name}");
        let found = document.pointer(place.trim_start_matches('#'));
        let found = found
            .ok_or_else(|| refuse(field, format!("`{place}` refers to nothing in the document")))?;
        fits(found)?;
        let mut found = found.clone();
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

/// The bytes of a value as JSON, nearly and not too many; none when there are more than `most`.
fn size(value: &Value, most: usize) -> Option<usize> {
    let mut left = most.checked_sub(1)?;
    let mut take = |size: usize| {
        left = left.checked_sub(size)?;
        Some(left)
    };
    match value {
        Value::String(text) => {
            take(text.len() + 1)?;
        }
        Value::Array(items) => {
            for item in items {
                let most = take(0)?;
                take(size(item, most)?)?;
            }
        }
        Value::Object(fields) => {
            for (name, part) in fields {
                let most = take(name.len() + 3)?;
                take(size(part, most)?)?;
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    Some(most - left)
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
