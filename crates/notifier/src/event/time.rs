//! Times in events, as the wire writes them: RFC 3339 in UTC, with as many digits of a second as
//! there are, down to nanoseconds.

use std::fmt;
use std::str::FromStr;
use std::time::SystemTime;

use posthorn_domain::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// A moment, to the nanosecond, in UTC.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventTime(jiff::Timestamp);

impl EventTime {
    /// From nanoseconds since 1970 UTC; `None` outside of the years -9999 to 9999.
    pub fn from_unix_nanos(nanos: i128) -> Option<Self> {
        jiff::Timestamp::from_nanosecond(nanos).ok().map(Self)
    }
}

impl From<Timestamp> for EventTime {
    fn from(at: Timestamp) -> Self {
        Self(jiff::Timestamp::from_millisecond(at.as_millis()).unwrap_or(jiff::Timestamp::MAX))
    }
}

impl TryFrom<SystemTime> for EventTime {
    type Error = jiff::Error;

    fn try_from(at: SystemTime) -> Result<Self, jiff::Error> {
        jiff::Timestamp::try_from(at).map(Self)
    }
}

impl fmt::Display for EventTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

impl fmt::Debug for EventTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for EventTime {
    type Err = jiff::Error;

    fn from_str(text: &str) -> Result<Self, jiff::Error> {
        text.parse().map(Self)
    }
}

impl Serialize for EventTime {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for EventTime {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

/// A time that may be missing. On the wire the field is always there; what stands for "none" is the
/// first moment of the year 1, as the programs that began this wire write it.
pub(super) mod or_zero {
    use super::{Deserialize, Deserializer, EventTime, Serialize, Serializer};

    const ZERO: &str = "0001-01-01T00:00:00Z";

    pub(in super::super) fn serialize<S: Serializer>(
        time: &Option<EventTime>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => time.serialize(serializer),
            None => serializer.serialize_str(ZERO),
        }
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<EventTime>, D::Error> {
        let time = Option::<EventTime>::deserialize(deserializer)?;
        Ok(time.filter(|time| time.to_string() != ZERO))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_digits_as_there_are() {
        for (nanos, text) in [
            (1_700_000_000_000_000_000, "2023-11-14T22:13:20Z"),
            (1_700_000_000_120_000_000, "2023-11-14T22:13:20.12Z"),
            (1_700_000_000_000_000_001, "2023-11-14T22:13:20.000000001Z"),
            (0, "1970-01-01T00:00:00Z"),
        ] {
            let time = EventTime::from_unix_nanos(nanos).expect("in range");
            assert_eq!(time.to_string(), text);
            assert_eq!(text.parse::<EventTime>().expect("round trip"), time);
        }
        let offset: EventTime = "2023-11-14T23:13:20+01:00".parse().expect("any offset is read");
        assert_eq!(offset.to_string(), "2023-11-14T22:13:20Z");
    }
}
