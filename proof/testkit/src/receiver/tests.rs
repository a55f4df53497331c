//! The receiver and the caller meet.

use std::time::Instant;

use serde_json::json;

use super::*;
use crate::caller::{call, exchange};
use crate::wait::until;

#[test]
fn it_answers_as_it_is_told_and_remembers_what_came() {
    let receiver = Receiver::scripted(|seen| match seen.nth {
        0 => Answer::from(201).header("X-Said", "yes").body(seen.body.clone()),
        1 => {
            Answer::raw("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n")
        }
        2 => Answer::from(200).body("slowly").dripping(Duration::from_millis(2)),
        _ => 0.into(),
    });
    let at = |path: &str| call(&receiver.url(""), "POST", path);
    let first = at("/a?b=c").header("x-asked", "1").json(json!({"n": 1})).send();
    assert_eq!(first.has(&[("x-said", "yes"), ("x-other", "")]).expect(201), json!({"n": 1}));
    assert_eq!(at("/").send().body, "ab");
    let begun = Instant::now();
    assert_eq!(at("/").send().body, "slowly");
    assert!(begun.elapsed() > Duration::from_millis(50), "{:?}", begun.elapsed());
    assert!(at("/").try_send().is_none());
    let seen = receiver.wait_for(4);
    assert_eq!((seen[0].query("b"), seen[0].header("X-Asked")), ("c", Some("1")));
    assert_eq!(seen[0].json(), json!({"n": 1}));
    assert!(receiver.heard().contains("POST /a?b=c HTTP/1.1\r\n"));
    let address = receiver.url("");
    drop(receiver);
    until("nobody listens", || std::panic::catch_unwind(|| exchange(&address, "")).is_err());
}

#[test]
fn whoever_keeps_a_connection_is_served_again_on_it() {
    let receiver = Receiver::new(Answer::from(204).kept());
    let twice = "GET / HTTP/1.1\r\n\r\n".repeat(2) + "GET / HTTP/1.1\r\nConnection: close\r\n\r\n";
    receiver.script(|seen| match seen.header("connection") {
        Some("close") => Answer::from(200),
        _ => Answer::from(204).kept(),
    });
    assert_eq!(exchange(&receiver.url(""), twice).matches("HTTP/1.1 20").count(), 3);
}

#[test]
fn over_tls_it_knows_which_certificate_was_shown() {
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let (known, stranger) = (clients.sign("known"), servers.sign("stranger"));
    let receiver = Receiver::secure(&servers, "127.0.0.1", Clients::Of(&clients));
    let ask = |root: &str, shown| call(&receiver.url(""), "GET", "/").over_tls(root, shown);
    ask(&servers.pem, Some(&known)).send().expect(200);
    for (root, shown) in
        [(&servers.pem, None), (&servers.pem, Some(&stranger)), (&clients.pem, None)]
    {
        assert!(ask(root, shown).try_send().is_none());
    }
    let shown: Vec<_> = receiver.seen().into_iter().map(|seen| seen.shown).collect();
    assert_eq!(shown, [Some(known.thumbprint())]);
    let open = Receiver::secure(&servers, "127.0.0.1", Clients::Anybody);
    let ask = |shown| call(&open.url(""), "GET", "/").over_tls(&servers.pem, shown);
    ask(None).send().expect(200);
    ask(Some(&stranger)).send().expect(200);
    assert_eq!(open.seen()[1].shown, Some(stranger.thumbprint()));
}
