//! TLS: trust, refusal, stalls.

use std::time::Duration;

use posthorn_domain::{AttemptOutcome, FailureCode};
use posthorn_egress::{Egress, Error, Options};
use posthorn_testkit::authority::{Authority, Pair};
use rcgen::{ExtendedKeyUsagePurpose, SanType, date_time_ymd};
use tokio::io::AsyncWriteExt;

use crate::authority::{Setup, https};
use crate::receiver::{Receiver, answer, egress, failure, options, request, send};

const HOST: &str = "127.0.0.1";

fn trusting(certificate: &Pair) -> Egress {
    let extra_roots = Some(certificate.certificate.clone());
    Egress::new(Options { extra_roots, ..options() }).expect("egress")
}

#[tokio::test]
async fn unknown_certificates_are_refused_and_extra_roots_are_trusted() {
    let certificate = Pair::self_signed("127.0.0.1");
    let (receiver, _) = Setup::of(&certificate).start().await;
    let sent = send(&egress(), &https(&receiver)).await;
    assert_eq!(failure(&sent), FailureCode::TlsCertificateInvalid);
    let egress = trusting(&certificate);
    let sent = send(&egress, &https(&receiver)).await;
    assert_eq!(&answer(&sent).body[..], b"ok");
    assert!(sent.timings.tls.is_some());
    let sent = send(&egress, &https(&receiver)).await;
    assert!(answer(&sent).status == 200 && sent.reused && sent.timings.tls.is_none());
}

#[tokio::test]
async fn certificates_that_do_not_prove_who_answers_are_refused() {
    let authority = Authority::new("trusted");
    let stranger = Authority::new("stranger");
    let pairs = [
        ("for another host", authority.sign("127.0.0.2"), false),
        ("for a name", authority.sign("hooks.example.com"), false),
        (
            "no longer valid",
            authority.sign_with(HOST, |it| it.not_after = date_time_ymd(2020, 1, 1)),
            false,
        ),
        (
            "not yet valid",
            authority.sign_with(HOST, |it| it.not_before = date_time_ymd(2090, 1, 1)),
            false,
        ),
        ("by an unknown authority", stranger.sign(HOST), false),
        ("by itself", Pair::self_signed(HOST), false),
        (
            "for clients only",
            authority.sign_with(HOST, |it| {
                it.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            }),
            false,
        ),
        ("good", authority.sign(HOST), true),
        (
            "for servers",
            authority.sign_with(HOST, |it| {
                it.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
            }),
            true,
        ),
    ];
    let extra_roots = Some(authority.pem.clone());
    let egress = Egress::new(Options { extra_roots, ..options() }).expect("egress");
    for (what, pair, good) in &pairs {
        let (receiver, seen) = Setup::of(pair).start().await;
        let sent = send(&egress, &https(&receiver)).await;
        if *good {
            assert_eq!(answer(&sent).status, 200, "{what}");
        } else {
            assert_eq!(failure(&sent), FailureCode::TlsCertificateInvalid, "{what}");
            assert!(seen.requests().is_empty(), "{what}: not a byte of the request was sent");
        }
    }
}

#[tokio::test]
async fn a_certificate_with_thousands_of_names_is_neither_believed_nor_quoted() {
    let authority = Authority::new("trusted");
    let extra_roots = Some(authority.pem.clone());
    let egress = Egress::new(Options { extra_roots, ..options() }).expect("egress");
    let pair = authority.sign_with("other.example.com", |it| {
        it.subject_alt_names.extend((0..1_000).map(|number| {
            let name = format!("host-{number}.example.com");
            SanType::DnsName(name.try_into().expect("a name"))
        }));
    });
    // Once it is read, and is for other hosts; in an endless chain it is not even read.
    for (repeats, code) in [(1, FailureCode::TlsCertificateInvalid), (20, FailureCode::TlsFailed)] {
        let (receiver, _) = Setup { repeats, ..Setup::of(&pair) }.start().await;
        let sent = send(&egress, &https(&receiver)).await;
        assert_eq!(failure(&sent), code, "{repeats}");
        let AttemptOutcome::Failed { detail, .. } = &sent.outcome else { panic!("{sent:?}") };
        assert!(detail.len() <= 510, "{} bytes", detail.len());
    }
}

#[tokio::test]
async fn only_new_versions_of_tls_are_spoken() {
    let pair = Pair::self_signed(HOST);
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let (receiver, _) = Setup { versions: &[version], ..Setup::of(&pair) }.start().await;
        let sent = send(&trusting(&pair), &https(&receiver)).await;
        assert_eq!(answer(&sent).status, 200);
    }
    // A server that chooses TLS 1.0 or 1.1 whatever it was offered, and one that only objects.
    let hello = |minor: u8| {
        let mut body = vec![2, 0, 0, 38, 3, minor];
        body.extend([7; 32]);
        body.extend([0, 0xC0, 0x13, 0]);
        [&[22, 3, minor, 0, 42][..], &body].concat()
    };
    for bytes in [hello(1), hello(2), vec![21, 3, 2, 0, 2, 2, 70]] {
        let receiver = Receiver::start(move |mut tcp, _| {
            let bytes = bytes.clone();
            async move {
                let _ = tcp.write_all(&bytes).await;
                crate::receiver::linger(tcp).await;
            }
        })
        .await;
        let sent = send(&egress(), &https(&receiver)).await;
        assert_eq!(failure(&sent), FailureCode::TlsFailed);
    }
}

#[tokio::test]
async fn no_tls_on_the_other_side_is_a_tls_failure() {
    for reply in ["HTTP/1.1 400 Bad Request\r\n\r\n", ""] {
        let receiver = Receiver::start(move |mut tcp, _| async move {
            let _ = tcp.write_all(reply.as_bytes()).await;
            crate::receiver::linger(tcp).await;
        })
        .await;
        assert_eq!(failure(&send(&egress(), &https(&receiver)).await), FailureCode::TlsFailed);
    }
}

#[tokio::test]
async fn a_stalled_handshake_has_its_own_deadline() {
    let receiver = Receiver::start(|tcp, _| async move {
        std::future::pending::<()>().await;
        drop(tcp);
    })
    .await;
    let egress = egress();
    let mut wanted = request(&egress, &https(&receiver));
    wanted.deadlines.tls = Duration::from_millis(200);
    let sent = egress.send(wanted.clone()).await;
    assert_eq!(failure(&sent), FailureCode::TlsTimeout);
    assert!(sent.timings.total < Duration::from_millis(800));
    wanted.deadlines.tls = Duration::from_secs(60);
    wanted.deadlines.total = Duration::from_millis(200);
    assert_eq!(failure(&egress.send(wanted).await), FailureCode::AttemptTimeout);
}

#[tokio::test]
async fn a_trickling_handshake_extends_nothing() {
    let receiver = Receiver::start(|mut tcp, _| async move {
        // The beginning of a record that is promised to be long.
        let _ = tcp.write_all(&[22, 3, 3, 0x40, 0]).await;
        while tcp.write_all(&[2]).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let egress = egress();
    let mut wanted = request(&egress, &https(&receiver));
    wanted.deadlines.tls = Duration::from_millis(300);
    let sent = egress.send(wanted).await;
    assert_eq!(failure(&sent), FailureCode::TlsTimeout);
    assert!(sent.timings.total < Duration::from_secs(3));
}

#[tokio::test]
async fn a_handshake_without_end_is_cut() {
    let receiver = Receiver::start(|mut tcp, _| async move {
        // One message of nearly 64 KiB, a byte to a record: nothing is wrong with it until it is
        // complete, and by then six times as much would have arrived. The TLS library's buffer or
        // our own limit ends it, whichever is smaller.
        let record = |byte: u8| [22, 3, 3, 0, 1, byte];
        let head = [2, 0, 0xFF, 0].map(record).concat();
        let _ = tcp.write_all(&head).await;
        let many = record(0).repeat(1_000);
        while tcp.write_all(&many).await.is_ok() {}
    })
    .await;
    let sent = send(&egress(), &https(&receiver)).await;
    assert_eq!(failure(&sent), FailureCode::TlsFailed);
    assert!(sent.timings.total < Duration::from_secs(5), "long before the deadline");
}

#[test]
fn unusable_roots_are_errors() {
    for pem in ["", "nothing here", "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n"]
    {
        let extra_roots = Some(pem.to_owned());
        let made = Egress::new(Options { extra_roots, ..options() });
        assert!(matches!(made.err(), Some(Error::RootsPem(_) | Error::RootsEmpty)), "{pem:?}");
    }
}
