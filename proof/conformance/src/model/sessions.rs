//! Sessions of pages, in the model.

use posthorn_domain::{Session, SessionId, SessionKind, TenantId, Timestamp};
use posthorn_store::{
    Along, EndSessions, Listing, Page, Refusal, Result, SessionFilter, session_place,
};

use super::State;
use super::pages::listed;

impl State {
    /// Refuses a session that cannot be created.
    fn check_session(&self, session: &Session) -> Result<(), Refusal> {
        if session.tenant().is_some_and(|tenant| !self.catalog.is_open(tenant)) {
            return Err(Refusal::NotFound);
        }
        if self.sessions.contains_key(&session.id) {
            return Err(Refusal::AlreadyExists);
        }
        Ok(())
    }

    pub(super) fn create_session(&mut self, session: Session, along: Along) -> Result<()> {
        self.check_session(&session)?;
        self.check(&along)?;
        self.sessions.insert(session.id, session);
        self.go_along(along);
        Ok(())
    }

    pub(super) fn redeem_session(
        &mut self,
        link: SessionId,
        session: Session,
        along: Along,
    ) -> Result<bool> {
        if self.sessions.get(&link).is_none_or(|found| found.kind != SessionKind::Link) {
            return Ok(false);
        }
        self.check_session(&session)?;
        self.check(&along)?;
        self.sessions.remove(&link);
        self.sessions.insert(session.id, session);
        self.go_along(along);
        Ok(true)
    }

    /// Looks at every session there is, so that it never has to stop.
    pub(super) fn list_sessions(&self, filter: &SessionFilter, listing: &Listing) -> Page<Session> {
        let wanted = self.sessions.values().filter(|session| filter.wants(session));
        let placed = wanted.map(|session| (session_place(session.id).0, session.clone()));
        listed(placed.collect(), listing)
    }

    pub(super) fn count_sessions(&self, tenant: TenantId, at: Timestamp) -> u64 {
        let own = self.sessions.values().filter(|session| session.tenant() == Some(tenant));
        own.filter(|session| session.is_alive(at)).count() as u64
    }

    pub(super) fn end_sessions(&mut self, which: &EndSessions, along: Along) -> Result<u64> {
        let meant = self.sessions.values().filter(|session| which.wants(session)).count();
        if meant > 0 {
            self.check(&along)?;
            self.sessions.retain(|_, session| !which.wants(session));
            self.go_along(along);
        }
        Ok(meant as u64)
    }

    pub(super) fn prune_sessions(&mut self, before: Timestamp, limit: usize) -> usize {
        let over = self.sessions.values().filter(|session| session.expires_at < before);
        let mut over: Vec<_> = over.map(|session| (session.expires_at, session.id)).collect();
        over.sort_unstable();
        over.truncate(limit);
        over.iter().for_each(|(_, id)| drop(self.sessions.remove(id)));
        over.len()
    }
}
