//! Cases about receivers that have only failed, and about subscriptions that stood still.

use posthorn_domain::{
    CatalogVersion, DeliveryId, Epoch, Fence, Subscription, SubscriptionId, SubscriptionStatus,
};

use super::Fixture;
use super::builders::{Setting, all_shards, at, delivered, failed};
use posthorn_store::{CatalogChange, FailingSubscription, Record, Recorded, Standing, Streak};

fn streak(since: i64, exhausted: bool) -> Streak {
    Streak { since: at(since), exhausted, told: false }
}

async fn known(setting: &Setting) -> Vec<(SubscriptionId, Streak)> {
    let rows = setting.store.failing(&all_shards()).await.expect("an answer");
    rows.into_iter()
        .map(|FailingSubscription { subscription, streak }| (subscription, streak))
        .collect()
}

/// A failure that says something about the receiver.
async fn report(setting: &Setting, id: DeliveryId, failing: Option<Streak>) -> Record {
    let subscription = setting.look(id).await.subscription;
    let standing = Some(Standing { subscription, failing });
    Record { standing, ..setting.report(id, failed(at(20)), at(10)).await }
}

async fn stored(setting: &Setting, id: SubscriptionId) -> Subscription {
    let all = setting.store.catalog_since(CatalogVersion(0)).await.expect("the catalog");
    all.subscriptions.into_iter().find(|found| found.id == id).expect("it is there")
}

async fn turn(setting: &Setting, id: SubscriptionId, status: SubscriptionStatus, when: i64) {
    let mut subscription = stored(setting, id).await;
    subscription.turn(status, at(when));
    let subscription = Box::new(subscription);
    let change = CatalogChange::UpdateSubscription { subscription, expected: None };
    setting.store.change_catalog(change).await.expect("a change");
}

/// A streak is kept with its outcomes, the earliest beginning counts, and a success ends it.
pub async fn streaks_are_kept_until_a_success(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let id = setting.publish_one(subscription).await;
    assert_eq!(known(&setting).await, []);
    for (said, kept) in [
        (streak(5, false), streak(5, false)),
        (streak(3, true), streak(3, true)),
        (streak(9, false), streak(3, true)),
    ] {
        let record = report(&setting, id, Some(said)).await;
        setting.record_one(record).await;
        assert_eq!(known(&setting).await, [(subscription, kept)]);
    }
    let setting = setting.reopen(fixture).await;
    assert_eq!(known(&setting).await, [(subscription, streak(3, true))]);
    let none = setting.store.failing(&[]).await.expect("an answer");
    assert_eq!(none, [], "only of the shards that were asked for");
    // In one batch the last word counts.
    let other = setting.publish_one(subscription).await;
    let batch = vec![
        report(&setting, id, None).await,
        report(&setting, other, Some(streak(30, false))).await,
    ];
    setting.store.record(batch).await.expect("written");
    assert_eq!(known(&setting).await, [(subscription, streak(30, false))]);
    let record = Record {
        standing: Some(Standing { subscription, failing: None }),
        ..setting.report(id, delivered(), at(40)).await
    };
    setting.record_one(record).await;
    assert_eq!(known(&setting).await, []);
}

/// What a late writer says of a receiver is not believed; what the owner says is, whatever became of
/// the delivery.
pub async fn streaks_are_written_by_owners_only(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let id = setting.publish_one(subscription).await;
    let record = report(&setting, id, Some(streak(5, false))).await;
    let epoch = Epoch(record.fence.epoch.0 + 1);
    let late = Record { fence: Fence { epoch, ..record.fence }, ..record.clone() };
    assert_eq!(setting.record_one(late).await, Recorded::Fenced);
    assert_eq!(known(&setting).await, []);
    let old = Record { expected_attempts: 7, ..record };
    assert_eq!(setting.record_one(old).await, Recorded::Superseded);
    assert_eq!(known(&setting).await, [(subscription, streak(5, false))]);
}

/// Whoever goes on after a stop begins anew, and whoever is deleted is forgotten.
pub async fn streaks_end_when_a_subscription_goes_on_or_leaves(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let id = setting.publish_one(subscription).await;
    let record = report(&setting, id, Some(streak(5, true))).await;
    setting.record_one(record).await;
    turn(&setting, subscription, SubscriptionStatus::Active, 11).await;
    assert_eq!(known(&setting).await.len(), 1, "it went on all the time");
    let reason = "failing".to_owned();
    turn(&setting, subscription, SubscriptionStatus::Disabled { reason }, 12).await;
    assert_eq!(known(&setting).await.len(), 1);
    turn(&setting, subscription, SubscriptionStatus::Active, 13).await;
    assert_eq!(known(&setting).await, []);
    let record = report(&setting, id, Some(streak(15, false))).await;
    setting.record_one(record).await;
    setting.unsubscribe(subscription, at(16)).await;
    assert_eq!(known(&setting).await, []);
}

/// When a subscription stood still is kept with it.
pub async fn stops_read_back_as_they_were(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    turn(&setting, subscription, SubscriptionStatus::Paused, 100).await;
    turn(&setting, subscription, SubscriptionStatus::Active, 130).await;
    turn(&setting, subscription, SubscriptionStatus::Paused, 200).await;
    let setting = setting.reopen(fixture).await;
    let found = stored(&setting, subscription).await.stops;
    assert_eq!(found.shifted(at(0), at(250)), at(80));
    assert_eq!(found.shifted(at(150), at(180)), at(150));
}

/// That a streak was told is kept with it, and forgotten with it.
pub async fn streaks_remember_that_they_were_told(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let subscription = setting.subscribe().await;
    let id = setting.publish_one(subscription).await;
    let told = Streak { told: true, ..streak(5, false) };
    for (said, kept) in
        [(streak(5, false), streak(5, false)), (told, told), (streak(5, false), told)]
    {
        let record = report(&setting, id, Some(said)).await;
        setting.record_one(record).await;
        assert_eq!(known(&setting).await, [(subscription, kept)]);
    }
    let setting = setting.reopen(fixture).await;
    assert_eq!(known(&setting).await, [(subscription, told)]);
    for (said, kept) in [(None, None), (Some(streak(9, false)), Some(streak(9, false)))] {
        let record = report(&setting, id, said).await;
        setting.record_one(record).await;
        assert_eq!(known(&setting).await.first().map(|(_, streak)| *streak), kept);
    }
}
