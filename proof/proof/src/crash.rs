//! A crash test in the manner of Jepsen: it runs the real `posthorn` binary under load, kills and
//! pauses it and takes its database away, again and again, and proves from two logs that every
//! accepted event was delivered, unchanged and in order.
//!
//! # Theory of operation
//! [`run`] starts the cluster ([`cluster`], [`node`]), subscribes receivers of every temper
//! ([`receiver`]) according to a [`plan`], lets [`publisher`]s publish, and lets the fates of
//! [`faults`] fall; on a database of two machines those of [`upheaval`] as well. Publishers and receivers write what they saw into append-only logs
//! ([`evidence`]). When the faults have stopped and the server has drained, [`checker`] reads the
//! logs, and the server's last answers, and nothing else, and names every broken promise.
//!
//! All times are microseconds on one monotonic clock, that of this process, so that "before" and
//! "after" mean something: a publish happened somewhere between its start and its answer, a
//! delivery between its arrival and its answer.
//!
//! # What it must not know
//! Any code of the server. It speaks HTTP with its own client and receivers and checks signatures
//! with its own HMAC, so that a defect there cannot hide itself here.
//!
//! # Where to start reading
//! [`checker`], for what is promised; then [`run`].

pub mod checker;
pub mod cluster;
pub mod dice;
pub mod disk;
pub mod evidence;
pub mod faults;
pub mod later;
pub mod leaver;
pub mod node;
pub mod plan;
pub mod publisher;
pub mod receiver;
pub mod resumption;
pub mod run;
pub mod signature;
pub mod summary;
pub mod upheaval;
pub mod wire;
