//! What a receiver says about other places, and how long it is believed.

use posthorn_hostile::{Mode, Receiver};

use crate::attack::{SETTINGS, answer, attacked, egress};

#[tokio::test]
async fn lures_cost_one_request_and_no_connection_elsewhere() {
    for mode in [
        Mode::Redirect301,
        Mode::Redirect302,
        Mode::Redirect303,
        Mode::Redirect307,
        Mode::Redirect308,
        Mode::RedirectLoop,
        Mode::RedirectMetadata,
        Mode::AltSvc,
        Mode::Refresh,
        Mode::StrictTransport,
        Mode::SetCookie,
    ] {
        let receiver = Receiver::start(mode, SETTINGS).await.expect("a receiver");
        let egress = egress(receiver.authority_pem());
        for round in 1..=3 {
            answer(&attacked(&egress, &receiver).await);
            assert_eq!(receiver.seen().requests, round, "{mode}");
        }
        let seen = receiver.seen();
        assert_eq!((receiver.lured(), seen.cookies, seen.connections), (0, 0, 1), "{mode}");
    }
}

#[tokio::test]
async fn a_hoarder_gets_one_connection_for_requests_one_after_the_other() {
    let receiver = Receiver::start(Mode::Hoard, SETTINGS).await.expect("a receiver");
    let egress = egress(receiver.authority_pem());
    for _ in 0..20 {
        answer(&attacked(&egress, &receiver).await);
    }
    let seen = receiver.seen();
    assert_eq!((seen.connections, seen.peak, seen.requests), (1, 1, 20));
    drop(egress);
    // Nobody but the sender closes, and it does so when it goes.
    while receiver.seen().open > 0 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}
