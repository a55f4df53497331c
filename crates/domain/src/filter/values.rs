//! The values an attribute may have: one text, or a list of which one must match. It knows nothing of
//! events, nor of what happens when an attribute is missing.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

use super::cost::CONDITION;
use crate::limits::FILTER_VALUES_MAX;

/// Stands for any value.
const ANY: &str = "*";

/// What an attribute is compared with. It is written down again in the form it was given in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum AttributeValues {
    /// This value.
    One(String),
    /// One of these.
    AnyOf(Vec<String>),
}

impl AttributeValues {
    /// All of them.
    pub fn all(&self) -> &[String] {
        match self {
            Self::One(value) => std::slice::from_ref(value),
            Self::AnyOf(values) => values,
        }
    }

    /// Whether an attribute's value is one of them.
    pub(super) fn hold(&self, found: &str) -> bool {
        self.all().iter().any(|value| value == ANY || value == found)
    }

    /// What comparing with all of them costs.
    pub(super) fn cost(&self) -> u64 {
        self.all().iter().map(|value| CONDITION + value.len() as u64).sum()
    }
}

impl From<&str> for AttributeValues {
    fn from(value: &str) -> Self {
        Self::One(value.to_owned())
    }
}

/// By hand, since what serde makes of two possible forms says only that neither fits, not where and why.
impl<'de> Deserialize<'de> for AttributeValues {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = AttributeValues;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, or a list of texts")
            }

            fn visit_str<E>(self, value: &str) -> Result<AttributeValues, E> {
                Ok(value.into())
            }

            fn visit_string<E>(self, value: String) -> Result<AttributeValues, E> {
                Ok(AttributeValues::One(value))
            }

            fn visit_seq<A: SeqAccess<'de>>(
                self,
                mut list: A,
            ) -> Result<AttributeValues, A::Error> {
                let mut values = Vec::new();
                while let Some(value) = list.next_element()? {
                    values.push(value);
                }
                Ok(AttributeValues::AnyOf(values))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

impl JsonSchema for AttributeValues {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "AttributeValues".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "oneOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}, "minItems": 1,
                 "maxItems": FILTER_VALUES_MAX},
            ],
        })
    }
}
