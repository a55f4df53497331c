//! Whether comparing a payload with a schema ends, and soon.
//!
//! A schema is walked with every reference written out. That is only possible where none leads back to itself, so such a
//! schema is refused, and so is one that leads outside. How much it comes to is counted without walking anything twice.

use std::collections::HashMap;

use percent_encoding::percent_decode_str;
use serde_json::Value;

/// The largest schema, as JSON.
pub(crate) const SCHEMA_BYTES_MAX: usize = 64 << 10;
/// The deepest schema.
const DEPTH_MAX: usize = 40;
/// What a schema may come to with every reference written out: so many schemas within it.
const PARTS_MAX: u64 = 10_000;

/// What is wrong with a schema, and where, as a JSON pointer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unfit {
    pub(crate) path: String,
    pub(crate) problem: String,
}

/// Keywords whose value is a schema.
const ONE: [&str; 11] = [
    "not",
    "if",
    "then",
    "else",
    "items",
    "additionalItems",
    "contains",
    "additionalProperties",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// Keywords whose value is a list of schemas.
const LISTS: [&str; 5] = ["allOf", "anyOf", "oneOf", "prefixItems", "items"];
/// Keywords whose value has schemas by name.
const MAPS: [&str; 4] = ["properties", "patternProperties", "dependentSchemas", "dependencies"];

/// Refuses a schema that is no schema, is too large, leads outside, or never ends.
pub(crate) fn check(schema: &Value) -> Result<(), Unfit> {
    let refuse = |problem: String| Err(Unfit { path: String::new(), problem });
    if !schema.is_object() && !schema.is_boolean() {
        return refuse("a JSON Schema is an object, or true or false".to_owned());
    }
    let size = serde_json::to_vec(schema).map_or(usize::MAX, |text| text.len());
    if size > SCHEMA_BYTES_MAX {
        return refuse(format!("has {size} bytes; at most {SCHEMA_BYTES_MAX} are allowed"));
    }
    depth(schema, 0, "")?;
    let mut walk = Walk { root: schema, known: HashMap::new() };
    let parts = walk.parts(schema, "")?;
    // What nobody refers to must be right as well.
    for name in ["$defs", "definitions"] {
        for (key, part) in schema.get(name).and_then(Value::as_object).into_iter().flatten() {
            walk.parts(part, &format!("/{name}/{}", escaped(key)))?;
        }
    }
    if parts > PARTS_MAX {
        return refuse(format!(
            "comes to {parts} schemas with every $ref written out; at most {PARTS_MAX} are allowed"
        ));
    }
    Ok(())
}

fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

fn depth(value: &Value, level: usize, path: &str) -> Result<(), Unfit> {
    if level > DEPTH_MAX {
        let problem = format!("is nested deeper than {DEPTH_MAX} levels");
        return Err(Unfit { path: path.to_owned(), problem });
    }
    match value {
        Value::Object(fields) => fields.iter().try_for_each(|(key, part)| {
            depth(part, level + 1, &format!("{path}/{}", escaped(key)))
        }),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .try_for_each(|(place, part)| depth(part, level + 1, &format!("{path}/{place}"))),
        _ => Ok(()),
    }
}

struct Walk<'a> {
    root: &'a Value,
    /// By the place of a schema in memory: what it comes to, or that it is being walked.
    known: HashMap<*const Value, Option<u64>>,
}

impl<'a> Walk<'a> {
    /// How many schemas one comes to, itself included.
    fn parts(&mut self, schema: &'a Value, path: &str) -> Result<u64, Unfit> {
        let place = std::ptr::from_ref(schema);
        match self.known.get(&place) {
            Some(Some(parts)) => return Ok(*parts),
            Some(None) => {
                let problem = "refers to itself, so that comparing a payload with it could go on for \
                               ever; recursive schemas are not supported";
                return Err(Unfit { path: path.to_owned(), problem: problem.to_owned() });
            }
            None => {}
        }
        self.known.insert(place, None);
        let mut parts = 1u64;
        if let Value::Object(fields) = schema {
            for (key, value) in fields {
                let path = format!("{path}/{}", escaped(key));
                parts = parts.saturating_add(self.keyword(key, value, &path)?);
            }
        }
        self.known.insert(place, Some(parts));
        Ok(parts)
    }

    fn keyword(&mut self, key: &str, value: &'a Value, path: &str) -> Result<u64, Unfit> {
        let refuse =
            |problem: &str| Err(Unfit { path: path.to_owned(), problem: problem.to_owned() });
        match value {
            Value::String(text) if matches!(key, "$ref" | "$dynamicRef" | "$recursiveRef") => {
                let target = self
                    .target(text)
                    .map_err(|problem| Unfit { path: path.to_owned(), problem })?;
                self.parts(target, path)
            }
            _ if matches!(key, "$ref" | "$dynamicRef" | "$recursiveRef") => {
                refuse("must be a text")
            }
            // A base would make references mean something else than what is checked here.
            Value::String(text) if key == "$id" && path != "/$id" => {
                refuse(&format!("`{text}`: only the schema as a whole may have an $id"))
            }
            Value::Array(items) if LISTS.contains(&key) => {
                let mut sum = 0u64;
                for (place, part) in items.iter().enumerate() {
                    sum = sum.saturating_add(self.parts(part, &format!("{path}/{place}"))?);
                }
                Ok(sum)
            }
            Value::Object(_) if ONE.contains(&key) => self.parts(value, path),
            Value::Object(named) if MAPS.contains(&key) => {
                let mut sum = 0u64;
                for (name, part) in named {
                    let path = format!("{path}/{}", escaped(name));
                    sum = sum.saturating_add(self.parts(part, &path)?);
                }
                Ok(sum)
            }
            _ => Ok(0),
        }
    }

    /// The part of this schema that a reference means.
    fn target(&self, reference: &str) -> Result<&'a Value, String> {
        let outside = || {
            format!(
                "`{reference}` leads outside of the schema; only references that begin with # are \
                 allowed"
            )
        };
        let inside = reference.strip_prefix('#').ok_or_else(outside)?;
        let inside = percent_decode_str(inside).decode_utf8_lossy();
        let found = match inside.as_ref() {
            "" => Some(self.root),
            pointer if pointer.starts_with('/') => self.root.pointer(pointer),
            anchor => anchored(self.root, anchor),
        };
        found.ok_or_else(|| format!("`{reference}` refers to nothing in the schema"))
    }
}

/// The part with this anchor.
fn anchored<'a>(value: &'a Value, anchor: &str) -> Option<&'a Value> {
    match value {
        Value::Object(fields) => {
            let named = |key| fields.get(key).and_then(Value::as_str) == Some(anchor);
            match named("$anchor") || named("$dynamicAnchor") {
                true => Some(value),
                false => fields.values().find_map(|part| anchored(part, anchor)),
            }
        }
        Value::Array(items) => items.iter().find_map(|part| anchored(part, anchor)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn refused(schema: &Value, path: &str, why: &str) {
        let unfit = check(schema).expect_err("it is refused");
        assert_eq!(unfit.path, path, "{}", unfit.problem);
        assert!(unfit.problem.contains(why), "{}", unfit.problem);
    }

    #[test]
    fn proper_schemas_are_taken() {
        for schema in [
            json!(true),
            json!({}),
            json!({"$id": "https://example.test/x", "type": "object", "properties": {
                "a": {"$ref": "#/$defs/amount"}, "b": {"$ref": "#/$defs/amount"},
                "c/d": {"$ref": "#named"}, "e": {"$ref": "#/$defs/with%20space"},
            }, "$defs": {
                "amount": {"type": "number"}, "n": {"$anchor": "named"}, "with space": true,
            }}),
            // Words of a schema that are no words of a schema here.
            json!({"properties": {"$ref": {"type": "string"}}, "enum": [{"$ref": "elsewhere"}]}),
        ] {
            assert_eq!(check(&schema), Ok(()), "{schema}");
        }
    }

    #[test]
    fn what_leads_outside_or_nowhere_is_refused() {
        refused(&json!({"$ref": "https://example.test/s.json"}), "/$ref", "leads outside");
        refused(&json!({"items": {"$ref": "file:///etc/passwd"}}), "/items/$ref", "leads outside");
        refused(&json!({"not": {"$ref": "other.json#/a"}}), "/not/$ref", "leads outside");
        refused(&json!({"$ref": "#/$defs/none"}), "/$ref", "refers to nothing");
        refused(&json!({"$ref": 5}), "/$ref", "must be a text");
        refused(&json!({"$defs": {"a": {"$ref": "x"}}}), "/$defs/a/$ref", "leads outside");
        refused(&json!({"items": {"$id": "http://x/"}}), "/items/$id", "as a whole");
        refused(&json!([]), "", "an object");
    }

    #[test]
    fn what_never_ends_is_refused() {
        refused(&json!({"$ref": "#"}), "/$ref", "refers to itself");
        let list = json!({"properties": {"next": {"$ref": "#"}}});
        refused(&list, "/properties/next/$ref", "refers to itself");
        let two = json!({"$ref": "#/$defs/a", "$defs": {
            "a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"allOf": [{"$ref": "#/$defs/a"}]},
        }});
        assert!(check(&two).expect_err("a circle").problem.contains("refers to itself"));
        let unused = json!({"$defs": {"a": {"$ref": "#/$defs/a"}}});
        assert!(check(&unused).expect_err("a circle").problem.contains("refers to itself"));
    }

    #[test]
    fn what_grows_without_bound_is_refused() {
        let mut defs = serde_json::Map::new();
        for level in 0..30 {
            let next = format!("#/$defs/l{}", level + 1);
            defs.insert(format!("l{level}"), json!({"allOf": [{"$ref": next}, {"$ref": next}]}));
        }
        defs.insert("l30".to_owned(), json!({"type": "object"}));
        refused(&json!({"$ref": "#/$defs/l0", "$defs": defs}), "", "with every $ref written out");
        let deep = (0..50).fold(json!({}), |inner, _| json!({"not": inner}));
        assert!(check(&deep).expect_err("too deep").problem.contains("nested deeper"));
        let large = json!({"description": "x".repeat(SCHEMA_BYTES_MAX)});
        refused(&large, "", "bytes");
    }
}
