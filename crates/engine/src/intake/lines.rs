//! Who waits for a commit: one line for each tenant, and turns between them.
//!
//! A commit takes a little of each line in turn, counted in rows, until it is full; so whatever one
//! tenant has waiting, the others' next events are in the next commit or the one after. What one call
//! published keeps its order: while a part of it is being committed, the rest waits. An event that does not
//! fit into what is left of a commit is the first of the next one, and others take what is left.

use std::collections::VecDeque;

use posthorn_domain::TenantId;

use super::Pending;
use crate::catalog::Map;

/// Rows a tenant may have in a commit before it is the next one's turn, where others wait.
const QUANTUM: usize = 64;

/// How much goes into one commit. One event always does, however large.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) events: usize,
    pub(super) deliveries: usize,
    pub(super) bytes: usize,
}

/// What is committed together, and whose lines wait for it.
#[derive(Default)]
pub(super) struct Group {
    /// Those of one tenant are beside each other, and in order.
    pub(super) events: Vec<Pending>,
    pub(super) held: Vec<TenantId>,
}

/// All who wait.
#[derive(Default)]
pub(super) struct Lines {
    lines: Map<TenantId, Line>,
    /// Tenants of which something may be taken, each once.
    turns: VecDeque<TenantId>,
}

#[derive(Default)]
struct Line {
    waiting: VecDeque<Pending>,
    /// Rows it may take yet.
    credit: usize,
    /// A part of what one call published is being committed, and the rest is at the front.
    held: bool,
}

impl Lines {
    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Whether a commit would have something to do.
    pub(super) fn is_ready(&self) -> bool {
        !self.turns.is_empty()
    }

    pub(super) fn push(&mut self, pending: Pending) {
        let tenant = pending.event.tenant;
        let line = self.lines.entry(tenant).or_default();
        if line.waiting.is_empty() && !line.held {
            self.turns.push_back(tenant);
        }
        line.waiting.push_back(pending);
    }

    /// Puts events back that must be committed before everything else of their tenants.
    pub(super) fn put_back(&mut self, events: Vec<Pending>) {
        for pending in events.into_iter().rev() {
            let tenant = pending.event.tenant;
            let line = self.lines.entry(tenant).or_default();
            if line.waiting.is_empty() && !line.held {
                self.turns.push_front(tenant);
            }
            line.waiting.push_front(pending);
        }
    }

    /// Lets lines go on whose part has been committed.
    pub(super) fn release(&mut self, held: &[TenantId]) {
        for tenant in held {
            let Some(line) = self.lines.get_mut(tenant) else { continue };
            if std::mem::take(&mut line.held) {
                if line.waiting.is_empty() {
                    self.lines.remove(tenant);
                } else {
                    self.turns.push_back(*tenant);
                }
            }
        }
    }

    /// Lets all lines go on.
    pub(super) fn release_all(&mut self) {
        let mut held: Vec<TenantId> =
            self.lines.iter().filter(|(_, line)| line.held).map(|(tenant, _)| *tenant).collect();
        held.sort_unstable();
        self.release(&held);
    }

    /// Takes what is committed next.
    pub(super) fn cut(&mut self, room: Room) -> Group {
        let mut group = Group::default();
        // The tenants that have something in it, and the last call of each that does.
        let mut parts: Vec<(TenantId, u64)> = Vec::new();
        let (mut first_next, mut last_next) = (Vec::new(), Vec::new());
        let (mut deliveries, mut bytes, mut rounds) = (0, 0, false);
        while let Some(tenant) = self.turns.pop_front() {
            let Some(line) = self.lines.get_mut(&tenant) else { continue };
            line.credit += QUANTUM;
            let (mut full, mut too_large) = (false, false);
            while let Some(next) = line.waiting.front() {
                let (rows, size) = (next.deliveries(), next.event.payload.len());
                let begun = !group.events.is_empty();
                full = begun
                    && (group.events.len() >= room.events
                        || deliveries >= room.deliveries
                        || bytes >= room.bytes);
                if full || (line.credit <= rows && !self.turns.is_empty()) {
                    break;
                }
                too_large =
                    begun && (deliveries + rows > room.deliveries || bytes + size > room.bytes);
                if too_large {
                    // Nothing keeps it from being the first.
                    line.credit = line.credit.max(rows + 1);
                    break;
                }
                line.credit = line.credit.saturating_sub(rows + 1);
                (deliveries, bytes) = (deliveries + rows, bytes + size);
                match parts.last_mut() {
                    Some(part) if part.0 == tenant => part.1 = next.call,
                    _ => parts.push((tenant, next.call)),
                }
                group.events.extend(line.waiting.pop_front());
            }
            if line.waiting.is_empty() {
                self.lines.remove(&tenant);
            } else if full || too_large {
                // Whoever has something in this commit lets the others begin the next.
                match parts.iter().any(|(took, _)| *took == tenant) {
                    true => last_next.push(tenant),
                    false => first_next.push(tenant),
                }
                if full {
                    break;
                }
            } else {
                self.turns.push_back(tenant);
                rounds = true;
            }
        }
        for tenant in first_next.into_iter().rev() {
            self.turns.push_front(tenant);
        }
        self.turns.extend(last_next);
        if rounds {
            group.events.sort_by_key(|taken| taken.event.tenant);
        }
        self.hold(&mut group, parts);
        group
    }

    /// Holds the lines of which a call was cut in two.
    fn hold(&mut self, group: &mut Group, parts: Vec<(TenantId, u64)>) {
        for (tenant, call) in parts {
            let Some(line) = self.lines.get_mut(&tenant) else { continue };
            if !line.held && line.waiting.front().is_some_and(|next| next.call == call) {
                line.held = true;
                group.held.push(tenant);
            }
        }
        if !group.held.is_empty() {
            self.turns.retain(|tenant| !group.held.contains(tenant));
        }
    }
}

#[cfg(test)]
mod tests;
