//! The table, row by row: the outcome, the time it took, what was kept, and what was left behind.

use std::sync::Arc;
use std::time::Duration;

use posthorn_domain::limits::RESPONSE_KEPT_BYTES_MAX;
use posthorn_domain::policy::{Verdict, profiles};
use posthorn_domain::{AttemptOutcome, Timestamp};
use posthorn_egress::Egress;
use posthorn_hostile::{Fleet, Mode, Outcome, Receiver};
use tokio::sync::Semaphore;

use crate::attack::{DEADLINES, SETTINGS, SLACK, answer, attacked, egress, request};

/// Attempts at once: enough to mix the modes, few enough for the machine to keep the deadlines.
const AT_ONCE: usize = 10;
/// Longest header text a sender keeps.
const HEADER_KEPT_BYTES_MAX: usize = 256;

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("the process knows its descriptors").count()
}

/// Everything that is wrong with how the sender fared; empty when it fared well.
async fn judge(egress: &Egress, receiver: &Receiver) -> Vec<String> {
    let mode = receiver.mode();
    let mut wrong = Vec::new();
    for round in 1..=2 {
        let sent = attacked(egress, receiver).await;
        let outcome = Outcome::from(&sent.outcome);
        let mut complain = |what: String| wrong.push(format!("{mode}, round {round}: {what}"));
        if !mode.expectation().allows(outcome) {
            let expected = mode.expectation();
            complain(format!("{outcome} instead of {expected} ({:?})", sent.outcome));
        }
        if sent.timings.total > DEADLINES.total + SLACK {
            complain(format!("took {:?}", sent.timings.total));
        }
        if let AttemptOutcome::Answered(answer) = &sent.outcome {
            if answer.body.len() > RESPONSE_KEPT_BYTES_MAX {
                complain(format!("{} bytes of the body were kept", answer.body.len()));
            }
            for text in [&answer.retry_after, &answer.content_type].into_iter().flatten() {
                if text.len() > HEADER_KEPT_BYTES_MAX {
                    complain(format!("{} bytes of a header were kept", text.len()));
                }
            }
        }
        // Whatever the receiver still does must have arrived before the connection is used again: a
        // sender can refuse what is there, not what is yet to come.
        while mode == Mode::LateSecondAnswer && receiver.seen().unasked < round {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        tokio::time::sleep(Duration::from_millis(80)).await;
    }
    receiver.heal().await;
    for round in 1..=2 {
        let nonce = format!("{mode} is healed, {round}");
        let sent = egress.send(request(egress, receiver, nonce.clone())).await;
        match &sent.outcome {
            AttemptOutcome::Answered(answer)
                if answer.status == 200 && answer.body == nonce.as_bytes() => {}
            other => wrong.push(format!("{mode}: once healed, {nonce:?} was answered {other:?}")),
        }
    }
    if receiver.seen().cookies > 0 {
        wrong.push(format!("{mode}: a cookie was sent"));
    }
    wrong
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_mode_ends_as_it_should_and_leaves_nothing_behind() {
    let before = open_descriptors();
    {
        let fleet = Fleet::start(Mode::ALL.iter().copied(), SETTINGS).await.expect("a fleet");
        let fleet = Arc::new(fleet);
        let egress = egress(fleet.authority_pem());
        let turns = Arc::new(Semaphore::new(AT_ONCE));
        let mut judging = tokio::task::JoinSet::new();
        for index in 0..fleet.receivers().len() {
            let (fleet, egress, turns) = (Arc::clone(&fleet), egress.clone(), Arc::clone(&turns));
            judging.spawn(async move {
                let _turn = turns.acquire().await.expect("open");
                judge(&egress, &fleet.receivers()[index]).await
            });
        }
        let wrong = judging.join_all().await.concat();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        assert_eq!(fleet.lured(), 0, "a lure was followed");
    }
    // Sockets close when their tasks have been dropped, which takes the runtime a moment. What the
    // runtime itself opened at its first use stays.
    let mut after = open_descriptors();
    for _ in 0..100 {
        if after <= before {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
        after = open_descriptors();
    }
    assert!(after <= before, "{before} descriptors before, {after} after");
}

#[tokio::test]
async fn compressed_answers_are_kept_as_they_came() {
    for (mode, magic) in [
        (Mode::GzipBomb, &[0x1F, 0x8B][..]),
        (Mode::DeflateBomb, &[0x78, 0xDA]),
        (Mode::ZstdBomb, &[0x28, 0xB5, 0x2F, 0xFD]),
    ] {
        let receiver = Receiver::start(mode, SETTINGS).await.expect("a receiver");
        let egress = egress(receiver.authority_pem());
        let sent = attacked(&egress, &receiver).await;
        assert!(answer(&sent).body.starts_with(magic), "{mode}");
        assert_eq!(answer(&sent).body.len(), RESPONSE_KEPT_BYTES_MAX);
    }
}

#[tokio::test]
async fn no_receiver_can_postpone_beyond_the_policy() {
    let policy = profiles::default_profile();
    let now = Timestamp::from_millis(1_800_000_000_000);
    for mode in [
        Mode::RetryAfterExponent,
        Mode::RetryAfterNegative,
        Mode::RetryAfterNan,
        Mode::RetryAfterInfinity,
        Mode::RetryAfterDigits,
        Mode::RetryAfterYear9999,
        Mode::RetryAfterLong,
        Mode::RetryAfterMegabyte,
    ] {
        let receiver = Receiver::start(mode, SETTINGS).await.expect("a receiver");
        let egress = egress(receiver.authority_pem());
        let sent = attacked(&egress, &receiver).await;
        let Verdict::Retry { asked, .. } = policy.classify(&sent.outcome, now) else {
            panic!("{mode} must be tried again");
        };
        assert_eq!(asked.is_some(), mode == Mode::RetryAfterYear9999, "{mode}: {asked:?}");
        let next = |asked| policy.schedule.next(1, now, now, asked, 7).expect("another try");
        let wait = next(asked).since(now);
        assert!(next(asked) >= next(None), "{mode}: earlier than without it");
        assert!(
            wait <= policy.schedule.retry_after.cap.max(next(None).since(now)),
            "{mode}: {wait}"
        );
    }
}
