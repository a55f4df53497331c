//! Connections to a server that the user named.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use url::Url;

use crate::exit::{Code, Failure};

/// For one connection; a server that is there answers much sooner.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Where a server is.
pub(super) struct Origin {
    text: String,
    host: String,
    port: u16,
    authority: String,
    prefix: String,
    tls: Option<TlsConnector>,
}

impl Origin {
    /// `roots` is a PEM file with certificates to trust besides the public ones.
    pub(super) fn parse(text: &str, roots: Option<&Path>) -> anyhow::Result<Self> {
        let bad = || {
            Failure::new(Code::Usage, format!("`{text}` is not the address of a server"))
                .hint("write it like http://127.0.0.1:8080 or https://posthorn.example.com")
        };
        let url = Url::parse(text).map_err(|_| bad())?;
        let host = url.host_str().ok_or_else(bad)?.to_owned();
        let tls = match url.scheme() {
            "http" => None,
            "https" => Some(connector(roots)?),
            _ => return Err(bad().into()),
        };
        let port = url.port_or_known_default().ok_or_else(bad)?;
        let authority = match url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.clone(),
        };
        let prefix = url.path().trim_end_matches('/').to_owned();
        Ok(Self { text: text.to_owned(), host, port, authority, prefix, tls })
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn authority(&self) -> &str {
        &self.authority
    }

    pub(super) fn prefix(&self) -> &str {
        &self.prefix
    }

    /// A fresh connection.
    #[expect(
        clippy::disallowed_methods,
        reason = "the user named this server; egress is for addresses that tenants name"
    )]
    pub(super) async fn connect(&self) -> anyhow::Result<SendRequest<Full<Bytes>>> {
        let host = self.host.trim_start_matches('[').trim_end_matches(']');
        let dial = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect((host, self.port)));
        let stream = match dial.await {
            Ok(Ok(stream)) => stream,
            Ok(Err(e)) => return Err(self.unreachable(&e).into()),
            Err(_) => {
                let e = io::Error::new(io::ErrorKind::TimedOut, "the connection timed out");
                return Err(self.unreachable(&e).into());
            }
        };
        // A small request must not wait for the acknowledgement of the one before it.
        drop(stream.set_nodelay(true));
        match &self.tls {
            None => handshake(stream).await,
            Some(tls) => {
                let name = ServerName::try_from(host.to_owned())?;
                let stream = tls.connect(name, stream).await.map_err(|e| {
                    Failure::new(Code::Unavailable, format!("TLS with {} failed: {e}", self.text))
                })?;
                handshake(stream).await
            }
        }
    }

    fn unreachable(&self, error: &io::Error) -> Failure {
        let failure =
            Failure::new(Code::Unavailable, format!("cannot reach {}: {error}", self.text));
        if error.kind() == io::ErrorKind::ConnectionRefused {
            failure.hint(
                "no server listens there. Start one with `posthorn serve`, or give another \
                 address with --server or POSTHORN_SERVER",
            )
        } else {
            failure.hint("check the address given with --server or POSTHORN_SERVER")
        }
    }
}

async fn handshake(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> anyhow::Result<SendRequest<Full<Bytes>>> {
    let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // It ends by itself when the sender is dropped; its errors reach the sender.
    tokio::spawn(connection);
    Ok(sender)
}

/// The public authorities, and those of a PEM file.
pub(crate) fn roots(extra: Option<&Path>) -> anyhow::Result<RootCertStore> {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    let Some(file) = extra else { return Ok(roots) };
    let bad = |problem: &dyn std::fmt::Display| {
        let message = format!("the certificates in {} cannot be used: {problem}", file.display());
        Failure::new(Code::Usage, message).hint("--ca takes a PEM file of certificates")
    };
    let before = roots.len();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|e| bad(&e))? {
        roots.add(certificate.map_err(|e| bad(&e))?).map_err(|e| bad(&e))?;
    }
    if roots.len() == before {
        return Err(bad(&"no certificate found").into());
    }
    Ok(roots)
}

fn connector(extra: Option<&Path>) -> anyhow::Result<TlsConnector> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots(extra)?)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}
