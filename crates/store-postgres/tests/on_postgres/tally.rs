//! Counts that are kept instead of counted are right, whoever changes what at the same time.

use std::sync::Arc;

use posthorn_conformance::builders::{Setting, at, dead_skip, delivered, failed};
use posthorn_domain::{DeliveryState, SubscriptionId};
use posthorn_store::Store;

use crate::fixture::{Databases, connect, raw};

/// Publishes and brings to different ends, on a store of its own.
async fn work(mut setting: Setting, store: Arc<dyn Store>, to: [SubscriptionId; 2]) {
    setting.store = store;
    for round in 0..25 {
        let published = setting.publish(&[(to[0], None), (to[1], None)]).await;
        let [one, two] = published.deliveries[..] else { panic!("two deliveries") };
        setting.record(one, delivered(), at(1)).await;
        let tenant = setting.tenant;
        match round % 5 {
            0 => drop(setting.record(two, dead_skip(), at(1)).await),
            1 => {
                setting.record(two, dead_skip(), at(1)).await;
                setting.store.retry_delivery(tenant, two, at(2)).await.expect("a retry");
            }
            2 => drop(setting.store.cancel_delivery(tenant, two, at(2)).await.expect("a cancel")),
            3 => drop(setting.store.forget_delivery(tenant, two, at(2)).await.expect("forgotten")),
            _ => drop(setting.record(two, failed(at(9)), at(1)).await),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tally_is_right_after_many_changes_at_once() {
    let databases = Databases::default();
    let setting = Setting::new(&databases).await;
    let url = databases.url_of(&setting.store);
    let to = [setting.subscribe().await, setting.subscribe().await];
    // All are there before the first begins and until the last is done: who leaves makes room in a slot.
    let mut stores: Vec<Arc<dyn Store>> = Vec::new();
    for _ in 0..4 {
        stores.push(Arc::new(connect(&url).await));
    }
    let mut tasks = Vec::new();
    for store in &stores {
        let own = Setting::on(Arc::clone(&setting.store), setting.tenant, setting.node).await;
        tasks.push(tokio::spawn(work(own, Arc::clone(store), to)));
    }
    for task in tasks {
        task.await.expect("the work");
    }
    let counts = setting.store.counts(Some(setting.tenant)).await.expect("counts");
    let found = [counts.events, counts.pending, counts.delivered, counts.dead, counts.cancelled];
    assert_eq!(found, [100, 40, 100, 20, 20]);
    assert_eq!(connect(&url).await.recount().await.expect("a count"), 0, "nothing to correct");
    let client = raw(&url).await;
    let slots = "select count(distinct slot) from tally where tenant <> '00000000-0000-0000-0000-000000000000'";
    let slots: i64 = client.query_one(slots, &[]).await.expect("a count").get(0);
    assert!(slots >= 4, "{slots} slots: nobody waits for another");
}

#[tokio::test]
async fn a_wrong_tally_is_corrected() {
    let databases = Databases::default();
    let setting = Setting::new(&databases).await;
    let url = databases.url_of(&setting.store);
    let to = setting.subscribe().await;
    let id = setting.publish_one(to).await;
    setting.publish_one(to).await;
    setting.record(id, delivered(), at(1)).await;
    assert_eq!(setting.look(id).await.state, DeliveryState::Delivered);
    let right = setting.store.counts(None).await.expect("counts");
    assert_eq!((right.events, right.pending, right.delivered), (2, 1, 1));
    let client = raw(&url).await;
    let harm = "update tally set events = events + 7, pending = pending - 3";
    client.batch_execute(harm).await.expect("harm");
    let store = connect(&url).await;
    assert_eq!(store.recount().await.expect("a count"), 1);
    assert_eq!(store.counts(None).await.expect("counts"), right);
    assert_eq!(store.recount().await.expect("a count"), 0);
}
