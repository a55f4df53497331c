//! A small agent: the other end of the socket, for the command line, benchmarks and tests.
//!
//! # What it is for
//! It dials a node of Web Push, says `hello`, registers channels, hands out what arrives and
//! acknowledges it. Pings of the server are answered while somebody waits for the next event. An
//! agent is small: thousands of them fit into one process.
//!
//! # What it must not know
//! How a server works inside, what an event of the engine is, where identities are kept.
//!
//! ```no_run
//! # use posthorn_agent::{Agent, Error, Event, Options};
//! # use posthorn_domain::ChannelId;
//! # async fn example() -> Result<(), Error> {
//! let mut agent = Agent::connect("ws://127.0.0.1:8080/", &Options::default()).await?;
//! let hello = agent.hello(None, &[]).await?;
//! let endpoint = agent.register(ChannelId::from_random(7), None).await?;
//! while let Event::Notification(notification) = agent.next().await? {
//!     agent.ack(&[notification.ack()]).await?;
//! }
//! # Ok(()) }
//! ```

mod agent;
mod dial;
mod error;
mod event;

pub use agent::{Ack, Agent, Hello};
pub use dial::{MESSAGE_BYTES_MAX, Options, public_roots};
pub use error::{Closed, Error};
pub use event::{Event, Notification, OpenError};

/// Raw messages and frames, for whoever wants to send what no agent would.
pub use tokio_tungstenite::tungstenite::Message;
pub use tokio_tungstenite::tungstenite::protocol::frame::{Frame, coding};

/// What an agent says of a message it got: it was shown.
pub const DELIVERED: u16 = 100;
/// It could not be opened.
pub const DECRYPTION_ERROR: u16 = 101;
/// It was not shown.
pub const NOT_DELIVERED: u16 = 102;
