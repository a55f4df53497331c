//! How a socket is closed: a code and a word, and nothing else on the wire.

/// Why a socket is closed. The codes and words are the ones that agents and their operators know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Close {
    /// The agent went first; its own code is repeated by the transport.
    Gone,
    /// Everything of this agent was dropped: it shall come back and get a new id.
    Reset,
    /// This node is going away; another one will take the agent.
    Draining,
    /// A frame that is none, or is too large.
    Protocol,
    /// Anything but text, or a first message that is not text.
    UnsupportedMessage,
    /// Text that is not one of the messages.
    Json,
    /// The first message was not `hello`.
    NotHello,
    /// A second `hello`.
    SecondHello,
    /// A `register` whose channel is not in lower case with dashes.
    BadChannel,
    /// Pings of the agent too close together.
    PingTooSoon,
    /// A newer connection of the same agent took over.
    Replaced,
    /// Somebody else connected the same agent at the same time, or later by the store's account.
    AlreadyConnected,
    /// The store did not answer, or with an error.
    StoreFailed,
    /// Nothing came in time after the upgrade.
    HandshakeTimeout,
    /// A ping was not answered in time.
    PongTimeout,
}

impl Close {
    /// The code of the close frame.
    pub const fn code(self) -> u16 {
        match self {
            Close::Gone | Close::Reset => 1000,
            Close::Draining => 1001,
            Close::Protocol => 1002,
            Close::UnsupportedMessage => 1003,
            Close::Json
            | Close::NotHello
            | Close::SecondHello
            | Close::BadChannel
            | Close::PingTooSoon
            | Close::Replaced
            | Close::AlreadyConnected
            | Close::StoreFailed
            | Close::HandshakeTimeout
            | Close::PongTimeout => 1011,
        }
    }

    /// The reason of the close frame.
    pub const fn word(self) -> &'static str {
        match self {
            Close::Gone => "",
            Close::Draining => "SessionClosed",
            Close::Protocol => "Protocol",
            Close::UnsupportedMessage => "UnsupportedMessage",
            Close::Json => "Json",
            Close::HandshakeTimeout => "HandshakeTimeout",
            Close::PongTimeout => "PongTimeout",
            Close::Reset
            | Close::NotHello
            | Close::SecondHello
            | Close::BadChannel
            | Close::PingTooSoon
            | Close::Replaced
            | Close::AlreadyConnected
            | Close::StoreFailed => "SM",
        }
    }

    /// For logs and metrics, where the word on the wire says too little.
    pub const fn as_str(self) -> &'static str {
        match self {
            Close::Gone => "gone",
            Close::Reset => "reset",
            Close::Draining => "draining",
            Close::Protocol => "protocol",
            Close::UnsupportedMessage => "unsupported_message",
            Close::Json => "json",
            Close::NotHello => "not_hello",
            Close::SecondHello => "second_hello",
            Close::BadChannel => "bad_channel",
            Close::PingTooSoon => "ping_too_soon",
            Close::Replaced => "replaced",
            Close::AlreadyConnected => "already_connected",
            Close::StoreFailed => "store_failed",
            Close::HandshakeTimeout => "handshake_timeout",
            Close::PongTimeout => "pong_timeout",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Close;

    #[test]
    fn codes_and_words_are_those_agents_know() {
        let table = [
            (Close::Reset, 1000, "SM"),
            (Close::Draining, 1001, "SessionClosed"),
            (Close::Protocol, 1002, "Protocol"),
            (Close::UnsupportedMessage, 1003, "UnsupportedMessage"),
            (Close::Json, 1011, "Json"),
            (Close::NotHello, 1011, "SM"),
            (Close::SecondHello, 1011, "SM"),
            (Close::BadChannel, 1011, "SM"),
            (Close::PingTooSoon, 1011, "SM"),
            (Close::Replaced, 1011, "SM"),
            (Close::AlreadyConnected, 1011, "SM"),
            (Close::StoreFailed, 1011, "SM"),
            (Close::HandshakeTimeout, 1011, "HandshakeTimeout"),
            (Close::PongTimeout, 1011, "PongTimeout"),
        ];
        let mut names = std::collections::HashSet::new();
        for (close, code, word) in table {
            assert_eq!((close.code(), close.word()), (code, word), "{close:?}");
            assert!(names.insert(close.as_str()), "{close:?} is told like another");
        }
    }
}
