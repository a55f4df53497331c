//! Memory for bodies under way, and who may have how much of it.
//!
//! # Theory of operation
//! A body that fits into one read of its connection costs nothing here: that buffer is the
//! connection's own. Any other needs a [`Loan`] over its whole length before more of it is read, out
//! of what there is for all and out of its owner's share, so that nobody can take everything. Who finds
//! no room waits for a moment, while the rest of the body stays in the kernel's buffers; then it is
//! refused. A loan is given back when it is dropped, which is to be done with the last of the body.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use posthorn_domain::TenantId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::body::BodyError;
use crate::metrics;
use crate::peer::source;

/// What is lent at least, and in what steps.
const STEP: usize = 1_024;
/// How long a body waits for room. A commit takes a fraction of it, so that publishers who take turns
/// do not notice; and a client is told before it gives up by itself.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whose a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// A caller who showed a key.
    Tenant(TenantId),
    /// Somebody at this address (IPv6: in this /64), as far as is known.
    Address(IpAddr),
}

impl Owner {
    /// Somebody at this address.
    pub fn at(address: IpAddr) -> Self {
        Self::Address(source(address))
    }
}

/// The memory of all bodies. Clones are the same.
#[derive(Clone, Debug)]
pub struct Bodies(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    all: Arc<Semaphore>,
    share: usize,
    /// Those who have something now. Bounded by the connections there are.
    shares: Mutex<HashMap<Owner, Arc<Semaphore>>>,
}

impl Bodies {
    /// So many bytes for all, and for each owner.
    pub fn new(bytes: usize, share: usize) -> Self {
        let steps = |bytes: usize| bytes.div_ceil(STEP).min(Semaphore::MAX_PERMITS);
        Self(Arc::new(Inner {
            all: Arc::new(Semaphore::new(steps(bytes))),
            share: steps(share),
            shares: Mutex::default(),
        }))
    }

    /// Room for so many bytes, once there is some.
    pub(crate) async fn lend(&self, owner: Owner, bytes: usize) -> Result<Loan, BodyError> {
        let share = {
            let mut shares = self.0.shares.lock().unwrap_or_else(PoisonError::into_inner);
            let new = || Arc::new(Semaphore::new(self.0.share));
            Arc::clone(shares.entry(owner).or_insert_with(new))
        };
        let mut loan = Loan { bodies: self.clone(), owner, share, held: None, of_all: None };
        let deadline = Instant::now() + PATIENCE;
        let steps = steps(bytes);
        let own = Arc::clone(&loan.share).acquire_many_owned(steps);
        let Ok(Ok(own)) = timeout_at(deadline, own).await else {
            return Err(refused(BodyError::ShareTaken));
        };
        loan.held = Some(own);
        let all = Arc::clone(&self.0.all).acquire_many_owned(steps);
        let Ok(Ok(all)) = timeout_at(deadline, all).await else {
            return Err(refused(BodyError::NoRoom));
        };
        loan.of_all = Some(all);
        gauge().increment(f64::from(steps) * STEP as f64);
        Ok(loan)
    }
}

fn gauge() -> ::metrics::Gauge {
    ::metrics::gauge!(metrics::BODY_BYTES)
}

fn refused(error: BodyError) -> BodyError {
    let reason = if error == BodyError::NoRoom { "bodies_full" } else { "too_many_bodies" };
    ::metrics::counter!(metrics::ADMISSION_REFUSED, "reason" => reason).increment(1);
    error
}

fn steps(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(STEP)).unwrap_or(u32::MAX)
}

/// Memory that a body may take until this is dropped.
#[derive(Debug)]
#[must_use = "the memory is given back when this is dropped"]
pub struct Loan {
    bodies: Bodies,
    owner: Owner,
    share: Arc<Semaphore>,
    held: Option<OwnedSemaphorePermit>,
    of_all: Option<OwnedSemaphorePermit>,
}

impl Loan {
    /// Room for so many bytes in all, which is there or is not: two bodies that wait for each other's
    /// memory would wait for ever. However often it grows, it has no more than it would have had when
    /// it had asked for all at once, so that the largest body fits into a share that is as large.
    pub(crate) fn grow_to(&mut self, bytes: usize) -> Result<(), BodyError> {
        let has = self.held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let steps = steps(bytes).saturating_sub(u32::try_from(has).unwrap_or(u32::MAX));
        let own = Arc::clone(&self.share).try_acquire_many_owned(steps);
        let own = own.map_err(|_| refused(BodyError::ShareTaken))?;
        let all = Arc::clone(&self.bodies.0.all).try_acquire_many_owned(steps);
        let all = all.map_err(|_| refused(BodyError::NoRoom))?;
        if let (Some(held), Some(of_all)) = (&mut self.held, &mut self.of_all) {
            held.merge(own);
            of_all.merge(all);
        }
        gauge().increment(f64::from(steps) * STEP as f64);
        Ok(())
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if let Some(of_all) = &self.of_all {
            gauge().decrement(of_all.num_permits() as f64 * STEP as f64);
        }
        drop(self.held.take());
        let mut shares = self.bodies.0.shares.lock().unwrap_or_else(PoisonError::into_inner);
        // The table and this loan have it, and nobody else.
        if Arc::strong_count(&self.share) <= 2 {
            shares.remove(&self.owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: usize = 1_024;

    fn tenant(number: u128) -> Owner {
        Owner::Tenant(TenantId::new(posthorn_domain::Timestamp::from_millis(1), number))
    }

    #[tokio::test(start_paused = true)]
    async fn one_owner_has_its_share_and_leaves_the_rest_to_others() {
        let bodies = Bodies::new(100 * KIB, 40 * KIB);
        let first = bodies.lend(tenant(1), 30 * KIB).await.expect("room");
        let refused = bodies.lend(tenant(1), 11 * KIB).await.expect_err("its share is taken");
        assert_eq!(refused, BodyError::ShareTaken);
        let second = bodies.lend(tenant(2), 40 * KIB).await.expect("room");
        let third = bodies.lend(tenant(3), 30 * KIB).await.expect("room");
        let refused = bodies.lend(tenant(4), 1).await.expect_err("all is taken");
        assert_eq!(refused, BodyError::NoRoom);
        drop((first, second));
        let _more = bodies.lend(tenant(4), 40 * KIB).await.expect("room");
        drop(third);
        let left = bodies.0.shares.lock().expect("sound").len();
        assert_eq!(left, 1, "who has nothing is forgotten");
    }

    #[tokio::test(start_paused = true)]
    async fn who_finds_no_room_waits_for_a_moment_and_growing_does_not() {
        let bodies = Bodies::new(100 * KIB, 100 * KIB);
        let first = bodies.lend(tenant(1), 80 * KIB).await.expect("room");
        let waiting = tokio::spawn({
            let bodies = bodies.clone();
            async move { bodies.lend(tenant(2), 80 * KIB).await.map(drop) }
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        drop(first);
        waiting.await.expect("ends").expect("room in time");
        let mut loan = bodies.lend(tenant(1), 60 * KIB).await.expect("room");
        loan.grow_to(100 * KIB).expect("room");
        assert_eq!(loan.grow_to(100 * KIB + 1), Err(BodyError::ShareTaken));
        drop(loan);
        assert_eq!(bodies.0.all.available_permits(), 100);
    }

    #[tokio::test(start_paused = true)]
    async fn a_loan_that_grows_by_odd_sizes_costs_what_it_holds() {
        let bodies = Bodies::new(100 * KIB, 100 * KIB);
        let mut loan = bodies.lend(tenant(1), 1_001).await.expect("room");
        for bytes in (1_001..100 * KIB).step_by(777) {
            loan.grow_to(bytes).expect("room");
            assert_eq!(bodies.0.all.available_permits(), 100 - bytes.div_ceil(KIB));
        }
        loan.grow_to(100 * KIB).expect("all there is");
        drop(loan);
        assert_eq!(bodies.0.all.available_permits(), 100);
    }
}
