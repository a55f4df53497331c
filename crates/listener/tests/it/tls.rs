//! Handshakes: who gets through, who is known how, and who holds up nobody.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Extension;
use axum::routing::get;
use posthorn_listener::{ClientCertificates, Peer, ServeLimits, Tls, TlsError, serve};
use posthorn_testkit::authority::{Authority, Pair};
use posthorn_testkit::wait::PATIENCE;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::sign::{CertifiedKey, Signer, SigningKey, SingleCertAndKey};
use rustls::{ClientConfig, SignatureAlgorithm, SignatureScheme};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::authority::of_country;

struct Server {
    address: SocketAddr,
    authority: Authority,
    tls: Arc<Tls>,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

/// Says who it believes to be at the other end.
async fn who(Extension(peer): Extension<Peer>) -> String {
    match peer.certificate() {
        None => "nobody".to_owned(),
        Some(shown) => {
            let country = shown.country.as_deref().unwrap_or("-");
            format!("{} {country}", shown.thumbprint)
        }
    }
}

impl Server {
    async fn start(clients: ClientCertificates) -> Self {
        Self::start_with(clients, ServeLimits::default()).await
    }

    async fn start_with(clients: ClientCertificates, limits: ServeLimits) -> Self {
        let authority = Authority::new("test");
        let own = authority.sign("server.test");
        let tls = Tls::new(own.certificate.as_bytes(), own.key.as_bytes(), clients).unwrap();
        let tls = Arc::new(tls);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let router = Router::new().route("/", get(who));
        let task = tokio::spawn(serve(listener, router, limits, Some(Arc::clone(&tls)), async {
            drop(stopped.await);
        }));
        Self { address, authority, tls, stop: Some(stop), task }
    }

    fn client(&self) -> rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert> {
        self.client_of(&[&rustls::version::TLS13, &rustls::version::TLS12])
    }

    fn client_of(
        &self,
        versions: &[&'static rustls::SupportedProtocolVersion],
    ) -> rustls::ConfigBuilder<ClientConfig, rustls::client::WantsClientCert> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(self.authority.roots())
    }

    async fn connect(&self, config: ClientConfig) -> std::io::Result<TlsStream<TcpStream>> {
        self.connect_with(&Arc::new(config)).await
    }

    async fn connect_with(
        &self,
        config: &Arc<ClientConfig>,
    ) -> std::io::Result<TlsStream<TcpStream>> {
        let name = ServerName::try_from("server.test").unwrap();
        let connecting = async {
            let tcp = dial(self.address).await;
            TlsConnector::from(Arc::clone(config)).connect(name, tcp).await
        };
        timeout(PATIENCE, connecting).await.expect("a handshake in time")
    }

    /// What the server says about whoever shows this.
    async fn ask_as(&self, pair: Option<&Pair>) -> std::io::Result<String> {
        let builder = self.client();
        let config = match pair {
            None => builder.with_no_client_auth(),
            Some(pair) => builder.with_client_auth_cert(vec![pair.der()], pair.private()).unwrap(),
        };
        ask(&mut self.connect(config).await?).await
    }
}

#[expect(clippy::disallowed_methods, reason = "the test's own client talks to its own server")]
async fn dial(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).await.unwrap()
}

/// One request on an open connection.
async fn ask(stream: &mut TlsStream<TcpStream>) -> std::io::Result<String> {
    stream.write_all(b"GET / HTTP/1.1\r\nhost: server.test\r\n\r\n").await?;
    let mut seen = Vec::new();
    let mut piece = [0; 1_024];
    loop {
        let text = String::from_utf8_lossy(&seen).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if length.is_some_and(|length| length.parse() == Ok(body.len())) {
                assert!(head.starts_with("HTTP/1.1 200"), "{head}");
                return Ok(body.to_owned());
            }
        }
        match timeout(PATIENCE, stream.read(&mut piece)).await.expect("an answer in time")? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            length => seen.extend_from_slice(&piece[..length]),
        }
    }
}

fn thumbprint(pair: &Pair) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &vec![pair.der()][0]);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn clients_are_known_by_what_they_show_whoever_issued_it() {
    let server = Server::start(ClientCertificates::Ask).await;
    assert_eq!(server.ask_as(None).await.unwrap(), "nobody");
    let (german, stateless) = (of_country(Some("DE"), false), of_country(None, false));
    assert_eq!(server.ask_as(Some(&german)).await.unwrap(), format!("{} DE", thumbprint(&german)));
    let known = format!("{} -", thumbprint(&stateless));
    assert_eq!(server.ask_as(Some(&stateless)).await.unwrap(), known);
    // Whether it has expired is for the registry to say, which then answers instead of an alert.
    let expired = of_country(Some("NL"), true);
    let known = format!("{} NL", thumbprint(&expired));
    assert_eq!(server.ask_as(Some(&expired)).await.unwrap(), known);
}

#[tokio::test]
async fn certificates_are_not_asked_for_unless_configured_and_demanded_when_required() {
    let german = of_country(Some("DE"), false);
    let server = Server::start(ClientCertificates::Off).await;
    assert_eq!(server.ask_as(Some(&german)).await.unwrap(), "nobody");
    let server = Server::start(ClientCertificates::Require).await;
    assert!(server.ask_as(None).await.is_err());
    assert!(server.ask_as(Some(&german)).await.unwrap().ends_with(" DE"));
}

#[tokio::test]
async fn both_versions_of_tls_know_the_client() {
    let server = Server::start(ClientCertificates::Ask).await;
    let pair = of_country(Some("DE"), false);
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let builder = server.client_of(&[version]);
        let config = builder.with_client_auth_cert(vec![pair.der()], pair.private()).unwrap();
        // A resumed session is the same client's as before.
        let config = Arc::new(config);
        for _ in 0..3 {
            let mut stream = server.connect_with(&config).await.unwrap();
            assert_eq!(ask(&mut stream).await.unwrap(), format!("{} DE", thumbprint(&pair)));
            assert_eq!(ask(&mut stream).await.unwrap(), format!("{} DE", thumbprint(&pair)));
        }
    }
}

/// Has somebody's certificate and not the key.
#[derive(Debug)]
struct Impostor(Arc<dyn SigningKey>);

impl SigningKey for Impostor {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        self.0.choose_scheme(offered)
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        self.0.algorithm()
    }
}

#[tokio::test]
async fn a_certificate_without_its_key_is_worth_nothing() {
    let server = Server::start(ClientCertificates::Ask).await;
    let (stolen, own) = (of_country(Some("DE"), false), of_country(Some("DE"), false));
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let key = provider.key_provider.load_private_key(own.private()).unwrap();
        let certified = CertifiedKey::new(vec![stolen.der()], Arc::new(Impostor(key)));
        let resolver = Arc::new(SingleCertAndKey::from(certified));
        let config = server.client_of(&[version]).with_client_cert_resolver(resolver);
        let answer = match server.connect(config).await {
            Ok(mut stream) => ask(&mut stream).await,
            Err(e) => Err(e),
        };
        assert!(answer.is_err(), "{answer:?}");
    }
    // The server goes on.
    assert_eq!(server.ask_as(None).await.unwrap(), "nobody");
}

async fn is_closed(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    timeout(PATIENCE, stream.read_to_end(&mut rest)).await.is_ok()
}

#[tokio::test]
async fn garbage_instead_of_a_handshake_ends_the_connection() {
    let server = Server::start(ClientCertificates::Ask).await;
    let http = b"GET / HTTP/1.1\r\nhost: server.test\r\n\r\n";
    let long_record = [&[22, 3, 1, 0xff, 0xff][..], &[0; 70_000]].concat();
    let old = [&[22, 3, 0, 0, 50, 1, 0, 0, 46, 3, 0][..], &[0; 44]].concat();
    for garbage in [&http[..], &[0; 600], &[0xff; 600], &long_record, &old, b"\x16\x03\x01\x00\x00"]
    {
        let mut stream = dial(server.address).await;
        stream.write_all(garbage).await.ok();
        stream.shutdown().await.ok();
        assert!(is_closed(&mut stream).await);
        assert_eq!(server.ask_as(None).await.unwrap(), "nobody");
    }
}

#[tokio::test]
async fn slow_handshakes_keep_nobody_waiting_and_are_cut() {
    let head_timeout = Duration::from_millis(500);
    let limits = ServeLimits { head_timeout, ..ServeLimits::default() };
    let server = Server::start_with(ClientCertificates::Ask, limits).await;
    let began = Instant::now();
    let mut slow = Vec::new();
    for at in 0..20 {
        let mut stream = dial(server.address).await;
        // Some say nothing, some begin.
        if at % 2 == 0 {
            stream.write_all(&[22, 3, 1]).await.unwrap();
        }
        slow.push(stream);
    }
    assert_eq!(server.ask_as(None).await.unwrap(), "nobody");
    for stream in &mut slow {
        assert!(is_closed(stream).await);
    }
    assert!(began.elapsed() >= head_timeout, "nobody is cut early");
}

#[tokio::test]
async fn a_new_certificate_is_used_from_the_next_handshake_on() {
    let server = Server::start(ClientCertificates::Off).await;
    let seen = async || {
        let stream = server.connect(server.client().with_no_client_auth()).await.unwrap();
        stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned()
    };
    let before: CertificateDer<'static> = seen().await;
    let new = server.authority.sign("server.test");
    server.tls.replace(new.certificate.as_bytes(), new.key.as_bytes()).unwrap();
    let after = seen().await;
    assert!(after != before && after == vec![new.der()][0]);
    // What cannot be used changes nothing.
    let other = server.authority.sign("server.test");
    let wrong = server.tls.replace(other.certificate.as_bytes(), new.key.as_bytes());
    assert!(matches!(wrong, Err(TlsError::Mismatch)), "{wrong:?}");
    let wrong = server.tls.replace(b"nonsense", new.key.as_bytes());
    assert!(matches!(wrong, Err(TlsError::Certificate)), "{wrong:?}");
    let wrong = server.tls.replace(new.certificate.as_bytes(), b"nonsense");
    assert!(matches!(wrong, Err(TlsError::Key)), "{wrong:?}");
    assert_eq!(seen().await, after);
}

#[tokio::test]
async fn stopping_does_not_wait_for_handshakes() {
    let mut server = Server::start(ClientCertificates::Off).await;
    let mut slow = dial(server.address).await;
    // Once this one is served, the one before has been accepted.
    assert_eq!(server.ask_as(None).await.unwrap(), "nobody");
    drop(server.stop.take());
    timeout(PATIENCE, &mut server.task).await.expect("it ends").unwrap();
    assert!(is_closed(&mut slow).await);
}
