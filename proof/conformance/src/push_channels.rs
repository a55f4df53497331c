//! Channels of agents.

use posthorn_domain::push::KeyHash;

use super::builders::at;
use super::push::{
    NODE, OTHER, PushFixture, Scene, agent_id, channel_id, further, look, newcomer, register,
    store_all,
};
use posthorn_store::push::{Birth, Channel, Kept, Register, Registered};

/// All channels read back, by id, each with its key.
pub async fn channels_read_back_with_their_keys(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let mut expected = vec![Channel { id: scene.channel, key: None }];
    for number in 0..20_u8 {
        let key = (number % 2 == 0).then_some(KeyHash([number; 32]));
        let channel = channel_id();
        let reply = register(&*scene.store, Register { key, ..further(scene.agent, channel) });
        assert_eq!(reply.await, Registered::New);
        expected.push(Channel { id: channel, key });
    }
    expected.sort_by_key(|channel| channel.id);
    let scene = scene.reopen(fixture).await;
    assert_eq!(scene.look().await.channels, expected);
}

/// A channel that is registered again has the new key, or none.
pub async fn registering_again_replaces_the_key(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    for key in [Some(KeyHash([1; 32])), Some(KeyHash([2; 32])), None] {
        let again = Register { key, ..further(scene.agent, scene.channel) };
        assert_eq!(register(&*scene.store, again).await, Registered::Again);
        assert_eq!(scene.look().await.channels, [Channel { id: scene.channel, key }]);
    }
}

/// Only an item with a birth makes an agent.
pub async fn without_a_birth_nobody_is_made(fixture: &dyn PushFixture) {
    let store = fixture.push_store().await;
    let agent = agent_id();
    let reply = register(&*store, further(agent, channel_id())).await;
    assert_eq!(reply, Registered::AgentGone);
    assert_eq!(look(&*store, agent).await, None);
}

/// A birth says nothing about an agent that exists: no connection is overwritten.
pub async fn birth_of_one_who_exists_changes_nothing(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let before = scene.look().await.router;
    let birth = Some(Birth { node: OTHER.to_owned(), connected_at: at(90) });
    let channel = channel_id();
    let item = Register { birth: birth.clone(), ..further(scene.agent, channel) };
    assert_eq!(register(&*scene.store, item).await, Registered::New);
    let item = Register { birth, ..further(scene.agent, channel) };
    assert_eq!(register(&*scene.store, item).await, Registered::Again);
    assert_eq!(scene.look().await.router, before);
    assert_eq!(scene.look().await.channels.len(), 2);
}

/// An unregistered channel takes no messages; the agent stays even without any.
pub async fn unregistered_channels_are_gone(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let item = (scene.agent, scene.channel);
    let batch = vec![item, (scene.agent, channel_id()), (agent_id(), scene.channel), item];
    let replies = scene.store.unregister_channels(batch).await.expect("unregister");
    assert_eq!(replies, [true, false, false, false]);
    assert_eq!(store_all(&*scene.store, vec![scene.message(0)]).await, [Kept::ChannelGone]);
    let scene = scene.reopen(fixture).await;
    assert!(scene.look().await.channels.is_empty());
    let again = register(&*scene.store, further(scene.agent, scene.channel)).await;
    assert_eq!(again, Registered::New);
}

/// What was stored for a channel is read although the channel is gone.
pub async fn unregistering_keeps_messages(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let message = scene.message(0);
    scene.store_one(message.clone()).await;
    let gone = vec![(scene.agent, scene.channel)];
    scene.store.unregister_channels(gone).await.expect("unregister");
    assert_eq!(scene.ids().await, [message.id]);
}

/// The same channel id at two agents is two channels.
pub async fn channels_belong_to_their_agent(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let (other, _) = newcomer(&*scene.store, at(0)).await;
    let item = Register { key: Some(KeyHash([5; 32])), ..further(other, scene.channel) };
    assert_eq!(register(&*scene.store, item).await, Registered::New);
    assert_eq!(scene.look().await.channels, [Channel { id: scene.channel, key: None }]);
    let gone = vec![(scene.agent, scene.channel)];
    scene.store.unregister_channels(gone).await.expect("unregister");
    assert_eq!(look(&*scene.store, other).await.expect("there").channels.len(), 2);
}

/// Items of one batch are judged one after the other, and each by itself.
pub async fn items_of_a_batch_see_each_other(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let (fresh, lost) = (agent_id(), agent_id());
    let (one, two) = (channel_id(), channel_id());
    let birth = Some(Birth { node: NODE.to_owned(), connected_at: at(4) });
    let batch = vec![
        further(fresh, one),
        Register { birth, ..further(fresh, one) },
        further(fresh, two),
        further(lost, one),
        Register { key: Some(KeyHash([3; 32])), ..further(fresh, one) },
        further(scene.agent, scene.channel),
    ];
    let replies = scene.store.register_channels(batch).await.expect("register");
    use Registered::{Again, AgentGone, New};
    assert_eq!(replies, [AgentGone, New, New, AgentGone, Again, Again]);
    let agent = look(&*scene.store, fresh).await.expect("there");
    assert_eq!(agent.router.connected_at, at(4));
    let mut channels =
        [Channel { id: one, key: Some(KeyHash([3; 32])) }, Channel { id: two, key: None }];
    channels.sort_by_key(|channel| channel.id);
    assert_eq!(agent.channels, channels);
    assert_eq!(look(&*scene.store, lost).await, None);
}
