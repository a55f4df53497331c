//! Whether comparing a payload with a schema ends, and soon.
//!
//! A schema is walked with every reference written out. That is only possible where none leads back to itself, so such a
//! schema is refused, and so is one that leads outside. How much it comes to is counted without walking anything twice.
//!
//! `unevaluatedProperties` and `unevaluatedItems` are refused: to know what was not evaluated, everything below them
//! is compared again at every level, which takes time that doubles with each.

use std::collections::{HashMap, HashSet};

use percent_encoding::percent_decode_str;
use serde_json::Value;

use super::patterns;

/// The largest schema, as JSON.
pub(crate) const SCHEMA_BYTES_MAX: usize = 64 << 10;
/// The deepest schema.
const DEPTH_MAX: usize = 40;
/// The deepest schema with every reference written out: comparing goes that deep.
const HEIGHT_MAX: usize = 64;
/// What a schema may come to with every reference written out: so many schemas within it.
const PARTS_MAX: u64 = 10_000;
/// Memory of one part that is ready for use, nearly.
const PART_BYTES: u64 = 512;

/// What a schema comes to with every reference written out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Schemas within it, itself included.
    pub(crate) parts: u64,
    /// What may be looked at for one value of a payload: parts, and values that are listed in them.
    pub(crate) steps: u64,
    /// What may be looked at for one byte of a text: states of patterns, and whatever else reads texts.
    pub(crate) reads: u64,
    /// How many schemas are within each other.
    height: usize,
    /// Memory that its patterns may need, each counted once.
    pub(crate) pattern_bytes: u64,
}

impl Extent {
    fn add(&mut self, inner: Self) {
        self.parts = self.parts.saturating_add(inner.parts);
        self.steps = self.steps.saturating_add(inner.steps);
        self.reads = self.reads.saturating_add(inner.reads);
        self.height = self.height.max(inner.height);
    }

    /// This and that of another version.
    pub(crate) fn plus(mut self, other: Self) -> Self {
        self.add(other);
        self.pattern_bytes = self.pattern_bytes.saturating_add(other.pattern_bytes);
        self
    }

    /// Memory when it is ready for use, nearly.
    pub(crate) fn memory(&self) -> u64 {
        self.parts.saturating_mul(PART_BYTES).saturating_add(self.pattern_bytes)
    }
}

/// What is wrong with a schema, and where, as a JSON pointer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unfit {
    pub(crate) path: String,
    pub(crate) problem: String,
}

/// Keywords whose value is a schema.
const ONE: [&str; 9] = [
    "not",
    "if",
    "then",
    "else",
    "items",
    "additionalItems",
    "contains",
    "additionalProperties",
    "propertyNames",
];
/// Keywords whose value is a list of schemas.
const LISTS: [&str; 5] = ["allOf", "anyOf", "oneOf", "prefixItems", "items"];
/// Keywords whose value has schemas by name.
const MAPS: [&str; 4] = ["properties", "patternProperties", "dependentSchemas", "dependencies"];

/// Refuses a schema that is no schema, is too large, leads outside, or never ends. What it comes to, otherwise.
pub(crate) fn check(schema: &Value) -> Result<Extent, Unfit> {
    let refuse = |problem: String| Err(Unfit { path: String::new(), problem });
    if !schema.is_object() && !schema.is_boolean() {
        return refuse("a JSON Schema is an object, or true or false".to_owned());
    }
    let size = serde_json::to_vec(schema).map_or(usize::MAX, |text| text.len());
    if size > SCHEMA_BYTES_MAX {
        return refuse(format!("has {size} bytes; at most {SCHEMA_BYTES_MAX} are allowed"));
    }
    depth(schema, 0, "")?;
    let mut walk = Walk { root: schema, known: HashMap::new(), patterns: HashSet::new() };
    let mut extent = walk.schema(schema, "", 1)?;
    // What nobody refers to must be right as well.
    for name in ["$defs", "definitions"] {
        for (key, part) in schema.get(name).and_then(Value::as_object).into_iter().flatten() {
            walk.schema(part, &format!("/{name}/{}", escaped(key)), 1)?;
        }
    }
    if extent.parts > PARTS_MAX {
        let parts = extent.parts;
        return refuse(format!(
            "comes to {parts} schemas with every $ref written out; at most {PARTS_MAX} are allowed"
        ));
    }
    if extent.height > HEIGHT_MAX {
        return refuse(too_high());
    }
    extent.pattern_bytes = walk.patterns.iter().map(|text| patterns::memory(text)).sum();
    Ok(extent)
}

fn too_high() -> String {
    format!("has more than {HEIGHT_MAX} schemas within each other with every $ref written out")
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
    known: HashMap<*const Value, Option<Extent>>,
    /// All patterns.
    patterns: HashSet<&'a str>,
}

impl<'a> Walk<'a> {
    /// What one schema comes to; `level` of them are within each other so far.
    fn schema(&mut self, schema: &'a Value, path: &str, level: usize) -> Result<Extent, Unfit> {
        let refuse = |problem: String| Err(Unfit { path: path.to_owned(), problem });
        let place = std::ptr::from_ref(schema);
        match self.known.get(&place) {
            Some(Some(extent)) => return Ok(*extent),
            Some(None) => {
                let problem = "refers to itself, so that comparing a payload with it could go on for \
                               ever; recursive schemas are not supported";
                return refuse(problem.to_owned());
            }
            // The walk goes as deep as comparing would.
            None if level > HEIGHT_MAX => return refuse(too_high()),
            None => {}
        }
        // Before anything below it is walked, so that what is said is the reason.
        for key in ["unevaluatedItems", "unevaluatedProperties"] {
            if schema.get(key).is_some() {
                let problem = "is not supported: comparing a payload with it can take for ever; use \
                               additionalProperties or items";
                let path = format!("{path}/{key}");
                return Err(Unfit { path, problem: problem.to_owned() });
            }
        }
        self.known.insert(place, None);
        let mut extent = Extent { parts: 1, steps: 1, ..Extent::default() };
        if let Value::Object(fields) = schema {
            for (key, value) in fields {
                let path = format!("{path}/{}", escaped(key));
                extent.add(self.keyword(key, value, &path, level)?);
            }
        }
        extent.height += 1;
        self.known.insert(place, Some(extent));
        Ok(extent)
    }

    fn keyword(
        &mut self,
        key: &str,
        value: &'a Value,
        path: &str,
        level: usize,
    ) -> Result<Extent, Unfit> {
        let refuse =
            |problem: &str| Err(Unfit { path: path.to_owned(), problem: problem.to_owned() });
        let mut sum = Extent::default();
        match (key, value) {
            ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(text)) => {
                let target = self
                    .target(text)
                    .map_err(|problem| Unfit { path: path.to_owned(), problem })?;
                sum = self.schema(target, path, level + 1)?;
            }
            ("$ref" | "$dynamicRef" | "$recursiveRef", _) => return refuse("must be a text"),
            // A base would make references mean something else than what is checked here.
            ("$id", Value::String(text)) if path != "/$id" => {
                return refuse(&format!("`{text}`: only the schema as a whole may have an $id"));
            }
            ("pattern", Value::String(text)) => sum.reads = self.pattern(text),
            ("enum" | "const" | "required" | "dependentRequired", value) => {
                sum.steps = values(value);
            }
            ("uniqueItems" | "minLength" | "maxLength", _) => sum.reads = 1,
            (_, Value::Array(items)) if LISTS.contains(&key) => {
                for (place, part) in items.iter().enumerate() {
                    sum.add(self.schema(part, &format!("{path}/{place}"), level + 1)?);
                }
            }
            (_, Value::Object(_)) if ONE.contains(&key) => {
                sum = self.schema(value, path, level + 1)?;
            }
            (_, Value::Object(named)) if MAPS.contains(&key) => {
                for (name, part) in named {
                    let path = format!("{path}/{}", escaped(name));
                    sum.add(self.schema(part, &path, level + 1)?);
                    if key == "patternProperties" {
                        sum.reads = sum.reads.saturating_add(self.pattern(name));
                    }
                }
            }
            _ => {}
        }
        Ok(sum)
    }

    fn pattern(&mut self, text: &'a str) -> u64 {
        self.patterns.insert(text);
        patterns::states(text)
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

/// How many values one consists of.
fn values(value: &Value) -> u64 {
    match value {
        Value::Array(items) => 1 + items.iter().map(values).sum::<u64>(),
        Value::Object(fields) => 1 + fields.values().map(values).sum::<u64>(),
        _ => 1,
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
            assert!(check(&schema).is_ok(), "{schema}: {:?}", check(&schema));
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

    /// A chain of definitions, each of which leads to the next.
    fn chain(levels: usize, link: impl Fn(Value) -> Value) -> Value {
        let mut defs = serde_json::Map::new();
        for level in 0..levels {
            let next = json!({"$ref": format!("#/$defs/l{}", level + 1)});
            defs.insert(format!("l{level}"), link(next));
        }
        defs.insert(format!("l{levels}"), json!({"type": "object"}));
        json!({"$ref": "#/$defs/l0", "$defs": defs})
    }

    #[test]
    fn what_is_unevaluated_is_refused() {
        let slow = chain(50, |next| json!({"anyOf": [next], "unevaluatedProperties": false}));
        let unfit = check(&slow).expect_err("it takes for ever");
        assert!(unfit.path.ends_with("/unevaluatedProperties"), "{}", unfit.path);
        assert!(unfit.problem.contains("not supported"), "{}", unfit.problem);
        refused(&json!({"unevaluatedItems": {}}), "/unevaluatedItems", "not supported");
        let unused = json!({"$defs": {"a": {"unevaluatedItems": true}}});
        refused(&unused, "/$defs/a/unevaluatedItems", "not supported");
        let name = json!({"properties": {"unevaluatedItems": {}}});
        assert!(check(&name).is_ok(), "a property may be called so");
    }

    #[test]
    fn references_lead_only_so_deep() {
        assert!(check(&chain(20, |next| next)).is_ok());
        for long in [chain(1_500, |next| next), chain(40, |next| json!({"anyOf": [next]}))] {
            let unfit = check(&long).expect_err("it is too deep");
            assert!(unfit.problem.contains("within each other"), "{}", unfit.problem);
        }
        // Also where the second half was walked before: keywords are looked at by name.
        let mut halves = chain(60, |next| next);
        halves["anyOf"] = json!([{"$ref": "#/$defs/l30"}]);
        let through =
            json!({"allOf": [{"not": {"not": {"not": {"not": {"$ref": "#/$defs/l0"}}}}}]});
        halves["contains"] = through;
        let unfit = check(&halves).expect_err("it is too deep");
        assert!(unfit.problem.contains("within each other"), "{}", unfit.problem);
    }

    #[test]
    fn what_is_looked_at_is_counted() {
        let small = json!({"enum": ["a", "b"], "pattern": "^a+$", "maxLength": 5});
        let all =
            check(&json!({"properties": {"x": {"$ref": "#/$defs/s"}, "y": {"$ref": "#/$defs/s"}},
            "$defs": {"s": small}}));
        let (all, one) = (all.expect("proper"), check(&small).expect("proper"));
        assert_eq!((one.parts, one.steps), (1, 4));
        assert!(one.reads > 3, "{one:?}");
        // The reference, and what it leads to.
        assert_eq!((all.parts, all.reads), (5, 2 * one.reads));
        assert_eq!(all.pattern_bytes, one.pattern_bytes, "compiled once");
    }
}
