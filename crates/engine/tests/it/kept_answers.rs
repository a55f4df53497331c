//! Requests that are repeated: done once, answered the same, and what was made is found again.

use std::time::Duration;

use posthorn_domain::{RedriveFilter, ReplayStatus, Seed, Selection, SubscriptionName, Timestamp};
use posthorn_engine::{
    ANSWER_KEPT, ANSWER_LEASE, Engine, Error, NewExpunge, NewReplay, NewSubscription, NewTenant,
    Once, SecretInput, SecretKind, Terms, Turn,
};
use posthorn_store::{Listing, RedrivePage, Store};

use crate::house::{House, TENANT, publish, rest};

const KEY: [u8; 32] = [7; 32];

async fn turn(engine: &Engine) -> Turn {
    match engine.once(KEY).await.expect("answers") {
        Once::Yours(turn) => turn,
        other => panic!("{other:?} is no turn"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_repeated_request_gets_the_answer_of_the_first_on_every_node() {
    let (house, engine) = House::open().await;
    let other = house.engine(2).await;
    let first = turn(&engine).await;
    assert!(matches!(other.once(KEY).await, Ok(Once::Busy)));
    assert!(engine.keep(first, 201, b"{\"key\":\"whsec_secret\"}").await.expect("kept"));
    for node in [&engine, &other] {
        let Ok(Once::Kept { status, body }) = node.once(KEY).await else { panic!("kept") };
        assert_eq!((status, body.as_ref()), (201, b"{\"key\":\"whsec_secret\"}".as_slice()));
    }
    house.clock.ahead(ANSWER_KEPT.to_duration());
    turn(&other).await;
}

#[tokio::test(start_paused = true)]
async fn whoever_takes_a_request_over_has_the_first_seed() {
    let (house, engine) = House::open().await;
    let other = house.engine(2).await;
    let first = turn(&engine).await;
    engine.kill();
    tokio::time::sleep(ANSWER_LEASE.to_duration() - Duration::from_millis(1)).await;
    assert!(matches!(other.once(KEY).await, Ok(Once::Busy)));
    tokio::time::sleep(Duration::from_millis(2)).await;
    let second = turn(&other).await;
    assert_eq!(second.seed, first.seed);
    other.release(second).await.expect("released");
    assert_eq!(turn(&other).await.seed, first.seed, "at once, and with the same ids");
}

#[tokio::test(start_paused = true)]
async fn answers_are_sealed_and_bounded() {
    let (house, engine) = House::open().await;
    let long = vec![b'x'; 65_536];
    let first = turn(&engine).await;
    assert!(!engine.keep(first, 200, &long).await.expect("answers"), "too long");
    let again = turn(&engine).await;
    assert!(engine.keep(again.clone(), 200, &long[..60_000]).await.expect("kept"));
    assert!(!engine.keep(again, 200, b"another").await.expect("the first stays"));
    let claim = posthorn_store::AnswerClaim {
        key: KEY,
        holder: 1,
        seed: (Timestamp::MIN, 1),
        now: engine.now(),
        lease: ANSWER_LEASE,
        expires_at: engine.now(),
    };
    let kept = house.store.claim_answer(claim).await.expect("answers");
    let posthorn_store::AnswerClaimed::Kept(answer) = kept else { panic!("{kept:?}") };
    assert!(!answer.body().windows(8).any(|part| part == b"xxxxxxxx"), "not readable as stored");
}

#[tokio::test(start_paused = true)]
async fn answers_whose_time_is_over_are_removed() {
    let (house, engine) = House::open().await;
    let first = turn(&engine).await;
    engine.keep(first, 200, b"{}").await.expect("kept");
    house.clock.ahead(ANSWER_KEPT.to_duration());
    rest(300).await;
    let left = house.store.prune_answers(Timestamp::MAX, 10).await.expect("answers");
    assert_eq!(left, 0, "upkeep was here");
}

fn seed(engine: &Engine) -> Option<Seed> {
    Some((engine.now(), 77))
}

#[tokio::test(start_paused = true)]
async fn a_tenant_is_made_once_of_a_seed() {
    let (house, engine) = House::open().await;
    let other = house.engine(2).await;
    let new = NewTenant { name: "acme".to_owned(), seed: seed(&engine), ..NewTenant::default() };
    let before = engine.catalog().tenants().len();
    let made = engine.create_tenant_in(new.clone()).await.expect("made");
    for node in [&engine, &other] {
        rest(5).await;
        assert_eq!(node.create_tenant_in(new.clone()).await.expect("there").id, made.id);
    }
    assert_eq!(engine.catalog().tenants().len(), before + 1);
    let another = NewTenant { seed: Some((engine.now(), 78)), ..new };
    let refused = engine.create_tenant_in(another).await;
    assert!(matches!(refused, Err(Error::AlreadyExists("tenant"))), "the name: {refused:?}");
}

#[tokio::test(start_paused = true)]
async fn a_subscription_is_made_once_of_a_seed_and_tells_its_secret_again() {
    let (house, engine) = House::open().await;
    let other = house.engine(2).await;
    let new = NewSubscription {
        name: Some(SubscriptionName::new("theirs").expect("a name")),
        destination: "https://receiver/".into(),
        seed: seed(&engine),
        ..NewSubscription::default()
    };
    let (made, secret) = engine.create_subscription(TENANT, new.clone()).await.expect("made");
    assert!(secret.is_some(), "made up");
    for node in [&other, &engine] {
        let (again, told) = node.create_subscription(TENANT, new.clone()).await.expect("there");
        assert_eq!((again.subscription.id, told), (made.subscription.id, secret.clone()));
    }
    let another = NewSubscription { seed: Some((engine.now(), 78)), ..new.clone() };
    let refused = engine.create_subscription(TENANT, another).await;
    assert!(matches!(refused, Err(Error::AlreadyExists("subscription"))), "the name is taken");
    // A secret that was given is not told, nor is a private key.
    let value = "whsec_MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIz".to_owned();
    let secrets = vec![SecretInput { name: "signing".parse().expect("a name"), value }];
    let given =
        NewSubscription { name: None, secrets, seed: Some((engine.now(), 79)), ..new.clone() };
    let secret_kind = Some(SecretKind::Ed25519);
    let private =
        NewSubscription { name: None, secret_kind, seed: Some((engine.now(), 80)), ..new };
    for new in [given, private] {
        for _ in 0..2 {
            let (_, told) = engine.create_subscription(TENANT, new.clone()).await.expect("made");
            assert_eq!(told, None);
        }
    }
    assert_eq!(engine.catalog().subscriptions(TENANT).len(), 3);
}

#[tokio::test(start_paused = true)]
async fn jobs_and_redrives_are_made_once_of_a_seed() {
    let (house, engine) = House::open().await;
    let id = crate::house::subscribe(&engine, "https://receiver/", serde_json::json!({})).await;
    let id = id.subscription.id;
    let event = engine.publish(TENANT, publish("{}", None)).await.expect("accepted").id;
    rest(1).await;
    let terms = |chance| Terms { seed: Some((engine.now(), chance)), ..Terms::default() };
    let by = || "tests".to_owned();
    let replay = || NewReplay {
        subscription: Some(id),
        events: Selection::default(),
        status: ReplayStatus::All,
        per_second: 10,
        created_by: by(),
    };
    let expunge = || NewExpunge {
        events: Selection { from: Some(Timestamp::MIN), ..Selection::default() },
        responses: false,
        per_second: 10,
        created_by: by(),
    };
    let (one, two, three) = (terms(1), terms(2), terms(3));
    let mut made = Vec::new();
    for _ in 0..2 {
        let first = engine.create_replay_with(TENANT, replay(), one).await.expect("a job");
        rest(1).await;
        let second = engine.deliver_event_with(TENANT, event, id, by(), two).await.expect("a job");
        rest(1).await;
        let third = engine.create_expunge_with(TENANT, expunge(), three).await.expect("a job");
        made.push([first.id, second.id, third.id]);
        rest(2).await;
    }
    assert_eq!(made[0], made[1]);
    let jobs = house.store.jobs(TENANT, Listing::newest(10)).await.expect("answers");
    assert_eq!(jobs.items.len(), 3);
    assert_eq!(house.receivers.of("https://receiver/").len(), 3, "once, and once by each job");
    let (filter, seed) = (RedriveFilter::default(), one.seed);
    let first = engine.create_redrive_with(TENANT, filter.clone(), 10, seed).await.expect("begun");
    let second = engine.create_redrive_with(TENANT, filter, 10, seed).await.expect("there");
    assert_eq!(first.id, second.id);
    let page = RedrivePage { before: None, limit: 10 };
    assert_eq!(house.store.redrives(TENANT, page).await.expect("answers").items.len(), 1);
}
