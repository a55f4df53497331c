//! Agents: where they are, who says so last, and how they go.

use posthorn_domain::ChannelId;

use posthorn_domain::push::KeyHash;

use super::builders::at;
use super::push::{
    NODE, OTHER, PushFixture, Scene, agent_id, channel_id, clear, connect, further, look, newcomer,
    register, renew, store_all, stored,
};
use posthorn_store::push::{
    Agent, Birth, Channel, Connect, Connected, Kept, Register, Registered, RouteAsk, Router,
};

/// Nothing is known of an id that nobody registered.
pub async fn unknown_agents_are_not_there(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let (agent, channel) = (agent_id(), channel_id());
    assert_eq!(look(&*scene.store, agent).await, None);
    let routes = scene.store.routes(vec![RouteAsk { agent, channel }]).await.expect("routes");
    assert_eq!(routes, [None]);
    assert!(stored(&*scene.store, agent, at(0)).await.is_empty());
    assert_eq!(scene.store.count_messages(vec![agent], at(0), 9).await.expect("count"), [0]);
    assert!(!clear(&*scene.store, agent, NODE, 0).await);
    assert_eq!(scene.store.drop_agents(vec![agent]).await.expect("drop"), [false]);
}

/// The first channel makes the agent, with its connection.
pub async fn newcomer_reads_back(fixture: &dyn PushFixture) {
    let store = fixture.push_store().await;
    let (agent, channel) = (agent_id(), channel_id());
    let birth = Some(Birth { node: NODE.to_owned(), connected_at: at(7) });
    let first = Register { agent, channel, key: Some(KeyHash([9; 32])), at: at(8), birth };
    assert_eq!(register(&*store, first).await, Registered::New);
    let router = Router {
        node: Some(NODE.to_owned()),
        connected_at: at(7),
        created_at: at(8),
        seen_at: at(8),
    };
    let channels = vec![Channel { id: channel, key: Some(KeyHash([9; 32])) }];
    assert_eq!(look(&*store, agent).await, Some(Agent { id: agent, router, channels }));
}

/// A route has the router record and the one channel that was asked for.
pub async fn routes_name_one_channel(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let (agent, bound, absent) = (scene.agent, channel_id(), channel_id());
    let more = Register { key: Some(KeyHash([1; 32])), ..further(agent, bound) };
    assert_eq!(register(&*scene.store, more).await, Registered::New);
    let ask = |channel: ChannelId| RouteAsk { agent, channel };
    let asks = vec![ask(bound), ask(absent), ask(scene.channel), ask(bound)];
    let routes = scene.store.routes(asks).await.expect("routes");
    let router = scene.look().await.router;
    let expected = [Some(Some(KeyHash([1; 32]))), None, Some(None), Some(Some(KeyHash([1; 32])))];
    assert_eq!(routes.len(), expected.len());
    for (route, key) in routes.into_iter().zip(expected) {
        let route = route.expect("the agent is there");
        assert_eq!(route.router, router);
        assert_eq!(route.channel.map(|channel| channel.key), key);
    }
}

/// A later connection is on record, and the reply tells the node before.
pub async fn later_connection_takes_over(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let reply = connect(&*scene.store, scene.agent, OTHER, 10).await;
    let Connected::Here { agent, before } = reply else { panic!("here, not {reply:?}") };
    assert_eq!(before.as_deref(), Some(NODE));
    let router = Router {
        node: Some(OTHER.to_owned()),
        connected_at: at(10),
        created_at: at(0),
        seen_at: at(10),
    };
    assert_eq!(agent.router, router);
    assert_eq!(agent.channels, [Channel { id: scene.channel, key: None }]);
    assert_eq!(scene.look().await, agent);
}

/// An earlier one, or one of the same moment elsewhere, changes nothing.
pub async fn earlier_connection_is_superseded(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    connect(&*scene.store, scene.agent, NODE, 10).await;
    let before = scene.look().await;
    for (node, millis) in [(OTHER, 9), (OTHER, 10), (NODE, 9)] {
        let reply = connect(&*scene.store, scene.agent, node, millis).await;
        let router = before.router.clone();
        assert_eq!(reply, Connected::Superseded { router }, "{node} {millis}");
        assert_eq!(scene.look().await, before);
    }
}

/// The same node with the same moment is a repeat.
pub async fn repeated_connection_succeeds(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    connect(&*scene.store, scene.agent, OTHER, 10).await;
    let before = scene.look().await;
    let reply = connect(&*scene.store, scene.agent, OTHER, 10).await;
    assert!(matches!(reply, Connected::Here { .. }), "{reply:?}");
    assert_eq!(scene.look().await, before);
}

/// Connecting makes nobody.
pub async fn unknown_agents_are_not_made_by_connecting(fixture: &dyn PushFixture) {
    let store = fixture.push_store().await;
    let agent = agent_id();
    assert_eq!(connect(&*store, agent, NODE, 1).await, Connected::Unknown);
    assert_eq!(look(&*store, agent).await, None);
}

/// A node is taken off only when both node and time are those on record.
pub async fn clearing_needs_node_and_time(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    connect(&*scene.store, scene.agent, NODE, 10).await;
    let before = scene.look().await;
    for (node, millis) in [(OTHER, 10), (NODE, 0), (NODE, 11)] {
        assert!(!clear(&*scene.store, scene.agent, node, millis).await, "{node} {millis}");
        assert_eq!(scene.look().await, before);
    }
    assert!(clear(&*scene.store, scene.agent, NODE, 10).await);
    assert_eq!(scene.look().await.router.node, None);
    assert!(!clear(&*scene.store, scene.agent, NODE, 10).await, "there is nothing left");
}

/// A cleared agent is still older than its last connection, and connects again later.
pub async fn cleared_agent_keeps_its_time(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    connect(&*scene.store, scene.agent, NODE, 10).await;
    assert!(clear(&*scene.store, scene.agent, NODE, 10).await);
    let router = scene.look().await.router;
    assert_eq!((router.connected_at, router.seen_at), (at(10), at(10)));
    let reply = connect(&*scene.store, scene.agent, OTHER, 9).await;
    assert_eq!(reply, Connected::Superseded { router });
    assert_eq!(scene.look().await.router.node, None);
    let reply = connect(&*scene.store, scene.agent, OTHER, 11).await;
    assert!(matches!(reply, Connected::Here { before: None, .. }), "{reply:?}");
}

/// A living connection whose node was taken off comes back with its renewal, unless there is a later
/// one.
pub async fn renewed_connection_is_put_back(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    connect(&*scene.store, scene.agent, NODE, 10).await;
    assert!(clear(&*scene.store, scene.agent, NODE, 10).await);
    let reply = renew(&*scene.store, scene.agent, NODE, 10, 70).await;
    let Connected::Here { agent, before: None } = reply else { panic!("here, not {reply:?}") };
    let router = scene.look().await.router;
    assert_eq!(agent.router, router);
    assert_eq!((router.node.as_deref(), router.connected_at), (Some(NODE), at(10)));
    assert_eq!(router.seen_at, at(70));

    connect(&*scene.store, scene.agent, OTHER, 80).await;
    assert!(clear(&*scene.store, scene.agent, OTHER, 80).await);
    let before = scene.look().await.router;
    let reply = renew(&*scene.store, scene.agent, NODE, 10, 90).await;
    assert_eq!(reply, Connected::Superseded { router: before.clone() });
    assert_eq!(scene.look().await.router, before, "not even seen");
}

/// `seen_at` moves forward, with every connection and renewal, and never back.
pub async fn seen_only_moves_forward(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    for (made, seen, expected) in [(10, 30, 30), (10, 20, 30), (15, 15, 30), (40, 40, 40)] {
        let reply = renew(&*scene.store, scene.agent, NODE, made, seen).await;
        let Connected::Here { agent, .. } = reply else { panic!("here, not {reply:?}") };
        assert_eq!(agent.router, scene.look().await.router);
        assert_eq!((agent.router.connected_at, agent.router.seen_at), (at(made), at(expected)));
    }
}

/// A dropped agent leaves nothing, even when its id is used again.
pub async fn dropped_agent_is_gone_with_everything(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let (store, agent) = (&*scene.store, scene.agent);
    let (bystander, channel) = newcomer(store, at(0)).await;
    scene.store_one(scene.message(0)).await;
    scene.store_one(scene.about("t", 0)).await;
    assert_eq!(store.drop_agents(vec![agent, agent]).await.expect("drop"), [true, false]);
    assert_eq!(look(store, agent).await, None);
    assert!(scene.stored().await.is_empty());
    assert_eq!(store_all(store, vec![scene.message(1)]).await, [Kept::AgentGone]);
    assert_eq!(connect(store, agent, NODE, 50).await, Connected::Unknown);
    let gone = register(store, further(agent, channel_id())).await;
    assert_eq!(gone, Registered::AgentGone);

    let birth = Some(Birth { node: OTHER.to_owned(), connected_at: at(3) });
    let again = Register { birth, ..further(agent, channel) };
    assert_eq!(register(store, again).await, Registered::New);
    assert_eq!(scene.look().await.channels, [Channel { id: channel, key: None }]);
    assert!(scene.stored().await.is_empty());
    assert!(look(store, bystander).await.is_some(), "others stay");
}

/// Replies come in the order of the batch, those about nobody included.
pub async fn batches_answer_in_order(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let store = &*scene.store;
    let (second, _) = newcomer(store, at(20)).await;
    let nobody = agent_id();
    let connects = [(second, 10), (nobody, 10), (scene.agent, 10)].map(|(agent, millis)| Connect {
        agent,
        node: OTHER.to_owned(),
        at: at(millis),
        seen: at(millis),
    });
    let replies = store.connect_agents(connects.to_vec()).await.expect("connect");
    let Connected::Superseded { router } = &replies[0] else { panic!("{replies:?}") };
    assert_eq!(router.connected_at, at(20));
    assert_eq!(replies[1], Connected::Unknown);
    let Connected::Here { agent, .. } = &replies[2] else { panic!("{replies:?}") };
    assert_eq!(agent.id, scene.agent);
    let found = store.agents(vec![nobody, scene.agent, second, scene.agent]).await.expect("agents");
    let found: Vec<_> = found.into_iter().map(|agent| agent.map(|agent| agent.id)).collect();
    assert_eq!(found, [None, Some(scene.agent), Some(second), Some(scene.agent)]);
    let dropped = store.drop_agents(vec![nobody, second]).await.expect("drop");
    assert_eq!(dropped, [false, true]);
}

/// Items about the same agent are judged one after the other.
pub async fn one_agent_twice_in_a_batch(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    let batch = [(NODE, 10), (OTHER, 20), (NODE, 15)].map(|(node, millis)| Connect {
        agent: scene.agent,
        node: node.to_owned(),
        at: at(millis),
        seen: at(millis),
    });
    let replies = scene.store.connect_agents(batch.to_vec()).await.expect("connect");
    assert!(matches!(replies[0], Connected::Here { .. }), "{replies:?}");
    let Connected::Here { agent, before } = &replies[1] else { panic!("{replies:?}") };
    assert_eq!((agent.router.connected_at, before.as_deref()), (at(20), Some(NODE)));
    assert!(matches!(replies[2], Connected::Superseded { .. }), "{replies:?}");
    assert_eq!(scene.look().await.router.node.as_deref(), Some(OTHER));
    let gone = vec![
        posthorn_store::push::ClearNode {
            agent: scene.agent,
            node: OTHER.to_owned(),
            connected_at: at(20)
        };
        2
    ];
    assert_eq!(scene.store.clear_nodes(gone).await.expect("clear"), [true, false]);
}

/// Nothing in, nothing out.
pub async fn empty_batches_are_fine(fixture: &dyn PushFixture) {
    let store = fixture.push_store().await;
    assert!(store.routes(vec![]).await.expect("routes").is_empty());
    assert!(store.agents(vec![]).await.expect("agents").is_empty());
    assert!(store.connect_agents(vec![]).await.expect("connect").is_empty());
    assert!(store.clear_nodes(vec![]).await.expect("clear").is_empty());
    assert!(store.drop_agents(vec![]).await.expect("drop").is_empty());
    assert!(store.register_channels(vec![]).await.expect("register").is_empty());
    assert!(store.unregister_channels(vec![]).await.expect("unregister").is_empty());
    assert!(store.store_messages(vec![]).await.expect("store").is_empty());
    assert!(store.messages(vec![]).await.expect("messages").is_empty());
    assert!(store.count_messages(vec![], at(0), 9).await.expect("count").is_empty());
    assert!(store.ack_messages(vec![]).await.expect("ack").is_empty());
    assert!(store.delete_messages(vec![]).await.expect("delete").is_empty());
    assert!(store.trim_messages(vec![], at(0)).await.expect("trim").is_empty());
}

/// Agents, channels and connections are there after a crash.
pub async fn agents_survive_reopening(fixture: &dyn PushFixture) {
    let scene = Scene::new(fixture).await;
    connect(&*scene.store, scene.agent, OTHER, 10).await;
    let (dropped, _) = newcomer(&*scene.store, at(0)).await;
    scene.store.drop_agents(vec![dropped]).await.expect("drop");
    let before = scene.look().await;
    let scene = scene.reopen(fixture).await;
    assert_eq!(scene.look().await, before);
    assert_eq!(look(&*scene.store, dropped).await, None);
}
