//! The outline of a document: what kinds of values it has, and under which names.
//!
//! It says where a document has the wrong form without holding all of it in memory a second time: texts are
//! left out, and so is what lies deeper or further down than anybody looks.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// How much of a document is kept.
#[derive(Clone, Copy)]
struct Outline<'a> {
    /// Levels of lists and objects whose contents are kept.
    levels: usize,
    /// Values that are left to be kept, wherever they are.
    left: &'a Cell<usize>,
}

/// The outline of a text that is JSON, of so many values at most.
pub(super) fn of(text: &str, levels: usize, values: usize) -> serde_json::Result<Value> {
    let left = Cell::new(values);
    Outline { levels, left: &left }.deserialize(&mut serde_json::Deserializer::from_str(text))
}

impl Outline<'_> {
    /// One level further down.
    fn below(self) -> Option<Self> {
        Some(Self { levels: self.levels.checked_sub(1)?, ..self })
    }

    /// Whether there is room for one more value.
    fn take(self) -> bool {
        let left = self.left.get();
        self.left.set(left.saturating_sub(1));
        left > 0
    }
}

impl<'de> DeserializeSeed<'de> for Outline<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Outline<'_> {
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
        if let Some(below) = self.below() {
            while self.take()
                && let Some(item) = seq.next_element_seed(below)?
            {
                kept.push(item);
            }
        }
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Value::Array(kept))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut kept = Map::new();
        if let Some(below) = self.below() {
            while self.take()
                && let Some(name) = map.next_key::<String>()?
            {
                kept.insert(name, map.next_value_seed(below)?);
            }
        }
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Value::Object(kept))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_depths_and_what_is_too_much_are_left_out() {
        let text = r#"{"a": "text", "b": [1, 2, {"c": [3]}], "d": true}"#;
        let all = of(text, 3, 100).expect("JSON");
        assert_eq!(all, json!({"a": "", "b": [1, 2, {"c": []}], "d": true}));
        assert_eq!(of(text, 1, 100).expect("JSON"), json!({"a": "", "b": [], "d": true}));
        // Wherever they are: a hundred objects are too many.
        let wide = json!(vec![json!({"a": 1, "b": 2, "c": 3}); 100]).to_string();
        let kept = of(&wide, 2, 10).expect("JSON");
        let fields = |item: &Value| 1 + item.as_object().map_or(0, Map::len);
        let kept: usize = kept.as_array().expect("a list").iter().map(fields).sum();
        assert!((5..=10).contains(&kept), "{kept}");
    }
}
