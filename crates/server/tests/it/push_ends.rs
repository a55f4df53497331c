//! What becomes of messages when nodes die, go away, or agents move, while everybody is at work.

use std::collections::BTreeMap;
use std::time::Duration;

use posthorn_agent::{Agent, Event};
use posthorn_domain::AgentId;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::push_world::{
    SPLIT, Sender, Shape, Town, WITH_TEXT, acknowledged, event, notification, silence, text,
};

const WINDOW: usize = 16;
const SETTINGS: &str = "unacked_window: 16, batch: 8, drain_timeout: 300ms";

/// Somebody who posts numbers, one after the other, to whichever node is there.
struct Stream {
    urls: watch::Sender<String>,
    until: watch::Sender<Option<u32>>,
    posting: JoinHandle<Vec<u32>>,
}

impl Stream {
    /// Begins.
    fn start(url: &str, endpoint: &str) -> Self {
        let (urls, at) = watch::channel(url.to_owned());
        let (until, last) = watch::channel(None);
        let posting = tokio::spawn(post_numbers(at, last, endpoint.to_owned()));
        Self { urls, until, posting }
    }

    /// From now on there.
    fn go_to(&self, url: &str) {
        self.urls.send_replace(url.to_owned());
    }

    /// Posts up to this number, then no more; returns those that were accepted.
    async fn finish(self, last: u32) -> Vec<u32> {
        self.until.send_replace(Some(last));
        self.posting.await.expect("no panic")
    }
}

async fn post_numbers(
    urls: watch::Receiver<String>,
    last: watch::Receiver<Option<u32>>,
    endpoint: String,
) -> Vec<u32> {
    let mut accepted = Vec::new();
    let mut sender: Option<(Sender, String)> = None;
    for n in 0.. {
        if last.borrow().is_some_and(|last| n > last) {
            break;
        }
        let url = urls.borrow().clone();
        if sender.as_ref().is_none_or(|(_, at)| *at != url) {
            sender = Sender::try_to(&url).await.map(|sender| (sender, url));
        }
        let answer = match &mut sender {
            Some((sender, _)) => sender.ask("POST", &endpoint, &WITH_TEXT, n.to_string()).await,
            None => None,
        };
        match answer {
            Some(answer) => {
                answer.expect(201);
                accepted.push(n);
            }
            // Whether that one was taken nobody knows; the next may be.
            None => {
                sender = None;
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        // A little slower than it could, so that all of it is not over at once.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    accepted
}

/// How often each number came.
#[derive(Default)]
struct Seen(BTreeMap<u32, usize>);

impl Seen {
    fn note(&mut self, text: &str) {
        *self.0.entry(text.parse().expect("a number")).or_default() += 1;
    }

    /// Reads and acknowledges, slowly, until so many different ones have come; then the socket is
    /// as it is, with some that are not acknowledged.
    async fn read(&mut self, agent: &mut Agent, many: usize) {
        let wanted = self.0.len() + many;
        while self.0.len() < wanted {
            let got = notification(agent).await;
            self.note(&text(&got));
            tokio::time::sleep(Duration::from_millis(2)).await;
            agent.ack(&[got.ack()]).await.expect("sent");
        }
    }

    /// The same, as fast as it can.
    async fn read_fast(&mut self, agent: &mut Agent, many: usize) {
        let wanted = self.0.len() + many;
        while self.0.len() < wanted {
            self.note(&acknowledged(agent).await);
        }
    }

    /// Reads until all of these have come, and then nothing more.
    async fn read_all(&mut self, agent: &mut Agent, wanted: &[u32]) {
        while !wanted.iter().all(|n| self.0.contains_key(n)) {
            self.note(&acknowledged(agent).await);
        }
        silence(agent).await;
    }

    fn repeated(&self) -> usize {
        self.0.values().map(|times| times - 1).sum()
    }
}

/// The node that an agent is connected to is killed in the middle of everything; the agent comes back.
/// Returns the town and what became of the numbers.
async fn killed(shape: Shape, direct: &str) -> (Town, Agent, AgentId, Stream, Seen) {
    let settings = format!("{SETTINGS}, direct: {direct}");
    let mut town = Town::start(shape, &settings);
    let (mut agent, id, endpoint) = town.agents().registered().await;
    let stream = Stream::start(&town.senders().url, &endpoint);
    let mut seen = Seen::default();
    seen.read(&mut agent, 100).await;
    town.nodes[0].kill();
    // What was written before the end may still be read; then it is over.
    loop {
        match event(&mut agent).await {
            Event::Notification(got) => seen.note(&text(&got)),
            Event::Closed(closed) => {
                assert_eq!(closed.code, None, "nobody was there to say goodbye");
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    let back = if town.nodes.len() == 1 {
        town.nodes[0].again();
        stream.go_to(&town.nodes[0].url);
        &town.nodes[0]
    } else {
        &town.nodes[1]
    };
    let (mut agent, _) = back.agent(Some(id)).await;
    seen.read(&mut agent, 100).await;
    (town, agent, id, stream, seen)
}

async fn killed_with_everything_stored(shape: Shape) {
    let (_town, mut agent, _, stream, mut seen) = killed(shape, "stored").await;
    let last = *seen.0.keys().last().expect("some") + 50;
    let accepted = stream.finish(last).await;
    seen.read_all(&mut agent, &accepted).await;
    assert!(seen.repeated() <= WINDOW, "{} came again", seen.repeated());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_accepted_is_lost_when_a_node_is_killed_and_everything_is_stored_on_sqlite() {
    killed_with_everything_stored(Shape::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_accepted_is_lost_when_a_node_is_killed_and_everything_is_stored_between_nodes() {
    killed_with_everything_stored(SPLIT).await;
}

/// What a node had in memory dies with it, and nothing else does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_was_in_memory_is_lost_when_a_node_is_killed() {
    let (_town, mut agent, _, stream, mut seen) = killed(SPLIT, "memory").await;
    let last = *seen.0.keys().last().expect("some") + 50;
    let accepted = stream.finish(last).await;
    let newest = *accepted.last().expect("some");
    while !seen.0.contains_key(&newest) {
        seen.note(&acknowledged(&mut agent).await);
    }
    silence(&mut agent).await;
    let lost = accepted.iter().filter(|n| !seen.0.contains_key(n)).count();
    assert!(lost <= WINDOW, "{lost} were lost");
    assert!(seen.repeated() <= WINDOW, "{} came again", seen.repeated());
}

/// A backlog is on its way to its agent when the node dies.
async fn killed_while_stored_messages_are_sent(shape: Shape) {
    let mut town = Town::start(shape, SETTINGS);
    let (agent, id, endpoint) = town.agents().registered().await;
    agent.close().await.expect("closed");
    let stream = Stream::start(&town.senders().url, &endpoint);
    let accepted = stream.finish(299).await;
    assert_eq!(accepted.len(), 300);
    let mut seen = Seen::default();
    let (mut agent, _) = town.agents().agent(Some(id)).await;
    seen.read_fast(&mut agent, 150).await;
    town.nodes[0].kill();
    town.nodes[0].again();
    let (mut agent, _) = town.nodes[0].agent(Some(id)).await;
    seen.read_all(&mut agent, &accepted).await;
    assert!(seen.repeated() <= WINDOW, "{} came again", seen.repeated());
    town.stop();
}

#[tokio::test]
async fn every_stored_message_arrives_when_a_node_is_killed_while_it_sends_them_on_sqlite() {
    killed_while_stored_messages_are_sent(Shape::Sqlite).await;
}

#[tokio::test]
async fn every_stored_message_arrives_when_a_node_is_killed_while_it_sends_them_on_postgresql() {
    killed_while_stored_messages_are_sent(Shape::Postgres).await;
}

/// A node goes away in good order.
async fn stopped(shape: Shape) {
    let mut town = Town::start(shape, &format!("{SETTINGS}, direct: memory"));
    let (mut agent, id, endpoint) = town.agents().registered().await;
    let (mut idle, _) = town.agents().agent(None).await;
    let mut sender = town.senders().sender().await;
    let mut sent = Vec::new();
    for n in 0..WINDOW {
        sender.post(&endpoint, &n.to_string()).await.expect(201);
        sent.push(notification(&mut agent).await);
    }
    let first = &mut town.nodes[0];
    let stopping = tokio::task::block_in_place(|| first.stop());
    for agent in [&mut agent, &mut idle] {
        match event(agent).await {
            Event::Closed(closed) => {
                assert_eq!((closed.code, &*closed.reason), (Some(1001), "SessionClosed"));
            }
            other => panic!("{other:?}"),
        }
    }
    let saved = format!("\"direct_storage\":{WINDOW}");
    assert!(stopping.contains(&saved), "{stopping}");
    if town.nodes.len() == 1 {
        town.nodes[0].again();
    } else {
        town.nodes.remove(0);
    }
    let (mut agent, _) = town.agents().agent(Some(id)).await;
    for before in &sent {
        assert_eq!(&notification(&mut agent).await, before);
    }
    silence(&mut agent).await;
    town.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_stops_sends_its_agents_away_and_stores_what_they_had_not_acknowledged() {
    stopped(Shape::Sqlite).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_of_a_node_that_stops_find_everything_at_another() {
    stopped(SPLIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_moves_between_nodes_misses_nothing() {
    let town = Town::start(SPLIT, SETTINGS);
    let (mut agent, id, endpoint) = town.agents().registered().await;
    let stream = Stream::start(&town.senders().url, &endpoint);
    let mut seen = Seen::default();
    const MOVES: usize = 8;
    for n in 0..MOVES {
        seen.read(&mut agent, 30).await;
        let next = &town.nodes[(n + 1) % 2];
        // Sometimes with a word, sometimes without, and sometimes the new one is there first.
        match n % 3 {
            0 => drop(agent.close().await.expect("closed")),
            1 => drop(agent),
            _ => {
                let (new, _) = next.agent(Some(id)).await;
                drop(std::mem::replace(&mut agent, new));
                continue;
            }
        }
        agent = next.agent(Some(id)).await.0;
    }
    let last = *seen.0.keys().last().expect("some") + 50;
    let accepted = stream.finish(last).await;
    assert_eq!(accepted.len() as u32, last + 1, "no post was refused");
    seen.read_all(&mut agent, &accepted).await;
    assert!(seen.repeated() <= MOVES * WINDOW, "{} came again", seen.repeated());
    town.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_endpoint_accepted_before_it_was_killed_arrives() {
    let mut town = Town::start(Shape::Split { connections: 1, endpoints: 2 }, SETTINGS);
    let (mut agent, _, endpoint) = town.agents().registered().await;
    let stream = Stream::start(&town.nodes[1].url, &endpoint);
    let mut seen = Seen::default();
    seen.read(&mut agent, 100).await;
    town.nodes[1].kill();
    stream.go_to(&town.nodes[2].url);
    seen.read(&mut agent, 100).await;
    let last = *seen.0.keys().last().expect("some") + 50;
    let accepted = stream.finish(last).await;
    seen.read_all(&mut agent, &accepted).await;
    assert_eq!(seen.repeated(), 0, "the agent's own node was well");
}
