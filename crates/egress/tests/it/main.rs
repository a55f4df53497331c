//! Egress against real receivers on loopback: well-behaved, broken and hostile ones.
//!
//! Proxies from the environment need no test of their own: no code in this crate or in hyper's
//! connection layer reads `HTTP_PROXY` and its kin, and the address that is dialled comes from
//! the vetted list alone.

mod authority;
mod deadlines;
mod dns;
mod hostile;
mod identities;
mod names;
mod ordinary;
mod pooling;
mod receiver;
mod tls;
