//! Planted errors: a checker that cannot fail proves nothing.

use super::*;
use crate::crash::evidence::{Finale, Stats, TenantEnd};
use crate::crash::plan::{Plan, Temper};

/// A small run in which everything is right: two events of one key, one free one, one abandoned.
fn healthy() -> Evidence {
    let mut subscriptions = vec![
        Subscription::new("alpha", "by-key", &["orders"], Order::Key, Temper::Good),
        Subscription::new("alpha", "free", &["orders"], Order::None, Temper::Good),
        Subscription::new("beta", "other", &["orders"], Order::None, Temper::Good),
    ];
    for subscription in &mut subscriptions {
        subscription.created = Some(1);
    }
    let publishes = vec![
        intent(1, 100, Some("k")),
        ack(1, 150),
        intent(2, 200, Some("k")),
        ack(2, 250),
        intent(3, 300, None),
        PublishRecord::Abandoned { n: 3, at: 400 },
    ];
    let receipts = vec![
        receipt("by-key", 1, 500, 500),
        receipt("by-key", 1, 520, 200),
        receipt("by-key", 2, 540, 200),
        receipt("free", 2, 560, 200),
        receipt("free", 1, 580, 200),
    ];
    let stats = Stats { events: 2, delivered: 4, ..Stats::default() };
    let events = vec![id(1), id(2)];
    let alpha = TenantEnd { tenant: "alpha".to_owned(), stats, events };
    let beta = TenantEnd { tenant: "beta".to_owned(), ..TenantEnd::default() };
    Evidence {
        plan: Plan { seed: 0, subscriptions },
        publishes,
        receipts,
        faults: Vec::new(),
        finale: Finale {
            drained: true,
            tenants: vec![alpha, beta],
            integrity: Some("ok".to_owned()),
            ..Finale::default()
        },
    }
}

fn id(n: u64) -> String {
    format!("evt_{n}")
}

fn intent(n: u64, at: Micros, key: Option<&str>) -> PublishRecord {
    PublishRecord::Intent(Intent {
        n,
        at,
        tenant: "alpha".to_owned(),
        topic: "orders".to_owned(),
        kind: "order.created".to_owned(),
        key: key.map(str::to_owned),
        idempotency: format!("run-{n}"),
        sha: format!("sha-{n}"),
        batch: None,
        deliver_at: None,
    })
}

fn ack(n: u64, at: Micros) -> PublishRecord {
    let (deliveries, duplicate, tries, uncertain) = (2, false, 1, false);
    PublishRecord::Ack(Ack { n, at, id: id(n), deliveries, duplicate, tries, uncertain })
}

fn receipt(subscription: &str, n: u64, at: Micros, status: u16) -> Receipt {
    Receipt {
        at,
        answered: at + 10,
        subscription: subscription.to_owned(),
        event: id(n),
        sha: format!("sha-{n}"),
        signature: true,
        status,
    }
}

fn edit_ack(evidence: &mut Evidence, n: u64, change: impl Fn(&mut Ack)) {
    for record in &mut evidence.publishes {
        if let PublishRecord::Ack(ack) = record
            && ack.n == n
        {
            change(ack);
        }
    }
}

fn edit_intent(evidence: &mut Evidence, n: u64, change: impl Fn(&mut Intent)) {
    for record in &mut evidence.publishes {
        if let PublishRecord::Intent(intent) = record
            && intent.n == n
        {
            change(intent);
        }
    }
}

/// Breaks the healthy run, and expects these kinds of violations, and no other.
#[track_caller]
fn check(wanted: &[Kind], plant: impl FnOnce(&mut Evidence)) -> Verdict {
    let mut evidence = healthy();
    plant(&mut evidence);
    let verdict = super::check(&evidence);
    let mut found: Vec<Kind> = verdict.violations.iter().map(|one| one.kind).collect();
    found.sort();
    found.dedup();
    let mut wanted = wanted.to_vec();
    wanted.sort();
    assert_eq!(found, wanted, "{:#?}", verdict.violations);
    verdict
}

#[test]
fn a_healthy_run_is_clean_and_counted() {
    let verdict = check(&[], |_| {});
    let counts = verdict.counts;
    assert_eq!((counts.acked, counts.expected, counts.delivered, counts.lost), (2, 4, 4, 0));
    assert_eq!((counts.abandoned, counts.appeared, counts.duplicates), (1, 0, 0));
}

#[test]
fn a_lost_event_is_found() {
    let verdict = check(&[Kind::Lost, Kind::Stats], |run| {
        run.receipts.remove(4);
    });
    assert_eq!(verdict.counts.lost, 1);
    // An attempt without success is no delivery either.
    check(&[Kind::Lost, Kind::Stats], |run| run.receipts[4].status = 500);
}

#[test]
fn an_acknowledged_event_the_server_has_forgotten_is_found() {
    check(&[Kind::Lost, Kind::Stats], |run| {
        run.finale.tenants[0].events.pop();
    });
}

#[test]
fn an_event_that_goes_to_some_subscriptions_only_is_found_even_without_an_ack() {
    let appear = |run: &mut Evidence| {
        run.receipts.push(receipt("by-key", 3, 600, 200));
        run.finale.tenants[0].events.push(id(3));
        run.finale.tenants[0].stats.events += 1;
        run.finale.tenants[0].stats.delivered += 1;
    };
    check(&[Kind::Lost], appear);
    let verdict = check(&[], |run| {
        appear(run);
        run.receipts.push(receipt("free", 3, 600, 200));
        run.finale.tenants[0].stats.delivered += 1;
    });
    assert_eq!(verdict.counts.appeared, 1);
}

#[test]
fn a_reordered_key_is_found_and_only_where_order_was_asked_for() {
    // `free` already gets 2 before 1, in the healthy run.
    check(&[Kind::Reordered], |run| {
        run.receipts[2].at = 470;
        run.receipts[2].answered = 480;
    });
    // Success came in order, but the second was tried while the first had not succeeded.
    check(&[Kind::AttemptedAhead], |run| {
        let early = Receipt { answered: 515, ..receipt("by-key", 2, 511, 500) };
        run.receipts.push(early);
    });
    // Publishes that overlapped have no known order.
    check(&[], |run| {
        run.receipts[2].at = 470;
        run.receipts[2].answered = 480;
        edit_intent(run, 2, |intent| intent.at = 140);
    });
}

#[test]
fn order_within_a_batch_is_known_when_it_was_accepted_at_once() {
    let batch = |run: &mut Evidence| {
        for n in [1, 2] {
            edit_intent(run, n, |intent| {
                intent.at = 100;
                intent.batch = Some((7, u32::try_from(n).unwrap()));
            });
        }
        run.receipts[2].at = 470;
        run.receipts[2].answered = 480;
    };
    check(&[Kind::Reordered], batch);
    check(&[], |run| {
        batch(run);
        edit_ack(run, 1, |ack| ack.tries = 2);
    });
}

#[test]
fn history_comes_in_order_and_so_does_what_is_new_but_neither_waits_for_the_other() {
    // The second comes before the first.
    let reordered = |run: &mut Evidence| {
        run.receipts[2].at = 470;
        run.receipts[2].answered = 480;
    };
    let history = |run: &mut Evidence, asked, created| {
        let subscription = &mut run.plan.subscriptions[0];
        subscription.from_start = true;
        subscription.asked = asked;
        subscription.created = Some(created);
        for n in [1, 2] {
            edit_ack(run, n, |ack| ack.deliveries = 1);
        }
    };
    // Both are older than the subscription.
    check(&[Kind::Reordered], |run| {
        history(run, 350, 360);
        reordered(run);
    });
    check(&[], |run| history(run, 350, 360));
    // Only the first is.
    check(&[], |run| {
        history(run, 160, 170);
        edit_ack(run, 2, |ack| ack.deliveries = 2);
        reordered(run);
    });
    // Nobody can say of the second.
    check(&[], |run| {
        history(run, 160, 220);
        reordered(run);
    });
}

#[test]
fn a_forged_body_is_found() {
    check(&[Kind::Lost, Kind::Body, Kind::Stats], |run| run.receipts[4].sha = "sha-x".to_owned());
    check(&[Kind::Signature], |run| run.receipts[4].signature = false);
}

#[test]
fn an_invented_event_is_found() {
    // The body of one event under the id of another.
    check(&[Kind::Invented], |run| run.receipts[0].event = id(9));
    // Stored, though nobody published it: one may be the abandoned one, two cannot be.
    check(&[], |run| {
        run.finale.tenants[0].events.push(id(8));
        run.finale.tenants[0].stats.events += 1;
    });
    check(&[Kind::Invented], |run| {
        run.finale.tenants[0].events.extend([id(8), id(9)]);
        run.finale.tenants[0].stats.events += 2;
    });
    // Refused, and delivered all the same.
    check(&[Kind::Refused, Kind::Invented], |run| {
        run.publishes[5] =
            PublishRecord::Refused { n: 3, at: 400, status: 422, code: "x".to_owned() };
        run.receipts.extend([receipt("by-key", 3, 600, 200), receipt("free", 3, 600, 200)]);
        run.finale.tenants[0].events.push(id(3));
        run.finale.tenants[0].stats = Stats { events: 3, delivered: 6, ..Stats::default() };
    });
}

#[test]
fn another_tenants_event_is_found() {
    check(&[Kind::Misdelivered, Kind::Stats], |run| {
        run.receipts.push(receipt("other", 1, 600, 200));
    });
    // A subscription gets nothing from before its time.
    check(&[Kind::Misdelivered], |run| {
        run.plan.subscriptions[1].asked = 160;
        run.plan.subscriptions[1].created = Some(170);
    });
}

#[test]
fn two_ids_for_one_key_are_found() {
    let again = |run: &mut Evidence, id: &str, duplicate| {
        run.publishes.push(ack(1, 700));
        if let Some(PublishRecord::Ack(ack)) = run.publishes.last_mut() {
            ack.id = id.to_owned();
            ack.duplicate = duplicate;
        }
    };
    check(&[], |run| again(run, "evt_1", true));
    check(&[Kind::TwoIds], |run| again(run, "evt_9", true));
    check(&[Kind::NotARepeat], |run| again(run, "evt_1", false));
    // Two publishes, one id.
    check(&[Kind::SharedId, Kind::Invented], |run| {
        edit_ack(run, 2, |ack| ack.id = id(1));
    });
}

#[test]
fn nothing_was_done_must_be_true() {
    check(&[Kind::NotARepeat], |run| edit_ack(run, 1, |ack| ack.duplicate = true));
    check(&[], |run| {
        edit_ack(run, 1, |ack| {
            ack.duplicate = true;
            ack.uncertain = true;
        });
    });
}

#[test]
fn a_key_with_other_contents_must_be_refused() {
    let conflict = |status| PublishRecord::Conflict { n: 1, at: 700, status };
    check(&[], |run| run.publishes.extend([conflict(409), conflict(503)]));
    check(&[Kind::ConflictAccepted], |run| run.publishes.push(conflict(202)));
}

#[test]
fn duplicates_need_a_fault_and_are_bounded_by_it() {
    let repeat = receipt("free", 1, 900, 200);
    check(&[Kind::Duplicate, Kind::TooManyDuplicates], |run| run.receipts.push(repeat.clone()));
    let fault = Fault {
        what: "kill".to_owned(),
        from: 585,
        until: 800,
        hits: 1,
        blind: false,
        promoted: None,
    };
    let verdict = check(&[], |run| {
        run.receipts.push(repeat.clone());
        run.faults.push(fault.clone());
    });
    assert_eq!((verdict.counts.duplicates, verdict.counts.kills), (1, 1));
    check(&[Kind::TooManyDuplicates], |run| {
        for subscription in &mut run.plan.subscriptions {
            subscription.concurrency = 1;
        }
        run.receipts.extend((0..4).map(|more| receipt("free", 1, 700 + more, 200)));
        run.faults.push(fault.clone());
    });
    check(&[], |run| {
        for subscription in &mut run.plan.subscriptions {
            subscription.concurrency = 1;
        }
        run.receipts.extend((0..4).map(|more| receipt("free", 1, 700 + more, 200)));
        run.faults.push(Fault { blind: true, ..fault.clone() });
    });
}

#[test]
fn two_attempts_of_a_lane_at_once_need_a_fault() {
    let zombie = receipt("by-key", 1, 545, 500);
    check(&[Kind::Overlap], |run| run.receipts.push(zombie.clone()));
    check(&[], |run| {
        run.receipts.push(zombie.clone());
        run.faults.push(Fault {
            what: "pause".to_owned(),
            from: 500,
            until: 550,
            hits: 1,
            blind: false,
            promoted: None,
        });
    });
}

#[test]
fn the_servers_own_account_is_checked() {
    check(&[Kind::Stats], |run| run.finale.tenants[0].stats.dead = 1);
    check(&[Kind::Stats], |run| run.finale.tenants[0].stats.pending = 1);
    check(&[Kind::Stats], |run| run.finale.tenants[0].stats.delivered = 5);
    check(&[Kind::Stats], |run| edit_ack(run, 1, |ack| ack.deliveries = 3));
    check(&[Kind::NotDrained], |run| run.finale.drained = false);
    // What is pending is late; what is neither delivered nor pending is lost.
    let late = |run: &mut Evidence, pending| {
        run.receipts.truncate(3);
        run.finale.drained = false;
        run.finale.tenants[0].stats.delivered = 2;
        run.finale.tenants[0].stats.pending = pending;
    };
    assert_eq!(check(&[Kind::NotDrained], |run| late(run, 2)).counts.lost, 0);
    assert_eq!(check(&[Kind::Lost, Kind::NotDrained], |run| late(run, 1)).counts.lost, 1);
    check(&[Kind::Integrity], |run| run.finale.integrity = Some("row 3 missing".to_owned()));
    check(&[Kind::Node], |run| run.finale.alarms.push("panicked at".to_owned()));
    check(&[Kind::Defect], |run| {
        run.publishes.push(PublishRecord::Defect { at: 1, status: 500, text: String::new() });
    });
}

#[test]
fn what_comes_before_its_time_is_found() {
    let later = |at| Some(crate::crash::later::Later { text: String::new(), at });
    // At its time, and then nobody knows where in its lane it belongs.
    check(&[], |run| edit_intent(run, 2, |intent| intent.deliver_at = later(540)));
    check(&[Kind::Early], |run| edit_intent(run, 2, |intent| intent.deliver_at = later(541)));
}
