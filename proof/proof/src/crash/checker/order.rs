//! Order within one lane.
//!
//! Two events of a lane have a known order when one was acknowledged before the other was first
//! sent, or when both went out in one batch that was accepted at the first try. Publishers that
//! overlap have no order that an observer could know. Neither have events that are to be delivered later: their place is
//! where they enter their lane.

use std::collections::BTreeMap;

use super::{Case, Kind, Seen, Windows};
use crate::crash::evidence::Micros;

/// One event in a lane.
struct Place {
    n: u64,
    sent: Micros,
    acked: Option<Micros>,
    first_attempt: Micros,
    first_success: Option<Micros>,
    /// Batch and place, when the batch was accepted at the first try.
    batch: Option<(u64, u32)>,
}

/// What is wrong with the order of a lane.
pub(super) fn check(cases: &[(&Case<'_>, &Seen<'_>)]) -> Vec<(Kind, String)> {
    let places: Vec<Place> = cases.iter().filter_map(|(case, seen)| place(case, seen)).collect();
    let mut broken = known_order(places.iter().collect());
    broken.extend(batch_order(&places));
    broken
}

fn place(case: &Case<'_>, seen: &Seen<'_>) -> Option<Place> {
    if case.intent.deliver_at.is_some() {
        return None;
    }
    let ack = case.acks.first();
    let at_once = ack.is_some_and(|ack| ack.tries == 1 && !ack.duplicate);
    Some(Place {
        n: case.intent.n,
        sent: case.intent.at,
        acked: ack.map(|ack| ack.at),
        first_attempt: seen.first_attempt()?,
        first_success: seen.first_success(),
        batch: case.intent.batch.filter(|_| at_once),
    })
}

/// Whoever was sent after another one was acknowledged must not be attempted before that one has
/// succeeded.
fn known_order(mut places: Vec<&Place>) -> Vec<(Kind, String)> {
    places.sort_by_key(|place| place.sent);
    // For each place, who of those sent at that time or later was attempted first.
    let mut earliest: Vec<&Place> = Vec::with_capacity(places.len());
    for place in places.iter().rev() {
        let best = earliest.last().filter(|best| best.first_attempt <= place.first_attempt);
        earliest.push(best.copied().unwrap_or(place));
    }
    earliest.reverse();
    let mut broken = Vec::new();
    for head in &places {
        let Some(acked) = head.acked else { continue };
        let behind = places.partition_point(|place| place.sent <= acked);
        if let Some(next) = earliest.get(behind) {
            broken.extend(judge(head, next));
        }
    }
    broken
}

fn batch_order(places: &[Place]) -> Vec<(Kind, String)> {
    let mut batches: BTreeMap<u64, Vec<(u32, &Place)>> = BTreeMap::new();
    for place in places {
        if let Some((batch, index)) = place.batch {
            batches.entry(batch).or_default().push((index, place));
        }
    }
    let mut broken = Vec::new();
    for mut batch in batches.into_values() {
        batch.sort_by_key(|(index, _)| *index);
        broken.extend(batch.windows(2).filter_map(|pair| judge(pair[0].1, pair[1].1)));
    }
    broken
}

fn judge(head: &Place, next: &Place) -> Option<(Kind, String)> {
    // An event that never succeeded is lost, which is said elsewhere.
    let done = head.first_success?;
    if next.first_attempt >= done {
        return None;
    }
    let overtook = next.first_success.is_some_and(|at| at < done);
    let kind = if overtook { Kind::Reordered } else { Kind::AttemptedAhead };
    let what = format!(
        "#{} comes before #{}, but succeeded at {done} and the other was attempted at {}",
        head.n, next.n, next.first_attempt
    );
    Some((kind, what))
}

/// At most one attempt of a lane is under way, unless a fault left one behind.
pub(super) fn overlaps(cases: &[(&Case<'_>, &Seen<'_>)], windows: &Windows) -> Vec<(Kind, String)> {
    let mut all: Vec<_> = cases
        .iter()
        .flat_map(|(case, seen)| seen.receipts.iter().map(|receipt| (case.intent.n, *receipt)))
        .collect();
    all.sort_by_key(|(_, receipt)| receipt.at);
    let mut broken = Vec::new();
    let mut last: Option<(u64, Micros, Micros)> = None;
    for (n, receipt) in all {
        if let Some((other, at, until)) = last
            && receipt.at < until
            && !windows.touch(at, receipt.at)
        {
            let what = format!("#{other} and #{n} were under way at once at {}", receipt.at);
            broken.push((Kind::Overlap, what));
        }
        if last.is_none_or(|(_, _, until)| receipt.answered > until) {
            last = Some((n, receipt.at, receipt.answered));
        }
    }
    broken
}
