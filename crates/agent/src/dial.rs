//! From an address to a socket.

use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::handshake::client::Request;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use crate::Error;

/// The largest message taken from a server; notifications are much smaller.
pub const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Whatever carries a socket.
pub(crate) trait Carrier: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Carrier for T {}

pub(crate) type Socket = WebSocketStream<Box<dyn Carrier>>;

/// How an agent connects.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whom to trust, for `wss` addresses; [`public_roots`] when nothing is given.
    pub roots: Option<Arc<RootCertStore>>,
    /// More headers for the upgrade.
    pub headers: Vec<(String, String)>,
    /// How long connecting, and each answer, may take.
    pub patience: Duration,
    /// How much is read at once.
    pub read_buffer_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            roots: None,
            headers: Vec::new(),
            patience: Duration::from_secs(10),
            read_buffer_bytes: 4_096,
        }
    }
}

/// The authorities that browsers trust.
pub fn public_roots() -> RootCertStore {
    RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() }
}

struct Address {
    request: Request,
    host: String,
    port: u16,
    tls: bool,
}

/// The schemes of plain HTTP do as well: it is the same listener.
fn parse(url: &str, options: &Options) -> Result<Address, Error> {
    let bad = || Error::Url(url.to_owned());
    let uri: Uri = url.parse().map_err(|_| bad())?;
    let tls = match uri.scheme_str() {
        Some("ws" | "http") => false,
        Some("wss" | "https") => true,
        _ => return Err(bad()),
    };
    let host = uri.host().ok_or_else(bad)?;
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
    let mut parts = uri.into_parts();
    parts.scheme = Some(if tls { "wss" } else { "ws" }.parse().map_err(|_| bad())?);
    let uri = Uri::from_parts(parts).map_err(|_| bad())?;
    let mut request = uri.into_client_request().map_err(|_| bad())?;
    for (name, value) in &options.headers {
        let unusable = || Error::Header(name.clone());
        let value = value.parse().map_err(|_| unusable())?;
        let name = http::HeaderName::try_from(name).map_err(|_| unusable())?;
        request.headers_mut().insert(name, value);
    }
    Ok(Address { request, host, port, tls })
}

pub(crate) async fn connect(url: &str, options: &Options) -> Result<Socket, Error> {
    let address = parse(url, options)?;
    let dialled = tokio::time::timeout(options.patience, dial(address, options)).await;
    dialled.map_err(|_| Error::Late("connecting"))?
}

#[expect(
    clippy::disallowed_methods,
    reason = "the user named this server; egress is for addresses that tenants name"
)]
async fn dial(address: Address, options: &Options) -> Result<Socket, Error> {
    let stream = TcpStream::connect((address.host.as_str(), address.port)).await;
    let stream = stream.map_err(Error::Connect)?;
    // An acknowledgement must not wait for that of the one before it.
    stream.set_nodelay(true).map_err(Error::Connect)?;
    let carrier: Box<dyn Carrier> = if address.tls {
        let name = ServerName::try_from(address.host)
            .map_err(|_| Error::Url(address.request.uri().to_string()))?;
        let stream = connector(options)?.connect(name, stream).await;
        Box::new(stream.map_err(Error::Tls)?)
    } else {
        Box::new(stream)
    };
    let config = WebSocketConfig::default()
        .read_buffer_size(options.read_buffer_bytes)
        .write_buffer_size(0)
        .max_message_size(Some(MESSAGE_BYTES_MAX))
        .max_frame_size(Some(MESSAGE_BYTES_MAX));
    let upgrade =
        tokio_tungstenite::client_async_with_config(address.request, carrier, Some(config));
    // The state of a handshake is large, and there may be thousands at once.
    let (socket, _) = Box::pin(upgrade).await.map_err(Error::of)?;
    Ok(socket)
}

fn connector(options: &Options) -> Result<TlsConnector, Error> {
    let roots = match &options.roots {
        Some(roots) => Arc::clone(roots),
        None => Arc::new(public_roots()),
    };
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::Tls(std::io::Error::other(error)))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_either_kind_are_read() {
        let read = |url: &str| {
            let address = parse(url, &Options::default()).ok()?;
            let path = address.request.uri().path().to_owned();
            Some((address.host, address.port, address.tls, path))
        };
        let of = |host: &str, port, tls, path: &str| Some((host.into(), port, tls, path.into()));
        assert_eq!(read("ws://127.0.0.1:8080"), of("127.0.0.1", 8080, false, "/"));
        assert_eq!(read("http://127.0.0.1:8080/"), of("127.0.0.1", 8080, false, "/"));
        assert_eq!(read("wss://push.example.com/x"), of("push.example.com", 443, true, "/x"));
        assert_eq!(read("https://[::1]:9"), of("::1", 9, true, "/"));
        for url in ["", "127.0.0.1:80", "/", "ftp://a/", "ws://", "ws:// /"] {
            assert_eq!(read(url), None, "{url:?}");
        }
    }

    #[test]
    fn headers_that_cannot_be_sent_are_refused() {
        let headers = vec![("X-Good".to_owned(), "a\nb".to_owned())];
        let options = Options { headers, ..Options::default() };
        assert!(matches!(parse("ws://a/", &options), Err(Error::Header(name)) if name == "X-Good"));
    }
}
