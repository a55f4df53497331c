//! Durations as Go programs write them: `250ms`, `1.5s`, `1h30m`.

use std::fmt;
use std::str::FromStr;

use posthorn_domain::Span;
use serde::{Deserialize, Deserializer, de};

/// A duration as Go programs write it, to the millisecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Interval(Span);

/// Units with their nanoseconds; the longer names first, so that `ms` is not read as `m`.
const UNITS: [(&str, u128); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];
const NANOS_PER_MILLI: u128 = 1_000_000;
/// Digits after the point that mean anything: those of a nanosecond in an hour.
const FRACTION_DIGITS_MAX: usize = 13;

impl Interval {
    /// From milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(Span::from_millis(millis))
    }

    /// As the engine uses it.
    pub const fn span(self) -> Span {
        self.0
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Why a text is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a duration: write 250ms, 1.5s, 2m or 1h30m, not finer than a millisecond")]
pub struct IntervalError(String);

impl FromStr for Interval {
    type Err = IntervalError;

    fn from_str(text: &str) -> Result<Self, IntervalError> {
        parse(text).ok_or_else(|| IntervalError(text.chars().take(40).collect()))
    }
}

fn parse(text: &str) -> Option<Interval> {
    if text == "0" {
        return Some(Interval::from_millis(0));
    }
    let mut rest = text;
    let mut total: u128 = 0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let whole = digits(&mut rest);
        let mut fraction = "";
        if let Some(after) = rest.strip_prefix('.') {
            rest = after;
            fraction = digits(&mut rest);
        }
        if whole.is_empty() && fraction.is_empty() || fraction.len() > FRACTION_DIGITS_MAX {
            return None;
        }
        let (name, nanos) = UNITS.iter().find(|(name, _)| {
            rest.strip_prefix(name).is_some_and(|after| {
                after.is_empty() || after.starts_with(|c: char| c.is_ascii_digit() || c == '.')
            })
        })?;
        rest = &rest[name.len()..];
        let number = |digits: &str| match digits {
            "" => Some(0),
            digits => digits.parse::<u128>().ok(),
        };
        let scale = 10u128.pow(u32::try_from(fraction.len()).ok()?);
        let part = number(whole)?.checked_mul(*nanos)?;
        let fine = number(fraction)?.checked_mul(*nanos)?;
        if !fine.is_multiple_of(scale) {
            return None;
        }
        total = total.checked_add(part)?.checked_add(fine / scale)?;
    }
    if !total.is_multiple_of(NANOS_PER_MILLI) {
        return None;
    }
    u64::try_from(total / NANOS_PER_MILLI).ok().map(Interval::from_millis)
}

fn digits<'t>(rest: &mut &'t str) -> &'t str {
    let count = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, after) = rest.split_at(count);
    *rest = after;
    digits
}

impl<'de> Deserialize<'de> for Interval {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        super::text_of(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_as_written() {
        for (text, millis) in [
            ("250ms", 250),
            ("500ms", 500),
            ("1s", 1_000),
            ("1.5s", 1_500),
            (".5s", 500),
            ("1.s", 1_000),
            ("2m", 120_000),
            ("5m", 300_000),
            ("10m", 600_000),
            ("1h30m", 5_400_000),
            ("1m0.25s", 60_250),
            ("1.5h", 5_400_000),
            ("1000000ns", 1),
            ("2000us", 2),
            ("3000µs", 3),
            ("0", 0),
            ("0s", 0),
        ] {
            assert_eq!(text.parse(), Ok(Interval::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in [
            "",
            "5",
            "s",
            ".",
            ".s",
            "-1s",
            "+1s",
            "1 s",
            "1d",
            "1sm",
            "1ss",
            "1s1",
            "0.5ms",
            "1us",
            "1e3s",
            "0x10s",
            "99999999999999999999999999999999999999999h",
            "1.00000000000000000000000000s",
            "१s",
        ] {
            let error = text.parse::<Interval>().expect_err(text);
            assert!(error.to_string().contains("is not a duration"), "{error}");
        }
    }
}
