//! A receiver on a real socket of this machine.

use posthorn_notifier::EgressOptions;
use posthorn_testkit::receiver::{Receiver, Request};

/// Where its webhooks go.
pub(crate) fn hook(receiver: &Receiver) -> String {
    receiver.url("/webhooks/payment")
}

pub(crate) fn event_id(request: &Request) -> String {
    request.json()["eventId"].as_str().expect("an id").to_owned()
}

/// Rules of the way out that let receivers be on this machine.
pub(crate) fn open_to_loopback() -> EgressOptions {
    EgressOptions { allow: vec!["127.0.0.0/8".parse().expect("a rule")], ..Default::default() }
}
