//! What counts as an open connection, in all and for each address.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedSemaphorePermit;

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
    _slot: OwnedSemaphorePermit,
    _place: Place,
}

impl Open {
    pub(crate) fn new(slot: OwnedSemaphorePermit, place: Place) -> Self {
        ::metrics::gauge!(metrics::CONNECTIONS).increment(1);
        Self { _slot: slot, _place: place }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        ::metrics::gauge!(metrics::CONNECTIONS).decrement(1);
    }
}

/// Keeps a connection counted as open, beyond the end of its HTTP: an upgraded socket keeps it for
/// as long as it lives. Its place comes free when the last one is dropped.
#[derive(Clone, Debug)]
#[must_use = "the connection counts only as long as this is kept"]
pub struct Held {
    _open: Option<Arc<Open>>,
}

impl Held {
    pub(crate) fn new(open: Option<Arc<Open>>) -> Self {
        Self { _open: open }
    }
}
