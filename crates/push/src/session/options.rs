//! The knobs of sessions. All sessions of a node share them.

use posthorn_domain::{Span, setting};
use serde::{Deserialize, Serialize};

/// How sessions behave, a part of the section `push` of the configuration. The defaults are what browsers
/// are used to.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Options {
    /// How many notifications may be sent and not acknowledged. Whoever pushes more is told that
    /// the window is full, and stores. With one, nothing is sent before the last is acknowledged.
    #[serde(deserialize_with = "setting::within::<1, 4096, _, _>")]
    pub unacked_window: u16,
    /// How many stored messages are read at once.
    #[serde(deserialize_with = "setting::within::<1, 128, _, _>")]
    pub batch: u16,
    /// When acknowledged messages leave the store.
    pub ack: AckMode,
    /// How many messages may be stored for an agent that comes back; zero for any number.
    pub stored_max: u32,
    /// What happens to an agent with more of them.
    pub on_overflow: Overflow,
    /// How long an agent may take until its first message.
    #[serde(deserialize_with = "setting::some_time")]
    pub handshake_timeout: Span,
    /// How often an agent is pinged.
    #[serde(deserialize_with = "setting::some_time")]
    pub ping_interval: Span,
    /// How long it may take to answer.
    #[serde(deserialize_with = "setting::some_time")]
    pub pong_timeout: Span,
    /// How often, at least, the store is told that the agent is still there; looked at when a ping
    /// is due.
    #[serde(deserialize_with = "setting::some_time")]
    pub renew_interval: Span,
    /// The least time between two pings of the agent itself.
    pub ping_interval_min: Span,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            unacked_window: 128,
            batch: 10,
            ack: AckMode::Each,
            stored_max: 150,
            on_overflow: Overflow::ResetAgent,
            handshake_timeout: Span::from_secs(5),
            ping_interval: Span::from_secs(300),
            pong_timeout: Span::from_secs(4),
            renew_interval: Span::from_secs(1_800),
            ping_interval_min: Span::from_secs(45),
        }
    }
}

impl Options {
    /// The window; a window without room for anything would be none.
    pub(super) fn window(&self) -> usize {
        usize::from(self.unacked_window.max(1))
    }

    pub(super) fn batch(&self) -> usize {
        usize::from(self.batch.max(1))
    }
}

/// When acknowledged messages leave the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AckMode {
    /// At once: what was acknowledged never returns.
    #[default]
    Each,
    /// When all that were sent with it are acknowledged: fewer writes, and an agent that goes away
    /// in between gets all of them again. Messages with a topic leave at once in any case.
    Batch,
}

/// What happens to an agent that comes back to more messages than may be stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overflow {
    /// It gets as many as are allowed, then everything of it is dropped, and it starts anew with
    /// another id.
    #[default]
    ResetAgent,
    /// The oldest are dropped.
    DropOldest,
}
