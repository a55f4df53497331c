//! Every target over its corpus and a number of mutations of it; and a target that does not hold.

use std::time::Duration;

use posthorn_proof::fuzz::{Limits, TARGETS, Target, corpus, run};

/// Mutations for each target. The command runs for as long as it is told to.
const MUTATIONS: u64 = 2_000;

#[track_caller]
fn holds(name: &str) {
    let target = TARGETS.iter().find(|target| target.name == name).expect("a target");
    let seeds = corpus(target).expect("a corpus");
    assert!(seeds.len() > 3, "{name} has too few seeds");
    let limits = Limits { mutations: MUTATIONS, time: Duration::from_secs(60) };
    match run(target, &seeds, 1, limits) {
        Ok(ran) => assert!(ran.accepted > 0, "{name} accepts nothing, so nothing was tested"),
        Err(broken) => panic!(
            "{name}, seed 1, mutation {}: {}\n{:?}",
            broken.mutation,
            broken.said,
            String::from_utf8_lossy(&broken.input)
        ),
    }
}

macro_rules! targets {
    ($($test:ident $name:literal;)+) => {
        $(#[test] fn $test() { holds($name); })+

        #[test]
        fn every_target_is_tested() {
            let tested = [$($name),+];
            let all: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
            assert_eq!(all, tested);
        }
    };
}

targets! {
    urls_hold "url";
    addresses_hold "address";
    allow_rules_hold "allow-rule";
    custom_headers_hold "header-policy";
    retry_after_holds "retry-after";
    durations_hold "span";
    templates_hold "template";
    webhook_secrets_hold "webhook-secret";
    webhook_signatures_hold "webhook-signature";
    hmac_headers_hold "body-hmac";
    tokens_hold "jwt";
    id_tokens_hold "id-token";
    api_keys_hold "api-key";
    session_tokens_hold "session-token";
    cursors_hold "cursor";
    sealed_secrets_hold "vault";
    filters_and_policies_hold "documents";
    published_events_hold "publish";
    published_cloudevents_hold "cloudevent";
    traces_of_publishers_hold "traceparent";
    callback_targets_hold "callback-target";
    senders_of_push_messages_hold "push-sender";
    parameters_of_push_messages_hold "push-parameters";
    names_of_endpoints_and_messages_hold "push-token";
    notifications_and_subscriptions_hold "notificaties";
    socket_messages_hold "socket-message";
    answers_hold "response";
}

#[test]
fn what_does_not_hold_is_found_and_can_be_had_again() {
    fn planted(input: &[u8]) -> bool {
        let text = String::from_utf8_lossy(input);
        assert!(!text.contains("ab") || !text.contains("99"), "planted");
        text.contains("ab")
    }
    let target = Target { name: "planted", what: "a bug", run: planted, words: &["ab", "99", "x"] };
    let limits = Limits { mutations: 100_000, time: Duration::from_secs(60) };
    let seeds = [Vec::new(), b"hello".to_vec()];
    let broken = run(&target, &seeds, 7, limits).expect_err("the planted bug is found");
    assert!(broken.said.contains("planted") && broken.mutation > 0);
    let again = run(&target, &seeds, 7, limits).expect_err("and found again");
    assert_eq!(again, broken, "the same seed gives the same inputs");
    let other = run(&target, &seeds, 8, limits).expect_err("another seed finds it too");
    assert_ne!(other.mutation, broken.mutation);
}
