//! What the model keeps of who changed what.

use posthorn_domain::AuditEntry;
use posthorn_store::{Along, AuditFilter, Listing, Page, Prune, Refusal, audit_place};

use super::pages::listed;
use super::{State, plant};

impl State {
    /// Refuses plans that are not of the present.
    pub(super) fn check(&mut self, along: &Along) -> Result<(), Refusal> {
        if plant::active("audit-without-change") {
            self.note(along.audit.clone());
        }
        if self.is_stale(&along.told) { Err(Refusal::Stale) } else { Ok(()) }
    }

    /// Writes what goes along with a change. The caller has made sure that the plans are of the present.
    pub(super) fn go_along(&mut self, along: Along) {
        self.note(along.audit);
        self.tell(along.told);
    }

    pub(super) fn note(&mut self, entry: Option<Box<AuditEntry>>) {
        if let Some(entry) = entry {
            self.audit.insert(entry.id, *entry);
        }
    }

    /// Looks at every line there is, so that it never has to stop.
    pub(super) fn lines(&self, filter: &AuditFilter, listing: &Listing) -> Page<AuditEntry> {
        let wanted = self.audit.values().filter(|entry| filter.wants(entry));
        let placed = wanted.map(|entry| (audit_place(entry.id).0, entry.clone()));
        listed(placed.collect(), listing)
    }

    pub(super) fn prune_audit(&mut self, prune: &Prune) -> usize {
        let old = |entry: &&AuditEntry| entry.at() < prune.audit_before;
        let old: Vec<_> = self.audit.values().filter(old).take(prune.limit).collect();
        let old: Vec<_> = old.into_iter().map(|entry| entry.id).collect();
        old.iter().for_each(|id| drop(self.audit.remove(id)));
        old.len()
    }
}
