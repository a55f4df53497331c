//! What a fault is called, in words that need no knowledge of Rust.

use serde::de::{Expected, Unexpected};
use serde_json::Value;

pub(super) fn wrong_type(found: Unexpected<'_>, expected: &dyn Expected) -> String {
    let expected = wanted(&expected.to_string());
    // A number of the right kind that is out of bounds is no secret; everything else may be.
    let found = match found {
        Unexpected::Unsigned(number) => number_or_kind(&expected, &number),
        Unexpected::Signed(number) => number_or_kind(&expected, &number),
        Unexpected::Float(number) => number_or_kind(&expected, &number),
        Unexpected::Bool(_) => "true or false".to_owned(),
        Unexpected::Char(_) | Unexpected::Str(_) | Unexpected::Bytes(_) => "a text".to_owned(),
        Unexpected::Seq => "a list".to_owned(),
        Unexpected::Map | Unexpected::StructVariant => "an object".to_owned(),
        Unexpected::Unit | Unexpected::Option => "null".to_owned(),
        _ => return format!("must be {expected}"),
    };
    format!("must be {expected}, not {found}")
}

fn number_or_kind(expected: &str, number: &dyn ToString) -> String {
    if expected.contains("number") { number.to_string() } else { "a number".to_owned() }
}

/// What serde calls something, in plain words; what types say of themselves is plain already.
pub(super) fn wanted(expected: &str) -> String {
    let plain = match expected {
        "u8" => "a whole number from 0 to 255",
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "u64" | "usize" => "a whole number from 0",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number",
        "f32" | "f64" => "a number",
        "a boolean" => "true or false",
        "a string" | "str" | "string" | "a borrowed string" | "a character" => "a text",
        "a sequence" => "a list",
        "a map" => "an object",
        "unit" => "null",
        // Names of types: struct X, enum X, struct variant X::Y, internally tagged enum X.
        other if other.split(' ').any(|word| word == "struct" || word == "enum") => "an object",
        other => other,
    };
    plain.to_owned()
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

pub(super) fn an_object_with(known: &[&str]) -> String {
    match known {
        [] => "must be an object".to_owned(),
        known => format!("must be an object with {}", known.join(", ")),
    }
}

pub(super) fn not_an_object(found: &Value, known: &[&str]) -> String {
    format!("{}, not {}", an_object_with(known), kind(found))
}

pub(super) fn unknown_field(known: &[&str]) -> String {
    match known {
        [] => "there is no such field here; no fields are allowed".to_owned(),
        known => format!("there is no such field here; known fields: {}", known.join(", ")),
    }
}

pub(super) fn unknown_choice(found: &str, known: &[&str]) -> String {
    let found: String = found.chars().take(40).collect();
    format!("`{found}` is not one of {}", known.join(", "))
}

pub(super) fn no_choice(found: &Value, known: &[&str]) -> String {
    let known = known.join(", ");
    match found {
        Value::Object(_) => format!("must be exactly one of {known}"),
        other => format!("must be one of {known}, not {}", kind(other)),
    }
}
