//! Which listener serves what.

use std::fmt;
use std::net::SocketAddr;

use super::raw::RawServer;
use super::{Check, Server};

/// A part of what is served, which a listener serves or does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
}

impl Surface {
    /// Every one there is.
    pub const ALL: [Self; 6] =
        [Self::Health, Self::Metrics, Self::V1, Self::Jwks, Self::Dialects, Self::Push];

    const fn name(self) -> &'static str {
        match self {
            Self::Health => "health",
            Self::Metrics => "metrics",
            Self::V1 => "v1",
            Self::Jwks => "jwks",
            Self::Dialects => "dialects",
            Self::Push => "push",
        }
    }
}

impl fmt::Display for Surface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The listener for those who operate the server.
#[derive(Clone, Debug)]
pub struct Admin {
    /// Where it listens.
    pub listen: SocketAddr,
    /// What it serves.
    pub surfaces: Vec<Surface>,
    /// Whether it uses the certificate of the public one.
    pub tls: bool,
}

/// Where a listener listens.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    let problem =
        || format!("`{text}` is not an address: write 127.0.0.1:8080, 0.0.0.0:80 or [::]:80");
    text.parse().map_err(|_| problem())
}

/// The admin listener, when there is one, and what is left for the public one.
pub(super) fn build(
    check: &mut Check<'_>,
    raw: &RawServer,
) -> Option<(Option<Admin>, Vec<Surface>)> {
    let admin = match &raw.admin_listen {
        None => None,
        Some(text) => {
            let listen = check.accept("server.admin_listen", address(text))?;
            let surfaces = surfaces(check, "server.admin_surfaces", &raw.admin_surfaces)?;
            if surfaces.is_empty() {
                check.refuse("server.admin_surfaces", "must name what server.admin_listen serves");
            }
            if address(&raw.listen) == Ok(listen) && listen.port() != 0 {
                check.refuse("server.admin_listen", "must not be that of server.listen");
            }
            if raw.admin_tls && raw.tls.certificate.is_none() {
                check.refuse("server.admin_tls", "needs server.tls.certificate");
            }
            Some(Admin { listen, surfaces, tls: raw.admin_tls })
        }
    };
    let mut public = surfaces(check, "server.surfaces", &raw.surfaces)?;
    if public.is_empty() {
        let elsewhere = |surface: &Surface| {
            admin.as_ref().is_some_and(|admin| admin.surfaces.contains(surface))
        };
        public = Surface::ALL.into_iter().filter(|surface| !elsewhere(surface)).collect();
    }
    Some((admin, public))
}

fn surfaces(check: &mut Check<'_>, key: &str, names: &[String]) -> Option<Vec<Surface>> {
    let find = |name: &String| {
        let found = Surface::ALL.into_iter().find(|surface| surface.name() == name);
        found.ok_or_else(|| {
            let known: Vec<String> = Surface::ALL.iter().map(Surface::to_string).collect();
            format!("there is no surface `{name}`; there are {}", known.join(", "))
        })
    };
    let found: Vec<Surface> = check.accept(key, names.iter().map(find).collect())?;
    let twice = found.iter().enumerate().find(|(n, surface)| found[..*n].contains(surface));
    if let Some((_, surface)) = twice {
        check.refuse(key, format!("`{surface}` is there twice; name it once"));
        return None;
    }
    Some(found)
}

/// Bodies must find room at all.
pub(super) fn check_bodies(check: &mut Check<'_>, server: &Server) {
    let largest = server.body.max(server.batch_body);
    if server.bodies_per_tenant < largest {
        let problem = "must be at least the larger of server.body and server.batch_body";
        check.refuse("server.bodies_per_tenant", problem);
    }
    if server.bodies < server.bodies_per_tenant {
        check.refuse("server.bodies", "must be at least server.bodies_per_tenant");
    }
}
