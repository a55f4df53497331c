//! Opening, refusing to open, and opening again.

use std::path::Path;

use posthorn_conformance::builders::{event, idempotency};
use posthorn_domain::{CatalogVersion, TenantId};
use posthorn_store::schema::Mismatch;
use posthorn_store::{CatalogChange, Error, EventFilter, Listing, NewEvent, Store};
use posthorn_store_sqlite::{OpenError, Options, SqliteStore};
use rusqlite::Connection;

fn open(path: &Path) -> Result<SqliteStore, OpenError> {
    SqliteStore::open(&Options::new(path))
}

#[test]
fn second_open_is_refused_with_the_directory() {
    let directory = tempfile::tempdir().expect("a directory");
    let first = open(directory.path()).expect("the first");
    let second = open(directory.path()).expect_err("the second");
    assert!(matches!(second, OpenError::InUse { .. }), "{second:?}");
    assert!(second.to_string().contains(&directory.path().display().to_string()));
    drop(first);
    open(directory.path()).expect("free again");
}

#[test]
fn unusable_directory_is_refused_with_its_name() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("file");
    std::fs::write(&file, "not a directory").expect("a file");
    for path in [file.clone(), file.join("below")] {
        let refused = open(&path).expect_err("a file is no directory");
        assert!(matches!(refused, OpenError::Directory { .. }), "{refused:?}");
        assert!(refused.to_string().contains(&path.display().to_string()));
    }
}

#[test]
fn other_files_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("posthorn.db"), vec![7; 8192]).expect("a file");
    let refused = open(directory.path()).expect_err("not a database");
    assert!(matches!(refused, OpenError::Sqlite { .. }), "{refused:?}");
}

fn tamper(path: &Path, sql: &str) {
    let conn = Connection::open(path.join("posthorn.db")).expect("the file");
    conn.execute_batch(sql).expect("the change");
}

#[test]
fn changed_or_newer_schema_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    drop(open(directory.path()).expect("a fresh store"));
    open(directory.path()).expect("migrating again does nothing");
    tamper(
        directory.path(),
        "insert into migration (version, checksum, applied_at) values (999, 'later', 0)",
    );
    let newer = open(directory.path()).expect_err("a newer schema");
    let found = matches!(newer, OpenError::Schema(Mismatch::Newer { found: 999, .. }));
    assert!(found, "{newer:?}");
    tamper(
        directory.path(),
        "delete from migration where version = 999; update migration set checksum = 'other'",
    );
    let changed = open(directory.path()).expect_err("a changed migration");
    let found = matches!(changed, OpenError::Schema(Mismatch::Changed { version: 1 }));
    assert!(found, "{changed:?}");
}

/// A group that failed leaves numbers that no row has, and a block may be indexed without them. Who got them after a
/// restart would be in no list.
#[tokio::test]
async fn numbers_of_indexed_blocks_are_not_given_out_again() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(directory.path()).expect("a fresh store");
    let tenant = posthorn_conformance::builders::tenant();
    let change = CatalogChange::CreateTenant(tenant.clone());
    let catalog = store.change_catalog(change).await.expect("a tenant");
    store.close().await.expect("close");
    drop(store);
    tamper(directory.path(), "insert into block (list, no, first_at, last_at, stale)
        select list, no, 0, 0, 0 from (select 1 as list union select 2 union select 3 union select 0),
        (select 0 as no union select 1)");
    let store = open(directory.path()).expect("the same store");
    let event = event(tenant.id);
    let id = event.id;
    let new = NewEvent { event: event.into(), idempotency: None, catalog, deliveries: vec![] };
    store.accept(vec![new]).await.expect("accept");
    let list = store.events(tenant.id, EventFilter::default(), Listing::newest(10)).await;
    let list: Vec<_> = list.expect("a list").items.iter().map(|event| event.id).collect();
    assert_eq!(list, [id]);
}

#[tokio::test]
async fn everything_is_there_after_closing() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = open(directory.path()).expect("a fresh store");
    let tenant = posthorn_conformance::builders::tenant();
    let change = CatalogChange::CreateTenant(tenant.clone());
    let catalog = store.change_catalog(change).await.expect("a tenant");
    let mut ids = Vec::new();
    for number in 0..50 {
        let event = event(tenant.id);
        ids.push(event.id);
        let new = NewEvent {
            event: event.into(),
            idempotency: Some(idempotency(&number.to_string(), 1)),
            catalog,
            deliveries: vec![],
        };
        store.accept(vec![new]).await.expect("accept");
    }
    store.close().await.expect("close");
    let again = store.close().await;
    assert!(again.is_ok(), "closing twice is fine");
    assert!(matches!(store.ping().await, Err(Error::Unavailable { .. })));

    let store = open(directory.path()).expect("the same store");
    for id in ids {
        assert!(store.event(tenant.id, id).await.expect("a lookup").is_some());
    }
    let delta = store.catalog_since(CatalogVersion(0)).await.expect("the catalog");
    assert_eq!(delta.tenants.len(), 2);
    assert_eq!(delta.tenants[0].tenant.id, TenantId::DEFAULT);
    assert_eq!(store.counts(None).await.expect("counts").events, 50);
}
