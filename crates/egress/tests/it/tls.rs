//! TLS: trust, refusal, stalls.

use std::time::Duration;

use posthorn_domain::FailureCode;
use posthorn_egress::{Egress, Error, Options};
use tokio::io::AsyncWriteExt;

use crate::authority::{Pair, Setup, https, self_signed};
use crate::receiver::{Receiver, answer, egress, failure, options, request, send};

fn trusting(certificate: &Pair) -> Egress {
    let extra_roots_pem = Some(certificate.pem().into_bytes());
    Egress::new(Options { extra_roots_pem, ..options() }).expect("egress")
}

#[tokio::test]
async fn unknown_certificates_are_refused_and_extra_roots_are_trusted() {
    let certificate = self_signed("127.0.0.1");
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
async fn a_certificate_for_another_host_is_refused() {
    let certificate = self_signed("127.0.0.2");
    let (receiver, _) = Setup::of(&certificate).start().await;
    let sent = send(&trusting(&certificate), &https(&receiver)).await;
    assert_eq!(failure(&sent), FailureCode::TlsCertificateInvalid);
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

#[test]
fn unusable_roots_are_errors() {
    for pem in ["", "nothing here", "-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n"]
    {
        let extra_roots_pem = Some(pem.as_bytes().to_vec());
        let made = Egress::new(Options { extra_roots_pem, ..options() });
        assert!(matches!(made.err(), Some(Error::RootsPem(_) | Error::RootsEmpty)), "{pem:?}");
    }
}
