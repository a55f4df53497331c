//! The everyday life of Web Push, at the real program, however an installation is set up.

use posthorn_agent::{Agent, Event};
use posthorn_domain::AgentId;
use tokio::time::timeout;

use crate::push_world::{
    QUIET, SPLIT, Sender, Shape, Town, WITH_TEXT, acknowledged, channel, event, notification,
    silence, text,
};

/// An agent, its id and its endpoint, and somebody who sends to it.
struct Pair {
    agent: Agent,
    id: AgentId,
    endpoint: String,
    sender: Sender,
}

impl Pair {
    async fn new(town: &Town) -> Self {
        let (agent, id, endpoint) = town.agents().registered().await;
        Self { agent, id, endpoint, sender: town.senders().sender().await }
    }

    async fn post(&mut self, text: &str) {
        self.sender.post(&self.endpoint, text).await.expect(201);
    }

    /// Posts with these headers.
    async fn post_with(&mut self, headers: &[(&str, &str)], text: &str) -> String {
        let headers = [&[("content-encoding", "aes128gcm")], headers].concat();
        let answer = self.sender.ask("POST", &self.endpoint, &headers, text.to_owned()).await;
        answer.expect("an answer").with(201).header("location").expect("a location").to_owned()
    }

    async fn back(&mut self, town: &Town) {
        self.agent = town.agents().agent(Some(self.id)).await.0;
    }

    /// Says goodbye; somebody else is connected in its place.
    async fn close(&mut self, town: &Town) {
        let (other, _) = town.agents().agent(None).await;
        std::mem::replace(&mut self.agent, other).close().await.expect("closed");
    }

    /// Everything was acknowledged: nothing of it comes again. An agent that is back before the store
    /// has heard of its last acks may see some, but not for ever.
    async fn has_all(&mut self, town: &Town) {
        for left in (0..10).rev() {
            self.close(town).await;
            self.back(town).await;
            match timeout(QUIET, self.agent.next()).await {
                Err(_) => break,
                Ok(came) => assert!(left > 0, "it comes again and again: {came:?}"),
            }
        }
    }
}

async fn everyday(shape: Shape) {
    let town = Town::start(shape, "");
    straight(&town).await;
    away(&town).await;
    topics_times_and_deletions(&town).await;
    unregistered(&town).await;
    town.stop();
}

/// To an agent that is there.
async fn straight(town: &Town) {
    let mut pair = Pair::new(town).await;
    let answer = pair.sender.post(&pair.endpoint, "hello").await.with(201);
    assert_eq!(answer.header("ttl"), Some("600"));
    let base = pair.endpoint.split("/wpush/").next().expect("a base");
    let place = answer.header("location").expect("a location");
    assert!(place.starts_with(&format!("{base}/m/")), "{answer:?}");
    let got = notification(&mut pair.agent).await;
    assert_eq!(text(&got), "hello");
    pair.agent.ack(&[got.ack()]).await.expect("sent");
    // A message without a body is a knock on the door.
    let knock = pair.sender.ask("POST", &pair.endpoint, &[("ttl", "0")], "").await;
    assert!(knock.expect("an answer").with(201).body.is_empty());
    let got = notification(&mut pair.agent).await;
    assert_eq!((&got.data, &got.headers), (&None, &None));
    // What was acknowledged, and what was only for now, does not come again.
    pair.has_all(town).await;
}

/// To an agent that is away for a while.
async fn away(town: &Town) {
    let mut pair = Pair::new(town).await;
    pair.close(town).await;
    for n in 0..30 {
        pair.post(&n.to_string()).await;
    }
    pair.back(town).await;
    for n in 0..30 {
        assert_eq!(acknowledged(&mut pair.agent).await, n.to_string());
    }
    pair.post("and now straight").await;
    assert_eq!(acknowledged(&mut pair.agent).await, "and now straight");
    pair.has_all(town).await;
}

async fn topics_times_and_deletions(town: &Town) {
    let mut pair = Pair::new(town).await;
    // While it is there, each one comes.
    for n in ["one", "two"] {
        pair.post_with(&[("ttl", "600"), ("topic", "score")], n).await;
        assert_eq!(acknowledged(&mut pair.agent).await, n);
    }
    pair.close(town).await;
    pair.post_with(&[("ttl", "600"), ("topic", "score")], "1:0").await;
    pair.post_with(&[("ttl", "0")], "only for now").await;
    pair.post_with(&[("ttl", "1")], "only for a second").await;
    pair.post("lasting").await;
    let mistake = pair.post_with(&[("ttl", "600")], "a mistake").await;
    pair.post_with(&[("ttl", "600"), ("topic", "score")], "2:0").await;
    for _ in 0..2 {
        let deleted = pair.sender.ask("DELETE", &mistake, &[], "").await.expect("an answer");
        deleted.expect(204);
    }
    let nothing = pair.sender.ask("DELETE", "/m/nonsense", &[], "").await.expect("an answer");
    nothing.expect(400);
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    pair.back(town).await;
    assert_eq!(acknowledged(&mut pair.agent).await, "2:0", "topics first, and only the newest");
    assert_eq!(acknowledged(&mut pair.agent).await, "lasting");
    silence(&mut pair.agent).await;
}

/// To a channel that is gone.
async fn unregistered(town: &Town) {
    let mut pair = Pair::new(town).await;
    let second = channel();
    let endpoint = pair.agent.register(second, None).await.expect("an endpoint");
    pair.agent.unregister(second).await.expect("done");
    let gone = pair.sender.ask("POST", &endpoint, &WITH_TEXT, "x").await.expect("an answer");
    let gone = gone.with(410);
    assert_eq!(gone.header("cache-control"), Some("max-age=86400"));
    assert!(gone.body.contains("\"errno\":106"), "{}", gone.body);
    pair.post("still here").await;
    assert_eq!(acknowledged(&mut pair.agent).await, "still here");
    // What is no endpoint has no answer but its status.
    let nowhere = pair.sender.ask("POST", "/wpush/v1/nonsense", &WITH_TEXT, "x").await;
    assert_eq!(nowhere.expect("an answer").with(404).body, "");
}

#[tokio::test]
async fn messages_come_and_go_on_sqlite() {
    everyday(Shape::Sqlite).await;
}

#[tokio::test]
async fn messages_come_and_go_on_postgresql() {
    everyday(Shape::Postgres).await;
}

#[tokio::test]
async fn messages_come_and_go_between_nodes() {
    everyday(SPLIT).await;
}

/// Concurrent posts of many senders to an agent that is away.
async fn two_thousand(shape: Shape) {
    const SENDERS: usize = 40;
    const EACH: usize = 50;
    const WINDOW: usize = 128;
    let town = Town::start(shape, "unacked_window: 128, batch: 16, frames_per_second: 100000");
    let mut pair = Pair::new(&town).await;
    pair.close(&town).await;
    let mut posting = tokio::task::JoinSet::new();
    for from in 0..SENDERS {
        let (url, endpoint) = (town.senders().url.clone(), pair.endpoint.clone());
        posting.spawn(async move {
            let mut sender = Sender::to(&url).await;
            for nth in 0..EACH {
                sender.post(&endpoint, &format!("{from} {nth}")).await.expect(201);
            }
        });
    }
    posting.join_all().await;
    let stored = town.senders().metric("posthorn_push_messages_total{outcome=\"stored\"}").await;
    assert_eq!(stored, 2_000);
    // Whoever goes without a word gets the same again.
    pair.back(&town).await;
    let mut first = Vec::new();
    for _ in 0..WINDOW {
        first.push(text(&notification(&mut pair.agent).await));
    }
    silence(&mut pair.agent).await;
    pair.back(&town).await;
    let mut next = [0; SENDERS];
    for n in 0..SENDERS * EACH {
        let got = acknowledged(&mut pair.agent).await;
        if let Some(before) = first.get(n) {
            assert_eq!(&got, before);
        }
        let (from, nth) = got.split_once(' ').expect("two numbers");
        let from: usize = from.parse().expect("a number");
        // Each once, and those of one sender in the order they were accepted.
        assert_eq!(nth.parse(), Ok(next[from]), "of {from}");
        next[from] += 1;
    }
    assert_eq!(next, [EACH; SENDERS]);
    silence(&mut pair.agent).await;
    pair.has_all(&town).await;
    town.stop();
}

#[tokio::test]
async fn two_thousand_posts_at_once_are_stored_and_come_once_each_in_order_on_sqlite() {
    two_thousand(Shape::Sqlite).await;
}

#[tokio::test]
async fn two_thousand_posts_at_once_are_stored_and_come_once_each_in_order_on_postgresql() {
    two_thousand(SPLIT).await;
}

/// Messages that went straight to a socket, whose agent then goes without a word.
async fn unacknowledged(shape: Shape) {
    const COUNT: usize = 304;
    let town = Town::start(shape, "unacked_window: 512");
    let mut pair = Pair::new(&town).await;
    let mut sent = Vec::new();
    for n in 0..COUNT {
        pair.post(&n.to_string()).await;
        sent.push(notification(&mut pair.agent).await);
    }
    let direct = town.senders().metric("posthorn_push_messages_total{outcome=\"direct\"}").await;
    assert_eq!(direct, 304, "none was stored");
    drop(std::mem::replace(&mut pair.agent, town.agents().agent(None).await.0));
    pair.back(&town).await;
    for before in &sent {
        assert_eq!(&notification(&mut pair.agent).await, before, "the same, in the same order");
    }
    silence(&mut pair.agent).await;
    let acks: Vec<_> = sent.iter().map(posthorn_agent::Notification::ack).collect();
    for some in acks.chunks(100) {
        pair.agent.ack(some).await.expect("sent");
    }
    pair.agent.ping().await.expect("sent");
    assert_eq!(event(&mut pair.agent).await, Event::Pong);
    pair.has_all(&town).await;
    town.stop();
}

#[tokio::test]
async fn of_304_unacknowledged_messages_304_come_again_on_sqlite() {
    unacknowledged(Shape::Sqlite).await;
}

#[tokio::test]
async fn of_304_unacknowledged_messages_304_come_again_between_nodes() {
    unacknowledged(SPLIT).await;
}
