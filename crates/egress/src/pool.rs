//! Idle connections, kept apart by whom they belong to, and the cap on open ones.
//!
//! No link is ever given to another tenant, subscription, origin or TLS identity than the one it
//! was opened for. What is idle too long, too old, or unclean is closed, never handed out. One sweeping task
//! runs while anything is idle; there is no task per connection.
//!
//! A connection takes some 30 KiB. Where very many receivers are called now and then, nearly all of them would be closed
//! unused; so when much is idle, only those of receivers that are called again and again are kept.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use posthorn_domain::{ProxyName, TenantId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::link::Link;
use crate::target::Origin;
use crate::tls::TlsId;

/// Whose connections: the bytes of a subscription's id, or of anything else with its own identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolKey([u8; 16]);

impl PoolKey {
    /// From the bytes of an id.
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

/// What must be equal for a connection to be used again.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub(crate) tenant: TenantId,
    pub(crate) pool: PoolKey,
    pub(crate) origin: Arc<Origin>,
    /// Which identity and trust it was opened with; none is the default one.
    pub(crate) tls: Option<TlsId>,
    /// Which proxy it leads through.
    pub(crate) proxy: Option<ProxyName>,
}

/// How much may be kept, and for how long.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) idle_per_key: usize,
    pub(crate) idle_timeout: Duration,
    pub(crate) age_max: Duration,
    pub(crate) open_max: usize,
}

struct Idle {
    link: Box<Link>,
    since: Instant,
}

/// Everything that is idle.
struct Kept {
    /// The last of a list was used last, and is taken first: it is the most likely to be alive.
    links: HashMap<Key, Vec<Idle>>,
    /// How many there are.
    count: usize,
    lately: Lately,
}

/// When this part of the connections that may be open is idle, not everybody's are kept any more.
const CROWDED_PART: usize = 4;
/// So few take no room worth mentioning.
const CROWDED_MIN: usize = 64;
/// How long ago somebody was called lately.
const LATELY: Duration = Duration::from_secs(5);
/// For how many keys that is remembered.
const LATELY_SLOTS: usize = 1 << 16;

/// Who was called lately: a slot for each key, found by its hash. Two with one slot forget each other, which costs no more than
/// a connection.
struct Lately {
    began: Instant,
    /// Empty until it is needed. Of each key, a part of its hash and the second it was called in.
    slots: Vec<(u16, u16)>,
}

impl Lately {
    /// Notes that somebody is called; whether that has happened lately as well.
    fn is_again(&mut self, hash: u64, now: Instant) -> bool {
        if self.slots.is_empty() {
            self.slots.resize(LATELY_SLOTS, (0, 0));
        }
        // None is like an empty slot.
        let tag = (hash >> 48) as u16 | 1;
        let second = now.duration_since(self.began).as_secs() as u16;
        let slot = &mut self.slots[hash as usize % LATELY_SLOTS];
        let (of, then) = std::mem::replace(slot, (tag, second));
        of == tag && u64::from(second.wrapping_sub(then)) <= LATELY.as_secs()
    }
}

pub(crate) struct Pool {
    limits: Limits,
    idle: Mutex<Kept>,
    permits: Arc<Semaphore>,
    /// Attempts that wait for a permit. While there are any, nothing is kept idle.
    waiting: AtomicUsize,
    sweeping: AtomicBool,
}

impl Pool {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            idle: Mutex::new(Kept {
                links: HashMap::new(),
                count: 0,
                lately: Lately { began: Instant::now(), slots: Vec::new() },
            }),
            permits: Arc::new(Semaphore::new(limits.open_max.min(Semaphore::MAX_PERMITS))),
            waiting: AtomicUsize::new(0),
            sweeping: AtomicBool::new(false),
        })
    }

    /// A link that is ready for a request, if there is one.
    pub(crate) fn take(&self, key: &Key, now: Instant) -> Option<Box<Link>> {
        loop {
            let Idle { mut link, since } = {
                let mut idle = self.idle.lock();
                let found = idle.links.get_mut(key)?.pop()?;
                idle.count -= 1;
                found
            };
            if self.is_fresh(&link, since, now) && link.is_clean() {
                return Some(link);
            }
        }
    }

    /// Keeps a clean link for the next request of the same key, if there is room.
    pub(crate) fn put(self: &Arc<Self>, key: Key, link: Box<Link>, now: Instant) {
        let limits = &self.limits;
        if limits.idle_per_key == 0 || now.duration_since(link.opened_at) >= limits.age_max {
            return;
        }
        let surplus = {
            let mut idle = self.idle.lock();
            // Under the lock: a waiting attempt either was announced before and is seen here, or
            // looks for idle links afterwards and sees this one.
            if self.waiting.load(Ordering::Acquire) > 0 {
                drop(idle);
                return;
            }
            let idle = &mut *idle;
            if idle.count >= (limits.open_max / CROWDED_PART).max(CROWDED_MIN) {
                let hash = idle.links.hasher().hash_one(&key);
                if !idle.lately.is_again(hash, now) {
                    return;
                }
            }
            let links = idle.links.entry(key).or_default();
            let surplus = (links.len() >= limits.idle_per_key).then(|| links.remove(0));
            links.push(Idle { link, since: now });
            idle.count += usize::from(surplus.is_none());
            surplus
        };
        // Closing a socket is a system call, so it happens outside the lock.
        drop(surplus);
        if !self.sweeping.load(Ordering::Relaxed) {
            self.start_sweeping();
        }
    }

    /// The right to open one more connection. Idle connections make room for it.
    pub(crate) async fn permit(&self, deadline: Instant) -> Option<OwnedSemaphorePermit> {
        if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            return Some(permit);
        }
        let _announced = Waiting::announce(&self.waiting);
        self.close_longest_idle();
        timeout_at(deadline, Arc::clone(&self.permits).acquire_owned()).await.ok()?.ok()
    }

    fn is_fresh(&self, link: &Link, since: Instant, now: Instant) -> bool {
        now.duration_since(since) < self.limits.idle_timeout
            && now.duration_since(link.opened_at) < self.limits.age_max
    }

    fn close_longest_idle(&self) {
        let victim = {
            let mut idle = self.idle.lock();
            let all = idle.links.values_mut().filter(|links| !links.is_empty());
            let victim = all.min_by_key(|links| links[0].since).map(|links| links.remove(0));
            idle.count -= usize::from(victim.is_some());
            victim
        };
        drop(victim);
    }

    fn start_sweeping(self: &Arc<Self>) {
        if self.sweeping.swap(true, Ordering::AcqRel) {
            return;
        }
        let pool = Arc::downgrade(self);
        let pause = (self.limits.idle_timeout / 2).max(Duration::from_millis(50));
        tokio::spawn(async move {
            let mut running = Sweeping(Some(Weak::clone(&pool)));
            loop {
                tokio::time::sleep(pause).await;
                let Some(pool) = pool.upgrade() else { return };
                if pool.sweep(Instant::now()) == 0 {
                    // The sweep has cleared the flag, and another task may have set it since.
                    running.0 = None;
                    return;
                }
            }
        });
    }

    /// Closes what is idle too long or too old. Returns how many keys remain.
    fn sweep(&self, now: Instant) -> usize {
        let mut closing = Vec::new();
        let mut idle = self.idle.lock();
        idle.links.retain(|_, links| {
            closing
                .extend(links.extract_if(.., |idle| !self.is_fresh(&idle.link, idle.since, now)));
            !links.is_empty()
        });
        idle.count -= closing.len();
        let keys = idle.links.len();
        if keys == 0 {
            // Under the lock, so that whoever puts the next link sees it and starts anew.
            self.sweeping.store(false, Ordering::Release);
        }
        drop(idle);
        keys
    }
}

/// Clears the flag when the sweeping task ends for whatever reason, such as its runtime ending.
struct Sweeping(Option<Weak<Pool>>);

impl Drop for Sweeping {
    fn drop(&mut self) {
        if let Some(pool) = self.0.as_ref().and_then(Weak::upgrade) {
            pool.sweeping.store(false, Ordering::Release);
        }
    }
}

/// Counts one waiting attempt for as long as it waits, also when it is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn announce(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::AcqRel);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}
