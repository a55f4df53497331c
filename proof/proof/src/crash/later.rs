//! A time that is still to come, as a publisher writes it, and by the clock of the run.

use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::crash::evidence::Micros;

/// When an event is to be delivered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Later {
    /// As it is written.
    pub text: String,
    /// By the clock of the run: not before this.
    pub at: Micros,
}

impl Later {
    /// So many milliseconds from now. The clock of the run is read first, so that its time is never the later.
    #[expect(clippy::disallowed_methods, reason = "a publisher has its own clock, as in real life")]
    pub fn after(millis: u64, now: impl FnOnce() -> Micros) -> Self {
        let at = now() + millis * 1_000;
        let wall =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
        // Rounded up: what is written has whole milliseconds.
        let wall = u64::try_from(wall).unwrap_or(0) + 1;
        Self { text: rfc3339(wall + millis), at }
    }
}

/// Milliseconds since 1970 as UTC. Days are counted from a first of March, so that the leap day is the last.
fn rfc3339(millis: u64) -> String {
    let (days, rest) = (millis / 86_400_000, millis % 86_400_000);
    // From the first of March of the year 0 to the beginning of 1970.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    let year = era * 400 + year + next;
    let (hour, minute) = (rest / 3_600_000, rest / 60_000 % 60);
    let (second, milli) = (rest / 1_000 % 60, rest % 1_000);
    format!("{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

#[cfg(test)]
mod tests {
    use super::rfc3339;

    #[test]
    fn times_are_written_as_everybody_does() {
        for (millis, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_700_000_000_123, "2023-11-14T22:13:20.123Z"),
            (1_798_761_599_999, "2026-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(rfc3339(millis), text);
        }
    }
}
