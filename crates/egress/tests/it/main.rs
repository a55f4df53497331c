//! Egress against real receivers on loopback: well-behaved, broken and hostile ones.

mod authority;
mod counting;
mod deadlines;
mod detours;
mod dns;
mod hostile;
mod identities;
mod names;
mod ordinary;
mod pooling;
mod proxies;
mod receiver;
mod source;
mod tls;
