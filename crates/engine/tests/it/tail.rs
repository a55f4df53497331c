//! The live tail, on one node and on several.

use std::time::Duration;

use posthorn_domain::EventId;
use posthorn_engine::{Heard, Tail, TailItem};
use serde_json::json;

use crate::house::{House, TENANT, publish, rest, subscribe, topic};

/// The next events; attempts are passed over.
async fn events(tail: &mut Tail, count: usize) -> Vec<EventId> {
    let mut found = Vec::new();
    while found.len() < count {
        let heard = tokio::time::timeout(Duration::from_secs(60), tail.next()).await;
        match heard.expect("something happens").expect("the store answers") {
            Some(Heard::Item(item)) => {
                if let TailItem::Event { event, .. } = &*item {
                    found.push(event.id);
                }
            }
            Some(Heard::Skipped(count)) => panic!("{count} were skipped"),
            None => panic!("the stream ended"),
        }
    }
    found
}

#[tokio::test(start_paused = true)]
async fn every_node_tells_of_what_all_do() {
    let house = House::new();
    let one = house.engine(1).await;
    topic(&one).await;
    let two = house.engine(2).await;
    rest(30).await;
    subscribe(&one, "https://a/", json!({})).await;
    let mut tails = [
        one.tail(TENANT, None).await.expect("a tail"),
        two.tail(TENANT, None).await.expect("a tail"),
    ];
    let mut published = Vec::new();
    for engine in [&one, &two, &two, &one] {
        published.push(engine.publish(TENANT, publish("{}", None)).await.expect("accepted").id);
    }
    for tail in &mut tails {
        assert_eq!(events(tail, 4).await, published);
    }
    rest(5).await;
    let mut attempts = 0;
    while let Some(Heard::Item(item)) = tails[0].try_next() {
        attempts += usize::from(matches!(&*item, TailItem::Attempt(_)));
    }
    assert!(attempts <= 4, "{attempts}");
}

#[tokio::test(start_paused = true)]
async fn a_listener_goes_on_after_a_restart_where_it_was() {
    let (house, engine) = House::open().await;
    let mut tail = engine.tail(TENANT, None).await.expect("a tail");
    let first = engine.publish(TENANT, publish("{}", None)).await.expect("accepted").id;
    assert_eq!(events(&mut tail, 1).await, [first]);
    let cursor = tail.cursor();
    let mut missed = Vec::new();
    for _ in 0..3 {
        missed.push(engine.publish(TENANT, publish("{}", None)).await.expect("accepted").id);
    }
    engine.kill();
    drop(tail);
    let engine = house.engine(2).await;
    missed.push(engine.publish(TENANT, publish("{}", None)).await.expect("accepted").id);
    let mut tail = engine.tail(TENANT, Some(cursor)).await.expect("a tail");
    assert_eq!(events(&mut tail, 4).await, missed);
    let last = engine.publish(TENANT, publish("{}", None)).await.expect("accepted").id;
    assert_eq!(events(&mut tail, 1).await, [last], "and is told of what comes");
}

#[tokio::test(start_paused = true)]
async fn a_tail_ends_with_its_engine() {
    let (_house, engine) = House::open().await;
    let mut tail = engine.tail(TENANT, None).await.expect("a tail");
    engine.stop().await;
    assert!(tail.next().await.expect("no trouble").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_does_not_keep_up_is_told_what_it_missed() {
    let (_house, engine) = House::open().await;
    let mut tail = engine.tail(TENANT, None).await.expect("a tail");
    let mut published = Vec::new();
    for _ in 0..1_000 {
        published.push(engine.publish(TENANT, publish("{}", None)).await.expect("accepted").id);
    }
    rest(10).await;
    let Some(Heard::Skipped(count)) = tail.next().await.expect("no trouble") else {
        panic!("it is told first")
    };
    let skipped = usize::try_from(count).expect("a number");
    assert!(skipped > 0 && skipped < 1_000, "{skipped}");
    assert_eq!(events(&mut tail, 1_000 - skipped).await, published[skipped..]);
}
