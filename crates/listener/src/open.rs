//! What counts as an open connection, in all and for each address.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::metrics;
use crate::peer::source;

/// How many connections each address has open. Bounded by the connections there are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Addresses(Arc<Mutex<HashMap<IpAddr, usize>>>);

impl Addresses {
    /// A place for one more connection of an address, when there is one.
    pub(crate) fn enter(&self, peer: IpAddr, max: usize) -> Option<Place> {
        let address = source(peer);
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(address).or_default();
        if max > 0 && *count >= max {
            return None;
        }
        *count += 1;
        drop(open);
        Some(Place { addresses: self.clone(), address })
    }
}

/// One connection of an address.
#[derive(Debug)]
pub(crate) struct Place {
    addresses: Addresses,
    address: IpAddr,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = self.addresses.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Entry::Occupied(mut count) = open.entry(self.address) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

/// A connection that counts as open.
#[derive(Debug)]
pub(crate) struct Open {
    /// Its place among all, and among those of its address; none in the reserve, nor once it has one
    /// among the sockets.
    places: Mutex<Option<(OwnedSemaphorePermit, Place)>>,
    sockets: Option<Sockets>,
}

impl Open {
    /// One of those that may have any request.
    pub(crate) fn new(slot: OwnedSemaphorePermit, place: Place, sockets: Option<Sockets>) -> Self {
        ::metrics::gauge!(metrics::CONNECTIONS).increment(1);
        Self { places: Mutex::new(Some((slot, place))), sockets }
    }

    /// One of the reserve.
    pub(crate) fn in_reserve() -> Self {
        ::metrics::gauge!(metrics::CONNECTIONS).increment(1);
        Self { places: Mutex::default(), sockets: None }
    }

    fn leave(&self) {
        drop(self.places.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        ::metrics::gauge!(metrics::CONNECTIONS).decrement(1);
    }
}

/// The places of sockets: connections that were upgraded. Apart from those of requests, so that
/// neither can take the other's.
#[derive(Clone, Debug)]
pub(crate) struct Sockets {
    slots: Arc<Semaphore>,
    addresses: Addresses,
    per_address: usize,
}

impl Sockets {
    pub(crate) fn new(max: usize, per_address: usize) -> Self {
        let slots = Arc::new(Semaphore::new(max));
        Self { slots, addresses: Addresses::default(), per_address }
    }

    fn enter(&self, address: IpAddr) -> Option<Socket> {
        let slot = Arc::clone(&self.slots).try_acquire_owned().ok()?;
        let place = self.addresses.enter(address, self.per_address)?;
        ::metrics::gauge!(metrics::SOCKETS).increment(1);
        Some(Socket { _slot: slot, _place: place })
    }
}

/// An upgraded connection that counts as open.
#[derive(Debug)]
struct Socket {
    _slot: OwnedSemaphorePermit,
    _place: Place,
}

impl Drop for Socket {
    fn drop(&mut self) {
        ::metrics::gauge!(metrics::SOCKETS).decrement(1);
    }
}

#[derive(Debug)]
enum Kept {
    /// As the connection it was.
    Connection(#[expect(dead_code, reason = "kept for its place")] Arc<Open>),
    /// As a socket. The connection may have its own place still, until its HTTP ends.
    Socket { _socket: Socket, connection: Weak<Open> },
}

/// Keeps a connection counted as open, beyond the end of its HTTP: an upgraded socket keeps it for
/// as long as it lives. Its place comes free when this is dropped.
#[derive(Debug)]
#[must_use = "the connection counts only as long as this is kept"]
pub struct Held {
    kept: Option<Kept>,
}

impl Held {
    /// A place for a connection that becomes a socket; none when there are as many as there may be.
    pub(crate) fn new(open: Option<Arc<Open>>, address: IpAddr) -> Option<Self> {
        let Some(open) = open else { return Some(Self { kept: None }) };
        let kept = match &open.sockets {
            None => Kept::Connection(open),
            Some(sockets) => match sockets.enter(address) {
                Some(socket) => Kept::Socket { _socket: socket, connection: Arc::downgrade(&open) },
                None => {
                    ::metrics::counter!(metrics::ADMISSION_REFUSED, "reason" => "sockets")
                        .increment(1);
                    return None;
                }
            },
        };
        Some(Self { kept: Some(kept) })
    }

    /// Gives the connection's place among requests back before its HTTP ends: it is a socket by now,
    /// although its upgrade is not answered yet. What it asks is its last request.
    pub fn leave_requests(&self) {
        if let Some(Kept::Socket { connection, .. }) = &self.kept
            && let Some(open) = connection.upgrade()
        {
            open.leave();
        }
    }
}
