//! Reading a JSON document that a stranger wrote: no repeated keys, bounded depth, nothing left over.

use std::fmt;

use posthorn_domain::Problem;
use posthorn_domain::limits::JSON_DEPTH_MAX;
use serde::de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// The document, or what is wrong with it, with line and column.
pub(crate) fn read(body: &[u8]) -> Result<Value, Problem> {
    let text = std::str::from_utf8(body).map_err(|e| format!("not UTF-8: {e}"))?;
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value =
        Strict { depth: 0 }.deserialize(&mut deserializer).map_err(|error| error.to_string())?;
    deserializer.end().map_err(|error| error.to_string())?;
    Ok(value)
}

#[derive(Clone, Copy)]
struct Strict {
    depth: usize,
}

impl Strict {
    fn deeper<E: de::Error>(self) -> Result<Self, E> {
        if self.depth == JSON_DEPTH_MAX {
            return Err(E::custom(format!("nested deeper than {JSON_DEPTH_MAX} levels")));
        }
        Ok(Self { depth: self.depth + 1 })
    }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("not a number"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(inner)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut map = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            if map.contains_key(&key) {
                return Err(de::Error::custom(format!("the key `{key}` is repeated")));
            }
            let value = members.next_value_seed(inner)?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_read_as_they_are() {
        let text = r#" {"a":[1,-2,2.5,"x",null,true,{"b":{}}],"é":"\u00e9"} "#;
        assert_eq!(read(text.as_bytes()), Ok(serde_json::from_str(text).unwrap()));
    }

    #[test]
    fn what_readers_could_disagree_about_is_refused() {
        let deep = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        assert!(read(deep(64).as_bytes()).is_ok());
        for bad in [
            "",
            "{",
            "{} {}",
            r#"{"a":1,"a":1}"#,
            r#"[{"x":{"b":1,"\u0062":2}}]"#,
            "1e999",
            "\u{feff}{}",
            &deep(65),
            &deep(100_000),
        ] {
            assert!(read(bad.as_bytes()).is_err(), "{bad:.40}");
        }
        assert!(read(b"\"\xff\"").is_err());
    }
}
