//! Receivers that speak TLS, and what they saw of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use posthorn_egress::Identity;
use posthorn_testkit::authority::{Clients, Pair};
use rustls::{HandshakeKind, ServerConfig, SupportedProtocolVersion};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use crate::receiver::{Receiver, read_request};

pub(crate) fn identity(pair: &Pair) -> Identity {
    Identity::parse(pair.certificate.as_bytes(), pair.key.as_bytes()).expect("identity")
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
    /// Whom it asks for a certificate.
    pub(crate) clients: Clients<'a>,
    pub(crate) versions: &'a [&'static SupportedProtocolVersion],
    /// How often the certificate is sent: chains can be absurdly long.
    pub(crate) repeats: usize,
    /// Close after every answer, so that the next request needs a handshake.
    pub(crate) closing: bool,
}

impl<'a> Setup<'a> {
    pub(crate) fn of(pair: &'a Pair) -> Self {
        Self {
            pair,
            clients: Clients::Unasked,
            versions: rustls::ALL_VERSIONS,
            repeats: 1,
            closing: false,
        }
    }

    fn config(&self) -> ServerConfig {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(self.versions)
            .expect("versions");
        let builder = match self.clients.verifier() {
            None => builder.with_no_client_auth(),
            Some(verifier) => builder.with_client_cert_verifier(verifier),
        };
        let chain = vec![self.pair.der(); self.repeats];
        builder.with_single_cert(chain, self.pair.private()).expect("config")
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
