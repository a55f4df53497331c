//! What nodes learn from each other about use and unfinished work, and sealing anew.

use std::sync::Arc;

use posthorn_domain::{CatalogVersion, Scope};
use posthorn_engine::{AdmissionOptions, Options, Refused};
use posthorn_sealing::vault::{Vault, VaultKey};
use posthorn_store::Store;
use serde_json::json;

use crate::house::{House, TENANT, publish, rest, subscribe, topic};

fn quota(quota: u64) -> Options {
    let admission = AdmissionOptions { pending_per_tenant: quota, ..AdmissionOptions::default() };
    Options { admission, ..Options::default() }
}

#[tokio::test(start_paused = true)]
async fn a_quota_is_counted_over_all_nodes_and_across_restarts() {
    let house = House::new();
    let one = house.engine_with(1, quota(3)).await;
    let two = house.engine_with(2, quota(3)).await;
    topic(&one).await;
    let view = subscribe(&one, "https://a/", json!({})).await;
    one.pause_subscription(TENANT, view.subscription.id).await.expect("pauses");
    for _ in 0..3 {
        assert_eq!(one.admission().publish(TENANT), Ok(()));
        one.publish(TENANT, publish("1", None)).await.expect("accepted");
    }
    let over = Err(Refused::Quota { pending: 3, quota: 3 });
    // At once where the deliveries end, and everywhere once they were counted.
    rest(6).await;
    assert_eq!(one.admission().publish(TENANT), over);
    assert_eq!(two.admission().publish(TENANT), over);
    one.kill();
    two.kill();
    let three = house.engine_with(3, quota(3)).await;
    rest(1).await;
    assert_eq!(three.admission().publish(TENANT), over);
    three.resume_subscription(TENANT, view.subscription.id).await.expect("resumes");
    rest(60).await;
    assert_eq!(three.admission().publish(TENANT), Ok(()));
    assert_eq!(three.admission().pending(TENANT), 0);
}

#[tokio::test(start_paused = true)]
async fn uses_of_keys_are_written_down_once_a_minute_and_seen_from_all_nodes() {
    let house = House::new();
    let (one, two) = (house.engine(1).await, house.engine(2).await);
    let make = one.create_key(Some(TENANT), vec![Scope::Read], String::new(), None, None);
    let key = make.await.expect("made");
    rest(2).await;
    assert!(two.keys_used().await.expect("answers").is_empty());
    one.authenticate(&key.text).expect("opens");
    let first = one.keys_used().await.expect("answers")[&key.key.id];
    assert!(two.keys_used().await.expect("answers").is_empty(), "not written yet");
    rest(61).await;
    assert_eq!(two.keys_used().await.expect("answers")[&key.key.id], first);
    rest(120).await;
    two.authenticate(&key.text).expect("opens");
    rest(61).await;
    let later = one.keys_used().await.expect("answers")[&key.key.id];
    assert!(later > first);
    let stored = house.store.keys_used().await.expect("answers");
    assert_eq!(stored, [(key.key.id, later)]);
}

#[tokio::test(start_paused = true)]
async fn sealing_anew_goes_in_steps_and_leaves_nothing_of_the_old_key() {
    let mut house = House::new();
    let (old, new) = (VaultKey::generate(), VaultKey::generate());
    let vault = |keys: &[&VaultKey]| {
        Arc::new(Vault::new(keys.iter().map(|key| (*key).clone()).collect()).expect("keys"))
    };
    house.vault = vault(&[&old]);
    let engine = house.engine(1).await;
    topic(&engine).await;
    for index in 0..5 {
        subscribe(&engine, &format!("https://{index}/"), json!({})).await;
    }
    engine.kill();
    house.vault = vault(&[&new, &old]);
    let engine = house.engine(2).await;
    let (first, rest_of) = (engine.reseal(2).await.expect("seals"), 3);
    assert_eq!((first.total, first.resealed, first.remaining), (5, 2, rest_of));
    assert_eq!(first.key, new.name());
    // Cut short here, and gone on with by another.
    engine.kill();
    let engine = house.engine(3).await;
    let second = engine.reseal(100).await.expect("seals");
    assert_eq!((second.resealed, second.remaining, second.unopenable), (3, 0, 0));
    let again = engine.reseal(100).await.expect("seals");
    assert_eq!((again.resealed, again.remaining), (0, 0));
    let catalog = house.store.catalog_since(CatalogVersion(0)).await.expect("answers");
    let current = vault(&[&new]);
    assert!(
        catalog
            .subscriptions
            .iter()
            .flat_map(|s| &s.secrets)
            .all(|s| current.is_current(&s.sealed))
    );
    engine.kill();
    // Without the old key everything is signed, and without the new one nothing is lost silently.
    house.vault = vault(&[&new]);
    let engine = house.engine(4).await;
    engine.publish(TENANT, publish("{}", None)).await.expect("accepted");
    // The leases of those that were killed run out first.
    rest(30).await;
    for index in 0..5 {
        let seen = house.receivers.of(&format!("https://{index}/"));
        assert!(seen[0].headers.contains_key("webhook-signature"), "{index}");
    }
    engine.kill();
    house.vault = vault(&[&old]);
    let stuck = house.engine(5).await.reseal(100).await.expect("answers");
    assert_eq!((stuck.resealed, stuck.remaining, stuck.unopenable), (0, 5, 5));
}
