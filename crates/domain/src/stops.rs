//! The times in which a subscription did not take part: paused by its owner, or disabled.
//!
//! What a delivery may live (`schedule.max_age`) is counted without them. They are kept with the
//! subscription, so that a million deliveries that waited are not written anew when it goes on.

use serde::{Deserialize, Serialize};

use crate::{Span, Timestamp};

/// Stops that are kept apart. The two oldest become one when there are more: a delivery may then
/// live longer than it should, never shorter.
const STOPS_MAX: usize = 32;

/// One of those times, in milliseconds since 1970; without an end while it lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stop(i64, Option<i64>);

/// The times in which a subscription did not take part, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Stops(Vec<Stop>);

impl Stops {
    /// Whether it has never stopped.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Those times, oldest first; without an end while the last one lasts.
    pub fn periods(&self) -> impl Iterator<Item = (Timestamp, Option<Timestamp>)> + '_ {
        self.0.iter().map(|Stop(began, ended)| {
            (Timestamp::from_millis(*began), ended.map(Timestamp::from_millis))
        })
    }

    /// Notes that it stands still from now on, if it does not already.
    pub fn stop(&mut self, now: Timestamp) {
        if self.0.last().is_some_and(|last| last.1.is_none()) {
            return;
        }
        self.0.push(Stop(now.as_millis(), None));
        if self.0.len() > STOPS_MAX {
            let first = self.0.remove(0);
            if let Some(next) = self.0.first_mut() {
                next.0 = first.0;
            }
        }
    }

    /// Notes that it goes on.
    pub fn go_on(&mut self, now: Timestamp) {
        if let Some(last) = self.0.last_mut()
            && last.1.is_none()
        {
            last.1 = Some(now.as_millis().max(last.0));
        }
    }

    /// How long it stood still between two times.
    pub fn between(&self, from: Timestamp, to: Timestamp) -> Span {
        let (from, to) = (from.as_millis(), to.as_millis());
        let stood = |stop: &Stop| {
            let (began, ended) = (stop.0.max(from), stop.1.unwrap_or(to).min(to));
            u64::try_from(ended.saturating_sub(began)).unwrap_or(0)
        };
        Span::from_millis(self.0.iter().map(stood).sum())
    }

    /// When something began, had the clock not stood still since.
    #[must_use]
    pub fn shifted(&self, began: Timestamp, now: Timestamp) -> Timestamp {
        if self.is_empty() { began } else { began.plus(self.between(began, now)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn only_what_lies_in_between_counts() {
        let mut stops = Stops::default();
        stops.go_on(at(5));
        assert!(stops.is_empty());
        stops.stop(at(10));
        stops.stop(at(15));
        assert_eq!(stops.between(at(0), at(30)), Span::from_millis(20), "it still lasts");
        stops.go_on(at(20));
        stops.go_on(at(25));
        stops.stop(at(40));
        stops.go_on(at(50));
        assert_eq!(stops.between(at(0), at(100)), Span::from_millis(20));
        assert_eq!(stops.between(at(15), at(45)), Span::from_millis(10));
        assert_eq!(stops.between(at(21), at(39)), Span::ZERO);
        assert_eq!(stops.shifted(at(30), at(100)), at(40), "younger than the first stop");
        let text = serde_json::to_string(&stops).expect("plain data");
        assert_eq!(text, "[[10,20],[40,50]]");
        assert_eq!(serde_json::from_str::<Stops>(&text).expect("its own form"), stops);
    }

    #[test]
    fn they_stay_few_and_never_take_time_away() {
        let mut stops = Stops::default();
        for n in 0..1_000 {
            stops.stop(at(n * 10));
            stops.go_on(at(n * 10 + 5));
        }
        assert_eq!(stops.0.len(), STOPS_MAX);
        assert!(stops.between(at(0), at(10_000)) >= Span::from_millis(5_000));
    }
}
