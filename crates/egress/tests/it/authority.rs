//! A certificate authority for tests, and receivers that speak TLS with what it signed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use posthorn_egress::Identity;
use rcgen::{BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::server::WebPkiClientVerifier;
use rustls::{HandshakeKind, RootCertStore, ServerConfig, SupportedProtocolVersion};
use rustls_pki_types::PrivateKeyDer;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use crate::receiver::{Receiver, read_request};

/// Signs whatever it is asked to.
pub(crate) struct Authority {
    cert: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate with its key.
pub(crate) struct Pair {
    pub(crate) cert: Certificate,
    pub(crate) key: KeyPair,
}

impl Pair {
    pub(crate) fn pem(&self) -> String {
        self.cert.pem()
    }

    pub(crate) fn identity(&self) -> Identity {
        let key = self.key.serialize_pem();
        Identity::parse(self.pem().as_bytes(), key.as_bytes()).expect("identity")
    }
}

impl Authority {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(vec![]).expect("parameters");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("key");
        let cert = params.self_signed(&key).expect("authority");
        Self { cert, issuer: Issuer::new(params, key) }
    }

    pub(crate) fn pem(&self) -> String {
        self.cert.pem()
    }

    /// A certificate for this host, or this client.
    pub(crate) fn sign(&self, host: &str) -> Pair {
        self.sign_with(host, |_| {})
    }

    pub(crate) fn sign_with(
        &self,
        host: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> Pair {
        let mut params = CertificateParams::new(vec![host.to_owned()]).expect("parameters");
        params.distinguished_name.push(DnType::CommonName, host);
        change(&mut params);
        let key = KeyPair::generate().expect("key");
        let cert = params.signed_by(&key, &self.issuer).expect("certificate");
        Pair { cert, key }
    }
}

pub(crate) fn self_signed(host: &str) -> Pair {
    let params = CertificateParams::new(vec![host.to_owned()]).expect("parameters");
    let key = KeyPair::generate().expect("key");
    Pair { cert: params.self_signed(&key).expect("certificate"), key }
}

/// What a TLS receiver saw.
#[derive(Default)]
pub(crate) struct Seen {
    full: AtomicUsize,
    resumed: AtomicUsize,
    /// The client certificate of every request, in DER; none for requests without.
    requests: Mutex<Vec<Option<Vec<u8>>>>,
}

impl Seen {
    /// Handshakes: in full, resumed.
    pub(crate) fn handshakes(&self) -> (usize, usize) {
        (self.full.load(Ordering::SeqCst), self.resumed.load(Ordering::SeqCst))
    }

    pub(crate) fn requests(&self) -> Vec<Option<Vec<u8>>> {
        self.requests.lock().clone()
    }
}

/// How a TLS receiver behaves.
pub(crate) struct Setup<'a> {
    pub(crate) pair: &'a Pair,
    /// Ask for a client certificate signed by this authority; insist on it when true.
    pub(crate) clients: Option<(&'a Authority, bool)>,
    pub(crate) versions: &'a [&'static SupportedProtocolVersion],
    /// How often the certificate is sent: chains can be absurdly long.
    pub(crate) repeats: usize,
    /// Close after every answer, so that the next request needs a handshake.
    pub(crate) closing: bool,
}

impl<'a> Setup<'a> {
    pub(crate) fn of(pair: &'a Pair) -> Self {
        Self { pair, clients: None, versions: rustls::ALL_VERSIONS, repeats: 1, closing: false }
    }

    fn config(&self) -> ServerConfig {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(self.versions)
            .expect("versions");
        let builder = match self.clients {
            None => builder.with_no_client_auth(),
            Some((authority, required)) => {
                let mut roots = RootCertStore::empty();
                roots.add(authority.cert.der().clone()).expect("authority");
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
                let verifier = if required { verifier } else { verifier.allow_unauthenticated() };
                builder.with_client_cert_verifier(verifier.build().expect("verifier"))
            }
        };
        let key = PrivateKeyDer::Pkcs8(self.pair.key.serialize_der().into());
        let chain = vec![self.pair.cert.der().clone(); self.repeats];
        builder.with_single_cert(chain, key).expect("config")
    }

    pub(crate) async fn start(self) -> (Receiver, Arc<Seen>) {
        let acceptor = TlsAcceptor::from(Arc::new(self.config()));
        let seen = Arc::new(Seen::default());
        let (noting, closing) = (Arc::clone(&seen), self.closing);
        let receiver = Receiver::start(move |tcp: TcpStream, _| {
            let (acceptor, seen) = (acceptor.clone(), Arc::clone(&noting));
            async move {
                let Ok(mut tls) = acceptor.accept(tcp).await else {
                    return;
                };
                let resumed = tls.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed);
                let counter = if resumed { &seen.resumed } else { &seen.full };
                counter.fetch_add(1, Ordering::SeqCst);
                while read_request(&mut tls).await.is_some() {
                    let client = tls.get_ref().1.peer_certificates();
                    let client = client.map(|chain| chain[0].as_ref().to_vec());
                    seen.requests.lock().push(client);
                    let close = if closing { "Connection: close\r\n" } else { "" };
                    let reply = format!("HTTP/1.1 200 OK\r\n{close}Content-Length: 2\r\n\r\nok");
                    if tls.write_all(reply.as_bytes()).await.is_err() || closing {
                        let _ = tls.shutdown().await;
                        return;
                    }
                }
            }
        })
        .await;
        (receiver, seen)
    }
}

pub(crate) fn https(receiver: &Receiver) -> String {
    format!("https://{}/", receiver.address)
}
