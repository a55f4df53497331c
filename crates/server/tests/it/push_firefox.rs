//! The steps of Firefox, as its push service takes them, with the headers and fields it sends and the
//! checks it makes of the answers.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use posthorn_agent::{Agent, Event, Options};
use posthorn_sealing::vapid::SenderKey;
use posthorn_sealing::web_push::ReceiverKeys;
use serde_json::{Value, json};
use url::Url;

use crate::push_surface::now;
use crate::push_world::{Sender, Shape, Town, channel, event, notification, silence};

struct Firefox(Agent);

impl Firefox {
    /// The upgrade, with the headers of the browser.
    async fn connect(url: &str) -> Self {
        let url = url.replace("http://", "ws://");
        let headers = [
            ("Origin", url.as_str()),
            ("Sec-WebSocket-Extensions", "permessage-deflate"),
            (
                "User-Agent",
                "Mozilla/5.0 (X11; Linux x86_64; rv:153.0) Gecko/20100101 Firefox/153.0",
            ),
            ("Accept", "*/*"),
            ("Accept-Language", "en-US,en;q=0.5"),
            ("Sec-Fetch-Dest", "empty"),
            ("Sec-Fetch-Mode", "websocket"),
            ("Sec-Fetch-Site", "cross-site"),
            ("Pragma", "no-cache"),
            ("Cache-Control", "no-cache"),
        ];
        let headers = headers.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let options = Options { headers, ..Options::default() };
        Self(Agent::connect(&url, &options).await.expect("a socket"))
    }

    async fn say(&mut self, message: Value) {
        self.0.send_text(message.to_string()).await.expect("sent");
    }

    /// The next message, as it was written.
    async fn hear(&mut self) -> Value {
        // Our own client reads notifications; everything else it hands on as it came.
        match event(&mut self.0).await {
            Event::Other(text) => serde_json::from_str(&text).expect("JSON"),
            Event::Pong => json!({}),
            other => panic!("{other:?}"),
        }
    }

    /// Says hello as who it was, or as nobody; its id.
    async fn hello(&mut self, uaid: Option<&str>) -> String {
        let mut hello = json!({"messageType": "hello", "broadcasts": {}, "use_webpush": true});
        if let Some(uaid) = uaid {
            hello["uaid"] = uaid.into();
        }
        self.say(hello).await;
        let answer = self.hear().await;
        assert_eq!(answer["messageType"], "hello");
        assert_eq!(answer["use_webpush"], true);
        assert_eq!(answer["broadcasts"], json!({}));
        assert_eq!(answer["status"], 200);
        assert_eq!(answer.as_object().expect("an object").len(), 5, "{answer}");
        let uaid = answer["uaid"].as_str().expect("a text").to_owned();
        assert!((1..=128).contains(&uaid.len()), "{uaid}");
        assert!(uaid.chars().all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c)), "{uaid}");
        uaid
    }

    async fn register(&mut self, channel: &str, key: &str) -> String {
        self.say(json!({"messageType": "register", "channelID": channel, "key": key})).await;
        let answer = self.hear().await;
        assert_eq!(answer["messageType"], "register");
        let echoed = answer["channelID"].as_str().expect("a text");
        assert!(echoed.eq_ignore_ascii_case(channel), "{echoed}");
        assert_eq!(answer["status"], 200, "{answer}");
        let endpoint = answer["pushEndpoint"].as_str().expect("a text");
        Url::parse(endpoint).expect("a URL");
        endpoint.to_owned()
    }

    async fn ack(&mut self, channel: &str, version: &str, code: u16) {
        let update = json!({"channelID": channel, "version": version, "code": code});
        self.say(json!({"messageType": "ack", "updates": [update]})).await;
    }
}

#[tokio::test]
async fn the_steps_of_firefox_are_understood() {
    let town = Town::start(Shape::Sqlite, "");
    let node = town.agents();
    // It offers a subprotocol and compression, and is content with neither.
    let offer = [
        ("connection", "keep-alive, Upgrade"),
        ("upgrade", "websocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("sec-websocket-protocol", "push-notification"),
        ("sec-websocket-extensions", "permessage-deflate"),
    ];
    let answer = Sender::to(&node.url).await.ask("GET", "/", &offer, "").await;
    let answer = answer.expect("an answer").with(101);
    assert_eq!(answer.header("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    assert_eq!(answer.header("sec-websocket-extensions"), None);
    assert!([None, Some("push-notification")].contains(&answer.header("sec-websocket-protocol")));

    let mut firefox = Firefox::connect(&node.url).await;
    // Without subscriptions it has no id to tell.
    let uaid = firefox.hello(None).await;
    // A page subscribes, with the key of its application server, which Firefox pads.
    let sender_key = SenderKey::generate();
    let key = URL_SAFE.encode(sender_key.public_key().as_bytes());
    assert!(key.ends_with('='), "{key}");
    let channel = channel().to_string();
    let endpoint = firefox.register(&channel, &key).await;
    assert!(endpoint.contains("/wpush/v2/"), "{endpoint}");

    // The application server posts what it encrypted for the page.
    let page = ReceiverKeys::generate();
    let body = page.receiver().encrypt(b"breaking news", 0);
    let mut sender = BytesSender::new(&node.url, &endpoint, &sender_key).await;
    sender.post(&body, 201).await;
    let news = notification(&mut firefox.0).await;
    assert_eq!(news.channel.to_string(), channel);
    assert_eq!(news.open(&page).expect("for this page"), b"breaking news");
    // Firefox goes before it has said anything of it, and comes back.
    drop(firefox);
    let mut firefox = Firefox::connect(&node.url).await;
    assert_eq!(firefox.hello(Some(&uaid)).await, uaid, "it keeps its subscriptions");
    let again = notification(&mut firefox.0).await;
    assert_eq!(again, news);
    // It knows that it had this one: a duplicate is not shown, and is not wanted again either.
    firefox.ack(&channel, &again.version, 102).await;
    sender.post(&page.receiver().encrypt(b"more news", 7), 201).await;
    let more = notification(&mut firefox.0).await;
    assert_eq!(more.open(&page).expect("for this page"), b"more news");
    firefox.ack(&channel, &more.version, 100).await;
    // The page's worker stumbled over it; that changes nothing.
    firefox.say(json!({"messageType": "nack", "version": more.version, "code": 301})).await;

    // After a long silence it asks whether anybody is there.
    firefox.say(json!({})).await;
    assert_eq!(firefox.hear().await, json!({}));

    // The page unsubscribes.
    firefox.say(json!({"messageType": "unregister", "channelID": channel, "code": 200})).await;
    let answer = firefox.hear().await;
    assert_eq!(
        answer,
        json!({"messageType": "unregister", "channelID": channel, "status": 200}),
        "nothing else"
    );
    sender.post(&body, 410).await;
    drop(firefox);
    let mut firefox = Firefox::connect(&node.url).await;
    assert_eq!(firefox.hello(Some(&uaid)).await, uaid);
    silence(&mut firefox.0).await;
    // A new profile that claims an id nobody has gets another one, and drops what it had.
    let mut other = Firefox::connect(&node.url).await;
    let claimed = "0123456789abcdef0123456789abcdef";
    assert_ne!(other.hello(Some(claimed)).await, claimed);
    town.stop();
}

/// A sender of encrypted bodies with a key of its own.
struct BytesSender {
    sender: Sender,
    endpoint: String,
    authorization: String,
}

impl BytesSender {
    async fn new(url: &str, endpoint: &str, key: &SenderKey) -> Self {
        let expires = now().as_millis() / 1_000 + 3_600;
        let authorization = key.authorization(url, expires, Some("mailto:admin@example.com"));
        Self { sender: Sender::to(url).await, endpoint: endpoint.to_owned(), authorization }
    }

    async fn post(&mut self, body: &[u8], status: u16) {
        let headers = [
            ("ttl", "60"),
            ("content-encoding", "aes128gcm"),
            ("authorization", self.authorization.as_str()),
        ];
        let answer = self.sender.ask("POST", &self.endpoint, &headers, body.to_vec()).await;
        answer.expect("an answer").expect(status);
    }
}
