//! Who follows how deliveries end, what couriers do without a store, and what is forgotten.

use std::time::Duration;

use bytes::Bytes;
use posthorn_domain::policy::profiles;
use posthorn_domain::{
    Budget, Clock, DeadReason, DeliveryState, EventType, SecretName, Span, TopicName,
};
use posthorn_engine::{Courier, CourierParts, Error, SecretInput, Terms};
use posthorn_store::{DeliveryFilter, Listing, Store};
use serde_json::json;

use crate::house::{House, TENANT, answered, publish, refused, rest, subscribe};

#[tokio::test(start_paused = true)]
async fn every_end_is_told_once_with_how_it_came_about() {
    let (house, engine) = House::open().await;
    let short = json!({"schedule": {"backoff": {"fixed": {"wait": "3s"}}, "jitter": "none",
        "max_attempts": 2}});
    let good = subscribe(&engine, "https://good/", json!({})).await;
    let bad = subscribe(&engine, "https://bad/", short).await;
    house.receivers.script("https://bad/", |_, _| (Duration::from_millis(40), refused()));
    let mut outcomes = engine.outcomes();
    let began = house.clock.now();
    let event = engine.publish(TENANT, publish("1", None)).await.expect("accepted").id;
    let first = outcomes.next().await.expect("an end");
    assert_eq!((first.subscription, first.state), (good.subscription.id, DeliveryState::Delivered));
    assert_eq!((first.spent, first.took, first.event), (1, Some(Span::from_millis(5)), event));
    assert_eq!((first.tenant, first.event_type.as_str()), (TENANT, "order.created"));
    let second = outcomes.next().await.expect("another");
    assert_eq!(second.subscription, bad.subscription.id);
    assert_eq!(second.state, DeliveryState::Dead(DeadReason::Exhausted));
    assert_eq!((second.spent, second.began_at), (2, began));
    assert!(second.ended_at.since(began) >= Span::from_millis(3_080));

    // A retry has a budget of its own, and ends again.
    engine.retry_delivery(TENANT, second.delivery).await.expect("retried");
    let third = outcomes.next().await.expect("a third");
    assert_eq!((third.delivery, third.spent), (second.delivery, 2));
    assert!(third.began_at > began);
}

#[tokio::test(start_paused = true)]
async fn a_slow_follower_misses_some_and_never_holds_anybody_up() {
    let (house, engine) = House::open().await;
    subscribe(&engine, "https://a/", json!({})).await;
    let mut slow = engine.outcomes();
    for _ in 0..30 {
        let batch = (0..50).map(|n| publish(&n.to_string(), None)).collect();
        for answer in engine.publish_batch(TENANT, batch).await.expect("taken") {
            answer.expect("accepted");
        }
    }
    rest(60).await;
    assert_eq!(house.counts().await.delivered, 1_500);
    engine.kill();
    drop(engine);
    let mut heard = 0;
    while slow.next().await.is_some() {
        heard += 1;
    }
    assert_eq!(heard, 1_024, "as many as are kept, and then the end");
}

#[tokio::test(start_paused = true)]
async fn what_is_forgotten_is_not_attempted_and_its_lane_goes_on() {
    let (house, engine) = House::open().await;
    house.receivers.script("https://a/", |nth, _| {
        (Duration::from_millis(5), if nth == 0 { refused() } else { answered(200) })
    });
    let overrides = json!({"order": {"scope": "subscription"},
        "schedule": {"backoff": {"fixed": {"wait": "60s"}}, "jitter": "none"}});
    subscribe(&engine, "https://a/", overrides).await;
    for n in 0..3 {
        engine.publish(TENANT, publish(&n.to_string(), None)).await.expect("accepted");
    }
    rest(1).await;
    assert_eq!(house.receivers.bodies("https://a/"), ["0"], "its head waits for a minute");
    let all = house.store.all_deliveries();
    let head = all.into_iter().min_by_key(|delivery| delivery.seq).expect("three");
    let forgotten = engine.forget_delivery(TENANT, head.id).await.expect("forgotten");
    assert_eq!(forgotten.id, head.id);
    rest(1).await;
    assert_eq!(house.receivers.bodies("https://a/"), ["0", "1", "2"]);
    rest(600).await;
    assert_eq!(house.receivers.bodies("https://a/").len(), 3, "and it never comes back");
    assert_eq!(house.store.delivery(TENANT, head.id).await.expect("answers"), None);
    let counts = house.counts().await;
    assert_eq!((counts.events, counts.delivered, counts.pending), (3, 2, 0));
    let again = engine.forget_delivery(TENANT, head.id).await;
    assert!(matches!(again, Err(Error::NotFound("delivery"))));
}

#[tokio::test(start_paused = true)]
async fn a_forgotten_attempt_under_way_leaves_nothing_behind() {
    let (house, engine) = House::open().await;
    house.receivers.script("https://a/", |_, _| (Duration::from_secs(5), answered(500)));
    subscribe(&engine, "https://a/", json!({})).await;
    engine.publish(TENANT, publish("1", None)).await.expect("accepted");
    rest(1).await;
    let busy = house.store.all_deliveries()[0].clone();
    engine.forget_delivery(TENANT, busy.id).await.expect("forgotten");
    rest(3_600).await;
    assert_eq!(house.receivers.of("https://a/").len(), 1);
    assert!(house.store.all_deliveries().is_empty());
    assert!(house.store.all_attempts().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_waiting_delivery_is_retried_at_once_and_once() {
    let (house, engine) = House::open().await;
    house.receivers.script("https://a/", |nth, _| {
        (Duration::from_millis(5), if nth < 2 { refused() } else { answered(200) })
    });
    let overrides = json!({"schedule": {"max_attempts": 2, "jitter": "none",
        "backoff": {"fixed": {"wait": "20s"}}}});
    subscribe(&engine, "https://a/", overrides).await;
    engine.publish(TENANT, publish("1", None)).await.expect("accepted");
    rest(1).await;
    let waiting = house.store.all_deliveries()[0].clone();
    assert_eq!((waiting.state, waiting.attempts), (DeliveryState::Pending, 1));
    let now = engine.retry_delivery(TENANT, waiting.id).await.expect("due now");
    assert_eq!((now.spent(), now.seq), (0, waiting.seq));
    rest(1).await;
    assert_eq!(house.receivers.of("https://a/").len(), 2, "tried now, not in 19 seconds");
    rest(18).await;
    assert_eq!(house.receivers.of("https://a/").len(), 2, "the old time no longer counts");
    rest(600).await;
    assert_eq!(house.receivers.of("https://a/").len(), 3, "the budget was a fresh one");
    assert_eq!(house.store.all_deliveries()[0].state, DeliveryState::Delivered);
}

#[tokio::test(start_paused = true)]
async fn a_retry_during_an_attempt_sends_nothing_twice() {
    let (house, engine) = House::open().await;
    house.receivers.script("https://a/", |_, _| (Duration::from_secs(5), answered(200)));
    for (durable, body) in [(false, "1"), (true, "2")] {
        let url = format!("https://a/{body}");
        house.receivers.script(&url, |_, _| (Duration::from_secs(5), answered(200)));
        subscribe(&engine, &url, json!({"lease": {"durable": durable}})).await;
    }
    engine.publish(TENANT, publish("1", None)).await.expect("accepted");
    rest(1).await;
    for delivery in house.store.all_deliveries() {
        let again = engine.retry_delivery(TENANT, delivery.id).await;
        match delivery.state {
            DeliveryState::InFlight => assert!(matches!(again, Err(Error::NotEnded))),
            // Nobody wrote a lease down: the attempt under way is the try.
            _ => assert_eq!(again.expect("it waits").state, DeliveryState::Pending),
        }
    }
    rest(3_600).await;
    for body in ["1", "2"] {
        assert_eq!(house.receivers.of(&format!("https://a/{body}")).len(), 1);
    }
    assert_eq!(house.counts().await.delivered, 2);
}

/// The next of a lane never starts while an attempt of one that was cancelled or forgotten is under
/// way, and keeps its distance from its end.
#[tokio::test(start_paused = true)]
async fn what_is_taken_away_under_way_still_holds_its_lane() {
    for (durable, forget) in [(false, false), (false, true), (true, false), (true, true)] {
        let (house, engine) = House::open().await;
        house.receivers.script("https://a/", |_, _| (Duration::from_secs(5), answered(200)));
        let overrides = json!({"order": {"scope": "key"}, "spacing": "3s",
            "lease": {"durable": durable}});
        subscribe(&engine, "https://a/", overrides).await;
        rest(10).await;
        for n in 0..2 {
            engine.publish(TENANT, publish(&n.to_string(), Some("k"))).await.expect("accepted");
        }
        rest(1).await;
        assert_eq!(house.receivers.bodies("https://a/"), ["0"]);
        let head = house.store.all_deliveries().into_iter().min_by_key(|d| d.seq).expect("two");
        match forget {
            true => engine.forget_delivery(TENANT, head.id).await.expect("forgotten"),
            false => engine.cancel_delivery(TENANT, head.id).await.expect("cancelled"),
        };
        rest(6).await;
        assert_eq!(house.receivers.bodies("https://a/"), ["0"], "5 s under way, 3 s of rest");
        engine.publish(TENANT, publish("2", Some("k"))).await.expect("accepted");
        rest(600).await;
        assert_eq!(house.receivers.bodies("https://a/"), ["0", "1", "2"]);
        let begun: Vec<_> = house.receivers.of("https://a/").iter().map(|r| r.at).collect();
        for pair in begun.windows(2) {
            assert!(pair[1].since(pair[0]).as_millis() >= 8_000, "{begun:?}");
        }
    }
}

fn courier(house: &House, policy: posthorn_domain::Policy) -> posthorn_engine::Result<Courier> {
    let parts = CourierParts {
        transport: house.receivers.clone(),
        clock: house.clock.clone(),
        seed: [5; 32],
    };
    let name = SecretName::new("signing").expect("a name");
    let secret = SecretInput { name, value: "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3".to_owned() };
    Courier::new(parts, "https://a/", policy, &[secret])
}

#[tokio::test(start_paused = true)]
async fn a_courier_sends_what_the_scheduler_would_and_moves_the_delivery_on() {
    let house = House::new();
    house.receivers.script("https://a/", |nth, _| {
        (Duration::from_millis(7), if nth == 0 { answered(503) } else { answered(204) })
    });
    let courier = courier(&house, profiles::default_profile()).expect("a courier");
    let mut work = courier.work(
        TopicName::new("orders").expect("a name"),
        EventType::new("order.created").expect("a type"),
        "application/json".to_owned(),
        Bytes::from_static(b"{}"),
    );
    let first = courier.attempt(&mut work).await.expect("tried").expect("an attempt");
    assert_eq!((first.number, first.status), (1, Some(503)));
    assert_eq!((work.delivery.state, work.delivery.spent()), (DeliveryState::Pending, 1));
    assert!(work.delivery.due_at > house.clock.now(), "when to try again");
    let second = courier.attempt(&mut work).await.expect("tried").expect("an attempt");
    assert_eq!((second.number, second.status), (2, Some(204)));
    assert_eq!(work.delivery.state, DeliveryState::Delivered);
    assert!(matches!(courier.attempt(&mut work).await, Err(Error::Ended)), "it has ended");
    let seen = house.receivers.of("https://a/");
    assert_eq!(seen[0].headers["webhook-id"], seen[1].headers["webhook-id"]);
    assert!(seen[0].headers["webhook-signature"].to_str().expect("text").starts_with("v1,"));
}

#[tokio::test(start_paused = true)]
async fn a_courier_is_refused_what_a_subscription_would_be() {
    let house = House::new();
    let mut policy = profiles::default_profile();
    policy.url.https_only = true;
    let parts = || CourierParts {
        transport: house.receivers.clone(),
        clock: house.clock.clone(),
        seed: [6; 32],
    };
    let no_secret = Courier::new(parts(), "https://a/", policy.clone(), &[]);
    assert!(matches!(no_secret, Err(Error::Secret { .. })));
    policy.auth.clear();
    let plain = Courier::new(parts(), "http://a/", policy.clone(), &[]);
    assert!(matches!(plain, Err(Error::Url(_))));
    let closed = Courier::new(parts(), "https://10.0.0.1/", policy.clone(), &[]);
    assert!(matches!(closed, Err(Error::Url(_))));
    policy.schedule.max_attempts = Some(0);
    let never = Courier::new(parts(), "https://a/", policy, &[]);
    assert!(matches!(never, Err(Error::Policy(_))));
}

#[tokio::test(start_paused = true)]
async fn what_is_tried_once_is_not_tried_again_by_any_node() {
    let (house, engine) = House::open().await;
    let schedule = json!({"schedule": {"backoff": {"fixed": {"wait": "3s"}}, "jitter": "none",
        "max_attempts": 2}, "on_exhausted": "disable_subscription"});
    let bad = subscribe(&engine, "https://bad/", schedule).await.subscription.id;
    house.receivers.script("https://bad/", |_, _| (Duration::from_millis(40), answered(500)));
    let mut outcomes = engine.outcomes();
    let event = engine.publish(TENANT, publish("1", None)).await.expect("accepted").id;
    let dead = outcomes.next().await.expect("an end").delivery;
    engine.resume_subscription(TENANT, bad).await.expect("its schedule ran out, which disabled it");
    assert_eq!(house.receivers.of("https://bad/").len(), 2);
    let back = engine.retry_delivery_once(TENANT, dead).await.expect("retried");
    assert_eq!((back.budget, back.spent()), (Budget::Once, 0));
    // Another node may be the one that tries it.
    engine.kill();
    let engine = house.engine(2).await;
    rest(600).await;
    let now = house.store.delivery(TENANT, dead).await.expect("answers").expect("there");
    assert_eq!(now.state, DeliveryState::Dead(DeadReason::Exhausted));
    assert_eq!((now.attempts, house.receivers.of("https://bad/").len()), (3, 3));
    let view = engine.catalog().subscription(TENANT, bad).expect("there");
    assert!(view.subscription.status.is_active(), "nothing is known of its receiver by that");
    // The same by a job, for an event that was never meant for it.
    let fresh = subscribe(&engine, "https://fresh/", json!({})).await.subscription.id;
    house.receivers.script("https://fresh/", |_, _| (Duration::from_millis(40), answered(500)));
    let terms = Terms { budget: Budget::Once, ..Terms::default() };
    let by = "tests".to_owned();
    engine.deliver_event_with(TENANT, event, fresh, by, terms).await.expect("a job");
    rest(600).await;
    assert_eq!(house.receivers.of("https://fresh/").len(), 1);
    house.receivers.script("https://fresh/", |_, _| (Duration::from_millis(40), answered(204)));
    let filter = DeliveryFilter { subscription: Some(fresh), ..DeliveryFilter::default() };
    let found = house.store.deliveries(TENANT, filter, Listing::newest(5)).await.expect("a list");
    let [once] = &found.items[..] else { panic!("one") };
    assert_eq!(once.state, DeliveryState::Dead(DeadReason::Exhausted));
    engine.retry_delivery_once(TENANT, once.id).await.expect("retried");
    rest(5).await;
    let now = house.store.delivery(TENANT, once.id).await.expect("answers").expect("there");
    assert_eq!((now.state, now.attempts), (DeliveryState::Delivered, 2));
}
