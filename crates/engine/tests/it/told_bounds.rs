//! Operational events: what tenants must not learn from them, and how much of them there may be.

use std::time::Duration;

use posthorn_domain::{
    AttemptOutcome, Clock as _, FailureCode, Filter, JobId, JobState, RedriveFilter, ReplayStatus,
    Selection, Tenant, TenantId,
};
use posthorn_engine::{
    Engine, Error, NewReplay, NewSubscription, Options, Quotas, SubscriptionChange,
};
use posthorn_store::{CatalogChange, Store};
use serde_json::{Value, json};

use crate::house::{House, TENANT, publish, rest, subscribe, topic};

fn listener(url: &str) -> NewSubscription {
    let filter = json!({"any_of": [{"topics": ["posthorn.operational"]}]});
    let filter: Filter = serde_json::from_value(filter).expect("a filter");
    NewSubscription { destination: url.into(), filter: Some(filter), ..NewSubscription::default() }
}

async fn listen(engine: &Engine, tenant: TenantId, url: &str) {
    engine.create_subscription(tenant, listener(url)).await.expect("a subscription");
}

fn told(house: &House, url: &str, kind: &str) -> Vec<Value> {
    let parse = |body: &String| serde_json::from_str(body).expect("JSON");
    let all = house.receivers.bodies(url).iter().map(parse).collect::<Vec<Value>>();
    all.into_iter().filter(|told| told["type"] == kind).collect()
}

/// Whether a name leads to a closed address or nowhere is the operator's affair.
#[tokio::test(start_paused = true)]
async fn closed_addresses_are_told_to_operators_only() {
    let (house, engine) = House::open().await;
    listen(&engine, TENANT, "https://ear/").await;
    listen(&engine, TenantId::SYSTEM, "https://operator/").await;
    let closed = || AttemptOutcome::Failed {
        code: FailureCode::AddressNotAllowed,
        detail: "a closed address".to_owned(),
    };
    let retries = json!({"schedule": {"backoff": {"fixed": {"wait": "1s"}}, "jitter": "none",
        "max_attempts": 6}});
    house.receivers.script("https://a/", move |_, _| (Duration::from_millis(5), closed()));
    subscribe(&engine, "https://a/", retries).await;
    engine.publish(TENANT, publish("{}", None)).await.expect("accepted");
    rest(60).await;
    let dead = |url: &str| told(&house, url, "delivery.dead");
    let (own, operators) = (dead("https://ear/"), dead("https://operator/"));
    assert_eq!((own.len(), operators.len()), (1, 1));
    assert_eq!(own[0]["failure"], "dns_failed");
    assert_eq!(operators[0]["failure"], "address_not_allowed");
    let all = house.receivers.bodies("https://ear/").concat();
    assert!(!all.contains("address_not_allowed") && !all.contains("a closed"), "{all}");
}

/// Each of them gets what a receiver of the same tenant can cause at will.
#[tokio::test(start_paused = true)]
async fn only_so_many_subscriptions_may_name_the_reserved_topic() {
    let house = House::new();
    let quotas = Quotas { operational_subscriptions: 2, ..Quotas::default() };
    let engine = house.engine_with(1, Options { quotas, ..Options::default() }).await;
    topic(&engine).await;
    let full =
        |e: &Error| matches!(e, Error::CatalogFull { key: "quotas.operational_subscriptions", .. });
    for tenant in [TENANT, TenantId::SYSTEM] {
        listen(&engine, tenant, "https://one/").await;
        listen(&engine, tenant, "https://two/").await;
        let third = engine.create_subscription(tenant, listener("https://three/")).await;
        assert!(full(&third.err().expect("it is refused")));
    }
    // Ordinary ones are not concerned, unless they become such a one.
    let other = subscribe(&engine, "https://other/", json!({})).await.subscription.id;
    let become_one = || SubscriptionChange {
        filter: listener("https://x/").filter,
        ..SubscriptionChange::default()
    };
    let refused = engine.update_subscription(TENANT, other, become_one()).await;
    assert!(full(&refused.err().expect("it is refused")));
    let all = engine.catalog().subscriptions(TENANT);
    let first = all.iter().find(|view| view.subscription.id != other).expect("one of the two");
    engine.delete_subscription(TENANT, first.subscription.id).await.expect("deleted");
    engine.update_subscription(TENANT, other, become_one()).await.expect("there is room");
    assert!(engine.create_subscription(TENANT, listener("https://three/")).await.is_err());
}

/// One that has ended has ended: nobody is told again, and nothing is counted again.
#[tokio::test(start_paused = true)]
async fn jobs_and_redrives_that_have_ended_are_cancelled_without_a_word() {
    let (house, engine) = House::open().await;
    listen(&engine, TENANT, "https://ear/").await;
    let to = subscribe(&engine, "https://a/", json!({})).await.subscription.id;
    engine.publish(TENANT, publish("{}", None)).await.expect("accepted");
    rest(2).await;
    let replay = NewReplay {
        subscription: Some(to),
        events: Selection::default(),
        status: ReplayStatus::All,
        per_second: 50,
        created_by: String::new(),
    };
    let job = engine.create_replay(TENANT, replay).await.expect("a job");
    let redrive = engine.create_redrive(TENANT, RedriveFilter::default(), 10).await;
    let redrive = redrive.expect("a redrive");
    rest(30).await;
    let ended = engine.store().job(TENANT, job.id).await.expect("read").expect("a job");
    assert_eq!(ended.state, JobState::Done);
    let before = told(&house, "https://ear/", "job.finished").len();
    assert_eq!(before, 2);
    let pending = engine.admission().pending(TENANT);
    for _ in 0..5 {
        assert_eq!(engine.cancel_job(TENANT, job.id).await.expect("as it was"), ended);
        engine.cancel_redrive(TENANT, redrive.id).await.expect("as it was");
    }
    assert_eq!(engine.admission().pending(TENANT), pending);
    rest(30).await;
    assert_eq!(told(&house, "https://ear/", "job.finished").len(), before);
}

/// A store from before there was a reserved tenant may have one of its name; it goes on as it did.
#[tokio::test(start_paused = true)]
async fn a_tenant_that_is_called_system_already_is_found() {
    let house = House::new();
    let id = TenantId::new(house.clock.now(), 77);
    let old = Tenant::new(id, "system".to_owned(), house.clock.now());
    house.store.change_catalog(CatalogChange::CreateTenant(old)).await.expect("made");
    let engine = house.engine(1).await;
    assert_eq!(engine.ensure_tenant("system").await.expect("as before").id, id);
    let reserved = engine.ensure_tenant("posthorn-system").await;
    assert!(matches!(reserved, Err(Error::TenantReserved)));
    drop(engine);
    let (job, at) = (JobId::new(house.clock.now(), 1), house.clock.now());
    let delete = CatalogChange::DeleteTenant { tenant: id, job, at };
    house.store.change_catalog(delete).await.expect("it begins");
    let engine = house.engine(2).await;
    let going = engine.ensure_tenant("system").await;
    assert!(matches!(going, Err(Error::TenantDeleted)), "{going:?}");
}
