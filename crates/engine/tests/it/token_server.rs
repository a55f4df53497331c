//! Tokens over real sockets: the way to a token server has the same walls as the way to a receiver.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use posthorn_conformance::model::ModelStore;
use posthorn_domain::{AttemptOutcome, Clock, FailureCode, SecretName, SubscriptionId};
use posthorn_egress::{Egress, Options as EgressOptions};
use posthorn_engine::{
    EgressTransport, Engine, NewSubscription, Options, Parts, SecretInput, SubscriptionChange,
};
use posthorn_sealing::vault::{Vault, VaultKey};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::house::{TENANT, TokioClock};

/// How a token server on this machine behaves, by path.
async fn serve(mut tcp: TcpStream) {
    let Some(head) = read(&mut tcp).await else { return };
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let grant = r#"{"access_token":"real-token","token_type":"Bearer","expires_in":600}"#;
    let plain = |status: &str, body: &str| {
        let length = body.len();
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
    };
    let answer = match path.as_str() {
        "/good" => plain("200 OK", grant),
        "/error" => plain("500 Oops", grant),
        "/junk" => "\u{0}\u{1}nonsense".to_owned(),
        "/moved" => {
            let head = "HTTP/1.1 307 Moved\r\nLocation: /good\r\nContent-Length: 0\r\n\r\n";
            head.to_owned()
        }
        "/huge" => plain("200 OK", &format!("{grant}{}", " ".repeat(4 << 20))),
        "/slow" => {
            drop(tcp.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n").await);
            while tcp.write_all(b" ").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            return;
        }
        // The receiver: it wants the token.
        _ => {
            let authorized = head.contains("\r\nauthorization: Bearer real-token\r\n");
            plain(if authorized { "200 OK" } else { "401 No" }, "")
        }
    };
    drop(tcp.write_all(answer.as_bytes()).await);
}

async fn read(tcp: &mut TcpStream) -> Option<String> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 4_096];
    loop {
        let count = tcp.read(&mut buffer).await.ok().filter(|count| *count > 0)?;
        bytes.extend_from_slice(&buffer[..count]);
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let head = format!("{}\r\n", head.replace("Authorization", "authorization"));
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(": ")?;
            name.eq_ignore_ascii_case("content-length").then(|| value.parse::<usize>().ok())?
        });
        if body.len() >= length.unwrap_or(0) {
            return Some(head);
        }
    }
}

async fn start() -> (SocketAddr, Engine, SubscriptionId) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            tokio::spawn(serve(tcp));
        }
    });
    let allow = vec!["127.0.0.1".parse().expect("a rule")];
    let egress = Egress::new(EgressOptions { allow, ..EgressOptions::default() }).expect("egress");
    let clock: Arc<dyn Clock> = TokioClock::start();
    let engine = Engine::start(Parts {
        store: Arc::new(ModelStore::new(Arc::clone(&clock))),
        transport: Arc::new(EgressTransport::new(egress)),
        push: None,
        vault: Arc::new(Vault::new(vec![VaultKey::generate()]).expect("one key")),
        clock,
        seed: [1; 32],
        options: Options::default(),
    })
    .await
    .expect("starts");
    let secret =
        SecretInput { name: SecretName::new("client").expect("a name"), value: "hush".to_owned() };
    let new = NewSubscription {
        destination: format!("http://{address}/hook").into(),
        overrides: overrides(address, "/good"),
        secrets: vec![secret],
        ..NewSubscription::default()
    };
    let (view, _) = engine.create_subscription(TENANT, new).await.expect("made");
    (address, engine, view.subscription.id)
}

fn overrides(address: SocketAddr, path: &str) -> Value {
    json!({"auth": [{"kind": "oauth2", "token_url": format!("http://{address}{path}"),
        "client_id": "me", "secret": "client"}], "limits": {"total": "4s"}})
}

#[tokio::test]
async fn a_real_token_server_is_believed_when_it_is_right_and_survived_when_it_is_not() {
    let (address, engine, id) = start().await;
    for (path, expected) in [
        ("/good", None),
        ("/error", Some("answered 500")),
        ("/junk", Some("could not be asked")),
        ("/moved", Some("answered 307")),
        ("/huge", Some("bytes or more")),
        ("/slow", Some("token server")),
    ] {
        let change = SubscriptionChange {
            overrides: Some(overrides(address, path)),
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
