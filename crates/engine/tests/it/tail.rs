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
            Some(Heard::TooOld(since)) => panic!("what is older than {since} was skipped"),
            Some(Heard::Much) => panic!("it wants to hear everything"),
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

#[tokio::test(start_paused = true)]
async fn who_only_wants_to_know_that_something_happens_is_told_of_much_at_once() {
    let (_house, engine) = House::open().await;
    let mut changes = engine.changes(TENANT, None).await.expect("a listener");
    for _ in 0..1_000 {
        engine.publish(TENANT, publish("{}", None)).await.expect("accepted");
    }
    rest(10).await;
    let mut heard = Vec::new();
    while let Some(next) = changes.try_next() {
        heard.push(next);
    }
    let is_much = |heard: &Heard| matches!(heard, Heard::Much);
    assert!(heard.iter().any(is_much), "{} items were read", heard.len());
    assert!(heard.len() < 500, "{} items were read", heard.len());
    // Then it stands at the end: what comes next is heard of again, and little is heard as it is.
    let one = engine.publish(TENANT, publish("{}", None)).await.expect("accepted").id;
    assert_eq!(events(&mut changes, 1).await, [one]);
    // Somebody who wants to hear everything does, beside it.
    let mut thorough = engine.tail(TENANT, None).await.expect("a tail");
    let mut published = Vec::new();
    for _ in 0..120 {
        published.push(engine.publish(TENANT, publish("{}", None)).await.expect("accepted").id);
    }
    assert_eq!(events(&mut thorough, 120).await, published);
}

/// All that comes until nothing comes for long: events and attempts by their events.
async fn all(tail: &mut Tail) -> Vec<(&'static str, EventId)> {
    let mut found = Vec::new();
    while let Ok(heard) = tokio::time::timeout(Duration::from_secs(60), tail.next()).await {
        match heard.expect("the store answers") {
            Some(Heard::Item(item)) => found.push(match &*item {
                TailItem::Event { event, .. } => ("event", event.id),
                TailItem::Attempt(made) => ("attempt", made.line.event),
            }),
            other => panic!("nothing else: {other:?}"),
        }
    }
    found
}

fn check_order(heard: &[(&str, EventId)], published: &[EventId]) {
    let told = heard.iter().filter(|(kind, _)| *kind == "event").map(|(_, id)| *id);
    assert_eq!(told.collect::<Vec<_>>(), published);
    assert_eq!(heard.len(), 2 * published.len());
    for (index, (kind, id)) in heard.iter().enumerate() {
        assert!(*kind == "event" || heard[..index].contains(&("event", *id)), "{index}: {id}");
    }
}

/// However many there are.
#[tokio::test(start_paused = true)]
async fn an_event_is_told_before_what_was_tried_of_it() {
    let (_house, engine) = House::open().await;
    subscribe(&engine, "https://a/", json!({})).await;
    let mut live = engine.tail(TENANT, None).await.expect("a tail");
    let start = live.cursor();
    let mut published = Vec::new();
    for count in [120, 130] {
        let batch = vec![publish("{}", None); count];
        let answers = engine.publish_batch(TENANT, batch).await.expect("accepted");
        published.extend(answers.into_iter().map(|answer| answer.expect("accepted").id));
        // All of it was recorded before the follower looks: it gathers for fifty milliseconds.
        rest(5).await;
        if count == 120 {
            check_order(&all(&mut live).await, &published);
        }
    }
    let mut back = engine.tail(TENANT, Some(start)).await.expect("a tail");
    check_order(&all(&mut back).await, &published);
}

/// What a page is read for may look away while it is read.
#[tokio::test(start_paused = true)]
async fn a_page_goes_on_while_nobody_waits_for_it() {
    let (_house, engine) = House::open().await;
    let start = engine.tail(TENANT, None).await.expect("a tail").cursor();
    let published = engine.publish(TENANT, publish("{}", None)).await.expect("accepted").id;
    let mut tail = engine.tail(TENANT, Some(start)).await.expect("a tail");
    for _ in 0..100 {
        // Shorter than any page takes.
        let short = Duration::from_millis(1);
        if let Ok(heard) = tokio::time::timeout(short, tail.next()).await {
            let Some(Heard::Item(item)) = heard.expect("the store answers") else {
                panic!("an item")
            };
            assert!(matches!(&*item, TailItem::Event { event, .. } if event.id == published));
            return;
        }
    }
    panic!("it never came");
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_was_away_for_long_is_told_so() {
    let (house, engine) = House::open().await;
    let start = engine.tail(TENANT, None).await.expect("a tail").cursor();
    engine.publish(TENANT, publish("{}", None)).await.expect("accepted");
    engine.kill();
    rest(23 * 3_600).await;
    let engine = house.engine(2).await;
    let young = engine.publish(TENANT, publish("{}", None)).await.expect("accepted").id;
    engine.kill();
    rest(2 * 3_600).await;
    let engine = house.engine(3).await;
    let day = posthorn_domain::Span::from_secs(24 * 3_600);
    let ago = engine.now().minus(day);
    let mut tail = engine.tail(TENANT, Some(start)).await.expect("a tail");
    let first = tail.next().await.expect("the store answers");
    let Some(Heard::TooOld(since)) = first else { panic!("it is told first, not {first:?}") };
    assert!(since >= ago && since <= engine.now().minus(day), "{since}");
    assert_eq!(events(&mut tail, 1).await, [young]);
    let mut again = engine.tail(TENANT, Some(tail.cursor())).await.expect("a tail");
    let last = engine.publish(TENANT, publish("{}", None)).await.expect("accepted").id;
    assert_eq!(events(&mut again, 1).await, [last], "what it heard of is not skipped");
}
