//! The audit log: no change without its line, and no line without its change.

use posthorn_domain::{AuditEntry, TenantId, Timestamp};

use super::{Invariant, Oracle};

impl Oracle {
    /// Somebody asked for a change, and it was made or not. `sent` is the line that went along, `kept` the one that the
    /// store has of it now.
    pub(crate) fn line_of_change(
        &mut self,
        now: Timestamp,
        did: bool,
        tenant: Option<TenantId>,
        (sent, kept): (Option<&AuditEntry>, Option<&AuditEntry>),
    ) {
        self.expect(did == kept.is_some(), Invariant::I21, now, || match did {
            true => format!("a change in {tenant:?} has no line in the audit log"),
            false => format!("{sent:?} is a line of a change that was not made"),
        });
        if let Some(kept) = kept {
            self.expect(kept.tenant == tenant && sent == Some(kept), Invariant::I21, now, || {
                format!("the line of a change in {tenant:?} is {kept:?}, not {sent:?}")
            });
        }
    }
}
