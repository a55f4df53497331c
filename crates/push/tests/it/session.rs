//! One session: hello, commands, pings, pushes, ends.

use bytes::Bytes;
use posthorn_domain::Span;
use posthorn_push::protocol::Close;
use posthorn_push::session::{
    ASKS_MAX, Answer, Ask, Broadcasts, Counters, Options, Output, Pushed, Session,
};

use crate::rig::{CHANNEL, FRESH, KNOWN, Rig, id, message, versions};

/// Something that happens to a session.
type Happening = fn(&mut Rig);

const HELLO: &str = r#"{"messageType":"hello"}"#;

fn hello_of(agent: impl std::fmt::Display) -> String {
    format!(r#"{{"messageType":"hello","uaid":"{agent}"}}"#)
}

fn welcome(agent: impl std::fmt::Display) -> String {
    format!(
        r#"{{"messageType":"hello","uaid":"{agent}","status":200,"use_webpush":true,"broadcasts":{{}}}}"#
    )
}

#[test]
fn a_session_is_small() {
    // There are tens of thousands of them.
    assert!(size_of::<Session>() <= 288, "{} bytes", size_of::<Session>());
    assert!(size_of::<Options>() <= 128);
}

#[test]
fn an_agent_without_an_id_gets_a_fresh_one_and_the_store_is_not_asked() {
    let mut rig = Rig::new();
    rig.take();
    rig.text(HELLO);
    let ping_at = rig.now.plus(Span::from_secs(300));
    assert_eq!(
        rig.take(),
        [Output::Enter(FRESH), Output::Send(welcome(FRESH)), Output::WakeAt(ping_at)]
    );
    assert_eq!(rig.session.agent(), Some(FRESH));
}

#[test]
fn a_known_agent_keeps_its_id_and_storage_is_read_right_after_the_answer() {
    let mut rig = Rig::new();
    rig.take();
    rig.text(&hello_of(KNOWN));
    let connect = Ask::Connect { agent: KNOWN, connected_at: rig.now, count: true };
    assert_eq!(rig.take(), [Output::Enter(KNOWN), Output::Ask(connect)]);
    assert!(!rig.session.wants_frames(), "nothing is read before the answer");
    rig.answer(Answer::Connected { stored: 0, outdated: false });
    let outputs = rig.take();
    assert_eq!(outputs[0], Output::Send(welcome(KNOWN)));
    assert!(matches!(outputs.last(), Some(Output::Ask(Ask::Read { agent: KNOWN, .. }))));
    assert!(rig.session.wants_frames());
}

#[test]
fn an_unknown_agent_gets_a_fresh_id_never_the_one_it_proposed() {
    let mut rig = Rig::new();
    rig.text(&hello_of(KNOWN));
    rig.take();
    rig.answer(Answer::Unknown);
    let outputs = rig.take();
    assert_eq!(
        outputs[..3],
        [Output::Leave(KNOWN), Output::Enter(FRESH), Output::Send(welcome(FRESH))]
    );
    assert!(!outputs.iter().any(|output| matches!(output, Output::Ask(_))), "nothing to read");
}

#[test]
fn a_fresh_agent_is_born_with_its_first_channel() {
    let mut rig = Rig::new();
    let connected_at = rig.now;
    rig.text(HELLO);
    rig.wait(Span::from_secs(1));
    rig.take();
    let register = format!(r#"{{"messageType":"register","channelID":"{CHANNEL}"}}"#);
    let ask = |birth| Ask::Register { agent: FRESH, channel: CHANNEL, key: None, birth };
    // It stays unborn until it was really made.
    for _ in 0..2 {
        rig.text(&register);
        assert_eq!(rig.asks(), [ask(Some(connected_at))]);
        rig.answer(Answer::NotRegistered(CHANNEL));
        assert_eq!(
            rig.sent(),
            [format!(
                r#"{{"messageType":"register","channelID":"{CHANNEL}","status":500,"pushEndpoint":""}}"#
            )]
        );
    }
    rig.text(&register);
    assert_eq!(rig.asks(), [ask(Some(connected_at))]);
    rig.answer(Answer::Registered { channel: CHANNEL, endpoint: "https://p/x".into() });
    assert_eq!(
        rig.sent(),
        [format!(
            r#"{{"messageType":"register","channelID":"{CHANNEL}","status":200,"pushEndpoint":"https://p/x"}}"#
        )]
    );
    rig.text(&register);
    assert_eq!(rig.asks(), [ask(None)], "born once");
    assert_eq!(rig.session.counters().registers, 1);
}

#[test]
fn keys_are_decoded_and_what_is_no_key_asks_nothing() {
    let mut rig = Rig::open(Options::default());
    for (text, bytes) in [
        ("AAAA", &[0, 0, 0][..]),
        ("-_8", &[0xfb, 0xff]),
        ("-_8=", &[0xfb, 0xff]),
        ("+/8=", &[0xfb, 0xff]),
    ] {
        rig.text(&format!(
            r#"{{"messageType":"register","channelID":"{CHANNEL}","key":"{text}"}}"#
        ));
        let key = Some(Bytes::copy_from_slice(bytes));
        assert_eq!(
            rig.asks(),
            [Ask::Register { agent: KNOWN, channel: CHANNEL, key, birth: None }]
        );
        rig.answer(Answer::Registered { channel: CHANNEL, endpoint: String::new() });
        rig.take();
    }
    for text in ["", "=", "A", "AAAA!", "ä", "AA AA"] {
        rig.text(&format!(
            r#"{{"messageType":"register","channelID":"{CHANNEL}","key":"{text}"}}"#
        ));
        assert_eq!(
            rig.take(),
            [Output::Send(format!(
                r#"{{"messageType":"register","channelID":"{CHANNEL}","status":400,"pushEndpoint":"Failed to generate endpoint"}}"#
            ))],
            "{text:?}"
        );
    }
}

#[test]
fn unregister_answers_what_the_store_says() {
    let mut rig = Rig::open(Options::default());
    let text = format!(r#"{{"messageType":"unregister","channelID":"{CHANNEL}","code":200}}"#);
    for (answer, status) in
        [(Answer::Unregistered(CHANNEL), 200), (Answer::NotUnregistered(CHANNEL), 500)]
    {
        rig.text(&text);
        assert_eq!(rig.asks(), [Ask::Unregister { agent: KNOWN, channel: CHANNEL }]);
        rig.answer(answer);
        assert_eq!(
            rig.sent(),
            [format!(
                r#"{{"messageType":"unregister","channelID":"{CHANNEL}","status":{status}}}"#
            )]
        );
    }
    assert_eq!(rig.session.counters().unregisters, 1);
}

#[test]
fn frames_are_not_wanted_while_too_many_asks_wait() {
    let mut rig = Rig::open(Options::default());
    let text = format!(r#"{{"messageType":"unregister","channelID":"{CHANNEL}"}}"#);
    for _ in 0..ASKS_MAX {
        assert!(rig.session.wants_frames());
        rig.text(&text);
    }
    assert!(!rig.session.wants_frames());
    rig.answer(Answer::Unregistered(CHANNEL));
    assert!(rig.session.wants_frames());
}

#[track_caller]
fn closes(mut rig: Rig, text: &str, close: Close) {
    rig.take();
    rig.text(text);
    assert_eq!(rig.closed(), Some(close), "{text}");
    assert!(rig.session.is_closed() && !rig.session.wants_frames());
    rig.text(HELLO);
    rig.call(Session::gone);
    rig.wait(Span::from_secs(1_000));
    assert_eq!(rig.take(), [], "nothing comes after the end");
}

#[test]
fn hello_comes_first_and_once() {
    for text in ["{}", r#"{"messageType":"ack","updates":[]}"#] {
        closes(Rig::new(), text, Close::NotHello);
    }
    closes(Rig::new(), "nonsense", Close::Json);
    closes(Rig::open(Options::default()), HELLO, Close::SecondHello);
    closes(Rig::open(Options::default()), &hello_of(KNOWN), Close::SecondHello);
    let mut connecting = Rig::new();
    connecting.text(&hello_of(KNOWN));
    closes(connecting, HELLO, Close::SecondHello);
    closes(
        Rig::open(Options::default()),
        r#"{"messageType":"register","channelID":"X"}"#,
        Close::BadChannel,
    );
}

#[test]
fn frames_that_are_no_text_close() {
    let table: [(Happening, Close); 3] = [
        (|rig| rig.call(Session::binary_frame), Close::UnsupportedMessage),
        (|rig| rig.call(Session::broken_frame), Close::Protocol),
        (|rig| rig.text(&"x".repeat(65_537)), Close::Protocol),
    ];
    for (frame, close) in table {
        for mut rig in [Rig::new(), Rig::open(Options::default())] {
            frame(&mut rig);
            assert_eq!(rig.closed(), Some(close));
        }
    }
    let mut early = Rig::new();
    early.call(Session::ping_frame);
    assert_eq!(early.closed(), Some(Close::UnsupportedMessage));
    let mut later = Rig::open(Options::default());
    later.call(Session::ping_frame);
    assert_eq!(later.take(), [], "the transport answers");
}

#[test]
fn the_first_message_must_come_in_time() {
    let mut rig = Rig::new();
    assert_eq!(rig.take(), [Output::WakeAt(rig.now.plus(Span::from_secs(5)))]);
    rig.wait(Span::from_millis(4_999));
    assert_eq!(rig.closed(), None);
    rig.wait(Span::from_millis(1));
    let (saved, summary) = {
        let outputs = std::mem::take(&mut rig.out);
        assert_eq!(outputs[0], Output::Close(Close::HandshakeTimeout), "nobody to leave");
        rig.out = outputs;
        rig.ended()
    };
    assert!(saved.is_empty());
    assert_eq!((summary.agent, summary.lived), (None, Span::from_secs(5)));
}

#[test]
fn a_tick_that_comes_early_only_asks_to_be_woken_again() {
    let mut rig = Rig::open(Options::default());
    rig.wait(Span::from_secs(299));
    let due = rig.now.plus(Span::from_secs(1));
    assert_eq!(rig.take(), [Output::WakeAt(due)]);
    assert_eq!(rig.session.wake_at(), due);
    let mut connecting = Rig::new();
    connecting.text(&hello_of(KNOWN));
    connecting.take();
    connecting.wait(Span::from_secs(100));
    assert_eq!(connecting.take(), [], "the store has timeouts of its own");
}

#[test]
fn agents_are_pinged_and_must_answer() {
    let mut rig = Rig::open(Options::default());
    for _ in 0..3 {
        rig.wait(Span::from_secs(300));
        assert_eq!(rig.take(), [Output::Ping, Output::WakeAt(rig.now.plus(Span::from_secs(4)))]);
        rig.wait(Span::from_millis(3_999));
        assert_eq!(rig.closed(), None);
        rig.call(Session::pong_frame);
        assert_eq!(rig.take(), [Output::WakeAt(rig.now.plus(Span::from_secs(300)))]);
        rig.call(Session::pong_frame);
        assert_eq!(rig.take(), [], "a pong too many is nothing");
    }
    rig.wait(Span::from_secs(300));
    rig.take();
    rig.wait(Span::from_secs(4));
    assert_eq!(rig.closed(), Some(Close::PongTimeout));
}

#[test]
fn a_slow_store_is_not_blamed_on_the_agent() {
    let mut rig = Rig::open(Options::default());
    let text = format!(r#"{{"messageType":"unregister","channelID":"{CHANNEL}"}}"#);
    rig.wait(Span::from_secs(300));
    for _ in 0..ASKS_MAX {
        rig.text(&text);
    }
    for _ in 0..5 {
        rig.wait(Span::from_secs(4));
        assert_eq!(rig.closed(), None, "nobody reads what the agent answers");
    }
    rig.wait(Span::from_millis(3_999));
    rig.answer(Answer::Unregistered(CHANNEL));
    rig.wait(Span::from_millis(1));
    assert_eq!(rig.closed(), None, "the socket is read again only now");
    rig.wait(Span::from_secs(4));
    assert_eq!(rig.closed(), Some(Close::PongTimeout));
}

#[test]
fn agents_may_ping_every_45_seconds() {
    let mut rig = Rig::open(Options::default());
    rig.text("{}");
    assert_eq!(rig.sent(), ["{}"], "the first is always allowed");
    rig.wait(Span::from_secs(45));
    rig.take();
    rig.text(r#"{"messageType":"ping"}"#);
    assert_eq!(rig.sent(), ["{}"]);
    rig.wait(Span::from_millis(44_999));
    rig.take();
    rig.text("{}");
    assert_eq!(rig.closed(), Some(Close::PingTooSoon));
}

#[test]
fn broadcasts_are_told_at_hello_on_subscription_and_instead_of_a_ping() {
    let mut rig = Rig::new();
    rig.broadcasts.set("a", "1").expect("room");
    rig.broadcasts.set("b", "1").expect("room");
    rig.take();
    rig.text(r#"{"messageType":"hello","broadcasts":{"a":"0","x":"1"}}"#);
    assert_eq!(
        rig.sent(),
        [welcome(FRESH).replace("{}", r#"{"a":"1","errors":{"x":"Broadcast not found"}}"#)]
    );
    rig.wait(Span::from_secs(300));
    assert_eq!(rig.take()[0], Output::Ping, "there is no news");
    rig.call(Session::pong_frame);
    // Not followed, so no news either.
    rig.broadcasts.set("b", "2").expect("room");
    rig.broadcasts.set("x", "1").expect("room");
    rig.wait(Span::from_secs(300));
    assert!(rig.take().contains(&Output::Ping));
    rig.call(Session::pong_frame);
    rig.take();

    let subscribe =
        |what: &str| format!(r#"{{"messageType":"broadcast_subscribe","broadcasts":{{{what}}}}}"#);
    rig.text(&subscribe(r#""b":"2""#));
    assert_eq!(rig.sent(), [""; 0], "nothing to say");
    rig.broadcasts.set("a", "2").expect("room");
    rig.text(&subscribe(r#""b":"1","y":"""#));
    assert_eq!(
        rig.sent(),
        [
            r#"{"messageType":"broadcast","broadcasts":{"a":"2","b":"2","errors":{"y":"Broadcast not found"}}}"#
        ],
        "what changed before is not forgotten by subscribing to something else"
    );

    rig.broadcasts.set("a", "3").expect("room");
    rig.broadcasts.set("b", "3").expect("room");
    rig.broadcasts.set("a", "4").expect("room");
    rig.wait(Span::from_secs(300));
    let next = rig.now.plus(Span::from_secs(300));
    let news = r#"{"messageType":"broadcast","broadcasts":{"a":"4","b":"3"}}"#.to_owned();
    assert_eq!(rig.take(), [Output::Send(news), Output::WakeAt(next)], "no pong is expected");
    rig.wait(Span::from_secs(300));
    assert_eq!(rig.take()[0], Output::Ping, "told once");
}

#[test]
fn the_news_of_a_known_agent_wait_for_the_store() {
    let mut rig = Rig::new();
    rig.broadcasts.set("a", "1").expect("room");
    rig.text(&format!(r#"{{"messageType":"hello","uaid":"{KNOWN}","broadcasts":{{"a":""}}}}"#));
    rig.take();
    rig.answer(Answer::Connected { stored: 0, outdated: false });
    assert_eq!(rig.sent(), [welcome(KNOWN).replace("{}", r#"{"a":"1"}"#)]);
}

#[test]
fn the_table_of_broadcasts_has_a_bound() {
    let mut table = Broadcasts::default();
    assert!(table.is_empty());
    for n in 0..posthorn_push::session::TABLE_MAX {
        assert_eq!(table.set(&n.to_string(), "1"), Ok(true));
    }
    assert!(table.set("more", "1").is_err());
    assert_eq!(table.set("0", "1"), Ok(false));
    assert_eq!(table.set("0", "2"), Ok(true));
    assert_eq!(table.len(), posthorn_push::session::TABLE_MAX);
    assert!(Broadcasts::default().set("errors", "1").is_err());
}

#[test]
fn pushes_go_out_at_once_up_to_the_window() {
    let mut rig = Rig::open(Options { unacked_window: 3, ..Options::default() });
    for n in 1..=3 {
        assert_eq!(rig.push(message(n, rig.now)), Pushed::Accepted);
    }
    assert_eq!(rig.notified(), [1, 2, 3]);
    assert_eq!(rig.push(message(4, rig.now)), Pushed::Full);
    assert_eq!(rig.take(), [], "it is the endpoint that stores");
    rig.ack(&[2]);
    // There is room, and since something was refused, storage is looked at.
    assert_eq!(
        rig.asks(),
        [Ask::Read {
            agent: KNOWN,
            after_topics: posthorn_domain::MessageSeq::START,
            after: posthorn_domain::MessageSeq::START,
            limit: 1
        }]
    );
    assert_eq!(rig.push(message(5, rig.now)), Pushed::Full, "the place is taken by the read");
    rig.answer(Answer::Read(Vec::new()));
    // The hint for the refused one has not come yet, but it was refused after the read began.
    assert_eq!(rig.asks().len(), 1);
    rig.answer(Answer::Read(Vec::new()));
    assert_eq!(rig.push(message(6, rig.now)), Pushed::Accepted);
    assert_eq!(rig.notified(), [6]);
    assert_eq!(rig.session.counters().direct_refused, 2);
}

#[test]
fn a_window_of_one_waits_for_every_ack() {
    let mut rig = Rig::open(Options { unacked_window: 1, ..Options::default() });
    assert_eq!(rig.push(message(1, rig.now)), Pushed::Accepted);
    assert_eq!(rig.push(message(2, rig.now)), Pushed::Full);
    assert!(rig.check_storage());
    assert_eq!(rig.notified(), [1], "nothing is read while one is unacknowledged");
    rig.ack(&[1]);
    assert!(matches!(rig.asks()[..], [Ask::Read { limit: 1, .. }]));
    // Even a window of zero would be one.
    let mut none = Rig::open(Options { unacked_window: 0, ..Options::default() });
    assert_eq!(none.push(message(1, none.now)), Pushed::Accepted);
    assert_eq!(none.push(message(2, none.now)), Pushed::Full);
}

#[test]
fn whoever_is_not_there_takes_no_pushes() {
    let mut waiting = Rig::new();
    assert_eq!(waiting.push(message(1, waiting.now)), Pushed::NotConnected);
    assert!(!waiting.check_storage());
    let mut connecting = Rig::new();
    connecting.text(&hello_of(KNOWN));
    assert_eq!(connecting.push(message(1, connecting.now)), Pushed::Full);
    assert!(connecting.check_storage());
    let mut other = Rig::open(Options::default());
    let mut stranger = message(1, other.now);
    stranger.agent = FRESH;
    assert_eq!(other.push(stranger), Pushed::NotConnected);
    other.call(Session::gone);
    assert_eq!(other.push(message(1, other.now)), Pushed::NotConnected);
    assert!(!other.check_storage());
}

#[test]
fn what_has_expired_on_its_way_is_not_sent_except_what_was_only_for_now() {
    let mut rig = Rig::open(Options::default());
    let mut late = message(1, rig.now);
    late.ttl = 2;
    rig.wait(Span::from_secs(2));
    rig.take();
    assert_eq!(rig.push(late), Pushed::Accepted);
    assert_eq!(rig.notified(), [0; 0]);
    let mut now_or_never = message(2, rig.now);
    now_or_never.ttl = 0;
    assert_eq!(rig.push(now_or_never), Pushed::Accepted);
    assert_eq!(rig.notified(), [2]);
    assert_eq!(rig.session.counters().expired, 1);
}

#[test]
fn acks_are_matched_by_version_and_anything_else_is_ignored() {
    let mut rig = Rig::open(Options::default());
    for n in 1..=3 {
        rig.push(message(n, rig.now));
    }
    rig.take();
    rig.ack(&[9]);
    assert_eq!(rig.session.outstanding(), 3);
    rig.ack(&[]);
    rig.text(r#"{"messageType":"nack","version":"x","code":301}"#);
    let other_channel = posthorn_domain::ChannelId::from_random(77);
    rig.text(&format!(
        r#"{{"messageType":"ack","updates":[{{"channelID":"{other_channel}","version":"{}","code":101}}]}}"#,
        id(2)
    ));
    assert_eq!(rig.session.outstanding(), 2);
    rig.ack(&[2, 2, 1, 3, 3]);
    assert_eq!(rig.session.outstanding(), 0);
    assert_eq!(rig.take(), [], "direct messages leave no trace in the store");
    let counters = rig.session.counters();
    assert_eq!((counters.direct_acked, counters.nacks, counters.undecrypted), (3, 1, 1));
}

#[test]
fn what_was_not_acknowledged_is_saved_once_in_order() {
    let mut rig = Rig::open(Options::default());
    for n in 1..=5 {
        let mut message = message(n, rig.now);
        message.ttl = match n {
            3 => 0,
            4 => 1,
            _ => 60,
        };
        rig.push(message);
    }
    rig.ack(&[2]);
    rig.take();
    rig.wait(Span::from_secs(1));
    rig.take();
    rig.call(Session::gone);
    let outputs = rig.take();
    // Nobody finds the session before the agent learns of its end; only then is anything saved.
    assert_eq!(outputs[..2], [Output::Leave(KNOWN), Output::Close(Close::Gone)]);
    assert!(matches!(outputs[2], Output::Save(_)));
    rig.out = outputs;
    let (saved, summary) = rig.ended();
    assert_eq!(saved.iter().map(|message| message.id).collect::<Vec<_>>(), [id(1), id(5)]);
    assert_eq!(saved[0], message(1, saved[0].received_at), "as it was");
    assert_eq!(
        summary.counters,
        Counters { direct_sent: 5, direct_acked: 1, direct_saved: 2, ..Counters::default() }
    );
    assert_eq!((summary.agent, summary.close), (Some(KNOWN), Close::Gone));
}

#[test]
fn every_end_saves_except_that_of_the_agent_itself() {
    let ends: [(Happening, Close, bool); 5] = [
        (|rig| rig.call(Session::replaced), Close::Replaced, true),
        (|rig| rig.call(Session::drain_node), Close::Draining, true),
        (|rig| rig.text("nonsense"), Close::Json, true),
        (|rig| rig.answer(Answer::Failed), Close::StoreFailed, true),
        (|rig| rig.answer(Answer::AgentGone), Close::Reset, false),
    ];
    for (end, close, saves) in ends {
        let mut rig = Rig::open(Options::default());
        rig.push(message(1, rig.now));
        rig.take();
        end(&mut rig);
        let left = rig.out.contains(&Output::Leave(KNOWN));
        assert_eq!(left, close != Close::Replaced, "{close:?}: the newer one stays");
        let (saved, summary) = rig.ended();
        assert_eq!((saved.len() == 1, summary.close), (saves, close));
    }
}

#[test]
fn a_lost_race_for_the_agent_closes_without_an_answer() {
    for (answer, close) in
        [(Answer::AlreadyConnected, Close::AlreadyConnected), (Answer::Failed, Close::StoreFailed)]
    {
        let mut rig = Rig::new();
        rig.text(&hello_of(KNOWN));
        rig.take();
        rig.answer(answer);
        let outputs = rig.take();
        assert_eq!(outputs[..2], [Output::Leave(KNOWN), Output::Close(close)]);
        assert!(versions(&outputs).is_empty());
        assert!(!outputs.iter().any(|output| matches!(output, Output::Send(_))));
    }
}

#[test]
fn an_answer_to_nothing_does_not_pass() {
    for answer in [Answer::Connected { stored: 0, outdated: false }, Answer::Dropped] {
        let mut rig = Rig::open(Options::default());
        rig.answer(answer);
        assert_eq!(rig.closed(), Some(Close::StoreFailed));
    }
}
