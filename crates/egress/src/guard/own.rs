//! What belongs to this installation: a tenant must not make us talk to ourselves.
//!
//! Two kinds. Servers of ours (the API, the database, proxies) are closed on their ports whatever the
//! operator allows. Addresses of ours (every one on a network interface, and the database's) are
//! closed on all ports until an operator's rule opens them, which is how a receiver on the same
//! machine is possible.
//!
//! All of it can change while we run, so it lies behind a pointer that is swapped: readers never
//! wait.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::time::Instant;

/// How old the knowledge about network interfaces may get while connections are opened.
const INTERFACES_AGE_MAX: Duration = Duration::from_secs(30);

/// What the server knows about itself and what it depends on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Own {
    /// Where servers of this installation listen: closed whatever the operator allows. An
    /// unspecified address stands for every address of this machine.
    pub listeners: Vec<SocketAddr>,
    /// Addresses besides those of the network interfaces: closed until a rule opens them.
    pub addresses: Vec<IpAddr>,
    /// Host names that are never receivers.
    pub names: Vec<String>,
    /// Host names with the one port on which they are not.
    pub servers: Vec<(String, u16)>,
}

/// The state behind the guard.
#[derive(Debug, Default)]
pub(super) struct OwnState {
    known: ArcSwap<Known>,
    /// Held while the knowledge changes; and when the interfaces were read last.
    read_at: Mutex<Option<Instant>>,
}

#[derive(Clone, Debug, Default)]
struct Known {
    own: Own,
    interfaces: HashSet<IpAddr>,
}

impl OwnState {
    pub(super) fn set(&self, mut own: Own) {
        let servers = own.servers.iter_mut().map(|(name, _)| name);
        for name in own.names.iter_mut().chain(servers) {
            name.make_ascii_lowercase();
            if name.ends_with('.') {
                name.pop();
            }
        }
        let _changing = self.read_at.lock();
        let interfaces = self.known.load().interfaces.clone();
        self.known.store(Arc::new(Known { own, interfaces }));
    }

    /// Reads the network interfaces unless that was done lately. Whoever comes while another is
    /// reading goes on with what is known.
    pub(super) fn refresh(&self, now: Instant) {
        let Some(mut read_at) = self.read_at.try_lock() else { return };
        if read_at.is_some_and(|at| now.saturating_duration_since(at) < INTERFACES_AGE_MAX) {
            return;
        }
        *read_at = Some(now);
        // Without the list, what was known stays; private and loopback addresses are closed anyway.
        let Ok(interfaces) = if_addrs::get_if_addrs() else { return };
        let interfaces: HashSet<IpAddr> = interfaces.iter().map(if_addrs::Interface::ip).collect();
        let known = self.known.load();
        if known.interfaces != interfaces {
            self.known.store(Arc::new(Known { own: known.own.clone(), interfaces }));
        }
    }

    /// Whether a name is ours, or that of a server of ours on this port.
    pub(super) fn has_name(&self, name: &str, port: u16) -> bool {
        let own = &self.known.load().own;
        own.names.iter().any(|own| own == name)
            || own.servers.iter().any(|(own, on)| own == name && *on == port)
    }

    /// Whether a server of ours answers there.
    pub(super) fn listens_on(&self, ip: IpAddr, port: u16) -> bool {
        let known = self.known.load();
        let ip = ip.to_canonical();
        let mut on_port = known.own.listeners.iter().filter(|listener| listener.port() == port);
        on_port.any(|listener| {
            let own = listener.ip().to_canonical();
            // One that was named by one address of this machine may well listen on all of them.
            own == ip || (known.is_local(own) && known.is_local(ip))
        })
    }

    /// Whether the address is one of ours.
    pub(super) fn has_address(&self, ip: IpAddr) -> bool {
        let known = self.known.load();
        known.interfaces.contains(&ip) || known.own.addresses.contains(&ip)
    }
}

impl Known {
    fn is_local(&self, ip: IpAddr) -> bool {
        ip.is_loopback() || ip.is_unspecified() || self.interfaces.contains(&ip)
    }
}
