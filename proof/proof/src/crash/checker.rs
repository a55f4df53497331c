//! The verdict: reads the evidence of a run and names every broken promise.
//!
//! # What is promised
//! - An acknowledged event reaches every subscription that existed before it was published, with
//!   success, and so does an event whose publisher never got an answer but that appeared somewhere.
//! - Nothing is invented: what arrives was published, unchanged, by that tenant, on a topic the
//!   subscription wants, under the id that was acknowledged, signed with the subscription's secret.
//! - One idempotency key is one event, for ever; the same key with other contents is refused.
//! - In a lane nothing is attempted before what is known to come before it has succeeded
//!   (`order`).
//! - Success is repeated only around a fault, and not more often than work was under way.
//! - The server's own counts agree with all this.
//!
//! # What it must not know
//! How the run was made. It sees what publishers and receivers wrote down, and the server's last
//! answers; so a verdict can be repeated from the files alone.

mod finale;
mod order;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::fmt;

use serde::Serialize;

use crate::crash::evidence::{Ack, Evidence, Fault, Intent, Micros, PublishRecord, Receipt};
use crate::crash::plan::{Order, Subscription};

/// Which promise was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// An accepted event did not reach a subscription.
    Lost,
    /// One idempotency key, two events.
    TwoIds,
    /// Two publishes, one event.
    SharedId,
    /// A repeat was taken for something new, or something new for a repeat.
    NotARepeat,
    /// The same key with other contents was not refused.
    ConflictAccepted,
    /// A valid publish was refused.
    Refused,
    /// A server error, or an answer without sense.
    Defect,
    /// A body that nobody published, or another event's.
    Body,
    /// A signature that does not fit.
    Signature,
    /// An event under an id it does not have, or one that was refused.
    Invented,
    /// An event that the subscription is not to get.
    Misdelivered,
    /// Success in another order than that of the publishes.
    Reordered,
    /// An attempt while something before it in its lane had not succeeded.
    AttemptedAhead,
    /// An attempt before the time at which the event was to be delivered.
    Early,
    /// Two attempts of one lane at once, and no fault to explain it.
    Overlap,
    /// A success repeated, and no fault to explain it.
    Duplicate,
    /// More repeated successes than work can have been under way.
    TooManyDuplicates,
    /// Not everything was delivered in time after the faults had stopped.
    NotDrained,
    /// The server's counts do not agree with what was seen.
    Stats,
    /// Something of a deleted tenant happened, or is left.
    Deletion,
    /// The database is damaged.
    Integrity,
    /// A node panicked, or ended by itself.
    Node,
}

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// Which.
    pub kind: Kind,
    /// What was seen.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.detail)
    }
}

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Processes killed or paused, a fault of the database counting for each node.
    pub kills: u64,
    /// Events acknowledged.
    pub acked: u64,
    /// Publishes whose publisher gave up without an answer.
    pub abandoned: u64,
    /// Those of them that were stored after all.
    pub appeared: u64,
    /// Deliveries that had to happen.
    pub expected: u64,
    /// Those of them that did.
    pub delivered: u64,
    /// Successes repeated.
    pub duplicates: u64,
    /// The most at one subscription around one fault. Beyond what the subscription allows under way
    /// at once they were successes that the server had not written down when the fault struck.
    pub duplicates_peak: u64,
    /// How many of these the faults can explain.
    pub duplicates_allowed: u64,
    /// Deliveries that the server still had before it at the end.
    pub pending: u64,
    /// Deliveries that had to happen, did not, and will not.
    pub lost: u64,
    /// Broken promises.
    pub broken: u64,
}

/// The verdict.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// What was counted.
    pub counts: Counts,
    /// Broken promises, at most [`EXAMPLES_MAX`] of each kind.
    pub violations: Vec<Violation>,
}

/// Examples kept of each kind; all are counted.
pub const EXAMPLES_MAX: usize = 8;

/// Judges a run.
pub fn check(evidence: &Evidence) -> Verdict {
    let mut checker = Checker::new(evidence);
    checker.read_publishes();
    checker.read_receipts();
    checker.judge_publishes();
    checker.judge_deliveries();
    checker.judge_duplicates();
    checker.judge_order();
    checker.judge_times();
    checker.judge_finale();
    Verdict { counts: checker.counts, violations: checker.violations }
}

/// One event, with all that is known of it.
#[derive(Debug)]
struct Case<'a> {
    intent: &'a Intent,
    acks: Vec<&'a Ack>,
    abandoned: bool,
    refused: bool,
    /// The id: the acknowledged one, or the one it appeared under.
    id: Option<&'a str>,
    /// What each subscription saw, by its place in the plan.
    seen: BTreeMap<usize, Seen<'a>>,
}

/// What a subscription saw of one event, in the order of arrival.
#[derive(Debug, Default)]
struct Seen<'a> {
    receipts: Vec<&'a Receipt>,
}

impl<'a> Seen<'a> {
    fn first_attempt(&self) -> Option<Micros> {
        self.receipts.iter().map(|receipt| receipt.at).min()
    }

    fn first_success(&self) -> Option<Micros> {
        self.successes().map(|receipt| receipt.answered).min()
    }

    fn successes(&self) -> impl Iterator<Item = &'a Receipt> + '_ {
        self.receipts.iter().copied().filter(|receipt| receipt.is_success())
    }
}

impl Case<'_> {
    /// Whether the server has it for certain.
    fn is_stored(&self) -> bool {
        self.id.is_some()
    }

    fn successes(&self) -> u64 {
        let took = self.seen.values().filter(|seen| seen.first_success().is_some());
        u64::try_from(took.count()).unwrap_or(u64::MAX)
    }

    /// How many subscriptions took it of those that were there when it was published; `None` when that cannot be
    /// told of one that begins in the past.
    fn first_successes(&self, subscriptions: &[Subscription]) -> Option<u64> {
        let mut count = 0;
        for (index, seen) in &self.seen {
            let Some(subscription) = subscriptions.get(*index) else { continue };
            if seen.first_success().is_none() {
                continue;
            }
            if subscription.from_start {
                let told = self.acks.first().map(|ack| ack.at);
                if told.is_some_and(|told| told < subscription.asked) {
                    continue;
                }
                if subscription.created.is_none_or(|at| at >= self.intent.at) {
                    return None;
                }
            }
            count += 1;
        }
        Some(count)
    }
}

struct Checker<'a> {
    evidence: &'a Evidence,
    cases: BTreeMap<u64, Case<'a>>,
    counts: Counts,
    examples: BTreeMap<Kind, usize>,
    violations: Vec<Violation>,
}

impl<'a> Checker<'a> {
    fn new(evidence: &'a Evidence) -> Self {
        Self {
            evidence,
            cases: BTreeMap::new(),
            counts: Counts::default(),
            examples: BTreeMap::new(),
            violations: Vec::new(),
        }
    }

    fn blame(&mut self, kind: Kind, detail: impl Into<String>) {
        self.counts.broken += 1;
        let examples = self.examples.entry(kind).or_default();
        *examples += 1;
        if *examples <= EXAMPLES_MAX {
            self.violations.push(Violation { kind, detail: detail.into() });
        }
    }

    fn subscriptions(&self) -> &'a [Subscription] {
        &self.evidence.plan.subscriptions
    }

    fn read_publishes(&mut self) {
        for record in &self.evidence.publishes {
            match record {
                PublishRecord::Intent(intent) => {
                    let case = Case {
                        intent,
                        acks: Vec::new(),
                        abandoned: false,
                        refused: false,
                        id: None,
                        seen: BTreeMap::new(),
                    };
                    self.cases.insert(intent.n, case);
                }
                PublishRecord::Ack(ack) => match self.cases.get_mut(&ack.n) {
                    Some(case) => case.acks.push(ack),
                    None => self.blame(Kind::Defect, format!("an ack of nothing: #{}", ack.n)),
                },
                PublishRecord::Abandoned { n, .. } => {
                    if let Some(case) = self.cases.get_mut(n) {
                        case.abandoned = true;
                    }
                    self.counts.abandoned += 1;
                }
                PublishRecord::Refused { n, status, code, .. } => {
                    if let Some(case) = self.cases.get_mut(n) {
                        case.refused = true;
                    }
                    self.blame(Kind::Refused, format!("#{n} was refused: {status} {code}"));
                }
                PublishRecord::Conflict { n, status, .. } => {
                    // No answer to the question itself is no answer.
                    if *status < 500 && *status != 409 {
                        let what = format!("the key of #{n} with other contents: {status}");
                        self.blame(Kind::ConflictAccepted, what);
                    }
                }
                PublishRecord::Defect { status, text, .. } => {
                    self.blame(Kind::Defect, format!("a publish was answered {status} {text}"));
                }
            }
        }
    }

    fn judge_publishes(&mut self) {
        let mut blames = Vec::new();
        let mut owners: HashMap<&str, u64> = HashMap::new();
        for (n, case) in &self.cases {
            let key = &case.intent.idempotency;
            let Some(first) = case.acks.first() else { continue };
            self.counts.acked += 1;
            if let Some(other) = case.acks.iter().find(|ack| ack.id != first.id) {
                let what = format!("key {key} of #{n} gave {} and {}", first.id, other.id);
                blames.push((Kind::TwoIds, what));
            }
            if let Some(other) = owners.insert(&first.id, *n) {
                blames.push((Kind::SharedId, format!("{} is #{other} and #{n}", first.id)));
            }
            if first.duplicate && !first.uncertain {
                let what = format!("#{n} was new, or so the server had said, and is a repeat");
                blames.push((Kind::NotARepeat, what));
            }
            if case.acks.iter().skip(1).any(|ack| !ack.duplicate) {
                blames.push((Kind::NotARepeat, format!("a repeat of #{n} was taken for new")));
            }
        }
        for (kind, what) in blames {
            self.blame(kind, what);
        }
    }

    fn read_receipts(&mut self) {
        for case in self.cases.values_mut() {
            case.id = case.acks.first().map(|ack| ack.id.as_str());
        }
        let by_sha: HashMap<&str, u64> =
            self.cases.values().map(|case| (case.intent.sha.as_str(), case.intent.n)).collect();
        let numbered = self.subscriptions().iter().enumerate();
        let by_name: HashMap<&str, usize> =
            numbered.map(|(index, one)| (one.name.as_str(), index)).collect();
        for receipt in &self.evidence.receipts {
            let Receipt { event, subscription, sha, .. } = receipt;
            if !receipt.signature {
                let what = format!("{event} at {subscription}");
                self.blame(Kind::Signature, what);
            }
            let Some(index) = by_name.get(subscription.as_str()).copied() else {
                self.blame(Kind::Misdelivered, format!("{event} at unknown {subscription}"));
                continue;
            };
            let Some(n) = by_sha.get(sha.as_str()).copied() else {
                let what = format!("{event} at {subscription} has a body nobody published");
                self.blame(Kind::Body, what);
                continue;
            };
            self.read_receipt(receipt, n, index);
        }
    }

    fn read_receipt(&mut self, receipt: &'a Receipt, n: u64, index: usize) {
        let Receipt { event, subscription, .. } = receipt;
        let owner = &self.subscriptions()[index];
        let Some(case) = self.cases.get_mut(&n) else { return };
        let mut blames = Vec::new();
        match case.id {
            Some(id) if id != event => {
                blames.push((Kind::Invented, format!("#{n} is {id}, {subscription} got {event}")));
            }
            Some(_) => {}
            None => {
                case.id = Some(event);
                if case.refused {
                    let what = format!("#{n} was refused, {subscription} got it as {event}");
                    blames.push((Kind::Invented, what));
                }
            }
        }
        if !owner.wants(case.intent) {
            let Intent { tenant, topic, kind, .. } = case.intent;
            let what = format!("{subscription} got {event} of {tenant}, {topic}, {kind}");
            blames.push((Kind::Misdelivered, what));
        }
        if !owner.from_start && case.acks.first().is_some_and(|ack| ack.at < owner.asked) {
            let what = format!("{subscription} got {event}, which is older than itself");
            blames.push((Kind::Misdelivered, what));
        }
        case.seen.entry(index).or_default().receipts.push(receipt);
        for (kind, what) in blames {
            self.blame(kind, what);
        }
    }

    fn judge_deliveries(&mut self) {
        let mut blames = Vec::new();
        let finale = &self.evidence.finale;
        let drained = finale.drained;
        let mut missing = 0_u64;
        let subscriptions = self.subscriptions();
        for (n, case) in self.cases.iter().filter(|(_, case)| case.is_stored()) {
            if case.acks.is_empty() {
                self.counts.appeared += 1;
            }
            for (index, subscription) in subscriptions.iter().enumerate() {
                let existed = subscription.created.is_some_and(|at| at < case.intent.at);
                let history = subscription.from_start && subscription.created.is_some();
                let existed = existed || history;
                if !existed || !subscription.wants(case.intent) {
                    continue;
                }
                self.counts.expected += 1;
                if case.seen.get(&index).and_then(Seen::first_success).is_some() {
                    self.counts.delivered += 1;
                } else if !drained {
                    missing += 1;
                } else {
                    self.counts.lost += 1;
                    let id = case.id.unwrap_or("?");
                    let what = format!("#{n} ({id}) did not reach {}", subscription.name);
                    blames.push((Kind::Lost, what));
                }
            }
            // What a repeat says about deliveries is not promised.
            if let Some(ack) = case.acks.first().filter(|ack| !ack.duplicate)
                && drained
                && let Some(successes) = case.first_successes(subscriptions)
                && ack.deliveries != successes
            {
                let what = format!(
                    "#{n} ({}) was to go to {} subscriptions and went to {}",
                    ack.id, ack.deliveries, successes
                );
                blames.push((Kind::Stats, what));
            }
        }
        // What did not arrive is late as long as the server owns up to it; beyond that it is lost.
        self.counts.pending = finale.tenants.iter().map(|end| end.stats.pending).sum();
        if missing > self.counts.pending {
            self.counts.lost = missing - self.counts.pending;
            let pending = self.counts.pending;
            let what = format!("{missing} did not arrive, and only {pending} are pending");
            blames.push((Kind::Lost, what));
        }
        for (kind, what) in blames {
            self.blame(kind, what);
        }
    }

    fn judge_duplicates(&mut self) {
        let windows = Windows::new(&self.evidence.faults);
        let mut blames = Vec::new();
        let mut around: BTreeMap<(usize, Option<usize>), u64> = BTreeMap::new();
        for (n, case) in &self.cases {
            for (index, seen) in &case.seen {
                let mut successes: Vec<&Receipt> = seen.successes().collect();
                successes.sort_by_key(|receipt| receipt.at);
                for pair in successes.windows(2) {
                    self.counts.duplicates += 1;
                    let fault = windows.first(pair[0].at, pair[1].at);
                    *around.entry((*index, fault)).or_default() += 1;
                    if fault.is_none() {
                        let name = &self.evidence.plan.subscriptions[*index].name;
                        blames.push(format!(
                            "#{n} ({}) at {name}: success at {} and at {}",
                            pair[0].event, pair[0].answered, pair[1].answered
                        ));
                    }
                }
            }
        }
        self.counts.duplicates_peak = around.into_values().max().unwrap_or(0);
        for what in blames {
            self.blame(Kind::Duplicate, what);
        }
        let at_once = |one: &Subscription| match one.order {
            Order::Subscription => 1,
            Order::None | Order::Key => one.concurrency,
        };
        let under_way: u64 = self.subscriptions().iter().map(at_once).sum();
        self.counts.kills = self.evidence.faults.iter().map(|fault| fault.hits).sum();
        self.counts.duplicates_allowed = self.counts.kills.saturating_mul(under_way);
        let bounded = !self.evidence.faults.iter().any(|fault| fault.blind);
        if bounded && self.counts.duplicates > self.counts.duplicates_allowed {
            let Counts { duplicates, duplicates_allowed, .. } = self.counts;
            let what = format!("{duplicates}, and {duplicates_allowed} can be explained");
            self.blame(Kind::TooManyDuplicates, what);
        }
    }

    /// Nothing arrives before the time at which it was to be delivered, whatever was killed.
    fn judge_times(&mut self) {
        let mut blames = Vec::new();
        for (n, case) in &self.cases {
            let Some(later) = &case.intent.deliver_at else { continue };
            let first = case.seen.values().filter_map(Seen::first_attempt).min();
            if let Some(first) = first.filter(|first| *first < later.at) {
                blames
                    .push(format!("#{n} was to be delivered at {}, and came at {first}", later.at));
            }
        }
        for what in blames {
            self.blame(Kind::Early, what);
        }
    }

    fn judge_order(&mut self) {
        let windows = Windows::new(&self.evidence.faults);
        let mut blames = Vec::new();
        for (index, subscription) in self.subscriptions().iter().enumerate() {
            let mut lanes: BTreeMap<&str, Vec<(&Case<'a>, &Seen<'a>)>> = BTreeMap::new();
            for case in self.cases.values() {
                if let Some(lane) = subscription.lane(case.intent)
                    && let Some(seen) = case.seen.get(&index)
                {
                    lanes.entry(lane).or_default().push((case, seen));
                }
            }
            for (lane, cases) in lanes {
                let mut broken = order::overlaps(&cases, &windows);
                // Of one that begins in the past, a job brings what was there before, in order, and what is new comes
                // in order as well; which of the two comes first nobody knows.
                for part in eras(subscription, cases) {
                    broken.extend(order::check(&part));
                }
                blames.extend(broken.into_iter().map(|(kind, what)| {
                    (kind, format!("{} lane `{lane}`: {what}", subscription.name))
                }));
            }
        }
        for (kind, what) in blames {
            self.blame(kind, what);
        }
    }
}

type Tried<'c, 'a> = (&'c Case<'a>, &'c Seen<'a>);

/// The parts of a lane that have an order of their own: what was there before the subscription, and what came after
/// it. What was published while it was made is in neither.
fn eras<'c, 'a>(subscription: &Subscription, cases: Vec<Tried<'c, 'a>>) -> Vec<Vec<Tried<'c, 'a>>> {
    if !subscription.from_start {
        return vec![cases];
    }
    let is_old = |case: &Case<'_>| case.acks.first().is_some_and(|ack| ack.at < subscription.asked);
    let (old, rest): (Vec<_>, Vec<_>) = cases.into_iter().partition(|(case, _)| is_old(case));
    let is_new = |case: &Case<'_>| subscription.created.is_some_and(|at| at < case.intent.at);
    vec![old, rest.into_iter().filter(|(case, _)| is_new(case)).collect()]
}

/// The times in which faults had effects.
struct Windows(Vec<(Micros, Micros)>);

impl Windows {
    fn new(faults: &[Fault]) -> Self {
        Self(faults.iter().map(|fault| (fault.from, fault.until)).collect())
    }

    /// Whether a fault had effects at any moment between two times.
    fn touch(&self, from: Micros, until: Micros) -> bool {
        self.first(from, until).is_some()
    }

    /// The first fault that had.
    fn first(&self, from: Micros, until: Micros) -> Option<usize> {
        self.0.iter().position(|(began, ended)| *began <= until && from <= *ended)
    }
}
