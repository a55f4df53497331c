//! The bugs that can be planted. Those of the engine need the feature `plant`; those of the store are in its model.

/// A bug that can be planted.
#[derive(Clone, Copy, Debug)]
pub struct Plant {
    /// Its name on the command line.
    pub name: &'static str,
    /// What goes wrong.
    pub what: &'static str,
    /// Whether it takes many thousand runs to meet: such a one is planted by name only.
    pub rare: bool,
}

const fn common(name: &'static str, what: &'static str) -> Plant {
    Plant { name, what, rare: false }
}

/// All of them.
pub const PLANTS: [Plant; 48] = [
    common("ack-before-commit", "The publisher is told yes before the store has said so."),
    common(
        "key-outside-transaction",
        "Idempotency keys are written only when the event is read back, not with it.",
    ),
    common("stale-catalog", "The store takes plans made on an older catalog."),
    common("no-fencing", "Records of former owners are taken."),
    common("one-too-many", "One attempt more than the schedule allows."),
    common("retry-too-early", "A retry comes at half its wait."),
    common(
        "retry-after-shortens",
        "What the receiver asked for replaces the schedule, even when it is shorter.",
    ),
    common("lost-wake-up", "Work that intake hands over gets lost, and so does what a scan finds."),
    common(
        "no-dead-letter",
        "An exhausted delivery is cancelled instead of becoming a dead letter.",
    ),
    common("promote-two", "The end of a head promotes two."),
    common("forget-parked", "The end of a head promotes nobody."),
    common("refill-unfiltered", "Refills are not compared with what is under way."),
    common("ignore-lease-term", "Attempts start although the lease may have run out."),
    common(
        "ignore-unsubscribe",
        "Attempts start although their subscription was deleted or paused.",
    ),
    common("no-settle", "Deleting and pausing do not wait for the other nodes."),
    common("ignore-spacing", "The gap between two attempts of a key is not kept."),
    common("old-secret", "Requests are signed with the oldest secret alone."),
    common("prune-unfinished", "Retention removes events whose deliveries are not done."),
    common("slot-leak", "A slot is lost with every attempt that did not get an answer."),
    common("double-concurrency", "The cap on requests at once is twice as high as it should be."),
    common("promote-last", "Order goes by due time of the parked instead of commit order."),
    common("no-history", "A failed attempt leaves no trace in the history."),
    common("same-epoch", "A shard that changed hands keeps its epoch."),
    Plant {
        name: "slots-ignore-lapse",
        what: "Those who wait for a slot of the sick or slow are started although the lease may have run out.",
        rare: true,
    },
    common(
        "turns-in-circles",
        "Attempts are given up right before they are sent, and begun again at once.",
    ),
    common("ignore-revival", "Outcomes of attempts from copies that are out of date count."),
    common("revive-behind", "A delivery that is brought back waits behind the head of its lane."),
    common("no-recall", "Cancelling and retrying by hand do not wait for the other nodes."),
    common("stale-profile", "Subscriptions do not follow when their profile changes."),
    common("push-without-payload", "Agents get messages without what was published."),
    common("no-claim", "Durable leases are not written down."),
    common(
        "job-trusts-old-catalog",
        "A job takes a subscription for deleted that its node has not heard of yet.",
    ),
    common("replay-skips", "A replay passes over the last event of each part it reads."),
    common(
        "replay-skips-concurrent",
        "A subscription that begins in the past misses what was published while it was created.",
    ),
    common(
        "job-forgets-place",
        "A job does not remember how far it is, and does everything again.",
    ),
    common("bulk-without-recall", "Nodes do not hear of what a job cancels or forgets."),
    common("deliver-at-early", "What is to be delivered later is due at once."),
    common("deliver-at-keeps-old-place", "Who enters a lane later goes by when it was accepted."),
    common("retention-eats-unfinished", "A retention that is over removes unfinished deliveries."),
    common("replay-overtakes", "What a replay makes goes before what is in its lane."),
    common("expunge-under-way", "Payloads are removed although deliveries have not ended."),
    common("told-without-cause", "What a record tells is stored although the record is not."),
    common("cause-without-told", "What happens to deliveries is not told."),
    common("told-of-told", "What happens to deliveries of operational events is told."),
    common("delivery-after-deletion", "Nodes do not let go of a tenant that is being deleted."),
    common("change-without-audit", "Changes are made without their line in the audit log."),
    common(
        "audit-without-change",
        "The line of a change is written although the change is refused.",
    ),
    common("retry-expunged", "Deliveries are brought back although their payload is gone."),
];

/// The one of this name.
pub fn find(name: &str) -> Option<&'static Plant> {
    PLANTS.iter().find(|plant| plant.name == name)
}

/// Plants it in this thread, or none.
pub fn set(plant: Option<&'static Plant>) {
    let name = plant.map(|plant| plant.name);
    posthorn_conformance::model::plant::set(name);
    #[cfg(feature = "plant")]
    posthorn_engine::plant::set(name);
}
