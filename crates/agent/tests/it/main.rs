//! The agent against servers that follow a script, on loopback.

mod script;
mod tls;

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use posthorn_agent::{Agent, Closed, Error, Event, MESSAGE_BYTES_MAX, Message, Options};
use posthorn_domain::{AgentId, ChannelId};
use posthorn_sealing::web_push::ReceiverKeys;
use serde_json::json;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

use script::{Peer, Server, base64url};

const AGENT: &str = "0123456789abcdef0123456789abcdef";

fn channel() -> ChannelId {
    ChannelId::from_random(7)
}

fn uaid() -> AgentId {
    AGENT.parse().expect("an id")
}

async fn connected(server: &Server, patience: Duration) -> Agent {
    let options = Options { patience, ..Options::default() };
    Agent::connect(&server.url, &options).await.expect("a socket")
}

async fn greet(peer: &mut Peer) {
    let hello = peer.read().await;
    assert_eq!(hello["messageType"], "hello");
    peer.say(&json!({"messageType": "hello", "uaid": AGENT, "status": 200,
        "use_webpush": true, "broadcasts": {"b": "2"}}))
        .await;
}

fn notification(version: &str) -> serde_json::Value {
    json!({"messageType": "notification", "channelID": channel(), "version": version})
}

const PATIENT: Duration = Duration::from_secs(20);

#[tokio::test]
async fn says_hello_registers_gets_messages_and_acknowledges_them() {
    let keys = ReceiverKeys::generate();
    let body = keys.receiver().encrypt(b"for your eyes only", 0);
    let server = Server::start(move |mut peer| async move {
        let hello = peer.read().await;
        assert_eq!(
            hello,
            json!({"messageType": "hello", "use_webpush": true, "uaid": AGENT,
                   "broadcasts": {"b": "1"}})
        );
        peer.say(&json!({"messageType": "hello", "uaid": AGENT, "status": 200,
            "use_webpush": true, "broadcasts": {"b": "2"}}))
            .await;
        let register = peer.read().await;
        assert_eq!(
            register,
            json!({"messageType": "register", "channelID": channel(), "key": "BKey"})
        );
        // What was stored may come before the answer; it must not be lost.
        let mut first = notification("v1");
        first["data"] = json!(base64url(&body));
        first["headers"] = json!({"encoding": "aes128gcm"});
        peer.say(&first).await;
        peer.say(&json!({"messageType": "register", "channelID": channel(), "status": 200,
            "pushEndpoint": "https://push.example.com/wpush/v2/x"}))
            .await;
        peer.say(&notification("v2")).await;
        let ack = peer.read().await;
        let update =
            |version: &str| json!({"channelID": channel(), "version": version, "code": 100});
        assert_eq!(ack, json!({"messageType": "ack", "updates": [update("v1"), update("v2")]}));
        assert_eq!(peer.read().await, json!({"messageType": "nack", "version": "v2", "code": 302}));
        assert_eq!(peer.read().await, json!({}));
        peer.say(&json!({})).await;
        let unregister = peer.read().await;
        assert_eq!(
            unregister,
            json!({"messageType": "unregister", "channelID": channel(), "code": 200})
        );
        peer.say(&json!({"messageType": "unregister", "channelID": channel(), "status": 200}))
            .await;
        assert!(matches!(peer.socket.next().await, Some(Ok(Message::Close(_)))));
    })
    .await;
    let mut agent = connected(&server, PATIENT).await;
    let hello = agent.hello(Some(uaid()), &[("b", "1")]).await.expect("hello");
    assert!(hello.known);
    assert_eq!((hello.agent, &hello.broadcasts["b"]), (uaid(), &json!("2")));
    let endpoint = agent.register(channel(), Some("BKey")).await.expect("an endpoint");
    assert_eq!(endpoint, "https://push.example.com/wpush/v2/x");
    let mut got = Vec::new();
    while got.len() < 2 {
        match agent.next().await.expect("an event") {
            Event::Notification(notification) => got.push(notification),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(got[0].open(&keys).expect("opens"), b"for your eyes only");
    assert!(got[0].open(&ReceiverKeys::generate()).is_err());
    assert_eq!((&got[1].data, got[1].open(&keys)), (&None, Ok(Vec::new())));
    agent.ack(&[got[0].ack(), got[1].ack()]).await.expect("sent");
    agent.nack("v2", Some(302)).await.expect("sent");
    agent.ping().await.expect("sent");
    assert_eq!(agent.next().await.expect("an event"), Event::Pong);
    agent.unregister(channel()).await.expect("gone");
    agent.close().await.expect("closed");
    server.ended().await;
}

#[tokio::test]
async fn another_id_than_the_one_proposed_is_not_known() {
    let server = Server::start(|mut peer| async move {
        greet(&mut peer).await;
        peer.end().await;
    })
    .await;
    let mut agent = connected(&server, PATIENT).await;
    let hello = agent.hello(Some(AgentId::from_random(1)), &[]).await.expect("hello");
    assert_eq!((hello.agent, hello.known), (uaid(), false));
    assert!(agent.ready().is_none(), "the server says nothing else");
    drop(agent);
    server.ended().await;
}

#[tokio::test]
async fn pings_are_answered_while_somebody_waits() {
    let server = Server::start(|mut peer| async move {
        peer.socket.send(Message::Ping(b"there?".to_vec().into())).await.expect("sent");
        match peer.socket.next().await {
            Some(Ok(Message::Pong(echo))) => assert_eq!(&echo[..], b"there?"),
            other => panic!("{other:?}"),
        }
        peer.say(&json!({"messageType": "broadcast", "broadcasts": {"b": "3"}})).await;
        peer.say(&json!({"messageType": "weather", "sun": true})).await;
        peer.end().await;
    })
    .await;
    let mut agent = connected(&server, PATIENT).await;
    assert_eq!(agent.next().await.expect("an event"), Event::Ping);
    let news = [("b".to_owned(), json!("3"))].into_iter().collect();
    assert_eq!(agent.next().await.expect("an event"), Event::Broadcast(news));
    let other = r#"{"messageType":"weather","sun":true}"#.to_owned();
    assert_eq!(agent.next().await.expect("an event"), Event::Other(other));
    drop(agent);
    server.ended().await;
}

#[tokio::test]
async fn the_end_of_a_socket_is_told_with_its_code_and_again() {
    let server = Server::start(|mut peer| async move {
        peer.read().await;
        let frame = CloseFrame { code: 1011.into(), reason: "SM".into() };
        peer.socket.send(Message::Close(Some(frame))).await.expect("sent");
        peer.end().await;
    })
    .await;
    let mut agent = connected(&server, PATIENT).await;
    let closed = Closed { code: Some(1011), reason: "SM".to_owned() };
    match agent.hello(None, &[]).await {
        Err(Error::Closed(seen)) => assert_eq!(seen, closed),
        other => panic!("{other:?}"),
    }
    for _ in 0..2 {
        assert_eq!(agent.next().await.expect("the end"), Event::Closed(closed.clone()));
    }
    server.ended().await;
}

#[tokio::test]
async fn a_connection_that_breaks_is_an_end_without_a_code() {
    let server = Server::start(|peer| async move { drop(peer) }).await;
    let mut agent = connected(&server, PATIENT).await;
    let broken = Closed { code: None, reason: String::new() };
    assert_eq!(agent.next().await.expect("the end"), Event::Closed(broken));
    server.ended().await;
}

#[tokio::test]
async fn a_refused_channel_says_how() {
    let server = Server::start(|mut peer| async move {
        peer.read().await;
        peer.say(&json!({"messageType": "register", "channelID": channel(), "status": 400,
            "pushEndpoint": "Failed to generate endpoint"}))
            .await;
        peer.end().await;
    })
    .await;
    let mut agent = connected(&server, PATIENT).await;
    match agent.register(channel(), Some("?")).await {
        Err(Error::Refused { what: "register", status: 400, text }) => {
            assert_eq!(text, "Failed to generate endpoint");
        }
        other => panic!("{other:?}"),
    }
    drop(agent);
    server.ended().await;
}

#[tokio::test]
async fn silence_and_floods_are_not_borne_for_ever() {
    let silent = Server::start(|mut peer| async move { peer.end().await }).await;
    let mut agent = connected(&silent, Duration::from_millis(100)).await;
    assert!(matches!(agent.hello(None, &[]).await, Err(Error::Late(_))));
    drop(agent);
    silent.ended().await;

    let flood = Server::start(|mut peer| async move {
        let text = notification("v").to_string();
        while peer.socket.send(Message::text(text.clone())).await.is_ok() {}
    })
    .await;
    let mut agent = connected(&flood, PATIENT).await;
    assert!(matches!(agent.hello(None, &[]).await, Err(Error::Flooded)));
    drop(agent);
    flood.ended().await;
}

#[tokio::test]
async fn what_no_server_says_is_an_error() {
    let much = json!({"messageType": "x", "y": "z".repeat(MESSAGE_BYTES_MAX)}).to_string();
    let messages = [
        Message::text("nonsense"),
        Message::text(r#"{"messageType":"notification","channelID":"7","version":"v"}"#),
        Message::text(r#"{"messageType":"notification"}"#),
        Message::text(
            r#"{"messageType":"notification","channelID":"01234567-89ab-cdef-0123-456789abcdef","version":"v","data":"!"}"#,
        ),
        Message::binary(vec![1]),
        Message::text(much),
    ];
    for message in messages {
        let shown = format!("{message:?}").chars().take(80).collect::<String>();
        let server = Server::start(|mut peer| async move {
            // The agent may have gone before all of it was sent.
            drop(peer.socket.send(message).await);
            peer.end().await;
        })
        .await;
        let mut agent = connected(&server, PATIENT).await;
        let read = agent.next().await;
        assert!(matches!(read, Err(Error::Unreadable(_) | Error::Socket(_))), "{shown}: {read:?}");
        drop(agent);
        server.ended().await;
    }
}

#[tokio::test]
async fn a_server_without_sockets_says_so() {
    let url =
        script::plain_http("HTTP/1.1 426 Upgrade Required\r\ncontent-length: 0\r\n\r\n").await;
    match Agent::connect(&url, &Options::default()).await {
        Err(Error::NoSocket(426)) => {}
        other => panic!("{other:?}"),
    }
    let url = script::nobody().await;
    assert!(matches!(Agent::connect(&url, &Options::default()).await, Err(Error::Connect(_))));
}
