//! Certificates in the engine: registered, shown, named in headers, rotated, revoked.

use std::time::Duration;

use posthorn_domain::{
    AttemptOutcome, Certificate, CertificateId, CertificateKind, FailureCode, Scope, TenantId,
    Thumbprint,
};
use posthorn_engine::{
    CertificateContents, CertificateState, CertificateView, Engine, Error, NewCertificate,
    NewSubscription,
};
use posthorn_sealing::vault::{Vault, VaultKey};
use posthorn_store::{CatalogChange, DeliveryFilter, Listing, Store};
use posthorn_testkit::authority::Pair;
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, date_time_ymd};
use serde_json::json;

use crate::house::{House, TENANT, answered, publish, rest, subscribe, topic};

fn make(edit: impl FnOnce(&mut CertificateParams)) -> Pair {
    Pair::self_signed_with("hooks.example", |params| {
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CountryName, "DE");
        params.distinguished_name.push(DnType::CommonName, "hooks");
        edit(params);
    })
}

fn plain() -> Pair {
    make(|_| {})
}

fn new(kind: CertificateKind, made: &Pair) -> NewCertificate {
    let key = (kind == CertificateKind::Client).then(|| made.key.clone());
    NewCertificate {
        kind,
        description: String::new(),
        owner: String::new(),
        host: String::new(),
        scopes: if kind == CertificateKind::Caller { vec![Scope::Read] } else { vec![] },
        contents: CertificateContents { certificate: made.certificate.clone(), key },
    }
}

async fn add(engine: &Engine, new: NewCertificate) -> std::sync::Arc<CertificateView> {
    engine.create_certificate(TENANT, new).await.expect("registered")
}

#[track_caller]
fn refused<T>(result: Result<T, Error>, wanted: &str, words: &str) {
    match result.err().expect("refused") {
        Error::Certificate { field, problem } => {
            assert_eq!(field, wanted, "{problem}");
            assert!(problem.contains(words), "{problem}");
        }
        other => panic!("{other}"),
    }
}

async fn failures(house: &House) -> Vec<Option<FailureCode>> {
    let filter = DeliveryFilter::default();
    let page = house.store.deliveries(TENANT, filter, Listing::newest(100)).await.expect("answers");
    let mut all = Vec::new();
    for delivery in page.items {
        let attempts = house.store.attempts(TENANT, delivery.id).await.expect("answers");
        all.extend(attempts.iter().map(|attempt| attempt.failure));
    }
    all
}

#[tokio::test(start_paused = true)]
async fn what_can_never_work_is_refused_when_it_is_registered() {
    let house = House::new();
    let engine = house.engine(1).await;
    let (one, two) = (plain(), plain());
    let client = |certificate: &str, key: Option<&str>| NewCertificate {
        contents: CertificateContents {
            certificate: certificate.to_owned(),
            key: key.map(str::to_owned),
        },
        ..new(CertificateKind::Client, &one)
    };
    let create = |new| engine.create_certificate(TENANT, new);
    refused(create(client("nonsense", None)).await, "certificate", "");
    refused(create(client(&one.certificate, Some(&two.key))).await, "key", "");
    refused(create(client(&one.certificate, Some("nonsense"))).await, "key", "");
    let past = make(|params| params.not_after = date_time_ymd(2020, 1, 1));
    refused(create(new(CertificateKind::Client, &past)).await, "certificate", "expired");
    refused(create(new(CertificateKind::Authority, &one)).await, "certificate", "CA");
    let mut caller = new(CertificateKind::Caller, &one);
    caller.scopes = vec![Scope::Operator];
    refused(create(caller).await, "scopes", "operator");
    let mut scoped = new(CertificateKind::Client, &one);
    scoped.scopes = vec![Scope::Read];
    refused(create(scoped).await, "scopes", "caller");
    assert!(engine.catalog().certificates(TENANT).is_empty(), "nothing was kept");
}

#[tokio::test(start_paused = true)]
async fn a_thumbprint_goes_with_each_attempt_and_without_one_nothing_is_sent() {
    let (house, engine) = House::open().await;
    let made = plain();
    let policy = json!({
        "auth": [{"kind": "certificate_thumbprint", "header": "X-SSL-Client-SHA256",
                  "choice": {"owner": "DE"}}],
        "schedule": {"max_attempts": 1},
    });
    let wanted = || NewSubscription {
        destination: "https://hooks.example/a".into(),
        overrides: policy.clone(),
        ..NewSubscription::default()
    };
    let nothing = engine.create_subscription(TENANT, wanted()).await;
    refused(nothing, "policy.auth", "no client certificate for the host hooks.example");

    let registered = NewCertificate {
        owner: "DE".to_owned(),
        host: "Hooks.Example".to_owned(),
        contents: CertificateContents { certificate: made.certificate.clone(), key: None },
        ..new(CertificateKind::Client, &made)
    };
    let view = add(&engine, registered).await;
    engine.create_subscription(TENANT, wanted()).await.expect("now there is one");
    engine.publish(TENANT, publish("1", None)).await.expect("accepted");
    rest(1).await;
    let seen = house.receivers.of("https://hooks.example/a");
    let thumbprint = view.certificate.thumbprint.to_string();
    assert_eq!(seen[0].headers["x-ssl-client-sha256"], thumbprint);

    // Another one for the same host that lasts longer takes over by itself.
    let longer = make(|params| params.not_after = date_time_ymd(4_100, 1, 1));
    let registered = NewCertificate {
        owner: "DE".to_owned(),
        host: "hooks.example".to_owned(),
        ..new(CertificateKind::Client, &longer)
    };
    let second = add(&engine, registered).await;
    engine.publish(TENANT, publish("2", None)).await.expect("accepted");
    rest(1).await;
    let seen = house.receivers.of("https://hooks.example/a");
    let newer = second.certificate.thumbprint.to_string();
    assert_eq!(seen[1].headers["x-ssl-client-sha256"], newer);

    let id = second.certificate.id;
    let revoked = engine.revoke_certificate(TENANT, id).await.expect("revoked");
    let state = CertificateState::of(&revoked.certificate, engine.now());
    assert_eq!(state, CertificateState::Revoked);
    engine.publish(TENANT, publish("3", None)).await.expect("accepted");
    rest(1).await;
    let seen = house.receivers.of("https://hooks.example/a");
    assert_eq!(seen[2].headers["x-ssl-client-sha256"], thumbprint, "back to the first");

    engine.delete_certificate(TENANT, view.certificate.id).await.expect("deleted");
    engine.publish(TENANT, publish("4", None)).await.expect("accepted");
    rest(1).await;
    assert_eq!(house.receivers.of("https://hooks.example/a").len(), 3, "nothing is sent");
    assert!(failures(&house).await.contains(&Some(FailureCode::CertificateUnavailable)));
}

#[tokio::test(start_paused = true)]
async fn a_client_certificate_is_found_checked_and_taken_back_before_a_send() {
    let (house, engine) = House::open().await;
    let bare = plain();
    let keyless = NewCertificate {
        contents: CertificateContents { certificate: bare.certificate.clone(), key: None },
        ..new(CertificateKind::Client, &bare)
    };
    let keyless = add(&engine, keyless).await.certificate.id;
    let soon = make(|params| params.not_after = date_time_ymd(2023, 11, 15));
    let with_key = add(&engine, new(CertificateKind::Client, &soon)).await.certificate.id;
    let policy = |id: CertificateId| {
        json!({"auth": [{"kind": "client_certificate", "certificate": id}],
               "schedule": {"max_attempts": 1}})
    };
    let create = |url: &str, id| {
        let new = NewSubscription {
            destination: url.into(),
            overrides: policy(id),
            ..NewSubscription::default()
        };
        engine.create_subscription(TENANT, new)
    };
    refused(create("https://a/", keyless).await, "policy.auth", "no private key");
    let unknown = CertificateId::new(engine.now(), 7);
    refused(create("https://a/", unknown).await, "policy.auth", "no client certificate crt_");
    let plain_http = create("http://a/", with_key).await;
    assert!(matches!(plain_http, Err(Error::Url(problem)) if problem.code == "https_only"));

    create("https://a/", with_key).await.expect("made");
    engine.publish(TENANT, publish("1", None)).await.expect("accepted");
    rest(1).await;
    assert_eq!(house.receivers.bodies("https://a/"), ["1"]);
    // The house's clock begins in the evening of 2023-11-14; after its end the certificate is not shown.
    rest(2 * 3_600).await;
    engine.publish(TENANT, publish("2", None)).await.expect("accepted");
    rest(1).await;
    assert_eq!(house.receivers.bodies("https://a/"), ["1"]);
    assert!(failures(&house).await.contains(&Some(FailureCode::CertificateUnavailable)));

    let fresh = plain();
    let contents = || CertificateContents {
        certificate: fresh.certificate.clone(),
        key: Some(fresh.key.clone()),
    };
    let keyless_rotation =
        CertificateContents { certificate: fresh.certificate.clone(), key: None };
    let rotated = engine.rotate_certificate(TENANT, with_key, keyless_rotation).await;
    refused(rotated, "key", "needs its key too");
    engine.rotate_certificate(TENANT, with_key, contents()).await.expect("rotated");
    engine.publish(TENANT, publish("3", None)).await.expect("accepted");
    rest(1).await;
    assert_eq!(house.receivers.bodies("https://a/"), ["1", "3"], "without a restart");

    engine.revoke_certificate(TENANT, with_key).await.expect("revoked");
    let again = engine.rotate_certificate(TENANT, with_key, contents()).await;
    refused(again, "certificate", "revoked permanently");
    let outcome = {
        let views = engine.catalog().subscriptions(TENANT);
        engine.test_subscription(TENANT, views[0].subscription.id).await.expect("tried")
    };
    let AttemptOutcome::Failed { code, detail } = outcome else { panic!("{outcome:?}") };
    assert_eq!(code, FailureCode::CertificateUnavailable);
    assert!(detail.contains("is revoked"), "{detail}");
}

#[tokio::test(start_paused = true)]
async fn authorities_must_be_in_the_registry_and_of_the_tenant() {
    let (house, engine) = House::open().await;
    let authority = make(|params| params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained));
    let id = add(&engine, new(CertificateKind::Authority, &authority)).await.certificate.id;
    let other = engine.create_tenant("other".to_owned()).await.expect("made").id;
    let foreign = engine
        .create_certificate(other, new(CertificateKind::Authority, &authority))
        .await
        .expect("registered");
    let create = |id: CertificateId| {
        let overrides = json!({"tls": {"authorities": [id]}});
        let new =
            NewSubscription { destination: "https://a/".into(), overrides, ..Default::default() };
        engine.create_subscription(TENANT, new)
    };
    create(id).await.expect("made");
    let stolen = create(foreign.certificate.id).await;
    refused(stolen, "policy.tls.authorities", "there is no authority certificate");
    engine.publish(TENANT, publish("1", None)).await.expect("accepted");
    rest(1).await;
    assert_eq!(house.receivers.bodies("https://a/"), ["1"]);
    engine.revoke_certificate(TENANT, id).await.expect("revoked");
    engine.publish(TENANT, publish("2", None)).await.expect("accepted");
    rest(1).await;
    assert_eq!(house.receivers.bodies("https://a/"), ["1"], "nothing without it");
}

#[tokio::test(start_paused = true)]
async fn callers_are_told_by_thumbprint_and_owner_until_they_are_taken_back() {
    let house = House::new();
    let engine = house.engine(5).await;
    let (made, free) = (plain(), plain());
    let owned = NewCertificate { owner: "DE".to_owned(), ..new(CertificateKind::Caller, &made) };
    let owned = add(&engine, owned).await;
    let anyone = add(&engine, new(CertificateKind::Caller, &free)).await;
    let twin = engine.create_certificate(TENANT, new(CertificateKind::Caller, &made)).await;
    assert!(matches!(twin, Err(Error::AlreadyExists(_))));
    let who = |thumbprint: Thumbprint, country: Option<&str>| {
        engine.authenticate_certificate(thumbprint, country)
    };
    let thumbprint = owned.certificate.thumbprint;
    let principal = who(thumbprint, Some("de")).expect("let in");
    assert_eq!(principal.key.tenant, Some(TENANT));
    assert!(principal.key.allows(Scope::Read) && !principal.key.allows(Scope::Publish));
    assert!(!principal.is_operator());
    assert!(who(thumbprint, Some("NL")).is_none(), "another country's");
    assert!(who(thumbprint, None).is_none(), "an owned one needs its country");
    assert!(who(anyone.certificate.thumbprint, None).is_some());
    assert!(who(Thumbprint([1; 32]), Some("DE")).is_none());
    engine.revoke_certificate(TENANT, owned.certificate.id).await.expect("revoked");
    assert!(who(thumbprint, Some("DE")).is_none());
    engine.delete_certificate(TENANT, anyone.certificate.id).await.expect("deleted");
    assert!(who(anyone.certificate.thumbprint, None).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_revocation_counts_on_every_node_once_it_has_returned() {
    let house = House::new();
    let (one, two) = (house.engine(6).await, house.engine(7).await);
    // Until a node has said that it is alive, nobody waits for it.
    rest(3).await;
    let made = plain();
    let view = add(&one, new(CertificateKind::Caller, &made)).await;
    let thumbprint = view.certificate.thumbprint;
    assert!(two.authenticate_certificate(thumbprint, None).is_some());
    one.revoke_certificate(TENANT, view.certificate.id).await.expect("revoked");
    assert!(two.authenticate_certificate(thumbprint, None).is_none());
}

#[tokio::test(start_paused = true)]
async fn one_tenants_certificate_is_nothing_to_another() {
    let house = House::new();
    let engine = house.engine(8).await;
    let made = plain();
    let mine = add(&engine, new(CertificateKind::Client, &made)).await.certificate.id;
    let other = engine.create_tenant("other".to_owned()).await.expect("made").id;
    assert!(engine.catalog().certificate(other, mine).is_none());
    let contents = CertificateContents { certificate: made.certificate, key: Some(made.key) };
    let gone = |result: Result<(), Error>| assert!(matches!(result, Err(Error::NotFound(_))));
    gone(engine.rotate_certificate(other, mine, contents).await.map(drop));
    gone(engine.revoke_certificate(other, mine).await.map(drop));
    gone(engine.delete_certificate(other, mine).await);
    gone(
        engine
            .create_certificate(
                TenantId::new(engine.now(), 9),
                new(CertificateKind::Client, &plain()),
            )
            .await
            .map(drop),
    );
}

#[tokio::test(start_paused = true)]
async fn a_profile_may_ask_more_of_a_url_than_the_guard_does() {
    let (house, engine) = House::open().await;
    house.receivers.script("https://a/", |_, _| (Duration::ZERO, answered(500)));
    let strict = json!({"url": {"https_only": true, "query": false}});
    let create = |url: &str, overrides| {
        let new = NewSubscription { destination: url.into(), overrides, ..Default::default() };
        engine.create_subscription(TENANT, new)
    };
    let code = |result: Result<(), Error>| match result {
        Err(Error::Url(problem)) => problem.code,
        other => panic!("{other:?}"),
    };
    assert_eq!(code(create("http://a/", strict.clone()).await.map(drop)), "https_only");
    assert_eq!(code(create("https://a/?x", strict.clone()).await.map(drop)), "query_not_allowed");
    create("https://a/", strict.clone()).await.expect("fine");
    let loose = subscribe(&engine, "http://b/?x", json!({})).await.subscription.id;
    let change = posthorn_engine::SubscriptionChange {
        overrides: Some(strict),
        ..posthorn_engine::SubscriptionChange::default()
    };
    let changed = engine.update_subscription(TENANT, loose, change).await.map(drop);
    assert_eq!(code(changed), "https_only");
}

#[tokio::test(start_paused = true)]
async fn sealing_anew_covers_the_keys_of_certificates() {
    let mut house = House::new();
    let old = VaultKey::generate();
    house.vault = std::sync::Arc::new(Vault::new(vec![old.clone()]).expect("one key"));
    let engine = house.engine(10).await;
    let made = plain();
    let id = add(&engine, new(CertificateKind::Client, &made)).await.certificate.id;
    engine.stop().await;

    let fresh = VaultKey::generate();
    house.vault = std::sync::Arc::new(Vault::new(vec![fresh.clone(), old]).expect("two keys"));
    let engine = house.engine(11).await;
    let done = engine.reseal(10).await.expect("sealed anew");
    assert_eq!((done.total, done.resealed, done.remaining), (1, 1, 0), "{done:?}");
    assert_eq!(engine.reseal(10).await.expect("nothing to do").resealed, 0);
    engine.stop().await;

    // The old key is gone, and the certificate is still of use.
    house.vault = std::sync::Arc::new(Vault::new(vec![fresh]).expect("one key"));
    let engine = house.engine(12).await;
    topic(&engine).await;
    let policy = json!({"auth": [{"kind": "client_certificate", "certificate": id}]});
    subscribe(&engine, "https://a/", policy).await;
}

#[tokio::test(start_paused = true)]
async fn one_that_can_only_be_named_does_not_displace_one_that_can_be_shown() {
    let (house, engine) = House::open().await;
    let (made, bare) = (plain(), make(|params| params.not_after = date_time_ymd(4_100, 1, 1)));
    let for_host = |new| NewCertificate { host: "a".to_owned(), ..new };
    add(&engine, for_host(new(CertificateKind::Client, &made))).await;
    let contents = CertificateContents { certificate: bare.certificate.clone(), key: None };
    let keyless = NewCertificate { contents, ..for_host(new(CertificateKind::Client, &bare)) };
    let keyless = add(&engine, keyless).await;
    let shown = json!({"auth": [{"kind": "client_certificate"}]});
    subscribe(&engine, "https://a/shown", shown).await;
    let named = json!({"auth": [{"kind": "certificate_thumbprint", "header": "X-Named"}]});
    subscribe(&engine, "https://a/named", named).await;
    engine.publish(TENANT, publish("1", None)).await.expect("accepted");
    rest(1).await;
    assert_eq!(house.receivers.bodies("https://a/shown"), ["1"]);
    let seen = house.receivers.of("https://a/named");
    assert_eq!(seen[0].headers["x-named"], keyless.certificate.thumbprint.to_string());
}

/// A record that somebody wrote into the database past the engine.
#[tokio::test(start_paused = true)]
async fn a_record_that_is_not_about_its_certificate_is_as_good_as_none() {
    let house = House::new();
    let engine = house.engine(9).await;
    let (client, caller) = (plain(), plain());
    let client =
        NewCertificate { host: "a.example".to_owned(), ..new(CertificateKind::Client, &client) };
    let client = add(&engine, client).await.certificate.clone();
    let caller = add(&engine, new(CertificateKind::Caller, &caller)).await.certificate.clone();
    let other = plain();
    let tampered = [
        // Another thumbprint, another certificate, or one that cannot be read.
        Certificate { thumbprint: Thumbprint([7; 32]), ..caller.clone() },
        Certificate { pem: other.certificate.clone(), ..caller.clone() },
        Certificate { pem: "nonsense".to_owned(), ..caller.clone() },
        Certificate { thumbprint: Thumbprint([7; 32]), ..client.clone() },
        Certificate { pem: other.certificate, ..client.clone() },
    ];
    let auth =
        json!({"auth": [{"kind": "certificate_thumbprint", "header": "X-SSL-Client-SHA256"}]});
    let subscribe = || {
        let url = "https://a.example/".to_owned();
        let new = NewSubscription {
            destination: url.into(),
            overrides: auth.clone(),
            ..NewSubscription::default()
        };
        engine.create_subscription(TENANT, new)
    };
    assert!(engine.authenticate_certificate(caller.thumbprint, None).is_some());
    subscribe().await.expect("it is well");
    for certificate in tampered {
        let (kind, thumbprint) = (certificate.kind, certificate.thumbprint);
        let current = engine.catalog().certificate(TENANT, certificate.id).expect("there");
        let expected = current.certificate.version;
        let certificate = Box::new(certificate);
        let change = CatalogChange::UpdateCertificate { certificate, expected };
        house.store.change_catalog(change).await.expect("written");
        rest(5).await;
        if kind == CertificateKind::Caller {
            assert!(engine.authenticate_certificate(thumbprint, None).is_none());
        } else {
            refused(subscribe().await, "policy.auth", "thumbprint");
        }
    }
}
