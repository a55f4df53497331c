//! Many receivers at once.

use std::io;
use std::sync::Arc;

use crate::certificates::Authority;
use crate::mode::Mode;
use crate::receiver::{Receiver, Settings, Trap};

/// One receiver for each of several modes, with one authority and one trap for all. Ends when it is
/// dropped.
pub struct Fleet {
    receivers: Vec<Receiver>,
    authority: Arc<Authority>,
    trap: Arc<Trap>,
}

impl Fleet {
    /// Starts a receiver for each mode.
    pub async fn start(
        modes: impl IntoIterator<Item = Mode>,
        settings: Settings,
    ) -> io::Result<Self> {
        let authority = Arc::new(Authority::new());
        let trap = Arc::new(Trap::start().await?);
        let mut receivers = Vec::new();
        for mode in modes {
            let shared = (Arc::clone(&authority), Arc::clone(&trap));
            receivers.push(Receiver::with(mode, settings, shared).await?);
        }
        Ok(Self { receivers, authority, trap })
    }

    /// The receivers, in the order of the modes.
    pub fn receivers(&self) -> &[Receiver] {
        &self.receivers
    }

    /// What a sender must trust for the certificates meant to be good.
    pub fn authority_pem(&self) -> &str {
        self.authority.pem()
    }

    /// Connections a sender was lured into; must stay 0.
    pub fn lured(&self) -> u64 {
        self.trap.lured()
    }
}
