//! Cases about removing what was said: payloads of events, and what receivers answered.

use bytes::Bytes;
use posthorn_domain::{
    Attempt, DeliveryId, DeliveryState, Event, EventId, FailureCode, ReplayStatus, SentRequest,
    Timestamp,
};
use posthorn_store::{
    Accepted, AttemptFilter, Bite, Error, EventFilter, Expunges, Listing, Place, Prune, Refusal,
    Result,
};

use super::Fixture;
use super::builders::{
    Setting, at, attempt, dead_block, dead_skip, delivered, failed, idempotency, redrive, whole,
};
use super::jobs::{advance, begun, bite, redelivery};

#[track_caller]
fn refused<T: std::fmt::Debug>(answer: Result<T>, why: Refusal) {
    match answer {
        Err(Error::Refused(refusal)) if refusal == why => {}
        other => panic!("refused with {why:?}, not {other:?}"),
    }
}

async fn expunge(setting: &Setting, event: EventId, when: Timestamp) -> Result<Event> {
    setting.store.expunge_event(setting.tenant, event, false, when).await
}

/// Ends a delivery with an answer that says something.
async fn answered(setting: &Setting, id: DeliveryId, text: &str, when: Timestamp) {
    let mut report = setting.report(id, delivered(), when).await;
    let said = Bytes::from(text.to_owned());
    report.attempt = report.attempt.map(|own| Attempt { response: said, ..own });
    setting.record_one(report).await;
}

async fn attempts(setting: &Setting, id: DeliveryId) -> Vec<Attempt> {
    setting.store.attempts(setting.tenant, id).await.expect("answers")
}

/// Everything but the payload is as it was, in every list and count; the first time counts.
pub async fn an_event_stays_without_its_payload(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let to = setting.subscribe().await;
    let mut new = setting.planned(vec![super::builders::delivery(to, None)]).await;
    let mut rich = Event::clone(&new.event);
    rich.payload = Bytes::from(vec![b'x'; 40_000]);
    rich.attributes = [("color".to_owned(), "red".to_owned())].into();
    rich.publisher_id = Some(posthorn_domain::IdempotencyKey::new("mine").expect("a key"));
    new.event = std::sync::Arc::new(rich);
    new.idempotency = Some(idempotency("mine", 1));
    let published = setting.accept(new.clone()).await;
    let (event, id) = (published.event.id, published.deliveries[0]);
    setting.record(id, delivered(), at(5)).await;
    let (counts, delivery) = (setting.store.counts(None).await, setting.look(id).await);

    let left =
        Event { payload: Bytes::new(), expunged_at: Some(at(9)), ..Event::clone(&published.event) };
    assert_eq!(expunge(&setting, event, at(9)).await.expect("expunged"), left);
    assert_eq!(expunge(&setting, event, at(99)).await.expect("again"), left, "the first time");
    let other = setting.other_tenant().await;
    refused(setting.store.expunge_event(other, event, true, at(9)).await, Refusal::NotFound);
    let unknown = EventId::new(at(0), 7);
    refused(expunge(&setting, unknown, at(9)).await, Refusal::NotFound);

    let setting = setting.reopen(fixture).await;
    let store = &setting.store;
    assert_eq!(store.event(setting.tenant, event).await.expect("answers"), Some(left.clone()));
    for filter in [
        EventFilter::default(),
        EventFilter { types: vec![left.event_type.clone()], ..EventFilter::default() },
        EventFilter { attributes: left.attributes.clone(), ..EventFilter::default() },
        EventFilter { publisher_id: left.publisher_id.clone(), ..EventFilter::default() },
    ] {
        let page = store.events(setting.tenant, filter, Listing::newest(5)).await.expect("a page");
        assert_eq!(page.items, std::slice::from_ref(&left));
    }
    assert_eq!(store.counts(None).await.expect("counts"), counts.expect("counts"));
    assert_eq!(setting.look(id).await, delivery);
    assert_eq!(attempts(&setting, id).await.len(), 1);
    // Its key still protects against publishing it twice.
    let again = store.accept(vec![new]).await.expect("accept");
    assert_eq!(again, [Accepted::Duplicate { event }]);
}

/// Waiting, under way, parked: as long as one of them may still be sent, nothing is removed.
pub async fn unfinished_work_keeps_its_payload(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (one, two) = (setting.subscribe().await, setting.subscribe().await);
    let first = setting.publish_in(two, whole()).await;
    let published = setting.publish(&[(one, None), (two, whole())]).await;
    let event = published.event.id;
    let same = async |setting: &Setting| {
        refused(expunge(setting, event, at(9)).await, Refusal::Unfinished);
        let found = setting.store.event(setting.tenant, event).await.expect("answers");
        assert_eq!(found.as_ref(), Some(&*published.event), "nothing has changed");
    };
    same(&setting).await;
    setting.lease(published.deliveries[0], at(50)).await;
    same(&setting).await;
    setting.record(published.deliveries[0], failed(at(60)), at(2)).await;
    same(&setting).await;
    setting.record(published.deliveries[0], delivered(), at(61)).await;
    // The other one is parked.
    same(&setting).await;
    setting.record(first, delivered(), at(62)).await;
    same(&setting).await;
    let moved =
        setting.store.cancel_delivery(setting.tenant, published.deliveries[1], at(63)).await;
    moved.expect("cancelled");
    expunge(&setting, event, at(64)).await.expect("all have ended");
}

/// Not by hand, not by a redrive, not by a job. A dead letter that blocks its lane can be cancelled.
pub async fn what_was_expunged_is_never_due_again(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (to, new) = (setting.subscribe().await, setting.subscribe().await);
    let doomed = setting.publish(&[(to, whole())]).await;
    let (event, id) = (doomed.event.id, doomed.deliveries[0]);
    let behind = setting.publish_in(to, whole()).await;
    setting.record(id, dead_block(), at(5)).await;
    let kept = setting.publish(&[(new, None)]).await;
    setting.record(kept.deliveries[0], dead_skip(), at(5)).await;
    expunge(&setting, event, at(6)).await.expect("expunged");

    refused(setting.store.retry_delivery(setting.tenant, id, at(7)).await, Refusal::Expunged);
    let everything = redrive(setting.tenant, at(1_000));
    let made = setting.store.create_redrive(everything.clone()).await.expect("a redrive");
    assert_eq!(made.total, 1, "the one that can be sent");
    let moved = setting.store.advance_redrive(made.id, 10, at(8), None).await.expect("advances");
    assert_eq!((moved.moved, &moved.subscriptions[..]), (1, &[new][..]));
    let job = begun(&setting).await;
    let deeds =
        [to, new].map(|whose| redelivery(event, whose, ReplayStatus::All)).into_iter().collect();
    let bitten = advance(&setting, bite(&job, None, 1, deeds)).await;
    assert_eq!((bitten.done, bitten.subscriptions.len()), (0, 0));

    assert!(matches!(setting.look(id).await.state, DeliveryState::Dead(_)));
    assert_eq!(setting.ready(to).await, [], "its lane is blocked");
    setting.store.cancel_delivery(setting.tenant, id, at(9)).await.expect("releases the lane");
    assert_eq!(setting.ready(to).await, [behind]);
    refused(setting.store.retry_delivery(setting.tenant, id, at(10)).await, Refusal::Expunged);
    setting.store.forget_delivery(setting.tenant, id, at(11)).await.expect("forgotten");
}

/// All attempts of all its deliveries, late ones and those of a job included; nobody else's.
pub async fn responses_go_with_their_event(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (one, two) = (setting.subscribe().await, setting.subscribe().await);
    let (published, other) =
        (setting.publish(&[(one, None)]).await, setting.publish(&[(one, None)]).await);
    let (event, id) = (published.event.id, published.deliveries[0]);
    answered(&setting, other.deliveries[0], "kept", at(3)).await;
    let mut report = setting.report(id, failed(at(10)), at(3)).await;
    let (failure, detail) = (Some(FailureCode::ConnectFailed), "why".to_owned());
    let request = Some(Box::new(SentRequest {
        method: "POST".to_owned(),
        url: None,
        headers: vec![("x-name".to_owned(), Some("secret".to_owned()))],
        body_bytes: 1,
        cut: false,
    }));
    report.attempt = Some(Attempt { status: None, failure, detail, request, ..attempt(id, 1, 0) });
    setting.record_one(report).await;
    answered(&setting, id, &"secret".repeat(3_000), at(11)).await;
    let late = async |text: &'static str, when: i64| {
        let mut report = setting.report(id, delivered(), at(when)).await;
        let response = Bytes::from_static(text.as_bytes());
        report.attempt = Some(Attempt { response, started_at: at(when), ..attempt(id, 2, 200) });
        setting.record_one(report).await;
    };
    late("late secret", 12).await;
    let job = begun(&setting).await;
    let deed = redelivery(event, two, ReplayStatus::Missed);
    let made = deed.id;
    advance(&setting, bite(&job, None, 1, vec![deed])).await;
    answered(&setting, made, "made secret", at(2_000)).await;

    // Without being asked for, what receivers said stays; what was said to them goes.
    assert!(attempts(&setting, id).await.iter().any(|own| own.request.is_some()));
    expunge(&setting, event, at(3_000)).await.expect("expunged");
    assert!(attempts(&setting, id).await.iter().all(|own| own.request.is_none()));
    assert!(attempts(&setting, made).await.iter().all(|own| !own.response.is_empty()));
    let expunge = async |when: i64| {
        let answer = setting.store.expunge_event(setting.tenant, event, true, at(when)).await;
        assert_eq!(answer.expect("expunged").expunged_at, Some(at(3_000)), "the first time");
    };
    expunge(4_000).await;
    expunge(5_000).await;
    let of_event = [attempts(&setting, id).await, attempts(&setting, made).await].concat();
    assert_eq!(of_event.len(), 4);
    for own in &of_event {
        assert!(own.response.is_empty() && own.detail.is_empty(), "{own:?}");
        assert_eq!(own.response_expunged_at, Some(at(4_000)));
        assert!(own.status.is_some() || own.failure.is_some());
    }
    let filter = AttemptFilter { event: Some(event), ..AttemptFilter::default() };
    let lines = setting.store.attempts_made(setting.tenant, filter, Listing::newest(9)).await;
    let lines = lines.expect("a page").items;
    assert!(lines.iter().all(|line| line.attempt.response_expunged_at == Some(at(4_000))));
    assert_eq!(lines.len(), 4);
    assert_eq!(attempts(&setting, other.deliveries[0]).await[0].response, "kept");
    // What comes back later is kept, until somebody asks again.
    late("later secret", 13).await;
    assert!(attempts(&setting, id).await.iter().any(|own| own.response == "later secret"));
    expunge(6_000).await;
    let own = attempts(&setting, id).await;
    assert!(own.iter().all(|own| own.response.is_empty()), "{own:?}");
    assert_eq!(own.iter().filter(|own| own.response_expunged_at == Some(at(6_000))).count(), 1);
}

/// Its neighbours and its payload stay; what it came to can still be found.
pub async fn one_response_goes_alone(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let to = setting.subscribe().await;
    let published = setting.publish(&[(to, None)]).await;
    let id = published.deliveries[0];
    let mut report = setting.report(id, failed(at(10)), at(3)).await;
    let response = Bytes::from_static(b"first");
    report.attempt = Some(Attempt { response, ..attempt(id, 1, 503) });
    setting.record_one(report).await;
    answered(&setting, id, "second", at(11)).await;
    let other = setting.other_tenant().await;
    let go = async |tenant, number, when| {
        setting.store.expunge_response(tenant, id, number, at(when)).await
    };
    refused(go(other, 1, 20).await, Refusal::NotFound);
    refused(go(setting.tenant, 3, 20).await, Refusal::NotFound);
    let unknown = DeliveryId::new(at(0), 3);
    let answer = setting.store.expunge_response(setting.tenant, unknown, 1, at(20)).await;
    refused(answer, Refusal::NotFound);
    go(setting.tenant, 1, 20).await.expect("removed");
    go(setting.tenant, 1, 30).await.expect("harmless");
    let setting = setting.reopen(fixture).await;
    let own = attempts(&setting, id).await;
    let seen: Vec<_> =
        own.iter().map(|own| (own.status, &own.response[..], own.response_expunged_at)).collect();
    assert_eq!(seen, [(Some(503), &b""[..], Some(at(20))), (Some(200), &b"second"[..], None)]);
    assert_eq!(own[0].took, attempt(id, 1, 503).took);
    let kept = setting.store.event(setting.tenant, published.event.id).await.expect("answers");
    assert_eq!(kept.as_ref(), Some(&*published.event));
}

/// Nobody waits for what a deleted subscription left behind, swept or not.
pub async fn deliveries_of_the_deleted_keep_nothing(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let to = setting.subscribe().await;
    let published = setting.publish(&[(to, whole())]).await;
    refused(expunge(&setting, published.event.id, at(1)).await, Refusal::Unfinished);
    setting.unsubscribe(to, at(2)).await;
    expunge(&setting, published.event.id, at(3)).await.expect("nobody waits for it");
    setting.store.sweep_cancelled(10, at(4)).await.expect("sweeps");
    assert!(matches!(
        setting.look(published.deliveries[0]).await.state,
        DeliveryState::Cancelled(_)
    ));
    let counts = setting.store.counts(None).await.expect("counts");
    assert_eq!((counts.events, counts.cancelled, counts.pending), (1, 1, 0));
}

/// Each bite once, with its progress; what cannot be removed, or is nobody's, is passed over.
pub async fn a_job_passes_over_what_has_not_ended(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let to = setting.subscribe().await;
    let (ended, waiting, gone) = (
        setting.publish(&[(to, None)]).await,
        setting.publish(&[(to, None)]).await,
        setting.publish(&[(to, None)]).await,
    );
    answered(&setting, ended.deliveries[0], "said", at(3)).await;
    answered(&setting, gone.deliveries[0], "said", at(3)).await;
    expunge(&setting, gone.event.id, at(4)).await.expect("expunged");
    let events = vec![
        ended.event.id,
        waiting.event.id,
        gone.event.id,
        EventId::new(at(0), 9),
        ended.event.id,
    ];
    let job = begun(&setting).await;
    let expunges = |responses| Some(Expunges { events: events.clone(), responses });
    let first = Bite { seen: 4, expunges: expunges(false), ..bite(&job, None, 1, Vec::new()) };
    let bitten = advance(&setting, first.clone()).await;
    assert_eq!((bitten.done, bitten.recall), (1, None), "the others had nothing left, or stay");
    assert_eq!(advance(&setting, first).await.done, 0, "another was faster");
    let setting = setting.reopen(fixture).await;
    let second = bite(&job, Some(Place(1)), 2, Vec::new());
    let second = Bite { seen: 4, expunges: expunges(true), ..second };
    assert_eq!(advance(&setting, second).await.done, 2, "now of both what receivers said");
    let found = setting.store.job(setting.tenant, job.id).await.expect("answers").expect("kept");
    assert_eq!((found.seen, found.done), (8, 3));
    let payload = async |id| {
        let found = setting.store.event(setting.tenant, id).await.expect("answers");
        found.expect("an event stays").payload
    };
    assert!(payload(ended.event.id).await.is_empty());
    assert_eq!(payload(waiting.event.id).await, waiting.event.payload);
    // The events of another tenant are not this job's.
    let other = setting.other_tenant().await;
    let stranger = super::jobs::begun_for(&setting, other).await;
    setting.record(waiting.deliveries[0], delivered(), at(9)).await;
    let theirs = Bite { expunges: expunges(true), ..bite(&stranger, None, 1, Vec::new()) };
    assert_eq!(advance(&setting, theirs).await.done, 0);
    assert_eq!(payload(waiting.event.id).await, waiting.event.payload);
}

/// They go when they would have gone.
pub async fn expunged_events_are_pruned_as_before(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let to = setting.subscribe().await;
    let published = setting.publish(&[(to, None)]).await;
    setting.record(published.deliveries[0], delivered(), at(5)).await;
    expunge(&setting, published.event.id, at(900)).await.expect("expunged");
    let prune = async |until: i64| {
        let prune = Prune {
            now: at(until),
            ended_before: at(until),
            dead_before: at(until),
            keys_before: at(0),
            recalls_before: at(0),
            audit_before: at(0),
            limit: 10,
        };
        setting.store.prune(prune).await.expect("prunes").events
    };
    assert_eq!(prune(5).await, 0);
    assert_eq!(prune(6).await, 1);
    let counts = setting.store.counts(None).await.expect("counts");
    assert_eq!((counts.events, counts.deliveries()), (0, 0));
}

/// Whoever is first: an event that is due has its payload.
pub async fn expunging_and_bringing_back_at_once(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (to, new) = (setting.subscribe().await, setting.subscribe().await);
    for round in 0..12 {
        let published = setting.publish(&[(to, None)]).await;
        let (event, id) = (published.event.id, published.deliveries[0]);
        setting.record(id, dead_skip(), at(5)).await;
        let job = begun(&setting).await;
        let deeds = [to, new].map(|whose| redelivery(event, whose, ReplayStatus::All));
        let again = bite(&job, None, 1, deeds.into_iter().collect());
        let store = &setting.store;
        let (gone, back) = match round % 2 {
            0 => {
                let (gone, back) = tokio::join!(
                    store.expunge_event(setting.tenant, event, true, at(6)),
                    store.retry_delivery(setting.tenant, id, at(6)),
                );
                (gone, back.is_ok())
            }
            _ => {
                let (gone, back) = tokio::join!(
                    store.expunge_event(setting.tenant, event, true, at(6)),
                    store.advance_job(again),
                );
                (gone, back.expect("advances").done > 0)
            }
        };
        assert_ne!(gone.is_ok(), back, "exactly one of them");
        for work in setting.pending(to, Timestamp::MAX).await {
            assert_eq!(work.event.expunged_at, None);
            assert!(!work.event.payload.is_empty());
        }
    }
}
