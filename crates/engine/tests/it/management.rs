//! What people do to subscriptions, keys and dead letters.

use std::time::Duration;

use posthorn_domain::{
    Idempotency, IdempotencyKey, Labels, RedriveFilter, RedriveState, Scope, SecretName, Span,
    TopicName,
};
use posthorn_engine::{Engine, Error, NewSubscription, Options, Rehearsal, Rotation};
use posthorn_sealing::standard_webhooks::SigningSecret;
use posthorn_store::Store;
use serde_json::json;

use crate::house::{House, TENANT, answered, publish, rest, subscribe, topic};

#[tokio::test(start_paused = true)]
async fn paused_waits_and_deleted_is_cancelled() {
    let (house, engine) = House::open().await;
    let view = subscribe(&engine, "https://a/", json!({})).await;
    let id = view.subscription.id;
    engine.pause_subscription(TENANT, id).await.expect("pauses");
    engine.publish(TENANT, publish("1", None)).await.expect("accepted");
    rest(30).await;
    assert!(house.receivers.of("https://a/").is_empty());
    engine.resume_subscription(TENANT, id).await.expect("resumes");
    rest(1).await;
    assert_eq!(house.receivers.bodies("https://a/"), ["1"]);

    house.receivers.script("https://a/", |_, _| (Duration::ZERO, answered(500)));
    engine.publish(TENANT, publish("2", None)).await.expect("accepted");
    rest(1).await;
    engine.delete_subscription(TENANT, id).await.expect("deletes");
    let before = house.receivers.of("https://a/").len();
    rest(7_200).await;
    assert_eq!(house.receivers.of("https://a/").len(), before, "no attempt after the delete");
    let counts = house.counts().await;
    assert_eq!((counts.delivered, counts.cancelled, counts.pending), (1, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn the_same_key_is_one_event_and_other_contents_are_refused() {
    let (house, engine) = House::open().await;
    subscribe(&engine, "https://a/", json!({})).await;
    let with = |fingerprint: u8| {
        let mut p = publish("{}", None);
        p.idempotency = Some(Idempotency {
            key: IdempotencyKey::new("k").expect("a key"),
            fingerprint: [fingerprint; 32],
        });
        p
    };
    let first = engine.publish(TENANT, with(1)).await.expect("accepted");
    let again = engine.publish(TENANT, with(1)).await.expect("accepted");
    assert_eq!((again.id, again.duplicate), (first.id, true));
    let other = engine.publish(TENANT, with(2)).await;
    assert!(matches!(other, Err(Error::KeyReused { event }) if event == first.id));
    rest(1).await;
    assert_eq!(house.receivers.of("https://a/").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn rotation_signs_with_both_until_the_overlap_ends() {
    let (house, engine) = House::open().await;
    let new = NewSubscription { destination: "https://a/".into(), ..NewSubscription::default() };
    let (view, old) = engine.create_subscription(TENANT, new).await.expect("made");
    let old = SigningSecret::parse(&old.expect("made up")).expect("valid");
    let name = SecretName::new("signing").expect("a name");
    let overlap = Span::from_secs(3_600);
    let (_, fresh) = engine
        .rotate_secret(
            TENANT,
            view.subscription.id,
            Rotation { overlap: Some(overlap), ..Rotation::of(name) },
        )
        .await
        .expect("rotates");
    let fresh = SigningSecret::parse(&fresh.expect("shown")).expect("valid");
    for (wait, with_old) in [(1, true), (3_700, false)] {
        rest(wait).await;
        engine.publish(TENANT, publish("{}", None)).await.expect("accepted");
        rest(1).await;
        let seen = house.receivers.of("https://a/").pop().expect("arrived");
        let text = |name: &str| seen.headers[name].to_str().expect("text").to_owned();
        let at: i64 = text("webhook-timestamp").parse().expect("seconds");
        let check = |secret: &SigningSecret| {
            let header = text("webhook-signature");
            secret.verify(&text("webhook-id"), at, &header, &seen.body, at, 300).is_ok()
        };
        assert!(check(&fresh));
        assert_eq!(check(&old), with_old);
    }
}

#[tokio::test(start_paused = true)]
async fn a_redrive_moves_every_dead_letter_once_at_its_pace() {
    let (house, engine) = House::open().await;
    house.receivers.script("https://a/", |_, _| (Duration::ZERO, answered(500)));
    subscribe(&engine, "https://a/", json!({"schedule": {"max_attempts": 1}})).await;
    for n in 0..50 {
        engine.publish(TENANT, publish(&n.to_string(), None)).await.expect("accepted");
    }
    rest(600).await;
    assert_eq!(house.counts().await.dead, 50);
    house.receivers.script("https://a/", |_, _| (Duration::ZERO, answered(200)));
    let redrive =
        engine.create_redrive(TENANT, RedriveFilter::default(), 10).await.expect("begins");
    assert_eq!(redrive.total, 50);
    rest(3).await;
    let half = house.store.redrive(TENANT, redrive.id).await.expect("answers").expect("there");
    assert!(half.moved > 0 && half.moved < 50, "paced: {} moved", half.moved);
    rest(400).await;
    let done = house.store.redrive(TENANT, redrive.id).await.expect("answers").expect("there");
    assert_eq!((done.state, done.moved), (RedriveState::Done, 50));
    assert_eq!(house.counts().await.delivered, 50);
}

#[tokio::test(start_paused = true)]
async fn keys_open_until_they_are_revoked() {
    let house = House::new();
    let engine = house.engine(5).await;
    assert!(!engine.has_operator_key());
    let (first, second) = (engine.draft_key(), engine.draft_key());
    let (first, second) = (first.expose_str().expect("text"), second.expose_str().expect("text"));
    assert!(engine.authenticate(first).is_none(), "not before it was taken in");
    assert!(engine.bootstrap_key(first).await.expect("works"));
    assert!(!engine.bootstrap_key(second).await.expect("works"), "only the first");
    assert!(!engine.bootstrap_key(first).await.expect("works"), "and that once");
    let principal = engine.authenticate(first).expect("opens");
    assert!(principal.is_operator() && engine.authenticate(second).is_none());
    let last = engine.revoke_key(principal.key.id).await;
    assert!(matches!(last, Err(Error::LastOperatorKey)), "{last:?}");
    assert!(engine.bootstrap_key("ph_wrong").await.is_err());
    let key = engine
        .create_key(Some(TENANT), vec![Scope::Publish], String::new(), None, None)
        .await
        .expect("made");
    assert!(!engine.authenticate(&key.text).expect("opens").is_operator());
    let end = if key.text.ends_with('x') { 'y' } else { 'x' };
    let wrong = format!("{}{end}", &key.text[..key.text.len() - 1]);
    assert!(engine.authenticate(&wrong).is_none());
    engine.revoke_key(key.key.id).await.expect("revokes");
    assert!(engine.authenticate(&key.text).is_none());
}

#[tokio::test(start_paused = true)]
async fn an_event_explains_who_got_it_and_who_did_not() {
    let (_house, engine) = House::open().await;
    subscribe(&engine, "https://a/", json!({})).await;
    let filter = serde_json::from_value(json!({"any_of": [{"types": ["other.*"]}]}));
    let new = NewSubscription {
        destination: "https://b/".into(),
        filter: Some(filter.expect("a filter")),
        ..NewSubscription::default()
    };
    let (picky, _) = engine.create_subscription(TENANT, new).await.expect("made");
    let published = engine.publish(TENANT, publish("{}", None)).await.expect("accepted");
    rest(1).await;
    let told = engine.explain_event(TENANT, published.id).await.expect("explains");
    assert_eq!(told.deliveries.len(), 1);
    assert_eq!(told.deliveries[0].1[0].status, Some(204));
    assert_eq!(told.not_delivered.len(), 1);
    assert_eq!(told.not_delivered[0].subscription, picky.subscription.id);
    assert!(told.not_delivered[0].reasons[0].contains("type"));
}

#[tokio::test(start_paused = true)]
async fn a_topic_is_created_once_on_all_nodes() {
    let house = House::new();
    let (one, two) = (house.engine(41).await, house.engine(42).await);
    let name = TopicName::new("zaken").expect("a name");
    let create = |engine: &Engine, text: &str| {
        let (engine, text, name) = (engine.clone(), text.to_owned(), name.clone());
        async move { engine.create_topic(TENANT, name, text, vec![], Labels::default()).await }
    };
    let (first, second) = tokio::join!(create(&one, "first"), create(&two, "second"));
    let made = match (first, second) {
        (Ok(topic), Err(Error::AlreadyExists("topic")))
        | (Err(Error::AlreadyExists("topic")), Ok(topic)) => topic,
        other => panic!("one of them is made: {other:?}"),
    };
    for engine in [&one, &two] {
        let again = create(engine, "again").await;
        assert!(matches!(again, Err(Error::AlreadyExists("topic"))), "{again:?}");
        assert_eq!(engine.catalog().topic(TENANT, &name).expect("known"), made);
    }
    one.delete_topic(TENANT, name.clone()).await.expect("deleted");
    assert_eq!(create(&two, "anew").await.expect("made anew").description, "anew");
}

#[tokio::test(start_paused = true)]
async fn tests_and_rehearsals_share_one_limit() {
    let house = House::new();
    let mut options = Options::default();
    options.admission.tests_per_minute = 3;
    let engine = house.engine_with(43, options).await;
    topic(&engine).await;
    let view = subscribe(&engine, "https://a/", json!({})).await;
    let rehearsal = || Rehearsal {
        url: "https://a/".to_owned(),
        content_type: "application/json".to_owned(),
        overrides: json!({"auth": []}),
        ..Rehearsal::default()
    };
    engine.test_subscription(TENANT, view.subscription.id).await.expect("the first");
    for _ in 0..2 {
        engine.rehearse(TENANT, rehearsal()).await.expect("within the rate");
    }
    let refused = engine.rehearse(TENANT, rehearsal()).await.err();
    assert!(matches!(refused, Some(Error::TooMany { .. })), "{refused:?}");
    let refused = engine.test_subscription(TENANT, view.subscription.id).await.err();
    assert!(matches!(refused, Some(Error::TooMany { .. })), "{refused:?}");
    assert_eq!(house.receivers.of("https://a/").len(), 3);
}

/// However slow receivers are, only so many requests of a tenant wait for them at once.
#[tokio::test(start_paused = true)]
async fn only_so_many_rehearsals_run_at_once() {
    let house = House::new();
    let engine = house.engine(44).await;
    house.receivers.script("https://slow/", |_, _| (Duration::from_secs(10), answered(200)));
    let mut asks = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let engine = engine.clone();
        let rehearsal = Rehearsal {
            url: "https://slow/".to_owned(),
            content_type: "application/json".to_owned(),
            overrides: json!({"auth": []}),
            ..Rehearsal::default()
        };
        asks.spawn(async move { engine.rehearse(TENANT, rehearsal).await.is_ok() });
    }
    let answers = asks.join_all().await;
    assert_eq!(answers.iter().filter(|made| **made).count(), 8);
    assert_eq!(house.receivers.of("https://slow/").len(), 8);
}
