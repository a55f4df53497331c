//! Events: names, omissions, and what preparation fills in.

use std::sync::Arc;

use posthorn_domain::Clock as _;
use posthorn_notifier::{EventTime, PaymentEvent, RefundEvent, prepare_payment, prepare_refund};
use posthorn_testkit::clock::StillClock;
use serde_json::json;

fn now() -> Arc<StillClock> {
    StillClock::at(1_700_000_000_120)
}

fn time(text: &str) -> EventTime {
    text.parse().expect("a time")
}

#[test]
fn a_payment_event_has_the_names_of_the_wire() {
    let event = PaymentEvent {
        event_id: "evt_0123456789abcdef01234567".to_owned(),
        event_type: "payment.succeeded".to_owned(),
        event_timestamp: Some(time("2023-11-14T22:13:20.123456789Z")),
        resource_id: "article-1".to_owned(),
        method: "x402".to_owned(),
        stripe_session_id: "cs_1".to_owned(),
        stripe_customer: "cus_1".to_owned(),
        fiat_amount_cents: 9_007_199_254_740_993,
        fiat_currency: "usd".to_owned(),
        crypto_atomic_amount: i64::MAX,
        crypto_token: "USDC".to_owned(),
        wallet: "w".to_owned(),
        proof_signature: "sig".to_owned(),
        metadata: [("b".to_owned(), "2".to_owned()), ("a".to_owned(), "1".to_owned())].into(),
        paid_at: Some(time("2023-11-14T22:13:20Z")),
    };
    let text = serde_json::to_string(&event).expect("JSON");
    assert_eq!(
        text,
        r#"{"eventId":"evt_0123456789abcdef01234567","eventType":"payment.succeeded","#.to_owned()
            + r#""eventTimestamp":"2023-11-14T22:13:20.123456789Z","resource":"article-1","#
            + r#""method":"x402","stripeSessionId":"cs_1","stripeCustomer":"cus_1","#
            + r#""fiatAmountCents":9007199254740993,"fiatCurrency":"usd","#
            + r#""cryptoAtomicAmount":9223372036854775807,"cryptoToken":"USDC","wallet":"w","#
            + r#""proofSignature":"sig","metadata":{"a":"1","b":"2"},"paidAt":"2023-11-14T22:13:20Z"}"#
    );
    assert_eq!(serde_json::from_str::<PaymentEvent>(&text).expect("back"), event);
}

#[test]
fn what_is_empty_is_left_out_and_what_must_be_there_stays() {
    let mut payment = PaymentEvent::default();
    assert_eq!(
        serde_json::to_value(&payment).expect("JSON"),
        json!({"eventId": "", "eventType": "", "eventTimestamp": "0001-01-01T00:00:00Z",
            "resource": "", "method": "", "paidAt": "0001-01-01T00:00:00Z"})
    );
    let text = serde_json::to_string(&payment).expect("JSON");
    assert_eq!(serde_json::from_str::<PaymentEvent>(&text).expect("back").paid_at, None);
    payment.event_id = "evt_x".to_owned();
    prepare_payment(&mut payment, &*now());
    assert_eq!(
        serde_json::to_value(&payment).expect("JSON"),
        json!({"eventId": "evt_x", "eventType": "payment.succeeded",
            "eventTimestamp": "2023-11-14T22:13:20.12Z", "resource": "", "method": "",
            "paidAt": "2023-11-14T22:13:20.12Z"})
    );
    let refund = RefundEvent::default();
    assert_eq!(
        serde_json::to_value(&refund).expect("JSON"),
        json!({"eventId": "", "eventType": "", "eventTimestamp": "0001-01-01T00:00:00Z",
            "refundId": "", "originalPurchaseId": "", "recipientWallet": "", "atomicAmount": 0,
            "token": "", "processedBy": "", "signature": "", "refundedAt": "0001-01-01T00:00:00Z"})
    );
}

#[test]
fn a_refund_event_has_the_names_of_the_wire() {
    let mut event = RefundEvent {
        refund_id: "r".to_owned(),
        original_purchase_id: "p".to_owned(),
        recipient_wallet: "w".to_owned(),
        atomic_amount: -5,
        token: "USDC".to_owned(),
        processed_by: "admin".to_owned(),
        signature: "s".to_owned(),
        reason: "late".to_owned(),
        metadata: [("k".to_owned(), "v".to_owned())].into(),
        ..RefundEvent::default()
    };
    prepare_refund(&mut event, &*now());
    let mut value = serde_json::to_value(&event).expect("JSON");
    let id = value["eventId"].take();
    assert_eq!(id.as_str().map(str::len), Some(28));
    assert_eq!(
        value,
        json!({"eventId": null, "eventType": "refund.succeeded",
            "eventTimestamp": "2023-11-14T22:13:20.12Z", "refundId": "r",
            "originalPurchaseId": "p", "recipientWallet": "w", "atomicAmount": -5, "token": "USDC",
            "processedBy": "admin", "signature": "s", "reason": "late", "metadata": {"k": "v"},
            "refundedAt": "2023-11-14T22:13:20.12Z"})
    );
}

#[test]
fn preparation_fills_in_only_what_is_missing() {
    let given = PaymentEvent {
        event_id: "evt_mine".to_owned(),
        event_type: "payment.captured".to_owned(),
        event_timestamp: Some(time("2020-01-01T00:00:00Z")),
        paid_at: Some(time("2020-01-02T00:00:00Z")),
        ..PaymentEvent::default()
    };
    let mut prepared = given.clone();
    prepare_payment(&mut prepared, &*now());
    assert_eq!(prepared, given, "nothing was missing");
    for missing in 0..4 {
        let mut event = given.clone();
        match missing {
            0 => event.event_id.clear(),
            1 => event.event_type.clear(),
            2 => event.event_timestamp = None,
            _ => event.paid_at = None,
        }
        prepare_payment(&mut event, &*now());
        let now = Some(EventTime::from(now().now()));
        assert_eq!(event.event_id == given.event_id, missing != 0);
        assert!(!event.event_id.is_empty());
        let event_type = if missing == 1 { "payment.succeeded" } else { "payment.captured" };
        assert_eq!(event.event_type, event_type);
        assert_eq!(event.event_timestamp, if missing == 2 { now } else { given.event_timestamp });
        assert_eq!(event.paid_at, if missing == 3 { now } else { given.paid_at });
    }
}

#[test]
fn preparing_twice_changes_nothing() {
    let mut event = PaymentEvent::default();
    prepare_payment(&mut event, &*now());
    let once = event.clone();
    prepare_payment(&mut event, &*StillClock::at(1_800_000_000_000));
    assert_eq!(event, once);
    let mut event = RefundEvent::default();
    prepare_refund(&mut event, &*now());
    let once = event.clone();
    prepare_refund(&mut event, &*StillClock::at(1_800_000_000_000));
    assert_eq!(event, once);
}
