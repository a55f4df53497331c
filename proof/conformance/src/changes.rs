//! Changes of the catalog, as the cases make them, and what they look at afterwards.

use std::fmt::Debug;

use posthorn_domain::CatalogVersion;

use super::builders::Setting;
use posthorn_store::{CatalogChange, CatalogDelta, Error, Refusal, Result};

pub(super) async fn change(setting: &Setting, change: CatalogChange) -> Result<CatalogVersion> {
    setting.store.change_catalog(change).await
}

pub(super) async fn since(setting: &Setting, version: CatalogVersion) -> CatalogDelta {
    setting.store.catalog_since(version).await.expect("a delta")
}

/// Something was refused, for this reason.
#[track_caller]
pub(super) fn refused<T: Debug>(result: Result<T>, why: Refusal) {
    match result {
        Err(Error::Refused(refusal)) => assert_eq!(refusal, why),
        other => panic!("refused with {why:?}, not {other:?}"),
    }
}
