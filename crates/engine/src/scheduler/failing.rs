//! Since when receivers have only failed, so that one that is gone for good is given up.
//!
//! A streak begins with the first failure after a success. It is written down once it lasts, with the
//! outcome that is being recorded anyway, and struck out with the first success; so it survives a
//! restart and a change of owner, and costs nothing per delivery.
//!
//! One that has lasted half of the time after which its subscription is disabled is told, once, and so is the success that
//! ends it. What deliveries of operational events say of a receiver counts, but is not told: when such a one is the first
//! success, the next ordinary one tells of it.

use std::collections::BTreeSet;

use posthorn_domain::policy::Failing;
use posthorn_domain::{Shard, Span, SubscriptionId, Timestamp};
use posthorn_store::{FailingSubscription, Standing, Streak};

use crate::catalog::Map;

/// A streak is written down when it has lasted this part of the time after which it ends in
/// disablement, at most [`WRITE_AFTER_MAX`]: a receiver that fails now and then writes nothing.
const WRITE_SHARE: u64 = 100;
const WRITE_AFTER_MAX: Span = Span::from_secs(60);

#[derive(Clone, Copy)]
struct Known {
    streak: Streak,
    /// What the store has of it.
    written: Option<Streak>,
}

/// What is known of the failing subscriptions of the shards that are held.
#[derive(Default)]
pub(super) struct Streaks {
    known: Map<SubscriptionId, Known>,
    /// Shards whose streaks were read since they were gained.
    read: BTreeSet<Shard>,
    /// Subscriptions that had a success before theirs were read.
    recovered: BTreeSet<SubscriptionId>,
    /// Streaks that were told and have ended, and whose end was not told yet.
    owed: Map<SubscriptionId, Streak>,
}

/// What a failure comes to.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Failed {
    /// What is to be written down.
    pub(super) standing: Option<Standing>,
    /// Whether the receiver is given up.
    pub(super) ends: bool,
    /// The streak, when it is to be told now.
    pub(super) told: Option<Streak>,
}

impl Streaks {
    /// Shards change hands: what is known of them is void.
    pub(super) fn forget_shards(&mut self, shards: &[Shard]) {
        self.known.retain(|id, _| !shards.contains(&Shard::of(*id)));
        self.recovered.retain(|id| !shards.contains(&Shard::of(*id)));
        self.owed.retain(|id, _| !shards.contains(&Shard::of(*id)));
        self.read.retain(|shard| !shards.contains(shard));
    }

    /// Takes in what the store has. Those that do not take part begin anew when they do.
    pub(super) fn load(
        &mut self,
        shards: &[Shard],
        rows: Vec<FailingSubscription>,
        active: impl Fn(SubscriptionId) -> bool,
    ) {
        self.read.extend(shards);
        for FailingSubscription { subscription, streak } in rows {
            if self.recovered.contains(&subscription) {
                if streak.told {
                    self.owed.insert(subscription, streak);
                }
                continue;
            }
            if !active(subscription) {
                continue;
            }
            let known = self.known.entry(subscription);
            let known = known.or_insert(Known { streak, written: Some(streak) });
            known.streak = known.streak.joined(&streak);
            known.written = Some(streak);
        }
        self.recovered.retain(|id| !shards.contains(&Shard::of(*id)));
    }

    /// It does not take part any more, or is gone.
    pub(super) fn forget(&mut self, id: SubscriptionId) {
        self.known.remove(&id);
        self.owed.remove(&id);
    }

    /// What was to be told was not: the record that said so changed nothing.
    pub(super) fn not_told(&mut self, id: SubscriptionId, ended: Option<Streak>) {
        if let Some(ended) = ended {
            self.owed.insert(id, ended);
        } else if let Some(known) = self.known.get_mut(&id) {
            known.streak.told = false;
        }
    }

    /// Since when it has failed.
    pub(super) fn since(&self, id: SubscriptionId) -> Option<Timestamp> {
        self.known.get(&id).map(|known| known.streak.since)
    }

    /// A success; what is to be written down, and the streak whose end is to be told. Nothing is told when the
    /// success is not worth telling (`tells`).
    pub(super) fn succeeded(
        &mut self,
        id: SubscriptionId,
        tells: bool,
    ) -> (Option<Standing>, Option<Streak>) {
        let known = self.known.remove(&id);
        if let Some(told) = known.map(|known| known.streak).filter(|streak| streak.told) {
            self.owed.insert(id, told);
        }
        let owed = if tells && !self.owed.is_empty() { self.owed.remove(&id) } else { None };
        let unread = !self.read.contains(&Shard::of(id));
        if unread {
            self.recovered.insert(id);
        }
        let written = known.is_some_and(|known| known.written.is_some());
        ((written || unread).then_some(Standing { subscription: id, failing: None }), owed)
    }

    /// A failure that is the receiver's. Nothing is told when it is not worth telling (`tells`).
    pub(super) fn failed(
        &mut self,
        id: SubscriptionId,
        exhausted: bool,
        tells: bool,
        policy: &Failing,
        now: Timestamp,
    ) -> Failed {
        let streak = Streak { since: now, exhausted: false, told: false };
        let first = Known { streak, written: None };
        let known = self.known.entry(id).or_insert(first);
        known.streak.exhausted |= exhausted;
        let lasted = now.since(known.streak.since);
        let half = Span::from_millis(policy.disable_after.as_millis() / 2);
        let due = tells && !known.streak.told && lasted >= half;
        known.streak.told |= due;
        let streak = known.streak;
        let ends = streak.exhausted && lasted >= policy.disable_after;
        let write_after = Span::from_millis(policy.disable_after.as_millis() / WRITE_SHARE);
        let worth = lasted >= write_after.min(WRITE_AFTER_MAX) && known.written != Some(streak);
        if worth {
            known.written = Some(streak);
        }
        let standing = worth.then_some(Standing { subscription: id, failing: Some(streak) });
        Failed { standing, ends, told: due.then_some(streak) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POLICY: Failing = Failing { disable_after: Span::from_secs(1_000) };

    fn at(s: i64) -> Timestamp {
        Timestamp::from_millis(s * 1_000)
    }

    fn streak(since: i64, exhausted: bool) -> Streak {
        Streak { since: at(since), exhausted, told: false }
    }

    fn told(since: i64, exhausted: bool) -> Streak {
        Streak { told: true, ..streak(since, exhausted) }
    }

    /// An ordinary failure: what is written down, and whether it is given up.
    fn failed(
        streaks: &mut Streaks,
        id: SubscriptionId,
        exhausted: bool,
        s: i64,
    ) -> (Option<Standing>, bool) {
        let failed = streaks.failed(id, exhausted, true, &POLICY, at(s));
        (failed.standing, failed.ends)
    }

    #[test]
    fn a_streak_is_written_once_it_lasts_and_struck_out_by_success() {
        let id = SubscriptionId::new(Timestamp::MIN, 1);
        let mut streaks = Streaks::default();
        streaks.load(&[Shard::of(id)], Vec::new(), |_| true);
        assert_eq!(failed(&mut streaks, id, false, 100), (None, false));
        let none = (None, None);
        assert_eq!(streaks.succeeded(id, true), none, "nothing was written, nothing is struck out");
        failed(&mut streaks, id, false, 200);
        let written = |streak| Some(Standing { subscription: id, failing: Some(streak) });
        assert_eq!(failed(&mut streaks, id, false, 210), (written(streak(200, false)), false));
        assert_eq!(failed(&mut streaks, id, false, 220), (None, false), "once");
        assert_eq!(failed(&mut streaks, id, true, 1_199), (written(told(200, true)), false));
        assert_eq!(failed(&mut streaks, id, false, 1_200), (None, true));
        let struck = Some(Standing { subscription: id, failing: None });
        assert_eq!(streaks.succeeded(id, true), (struck, Some(told(200, true))));
        assert!(!failed(&mut streaks, id, true, 1_300).1);
    }

    #[test]
    fn what_a_former_owner_wrote_counts_unless_it_is_old_news() {
        let id = SubscriptionId::new(Timestamp::MIN, 1);
        let row = FailingSubscription { subscription: id, streak: streak(50, true) };
        let mut streaks = Streaks::default();
        failed(&mut streaks, id, false, 1_060);
        streaks.load(&[Shard::of(id)], vec![row], |_| true);
        assert!(failed(&mut streaks, id, false, 1_061).1);

        streaks.forget_shards(&[Shard::of(id)]);
        assert_eq!(streaks.since(id), None);
        let struck = Some(Standing { subscription: id, failing: None });
        let answer = streaks.succeeded(id, true);
        assert_eq!(answer, (struck, None), "what the store has is not known yet");
        streaks.load(&[Shard::of(id)], vec![row], |_| true);
        assert_eq!(streaks.since(id), None, "it was read before the success was written");

        streaks.load(&[Shard::of(id)], vec![row], |_| false);
        assert_eq!(streaks.since(id), None, "it is paused");
    }

    #[test]
    fn a_streak_is_told_once_at_half_the_time_and_so_is_its_end() {
        let id = SubscriptionId::new(Timestamp::MIN, 1);
        let mut streaks = Streaks::default();
        streaks.load(&[Shard::of(id)], Vec::new(), |_| true);
        let tell =
            |streaks: &mut Streaks, tells, s| streaks.failed(id, false, tells, &POLICY, at(s)).told;
        assert_eq!(tell(&mut streaks, true, 100), None);
        assert_eq!(tell(&mut streaks, true, 599), None);
        assert_eq!(tell(&mut streaks, false, 601), None, "an operational event tells nothing");
        assert_eq!(tell(&mut streaks, true, 602), Some(told(100, false)));
        assert_eq!(tell(&mut streaks, true, 603), None, "once");
        streaks.not_told(id, None);
        assert_eq!(tell(&mut streaks, true, 604), Some(told(100, false)), "nobody had heard it");
        assert_eq!(streaks.succeeded(id, false).1, None);
        assert_eq!(streaks.succeeded(id, true).1, Some(told(100, false)), "by the next one");
        assert_eq!(streaks.succeeded(id, true).1, None, "once");

        let row = FailingSubscription { subscription: id, streak: told(100, false) };
        streaks.forget_shards(&[Shard::of(id)]);
        assert_eq!(streaks.succeeded(id, true).1, None, "not known yet");
        streaks.load(&[Shard::of(id)], vec![row], |_| true);
        assert_eq!(streaks.succeeded(id, true).1, Some(told(100, false)));
        streaks.load(&[Shard::of(id)], vec![row], |_| true);
        assert_eq!(tell(&mut streaks, true, 700), None, "a former owner told it");
    }
}
