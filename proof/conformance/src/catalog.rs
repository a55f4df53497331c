//! Cases about tenants, topics, subscriptions and keys.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use posthorn_domain::filter::AttributeValues;
use posthorn_domain::{
    AgentId, CatalogVersion, ChannelId, Destination, KeyId, PushServiceTarget, PushTarget,
    PushUrgency, SealedSecret, SecretName, SubscriptionId, SubscriptionStatus, TenantId, TopicName,
};

use super::Fixture;
use super::builders::{Setting, api_key, at, subscription, tenant, topic, unique};
use super::changes::{change, refused, since};
use posthorn_store::{CatalogChange, Refusal};

/// A store begins with the default tenant.
pub async fn fresh_store_has_the_default_tenant(fixture: &dyn Fixture) {
    let store = fixture.store().await;
    let delta = store.catalog_since(CatalogVersion(0)).await.expect("the whole catalog");
    assert_eq!(delta.tenants.len(), 1);
    assert_eq!(delta.tenants[0].tenant.id, TenantId::DEFAULT);
    assert_eq!(delta.tenants[0].tenant.name, "default");
    assert!(delta.tenants[0].version > CatalogVersion(0));
    assert!(delta.version >= delta.tenants[0].version);
    assert!(delta.topics.is_empty() && delta.subscriptions.is_empty() && delta.keys.is_empty());
}

/// Each change gets a greater version, and only the changed tenant moves on.
pub async fn versions_grow_and_belong_to_their_tenant(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let other = setting.other_tenant().await;
    let before = setting.version_of(other).await;
    let first =
        change(&setting, CatalogChange::PutTopic(topic(setting.tenant, "a"))).await.expect("put");
    let second =
        change(&setting, CatalogChange::PutTopic(topic(setting.tenant, "b"))).await.expect("put");
    assert!(before < first && first < second);
    assert_eq!(setting.version_of(setting.tenant).await, second);
    assert_eq!(setting.version_of(other).await, before);
    assert_eq!(since(&setting, CatalogVersion(0)).await.version, second);
}

/// All fields of everything come back.
pub async fn everything_reads_back_as_it_was_written(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let topic = topic(setting.tenant, "orders/eu:1.x");
    let mut plain = subscription(setting.tenant);
    let mut rich = subscription(setting.tenant);
    rich.description = "with an é and a \"quote\"".to_owned();
    rich.destination = Destination::Webhook { url: "https://example.test/hook?a=b".to_owned() };
    rich.overrides = serde_json::json!({"schedule": {"max_attempts": 3}, "spacing": null});
    rich.status = SubscriptionStatus::Disabled { reason: "gone".to_owned() };
    let sizes = AttributeValues::AnyOf(vec!["s".to_owned(), "m".to_owned()]);
    rich.filter.any_of[0].attributes.insert("colour".to_owned(), "red".into());
    rich.filter.any_of[0].attributes.insert("size".to_owned(), sizes);
    rich.updated_at = at(5);
    rich.secrets = vec![
        SealedSecret {
            name: SecretName::new("signing").expect("a proper name"),
            sealed: Bytes::from_static(&[0, 255, 1, 128]),
            created_at: at(1),
            expires_at: Some(at(2)),
        },
        SealedSecret {
            name: SecretName::new("signing").expect("a proper name"),
            sealed: Bytes::new(),
            created_at: at(2),
            expires_at: None,
        },
    ];
    let mut push = subscription(setting.tenant);
    push.destination = Destination::Push(PushTarget {
        agent: AgentId::from_random(1),
        channel: ChannelId::from_random(2),
        p256dh: Some("BPublic".into()),
        ttl: 60,
        urgency: PushUrgency::High,
        topic: Some("{event.key}".parse().expect("a topic")),
    });
    let mut elsewhere = subscription(setting.tenant);
    elsewhere.destination = Destination::PushService(PushServiceTarget {
        origin: "https://push.example".into(),
        p256dh: "BPublic".into(),
        ttl: 60,
        urgency: PushUrgency::Normal,
        topic: None,
    });
    let (own, operator) = (api_key(Some(setting.tenant)), api_key(None));
    change(&setting, CatalogChange::PutTopic(topic.clone())).await.expect("put");
    for subscription in [&mut plain, &mut rich, &mut push, &mut elsewhere] {
        let created = CatalogChange::CreateSubscription(Box::new(subscription.clone()));
        subscription.version = change(&setting, created).await.expect("create");
    }
    change(&setting, CatalogChange::CreateKey(own.clone())).await.expect("create");
    change(&setting, CatalogChange::CreateKey(operator.clone())).await.expect("create");

    let mut all = since(&setting, CatalogVersion(0)).await;
    assert_eq!(all.topics, [topic]);
    all.subscriptions.sort_by_key(|subscription| subscription.id);
    assert_eq!(all.subscriptions, [plain, rich, push, elsewhere]);
    all.keys.sort_by_key(|key| key.id);
    assert_eq!(all.keys, [own, operator]);
}

/// A delta has exactly what changed after the version, removals included.
pub async fn delta_has_changes_and_removals(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (kept, gone) = (setting.subscribe().await, setting.subscribe().await);
    change(&setting, CatalogChange::PutTopic(topic(setting.tenant, "kept"))).await.expect("put");
    change(&setting, CatalogChange::PutTopic(topic(setting.tenant, "gone"))).await.expect("put");
    let key = api_key(Some(setting.tenant));
    let base = change(&setting, CatalogChange::CreateKey(key.clone())).await.expect("create");
    let nothing = since(&setting, base).await;
    assert_eq!(nothing.version, base);
    assert!(nothing.tenants.is_empty() && nothing.topics.is_empty() && nothing.keys.is_empty());
    assert!(nothing.subscriptions.is_empty() && nothing.removed_subscriptions.is_empty());

    let name = TopicName::new("gone").expect("a proper name");
    let removal = CatalogChange::DeleteTopic { tenant: setting.tenant, name: name.clone() };
    change(&setting, removal).await.expect("delete");
    setting.unsubscribe(gone, at(9)).await;
    let last =
        change(&setting, CatalogChange::RevokeKey { id: key.id, at: at(9) }).await.expect("revoke");
    let delta = since(&setting, base).await;
    assert_eq!(delta.version, last);
    assert_eq!(delta.removed_topics, [(setting.tenant, name)]);
    assert_eq!(delta.removed_subscriptions, [(setting.tenant, gone)]);
    assert!(delta.topics.is_empty() && delta.subscriptions.is_empty());
    assert_eq!(delta.keys.len(), 1);
    assert_eq!(delta.keys[0].revoked_at, Some(at(9)));
    assert_eq!(delta.tenants.len(), 1);
    assert_eq!((delta.tenants[0].tenant.id, delta.tenants[0].version), (setting.tenant, last));
    let whole = since(&setting, CatalogVersion(0)).await;
    assert_eq!(whole.subscriptions.iter().map(|s| s.id).collect::<Vec<_>>(), [kept]);
}

/// Applying deltas one after the other gives the same as asking for all.
pub async fn deltas_add_up_to_the_whole(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let mut version = CatalogVersion(0);
    let mut topics = BTreeMap::new();
    let mut subscriptions = BTreeSet::new();
    let mut ids: Vec<SubscriptionId> = Vec::new();
    for round in 0..6 {
        ids.push(setting.subscribe().await);
        let name = format!("t{}", round % 3);
        let put = CatalogChange::PutTopic(topic(setting.tenant, &name));
        change(&setting, put).await.expect("put");
        if round % 2 == 1 {
            setting.unsubscribe(ids.remove(0), at(round)).await;
            let name = TopicName::new(&name).expect("a proper name");
            let removal = CatalogChange::DeleteTopic { tenant: setting.tenant, name };
            change(&setting, removal).await.expect("delete");
        }
        let delta = since(&setting, version).await;
        assert!(delta.version > version);
        version = delta.version;
        for topic in delta.topics {
            topics.insert((topic.tenant, topic.name.clone()), topic);
        }
        for gone in delta.removed_topics {
            topics.remove(&gone);
        }
        subscriptions.extend(delta.subscriptions.iter().map(|s| s.id));
        for (_, gone) in delta.removed_subscriptions {
            subscriptions.remove(&gone);
        }
    }
    let whole = since(&setting, CatalogVersion(0)).await;
    let mut all_topics = whole.topics.clone();
    all_topics.sort_by(|a, b| (a.tenant, &a.name).cmp(&(b.tenant, &b.name)));
    assert_eq!(topics.into_values().collect::<Vec<_>>(), all_topics);
    assert_eq!(subscriptions, whole.subscriptions.iter().map(|s| s.id).collect());
}

/// Neither id nor name of a tenant can be taken twice.
pub async fn tenants_are_unique_by_id_and_name(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let first = tenant();
    change(&setting, CatalogChange::CreateTenant(first.clone())).await.expect("create");
    let same_id = posthorn_domain::Tenant { id: first.id, ..tenant() };
    let same_name = posthorn_domain::Tenant { name: first.name.clone(), ..tenant() };
    refused(change(&setting, CatalogChange::CreateTenant(same_id)).await, Refusal::AlreadyExists);
    refused(change(&setting, CatalogChange::CreateTenant(same_name)).await, Refusal::AlreadyExists);
}

/// A topic that is put again gets new contents and keeps `created_at`.
pub async fn topics_are_put_again_and_keep_their_birth(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let mut first = topic(setting.tenant, "a");
    change(&setting, CatalogChange::PutTopic(first.clone())).await.expect("put");
    let again = posthorn_domain::Topic {
        description: "new".to_owned(),
        attributes: vec!["x".to_owned(), "y".to_owned()],
        created_at: at(99),
        ..first.clone()
    };
    change(&setting, CatalogChange::PutTopic(again.clone())).await.expect("put");
    first.description = again.description;
    first.attributes = again.attributes;
    assert_eq!(since(&setting, CatalogVersion(0)).await.topics, [first.clone()]);

    let name = first.name.clone();
    let removal = || CatalogChange::DeleteTopic { tenant: setting.tenant, name: name.clone() };
    change(&setting, removal()).await.expect("delete");
    refused(change(&setting, removal()).await, Refusal::NotFound);
    let stranger = topic(TenantId::new(at(0), unique().into()), "a");
    refused(change(&setting, CatalogChange::PutTopic(stranger)).await, Refusal::NotFound);

    first.created_at = at(100);
    change(&setting, CatalogChange::PutTopic(first.clone())).await.expect("put after delete");
    let whole = since(&setting, CatalogVersion(0)).await;
    assert_eq!(whole.topics, [first]);
    assert!(whole.removed_topics.is_empty(), "a topic that is back is not removed");
}

/// A topic is created once, however many try at the same time; a removed one can be created anew.
pub async fn topics_are_created_once(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let create = |topic: &posthorn_domain::Topic| CatalogChange::CreateTopic(topic.clone());
    let first = topic(setting.tenant, "a");
    let again = posthorn_domain::Topic { description: "new".to_owned(), ..first.clone() };
    let (one, two) =
        tokio::join!(change(&setting, create(&first)), change(&setting, create(&again)));
    let kept = match (one, two) {
        (Ok(_), two) => {
            refused(two, Refusal::AlreadyExists);
            first.clone()
        }
        (one, Ok(_)) => {
            refused(one, Refusal::AlreadyExists);
            again.clone()
        }
        other => panic!("one of them is made: {other:?}"),
    };
    let whole = since(&setting, CatalogVersion(0)).await;
    assert_eq!(whole.topics, [kept]);
    refused(change(&setting, create(&again)).await, Refusal::AlreadyExists);
    assert_eq!(since(&setting, CatalogVersion(0)).await.version, whole.version, "nothing changed");
    let stranger = topic(TenantId::new(at(0), unique().into()), "a");
    refused(change(&setting, create(&stranger)).await, Refusal::NotFound);
    let removal = CatalogChange::DeleteTopic { tenant: setting.tenant, name: first.name.clone() };
    change(&setting, removal).await.expect("delete");
    let anew = posthorn_domain::Topic { created_at: at(77), ..again };
    change(&setting, create(&anew)).await.expect("created anew");
    assert_eq!(since(&setting, CatalogVersion(0)).await.topics, [anew]);
}

/// A subscription id is used once, also when it was deleted.
pub async fn subscription_ids_are_never_used_again(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let first = subscription(setting.tenant);
    let create = || CatalogChange::CreateSubscription(Box::new(first.clone()));
    change(&setting, create()).await.expect("create");
    refused(change(&setting, create()).await, Refusal::AlreadyExists);
    setting.unsubscribe(first.id, at(1)).await;
    refused(change(&setting, create()).await, Refusal::AlreadyExists);
    let stranger = subscription(TenantId::new(at(0), unique().into()));
    let create = CatalogChange::CreateSubscription(Box::new(stranger));
    refused(change(&setting, create).await, Refusal::NotFound);
}

/// An update with `expected` happens only on that version; id, tenant and birth stay.
pub async fn updates_check_the_version(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let mut subscription = subscription(setting.tenant);
    let create = CatalogChange::CreateSubscription(Box::new(subscription.clone()));
    let created = change(&setting, create).await.expect("create");
    subscription.description = "second".to_owned();
    subscription.created_at = at(500);
    subscription.updated_at = at(7);
    subscription.version = CatalogVersion(987_654);
    let update = |expected| CatalogChange::UpdateSubscription {
        subscription: Box::new(subscription.clone()),
        expected,
    };
    let second = change(&setting, update(Some(created))).await.expect("update");
    assert!(second > created);
    let mismatch = Refusal::VersionMismatch { current: second };
    refused(change(&setting, update(Some(created))).await, mismatch);
    let third = change(&setting, update(None)).await.expect("update");
    let whole = since(&setting, CatalogVersion(0)).await;
    subscription.created_at = at(0);
    subscription.version = third;
    assert_eq!(whole.subscriptions, [subscription]);
}

/// Another tenant's subscription looks as if it did not exist, and so does a deleted one.
pub async fn foreign_subscriptions_are_not_found(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let other = setting.other_tenant().await;
    let mine = setting.subscribe().await;
    let update = |tenant, id| {
        let contents = posthorn_domain::Subscription { id, ..subscription(tenant) };
        CatalogChange::UpdateSubscription { subscription: Box::new(contents), expected: None }
    };
    let delete = |tenant, id| CatalogChange::DeleteSubscription { tenant, id, at: at(1) };
    let unknown = SubscriptionId::new(at(0), unique().into());
    refused(change(&setting, update(other, mine)).await, Refusal::NotFound);
    refused(change(&setting, delete(other, mine)).await, Refusal::NotFound);
    refused(change(&setting, update(setting.tenant, unknown)).await, Refusal::NotFound);
    refused(change(&setting, delete(setting.tenant, unknown)).await, Refusal::NotFound);
    setting.unsubscribe(mine, at(1)).await;
    refused(change(&setting, update(setting.tenant, mine)).await, Refusal::NotFound);
    refused(change(&setting, delete(setting.tenant, mine)).await, Refusal::NotFound);
}

/// A refused change leaves no trace, not even a version.
pub async fn refusals_change_nothing(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let before = since(&setting, CatalogVersion(0)).await;
    let unknown = TenantId::new(at(0), unique().into());
    let name = TopicName::new("none").expect("a proper name");
    for change in [
        CatalogChange::PutTopic(topic(unknown, "a")),
        CatalogChange::DeleteTopic { tenant: setting.tenant, name },
        CatalogChange::CreateSubscription(Box::new(subscription(unknown))),
        CatalogChange::CreateKey(api_key(Some(unknown))),
        CatalogChange::RevokeKey { id: KeyId::new(at(0), unique().into()), at: at(0) },
    ] {
        refused(setting.store.change_catalog(change).await, Refusal::NotFound);
    }
    let after = since(&setting, CatalogVersion(0)).await;
    assert_eq!(after.version, before.version);
    assert_eq!(after.tenants, before.tenants);
    assert!(after.topics.is_empty() && after.subscriptions.is_empty() && after.keys.is_empty());
}

/// Keys: created once, revoked for good; an operator key moves no tenant on.
pub async fn keys_are_created_once_and_revoked_for_good(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let before = setting.version_of(setting.tenant).await;
    let operator = api_key(None);
    let version =
        change(&setting, CatalogChange::CreateKey(operator.clone())).await.expect("create");
    assert!(version > before);
    assert_eq!(setting.version_of(setting.tenant).await, before);
    refused(change(&setting, CatalogChange::CreateKey(operator)).await, Refusal::AlreadyExists);

    let own = api_key(Some(setting.tenant));
    let version = change(&setting, CatalogChange::CreateKey(own.clone())).await.expect("create");
    assert_eq!(setting.version_of(setting.tenant).await, version);
    let revoke = |when| CatalogChange::RevokeKey { id: own.id, at: when };
    let revoked = change(&setting, revoke(at(3))).await.expect("revoke");
    assert!(revoked > version);
    assert_eq!(setting.version_of(setting.tenant).await, revoked);
    change(&setting, revoke(at(4))).await.expect("revoking again is fine");
    let delta = since(&setting, version).await;
    assert_eq!(delta.version, revoked, "revoking again changes nothing");
    assert_eq!(delta.keys.len(), 1);
    assert_eq!(delta.keys[0].revoked_at, Some(at(3)));
}

/// The use of keys: times move forward only, strangers are passed over, and no version moves.
pub async fn uses_of_keys_only_move_forward_and_change_no_version(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (own, operator, stranger) = (api_key(Some(setting.tenant)), api_key(None), api_key(None));
    for key in [&own, &operator] {
        change(&setting, CatalogChange::CreateKey(key.clone())).await.expect("create");
    }
    let used = async |setting: &Setting| {
        let mut used = setting.store.keys_used().await.expect("uses");
        used.retain(|(id, _)| [own.id, operator.id, stranger.id].contains(id));
        used.sort();
        used
    };
    assert_eq!(used(&setting).await, []);
    let before = since(&setting, CatalogVersion(0)).await.version;
    let uses = vec![(own.id, at(5)), (stranger.id, at(5)), (operator.id, at(6))];
    setting.store.touch_keys(uses).await.expect("touch");
    setting.store.touch_keys(vec![(own.id, at(7)), (operator.id, at(2))]).await.expect("touch");
    setting.store.touch_keys(Vec::new()).await.expect("nothing is fine");
    assert_eq!(used(&setting).await, [(own.id, at(7)), (operator.id, at(6))]);
    assert_eq!(since(&setting, CatalogVersion(0)).await.version, before);
    let setting = setting.reopen(fixture).await;
    assert_eq!(used(&setting).await, [(own.id, at(7)), (operator.id, at(6))]);
}

/// The catalog is there after a crash, with its versions.
pub async fn catalog_survives_reopening(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let id = setting.subscribe().await;
    let gone = setting.subscribe().await;
    setting.unsubscribe(gone, at(1)).await;
    change(&setting, CatalogChange::PutTopic(topic(setting.tenant, "a"))).await.expect("put");
    change(&setting, CatalogChange::CreateKey(api_key(None))).await.expect("create");
    let before = since(&setting, CatalogVersion(0)).await;
    let setting = setting.reopen(fixture).await;
    let after = since(&setting, CatalogVersion(0)).await;
    assert_eq!(after.version, before.version);
    assert_eq!(after.tenants, before.tenants);
    assert_eq!(after.topics, before.topics);
    assert_eq!(after.keys, before.keys);
    assert_eq!(after.subscriptions, before.subscriptions);
    assert_eq!(after.subscriptions[0].id, id);
    let next =
        change(&setting, CatalogChange::PutTopic(topic(setting.tenant, "b"))).await.expect("put");
    assert!(next > before.version, "versions go on growing");
}
