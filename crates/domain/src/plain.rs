//! Reading JSON values into types, with errors for people: where something is wrong, and what would
//! be right there.
//!
//! Serde's own messages speak of structs, variants and integer widths, which mean nothing to those
//! who write a policy or a configuration. [`read`] walks the same types with a reader of its own, so
//! that no type needs to know: the place is put together on the way out, the words here.
//!
//! It never quotes what it finds where a value has the wrong type: that may be a secret.

mod access;
mod words;

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, Visitor};
use serde_json::Value;

use access::{Choice, Fields, Items};

/// What is wrong with a value, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The place, as `schedule.backoff.fixed.wait` or `auth[0].header`; empty at the top.
    pub path: String,
    /// What is wrong, and what would be right.
    pub problem: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.problem)
    }
}

impl std::error::Error for Fault {}

/// Reads a value.
pub fn read<'de, T: Deserialize<'de>>(value: &'de Value) -> Result<T, Fault> {
    T::deserialize(Reader(value))
}

/// What reads a value so; for types that read themselves by hand.
pub(crate) fn reader(value: &Value) -> impl Deserializer<'_, Error = Fault> {
    Reader(value)
}

impl Fault {
    fn here(problem: impl Into<String>) -> Self {
        Self { path: String::new(), problem: problem.into() }
    }

    fn at(name: &str, problem: impl Into<String>) -> Self {
        Self { path: name.to_owned(), problem: problem.into() }
    }

    /// The same, seen from the object around it.
    fn within(mut self, name: &str) -> Self {
        match self.path.as_bytes().first() {
            None => name.clone_into(&mut self.path),
            Some(b'[') => self.path.insert_str(0, name),
            Some(_) => self.path = format!("{name}.{}", self.path),
        }
        self
    }

    /// The same, seen from the list around it.
    fn nth(self, index: usize) -> Self {
        self.within(&format!("[{index}]"))
    }
}

impl de::Error for Fault {
    fn custom<T: fmt::Display>(problem: T) -> Self {
        Self::here(problem.to_string())
    }

    fn invalid_type(found: de::Unexpected<'_>, wanted: &dyn de::Expected) -> Self {
        Self::here(words::wrong_type(found, wanted))
    }

    fn invalid_value(found: de::Unexpected<'_>, wanted: &dyn de::Expected) -> Self {
        Self::here(words::wrong_type(found, wanted))
    }

    fn invalid_length(length: usize, wanted: &dyn de::Expected) -> Self {
        Self::here(format!("must be {}, not {length}", words::wanted(&wanted.to_string())))
    }

    fn unknown_variant(variant: &str, known: &'static [&'static str]) -> Self {
        Self::here(words::unknown_choice(variant, known))
    }

    fn unknown_field(field: &str, known: &'static [&'static str]) -> Self {
        Self::at(field, words::unknown_field(known))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::at(field, "is missing")
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self::at(field, "is given twice")
    }
}

/// One value, to be read.
#[derive(Clone, Copy)]
struct Reader<'de>(&'de Value);

macro_rules! by_kind {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
            self.deserialize_any(visitor)
        }
    )*};
}

impl<'de> Deserializer<'de> for Reader<'de> {
    type Error = Fault;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(flag) => visitor.visit_bool(*flag),
            Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(number), ..) => visitor.visit_u64(number),
                (_, Some(number), _) => visitor.visit_i64(number),
                (_, _, Some(number)) => visitor.visit_f64(number),
                _ => Err(Fault::here("is too large a number")),
            },
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Array(items) => visitor.visit_seq(Items::new(items)),
            Value::Object(fields) => visitor.visit_map(Fields::new(fields)),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.0 {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        // Derived records also take lists of their fields in order, which nobody means.
        match self.0 {
            Value::Object(fields) => visitor.visit_map(Fields::new(fields)),
            other => Err(Fault::here(words::not_an_object(other, known))),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let choice = match self.0 {
            Value::String(name) => Choice { name, contents: None },
            Value::Object(fields) if fields.len() == 1 => match fields.iter().next() {
                Some((name, contents)) => Choice { name, contents: Some(contents) },
                None => return Err(Fault::here(words::no_choice(self.0, known))),
            },
            other => return Err(Fault::here(words::no_choice(other, known))),
        };
        visitor.visit_enum(choice)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.deserialize_any(visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Fault> {
        self.deserialize_any(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.deserialize_any(visitor)
    }

    by_kind! {
        deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_f32
        deserialize_f64 deserialize_char deserialize_str deserialize_string deserialize_bytes
        deserialize_byte_buf deserialize_unit deserialize_seq deserialize_map
        deserialize_identifier
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only whether it can be read matters")]
    struct House {
        rooms: u8,
        #[serde(default)]
        height: Option<f64>,
        #[serde(default)]
        doors: Vec<Door>,
        #[serde(default)]
        names: BTreeMap<String, String>,
    }

    #[derive(Debug, serde::Deserialize)]
    #[serde(rename_all = "snake_case", deny_unknown_fields)]
    #[expect(dead_code, reason = "only whether it can be read matters")]
    enum Door {
        Open,
        Locked { key: String },
        Guarded(Vec<bool>),
    }

    #[track_caller]
    fn check(value: &Value, path: &str, problem: &str) {
        let fault = read::<House>(value).expect_err("refused");
        assert_eq!((fault.path.as_str(), fault.problem.as_str()), (path, problem), "{value}");
    }

    #[test]
    fn what_is_right_is_read() {
        let value = json!({
            "rooms": 3, "height": 2, "names": {"a": "b"},
            "doors": ["open", {"locked": {"key": "k"}}, {"guarded": [true]}],
        });
        let house: House = read(&value).expect("proper");
        assert_eq!((house.rooms, house.height, house.doors.len()), (3, Some(2.0), 3));
    }

    #[test]
    fn faults_have_a_place_and_plain_words() {
        let fields = "rooms, height, doors, names";
        check(&json!([3]), "", &format!("must be an object with {fields}, not a list"));
        check(&json!({}), "rooms", "is missing");
        check(
            &json!({"rooms": 1, "roof": 1}),
            "roof",
            &format!("there is no such field here; known fields: {fields}"),
        );
        check(&json!({"rooms": "1"}), "rooms", "must be a whole number from 0 to 255, not a text");
        check(&json!({"rooms": 256}), "rooms", "must be a whole number from 0 to 255, not 256");
        check(&json!({"rooms": -1}), "rooms", "must be a whole number from 0 to 255, not -1");
        check(&json!({"rooms": 1.5}), "rooms", "must be a whole number from 0 to 255, not 1.5");
        check(&json!({"rooms": null}), "rooms", "must be a whole number from 0 to 255, not null");
        let with = |name: &str, value: Value| json!({"rooms": 1, name: value});
        check(&with("height", json!([])), "height", "must be a number, not a list");
        check(&with("names", json!(true)), "names", "must be an object, not true or false");
        check(&with("names", json!({"a": 1})), "names.a", "must be a text, not a number");
        let doors = |door: Value| with("doors", json!(["open", door]));
        let one_of = "open, locked, guarded";
        check(&doors(json!("shut")), "doors[1]", &format!("`shut` is not one of {one_of}"));
        check(&doors(json!({"shut": 1})), "doors[1]", &format!("`shut` is not one of {one_of}"));
        check(&doors(json!(1)), "doors[1]", &format!("must be one of {one_of}, not a number"));
        check(
            &doors(json!({"open": 1, "locked": 2})),
            "doors[1]",
            &format!("must be exactly one of {one_of}"),
        );
        check(&doors(json!({"open": {}})), "doors[1].open", "must be written as the text \"open\"");
        check(&doors(json!("locked")), "doors[1].locked", "must be an object with key");
        check(&doors(json!({"locked": {}})), "doors[1].locked.key", "is missing");
        check(
            &doors(json!({"locked": {"key": 1}})),
            "doors[1].locked.key",
            "must be a text, not a number",
        );
        check(
            &doors(json!({"guarded": [true, "x"]})),
            "doors[1].guarded[1]",
            "must be true or false, not a text",
        );
    }
}
