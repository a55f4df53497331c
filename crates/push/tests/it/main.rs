//! Push from outside: the wire, sessions, the endpoint, and all of them together with dice.

mod endpoint;
mod model;
mod protocol;
mod races;
mod rig;
mod session;
mod stored;
