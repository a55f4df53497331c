//! Time as data. Nothing in this crate asks the system what time it is.

use std::fmt;

use jiff::SignedDuration;
use jiff::civil::DateTime;
use jiff::fmt::temporal::Pieces;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::Span;

/// Milliseconds since 1970 UTC. On the wire it is RFC 3339 text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Before everything.
    pub const MIN: Timestamp = Timestamp(0);
    /// After everything; stores use it for "not until something else happens".
    pub const MAX: Timestamp = Timestamp(i64::MAX);

    /// From stored milliseconds.
    pub const fn from_millis(millis: i64) -> Self {
        Self(millis)
    }

    /// To be stored.
    pub const fn as_millis(self) -> i64 {
        self.0
    }

    /// Whole seconds, rounded down, as signatures carry them.
    pub const fn as_seconds(self) -> i64 {
        self.0.div_euclid(1000)
    }

    /// Later by `span`, saturating.
    #[must_use]
    pub fn plus(self, span: Span) -> Self {
        Self(self.0.saturating_add(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)))
    }

    /// Earlier by `span`, saturating.
    #[must_use]
    pub fn minus(self, span: Span) -> Self {
        Self(self.0.saturating_sub(i64::try_from(span.as_millis()).unwrap_or(i64::MAX)))
    }

    /// How long from `earlier` to here; zero when it is not earlier.
    pub fn since(self, earlier: Timestamp) -> Span {
        Span::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// The UTC calendar day, `yyyy-MM-dd`.
    pub fn utc_date(self) -> String {
        match self.civil() {
            Some(at) => at.strftime("%Y-%m-%d").to_string(),
            None => "9999-12-31".to_owned(),
        }
    }

    /// Date and time in UTC, for all of the years 0 to 9999; `None` beyond. The library's own moments
    /// end a little earlier, so that they can be shown in every time zone.
    fn civil(self) -> Option<DateTime> {
        EPOCH.checked_add(SignedDuration::from_millis(self.0)).ok()
    }
}

const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0) {
            Ok(at) => write!(f, "{at:.3}"),
            Err(_) => match self.civil() {
                Some(at) => write!(f, "{at:.3}Z"),
                None => f.write_str("9999-12-31T23:59:59.999Z"),
            },
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::str::FromStr for Timestamp {
    type Err = jiff::Error;

    fn from_str(text: &str) -> Result<Self, jiff::Error> {
        let refused = match text.parse::<jiff::Timestamp>() {
            Ok(at) => return Ok(Self(at.as_millisecond())),
            Err(e) => e,
        };
        last_days(text).ok_or(refused)
    }
}

/// A moment in the last two days of the year 9999, which people write for "never".
fn last_days(text: &str) -> Option<Timestamp> {
    let pieces = Pieces::parse(text).ok().filter(|pieces| pieces.date().year() == 9999)?;
    let offset = pieces.to_numeric_offset()?;
    let at = DateTime::from_parts(pieces.date(), pieces.time()?);
    let since = at.duration_since(EPOCH).as_millis() - i128::from(offset.seconds()) * 1_000;
    let at = Timestamp(i64::try_from(since).ok()?);
    at.civil().map(|_| at)
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// Where "now" comes from. The server has a wall clock, the simulator a virtual one.
pub trait Clock: Send + Sync + 'static {
    /// The present moment.
    fn now(&self) -> Timestamp;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_rfc_3339_with_milliseconds() {
        let at = Timestamp::from_millis(1_700_000_000_123);
        assert_eq!(at.to_string(), "2023-11-14T22:13:20.123Z");
        assert_eq!(at.to_string().parse::<Timestamp>().expect("round trip"), at);
        assert_eq!(at.utc_date(), "2023-11-14");
        assert_eq!(Timestamp::MAX.to_string(), "9999-12-31T23:59:59.999Z");
    }

    #[test]
    fn the_year_9999_is_complete() {
        for (text, wanted) in [
            ("9999-12-30T21:59:59.999Z", Some("9999-12-30T21:59:59.999Z")),
            ("9999-12-31T00:00:00Z", Some("9999-12-31T00:00:00.000Z")),
            ("9999-12-31T23:59:59.999Z", Some("9999-12-31T23:59:59.999Z")),
            ("9999-12-31T23:59:59+01:00", Some("9999-12-31T22:59:59.000Z")),
            ("9999-12-31T23:59:59-01:00", None),
            ("9999-12-32T00:00:00Z", None),
            ("9999-12-31", None),
            ("9999-12-31T00:00:00", None),
            ("10000-01-01T00:00:00Z", None),
        ] {
            let read = text.parse::<Timestamp>().ok();
            assert_eq!(read.map(|at| at.to_string()).as_deref(), wanted, "{text}");
            let again = read.map(|at| at.to_string().parse::<Timestamp>().expect("reads"));
            assert_eq!(again, read, "{text}");
        }
    }
}
