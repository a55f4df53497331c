//! The races that lose or repeat messages elsewhere, one by one.

use posthorn_domain::{MessageSeq, Span, Timestamp};
use posthorn_push::endpoint::{Connection, Found, hint_after_save};
use posthorn_push::protocol::Close;
use posthorn_push::session::{Answer, Ask, Options, Output, Pushed, Session};

use crate::rig::{KNOWN, Rig, message, stored, with_topic};

fn hello(rig: &mut Rig) {
    rig.text(&format!(r#"{{"messageType":"hello","uaid":"{KNOWN}"}}"#));
}

#[test]
fn a_session_can_be_found_before_the_store_says_that_the_agent_is_there() {
    let mut rig = Rig::new();
    rig.take();
    hello(&mut rig);
    let outputs = rig.take();
    let entered = outputs.iter().position(|output| *output == Output::Enter(KNOWN));
    let connected =
        outputs.iter().position(|output| matches!(output, Output::Ask(Ask::Connect { .. })));
    assert!(entered.expect("entered") < connected.expect("asked"));
}

#[test]
fn a_message_that_comes_while_the_agent_connects_is_read_from_the_store() {
    let mut rig = Rig::new();
    hello(&mut rig);
    rig.take();
    // The endpoint stores it and tells; all of that before the store has answered the hello.
    assert_eq!(rig.push(message(1, rig.now)), Pushed::Full);
    assert!(rig.check_storage());
    assert_eq!(rig.take(), [], "nothing before the answer to hello");
    rig.answer(Answer::Connected { stored: 1, outdated: false });
    assert!(matches!(rig.asks()[..], [Ask::Read { .. }]));
    rig.answer(Answer::Read(vec![stored(1, rig.now)]));
    assert_eq!(rig.notified(), [1]);
}

#[test]
fn a_message_stored_while_storage_is_read_is_read_by_another_read() {
    let mut rig = Rig::new();
    rig.hello_known(0);
    rig.take();
    // The read is under way, and saw nothing; the message is stored; the hint comes first.
    assert!(rig.check_storage());
    assert_eq!(rig.take(), [], "one read at a time");
    rig.answer(Answer::Read(Vec::new()));
    assert!(matches!(rig.asks()[..], [Ask::Read { .. }]), "the hint is not forgotten");
    rig.answer(Answer::Read(Vec::new()));
    assert_eq!(rig.take(), [], "and not repeated for ever");
}

#[test]
fn a_hint_while_topics_are_unacknowledged_does_not_send_them_again() {
    let mut rig = Rig::new();
    rig.hello_known(1);
    rig.answer(Answer::Read(vec![with_topic(stored(3, rig.now), "t")]));
    rig.take();
    rig.check_storage();
    assert_eq!(
        rig.asks(),
        [Ask::Read {
            agent: KNOWN,
            after_topics: MessageSeq(3),
            after: MessageSeq::START,
            limit: 10
        }]
    );
}

#[test]
fn a_push_whose_answer_was_lost_is_not_sent_again() {
    let mut rig = Rig::open(Options::default());
    assert_eq!(rig.push(message(1, rig.now)), Pushed::Accepted);
    assert_eq!(rig.notified(), [1]);
    // The endpoint did not hear that, and asks again, or stores it and tells.
    assert_eq!(rig.push(message(1, rig.now)), Pushed::Accepted);
    rig.check_storage();
    rig.answer(Answer::Read(vec![stored(1, rig.now)]));
    assert_eq!(rig.notified(), [0; 0]);
    assert_eq!(rig.session.outstanding(), 1);
    // Now the store has a copy: it leaves with the ack, and needs no saving at the end.
    let mut twin = Rig::open(Options::default());
    twin.push(message(1, twin.now));
    twin.check_storage();
    twin.answer(Answer::Read(vec![stored(1, twin.now)]));
    twin.take();
    twin.call(Session::gone);
    assert!(twin.ended().0.is_empty());
    rig.ack(&[1]);
    assert_eq!(rig.asks(), [Ask::Forget { agent: KNOWN, seqs: vec![MessageSeq(1)] }]);
}

#[test]
fn nobody_pushes_to_a_session_that_is_about_to_close() {
    let mut rig = Rig::open(Options::default());
    rig.push(message(1, rig.now));
    rig.take();
    rig.call(Session::gone);
    let outputs = rig.take();
    let at = |wanted: fn(&Output) -> bool| outputs.iter().position(wanted).expect("said");
    let left = at(|output| matches!(output, Output::Leave(_)));
    let closed = at(|output| matches!(output, Output::Close(_)));
    let saved = at(|output| matches!(output, Output::Save(_)));
    assert!(left < closed && closed < saved);
    assert_eq!(rig.push(message(2, rig.now)), Pushed::NotConnected);
}

#[test]
fn what_a_replaced_session_saves_is_told_to_the_one_that_replaced_it() {
    let at = Timestamp::from_millis;
    let connection = |millis| Connection { node: "http://b".into(), connected_at: at(millis) };
    let newer = Found::Connected(connection(2));
    assert_eq!(hint_after_save(&newer), Some(&connection(2)));
    for found in [Found::NotConnected, Found::NoAgent, Found::Failed] {
        assert_eq!(hint_after_save(&found), None);
    }
    let mut old = Rig::open(Options::default());
    old.push(message(1, old.now));
    old.take();
    old.call(Session::replaced);
    assert!(!old.out.contains(&Output::Leave(KNOWN)), "the newer one must stay where it is");
    assert_eq!(old.ended().0.len(), 1);
}

/// Pings are answered until it is time to renew; what is asked then.
fn until_renewal(rig: &mut Rig) -> Vec<Ask> {
    for _ in 0..6 {
        rig.wait(Span::from_secs(300));
        rig.call(Session::pong_frame);
    }
    rig.asks()
}

#[test]
fn a_connection_that_was_taken_off_the_record_is_put_back() {
    let mut rig = Rig::open(Options::default());
    let renew = Ask::Renew { agent: KNOWN, connected_at: rig.now };
    assert_eq!(until_renewal(&mut rig), std::slice::from_ref(&renew));
    rig.answer(Answer::Renewed);
    assert!(matches!(rig.asks()[..], [Ask::Read { .. }]), "something may have been stored");
}

#[test]
fn a_connection_that_another_node_has_replaced_finds_out() {
    for (answer, close) in
        [(Answer::AlreadyConnected, Close::AlreadyConnected), (Answer::Unknown, Close::Reset)]
    {
        let mut rig = Rig::open(Options::default());
        until_renewal(&mut rig);
        rig.answer(answer);
        assert!(rig.out.contains(&Output::Leave(KNOWN)));
        assert_eq!(rig.closed(), Some(close));
    }
}

#[test]
fn an_agent_that_is_not_in_the_store_is_not_renewed() {
    let mut rig = Rig::new();
    rig.text(r#"{"messageType":"hello"}"#);
    assert_eq!(until_renewal(&mut rig), []);
}
