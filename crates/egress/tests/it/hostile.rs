//! Receivers that try to hold us, fill us or confuse us.

use std::time::Duration;

use posthorn_domain::FailureCode;
use posthorn_domain::limits::{RESPONSE_KEPT_BYTES_MAX, RESPONSE_READ_BYTES_MAX};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::receiver::{Receiver, answer, egress, failure, linger, read_request, request, send};

#[tokio::test]
async fn a_huge_body_is_cut_and_the_status_stands() {
    let receiver = Receiver::start(|mut tcp, _| async move {
        read_request(&mut tcp).await;
        let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        tcp.write_all(head.as_bytes()).await.expect("head");
        let chunk = format!("1000\r\n{}\r\n", "x".repeat(0x1000));
        while tcp.write_all(chunk.as_bytes()).await.is_ok() {}
    })
    .await;
    let egress = egress();
    for _ in 0..2 {
        let sent = send(&egress, &receiver.url()).await;
        assert_eq!(answer(&sent).status, 200);
        assert_eq!(answer(&sent).body.len(), RESPONSE_KEPT_BYTES_MAX);
        assert!(!sent.reused);
    }
    assert_eq!(receiver.accepted(), 2);
}

#[tokio::test]
async fn a_body_at_the_limit_is_read_to_its_end() {
    let body = "x".repeat(RESPONSE_READ_BYTES_MAX);
    let reply: &'static str =
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).leak();
    let receiver = Receiver::always(reply).await;
    let egress = egress();
    assert_eq!(answer(&send(&egress, &receiver.url()).await).body.len(), RESPONSE_KEPT_BYTES_MAX);
    assert!(send(&egress, &receiver.url()).await.reused);
}

#[tokio::test]
async fn an_absurd_content_length_allocates_nothing() {
    let reply = "HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775807\r\n\r\nabc";
    let receiver = Receiver::once(reply).await;
    let sent = send(&egress(), &receiver.url()).await;
    assert_eq!(&answer(&sent).body[..], b"abc");
}

#[tokio::test]
async fn oversized_heads_are_refused() {
    let one = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(1_000_000));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(10_000));
    let just_over = format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(101));
    for reply in [one, many, just_over] {
        let receiver = Receiver::once(reply).await;
        let sent = send(&egress(), &receiver.url()).await;
        assert_eq!(failure(&sent), FailureCode::ResponseHeadTooLarge);
    }
}

#[tokio::test]
async fn a_hundred_headers_are_fine() {
    let reply = format!("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n{}\r\n", "X: y\r\n".repeat(99));
    let receiver = Receiver::once(reply).await;
    assert_eq!(answer(&send(&egress(), &receiver.url()).await).status, 200);
}

#[tokio::test]
async fn informational_answers_are_counted() {
    let ok = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let hint = "HTTP/1.1 103 Early Hints\r\n\r\n";
    let ten = Receiver::once(hint.repeat(10) + ok).await;
    assert_eq!(answer(&send(&egress(), &ten.url()).await).status, 200);
    let eleven = Receiver::once(hint.repeat(11) + ok).await;
    assert_eq!(failure(&send(&egress(), &eleven.url()).await), FailureCode::ProtocolError);
    let endless = Receiver::start(move |mut tcp, _| async move {
        read_request(&mut tcp).await;
        while tcp.write_all(hint.as_bytes()).await.is_ok() {}
    })
    .await;
    assert_eq!(failure(&send(&egress(), &endless.url()).await), FailureCode::ProtocolError);
    let fat = format!("HTTP/1.1 103 Early Hints\r\nX: {}\r\n\r\n", "x".repeat(20_000));
    let few_but_fat = Receiver::once(fat.repeat(8) + ok).await;
    let sent = send(&egress(), &few_but_fat.url()).await;
    assert_eq!(failure(&sent), FailureCode::ResponseHeadTooLarge);
}

#[tokio::test]
async fn nonsense_is_a_protocol_error() {
    for reply in [
        "hello\r\n\r\n",
        "HTTP/0.9 200 OK\r\n\r\n",
        "HTTP/1.1 99 X\r\n\r\n",
        "HTTP/1.1 2000 X\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 0x1\r\n\r\na",
        "HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n",
        "HTTP/1.1 200 OK\r\nX : a\r\n\r\n",
        "HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let receiver = Receiver::once(reply).await;
        let sent = send(&egress(), &receiver.url()).await;
        assert_eq!(failure(&sent), FailureCode::ProtocolError, "{reply:?}");
    }
}

#[tokio::test]
async fn an_early_close_is_a_closed_connection() {
    for reply in ["", "HTTP/1.1 20"] {
        let receiver = Receiver::once(reply).await;
        let sent = send(&egress(), &receiver.url()).await;
        assert_eq!(failure(&sent), FailureCode::ConnectionClosed, "{reply:?}");
    }
    let slammed = Receiver::start(|tcp, _| async move { drop(tcp) }).await;
    assert_eq!(failure(&send(&egress(), &slammed.url()).await), FailureCode::ConnectionClosed);
}

#[tokio::test]
async fn a_body_that_breaks_off_does_not_undo_the_status() {
    for reply in [
        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n",
    ] {
        let receiver = Receiver::once(reply).await;
        let egress = egress();
        let sent = send(&egress, &receiver.url()).await;
        assert_eq!(
            (answer(&sent).status, &answer(&sent).body[..]),
            (200, &b"abc"[..]),
            "{reply:?}"
        );
        assert!(!send(&egress, &receiver.url()).await.reused);
    }
    let until_close = Receiver::once("HTTP/1.0 200 OK\r\n\r\nabc").await;
    assert_eq!(&answer(&send(&egress(), &until_close.url()).await).body[..], b"abc");
}

#[tokio::test]
async fn an_answer_before_the_upload_ends_is_heard() {
    let receiver = Receiver::start(|mut tcp, _| async move {
        let mut some = [0; 1000];
        let _ = tcp.read(&mut some).await;
        let reply = "HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        let _ = tcp.write_all(reply.as_bytes()).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        linger(tcp).await;
    })
    .await;
    let egress = egress();
    let mut wanted = request(&egress, &receiver.url());
    wanted.body = vec![b'x'; 20_000_000].into();
    assert_eq!(answer(&egress.send(wanted).await).status, 413);
}

#[tokio::test]
async fn bytes_nobody_asked_for_do_not_answer_the_next_request() {
    let forged = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged";
    for pause in [Duration::ZERO, Duration::from_millis(20)] {
        let receiver = Receiver::start(move |mut tcp, number| async move {
            read_request(&mut tcp).await;
            let reply = format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{number}");
            if pause.is_zero() {
                let _ = tcp.write_all((reply + forged).as_bytes()).await;
            } else {
                let _ = tcp.write_all(reply.as_bytes()).await;
                tokio::time::sleep(pause).await;
                let _ = tcp.write_all(forged.as_bytes()).await;
            }
            let _ = read_request(&mut tcp).await;
        })
        .await;
        let egress = egress();
        for number in ["0", "1"] {
            let sent = send(&egress, &receiver.url()).await;
            assert_eq!(answer(&sent).body, number);
            assert!(!sent.reused);
            tokio::time::sleep(pause * 5).await;
        }
        assert_eq!(receiver.accepted(), 2);
    }
}
