//! What happens to a call of the store on its way: how long it takes, whether it fails, and whether its reply is lost.

use super::FaultStore;

/// What will happen to one call.
pub(super) struct Fate {
    pub(super) before: u64,
    pub(super) after: u64,
    pub(super) fails: bool,
    /// The reply is lost; whether the call took effect is the next field's affair.
    pub(super) silent: bool,
    pub(super) effective: bool,
    /// Whether it takes effect although its node dies on the way.
    pub(super) survives: bool,
}

impl FaultStore {
    pub(super) fn fate(&self, write: bool) -> Fate {
        let faults = *self.reach.world.faults.lock();
        let mut dice = self.reach.world.store_dice.lock();
        let mut way = |quick: f64, most: u64| {
            if dice.chance(faults.slow) {
                dice.between(200, 4_000)
            } else if dice.chance(quick) {
                0
            } else {
                dice.between(1, most)
            }
        };
        let (before, after) = (way(0.7, 5), way(0.5, 10));
        Fate {
            before,
            after,
            fails: faults.outage || dice.chance(faults.unavailable),
            silent: write && dice.chance(faults.unknown),
            effective: dice.chance(0.6),
            survives: dice.chance(0.5),
        }
    }
}
