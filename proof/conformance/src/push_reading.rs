//! Reading messages: those with a topic first, page by page, and none that have expired.

use posthorn_domain::{MessageId, MessageSeq, PushMessage, StoredMessage};

use super::builders::at;
use super::push::{
    NODE, OTHER, PushFixture, Scene, agent_id, message, newcomer, read, store_all, stored,
};
use posthorn_store::push::{Census, ClearNode, Connect, MessagesAsk};

/// Before all messages, with topics and without.
const START: (MessageSeq, MessageSeq) = (MessageSeq::START, MessageSeq::START);

fn ids(found: &[StoredMessage]) -> Vec<MessageId> {
    found.iter().map(|stored| stored.message.id).collect()
}

/// Stores these and returns their ids and sequences in the same order.
async fn fill(scene: &Scene, batch: Vec<PushMessage>) -> Vec<(MessageId, MessageSeq)> {
    let mut filled = Vec::new();
    for message in batch {
        filled.push((message.id, scene.store_one(message).await));
    }
    filled
}

/// A reader goes on after the last sequence it saw, page by page.
pub async fn reading_goes_on_after_a_sequence(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let batch: Vec<PushMessage> = (0..25).map(|n| scene.message(n)).collect();
    let ids: Vec<MessageId> = batch.iter().map(|message| message.id).collect();
    store_all(&*scene.store, batch).await;
    let mut seen = Vec::new();
    let mut after = MessageSeq::START;
    loop {
        let page = read(&*scene.store, scene.agent, (after, after), at(0), 10).await;
        let Some(last) = page.last() else { break };
        after = last.seq;
        seen.push(page.len());
        let from = seen.iter().sum::<usize>() - page.len();
        let found: Vec<MessageId> = page.iter().map(|stored| stored.message.id).collect();
        assert_eq!(found, ids[from..from + page.len()]);
    }
    assert_eq!(seen, [10, 10, 5]);
    assert!(read(&*scene.store, scene.agent, (after, after), at(0), 10).await.is_empty());
    let end = (MessageSeq(u64::MAX), MessageSeq(u64::MAX));
    assert!(read(&*scene.store, scene.agent, end, at(0), 10).await.is_empty());
    assert!(read(&*scene.store, scene.agent, START, at(0), 0).await.is_empty());
}

/// Several asks in one call, each with its own place, time and limit.
pub async fn reads_answer_each_ask(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let (other, channel) = newcomer(&*scene.store, at(0)).await;
    let mine: Vec<PushMessage> = (0..3).map(|n| scene.message(n)).collect();
    let theirs: Vec<PushMessage> = (0..2).map(|n| message(other, channel, n)).collect();
    let mixed: Vec<PushMessage> =
        [&mine[0], &theirs[0], &mine[1], &theirs[1], &mine[2]].map(Clone::clone).to_vec();
    store_all(&*scene.store, mixed).await;
    let first = scene.stored().await[0].seq;
    let ask = |agent, after, limit| MessagesAsk {
        agent,
        after_topics: MessageSeq::START,
        after,
        now: at(0),
        limit,
    };
    let asks = vec![
        ask(other, MessageSeq::START, 10),
        ask(scene.agent, first, 1),
        ask(agent_id(), MessageSeq::START, 10),
        MessagesAsk { now: at(100_000_000_000), ..ask(other, MessageSeq::START, 10) },
        ask(scene.agent, MessageSeq::START, 10),
    ];
    let pages = scene.store.messages(asks).await.expect("messages");
    let ids = |messages: &[PushMessage]| messages.iter().map(|m| m.id).collect::<Vec<_>>();
    let expected = [ids(&theirs), ids(&mine[1..2]), Vec::new(), Vec::new(), ids(&mine)];
    let found: Vec<Vec<MessageId>> =
        pages.iter().map(|page| page.iter().map(|stored| stored.message.id).collect()).collect();
    assert_eq!(found, expected);
}

/// A message lives for its whole seconds and not one moment longer.
pub async fn expired_messages_are_not_read(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let short = PushMessage { ttl: 2, ..scene.message(10_999) };
    let long = scene.message(10_999);
    let never = PushMessage { ttl: 0, ..scene.message(10_999) };
    store_all(&*scene.store, vec![short.clone(), long.clone(), never]).await;
    let ids = async |millis| -> Vec<MessageId> {
        let found = stored(&*scene.store, scene.agent, at(millis)).await;
        found.into_iter().map(|stored| stored.message.id).collect()
    };
    assert_eq!(ids(11_999).await, [short.id, long.id]);
    assert_eq!(ids(12_000).await, [long.id]);
    // An expired one does not use up the limit.
    let first = read(&*scene.store, scene.agent, START, at(12_000), 1).await;
    assert_eq!(first[0].message.id, long.id);
}

/// Those with a topic come before those without, each in order of their sequences.
pub async fn topics_are_read_first(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let batch = vec![
        scene.message(0),
        scene.about("z", 1),
        scene.message(2),
        scene.about("a", 3),
        scene.message(4),
    ];
    let all = fill(&scene, batch).await;
    let found = read(&*scene.store, scene.agent, START, at(0), usize::MAX).await;
    let expected = [1, 3, 0, 2, 4].map(|place: usize| all[place]);
    assert_eq!(found.iter().map(|m| (m.message.id, m.seq)).collect::<Vec<_>>(), expected);
}

/// Each of the two parts goes on after its own sequence, wherever the other is.
pub async fn topics_and_others_go_on_by_themselves(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let batch = vec![
        scene.about("a", 0),
        scene.message(1),
        scene.about("b", 2),
        scene.message(3),
        scene.about("c", 4),
        scene.message(5),
    ];
    let all = fill(&scene, batch).await;
    let page = async |after: (MessageSeq, MessageSeq)| {
        ids(&read(&*scene.store, scene.agent, after, at(0), 10).await)
    };
    let expected = |places: &[usize]| places.iter().map(|at| all[*at].0).collect::<Vec<_>>();
    let seq = |place: usize| all[place].1;
    assert_eq!(page((seq(0), MessageSeq::START)).await, expected(&[2, 4, 1, 3, 5]));
    assert_eq!(page((MessageSeq::START, seq(3))).await, expected(&[0, 2, 4, 5]));
    assert_eq!(page((seq(4), seq(1))).await, expected(&[3, 5]));
    assert_eq!(page((seq(2), seq(5))).await, expected(&[4]));
    // A sequence of the other part cuts as well.
    assert_eq!(page((seq(3), seq(2))).await, expected(&[4, 3, 5]));
    assert_eq!(page((seq(4), seq(5))).await, expected(&[]));
}

/// A page may be all topics, some of both, or all others; pages in a row show each once.
pub async fn limit_goes_across_both_parts(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let mut batch = Vec::new();
    for n in 0..5 {
        batch.push(scene.message(n));
        batch.push(scene.about(&format!("t{n}"), n));
    }
    let all = fill(&scene, batch).await;
    let order = [1, 3, 5, 7, 9, 0, 2, 4, 6, 8].map(|place: usize| all[place].0);
    for limit in [1, 2, 3, 5, 7, 10] {
        let (mut after_topics, mut after) = START;
        let mut seen = Vec::new();
        loop {
            let page = read(&*scene.store, scene.agent, (after_topics, after), at(0), limit).await;
            assert_eq!(page.len(), limit.min(order.len() - seen.len()));
            if page.is_empty() {
                break;
            }
            for stored in &page {
                let topic = stored.message.topic.is_some();
                *(if topic { &mut after_topics } else { &mut after }) = stored.seq;
            }
            seen.extend(ids(&page));
        }
        assert_eq!(seen, order, "by {limit}");
    }
}

/// Expired ones are in neither part and use up nothing of the limit.
pub async fn expired_topics_leave_room_for_others(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let short = |message: PushMessage| PushMessage { ttl: 1, ..message };
    let batch = vec![
        short(scene.about("a", 0)),
        short(scene.message(0)),
        scene.about("b", 0),
        scene.message(0),
        scene.message(0),
    ];
    let all = fill(&scene, batch).await;
    let page = async |millis, limit| {
        ids(&read(&*scene.store, scene.agent, START, at(millis), limit).await)
    };
    let expected = |places: &[usize]| places.iter().map(|at| all[*at].0).collect::<Vec<_>>();
    assert_eq!(page(999, 10).await, expected(&[0, 2, 1, 3, 4]));
    assert_eq!(page(1_000, 10).await, expected(&[2, 3, 4]));
    assert_eq!(page(1_000, 2).await, expected(&[2, 3]));
}

/// What replaces a message that was read already has a new sequence and is read in its turn.
pub async fn replaced_topics_are_read_again(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let batch = vec![scene.about("a", 0), scene.about("b", 0), scene.message(0)];
    let all = fill(&scene, batch).await;
    let after = (all[1].1, all[2].1);
    assert!(read(&*scene.store, scene.agent, after, at(0), 10).await.is_empty());
    let news = fill(&scene, vec![scene.message(1), scene.about("a", 1)]).await;
    let found = read(&*scene.store, scene.agent, after, at(0), 10).await;
    assert_eq!(ids(&found), [news[1].0, news[0].0]);
    // From the start it is behind the other topic now, and the one it replaced is gone.
    let found = read(&*scene.store, scene.agent, START, at(0), 10).await;
    assert_eq!(ids(&found), [all[1].0, news[1].0, all[2].0, news[0].0]);
    // One that is late changes nothing for those who read on.
    let late = scene.about("a", 0);
    store_all(&*scene.store, vec![late]).await;
    let after = (news[1].1, news[0].1);
    assert!(read(&*scene.store, scene.agent, after, at(0), 10).await.is_empty());
}

/// What there is can be counted, by node, and never by looking at more than one is told to.
pub async fn a_census_is_bounded(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let census = async |at_most| scene.store.census(at_most).await.expect("census");
    let one = Census { agents: 1, connected: vec![(NODE.to_owned(), 1)], ..Census::default() };
    assert_eq!(census(10).await, one);
    let (away, channel) = newcomer(&*scene.store, at(0)).await;
    let clear = ClearNode { agent: away, node: NODE.to_owned(), connected_at: at(0) };
    scene.store.clear_nodes(vec![clear]).await.expect("clear");
    let (moved, _) = newcomer(&*scene.store, at(0)).await;
    let connect = Connect { agent: moved, node: OTHER.to_owned(), at: at(5), seen: at(5) };
    scene.store.connect_agents(vec![connect]).await.expect("connect");
    let batch = (0..3).map(|n| message(away, channel, n)).collect();
    store_all(&*scene.store, batch).await;
    let whole = Census {
        agents: 3,
        connected: vec![(NODE.to_owned(), 1), (OTHER.to_owned(), 1)],
        messages: 3,
        more: false,
    };
    assert_eq!(census(3).await, whole);
    let some = census(2).await;
    assert_eq!((some.agents, some.messages, some.more), (2, 2, true));
    scene.store.drop_agents(vec![moved]).await.expect("drop");
    let left = census(10).await;
    assert_eq!((left.agents, left.connected), (2, vec![(NODE.to_owned(), 1)]));
}
