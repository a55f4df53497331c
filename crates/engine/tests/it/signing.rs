//! How requests are signed: both kinds of secrets, and what a rotation does.

use posthorn_domain::{ProfileName, SecretName, Span};
use posthorn_engine::{
    Engine, Error, NewSubscription, Options, Rotation, RotationBounds, SecretInput, SecretKind,
};
use posthorn_sealing::jwt;
use posthorn_sealing::standard_webhooks::{PublicKey, SigningSecret};
use serde_json::json;

use crate::house::{House, Seen, TENANT, answered, publish, rest, topic};

fn signing() -> SecretName {
    SecretName::new("signing").expect("a name")
}

fn new(url: &str) -> NewSubscription {
    NewSubscription { destination: url.into(), ..NewSubscription::default() }
}

fn text(seen: &Seen, name: &str) -> String {
    seen.headers[name].to_str().expect("text").to_owned()
}

fn public_fits(key: &PublicKey, seen: &Seen) -> bool {
    let at: i64 = text(seen, "webhook-timestamp").parse().expect("seconds");
    let signatures = text(seen, "webhook-signature");
    key.verify(&text(seen, "webhook-id"), at, &signatures, &seen.body, at, 5).is_ok()
}

fn secret_fits(secret: &SigningSecret, seen: &Seen) -> bool {
    let at: i64 = text(seen, "webhook-timestamp").parse().expect("seconds");
    let signatures = text(seen, "webhook-signature");
    secret.verify(&text(seen, "webhook-id"), at, &signatures, &seen.body, at, 5).is_ok()
}

async fn next(house: &House, engine: &Engine, url: &str) -> Seen {
    let before = house.receivers.of(url).len();
    engine.publish(TENANT, publish(r#"{"n":1}"#, None)).await.expect("accepted");
    rest(1).await;
    let seen = house.receivers.of(url);
    assert_eq!(seen.len(), before + 1);
    seen.into_iter().next_back().expect("arrived")
}

#[tokio::test(start_paused = true)]
async fn a_made_up_ed25519_key_signs_and_only_its_public_half_is_known() {
    let (house, engine) = House::open().await;
    let wish = NewSubscription { secret_kind: Some(SecretKind::Ed25519), ..new("https://a/") };
    let (view, told) = engine.create_subscription(TENANT, wish).await.expect("made");
    assert_eq!(told, None, "the private key stays here");
    let keys = view.verification_keys(engine.now()).expect("open");
    assert_eq!(keys.len(), 1);
    let seen = next(&house, &engine, "https://a/").await;
    assert!(text(&seen, "webhook-signature").starts_with("v1a,"));
    assert!(public_fits(&keys[0].key, &seen));

    // Another key of the same kind is what a rotation makes unless it is told otherwise.
    let (view, told) =
        engine.rotate_secret(TENANT, view.subscription.id, Rotation::of(signing())).await.unwrap();
    assert_eq!(told, None);
    let both = view.verification_keys(engine.now()).expect("open");
    assert_eq!(both.len(), 2);
    assert_eq!(both[1].key, keys[0].key);
    assert!(both[0].expires_at.is_none() && both[1].expires_at.is_some());
    let seen = next(&house, &engine, "https://a/").await;
    assert!(both.iter().all(|known| public_fits(&known.key, &seen)));
    rest(86_400).await;
    let view = engine.catalog().subscription(TENANT, view.subscription.id).expect("there");
    let left = view.verification_keys(engine.now()).expect("open");
    assert_eq!(left.len(), 1, "the old key is no longer shown");
    let seen = next(&house, &engine, "https://a/").await;
    assert!(public_fits(&both[0].key, &seen) && !public_fits(&both[1].key, &seen));
}

#[tokio::test(start_paused = true)]
async fn a_rotation_may_change_the_kind_and_messages_carry_both_signatures() {
    let (house, engine) = House::open().await;
    let own = SigningSecret::generate_ed25519();
    let given = vec![SecretInput { name: signing(), value: own.to_text() }];
    let (view, told) = engine
        .create_subscription(TENANT, NewSubscription { secrets: given, ..new("https://a/") })
        .await
        .expect("made");
    assert_eq!(told, None);
    let public = own.public_key().expect("asymmetric");
    let id = view.subscription.id;
    let change = Rotation {
        kind: Some(SecretKind::Hmac),
        overlap: Some(Span::from_secs(600)),
        ..Rotation::of(signing())
    };
    let (_, told) = engine.rotate_secret(TENANT, id, change).await.expect("rotates");
    let hmac = SigningSecret::parse(&told.expect("shown once")).expect("valid");
    let seen = next(&house, &engine, "https://a/").await;
    assert!(secret_fits(&hmac, &seen) && public_fits(&public, &seen));
    let signatures = text(&seen, "webhook-signature");
    let kinds: Vec<_> = signatures.split(' ').filter_map(|s| s.split(',').next()).collect();
    assert_eq!(kinds, ["v1", "v1a"], "the newest first");
    rest(601).await;
    let seen = next(&house, &engine, "https://a/").await;
    assert!(secret_fits(&hmac, &seen) && !public_fits(&public, &seen));
}

#[tokio::test(start_paused = true)]
async fn a_rotation_that_is_done_again_with_its_seed_changes_nothing() {
    let (_house, engine) = House::open().await;
    for kind in [SecretKind::Hmac, SecretKind::Ed25519] {
        let wish = NewSubscription { secret_kind: Some(kind), ..new("https://a/") };
        let (view, _) = engine.create_subscription(TENANT, wish).await.expect("made");
        let id = view.subscription.id;
        let rotate = async |chance: u128| {
            let seed = Some((posthorn_domain::Timestamp::from_millis(7), chance));
            let (view, told) = engine
                .rotate_secret(TENANT, id, Rotation { seed, ..Rotation::of(signing()) })
                .await
                .expect("rotates");
            (view.subscription.secrets.len(), told)
        };
        let (first, told) = rotate(1).await;
        assert_eq!((first, told.is_some()), (2, kind == SecretKind::Hmac));
        assert_eq!(rotate(1).await, (2, told.clone()));
        let (second, other) = rotate(2).await;
        assert_eq!(second, 3);
        assert!(kind == SecretKind::Ed25519 || other != told);
        // Also when another came after it: it is done, and says what it said.
        assert_eq!(rotate(1).await, (3, told));
    }
}

#[tokio::test(start_paused = true)]
async fn each_attempt_has_its_own_timestamp_and_the_same_id() {
    let (house, engine) = House::open().await;
    house.receivers.script("https://a/", |nth, _| {
        (std::time::Duration::ZERO, answered(if nth == 0 { 500 } else { 200 }))
    });
    let overrides = json!({"schedule": {"backoff": {"fixed": {"wait": "30s"}}, "jitter": "none"}});
    let (_, secret) = engine
        .create_subscription(TENANT, NewSubscription { overrides, ..new("https://a/") })
        .await
        .expect("made");
    let secret = SigningSecret::parse(&secret.expect("made up")).expect("valid");
    engine.publish(TENANT, publish("{}", None)).await.expect("accepted");
    rest(60).await;
    let [first, second] = &house.receivers.of("https://a/")[..] else { panic!("two attempts") };
    assert_eq!(text(first, "webhook-id"), text(second, "webhook-id"));
    let at = |seen| text(seen, "webhook-timestamp").parse::<i64>().expect("seconds");
    assert_eq!(at(second) - at(first), 30);
    assert!(secret_fits(&secret, first) && secret_fits(&secret, second));
    assert_ne!(text(first, "webhook-signature"), text(second, "webhook-signature"));
}

#[tokio::test(start_paused = true)]
async fn an_overlap_has_a_default_and_a_bound_and_zero_ends_the_old_secret_at_once() {
    let house = House::new();
    let options = Options {
        rotation_overlap: Span::from_secs(60),
        rotation_overlap_max: Span::from_secs(120),
        ..Options::default()
    };
    let engine = house.engine_with(4, options).await;
    topic(&engine).await;
    let (view, old) = engine.create_subscription(TENANT, new("https://a/")).await.expect("made");
    let old = SigningSecret::parse(&old.expect("made up")).expect("valid");
    let id = view.subscription.id;
    let rotate = |overlap: Option<u64>| {
        let overlap = overlap.map(Span::from_secs);
        engine.rotate_secret(TENANT, id, Rotation { overlap, ..Rotation::of(signing()) })
    };
    let refused = rotate(Some(121)).await.err().expect("too long");
    assert!(matches!(refused, Error::Overlap { max } if max == Span::from_secs(120)));
    assert!(refused.to_string().contains("2m"), "{refused}");
    rotate(Some(120)).await.expect("as long as allowed");
    rotate(None).await.expect("the default");
    let view = engine.catalog().subscription(TENANT, id).expect("there");
    let ends: Vec<_> = view.subscription.secrets.iter().map(|s| s.expires_at).collect();
    let in_a_minute = Some(engine.now().plus(Span::from_secs(60)));
    assert_eq!(ends, [in_a_minute, in_a_minute, None], "a shorter overlap shortens the others");
    rotate(Some(0)).await.expect("at once");
    let seen = next(&house, &engine, "https://a/").await;
    assert!(!secret_fits(&old, &seen));
    assert_eq!(text(&seen, "webhook-signature").split(' ').count(), 1);

    for _ in 0..7 {
        rotate(None).await.expect("up to eight at once");
    }
    let refused = rotate(None).await.err().expect("too many");
    assert!(matches!(&refused, Error::Secret { .. }), "{refused}");
    rotate(Some(0)).await.expect("there is a way out");
}

#[tokio::test(start_paused = true)]
async fn wishes_for_a_kind_that_cannot_come_true_are_refused() {
    let (_house, engine) = House::open().await;
    let given =
        |secret: SigningSecret| vec![SecretInput { name: signing(), value: secret.to_text() }];
    let unsigned = json!({"auth": []});
    for wish in [
        NewSubscription { overrides: unsigned, ..new("https://a/") },
        NewSubscription { secrets: given(SigningSecret::generate()), ..new("https://a/") },
    ] {
        let wish = NewSubscription { secret_kind: Some(SecretKind::Ed25519), ..wish };
        let refused = engine.create_subscription(TENANT, wish).await.err().expect("refused");
        assert!(matches!(refused, Error::SecretKind(_)), "{refused}");
    }
    let (view, _) = engine.create_subscription(TENANT, new("https://a/")).await.expect("made");
    for (name, value) in [("other", None), ("signing", Some(SigningSecret::generate().to_text()))] {
        let wish = Rotation {
            value,
            kind: Some(SecretKind::Ed25519),
            ..Rotation::of(SecretName::new(name).expect("a name"))
        };
        let refused = engine.rotate_secret(TENANT, view.subscription.id, wish).await;
        assert!(matches!(refused.err().expect("refused"), Error::SecretKind(_)), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_header_with_one_signature_is_signed_by_the_new_secret_from_the_rotation_on() {
    let (house, engine) = House::open().await;
    let overrides = json!({"auth": [{"kind": "hmac_header", "secret": "shared",
        "header": "X-Cedros-Signature", "hash": "sha256", "encoding": "hex", "content": "body",
        "format": "sha256={signature}"}]});
    let shared = SecretName::new("shared").expect("a name");
    let secrets = vec![SecretInput { name: shared.clone(), value: "first".to_owned() }];
    let (view, _) = engine
        .create_subscription(
            TENANT,
            NewSubscription {
                profile: Some(ProfileName::new("cedros").expect("a name")),
                overrides,
                secrets,
                ..new("https://a/")
            },
        )
        .await
        .expect("made");
    // HMAC-SHA-256 of {"n":1}, computed with another tool.
    let with_first = "sha256=d8886797e6fa27a6e5a77c074a24d71dcc686911e238f8f8984de69f56146d90";
    let with_second = "sha256=ec243d175fe5a663efbe8b610e435cc098ac56840348bbf9c4d435d896d06c6d";
    let seen = next(&house, &engine, "https://a/").await;
    assert_eq!(text(&seen, "x-cedros-signature"), with_first);
    assert_eq!(text(&seen, "x-cedros-event-type"), "order.created");
    assert_eq!(text(&seen, "x-cedros-timestamp"), seen.at.as_seconds().to_string());
    assert!(text(&seen, "x-cedros-delivery-id").starts_with("dlv_"));
    let change = Rotation { value: Some("second".to_owned()), ..Rotation::of(shared) };
    let (_, told) = engine.rotate_secret(TENANT, view.subscription.id, change).await.expect("done");
    assert_eq!(told.as_deref(), Some("second"));
    let seen = next(&house, &engine, "https://a/").await;
    assert_eq!(text(&seen, "x-cedros-signature"), with_second);
}

#[tokio::test(start_paused = true)]
async fn a_one_time_code_is_of_the_step_in_which_the_attempt_is_made() {
    let (house, engine) = House::open().await;
    house.receivers.script("https://a/", |nth, _| {
        (std::time::Duration::ZERO, answered(if nth == 0 { 500 } else { 200 }))
    });
    let overrides = json!({
        "request": {"headers": {
            "X-PCA-TENANT": "{event.attributes.tenant}",
            "X-PCA-ISSUER": "https://{event.attributes.tenant}.hub/auth",
            "X-PCA-Event-Type": "{event.type}",
        }},
        "auth": [
            {"kind": "otp", "secret": "otp", "method": "hmac", "hash": "sha256",
                "secret_encoding": "hex", "salt": "salt", "salt_use": "key-xor",
                "message": "{tenant}:{issuer}:{step}:{shared_key}", "format": "OTP {otp}",
                "values": {"tenant": "{event.attributes.tenant}",
                    "issuer": "https://{event.attributes.tenant}.hub/auth"},
                "secret_values": {"shared_key": "internal"}},
            {"kind": "secret_header", "secret": "internal", "header": "X-PCA-SHARED-INTERNAL-KEY"},
            {"kind": "secret_header", "secret": "key", "header": "X-PCA-Event-APIKey"},
        ],
        "schedule": {"backoff": {"fixed": {"wait": "10s"}}, "jitter": "none"},
    });
    let secret = |name: &str, value: &str| SecretInput {
        name: SecretName::new(name).expect("a name"),
        value: value.to_owned(),
    };
    let secrets = vec![
        secret("otp", "61626364"),
        secret("salt", "0102"),
        secret("internal", "open sesame"),
        secret("key", "k1"),
    ];
    let new = NewSubscription { overrides, secrets, ..new("https://a/") };
    engine.create_subscription(TENANT, new).await.expect("made");
    let mut event = publish("{}", Some("user-7"));
    event.attributes.insert("tenant".to_owned(), "tenant1".to_owned());
    engine.publish(TENANT, event).await.expect("accepted");
    rest(60).await;
    let [first, second] = &house.receivers.of("https://a/")[..] else { panic!("two attempts") };
    assert_eq!((second.at.as_seconds() - first.at.as_seconds()), 10);
    // HMAC-SHA-256 with another tool, of the steps from 56666666 on, with the key "abcd" XOR
    // 01 02 01 02.
    assert_eq!(
        text(first, "authorization"),
        "OTP 40dee11d0edebb9d693b91779a683290d8c4ee302328326e2c62eb3f2c2e29b4"
    );
    assert_eq!(
        text(second, "authorization"),
        "OTP f8d2c0941d2fb23b81ff32119ad50ef8af28ceccb66793b2c7bd963eecd71dea"
    );
    assert_eq!(text(first, "x-pca-shared-internal-key"), "open sesame");
    assert_eq!(text(first, "x-pca-event-apikey"), "k1");
    assert_eq!(text(first, "x-pca-issuer"), "https://tenant1.hub/auth");
    assert!(first.headers["authorization"].is_sensitive());

    let mut event = publish("{}", Some("user-7"));
    event.attributes.insert("tenant".to_owned(), "tenant1".to_owned());
    engine.publish(TENANT, event).await.expect("accepted");
    rest(5).await;
    let third = house.receivers.of("https://a/").pop().expect("arrived");
    assert_eq!(
        text(&third, "authorization"),
        "OTP da91341158f52697c17e148b87e6d8633de35c746cc0114d767e414958042067",
        "a later step, another code"
    );
}

#[tokio::test(start_paused = true)]
async fn a_zgw_token_is_made_for_each_attempt() {
    let (house, engine) = House::open().await;
    house.receivers.script("https://a/", |nth, _| {
        (std::time::Duration::ZERO, answered(if nth == 0 { 403 } else { 204 }))
    });
    let overrides = json!({"auth": [{"kind": "zgw_jwt", "client_id": "nrc", "secret": "zgw",
        "lifetime": "12h"}]});
    let secrets = vec![SecretInput {
        name: SecretName::new("zgw").expect("a name"),
        value: "a secret of at least thirty-two bytes".to_owned(),
    }];
    let new = NewSubscription {
        profile: Some(ProfileName::new("notificaties").expect("a name")),
        overrides,
        secrets,
        ..new("https://a/")
    };
    engine.create_subscription(TENANT, new).await.expect("made");
    engine.publish(TENANT, publish("{}", None)).await.expect("accepted");
    rest(60).await;
    let seen = house.receivers.of("https://a/");
    assert_eq!(seen.len(), 2);
    for attempt in &seen {
        let header = text(attempt, "authorization");
        let token = header.strip_prefix("Bearer ").expect("a bearer");
        let now = attempt.at.as_seconds();
        let secret = b"a secret of at least thirty-two bytes";
        let claims = jwt::verify(token, secret, now, 0).expect("valid now");
        assert_eq!((claims.iss.as_str(), claims.client_id.as_str()), ("nrc", "nrc"));
        assert_eq!((claims.iat, claims.exp), (Some(now), Some(now + 12 * 3_600)));
    }
    assert_eq!(seen[1].at.as_seconds() - seen[0].at.as_seconds(), 25);
}

#[tokio::test(start_paused = true)]
async fn whoever_was_promised_more_rotates_within_wider_bounds() {
    let (house, engine) = House::open().await;
    let (view, old) = engine.create_subscription(TENANT, new("https://a/")).await.expect("made");
    let old = SigningSecret::parse(&old.expect("made up")).expect("valid");
    let id = view.subscription.id;
    let rotate = |seconds: u64, bounds: RotationBounds| {
        let rotation =
            Rotation { overlap: Some(Span::from_secs(seconds)), ..Rotation::of(signing()) };
        engine.rotate_secret_within(TENANT, id, rotation, bounds)
    };
    let refused = rotate(604_801, RotationBounds::WIDEST).await.err().expect("too long");
    assert!(matches!(refused, Error::Overlap { .. }), "{refused}");
    let beyond = RotationBounds { overlap_max: Span::from_secs(9_999_999), secrets_max: 99 };
    let refused = rotate(604_801, beyond).await.err().expect("nobody gets more");
    assert!(matches!(refused, Error::Overlap { max } if max == Span::from_secs(604_800)));
    for _ in 0..10 {
        rotate(604_800, RotationBounds::WIDEST).await.expect("eleven at once");
    }
    let refused = rotate(604_800, beyond).await.err().expect("too many");
    assert!(matches!(refused, Error::Secret { .. }), "{refused}");
    house.clock.ahead(std::time::Duration::from_secs(604_000));
    rest(60).await;
    let seen = next(&house, &engine, "https://a/").await;
    assert_eq!(text(&seen, "webhook-signature").split(' ').count(), 11);
    assert!(secret_fits(&old, &seen));
    house.clock.ahead(std::time::Duration::from_secs(604_900));
    rest(60).await;
    let seen = next(&house, &engine, "https://a/").await;
    assert_eq!(text(&seen, "webhook-signature").split(' ').count(), 1);
    assert!(!secret_fits(&old, &seen));
}

#[tokio::test(start_paused = true)]
async fn what_signs_now_can_be_seen_of_a_private_key_its_public_half() {
    let (_house, engine) = House::open().await;
    let (view, told) = engine.create_subscription(TENANT, new("https://a/")).await.expect("made");
    let seen = engine.view_secret(TENANT, view.subscription.id).await.expect("answers");
    assert_eq!(seen, told);
    let secret_kind = Some(SecretKind::Ed25519);
    let private = NewSubscription { secret_kind, ..new("https://b/") };
    let (view, _) = engine.create_subscription(TENANT, private).await.expect("made");
    let id = view.subscription.id;
    let keys = view.verification_keys(engine.now()).expect("open");
    let seen = engine.view_secret(TENANT, id).await.expect("answers");
    assert_eq!(seen, Some(keys[0].key.to_string()));
    // After a rotation it is the new one's.
    let (view, _) =
        engine.rotate_secret(TENANT, id, Rotation::of(signing())).await.expect("rotates");
    let now = view.verification_keys(engine.now()).expect("open")[0].key.to_string();
    assert_eq!(engine.view_secret(TENANT, id).await.expect("answers"), Some(now.clone()));
    assert_ne!(seen, Some(now));
    let unsigned = NewSubscription { overrides: json!({"auth": []}), ..new("https://c/") };
    let (view, _) = engine.create_subscription(TENANT, unsigned).await.expect("made");
    assert_eq!(engine.view_secret(TENANT, view.subscription.id).await.expect("answers"), None);
}
