//! What can go wrong.

use std::fmt;
use std::io;

use tokio_tungstenite::tungstenite;
use tungstenite::error::ProtocolError;

/// How a socket ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// The code of the close frame; none when the connection just broke.
    pub code: Option<u16>,
    /// The reason of the close frame.
    pub reason: String,
}

impl Closed {
    pub(crate) const fn broken() -> Self {
        Self { code: None, reason: String::new() }
    }
}

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.code {
            Some(code) => write!(f, "{code} {}", self.reason),
            None => f.write_str("no close frame"),
        }
    }
}

/// Why something did not work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Not the address of a node.
    #[error("`{0}` is not an address like ws://host:port/ or wss://host/")]
    Url(String),
    /// A header that cannot be sent.
    #[error("the header `{0}` cannot be sent")]
    Header(String),
    /// No connection.
    #[error("no connection: {0}")]
    Connect(#[source] io::Error),
    /// No TLS, or not with this peer.
    #[error("TLS failed: {0}")]
    Tls(#[source] io::Error),
    /// The peer answered the upgrade with something else than 101.
    #[error("the upgrade was answered with {0}")]
    NoSocket(u16),
    /// Nothing came in time.
    #[error("{0} took too long")]
    Late(&'static str),
    /// The socket was closed.
    #[error("the socket was closed: {0}")]
    Closed(Closed),
    /// The peer sent what no node sends.
    #[error("unreadable: {0}")]
    Unreadable(String),
    /// A request was refused.
    #[error("{what} was refused with {status}: {text}")]
    Refused {
        /// Which one.
        what: &'static str,
        /// How.
        status: u16,
        /// What the peer says about it.
        text: String,
    },
    /// More came while an answer was awaited than can be kept.
    #[error("too much came before the answer")]
    Flooded,
    /// The connection failed in some other way.
    #[error("{0}")]
    Socket(#[source] Box<tungstenite::Error>),
}

impl Error {
    /// Broken connections are ends of sockets like others.
    pub(crate) fn of(error: tungstenite::Error) -> Self {
        use tungstenite::Error as E;
        match error {
            E::ConnectionClosed
            | E::AlreadyClosed
            | E::Protocol(
                ProtocolError::ResetWithoutClosingHandshake | ProtocolError::SendAfterClosing,
            ) => Error::Closed(Closed::broken()),
            E::Io(error) if is_broken(&error) => Error::Closed(Closed::broken()),
            E::Http(response) => Error::NoSocket(response.status().as_u16()),
            other => Error::Socket(Box::new(other)),
        }
    }
}

fn is_broken(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::BrokenPipe
            | io::ErrorKind::UnexpectedEof
    )
}
