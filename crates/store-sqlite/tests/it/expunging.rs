//! What is removed is gone from the file, not only from answers.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use posthorn_conformance::builders::{Setting, at, attempt, delivered, delivery, node};
use posthorn_domain::{Attempt, Event, TenantId};
use posthorn_store_sqlite::{Options, SqliteStore, files};

const SECRET: &[u8] = b"4929-leaked-number";

/// How often the secret is on the disk.
fn found(path: &Path) -> usize {
    let read = |file| std::fs::read(file).unwrap_or_default();
    let count = |bytes: Vec<u8>| bytes.windows(SECRET.len()).filter(|part| *part == SECRET).count();
    files(path).into_iter().map(|file| count(read(file))).sum()
}

/// A payload or a response that says it often; a long one has pages of its own.
fn secrets(times: usize) -> Bytes {
    Bytes::from(SECRET.repeat(times))
}

#[tokio::test]
async fn nothing_of_it_is_left_in_the_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path();
    let open = || Arc::new(SqliteStore::open(&Options::new(path)).expect("the store opens"));
    let store = open();
    let setting = Setting::on(Arc::clone(&store) as _, TenantId::DEFAULT, node()).await;
    let to = setting.subscribe().await;
    let mut events = Vec::new();
    // Neighbours that stay keep the pages of rows in use.
    for times in [1, 20, 5_000, 0, 1, 60, 0] {
        let mut new = setting.planned(vec![delivery(to, None)]).await;
        let payload = if times == 0 { Bytes::from_static(b"{}") } else { secrets(times) };
        new.event = Arc::new(Event { payload, ..Event::clone(&new.event) });
        let published = setting.accept(new).await;
        let id = published.deliveries[0];
        let mut report = setting.report(id, delivered(), at(5)).await;
        report.attempt = Some(Attempt { response: secrets(times), ..attempt(id, 1, 200) });
        setting.record_one(report).await;
        events.push((published.event.id, times));
    }
    drop(setting);
    store.close().await.expect("closes");
    assert!(found(path) > 10_000, "it is there in plain");

    let store = open();
    let setting = Setting::on(Arc::clone(&store) as _, TenantId::DEFAULT, node()).await;
    for (event, _) in events.iter().filter(|(_, times)| *times > 0) {
        let gone = setting.store.expunge_event(TenantId::DEFAULT, *event, true, at(9)).await;
        gone.expect("expunged");
    }
    drop(setting);
    store.close().await.expect("closes");
    assert_eq!(found(path), 0);
    let store = open();
    let setting = Setting::on(Arc::clone(&store) as _, TenantId::DEFAULT, node()).await;
    let (kept, _) = events[3];
    let kept = setting.store.event(TenantId::DEFAULT, kept).await.expect("answers");
    assert_eq!(kept.expect("it stays").payload, "{}");
}
