//! The outline of a document: what kinds of values it has, and under which names.
//!
//! It says where a document has the wrong form without holding all of it in memory a second time: texts are
//! left out, and so is what lies deeper or further down than anybody looks.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// How much of a document is kept.
#[derive(Clone, Copy)]
struct Outline {
    /// Levels of lists and objects whose contents are kept.
    levels: usize,
    /// Items of a list, or fields of an object.
    items: usize,
}

/// The outline of a text that is JSON.
pub(super) fn of(text: &str, levels: usize, items: usize) -> serde_json::Result<Value> {
    Outline { levels, items }.deserialize(&mut serde_json::Deserializer::from_str(text))
}

impl<'de> DeserializeSeed<'de> for Outline {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Outline {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::Bool(flag))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_str<E>(self, _: &str) -> Result<Value, E> {
        Ok(Value::String(String::new()))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut kept = Vec::new();
        if let Some(levels) = self.levels.checked_sub(1) {
            while kept.len() < self.items
                && let Some(item) = seq.next_element_seed(Self { levels, ..self })?
            {
                kept.push(item);
            }
        }
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Array(kept))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut kept = Map::new();
        if let Some(levels) = self.levels.checked_sub(1) {
            while kept.len() < self.items
                && let Some(name) = map.next_key::<String>()?
            {
                kept.insert(name, map.next_value_seed(Self { levels, ..self })?);
            }
        }
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Value::Object(kept))
    }
}
