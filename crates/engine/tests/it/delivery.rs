//! What happens to deliveries.

use std::time::Duration;

use posthorn_domain::{
    Answer, AttemptOutcome, Clock as _, DeadReason, DeliveryState, Lane, LaneKey, Span,
    SubscriptionStatus,
};
use posthorn_engine::Options;
use posthorn_store::{DeliveryFilter, Listing, StateKind, Store};
use posthorn_testkit::clock::VirtualClock;
use serde_json::json;

use crate::house::{House, TENANT, answered, publish, refused, rest, subscribe, topic};

#[tokio::test(start_paused = true)]
async fn an_event_reaches_every_matching_subscription_once_and_signed() {
    let (house, engine) = House::open().await;
    for url in ["https://a/", "https://b/"] {
        subscribe(&engine, url, json!({})).await;
    }
    let published = engine.publish(TENANT, publish(r#"{"n": 1}"#, None)).await.expect("accepted");
    assert_eq!(published.deliveries, 2);
    rest(1).await;
    for url in ["https://a/", "https://b/"] {
        assert_eq!(house.receivers.bodies(url), [r#"{"n": 1}"#]);
        let seen = &house.receivers.of(url)[0];
        assert_eq!(seen.headers["webhook-id"].to_str().expect("text"), published.id.to_string());
        assert!(seen.headers["webhook-signature"].to_str().expect("text").starts_with("v1,"));
    }
    assert_eq!(house.counts().await.delivered, 2);
}

#[tokio::test(start_paused = true)]
async fn failures_follow_the_schedule_to_the_millisecond_and_end_as_a_dead_letter() {
    let (house, engine) = House::open().await;
    house.receivers.script("https://a/", |_, _| (Duration::ZERO, answered(500)));
    let overrides = json!({"schedule": {"backoff": {"list": {"waits": ["1s", "7s", "90s"]}},
        "jitter": "none", "max_attempts": 4}});
    subscribe(&engine, "https://a/", overrides).await;
    engine.publish(TENANT, publish("{}", None)).await.expect("accepted");
    rest(200).await;
    let times: Vec<i64> =
        house.receivers.of("https://a/").iter().map(|s| s.at.as_millis()).collect();
    let gaps: Vec<i64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(gaps, [1_000, 7_000, 90_000]);
    let filter = DeliveryFilter { state: Some(StateKind::Dead), ..DeliveryFilter::default() };
    let dead =
        house.store.deliveries(TENANT, filter, Listing::newest(10)).await.expect("answers").items;
    assert_eq!(dead[0].state, DeliveryState::Dead(DeadReason::Exhausted));
    let attempts = house.store.attempts(TENANT, dead[0].id).await.expect("answers");
    assert_eq!(attempts.iter().map(|a| a.number).collect::<Vec<_>>(), [1, 2, 3, 4]);

    house.receivers.script("https://a/", |_, _| (Duration::ZERO, answered(200)));
    engine.retry_delivery(TENANT, dead[0].id).await.expect("can be retried");
    rest(1).await;
    assert_eq!(house.counts().await.delivered, 1);
}

#[tokio::test(start_paused = true)]
async fn an_ordered_subscription_keeps_the_order_behind_a_failing_head() {
    let (house, engine) = House::open().await;
    house.receivers.script("https://a/", |nth, _| {
        (Duration::from_millis(20), if nth < 2 { refused() } else { answered(200) })
    });
    let overrides = json!({"order": {"scope": "subscription"},
        "schedule": {"backoff": {"fixed": {"wait": "10s"}}, "jitter": "none"}});
    subscribe(&engine, "https://a/", overrides).await;
    for n in 0..5 {
        engine.publish(TENANT, publish(&n.to_string(), None)).await.expect("accepted");
    }
    rest(60).await;
    assert_eq!(house.receivers.bodies("https://a/"), ["0", "0", "0", "1", "2", "3", "4"]);
}

#[tokio::test(start_paused = true)]
async fn keys_are_ordered_and_spaced_by_themselves() {
    let (house, engine) = House::open().await;
    let overrides = json!({"order": {"scope": "key"}, "spacing": "2s"});
    subscribe(&engine, "https://a/", overrides).await;
    rest(3).await;
    for n in 0..3 {
        for key in ["x", "y"] {
            let text = format!("{key}{n}");
            engine.publish(TENANT, publish(&text, Some(key))).await.expect("accepted");
        }
    }
    rest(20).await;
    for key in ["x", "y"] {
        let seen: Vec<_> = house
            .receivers
            .of("https://a/")
            .into_iter()
            .filter(|s| s.body.starts_with(key.as_bytes()))
            .collect();
        let bodies: Vec<_> = seen.iter().map(|s| s.body[1] - b'0').collect();
        assert_eq!(bodies, [0, 1, 2]);
        for pair in seen.windows(2) {
            assert!(pair[1].at.since(pair[0].at).as_millis() >= 2_000, "spacing of {key}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_backlog_larger_than_the_window_is_delivered_once_each() {
    let house = House::new();
    let options = Options { window_per_subscription: 16, window: 32, ..Options::default() };
    let engine = house.engine_with(5, options).await;
    topic(&engine).await;
    house.receivers.script("https://a/", |_, _| (Duration::from_millis(3), answered(200)));
    subscribe(&engine, "https://a/", json!({"limits": {"concurrency": 4}})).await;
    for chunk in 0..10 {
        let batch = (0..50).map(|n| publish(&(chunk * 50 + n).to_string(), None)).collect();
        for result in engine.publish_batch(TENANT, batch).await.expect("taken") {
            result.expect("accepted");
        }
    }
    rest(30).await;
    let mut bodies = house.receivers.bodies("https://a/");
    assert_eq!(bodies.len(), 500, "each exactly once");
    bodies.sort();
    bodies.dedup();
    assert_eq!(bodies.len(), 500);
    assert_eq!(engine.inspect().await.window, 0);
}

#[tokio::test(start_paused = true)]
async fn retries_that_wait_in_memory_keep_nothing_that_is_due_from_being_read() {
    let house = House::new();
    let options = Options { window_per_subscription: 128, window: 256, ..Options::default() };
    let engine = house.engine_with(5, options).await;
    topic(&engine).await;
    house.receivers.script("https://a/", |_, _| (Duration::from_millis(1), answered(500)));
    let waits = json!({"schedule": {"backoff": {"fixed": {"wait": "50s"}}, "jitter": "none",
        "max_attempts": 2}});
    subscribe(&engine, "https://a/", waits).await;
    for n in 0..20 {
        engine.publish(TENANT, publish(&n.to_string(), None)).await.expect("accepted");
    }
    rest(5).await;
    assert_eq!(house.receivers.of("https://a/").len(), 20, "all wait for their second attempt");
    assert_eq!(engine.inspect().await.window, 8, "a sixteenth of the window");
    for n in 20..40 {
        engine.publish(TENANT, publish(&n.to_string(), None)).await.expect("accepted");
    }
    rest(2).await;
    assert_eq!(house.receivers.of("https://a/").len(), 40, "what comes now goes now");
    rest(100).await;
    assert_eq!(house.receivers.of("https://a/").len(), 80, "and the others when it is their time");
    assert_eq!(engine.inspect().await.window, 0);
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_hangs_opens_the_breaker_and_charges_nothing_for_waiting() {
    let (house, engine) = House::open().await;
    house.receivers.script("https://a/", |_, _| (Duration::from_secs(2), refused()));
    subscribe(&engine, "https://a/", json!({})).await;
    for n in 0..200 {
        engine.publish(TENANT, publish(&n.to_string(), None)).await.expect("accepted");
    }
    rest(30).await;
    let tried = house.receivers.of("https://a/").len();
    assert!(tried < 50, "the breaker stopped the rush after {tried} attempts");
    let attempts: u32 = house.store.all_deliveries().iter().map(|d| d.attempts).sum();
    assert!(tried - attempts as usize <= 1, "only what was tried is charged");
    house.receivers.script("https://a/", |_, _| (Duration::from_millis(1), answered(200)));
    rest(120).await;
    assert_eq!(house.counts().await.delivered, 200, "and it recovers by itself");
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_fails_quickly_keeps_its_schedule() {
    let (house, engine) = House::open().await;
    house.receivers.script("https://a/", |_, _| (Duration::from_millis(20), answered(500)));
    house.receivers.script("https://b/", |_, _| (Duration::from_millis(20), refused()));
    let waits = json!({"schedule": {"backoff": {"fixed": {"wait": "10s"}}, "jitter": "none",
        "max_attempts": 2}});
    subscribe(&engine, "https://a/", waits.clone()).await;
    subscribe(&engine, "https://b/", waits).await;
    for n in 0..200 {
        engine.publish(TENANT, publish(&n.to_string(), None)).await.expect("accepted");
    }
    rest(4).await;
    assert_eq!(house.receivers.of("https://a/").len(), 200, "at least 50 a second");
    assert_eq!(house.receivers.of("https://b/").len(), 200, "also those that refuse connections");
    rest(14).await;
    assert_eq!(house.counts().await.dead, 400);
}

/// A queue of hanging calls stops nobody; only what the policy allows at once does.
#[tokio::test(start_paused = true)]
async fn calls_that_hang_count_towards_what_the_policy_allows_and_nothing_else() {
    let (house, engine) = House::open().await;
    house.receivers.script("https://a/", |_, seen| match seen.body.starts_with(b"hang") {
        true => (Duration::from_secs(60), answered(200)),
        false => (Duration::from_millis(1), answered(503)),
    });
    let policy = json!({"limits": {"concurrency": 6}, "breaker": null, "schedule":
        {"backoff": {"fixed": {"wait": "1s"}}, "jitter": "none", "max_attempts": 100}});
    subscribe(&engine, "https://a/", policy).await;
    for n in 0..4 {
        engine.publish(TENANT, publish(&format!("hang{n}"), None)).await.expect("accepted");
    }
    engine.publish(TENANT, publish("one", None)).await.expect("accepted");
    engine.publish(TENANT, publish("two", None)).await.expect("accepted");
    rest(20).await;
    let seen = house.receivers.of("https://a/");
    for name in ["one", "two"] {
        let times: Vec<i64> =
            seen.iter().filter(|s| s.body == name).map(|s| s.at.as_millis()).collect();
        assert!(times.len() >= 18, "{name}: {times:?}");
        let late = times.windows(2).map(|pair| pair[1] - pair[0]).max().expect("several");
        assert!(late <= 2_000, "{name}: {times:?}");
    }
    for n in 4..10 {
        engine.publish(TENANT, publish(&format!("hang{n}"), None)).await.expect("accepted");
    }
    rest(5).await;
    let seen = house.receivers.of("https://a/");
    let hanging = seen.iter().filter(|s| s.body.starts_with(b"hang")).count();
    assert!(hanging <= 6, "{hanging} at once, allowed are 6");
}

#[tokio::test(start_paused = true)]
async fn gone_disables_the_subscription_and_keeps_its_work() {
    let (house, engine) = House::open().await;
    house.receivers.script("https://a/", |nth, _| {
        (Duration::ZERO, answered(if nth == 0 { 410 } else { 200 }))
    });
    let view = subscribe(&engine, "https://a/", json!({})).await;
    engine.publish(TENANT, publish("{}", None)).await.expect("accepted");
    rest(60).await;
    let id = view.subscription.id;
    let now = engine.catalog().subscription(TENANT, id).expect("still there");
    let reason = "the receiver answered 410 Gone".to_owned();
    assert_eq!(now.subscription.status, SubscriptionStatus::Disabled { reason });
    engine.publish(TENANT, publish("later", None)).await.expect("still accepted");
    rest(60).await;
    assert_eq!(house.receivers.of("https://a/").len(), 1, "nothing is sent while it is disabled");
    assert_eq!(house.counts().await.pending, 2, "what was pending is kept, what comes waits");
    engine.resume_subscription(TENANT, id).await.expect("resumes");
    rest(60).await;
    assert_eq!(house.counts().await.delivered, 2);
}

#[tokio::test(start_paused = true)]
async fn an_overloaded_receiver_is_left_alone_as_long_as_it_asks_and_comes_back_by_itself() {
    for status in [429, 502, 503, 504] {
        let (house, engine) = House::open().await;
        let start = house.clock.now();
        house.receivers.script("https://a/", move |_, seen| {
            let busy = seen.at.since(start) < Span::from_secs(25);
            let retry_after = busy.then(|| "20".to_owned());
            let answer = Answer {
                status: if busy { status } else { 200 },
                retry_after,
                content_type: None,
                body: bytes::Bytes::new(),
            };
            (Duration::from_millis(5), AttemptOutcome::Answered(answer))
        });
        subscribe(&engine, "https://a/", json!({"schedule": {"jitter": "none"}})).await;
        subscribe(&engine, "https://b/", json!({})).await;
        for n in 0..100 {
            engine.publish(TENANT, publish(&n.to_string(), None)).await.expect("accepted");
        }
        rest(19).await;
        let first = house.receivers.of("https://a/").len();
        assert!(first <= 8, "{status}: {first} attempts before it was heard");
        assert_eq!(house.receivers.of("https://b/").len(), 100, "others are not held back");
        rest(600).await;
        let counts = house.counts().await;
        assert_eq!((counts.delivered, counts.dead), (200, 0), "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_does_not_listen_to_retry_after_keeps_its_schedule() {
    for (honour, gaps) in [(false, [4_000, 8_000]), (true, [60_000, 60_000])] {
        let (house, engine) = House::open().await;
        house.receivers.script("https://a/", |_, _| {
            let answer = Answer {
                status: 503,
                retry_after: Some("60".to_owned()),
                content_type: None,
                body: bytes::Bytes::new(),
            };
            (Duration::ZERO, AttemptOutcome::Answered(answer))
        });
        let overrides = json!({"schedule": {"backoff": {"list": {"waits": ["4s", "8s"]}},
            "jitter": "none", "max_attempts": 3, "retry_after": {"honour": honour}}});
        subscribe(&engine, "https://a/", overrides).await;
        engine.publish(TENANT, publish("{}", None)).await.expect("accepted");
        rest(300).await;
        let times: Vec<i64> =
            house.receivers.of("https://a/").iter().map(|s| s.at.as_millis()).collect();
        let found: Vec<i64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
        assert_eq!(found, gaps, "honour: {honour}");
    }
}

/// Deciding by one reading of the clock and acting by another once sent a delivery that fell due in
/// between round and round, and the scheduler never came back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_clock_that_moves_while_the_scheduler_works_does_not_trap_it() {
    let mut house = House::new();
    let clock = VirtualClock::restless();
    house.store = posthorn_conformance::model::ModelStore::new(clock.clone());
    house.receivers = crate::house::Receivers::new(clock.clone());
    house.receivers.script("https://a/", |nth, _| {
        (Duration::ZERO, answered(if nth % 3 == 2 { 200 } else { 500 }))
    });
    let engine = house.engine_on(clock, 8).await;
    topic(&engine).await;
    let waits = json!({"schedule": {"backoff": {"fixed": {"wait": "100ms"}},
        "jitter": {"add": {"from": "0s", "to": "400ms", "step": "1ms"}}, "max_attempts": 1000}});
    subscribe(&engine, "https://a/", waits).await;
    for n in 0..300 {
        engine.publish(TENANT, publish(&n.to_string(), None)).await.expect("accepted");
    }
    let done = async {
        while house.counts().await.delivered < 300 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), done).await.expect("everything is delivered");
}

/// Many receivers that keep us waiting, and one that does not: how late does it get its events?
async fn lateness_beside(waiting: impl Fn(usize) -> (Duration, bool)) -> i64 {
    const SLOTS: usize = 16;
    let house = House::new();
    let engine = house.engine_with(9, Options { slots: SLOTS, ..Options::default() }).await;
    topic(&engine).await;
    for index in 0..SLOTS {
        let url = format!("https://slow-{index}/");
        let (wait, good) = waiting(index);
        house
            .receivers
            .script(&url, move |_, _| (wait, if good { answered(200) } else { refused() }));
        subscribe(&engine, &url, json!({})).await;
    }
    subscribe(&engine, "https://quick/", json!({})).await;
    let began = house.clock.now();
    for second in 0..60 {
        engine.publish(TENANT, publish(&second.to_string(), None)).await.expect("accepted");
        rest(1).await;
    }
    let seen = house.receivers.of("https://quick/");
    assert_eq!(seen.len(), 60);
    seen.iter()
        .zip(0..)
        .map(|(seen, second)| seen.at.as_millis() - began.as_millis() - second * 1_000)
        .max()
        .expect("there were some")
}

#[tokio::test(start_paused = true)]
async fn receivers_that_never_answer_do_not_keep_others_waiting() {
    let late = lateness_beside(|_| (Duration::from_secs(15), false)).await;
    assert!(late <= 1_100, "{late} ms late");
}

#[tokio::test(start_paused = true)]
async fn receivers_that_succeed_slowly_do_not_keep_others_waiting() {
    let late = lateness_beside(|_| (Duration::from_secs(20), true)).await;
    assert!(late <= 1_100, "{late} ms late");
}

#[tokio::test(start_paused = true)]
async fn slow_receivers_alone_get_their_share_of_the_slots() {
    let house = House::new();
    let engine = house.engine_with(9, Options { slots: 16, ..Options::default() }).await;
    topic(&engine).await;
    house.receivers.script("https://slow/", |_, _| (Duration::from_secs(5), answered(200)));
    subscribe(&engine, "https://slow/", json!({})).await;
    for number in 0..80 {
        engine.publish(TENANT, publish(&number.to_string(), None)).await.expect("accepted");
    }
    rest(105).await;
    assert_eq!(house.receivers.of("https://slow/").len(), 80, "four at a time, five seconds each");
    rest(5).await;
    assert_eq!(house.counts().await.delivered, 80);
}

#[tokio::test(start_paused = true)]
async fn a_profile_that_became_stricter_holds_work_up_but_kills_none() {
    let (house, engine) = House::open().await;
    let id = subscribe(&engine, "http://a/?b=c", json!({})).await.subscription.id;
    engine.pause_subscription(TENANT, id).await.expect("paused");
    for n in 0..10 {
        engine.publish(TENANT, publish(&n.to_string(), None)).await.expect("accepted");
    }
    engine.resume_subscription(TENANT, id).await.expect("resumed");
    engine.kill();
    for (https_only, query) in [(true, true), (false, false)] {
        let mut strict = Options::default();
        for policy in strict.profiles.values_mut() {
            policy.url.https_only = https_only;
            policy.url.query = query;
        }
        let engine = house.engine_with(2, strict).await;
        rest(60).await;
        engine.stop().await;
        assert!(house.receivers.of("http://a/?b=c").is_empty(), "nothing is sent");
        assert_eq!(house.counts().await.pending, 10, "and nothing is given up");
    }
    let attempts: u32 = house.store.all_deliveries().iter().map(|d| d.attempts).sum();
    assert!(attempts >= 10, "each was tried and says why it failed");
    let _engine = house.engine(3).await;
    rest(6 * 3_600).await;
    assert_eq!(house.counts().await.delivered, 10);
}

/// Events that lack what makes the key of a lane wait for nobody, unless a later template of the key fits.
#[tokio::test(start_paused = true)]
async fn events_without_the_key_of_their_lane_wait_for_nobody() {
    let (house, engine) = House::open().await;
    house.receivers.script("https://a/", |nth, _| {
        (Duration::from_secs(1), if nth == 0 { refused() } else { answered(200) })
    });
    let key = json!(["{event.attributes.user}", "team/{event.attributes.team}"]);
    let overrides = json!({"order": {"scope": "key", "key": key},
        "limits": {"concurrency": 1},
        "schedule": {"backoff": {"fixed": {"wait": "20s"}}, "jitter": "none"}});
    subscribe(&engine, "https://a/", overrides).await;
    for n in 0..2 {
        engine.publish(TENANT, publish(&n.to_string(), Some("k"))).await.expect("accepted");
    }
    for (n, attributes) in [
        ("2", vec![("user", ""), ("team", "red")]),
        ("3", vec![("team", "red")]),
        ("4", vec![("user", "ada"), ("team", "red")]),
    ] {
        let mut said = publish(n, None);
        let pairs = attributes.into_iter().map(|(name, text)| (name.to_owned(), text.to_owned()));
        said.attributes.extend(pairs);
        engine.publish(TENANT, said).await.expect("accepted");
    }
    rest(10).await;
    let mut bodies = house.receivers.bodies("https://a/");
    bodies.sort();
    assert_eq!(bodies, ["0", "1", "2", "3", "4"], "the failed one is waited for by nobody");
    rest(60).await;
    assert_eq!(house.receivers.bodies("https://a/").last().map(String::as_str), Some("0"));
    let mut lanes: Vec<_> = house.store.all_deliveries().into_iter().map(|d| d.lane).collect();
    lanes.sort_by_key(|lane| format!("{lane:?}"));
    let named = |key: &str| Some(Lane::Key(LaneKey::new(key).expect("a key")));
    assert_eq!(lanes, [None, None, named("ada"), named("team/red"), named("team/red")]);
}

/// A commit is in the store long before its answer is here: the process slept, or the network held the answer up. By then the
/// delivery was read, made and recorded, and nobody remembers it.
#[tokio::test(start_paused = true)]
async fn an_answer_of_the_store_that_comes_very_late_repeats_nothing() {
    let (house, engine) = House::open().await;
    subscribe(&engine, "https://a/", json!({})).await;
    house.store.set_late(Some(Duration::from_secs(90)));
    let late = tokio::spawn({
        let engine = engine.clone();
        async move { engine.publish(TENANT, publish("1", None)).await }
    });
    rest(30).await;
    assert_eq!(house.receivers.bodies("https://a/"), ["1"], "it was read from the store");
    house.store.set_late(None);
    rest(40).await;
    engine.publish(TENANT, publish("2", None)).await.expect("accepted");
    rest(30).await;
    late.await.expect("it ends").expect("accepted");
    rest(30).await;
    assert_eq!(house.receivers.bodies("https://a/"), ["1", "2"]);
    assert_eq!(house.counts().await.delivered, 2);
}
