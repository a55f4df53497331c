//! What became of deliveries, as a table: times are seconds.

use bytes::Bytes;

use super::*;
use crate::{
    CancelReason, DeadReason, DeliveryId, EventId, FailureCode, Lane, Span, SubscriptionId,
    SubscriptionStatus, TenantId, Timings,
};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(seconds * 1_000)
}

/// Accepted and due at 100, nothing made yet, and it is 1000.
fn delivery(state: DeliveryState) -> Delivery {
    Delivery {
        id: DeliveryId::new(at(100), 1),
        event: EventId::new(at(100), 2),
        subscription: SubscriptionId::new(at(1), 3),
        tenant: TenantId::DEFAULT,
        lane: None,
        seq: 1,
        state,
        due_at: at(100),
        attempts: 0,
        budget_base: 0,
        budget: crate::Budget::Fresh,
        budget_began: at(100),
        revival: 0,
        created_at: at(100),
        ended_at: None,
        last_outcome: None,
    }
}

fn ended(state: DeliveryState, when: i64) -> Delivery {
    Delivery { ended_at: Some(at(when)), due_at: Timestamp::MAX, ..delivery(state) }
}

/// Attempts by their beginnings, each of a second; a minus stands before one that somebody asked for.
fn attempts(begun: &[i64]) -> Vec<Attempt> {
    let one = |(index, begun): (usize, &i64)| Attempt {
        delivery: DeliveryId::new(at(100), 1),
        number: u32::try_from(index).expect("few") + 1,
        started_at: at(begun.abs()),
        took: Span::from_secs(1),
        timings: Timings::default(),
        status: None,
        failure: Some(FailureCode::ConnectFailed),
        detail: String::new(),
        response: Bytes::new(),
        late: false,
        manual: *begun < 0,
        response_expunged_at: None,
        request: None,
    };
    begun.iter().enumerate().map(one).collect()
}

fn stops(times: &[(i64, Option<i64>)]) -> Stops {
    let mut stops = Stops::default();
    for (began, ended) in times {
        stops.stop(at(*began));
        if let Some(ended) = ended {
            stops.go_on(at(*ended));
        }
    }
    stops
}

fn shown(step: &Step<'_>) -> String {
    let seconds = |at: Timestamp| at.as_millis() / 1_000;
    let until = step.until.map(|until| format!("-{}", seconds(until))).unwrap_or_default();
    let what = match step.what {
        What::Accepted => "accepted".to_owned(),
        What::Matched => "matched".to_owned(),
        What::Made => "made".to_owned(),
        What::Retried => "retried".to_owned(),
        What::UnderWay => "under way".to_owned(),
        What::Expunged => "expunged".to_owned(),
        What::Attempted(attempt) => format!("attempt {}", attempt.number),
        What::Ended(state) => format!("{state:?}"),
        What::Waited(reason, how) => match how {
            Certainty::Known => reason.as_str().to_owned(),
            Certainty::Schedule => format!("{} as planned", reason.as_str()),
            Certainty::BeforeFirst => format!("{}?", reason.as_str()),
            Certainty::BeforeRetry => format!("{}??", reason.as_str()),
            Certainty::NotTaken => "not taken".to_owned(),
        },
    };
    format!("{}{until} {what}", seconds(step.at))
}

#[track_caller]
fn check(
    delivery: &Delivery,
    begun: &[i64],
    stood: &[(i64, Option<i64>)],
    waiting: Option<Waiting>,
    expected: &[&str],
) {
    let (attempts, stops) = (attempts(begun), stops(stood));
    let known = Known {
        accepted_at: at(100),
        deliver_at: None,
        expunged_at: None,
        delivery,
        attempts: &attempts,
        stops: &stops,
        waiting,
        now: at(1_000),
    };
    let steps: Vec<String> = timeline(&known).iter().map(shown).collect();
    let whole = [&["100 accepted", "100 matched"], expected].concat();
    assert_eq!(steps, whole);
}

const PENDING: DeliveryState = DeliveryState::Pending;
const DELIVERED: DeliveryState = DeliveryState::Delivered;

#[test]
fn what_is_delivered_at_once_waits_for_nothing() {
    check(&ended(DELIVERED, 101), &[100], &[], None, &["100-101 attempt 1", "101 Delivered"]);
    // However long it took to write that down.
    check(&ended(DELIVERED, 105), &[100], &[], None, &["100-101 attempt 1", "105 Delivered"]);
}

#[test]
fn between_attempts_stands_the_schedule() {
    let expected = [
        "100-101 attempt 1",
        "101-160 schedule as planned",
        "160-161 attempt 2",
        "161-400 schedule as planned",
        "400-401 attempt 3",
        "401 Delivered",
    ];
    check(&ended(DELIVERED, 401), &[100, 160, 400], &[], None, &expected);
}

#[test]
fn what_comes_next_is_told_until_its_due_time() {
    let due = Delivery { due_at: at(1_300), ..delivery(PENDING) };
    let waits = Waiting::until(WaitReason::Schedule, at(1_300));
    let expected = ["100-101 attempt 1", "101-1300 schedule"];
    check(&due, &[100], &[], Some(waits), &expected);
    // Due, and held back by something else.
    let due = Delivery { due_at: at(500), ..delivery(PENDING) };
    let waits = Waiting::until(WaitReason::Rate, at(1_001));
    let expected = ["100-101 attempt 1", "101-500 schedule as planned", "500-1001 rate"];
    check(&due, &[100], &[], Some(waits), &expected);
    let waits = Waiting::on(WaitReason::Quota);
    check(&delivery(PENDING), &[], &[], Some(waits), &["100 quota"]);
}

#[test]
fn an_attempt_under_way_is_the_last_thing_that_is_known() {
    let due = Delivery { due_at: at(900), ..delivery(PENDING) };
    let expected = ["100-101 attempt 1", "101-900 schedule as planned", "1000 under way"];
    check(&due, &[100], &[], None, &expected);
    let leased = Delivery { due_at: at(1_060), ..delivery(DeliveryState::InFlight) };
    check(&leased, &[], &[], None, &["1000 under way"]);
}

#[test]
fn pauses_are_told_from_the_rest() {
    let expected = [
        "100-101 attempt 1",
        "101-200 schedule as planned",
        "200-300 paused",
        "300-350 schedule as planned",
        "350-351 attempt 2",
        "351 Delivered",
    ];
    let stood = [(10, Some(50)), (200, Some(300)), (600, Some(700))];
    check(&ended(DELIVERED, 351), &[100, 350], &stood, None, &expected);
    // It still lasts, whenever it was due.
    let paused = Some(Waiting::on(WaitReason::Paused));
    let due = Delivery { due_at: at(500), ..delivery(PENDING) };
    let expected = ["100-101 attempt 1", "101-200 schedule as planned", "200 paused"];
    check(&due, &[100], &[(200, None)], paused, &expected);
    let disabled = Some(Waiting::on(WaitReason::Disabled));
    check(&delivery(PENDING), &[], &[(50, None)], disabled, &["100 disabled"]);
    // Over, and its time has not come.
    let due = Delivery { due_at: at(1_300), ..delivery(PENDING) };
    let waits = Some(Waiting::until(WaitReason::Schedule, at(1_300)));
    let expected =
        ["100-101 attempt 1", "101-200 schedule as planned", "200-300 paused", "300-1300 schedule"];
    check(&due, &[100], &[(200, Some(300))], waits, &expected);
}

#[test]
fn whoever_is_parked_waits_for_its_lane() {
    let parked =
        Delivery { lane: Some(Lane::Subscription), due_at: Timestamp::MAX, ..delivery(PENDING) };
    check(&parked, &[], &[], Some(Waiting::on(WaitReason::Lane)), &["100 lane"]);
    // Afterwards nobody knows what it was.
    let expected = ["100-400 schedule?", "400-401 attempt 1", "401 Delivered"];
    check(&ended(DELIVERED, 401), &[400], &[], None, &expected);
}

#[test]
fn the_dead_and_the_cancelled_say_how_they_ended() {
    let dead = |reason, when| ended(DeliveryState::Dead(reason), when);
    let expected = ["100-101 attempt 1", "101 Dead(Exhausted)"];
    check(&dead(DeadReason::Exhausted, 101), &[100], &[], None, &expected);
    let expected = ["100-101 attempt 1", "101-700 schedule as planned", "700 Dead(Expired)"];
    check(&dead(DeadReason::Expired, 700), &[100], &[], None, &expected);
    let cancelled = ended(DeliveryState::Cancelled(CancelReason::Operator), 700);
    let expected = [
        "100-101 attempt 1",
        "101-200 schedule as planned",
        "200-700 paused",
        "700 Cancelled(Operator)",
    ];
    check(&cancelled, &[100], &[(200, Some(900))], None, &expected);
    check(&cancelled, &[], &[], None, &["100-700 schedule?", "700 Cancelled(Operator)"]);
}

#[test]
fn a_retry_by_hand_begins_anew() {
    let again = Delivery { budget_began: at(500), budget_base: 2, ..ended(DELIVERED, 501) };
    let expected = [
        "100-101 attempt 1",
        "101-160 schedule as planned",
        "160-161 attempt 2",
        "161-500 schedule??",
        "500 retried",
        "500-501 attempt 3",
        "501 Delivered",
    ];
    check(&again, &[100, 160, -500], &[], None, &expected);
    // Retried twice: the first time is not kept, only that somebody asked.
    let expected = [
        "100-101 attempt 1",
        "101-300 schedule??",
        "300-301 attempt 2",
        "301-500 schedule??",
        "500 retried",
        "500-501 attempt 3",
        "501 Delivered",
    ];
    check(&again, &[100, -300, -500], &[], None, &expected);
    // Retried and not tried yet.
    let waits = Delivery { budget_began: at(500), due_at: at(500), ..delivery(PENDING) };
    let expected = ["100-101 attempt 1", "101-500 schedule??", "500 retried", "500-1010 breaker"];
    let breaker = Some(Waiting::until(WaitReason::Breaker, at(1_010)));
    check(&waits, &[100], &[], breaker, &expected);
}

/// An attempt tells what had held it back.
#[test]
fn what_attempts_say_of_their_waits_is_told_as_known() {
    let held = |until_due, late, by| Some(Held { until_due, late: Span::from_secs(late), by });
    let mut attempts = attempts(&[200, 300, 400, -600]);
    attempts[0].timings.held = held(WaitReason::Lane, 40, Some(WaitReason::Rate));
    attempts[1].timings.held = held(WaitReason::Schedule, 0, None);
    attempts[2].timings.held = held(WaitReason::Gate, 50, None);
    attempts[3].timings.held = held(WaitReason::Schedule, 20, Some(WaitReason::Breaker));
    let known = Known {
        accepted_at: at(100),
        deliver_at: None,
        expunged_at: None,
        delivery: &ended(DELIVERED, 601),
        attempts: &attempts,
        stops: &stops(&[(110, Some(120)), (350, Some(360))]),
        waiting: None,
        now: at(1_000),
    };
    let steps: Vec<String> = timeline(&known).iter().map(shown).collect();
    let wanted = [
        "100 accepted",
        "100 matched",
        "100-110 lane",
        "110-120 paused",
        "120-160 lane",
        "160-200 rate",
        "200-201 attempt 1",
        "201-300 schedule",
        "300-301 attempt 2",
        "301-350 gate",
        "350-360 paused",
        "360-400 not taken",
        "400-401 attempt 3",
        "401-580 schedule??",
        "580-600 breaker",
        "600-601 attempt 4",
        "601 Delivered",
    ];
    assert_eq!(steps, wanted);
}

#[test]
fn before_its_time_it_is_scheduled() {
    let check = |delivery: &Delivery, begun: &[i64], waiting, expected: &[&str]| {
        let (attempts, stops) = (attempts(begun), stops(&[]));
        let known = Known {
            accepted_at: at(100),
            deliver_at: Some(delivery.budget_began.max(at(400))),
            expunged_at: None,
            delivery,
            attempts: &attempts,
            stops: &stops,
            waiting,
            now: at(1_000),
        };
        let steps: Vec<String> = timeline(&known).iter().skip(2).map(shown).collect();
        assert_eq!(steps, expected);
    };
    let later = |delivery: Delivery, began| Delivery { budget_began: at(began), ..delivery };
    let waits = later(delivery(PENDING), 2_000);
    let waiting = Waiting::of_row(&waits, &SubscriptionStatus::Active, false, at(1_000));
    assert_eq!(waiting, Some(Waiting::until(WaitReason::Scheduled, at(2_000))));
    check(&waits, &[], waiting, &["100-2000 scheduled"]);
    let outside = Delivery { due_at: Timestamp::MAX, ..waits };
    let waiting = Waiting::of_row(&outside, &SubscriptionStatus::Active, false, at(1_000));
    check(&outside, &[], waiting, &["100-2000 scheduled"]);
    let came = later(ended(DELIVERED, 401), 400);
    check(&came, &[400], None, &["100-400 scheduled", "400-401 attempt 1", "401 Delivered"]);
    let state = DeliveryState::Cancelled(CancelReason::Operator);
    let cancelled = later(ended(state, 300), 400);
    check(&cancelled, &[], None, &["100-300 scheduled", "300 Cancelled(Operator)"]);
}

#[test]
fn the_end_of_a_payload_is_a_step() {
    let delivery = ended(DELIVERED, 101);
    let known = Known {
        accepted_at: at(100),
        deliver_at: None,
        expunged_at: Some(at(500)),
        delivery: &delivery,
        attempts: &[],
        stops: &Stops::default(),
        waiting: None,
        now: at(1_000),
    };
    let steps: Vec<String> = timeline(&known).iter().map(shown).collect();
    assert_eq!(steps, ["100 accepted", "100 matched", "101 Delivered", "500 expunged"]);
}

#[test]
fn what_a_job_made_begins_when_it_was_made() {
    let of = |delivery: &Delivery, begun: &[i64]| -> Vec<String> {
        let (attempts, stops) = (attempts(begun), Stops::default());
        let known = Known {
            accepted_at: at(100),
            deliver_at: None,
            expunged_at: None,
            delivery,
            attempts: &attempts,
            stops: &stops,
            waiting: None,
            now: at(10_000),
        };
        timeline(&known).iter().map(shown).collect()
    };
    let made = Delivery {
        id: DeliveryId::new(at(5_000), 1),
        budget_began: at(5_001),
        ..ended(DELIVERED, 5_002)
    };
    let expected = ["100 accepted", "5000 made", "5001-5002 attempt 1", "5002 Delivered"];
    let shown: Vec<String> = of(&made, &[5_001]);
    let waits = |step: &&String| !step.contains('?');
    assert_eq!(shown.iter().filter(waits).collect::<Vec<_>>(), expected.iter().collect::<Vec<_>>());
    assert!(
        !shown.iter().any(|step| step.starts_with("100-")),
        "it did not wait before: {shown:?}"
    );
    // Retried later, it shows that as well.
    let again = Delivery { revival: 1, budget_began: at(6_000), ended_at: Some(at(6_001)), ..made };
    let shown = of(&again, &[5_001, 6_000]);
    assert!(shown.contains(&"5000 made".to_owned()), "{shown:?}");
    assert!(shown.contains(&"6000 retried".to_owned()), "{shown:?}");
}
