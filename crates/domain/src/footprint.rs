//! How much memory a thing takes that is made of texts, lists and maps.
//!
//! Things are walked through as if they were written down, and every text, entry and item is counted
//! with what the allocator and the collections add to it. It is an estimate, on the high side: a text may
//! be a template, which is kept as it was written and in parts. It depends on the thing alone.

use serde::Serialize;
use serde::ser::{
    SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant, SerializeTuple,
    SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

/// A value in a list or map: the largest of the enums that JSON values, conditions and templates are.
const SLOT: usize = 72;
/// A key of a map, besides its text, and its share of a node that is half full.
const KEY: usize = 64;
/// What one allocation adds.
const ALLOCATION: usize = 16;
/// A collection that is there at all.
const COLLECTION: usize = 48;

/// How many bytes of memory `thing` takes, nearly.
pub fn footprint<T: Serialize + ?Sized>(thing: &T) -> usize {
    let mut counter = Counter(0);
    // Only a type that refuses to be written down could fail, and then nothing is known of it.
    match thing.serialize(&mut counter) {
        Ok(()) => counter.0,
        Err(Unwritable) => usize::MAX,
    }
}

struct Counter(usize);

#[derive(Debug)]
struct Unwritable;

impl std::fmt::Display for Unwritable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("it cannot be written as JSON")
    }
}

impl std::error::Error for Unwritable {}

impl serde::ser::Error for Unwritable {
    fn custom<T: std::fmt::Display>(_: T) -> Self {
        Self
    }
}

impl Counter {
    fn add(&mut self, bytes: usize) -> Result<(), Unwritable> {
        self.0 = self.0.saturating_add(bytes);
        Ok(())
    }

    fn text(&mut self, text: &str) -> Result<(), Unwritable> {
        self.add(SLOT + 2 * (ALLOCATION + text.len()))
    }
}

macro_rules! plain {
    ($($name:ident: $kind:ty),* $(,)?) => {
        $(fn $name(self, _: $kind) -> Result<(), Unwritable> { self.add(SLOT) })*
    };
}

impl<'a> Serializer for &'a mut Counter {
    type Ok = ();
    type Error = Unwritable;
    type SerializeSeq = &'a mut Counter;
    type SerializeTuple = &'a mut Counter;
    type SerializeTupleStruct = &'a mut Counter;
    type SerializeTupleVariant = &'a mut Counter;
    type SerializeMap = &'a mut Counter;
    type SerializeStruct = &'a mut Counter;
    type SerializeStructVariant = &'a mut Counter;

    plain! {
        serialize_bool: bool, serialize_i8: i8, serialize_i16: i16, serialize_i32: i32,
        serialize_i64: i64, serialize_u8: u8, serialize_u16: u16, serialize_u32: u32,
        serialize_u64: u64, serialize_f32: f32, serialize_f64: f64, serialize_char: char,
    }

    fn serialize_str(self, text: &str) -> Result<(), Unwritable> {
        self.text(text)
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Result<(), Unwritable> {
        self.add(SLOT + ALLOCATION + bytes.len())
    }

    fn serialize_none(self) -> Result<(), Unwritable> {
        self.add(SLOT)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Unwritable> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Unwritable> {
        self.add(SLOT)
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Unwritable> {
        self.add(SLOT)
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
    ) -> Result<(), Unwritable> {
        self.add(SLOT)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Unwritable> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), Unwritable> {
        self.add(SLOT)?;
        value.serialize(self)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self, Unwritable> {
        self.add(COLLECTION)?;
        Ok(self)
    }

    fn serialize_tuple(self, len: usize) -> Result<Self, Unwritable> {
        self.serialize_seq(Some(len))
    }

    fn serialize_tuple_struct(self, _: &'static str, len: usize) -> Result<Self, Unwritable> {
        self.serialize_seq(Some(len))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        len: usize,
    ) -> Result<Self, Unwritable> {
        self.serialize_seq(Some(len))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self, Unwritable> {
        self.add(COLLECTION)?;
        Ok(self)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, Unwritable> {
        Ok(self)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, Unwritable> {
        self.add(SLOT)?;
        Ok(self)
    }
}

macro_rules! items {
    ($($kind:ident $method:ident),* $(,)?) => {
        $(
            impl $kind for &mut Counter {
                type Ok = ();
                type Error = Unwritable;

                fn $method<T: Serialize + ?Sized>(&mut self, item: &T) -> Result<(), Unwritable> {
                    item.serialize(&mut **self)
                }

                fn end(self) -> Result<(), Unwritable> {
                    Ok(())
                }
            }
        )*
    };
}

items! {
    SerializeSeq serialize_element,
    SerializeTuple serialize_element,
    SerializeTupleStruct serialize_field,
    SerializeTupleVariant serialize_field,
}

impl SerializeMap for &mut Counter {
    type Ok = ();
    type Error = Unwritable;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), Unwritable> {
        self.add(KEY)?;
        key.serialize(&mut **self)
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), Unwritable> {
        value.serialize(&mut **self)
    }

    fn end(self) -> Result<(), Unwritable> {
        Ok(())
    }
}

macro_rules! fields {
    ($($kind:ident),*) => {
        $(
            impl $kind for &mut Counter {
                type Ok = ();
                type Error = Unwritable;

                // The name of a field is in the program, not in the thing.
                fn serialize_field<T: Serialize + ?Sized>(
                    &mut self,
                    _: &'static str,
                    value: &T,
                ) -> Result<(), Unwritable> {
                    value.serialize(&mut **self)
                }

                fn end(self) -> Result<(), Unwritable> {
                    Ok(())
                }
            }
        )*
    };
}

fields!(SerializeStruct, SerializeStructVariant);

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn it_grows_with_every_part_of_a_thing() {
        let empty = footprint(&json!({}));
        let one = footprint(&json!({"name": "x"}));
        let two = footprint(&json!({"name": "x", "other": ["y", 1, null]}));
        assert!(empty < one && one < two, "{empty} {one} {two}");
        let long = footprint(&json!({"name": "x".repeat(1_000)}));
        assert!((1_998..3_000).contains(&(long - one)), "{}", long - one);
    }

    /// Short texts in small maps are where memory is much more than text.
    #[test]
    fn small_things_count_for_what_they_take() {
        let many: Vec<_> = (0..1_000).map(|n| json!({ "k": n.to_string() })).collect();
        let text = serde_json::to_string(&many).expect("JSON").len();
        assert!(footprint(&many) > 20 * text, "{} for {text}", footprint(&many));
    }

    #[test]
    fn policies_and_filters_can_be_counted() {
        let policy = crate::policy::profiles::shipped().into_values().next().expect("one");
        assert!((1_000..100_000).contains(&footprint(&policy)), "{}", footprint(&policy));
        assert!(footprint(&crate::Filter::everything()) < 1_000);
    }
}
