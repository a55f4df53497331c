//! Cases about the trace that an event belongs to.

use std::sync::Arc;
use std::time::Duration;

use posthorn_domain::{Event, Timestamp, TraceContext};
use posthorn_store::{EventFilter, FollowAsk, Listing, NewEvent, Order};

use super::Fixture;
use super::builders::{Published, Setting, at, delivered, delivery, event, whole};

/// With every flag, and with bytes that a text could not hold.
fn traces() -> [Option<TraceContext>; 4] {
    let place = |text: &str| Some(TraceContext::parse(text).expect("a place in a trace"));
    [
        place("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"),
        place("00-00000000000000000000000000000001-ff00000000000000-00"),
        place("00-ffffffffffffffffffffffffffffffff-0a0d00222700005c-03"),
        None,
    ]
}

async fn publish(setting: &Setting, trace: Option<TraceContext>, to: NewEvent) -> Published {
    let event = Event { trace, ..event(setting.tenant) };
    setting.accept(NewEvent { event: Arc::new(event), ..to }).await
}

/// Whoever asks for an event gets its trace as it was published, also from another handle later.
pub async fn traces_come_back_as_they_were(fixture: &dyn Fixture) {
    let mut setting = Setting::new(fixture).await;
    let ask = FollowAsk { tenants: vec![setting.tenant], after: None, since: None, limit: 100 };
    let start = setting.store.events_after(ask).await.expect("a place").last;
    let mut published = Vec::new();
    for trace in traces() {
        let planned = setting.planned(vec![]).await;
        published.push(publish(&setting, trace, planned).await.event);
    }
    for _ in 0..2 {
        let ids = published.iter().map(|event| event.id).collect();
        let found = setting.store.events_by_id(setting.tenant, ids).await.expect("events");
        assert_eq!(found.iter().map(|event| event.trace).collect::<Vec<_>>(), traces());
        for event in &published {
            let found = setting.store.event(setting.tenant, event.id).await.expect("a lookup");
            assert_eq!(found.as_ref(), Some(&**event));
        }
        let oldest = Listing { order: Order::OldestFirst, after: None, limit: 10 };
        let filter = EventFilter::default();
        let page = setting.store.events(setting.tenant, filter, oldest).await.expect("a list");
        assert_eq!(page.items.iter().map(|event| event.trace).collect::<Vec<_>>(), traces());
        setting = setting.reopen(fixture).await;
    }
    // They may be shown a moment after their commit.
    let ask =
        FollowAsk { tenants: vec![setting.tenant], after: Some(start), since: None, limit: 100 };
    let mut followed = Vec::new();
    for _ in 0..500 {
        let page = setting.store.events_after(ask.clone()).await.expect("the log");
        followed = page.items.iter().map(|found| found.item.event.trace).collect();
        if followed.len() == traces().len() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(followed, traces());
}

/// What is to be attempted comes with the trace of its event: what is pending, and the next of a lane.
pub async fn work_comes_with_its_trace(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let mut ids = Vec::new();
    for trace in traces() {
        let planned = setting.planned(vec![delivery(subscription, whole())]).await;
        ids.push((planned.deliveries[0].id, trace));
        publish(&setting, trace, planned).await;
    }
    let setting = setting.reopen(fixture).await;
    let works = setting.pending(subscription, Timestamp::MAX).await;
    assert_eq!(works.first().map(|work| work.event.trace), Some(ids[0].1));
    for (place, (id, _)) in ids.iter().enumerate() {
        let next = setting.record(*id, delivered(), at(10)).await;
        let expected = ids.get(place + 1).map(|(_, trace)| *trace);
        assert_eq!(next.map(|work| work.event.trace), expected);
    }
}
