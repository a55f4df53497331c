//! TLS: trust, refusal, stalls.

use std::sync::Arc;
use std::time::Duration;

use posthorn_domain::FailureCode;
use posthorn_egress::{Egress, Error, Options};
use rcgen::{CertificateParams, CertifiedKey, KeyPair};
use rustls_pki_types::PrivateKeyDer;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use crate::receiver::{Receiver, answer, egress, failure, options, read_request, request, send};

fn certificate(name: &str) -> CertifiedKey<KeyPair> {
    let signing_key = KeyPair::generate().expect("key");
    let params = CertificateParams::new(vec![name.to_owned()]).expect("parameters");
    let cert = params.self_signed(&signing_key).expect("certificate");
    CertifiedKey { cert, signing_key }
}

async fn receiver(certificate: &CertifiedKey<KeyPair>) -> Receiver {
    let key = PrivateKeyDer::Pkcs8(certificate.signing_key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.cert.der().clone()], key)
        .expect("config");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    Receiver::start(move |tcp: TcpStream, _| {
        let acceptor = acceptor.clone();
        async move {
            let Ok(mut tls) = acceptor.accept(tcp).await else {
                return;
            };
            while read_request(&mut tls).await.is_some() {
                let reply = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                if tls.write_all(reply.as_bytes()).await.is_err() {
                    return;
                }
            }
        }
    })
    .await
}

fn url(receiver: &Receiver) -> String {
    format!("https://{}/", receiver.address)
}

fn trusting(certificate: &CertifiedKey<KeyPair>) -> Egress {
    let extra_roots_pem = Some(certificate.cert.pem().into_bytes());
    Egress::new(Options { extra_roots_pem, ..options() }).expect("egress")
}

#[tokio::test]
async fn unknown_certificates_are_refused_and_extra_roots_are_trusted() {
    let certificate = certificate("127.0.0.1");
    let receiver = receiver(&certificate).await;
    let sent = send(&egress(), &url(&receiver)).await;
    assert_eq!(failure(&sent), FailureCode::TlsFailed);
    let egress = trusting(&certificate);
    let sent = send(&egress, &url(&receiver)).await;
    assert_eq!(&answer(&sent).body[..], b"ok");
    assert!(sent.timings.tls.is_some());
    let sent = send(&egress, &url(&receiver)).await;
    assert!(answer(&sent).status == 200 && sent.reused && sent.timings.tls.is_none());
}

#[tokio::test]
async fn a_certificate_for_another_host_is_refused() {
    let certificate = certificate("127.0.0.2");
    let receiver = receiver(&certificate).await;
    let sent = send(&trusting(&certificate), &url(&receiver)).await;
    assert_eq!(failure(&sent), FailureCode::TlsFailed);
}

#[tokio::test]
async fn no_tls_on_the_other_side_is_a_tls_failure() {
    for reply in ["HTTP/1.1 400 Bad Request\r\n\r\n", ""] {
        let receiver = Receiver::start(move |mut tcp, _| async move {
            let _ = tcp.write_all(reply.as_bytes()).await;
            crate::receiver::linger(tcp).await;
        })
        .await;
        assert_eq!(failure(&send(&egress(), &url(&receiver)).await), FailureCode::TlsFailed);
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
    let mut wanted = request(&egress, &url(&receiver));
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
