//! Durations as people write them in config files: `250ms`, `10s`, `5m`, `1h30m`, `7d`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A length of time in whole milliseconds, never negative.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Span(u64);

/// Why a text is not a span.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is not a duration: write whole numbers with units, like 250ms, 10s, 5m, 1h30m or 7d"
)]
pub struct SpanParseError(String);

/// Units from large to small, with their milliseconds.
const UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

impl Span {
    /// No time at all.
    pub const ZERO: Span = Span(0);

    /// From milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// From seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self(secs * 1000)
    }

    /// In milliseconds.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// For timers.
    pub const fn to_duration(self) -> Duration {
        Duration::from_millis(self.0)
    }
}

impl From<Duration> for Span {
    fn from(duration: Duration) -> Self {
        Self(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    }
}

impl From<Span> for Duration {
    fn from(span: Span) -> Self {
        span.to_duration()
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0s");
        }
        let mut rest = self.0;
        for (unit, millis) in UNITS {
            if rest >= millis {
                write!(f, "{}{unit}", rest / millis)?;
                rest %= millis;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Span {
    type Err = SpanParseError;

    fn from_str(text: &str) -> Result<Self, SpanParseError> {
        let bad = || SpanParseError(text.chars().take(40).collect());
        let mut rest = text.trim();
        let mut total: u64 = 0;
        if rest.is_empty() {
            return Err(bad());
        }
        while !rest.is_empty() {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            let number: u64 = rest[..digits].parse().map_err(|_| bad())?;
            rest = &rest[digits..];
            let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
            let unit = &rest[..letters];
            rest = &rest[letters..];
            let millis =
                UNITS.iter().find(|(name, _)| *name == unit).map(|(_, m)| *m).ok_or_else(bad)?;
            total = number
                .checked_mul(millis)
                .and_then(|part| total.checked_add(part))
                .ok_or_else(bad)?;
        }
        Ok(Self(total))
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Written)
    }
}

/// Reads a span from its text.
struct Written;

impl Visitor<'_> for Written {
    type Value = Span;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a duration as a text, like \"30s\" or \"1h30m\"")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<Span, E> {
        text.parse().map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_durations_are_the_same_length() {
        assert_eq!(Span::from(Duration::from_millis(1_500)), Span::from_millis(1_500));
        assert_eq!(Duration::from(Span::from_secs(2)), Duration::from_secs(2));
        assert_eq!(Span::from(Duration::MAX), Span::from_millis(u64::MAX));
    }

    #[test]
    fn spans_read_as_written() {
        for (text, millis) in [
            ("250ms", 250),
            ("1s", 1_000),
            ("2m", 120_000),
            ("1h30m", 5_400_000),
            ("7d", 604_800_000),
            ("0s", 0),
        ] {
            let span: Span = text.parse().expect(text);
            assert_eq!(span.as_millis(), millis, "{text}");
            assert_eq!(span.to_string().parse::<Span>(), Ok(span));
        }
        for bad in ["", "5", "s", "-1s", "1.5s", "5 s", "1w", "99999999999999999999d"] {
            assert!(bad.parse::<Span>().is_err(), "{bad}");
        }
    }
}
