//! Sockets over TLS: only to whom the roots vouch for.

use futures_util::SinkExt as _;
use posthorn_agent::{Agent, Error, Event, Message, Options};
use posthorn_testkit::authority::{Clients, Pair};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

#[tokio::test]
async fn only_trusted_servers_are_talked_to() {
    let own = Pair::self_signed("localhost");
    let acceptor = TlsAcceptor::from(own.serving(Clients::Unasked));
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
    let options = Options { roots: Some(own.roots()), ..Options::default() };
    let mut agent = Agent::connect(&url, &options).await.expect("a socket");
    assert_eq!(agent.next().await.expect("an event"), Event::Pong);
}
