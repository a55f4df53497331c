//! Which channels a subscription may name, and what becomes of its secrets.

use std::sync::Arc;

use posthorn_domain::push::KeyHash;
use posthorn_domain::{Labels, ProfileName, Span, SubscriptionName};
use posthorn_engine::{
    DestinationInput, Error, NewSubscription, PushInput, PushKeys, PushProblem, PushRefusal,
    Rotation, SecretInput, SecretKind, SubscriptionChange,
};
use posthorn_sealing::vapid::hash_key;
use posthorn_sealing::vault::{Vault, VaultKey};
use posthorn_sealing::web_push::{ReceiverError, ReceiverKeys};
use serde_json::json;

use crate::house::{House, TENANT, publish, rest, topic};
use crate::push_house::{
    Mailboxes, endpoint, engine_of, envelope, house, keys_of, subscribe, subscribe_in, to,
};

fn hash(key: &posthorn_sealing::p256::PublicKey) -> KeyHash {
    hash_key(key.as_bytes())
}

#[tokio::test(start_paused = true)]
async fn a_bound_endpoint_is_for_the_tenant_whose_key_it_was_made_for() {
    let (_house, mailboxes, engine) = house().await;
    let other = engine.create_tenant("other".to_owned()).await.expect("made").id;
    let (ours, theirs) =
        (engine.push_key(TENANT).expect("a key"), engine.push_key(other).expect("a key"));
    assert_ne!(ours, theirs);
    assert_eq!(engine.push_key(TENANT).expect("a key"), ours, "it stays the same");
    mailboxes.put("https://push/ours", Ok(endpoint(2, Some(hash(&ours)))));
    mailboxes.put("https://push/theirs", Ok(endpoint(3, Some(hash(&theirs)))));
    subscribe(&engine, to("https://push/ours"), json!({})).await.expect("may");
    subscribe_in(&engine, other, to("https://push/theirs"), json!({})).await.expect("may");
    // Who knows an endpoint without a key may use it.
    subscribe_in(&engine, other, to("https://push/a"), json!({})).await.expect("may");
    for (tenant, url) in [(TENANT, "https://push/theirs"), (other, "https://push/ours")] {
        let refused = subscribe_in(&engine, tenant, to(url), json!({})).await.err();
        assert!(matches!(refused, Some(Error::Push(PushRefusal::OtherKey))), "{refused:?}");
    }
    // Whether it still exists is for those it was made for.
    mailboxes.forget(endpoint(3, None).agent);
    let theirs = || to("https://push/theirs");
    let refused = subscribe(&engine, theirs(), json!({})).await.err();
    assert!(matches!(refused, Some(Error::Push(PushRefusal::OtherKey))), "{refused:?}");
    let refused = subscribe_in(&engine, other, theirs(), json!({})).await.err();
    assert!(matches!(refused, Some(Error::Push(PushRefusal::Gone))), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn a_webhook_may_call_a_secret_as_push_does() {
    let (_house, _, engine) = house().await;
    let name = posthorn_domain::SecretName::new("push.auth").expect("a name");
    let new = NewSubscription {
        destination: "https://a/".into(),
        overrides: json!({"auth": [{"kind": "bearer", "secret": "push.auth"}]}),
        secrets: vec![SecretInput { name, value: "token".to_owned() }],
        ..NewSubscription::default()
    };
    let (view, _) = engine.create_subscription(TENANT, new).await.expect("made");
    let change = SubscriptionChange {
        destination: Some("https://a/b".into()),
        ..SubscriptionChange::default()
    };
    let view = engine.update_subscription(TENANT, view.subscription.id, change).await;
    assert_eq!(view.expect("changes").subscription.secrets.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_change_of_seal_keys_leaves_endpoints_and_subscriptions_in_use() {
    let house = House::new();
    let mailboxes = Arc::new(Mailboxes::default());
    let (old, new) = (VaultKey::generate(), VaultKey::generate());
    let vault = |keys: &[&VaultKey]| {
        Arc::new(Vault::new(keys.iter().map(|key| (*key).clone()).collect()).expect("keys"))
    };
    let before = engine_of(&house, Some(&mailboxes), vault(&[&old]), 1).await;
    topic(&before).await;
    let former = before.push_key(TENANT).expect("a key");
    mailboxes.put("https://push/b", Ok(endpoint(2, Some(hash(&former)))));
    let agent = ReceiverKeys::generate();
    let push = || PushInput { keys: Some(keys_of(&agent)), ..to("https://push/b") };
    subscribe(&before, push(), json!({})).await.expect("made");
    before.stop().await;

    let both = engine_of(&house, Some(&mailboxes), vault(&[&new, &old]), 2).await;
    assert_ne!(both.push_key(TENANT).expect("a key"), former, "the new one is shown");
    subscribe(&both, push(), json!({})).await.expect("the former counts still");
    let resealed = both.reseal(10).await.expect("seals");
    assert_eq!((resealed.total, resealed.remaining), (2, 0));
    both.stop().await;

    let after = engine_of(&house, Some(&mailboxes), vault(&[&new]), 3).await;
    after.publish(TENANT, publish(r#""x""#, None)).await.expect("accepted");
    rest(1).await;
    let kept = mailboxes.kept();
    assert_eq!(kept.len(), 2);
    for message in kept {
        let (headers, body) = (message.headers.expect("some"), message.body.expect("some"));
        agent.decrypt(&headers, &body).expect("decrypts");
    }
    let refused = subscribe(&after, push(), json!({})).await.err();
    assert!(matches!(refused, Some(Error::Push(PushRefusal::OtherKey))), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_work_is_refused_when_it_is_asked_for() {
    let (house, mailboxes, engine) = house().await;
    mailboxes.put("https://push/gone", Err(PushProblem::Gone));
    mailboxes.put("https://push/altered", Err(PushProblem::Altered));
    mailboxes.put("https://push/away", Err(PushProblem::Unavailable("no store".to_owned())));
    let agent = ReceiverKeys::generate();
    let good = keys_of(&agent);
    let keys = |p256dh: &str, auth: &str| {
        Some(PushKeys { p256dh: p256dh.to_owned(), auth: auth.to_owned() })
    };
    let a = || to("https://push/a");
    for (push, expected) in [
        (to("https://push/altered"), PushRefusal::Altered),
        (to("https://push/unknown"), PushRefusal::ServiceNotAllowed { host: "push".to_owned() }),
        (to(""), PushRefusal::Plain),
        (to("https://push/gone"), PushRefusal::Gone),
        (PushInput { ttl: Some(0), ..a() }, PushRefusal::Ttl { max: Span::from_secs(2_592_000) }),
        (
            PushInput { ttl: Some(2_592_001), ..a() },
            PushRefusal::Ttl { max: Span::from_secs(2_592_000) },
        ),
        (
            PushInput { keys: keys("AAAA", &good.auth), ..a() },
            PushRefusal::Keys(ReceiverError::Key),
        ),
        (
            PushInput { keys: keys(&good.p256dh, "AAAA"), ..a() },
            PushRefusal::Keys(ReceiverError::Auth),
        ),
    ] {
        match subscribe(&engine, push, json!({})).await {
            Err(Error::Push(refusal)) => assert_eq!(refusal, expected),
            other => panic!("{expected:?}: {:?}", other.err()),
        }
    }
    // Who says which key an endpoint was made for has to be right.
    let ours = engine.push_key(TENANT).expect("a key");
    mailboxes.put("https://push/ours", Ok(endpoint(6, Some(hash(&ours)))));
    let made_for =
        |key: String| PushInput { application_server_key: Some(key), ..to("https://push/ours") };
    subscribe(&engine, made_for(ours.to_text()), json!({})).await.expect("may");
    let other = agent.receiver().key().to_text();
    for (key, expected) in
        [("x".to_owned(), PushRefusal::ApplicationKey), (other, PushRefusal::OtherKey)]
    {
        match subscribe(&engine, made_for(key), json!({})).await {
            Err(Error::Push(refusal)) => assert_eq!(refusal, expected),
            other => panic!("{expected:?}: {:?}", other.err()),
        }
    }
    let away = subscribe(&engine, to("https://push/away"), json!({})).await.err();
    assert!(matches!(away, Some(Error::Busy(_))), "{away:?}");

    let certificate = || json!({"auth": [{"kind": "client_certificate"}]});
    match subscribe(&engine, a(), certificate()).await {
        Err(Error::Policy(e)) => assert_eq!(e.path, "auth"),
        other => panic!("{:?}", other.err()),
    }
    let name = posthorn_domain::SecretName::new("signing").expect("a name");
    let secret = SecretInput { name: name.clone(), value: "x".to_owned() };
    let new =
        NewSubscription { destination: DestinationInput::Push(a()), ..NewSubscription::default() };
    let given = NewSubscription { secrets: vec![secret.clone()], ..new.clone() };
    let refused = engine.create_subscription(TENANT, given).await.err();
    assert!(matches!(refused, Some(Error::Secret { .. })), "{refused:?}");
    let kind = NewSubscription { secret_kind: Some(SecretKind::Hmac), ..new.clone() };
    let refused = engine.create_subscription(TENANT, kind).await.err();
    assert!(matches!(refused, Some(Error::SecretKind(_))), "{refused:?}");

    let (view, _) = engine.create_subscription(TENANT, new).await.expect("made");
    let id = view.subscription.id;
    let refused = engine.rotate_secret(TENANT, id, Rotation::of(name)).await.err();
    assert!(matches!(refused, Some(Error::Secret { .. })), "{refused:?}");
    let change = SubscriptionChange { secrets: vec![secret], ..SubscriptionChange::default() };
    let refused = engine.update_subscription(TENANT, id, change).await.err();
    assert!(matches!(refused, Some(Error::Secret { .. })), "{refused:?}");
    // A profile that push subscriptions name has to go on fitting them.
    let default = ProfileName::new("default").expect("a name");
    let refused = engine.put_profile(TENANT, default, None, certificate()).await;
    assert!(matches!(refused, Err(Error::Policy(_))), "{:?}", refused.err());

    let without = engine_of(&house, None, Arc::clone(&house.vault), 2).await;
    let refused = subscribe(&without, a(), json!({})).await.err();
    let elsewhere = matches!(refused, Some(Error::Push(PushRefusal::ServiceNotAllowed { .. })));
    assert!(elsewhere, "{refused:?}");
    without.push_key(TENANT).expect("other services may be sent to");
}

#[tokio::test(start_paused = true)]
async fn a_destination_may_become_another_kind_and_secrets_follow() {
    let (house, mailboxes, engine) = house().await;
    let new = NewSubscription { destination: "https://a/".into(), ..NewSubscription::default() };
    let (view, secret) = engine.create_subscription(TENANT, new).await.expect("made");
    let id = view.subscription.id;
    let agent = ReceiverKeys::generate();
    let push = PushInput { keys: Some(keys_of(&agent)), ..to("https://push/a") };
    let change = SubscriptionChange {
        destination: Some(DestinationInput::Push(push)),
        ..SubscriptionChange::default()
    };
    let view = engine.update_subscription(TENANT, id, change).await.expect("changes");
    let names: Vec<_> = view.subscription.secrets.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["push.auth"]);
    engine.publish(TENANT, publish("1", None)).await.expect("accepted");
    rest(1).await;
    assert_eq!(mailboxes.kept().len(), 1);
    assert!(house.receivers.of("https://a/").is_empty());

    // Keys that are no longer given are no longer used.
    let change = SubscriptionChange {
        destination: Some(DestinationInput::Push(to("https://push/a"))),
        ..SubscriptionChange::default()
    };
    let view = engine.update_subscription(TENANT, id, change).await.expect("changes");
    assert!(view.subscription.secrets.is_empty());
    engine.publish(TENANT, publish("2", None)).await.expect("accepted");
    rest(1).await;
    assert_eq!(envelope(&mailboxes.kept()[1])["payload"], 2);

    // A webhook signs, so that it needs a secret again.
    let url = || Some("https://a/".to_owned());
    let bare =
        SubscriptionChange { destination: url().map(Into::into), ..SubscriptionChange::default() };
    let refused = engine.update_subscription(TENANT, id, bare).await.err();
    assert!(matches!(refused, Some(Error::Secret { .. })), "{refused:?}");
    let name = posthorn_domain::SecretName::new("signing").expect("a name");
    let value = secret.expect("shown once");
    let secrets = vec![SecretInput { name, value }];
    let change = SubscriptionChange {
        destination: url().map(Into::into),
        secrets,
        ..SubscriptionChange::default()
    };
    engine.update_subscription(TENANT, id, change).await.expect("changes");
    engine.publish(TENANT, publish("3", None)).await.expect("accepted");
    rest(1).await;
    assert_eq!(house.receivers.bodies("https://a/"), ["3"]);
    assert_eq!(mailboxes.kept().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_declared_push_subscription_is_made_once_and_changed_where_it_differs() {
    let (_house, mailboxes, engine) = house().await;
    mailboxes.put("https://push/b", Ok(endpoint(5, None)));
    let agent = ReceiverKeys::generate();
    let wanted = |url: &str, keys| NewSubscription {
        name: Some(SubscriptionName::new("declared").expect("a name")),
        labels: Labels::default(),
        destination: DestinationInput::Push(PushInput { keys, ..to(url) }),
        overrides: json!({}),
        ..NewSubscription::default()
    };
    for (url, keys, done) in [
        ("https://push/a", None, true),
        ("https://push/a", None, false),
        ("https://push/a", Some(keys_of(&agent)), true),
        ("https://push/a", Some(keys_of(&agent)), false),
        ("https://push/a", Some(keys_of(&ReceiverKeys::generate())), true),
        ("https://push/b", None, true),
    ] {
        let (_, changed) =
            engine.ensure_subscription(TENANT, wanted(url, keys)).await.expect("ensures");
        assert_eq!(changed, done, "{url}");
    }
    assert_eq!(engine.catalog().subscriptions(TENANT).len(), 1);
}
