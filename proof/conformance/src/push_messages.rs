//! Messages: stored in order, replaced by topic, read, acknowledged and removed.

use bytes::Bytes;
use posthorn_domain::{
    MessageId, MessageSeq, PushEncoding, PushHeaders, PushMessage, StoredMessage,
};

use super::builders::at;
use super::push::{
    PushFixture, Scene, TTL, agent_id, channel_id, further, message, newcomer, register, store_all,
    stored,
};
use posthorn_store::push::{Kept, Registered, Trim};

/// Every field reads back, those that may be absent in both ways.
pub async fn messages_read_back_as_they_were(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let headers = |encoding| PushHeaders {
        encoding,
        encryption: Some("salt=AbC_-9".into()),
        crypto_key: Some("dh=BNoRDbb84JGm8g5Z5CFxurSqsXWJ11ItfXEWYVLE85Y7".into()),
    };
    let knock = PushMessage { headers: None, body: None, ttl: u32::MAX, ..scene.message(1) };
    let old = PushMessage { headers: Some(headers(PushEncoding::AesGcm)), ..scene.message(2) };
    let bytes = Some(Bytes::from((0..=255).collect::<Vec<u8>>()));
    let new = PushMessage { body: bytes, ..scene.about("news_-09==", 3) };
    let hollow = PushMessage { body: Some(Bytes::new()), ..scene.message(4) };
    let all = vec![knock, old, new, hollow];
    let kept = store_all(&*scene.store, all.clone()).await;
    let expected: Vec<StoredMessage> = all
        .into_iter()
        .zip(kept)
        .map(|(message, kept)| match kept {
            Kept::Stored(seq) => StoredMessage { seq, message },
            other => panic!("stored, not {other:?}"),
        })
        .collect();
    assert_eq!(scene.stored().await, expected);
}

/// Order is that of storing, whatever ids and times say.
pub async fn messages_come_in_order_of_their_sequence(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let batch: Vec<PushMessage> = [5, 3, 9, 1].map(|millis| scene.message(millis)).to_vec();
    let mut ids: Vec<MessageId> = batch.iter().map(|message| message.id).collect();
    let kept = store_all(&*scene.store, batch).await;
    for millis in [4, 0] {
        let message = scene.message(millis);
        ids.push(message.id);
        scene.store_one(message).await;
    }
    let found = scene.stored().await;
    assert!(found.windows(2).all(|pair| pair[0].seq < pair[1].seq), "{found:?}");
    assert_eq!(scene.ids().await, ids);
    let firsts: Vec<Kept> = found[..4].iter().map(|stored| Kept::Stored(stored.seq)).collect();
    assert_eq!(kept, firsts);
    assert!(found[0].seq > MessageSeq::START);
}

/// One that cannot be stored disturbs nobody.
pub async fn items_are_judged_by_themselves(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let (other, channel) = newcomer(&*scene.store, at(0)).await;
    let good = [scene.message(0), message(other, channel, 1), scene.message(2)];
    let stranger = message(agent_id(), scene.channel, 0);
    // Right channel, wrong agent.
    let crossed = message(other, scene.channel, 0);
    let lost = message(scene.agent, channel_id(), 0);
    let batch = vec![stranger, good[0].clone(), crossed, good[1].clone(), lost, good[2].clone()];
    let kept = store_all(&*scene.store, batch).await;
    assert_eq!(
        (kept[0], kept[2], kept[4]),
        (Kept::AgentGone, Kept::ChannelGone, Kept::ChannelGone)
    );
    for stored in [kept[1], kept[3], kept[5]] {
        assert!(matches!(stored, Kept::Stored(_)), "{kept:?}");
    }
    assert_eq!(scene.ids().await, [good[0].id, good[2].id]);
    let theirs = stored(&*scene.store, other, at(0)).await;
    assert_eq!(theirs.len(), 1);
    assert_eq!(theirs[0].message, good[1]);
}

/// The same id again, in a later call or in the same batch, is the same message.
pub async fn repeating_an_id_is_harmless(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let (one, two) = (scene.message(0), scene.about("t", 1));
    let kept = store_all(&*scene.store, vec![one.clone(), two.clone(), one.clone()]).await;
    let (Kept::Stored(first), Kept::Stored(second)) = (kept[0], kept[1]) else {
        panic!("{kept:?}");
    };
    assert_eq!(kept[2], Kept::Again(first));
    let again = store_all(&*scene.store, vec![two.clone(), scene.message(3), one.clone()]).await;
    assert_eq!((again[0], again[2]), (Kept::Again(second), Kept::Again(first)));
    let Kept::Stored(third) = again[1] else { panic!("{again:?}") };
    let found: Vec<MessageSeq> = scene.stored().await.iter().map(|stored| stored.seq).collect();
    assert_eq!(found, [first, second, third]);
}

/// The same id at two agents is two messages.
pub async fn ids_belong_to_their_agent(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let (other, channel) = newcomer(&*scene.store, at(0)).await;
    let mine = scene.message(0);
    let theirs = PushMessage { agent: other, channel, ..mine.clone() };
    let kept = store_all(&*scene.store, vec![mine.clone(), theirs]).await;
    assert!(kept.iter().all(|kept| matches!(kept, Kept::Stored(_))), "{kept:?}");
    let removed = scene.store.delete_messages(vec![(scene.agent, mine.id)]).await.expect("delete");
    assert_eq!(removed, [true]);
    assert_eq!(stored(&*scene.store, other, at(0)).await.len(), 1);
}

/// A newer message of a topic takes the place of the older, at the end of the line.
pub async fn topic_keeps_the_newer(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let (old, between, new) = (scene.about("t", 0), scene.message(1), scene.about("t", 2));
    let first = scene.store_one(old.clone()).await;
    let second = scene.store_one(between.clone()).await;
    let third = scene.store_one(new.clone()).await;
    assert!(first < second && second < third);
    let found = scene.stored().await;
    let expected = [(second, &between), (third, &new)];
    let found: Vec<_> = found.iter().map(|stored| (stored.seq, &stored.message)).collect();
    assert_eq!(found, expected);
    // At the same moment, the one that is stored later.
    let twin = scene.about("t", 2);
    scene.store_one(twin.clone()).await;
    assert_eq!(scene.ids().await, [between.id, twin.id]);
    // The older one is gone for good, its id is free.
    let gone = scene.store.delete_messages(vec![(scene.agent, old.id)]).await.expect("delete");
    assert_eq!(gone, [false]);
}

/// The same inside one batch, in its order.
pub async fn topic_keeps_the_newer_inside_a_batch(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let batch = vec![
        scene.about("t", 5),
        scene.message(6),
        scene.about("t", 4),
        scene.about("u", 4),
        scene.about("t", 5),
        scene.message(7),
    ];
    let kept = store_all(&*scene.store, batch.clone()).await;
    assert_eq!(kept[2], Kept::Outdated);
    let seqs: Vec<MessageSeq> = kept
        .iter()
        .filter_map(|kept| match kept {
            Kept::Stored(seq) => Some(*seq),
            _ => None,
        })
        .collect();
    assert_eq!(seqs.len(), 5);
    assert!(seqs.is_sorted(), "{seqs:?}");
    let expected = [1, 3, 4, 5].map(|place: usize| batch[place].id);
    assert_eq!(scene.ids().await, expected);
}

/// A connection that ends saves what is older than what was stored meanwhile: the newer stays.
pub async fn late_older_message_of_a_topic_is_outdated(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let new = scene.about("t", 10);
    let seq = scene.store_one(new.clone()).await;
    let late = scene.about("t", 9);
    assert_eq!(store_all(&*scene.store, vec![late]).await, [Kept::Outdated]);
    assert_eq!(scene.stored().await, [StoredMessage { seq, message: new }]);
}

/// The same topic of another channel or agent is another topic; without a topic nothing is replaced.
pub async fn topics_belong_to_their_channel(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let channel = channel_id();
    let reply = register(&*scene.store, further(scene.agent, channel)).await;
    assert_eq!(reply, Registered::New);
    let (other, theirs) = newcomer(&*scene.store, at(0)).await;
    let here = scene.about("t", 0);
    let next_door = PushMessage { channel, ..scene.about("t", 1) };
    let elsewhere = PushMessage { agent: other, channel: theirs, ..scene.about("t", 2) };
    let padded = scene.about("t=", 3);
    let plain = [scene.message(4), scene.message(5)];
    let mut batch = vec![here.clone(), next_door.clone(), elsewhere, padded.clone()];
    batch.extend(plain.clone());
    let kept = store_all(&*scene.store, batch).await;
    assert!(kept.iter().all(|kept| matches!(kept, Kept::Stored(_))), "{kept:?}");
    let expected = [here.id, next_door.id, padded.id, plain[0].id, plain[1].id];
    assert_eq!(scene.ids().await, expected);
    assert_eq!(stored(&*scene.store, other, at(0)).await.len(), 1);
}

/// What was acknowledged is gone, one by one and over many agents.
pub async fn acked_messages_never_return(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let (other, channel) = newcomer(&*scene.store, at(0)).await;
    let batch: Vec<PushMessage> = (0..4).map(|n| scene.message(n)).collect();
    store_all(&*scene.store, batch.clone()).await;
    store_all(&*scene.store, vec![message(other, channel, 0)]).await;
    let seqs: Vec<MessageSeq> = scene.stored().await.iter().map(|stored| stored.seq).collect();
    let theirs = stored(&*scene.store, other, at(0)).await[0].seq;
    let acks = vec![
        (scene.agent, seqs[2]),
        (other, theirs),
        (scene.agent, MessageSeq(u64::MAX)),
        (scene.agent, seqs[0]),
        (agent_id(), seqs[1]),
        (scene.agent, seqs[2]),
    ];
    let replies = scene.store.ack_messages(acks).await.expect("ack");
    assert_eq!(replies, [true, true, false, true, false, false]);
    let scene = scene.reopen(fixture).await;
    assert_eq!(scene.ids().await, [batch[1].id, batch[3].id]);
    assert!(stored(&*scene.store, other, at(0)).await.is_empty());
}

/// An agent cannot acknowledge for another.
pub async fn acks_need_the_right_agent(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let (other, _) = newcomer(&*scene.store, at(0)).await;
    let seq = scene.store_one(scene.message(0)).await;
    assert_eq!(scene.store.ack_messages(vec![(other, seq)]).await.expect("ack"), [false]);
    let id = scene.ids().await[0];
    assert_eq!(scene.store.delete_messages(vec![(other, id)]).await.expect("delete"), [false]);
    assert_eq!(scene.ids().await.len(), 1);
}

/// Who acknowledges what it read does not lose what replaced it meanwhile.
pub async fn ack_of_a_replaced_message_leaves_the_new_one(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let read = scene.store_one(scene.about("t", 0)).await;
    let new = scene.about("t", 1);
    scene.store_one(new.clone()).await;
    assert_eq!(scene.store.ack_messages(vec![(scene.agent, read)]).await.expect("ack"), [false]);
    assert_eq!(scene.ids().await, [new.id]);
}

/// A sender may delete again and again; only the first time there is something.
pub async fn deleting_by_id_is_idempotent(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let (one, two) = (scene.message(0), scene.about("t", 1));
    store_all(&*scene.store, vec![one.clone(), two.clone()]).await;
    let batch = vec![(scene.agent, two.id), (scene.agent, two.id), (agent_id(), one.id)];
    let replies = scene.store.delete_messages(batch).await.expect("delete");
    assert_eq!(replies, [true, false, false]);
    let again = scene.store.delete_messages(vec![(scene.agent, two.id)]).await.expect("delete");
    assert_eq!(again, [false]);
    assert_eq!(scene.ids().await, [one.id]);
    // Its topic is free: an older one may be stored now.
    let older = scene.about("t", 0);
    scene.store_one(older.clone()).await;
    assert_eq!(scene.ids().await, [one.id, older.id]);
}

/// Only what can still be read is counted, and no further than asked for.
pub async fn counting_leaves_out_the_expired(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let (other, _) = newcomer(&*scene.store, at(0)).await;
    let short = PushMessage { ttl: 1, ..scene.message(0) };
    store_all(&*scene.store, vec![short, scene.message(0), scene.message(0)]).await;
    let agents = vec![other, scene.agent, agent_id(), scene.agent];
    let before = scene.store.count_messages(agents.clone(), at(0), 3).await.expect("count");
    assert_eq!(before, [0, 3, 0, 3]);
    let after = scene.store.count_messages(agents.clone(), at(1_000), 9).await.expect("count");
    assert_eq!(after, [0, 2, 0, 2]);
    for at_most in 0..3 {
        let some = scene.store.count_messages(agents.clone(), at(0), at_most).await;
        assert_eq!(some.expect("count"), [0, at_most, 0, at_most]);
    }
    let end = at(1_000 * i64::from(TTL));
    assert_eq!(scene.store.count_messages(agents, end, u64::MAX).await.expect("count"), [0; 4]);
}

/// The newest stay, as many as asked for; expired ones do not count.
pub async fn trimming_drops_the_oldest(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let (other, channel) = newcomer(&*scene.store, at(0)).await;
    let mut batch: Vec<PushMessage> = (0..6).map(|_| scene.message(0)).collect();
    batch[5].ttl = 1;
    store_all(&*scene.store, batch.clone()).await;
    store_all(&*scene.store, vec![message(other, channel, 0)]).await;
    let trims = vec![
        Trim { agent: scene.agent, keep: 2 },
        Trim { agent: other, keep: 5 },
        Trim { agent: agent_id(), keep: 0 },
    ];
    let removed = scene.store.trim_messages(trims, at(1_000)).await.expect("trim");
    assert_eq!(removed, [3, 0, 0]);
    let left = stored(&*scene.store, scene.agent, at(1_000)).await;
    let left: Vec<MessageId> = left.iter().map(|stored| stored.message.id).collect();
    assert_eq!(left, [batch[3].id, batch[4].id]);
    let all = vec![Trim { agent: scene.agent, keep: 0 }, Trim { agent: other, keep: 1 }];
    assert_eq!(scene.store.trim_messages(all, at(1_000)).await.expect("trim"), [2, 0]);
    assert_eq!(stored(&*scene.store, other, at(0)).await.len(), 1);
}

/// A connection that ends leaves its unacknowledged messages behind: each once, with its id, in
/// order, also when it has to try twice or some were stored before.
pub async fn unacked_messages_are_saved_once_and_in_order(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let unacked: Vec<PushMessage> = (0..300).map(|n| scene.message(n / 100)).collect();
    let kept = store_all(&*scene.store, unacked.clone()).await;
    assert!(kept.iter().all(|kept| matches!(kept, Kept::Stored(_))));
    let again = store_all(&*scene.store, unacked.clone()).await;
    assert!(again.iter().all(|kept| matches!(kept, Kept::Again(_))));
    let expected: Vec<MessageId> = unacked.iter().map(|message| message.id).collect();
    assert_eq!(scene.ids().await, expected);
    let seqs = |kept: &[Kept]| -> Vec<MessageSeq> {
        let seq = |kept: &Kept| match kept {
            Kept::Stored(seq) | Kept::Again(seq) => *seq,
            other => panic!("{other:?}"),
        };
        kept.iter().map(seq).collect()
    };
    assert_eq!(seqs(&kept), seqs(&again));
}

/// A sequence is not given out again, even when the last message is gone and after a crash.
pub async fn sequences_are_never_used_again(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let first = scene.store_one(scene.message(0)).await;
    scene.store.ack_messages(vec![(scene.agent, first)]).await.expect("ack");
    let scene = scene.reopen(fixture).await;
    let second = scene.store_one(scene.message(1)).await;
    assert!(second > first);
    scene.store.drop_agents(vec![scene.agent]).await.expect("drop");
    let scene = scene.reopen(fixture).await;
    let (agent, channel) = newcomer(&*scene.store, at(0)).await;
    let scene = Scene { agent, channel, ..scene };
    assert!(scene.store_one(scene.message(2)).await > second);
}

/// Bodies of 8 KiB read back, a hundred at a time.
pub async fn large_bodies_are_kept(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let body = |n: u8| Bytes::from(vec![n; 8 * 1024]);
    let batch: Vec<PushMessage> =
        (0..100).map(|n| PushMessage { body: Some(body(n)), ..scene.message(0) }).collect();
    store_all(&*scene.store, batch.clone()).await;
    let found: Vec<PushMessage> =
        scene.stored().await.into_iter().map(|stored| stored.message).collect();
    assert_eq!(found, batch);
}

/// What was stored, replaced and acknowledged is so after a crash.
pub async fn messages_survive_reopening(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let batch = vec![scene.message(0), scene.about("t", 1), scene.message(2), scene.about("t", 3)];
    store_all(&*scene.store, batch).await;
    let first = scene.stored().await[0].seq;
    scene.store.ack_messages(vec![(scene.agent, first)]).await.expect("ack");
    let before = scene.stored().await;
    assert_eq!(before.len(), 2);
    let scene = scene.reopen(fixture).await;
    assert_eq!(scene.stored().await, before);
    let next = scene.store_one(scene.message(4)).await;
    assert!(next > before[1].seq);
}
