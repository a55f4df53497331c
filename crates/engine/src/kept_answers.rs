//! Kept answers: a request that is repeated under its key is done once, and answered the same.
//!
//! # Theory of operation
//! Whoever serves a request that may be repeated asks [`Engine::once`] first. One of all who ask does the work, and has its answer
//! kept; the others get that answer, or hear that somebody is at it and ask again a little later. Ids of what is made come from
//! the turn's seed, which is that of the first try: should a process be killed between the change and the answer, whoever
//! does it again makes the same ids, and finds what is there.
//!
//! Answers are sealed: some of them say secrets. Who has a database has none of them.
//!
//! # What it must not know
//! Routes, headers, and what makes two requests the same: the key says so.

use bytes::Bytes;
use posthorn_domain::{Seed, Span};
use posthorn_store::{AnswerClaim, AnswerClaimed, AnswerKey, Error as StoreError, KeptAnswer};

use crate::engine::Engine;
use crate::error::Result;

/// How long an answer is kept. Clients repeat within seconds; programs that put requests into a queue of their own and try again
/// after a night have it as well.
pub const ANSWER_KEPT: Span = Span::from_secs(12 * 3_600);

/// How long others wait for somebody who is at work, by the store's clock. Longer than any request that makes something takes, a
/// handshake with a receiver included; and short enough that a client which repeats for half a minute gets through when the node
/// that had its request is gone.
pub const ANSWER_LEASE: Span = Span::from_secs(15);

/// What is to be done with a request.
#[derive(Clone, Debug)]
pub enum Once {
    /// Do it, and say what became of it: [`Engine::keep`] or [`Engine::release`].
    Yours(Turn),
    /// It was done. Answer this.
    Kept {
        /// The status.
        status: u16,
        /// The body.
        body: Bytes,
    },
    /// Somebody is at it; ask again.
    Busy,
}

/// The right to do the work of one request.
#[derive(Clone, Debug)]
pub struct Turn {
    key: AnswerKey,
    holder: u128,
    /// What ids are made of: the same for everybody who does this request, ever.
    pub seed: Seed,
}

/// Binds a sealed answer to its key.
fn context(key: &AnswerKey) -> Vec<u8> {
    [b"kept answer\0".as_slice(), key].concat()
}

impl Engine {
    /// Whether the work of this request is the caller's, was done, or is being done.
    pub async fn once(&self, key: AnswerKey) -> Result<Once> {
        let now = self.now();
        let (holder, chance) = (self.inner.chance.bits(), self.inner.chance.bits());
        let claim = AnswerClaim {
            key,
            holder,
            seed: (now, chance),
            now,
            lease: ANSWER_LEASE,
            expires_at: now.plus(ANSWER_KEPT),
        };
        let claimed = match self.store().claim_answer(claim.clone()).await {
            // The holder is the same, so that asking again gives what the first time gave.
            Err(StoreError::Unknown { .. }) => self.store().claim_answer(claim).await?,
            claimed => claimed?,
        };
        Ok(match claimed {
            AnswerClaimed::Busy => Once::Busy,
            AnswerClaimed::Yours { seed } => Once::Yours(Turn { key, holder, seed }),
            AnswerClaimed::Kept(answer) => {
                let opened = self.inner.vault.open(&context(&key), answer.body());
                let opened =
                    opened.map_err(|e| StoreError::unavailable("open a kept answer", e))?;
                Once::Kept {
                    status: answer.status(),
                    body: Bytes::copy_from_slice(opened.expose()),
                }
            }
        })
    }

    /// Keeps what was answered. Whether it is kept: an answer that is too long is not, and whoever repeats the request
    /// does it again with the same ids.
    pub async fn keep(&self, turn: Turn, status: u16, body: &[u8]) -> Result<bool> {
        let sealed = Bytes::from(self.inner.vault.seal(&context(&turn.key), body));
        match KeptAnswer::new(status, sealed) {
            Some(answer) => Ok(self.store().keep_answer(turn.key, answer).await?),
            None => {
                self.release(turn).await?;
                Ok(false)
            }
        }
    }

    /// Lets others do it at once, since what was answered is not to be kept. They make the same ids.
    pub async fn release(&self, turn: Turn) -> Result<()> {
        Ok(self.store().release_answer(turn.key, turn.holder).await?)
    }
}
