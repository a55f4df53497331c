//! What is served, in parts, and the listeners that serve it.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use posthorn_listener::{Bodies, Doors, ServeLimits};
use tokio::net::{TcpListener, TcpSocket};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use crate::config;
use crate::config::listeners::Surface;
use crate::config::push::Push;
use crate::open_files::{ADMIN_CONNECTIONS, RESERVE};
use crate::ports::{self, take_port};

/// The setting that the address of the admin listener comes from.
const ADMIN: &str = "server.admin_listen";

/// Everything that is served, one router for each surface.
#[derive(Clone, Default)]
pub struct Served {
    /// The native API, in its parts.
    pub api: posthorn_api::Surfaces,
    /// Other systems' APIs.
    pub dialects: Router,
    /// Health as operators of push services know it.
    pub push_health: Router,
    /// Sockets and endpoints of Web Push.
    pub push: Router,
    /// Pages for operators; nothing where they are switched off.
    pub console: Router,
    /// Pages for customers; the same.
    pub portal: Router,
}

impl Served {
    fn one(&self, surface: Surface) -> Router {
        match surface {
            Surface::Health => self.api.health.clone().merge(self.push_health.clone()),
            Surface::Metrics => self.api.metrics.clone(),
            Surface::V1 => self.api.v1.clone(),
            Surface::Jwks => self.api.jwks.clone(),
            Surface::Dialects => self.dialects.clone(),
            Surface::Push => self.push.clone(),
            Surface::Console => self.console.clone(),
            Surface::Portal => self.portal.clone(),
        }
    }

    fn all(&self, surfaces: impl IntoIterator<Item = Surface>) -> Router {
        surfaces.into_iter().fold(Router::new(), |router, surface| router.merge(self.one(surface)))
    }

    /// What a listener serves, and what of it also when it has no place left.
    fn doors(&self, surfaces: &[Surface], bodies: Bodies) -> Doors {
        let spared = [Surface::Health, Surface::Metrics];
        let reserve = surfaces.iter().copied().filter(|surface| spared.contains(surface));
        Doors {
            router: posthorn_api::closed(self.all(surfaces.iter().copied())),
            reserve: Some(self.all(reserve)),
            bodies: Some(bodies),
        }
    }
}

/// Takes the port of the admin listener, when there is one.
pub fn admin_port(listen: Option<SocketAddr>) -> anyhow::Result<Option<TcpSocket>> {
    listen.map(|listen| take_port(listen, ADMIN)).transpose()
}

/// All listeners at work.
pub struct Listeners {
    served: Served,
    limits: ServeLimits,
    bodies: Bodies,
    stop: CancellationToken,
}

impl Listeners {
    /// Of a server that serves this.
    pub fn new(
        server: &config::Server,
        push: Option<(usize, usize)>,
        served: Served,
        stop: CancellationToken,
    ) -> Self {
        let (sockets, sockets_per_address) = push.unwrap_or_default();
        let limits =
            ServeLimits { sockets, sockets_per_address, reserve: RESERVE, ..server.limits };
        let bodies = Bodies::new(server.body_memory, server.body_memory_per_tenant);
        Self { served, limits, bodies, stop }
    }

    /// Serves what the public listener has.
    pub fn public(&self, server: &config::Server, listener: TcpListener) -> JoinHandle<()> {
        let tls = server.tls.as_ref().map(|tls| Arc::clone(&tls.tls));
        self.serve(listener, &server.surfaces, self.limits, tls)
    }

    /// Serves what the admin listener has. Gives its URL.
    pub fn admin(
        &self,
        server: &config::Server,
        socket: TcpSocket,
    ) -> anyhow::Result<(String, JoinHandle<()>)> {
        let listener = ports::open(socket, ADMIN)?;
        let address = listener.local_addr()?;
        let tls = server.tls.as_ref().filter(|_| server.admin_tls).map(|tls| Arc::clone(&tls.tls));
        warn_of_plain(server, address);
        let scheme = if tls.is_some() { "https" } else { "http" };
        let limits = ServeLimits {
            connections: ADMIN_CONNECTIONS,
            connections_per_address: 0,
            ..self.limits
        };
        let serving = self.serve(listener, &server.admin_surfaces, limits, tls);
        Ok((format!("{scheme}://{address}"), serving))
    }

    fn serve(
        &self,
        listener: TcpListener,
        surfaces: &[Surface],
        limits: ServeLimits,
        tls: Option<Arc<posthorn_listener::Tls>>,
    ) -> JoinHandle<()> {
        let doors = self.served.doors(surfaces, self.bodies.clone());
        let stop = self.stop.clone().cancelled_owned();
        tokio::spawn(posthorn_listener::serve(listener, doors, limits, tls, stop))
    }
}

/// Places of sockets, in all and of one address.
pub fn sockets(push: &Push) -> (usize, usize) {
    (push.connections, push.connections_per_address)
}

/// Keys on their way can be read by whoever is on the same network.
fn warn_of_plain(server: &config::Server, listen: SocketAddr) {
    let serves = server.admin_surfaces.contains(&Surface::V1);
    if serves && !server.admin_tls && !listen.ip().is_loopback() {
        warn!(
            %listen,
            "server.admin_listen serves the API to other machines without TLS: API keys are sent \
             in plain text; set server.admin_tls, or put TLS in front"
        );
    }
}
