//! Kept answers, in the model.

use posthorn_domain::{Seed, Timestamp};
use posthorn_store::{AnswerClaim, AnswerClaimed, AnswerKey, KeptAnswer};

use super::State;

/// A key that was claimed.
pub(super) struct Claimed {
    seed: Seed,
    expires_at: Timestamp,
    /// Who is at it, and until when.
    held: Option<(u128, Timestamp)>,
    answer: Option<KeptAnswer>,
}

impl State {
    /// `now` is the store's own time, which leases go by.
    pub(super) fn claim_answer(&mut self, claim: &AnswerClaim, now: Timestamp) -> AnswerClaimed {
        let held = Some((claim.holder, now.plus(claim.lease)));
        match self.answers.get_mut(&claim.key).filter(|found| found.expires_at > claim.now) {
            None => {
                let (seed, expires_at) = (claim.seed, claim.expires_at);
                self.answers.insert(claim.key, Claimed { seed, expires_at, held, answer: None });
                AnswerClaimed::Yours { seed }
            }
            Some(Claimed { answer: Some(answer), .. }) => AnswerClaimed::Kept(answer.clone()),
            Some(Claimed { held: Some((holder, until)), .. })
                if *until > now && *holder != claim.holder =>
            {
                AnswerClaimed::Busy
            }
            Some(found) => {
                found.held = held;
                AnswerClaimed::Yours { seed: found.seed }
            }
        }
    }

    pub(super) fn keep_answer(&mut self, key: &AnswerKey, answer: KeptAnswer) -> bool {
        match self.answers.get_mut(key).filter(|found| found.answer.is_none()) {
            Some(found) => {
                found.held = None;
                found.answer = Some(answer);
                true
            }
            None => false,
        }
    }

    pub(super) fn release_answer(&mut self, key: &AnswerKey, holder: u128) {
        if let Some(found) = self.answers.get_mut(key)
            && found.held.is_some_and(|(by, _)| by == holder)
        {
            found.held = None;
        }
    }

    pub(super) fn prune_answers(&mut self, before: Timestamp, limit: usize) -> usize {
        let over = self.answers.iter().filter(|(_, found)| found.expires_at < before);
        let mut over: Vec<_> = over.map(|(key, found)| (found.expires_at, *key)).collect();
        over.sort_unstable();
        over.truncate(limit);
        over.iter().for_each(|(_, key)| drop(self.answers.remove(key)));
        over.len()
    }
}
