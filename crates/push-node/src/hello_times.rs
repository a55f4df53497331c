//! When agents last said hello: node and time together name a connection, so no two hellos of one
//! agent may have the same time.

use std::collections::HashMap;

use posthorn_domain::{AgentId, Timestamp};

/// With more times than this, those of the past are forgotten: the clock tells them apart.
const TIMES_MAX: usize = 1_024;

/// The last times that the clock does not tell apart yet.
#[derive(Default)]
pub(crate) struct HelloTimes(HashMap<AgentId, i64>);

impl HelloTimes {
    /// A time for a hello: now, or just after the last one of this agent.
    pub(crate) fn next(&mut self, agent: AgentId, now: Timestamp) -> Timestamp {
        let now = now.as_millis();
        let last = self.last(agent, now);
        *last = now.max(*last + 1);
        Timestamp::from_millis(*last)
    }

    /// A connection has this time, whoever chose it.
    pub(crate) fn note(&mut self, agent: AgentId, at: Timestamp, now: Timestamp) {
        if at >= now {
            let last = self.last(agent, now.as_millis());
            *last = at.as_millis().max(*last);
        }
    }

    fn last(&mut self, agent: AgentId, now: i64) -> &mut i64 {
        if self.0.len() >= TIMES_MAX {
            self.0.retain(|_, last| *last >= now);
        }
        self.0.entry(agent).or_insert(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_agent_gets_a_time_twice_and_others_do_not_matter() {
        let mut hellos = HelloTimes::default();
        let at = Timestamp::from_millis;
        let (one, other) = (AgentId::from_random(1), AgentId::from_random(2));
        let times: Vec<_> = (0..3).map(|_| hellos.next(one, at(1_000)).as_millis()).collect();
        assert_eq!(times, [1_000, 1_001, 1_002]);
        assert_eq!(hellos.next(other, at(1_000)), at(1_000));
        hellos.note(other, at(1_010), at(1_000));
        assert_eq!(hellos.next(other, at(1_005)), at(1_011));
        assert_eq!(hellos.next(one, at(2_000)), at(2_000));
    }

    #[test]
    fn times_of_the_past_are_not_kept() {
        let mut hellos = HelloTimes::default();
        for n in 0..50_000_u32 {
            let agent = AgentId::from_random(u128::from(n) << 80);
            let now = Timestamp::from_millis(i64::from(n));
            if n % 2 == 0 {
                hellos.note(agent, now, now);
            } else {
                hellos.next(agent, now);
            }
            assert!(hellos.0.len() <= TIMES_MAX, "{} after {n}", hellos.0.len());
        }
    }
}
