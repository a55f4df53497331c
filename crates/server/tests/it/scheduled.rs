//! Events that are to be delivered later, through the real program: also when it is killed meanwhile.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use posthorn_domain::{Span, Timestamp};
use posthorn_testkit::program::{Home, id_of};
use posthorn_testkit::receiver::Receiver;
use posthorn_testkit::wait::until;

#[expect(clippy::disallowed_methods, reason = "the program under test has the system's clock too")]
fn ahead(span: Duration) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let now = Timestamp::from_millis(i64::try_from(now.as_millis()).expect("in range"));
    now.plus(Span::from(span)).to_string()
}

fn bodies(receiver: &Receiver) -> Vec<String> {
    let seen = receiver.seen();
    seen.iter().map(|seen| String::from_utf8_lossy(&seen.body).into_owned()).collect()
}

#[test]
fn an_event_waits_for_its_time_also_when_the_server_is_killed() {
    let (mut home, mut server) = Home::new().served();
    let (plain, ordered) = (Receiver::new(200), Receiver::new(200));
    server.ask("topics put orders");
    server.ask(&["subscriptions", "create", &plain.url(""), "--topic", "orders"]);
    let policy = r#"{"order":{"scope":"subscription"}}"#;
    let url = ordered.url("");
    server.ask(&["subscriptions", "create", &url, "--topic", "orders", "--policy", policy]);
    let soon = ahead(Duration::from_secs(8));
    let late = ahead(Duration::from_secs(86_400));
    let send = |payload: &str, when: &str| {
        let args = ["send", "orders", "a", payload, "--deliver-at", when, "--retention", "1h"];
        id_of(&server.ask(&args))
    };
    let first = send("1", &soon);
    let tomorrow = send("2", &late);
    server.ask(&["send", "orders", "a", "3"]);
    for receiver in [&plain, &ordered] {
        until("what is published without a time", || receiver.count() == 1);
        assert_eq!(bodies(receiver), ["3"]);
    }
    let shown = server.ask(&["events", "show", &first]);
    assert_eq!(shown["deliver_at"], soon);
    assert_eq!(shown["deliveries"][0]["waiting"]["reason"], "scheduled", "{shown}");
    server.run(&["send", "orders", "a", "4", "--retention", "1s"]).fails().says(&["at least 1m"]);
    // What is not written down yet would come once more.
    server.settles(&[("delivered", 2), ("pending", 4)]);
    server.running.signal("KILL");
    server.running.wait();
    let server = home.serve();
    for receiver in [&plain, &ordered] {
        until("its time", || receiver.count() == 2);
        assert_eq!(bodies(receiver), ["3", "1"]);
    }
    server.settles(&[("delivered", 4), ("pending", 2)]);
    let shown = server.ask(&["events", "show", &first]);
    for delivery in shown["deliveries"].as_array().expect("a list") {
        let began = delivery["attempts"][0]["started_at"].as_str().expect("a time");
        assert!(began >= soon.as_str(), "{began} is before {soon}");
        assert_eq!(delivery["attempts"][0]["trigger"], "scheduled");
    }
    let shown = server.ask(&["events", "show", &tomorrow]);
    for delivery in shown["deliveries"].as_array().expect("a list") {
        let id = delivery["id"].as_str().expect("an id");
        assert_eq!(server.ask(&["deliveries", "cancel", id])["state"], "cancelled");
    }
    assert_eq!(server.ask("stats")["pending"], 0);
}
