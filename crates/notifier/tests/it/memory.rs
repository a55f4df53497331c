//! The notifier in memory, under the virtual clock.

use std::time::Duration;

use posthorn_notifier::{
    CallbacksConfig, DlqStore, Error, Notifier, RefundEvent, RetryableNotifier, WebhookStatus,
};

use crate::house::{House, URL, answered, config, payment, refused, rest};

#[tokio::test(start_paused = true)]
async fn success_at_the_first_attempt_is_one_request_and_no_dead_letter() {
    let house = House::new();
    let notifier = house.builder(config("")).start().expect("starts");
    notifier.payment_succeeded(payment("a")).await;
    rest(60).await;
    let seen = house.receiver.all();
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].method, http::Method::POST);
    assert!(house.letters.list(10).await.expect("lists").is_empty());
    let observed = house.observed.lock().clone();
    assert_eq!(observed.len(), 1);
    assert_eq!((observed[0].event_type, observed[0].attempt), ("payment", 1));
    assert_eq!((observed[0].status, observed[0].dlq), (WebhookStatus::Success, false));
}

#[tokio::test(start_paused = true)]
async fn failures_are_tried_again_until_success() {
    let house = House::new();
    house.receiver.script(|nth| answered(if nth < 2 { 500 } else { 200 }));
    let notifier = house.builder(config("")).start().expect("starts");
    notifier.payment_succeeded(payment("a")).await;
    rest(60).await;
    let seen = house.receiver.all();
    assert_eq!(seen.len(), 3);
    assert!(house.letters.list(10).await.expect("lists").is_empty());
    let first = &seen[0];
    for again in &seen[1..] {
        assert_eq!(again.body, first.body, "the same bytes, event id included");
        let delivery = "x-cedros-delivery-id";
        assert_eq!(again.header(delivery), first.header(delivery), "the same delivery");
    }
    let observed = house.observed.lock()[0].clone();
    assert_eq!(observed.attempt, 3);
    assert_eq!(observed.duration, Duration::from_secs(3), "from the first to the last attempt");
}

#[tokio::test(start_paused = true)]
async fn attempts_come_after_0_1_3_7_and_15_seconds_and_no_more() {
    let house = House::new();
    house.receiver.script(|_| refused());
    let notifier = house.builder(config("")).start().expect("starts");
    notifier.payment_succeeded(payment("a")).await;
    rest(3_600).await;
    assert_eq!(house.receiver.times(), [0.0, 1.0, 3.0, 7.0, 15.0]);
    let stamps: Vec<i64> = house
        .receiver
        .all()
        .iter()
        .map(|seen| seen.header("x-cedros-timestamp").parse().expect("seconds"))
        .collect();
    let first = stamps[0];
    let offsets: Vec<i64> = stamps.iter().map(|at| at - first).collect();
    assert_eq!(offsets, [0, 1, 3, 7, 15], "stamped for each attempt");
}

#[tokio::test(start_paused = true)]
async fn the_recommended_profiles_wait_as_they_say() {
    for (retry, times) in [
        (
            "{max_attempts: 7, initial_interval: 500ms, max_interval: 2m, multiplier: 1.5}",
            [0.0, 0.5, 1.25, 2.375, 4.063, 6.594, 10.391],
        ),
        (
            "{max_attempts: 7, initial_interval: 250ms, max_interval: 10m}",
            [0.0, 0.25, 0.75, 1.75, 3.75, 7.75, 15.75],
        ),
    ] {
        let house = House::new();
        house.receiver.script(|_| answered(503));
        let block = config(&format!("  retry: {retry}\n"));
        let notifier = house.builder(block).start().expect("starts");
        notifier.payment_succeeded(payment("a")).await;
        rest(3_600).await;
        assert_eq!(house.receiver.times(), times);
    }
}

#[tokio::test(start_paused = true)]
async fn an_exhausted_payment_becomes_a_dead_letter_with_all_that_is_needed() {
    let house = House::new();
    house.receiver.script(|_| answered(502));
    let block = config("  retry: {max_attempts: 3}\n  headers: {Authorization: Bearer hush}\n");
    let notifier = house.builder(block).start().expect("starts");
    notifier.payment_succeeded(payment("a")).await;
    rest(60).await;
    let seen = house.receiver.all();
    assert_eq!(seen.len(), 3);
    assert_eq!(seen[0].header("authorization"), "Bearer hush");
    let letters = house.letters.list(10).await.expect("lists");
    let [letter] = &letters[..] else { panic!("one dead letter, not {letters:?}") };
    assert_eq!(letter.url, URL);
    assert_eq!(letter.payload.get().as_bytes(), &seen[0].body[..], "byte for byte");
    assert_eq!(letter.event_type, "payment");
    assert_eq!(letter.attempts, 3);
    assert_eq!(letter.last_error, "HTTP 502", "no word of the receiver's");
    assert_eq!(letter.id, seen[0].header("x-cedros-delivery-id"));
    assert_eq!(letter.last_attempt, seen[2].at);
    assert_eq!(letter.created_at, seen[0].at);
    assert_eq!(letter.headers["Authorization"], "[redacted]");
    assert_eq!(letter.headers["X-Cedros-Event-Type"], "payment.succeeded");
    let observed = house.observed.lock()[0].clone();
    assert_eq!((observed.status, observed.dlq), (WebhookStatus::Dlq, true));
    assert_eq!(observed.attempt, 3);
}

#[tokio::test(start_paused = true)]
async fn a_refund_is_of_its_own_family() {
    let house = House::new();
    house.receiver.script(|_| refused());
    let block = config("  retry: {enabled: false}\n");
    let notifier = house.builder(block).start().expect("starts");
    notifier.refund_succeeded(RefundEvent::default()).await;
    rest(60).await;
    let seen = house.receiver.all();
    assert_eq!(seen.len(), 1, "one attempt when retries are off");
    assert_eq!(seen[0].header("x-cedros-event-type"), "refund.succeeded");
    let letters = house.letters.list(10).await.expect("lists");
    assert_eq!(letters[0].event_type, "refund");
    assert_eq!(letters[0].last_error, "no answer: connect_failed", "nothing of the network");
    assert_eq!(house.observed.lock()[0].event_type, "refund");
}

#[tokio::test(start_paused = true)]
async fn without_a_place_for_dead_letters_it_counts_as_failed() {
    let house = House::new();
    house.receiver.script(|_| answered(404));
    let notifier = house
        .builder(config("  retry: {max_attempts: 2}\n"))
        .dlq_store(std::sync::Arc::new(posthorn_notifier::NoopDlqStore))
        .start()
        .expect("starts");
    notifier.payment_succeeded(payment("a")).await;
    rest(60).await;
    assert_eq!(house.receiver.all().len(), 2);
    let observed = house.observed.lock()[0].clone();
    assert_eq!((observed.status, observed.dlq), (WebhookStatus::Failed, false));
}

#[tokio::test(start_paused = true)]
async fn only_2xx_is_success_and_everything_else_is_tried_again() {
    for status in [300, 301, 302, 304, 307, 308, 400, 401, 404, 409, 410, 422, 429, 500, 503] {
        let house = House::new();
        house.receiver.script(move |nth| answered(if nth == 0 { status } else { 299 }));
        let notifier = house.builder(config("")).start().expect("starts");
        notifier.payment_succeeded(payment("a")).await;
        rest(60).await;
        assert_eq!(house.receiver.times(), [0.0, 1.0], "{status} is a failure, 299 a success");
        let seen = house.receiver.all();
        assert!(seen.iter().all(|seen| seen.url == URL), "a redirect is never followed");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_without_a_url() {
    let house = House::new();
    let off = CallbacksConfig::default();
    let started = house.builder(off.clone()).start();
    assert!(matches!(started, Err(Error::NoUrl)));
    let notifier = house.builder(off).start_or_noop().expect("starts");
    notifier.payment_succeeded(payment("a")).await;
    notifier.refund_succeeded(RefundEvent::default()).await;
    rest(60).await;
    assert!(house.receiver.all().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_caller_never_waits_for_a_receiver_and_the_queue_is_bounded() {
    let house = House::new();
    house.receiver.script(|_| refused());
    let notifier = house.builder(config("")).capacity(3).start().expect("starts");
    let before = tokio::time::Instant::now();
    for n in 0..5 {
        notifier.payment_succeeded(payment(&n.to_string())).await;
    }
    assert_eq!(before.elapsed(), Duration::ZERO);
    tokio::task::yield_now().await;
    let letters = house.letters.list(10).await.expect("lists");
    assert_eq!(letters.len(), 2, "what does not fit is kept, not lost");
    assert!(letters.iter().all(|l| l.attempts == 0 && l.last_error == "too many are waiting"));
    rest(60).await;
    assert_eq!(house.letters.list(10).await.expect("lists").len(), 5);
    notifier.payment_succeeded(payment("later")).await;
    rest(60).await;
    assert_eq!(house.receiver.all().len(), 4 * 5, "there is room again");
}

#[tokio::test(start_paused = true)]
async fn every_event_has_its_own_id_and_deliveries_do_not_wait_for_each_other() {
    let house = House::new();
    house.receiver.script(|nth| answered(if nth == 0 { 500 } else { 200 }));
    let notifier = house.builder(config("")).start().expect("starts");
    for n in 0..100 {
        notifier.payment_succeeded(payment(&n.to_string())).await;
    }
    rest(0).await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(house.receiver.all().len(), 100, "one failure held nobody up");
    rest(60).await;
    let seen = house.receiver.all();
    assert_eq!(seen.len(), 101);
    let ids: std::collections::BTreeSet<String> =
        seen.iter().map(|seen| seen.json()["eventId"].to_string()).collect();
    assert_eq!(ids.len(), 100);
    let deliveries: std::collections::BTreeSet<&str> =
        seen.iter().map(|seen| seen.header("x-cedros-delivery-id")).collect();
    assert_eq!(deliveries.len(), 100);
}

#[tokio::test(start_paused = true)]
async fn closing_keeps_what_could_not_be_delivered() {
    let house = House::new();
    house.receiver.script(|_| answered(500));
    let notifier = house.builder(config("")).start().expect("starts");
    notifier.payment_succeeded(payment("a")).await;
    rest(2).await;
    notifier.close().await;
    let letters = house.letters.list(10).await.expect("lists");
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].last_error, "stopped before it was delivered; last failure: HTTP 500");
    assert_eq!(letters[0].attempts, 2);
    notifier.payment_succeeded(payment("b")).await;
    rest(60).await;
    let letters = house.letters.list(10).await.expect("lists");
    assert_eq!(letters.len(), 2, "what comes too late is kept as well");
    assert_eq!(house.receiver.all().len(), 2, "nothing is sent after a close");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_notifier_delivers_what_it_holds() {
    let house = House::new();
    house.receiver.script(|nth| answered(if nth < 3 { 500 } else { 200 }));
    let notifier = house.builder(config("")).start().expect("starts");
    notifier.payment_succeeded(payment("a")).await;
    drop(notifier);
    rest(60).await;
    assert_eq!(house.receiver.all().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_cannot_be_sent_is_kept_as_well() {
    let house = House::new();
    let notifier = house.builder(config("")).start().expect("starts");
    let mut event = payment("a");
    event.event_type = "payment succeeded".to_owned();
    notifier.payment_succeeded(event).await;
    rest(60).await;
    assert!(house.receiver.all().is_empty());
    let letters = house.letters.list(10).await.expect("lists");
    assert_eq!((letters.len(), letters[0].attempts), (1, 0));
    assert!(letters[0].payload.get().contains("payment succeeded"));
    assert_eq!(house.observed.lock()[0].status, WebhookStatus::Dlq);
}

#[tokio::test(start_paused = true)]
async fn the_builders_retry_wins_over_the_block() {
    let house = House::new();
    house.receiver.script(|_| answered(500));
    let retry = posthorn_notifier::RetryConfig {
        max_attempts: 3,
        initial_interval: posthorn_notifier::config::Interval::from_millis(50),
        ..Default::default()
    };
    let notifier = house.builder(config("")).retry(retry).start().expect("starts");
    notifier.payment_succeeded(payment("a")).await;
    rest(60).await;
    assert_eq!(house.receiver.times(), [0.0, 0.05, 0.15]);
}

#[tokio::test]
async fn an_address_that_is_closed_to_receivers_is_refused_at_the_start() {
    for url in
        ["http://127.0.0.1:8080/x", "http://localhost./", "http://[::1]/", "http://10.0.0.1/"]
    {
        let mut block = config("");
        block.payment_success_url = Some(url.to_owned());
        let error = RetryableNotifier::builder(block).start().err().expect("refused");
        assert!(matches!(error, Error::Engine(_)), "{url}: {error}");
    }
}
