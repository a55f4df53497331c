//! Profiles of tenants, changed while everything runs; names and labels of subscriptions, and
//! subscriptions that are kept as they were declared.

use std::collections::BTreeMap;
use std::time::Duration;

use posthorn_domain::{Labels, ProfileName, SecretName, SubscriptionName};
use posthorn_engine::{Error, NewSubscription, SecretInput, SubscriptionChange};
use serde_json::{Value, json};

use crate::house::{House, TENANT, answered, publish, rest, subscribe, topic};

fn profile(name: &str) -> ProfileName {
    ProfileName::new(name).expect("a name")
}

fn fixed(seconds: u64, attempts: u32) -> Value {
    let wait = format!("{seconds}s");
    json!({"schedule": {
        "backoff": {"fixed": {"wait": wait}}, "jitter": "none", "max_attempts": attempts,
    }})
}

#[tokio::test(start_paused = true)]
async fn a_changed_profile_counts_at_once_for_all_its_subscriptions_on_all_nodes() {
    let house = House::new();
    let (first, second) = (house.engine(1).await, house.engine(2).await);
    topic(&first).await;
    first.put_profile(TENANT, profile("default"), None, fixed(10, 2)).await.expect("fits");
    for url in ["https://a/", "https://b/"] {
        subscribe(&first, url, json!({"limits": {"concurrency": 1}})).await;
        house.receivers.script(url, |_, _| (Duration::ZERO, answered(500)));
    }
    first.publish(TENANT, publish("1", None)).await.expect("accepted");
    rest(60).await;
    let gaps = |url: &str| {
        let seen = house.receivers.of(url);
        let times: Vec<i64> = seen.iter().map(|seen| seen.at.as_millis()).collect();
        times.windows(2).map(|pair| (pair[1] - pair[0]) / 1_000).collect::<Vec<_>>()
    };
    assert_eq!((gaps("https://a/"), gaps("https://b/")), (vec![10], vec![10]));

    second.put_profile(TENANT, profile("default"), None, fixed(30, 3)).await.expect("fits");
    first.publish(TENANT, publish("2", None)).await.expect("accepted");
    rest(120).await;
    for url in ["https://a/", "https://b/"] {
        assert_eq!(gaps(url)[2..], [30, 30], "{url}");
    }
    first.delete_profile(TENANT, profile("default")).await.expect("taken back");
    let gone = first.delete_profile(TENANT, profile("default")).await;
    assert!(matches!(gone, Err(Error::NotFound("profile"))), "{gone:?}");
    let policy = second.catalog().profile(TENANT, &profile("default")).expect("as configured");
    assert_eq!(policy.schedule.max_attempts, Some(12));
}

#[tokio::test(start_paused = true)]
async fn profiles_that_cannot_work_are_refused_and_change_nothing() {
    let house = House::new();
    let engine = house.engine(3).await;
    let put = async |name: &str, base: Option<&str>, policy: Value| {
        engine.put_profile(TENANT, profile(name), base.map(profile), policy).await
    };
    let unknown = put("mine", None, json!({})).await;
    assert!(matches!(unknown, Err(Error::UnknownProfile(_))), "{unknown:?}");
    let wrong = put("mine", Some("default"), json!({"schedule": {"max_attempts": 0}})).await;
    assert!(matches!(wrong, Err(Error::Policy(_))), "{wrong:?}");
    assert!(engine.catalog().profiles(TENANT).iter().all(|profile| profile.own.is_none()));

    put("mine", Some("default"), fixed(1, 5)).await.expect("fits");
    let new = NewSubscription {
        destination: "https://a/".into(),
        profile: Some(profile("mine")),
        overrides: json!({"schedule": {"max_attempts": 7}}),
        ..NewSubscription::default()
    };
    let (view, _) = engine.create_subscription(TENANT, new).await.expect("made");
    // A policy that needs a secret the subscription does not have.
    let auth = json!({"auth": [{"kind": "bearer", "secret": "token"}]});
    let unfit = put("mine", Some("default"), auth).await;
    let text = unfit.expect_err("the subscription has no such secret").to_string();
    assert!(text.contains(&view.subscription.id.to_string()), "{text}");
    let used = engine.delete_profile(TENANT, profile("mine")).await;
    assert!(matches!(used, Err(Error::InUse("profile"))), "{used:?}");
    let policy = engine.catalog().view(view.subscription.id).expect("there").policy.clone();
    assert_eq!(policy.expect("usable").schedule.max_attempts, Some(7), "its own word counts");

    // Another tenant knows nothing of it.
    let other = engine.create_tenant("other".to_owned()).await.expect("made").id;
    assert!(engine.catalog().profile(other, &profile("mine")).is_err());
    engine.delete_subscription(TENANT, view.subscription.id).await.expect("deleted");
    engine.delete_profile(TENANT, profile("mine")).await.expect("nobody needs it any more");
}

#[tokio::test(start_paused = true)]
async fn a_name_stands_for_one_subscription_on_all_nodes() {
    let house = House::new();
    let (first, second) = (house.engine(4).await, house.engine(5).await);
    let name = SubscriptionName::new("billing").expect("a name");
    let labels = |team: &str| {
        Labels::new(BTreeMap::from([("team".to_owned(), team.to_owned())])).expect("labels")
    };
    let new = || NewSubscription {
        destination: "https://a/".into(),
        name: Some(name.clone()),
        labels: labels("one"),
        ..NewSubscription::default()
    };
    let (made, _) = first.create_subscription(TENANT, new()).await.expect("made");
    let twin = second.create_subscription(TENANT, new()).await.err().expect("taken");
    assert!(matches!(twin, Error::AlreadyExists("subscription")), "{twin:?}");
    let found = second.catalog().subscription_named(TENANT, &name).expect("found");
    assert_eq!(found.subscription.id, made.subscription.id);
    assert_eq!(found.subscription.labels.get("team"), Some("one"));

    let id = made.subscription.id;
    let change = SubscriptionChange {
        name: Some(None),
        labels: Some(labels("two")),
        ..SubscriptionChange::default()
    };
    second.update_subscription(TENANT, id, change).await.expect("changed");
    rest(1).await;
    assert!(first.catalog().subscription_named(TENANT, &name).is_none());
    let (again, _) = first.create_subscription(TENANT, new()).await.expect("free again");
    first.delete_subscription(TENANT, again.subscription.id).await.expect("deleted");
    assert!(first.catalog().subscription_named(TENANT, &name).is_none());
    let renamed = SubscriptionChange { name: Some(Some(name.clone())), ..Default::default() };
    first.update_subscription(TENANT, id, renamed).await.expect("changed");
    assert_eq!(
        first.catalog().subscription_named(TENANT, &name).expect("found").subscription.id,
        id
    );
}

#[tokio::test(start_paused = true)]
async fn templates_may_use_names_and_labels() {
    let (house, engine) = House::open().await;
    let labels = BTreeMap::from([("country".to_owned(), "NL".to_owned())]);
    let new = NewSubscription {
        destination: "https://a/".into(),
        name: Some(SubscriptionName::new("billing").expect("a name")),
        labels: Labels::new(labels).expect("labels"),
        overrides: json!({"request": {"headers": {
            "X-From": "{subscription.name}/{subscription.labels.country}",
            "X-None?": "{subscription.labels.none}",
        }}}),
        ..NewSubscription::default()
    };
    engine.create_subscription(TENANT, new).await.expect("made");
    engine.publish(TENANT, publish("1", None)).await.expect("accepted");
    rest(1).await;
    let seen = house.receivers.of("https://a/");
    assert_eq!(seen[0].headers["x-from"], "billing/NL");
    assert!(!seen[0].headers.contains_key("x-none"));
}

#[tokio::test(start_paused = true)]
async fn a_declared_subscription_is_made_once_and_written_only_when_it_differs() {
    let house = House::new();
    let (first, second) = (house.engine(7).await, house.engine(8).await);
    topic(&first).await;
    let declared = |url: &str, token: &str| NewSubscription {
        name: Some(SubscriptionName::new("declared").expect("a name")),
        destination: url.into(),
        overrides: json!({"auth": [{"kind": "bearer", "secret": "token"}]}),
        secrets: vec![SecretInput {
            name: SecretName::new("token").expect("a name"),
            value: token.to_owned(),
        }],
        ..NewSubscription::default()
    };
    let both = tokio::join!(
        first.ensure_subscription(TENANT, declared("https://a/", "one")),
        second.ensure_subscription(TENANT, declared("https://a/", "one")),
    );
    let (one, other) = (both.0.expect("made"), both.1.expect("made"));
    assert_eq!(one.0.subscription.id, other.0.subscription.id);
    assert_eq!(u8::from(one.1) + u8::from(other.1), 1, "one of them made it");
    let version = one.0.subscription.version;
    let (same, changed) =
        first.ensure_subscription(TENANT, declared("https://a/", "one")).await.expect("there");
    assert_eq!((changed, same.subscription.version), (false, version));

    let (_, changed) =
        second.ensure_subscription(TENANT, declared("https://a/", "two")).await.expect("changed");
    assert!(changed, "another secret is a difference");
    first.publish(TENANT, publish("1", None)).await.expect("accepted");
    rest(1).await;
    assert_eq!(house.receivers.of("https://a/")[0].headers["authorization"], "Bearer two");
    let moved = first.ensure_subscription(TENANT, declared("https://b/", "two")).await;
    assert!(moved.expect("changed").1);
    first.pause_subscription(TENANT, one.0.subscription.id).await.expect("paused");
    let (view, changed) =
        first.ensure_subscription(TENANT, declared("https://b/", "two")).await.expect("there");
    assert!(!changed && !view.subscription.status.is_active(), "people decide who takes part");
    let bad = first.ensure_subscription(TENANT, declared("https://10.0.0.1/", "two")).await;
    assert!(matches!(bad, Err(Error::Url(_))));
}
