//! What a system demands of the events on its topic, or adds to them, before they are accepted.
//!
//! A dialect knows its own events: which field nobody can do without, which one is filled in when it is
//! missing. It says so once, when it starts, and it holds for every way in: the native API, batches,
//! commands, and events that are published again.

use std::sync::Arc;

use parking_lot::RwLock;
use posthorn_domain::{TenantId, TopicName};

use crate::catalog::Catalog;
use crate::error::Result;
use crate::intake::Publish;

/// Looks at an event before it is accepted. Called for every publish on its topic, so it must be quick and
/// must not wait for anything.
pub trait Preparation: Send + Sync + 'static {
    /// Fills in what is missing, or refuses the event with [`crate::Error::Event`].
    fn prepare(&self, catalog: &Catalog, publish: &mut Publish) -> Result<()>;
}

struct Entry {
    tenant: TenantId,
    topic: TopicName,
    preparation: Arc<dyn Preparation>,
}

/// All of them: one for a topic, and few topics have one.
#[derive(Default)]
pub(crate) struct Preparations(RwLock<Vec<Entry>>);

impl Preparations {
    /// From now on events on this topic go through it, instead of what was there before.
    pub(crate) fn put(
        &self,
        tenant: TenantId,
        topic: TopicName,
        preparation: Arc<dyn Preparation>,
    ) {
        let mut entries = self.0.write();
        entries.retain(|entry| (entry.tenant, &entry.topic) != (tenant, &topic));
        entries.push(Entry { tenant, topic, preparation });
    }

    pub(crate) fn apply(
        &self,
        tenant: TenantId,
        catalog: &Catalog,
        publish: &mut Publish,
    ) -> Result<()> {
        let entries = self.0.read();
        let own =
            entries.iter().find(|entry| entry.tenant == tenant && entry.topic == publish.topic);
        let Some(preparation) = own.map(|entry| Arc::clone(&entry.preparation)) else {
            return Ok(());
        };
        drop(entries);
        preparation.prepare(catalog, publish)
    }
}
