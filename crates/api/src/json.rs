//! Reading JSON strictly, and saying which field is at fault.
//!
//! Parsing tries the plain way first; only when it fails is the text read again with a path tracker,
//! so that naming the field costs nothing when all is well.

mod outline;

use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::marker::PhantomData;

use posthorn_domain::limits::{BATCH_EVENTS_MAX, JSON_DEPTH_MAX};
use posthorn_domain::plain;
use serde::de::value::MapAccessDeserializer;
use serde::de::{
    self, Deserialize, DeserializeOwned, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::Value;

use crate::codes;
use crate::problem::{Problem, Result};

/// How deep envelopes of events go: the event, its attributes, their values.
const OUTLINE_LEVELS: usize = 2;
/// Values in an outline: a full batch of events with all their fields, and a few more.
const OUTLINE_VALUES: usize = 16 * BATCH_EVENTS_MAX;

/// Reads a small document: depth and repeated keys are checked everywhere in it.
pub(crate) fn parse_strict<T: DeserializeOwned>(text: &str) -> Result<T> {
    check_depth(text)?;
    let value = serde_json::from_str(text);
    // What is wrong with the text comes before what is wrong with its meaning.
    if let Err(e) = serde_json::from_str::<Unique>(text) {
        return Err(Problem::new(codes::INVALID_JSON, e.to_string()));
    }
    match value {
        Ok(Object(value)) => refuse_nul(text).map(|()| value),
        Err(e) => Err(explain_strict::<Object<T>>(text, &e)),
    }
}

/// What is wrong with the meaning of a text that is proper JSON, in plain words.
fn explain_strict<T: DeserializeOwned>(text: &str, error: &serde_json::Error) -> Problem {
    let value: Value = serde_json::from_str(text).unwrap_or_default();
    match plain::read::<T>(&value) {
        Err(plain::Fault { path, problem }) => Problem::field(path, problem),
        Ok(_) => Problem::new(codes::INVALID_REQUEST, error.to_string()),
    }
}

/// Refuses U+0000 in any text: not every store can keep it, and no one means it. JSON can only have it as
/// an escape, so that most documents are seen to be without at a glance.
fn refuse_nul(text: &str) -> Result<()> {
    if !text.contains("\\u0000") {
        return Ok(());
    }
    let found =
        serde_json::from_str(text).ok().and_then(|value: Value| nul_in(&value, String::new()));
    match found {
        Some(path) => Err(Problem::field(path, "must not contain the character U+0000")),
        None => Ok(()),
    }
}

/// Where a text with U+0000 is.
fn nul_in(value: &Value, path: String) -> Option<String> {
    let below =
        |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    match value {
        Value::String(text) => text.contains('\0').then_some(path),
        Value::Array(items) => {
            let mut items = items.iter().enumerate();
            items.find_map(|(index, item)| nul_in(item, format!("{path}[{index}]")))
        }
        Value::Object(fields) => {
            fields.iter().find_map(|(name, value)| match name.contains('\0') {
                true => Some(path.clone()),
                false => nul_in(value, below(name)),
            })
        }
        _ => None,
    }
}

/// Reads a document that may be large; repeated keys are refused where `T` looks. `fault` says what is wrong
/// with the outline of a document that is JSON, but no `T`.
pub(crate) fn parse<'a, T: Deserialize<'a>>(
    text: &'a str,
    fault: impl FnOnce(&Value) -> Option<plain::Fault>,
) -> Result<T> {
    match serde_json::from_str(text) {
        Ok(Object(value)) => Ok(value),
        Err(e) => Err(explain::<Object<T>>(text, &e, fault)),
    }
}

/// What keeps an outline from being a `T`.
pub(crate) fn fault_of<'v, T: Deserialize<'v>>(outline: &'v Value) -> Option<plain::Fault> {
    plain::read::<Object<T>>(outline).err()
}

/// The text of a body.
pub(crate) fn utf8(body: &[u8]) -> Result<&str> {
    std::str::from_utf8(body)
        .map_err(|e| Problem::new(codes::INVALID_JSON, format!("not UTF-8: {e}")))
}

fn explain<'a, T: Deserialize<'a>>(
    text: &'a str,
    error: &serde_json::Error,
    fault: impl FnOnce(&Value) -> Option<plain::Fault>,
) -> Problem {
    if let Some(name) = error.to_string().strip_prefix("duplicate field `") {
        let name = name.split('`').next().unwrap_or_default();
        return Problem::new(codes::INVALID_JSON, format!("the key `{name}` is repeated"));
    }
    // What is wrong with the text comes before what is wrong with its meaning.
    if let Err(e) = serde_json::from_str::<IgnoredAny>(text) {
        return Problem::new(codes::INVALID_JSON, e.to_string());
    }
    let outline = outline::of(text, OUTLINE_LEVELS, OUTLINE_VALUES).ok();
    if let Some(plain::Fault { path, problem }) = outline.as_ref().and_then(fault) {
        return Problem::field(path, problem);
    }
    // It is further down, or in a text: at least its place can be told.
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let path = match serde_path_to_error::deserialize::<_, T>(&mut deserializer) {
        Err(e) if e.path().to_string() != "." => e.path().to_string(),
        _ => String::new(),
    };
    Problem::field(path, "has the wrong form")
}

/// A message without the text that somebody wrote into a field: it may be a secret in the wrong place.
/// The field is named beside it, and who wrote the text knows it.
pub fn unquoted(message: &str) -> String {
    for kind in ["invalid type: string ", "invalid value: string "] {
        // What comes behind the text is ours, and has no such words.
        if let Some(start) = message.find(kind).map(|at| at + kind.len() - 1)
            && let Some(end) = message.rfind("\", expected ").filter(|end| *end > start)
        {
            return format!("{}{}", &message[..start], &message[end + 1..]);
        }
    }
    message.to_owned()
}

/// Refuses what is nested too deeply. The text is known to be, or will be checked to be, JSON.
pub(crate) fn check_depth(text: &str) -> Result<()> {
    // Most documents have so few brackets that they cannot be too deep; counting is much cheaper
    // than following strings.
    let brackets = text.bytes().filter(|byte| matches!(byte, b'{' | b'[')).count();
    if brackets <= JSON_DEPTH_MAX || depth(text.as_bytes()) <= JSON_DEPTH_MAX {
        return Ok(());
    }
    Err(Problem::new(codes::INVALID_JSON, format!("nested deeper than {JSON_DEPTH_MAX} levels")))
}

fn depth(text: &[u8]) -> usize {
    let (mut now, mut most) = (0usize, 0);
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'{' | b'[' => {
                now += 1;
                most = most.max(now);
            }
            b'}' | b']' => now = now.saturating_sub(1),
            b'"' => {
                while let Some(byte) = bytes.next() {
                    match byte {
                        b'"' => break,
                        b'\\' => drop(bytes.next()),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    most
}

/// A document in which no object repeats a key.
struct Unique;

impl<'de> Deserialize<'de> for Unique {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(UniqueVisitor)
    }
}

struct UniqueVisitor;

impl<'de> Visitor<'de> for UniqueVisitor {
    type Value = Unique;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_str<E>(self, _: &str) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_unit<E>(self) -> Result<Unique, E> {
        Ok(Unique)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Unique, A::Error> {
        while seq.next_element::<Unique>()?.is_some() {}
        Ok(Unique)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Unique, A::Error> {
        let mut seen = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            if let Some(twice) = seen.replace(key) {
                return Err(de::Error::custom(format!("the key `{twice}` is repeated")));
            }
            map.next_value::<Unique>()?;
        }
        Ok(Unique)
    }
}

/// A record that is written as an object. Derived records also take lists of their fields in order,
/// which nobody means and which would change its meaning with the next field.
#[derive(Debug)]
pub(crate) struct Object<T>(pub(crate) T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Object<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Fields<T> {
            type Value = Object<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Object)
            }
        }
        deserializer.deserialize_map(Fields(PhantomData))
    }
}

/// A text that borrows from the request where it has no escapes.
#[derive(Debug)]
pub(crate) struct Text<'a>(pub(crate) Cow<'a, str>);

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Borrow;
        impl<'de> Visitor<'de> for Borrow {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E>(self, text: &str) -> Result<Text<'de>, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Borrow)
    }
}

/// A map of texts that refuses a repeated key.
#[derive(Debug, Default)]
pub(crate) struct TextMap(pub(crate) BTreeMap<String, String>);

impl<'de> Deserialize<'de> for TextMap {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = TextMap;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of texts")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<TextMap, A::Error> {
                let mut pairs = BTreeMap::new();
                while let Some(key) = map.next_key::<String>()? {
                    if pairs.contains_key(&key) {
                        // Worded like serde's own, so that both are recognised the same way.
                        return Err(de::Error::custom(format!("duplicate field `{key}`")));
                    }
                    pairs.insert(key, map.next_value()?);
                }
                Ok(TextMap(pairs))
            }
        }
        deserializer.deserialize_map(Pairs)
    }
}

/// A list that stops being read when it is too long, before it fills the memory.
#[derive(Debug)]
pub(crate) struct AtMost<const MAX: usize, T>(pub(crate) Vec<T>);

impl<'de, const MAX: usize, T: Deserialize<'de>> Deserialize<'de> for AtMost<MAX, T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items<const MAX: usize, T>(PhantomData<T>);
        impl<'de, const MAX: usize, T: Deserialize<'de>> Visitor<'de> for Items<MAX, T> {
            type Value = AtMost<MAX, T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "a list of at most {MAX} items")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    if items.len() == MAX {
                        return Err(de::Error::invalid_length(MAX + 1, &self));
                    }
                    items.push(item);
                }
                Ok(AtMost(items))
            }
        }
        deserializer.deserialize_seq(Items::<MAX, T>(PhantomData))
    }
}

/// For optional fields of a change: `null` is not the same as absent.
pub(crate) fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depth_is_counted_outside_of_strings() {
        for (text, wanted) in [
            ("1", 0),
            ("[]", 1),
            (r#"{"a":[{"b":1}]}"#, 3),
            (r#"["[[[[","\"[[[","\\"]"#, 1),
            ("[[],[[]]]", 3),
        ] {
            assert_eq!(depth(text.as_bytes()), wanted, "{text}");
        }
        let nested = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        assert!(check_depth(&nested(64)).is_ok());
        assert!(check_depth(&nested(65)).is_err());
        assert!(check_depth(&format!("[{}]", vec!["[]"; 1_000].join(","))).is_ok());
    }

    #[test]
    fn values_of_texts_are_not_repeated() {
        for (message, wanted) in [
            (
                "invalid type: string \"whsec_X\", expected a map",
                "invalid type: string, expected a map",
            ),
            (
                "invalid value: string \"a\", expected b\", expected c at line 1 column 2",
                "invalid value: string, expected c at line 1 column 2",
            ),
            (
                "invalid type: integer `3`, expected a string",
                "invalid type: integer `3`, expected a string",
            ),
            ("x: invalid type: string \"y\", expected z", "x: invalid type: string, expected z"),
        ] {
            assert_eq!(unquoted(message), wanted);
        }
    }

    #[test]
    fn the_character_zero_is_refused_wherever_it_is() {
        let place = |text| match parse_strict::<Value>(text) {
            Ok(_) => None,
            Err(problem) => {
                serde_json::to_value(&problem).expect("JSON")["field"].as_str().map(str::to_owned)
            }
        };
        assert_eq!(place(r#"{"a":{"b":["x","\u0000"]}}"#).as_deref(), Some("a.b[1]"));
        assert_eq!(place(r#"{"a":{"\u0000":1}}"#).as_deref(), Some("a"));
        assert_eq!(place(r#"{"a":"\\u0000"}"#), None);
    }

    #[test]
    fn repeated_keys_are_found_at_any_level() {
        let is_strict = |text| parse_strict::<Value>(text).is_ok();
        assert!(is_strict(r#"{"a":1,"b":{"a":[{"a":1.5},null,true,-3]}}"#));
        assert!(!is_strict(r#"{"a":1,"a":2}"#));
        assert!(!is_strict(r#"[{"x":{"b":1,"\u0062":2}}]"#));
    }
}
