//! Which listener serves what.

use std::fmt;

use serde::Deserialize;

use super::Server;
use super::reading::Reading;

/// A part of what is served, which a listener serves or does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Surface {
    /// Health and readiness, those of Web Push included.
    Health,
    /// `/metrics`.
    Metrics,
    /// The native API.
    V1,
    /// The public keys of signatures, which receivers fetch.
    Jwks,
    /// Other systems' APIs.
    Dialects,
    /// Sockets of agents and endpoints of senders.
    Push,
    /// Pages for operators.
    Console,
    /// Pages for customers.
    Portal,
}

impl Surface {
    /// Every one there is.
    pub const ALL: [Self; 8] = [
        Self::Health,
        Self::Metrics,
        Self::V1,
        Self::Jwks,
        Self::Dialects,
        Self::Push,
        Self::Console,
        Self::Portal,
    ];
}

/// As it is written.
impl fmt::Display for Surface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format!("{self:?}").to_lowercase())
    }
}

/// What must hold of the two listeners, and what is left for the public one when nobody says.
pub(super) fn settle(read: &mut Reading<'_>, server: &mut Server) {
    if let Some(listen) = server.admin_listen {
        let named = !server.admin_surfaces.is_empty();
        read.require(named, "server.admin_surfaces", "must name what server.admin_listen serves");
        let apart = server.listen != listen || listen.port() == 0;
        read.require(apart, "server.admin_listen", "must not be that of server.listen");
        let can = !server.admin_tls || server.tls.is_some();
        read.require(can, "server.admin_tls", "needs server.tls.certificate");
    }
    if server.surfaces.is_empty() {
        let elsewhere = |surface: &Surface| {
            server.admin_listen.is_some() && server.admin_surfaces.contains(surface)
        };
        server.surfaces = Surface::ALL.into_iter().filter(|surface| !elsewhere(surface)).collect();
    }
}
