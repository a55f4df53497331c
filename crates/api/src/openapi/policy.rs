//! The schemas of policies and filters, made from the types themselves.
//!
//! A record (an object of named knobs) may be given in part in a merge patch; a choice or the item of
//! a list only as a whole. So the schemas of patches are made from those of the records: those that
//! one comes to from the policy through fields alone.

use std::collections::BTreeSet;

use posthorn_domain::{Filter, Policy};
use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value, json};

use super::reference;

/// The names of patches end so.
const PATCH: &str = "Patch";

/// All of them by name.
pub(super) fn all() -> Value {
    let mut all = derived();
    name_forms(&mut all);
    let mut records = BTreeSet::new();
    find_records(&all, &Policy::schema_name(), &mut records);
    for name in &records {
        let patch = patch_of(&all[name], &records);
        all.insert(format!("{name}{PATCH}"), patch);
    }
    all[&format!("Policy{PATCH}")]["description"] = json!(
        "Changes to a policy, as a JSON merge patch (RFC 7396): absent fields stay unchanged, \
         null removes an optional field"
    );
    Value::Object(all)
}

fn derived() -> Map<String, Value> {
    let settings = SchemaSettings::draft2020_12()
        .with(|settings| settings.definitions_path = "/components/schemas".into())
        .with_transform(RecursiveTransform(as_we_write_it));
    let mut generator = settings.into_generator();
    generator.subschema_for::<Policy>();
    generator.subschema_for::<Filter>();
    generator.take_definitions(true)
}

/// Defaults belong to reading a whole, not to a patch; sizes of numbers are ours alone.
fn as_we_write_it(schema: &mut Schema) {
    schema.remove("default");
    if schema.get("type") != Some(&json!("string")) {
        schema.remove("format");
    }
    if let Some(Value::String(text)) = schema.get_mut("description") {
        *text = text.replace('\n', " ").trim_end_matches('.').to_owned();
    }
    if let Some(Value::Array(forms)) = schema.remove("anyOf") {
        // A choice that is optional is one of its forms or nothing.
        let flat =
            forms.into_iter().flat_map(|mut form| match form.get_mut("oneOf").map(Value::take) {
                Some(Value::Array(inner)) => inner,
                _ => vec![form],
            });
        schema.insert("oneOf".to_owned(), flat.collect());
    }
    if schema.get("properties").is_some() {
        schema.insert("additionalProperties".to_owned(), json!(false));
    }
    let forms = schema.get("oneOf").and_then(Value::as_array);
    let words =
        forms.and_then(|forms| forms.iter().map(|form| form.get("const").cloned()).collect());
    if let Some(words) = words {
        schema.remove("oneOf");
        schema.insert("type".to_owned(), json!("string"));
        schema.insert("enum".to_owned(), Value::Array(words));
    }
}

/// Gives the forms of choices names, which generated clients then have too. They are told apart by
/// `kind`, or by the one field they have.
fn name_forms(all: &mut Map<String, Value>) {
    for (choice, schema) in all.clone() {
        let (mut forms, mut mapping) = (Vec::new(), Map::new());
        for form in schema["oneOf"].as_array().into_iter().flatten() {
            let kind = form["properties"]["kind"]["const"].as_str();
            let Some(tag) = kind.or_else(|| form["required"][0].as_str()) else {
                let word = json!({"type": "string", "enum": [form["const"]]});
                forms.push(if form["const"].is_string() { word } else { form.clone() });
                continue;
            };
            let name: String = tag.split('_').map(capital).collect();
            let name = format!("{choice}{name}");
            if kind.is_some() {
                mapping.insert(tag.to_owned(), reference(&name)["$ref"].take());
            }
            forms.push(reference(&name));
            all.insert(name, form.clone());
        }
        if !forms.is_empty() {
            all[&choice]["oneOf"] = Value::Array(forms);
        }
        if !mapping.is_empty() {
            all[&choice]["discriminator"] = json!({"propertyName": "kind", "mapping": mapping});
        }
    }
}

fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

fn find_records(all: &Map<String, Value>, name: &str, found: &mut BTreeSet<String>) {
    let fields = all.get(name).and_then(|schema| schema["properties"].as_object());
    if fields.is_none() || !found.insert(name.to_owned()) {
        return;
    }
    for field in fields.into_iter().flat_map(Map::values) {
        let forms = field["oneOf"].as_array().into_iter().flatten();
        for target in forms.chain([field]).filter_map(target) {
            find_records(all, target, found);
        }
    }
}

fn target(schema: &Value) -> Option<&str> {
    schema["$ref"].as_str()?.rsplit('/').next()
}

/// The same record with nothing required, and `null` for what may be taken away.
fn patch_of(record: &Value, records: &BTreeSet<String>) -> Value {
    let mut patch = record.clone();
    let required = patch.as_object_mut().and_then(|patch| patch.remove("required"));
    let required = required.as_ref().and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    for (name, field) in patch["properties"].as_object_mut().into_iter().flatten() {
        if !required.contains(&json!(name)) {
            *field = or_null(field.take());
        }
        in_part(field, records);
        let forms = field.get_mut("oneOf").and_then(Value::as_array_mut);
        forms.into_iter().flatten().for_each(|form| in_part(form, records));
    }
    patch
}

fn in_part(schema: &mut Value, records: &BTreeSet<String>) {
    if let Some(name) = target(schema).filter(|name| records.contains(*name)) {
        schema["$ref"] = reference(&format!("{name}{PATCH}"))["$ref"].take();
    }
}

fn or_null(mut schema: Value) -> Value {
    let nothing = json!({"type": "null"});
    if let Some(forms) = schema.get_mut("oneOf").and_then(Value::as_array_mut) {
        if !forms.contains(&nothing) {
            forms.push(nothing);
        }
        return schema;
    }
    match schema.get("type") {
        Some(Value::Array(kinds)) if kinds.contains(&json!("null")) => schema,
        Some(Value::String(kind)) if schema.get("enum").is_none() => {
            schema["type"] = json!([kind, "null"]);
            schema
        }
        _ => json!({"oneOf": [schema, nothing]}),
    }
}
