//! Payloads that are removed: not while they are on their way, and never sent again.

use std::time::Duration;

use posthorn_domain::{DeliveryState, JobState, ReplayStatus, Selection};
use posthorn_engine::{Error, Expunge, NewExpunge, NewReplay};
use posthorn_store::{DeliveryFilter, Listing, Store};
use serde_json::json;

use crate::house::{House, TENANT, answered, publish, rest, subscribe};

fn chosen() -> Selection {
    Selection { types: vec![publish("1", None).event_type], ..Selection::default() }
}

/// The attempt under way arrives; its outcome, a failure, makes no other.
#[tokio::test(start_paused = true)]
async fn a_cancel_comes_first_and_nothing_is_sent_afterwards() {
    let (house, engine) = House::open().await;
    subscribe(&engine, "https://a/", json!({})).await;
    house.receivers.script("https://a/", |_, _| (Duration::from_secs(3), answered(500)));
    let event = engine.publish(TENANT, publish("777", None)).await.expect("accepted").id;
    rest(1).await;
    assert_eq!(house.receivers.bodies("https://a/"), ["777"]);
    let refused = engine.expunge_event(TENANT, event, Expunge::default()).await;
    assert!(matches!(refused, Err(Error::Unfinished)), "{refused:?}");
    let how = Expunge { cancel: true, responses: true };
    let gone = engine.expunge_event(TENANT, event, how).await.expect("expunged");
    assert!(gone.payload.is_empty() && gone.expunged_at.is_some());
    rest(7_200).await;
    assert_eq!(house.receivers.bodies("https://a/"), ["777"], "the one that was under way");
    let filter = DeliveryFilter { event: Some(event), ..DeliveryFilter::default() };
    let page = house.store.deliveries(TENANT, filter, Listing::newest(5)).await.expect("a page");
    let delivery = &page.items[0];
    assert!(matches!(delivery.state, DeliveryState::Cancelled(_)), "{delivery:?}");
    let retried = engine.retry_delivery(TENANT, delivery.id).await;
    assert!(matches!(retried, Err(Error::Expunged)), "{retried:?}");
    let again = engine.republish(TENANT, event).await;
    assert!(matches!(again, Err(Error::Expunged)), "{again:?}");
    let preview = engine.preview_request(TENANT, delivery.id).await;
    assert!(matches!(preview, Err(Error::Expunged)), "{preview:?}");
}

#[tokio::test(start_paused = true)]
async fn a_job_goes_on_by_its_pace_and_passes_over_what_waits() {
    let (house, engine) = House::open().await;
    let view = subscribe(&engine, "https://a/", json!({})).await;
    for number in 0..6 {
        let publish = publish(&number.to_string(), None);
        engine.publish(TENANT, publish).await.expect("accepted");
    }
    rest(1).await;
    engine.pause_subscription(TENANT, view.subscription.id).await.expect("pauses");
    let waits = engine.publish(TENANT, publish("888", None)).await.expect("accepted").id;
    rest(1).await;
    let new = |per_second| NewExpunge {
        events: chosen(),
        responses: false,
        per_second,
        created_by: "me".to_owned(),
    };
    let count = engine.count_expunge(TENANT, new(1)).await.expect("a count");
    assert_eq!((count.count, count.seen, count.complete), (6, 7, true));
    let job = engine.create_expunge(TENANT, new(2)).await.expect("begins");
    assert_eq!((job.done, job.state), (2, JobState::Running));
    rest(30).await;
    let job = house.store.job(TENANT, job.id).await.expect("answers").expect("there");
    assert_eq!((job.done, job.seen, job.state), (6, 7, JobState::Done));
    let kept = house.store.event(TENANT, waits).await.expect("answers").expect("there");
    assert_eq!(kept.payload, "888");
    engine.resume_subscription(TENANT, view.subscription.id).await.expect("resumes");
    rest(1).await;
    assert_eq!(house.receivers.bodies("https://a/").last().map(String::as_str), Some("888"));
    // Nothing of the others comes back.
    let subscription = Some(view.subscription.id);
    let (status, created_by) = (ReplayStatus::All, "me".to_owned());
    let replay = NewReplay { subscription, events: chosen(), status, per_second: 50, created_by };
    let job = engine.create_replay(TENANT, replay).await.expect("begins");
    rest(5).await;
    let job = house.store.job(TENANT, job.id).await.expect("answers").expect("there");
    assert_eq!((job.done, job.state), (1, JobState::Done));
    assert_eq!(house.receivers.of("https://a/").len(), 8);
    let everything = NewExpunge { events: Selection::default(), ..new(1) };
    let refused = engine.create_expunge(TENANT, everything).await;
    assert!(matches!(refused, Err(Error::Event { field: "from", .. })), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn a_job_that_cannot_go_on_says_why() {
    let (house, engine) = House::open().await;
    for _ in 0..5 {
        engine.publish(TENANT, publish("1", None)).await.expect("accepted");
    }
    rest(1).await;
    let view = subscribe(&engine, "https://a/", json!({})).await;
    let subscription = Some(view.subscription.id);
    let (status, created_by) = (ReplayStatus::Missed, "me".to_owned());
    let replay = NewReplay { subscription, events: chosen(), status, per_second: 1, created_by };
    let job = engine.create_replay(TENANT, replay).await.expect("begins");
    assert_eq!((job.state, &job.problem), (JobState::Running, &None));
    engine.delete_subscription(TENANT, view.subscription.id).await.expect("deletes");
    rest(30).await;
    let job = house.store.job(TENANT, job.id).await.expect("answers").expect("there");
    assert_eq!(job.state, JobState::Failed);
    assert_eq!(job.problem.as_deref(), Some("the subscription was deleted"));
}
