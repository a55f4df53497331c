//! Who may post, who may take back, and what endpoints tell of their agents.

use std::sync::Arc;

use posthorn_domain::{ChannelId, Clock as _};
use posthorn_sealing::vapid::SenderKey;
use posthorn_testkit::clock::Wall;

use crate::live::gated::Gated;
use crate::live::house::{
    House, Wires, location, notification, options, request, silence, store, take, text,
};

async fn house() -> (Arc<Gated>, House) {
    let store = Gated::new();
    let house = House::start(Arc::clone(&store) as _, &Wires::default(), options("n1")).await;
    (store, house)
}

#[tokio::test]
async fn only_the_sender_it_was_made_for_may_use_an_endpoint() {
    let (_, house) = house().await;
    let (mut agent, _, open) = house.registered().await;
    let (sender, other) = (SenderKey::generate(), SenderKey::generate());
    let key = sender.public_key().to_text();
    let channel = ChannelId::from_random(rand::random());
    let bound = agent.register(channel, Some(&format!("{key}="))).await.expect("an endpoint");
    let now = Wall.now().as_seconds();
    let origin = house.url.as_str();
    let token = |seconds: i64| sender.token(origin, now + seconds, Some("mailto:a@example.org"));
    let vapid = |token: &str| format!("Authorization: vapid t={token},k={key}\r\n");
    let hour = token(3_600);
    let draft = |scheme: &str, crypto_key: &str| {
        format!("Authorization: {scheme} {hour}\r\nCrypto-Key: {crypto_key}\r\n")
    };
    let theirs = other.authorization(origin, now + 3_600, None);
    let elsewhere = |audience: &str| sender.token(audience, now + 3_600, None);
    // What is answered at an endpoint for everybody, and at one for this sender.
    let table = [
        (String::new(), 201, 401),
        (vapid(&hour), 201, 201),
        (format!("Authorization: {}\r\n", sender.authorization(origin, now + 60, None)), 201, 201),
        (format!("Authorization: vapid t={hour}, k={key}\r\n"), 201, 201),
        (format!("Authorization: vapid k={key}=,t={hour}\r\n"), 201, 201),
        (format!("Authorization: VAPID t={hour},k={key}\r\n"), 201, 201),
        (draft("WebPush", &format!("p256ecdsa={key}")), 201, 201),
        (draft("Bearer", &format!("p256ecdsa={key}")), 201, 201),
        (draft("webpush", &format!("keyid=a;x=b,p256ecdsa=\"{key}\"")), 201, 201),
        (vapid(&token(-30)), 201, 201),
        (vapid(&token(86_400)), 201, 201),
        (format!("Authorization: {theirs}\r\n"), 201, 401),
        (vapid(&token(-120)), 401, 401),
        (vapid(&token(86_460)), 401, 401),
        (vapid(&elsewhere("https://elsewhere.example")), 401, 401),
        (vapid(&elsewhere(&format!("{origin}/"))), 401, 401),
        (vapid(&other.token(origin, now + 3_600, None)), 401, 401),
        (vapid("a.b.c"), 401, 401),
        (format!("Authorization: vapid t={hour};k={key}\r\n"), 401, 401),
        (format!("Authorization: vapid t={hour}\r\n"), 401, 401),
        (format!("Authorization: vapid k={key}\r\n"), 401, 401),
        ("Authorization: vapid\r\n".to_owned(), 401, 401),
        ("Authorization: Basic YTpi\r\n".to_owned(), 401, 401),
        (format!("Authorization: {hour}\r\n"), 401, 401),
        (format!("Authorization: WebPush {hour}\r\n"), 400, 400),
        (draft("Bearer", "x=y"), 400, 400),
    ];
    for (headers, at_open, at_bound) in table {
        for (endpoint, status) in [(&open, at_open), (&bound, at_bound)] {
            // Twice, because what was proven is remembered.
            for _ in 0..2 {
                let answer = house.knock(endpoint, &format!("TTL: 0\r\n{headers}")).await;
                assert_eq!(answer.status, status, "{endpoint} {headers}: {answer:?}");
                let errno = match status {
                    201 => continue,
                    400 => "\"errno\":110",
                    _ => "\"errno\":109",
                };
                assert!(answer.body.contains(errno), "{headers}: {answer:?}");
            }
        }
    }
}

/// The longest text that is in both.
fn common(one: &str, two: &str) -> usize {
    let starts = (0..one.len()).flat_map(|a| (0..two.len()).map(move |b| (a, b)));
    let same = |(a, b): (usize, usize)| {
        one[a..].bytes().zip(two[b..].bytes()).take_while(|(one, two)| one == two).count()
    };
    starts.map(same).max().unwrap_or(0)
}

#[tokio::test]
async fn endpoints_tell_nothing_of_whose_they_are() {
    let (_, house) = house().await;
    let (mut agent, id, first) = house.registered().await;
    let mut urls = vec![first];
    let channel = ChannelId::from_random(rand::random());
    for _ in 0..3 {
        // The same channel again gets another endpoint, which is as good.
        urls.push(agent.register(channel, None).await.expect("an endpoint"));
    }
    let key = SenderKey::generate().public_key().to_text();
    for _ in 0..2 {
        let channel = ChannelId::from_random(rand::random());
        urls.push(agent.register(channel, Some(&key)).await.expect("an endpoint"));
    }
    for url in &urls[..4] {
        let answer = house.post(url, "x").await;
        assert_eq!(answer.status, 201);
        assert_eq!(take(&mut agent, 1).await, ["x"]);
    }
    let tokens: Vec<&str> = urls.iter().map(|url| url.rsplit('/').next().expect("one")).collect();
    for (at, token) in tokens.iter().enumerate() {
        assert!(common(token, &id.to_string()) < 8 && common(token, &channel.to_string()) < 8);
        for other in &tokens[..at] {
            assert!(common(token, other) < 8, "{token} and {other} have something in common");
        }
    }
}

async fn delete(house: &House, location: &str) -> u16 {
    let answer = request(&house.url, "DELETE", location, "", b"").await;
    if answer.status == 204 {
        assert!(answer.body.is_empty());
    } else {
        assert!(answer.body.contains("\"errno\":null"), "{answer:?}");
    }
    answer.status
}

#[tokio::test]
async fn a_stored_message_can_be_taken_back() {
    let (store, house) = house().await;
    let (mut agent, id, endpoint) = house.registered().await;
    // One that was sent and acknowledged, one that was only sent.
    let done = house.post(&endpoint, "done").await;
    take(&mut agent, 1).await;
    let saved = house.post(&endpoint, "saved at the end").await;
    let kept = house.post(&endpoint, "kept").await;
    for _ in 0..2 {
        notification(&mut agent).await;
    }
    agent.close().await.expect("closed");
    store.holds(id, &["saved at the end", "kept"]).await;
    let stored = house.post(&endpoint, "stored").await;
    assert_eq!([&done, &saved, &kept, &stored].map(|answer| answer.status), [201; 4]);
    let (mut agent, _) = house.agent(Some(id)).await;
    for expected in ["saved at the end", "kept", "stored"] {
        assert_eq!(text(&notification(&mut agent).await), expected);
    }
    agent.close().await.expect("closed");
    for answer in [&done, &saved, &stored] {
        // Also the second time, and also when there is nothing to take back.
        assert_eq!(delete(&house, location(answer)).await, 204);
        assert_eq!(delete(&house, location(answer)).await, 204);
    }
    let (mut agent, _) = house.agent(Some(id)).await;
    assert_eq!(take(&mut agent, 1).await, ["kept"]);
    silence(&mut agent).await;
}

#[tokio::test]
async fn taking_back_a_replaced_message_leaves_the_newer_one() {
    let (_, house) = house().await;
    let (agent, id, endpoint) = house.registered().await;
    agent.close().await.expect("closed");
    let headers = "TTL: 60\r\nContent-Encoding: aes128gcm\r\nTopic: t\r\n";
    let old = request(&house.url, "POST", &endpoint, headers, b"old").await;
    let new = request(&house.url, "POST", &endpoint, headers, b"new").await;
    assert_ne!(location(&old), location(&new));
    assert_eq!(delete(&house, location(&old)).await, 204);
    let (mut agent, _) = house.agent(Some(id)).await;
    assert_eq!(text(&notification(&mut agent).await), "new");
    agent.close().await.expect("closed");
    assert_eq!(delete(&house, location(&new)).await, 204);
    silence(&mut house.agent(Some(id)).await.0).await;
}

#[tokio::test]
async fn only_real_names_of_messages_are_taken() {
    let (_, house) = house().await;
    let (_agent, _, endpoint) = house.registered().await;
    let reply = house.post(&endpoint, "x").await;
    let location = location(&reply).to_owned();
    let token = endpoint.rsplit('/').next().expect("a token");
    let base = format!("{}/m", house.url);
    let shortened = &location[..location.len() - 1];
    for name in
        [&format!("{base}/junk"), &format!("{base}/{token}"), &format!("{base}/%ff"), shortened]
    {
        assert_eq!(delete(&house, name).await, 400, "{name}");
    }
    // A message's name is no endpoint.
    let name = location.rsplit('/').next().expect("a name");
    let answer = house.post(&format!("{}/wpush/v1/{name}", house.url), "x").await;
    assert_eq!((answer.status, answer.body.as_str()), (404, ""));
}

#[tokio::test]
async fn a_message_can_be_posted_and_taken_back_at_any_node() {
    let (store, wires) = (store(), Wires::default());
    let one = House::start(Arc::clone(&store) as _, &wires, options("n1")).await;
    let two = House::start(store, &wires, options("n2")).await;
    let (agent, id, endpoint) = one.registered().await;
    agent.close().await.expect("closed");
    let answer = two.post(&endpoint, "x").await;
    assert_eq!(answer.status, 201, "{answer:?}");
    assert_eq!(delete(&one, location(&answer)).await, 204);
    silence(&mut two.agent(Some(id)).await.0).await;
}
