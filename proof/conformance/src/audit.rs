//! Cases about the audit log: a change and its line are one, and each filter finds what it should.

use std::sync::Arc;

use posthorn_domain::delivery::Wish;
use posthorn_domain::{
    ActionFilter, Actor, ActorKind, AuditAction, AuditEntry, AuditId, AuditObject, CatalogVersion,
    DeliveryId, Home, JobState, Origin, Realm, RealmName, RedriveState, SubscriptionId, TenantId,
    Timestamp,
};
use posthorn_store::{
    Along, AuditFilter, CatalogChange, Error, Listing, Order, Page, Period, Prune, Refusal, Store,
    audit_place,
};

use super::Fixture;
use super::builders::{Setting, api_key, at, dead_skip, delivered, redrive, topic, unique};
use super::jobs::job;
use super::model::ModelStore;
use super::upgrade::Still;

/// A line about something in a tenant.
pub(crate) fn line(tenant: TenantId, action: AuditAction, when: Timestamp) -> AuditEntry {
    AuditEntry {
        id: AuditId::new(when, unique().into()),
        actor: Actor {
            kind: ActorKind::Key,
            id: Some("key_1".to_owned()),
            name: Some("ci".to_owned()),
            home: Home::Tenant(tenant),
        },
        origin: Origin { surface: "api".to_owned(), address: "192.0.2.1".parse().ok() },
        action,
        tenant: Some(tenant),
        realm: Some(RealmName::default()),
        object: AuditObject { kind: "thing".to_owned(), id: "thing_1".to_owned(), name: None },
        detail: serde_json::Map::from_iter([(
            "fields".to_owned(),
            serde_json::json!(["a\u{1F4EF}"]),
        )]),
    }
}

fn along(entry: &AuditEntry) -> Along {
    entry.clone().into()
}

/// Everything that a filter finds, in this order, in parts of this size.
async fn walk(
    store: &dyn Store,
    filter: &AuditFilter,
    order: Order,
    limit: usize,
) -> Vec<AuditEntry> {
    let (mut found, mut after) = (Vec::new(), None);
    for _ in 0..1_000 {
        let listing = Listing { order, after, limit };
        let page = store.audit(filter.clone(), listing).await.expect("a list");
        assert!(page.items.len() <= limit, "at most the limit");
        assert_eq!(page.first, page.items.first().map(|line| audit_place(line.id)));
        found.extend(page.items);
        after = page.last;
        if !page.more {
            return found;
        }
        assert!(after.is_some(), "it says where it goes on");
    }
    panic!("a list comes to an end");
}

async fn all(setting: &Setting) -> Vec<AuditEntry> {
    walk(&*setting.store, &AuditFilter::default(), Order::OldestFirst, 7).await
}

fn put(tenant: TenantId, name: &str) -> CatalogChange {
    CatalogChange::PutTopic(topic(tenant, name))
}

fn is_refused<T: std::fmt::Debug>(answer: Result<T, Error>) {
    match answer {
        Err(Error::Refused(_)) => {}
        other => panic!("{other:?}"),
    }
}

/// The line of each kind of change is there with the change, and says what it said, also after a crash.
pub async fn each_change_leaves_its_line(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (store, tenant) = (&setting.store, setting.tenant);
    let to = setting.subscribe().await;
    let (cancelled, retried) = (setting.publish_one(to).await, setting.publish_one(to).await);
    let (forgotten, expunged) = (setting.publish_one(to).await, setting.publish_one(to).await);
    setting.record(expunged, delivered(), at(10)).await;
    setting.record(retried, dead_skip(), at(10)).await;
    let event = setting.look(expunged).await.event;
    let mut lines = Vec::new();
    let mut next = |action| {
        let line = line(tenant, action, at(1_000 + lines.len() as i64));
        lines.push(line.clone());
        along(&line)
    };
    let with = next(AuditAction::TopicCreated);
    store.change_catalog_with(put(tenant, "orders"), with).await.expect("changed");
    for (wish, id, action) in [
        (Wish::Cancel, cancelled, AuditAction::DeliveryCancelled),
        (Wish::Retry, retried, AuditAction::DeliveryRetried),
        (Wish::Forget, forgotten, AuditAction::DeliveryForgotten),
    ] {
        store.move_delivery(wish, tenant, id, at(50), next(action)).await.expect("moved");
    }
    let with = next(AuditAction::ResponseExpunged);
    store.expunge_response_with(tenant, expunged, 1, at(50), with).await.expect("expunged");
    let with = next(AuditAction::EventExpunged);
    store.expunge_event_with(tenant, event, true, at(50), with).await.expect("expunged");
    let redrive = redrive(tenant, at(40));
    let with = next(AuditAction::RedriveCreated);
    store.create_redrive_with(redrive.clone(), with).await.expect("created");
    let with = next(AuditAction::RedriveCancelled);
    let stopped = store.cancel_redrive_with(tenant, redrive.id, at(51), None, with).await;
    assert_eq!(stopped.expect("cancelled").state, RedriveState::Cancelled);
    let job = job(tenant);
    let with = next(AuditAction::JobCreated);
    store.create_job_with(job.clone(), None, with).await.expect("created");
    let with = next(AuditAction::JobCancelled);
    let stopped = store.cancel_job_with(tenant, job.id, at(51), None, with).await;
    assert_eq!(stopped.expect("cancelled").state, JobState::Cancelled);
    assert_eq!(all(&setting).await, lines);
    let setting = setting.reopen(fixture).await;
    assert_eq!(all(&setting).await, lines);
}

/// What is refused leaves no line, and neither does what finds everything as it should be.
pub async fn what_changes_nothing_leaves_no_line(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (store, tenant) = (&setting.store, setting.tenant);
    let to = setting.subscribe().await;
    let ended = setting.publish_one(to).await;
    setting.record(ended, delivered(), at(10)).await;
    let waiting = setting.publish_one(to).await;
    let (event, unfinished) = (setting.look(ended).await.event, setting.look(waiting).await.event);
    let key = api_key(Some(tenant));
    let revoke = CatalogChange::RevokeKey { id: key.id, at: at(5) };
    store.change_catalog(CatalogChange::CreateKey(key)).await.expect("a key");
    store.change_catalog(revoke.clone()).await.expect("revoked");
    store.expunge_event(tenant, event, true, at(20)).await.expect("expunged");
    let redrive = store.create_redrive(redrive(tenant, at(40))).await.expect("a redrive");
    store.cancel_redrive(tenant, redrive.id, at(50), None).await.expect("cancelled");
    let job = super::jobs::begun(&setting).await;
    store.cancel_job(tenant, job.id, at(50), None).await.expect("cancelled");
    let with = || along(&line(tenant, AuditAction::TopicCreated, at(1_000)));

    let version = setting.version_of(tenant).await;
    assert!(store.change_catalog_with(revoke, with()).await.is_ok(), "it is revoked");
    assert_eq!(setting.version_of(tenant).await, version);
    let unknown = SubscriptionId::new(at(0), u128::MAX);
    let delete = CatalogChange::DeleteSubscription { tenant, id: unknown, at: at(5) };
    is_refused(store.change_catalog_with(delete.clone(), with()).await);
    is_refused(store.move_delivery(Wish::Cancel, tenant, ended, at(60), with()).await);
    let nobody = DeliveryId::new(at(0), u128::MAX);
    is_refused(store.move_delivery(Wish::Forget, tenant, nobody, at(60), with()).await);
    store.expunge_event_with(tenant, event, true, at(60), with()).await.expect("it is done");
    is_refused(store.expunge_event_with(tenant, unfinished, true, at(60), with()).await);
    store.expunge_response_with(tenant, ended, 1, at(60), with()).await.expect("it is done");
    is_refused(store.expunge_response_with(tenant, ended, 9, at(60), with()).await);
    is_refused(store.create_redrive_with(redrive.clone(), with()).await);
    store.cancel_redrive_with(tenant, redrive.id, at(60), None, with()).await.expect("it ended");
    is_refused(store.create_job_with(job.clone(), None, with()).await);
    let fresh = super::jobs::job(tenant);
    is_refused(store.create_job_with(fresh, Some(delete), with()).await);
    store.cancel_job_with(tenant, job.id, at(60), None, with()).await.expect("it ended");
    assert_eq!(all(&setting).await, []);
}

/// That somebody has seen something is a line without a change.
pub async fn a_line_may_go_with_no_change(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (store, tenant) = (&setting.store, setting.tenant);
    let version = setting.version_of(tenant).await;
    let seen = line(tenant, AuditAction::SecretViewed, at(1_000));
    store.note(along(&seen)).await.expect("noted");
    assert_eq!(setting.version_of(tenant).await, version);
    let setting = setting.reopen(fixture).await;
    assert_eq!(all(&setting).await, [seen]);
}

/// A change whose plan is out of date leaves nothing at all: no change, no line, nothing told.
pub async fn a_stale_plan_leaves_no_line(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (store, tenant) = (&setting.store, setting.tenant);
    let to = setting.subscribe().await;
    let waiting = setting.publish_one(to).await;
    let mut told = setting.planned(vec![super::builders::delivery(to, None)]).await;
    let good = told.clone();
    told.catalog = CatalogVersion(told.catalog.0 - 1);
    let entry = line(tenant, AuditAction::DeliveryCancelled, at(1_000));
    let with = |told| Along { told: vec![told], audit: Some(Box::new(entry.clone())) };
    let stale = |answer: Result<(), Error>| {
        assert!(matches!(answer, Err(Error::Refused(Refusal::Stale))), "{answer:?}");
    };
    let (at60, job) = (at(60), job(tenant));
    let moved = store.move_delivery(Wish::Cancel, tenant, waiting, at60, with(told.clone())).await;
    stale(moved.map(drop));
    stale(store.create_job_with(job.clone(), None, with(told.clone())).await.map(drop));
    stale(store.note(with(told.clone())).await);
    let made = redrive(tenant, at(40));
    stale(store.create_redrive_with(made, with(told.clone())).await.map(drop));
    stale(store.change_catalog_with(put(tenant, "orders"), with(told)).await.map(drop));
    assert_eq!(all(&setting).await, []);
    assert!(!setting.look(waiting).await.state.is_terminal());
    assert_eq!(store.job(tenant, job.id).await.expect("answers"), None);
    // Planned on the present, both are written.
    let id = good.event.id;
    store.move_delivery(Wish::Cancel, tenant, waiting, at60, with(good)).await.expect("moved");
    assert_eq!(all(&setting).await, std::slice::from_ref(&entry));
    assert!(store.event(tenant, id).await.expect("answers").is_some());
}

/// The same lines in this store and in the model.
async fn filled(setting: &Setting) -> (ModelStore, TenantId) {
    let other = setting.other_tenant().await;
    let model = ModelStore::new(Arc::new(Still));
    for tenant in [setting.tenant, other] {
        let new = posthorn_domain::Tenant::new(tenant, format!("t-{tenant}"), at(0));
        model.change_catalog(CatalogChange::CreateTenant(new)).await.expect("a tenant");
    }
    let realms = [RealmName::default(), RealmName::new("staging").expect("a name")];
    let actions = [
        AuditAction::TopicCreated,
        AuditAction::TopicUpdated,
        AuditAction::KeyRevoked,
        AuditAction::SubscriptionCreated,
    ];
    for n in 0..60_usize {
        let tenant = [Some(setting.tenant), Some(other), None][n % 3];
        let mut new = line(setting.tenant, actions[n % 4], at(1_000 + (n as i64 / 2) * 10));
        new.tenant = tenant;
        new.realm = (n % 7 != 0).then(|| realms[n % 2].clone());
        new.actor.id = (n % 5 != 0).then(|| format!("key_{}", n % 5));
        new.actor.home = [Home::Operator, Home::Tenant(setting.tenant)][n % 2].clone();
        new.object.id = format!("thing_{}", n % 6);
        let change = match tenant {
            Some(tenant) => put(tenant, &format!("topic-{n}")),
            None => CatalogChange::PutRealm(realm(&format!("realm-{n}"))),
        };
        setting.store.change_catalog_with(change.clone(), along(&new)).await.expect("changed");
        model.change_catalog_with(change, along(&new)).await.expect("changed");
    }
    (model, other)
}

fn realm(name: &str) -> Realm {
    Realm {
        name: RealmName::new(name).expect("a name"),
        description: String::new(),
        defaults: posthorn_domain::RealmDefaults::default(),
        validation: posthorn_domain::Validation::default(),
        created_at: at(0),
        updated_at: at(0),
    }
}

/// Each filter, and each two of them, finds what the model finds, in both orders and in parts of any size.
pub async fn filters_find_what_the_model_finds(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (model, other) = filled(&setting).await;
    let none = AuditFilter::default;
    let singles: Vec<AuditFilter> = vec![
        none(),
        AuditFilter { tenant: Some(setting.tenant), ..none() },
        AuditFilter { tenant: Some(other), ..none() },
        AuditFilter { realm: Some(RealmName::default()), ..none() },
        AuditFilter { actor: Some("key_2".to_owned()), ..none() },
        AuditFilter {
            actor: Some("key_2".to_owned()),
            known_to: Some(Home::Tenant(setting.tenant)),
            ..none()
        },
        AuditFilter { action: Some("topic".parse::<ActionFilter>().expect("a noun")), ..none() },
        AuditFilter { action: Some("key.revoked".parse().expect("an action")), ..none() },
        AuditFilter { object: Some("thing_3".to_owned()), ..none() },
        AuditFilter { object: Some("thing\0".to_owned()), ..none() },
        AuditFilter { period: Period { from: Some(at(1_050)), until: Some(at(1_200)) }, ..none() },
        AuditFilter { period: Period { from: None, until: Some(at(1_051)) }, ..none() },
        AuditFilter { period: Period { from: Some(at(9_999)), until: None }, ..none() },
    ];
    let mut met = 0;
    for (place, one) in singles.iter().enumerate() {
        for two in &singles[place..] {
            let both = AuditFilter {
                tenant: one.tenant.or(two.tenant),
                realm: one.realm.clone().or(two.realm.clone()),
                actor: one.actor.clone().or(two.actor.clone()),
                known_to: one.known_to.clone().or(two.known_to.clone()),
                action: one.action.or(two.action),
                object: one.object.clone().or(two.object.clone()),
                period: if one.period == Period::default() { two.period } else { one.period },
            };
            for order in [Order::NewestFirst, Order::OldestFirst] {
                let wanted = walk(&model, &both, order, 1_000).await;
                let sorted = wanted.windows(2).all(|pair| match order {
                    Order::NewestFirst => pair[0].id > pair[1].id,
                    Order::OldestFirst => pair[0].id < pair[1].id,
                });
                assert!(sorted, "in the order that was asked for");
                for limit in [2, 50] {
                    let found = walk(&*setting.store, &both, order, limit).await;
                    assert_eq!(found, wanted, "{both:?} {order:?} {limit}");
                }
                met += wanted.len();
            }
        }
    }
    assert!(met > 1_000, "the filters find something: {met}");
    assert_eq!(walk(&model, &none(), Order::OldestFirst, 9).await.len(), 60);
}

/// A search that no index serves stops, and says how far it came; whoever goes on from there finds everything.
pub async fn a_search_that_is_too_long_stops(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let (tenant, count) = (setting.tenant, 2_100);
    let mut rare = None;
    for n in 0..count {
        let mut new = line(tenant, AuditAction::TopicUpdated, at(1_000 + n));
        new.object.id = "busy".to_owned();
        if n == 3 {
            new.actor.id = Some("rare".to_owned());
            rare = Some(new.clone());
        }
        let with = along(&new);
        setting.store.change_catalog_with(put(tenant, "busy"), with).await.expect("changed");
    }
    let filter = AuditFilter {
        tenant: Some(tenant),
        actor: Some("rare".to_owned()),
        object: Some("busy".to_owned()),
        ..AuditFilter::default()
    };
    let listing = Listing::newest(10);
    let Page { items, more, last, scanned_until, .. } =
        setting.store.audit(filter.clone(), listing).await.expect("a list");
    if more {
        assert_eq!(items, [], "it lies further back");
        let until = scanned_until.expect("it says how far it came");
        assert!(until > at(1_003) && until < at(1_000 + count), "{until}");
        assert!(last.is_some());
    }
    let found = walk(&*setting.store, &filter, Order::NewestFirst, 10).await;
    assert_eq!(found, [rare.expect("it was written")]);
}

fn prune(audit: Timestamp, limit: usize) -> Prune {
    Prune {
        now: at(0),
        ended_before: at(0),
        dead_before: at(0),
        keys_before: Timestamp::MIN,
        recalls_before: at(0),
        audit_before: audit,
        limit,
    }
}

/// Lines go by their age, the oldest first, some at a time.
pub async fn old_lines_go_in_bites(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let mut lines = Vec::new();
    for n in 0..9 {
        let new = line(setting.tenant, AuditAction::TopicUpdated, at(1_000 + n));
        let change = put(setting.tenant, "busy");
        setting.store.change_catalog_with(change, along(&new)).await.expect("changed");
        lines.push(new);
    }
    let mut gone = 0;
    for _ in 0..20 {
        let pruned = setting.store.prune(prune(at(1_006), 4)).await.expect("prune");
        gone += pruned.audit;
        let left = all(&setting).await;
        assert_eq!(left, lines[gone..], "the oldest go first");
        if !pruned.more {
            break;
        }
    }
    assert_eq!(gone, 6, "what is not older stays");
    let setting = setting.reopen(fixture).await;
    assert_eq!(all(&setting).await, lines[6..]);
}

/// With a tenant its lines go, but the one that says that it was deleted; others keep theirs.
pub async fn a_deleted_tenant_leaves_one_line(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let doomed = setting.other_tenant().await;
    for n in 0..25 {
        let new = line(doomed, AuditAction::TopicUpdated, at(1_000 + n));
        let change = put(doomed, "busy");
        setting.store.change_catalog_with(change, along(&new)).await.expect("changed");
    }
    let kept = line(setting.tenant, AuditAction::TopicUpdated, at(1_050));
    let change = put(setting.tenant, "busy");
    setting.store.change_catalog_with(change, along(&kept)).await.expect("changed");
    let mut last = line(doomed, AuditAction::TenantDeleted, at(1_100));
    last.object.name = Some("acme".to_owned());
    let job = super::deletion::begun_with(&setting, doomed, along(&last)).await;
    assert_eq!(all(&setting).await.len(), 27, "nothing goes before its time");
    super::deletion::finish(&setting, &job, 10).await;
    assert_eq!(all(&setting).await, [kept.clone(), last.clone()]);
    let setting = setting.reopen(fixture).await;
    let of_it = AuditFilter { tenant: Some(doomed), ..AuditFilter::default() };
    let found = walk(&*setting.store, &of_it, Order::NewestFirst, 5).await;
    assert_eq!(found, [last], "it is found by the id that the tenant had");
}
