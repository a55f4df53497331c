//! Cases about operator keys: one at the first start, and never none.

use posthorn_domain::{ApiKey, CatalogVersion};

use super::Fixture;
use super::builders::{Setting, api_key, at};
use super::changes::{change, refused, since};
use posthorn_store::{CatalogChange, Refusal, Result};

/// The first operator key is made once, however many try at once and whatever their ids are; one that
/// works is enough, and one that does not is none.
pub async fn the_first_key_is_made_once(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let lasting = || ApiKey { expires_at: None, ..api_key(None) };
    let first = || change(&setting, CatalogChange::CreateFirstKey(lasting()));
    let (one, two, three) = tokio::join!(first(), first(), first());
    let tries = [one, two, three];
    assert_eq!(tries.iter().filter(|made| made.is_ok()).count(), 1);
    for made in tries.into_iter().filter(Result::is_err) {
        refused(made, Refusal::AlreadyExists);
    }
    let keys = since(&setting, CatalogVersion(0)).await.keys;
    assert_eq!(keys.iter().filter(|key| key.tenant.is_none()).count(), 1);
    let mut again = keys[0].clone();
    again.description = "another".to_owned();
    refused(change(&setting, CatalogChange::CreateFirstKey(again)).await, Refusal::AlreadyExists);
    change(&setting, CatalogChange::CreateKey(api_key(Some(setting.tenant))))
        .await
        .expect("create");
}

/// Where the only operator key has run out, another first one can be made.
pub async fn a_key_that_has_run_out_is_no_first_key(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let ended = ApiKey { expires_at: Some(at(10)), ..api_key(None) };
    change(&setting, CatalogChange::CreateKey(ended.clone())).await.expect("create");
    let early = ApiKey { created_at: at(9), expires_at: None, ..api_key(None) };
    refused(change(&setting, CatalogChange::CreateFirstKey(early)).await, Refusal::AlreadyExists);
    let late = ApiKey { created_at: at(10), expires_at: None, ..api_key(None) };
    change(&setting, CatalogChange::CreateFirstKey(late)).await.expect("create");
    // It opens nothing any more, so that nobody misses it.
    change(&setting, CatalogChange::RevokeKey { id: ended.id, at: at(11) }).await.expect("revoke");
}

/// The last operator key cannot be revoked, also when another one works a little longer, and also when
/// two are revoked at once.
pub async fn the_last_operator_key_cannot_be_revoked(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let lasting = || ApiKey { expires_at: None, ..api_key(None) };
    let until = |end| ApiKey { expires_at: Some(at(end)), ..api_key(None) };
    let create = async |key: &ApiKey| {
        change(&setting, CatalogChange::CreateKey(key.clone())).await.expect("create");
    };
    let revoke = async |key: &ApiKey| {
        change(&setting, CatalogChange::RevokeKey { id: key.id, at: at(5) }).await
    };
    let (first, second) = (lasting(), lasting());
    create(&first).await;
    let own = api_key(Some(setting.tenant));
    create(&own).await;
    let version = since(&setting, CatalogVersion(0)).await.version;
    refused(revoke(&first).await, Refusal::LastOperatorKey);
    assert_eq!(since(&setting, CatalogVersion(0)).await.version, version, "nothing changed");
    let (short, long) = (until(1_000), until(2_000));
    create(&short).await;
    create(&long).await;
    refused(revoke(&first).await, Refusal::LastOperatorKey);
    revoke(&own).await.expect("a tenant's key is another matter");
    create(&second).await;
    let (one, two) = tokio::join!(revoke(&first), revoke(&second));
    assert_eq!(one.is_ok(), two.is_err(), "one of two that are revoked at once stays");
    refused(if one.is_err() { one } else { two }, Refusal::LastOperatorKey);
    revoke(&long).await.expect("one that stays is there");
    revoke(&short).await.expect("one that stays is there");
    let left = since(&setting, CatalogVersion(0)).await.keys;
    let works = |key: &&ApiKey| key.tenant.is_none() && key.is_valid(at(3_000));
    assert_eq!(left.iter().filter(works).count(), 1);
}

/// Among operator keys that all end, the one that ends last cannot be revoked.
pub async fn the_longest_operator_key_cannot_be_revoked(fixture: &dyn Fixture) {
    let setting = Setting::new(fixture).await;
    let until = |end| ApiKey { expires_at: Some(at(end)), ..api_key(None) };
    let (short, long) = (until(1_000), until(2_000));
    for key in [&short, &long] {
        change(&setting, CatalogChange::CreateKey(key.clone())).await.expect("create");
    }
    let revoke = |key: &ApiKey, when| CatalogChange::RevokeKey { id: key.id, at: at(when) };
    refused(change(&setting, revoke(&long, 5)).await, Refusal::LastOperatorKey);
    change(&setting, revoke(&short, 5)).await.expect("the other one works longer");
    refused(change(&setting, revoke(&long, 1_999)).await, Refusal::LastOperatorKey);
    change(&setting, revoke(&long, 2_000)).await.expect("it works no more");
}
