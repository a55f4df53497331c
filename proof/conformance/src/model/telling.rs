//! What the model tells about itself: operational events, stored with what causes them.

use posthorn_domain::CatalogVersion;
use posthorn_store::{Accepted, Along, CatalogChange, Ending, NewEvent, Refusal, Result};

use super::State;

impl State {
    /// Whether one of the plans is not of the present.
    pub(super) fn is_stale(&self, told: &[NewEvent]) -> bool {
        let present =
            |new: &NewEvent| self.catalog.tenant_version(new.event.tenant) == Some(new.catalog);
        !told.iter().all(present)
    }

    /// Stores what is told. The caller has made sure that the plans are of the present.
    pub(super) fn tell(&mut self, told: Vec<NewEvent>) {
        for new in told {
            let stored = self.accept_one(new);
            debug_assert!(matches!(stored, Accepted::Stored(_)), "{stored:?}");
        }
    }

    /// Tells of the end of something that had looked at, and done, so much.
    pub(super) fn tell_end(
        &mut self,
        ending: Option<Ending>,
        seen: u64,
        done: u64,
    ) -> Result<(), Refusal> {
        let Some(ending) = ending else { return Ok(()) };
        if (ending.seen, ending.done) != (seen, done) || self.is_stale(&ending.told) {
            return Err(Refusal::Stale);
        }
        self.tell(ending.told);
        Ok(())
    }

    /// A change of the catalog, with what goes along with it. What is told belongs to the version before it.
    pub(super) fn change(
        &mut self,
        change: &CatalogChange,
        Along { told, audit }: Along,
    ) -> Result<CatalogVersion> {
        if self.is_stale(&told) {
            return Err(Refusal::Stale.into());
        }
        let before = self.catalog.version();
        let version = self.catalog.change(change)?;
        if version > before {
            self.note(audit);
            for mut new in told {
                // The plan was of the present when the change began, and all of this is one moment.
                let moved = self.catalog.tenant_version(new.event.tenant);
                new.catalog = moved.unwrap_or(new.catalog);
                self.tell(vec![new]);
            }
        }
        Ok(version)
    }
}
