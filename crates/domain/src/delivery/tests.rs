use bytes::Bytes;
use serde_json::json;

use super::{
    Budget, CancelReason, DeadReason, Delivery, DeliveryState, Head, Input, Lane, Others, Step,
    StepRefusal, Stored, SubscriptionEffect, Wish, by_hand, step,
};
use crate::policy::{Policy, profiles};
use crate::{
    Answer, AttemptOutcome, DeliveryId, EventId, FailureCode, Span, SubscriptionId, TenantId,
    Timestamp,
};

const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);

fn delivery(state: DeliveryState, attempts: u32) -> Delivery {
    Delivery {
        id: DeliveryId::new(NOW, 1),
        event: EventId::new(NOW, 2),
        subscription: SubscriptionId::new(NOW, 3),
        tenant: TenantId::DEFAULT,
        lane: None,
        seq: 1,
        state,
        due_at: NOW,
        attempts,
        budget_base: 0,
        budget: Budget::Fresh,
        budget_began: NOW,
        revival: 0,
        created_at: NOW,
        ended_at: None,
        last_outcome: None,
    }
}

fn answer(status: u16) -> AttemptOutcome {
    AttemptOutcome::Answered(Answer {
        status,
        retry_after: None,
        content_type: None,
        body: Bytes::new(),
    })
}

fn run(policy: &Policy, delivery: &Delivery, input: &Input<'_>) -> Result<Step, StepRefusal> {
    step(delivery, input, policy, NOW, 0)
}

fn with(patch: &serde_json::Value) -> Policy {
    profiles::default_profile().patched(patch).expect("valid")
}

#[test]
fn success_ends_and_releases() {
    let policy = profiles::default_profile();
    let next = run(&policy, &delivery(DeliveryState::Pending, 0), &Input::Attempted(&answer(204)))
        .expect("allowed");
    assert_eq!(next.state, DeliveryState::Delivered);
    assert!(next.charge && next.release_lane);
}

#[test]
fn failure_goes_back_to_pending_until_the_budget_is_used_up() {
    let policy = profiles::cedros();
    let failed = answer(500);
    for attempts in 0..4 {
        let next =
            run(&policy, &delivery(DeliveryState::Pending, attempts), &Input::Attempted(&failed))
                .expect("allowed");
        assert_eq!(next.state, DeliveryState::Pending);
        let wait = next.due_at.since(NOW).as_millis();
        assert_eq!(wait, 1_000 << attempts, "wait after attempt {}", attempts + 1);
        assert!(next.charge && !next.release_lane);
    }
    let last = run(&policy, &delivery(DeliveryState::Pending, 4), &Input::Attempted(&failed))
        .expect("allowed");
    assert_eq!(last.state, DeliveryState::Dead(DeadReason::Exhausted));
}

#[test]
fn a_fresh_budget_counts_from_its_own_beginning() {
    let policy = profiles::cedros();
    let mut revived = delivery(DeliveryState::InFlight, 5);
    revived.budget_base = 5;
    let next = run(&policy, &revived, &Input::Attempted(&answer(500))).expect("allowed");
    assert_eq!(next.state, DeliveryState::Pending);
    assert_eq!(next.due_at.since(NOW).as_millis(), 1_000);
}

#[test]
fn exhaustion_follows_the_policy() {
    let last = delivery(DeliveryState::Pending, 11);
    let failed = answer(500);
    for (choice, state, effect) in [
        ("dead_letter", DeliveryState::Dead(DeadReason::Exhausted), SubscriptionEffect::None),
        ("drop", DeliveryState::Cancelled(CancelReason::Dropped), SubscriptionEffect::None),
        (
            "disable_subscription",
            DeliveryState::Dead(DeadReason::Exhausted),
            SubscriptionEffect::DisableExhausted,
        ),
        (
            "delete_subscription",
            DeliveryState::Dead(DeadReason::Exhausted),
            SubscriptionEffect::Delete,
        ),
    ] {
        let policy = with(&json!({ "on_exhausted": choice }));
        let next = run(&policy, &last, &Input::Attempted(&failed)).expect("allowed");
        assert_eq!((next.state, next.subscription), (state, effect), "{choice}");
    }
}

#[test]
fn a_refused_url_does_what_the_policy_says_and_other_failures_do_not() {
    use SubscriptionEffect as Effect;
    let first = delivery(DeliveryState::Pending, 0);
    let refusals: Vec<_> = FailureCode::ALL.into_iter().filter(|c| c.refuses_url()).collect();
    assert_eq!(refusals.len(), 3);
    for code in FailureCode::ALL {
        let failed = AttemptOutcome::Failed { code, detail: String::new() };
        for (choice, effect) in [
            ("give_up", Effect::None),
            ("retry", Effect::None),
            ("disable_subscription", Effect::DisableRefused),
            ("delete_subscription", Effect::DeleteRefused),
        ] {
            let policy = with(&json!({"url": {"on_refused": choice}}));
            let next = run(&policy, &first, &Input::Attempted(&failed)).expect("allowed");
            let effect = if code.refuses_url() { effect } else { Effect::None };
            assert_eq!(next.subscription, effect, "{code:?}, {choice}");
            let given_up = (code == FailureCode::UrlNotAllowed && choice == "give_up")
                || matches!(code, FailureCode::FamilyNotRouted | FailureCode::MessageTooLarge);
            assert_eq!(next.state.is_terminal(), given_up, "{code:?}, {choice}");
            let ours = code == FailureCode::PushUnavailable;
            assert_eq!(next.charge, !ours, "{code:?}, {choice}");
        }
    }
    // The last attempt is the last one all the same.
    let policy = with(&json!({"url": {"on_refused": "disable_subscription"}}));
    let code = FailureCode::AddressNotAllowed;
    let failed = AttemptOutcome::Failed { code, detail: String::new() };
    let last = delivery(DeliveryState::Pending, 11);
    let next = run(&policy, &last, &Input::Attempted(&failed)).expect("allowed");
    assert_eq!(next.state, DeliveryState::Dead(DeadReason::Exhausted));
    assert_eq!(next.subscription, Effect::DisableRefused);
}

#[test]
fn mailboxes_that_are_out_of_order_cost_no_budget() {
    let code = FailureCode::PushUnavailable;
    let failed = AttemptOutcome::Failed { code, detail: String::new() };
    let policy = with(&json!({"schedule": {"max_attempts": 2, "max_age": "1h"}}));
    for (waited, wait) in [(0, 5), (9, 5), (60, 30), (1_200, 60)] {
        let mut delivery = delivery(DeliveryState::Pending, 1);
        delivery.budget_began = Timestamp::from_millis(NOW.as_millis() - waited * 1_000);
        let next = run(&policy, &delivery, &Input::Attempted(&failed)).expect("allowed");
        assert_eq!((next.state, next.charge), (DeliveryState::Pending, false));
        assert_eq!(next.due_at.since(NOW).as_millis(), wait * 1_000, "after {waited} s");
    }
    let mut old = delivery(DeliveryState::Pending, 1);
    old.budget_began = Timestamp::from_millis(NOW.as_millis() - 3_599_000);
    let next = run(&policy, &old, &Input::Attempted(&failed)).expect("allowed");
    assert_eq!((next.state, next.charge), (DeliveryState::Dead(DeadReason::Expired), true));
}

#[test]
fn a_blocking_dead_head_does_not_release_its_lane() {
    let policy = with(&json!({"order": {"scope": "subscription", "dead_head": "block"},
        "schedule": {"max_attempts": 1}}));
    let next = run(&policy, &delivery(DeliveryState::Pending, 0), &Input::Attempted(&answer(500)))
        .expect("allowed");
    assert_eq!(next.state, DeliveryState::Dead(DeadReason::Exhausted));
    assert!(!next.release_lane);
}

#[test]
fn gone_disables_and_keeps_the_delivery() {
    let policy = profiles::default_profile();
    let next = run(&policy, &delivery(DeliveryState::Pending, 11), &Input::Attempted(&answer(410)))
        .expect("allowed");
    assert_eq!(next.state, DeliveryState::Pending);
    assert_eq!(next.subscription, SubscriptionEffect::DisableGone);
}

#[test]
fn a_closed_gate_never_charges() {
    let gate = |closed: serde_json::Value| {
        with(&json!({"gate": {"url": "https://h/health", "timeout": "5s", "status": ["200"],
            "on_closed": closed}}))
    };
    let waiting = delivery(DeliveryState::Pending, 2);
    let dead = run(&gate(json!("dead_letter")), &waiting, &Input::GateClosed).expect("allowed");
    assert_eq!(dead.state, DeliveryState::Dead(DeadReason::Gate));
    assert!(!dead.charge);
    let later = run(&gate(json!({"postpone": {"wait": "1m"}})), &waiting, &Input::GateClosed)
        .expect("allowed");
    assert_eq!(later.state, DeliveryState::Pending);
    assert_eq!(later.due_at.since(NOW).as_millis(), 60_000);
    assert!(!later.charge);
}

#[test]
fn being_held_back_too_long_expires() {
    let policy = with(&json!({"schedule": {"max_age": "1h"}}));
    let waiting = delivery(DeliveryState::Pending, 1);
    let soon = Input::Postponed { until: NOW.plus(Span::from_secs(10)) };
    assert_eq!(run(&policy, &waiting, &soon).expect("allowed").state, DeliveryState::Pending);
    let late = Input::Postponed { until: NOW.plus(Span::from_secs(3_601)) };
    let next = run(&policy, &waiting, &late).expect("allowed");
    assert_eq!(next.state, DeliveryState::Dead(DeadReason::Expired));
}

fn stored(delivery: Delivery) -> Stored {
    Stored { delivery, blocks: false, left: None, deliver_at: None, enters: None, expunged: false }
}

#[test]
fn one_attempt_is_one_attempt_whatever_the_policy_says() {
    let retry_once = |delivery: Delivery| {
        by_hand(Wish::RetryOnce, &stored(delivery), &Others::default(), NOW).expect("allowed")
    };
    let ended = [
        DeliveryState::Delivered,
        DeliveryState::Dead(DeadReason::Exhausted),
        DeliveryState::Cancelled(CancelReason::Operator),
    ];
    let disables = with(&json!({"on_exhausted": "disable_subscription"}));
    let drops = with(&json!({"on_exhausted": "drop"}));
    let policies = [profiles::default_profile(), disables, drops];
    for (state, policy) in ended.iter().flat_map(|state| policies.iter().map(move |p| (*state, p)))
    {
        let back = retry_once(delivery(state, 3)).delivery;
        assert_eq!((back.state, back.due_at), (DeliveryState::Pending, NOW));
        assert_eq!((back.budget, back.budget_base, back.spent()), (Budget::Once, 3, 0));
        let next = |status| {
            let input = answer(status);
            run(policy, &back, &Input::Attempted(&input)).expect("allowed")
        };
        assert_eq!(next(200).state, DeliveryState::Delivered);
        let failed = next(500);
        assert_eq!(failed.state, DeliveryState::Dead(DeadReason::Exhausted));
        assert_eq!((failed.charge, failed.subscription), (true, SubscriptionEffect::None));
        let gone = next(410);
        assert_eq!(gone.state, DeliveryState::Dead(DeadReason::Exhausted));
        assert_eq!(gone.subscription, SubscriptionEffect::DisableGone);
        // Holding it back is no attempt.
        let later = Input::Postponed { until: NOW.plus(Span::from_secs(10)) };
        let held = run(policy, &back, &later).expect("allowed");
        assert_eq!((held.state, held.charge), (DeliveryState::Pending, false));
        // Whoever wants more gets more.
        let dead = Delivery { state: failed.state, attempts: 4, ..back };
        let again = by_hand(Wish::Retry, &stored(dead), &Others::default(), NOW).expect("allowed");
        let again = again.delivery;
        assert_eq!((again.budget, again.budget_base), (Budget::Fresh, 4));
    }
}

#[test]
fn one_attempt_of_a_waiting_delivery_is_one_of_its_schedule() {
    let began = NOW.minus(Span::from_secs(600));
    let waiting = Delivery {
        due_at: NOW.plus(Span::from_secs(60)),
        budget_base: 1,
        budget_began: began,
        ..delivery(DeliveryState::Pending, 3)
    };
    let moved = by_hand(Wish::RetryOnce, &stored(waiting), &Others::default(), NOW);
    let moved = moved.expect("allowed");
    assert!(moved.recalled, "copies that wait are out of date");
    let now = moved.delivery;
    assert_eq!((now.due_at, now.revival, now.budget), (NOW, 1, Budget::Fresh));
    assert_eq!((now.budget_base, now.budget_began), (1, began));
    let policy = profiles::default_profile();
    let next = run(&policy, &now, &Input::Attempted(&answer(500))).expect("allowed");
    assert_eq!(next.state, DeliveryState::Pending, "its schedule goes on");
}

#[test]
fn terminal_is_final_but_for_a_retry() {
    let policy = profiles::default_profile();
    let ended = [
        DeliveryState::Delivered,
        DeliveryState::Dead(DeadReason::Gate),
        DeliveryState::Cancelled(CancelReason::Operator),
    ];
    for state in ended {
        let done = delivery(state, 3);
        let ok = answer(200);
        for input in [Input::Attempted(&ok), Input::GateClosed, Input::Postponed { until: NOW }] {
            assert_eq!(run(&policy, &done, &input), Err(StepRefusal::Terminal), "{state:?}");
        }
        let found = Stored {
            delivery: done,
            blocks: false,
            left: None,
            deliver_at: None,
            enters: None,
            expunged: false,
        };
        let refused = by_hand(Wish::Cancel, &found, &Others::default(), NOW);
        assert_eq!(refused, Err(StepRefusal::Terminal), "{state:?}");
        let moved = by_hand(Wish::Retry, &found, &Others::default(), NOW).expect("allowed");
        let now = moved.delivery;
        assert_eq!((now.state, now.ended_at, now.due_at), (DeliveryState::Pending, None, NOW));
        assert_eq!((now.attempts, now.budget_base, now.budget_began), (3, 3, NOW));
        assert!(!moved.recalled && !moved.displaces && moved.promotes.is_none());
        // Without a payload there is nothing to try again; it can be forgotten all the same.
        let found = Stored { expunged: true, ..found };
        let refused = by_hand(Wish::Retry, &found, &Others::default(), NOW);
        assert_eq!(refused, Err(StepRefusal::Expunged), "{state:?}");
        by_hand(Wish::Forget, &found, &Others::default(), NOW).expect("allowed");
    }
}

/// Where one that comes back stands in its lane: now, after one that was parked before it, or later.
#[test]
fn who_comes_back_goes_to_its_place() {
    let head = |seq, leased| Some(Head { seq, leased });
    let lane = |blocked, head, parked| Others { blocked, head, parked };
    // (the others, parked itself, a head has to wait, another one goes on)
    for (others, parked, displaces, promotes) in [
        (lane(false, None, None), false, false, false),
        (lane(false, None, Some(9)), false, false, false),
        (lane(false, None, Some(3)), true, false, true),
        (lane(false, head(9, false), Some(10)), false, true, false),
        (lane(false, head(9, false), Some(3)), true, true, true),
        (lane(false, head(9, true), None), true, false, false),
        (lane(false, head(3, false), None), true, false, false),
        (lane(true, None, Some(3)), true, false, false),
    ] {
        let mut delivery = delivery(DeliveryState::Dead(DeadReason::Exhausted), 1);
        (delivery.lane, delivery.seq) = (Some(Lane::Subscription), 5);
        let found = Stored {
            delivery,
            blocks: false,
            left: None,
            deliver_at: None,
            enters: None,
            expunged: false,
        };
        let moved = by_hand(Wish::Retry, &found, &others, NOW).expect("allowed");
        assert_eq!(moved.delivery.is_parked(), parked, "{others:?}");
        assert_eq!(
            (moved.displaces, moved.promotes.is_some()),
            (displaces, promotes),
            "{others:?}"
        );
    }
}

/// Who leads a lane lets the next go on when it goes, once no attempt of it can arrive any more.
#[test]
fn who_goes_lets_the_next_go_on() {
    let later = NOW.plus(Span::from_secs(9));
    let blocker = DeliveryState::Dead(DeadReason::Exhausted);
    // (state, due, whether it blocks, when the next goes on)
    for (state, due_at, blocks, promotes) in [
        (DeliveryState::Pending, later, false, Some(NOW)),
        (DeliveryState::Pending, Timestamp::MAX, false, None),
        (DeliveryState::InFlight, later, false, Some(later)),
        (DeliveryState::InFlight, NOW, false, Some(NOW)),
        (blocker, Timestamp::MAX, true, Some(NOW)),
    ] {
        let delivery = Delivery { lane: Some(Lane::Subscription), due_at, ..delivery(state, 1) };
        let mut found = Stored {
            delivery,
            blocks,
            left: None,
            deliver_at: None,
            enters: None,
            expunged: false,
        };
        let others = Others { parked: Some(7), ..Others::default() };
        for wish in [Wish::Cancel, Wish::Forget] {
            let moved = by_hand(wish, &found, &others, NOW).expect("allowed");
            assert_eq!(moved.promotes, promotes, "{state:?} {wish:?}");
            assert_eq!(moved.recalled, !state.is_terminal());
        }
        found.left = Some(NOW);
        let moved = by_hand(Wish::Forget, &found, &others, NOW).expect("allowed");
        assert_eq!((moved.promotes, moved.recalled), (None, false), "nobody is left to go on");
        let refused = by_hand(Wish::Retry, &found, &others, NOW);
        assert_eq!(refused, Err(StepRefusal::Unsubscribed));
    }
}

/// Nothing is tried before the time of its event, unless it had its time already; what is cancelled outside
/// its lane belongs to it, should it come back.
#[test]
fn before_its_time_nothing_is_retried() {
    let lane = Some(Lane::Subscription);
    let outside =
        Delivery { due_at: Timestamp::MAX, lane: None, ..delivery(DeliveryState::Pending, 0) };
    let until = outside.created_at.plus(Span::from_secs(9));
    let found = |state, lane| Stored {
        delivery: Delivery { state, ..outside.clone() },
        blocks: false,
        left: None,
        deliver_at: Some(until),
        enters: lane,
        expunged: false,
    };
    let before = until.minus(Span::from_millis(1));
    let retry = |stored: &Stored, at| by_hand(Wish::Retry, stored, &Others::default(), at);
    let refused = Err(StepRefusal::Scheduled(until));
    let waits = found(DeliveryState::Pending, lane.clone());
    assert_eq!(retry(&waits, before), refused);
    assert_eq!(retry(&waits, until), refused, "it is about to enter its lane");
    let cancelled = by_hand(Wish::Cancel, &waits, &Others::default(), before).expect("possible");
    assert_eq!((&cancelled.delivery.lane, cancelled.recalled), (&lane, true));
    let ended = Stored { delivery: cancelled.delivery, enters: None, ..waits };
    assert_eq!(retry(&ended, before), refused);
    let back = retry(&ended, until).expect("its time has come").delivery;
    assert_eq!((back.lane, back.due_at, back.budget_began), (lane, until, until));
    let dead = found(DeliveryState::Dead(DeadReason::Expired), None);
    assert!(retry(&dead, before).is_ok(), "it had its time");
}
