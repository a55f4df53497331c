//! What is played, what happened, and the dice.

use posthorn_push::session::Options;

/// What is played, and which bugs are planted.
pub(super) struct Plan {
    pub(super) options: Options,
    pub(super) store_fails: bool,
    pub(super) answers_get_lost: bool,
    /// The store has one order for messages with and without a topic.
    pub(super) one_order: bool,
    pub(super) hints: bool,
    pub(super) saves: bool,
    pub(super) forgets: bool,
    pub(super) enters_first: bool,
}

impl Plan {
    pub(super) fn new(options: Options) -> Self {
        Self {
            options,
            store_fails: false,
            answers_get_lost: false,
            one_order: false,
            hints: true,
            saves: true,
            forgets: true,
            enters_first: true,
        }
    }
}

/// What happened, so that a test can see that something did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Stats {
    pub(super) direct: u64,
    pub(super) stored: u64,
    pub(super) refused: u64,
    pub(super) saved: u64,
    pub(super) replaced: u64,
    pub(super) hints: u64,
    pub(super) lost_answers: u64,
    pub(super) failures: u64,
}

impl Stats {
    pub(super) fn add(&mut self, other: &Self) {
        self.direct += other.direct;
        self.stored += other.stored;
        self.refused += other.refused;
        self.saved += other.saved;
        self.replaced += other.replaced;
        self.hints += other.hints;
        self.lost_answers += other.lost_answers;
        self.failures += other.failures;
    }
}
