//! Mailboxes as deliveries of events see them.

use std::time::Duration;

use posthorn_domain::{AgentId, ChannelId, Clock, MessageId, PushMessage};
use posthorn_engine::{PushDelivery, PushOutcome, PushProblem};
use posthorn_push::endpoint::Limits;
use posthorn_push_node::Mailboxes;
use posthorn_testkit::clock::Wall;
use tokio::time::timeout;

use crate::live::house::{House, Wires, notification, options, store, text};

fn message(agent: AgentId, channel: ChannelId) -> PushMessage {
    PushMessage {
        agent,
        channel,
        id: MessageId::from_random(7),
        topic: None,
        ttl: 60,
        received_at: Wall.now(),
        headers: None,
        body: Some("hello".into()),
    }
}

#[tokio::test]
async fn deliveries_wait_for_the_node_and_then_are_kept() {
    let mailboxes = Mailboxes::new(Limits { body_max: 4_096, ttl_max: 60 });
    let limits = mailboxes.limits();
    assert_eq!((limits.body_bytes_max, limits.ttl_max), (4_096, 60));
    let house = House::start(store(), &Wires::default(), options("one")).await;
    let (mut agent, _, url) = house.registered().await;
    let endpoint = house.node.open(&url).expect("ours");

    let early = mailboxes.deliver(message(endpoint.agent, endpoint.channel));
    let mut early = tokio::spawn(early);
    let waits = timeout(Duration::from_millis(50), &mut early).await;
    assert!(waits.is_err(), "there is no node yet: {waits:?}");
    mailboxes.serve(house.node.clone());
    let outcome = timeout(Duration::from_secs(10), early).await.expect("in time").expect("ends");
    assert_eq!(outcome, PushOutcome::Kept);
    assert_eq!(text(&notification(&mut agent).await), "hello");

    assert_eq!(mailboxes.open(&url).await, Ok(endpoint));
    assert_eq!(mailboxes.look_up(endpoint).await, Ok(()));
    assert_eq!(mailboxes.open("https://else.example/").await, Err(PushProblem::NotOurs));
    // Both are the end of a base64 text that can be read, so one of them is another one than before.
    let end = if url.ends_with('A') { 'Q' } else { 'A' };
    let altered = format!("{}{end}", &url[..url.len() - 1]);
    assert_eq!(mailboxes.open(&altered).await, Err(PushProblem::Altered));
    agent.unregister(endpoint.channel).await.expect("unregistered");
    assert_eq!(mailboxes.look_up(endpoint).await, Err(PushProblem::Gone));
    let late = mailboxes.deliver(message(endpoint.agent, endpoint.channel)).await;
    assert_eq!(late, PushOutcome::Gone);
}
