//! Planted bugs. Compiled only with the feature `plant`, which no product has: the simulator turns
//! one on at a time and must notice.

use std::cell::Cell;

macro_rules! plants {
    ($($(#[$doc:meta])* $name:ident = $text:literal),* $(,)?) => {
        /// A bug that can be planted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Plant {
            $($(#[$doc])* $name,)*
        }

        impl Plant {
            /// All of them.
            pub const ALL: &'static [Plant] = &[$(Plant::$name),*];

            /// Whether it takes many thousand runs to meet: such a one is planted by name only.
            pub const fn is_rare(self) -> bool {
                matches!(self, Plant::BaysIgnoreLapse)
            }

            /// Its name on command lines.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Plant::$name => $text,)*
                }
            }
        }
    };
}

plants! {
    /// The publisher is told yes before the store has said so.
    AckBeforeCommit = "ack-before-commit",
    /// Idempotency keys are written only when the event is read back, not with it.
    KeyOutsideTransaction = "key-outside-transaction",
    /// The store takes plans made on an older catalog.
    StaleCatalog = "stale-catalog",
    /// Records of former owners are taken.
    NoFencing = "no-fencing",
    /// One attempt more than the schedule allows.
    OneTooMany = "one-too-many",
    /// A retry comes at half its wait.
    RetryTooEarly = "retry-too-early",
    /// What the receiver asked for replaces the schedule, even when it is shorter.
    RetryAfterShortens = "retry-after-shortens",
    /// Work that intake hands over gets lost, and so does what a scan finds.
    LostWakeUp = "lost-wake-up",
    /// An exhausted delivery is cancelled instead of becoming a dead letter.
    NoDeadLetter = "no-dead-letter",
    /// The end of a head promotes two.
    PromoteTwo = "promote-two",
    /// The end of a head promotes nobody.
    ForgetParked = "forget-parked",
    /// Refills are not compared with what is under way.
    RefillUnfiltered = "refill-unfiltered",
    /// Attempts start although the lease may have run out.
    IgnoreLeaseTerm = "ignore-lease-term",
    /// Attempts start although their subscription was deleted or paused.
    IgnoreUnsubscribe = "ignore-unsubscribe",
    /// Deleting and pausing do not wait for the other nodes.
    NoSettle = "no-settle",
    /// The gap between two attempts of a key is not kept.
    IgnoreSpacing = "ignore-spacing",
    /// Requests are signed with the oldest secret alone.
    OldSecret = "old-secret",
    /// Retention removes events whose deliveries are not done.
    PruneUnfinished = "prune-unfinished",
    /// A slot is lost with every attempt that did not get an answer.
    SlotLeak = "slot-leak",
    /// The cap on requests at once is twice as high as it should be.
    DoubleConcurrency = "double-concurrency",
    /// Order goes by due time of the parked instead of commit order.
    PromoteLast = "promote-last",
    /// A failed attempt leaves no trace in the history.
    NoHistory = "no-history",
    /// A shard that changed hands keeps its epoch.
    SameEpoch = "same-epoch",
    /// Those who wait for a slot of the sick or slow are started although the lease may have run out.
    BaysIgnoreLapse = "bays-ignore-lapse",
    /// Attempts are given up right before they are sent, and begun again at once.
    TurnsInCircles = "turns-in-circles",
    /// Outcomes of attempts from copies that are out of date count.
    IgnoreRevival = "ignore-revival",
    /// A delivery that is brought back waits behind the head of its lane.
    ReviveBehind = "revive-behind",
    /// Cancelling and retrying by hand do not wait for the other nodes.
    NoRecall = "no-recall",
    /// Subscriptions do not follow when their profile changes.
    StaleProfile = "stale-profile",
    /// Agents get messages without what was published.
    PushWithoutPayload = "push-without-payload",
    /// Durable leases are not written down.
    NoClaim = "no-claim",
}

thread_local! {
    static ACTIVE: Cell<Option<Plant>> = const { Cell::new(None) };
}

/// Plants a bug in this thread, or none.
pub fn set(plant: Option<Plant>) {
    ACTIVE.set(plant);
}

/// Whether this bug is planted in this thread.
pub fn active(plant: Plant) -> bool {
    ACTIVE.get() == Some(plant)
}
