//! Sets of HTTP statuses, written as `2xx`, `200` or `200-204`.

use std::fmt;
use std::ops::RangeInclusive;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A set of HTTP statuses.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct StatusSet(Vec<RangeInclusive<u16>>);

impl StatusSet {
    /// All of 200 to 299.
    pub fn two_hundreds() -> Self {
        Self(vec![200..=299])
    }

    /// Exactly these.
    pub fn of(statuses: &[u16]) -> Self {
        Self(statuses.iter().map(|s| *s..=*s).collect())
    }

    /// These and one more.
    #[must_use]
    pub fn with(mut self, status: u16) -> Self {
        if !self.contains(status) {
            self.0.push(status..=status);
        }
        self
    }

    /// Whether it holds `status`.
    pub fn contains(&self, status: u16) -> bool {
        self.0.iter().any(|range| range.contains(&status))
    }

    /// Whether it holds any status of a range.
    pub fn contains_any(&self, range: RangeInclusive<u16>) -> bool {
        self.0.iter().any(|own| own.start() <= range.end() && range.start() <= own.end())
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn parse_one(text: &str) -> Option<RangeInclusive<u16>> {
        let number = |t: &str| t.parse::<u16>().ok().filter(|s| (100..=599).contains(s));
        if let Some(class) = text.strip_suffix("xx") {
            let class = class.parse::<u16>().ok().filter(|c| (1..=5).contains(c))?;
            return Some(class * 100..=class * 100 + 99);
        }
        match text.split_once('-') {
            Some((from, to)) => {
                let range = number(from)?..=number(to)?;
                (!range.is_empty()).then_some(range)
            }
            None => number(text).map(|s| s..=s),
        }
    }
}

impl Serialize for StatusSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|range| {
            let (from, to) = (*range.start(), *range.end());
            if from == to {
                from.to_string()
            } else if from % 100 == 0 && to == from + 99 {
                format!("{}xx", from / 100)
            } else {
                format!("{from}-{to}")
            }
        }))
    }
}

impl<'de> Deserialize<'de> for StatusSet {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::<Written>::deserialize(deserializer)
            .map(|ranges| Self(ranges.into_iter().map(|Written(range)| range).collect()))
    }
}

/// One part of a set: a text, or a bare number.
struct Written(RangeInclusive<u16>);

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrNumber;
        impl de::Visitor<'_> for TextOrNumber {
            type Value = Written;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a status: 200, 2xx or 200-204")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Written, E> {
                StatusSet::parse_one(text).map(Written).ok_or_else(|| {
                    let text: String = text.chars().take(40).collect();
                    E::custom(format!("`{text}` is not a status: write 200, 2xx or 200-204"))
                })
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Written, E> {
                self.visit_str(&number.to_string())
            }
        }
        deserializer.deserialize_any(TextOrNumber)
    }
}
