//! The model passes its own suite.

use std::sync::Arc;

use async_trait::async_trait;
use posthorn_testkit::clock::VirtualClock;

use super::Fixture;
use super::push::PushFixture;
use crate::model::ModelStore;
use posthorn_store::{PushStore, Store};

struct Model;

#[async_trait]
impl Fixture for Model {
    async fn store(&self) -> Arc<dyn Store> {
        Arc::new(ModelStore::new(VirtualClock::start()))
    }

    async fn reopen(&self, store: Arc<dyn Store>) -> Arc<dyn Store> {
        store
    }
}

#[async_trait]
impl PushFixture for Model {
    async fn push_store(&self) -> Arc<dyn PushStore> {
        Arc::new(ModelStore::new(VirtualClock::start()))
    }

    async fn peer(&self, store: &Arc<dyn PushStore>) -> Arc<dyn PushStore> {
        Arc::clone(store)
    }

    async fn reopen_push(&self, store: Arc<dyn PushStore>) -> Arc<dyn PushStore> {
        store
    }
}

crate::conformance_suite!(Model);
crate::push_conformance_suite!(Model);
