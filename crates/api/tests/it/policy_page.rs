//! The pages about policies and filters name every knob that the types have, with examples that
//! work, and the OpenAPI document knows the same knobs.
//!
//! The types are asked themselves: at every place of every example something unknown is put in, and
//! the refusal says what is known there. So a knob without a row, without an example or without a
//! schema fails here, as does a row, an example or a schema without a knob.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use posthorn_domain::policy::profiles::default_profile;
use posthorn_domain::{Filter, plain};
use serde_json::Value;

use crate::schema;

const UNKNOWN: &str = "zz_unknown";

/// Reads an example, or says what is wrong with it.
type Read = fn(&Value) -> Result<(), String>;

fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference").join(name);
    std::fs::read_to_string(path).unwrap()
}

/// The blocks of a page in one language.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let begin = format!("```{language}\n");
    page.split(&begin).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

/// As in a profile of the configuration, which may say everything.
fn read_policy(patch: &Value) -> Result<(), String> {
    default_profile().patched_by_operator(patch).map(drop).map_err(|e| e.problem)
}

fn read_filter(filter: &Value) -> Result<(), String> {
    let filter: Filter = plain::read(filter).map_err(|fault| fault.problem)?;
    filter.validate().map_err(|e| e.to_string())
}

/// Every place in a value, as a JSON pointer.
fn places(value: &Value, at: &str, out: &mut Vec<String>) {
    out.push(at.to_owned());
    let escape = |name: &str| name.replace('~', "~0").replace('/', "~1");
    match value {
        Value::Object(fields) => {
            fields.iter().for_each(|(k, v)| places(v, &format!("{at}/{}", escape(k)), out));
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(n, v)| places(v, &format!("{at}/{n}"), out));
        }
        _ => {}
    }
}

/// A place as the pages write it: items of lists have no numbers, ways of authentication their kind,
/// and conditions begin anew wherever they are.
fn written(example: &Value, place: &str) -> String {
    let mut path: Vec<&str> = Vec::new();
    let mut at = String::new();
    for step in place.split('/').skip(1) {
        at = format!("{at}/{step}");
        if step.bytes().all(|b| b.is_ascii_digit()) {
            path.extend(example.pointer(&at).and_then(|item| item["kind"].as_str()));
            continue;
        }
        let inside = path.contains(&"payload") || path.iter().any(|s| ["all", "any"].contains(s));
        let nested = matches!(path.last(), Some(&"payload" | &"all" | &"any" | &"not"));
        if inside && nested || path.last() == Some(&"not") {
            path.clear();
        }
        path.push(step);
    }
    path.join(".")
}

/// What one example says about the types behind it.
#[derive(Default)]
struct Knowledge {
    /// The fields of each object, by its place.
    fields: BTreeMap<String, BTreeSet<String>>,
    /// The words of each choice, by its place.
    choices: BTreeMap<String, BTreeSet<String>>,
    /// The places of the examples.
    shown: BTreeSet<String>,
}

fn words(list: &str) -> BTreeSet<String> {
    list.split(", ").map(str::to_owned).collect()
}

impl Knowledge {
    fn learn(&mut self, example: &Value, read: Read, schema: &Value) {
        let mut all = Vec::new();
        places(example, "", &mut all);
        for place in all {
            let path = written(example, &place);
            self.shown.insert(path.clone());
            let mut changed = example.clone();
            match changed.pointer_mut(&place).unwrap() {
                Value::Object(fields) => drop(fields.insert(UNKNOWN.to_owned(), 1.into())),
                text @ Value::String(_) => *text = UNKNOWN.into(),
                _ => continue,
            }
            let Err(problem) = read(&changed) else { continue };
            let known = problem.split_once("known fields: ").map(|(_, list)| words(list));
            let chosen =
                [format!("`{UNKNOWN}` is not one of "), "must be exactly one of ".to_owned()];
            let one = chosen.iter().find_map(|start| problem.strip_prefix(start)).map(words);
            let in_schema = if place.ends_with("/kind") {
                let kinds = &schema::named("Auth")["discriminator"]["mapping"];
                kinds.as_object().unwrap().keys().cloned().collect()
            } else {
                properties(schema, example, &place)
            };
            if let Some(mut fields) = known {
                if place.starts_with("/auth/") && in_schema.contains("kind") {
                    fields.insert("kind".to_owned());
                }
                assert_eq!(in_schema, fields, "the OpenAPI document at {place}");
                fields.remove("kind");
                self.fields.entry(path).or_default().extend(fields);
            } else if let Some(choices) = one {
                assert_eq!(in_schema, choices, "the OpenAPI document at {place}");
                self.choices.entry(path).or_default().extend(choices);
            }
        }
    }

    #[track_caller]
    fn check(&self, pages: &str) {
        let row = |path: &str| pages.lines().any(|l| l.starts_with(&format!("| `{path}` |")));
        let mut missing = Vec::new();
        for (place, fields) in &self.fields {
            for field in fields {
                let path =
                    if place.is_empty() { field.clone() } else { format!("{place}.{field}") };
                if !self.shown.contains(&path) {
                    missing.push(format!("an example with {path}"));
                }
                let records = self.fields.contains_key(&path);
                if !records && !row(&path) {
                    missing.push(format!("a row for {path}"));
                }
            }
        }
        for (place, choices) in &self.choices {
            for choice in choices {
                let word = format!("`{choice}`");
                if !pages.lines().any(|line| line.starts_with('|') && line.contains(&word)) {
                    missing.push(format!("{word} of {place} in a row"));
                }
            }
        }
        for line in pages.lines() {
            let Some((path, _)) = line.strip_prefix("| `").and_then(|l| l.split_once("` |")) else {
                continue;
            };
            let knob = line.split('|').count() == 7 && !path.contains(' ');
            if knob && !self.shown.contains(path) {
                missing.push(format!("a knob {path}, which has a row"));
            }
        }
        assert!(missing.is_empty(), "there is not:\n  {}", missing.join("\n  "));
    }
}

/// What a schema knows at a place of an example: names of fields, or words of a choice.
fn properties(schema: &Value, example: &Value, place: &str) -> BTreeSet<String> {
    let mut schemas = forms(schema, example);
    let mut at = String::new();
    for step in place.split('/').skip(1) {
        at = format!("{at}/{step}");
        let value = example.pointer(&at).unwrap();
        schemas = schemas
            .iter()
            .flat_map(|schema| {
                let step = step.replace("~1", "/").replace("~0", "~");
                let inner = schema["properties"].get(&step);
                let rest = schema.get("additionalProperties").filter(|rest| rest.is_object());
                inner.or(rest).or(schema.get("items")).cloned()
            })
            .flat_map(|inner| forms(&inner, value))
            .collect();
    }
    // Of a choice, every form counts; of a record, the one there is.
    let mut names = BTreeSet::new();
    for schema in &schemas {
        let words = schema["enum"].as_array().into_iter().flatten().filter_map(Value::as_str);
        names.extend(words.map(str::to_owned));
        names
            .extend(schema["properties"].as_object().into_iter().flatten().map(|(k, _)| k.clone()));
    }
    names
}

/// A schema without references and choices: those of the forms that stay when the value decides, or
/// all of them where they are told apart by the one field they have.
fn forms(schema: &Value, value: &Value) -> Vec<Value> {
    if let Some(target) = schema["$ref"].as_str() {
        return forms(schema::named(target.rsplit('/').next().unwrap()), value);
    }
    let Some(all) = schema["oneOf"].as_array() else { return vec![schema.clone()] };
    let all: Vec<Value> = all.iter().flat_map(|form| forms(form, value)).collect();
    let told_by_kind = all.iter().any(|form| form["properties"]["kind"]["const"].is_string());
    if told_by_kind {
        return all
            .into_iter()
            .filter(|form| form["properties"]["kind"]["const"] == value["kind"])
            .collect();
    }
    let tagged = all.iter().any(|form| form["required"].as_array().is_some_and(|r| r.len() == 1));
    if tagged || !value.is_object() {
        return all.into_iter().filter(|form| form["type"] != "null").collect();
    }
    all.into_iter().filter(|form| form["type"] == "object").collect()
}

#[test]
fn the_pages_about_policies_name_every_knob_with_examples_that_work() {
    let pages = page("policies.md") + &page("authentication.md");
    let mut known = Knowledge::default();
    let examples = blocks(&pages, "yaml");
    assert!(examples.len() > 10, "there are examples");
    for text in examples {
        let example: Value = serde_saphyr::from_str(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
        read_policy(&example).unwrap_or_else(|e| panic!("{e}\n{text}"));
        let patch = schema::named("PolicyPatch");
        schema::check(patch, &example, "policy").unwrap_or_else(|e| panic!("{e}\n{text}"));
        known.learn(&example, read_policy, patch);
    }
    assert!(known.fields[""].contains("schedule"), "the types were asked");
    known.check(&pages);
}

#[test]
fn the_page_about_filters_names_every_condition_with_examples_that_work() {
    let text = page("filters.md");
    let mut known = Knowledge::default();
    for block in blocks(&text, "json") {
        let example: Value = serde_json::from_str(block).unwrap_or_else(|e| panic!("{e}\n{block}"));
        read_filter(&example).unwrap_or_else(|e| panic!("{e}\n{block}"));
        let filter = schema::named("Filter");
        schema::check(filter, &example, "filter").unwrap_or_else(|e| panic!("{e}\n{block}"));
        known.learn(&example, read_filter, filter);
    }
    assert!(known.choices["test.op"].contains("prefix"), "the types were asked");
    known.check(&text);
}

#[test]
fn the_defaults_on_the_page_are_those_of_the_default_profile() {
    let profile = serde_json::to_value(default_profile()).unwrap();
    let mut compared = 0;
    for line in page("policies.md").lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let ["", knob, _, default, _, _, ""] = cells[..] else { continue };
        let Some(path) = knob.strip_prefix('`').and_then(|k| k.strip_suffix('`')) else {
            continue;
        };
        let found = profile.pointer(&format!("/{}", path.replace('.', "/")));
        let wanted = match found {
            Some(Value::String(text)) => format!("`{text}`"),
            Some(Value::Bool(flag)) => format!("`{flag}`"),
            Some(Value::Number(number)) => format!("`{number}`"),
            Some(Value::Null) => "none".to_owned(),
            Some(Value::Array(items)) if items.is_empty() => "none".to_owned(),
            Some(Value::Object(fields)) if fields.is_empty() => "none".to_owned(),
            _ => continue,
        };
        assert_eq!(default, wanted, "{path}");
        compared += 1;
    }
    assert!(compared > 25, "only {compared} defaults were compared");
}
