//! The suite for [`PushStore`]: how it gets at a store, and things to put into one.
//!
//! A backend implements [`PushFixture`] and calls
//! [`push_conformance_suite!`](crate::push_conformance_suite) in a test module.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use posthorn_domain::{
    AgentId, ChannelId, MessageId, MessageSeq, PushEncoding, PushHeaders, PushMessage,
    StoredMessage, Timestamp,
};

use super::builders::{at, unique};
use posthorn_store::push::{
    Agent, Birth, ClearNode, Connect, Connected, Kept, MessagesAsk, PushStore, Register, Registered,
};

/// How the suite gets at a store.
#[async_trait]
pub trait PushFixture: Send + Sync {
    /// A fresh, empty store.
    async fn push_store(&self) -> Arc<dyn PushStore>;

    /// Another node's handle on the same contents; the same handle where only one process may have
    /// the store.
    async fn peer(&self, store: &Arc<dyn PushStore>) -> Arc<dyn PushStore>;

    /// The same contents through a new handle, as after a crash between two calls.
    async fn reopen_push(&self, store: Arc<dyn PushStore>) -> Arc<dyn PushStore>;
}

/// The address of the node most cases use.
pub const NODE: &str = "http://node-a.test:8081";
/// The address of another.
pub const OTHER: &str = "http://node-b.test:8081";
/// The life of most messages, in seconds.
pub const TTL: u32 = 3600;

/// An id no other case has.
pub fn agent_id() -> AgentId {
    AgentId::from_random(u128::from(unique()) << 80 | 1)
}

/// An id no other case has.
pub fn channel_id() -> ChannelId {
    ChannelId::from_random(u128::from(unique()) << 80 | 2)
}

/// A store with an agent that has one channel and was made at `at(0)`, connected to [`NODE`].
pub struct Scene {
    /// The store.
    pub store: Arc<dyn PushStore>,
    /// The agent.
    pub agent: AgentId,
    /// Its channel.
    pub channel: ChannelId,
}

impl Scene {
    /// A fresh store with an agent.
    pub async fn new(fixture: &dyn PushFixture) -> Self {
        let store = fixture.push_store().await;
        let (agent, channel) = newcomer(&*store, at(0)).await;
        Self { store, agent, channel }
    }

    /// As after a crash.
    pub async fn reopen(self, fixture: &dyn PushFixture) -> Self {
        Self { store: fixture.reopen_push(self.store).await, ..self }
    }

    /// A message for the channel, received at `at(millis)`.
    pub fn message(&self, millis: i64) -> PushMessage {
        message(self.agent, self.channel, millis)
    }

    /// The same with a topic.
    pub fn about(&self, topic: &str, millis: i64) -> PushMessage {
        let topic = Some(topic.parse().expect("the case chose a proper topic"));
        PushMessage { topic, ..self.message(millis) }
    }

    /// Stores one message, which must work.
    pub async fn store_one(&self, message: PushMessage) -> MessageSeq {
        match store_all(&*self.store, vec![message]).await[0] {
            Kept::Stored(seq) => seq,
            other => panic!("stored, not {other:?}"),
        }
    }

    /// Everything that is stored for the agent and has not expired at `at(0)`.
    pub async fn stored(&self) -> Vec<StoredMessage> {
        stored(&*self.store, self.agent, at(0)).await
    }

    /// The ids of the same.
    pub async fn ids(&self) -> Vec<MessageId> {
        self.stored().await.into_iter().map(|stored| stored.message.id).collect()
    }

    /// The agent, which must be there.
    pub async fn look(&self) -> Agent {
        look(&*self.store, self.agent).await.expect("the agent is there")
    }
}

/// A fresh agent with one channel.
pub async fn newcomer(store: &dyn PushStore, now: Timestamp) -> (AgentId, ChannelId) {
    let (agent, channel) = (agent_id(), channel_id());
    let birth = Some(Birth { node: NODE.to_owned(), connected_at: now });
    let first = Register { agent, channel, key: None, at: now, birth };
    assert_eq!(register(store, first).await, Registered::New);
    (agent, channel)
}

/// A message with a body of its own, received at `at(millis)`.
pub fn message(agent: AgentId, channel: ChannelId, millis: i64) -> PushMessage {
    let number = unique();
    PushMessage {
        agent,
        channel,
        // Backwards, so that no order can come from the ids.
        id: MessageId::from_random(u128::from(u64::MAX - number) << 80 | 3),
        topic: None,
        ttl: TTL,
        received_at: at(millis),
        headers: Some(PushHeaders {
            encoding: PushEncoding::Aes128Gcm,
            encryption: None,
            crypto_key: None,
        }),
        body: Some(Bytes::from(format!("body {number}"))),
    }
}

/// Registers one channel.
pub async fn register(store: &dyn PushStore, register: Register) -> Registered {
    store.register_channels(vec![register]).await.expect("register")[0]
}

/// Registers one more channel of an agent that exists.
pub fn further(agent: AgentId, channel: ChannelId) -> Register {
    Register { agent, channel, key: None, at: at(1), birth: None }
}

/// Connects one agent.
pub async fn connect(store: &dyn PushStore, agent: AgentId, node: &str, millis: i64) -> Connected {
    renew(store, agent, node, millis, millis).await
}

/// Connects one agent, or says that it is still connected.
pub async fn renew(
    store: &dyn PushStore,
    agent: AgentId,
    node: &str,
    millis: i64,
    seen: i64,
) -> Connected {
    let batch = vec![Connect { agent, node: node.to_owned(), at: at(millis), seen: at(seen) }];
    store.connect_agents(batch).await.expect("connect").remove(0)
}

/// Takes one node off the record.
pub async fn clear(store: &dyn PushStore, agent: AgentId, node: &str, millis: i64) -> bool {
    let batch = vec![ClearNode { agent, node: node.to_owned(), connected_at: at(millis) }];
    store.clear_nodes(batch).await.expect("clear")[0]
}

/// Stores a batch.
pub async fn store_all(store: &dyn PushStore, batch: Vec<PushMessage>) -> Vec<Kept> {
    store.store_messages(batch).await.expect("store")
}

/// One agent.
pub async fn look(store: &dyn PushStore, agent: AgentId) -> Option<Agent> {
    store.agents(vec![agent]).await.expect("agents").remove(0)
}

/// All messages of an agent that have not expired at `now`, in the order of their sequences.
pub async fn stored(store: &dyn PushStore, agent: AgentId, now: Timestamp) -> Vec<StoredMessage> {
    let start = MessageSeq::START;
    let mut found = read(store, agent, (start, start), now, usize::MAX).await;
    found.sort_by_key(|stored| stored.seq);
    found
}

/// Some messages of an agent, after one with a topic and one without.
pub async fn read(
    store: &dyn PushStore,
    agent: AgentId,
    (after_topics, after): (MessageSeq, MessageSeq),
    now: Timestamp,
    limit: usize,
) -> Vec<StoredMessage> {
    let asks = vec![MessagesAsk { agent, after_topics, after, now, limit }];
    store.messages(asks).await.expect("messages").remove(0)
}

/// Expands to one `#[tokio::test]` for each case. The argument is an expression that makes a
/// [`PushFixture`](crate::push::PushFixture); it is evaluated once per case.
#[macro_export]
macro_rules! push_conformance_suite {
    ($fixture:expr) => {
        $crate::conformance_cases! { $fixture;
            push_agents {
                unknown_agents_are_not_there
                newcomer_reads_back
                routes_name_one_channel
                later_connection_takes_over
                earlier_connection_is_superseded
                repeated_connection_succeeds
                unknown_agents_are_not_made_by_connecting
                clearing_needs_node_and_time
                cleared_agent_keeps_its_time
                renewed_connection_is_put_back
                seen_only_moves_forward
                dropped_agent_is_gone_with_everything
                batches_answer_in_order
                one_agent_twice_in_a_batch
                empty_batches_are_fine
                agents_survive_reopening
            }
            push_channels {
                channels_read_back_with_their_keys
                registering_again_replaces_the_key
                without_a_birth_nobody_is_made
                birth_of_one_who_exists_changes_nothing
                unregistered_channels_are_gone
                unregistering_keeps_messages
                channels_belong_to_their_agent
                items_of_a_batch_see_each_other
            }
            push_messages {
                messages_read_back_as_they_were
                messages_come_in_order_of_their_sequence
                items_are_judged_by_themselves
                repeating_an_id_is_harmless
                ids_belong_to_their_agent
                topic_keeps_the_newer
                topic_keeps_the_newer_inside_a_batch
                late_older_message_of_a_topic_is_outdated
                topics_belong_to_their_channel
                acked_messages_never_return
                acks_need_the_right_agent
                ack_of_a_replaced_message_leaves_the_new_one
                deleting_by_id_is_idempotent
                counting_leaves_out_the_expired
                trimming_drops_the_oldest
                unacked_messages_are_saved_once_and_in_order
                sequences_are_never_used_again
                large_bodies_are_kept
                messages_survive_reopening
            }
            push_reading {
                reading_goes_on_after_a_sequence
                reads_answer_each_ask
                a_census_is_bounded
                topics_are_read_first
                topics_and_others_go_on_by_themselves
                limit_goes_across_both_parts
                expired_topics_leave_room_for_others
                replaced_topics_are_read_again
                expired_messages_are_not_read
            }
            push_upkeep {
                expired_messages_go_in_bites
                longest_expired_go_first
                stale_agents_go_in_bites
                agents_with_many_messages_go_in_bites
                dropped_messages_are_never_seen_again
                seen_agents_stay
                upkeep_without_work_does_nothing
                expiry_makes_room_for_the_id
            }
            push_races {
                concurrent_stores_are_all_kept_in_commit_order
                batches_over_the_same_agents_do_not_block_each_other
                concurrent_topics_leave_one
                concurrent_repeats_are_stored_once
                connecting_races_with_clearing
                one_of_many_connections_stays
                registering_races_with_dropping
                storing_races_with_dropping
                connecting_races_with_expiry
                expiry_races_with_everything
            }
        }
    };
}
