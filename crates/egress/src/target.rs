//! A URL after it was parsed and judged: the only form in which one is sent to.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use http::HeaderValue;
use http::uri::PathAndQuery;
use rustls_pki_types::ServerName;

/// With or without TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Without.
    Http,
    /// With.
    Https,
}

impl Scheme {
    /// The port when the URL names none.
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// Who to talk to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// A name, lower case, without a trailing dot; to be resolved for every new connection.
    Name(Box<str>),
    /// A literal address; never resolved.
    Ip(IpAddr),
}

/// What a connection is good for, apart from whom it belongs to.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Origin {
    pub(crate) scheme: Scheme,
    pub(crate) host: Host,
    pub(crate) port: u16,
}

/// A checked URL. Only [`crate::Guard::check_url`] makes one.
#[derive(Clone)]
pub struct Target {
    origin: Arc<Origin>,
    path_and_query: PathAndQuery,
    /// Computed once, since every request carries it.
    host_header: HeaderValue,
    server_name: ServerName<'static>,
    text: Box<str>,
}

impl Target {
    pub(crate) fn new(
        scheme: Scheme,
        host: Host,
        port: u16,
        path_and_query: PathAndQuery,
        host_header: HeaderValue,
        server_name: ServerName<'static>,
        text: Box<str>,
    ) -> Self {
        let origin = Arc::new(Origin { scheme, host, port });
        Self { origin, path_and_query, host_header, server_name, text }
    }

    /// With or without TLS.
    pub fn scheme(&self) -> Scheme {
        self.origin.scheme
    }

    /// Name or literal address.
    pub fn host(&self) -> &Host {
        &self.origin.host
    }

    /// The port, given or by default.
    pub fn port(&self) -> u16 {
        self.origin.port
    }

    /// What goes into the request line.
    pub fn path_and_query(&self) -> &str {
        self.path_and_query.as_str()
    }

    /// The normalised URL: what to store and to show, since it is what will be used.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub(crate) fn origin(&self) -> &Arc<Origin> {
        &self.origin
    }

    pub(crate) fn parsed_path_and_query(&self) -> &PathAndQuery {
        &self.path_and_query
    }

    pub(crate) fn host_header(&self) -> &HeaderValue {
        &self.host_header
    }

    pub(crate) fn server_name(&self) -> &ServerName<'static> {
        &self.server_name
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Target").field(&self.text).finish()
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
