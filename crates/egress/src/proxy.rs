//! Proxies that requests leave through: named by the operator, never found in the environment.
//!
//! Theory of operation. The guard judges the target in any case: its name is resolved here and every
//! address is vetted, before the proxy hears of it. A proxy in mode [`ProxyMode::Connect`] is then asked for a
//! tunnel to a vetted *address*, and everything inside the tunnel is as without a proxy: TLS, certificates,
//! names. A proxy in mode [`ProxyMode::Forward`] gets the request itself, with the whole URL in its first
//! line, and makes the TLS with a certificate of its own choice; it has to resolve the name once more, so what
//! it connects to is its own responsibility.
//!
//! The proxy itself is the operator's word and may be anywhere: the guard does not judge it on the way to
//! somebody else. It is no receiver, though: whoever starts this crate tells the guard where proxies are.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;
use posthorn_domain::{FailureCode, ProxyName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use url::Url;

use crate::failure::SendFailure;
use crate::target::Host;

/// The most a proxy may say before a tunnel stands.
const HEAD_BYTES_MAX: usize = 8 * 1024;

/// How a proxy is asked to lead on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProxyMode {
    /// For a tunnel to an address that was vetted here; TLS goes through it from end to end.
    #[default]
    Connect,
    /// With the whole request: the proxy resolves the name and makes the TLS.
    Forward,
}

/// One proxy.
#[derive(Clone)]
pub struct Proxy {
    pub(crate) host: Host,
    pub(crate) port: u16,
    pub(crate) mode: ProxyMode,
    /// Marked as sensitive, so that it is never printed.
    pub(crate) authorization: Option<HeaderValue>,
}

/// Why a proxy cannot be used as it is written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProxyError {
    /// Not a URL, or one that says more than where the proxy is.
    #[error(
        "must be the address of the proxy and nothing else, such as http://proxy.internal:3128"
    )]
    Url,
    /// Credentials where they would be shown.
    #[error("must not contain credentials; give them as user and password")]
    Credentials,
    /// What Basic cannot carry.
    #[error("the user must not contain a colon, and neither may contain control characters")]
    User,
}

impl Proxy {
    /// Reads where it is (`http://host:port`) and who we are there.
    pub fn new(
        url: &str,
        credentials: Option<(&str, &str)>,
        mode: ProxyMode,
    ) -> Result<Self, ProxyError> {
        let parsed = Url::parse(url).map_err(|_| ProxyError::Url)?;
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return Err(ProxyError::Credentials);
        }
        let bare = parsed.path() == "/" && parsed.query().is_none() && parsed.fragment().is_none();
        if parsed.scheme() != "http" || !bare {
            return Err(ProxyError::Url);
        }
        let host = match parsed.host().ok_or(ProxyError::Url)? {
            url::Host::Domain(name) => Host::Name(name.trim_end_matches('.').into()),
            url::Host::Ipv4(ip) => Host::Ip(ip.into()),
            url::Host::Ipv6(ip) => Host::Ip(ip.into()),
        };
        let port = parsed.port_or_known_default().filter(|port| *port != 0);
        let authorization =
            credentials.map(|(user, password)| basic(user, password)).transpose()?;
        Ok(Self { host, port: port.ok_or(ProxyError::Url)?, mode, authorization })
    }

    /// Its name or address, and its port.
    pub fn place(&self) -> (String, u16) {
        let host = match &self.host {
            Host::Ip(ip) => ip.to_string(),
            Host::Name(name) => name.to_string(),
        };
        (host, self.port)
    }

    /// How it is asked.
    pub fn mode(&self) -> ProxyMode {
        self.mode
    }
}

impl fmt::Debug for Proxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Proxy")
            .field("host", &self.host)
            .field("port", &self.port)
            .field("mode", &self.mode)
            .finish_non_exhaustive()
    }
}

fn basic(user: &str, password: &str) -> Result<HeaderValue, ProxyError> {
    if user.contains(':') || user.chars().chain(password.chars()).any(char::is_control) {
        return Err(ProxyError::User);
    }
    let text = format!("Basic {}", STANDARD.encode(format!("{user}:{password}")));
    let mut value = HeaderValue::try_from(text).map_err(|_| ProxyError::User)?;
    value.set_sensitive(true);
    Ok(value)
}

/// A failure of the proxy, not of whoever is behind it.
pub(crate) fn failed(name: &ProxyName, detail: &str) -> SendFailure {
    SendFailure::new(FailureCode::ProxyFailed, format!("the proxy `{name}` {detail}"))
}

/// What came of asking for a tunnel.
pub(crate) enum Tunnel {
    /// It stands: whatever is written now arrives at the other end.
    Stands,
    /// The proxy could not reach the address; another one may be tried.
    Unreachable(SendFailure),
}

/// Asks for a tunnel to `address`. The caller sets the deadline. Nothing is read beyond the proxy's answer:
/// whoever is behind it must not speak first.
pub(crate) async fn tunnel(
    name: &ProxyName,
    proxy: &Proxy,
    tcp: &mut TcpStream,
    address: std::net::SocketAddr,
) -> Result<Tunnel, SendFailure> {
    let mut ask = format!("CONNECT {address} HTTP/1.1\r\nHost: {address}\r\n").into_bytes();
    if let Some(value) = &proxy.authorization {
        ask.extend_from_slice(b"Proxy-Authorization: ");
        ask.extend_from_slice(value.as_bytes());
        ask.extend_from_slice(b"\r\n");
    }
    ask.extend_from_slice(b"\r\n");
    let broken = |_| failed(name, "closed the connection");
    tcp.write_all(&ask).await.map_err(broken)?;
    let mut head = Vec::with_capacity(512);
    let end = loop {
        if let Some(at) = head.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        if head.len() >= HEAD_BYTES_MAX {
            return Err(failed(name, "sent too much data"));
        }
        let mut some = [0; 512];
        match tcp.read(&mut some).await.map_err(broken)? {
            0 => return Err(failed(name, "closed the connection")),
            read => head.extend_from_slice(&some[..read]),
        }
    };
    let status = status_of(&head).ok_or_else(|| failed(name, "did not answer with valid HTTP"))?;
    match status {
        200..=299 if head.len() > end => {
            Err(failed(name, "sent unexpected data through the tunnel"))
        }
        200..=299 => Ok(Tunnel::Stands),
        407 => Err(failed(name, "refused its user and password (407)")),
        500..=599 => {
            Ok(Tunnel::Unreachable(failed(name, &format!("did not reach the receiver ({status})"))))
        }
        _ => Err(failed(name, &format!("refused the tunnel ({status})"))),
    }
}

/// The status of an HTTP/1 answer's first line.
fn status_of(head: &[u8]) -> Option<u16> {
    let rest = head.strip_prefix(b"HTTP/1.1 ").or_else(|| head.strip_prefix(b"HTTP/1.0 "))?;
    let (digits, after) = rest.split_at_checked(3)?;
    if !digits.iter().all(u8::is_ascii_digit) || !matches!(after.first(), Some(b' ' | b'\r')) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_an_address_and_nothing_else() {
        let read = |url: &str| Proxy::new(url, None, ProxyMode::Connect);
        for good in ["http://proxy.internal:3128", "http://10.0.0.7:8080/", "http://[::1]:8080"] {
            read(good).expect(good);
        }
        let at = read("http://Proxy.Internal.:3128").expect("good");
        assert_eq!((at.host, at.port), (Host::Name("proxy.internal".into()), 3128));
        for bad in [
            "",
            "proxy:3128",
            "https://proxy:3128",
            "socks5://proxy:1080",
            "http://proxy/path",
            "http://proxy:3128?a",
            "http://proxy:0",
        ] {
            assert_eq!(read(bad).map(drop), Err(ProxyError::Url), "{bad}");
        }
        assert_eq!(read("http://a:b@proxy:3128").map(drop), Err(ProxyError::Credentials));
    }

    #[test]
    fn credentials_are_never_printed() {
        let url = "http://proxy:3128";
        let proxy = Proxy::new(url, Some(("gateway", "s3cret-canary")), ProxyMode::Forward);
        let proxy = proxy.expect("good");
        let value = proxy.authorization.as_ref().expect("there");
        assert_eq!(value.as_bytes(), b"Basic Z2F0ZXdheTpzM2NyZXQtY2FuYXJ5");
        let shown = format!("{proxy:?} {value:?}");
        assert!(!shown.contains("s3cret") && !shown.contains("Z2F0"), "{shown}");
        for (user, password) in [("a:b", "c"), ("a", "b\r\nX: y"), ("a\0", "b")] {
            let refused = Proxy::new(url, Some((user, password)), ProxyMode::Forward);
            assert_eq!(refused.map(drop), Err(ProxyError::User));
        }
    }

    #[test]
    fn only_http_is_an_answer() {
        for (head, status) in [
            ("HTTP/1.1 200 Connection established\r\n", Some(200)),
            ("HTTP/1.0 502\r\n", Some(502)),
            ("HTTP/2 200 \r\n", None),
            ("HTTP/1.1 2000 \r\n", None),
            ("HTTP/1.1 20", None),
            ("SSH-2.0-x\r\n", None),
            ("", None),
        ] {
            assert_eq!(status_of(head.as_bytes()), status, "{head}");
        }
    }
}
