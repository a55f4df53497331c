//! The insides of objects, lists and choices, each of which puts its own step before a fault's place.

use serde::de::value::BorrowedStrDeserializer;
use serde::de::{
    DeserializeSeed, EnumAccess, IntoDeserializer as _, MapAccess, SeqAccess, VariantAccess,
    Visitor,
};
use serde_json::{Map, Value, map};

use super::{Fault, Reader, words};

/// The field that says what the others mean, where there is one; it is handed out first.
const TAG: &str = "kind";

/// The fields of an object.
pub(super) struct Fields<'de> {
    tag: Option<(&'de str, &'de Value)>,
    rest: map::Iter<'de>,
    now: Option<(&'de str, &'de Value)>,
}

impl<'de> Fields<'de> {
    pub(super) fn new(fields: &'de Map<String, Value>) -> Self {
        let tag = fields.get(TAG).map(|value| (TAG, value));
        Self { tag, rest: fields.iter(), now: None }
    }
}

impl<'de> MapAccess<'de> for Fields<'de> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Fault> {
        let next = self.tag.take().or_else(|| {
            let mut rest = self.rest.by_ref().map(|(name, value)| (name.as_str(), value));
            rest.find(|(name, _)| *name != TAG)
        });
        let Some((name, value)) = next else { return Ok(None) };
        self.now = Some((name, value));
        let key = BorrowedStrDeserializer::<Fault>::new(name);
        // A name that is not known brings its own place along.
        let place = |fault: Fault| if fault.path == name { fault } else { fault.within(name) };
        seed.deserialize(key).map(Some).map_err(place)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Fault> {
        let (name, value) = self.now.take().expect("a value is asked for after its key");
        seed.deserialize(Reader(value)).map_err(|fault| fault.within(name))
    }
}

/// The items of a list.
pub(super) struct Items<'de> {
    items: std::iter::Enumerate<std::slice::Iter<'de, Value>>,
}

impl<'de> Items<'de> {
    pub(super) fn new(items: &'de [Value]) -> Self {
        Self { items: items.iter().enumerate() }
    }
}

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = Fault;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Fault> {
        let Some((index, value)) = self.items.next() else { return Ok(None) };
        seed.deserialize(Reader(value)).map(Some).map_err(|fault| fault.nth(index))
    }
}

/// One of several: a text, or an object with one field.
pub(super) struct Choice<'de> {
    pub(super) name: &'de str,
    pub(super) contents: Option<&'de Value>,
}

impl<'de> EnumAccess<'de> for Choice<'de> {
    type Error = Fault;
    type Variant = Self;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), Fault> {
        let name = self.name;
        Ok((seed.deserialize(name.into_deserializer())?, self))
    }
}

impl<'de> VariantAccess<'de> for Choice<'de> {
    type Error = Fault;

    fn unit_variant(self) -> Result<(), Fault> {
        match self.contents {
            None => Ok(()),
            Some(_) => {
                Err(Fault::at(self.name, format!("must be written as the text \"{}\"", self.name)))
            }
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Fault> {
        let Some(contents) = self.contents else {
            return Err(Fault::at(self.name, "needs a value: write it as an object"));
        };
        seed.deserialize(Reader(contents)).map_err(|fault| fault.within(self.name))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Fault> {
        match self.contents {
            Some(Value::Array(items)) => {
                visitor.visit_seq(Items::new(items)).map_err(|fault| fault.within(self.name))
            }
            _ => Err(Fault::at(self.name, "must be a list")),
        }
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        known: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match self.contents {
            Some(Value::Object(fields)) => {
                visitor.visit_map(Fields::new(fields)).map_err(|fault| fault.within(self.name))
            }
            Some(other) => Err(Fault::at(self.name, words::not_an_object(other, known))),
            None => Err(Fault::at(self.name, words::an_object_with(known))),
        }
    }
}
