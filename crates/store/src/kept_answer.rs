//! Kept answers: what was answered to a request, for whoever repeats it.
//!
//! # What it is for
//! A client whose connection broke does not know whether its request was served, and repeats it under the same key. The
//! first to claim a key does the work and has its answer kept; whoever comes with the key later, on any node, gets that
//! answer in place of a second piece of work.
//!
//! # Theory of operation
//! A claim carries a [`Seed`], from which the ids of what is made are made. It is kept from the first claim to the end of the
//! key's time. Whoever takes a claim over, since the process of the first was killed or took too long, gets the first seed: what it
//! makes has the same ids, so that it finds what was made already instead of making it twice.
//!
//! Claims are leases: they are judged by the store's clock, and end with a store that only one process can use.
//!
//! # What it must not know
//! What a request is, and how its key was made.

use bytes::Bytes;
use posthorn_domain::{Seed, Span, Timestamp};

/// The longest body of an answer that is kept. Answers that make something are short; lists are never kept.
pub const KEPT_BODY_BYTES_MAX: usize = 64 << 10;

/// What a request is known by: a hash of everything that makes it the same.
pub type AnswerKey = [u8; 32];

/// Somebody wants to do the work of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerClaim {
    /// Which request.
    pub key: AnswerKey,
    /// Who asks: a fresh number for each try to serve the request.
    pub holder: u128,
    /// Counts when there is none yet.
    pub seed: Seed,
    /// What time it is, for keys whose time is over.
    pub now: Timestamp,
    /// How long others have to wait, by the store's clock.
    pub lease: Span,
    /// Until when the key counts, when it is new.
    pub expires_at: Timestamp,
}

/// What became of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerClaimed {
    /// Do the work. The seed is that of the first claim.
    Yours {
        /// What ids are made of.
        seed: Seed,
    },
    /// It was done; this was answered.
    Kept(KeptAnswer),
    /// Somebody is at it.
    Busy,
}

/// An answer that is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptAnswer {
    status: u16,
    body: Bytes,
}

impl KeptAnswer {
    /// `None` when the body is longer than [`KEPT_BODY_BYTES_MAX`].
    pub fn new(status: u16, body: Bytes) -> Option<Self> {
        (body.len() <= KEPT_BODY_BYTES_MAX).then_some(Self { status, body })
    }

    /// The status of the answer.
    pub const fn status(&self) -> u16 {
        self.status
    }

    /// Its body.
    pub const fn body(&self) -> &Bytes {
        &self.body
    }
}
