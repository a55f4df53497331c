//! What an upgraded store must still be able to do, besides what the larger script compares.

use std::sync::Arc;

use posthorn_domain::{
    AgentId, CatalogVersion, ChannelId, DeliveryId, Event, MessageId, NodeId, Timestamp,
};
use posthorn_store::push::PushStore;
use posthorn_store::{Accepted, NewEvent, Store};

use super::{Still, compare_histories, early};
use crate::builders::{Setting, at, delivered, lane};
use crate::model::ModelStore;
use crate::push::{look, message, store_all, stored};

/// Everything that [`early::fill`] has made is there, and goes on.
pub async fn check_early(store: &Arc<dyn Store>) {
    let model: Arc<dyn Store> = Arc::new(ModelStore::new(Arc::new(Still)));
    let node = NodeId::new(at(0), 1);
    let mut first = Setting::on(Arc::clone(&model), posthorn_domain::TenantId::DEFAULT, node).await;
    early::fill(&mut first).await;
    check_catalog(&**store).await;
    compare_histories(&**store, &*model, early::tenant_id()).await;
    let second = Setting::on(Arc::clone(store), early::tenant_id(), node).await;
    for setting in [&first, &second] {
        go_on(setting).await;
    }
    compare_histories(&**store, &*model, early::tenant_id()).await;
}

async fn check_catalog(store: &dyn Store) {
    let found = store.catalog_since(CatalogVersion(0)).await.expect("the catalog");
    let tenant = found.tenants.iter().find(|entry| entry.tenant.id == early::tenant_id());
    assert_eq!(tenant.expect("the tenant is there").tenant.name, "early é");
    let mut subscriptions: Vec<_> = found.subscriptions.iter().map(|found| found.id).collect();
    subscriptions.sort_unstable();
    assert_eq!(subscriptions, [early::HOOK, early::LANES].map(early::subscription_id));
    let gone = (early::tenant_id(), early::subscription_id(early::GONE));
    assert!(found.removed_subscriptions.contains(&gone));
    let mut keys: Vec<_> = found.keys.iter().map(|key| (key.id, key.tenant, key.hash)).collect();
    keys.sort_unstable_by_key(|key| key.0);
    let wanted = [
        (early::key_id(521), None, [21; 32]),
        (early::key_id(522), Some(early::tenant_id()), [21; 32]),
    ];
    assert_eq!(keys, wanted);
    assert!(found.topics.iter().any(|topic| topic.tenant == early::tenant_id()));
}

/// What waits is claimed and recorded in the order of its lane, and a key of a publish still holds.
async fn go_on(setting: &Setting) {
    let lanes = early::subscription_id(early::LANES);
    let heads = || async {
        let mut ready = setting.ready(lanes).await;
        ready.sort_unstable();
        ready
    };
    let ids = |numbers: &[u128]| -> Vec<DeliveryId> {
        numbers.iter().map(|number| early::delivery_id(*number)).collect()
    };
    for (number, then) in [(611, &[612, 616][..]), (612, &[613, 616]), (616, &[613, 617])] {
        setting.record(early::delivery_id(number), delivered(), at(700)).await;
        assert_eq!(heads().await, ids(then), "after {number}");
    }
    setting.record(early::delivery_id(604), delivered(), at(701)).await;
    let again = early::plan(setting, 601, early::HOOK, None).await;
    check_key(setting, again).await;
    let last = early::plan(setting, 699, early::LANES, lane("waits")).await;
    setting.accept(last).await;
    assert_eq!(heads().await, ids(&[613, 617]), "what is new comes last");
}

/// A repeat of what was published before is known by its key, whatever its id is.
pub(super) async fn check_key(setting: &Setting, published: NewEvent) {
    let first = published.event.id;
    let id = posthorn_domain::EventId::new(at(0), 998);
    let event = Arc::new(Event { id, ..(*published.event).clone() });
    let repeat = NewEvent { event, deliveries: Vec::new(), ..published };
    let replies = setting.store.accept(vec![repeat]).await.expect("a reply");
    let known = matches!(replies[..], [Accepted::Duplicate { event }] if event == first);
    assert!(known, "{replies:?}");
}

/// The rows of Web Push that a store's tests have put in by hand: an agent with a channel, a message, and a later one with
/// a topic.
pub async fn check_push(store: &dyn PushStore) {
    let id = |last: u8| {
        let mut bytes = [0; 16];
        (bytes[6], bytes[8], bytes[15]) = (0x40, 0x80, last);
        bytes
    };
    let (agent, channel) = (AgentId::from_bytes(id(0xa1)), ChannelId::from_bytes(id(0xc1)));
    let found = look(store, agent).await.expect("the agent is there");
    assert_eq!(found.router.node.as_deref(), Some(crate::push::NODE));
    assert_eq!(found.router.created_at, Timestamp::from_millis(1_700_000_000_000));
    assert_eq!(found.channels.iter().map(|found| found.id).collect::<Vec<_>>(), [channel]);
    let waiting = || async {
        let waiting = stored(store, agent, at(0)).await;
        let told = waiting.into_iter().map(|stored| (stored.message.id, stored.message.body));
        told.collect::<Vec<_>>()
    };
    let (plain, about) = (MessageId::from_bytes(id(0xe1)), MessageId::from_bytes(id(0xe2)));
    let bodies = [(plain, Some("plain".into())), (about, Some("topical".into()))];
    assert_eq!(waiting().await, bodies);
    let new = message(agent, channel, 10);
    let (last, body) = (new.id, new.body.clone());
    store_all(store, vec![new]).await;
    assert_eq!(store.delete_messages(vec![(agent, plain)]).await.expect("an answer"), [true]);
    assert_eq!(waiting().await, [(about, Some("topical".into())), (last, body)]);
}
