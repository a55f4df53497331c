//! Tokens over real sockets: the way to a token server has the same walls as the way to a receiver.

use std::sync::Arc;
use std::time::Duration;

use posthorn_conformance::model::ModelStore;
use posthorn_domain::{AttemptOutcome, Clock, FailureCode, SecretName, SubscriptionId};
use posthorn_egress::{Egress, Options as EgressOptions};
use posthorn_engine::{
    EgressTransport, Engine, NewSubscription, Options, Parts, SecretInput, SubscriptionChange,
};
use posthorn_sealing::vault::{Vault, VaultKey};
use posthorn_testkit::clock::VirtualClock;
use posthorn_testkit::receiver::{Answer, Receiver};
use serde_json::{Value, json};

use crate::house::TENANT;

/// How a token server on this machine behaves, by path.
fn token_server() -> Receiver {
    let grant = r#"{"access_token":"real-token","token_type":"Bearer","expires_in":600}"#;
    Receiver::scripted(move |seen| match seen.path.as_str() {
        "/good" => Answer::from(200).body(grant),
        "/error" => Answer::from(500).body(grant),
        "/junk" => Answer::raw("\u{0}\u{1}nonsense"),
        "/moved" => Answer::from(307).header("Location", "/good"),
        "/huge" => Answer::from(200).body(format!("{grant}{}", " ".repeat(4 << 20))),
        "/slow" => Answer::from(200).body(" ".repeat(1_000)).dripping(Duration::from_millis(50)),
        // The receiver: it wants the token.
        _ if seen.header("authorization") == Some("Bearer real-token") => 200.into(),
        _ => 401.into(),
    })
}

async fn start() -> (Receiver, Engine, SubscriptionId) {
    let receiver = token_server();
    let allow = vec!["127.0.0.1".parse().expect("a rule")];
    let egress = Egress::new(EgressOptions { allow, ..EgressOptions::default() }).expect("egress");
    let clock: Arc<dyn Clock> = VirtualClock::start();
    let engine = Engine::start(Parts {
        store: Arc::new(ModelStore::new(Arc::clone(&clock))),
        transport: Arc::new(EgressTransport::new(egress)),
        push: None,
        vault: Arc::new(Vault::new(vec![VaultKey::generate()]).expect("one key")),
        clock,
        seed: [1; 32],
        tracer: None,
        options: Options::default(),
    })
    .await
    .expect("starts");
    let secret =
        SecretInput { name: SecretName::new("client").expect("a name"), value: "hush".to_owned() };
    let new = NewSubscription {
        destination: receiver.url("/hook").into(),
        overrides: overrides(&receiver, "/good"),
        secrets: vec![secret],
        ..NewSubscription::default()
    };
    let (view, _) = engine.create_subscription(TENANT, new).await.expect("made");
    (receiver, engine, view.subscription.id)
}

fn overrides(receiver: &Receiver, path: &str) -> Value {
    json!({"auth": [{"kind": "oauth2", "token_url": receiver.url(path),
        "client_id": "me", "secret": "client"}], "limits": {"total": "4s"}})
}

#[tokio::test]
async fn a_real_token_server_is_believed_when_it_is_right_and_survived_when_it_is_not() {
    let (receiver, engine, id) = start().await;
    for (path, expected) in [
        ("/good", None),
        ("/error", Some("answered 500")),
        ("/junk", Some("could not be called")),
        ("/moved", Some("answered 307")),
        ("/huge", Some("bytes or more")),
        ("/slow", Some("token server")),
    ] {
        let change = SubscriptionChange {
            overrides: Some(overrides(&receiver, path)),
            ..SubscriptionChange::default()
        };
        engine.update_subscription(TENANT, id, change).await.expect("changed");
        let outcome = engine.test_subscription(TENANT, id).await.expect("tested");
        match (outcome, expected) {
            (AttemptOutcome::Answered(answer), None) => assert_eq!(answer.status, 200),
            (AttemptOutcome::Failed { code, detail }, Some(words)) => {
                assert_eq!(code, FailureCode::TokenUnavailable, "{path}: {detail}");
                assert!(detail.contains(words), "{path}: {detail}");
                assert!(!detail.contains("hush") && !detail.contains("real-token"), "{detail}");
            }
            (outcome, _) => panic!("{path}: {outcome:?}"),
        }
    }
}
