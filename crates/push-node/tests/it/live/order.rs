//! How many, how often and in which order: stored messages, topics, and the window.

use std::sync::Arc;

use futures_util::StreamExt as _;
use posthorn_agent::Agent;
use posthorn_push_node::Options;
use posthorn_testkit::caller::Reply;

use crate::live::gated::Gated;
use crate::live::house::{
    House, Wires, notification, options, request, settled, silence, take, text,
};

async fn house(change: impl FnOnce(&mut Options)) -> (Arc<Gated>, House) {
    let store = Gated::new();
    let mut options = options("n1");
    change(&mut options);
    let house = House::start(Arc::clone(&store) as _, &Wires::default(), options).await;
    (store, house)
}

async fn post_topic(house: &House, endpoint: &str, topic: &str, text: &str) {
    let headers = format!("TTL: 600\r\nContent-Encoding: aes128gcm\r\nTopic: {topic}\r\n");
    let answer = request(&house.url, "POST", endpoint, &headers, text.as_bytes()).await;
    assert_eq!(answer.status, 201, "{answer:?}");
}

/// Posts texts one after the other.
async fn post_all(house: &House, endpoint: &str, texts: impl IntoIterator<Item = String>) {
    for text in texts {
        let answer: Reply = house.post(endpoint, &text).await;
        assert_eq!(answer.status, 201, "{answer:?}");
    }
}

/// So many notifications, none of them acknowledged.
async fn see(agent: &mut Agent, many: usize) -> Vec<String> {
    let mut texts = Vec::with_capacity(many);
    for _ in 0..many {
        texts.push(text(&notification(agent).await));
    }
    texts
}

fn numbers(from: usize, to: usize) -> Vec<String> {
    (from..to).map(|n| n.to_string()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_thousand_posts_at_once_are_stored_and_come_once_each_in_that_order() {
    const MANY: usize = 2_000;
    let (store, house) = house(|_| {}).await;
    let (agent, id, endpoint) = house.registered().await;
    agent.close().await.expect("closed");
    let (house, endpoint) = (&house, &endpoint);
    let statuses: Vec<u16> = futures_util::stream::iter(numbers(0, MANY))
        .map(|text| async move { house.post(endpoint, &text).await.status })
        .buffer_unordered(200)
        .collect()
        .await;
    assert!(statuses.iter().all(|status| *status == 201));
    let stored = store.texts(id).await;
    let mut all = stored.clone();
    all.sort_unstable_by_key(|text| text.parse::<usize>().expect("a number"));
    assert_eq!(all, numbers(0, MANY));
    let (mut agent, _) = house.agent(Some(id)).await;
    assert_eq!(take(&mut agent, MANY).await, stored);
    silence(&mut agent).await;
    agent.close().await.expect("closed");
    assert!(store.texts(id).await.is_empty());
    silence(&mut house.agent(Some(id)).await.0).await;
}

#[tokio::test]
async fn hints_while_messages_are_outstanding_bring_nothing_twice() {
    let (_, house) = house(|_| {}).await;
    let (agent, id, endpoint) = house.registered().await;
    agent.close().await.expect("closed");
    for text in ["a", "b"] {
        post_topic(&house, &endpoint, text, text).await;
    }
    post_all(&house, &endpoint, ["1", "2"].map(str::to_owned)).await;
    post_topic(&house, &endpoint, "c", "c").await;
    let (mut agent, _) = house.agent(Some(id)).await;
    let mut outstanding = Vec::new();
    for expected in ["a", "b", "c", "1", "2"] {
        let got = notification(&mut agent).await;
        assert_eq!(text(&got), expected, "topics come first");
        outstanding.push(got);
    }
    for _ in 0..3 {
        assert!(house.node.local().hint(id));
        settled(&mut agent).await;
    }
    silence(&mut agent).await;
    for got in &outstanding {
        agent.ack(&[got.ack()]).await.expect("sent");
        assert!(house.node.local().hint(id));
    }
    silence(&mut agent).await;
    agent.close().await.expect("closed");
    silence(&mut house.agent(Some(id)).await.0).await;
}

#[tokio::test]
async fn a_topic_replaces_only_in_the_store() {
    let (store, house) = house(|_| {}).await;
    let (mut agent, id, endpoint) = house.registered().await;
    for n in numbers(0, 3) {
        post_topic(&house, &endpoint, "t", &n).await;
    }
    assert_eq!(take(&mut agent, 3).await, numbers(0, 3));
    agent.close().await.expect("closed");
    for n in numbers(3, 6) {
        post_topic(&house, &endpoint, "t", &n).await;
    }
    let (mut agent, _) = house.agent(Some(id)).await;
    assert_eq!(see(&mut agent, 1).await, ["5"]);
    // The one that replaces what is outstanding goes straight to the agent.
    post_topic(&house, &endpoint, "t", "6").await;
    assert_eq!(see(&mut agent, 1).await, ["6"]);
    silence(&mut agent).await;
    agent.close().await.expect("closed");
    // Both were unacknowledged; in the store only the newer is left.
    store.holds(id, &["6"]).await;
    let (mut agent, _) = house.agent(Some(id)).await;
    assert_eq!(see(&mut agent, 1).await, ["6"]);
    silence(&mut agent).await;
}

#[tokio::test]
async fn everything_unacknowledged_is_kept_once_each_and_in_order() {
    let (store, house) = house(|options| options.session.unacked_window = 400).await;
    let (mut agent, id, endpoint) = house.registered().await;
    post_all(&house, &endpoint, numbers(0, 304)).await;
    assert_eq!(see(&mut agent, 304).await, numbers(0, 304));
    assert!(store.texts(id).await.is_empty(), "they went straight to the agent");
    agent.close().await.expect("closed");
    let (mut agent, _) = house.agent(Some(id)).await;
    assert_eq!(take(&mut agent, 304).await, numbers(0, 304));
    silence(&mut agent).await;
}

#[tokio::test]
async fn of_unacknowledged_messages_with_one_topic_the_newest_is_kept() {
    let (_, house) = house(|options| options.session.unacked_window = 400).await;
    let (mut agent, id, endpoint) = house.registered().await;
    post_all(&house, &endpoint, numbers(0, 150)).await;
    for text in ["old", "newer", "newest"] {
        post_topic(&house, &endpoint, "t", text).await;
    }
    post_all(&house, &endpoint, numbers(150, 301)).await;
    assert_eq!(see(&mut agent, 304).await.len(), 304);
    agent.close().await.expect("closed");
    let (mut agent, _) = house.agent(Some(id)).await;
    let (mut topics, mut plain) = (Vec::new(), Vec::new());
    for text in take(&mut agent, 302).await {
        if text.parse::<usize>().is_ok() { plain.push(text) } else { topics.push(text) }
    }
    assert_eq!(topics, ["newest"]);
    assert_eq!(plain, numbers(0, 301));
    silence(&mut agent).await;
}

#[tokio::test]
async fn with_a_window_of_one_nothing_is_sent_before_the_last_is_acknowledged() {
    let (store, house) = house(|options| options.session.unacked_window = 1).await;
    let (mut agent, id, endpoint) = house.registered().await;
    post_all(&house, &endpoint, numbers(0, 4)).await;
    assert_eq!(store.texts(id).await, numbers(1, 4));
    for n in 0..4 {
        let got = notification(&mut agent).await;
        assert_eq!(text(&got), n.to_string());
        silence(&mut agent).await;
        agent.ack(&[got.ack()]).await.expect("sent");
    }
    silence(&mut agent).await;
    assert!(store.texts(id).await.is_empty());
    // And straight again.
    post_all(&house, &endpoint, numbers(4, 5)).await;
    assert!(store.texts(id).await.is_empty());
    assert_eq!(take(&mut agent, 1).await, ["4"]);
}

#[tokio::test]
async fn what_does_not_fit_into_the_window_is_stored_and_comes_in_order_after_acks() {
    let (store, house) = house(|_| {}).await;
    let (mut agent, id, endpoint) = house.registered().await;
    post_all(&house, &endpoint, numbers(0, 128)).await;
    assert!(store.texts(id).await.is_empty());
    post_all(&house, &endpoint, numbers(128, 150)).await;
    assert_eq!(store.texts(id).await, numbers(128, 150));
    let mut outstanding = Vec::new();
    for n in 0..128 {
        let got = notification(&mut agent).await;
        assert_eq!(text(&got), n.to_string());
        outstanding.push(got);
    }
    silence(&mut agent).await;
    for got in &outstanding {
        agent.ack(&[got.ack()]).await.expect("sent");
    }
    assert_eq!(take(&mut agent, 22).await, numbers(128, 150));
    silence(&mut agent).await;
    assert!(store.texts(id).await.is_empty());
}
