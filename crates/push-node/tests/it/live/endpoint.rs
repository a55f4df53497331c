//! What senders may post, what they are answered, and in which order it is looked at.

use std::sync::Arc;

use posthorn_agent::Agent;
use posthorn_domain::ChannelId;
use posthorn_store::push::PushStore as _;
use posthorn_testkit::caller::Reply;
use serde_json::{Value, json};

use crate::live::gated::{Gated, Verb};
use crate::live::house::{
    House, Wires, location, notification, options, request, silence, store, take, text,
};

const PLAIN: &str = "TTL: 60\r\nContent-Encoding: aes128gcm\r\n";

async fn house() -> House {
    House::start(store(), &Wires::default(), options("n1")).await
}

/// A refusal as senders know it. `errno` 0 stands for none.
fn is_refused(answer: &Reply, status: u16, errno: u16) {
    assert_eq!(answer.status, status, "{answer:?}");
    let body: Value = serde_json::from_str(&answer.body).expect("JSON");
    let reason = match status {
        400 => "Bad Request",
        401 => "Unauthorized",
        410 => "Gone",
        413 => "Payload Too Large",
        _ => "Service Unavailable",
    };
    let expected = json!({
        "code": status,
        "errno": (errno > 0).then_some(errno),
        "error": reason,
        "message": body["message"].as_str().filter(|text| !text.is_empty()).expect("a message"),
        "more_info": "http://autopush.readthedocs.io/en/latest/http.html#error-codes",
    });
    assert_eq!(body, expected);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let lasting = (status == 410).then_some("max-age=86400");
    assert_eq!(answer.header("cache-control"), lasting, "{answer:?}");
    assert_eq!(answer.header("www-authenticate"), None);
}

fn is_created(answer: &Reply, house: &House, ttl: &str) {
    assert_eq!(answer.status, 201, "{answer:?}");
    assert_eq!(answer.header("ttl"), Some(ttl));
    assert!(location(answer).starts_with(&format!("{}/m/", house.url)), "{answer:?}");
    assert_eq!(answer.header("link"), None);
    assert!(answer.body.is_empty(), "{answer:?}");
}

#[tokio::test]
async fn the_first_check_that_fails_is_the_answer() {
    let house = house().await;
    let (mut agent, _, endpoint) = house.registered().await;
    let left = ChannelId::from_random(rand::random());
    let gone = agent.register(left, None).await.expect("an endpoint");
    agent.unregister(left).await.expect("an answer");
    let other = format!("{}/wpush/v1/{}", house.url, "A".repeat(80));
    let (large, small) = (vec![b'x'; 6_000], vec![b'x'; 10]);
    // In each row one fault less than in the one before.
    let worst = "Authorization: Basic abc\r\nTopic: not a topic\r\nUrgency: extreme\r\n";
    let open = "Topic: not a topic\r\nUrgency: extreme\r\n";
    let negative = format!("TTL: -1\r\n{open}");
    let encoded = format!("Content-Encoding: aes128gcm\r\n{negative}");
    let in_time = format!("{PLAIN}{open}");
    let urgent = format!("{PLAIN}Urgency: extreme\r\n");
    let table: [(&str, &str, &[u8], u16, u16); 9] = [
        (&gone, worst, &large, 401, 109),
        (&gone, open, &large, 410, 106),
        (&endpoint, open, &large, 413, 104),
        (&endpoint, open, &small, 400, 111),
        (&endpoint, &negative, &small, 400, 110),
        (&endpoint, &negative, b"", 400, 114),
        (&endpoint, &encoded, &small, 400, 114),
        (&endpoint, &in_time, &small, 400, 113),
        (&endpoint, &urgent, &small, 400, 0),
    ];
    let answer = request(&house.url, "POST", &other, worst, &large).await;
    assert_eq!((answer.status, answer.body.as_str()), (404, ""), "{answer:?}");
    for (to, headers, body, status, errno) in table {
        is_refused(&request(&house.url, "POST", to, headers, body).await, status, errno);
    }
    silence(&mut agent).await;
    is_created(&request(&house.url, "POST", &endpoint, PLAIN, &small).await, &house, "60");
    assert_eq!(take(&mut agent, 1).await, ["xxxxxxxxxx"]);
}

#[tokio::test]
async fn what_is_no_endpoint_is_not_found_and_nothing_more_is_said() {
    let house = house().await;
    let (mut agent, _, endpoint) = house.registered().await;
    let key = posthorn_sealing::vapid::SenderKey::generate().public_key().to_text();
    let bound = agent.register(ChannelId::from_random(7), Some(&key)).await.expect("an endpoint");
    let token = endpoint.rsplit('/').next().expect("a token");
    let bound = bound.rsplit('/').next().expect("a token");
    // One letter in the middle is another one.
    let (head, tail) = token.split_at(token.len() / 2);
    let other = if tail.starts_with('A') { "B" } else { "A" };
    let paths = [
        "wpush".to_owned(),
        "wpush/".to_owned(),
        "wpush/v1".to_owned(),
        "wpush/v1/".to_owned(),
        "wpush/v1/junk".to_owned(),
        format!("wpush/v1/{head}{other}{}", &tail[1..]),
        format!("wpush/v1/{}", &token[..token.len() - 1]),
        format!("wpush/v1/{token}A"),
        format!("wpush/v1/{token}/more"),
        format!("wpush/v2/{token}"),
        format!("wpush/v1/{bound}"),
        format!("wpush/{bound}"),
        format!("wpush/v3/{token}"),
        format!("wpush/V1/{token}"),
        "wpush/%ff".to_owned(),
        "wpush/v1/%ff".to_owned(),
        format!("wpush/%ff/{token}"),
        "nothing/here".to_owned(),
    ];
    for path in paths {
        let answer =
            request(&house.url, "POST", &format!("{}/{path}", house.url), PLAIN, b"x").await;
        assert_eq!((answer.status, answer.body.as_str()), (404, ""), "{path}: {answer:?}");
    }
    for path in [format!("wpush/v1/{token}"), format!("wpush/{token}")] {
        let to = format!("{}/{path}", house.url);
        is_created(&request(&house.url, "POST", &to, PLAIN, b"x").await, &house, "60");
        notification(&mut agent).await;
    }
}

#[tokio::test]
async fn other_methods_are_not_allowed_and_pages_may_post() {
    let house = house().await;
    let (_agent, _, endpoint) = house.registered().await;
    let message = format!("{}/m/x", house.url);
    let wrong = [
        ("GET", &endpoint, "POST"),
        ("PUT", &endpoint, "POST"),
        ("DELETE", &endpoint, "POST"),
        ("PATCH", &endpoint, "POST"),
        ("GET", &message, "DELETE"),
        ("POST", &message, "DELETE"),
    ];
    for (method, to, allowed) in wrong {
        let answer = request(&house.url, method, to, "", b"").await;
        assert_eq!((answer.status, answer.body.as_str()), (405, ""), "{method} {to}: {answer:?}");
        let allow = answer.header("allow").expect("what is allowed");
        assert!(allow.split(',').any(|method| method.trim() == allowed), "{allow}");
        assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
    }
    for to in [&endpoint, &message] {
        let asked = "Origin: https://page.example\r\nAccess-Control-Request-Method: POST\r\n\
                     Access-Control-Request-Headers: ttl, authorization, content-encoding\r\n";
        let answer = request(&house.url, "OPTIONS", to, asked, b"").await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("access-control-allow-origin"), Some("*"));
        assert_eq!(answer.header("access-control-max-age"), Some("3600"));
        let headers = answer.header("access-control-allow-headers");
        assert_eq!(headers, Some("ttl, authorization, content-encoding"));
        let methods = answer.header("access-control-allow-methods").expect("methods");
        for method in ["GET", "PUT", "POST", "DELETE"] {
            assert!(methods.contains(method), "{methods}");
        }
    }
    // With answers, good or bad.
    for headers in ["TTL: 0\r\n", ""] {
        let answer = house.knock(&endpoint, headers).await;
        assert_eq!(answer.header("access-control-allow-origin"), Some("*"), "{answer:?}");
    }
}

#[tokio::test]
async fn a_body_has_its_limit_however_it_is_sent() {
    let house = house().await;
    let (mut agent, _, endpoint) = house.registered().await;
    let chunked = |body: &[u8]| {
        let (one, two) = body.split_at(1_000);
        let mut sent = Vec::new();
        for part in [one, two, &[]] {
            sent.extend(format!("{:x}\r\n", part.len()).into_bytes());
            sent.extend_from_slice(part);
            sent.extend(b"\r\n");
        }
        sent
    };
    for (bytes, fits) in [(5_630, true), (5_631, false), (100_000, false)] {
        let body = vec![b'x'; bytes];
        let announced = format!("{PLAIN}Content-Length: {bytes}\r\n");
        let in_chunks = format!("{PLAIN}Transfer-Encoding: chunked\r\n");
        for (headers, sent) in [(announced, body.clone()), (in_chunks, chunked(&body))] {
            // The sender would keep the connection; the server ends it where it did not read all.
            let stays = if fits { "close" } else { "keep-alive" };
            let headers = format!("{headers}Connection: {stays}\r\n");
            let answer = request(&house.url, "POST", &endpoint, &headers, &sent).await;
            if fits {
                is_created(&answer, &house, "60");
                assert_eq!(text(&notification(&mut agent).await).len(), bytes);
            } else {
                is_refused(&answer, 413, 104);
                assert_eq!(answer.header("connection"), Some("close"));
            }
        }
    }
    silence(&mut agent).await;
}

#[tokio::test]
async fn ttls_and_topics_keep_to_their_rules() {
    let house = house().await;
    let (_agent, _, endpoint) = house.registered().await;
    let good = [
        ("0", "0"),
        ("1", "1"),
        ("0060", "60"),
        ("2592000", "2592000"),
        ("2592001", "2592000"),
        ("99999999999999999999999", "2592000"),
    ];
    for (ttl, told) in good {
        is_created(&house.knock(&endpoint, &format!("TTL: {ttl}\r\n")).await, &house, told);
    }
    for ttl in ["", "x", "5.5", "1e3", "0x10", "5 s", "--5", "60, 60"] {
        is_refused(&house.knock(&endpoint, &format!("TTL: {ttl}\r\n")).await, 400, 111);
    }
    is_refused(&house.knock(&endpoint, "").await, 400, 111);
    is_refused(&house.knock(&endpoint, "TTL: 5\r\nTTL: 6\r\n").await, 400, 111);
    for ttl in ["-1", "-99999999999999999999999"] {
        is_refused(&house.knock(&endpoint, &format!("TTL: {ttl}\r\n")).await, 400, 114);
    }
    let longest = "a".repeat(32);
    for topic in ["a", "A_-9", "dG9waWM=", &longest] {
        let headers = format!("TTL: 5\r\nTopic: {topic}\r\n");
        is_created(&house.knock(&endpoint, &headers).await, &house, "5");
    }
    for topic in ["", "a b", "a+b", "a/b", "a=b", "=", "\u{fc}", &format!("{longest}a")] {
        let headers = format!("TTL: 5\r\nTopic: {topic}\r\n");
        is_refused(&house.knock(&endpoint, &headers).await, 400, 113);
    }
    for urgency in ["very-low", "low", "normal", "high"] {
        let headers = format!("TTL: 5\r\nUrgency: {urgency}\r\nPrefer: respond-async\r\n");
        is_created(&house.knock(&endpoint, &headers).await, &house, "5");
    }
}

/// Posts a body with these headers; the encryption headers that arrive.
async fn encrypted(
    house: &House,
    agent: &mut Agent,
    endpoint: &str,
    headers: &str,
) -> Result<[Option<String>; 3], Reply> {
    let headers = format!("TTL: 60\r\n{headers}");
    let answer = request(&house.url, "POST", endpoint, &headers, b"body").await;
    if answer.status != 201 {
        return Err(answer);
    }
    let got = notification(agent).await;
    assert_eq!(text(&got), "body");
    let headers = got.headers.clone().expect("headers");
    agent.ack(&[got.ack()]).await.expect("sent");
    let [encryption, crypto_key] =
        [headers.encryption, headers.crypto_key].map(|h| h.map(String::from));
    Ok([Some(headers.encoding.as_str().to_owned()), encryption, crypto_key])
}

#[tokio::test]
async fn encryption_headers_are_checked_and_handed_on() {
    let house = house().await;
    let (mut agent, _, endpoint) = house.registered().await;
    let arrives = [
        ("Content-Encoding: aes128gcm\r\n", ["aes128gcm", "", ""]),
        (
            "Content-Encoding: aes128gcm\r\nCrypto-Key: p256ecdsa=\"BA==\"\r\n",
            ["aes128gcm", "", "p256ecdsa=BA"],
        ),
        (
            "Content-Encoding: aesgcm\r\nEncryption: salt=\"Zm9vYg==\"\r\n",
            ["aesgcm", "salt=Zm9vYg", ""],
        ),
        (
            "Content-Encoding: aesgcm\r\nEncryption: keyid=a;salt=Zm9v\r\n\
             Crypto-Key: keyid=a;dh=\"YmFy\"\r\nCrypto-Key: p256ecdsa=BA\r\n",
            ["aesgcm", "keyid=a;salt=Zm9v", "keyid=a;dh=YmFy,p256ecdsa=BA"],
        ),
    ];
    for (headers, expected) in arrives {
        let got = encrypted(&house, &mut agent, &endpoint, headers).await.expect(headers);
        let expected = expected.map(|text| Some(text.to_owned()).filter(|text| !text.is_empty()));
        assert_eq!(got, expected, "{headers}");
    }
    let refused = [
        "",
        "Content-Encoding: gzip\r\n",
        "Content-Encoding: aesgcm128\r\nEncryption: salt=Zm9v\r\n",
        "Content-Encoding: aes128gcm\r\nEncryption: salt=Zm9v\r\n",
        "Content-Encoding: aes128gcm\r\nCrypto-Key: dh=YmFy\r\n",
        "Content-Encoding: aesgcm\r\n",
        "Content-Encoding: aesgcm\r\nEncryption: salt\r\n",
        "Content-Encoding: aesgcm\r\nEncryption: keyid=a\r\n",
        "Content-Encoding: aesgcm\r\nEncryption: salt=Zm9v\r\nCrypto-Key: keyid=a\r\n",
    ];
    for headers in refused {
        let answer = encrypted(&house, &mut agent, &endpoint, headers).await;
        is_refused(&answer.expect_err(headers), 400, 110);
        // Without a body nobody looks.
        let knock = house.knock(&endpoint, &format!("TTL: 60\r\n{headers}")).await;
        is_created(&knock, &house, "60");
        assert_eq!(notification(&mut agent).await.headers, None);
    }
}

#[tokio::test]
async fn what_is_worth_nothing_later_is_sent_at_once_or_not_at_all() {
    let store = Gated::new();
    let house = House::start(Arc::clone(&store) as _, &Wires::default(), options("n1")).await;
    let (mut agent, id, endpoint) = house.registered().await;
    is_created(&house.knock(&endpoint, "TTL: 0\r\n").await, &house, "0");
    notification(&mut agent).await;
    agent.close().await.expect("closed");
    is_created(&house.knock(&endpoint, "TTL: 0\r\n").await, &house, "0");
    silence(&mut house.agent(Some(id)).await.0).await;
    assert!(store.texts(id).await.is_empty());
}

#[tokio::test]
async fn an_agent_that_vanishes_while_somebody_posts_is_gone() {
    for (stored, errno) in [(false, 106), (true, 105)] {
        let store = Gated::new();
        let house = House::start(Arc::clone(&store) as _, &Wires::default(), options("n1")).await;
        let (agent, id, endpoint) = house.registered().await;
        agent.close().await.expect("closed");
        store.close(Verb::Store);
        let vanish = async {
            store.arrived(Verb::Store, 1).await;
            if stored {
                store.close(Verb::Routes);
                store.open(Verb::Store);
                store.arrived(Verb::Routes, 1).await;
            }
            store.store.drop_agents(vec![id]).await.expect("dropped");
            store.open(Verb::Store);
            store.open(Verb::Routes);
        };
        let (answer, ()) = tokio::join!(house.post(&endpoint, "late"), vanish);
        is_refused(&answer, 410, errno);
    }
}
