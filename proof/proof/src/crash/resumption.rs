//! How soon work went on after another machine had become the primary, from what publishers and receivers saw.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::crash::evidence::{Evidence, Micros, PublishRecord};

/// The figures of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Resumption {
    /// How often another machine became the primary.
    pub promotions: usize,
    /// From then to the first publish that was accepted, in milliseconds.
    pub publish: Spread,
    /// From then to the first success of an event that was accepted after it.
    pub delivery: Spread,
}

/// Times, the middle one and the longest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Spread {
    /// The middle one; of an even number, the later of two.
    pub median: u64,
    /// The longest.
    pub max: u64,
}

impl Resumption {
    /// From the evidence; none when there was no promotion.
    pub fn of(evidence: &Evidence) -> Option<Self> {
        let promoted: Vec<Micros> =
            evidence.faults.iter().filter_map(|fault| fault.promoted).collect();
        let mut acked: BTreeMap<&str, Micros> = BTreeMap::new();
        for record in &evidence.publishes {
            if let PublishRecord::Ack(ack) = record {
                acked.entry(&ack.id).or_insert(ack.at);
            }
        }
        let acks: BTreeSet<Micros> = acked.values().copied().collect();
        let successes = evidence.receipts.iter().filter(|receipt| receipt.is_success());
        let successes: Vec<(Micros, Micros)> = successes
            .filter_map(|receipt| Some((*acked.get(receipt.event.as_str())?, receipt.at)))
            .collect();
        let mut publish = Vec::new();
        let mut delivery = Vec::new();
        for at in &promoted {
            publish.extend(acks.range(at..).next().map(|acked| acked - at));
            let later = successes.iter().filter(|(acked, _)| acked >= at);
            delivery.extend(later.map(|(_, arrived)| arrived.saturating_sub(*at)).min());
        }
        let promotions = promoted.len();
        let spread = |times| Spread::of(times);
        (promotions > 0).then(|| Self {
            promotions,
            publish: spread(publish),
            delivery: spread(delivery),
        })
    }
}

impl Spread {
    fn of(mut times: Vec<Micros>) -> Self {
        times.sort_unstable();
        let millis = |micros: Option<&Micros>| micros.map_or(0, |micros| micros / 1_000);
        Self { median: millis(times.get(times.len() / 2)), max: millis(times.last()) }
    }
}

#[cfg(test)]
mod tests {
    use crate::crash::evidence::{Ack, Fault, Finale, Receipt};
    use crate::crash::plan::Plan;

    use super::*;

    fn ack(n: u64, at: Micros) -> PublishRecord {
        let id = format!("evt_{n}");
        let ack = Ack { n, at, id, deliveries: 1, duplicate: false, tries: 1, uncertain: false };
        PublishRecord::Ack(ack)
    }

    fn receipt(n: u64, at: Micros, status: u16) -> Receipt {
        Receipt {
            at,
            answered: at,
            subscription: "plain".to_owned(),
            event: format!("evt_{n}"),
            sha: String::new(),
            signature: true,
            status,
        }
    }

    fn fault(promoted: Option<Micros>) -> Fault {
        let what = "killed".to_owned();
        Fault { what, from: 0, until: 0, hits: 1, blind: false, promoted }
    }

    #[test]
    fn only_what_was_accepted_afterwards_counts() {
        let mut evidence = Evidence {
            plan: Plan { seed: 1, subscriptions: Vec::new() },
            publishes: vec![ack(1, 900_000), ack(2, 1_400_000), ack(3, 9_000_000)],
            receipts: vec![
                // Of the time before, refused, and the one.
                receipt(1, 1_100_000, 204),
                receipt(2, 1_500_000, 500),
                receipt(2, 1_700_000, 204),
                receipt(3, 9_100_000, 204),
            ],
            faults: vec![fault(Some(1_000_000)), fault(None), fault(Some(8_000_000))],
            finale: Finale::default(),
        };
        let figures = Resumption::of(&evidence).expect("there were promotions");
        assert_eq!(figures.promotions, 2);
        assert_eq!(figures.publish, Spread { median: 1_000, max: 1_000 });
        assert_eq!(figures.delivery, Spread { median: 1_100, max: 1_100 });
        evidence.faults = vec![fault(None)];
        assert_eq!(Resumption::of(&evidence), None);
    }
}
