//! Deadlines are absolute, and each has its own code.

use std::time::Duration;

use posthorn_domain::FailureCode;
use posthorn_egress::{Egress, Options};
use tokio::io::AsyncWriteExt;

use crate::receiver::{Receiver, answer, egress, failure, options, read_request, request};

const SHORT: Duration = Duration::from_millis(200);
const SLACK: Duration = Duration::from_millis(600);

#[tokio::test]
async fn silence_is_a_response_timeout() {
    let receiver = Receiver::start(|mut tcp, _| async move {
        read_request(&mut tcp).await;
        std::future::pending::<()>().await;
    })
    .await;
    let egress = egress();
    let mut wanted = request(&egress, &receiver.url());
    wanted.deadlines.response = SHORT;
    let sent = egress.send(wanted.clone()).await;
    assert_eq!(failure(&sent), FailureCode::ResponseTimeout);
    assert!(sent.timings.total >= SHORT && sent.timings.total < SHORT + SLACK);
    wanted.deadlines.response = Duration::from_secs(60);
    wanted.deadlines.total = SHORT;
    let sent = egress.send(wanted).await;
    assert_eq!(failure(&sent), FailureCode::AttemptTimeout);
    assert!(sent.timings.total >= SHORT && sent.timings.total < SHORT + SLACK);
}

#[tokio::test]
async fn a_trickling_head_extends_nothing() {
    let receiver = Receiver::start(|mut tcp, _| async move {
        read_request(&mut tcp).await;
        let _ = tcp.write_all(b"HTTP/1.1 200 OK\r\nX: ").await;
        while tcp.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let egress = egress();
    let mut wanted = request(&egress, &receiver.url());
    wanted.deadlines.response = SHORT;
    let sent = egress.send(wanted).await;
    assert_eq!(failure(&sent), FailureCode::ResponseTimeout);
    assert!(sent.timings.total < SHORT + SLACK);
}

#[tokio::test]
async fn a_dripping_body_ends_with_the_attempt_and_the_status_stands() {
    let receiver = Receiver::start(|mut tcp, _| async move {
        read_request(&mut tcp).await;
        let _ = tcp.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n").await;
        while tcp.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let egress = egress();
    let mut wanted = request(&egress, &receiver.url());
    wanted.deadlines.response = SHORT / 2;
    wanted.deadlines.total = SHORT;
    let sent = egress.send(wanted.clone()).await;
    assert_eq!(answer(&sent).status, 200);
    assert!(!answer(&sent).body.is_empty());
    assert!(sent.timings.total >= SHORT && sent.timings.total < SHORT + SLACK);
    assert!(!egress.send(wanted).await.reused);
}

#[tokio::test]
async fn waiting_for_a_free_connection_counts_too() {
    let receiver = Receiver::start(|mut tcp, _| async move {
        read_request(&mut tcp).await;
        std::future::pending::<()>().await;
    })
    .await;
    let egress = Egress::new(Options { connections: 1, ..options() }).expect("egress");
    let mut wanted = request(&egress, &receiver.url());
    let holder = tokio::spawn({
        let (egress, wanted) = (egress.clone(), wanted.clone());
        async move { egress.send(wanted).await }
    });
    while receiver.accepted() == 0 {
        tokio::task::yield_now().await;
    }
    wanted.deadlines.total = SHORT;
    let sent = egress.send(wanted.clone()).await;
    assert_eq!(failure(&sent), FailureCode::AttemptTimeout);
    assert_eq!(receiver.accepted(), 1);
    // Dropping an attempt gives its place back.
    holder.abort();
    let _ = holder.await;
    assert_eq!(failure(&egress.send(wanted).await), FailureCode::AttemptTimeout);
    assert_eq!(receiver.accepted(), 2);
}
