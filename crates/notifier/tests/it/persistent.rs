//! The notifier on the engine, under the virtual clock.

use std::time::Duration;

use posthorn_domain::DeliveryState;
use posthorn_engine::Error as EngineError;
use posthorn_notifier::{
    CallbacksConfig, Error, Notifier, PersistentNotifier, RefundEvent, WebhookStatus,
    retire_subscriptions,
};
use posthorn_sealing::body_hmac::{BodyHmac, Content, Scheme};
use posthorn_sealing::encoding::Encoding;
use posthorn_store::{DeliveryFilter, Listing, Store};

use crate::house::{House, answered, config, payment, refused, rest};

async fn start(house: &House, block: CallbacksConfig, seed: u8) -> PersistentNotifier {
    let engine = house.engine(seed).await;
    PersistentNotifier::on(block, engine)
        .clock(house.clock.clone())
        .metrics(house.observer())
        .start()
        .await
        .expect("starts")
}

async fn states(house: &House, notifier: &PersistentNotifier) -> Vec<DeliveryState> {
    let filter = DeliveryFilter::default();
    let tenant = notifier.standing().tenant;
    let page = house.store.deliveries(tenant, filter, Listing::newest(100)).await.expect("answers");
    page.items.into_iter().map(|delivery| delivery.state).collect()
}

#[tokio::test(start_paused = true)]
async fn attempts_come_after_0_1_3_7_and_15_seconds_and_then_it_is_dead() {
    let house = House::new();
    house.receiver.script(|_| answered(500));
    let notifier = start(&house, config(""), 1).await;
    notifier.payment_succeeded(payment("a")).await;
    rest(3_600).await;
    assert_eq!(house.receiver.times(), [0.0, 1.0, 3.0, 7.0, 15.0]);
    assert!(matches!(states(&house, &notifier).await[..], [DeliveryState::Dead(_)]));
    let observed = house.observed.lock().clone();
    assert_eq!(observed.len(), 1);
    assert_eq!((observed[0].status, observed[0].dlq), (WebhookStatus::Dlq, true));
    assert_eq!((observed[0].attempt, observed[0].duration), (5, Duration::from_secs(15)));
}

#[tokio::test(start_paused = true)]
async fn the_recommended_profiles_wait_as_they_say() {
    for (seed, retry, times) in [
        (
            2,
            "{max_attempts: 7, initial_interval: 500ms, max_interval: 2m, multiplier: 1.5}",
            [0.0, 0.5, 1.25, 2.375, 4.063, 6.594, 10.391],
        ),
        (
            3,
            "{max_attempts: 7, initial_interval: 250ms, max_interval: 10m}",
            [0.0, 0.25, 0.75, 1.75, 3.75, 7.75, 15.75],
        ),
    ] {
        let house = House::new();
        house.receiver.script(|_| answered(500));
        let block = config(&format!("  backend: postgres\n  retry: {retry}\n"));
        let notifier = start(&house, block, seed).await;
        notifier.payment_succeeded(payment("a")).await;
        rest(3_600).await;
        assert_eq!(house.receiver.times(), times);
    }
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_is_down_for_an_hour_gets_everything() {
    let house = House::new();
    house.receiver.script(|_| refused());
    let block = config("  retry: {max_attempts: 24, initial_interval: 1s, max_interval: 5m}\n");
    let notifier = start(&house, block, 4).await;
    for n in 0..20 {
        notifier.payment_succeeded(payment(&n.to_string())).await;
    }
    rest(3_600).await;
    house.receiver.script(|_| answered(200));
    rest(3_600).await;
    let states = states(&house, &notifier).await;
    assert_eq!(states.len(), 20);
    assert!(states.iter().all(|state| *state == DeliveryState::Delivered), "{states:?}");
    let observed = house.observed.lock().clone();
    assert_eq!(observed.len(), 20);
    assert!(observed.iter().all(|o| o.status == WebhookStatus::Success));
    assert!(observed.iter().all(|o| o.duration >= Duration::from_secs(3_000)), "{observed:?}");
}

#[tokio::test(start_paused = true)]
async fn what_was_enqueued_is_resumed_by_the_next_engine() {
    let house = House::new();
    house.receiver.script(|_| refused());
    let first = start(&house, config(""), 5).await;
    first.payment_succeeded(payment("a")).await;
    first.refund_succeeded(RefundEvent::default()).await;
    rest(2).await;
    let before = house.receiver.all().len();
    first.engine().kill();
    drop(first);
    house.receiver.script(|_| answered(200));
    let second = start(&house, config(""), 6).await;
    rest(60).await;
    let states = states(&house, &second).await;
    assert_eq!(states, [DeliveryState::Delivered, DeliveryState::Delivered]);
    let after = &house.receiver.all()[before..];
    assert_eq!(after.len(), 2, "each exactly once more");
}

#[tokio::test(start_paused = true)]
async fn the_event_id_is_the_idempotency_key() {
    let house = House::new();
    let notifier = start(&house, config(""), 7).await;
    let mut event = payment("a");
    event.event_id = "evt_0123456789abcdef01234567".to_owned();
    let first = notifier.enqueue_payment(event.clone()).await.expect("committed");
    assert!(!first.duplicate);
    rest(100).await;
    let again = notifier.enqueue_payment(event.clone()).await.expect("fine");
    assert!(again.duplicate, "said again later, it is the same event");
    rest(60).await;
    assert_eq!(house.receiver.all().len(), 1);
    event.fiat_amount_cents += 1;
    let other = notifier.enqueue_payment(event).await.expect_err("another event under its id");
    assert!(matches!(other, Error::Engine(EngineError::KeyReused { .. })), "{other}");
}

#[tokio::test(start_paused = true)]
async fn a_start_with_the_same_block_changes_nothing_and_with_another_brings_it_in_step() {
    let house = House::new();
    let secret = "0123456789abcdef0123456789abcdef";
    let block = format!("  hmac_secret: {secret}\n  headers: {{X-A: one}}\n");
    let first = start(&house, config(&block), 8).await;
    let version = first.engine().catalog().version();
    first.engine().stop().await;
    let second = start(&house, config(&block), 9).await;
    assert_eq!(second.engine().catalog().version(), version, "nothing was written");
    assert_eq!(second.standing(), first.standing());
    second.engine().stop().await;
    let block = format!("  hmac_secret: x{secret}\n  headers: {{X-A: two}}\n  timeout: 3s\n");
    let third = start(&house, config(&block), 10).await;
    assert_eq!(third.standing(), first.standing(), "the same subscription");
    third.payment_succeeded(payment("a")).await;
    rest(1).await;
    let seen = house.receiver.all();
    assert_eq!(seen[0].header("x-a"), "two");
    let scheme = Scheme {
        hash: "sha256".parse().expect("a hash"),
        encoding: Encoding::Hex,
        content: Content::Body,
        format: "sha256={signature}".to_owned(),
    };
    let key = format!("x{secret}");
    let rotated = BodyHmac::new(key.as_bytes(), scheme).expect("a key");
    assert_eq!(seen[0].header("x-cedros-signature"), rotated.sign(0, &seen[0].body));
    let tenant = third.standing().tenant;
    let all = third.engine().catalog().subscriptions(tenant);
    assert_eq!(all.len(), 1);
    third.engine().pause_subscription(tenant, third.standing().subscription).await.expect("paused");
    third.engine().stop().await;
    let fourth = start(&house, config(""), 11).await;
    let view = fourth.engine().catalog().subscription(tenant, fourth.standing().subscription);
    let view = view.expect("there");
    assert!(!view.subscription.status.is_active(), "an operator's pause stays");
    assert!(view.subscription.secrets.is_empty(), "secrets that are no longer named are gone");
}

#[tokio::test(start_paused = true)]
async fn closing_observes_what_has_ended_before() {
    let house = House::new();
    let notifier = start(&house, config(""), 15).await;
    for n in 0..50 {
        notifier.payment_succeeded(payment(&n.to_string())).await;
    }
    while house.receiver.all().len() < 50 {
        tokio::task::yield_now().await;
    }
    notifier.engine().stop().await;
    notifier.close().await;
    assert_eq!(house.observed.lock().len(), 50);
}

#[tokio::test(start_paused = true)]
async fn what_is_no_longer_asked_for_is_paused_and_goes_on_when_it_is_again() {
    let house = House::new();
    let first = start(&house, config("  tenant: shop\n"), 16).await;
    let engine = first.engine().clone();
    let (tenant, id) = (first.standing().tenant, first.standing().subscription);
    let active = || {
        let view = engine.catalog().subscription(tenant, id).expect("there");
        view.subscription.status.is_active()
    };
    retire_subscriptions(&engine, Some(id)).await.expect("fine");
    assert!(active(), "the one that is asked for");
    retire_subscriptions(&engine, None).await.expect("retired");
    assert!(!active());
    first.payment_succeeded(payment("a")).await;
    rest(60).await;
    assert!(house.receiver.all().is_empty(), "its work waits");
    let version = engine.catalog().version();
    retire_subscriptions(&engine, None).await.expect("fine");
    assert_eq!(engine.catalog().version(), version, "once is enough");
    let block = config("  tenant: shop\n");
    let again = PersistentNotifier::on(block, engine.clone()).start().await.expect("starts");
    assert_eq!(again.standing(), first.standing());
    assert!(active());
    rest(60).await;
    assert_eq!(house.receiver.all().len(), 1);
    // One that an operator paused is not ours to let go on.
    engine.pause_subscription(tenant, id).await.expect("paused");
    retire_subscriptions(&engine, None).await.expect("fine");
    PersistentNotifier::on(config("  tenant: shop\n"), engine.clone())
        .start()
        .await
        .expect("starts");
    assert!(!active());
}

#[tokio::test(start_paused = true)]
async fn tenant_and_topic_are_those_of_the_block() {
    let house = House::new();
    let block = config("  tenant: shop\n  topic: tills/1\n");
    let notifier = start(&house, block.clone(), 12).await;
    assert_eq!(notifier.standing().topic.as_str(), "tills/1");
    let tenant = notifier.engine().catalog().tenant_named("shop").expect("made");
    assert_eq!(notifier.standing().tenant, tenant.id);
    notifier.payment_succeeded(payment("a")).await;
    rest(1).await;
    assert_eq!(house.receiver.all().len(), 1);
    let again = start(&house, block, 13).await;
    assert_eq!(again.standing(), notifier.standing());
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_enqueued_is_an_error_for_those_who_ask() {
    let house = House::new();
    let notifier = start(&house, config(""), 14).await;
    let mut event = payment("a");
    event.event_type = "not a type".to_owned();
    let error = notifier.enqueue_payment(event).await.expect_err("refused");
    assert!(matches!(error, Error::Event { field: "eventType", .. }), "{error}");
    let mut event = payment("a");
    event.event_id = "line\nbreak".to_owned();
    let error = notifier.enqueue_payment(event).await.expect_err("refused");
    assert!(matches!(error, Error::Event { field: "eventId", .. }), "{error}");
    let mut event = payment("a");
    event.metadata.insert("x".to_owned(), "x".repeat(300 * 1024));
    let error = notifier.enqueue_payment(event.clone()).await.expect_err("refused");
    assert!(matches!(error, Error::Engine(EngineError::PayloadTooLarge { .. })), "{error}");
    assert!(house.observed.lock().is_empty(), "who asks is answered, not counted");
    notifier.payment_succeeded(event).await;
    rest(60).await;
    assert!(house.receiver.all().is_empty(), "and nothing was sent");
    let observed = house.observed.lock()[0].clone();
    assert_eq!(
        (observed.status, observed.attempt),
        (WebhookStatus::Failed, 0),
        "lost, and counted"
    );
}
