//! A checker of JSON documents against the schemas of the OpenAPI document.
//!
//! It knows the keywords that the document uses and no others: one that it does not know is a
//! failure, so that nothing in the document goes unchecked.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use http::Method;
use posthorn_api::{ROUTES, Route, openapi_document};
use posthorn_testkit::caller::{Call, Reply};
use serde_json::Value;
use serde_json::value::RawValue;

static DOCUMENT: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(&openapi_document()).expect("the document is JSON"));

/// What is wrong with a value, if anything; `at` is where it is.
pub(crate) fn check(schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    let wrong = |what: &str| Err(format!("{at}: {what}: {value}"));
    let all = schema.as_object().expect("a schema is an object");
    for (keyword, rule) in all {
        let fits = match keyword.as_str() {
            "description" | "default" | "examples" | "format" | "writeOnly" | "discriminator" => {
                true
            }
            "$ref" => {
                let target = rule.as_str().and_then(|target| target.strip_prefix('#'));
                let target = target.and_then(|target| DOCUMENT.pointer(target));
                check(target.unwrap_or_else(|| panic!("{rule} leads nowhere")), value, at)?;
                true
            }
            "type" => match rule {
                Value::Array(kinds) => kinds.iter().any(|kind| is(kind, value)),
                kind => is(kind, value),
            },
            "enum" => rule.as_array().expect("a list").contains(value),
            "const" => rule == value,
            "oneOf" => {
                one_of(rule, value, at)?;
                true
            }
            "not" => check(rule, value, at).is_err(),
            "allOf" => {
                for form in rule.as_array().expect("a list") {
                    check(form, value, at)?;
                }
                true
            }
            "required" => match missing(rule, value) {
                None => true,
                Some(name) => return wrong(&format!("{name} is missing")),
            },
            "properties" | "additionalProperties" => {
                fields(schema, value, at)?;
                true
            }
            "propertyNames" => value.as_object().is_none_or(|o| {
                o.keys().all(|k| check(rule, &Value::from(k.as_str()), at).is_ok())
            }),
            "items" => {
                for (index, item) in value.as_array().into_iter().flatten().enumerate() {
                    check(rule, item, &format!("{at}[{index}]"))?;
                }
                true
            }
            "pattern" => value.as_str().is_none_or(|text| matches(rule.as_str().unwrap(), text)),
            "minimum" => number(value).is_none_or(|n| n >= number(rule).unwrap()),
            "maximum" => number(value).is_none_or(|n| n <= number(rule).unwrap()),
            "exclusiveMinimum" => number(value).is_none_or(|n| n > number(rule).unwrap()),
            "minLength" => value.as_str().is_none_or(|t| t.chars().count() as u64 >= size(rule)),
            "maxLength" => value.as_str().is_none_or(|t| t.chars().count() as u64 <= size(rule)),
            "minItems" => value.as_array().is_none_or(|list| list.len() as u64 >= size(rule)),
            "maxItems" => value.as_array().is_none_or(|list| list.len() as u64 <= size(rule)),
            "maxProperties" => value.as_object().is_none_or(|o| o.len() as u64 <= size(rule)),
            other => panic!("the checker does not know `{other}`"),
        };
        if !fits {
            return wrong(&format!("{keyword} {rule}"));
        }
    }
    Ok(())
}

/// A schema by its name.
pub(crate) fn named(name: &str) -> &'static Value {
    let schema = &DOCUMENT["components"]["schemas"][name];
    assert!(schema.is_object(), "there is no schema {name}");
    schema
}

fn one_of(forms: &Value, value: &Value, at: &str) -> Result<(), String> {
    let results: Vec<_> =
        forms.as_array().expect("a list").iter().map(|form| check(form, value, at)).collect();
    match results.iter().filter(|result| result.is_ok()).count() {
        1 => Ok(()),
        0 => {
            let reasons: Vec<_> = results.into_iter().filter_map(Result::err).collect();
            Err(format!("{at}: none of the forms fits:\n  {}", reasons.join("\n  ")))
        }
        many => Err(format!("{at}: {many} forms fit: {value}")),
    }
}

fn is(kind: &Value, value: &Value) -> bool {
    match kind.as_str().expect("a type is a text") {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        "null" => value.is_null(),
        other => panic!("there is no type {other}"),
    }
}

fn missing<'a>(required: &'a Value, value: &Value) -> Option<&'a str> {
    let fields = value.as_object()?;
    let mut names = required.as_array()?.iter().filter_map(Value::as_str);
    names.find(|name| !fields.contains_key(*name))
}

fn fields(schema: &Value, value: &Value, at: &str) -> Result<(), String> {
    for (name, inner) in value.as_object().into_iter().flatten() {
        let place = format!("{at}.{name}");
        match (schema["properties"].get(name), &schema["additionalProperties"]) {
            (Some(known), _) => check(known, inner, &place)?,
            (None, Value::Bool(false)) => return Err(format!("{place}: is not in the document")),
            (None, Value::Null | Value::Bool(true)) => {}
            (None, other) => check(other, inner, &place)?,
        }
    }
    Ok(())
}

fn number(value: &Value) -> Option<f64> {
    value.as_f64()
}

fn size(rule: &Value) -> u64 {
    rule.as_u64().expect("a size")
}

/// Patterns of the document are rows of characters and classes, each with at most one count.
fn matches(pattern: &str, text: &str) -> bool {
    let inner = pattern.strip_prefix('^').and_then(|p| p.strip_suffix('$')).expect("anchored");
    let mut rest = inner;
    let mut left = text;
    while let Some(first) = rest.chars().next() {
        let end = if first == '[' { rest.find(']').expect("closed") + 1 } else { first.len_utf8() };
        let (atom, after) = rest.split_at(end);
        let (least, most, after) = counts(after);
        rest = after;
        let fitting = left.chars().take(most).take_while(|c| fits(atom, *c));
        let (taken, bytes) = fitting.fold((0, 0), |(n, bytes), c| (n + 1, bytes + c.len_utf8()));
        if taken < least {
            return false;
        }
        left = &left[bytes..];
    }
    left.is_empty()
}

fn counts(after: &str) -> (usize, usize, &str) {
    if let Some(rest) = after.strip_prefix('+') {
        return (1, usize::MAX, rest);
    }
    let Some((range, rest)) = after.strip_prefix('{').and_then(|after| after.split_once('}'))
    else {
        return (1, 1, after);
    };
    let (least, most) = range.split_once(',').unwrap_or((range, range));
    (least.parse().expect("a count"), most.parse().expect("a count"), rest)
}

fn fits(atom: &str, c: char) -> bool {
    let Some(class) = atom.strip_prefix('[').and_then(|class| class.strip_suffix(']')) else {
        return atom.starts_with(c);
    };
    let members: Vec<char> = class.chars().collect();
    let mut at = 0;
    while at < members.len() {
        if at + 2 < members.len() && members[at + 1] == '-' {
            if (members[at]..=members[at + 2]).contains(&c) {
                return true;
            }
            at += 3;
        } else {
            if members[at] == c {
                return true;
            }
            at += 1;
        }
    }
    false
}

/// The route of a request, as the router finds it: what is spelled out goes before what is named.
fn route(method: &Method, path: &str) -> Option<&'static Route> {
    let path = path.split('?').next().unwrap_or_default();
    let fits = |route: &&Route| {
        let (mut wanted, mut given) = (route.path.split('/'), path.split('/'));
        route.method == *method
            && loop {
                match (wanted.next(), given.next()) {
                    (None, None) => break true,
                    (Some(wanted), Some(given)) if wanted.starts_with('{') && !given.is_empty() => {
                    }
                    (Some(wanted), Some(given)) if wanted == given => {}
                    _ => break false,
                }
            }
    };
    ROUTES.iter().filter(fits).min_by_key(|route| route.path.contains('{'))
}

/// Checks an answer against what the document says of its route.
#[track_caller]
pub(crate) fn check_answer(call: &Call, reply: &Reply) {
    let method: Method = call.method.parse().expect("a method");
    let kind = reply.header("content-type").unwrap_or_default();
    let (path, status, body) = (&call.path, reply.status, reply.body.as_bytes());
    let at = format!("{method} {path} {status}");
    let problem = kind == "application/problem+json";
    let schema = match route(&method, path) {
        _ if problem => "Problem",
        Some(route) if route.status == status => match route.answer {
            Some(schema) => schema,
            None => {
                assert!(status != 204 || body.is_empty(), "{at}: a body where there is none");
                return;
            }
        },
        Some(_) if status >= 400 => panic!("{at}: an error that is no problem document"),
        Some(route) => panic!("{at}: the document says {}", route.status),
        // Nobody's path, answered before any route.
        None => return,
    };
    if kind == "text/jsonl" {
        for line in reply.body.lines() {
            let value: Value = serde_json::from_str(line).unwrap_or_else(|e| panic!("{at}: {e}"));
            check(named(schema), &value, schema).unwrap_or_else(|wrong| panic!("{at}: {wrong}"));
        }
        return;
    }
    let value: Value = serde_json::from_slice(body)
        .or_else(|_| without_payload(body))
        .unwrap_or_else(|e| panic!("{at}: {e}"));
    if let Err(wrong) = check(named(schema), &value, schema) {
        panic!("{at}: the answer is not as the document says: {wrong}");
    }
}

/// A payload may hold numbers that do not fit into ours; it may be anything, so nothing is lost.
fn without_payload(body: &[u8]) -> serde_json::Result<Value> {
    let mut fields: BTreeMap<&str, &RawValue> = serde_json::from_slice(body)?;
    fields.remove("payload");
    serde_json::from_str(&serde_json::to_string(&fields)?)
}

#[test]
fn the_checker_finds_what_is_wrong() {
    let bad = |name: &str, value: Value| check(named(name), &value, name).unwrap_err();
    let ok = |name: &str, value: Value| check(named(name), &value, name).unwrap();
    ok("Stats", serde_json::json!({"events":1,"pending":0,"delivered":0,"dead":0,"cancelled":0}));
    assert!(bad("Stats", serde_json::json!({"events": 1})).contains("is missing"));
    assert!(bad("Status", serde_json::json!({"status": "odd"})).contains("enum"));
    assert!(bad("Status", serde_json::json!({"status": "alive", "x": 1})).contains("Status.x"));
    ok("Condition", serde_json::json!({"not": {"test": {"path": "/a", "op": "exists"}}}));
    assert!(bad("Condition", serde_json::json!({"nor": []})).contains("none of the forms"));
    let tenant = |id: &str| serde_json::json!({"id": id, "name": "a", "realm": "default", "created_at": "2026-01-01T00:00:00Z"});
    ok("Tenant", tenant("ten_01hf7yat00000000000000000z"));
    assert!(bad("Tenant", tenant("ten_01hf7yat0000000000000000")).contains("pattern"));
    assert!(bad("Tenant", tenant("ten_01hf7yat0000000000000000ul")).contains("pattern"));
}
