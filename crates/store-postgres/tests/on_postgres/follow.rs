//! Following the log of several nodes: what commits late is not missed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use posthorn_conformance::builders::Setting;
use posthorn_domain::EventId;
use posthorn_store::{FollowAsk, LogPlace};

use crate::fixture::{Databases, connect, raw};

async fn page(
    setting: &Setting,
    after: Option<LogPlace>,
    limit: usize,
) -> (Vec<EventId>, LogPlace) {
    let ask = FollowAsk { tenants: vec![setting.tenant], after, since: None, limit };
    let page = setting.store.events_after(ask).await.expect("a page");
    (page.items.iter().map(|item| item.item.event.id).collect(), page.last)
}

/// A transaction that began first and commits last may still write: nobody is shown what is younger, and so nothing
/// can appear behind a reader.
#[tokio::test]
async fn nothing_is_shown_before_what_is_older() {
    let databases = Databases::default();
    let setting = Setting::new(&databases).await;
    let client = raw(&databases.url_of(&setting.store)).await;
    let (_, mut after) = page(&setting, None, 1).await;
    client.batch_execute("begin; select pg_current_xact_id()").await.expect("a transaction");
    let event = setting.publish(&[]).await.event.id;
    for _ in 0..3 {
        let (found, last) = page(&setting, Some(after), 10).await;
        assert_eq!(found, [], "an older transaction is still running");
        after = last;
    }
    client.batch_execute("commit").await.expect("its end");
    // Other tests of this server have transactions of their own.
    for _ in 0..1_000 {
        let (found, last) = page(&setting, Some(after), 10).await;
        after = last;
        if found == [event] {
            return;
        }
        assert_eq!(found, []);
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("it was never shown");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_sees_what_several_nodes_take_in_once() {
    let databases = Databases::default();
    let setting = Setting::new(&databases).await;
    let url = databases.url_of(&setting.store);
    let (_, mut after) = page(&setting, None, 1).await;
    let mut writers = Vec::new();
    for _ in 0..4 {
        let mut own = Setting::on(Arc::clone(&setting.store), setting.tenant, setting.node).await;
        own.store = Arc::new(connect(&url).await);
        writers.push(tokio::spawn(async move {
            let mut ids = Vec::new();
            for _ in 0..50 {
                ids.push(own.publish(&[]).await.event.id);
            }
            ids
        }));
    }
    let mut found = Vec::new();
    while found.len() < 200 {
        let (more, last) = page(&setting, Some(after), 7).await;
        assert!(last >= after, "never back");
        after = last;
        if more.is_empty() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        found.extend(more);
    }
    let mut published = BTreeSet::new();
    for writer in writers {
        published.extend(writer.await.expect("a writer"));
    }
    assert_eq!(found.len(), 200);
    assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), published);
}
