//! Cases about kept answers: one does the work, the others get its answer, and ids are made of the first seed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use posthorn_domain::{Seed, Span};
use posthorn_store::{
    AnswerClaim, AnswerClaimed, AnswerKey, KEPT_BODY_BYTES_MAX, KeptAnswer, Store,
};

use super::Fixture;
use super::builders::at;

const LONG: Span = Span::from_secs(3_600);
const SHORT: Span = Span::from_millis(200);
const EXPIRES: i64 = 1_000;

fn key(number: u8) -> AnswerKey {
    let mut key = [number; 32];
    key[0] = 0;
    key
}

/// A claim whose seed says who made it.
fn claim(number: u8, holder: u128) -> AnswerClaim {
    AnswerClaim {
        key: key(number),
        holder,
        seed: seed(holder),
        now: at(10),
        lease: LONG,
        expires_at: at(EXPIRES),
    }
}

fn seed(holder: u128) -> Seed {
    (at(10), holder << 64 | 7)
}

fn yours(holder: u128) -> AnswerClaimed {
    AnswerClaimed::Yours { seed: seed(holder) }
}

fn answer(text: &'static str) -> KeptAnswer {
    KeptAnswer::new(201, Bytes::from_static(text.as_bytes())).expect("short enough")
}

async fn ask(store: &dyn Store, claim: AnswerClaim) -> AnswerClaimed {
    store.claim_answer(claim).await.expect("answers")
}

async fn keep(store: &dyn Store, number: u8, answer: KeptAnswer) -> bool {
    store.keep_answer(key(number), answer).await.expect("answers")
}

/// Who comes while somebody is at it has to wait; the same holder may ask again. Other keys are other requests.
pub async fn a_request_is_claimed_once(fixture: &dyn Fixture) {
    let store = fixture.store().await;
    assert_eq!(ask(&*store, claim(1, 1)).await, yours(1));
    assert_eq!(ask(&*store, claim(1, 2)).await, AnswerClaimed::Busy);
    let again = AnswerClaim { seed: seed(9), ..claim(1, 1) };
    assert_eq!(ask(&*store, again).await, yours(1), "with its first seed");
    assert_eq!(ask(&*store, claim(2, 2)).await, yours(2));
}

/// Status and body come back byte for byte, also the longest there may be, and an empty one.
pub async fn an_answer_is_kept_for_whoever_repeats(fixture: &dyn Fixture) {
    let store = fixture.store().await;
    let every_byte: Vec<u8> = (0..KEPT_BODY_BYTES_MAX).map(|place| (place % 251) as u8).collect();
    let longest = KeptAnswer::new(202, Bytes::from(every_byte)).expect("just short enough");
    let empty = KeptAnswer::new(204, Bytes::new()).expect("short enough");
    for (number, kept) in [(1, longest), (2, empty), (3, answer("{}"))] {
        ask(&*store, claim(number, 1)).await;
        assert!(keep(&*store, number, kept.clone()).await);
        for holder in [1, 2] {
            let found = ask(&*store, claim(number, holder)).await;
            assert_eq!(found, AnswerClaimed::Kept(kept.clone()));
        }
    }
    assert_eq!(KeptAnswer::new(200, Bytes::from(vec![0; KEPT_BODY_BYTES_MAX + 1])), None);
}

/// A late answer changes nothing, nor does one of a key that nobody claimed.
pub async fn the_first_answer_stays(fixture: &dyn Fixture) {
    let store = fixture.store().await;
    assert!(!keep(&*store, 1, answer("nobody asked")).await);
    assert_eq!(ask(&*store, claim(1, 1)).await, yours(1));
    assert!(keep(&*store, 1, answer("first")).await);
    assert!(!keep(&*store, 1, answer("second")).await);
    store.release_answer(key(1), 1).await.expect("changes nothing");
    assert_eq!(ask(&*store, claim(1, 2)).await, AnswerClaimed::Kept(answer("first")));
}

/// Whoever takes over makes the same ids, and the answer of either counts.
pub async fn a_claim_that_ran_out_keeps_its_seed(fixture: &dyn Fixture) {
    let store = fixture.store().await;
    ask(&*store, AnswerClaim { lease: SHORT, ..claim(1, 1) }).await;
    tokio::time::sleep(SHORT.to_duration() + Duration::from_millis(150)).await;
    assert_eq!(ask(&*store, claim(1, 2)).await, yours(1));
    assert_eq!(ask(&*store, claim(1, 1)).await, AnswerClaimed::Busy, "it is the other's now");
    assert!(keep(&*store, 1, answer("late, and the same")).await);
    assert_eq!(ask(&*store, claim(1, 3)).await, AnswerClaimed::Kept(answer("late, and the same")));
}

/// What was not kept is done again at once, with the same ids.
pub async fn a_released_claim_keeps_its_seed(fixture: &dyn Fixture) {
    let store = fixture.store().await;
    ask(&*store, claim(1, 1)).await;
    store.release_answer(key(1), 1).await.expect("released");
    assert_eq!(ask(&*store, claim(1, 2)).await, yours(1));
    store.release_answer(key(9), 1).await.expect("nothing to release");
}

/// One that lost its claim does not take it from the next.
pub async fn only_its_holder_releases_a_claim(fixture: &dyn Fixture) {
    let store = fixture.store().await;
    ask(&*store, claim(1, 1)).await;
    store.release_answer(key(1), 2).await.expect("changes nothing");
    assert_eq!(ask(&*store, claim(1, 3)).await, AnswerClaimed::Busy);
}

/// Afterwards it is a new request, with a seed and a time of its own.
pub async fn keys_count_until_their_time_is_over(fixture: &dyn Fixture) {
    let store = fixture.store().await;
    ask(&*store, claim(1, 1)).await;
    keep(&*store, 1, answer("old")).await;
    let last = AnswerClaim { now: at(EXPIRES - 1), expires_at: at(9_000), ..claim(1, 2) };
    assert_eq!(ask(&*store, last).await, AnswerClaimed::Kept(answer("old")));
    let over = AnswerClaim { now: at(EXPIRES), expires_at: at(9_000), ..claim(1, 3) };
    assert_eq!(ask(&*store, over).await, yours(3));
    assert!(keep(&*store, 1, answer("new")).await);
    let later = AnswerClaim { now: at(8_999), ..claim(1, 4) };
    assert_eq!(ask(&*store, later).await, AnswerClaimed::Kept(answer("new")));
}

/// Those first whose time was over first, and only those.
pub async fn old_answers_go_in_bites(fixture: &dyn Fixture) {
    let store = fixture.store().await;
    for number in 1..=7 {
        let expires_at = at(100 - i64::from(number));
        ask(&*store, AnswerClaim { expires_at, ..claim(number, 1) }).await;
        if number % 2 == 0 {
            keep(&*store, number, answer("kept")).await;
        }
    }
    let prune = |before| store.prune_answers(at(before), 2);
    assert_eq!(prune(93).await.expect("pruned"), 0, "none was over before that");
    assert_eq!(prune(95).await.expect("pruned"), 2, "two end before it: the seventh and the sixth");
    assert_eq!(ask(&*store, claim(7, 2)).await, yours(2), "forgotten");
    assert_eq!(ask(&*store, claim(5, 2)).await, AnswerClaimed::Busy, "still there");
    assert_eq!(prune(99).await.expect("pruned"), 2, "in bites");
    assert_eq!(prune(99).await.expect("pruned"), 2);
    assert_eq!(prune(99).await.expect("pruned"), 0);
    assert_eq!(ask(&*store, claim(1, 2)).await, AnswerClaimed::Busy, "not before its end");
}

/// However many ask at once.
pub async fn one_of_many_claims_a_request(fixture: &dyn Fixture) {
    let store = fixture.store().await;
    for number in 1..=5 {
        let mut asks = tokio::task::JoinSet::new();
        for holder in 1..=16 {
            let store = Arc::clone(&store);
            asks.spawn(async move { ask(&*store, claim(number, holder)).await });
        }
        let answers = asks.join_all().await;
        let (busy, yours): (Vec<_>, Vec<_>) =
            answers.into_iter().partition(|answer| *answer == AnswerClaimed::Busy);
        assert_eq!((yours.len(), busy.len()), (1, 15), "{yours:?}");
    }
}

/// What was claimed and what was kept is there after a crash.
pub async fn answers_survive_reopening(fixture: &dyn Fixture) {
    let store = fixture.store().await;
    ask(&*store, AnswerClaim { lease: SHORT, ..claim(1, 1) }).await;
    ask(&*store, claim(2, 1)).await;
    keep(&*store, 2, answer("kept")).await;
    let store = fixture.reopen(store).await;
    tokio::time::sleep(SHORT.to_duration() + Duration::from_millis(150)).await;
    assert_eq!(ask(&*store, claim(1, 2)).await, yours(1), "its seed");
    assert_eq!(ask(&*store, claim(2, 2)).await, AnswerClaimed::Kept(answer("kept")));
}
