//! Payloads that are removed while others bring deliveries back, make some or forget some.

use std::sync::Arc;

use posthorn_conformance::builders::{Setting, at, dead_skip, delivered};
use posthorn_domain::{DeliveryId, Event, EventId, ReplayStatus, Timestamp};
use posthorn_store::{
    Bite, DeliveryFilter, Error, Expunges, Listing, Prune, Refusal, StateKind, Store,
};

use crate::fixture::{Databases, connect, raw};
use crate::jobs::{bite, deadlocks, job, redelivery, until_waiting};

async fn expunge(store: &dyn Store, setting: &Setting, id: EventId) -> Result<Event, Error> {
    store.expunge_event(setting.tenant, id, true, at(9)).await
}

/// One that came back and ended again while the row was waited for is nobody's to rely on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_could_not_be_held_counts_as_unfinished() {
    let databases = Databases::default();
    let setting = Setting::new(&databases).await;
    let url = databases.url_of(&setting.store);
    let to = setting.subscribe().await;
    let published = setting.publish(&[(to, None)]).await;
    let (event, tenant) = (published.event.id, setting.tenant);
    setting.record(published.deliveries[0], delivered(), at(5)).await;
    let mut client = raw(&url).await;
    let moving = client.transaction().await.expect("a transaction");
    let text = "with old as (delete from delivery_done returning *) \
                insert into delivery_done select * from old";
    moving.execute(text, &[]).await.expect("a new row of the same name");
    let store = connect(&url).await;
    let waits = tokio::spawn(async move { store.expunge_event(tenant, event, false, at(9)).await });
    until_waiting(&raw(&url).await, 1).await;
    moving.commit().await.expect("moved");
    let refused = waits.await.expect("an answer");
    assert!(matches!(refused, Err(Error::Refused(Refusal::Unfinished))), "{refused:?}");
    let gone = expunge(&*setting.store, &setting, event).await.expect("nobody is in the way");
    assert!(gone.payload.is_empty());
}

/// Whoever brings a delivery back while its event is expunged finds that out when it holds the row.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waited_for_an_expunge_brings_nothing_back() {
    let databases = Databases::default();
    let setting = Setting::new(&databases).await;
    let url = databases.url_of(&setting.store);
    let (to, new) = (setting.subscribe().await, setting.subscribe().await);
    let published = setting.publish(&[(to, None)]).await;
    let (event, id, tenant) = (published.event.id, published.deliveries[0], setting.tenant);
    setting.record(id, dead_skip(), at(5)).await;
    let mut client = raw(&url).await;
    let removing = client.transaction().await.expect("a transaction");
    let text = "select from delivery_done for update";
    removing.execute(text, &[]).await.expect("the delivery");
    let text = "update event set payload = '', expunged_at = 9";
    removing.execute(text, &[]).await.expect("the event");
    let store = connect(&url).await;
    let retried = tokio::spawn(async move { store.retry_delivery(tenant, id, at(10)).await });
    let store = connect(&url).await;
    let again = tokio::spawn(async move {
        let job = job(tenant);
        store.create_job(job.clone(), None, Vec::new()).await.expect("a job");
        let deeds = [to, new].map(|whose| redelivery(event, whose, ReplayStatus::All));
        store.advance_job(bite(job.id, deeds.into_iter().collect(), at(10))).await
    });
    until_waiting(&raw(&url).await, 2).await;
    removing.commit().await.expect("removed");
    let retried = retried.await.expect("an answer");
    assert!(matches!(retried, Err(Error::Refused(Refusal::Expunged))), "{retried:?}");
    assert_eq!(again.await.expect("an answer").expect("advances").done, 0);
    let counts = setting.store.counts(Some(tenant)).await.expect("counts");
    assert_eq!((counts.dead, counts.pending), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn everybody_at_once_leaves_nothing_half_done() {
    let databases = Databases::default();
    let setting = Setting::new(&databases).await;
    let url = databases.url_of(&setting.store);
    let (to, new) = (setting.subscribe().await, setting.subscribe().await);
    let mut all: Vec<(EventId, DeliveryId)> = Vec::new();
    for _ in 0..60 {
        let published = setting.publish(&[(to, None)]).await;
        setting.record(published.deliveries[0], dead_skip(), at(5)).await;
        all.push((published.event.id, published.deliveries[0]));
    }
    let (all, tenant) = (Arc::new(all), setting.tenant);
    let mut tasks = Vec::new();
    for kind in 0..5 {
        let (store, all) = (connect(&url).await, Arc::clone(&all));
        tasks.push(tokio::spawn(async move {
            let run = async |bite: Bite| store.advance_job(bite).await.expect("advances");
            let job = job(tenant);
            store.create_job(job.clone(), None, Vec::new()).await.expect("a job");
            match kind {
                0 => {
                    let events = all.iter().rev().map(|(event, _)| *event).collect();
                    let expunges = Some(Expunges { events, responses: true });
                    run(Bite { expunges, ..bite(job.id, Vec::new(), at(9)) }).await;
                }
                1 => {
                    for (event, _) in all.iter() {
                        drop(store.expunge_event(tenant, *event, true, at(9)).await);
                    }
                }
                2 => {
                    for (_, id) in all.iter().rev() {
                        drop(store.retry_delivery(tenant, *id, at(10)).await);
                    }
                }
                3 => {
                    let deeds = all.iter().flat_map(|(event, _)| {
                        [to, new].map(|whose| redelivery(*event, whose, ReplayStatus::All))
                    });
                    run(bite(job.id, deeds.collect(), at(10))).await;
                }
                _ => {
                    for (_, id) in all.iter().step_by(5) {
                        drop(store.forget_delivery(tenant, *id, at(11)).await);
                    }
                    let prune = Prune {
                        now: at(7),
                        ended_before: at(7),
                        dead_before: at(7),
                        keys_before: Timestamp::MIN,
                        recalls_before: Timestamp::MIN,
                        audit_before: Timestamp::MIN,
                        limit: 3,
                    };
                    store.prune(prune).await.expect("prunes");
                }
            }
        }));
    }
    for task in tasks {
        task.await.expect("a task");
    }
    let (mut gone, mut kept) = (0, 0);
    for (id, _) in all.iter() {
        let found = setting.store.event(tenant, *id).await.expect("answers");
        let Some(event) = found else { continue };
        let state = Some(StateKind::Pending);
        let filter = DeliveryFilter { event: Some(*id), state, ..DeliveryFilter::default() };
        let pending = setting.store.deliveries(tenant, filter, Listing::newest(5)).await;
        let pending = pending.expect("a page").items.len();
        assert_eq!(event.payload.is_empty(), event.expunged_at.is_some());
        match event.expunged_at {
            Some(_) => gone += usize::from(pending == 0),
            None => kept += 1,
        }
        assert!(event.expunged_at.is_none() || pending == 0, "{id} waits without a payload");
    }
    assert!(gone + kept > 40, "{gone} {kept}");
    assert_eq!(connect(&url).await.recount().await.expect("a count"), 0);
    drop(setting);
    assert_eq!(deadlocks(&url).await, 0);
}
