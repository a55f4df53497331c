//! Everything at once: an agent that comes, goes and moves all the time while many post for it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use posthorn_agent::{Agent, Event, Options as AgentOptions};
use posthorn_domain::AgentId;
use posthorn_push_node::{Direct, Options};
use posthorn_testkit::wait::PATIENCE;
use tokio::time::timeout;

use crate::live::gated::Gated;
use crate::live::house::{House, QUIET, Wires, options, text};

const MANY: usize = 400;

/// A connection, unless there is a newer one by the time it is made.
async fn connect(house: &House, id: AgentId) -> Option<Agent> {
    let agent = Agent::connect(&house.url, &AgentOptions::default()).await;
    let mut agent = agent.expect("a socket");
    let hello = agent.hello(Some(id), &[]).await.ok()?;
    assert_eq!(hello.agent, id, "the agent keeps its id");
    Some(agent)
}

/// Takes what comes within a moment, up to so many, and acknowledges so many of five.
async fn sip(
    agent: &mut Agent,
    many: usize,
    of_five: u32,
    moment: Duration,
    got: &mut BTreeSet<String>,
) {
    for _ in 0..many {
        match timeout(moment, agent.next()).await {
            Ok(Ok(Event::Notification(notification))) => {
                if rand::random_ratio(of_five, 5) {
                    if agent.ack(&[notification.ack()]).await.is_err() {
                        return;
                    }
                    got.insert(text(&notification));
                }
            }
            Ok(Ok(Event::Closed(_)) | Err(_)) | Err(_) => return,
            Ok(Ok(_)) => {}
        }
    }
}

async fn storm(direct: Direct, window: u16) {
    let (store, wires) = (Gated::new(), Wires::default());
    let with = |name: &str| {
        let mut options = Options { direct, ..options(name) };
        options.session.unacked_window = window;
        options
    };
    let one = House::start(Arc::clone(&store) as _, &wires, with("n1")).await;
    let two = House::start(Arc::clone(&store) as _, &wires, with("n2")).await;
    let (first, id, endpoint) = one.registered().await;
    let houses = [&one, &two];
    let posts = futures_util::stream::iter(0..MANY)
        .map(|n| {
            let endpoint = &endpoint;
            async move {
                let answer = houses[n % 2].post(endpoint, &n.to_string()).await;
                assert_eq!(answer.status, 201, "{answer:?}");
            }
        })
        .buffer_unordered(4)
        .collect::<Vec<()>>();
    let over = AtomicBool::new(false);
    let posts = async {
        posts.await;
        over.store(true, Ordering::SeqCst);
    };
    let mut got = BTreeSet::new();
    let mut forgotten = vec![first];
    let moves = async {
        while !over.load(Ordering::SeqCst) {
            let house = houses[rand::random_range(0..2)];
            let Some(mut agent) = connect(house, id).await else { continue };
            let moment = Duration::from_millis(rand::random_range(1..30));
            sip(&mut agent, rand::random_range(0..40), 4, moment, &mut got).await;
            match rand::random_range(0..4) {
                0 => drop(agent),
                1 => drop(agent.close().await),
                // It stays open, and nobody reads it any more.
                2 => forgotten.push(agent),
                _ => {
                    // Two at once.
                    let (a, b) = tokio::join!(connect(&one, id), connect(&two, id));
                    forgotten.extend(a.into_iter().chain(b));
                }
            }
        }
    };
    tokio::join!(posts, moves);
    drop(forgotten);
    // What was not acknowledged is somewhere, and comes without another reconnect.
    let mut last = connect(&one, id).await.expect("nobody else connects");
    let end = async {
        while got.len() < MANY {
            sip(&mut last, MANY, 5, QUIET, &mut got).await;
        }
    };
    timeout(PATIENCE, end).await.unwrap_or_else(|_| panic!("{} of {MANY} came", got.len()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_in_a_storm() {
    storm(Direct::Memory, 128).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_in_a_storm_with_a_narrow_window() {
    storm(Direct::Memory, 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_in_a_storm_when_everything_is_stored_first() {
    storm(Direct::Stored, 128).await;
}
