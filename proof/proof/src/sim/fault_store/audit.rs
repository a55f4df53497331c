//! Lines of the audit log, compared with what was changed at the moment of the effect.

use posthorn_domain::{DeliveryId, TenantId};
use posthorn_store::{Along, Store as _};

use super::{Reach, at_once};

impl Reach {
    /// Whether the line that goes along was written.
    pub(super) fn has_line(&self, along: &Along) -> bool {
        along.audit.as_ref().is_some_and(|line| self.model.line(line.id).is_some())
    }

    /// A change that somebody asked for, and its line: both or neither.
    pub(super) fn check_line(&self, did: bool, tenant: Option<TenantId>, along: &Along) {
        let line = along.audit.as_ref().and_then(|line| self.model.line(line.id));
        let (now, sent) = (self.world.now(), along.audit.as_deref());
        self.world.oracle.lock().line_of_change(now, did, tenant, (sent, line.as_ref()));
    }

    /// Whether a delivery is of an operational event.
    pub(super) fn is_operational(&self, tenant: TenantId, delivery: DeliveryId) -> bool {
        let found = at_once(self.model.delivery(tenant, delivery)).ok().flatten();
        let event = found.map(|found| at_once(self.model.event(tenant, found.event)));
        let event = event.and_then(|event| event.ok().flatten());
        event.is_some_and(|event| event.topic.is_reserved())
    }

    /// Something that was done to a delivery of an operational event: it has its line, and nothing is told of it.
    pub(super) fn asked_quietly(&self, did: bool, tenant: TenantId, along: &Along) {
        self.check_line(did, Some(tenant), along);
        let now = self.world.now();
        self.world.oracle.lock().told_nothing(now, tenant, &along.told);
    }

    /// The same of what is no change of the catalog, with what is told of it.
    pub(super) fn asked(&self, did: bool, tenant: TenantId, along: &Along) {
        self.check_line(did, Some(tenant), along);
        if did {
            self.world.oracle.lock().told_of_line(self.world.now(), tenant, &along.told);
            self.check_told(&along.told);
        }
    }
}
