//! Application servers and agents that were not written here: libraries of Python and JavaScript
//! post to our endpoints, our agent reads what they encrypted, and an agent in Python is served.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use posthorn_agent::Agent;
use posthorn_domain::PushEncoding;
use posthorn_sealing::vapid::SenderKey;
use posthorn_sealing::web_push::ReceiverKeys;
use serde_json::{Value, json};

use crate::interpreter::Language;
use crate::push_world::{Shape, Town, channel, notification, silence};

/// Up to what fits into one record.
const LENGTHS: [usize; 3] = [1, 100, 3_993];

/// A page's subscription for a sender.
struct Subscribed {
    agent: Agent,
    page: ReceiverKeys,
    sender: SenderKey,
    endpoint: String,
}

impl Subscribed {
    async fn new(town: &Town) -> Self {
        let (mut agent, _) = town.agents().agent(None).await;
        let (page, sender) = (ReceiverKeys::generate(), SenderKey::generate());
        let key = sender.public_key().to_text();
        let endpoint = agent.register(channel(), Some(&key)).await.expect("an endpoint");
        Self { agent, page, sender, endpoint }
    }

    fn question(&self, form: &str, encoding: &str, text: &[u8]) -> Value {
        let secret =
            |secret: posthorn_sealing::vault::Secret| secret.expose_str().expect("text").to_owned();
        json!({"ask": "send", "endpoint": self.endpoint, "form": form, "encoding": encoding,
            "p256dh": self.page.receiver().key().to_text(),
            "auth": secret(self.page.receiver().auth_text()),
            "sender": secret(self.sender.to_text()),
            "sender_public": self.sender.public_key().to_text(),
            "ttl": 60, "topic": Value::Null, "text": URL_SAFE_NO_PAD.encode(text)})
    }

    /// What comes is what was sent, in that order.
    async fn read(&mut self, wanted: &[(String, Vec<u8>)]) {
        for (encoding, text) in wanted {
            let got = notification(&mut self.agent).await;
            let headers = got.headers.as_ref().map(|headers| headers.encoding);
            assert_eq!(headers.map(PushEncoding::as_str), Some(encoding.as_str()));
            assert_eq!(&got.open(&self.page).expect("for this page"), text);
            self.agent.ack(&[got.ack()]).await.expect("sent");
        }
        silence(&mut self.agent).await;
    }
}

/// Every form of header that a library has, with both encodings.
async fn library(language: Language, forms: &[(&str, &str)]) {
    let town = Town::start(Shape::Sqlite, "");
    let mut subscribed = Subscribed::new(&town).await;
    let (mut questions, mut wanted) = (Vec::new(), Vec::new());
    for (form, encoding) in forms {
        for length in LENGTHS {
            let text: Vec<u8> = (0..length).map(|_| rand::random()).collect();
            questions.push(subscribed.question(form, encoding, &text));
            wanted.push(((*encoding).to_owned(), text));
        }
    }
    let answers = language.ask(&questions);
    for answer in &answers {
        assert_eq!(answer["status"], 201, "{answer}");
        assert_eq!(answer["headers"]["ttl"], "60", "{answer}");
        let location = answer["headers"]["location"].as_str().expect("a place");
        assert!(location.starts_with(&format!("{}/m/", town.senders().url)), "{location}");
    }
    subscribed.read(&wanted).await;
    let count = town.senders().metric("posthorn_push_messages_total{outcome=\"direct\"}").await;
    assert_eq!(count, wanted.len() as u64);
    town.stop();
}

#[tokio::test]
async fn pywebpush_reaches_our_agent_in_every_form() {
    let forms = [
        ("rfc8292", "aes128gcm"),
        ("rfc8292", "aesgcm"),
        ("draft01", "aes128gcm"),
        ("draft01", "aesgcm"),
    ];
    library(Language::Python, &forms).await;
}

#[tokio::test]
async fn web_push_for_javascript_reaches_our_agent() {
    library(Language::JavaScript, &[("rfc8292", "aes128gcm"), ("draft01", "aesgcm")]).await;
}

#[tokio::test]
async fn an_agent_in_python_lives_with_us() {
    let town = Town::start(Shape::Sqlite, "");
    let url = format!("{}/", town.agents().url.replace("http://", "ws://"));
    let question = json!({"ask": "agent", "url": url, "straight": 5, "away": 25});
    let answers = Language::Python.ask(&[question]);
    let straight = (0..5).map(|n| format!("straight {n}"));
    let texts: Vec<_> = straight.chain((0..25).map(|n| format!("while away {n}"))).collect();
    let wanted = json!({"texts": texts, "statuses": vec![201; 30], "refused": 401, "gone": 410});
    assert_eq!(answers[0], wanted);
    town.stop();
}
