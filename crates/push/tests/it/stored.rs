//! Stored messages: in batches, in order, up to the window, and never twice.

use posthorn_domain::{MessageSeq, Span, StoredMessage};
use posthorn_push::protocol::Close;
use posthorn_push::session::{AckMode, Answer, Ask, Options, Output, Overflow, Pushed};

use crate::rig::{KNOWN, Rig, message, stored, with_topic};

fn read(after_topics: u64, after: u64, limit: usize) -> Ask {
    Ask::Read {
        agent: KNOWN,
        after_topics: MessageSeq(after_topics),
        after: MessageSeq(after),
        limit,
    }
}

fn forget(seqs: &[u64]) -> Ask {
    Ask::Forget { agent: KNOWN, seqs: seqs.iter().map(|seq| MessageSeq(*seq)).collect() }
}

fn range(rig: &Rig, from: u64, to: u64) -> Vec<StoredMessage> {
    (from..=to).map(|n| stored(n, rig.now)).collect()
}

fn greeted(options: Options, count: u64) -> Rig {
    let mut rig = Rig::with(options);
    rig.hello_known(count);
    rig
}

#[test]
fn batches_follow_each_other_strictly_after_what_was_read() {
    let mut rig = greeted(Options::default(), 13);
    assert_eq!(rig.asks().last(), Some(&read(0, 0, 10)));
    let first = range(&rig, 1, 10);
    rig.answer(Answer::Read(first));
    let outputs = rig.take();
    assert_eq!(crate::rig::versions(&outputs), (1..=10).collect::<Vec<_>>());
    assert_eq!(outputs.last(), Some(&Output::Ask(read(0, 10, 10))), "there is room for more");
    let second = range(&rig, 11, 13);
    rig.answer(Answer::Read(second));
    assert_eq!(rig.notified(), [11, 12, 13], "a batch that is not full is the last");
    rig.ack(&[1, 12]);
    assert_eq!(rig.asks(), [forget(&[1, 12])], "what was acknowledged leaves at once");
    assert!(rig.check_storage());
    assert_eq!(rig.asks(), [read(0, 13, 10)]);
}

#[test]
fn topics_have_a_place_of_their_own() {
    let mut rig = greeted(Options::default(), 3);
    rig.take();
    let batch = vec![
        with_topic(stored(5, rig.now), "a"),
        with_topic(stored(7, rig.now), "b"),
        stored(2, rig.now),
    ];
    rig.answer(Answer::Read(batch));
    assert_eq!(rig.notified(), [5, 7, 2]);
    rig.check_storage();
    assert_eq!(rig.asks(), [read(7, 2, 10)], "what is unacknowledged is not read again");
    let newer = vec![with_topic(stored(9, rig.now), "a")];
    rig.answer(Answer::Read(newer));
    assert_eq!(rig.notified(), [9]);
    rig.ack(&[5, 9]);
    assert_eq!(rig.asks(), [forget(&[5, 9])]);
}

#[test]
fn the_window_bounds_what_is_read() {
    let options = Options { unacked_window: 15, ..Options::default() };
    let mut rig = greeted(options, 100);
    rig.take();
    let batch = range(&rig, 1, 10);
    rig.answer(Answer::Read(batch));
    assert_eq!(rig.asks(), [], "five places are not worth a read");
    rig.ack(&[1, 2, 3, 4]);
    assert_eq!(rig.asks(), [forget(&[1, 2, 3, 4])]);
    rig.ack(&[5]);
    assert_eq!(rig.asks(), [forget(&[5]), read(0, 10, 10)]);
    assert_eq!(rig.push(message(500, rig.now)), Pushed::Full, "all places are taken");
    let batch = range(&rig, 11, 20);
    rig.answer(Answer::Read(batch));
    assert_eq!(rig.session.outstanding(), 15);
}

#[test]
fn unacknowledged_pushes_do_not_keep_stored_ones_waiting_while_there_is_room() {
    let options = Options { unacked_window: 4, ..Options::default() };
    let mut rig = Rig::open(options);
    for n in 101..=103 {
        assert_eq!(rig.push(message(n, rig.now)), Pushed::Accepted);
    }
    rig.take();
    rig.check_storage();
    assert_eq!(rig.asks(), [read(0, 0, 1)]);
    let one = range(&rig, 1, 1);
    rig.answer(Answer::Read(one));
    assert_eq!(rig.notified(), [1]);
    assert_eq!(rig.session.outstanding(), 4);
    rig.ack(&[1]);
    assert_eq!(rig.asks(), [forget(&[1]), read(0, 1, 1)]);
}

#[test]
fn acks_by_batch_forget_when_all_are_acknowledged() {
    let options = Options { ack: AckMode::Batch, batch: 3, ..Options::default() };
    let mut rig = greeted(options, 4);
    rig.take();
    let batch = vec![with_topic(stored(9, rig.now), "t"), stored(1, rig.now), stored(2, rig.now)];
    rig.answer(Answer::Read(batch));
    assert_eq!(rig.asks(), [], "the next batch waits for the acks of this one");
    rig.ack(&[2]);
    assert_eq!(rig.asks(), []);
    rig.ack(&[9]);
    assert_eq!(rig.asks(), [forget(&[9])], "topics leave at once");
    rig.ack(&[1]);
    assert_eq!(rig.asks(), [forget(&[2, 1]), read(9, 2, 3)]);
}

#[test]
fn acks_by_batch_that_are_not_complete_leave_the_store_as_it_is() {
    let options = Options { ack: AckMode::Batch, ..Options::default() };
    let mut rig = greeted(options, 2);
    let batch = range(&rig, 1, 2);
    rig.answer(Answer::Read(batch));
    rig.ack(&[1]);
    rig.take();
    rig.call(posthorn_push::session::Session::gone);
    assert_eq!(rig.asks(), []);
}

#[test]
fn expired_ones_are_not_sent_and_do_not_stop_the_rest() {
    let mut rig = greeted(Options { batch: 2, ..Options::default() }, 3);
    rig.take();
    let mut batch = range(&rig, 1, 2);
    for stored in &mut batch {
        stored.message.ttl = 1;
    }
    rig.now = rig.now.plus(Span::from_secs(1));
    rig.answer(Answer::Read(batch));
    let outputs = rig.take();
    assert!(crate::rig::versions(&outputs).is_empty());
    assert_eq!(outputs, [Output::Ask(read(0, 2, 2))]);
    assert_eq!(rig.session.counters().expired, 2);
}

#[test]
fn a_backlog_above_the_limit_resets_the_agent_after_as_many_as_allowed() {
    let mut rig = greeted(Options { stored_max: 20, ..Options::default() }, 21);
    rig.take();
    let mut seen = Vec::new();
    for from in [1, 11] {
        let batch = range(&rig, from, from + 9);
        rig.answer(Answer::Read(batch));
        seen.extend(rig.notified());
    }
    assert_eq!(rig.asks(), [], "there is nothing more for it to read");
    assert_eq!(seen, (1..=20).collect::<Vec<_>>(), "exactly twenty");
    rig.ack(&(1..=19).collect::<Vec<_>>());
    let first: Vec<u64> = (1..=19).collect();
    assert_eq!(rig.asks(), [forget(&first)], "it may acknowledge all of them");
    rig.answer(Answer::Forgotten);
    rig.ack(&[20]);
    assert_eq!(rig.asks(), [forget(&[20]), Ask::DropAgent(KNOWN)], "at the last ack, at once");
    // Until the agent is gone from the store, nobody can come back as it, and nothing is accepted.
    assert!(!rig.session.wants_frames());
    assert_eq!(rig.push(message(99, rig.now)), Pushed::NotConnected);
    rig.answer(Answer::Forgotten);
    assert_eq!(rig.closed(), None, "that was the answer to something else");
    rig.answer(Answer::Dropped);
    assert_eq!(rig.closed(), Some(Close::Reset));
    assert_eq!((Close::Reset.code(), Close::Reset.word()), (1000, "SM"));
}

#[test]
fn an_agent_gets_as_many_as_the_limit_says_whatever_the_batch() {
    #[track_caller]
    fn check(limit: u32, stored: u64, batch: u16, window: u16) {
        let options =
            Options { stored_max: limit, batch, unacked_window: window, ..Options::default() };
        let mut rig = greeted(options, stored);
        let (mut seen, mut after) = (Vec::new(), 0);
        // What is read and acknowledged, until the agent is dropped.
        for _ in 0..=stored {
            let asks = rig.asks();
            if asks.contains(&Ask::DropAgent(KNOWN)) {
                break;
            }
            let Some(Ask::Read { limit, .. }) =
                asks.iter().find(|ask| matches!(ask, Ask::Read { .. }))
            else {
                panic!("nothing was read and nobody dropped: {asks:?}");
            };
            let to = stored.min(after + *limit as u64);
            let batch = range(&rig, after + 1, to);
            after = to;
            rig.answer(Answer::Read(batch));
            let outputs = rig.take();
            let got = crate::rig::versions(&outputs);
            seen.extend(got.iter().copied());
            rig.out = outputs;
            rig.ack(&got);
        }
        let wanted: Vec<u128> = (1..=u128::from(limit)).collect();
        assert_eq!(seen, wanted, "{limit} of {stored} in batches of {batch}");
    }
    for (limit, stored) in [(5, 7), (15, 16), (1, 9), (10, 11), (20, 300), (3, 4)] {
        for (batch, window) in [(10, 128), (4, 4), (1, 1), (128, 2)] {
            check(limit, stored, batch, window);
        }
    }
}

#[test]
fn who_closes_after_the_last_ack_is_dropped_all_the_same() {
    let mut rig = greeted(Options { stored_max: 5, ..Options::default() }, 7);
    let batch = range(&rig, 1, 5);
    rig.answer(Answer::Read(batch));
    rig.take();
    rig.ack(&[1, 2, 3, 4, 5]);
    rig.call(posthorn_push::session::Session::gone);
    assert_eq!(rig.asks()[1..], [Ask::DropAgent(KNOWN)], "asked for before the end");
}

#[test]
fn messages_that_expire_while_they_are_read_are_no_part_of_the_limit() {
    let mut rig = greeted(Options { stored_max: 3, batch: 3, ..Options::default() }, 4);
    rig.take();
    let mut batch = range(&rig, 1, 3);
    batch[0].message.ttl = 1;
    rig.now = rig.now.plus(Span::from_secs(1));
    rig.answer(Answer::Read(batch));
    assert_eq!(rig.asks().last(), Some(&read(0, 3, 1)), "one more may come");
    let last = range(&rig, 4, 4);
    rig.answer(Answer::Read(last));
    rig.take();
    rig.ack(&[2, 3, 4]);
    assert!(rig.asks().contains(&Ask::DropAgent(KNOWN)));
}

#[test]
fn a_backlog_at_the_limit_is_no_overflow_and_a_busy_agent_is_none_either() {
    let mut rig = greeted(Options { stored_max: 20, ..Options::default() }, 20);
    rig.take();
    // Far more come while it is connected, and slower than they arrive.
    for from in (1..=91).step_by(10) {
        let batch = range(&rig, from, from + 9);
        rig.answer(Answer::Read(batch));
        let numbers: Vec<u128> = (from..from + 10).map(u128::from).collect();
        rig.ack(&numbers);
    }
    let outputs = rig.take();
    assert_eq!(crate::rig::versions(&outputs).len(), 100);
    assert!(!outputs.contains(&Output::Ask(Ask::DropAgent(KNOWN))));
}

#[test]
fn an_overflow_may_cost_the_oldest_only() {
    let options =
        Options { stored_max: 20, on_overflow: Overflow::DropOldest, ..Options::default() };
    let mut rig = greeted(options.clone(), 21);
    assert_eq!(rig.asks()[1..], [Ask::Trim { agent: KNOWN, keep: 20 }, read(0, 0, 10)]);
    rig.answer(Answer::Trimmed);
    let batch = range(&rig, 2, 11);
    rig.answer(Answer::Read(batch));
    assert_eq!(rig.notified().len(), 10);
    let mut rig = greeted(options, 20);
    assert_eq!(rig.asks()[1..], [read(0, 0, 10)]);
    // Without a limit nobody counts.
    let mut rig = Rig::with(Options { stored_max: 0, ..Options::default() });
    rig.hello_known(1_000_000);
    assert!(matches!(rig.asks()[..], [Ask::Connect { count: false, .. }, Ask::Read { .. }]));
}

#[test]
fn an_outdated_agent_gets_everything_and_is_dropped_then() {
    let mut rig = Rig::new();
    rig.text(&format!(r#"{{"messageType":"hello","uaid":"{KNOWN}"}}"#));
    rig.answer(Answer::Connected { stored: 1, outdated: true });
    let batch = range(&rig, 1, 1);
    rig.answer(Answer::Read(batch));
    assert_eq!(rig.notified(), [1]);
    rig.ack(&[1]);
    assert_eq!(rig.asks(), [forget(&[1]), Ask::DropAgent(KNOWN)]);
    rig.answer(Answer::Forgotten);
    rig.answer(Answer::Dropped);
    assert_eq!(rig.closed(), Some(Close::Reset));
}

#[test]
fn more_than_was_asked_for_is_not_taken() {
    let mut rig = greeted(Options { unacked_window: 3, ..Options::default() }, 5);
    rig.take();
    let batch = range(&rig, 1, 5);
    rig.answer(Answer::Read(batch));
    assert_eq!(rig.notified(), [1, 2, 3]);
    assert_eq!(rig.session.outstanding(), 3);
    rig.ack(&[1, 2, 3]);
    assert_eq!(rig.asks(), [forget(&[1, 2, 3]), read(0, 3, 3)], "the rest is read again");
}

#[test]
fn a_store_that_fails_ends_the_session() {
    let mut rig = greeted(Options::default(), 1);
    rig.take();
    rig.answer(Answer::Failed);
    assert_eq!(rig.closed(), Some(Close::StoreFailed));
    let mut dropping = greeted(Options { stored_max: 1, ..Options::default() }, 9);
    let batch = range(&dropping, 1, 1);
    dropping.answer(Answer::Read(batch));
    dropping.ack(&[1]);
    dropping.take();
    dropping.answer(Answer::Failed);
    assert_eq!(dropping.closed(), Some(Close::StoreFailed));
}
