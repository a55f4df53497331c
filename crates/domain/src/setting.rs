//! Values of a configuration as people write them: sizes with units, numbers that are not zero, lists
//! without repetition.
//!
//! The options of every crate are read with these (`#[serde(deserialize_with = "…")]`), so that a field
//! carries its rule, and whoever has the options knows that they keep it. A fault says what would be right;
//! where it is, the reader of the whole knows.

use std::fmt;
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer, Error};

use crate::{Problem, Span};

/// A number of bytes, such as `256KiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteSize(pub usize);

/// Units from large to small. Powers of two only: nobody means 256,000 by 256K.
const UNITS: [(&str, usize); 4] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, size) =
            UNITS.iter().find(|(_, size)| self.0.is_multiple_of(*size)).unwrap_or(&("B", 1));
        write!(f, "{}{unit}", self.0 / size)
    }
}

impl FromStr for ByteSize {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let bad =
            || Problem::new(format!("`{text}` is not a size: write 512B, 256KiB, 8MiB or 1GiB"));
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let number: usize = text[..digits].parse().map_err(|_| bad())?;
        let unit = text[digits..].trim();
        let (_, size) =
            UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).ok_or_else(bad)?;
        number.checked_mul(*size).map(Self).ok_or_else(bad)
    }
}

/// A size in bytes, as the number that its field is.
pub fn bytes<'de, D: Deserializer<'de>, T: TryFrom<usize>>(deserializer: D) -> Result<T, D::Error> {
    let ByteSize(size) = text(deserializer)?;
    T::try_from(size).map_err(|_| Error::custom("is too large"))
}

/// A size that is not zero.
pub fn some_bytes<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: TryFrom<usize> + Default + PartialEq,
{
    not_zero(bytes(deserializer)?, "must be at least 1B")
}

/// A number that is not zero.
pub fn at_least_one<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default + PartialEq,
{
    not_zero(T::deserialize(deserializer)?, "must be at least 1")
}

/// A number within bounds.
pub fn within<'de, const MIN: u64, const MAX: u64, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Copy + TryInto<u64>,
{
    let number = T::deserialize(deserializer)?;
    match number.try_into() {
        Ok(value) if (MIN..=MAX).contains(&value) => Ok(number),
        _ => Err(Error::custom(format_args!("must be {MIN} to {MAX}"))),
    }
}

/// A length of time.
pub fn time<'de, D: Deserializer<'de>, T: From<Span>>(deserializer: D) -> Result<T, D::Error> {
    Span::deserialize(deserializer).map(T::from)
}

/// A length of time that is not zero.
pub fn some_time<'de, D: Deserializer<'de>, T: From<Span>>(deserializer: D) -> Result<T, D::Error> {
    not_zero(Span::deserialize(deserializer)?, "must be more than zero").map(T::from)
}

/// A text that says something.
pub fn some_text<'de, D, T: From<String>>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
{
    let text = String::deserialize(deserializer)?;
    if text.trim().is_empty() {
        return Err(Error::custom("must not be empty"));
    }
    Ok(T::from(text))
}

/// What is meant where nothing is written (`null`).
pub fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::<T>::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// A list that names nothing twice.
pub fn each_once<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + PartialEq + fmt::Display,
{
    let all = Vec::<T>::deserialize(deserializer)?;
    match all.iter().enumerate().find(|(index, item)| all[..*index].contains(item)) {
        Some((_, item)) => {
            Err(Error::custom(format_args!("`{item}` is listed twice; list it once")))
        }
        None => Ok(all),
    }
}

/// Whatever is read from a text, by its own rule.
pub fn text<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: fmt::Display>,
{
    String::deserialize(deserializer)?.parse().map_err(Error::custom)
}

/// The same where there may be nothing.
pub fn text_if_any<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: fmt::Display>,
{
    Ok(Option::<Text<T>>::deserialize(deserializer)?.map(|Text(value)| value))
}

/// A list of them.
pub fn texts<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: fmt::Display>,
{
    Ok(Vec::<Text<T>>::deserialize(deserializer)?.into_iter().map(|Text(value)| value).collect())
}

fn not_zero<T: Default + PartialEq, E: Error>(value: T, problem: &str) -> Result<T, E> {
    if value == T::default() { Err(Error::custom(problem)) } else { Ok(value) }
}

struct Text<T>(T);

impl<'de, T: FromStr<Err: fmt::Display>> Deserialize<'de> for Text<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text(deserializer).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_read_as_written() {
        let sizes = [("512B", 512), ("256KiB", 262_144), ("8MiB", 8 << 20), ("1GiB", 1 << 30)];
        for (text, bytes) in sizes {
            let size: ByteSize = text.parse().expect(text);
            assert_eq!(size.0, bytes);
            assert_eq!(size.to_string(), text);
        }
        for text in ["", "5", "KiB", "1.5MiB", "12KB", "-1B"] {
            assert!(text.parse::<ByteSize>().is_err(), "{text}");
        }
    }
}
