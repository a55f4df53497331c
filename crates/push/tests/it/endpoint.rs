//! The endpoint: which check comes first, what a refusal looks like, and where a message goes.

use bytes::Bytes;
use posthorn_domain::{AgentId, MessageId, PushEncoding, PushMessage, Timestamp};
use posthorn_push::endpoint::{
    BODY_BYTES_MAX, Connection, Found, Headers, Limits, NodeAnswer, Opened, Outcome, Recipient,
    Refusal, Step, StoreAnswer, created, route,
};
use posthorn_sealing::endpoint_token::{Endpoint, EndpointKey, EndpointTokens};
use posthorn_sealing::vapid::{Proven, SenderKey, hash_key};

use crate::rig::{CHANNEL, KNOWN};

const ORIGIN: &str = "https://push.example.org";
const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_500);

/// A post that is good in every respect, to be spoilt.
struct Post {
    tokens: EndpointTokens,
    version: Option<&'static str>,
    token: String,
    authorization: Option<String>,
    recipient: Recipient,
    headers: Headers<'static>,
    body: Bytes,
}

fn sender_header(sender: &SenderKey) -> String {
    sender.authorization(ORIGIN, NOW.as_seconds() + 3_600, None)
}

impl Post {
    /// To an endpoint that belongs to a key, with a body.
    fn v2() -> Self {
        let sender = SenderKey::generate();
        let tokens = EndpointTokens::new(vec![EndpointKey::generate()]).expect("one key");
        let key = Some(hash_key(sender.public_key().as_bytes()));
        let token = tokens.seal_endpoint(&Endpoint { agent: KNOWN, channel: CHANNEL, key });
        Self {
            tokens,
            version: Some("v2"),
            token,
            authorization: Some(sender_header(&sender)),
            recipient: Recipient::Registered,
            headers: Headers {
                ttl: Some("60"),
                content_encoding: Some("aes128gcm"),
                ..Headers::default()
            },
            body: Bytes::from_static(b"sealed"),
        }
    }

    /// To an endpoint that anybody may use.
    fn v1() -> Self {
        let mut post = Self::v2();
        let endpoint = Endpoint { agent: KNOWN, channel: CHANNEL, key: None };
        post.token = post.tokens.seal_endpoint(&endpoint);
        post.version = Some("v1");
        post.authorization = None;
        post
    }

    fn send(&self) -> Result<PushMessage, Refusal> {
        let headers = Headers { authorization: self.authorization.as_deref(), ..self.headers };
        Opened::open(&self.tokens, self.version, &self.token)?
            .sender(&headers, &Proven::default(), ORIGIN, NOW)?
            .recipient(self.recipient)?
            .message(
                &headers,
                self.body.clone(),
                MessageId::from_random(9),
                NOW,
                &Limits::default(),
            )
    }
}

#[track_caller]
fn refused(post: &Post, status: u16, errno: impl Into<Option<u16>>) {
    let refusal = post.send().expect_err("refused");
    assert_eq!((refusal.status(), refusal.errno()), (status, errno.into()), "{refusal:?}");
}

#[test]
fn a_good_post_becomes_a_message() {
    for mut post in [Post::v1(), Post::v2()] {
        post.headers.topic = Some("news");
        post.headers.urgency = Some("very-low");
        let message = post.send().expect("accepted");
        assert_eq!((message.agent, message.channel), (KNOWN, CHANNEL));
        assert_eq!((message.ttl, message.received_at), (60, NOW));
        assert_eq!(message.id, MessageId::from_random(9));
        assert_eq!(message.topic.as_ref().map(|topic| topic.as_str()), Some("news"));
        assert_eq!(message.headers.map(|headers| headers.encoding), Some(PushEncoding::Aes128Gcm));
        assert_eq!(message.body.as_deref(), Some(&b"sealed"[..]));
    }
}

#[test]
fn the_path_without_a_version_is_the_first() {
    let mut post = Post::v1();
    post.version = None;
    assert!(post.send().is_ok());
}

#[test]
fn the_first_check_that_fails_is_the_answer() {
    // Everything is wrong; then one thing after the other is put right, in the order of the checks.
    let good = Post::v2();
    let mut post = Post::v2();
    post.version = Some("v3");
    post.authorization = Some("Basic x".into());
    post.recipient = Recipient::NoAgent;
    post.body = Bytes::from(vec![0; BODY_BYTES_MAX + 1]);
    post.headers = Headers {
        ttl: Some("soon"),
        topic: Some("no topic"),
        urgency: Some("now"),
        ..Headers::default()
    };
    let token = std::mem::replace(&mut post.token, "nonsense".into());
    refused(&post, 404, 102);
    post.version = Some("v2");
    refused(&post, 404, 102);
    post.token = token;
    refused(&post, 401, 109);
    post.authorization = Some(format!("WebPush {}", "x.y.z"));
    refused(&post, 400, 110);
    post.authorization = Some(sender_header(&SenderKey::generate()));
    refused(&post, 401, 109);
    // The sender that the endpoint was made for.
    post.tokens = good.tokens;
    post.token = good.token;
    post.authorization = good.authorization;
    refused(&post, 410, 106);
    post.recipient = Recipient::NoChannel;
    refused(&post, 410, 106);
    post.recipient = Recipient::Registered;
    refused(&post, 413, 104);
    post.body = Bytes::from(vec![0; BODY_BYTES_MAX]);
    refused(&post, 400, 111);
    post.headers.ttl = Some("-1");
    refused(&post, 400, 110);
    post.headers.content_encoding = Some("aes128gcm");
    refused(&post, 400, 114);
    post.headers.ttl = Some("1");
    refused(&post, 400, 113);
    post.headers.topic = Some("topic");
    refused(&post, 400, None);
    post.headers.urgency = Some("normal");
    assert!(post.send().is_ok());
}

#[test]
fn tokens_work_on_their_own_path_only() {
    let (v1, v2) = (Post::v1(), Post::v2());
    for (post, version) in [(v1, Some("v2")), (v2, Some("v1"))] {
        let post = Post { version, ..post };
        refused(&post, 404, 102);
    }
    for version in ["", "V1", "v0", "v11", "m"] {
        refused(&Post { version: Some(version), ..Post::v1() }, 404, 102);
    }
    let other = Post::v1();
    refused(&Post { tokens: Post::v1().tokens, ..other }, 404, 102);
}

#[test]
fn senders_prove_themselves_where_it_is_asked_and_where_they_try() {
    refused(&Post { authorization: None, ..Post::v2() }, 401, 109);
    assert!(Post::v1().send().is_ok());
    let with = |header: String| Post { authorization: Some(header), ..Post::v1() };
    assert!(with(sender_header(&SenderKey::generate())).send().is_ok());
    refused(&with("Basic x".into()), 401, 109);
    refused(&with("vapid".into()), 401, 109);
    refused(&with("Bearer x.y.z".into()), 400, 110);
    let expired = SenderKey::generate().authorization(ORIGIN, NOW.as_seconds() - 120, None);
    refused(&with(expired), 401, 109);
    let elsewhere =
        SenderKey::generate().authorization("https://other", NOW.as_seconds() + 60, None);
    refused(&with(elsewhere), 401, 109);
}

#[track_caller]
fn check_headers(headers: Headers<'static>, body: &'static [u8], expected: Result<(), u16>) {
    let post = Post { headers, body: Bytes::from_static(body), ..Post::v1() };
    let found = post.send().map(|_| ()).map_err(|refusal| {
        assert_eq!(refusal.status(), 400);
        refusal.errno().unwrap_or_default()
    });
    assert_eq!(found, expected, "{headers:?}");
}

#[test]
fn headers_are_checked_as_the_table_says() {
    let ttl = Some("60");
    let plain = Headers { ttl, ..Headers::default() };
    check_headers(plain, b"", Ok(()));
    check_headers(plain, b"x", Err(110));
    check_headers(Headers { ttl: None, ..plain }, b"", Err(111));
    check_headers(Headers { ttl: Some("1.5"), ..plain }, b"", Err(111));
    check_headers(Headers { ttl: Some("-5"), ..plain }, b"", Err(114));
    check_headers(Headers { topic: Some(""), ..plain }, b"", Err(113));
    check_headers(Headers { topic: Some("ok="), ..plain }, b"", Ok(()));
    check_headers(Headers { urgency: Some(" high "), ..plain }, b"", Ok(()));
    for urgency in ["High", "NORMAL", "Very-Low", "lOw"] {
        check_headers(Headers { urgency: Some(urgency), ..plain }, b"", Ok(()));
    }
    check_headers(Headers { urgency: Some("very_low"), ..plain }, b"", Err(0));
    check_headers(Headers { urgency: Some("low, high"), ..plain }, b"", Err(0));
    let encoded = |encoding| Headers { content_encoding: Some(encoding), ..plain };
    check_headers(encoded("aes128gcm"), b"x", Ok(()));
    check_headers(encoded("aesgcm128"), b"x", Err(110));
    check_headers(encoded("aesgcm"), b"x", Err(110));
    let salted = Headers { encryption: Some("salt=AAAA"), ..encoded("aesgcm") };
    check_headers(salted, b"x", Ok(()));
    check_headers(Headers { crypto_key: Some("dh=AAAA"), ..salted }, b"x", Ok(()));
    check_headers(Headers { crypto_key: Some("p256ecdsa=AAAA"), ..salted }, b"x", Err(110));
    check_headers(Headers { content_encoding: Some("aes128gcm"), ..salted }, b"x", Err(110));
    // Without a body nobody looks at how it was encrypted.
    check_headers(Headers { content_encoding: Some("gzip"), ..salted }, b"", Ok(()));
}

#[test]
fn a_message_without_a_body_has_no_headers_and_a_long_ttl_is_cut_down() {
    let mut post = Post::v1();
    post.body = Bytes::new();
    post.headers.ttl = Some("99999999999");
    let message = post.send().expect("accepted");
    assert_eq!((message.headers, message.body, message.ttl), (None, None, 2_592_000));
}

#[test]
fn a_body_has_a_limit_to_the_byte() {
    let limits = Limits::default();
    let addressed = || {
        let post = Post::v1();
        Opened::open(&post.tokens, post.version, &post.token)
            .and_then(|opened| opened.sender(&Headers::default(), &Proven::default(), ORIGIN, NOW))
            .and_then(|authorized| {
                assert_eq!((authorized.agent(), authorized.channel()), (KNOWN, CHANNEL));
                assert!(authorized.vapid().is_none());
                authorized.recipient(Recipient::Registered)
            })
            .expect("accepted so far")
    };
    assert!(addressed().body_size(5_630, &limits).is_ok());
    let refusal = addressed().body_size(5_631, &limits).expect_err("too large");
    assert_eq!((refusal.status(), refusal.errno()), (413, Some(104)));
    assert!(addressed().body_size(u64::MAX, &limits).is_err());
}

#[test]
fn refusals_have_the_form_that_senders_know() {
    let gone = Refusal::gone();
    assert_eq!(
        gone.body(),
        r#"{"code":410,"errno":106,"error":"Gone","message":"the subscription does not exist any more","more_info":"http://autopush.readthedocs.io/en/latest/http.html#error-codes"}"#
    );
    let name = Refusal::bad_message_name();
    assert!(name.body().starts_with(r#"{"code":400,"errno":null,"error":"Bad Request","#));
    assert_eq!(Refusal::not_found().body(), "", "a 404 says nothing");
    let json = ("Content-Type", "application/json".to_owned());
    let table = [
        (Refusal::not_found(), 404, Some(102), "", None),
        (gone, 410, Some(106), "Gone", Some(("Cache-Control", "max-age=86400"))),
        (
            Refusal::agent_vanished(),
            410,
            Some(105),
            "Gone",
            Some(("Cache-Control", "max-age=86400")),
        ),
        (
            Refusal::too_large(2, 1),
            413,
            Some(104),
            "Payload Too Large",
            Some(("Connection", "close")),
        ),
        (
            Refusal::not_stored(),
            503,
            Some(201),
            "Service Unavailable",
            Some(("Retry-After", "120")),
        ),
        (Refusal::unavailable(), 503, None, "Service Unavailable", Some(("Retry-After", "120"))),
        (Refusal::urgency(), 400, None, "Bad Request", None),
        (name, 400, None, "Bad Request", None),
        (
            posthorn_sealing::vapid::VapidRefusal::Missing.into(),
            401,
            Some(109),
            "Unauthorized",
            None,
        ),
    ];
    for (refusal, status, errno, reason, header) in table {
        assert_eq!((refusal.status(), refusal.errno()), (status, errno));
        let mut headers = Vec::new();
        if status != 404 {
            let body: serde_json::Value = serde_json::from_str(&refusal.body()).expect("JSON");
            assert_eq!(body["code"], status);
            assert_eq!(body["errno"].as_u64(), errno.map(u64::from));
            assert_eq!(body["error"], reason);
            assert_eq!(body["message"], refusal.message());
            headers.push(json.clone());
        }
        headers.extend(header.map(|(name, value)| (name, value.to_owned())));
        assert_eq!(refusal.headers(), headers);
    }
}

#[test]
fn every_success_says_where_and_for_how_long() {
    assert_eq!(
        created(ORIGIN, "name", 60),
        [("Location", "https://push.example.org/m/name".into()), ("TTL", "60".into())]
    );
}

fn at(node: &str, millis: i64) -> Connection {
    Connection { node: node.into(), connected_at: Timestamp::from_millis(millis) }
}

/// What happens on the way, in order.
#[derive(Clone)]
enum Event {
    Node(NodeAnswer),
    Cleared,
    Stored(StoreAnswer),
    Found(Found),
}

/// The record, the TTL, what happens, how that is told, and what comes of it.
type Way = (Option<Connection>, u32, Vec<Event>, &'static str, Outcome);

/// Goes the whole way, and tells it as text.
fn way(connection: Option<Connection>, ttl: u32, events: &[Event]) -> (String, Outcome) {
    let mut told = Vec::new();
    let mut step = route(connection, ttl);
    for event in events {
        step = match (step, event.clone()) {
            (Step::Push(push), Event::Node(answer)) => {
                told.push(format!("push {}", push.connection.node));
                push.answered(answer)
            }
            (Step::Clear(clear), Event::Cleared) => {
                let Connection { node, connected_at } = &clear.connection;
                told.push(format!("clear {node}@{}", connected_at.as_millis()));
                clear.done()
            }
            (Step::Store(store), Event::Stored(answer)) => {
                told.push("store".into());
                store.answered(answer)
            }
            (Step::LookAgain(look), Event::Found(found)) => {
                told.push("look".into());
                look.found(found)
            }
            (Step::Hint(hint), Event::Node(answer)) => {
                told.push(format!("hint {}", hint.connection.node));
                hint.answered(answer)
            }
            (step, _) => panic!("after {told:?} it wants {step:?}"),
        };
    }
    match step {
        Step::Done(outcome) => (told.join(", "), outcome),
        step => panic!("after {told:?} it still wants {step:?}"),
    }
}

#[test]
fn a_message_finds_its_way() {
    use Event::{Cleared, Found as Looked, Node, Stored};
    let stored = || Stored(StoreAnswer::Stored);
    let nowhere = || Looked(Found::NotConnected);
    let a = || Some(at("a", 1));
    let table: Vec<Way> = vec![
        (a(), 60, vec![Node(NodeAnswer::Accepted)], "push a", Outcome::Direct),
        (a(), 0, vec![Node(NodeAnswer::Accepted)], "push a", Outcome::Direct),
        (a(), 0, vec![Node(NodeAnswer::Full)], "push a", Outcome::Dropped),
        (
            a(),
            0,
            vec![Node(NodeAnswer::NotConnected), Cleared],
            "push a, clear a@1",
            Outcome::Dropped,
        ),
        (None, 0, vec![], "", Outcome::Dropped),
        (None, 60, vec![stored(), nowhere()], "store, look", Outcome::Stored),
        (None, 60, vec![stored(), Looked(Found::Failed)], "store, look", Outcome::Stored),
        (
            None,
            60,
            vec![stored(), Looked(Found::NoAgent)],
            "store, look",
            Outcome::Refused(Refusal::agent_vanished()),
        ),
        (
            None,
            60,
            vec![Stored(StoreAnswer::Failed)],
            "store",
            Outcome::Refused(Refusal::not_stored()),
        ),
        (None, 60, vec![Stored(StoreAnswer::Gone)], "store", Outcome::Refused(Refusal::gone())),
        // Full: the agent is there, so its record stays, and it is told to look.
        (
            a(),
            60,
            vec![
                Node(NodeAnswer::Full),
                stored(),
                Looked(Found::Connected(at("a", 1))),
                Node(NodeAnswer::Accepted),
            ],
            "push a, store, look, hint a",
            Outcome::Stored,
        ),
        // Not there any more: the record is cleared, on the condition that it is the same.
        (
            a(),
            60,
            vec![Node(NodeAnswer::NotConnected), Cleared, stored(), nowhere()],
            "push a, clear a@1, store, look",
            Outcome::Stored,
        ),
        // It has come back somewhere else meanwhile, and may have read the store too early.
        (
            a(),
            60,
            vec![
                Node(NodeAnswer::Unreachable),
                Cleared,
                stored(),
                Looked(Found::Connected(at("b", 2))),
                Node(NodeAnswer::Accepted),
            ],
            "push a, clear a@1, store, look, hint b",
            Outcome::Stored,
        ),
        // And is gone again: it reads the store when it comes back.
        (
            a(),
            60,
            vec![
                Node(NodeAnswer::NotConnected),
                Cleared,
                stored(),
                Looked(Found::Connected(at("b", 2))),
                Node(NodeAnswer::NotConnected),
                Cleared,
            ],
            "push a, clear a@1, store, look, hint b, clear b@2",
            Outcome::Stored,
        ),
    ];
    for (connection, ttl, events, told, outcome) in table {
        assert_eq!(way(connection, ttl, &events), (told.to_owned(), outcome));
    }
}

#[test]
fn agents_are_told_apart_by_their_tokens_alone() {
    let post = Post::v1();
    let endpoint = Endpoint { agent: AgentId::from_random(5), channel: CHANNEL, key: None };
    let post = Post { token: post.tokens.seal_endpoint(&endpoint), ..post };
    assert_eq!(post.send().expect("accepted").agent, AgentId::from_random(5));
}
