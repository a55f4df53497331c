//! What is over is removed.

use std::sync::Arc;
use std::time::Duration;

use posthorn_domain::{AgentId, ChannelId, MessageId, PushMessage, Span, Timestamp};
use posthorn_push_node::upkeep::{Removed, Upkeep};
use posthorn_store::push::{Birth, Kept, MessagesAsk, PushStore as _, Register};
use posthorn_testkit::clock::StillClock;
use tokio_util::sync::CancellationToken;

use crate::house::counted;
use crate::live::gated::{Gated, Mood};

const CHANNEL: ChannelId = ChannelId::from_random(1);
const DAY: i64 = 86_400_000;
const NOW: i64 = 100 * DAY;

fn agent(nth: u128) -> AgentId {
    AgentId::from_random(nth << 80)
}

async fn seen_at(store: &Gated, agent: AgentId, millis: i64) {
    let at = Timestamp::from_millis(millis);
    let birth = Some(Birth { node: "node".to_owned(), connected_at: at });
    let register = Register { agent, channel: CHANNEL, key: None, at, birth };
    store.store.register_channels(vec![register]).await.expect("registered");
}

async fn keep(store: &Gated, agent: AgentId, ids: std::ops::Range<u128>, ttl: u32) {
    let message = |id: u128| PushMessage {
        agent,
        channel: CHANNEL,
        id: MessageId::from_random(id << 80),
        topic: None,
        ttl,
        received_at: Timestamp::from_millis(NOW - 10_000),
        headers: None,
        body: None,
    };
    let kept = store.store.store_messages(ids.map(message).collect()).await.expect("stored");
    assert!(kept.iter().all(|kept| matches!(kept, Kept::Stored(_))));
}

async fn left(store: &Gated, agent: AgentId) -> usize {
    // At a time when nothing had expired.
    let now = Timestamp::from_millis(NOW - 10_000);
    let ask = MessagesAsk {
        agent,
        after_topics: Default::default(),
        after: Default::default(),
        now,
        limit: 10_000,
    };
    store.store.messages(vec![ask]).await.expect("messages")[0].len()
}

fn upkeep(store: &Arc<Gated>, clock: &Arc<StillClock>) -> Upkeep {
    Upkeep {
        store: store.clone(),
        clock: clock.clone(),
        agent_ttl: Span::from_millis(60 * 86_400_000),
        every: Duration::from_secs(60),
    }
}

#[tokio::test(start_paused = true)]
async fn a_round_removes_what_is_over_and_nothing_else() {
    let (store, clock) = (Gated::in_mood(Mood::Well), StillClock::at(NOW));
    let (fresh, edge, stale) = (agent(1), agent(2), agent(3));
    seen_at(&store, fresh, NOW).await;
    seen_at(&store, edge, NOW - 60 * DAY).await;
    seen_at(&store, stale, NOW - 60 * DAY - 1).await;
    // More than one bite.
    keep(&store, fresh, 0..1_203, 10).await;
    keep(&store, fresh, 2_000..2_004, 11).await;
    let upkeep = upkeep(&store, &clock);
    assert_eq!(upkeep.round().await, Removed { messages: 1_203, agents: 1 });
    assert_eq!(left(&store, fresh).await, 4);
    let agents = store.store.agents(vec![fresh, edge, stale]).await.expect("agents");
    let there: Vec<_> = agents.iter().map(Option::is_some).collect();
    assert_eq!(there, [true, true, false]);
    assert_eq!(upkeep.round().await, Removed::default());
    clock.set(NOW + 1_000);
    assert_eq!(upkeep.round().await, Removed { messages: 4, agents: 1 });
}

#[tokio::test(start_paused = true)]
async fn rounds_go_on_after_errors_until_they_are_stopped() {
    let (store, clock) = (Gated::in_mood(Mood::Broken), StillClock::at(NOW));
    seen_at(&store, agent(1), NOW).await;
    keep(&store, agent(1), 0..3, 1).await;
    assert_eq!(upkeep(&store, &clock).round().await, Removed::default());
    let stop = CancellationToken::new();
    let task = tokio::spawn(upkeep(&store, &clock).run(stop.clone()));
    tokio::time::sleep(Duration::from_secs(90)).await;
    assert_eq!(left(&store, agent(1)).await, 3);
    *store.mood.lock() = Mood::Well;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(left(&store, agent(1)).await, 0);
    // Also in the middle of a round.
    *store.mood.lock() = Mood::Mute;
    tokio::time::sleep(Duration::from_secs(120)).await;
    stop.cancel();
    tokio::time::timeout(Duration::from_secs(5), task).await.expect("it stops").expect("no panic");
}

#[tokio::test(start_paused = true)]
async fn a_round_has_an_end() {
    let (store, clock) = (Gated::in_mood(Mood::Endless), StillClock::at(NOW));
    let removed = upkeep(&store, &clock).round().await;
    assert_eq!(removed, Removed { messages: 200_000, agents: 200_000 });
}

#[test]
fn what_was_removed_is_counted() {
    let text = counted(async {
        let (store, clock) = (Gated::in_mood(Mood::Well), StillClock::at(NOW));
        seen_at(&store, agent(1), NOW).await;
        seen_at(&store, agent(2), 0).await;
        keep(&store, agent(1), 0..7, 1).await;
        upkeep(&store, &clock).round().await;
        *store.mood.lock() = Mood::Broken;
        upkeep(&store, &clock).round().await;
    });
    for line in [
        "posthorn_push_expired_messages_total 7",
        "posthorn_push_expired_agents_total 1",
        r#"posthorn_push_store_errors_total{operation="expire_messages"} 1"#,
        r#"posthorn_push_store_errors_total{operation="expire_agents"} 1"#,
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
}
