//! What receivers see on a real connection.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use posthorn_notifier::{
    CallbacksConfig, DlqStore, Error, MemoryDlqStore, Notifier, PersistentNotifier, RefundEvent,
    RetryableNotifier, send_once, send_once_through,
};
use posthorn_testkit::receiver::{Answer, Receiver, Request};
use posthorn_testkit::wait::PATIENCE;

use crate::house::payment;
use crate::receiver::{hook, open_to_loopback};

const SECRET: &str = "a secret of more than 32 characters, with ünïcode";

fn block(url: &str, lines: &str) -> CallbacksConfig {
    let yaml = format!("callbacks:\n  payment_success_url: {url}\n{lines}");
    CallbacksConfig::from_yaml(&yaml).expect("a block")
}

/// A receiver of another language, as the documentation of the wire tells its authors to write it:
/// reads header and body on its standard input, and says whether it believes them.
const VERIFIER: &str = r#"
import hmac, hashlib, sys
secret = sys.argv[1].encode()
header, body = sys.argv[2], sys.stdin.buffer.read()
scheme, _, received = header.partition("=")
expected = hmac.new(secret, body, hashlib.sha256).hexdigest()
print("yes" if scheme == "sha256" and hmac.compare_digest(received, expected) else "no")
"#;

/// What Python says.
fn python_believes(request: &Request, body: &[u8]) -> bool {
    let header = request.header("x-cedros-signature").unwrap_or_default();
    let mut command = Command::new("python3");
    command.args(["-c", VERIFIER, SECRET, header]);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = child.expect("python3, which ./test installs");
    child.stdin.take().expect("piped").write_all(body).expect("written");
    let output = child.wait_with_output().expect("ends");
    match String::from_utf8_lossy(&output.stdout).trim() {
        "yes" => true,
        "no" => false,
        other => panic!("python3 said {other:?}"),
    }
}

#[track_caller]
fn check_request(request: &Request, event_type: &str) {
    assert_eq!(request.method, "POST");
    let header = |name: &str| request.header(name).unwrap_or_default();
    assert_eq!(header("content-type"), "application/json");
    assert_eq!(header("x-cedros-event-type"), event_type);
    assert!(header("x-cedros-delivery-id").starts_with("dlv_"), "{request:?}");
    assert!(header("x-cedros-timestamp").parse::<i64>().is_ok(), "{request:?}");
    assert_eq!(header("x-custom-header"), "value");
    let signature = header("x-cedros-signature").strip_prefix("sha256=").expect("the scheme");
    assert_eq!(signature.len(), 64);
    assert!(signature.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f')), "{signature}");
    assert!(python_believes(request, &request.body), "{request:?}");
    let changed = [&request.body[..], b" "].concat();
    assert!(!python_believes(request, &changed), "not anything is believed");
}

fn signed(url: &str) -> CallbacksConfig {
    block(url, &format!("  hmac_secret: {SECRET:?}\n  headers: {{X-Custom-Header: value}}\n"))
}

#[tokio::test(flavor = "multi_thread")]
async fn both_notifiers_send_the_same_wire_and_python_verifies_it() {
    let receiver = Receiver::new(204);
    let memory = RetryableNotifier::builder(signed(&hook(&receiver))).egress(open_to_loopback());
    let memory = memory.start().expect("starts");
    let folder = tempfile::tempdir().expect("a folder");
    let kept = PersistentNotifier::sqlite(signed(&hook(&receiver)), folder.path())
        .egress(open_to_loopback())
        .start()
        .await
        .expect("starts");
    let notifiers: [&dyn Notifier; 2] = [&memory, &kept];
    for (nth, notifier) in notifiers.into_iter().enumerate() {
        let mut event = payment("café ☕");
        event.event_id = "evt_0123456789abcdef01234567".to_owned();
        event.event_timestamp = Some("2023-11-14T22:13:20Z".parse().expect("a time"));
        event.paid_at = event.event_timestamp;
        notifier.payment_succeeded(event).await;
        receiver.wait_for(nth + 1);
    }
    let seen = receiver.wait_for(2);
    for request in &seen {
        check_request(request, "payment.succeeded");
    }
    let own = ["x-cedros-delivery-id", "x-cedros-timestamp"];
    let shape = |request: &Request| {
        let mut headers = request.headers.clone();
        headers.retain(|name, _| !own.contains(&name.as_str()));
        (headers, request.body.clone())
    };
    assert_eq!(shape(&seen[0]), shape(&seen[1]), "one wire contract");
    kept.refund_succeeded(RefundEvent::default()).await;
    check_request(&receiver.wait_for(3)[2], "refund.succeeded");
    memory.close().await;
    kept.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_media_type_can_be_another() {
    let receiver = Receiver::new(200);
    let config = block(&hook(&receiver), "  headers: {Content-Type: application/vnd.pay+json}\n");
    send_once_through(&config, payment("a"), open_to_loopback()).await.expect("taken");
    let seen = receiver.wait_for(1);
    assert_eq!(seen[0].headers["content-type"], "application/vnd.pay+json");
    assert!(!seen[0].headers.contains_key("x-cedros-signature"), "unsigned without a secret");
}

#[tokio::test(flavor = "multi_thread")]
async fn sending_once_is_one_attempt_with_an_answer() {
    let receiver = Receiver::scripted(|seen| match seen.nth {
        0 => Answer::from(200),
        1 => 500.into(),
        _ => Answer::from(302).header("Location", "http://127.0.0.1:1/"),
    });
    let config = signed(&hook(&receiver));
    send_once_through(&config, payment("a"), open_to_loopback()).await.expect("taken");
    check_request(&receiver.wait_for(1)[0], "payment.succeeded");
    for (status, count) in [("HTTP 500", 2), ("HTTP 302", 3)] {
        let error = send_once_through(&config, payment("a"), open_to_loopback()).await;
        let error = error.expect_err("not taken");
        assert!(matches!(&error, Error::NotDelivered(why) if why == status), "{error}");
        assert_eq!(receiver.wait_for(count).len(), count);
    }
    let error = send_once(&config, payment("a")).await.expect_err("this machine is closed");
    assert!(matches!(error, Error::Engine(_)), "{error}");
    let error = send_once(&CallbacksConfig::default(), payment("a")).await.expect_err("no URL");
    assert!(matches!(error, Error::NoUrl), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_does_not_answer_in_time_has_failed() {
    let receiver = Receiver::new(Answer::from(200).after(Duration::from_secs(2)));
    let config = block(&hook(&receiver), "  timeout: 100ms\n  retry: {enabled: false}\n");
    let letters = Arc::new(MemoryDlqStore::default());
    let notifier = RetryableNotifier::builder(config)
        .egress(open_to_loopback())
        .dlq_store(letters.clone())
        .start()
        .expect("starts");
    notifier.payment_succeeded(payment("a")).await;
    let begun = tokio::time::Instant::now();
    let found = loop {
        let found = letters.list(1).await.expect("lists");
        if let Some(letter) = found.into_iter().next() {
            break letter;
        }
        assert!(begun.elapsed() < PATIENCE, "the dead letter did not come");
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert!(found.last_error.contains("timeout"), "{}", found.last_error);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_block_says_which_notifier_it_is() {
    let off = posthorn_notifier::start(CallbacksConfig::default(), None, None).await.expect("off");
    off.payment_succeeded(payment("a")).await;
    off.close().await;
    let block = |backend: &str| block("https://a.example/", &format!("  backend: {backend}\n"));
    let memory = posthorn_notifier::start(block("memory"), None, None).await.expect("in memory");
    memory.close().await;
    for backend in ["postgres", "sqlite"] {
        let error =
            posthorn_notifier::start(block(backend), None, None).await.err().expect("no place");
        assert!(matches!(error, Error::Open(_)), "{error}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().to_str().expect("text");
    let kept = posthorn_notifier::start(block("sqlite"), Some(place), None).await.expect("on disk");
    kept.close().await;
    assert!(folder.path().join("seal.key").exists());
}

#[tokio::test]
async fn secrets_in_postgresql_need_a_key_that_all_share() {
    let config = block("https://a.example/", "");
    let error = PersistentNotifier::postgres(config, "postgres://127.0.0.1:1/x").start().await;
    let error = error.err().expect("no key");
    assert!(matches!(&error, Error::SealKey(why) if why.contains("seal_key")), "{error}");
}
