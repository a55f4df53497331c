//! Which connections are used again, and by whom.

use std::time::Duration;

use posthorn_domain::{AttemptOutcome, FailureCode, TenantId, Timestamp};
use posthorn_egress::{Egress, Options, PoolKey};
use tokio::io::AsyncWriteExt;

use crate::receiver::{Receiver, answer, egress, options, read_request, request, send};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[tokio::test]
async fn a_connection_is_used_again() {
    let chunked =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX: y\r\n\r\n";
    let empty = "HTTP/1.1 204 No Content\r\n\r\n";
    for reply in [OK, chunked, empty] {
        let receiver = Receiver::always(reply).await;
        let egress = egress();
        for round in 0..200 {
            let sent = send(&egress, &receiver.url()).await;
            answer(&sent);
            assert_eq!(sent.reused, round > 0);
        }
        assert_eq!(receiver.accepted(), 1, "{reply:?}");
    }
}

#[tokio::test]
async fn closing_receivers_are_believed() {
    for reply in [
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
    ] {
        let receiver = Receiver::always(reply).await;
        let egress = egress();
        for _ in 0..3 {
            let sent = send(&egress, &receiver.url()).await;
            assert_eq!(answer(&sent).status, 200);
            assert!(!sent.reused);
        }
        assert_eq!(receiver.accepted(), 3);
    }
}

#[tokio::test]
async fn a_connection_closed_while_idle_costs_nothing() {
    let receiver = Receiver::start(|mut tcp, _| async move {
        read_request(&mut tcp).await;
        let _ = tcp.write_all(OK.as_bytes()).await;
    })
    .await;
    let egress = egress();
    for _ in 0..20 {
        answer(&send(&egress, &receiver.url()).await);
        // Long enough for the close to be noticed.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(receiver.accepted(), 20);
}

/// A connection takes memory. Of many receivers that are called once in a while, few are kept; of those that are called
/// again and again, all.
#[tokio::test]
async fn when_much_is_idle_only_those_who_are_called_again_keep_their_connections() {
    let receiver = Receiver::always(OK).await;
    let (all, kept) = (280_u16, 280 / 4);
    let few = Options { connections: all.into(), ..options() };
    let egress = Egress::new(few).expect("egress");
    let mut reused = Vec::new();
    for _ in 0..3 {
        let mut again = 0;
        for number in 0..all - 10 {
            let mut wanted = request(&egress, &receiver.url());
            wanted.pool = PoolKey::new(std::array::from_fn(|at| number.to_be_bytes()[at % 2]));
            let sent = egress.send(wanted).await;
            answer(&sent);
            again += u16::from(sent.reused);
        }
        reused.push(again);
    }
    // Nobody was called before; then only the first have a connection; then nearly all: a few share their slot.
    assert_eq!(reused[..2], [0, kept]);
    assert!(reused[2] > (all - 10) / 10 * 9, "{reused:?}");
}

#[tokio::test]
async fn neither_subscriptions_nor_tenants_share_connections() {
    let receiver = Receiver::always(OK).await;
    let egress = egress();
    let one = request(&egress, &receiver.url());
    let mut other_pool = one.clone();
    other_pool.pool = PoolKey::new([2; 16]);
    let mut other_tenant = one.clone();
    other_tenant.tenant = TenantId::new(Timestamp::from_millis(1), 1);
    for (round, expected) in [(0, false), (1, true)] {
        for wanted in [&one, &other_pool, &other_tenant] {
            let sent = egress.send(wanted.clone()).await;
            answer(&sent);
            assert_eq!(sent.reused, expected, "round {round}");
        }
    }
    assert_eq!(receiver.accepted(), 3);
}

#[tokio::test]
async fn idle_and_old_connections_are_closed() {
    let receiver = Receiver::always(OK).await;
    for changed in [
        Options { idle_timeout: Duration::from_millis(50), ..options() },
        Options { connection_age_max: Duration::from_millis(50), ..options() },
        Options { idle_per_subscription: 0, ..options() },
    ] {
        let egress = Egress::new(changed).expect("egress");
        answer(&send(&egress, &receiver.url()).await);
        tokio::time::sleep(Duration::from_millis(80)).await;
        assert!(!send(&egress, &receiver.url()).await.reused);
    }
}

#[tokio::test]
async fn idle_connections_are_closed_without_further_traffic() {
    let (closed, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let receiver = Receiver::start(move |mut tcp, _| {
        let closed = closed.clone();
        async move {
            while read_request(&mut tcp).await.is_some() {
                let _ = tcp.write_all(OK.as_bytes()).await;
            }
            let _ = closed.send(());
        }
    })
    .await;
    let quick = Options { idle_timeout: Duration::from_millis(60), ..options() };
    let egress = Egress::new(quick).expect("egress");
    for _ in 0..2 {
        answer(&send(&egress, &receiver.url()).await);
        let noticed = tokio::time::timeout(Duration::from_secs(5), heard.recv()).await;
        assert_eq!(noticed, Ok(Some(())));
    }
}

#[tokio::test]
async fn idle_connections_make_room_for_busy_ones() {
    let first = Receiver::always(OK).await;
    let second = Receiver::always(OK).await;
    let egress = Egress::new(Options { connections: 1, ..options() }).expect("egress");
    for _ in 0..3 {
        answer(&send(&egress, &first.url()).await);
        answer(&send(&egress, &second.url()).await);
    }
    assert_eq!((first.accepted(), second.accepted()), (3, 3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_at_once_all_get_their_own_answer() {
    let receiver = Receiver::start(|mut tcp, _| async move {
        while let Some(text) = read_request(&mut tcp).await {
            let body = text.rsplit("\r\n\r\n").next().expect("body").to_owned();
            let reply = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            if tcp.write_all(reply.as_bytes()).await.is_err() {
                return;
            }
        }
    })
    .await;
    let egress = Egress::new(Options { connections: 40, ..options() }).expect("egress");
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..64_u8 {
        let egress = egress.clone();
        let mut wanted = request(&egress, &receiver.url());
        wanted.pool = PoolKey::new([task % 3; 16]);
        tasks.spawn(async move {
            for round in 0..50 {
                let mut wanted = wanted.clone();
                let body = format!("{task}/{round}");
                wanted.body = body.clone().into();
                assert_eq!(answer(&egress.send(wanted).await).body, body);
            }
        });
    }
    while let Some(done) = tasks.join_next().await {
        done.expect("task");
    }
    assert!(receiver.accepted() >= 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_close_that_races_with_the_next_request_ends_one_way_or_the_other() {
    let receiver = Receiver::start(|mut tcp, _| async move {
        read_request(&mut tcp).await;
        let _ = tcp.write_all(OK.as_bytes()).await;
    })
    .await;
    let egress = egress();
    let mut answered = 0;
    for _ in 0..500 {
        let sent = send(&egress, &receiver.url()).await;
        match &sent.outcome {
            AttemptOutcome::Answered(_) => answered += 1,
            AttemptOutcome::Failed { code, detail } => {
                assert_eq!(*code, FailureCode::ConnectionClosed, "{detail}");
                assert!(sent.reused, "only a connection that was idle can be closed under us");
            }
        }
    }
    assert!(answered >= 250, "{answered}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dropped_attempts_leave_nothing_behind() {
    let receiver = Receiver::start(|mut tcp, number| async move {
        while read_request(&mut tcp).await.is_some() {
            tokio::time::sleep(Duration::from_micros(number as u64 * 37 % 900)).await;
            if tcp.write_all(OK.as_bytes()).await.is_err() {
                return;
            }
        }
    })
    .await;
    let egress = Egress::new(Options { connections: 3, ..options() }).expect("egress");
    for round in 0..300_u64 {
        let wanted = request(&egress, &receiver.url());
        let patience = Duration::from_micros(round * 13 % 1500);
        // Several at once, so that some are dropped while they wait for a connection.
        let several = || egress.send(wanted.clone());
        let all = async { tokio::join!(several(), several(), several(), several(), several()) };
        let _ = tokio::time::timeout(patience, Box::pin(all)).await;
    }
    for _ in 0..10 {
        answer(&send(&egress, &receiver.url()).await);
    }
}
