//! How things were at a moment: what a page and the words of its stream are marked with.

use std::collections::hash_map::DefaultHasher;
use std::fmt;
use std::hash::{Hash as _, Hasher as _};

use posthorn_engine::TailCursor;
use posthorn_store::LogPlace;

use crate::visit::Visit;

/// How things are, in short: the same number as long as nothing has changed.
pub(super) fn print_of(what: &impl fmt::Debug) -> u64 {
    let mut hasher = DefaultHasher::new();
    format!("{what:?}").hash(&mut hasher);
    hasher.finish()
}

/// How things were at a moment, as far as a stream can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// Where the log ended; the overview of the server does not follow it.
    pub(super) log: Option<TailCursor>,
    /// All else, in short.
    pub(super) print: u64,
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.print)?;
        let Some(TailCursor { events, attempts }) = self.log else { return Ok(()) };
        write!(f, ".{}.{}.{}.{}", events.commit, events.row, attempts.commit, attempts.row)
    }
}

impl Mark {
    fn read(text: &str) -> Option<Self> {
        let mut parts = text.split('.');
        let print = u64::from_str_radix(parts.next()?, 16).ok()?;
        let places: Vec<&str> = parts.collect();
        let log = match places[..] {
            [] => None,
            [one, two, three, four] => {
                let place = |commit: &str, row: &str| {
                    Some(LogPlace { commit: commit.parse().ok()?, row: row.parse().ok()? })
                };
                Some(TailCursor { events: place(one, two)?, attempts: place(three, four)? })
            }
            _ => return None,
        };
        Some(Self { log, print })
    }

    /// Where a browser that comes to listen was: what it heard last, or the page that it shows.
    pub(super) fn of_listener(visit: &Visit) -> Option<Self> {
        let last = visit.headers.get("last-event-id").and_then(|value| value.to_str().ok());
        Self::read(last.or_else(|| visit.query.get("since"))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_read_as_they_are_written() {
        let place = |commit, row| LogPlace { commit, row };
        let log = Some(TailCursor { events: place(1, 2), attempts: place(u64::MAX, u128::MAX) });
        for mark in [Mark { log: None, print: 0xab }, Mark { log, print: u64::MAX }] {
            assert_eq!(Mark::read(&mark.to_string()), Some(mark));
        }
        for text in ["", "x", "1.2", "1.2.3.4", "1.2.3.4.5.6", "1.a.3.4.5", "-1"] {
            assert_eq!(Mark::read(text), None, "{text}");
        }
    }
}
