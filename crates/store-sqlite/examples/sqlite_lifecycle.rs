//! How many deliveries per second go through the whole life cycle: accept with a 1 KiB payload,
//! then record delivered with one attempt, in batches.
//!
//! `cargo run --release -p posthorn-store-sqlite --example sqlite_lifecycle [deliveries] [batch]
//! [tasks] [backlog] [checkpoint MiB]`. The database is made in `TMPDIR`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use posthorn_conformance::builders::{
    LONG, all_shards, at, attempt, delivered, delivery, event, node, subscription,
};
use posthorn_domain::{
    CatalogVersion, Event, Fence, NodeId, Shard, SubscriptionId, TenantId, Timestamp,
};
use posthorn_store::{
    CatalogChange, DeliveryFilter, Grant, Listing, NewEvent, PendingAsk, Record, Recorded, Store,
};
use posthorn_store_sqlite::{Options, SqliteStore};

const SUBSCRIPTIONS: usize = 100;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default: usize| {
        arguments.get(index).and_then(|text| text.parse().ok()).unwrap_or(default)
    };
    let (deliveries, batch, tasks) = (number(0, 400_000), number(1, 250), number(2, 4));
    let directory = tempfile::tempdir()?;
    let mut options = Options::new(directory.path());
    options.checkpoint_bytes = (number(4, 16) as u64) << 20;
    let bench = Arc::new(Bench::new(&options).await?);

    let began = Instant::now();
    let each = deliveries / tasks / batch;
    let mut running = Vec::new();
    for task in 0..tasks {
        let bench = Arc::clone(&bench);
        running.push(tokio::spawn(async move { bench.run(task, each, batch).await }));
    }
    let mut slowest = Vec::new();
    for task in running {
        slowest.extend(task.await?);
    }
    report("life cycle", each * tasks * batch, began.elapsed());
    slowest.sort_unstable();
    println!(
        "  one batch of {batch}: p50 {:?}, p99 {:?}, max {:?}",
        slowest[slowest.len() / 2],
        slowest[slowest.len() * 99 / 100],
        slowest[slowest.len() - 1],
    );
    bench.backlog(number(3, 1_000_000), batch).await?;
    bench.store.close().await?;
    let bytes = std::fs::metadata(directory.path().join("posthorn.db"))?.len();
    println!("file: {} MiB", bytes >> 20);
    Ok(())
}

fn report(what: &str, count: usize, took: Duration) {
    println!("{what}: {count} in {took:.2?}, {:.0}/s", count as f64 / took.as_secs_f64());
}

struct Bench {
    store: SqliteStore,
    subscriptions: Vec<SubscriptionId>,
    catalog: CatalogVersion,
    node: NodeId,
    grants: Vec<Grant>,
    payload: Bytes,
}

impl Bench {
    async fn new(options: &Options) -> Result<Self, Box<dyn std::error::Error>> {
        let store = SqliteStore::open(options)?;
        let (mut subscriptions, mut catalog) = (Vec::new(), CatalogVersion(0));
        for _ in 0..SUBSCRIPTIONS {
            let subscription = subscription(TenantId::DEFAULT);
            subscriptions.push(subscription.id);
            let change = CatalogChange::CreateSubscription(Box::new(subscription));
            catalog = store.change_catalog(change).await?;
        }
        let node = node();
        let grants = store.acquire_shards(node, &all_shards(), LONG).await?;
        let payload = Bytes::from(vec![b'x'; 1024]);
        Ok(Self { store, subscriptions, catalog, node, grants, payload })
    }

    fn batch(&self, to: impl Fn(usize) -> SubscriptionId, count: usize) -> Vec<NewEvent> {
        let event = || Event { payload: self.payload.clone(), ..event(TenantId::DEFAULT) };
        (0..count)
            .map(|index| NewEvent {
                event: Arc::new(event()),
                idempotency: None,
                catalog: self.catalog,
                deliveries: vec![delivery(to(index), None)],
            })
            .collect()
    }

    fn fence(&self, of: SubscriptionId) -> Fence {
        let shard = Shard::of(of);
        let epoch = self.grants[usize::from(shard.number())].epoch;
        Fence { shard, epoch, node: self.node }
    }

    /// Publishes and delivers batches; how long each took.
    async fn run(&self, task: usize, batches: usize, size: usize) -> Vec<Duration> {
        let mut times = Vec::with_capacity(batches);
        for round in 0..batches {
            let to = |index| self.subscriptions[(task + round + index) % SUBSCRIPTIONS];
            let batch = self.batch(to, size);
            let records: Vec<Record> = batch
                .iter()
                .map(|new| Record {
                    fence: self.fence(new.deliveries[0].subscription),
                    tenant: new.event.tenant,
                    delivery: new.deliveries[0].id,
                    expected_attempts: 0,
                    expected_revival: 0,
                    ordered: true,
                    step: delivered(),
                    attempt: Some(attempt(new.deliveries[0].id, 1, 200)),
                    standing: None,
                    told: Vec::new(),
                    at: at(1),
                })
                .collect();
            let began = Instant::now();
            self.store.accept(batch).await.expect("accept");
            let replies = self.store.record(records).await.expect("record");
            times.push(began.elapsed());
            assert!(replies.iter().all(|reply| matches!(reply, Recorded::Written { .. })));
        }
        times
    }

    /// One subscription with a long backlog: what finding work costs.
    async fn backlog(&self, count: usize, batch: usize) -> posthorn_store::Result<()> {
        let slow = self.subscriptions[0];
        let began = Instant::now();
        for _ in 0..count / (batch * 4) {
            self.store.accept(self.batch(|_| slow, batch * 4)).await?;
        }
        report("backlog for one subscription", count, began.elapsed());
        let began = Instant::now();
        let due = self.store.due_subscriptions(&all_shards()).await?;
        println!("  due_subscriptions: {} in {:.2?}", due.len(), began.elapsed());
        let ask = PendingAsk {
            subscription: slow,
            from: Timestamp::MIN,
            until: Timestamp::MAX,
            limit: 256,
        };
        let began = Instant::now();
        let works = self.store.pending(vec![ask], usize::MAX).await?;
        println!("  pending: {} in {:.2?}", works[0].len(), began.elapsed());
        let subscription = Some(self.subscriptions[1]);
        let filter = DeliveryFilter { subscription, ..DeliveryFilter::default() };
        let began = Instant::now();
        let page = self.store.deliveries(TenantId::DEFAULT, filter, Listing::newest(50)).await?;
        println!("  page behind the backlog: {} in {:.2?}", page.items.len(), began.elapsed());
        let began = Instant::now();
        let counts = self.store.counts(None).await?;
        println!("  counts: {} deliveries in {:.2?}", counts.deliveries(), began.elapsed());
        Ok(())
    }
}
