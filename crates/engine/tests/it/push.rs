//! Deliveries to channels: the same record and history as for webhooks, whatever mailboxes do.

use std::sync::Arc;
use std::time::Duration;

use posthorn_domain::{
    Attempt, AttemptOutcome, DeadReason, DeliveryState, EventId, FailureCode, PUSH_TTL_SECONDS_MAX,
    PushEncoding, RedriveFilter, Span, SubscriptionStatus,
};
use posthorn_engine::{
    DestinationInput, Engine, Error, Options, PushInput, PushLimits, PushOutcome, PushRefusal,
    SubscriptionChange,
};
use posthorn_sealing::web_push::ReceiverKeys;
use posthorn_store::Store;
use serde_json::{Value, json};

use crate::house::{TENANT, publish, rest};
use crate::push_house::{
    endpoint, engine_of, engine_with, envelope, house, keys_of, subscribe, to,
};

fn unavailable() -> PushOutcome {
    PushOutcome::Unavailable("the store is away".to_owned())
}

/// The only delivery of an event and its attempts.
async fn told(engine: &Engine, event: EventId) -> (DeliveryState, Vec<Attempt>) {
    let mut told = engine.explain_event(TENANT, event).await.expect("explains");
    assert_eq!(told.deliveries.len(), 1);
    let (delivery, attempts) = told.deliveries.remove(0);
    (delivery.state, attempts)
}

async fn published(engine: &Engine, payload: &str) -> EventId {
    engine.publish(TENANT, publish(payload, None)).await.expect("accepted").id
}

#[tokio::test(start_paused = true)]
async fn an_event_is_kept_in_the_mailbox_with_the_history_of_a_webhook() {
    let (_house, mailboxes, engine) = house().await;
    subscribe(&engine, to("https://push/a"), json!({})).await.expect("made");
    // The payload is not touched: neither blanks nor repeated keys nor long numbers.
    let payload = r#"{ "a": 1, "a": 2, "n": 12345678901234567890.10 }"#;
    let event = published(&engine, payload).await;
    rest(1).await;
    let (state, attempts) = told(&engine, event).await;
    assert_eq!(state, DeliveryState::Delivered);
    assert_eq!(attempts.len(), 1);
    assert_eq!((attempts[0].status, attempts[0].failure), (Some(201), None));
    assert_eq!((attempts[0].took.as_millis(), attempts[0].response.len()), (5, 0));
    let kept = mailboxes.kept();
    assert_eq!(kept.len(), 1);
    let (message, whom) = (&kept[0], endpoint(1, None));
    assert_eq!((message.agent, message.channel), (whom.agent, whom.channel));
    assert_eq!((message.ttl, &message.topic), (PUSH_TTL_SECONDS_MAX, &None));
    let body = std::str::from_utf8(message.body.as_ref().expect("a body")).expect("text");
    let start = format!(r#"{{"id":"{event}","topic":"orders","type":"order.created","#);
    assert!(body.starts_with(&start), "{body}");
    assert!(body.ends_with(&format!(r#""payload":{payload}}}"#)), "{body}");
    assert!(envelope(message)["accepted_at"].is_string());

    // What is no JSON comes as base64, with its type.
    let mut text = publish("so so", None);
    text.content_type = "text/plain".to_owned();
    engine.publish(TENANT, text).await.expect("accepted");
    rest(1).await;
    let last = envelope(&mailboxes.kept()[1]);
    assert_eq!(last["payload"], Value::Null);
    assert_eq!(
        (&last["content_type"], &last["payload_base64"]),
        (&"text/plain".into(), &"c28gc28=".into())
    );
}

#[tokio::test(start_paused = true)]
async fn with_keys_only_the_agent_can_read_it() {
    let (_house, mailboxes, engine) = house().await;
    let agent = ReceiverKeys::generate();
    let keys = keys_of(&agent);
    let auth = keys.auth.clone();
    let push = PushInput { keys: Some(keys), ttl: Some(60), ..to("https://push/a") };
    let view = subscribe(&engine, push, json!({})).await.expect("made");
    let stored = format!("{:?} {:?}", view.subscription, view.subscription.secrets[0].sealed);
    assert!(!stored.contains(&auth), "the secret is sealed");
    published(&engine, r#"{"secret":"plan"}"#).await;
    rest(1).await;
    let message = mailboxes.kept().remove(0);
    let headers = message.headers.expect("how to open it");
    assert_eq!((headers.encoding, message.ttl), (PushEncoding::Aes128Gcm, 60));
    let body = message.body.expect("a body");
    let text = agent.decrypt(&headers, &body).expect("decrypts");
    let text: Value = serde_json::from_slice(&text).expect("JSON");
    assert_eq!(text["payload"]["secret"], "plan");
    assert!(ReceiverKeys::generate().decrypt(&headers, &body).is_err());
    assert!(!body.windows(4).any(|part| part == b"plan"));
}

#[tokio::test(start_paused = true)]
async fn a_message_whose_fate_is_unknown_is_tried_again_and_kept_once() {
    let (house, mailboxes, engine) = house().await;
    subscribe(&engine, to("https://push/a"), json!({})).await.expect("made");
    mailboxes.script(|nth| {
        let outcome = if nth < 2 { unavailable() } else { PushOutcome::Kept };
        (Duration::ZERO, outcome)
    });
    let event = published(&engine, "1").await;
    rest(120).await;
    let (state, attempts) = told(&engine, event).await;
    assert_eq!(state, DeliveryState::Delivered);
    let statuses: Vec<_> = attempts.iter().map(|a| (a.number, a.status)).collect();
    assert_eq!(statuses, [(1, Some(201))], "trouble of ours is not counted");
    assert_eq!((mailboxes.brought.lock().len(), mailboxes.kept().len()), (3, 1));

    // A mailbox that does not answer at all is given up in time; another event has another id.
    mailboxes.script(|nth| match nth {
        3 => (Duration::from_secs(1_000_000), PushOutcome::Kept),
        _ => (Duration::ZERO, PushOutcome::Kept),
    });
    let event = published(&engine, "2").await;
    rest(120).await;
    let (state, attempts) = told(&engine, event).await;
    assert_eq!((state, attempts.len()), (DeliveryState::Delivered, 1));
    assert_eq!((mailboxes.brought.lock().len(), mailboxes.payloads().len()), (5, 2));
    assert_eq!(mailboxes.payloads(), [1, 2]);
    let kept = mailboxes.kept();
    assert_ne!(kept[0].id, kept[1].id);
    assert_eq!(house.counts().await.delivered, 2);
}

#[tokio::test(start_paused = true)]
async fn the_order_of_a_lane_is_the_order_of_the_mailbox() {
    let (_house, mailboxes, engine) = house().await;
    let order = json!({"order": {"scope": "subscription"}});
    subscribe(&engine, to("https://push/a"), order).await.expect("made");
    mailboxes.script(|nth| {
        let outcome = if nth == 1 { unavailable() } else { PushOutcome::Kept };
        (Duration::from_millis(200 - 10 * nth as u64), outcome)
    });
    for n in 0..10 {
        published(&engine, &n.to_string()).await;
    }
    rest(60).await;
    assert_eq!(mailboxes.payloads(), (0..10).collect::<Vec<_>>());
    let brought = mailboxes.brought.lock();
    assert_eq!(brought.len(), 11);
    assert_eq!(brought[1].id, brought[2].id, "the head of the lane comes again before the next");
}

#[tokio::test(start_paused = true)]
async fn who_is_gone_gets_nothing_more_until_there_is_a_new_endpoint() {
    let (house, mailboxes, engine) = house().await;
    let view = subscribe(&engine, to("https://push/a"), json!({})).await.expect("made");
    let id = view.subscription.id;
    mailboxes.script(|_| (Duration::ZERO, PushOutcome::Gone));
    let event = published(&engine, "1").await;
    rest(60).await;
    let status = engine.catalog().subscription(TENANT, id).expect("there");
    assert!(matches!(status.subscription.status, SubscriptionStatus::Disabled { .. }));
    let (state, attempts) = told(&engine, event).await;
    assert_eq!((state, attempts[0].status), (DeliveryState::Pending, Some(410)));
    published(&engine, "2").await;
    rest(3_600).await;
    assert_eq!(mailboxes.brought.lock().len(), 1, "what is pending waits");

    mailboxes.script(|_| (Duration::ZERO, PushOutcome::Kept));
    mailboxes.put("https://push/new", Ok(endpoint(9, None)));
    let change = SubscriptionChange {
        destination: Some(DestinationInput::Push(to("https://push/new"))),
        ..SubscriptionChange::default()
    };
    engine.update_subscription(TENANT, id, change).await.expect("changes");
    engine.resume_subscription(TENANT, id).await.expect("resumes");
    rest(60).await;
    assert_eq!(house.counts().await.delivered, 2);
    assert!(mailboxes.kept().iter().all(|m| m.agent == endpoint(9, None).agent));
}

#[tokio::test(start_paused = true)]
async fn what_does_not_fit_is_a_dead_letter_at_once() {
    let (_house, mailboxes, engine) = house().await;
    let keys = Some(keys_of(&ReceiverKeys::generate()));
    for (name, keys, max) in [("sealed", keys, 3_993), ("open", None, 5_630)] {
        let push = PushInput { keys, ..to("https://push/a") };
        let view = subscribe(&engine, push, json!({})).await.expect("made");
        // How much is around a payload: all ids and times have the same length.
        let around = {
            let before = mailboxes.kept().len();
            published(&engine, "1").await;
            rest(1).await;
            let body = mailboxes.kept()[before].body.clone().expect("a body").len() - 1;
            if name == "sealed" { body - 103 } else { body }
        };
        let text = |bytes: usize| format!(r#""{}""#, "x".repeat(bytes - 2));
        let fits = published(&engine, &text(max - around)).await;
        let too_large = published(&engine, &text(max - around + 1)).await;
        rest(1).await;
        assert_eq!(told(&engine, fits).await.0, DeliveryState::Delivered, "{name}");
        let (state, attempts) = told(&engine, too_large).await;
        assert_eq!(state, DeliveryState::Dead(DeadReason::Permanent), "{name}");
        assert_eq!(attempts.len(), 1);
        assert_eq!(attempts[0].failure, Some(FailureCode::MessageTooLarge));
        let expected = format!("the message has {} bytes; at most {max} are allowed", max + 1);
        assert!(attempts[0].detail.starts_with(&expected), "{}", attempts[0].detail);
        engine.delete_subscription(TENANT, view.subscription.id).await.expect("deletes");
    }
}

#[tokio::test(start_paused = true)]
async fn pausing_redriving_and_testing_work_as_for_webhooks() {
    let (house, mailboxes, engine) = house().await;
    let refuse = json!({"permanent": {"status": ["410"], "gone": "retry"}});
    let view = subscribe(&engine, to("https://push/a"), refuse).await.expect("made");
    let id = view.subscription.id;
    engine.pause_subscription(TENANT, id).await.expect("pauses");
    let event = published(&engine, "1").await;
    rest(60).await;
    assert_eq!(mailboxes.brought.lock().len(), 0);
    mailboxes.script(|_| (Duration::ZERO, PushOutcome::Gone));
    engine.resume_subscription(TENANT, id).await.expect("resumes");
    rest(1).await;
    let (state, _) = told(&engine, event).await;
    assert_eq!(state, DeliveryState::Dead(DeadReason::Permanent));

    mailboxes.script(|_| (Duration::ZERO, PushOutcome::Kept));
    let redrive =
        engine.create_redrive(TENANT, RedriveFilter::default(), 10).await.expect("begins");
    rest(60).await;
    let done = house.store.redrive(TENANT, redrive.id).await.expect("answers").expect("there");
    assert_eq!(done.moved, 1);
    let (state, attempts) = told(&engine, event).await;
    assert_eq!((state, attempts.len()), (DeliveryState::Delivered, 2));
    assert_eq!((mailboxes.brought.lock().len(), mailboxes.kept().len()), (2, 1));

    let outcome = engine.test_subscription(TENANT, id).await.expect("tests");
    assert_eq!(outcome, crate::house::answered(201));
    assert_eq!(envelope(&mailboxes.kept()[1])["type"], "posthorn.test");

    engine.delete_subscription(TENANT, id).await.expect("deletes");
    published(&engine, "2").await;
    rest(60).await;
    assert_eq!(mailboxes.brought.lock().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_node_without_push_leaves_the_work_to_be_done_later() {
    let (house, mailboxes, engine) = house().await;
    let twice = json!({"schedule": {"max_attempts": 2}});
    let view = subscribe(&engine, to("https://push/a"), twice).await.expect("made");
    engine.stop().await;
    let without = engine_of(&house, None, house.vault.clone(), 2).await;
    let event = published(&without, "1").await;
    rest(3_600).await;
    let (state, attempts) = told(&without, event).await;
    assert_eq!((state, attempts.len()), (DeliveryState::Pending, 0), "nothing was spent");
    let outcome = without.test_subscription(TENANT, view.subscription.id).await.expect("tests");
    let code = |outcome: &AttemptOutcome| match outcome {
        AttemptOutcome::Failed { code, .. } => Some(*code),
        AttemptOutcome::Answered(_) => None,
    };
    assert_eq!(code(&outcome), Some(FailureCode::PushUnavailable));
    without.stop().await;
    let with = engine_of(&house, Some(&mailboxes), house.vault.clone(), 3).await;
    rest(120).await;
    assert_eq!(told(&with, event).await.0, DeliveryState::Delivered);
    assert_eq!(mailboxes.payloads(), [1]);
}

#[tokio::test(start_paused = true)]
async fn what_grows_too_old_while_mailboxes_are_away_is_dead_and_says_why() {
    let (_house, mailboxes, engine) = house().await;
    let short = json!({"schedule": {"max_age": "1m"}, "on_exhausted": "delete_subscription"});
    let view = subscribe(&engine, to("https://push/a"), short).await.expect("made");
    mailboxes.script(|_| (Duration::ZERO, unavailable()));
    let event = published(&engine, "1").await;
    rest(120).await;
    let (state, attempts) = told(&engine, event).await;
    assert_eq!(state, DeliveryState::Dead(DeadReason::Expired));
    assert_eq!(attempts.len(), 1);
    assert_eq!(attempts[0].failure, Some(FailureCode::PushUnavailable));
    assert_eq!(attempts[0].detail, "the store is away");
    let still = engine.catalog().subscription(TENANT, view.subscription.id).expect("there");
    assert!(still.subscription.status.is_active(), "nobody is unsubscribed for trouble of ours");
}

#[tokio::test(start_paused = true)]
async fn a_retry_by_hand_is_another_message_and_an_automatic_one_the_same() {
    let (_house, mailboxes, engine) = house().await;
    subscribe(&engine, to("https://push/a"), json!({})).await.expect("made");
    mailboxes
        .script(|nth| (Duration::ZERO, if nth == 0 { unavailable() } else { PushOutcome::Kept }));
    let event = published(&engine, "1").await;
    rest(60).await;
    assert_eq!((mailboxes.brought.lock().len(), mailboxes.kept().len()), (2, 1));
    let told = engine.explain_event(TENANT, event).await.expect("explains");
    let delivery = told.deliveries[0].0.id;
    for kept in [2, 3] {
        engine.retry_delivery(TENANT, delivery).await.expect("retries");
        rest(1).await;
        assert_eq!(mailboxes.kept().len(), kept);
    }
}

#[tokio::test(start_paused = true)]
async fn kept_is_success_whatever_a_policy_says_of_http() {
    let (_house, mailboxes, engine) = house().await;
    for success in [json!(["200"]), json!(["2xx", "4xx"])] {
        let view = subscribe(&engine, to("https://push/a"), json!({"success": success})).await;
        let id = view.expect("made").subscription.id;
        mailboxes.script(|_| (Duration::ZERO, PushOutcome::Kept));
        let event = published(&engine, "1").await;
        rest(60).await;
        let (state, attempts) = told(&engine, event).await;
        assert_eq!((state, attempts.len()), (DeliveryState::Delivered, 1), "{success}");
        mailboxes.script(|_| (Duration::ZERO, PushOutcome::Gone));
        let event = published(&engine, "2").await;
        rest(60).await;
        assert_eq!(told(&engine, event).await.0, DeliveryState::Pending, "{success}");
        engine.delete_subscription(TENANT, id).await.expect("deletes");
    }
}

#[tokio::test(start_paused = true)]
async fn the_limits_of_mailboxes_hold_for_deliveries() {
    let (_house, mailboxes, engine) = house().await;
    let push = PushInput { ttl: Some(100_000), ..to("https://push/a") };
    let long = subscribe(&engine, push.clone(), json!({})).await.expect("made");
    mailboxes.limit(PushLimits { body_bytes_max: 4_096, ttl_max: 86_400 });
    let fits = published(&engine, &format!("\"{}\"", "x".repeat(3_000))).await;
    let too_large = published(&engine, &format!("\"{}\"", "x".repeat(4_096))).await;
    rest(1).await;
    assert_eq!(told(&engine, fits).await.0, DeliveryState::Delivered);
    assert_eq!(told(&engine, too_large).await.0, DeliveryState::Dead(DeadReason::Permanent));
    assert_eq!(mailboxes.kept()[0].ttl, 86_400, "the limit was lowered since");
    engine.delete_subscription(TENANT, long.subscription.id).await.expect("deletes");

    let refused = subscribe(&engine, push, json!({})).await.err();
    let expected = Error::Push(PushRefusal::Ttl { max: Span::from_secs(86_400) });
    assert_eq!(refused.map(|e| e.to_string()), Some(expected.to_string()));
    subscribe(&engine, to("https://push/a"), json!({})).await.expect("made");
    published(&engine, "1").await;
    rest(1).await;
    assert_eq!(mailboxes.kept()[1].ttl, 86_400, "as long as possible");
}

#[tokio::test(start_paused = true)]
async fn the_content_type_says_what_is_json() {
    let (_house, mailboxes, engine) = house().await;
    subscribe(&engine, to("https://push/a"), json!({})).await.expect("made");
    for (content_type, payload, json) in [
        ("application/json", " [1]\n", true),
        ("Application/Vnd.Orders+JSON; charset=utf-8", "[1]", true),
        ("text/plain", "1", false),
        ("application/json", "no", false),
    ] {
        let mut event = publish(payload, None);
        event.content_type = content_type.to_owned();
        engine.publish(TENANT, event).await.expect("accepted");
        rest(1).await;
        let last = envelope(mailboxes.kept().last().expect("one"));
        assert_eq!(last.get("payload").is_some(), json, "{content_type} {payload}");
        assert_eq!(last.get("payload_base64").is_some(), !json, "{content_type} {payload}");
    }
}

#[tokio::test(start_paused = true)]
async fn on_hold_nothing_reaches_a_mailbox() {
    let (house, mailboxes, engine) = house().await;
    let view = subscribe(&engine, to("https://push/a"), json!({})).await.expect("made");
    engine.stop().await;
    let options = Options { hold: true, ..Options::default() };
    let vault = Arc::clone(&house.vault);
    let engine = engine_with(&house, Some(&mailboxes), vault, 2, options).await;
    engine.publish(TENANT, publish("1", None)).await.expect("accepted");
    let tested = engine.test_subscription(TENANT, view.subscription.id).await.expect("answers");
    assert!(format!("{tested:?}").contains("on hold"), "{tested:?}");
    rest(60).await;
    assert!(mailboxes.brought.lock().is_empty());
    assert!(engine.resume().await.expect("resumes"));
    rest(5).await;
    assert_eq!(mailboxes.payloads(), [json!(1)]);
}
