//! Since when receivers have only failed, so that one that is gone for good is given up.
//!
//! A streak begins with the first failure after a success. It is written down once it lasts, with the
//! outcome that is being recorded anyway, and struck out with the first success; so it survives a
//! restart and a change of owner, and costs nothing per delivery.

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
}

impl Streaks {
    /// Shards change hands: what is known of them is void.
    pub(super) fn forget_shards(&mut self, shards: &[Shard]) {
        self.known.retain(|id, _| !shards.contains(&Shard::of(*id)));
        self.recovered.retain(|id| !shards.contains(&Shard::of(*id)));
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
            if self.recovered.contains(&subscription) || !active(subscription) {
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
    }

    /// Since when it has failed.
    pub(super) fn since(&self, id: SubscriptionId) -> Option<Timestamp> {
        self.known.get(&id).map(|known| known.streak.since)
    }

    /// A success; what is to be written down.
    pub(super) fn succeeded(&mut self, id: SubscriptionId) -> Option<Standing> {
        let known = self.known.remove(&id);
        let unread = !self.read.contains(&Shard::of(id));
        if unread {
            self.recovered.insert(id);
        }
        let written = known.is_some_and(|known| known.written.is_some());
        (written || unread).then_some(Standing { subscription: id, failing: None })
    }

    /// A failure that is the receiver's; what is to be written down, and whether it is given up.
    pub(super) fn failed(
        &mut self,
        id: SubscriptionId,
        exhausted: bool,
        policy: &Failing,
        now: Timestamp,
    ) -> (Option<Standing>, bool) {
        let first = Known { streak: Streak { since: now, exhausted: false }, written: None };
        let known = self.known.entry(id).or_insert(first);
        known.streak.exhausted |= exhausted;
        let streak = known.streak;
        let lasted = now.since(streak.since);
        let ends = streak.exhausted && lasted >= policy.disable_after;
        let write_after = Span::from_millis(policy.disable_after.as_millis() / WRITE_SHARE);
        let worth = lasted >= write_after.min(WRITE_AFTER_MAX) && known.written != Some(streak);
        if worth {
            known.written = Some(streak);
        }
        (worth.then_some(Standing { subscription: id, failing: Some(streak) }), ends)
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
        Streak { since: at(since), exhausted }
    }

    #[test]
    fn a_streak_is_written_once_it_lasts_and_struck_out_by_success() {
        let id = SubscriptionId::new(Timestamp::MIN, 1);
        let mut streaks = Streaks::default();
        streaks.load(&[Shard::of(id)], Vec::new(), |_| true);
        assert_eq!(streaks.failed(id, false, &POLICY, at(100)), (None, false));
        assert_eq!(streaks.succeeded(id), None, "nothing was written, so nothing is struck out");
        streaks.failed(id, false, &POLICY, at(200));
        let written = |streak| Some(Standing { subscription: id, failing: Some(streak) });
        assert_eq!(
            streaks.failed(id, false, &POLICY, at(210)),
            (written(streak(200, false)), false)
        );
        assert_eq!(streaks.failed(id, false, &POLICY, at(220)), (None, false), "once");
        assert_eq!(
            streaks.failed(id, true, &POLICY, at(1_199)),
            (written(streak(200, true)), false)
        );
        assert_eq!(streaks.failed(id, false, &POLICY, at(1_200)), (None, true));
        assert_eq!(streaks.succeeded(id), Some(Standing { subscription: id, failing: None }));
        assert!(!streaks.failed(id, true, &POLICY, at(1_300)).1);
    }

    #[test]
    fn what_a_former_owner_wrote_counts_unless_it_is_old_news() {
        let id = SubscriptionId::new(Timestamp::MIN, 1);
        let row = FailingSubscription { subscription: id, streak: streak(50, true) };
        let mut streaks = Streaks::default();
        streaks.failed(id, false, &POLICY, at(1_060));
        streaks.load(&[Shard::of(id)], vec![row], |_| true);
        assert!(streaks.failed(id, false, &POLICY, at(1_061)).1);

        streaks.forget_shards(&[Shard::of(id)]);
        assert_eq!(streaks.since(id), None);
        let struck = Some(Standing { subscription: id, failing: None });
        assert_eq!(streaks.succeeded(id), struck, "what the store has is not known yet");
        streaks.load(&[Shard::of(id)], vec![row], |_| true);
        assert_eq!(streaks.since(id), None, "it was read before the success was written");

        streaks.load(&[Shard::of(id)], vec![row], |_| false);
        assert_eq!(streaks.since(id), None, "it is paused");
    }
}
