//! Sockets over TLS: only to whom the roots vouch for.

use std::sync::Arc;

use futures_util::SinkExt as _;
use posthorn_agent::{Agent, Error, Event, Message, Options};
use rustls::pki_types::PrivateKeyDer;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

#[tokio::test]
async fn only_trusted_servers_are_talked_to() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("made");
    let certificate = made.cert.der().clone();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)
        .expect("a config");
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("wss://localhost:{}/", listener.local_addr().expect("an address").port());
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            // Who does not trust us goes before the handshake ends.
            let Ok(stream) = acceptor.accept(stream).await else { continue };
            let mut socket = tokio_tungstenite::accept_async(stream).await.expect("a socket");
            socket.send(Message::text("{}")).await.expect("sent");
        }
    });
    let strangers = Agent::connect(&url, &Options::default()).await;
    assert!(matches!(strangers, Err(Error::Tls(_))), "{strangers:?}");
    let mut roots = RootCertStore::empty();
    roots.add(certificate).expect("a root");
    let options = Options { roots: Some(Arc::new(roots)), ..Options::default() };
    let mut agent = Agent::connect(&url, &options).await.expect("a socket");
    assert_eq!(agent.next().await.expect("an event"), Event::Pong);
}
