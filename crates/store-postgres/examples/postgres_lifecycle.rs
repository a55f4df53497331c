//! How many deliveries go through the store in a second: accepted, then recorded as delivered.
//!
//! ```text
//! cargo run --release -p posthorn-store-postgres --example postgres_lifecycle -- \
//!     [seconds=10] [batch=250] [workers=4] [ordered=0] [url=postgres://…]
//! ```
//! Without a URL it starts a durable server of its own. Next to its figure it prints that of a bare
//! table on the same server: the same payloads, inserted in batches of the same size, one index.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use posthorn_domain::delivery::{Step, SubscriptionEffect};
use posthorn_domain::filter::{AttributeNames, Group, MissingAttribute};
use posthorn_domain::{
    Attempt, CatalogVersion, DeliveryId, DeliveryState, Destination, Event, EventId, EventType,
    Fence, Filter, Lane, LaneKey, NodeId, ProfileName, Shard, Span, Stops, Subscription,
    SubscriptionId, SubscriptionStatus, TenantId, Timestamp, TopicName,
};
use posthorn_store::{
    Accepted, CatalogChange, Grant, NewDelivery, NewEvent, Record, Recorded, Store,
};
use posthorn_store_postgres::{Options, PostgresStore};
use posthorn_testkit::postgres::TestPostgres;
use tokio::time::Instant;

const PAYLOAD_BYTES: usize = 1024;
const SUBSCRIPTIONS: usize = 100;

struct Settings {
    seconds: u64,
    batch: usize,
    workers: usize,
    ordered: bool,
    url: Option<String>,
}

impl Settings {
    fn read() -> Self {
        let mut settings = Self { seconds: 10, batch: 250, workers: 4, ordered: false, url: None };
        for argument in std::env::args().skip(1) {
            let (name, value) = argument.split_once('=').expect("name=value");
            let number = || value.parse::<u64>().expect("a number");
            match name {
                "seconds" => settings.seconds = number(),
                "batch" => settings.batch = number() as usize,
                "workers" => settings.workers = number() as usize,
                "ordered" => settings.ordered = number() != 0,
                "url" => settings.url = Some(value.to_owned()),
                other => panic!("unknown argument {other}"),
            }
        }
        settings
    }
}

/// Everything a worker needs.
struct Bench {
    store: PostgresStore,
    settings: Settings,
    node: NodeId,
    subscriptions: Vec<SubscriptionId>,
    grants: HashMap<Shard, Grant>,
    catalog: CatalogVersion,
    payload: Bytes,
    unique: AtomicU64,
    done: AtomicU64,
    promoted: AtomicU64,
    accept_micros: AtomicU64,
    record_micros: AtomicU64,
}

#[expect(clippy::disallowed_methods, reason = "a bench has no clock to be handed")]
fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    Timestamp::from_millis(since.as_millis() as i64)
}

fn subscription(id: SubscriptionId) -> Subscription {
    Subscription {
        id,
        tenant: TenantId::DEFAULT,
        name: None,
        description: String::new(),
        labels: posthorn_domain::Labels::default(),
        metadata: posthorn_domain::Metadata::default(),
        destination: Destination::Webhook { url: "https://example.test/".to_owned() },
        filter: Filter {
            any_of: vec![Group::default()],
            missing_attribute: MissingAttribute::default(),
            attribute_names: AttributeNames::default(),
        },
        profile: ProfileName::new("default").expect("a name"),
        overrides: serde_json::Value::Null,
        secrets: Vec::new(),
        status: SubscriptionStatus::Active,
        stops: Stops::default(),
        created_at: now(),
        updated_at: now(),
        version: CatalogVersion(0),
    }
}

impl Bench {
    async fn new(url: &str, settings: Settings) -> Self {
        let store = PostgresStore::connect(Options::new(url)).await.expect("a connection");
        let mut catalog = CatalogVersion(0);
        let mut subscriptions = Vec::new();
        let began = now();
        for number in 0..SUBSCRIPTIONS {
            let id = SubscriptionId::new(began, number as u128);
            let change = CatalogChange::CreateSubscription(Box::new(subscription(id)));
            catalog = store.change_catalog(change).await.expect("a subscription");
            subscriptions.push(id);
        }
        let node = NodeId::new(began, 1);
        let shards: Vec<Shard> = Shard::all().collect();
        let grants = store.acquire_shards(node, &shards, Duration::from_secs(3600)).await;
        let grants = grants.expect("shards").into_iter().map(|g| (g.shard, g)).collect();
        let payload = Bytes::from((0..PAYLOAD_BYTES).map(|n| (n * 7919) as u8).collect::<Vec<_>>());
        Self {
            store,
            settings,
            node,
            subscriptions,
            grants,
            catalog,
            payload,
            unique: AtomicU64::new(1),
            done: AtomicU64::new(0),
            promoted: AtomicU64::new(0),
            accept_micros: AtomicU64::new(0),
            record_micros: AtomicU64::new(0),
        }
    }

    fn new_event(&self) -> NewEvent {
        let number = self.unique.fetch_add(1, Ordering::Relaxed);
        let at = now();
        // Random enough: ids of one millisecond must not come in order.
        let random = u128::from(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 10;
        let event = Event {
            id: EventId::new(at, random),
            tenant: TenantId::DEFAULT,
            topic: TopicName::new("orders").expect("a name"),
            event_type: EventType::new("order.created").expect("a type"),
            attributes: BTreeMap::new(),
            key: None,
            content_type: "application/json".to_owned(),
            payload: self.payload.clone(),
            accepted_at: at,
            publisher_id: None,
            deliver_at: None,
            retention: None,
            expunged_at: None,
            trace: None,
        };
        let lane = self
            .settings
            .ordered
            .then(|| Lane::Key(LaneKey::new(&format!("user-{}", number % 10_000)).expect("a key")));
        let delivery = NewDelivery {
            id: DeliveryId::new(at, random),
            subscription: self.subscriptions[number as usize % SUBSCRIPTIONS],
            lane,
            due_at: at,
        };
        NewEvent {
            event: Arc::new(event),
            idempotency: None,
            catalog: self.catalog,
            deliveries: vec![delivery],
        }
    }

    fn delivered(&self, id: DeliveryId, subscription: SubscriptionId) -> Record {
        let shard = Shard::of(subscription);
        let step = Step {
            state: DeliveryState::Delivered,
            due_at: Timestamp::MAX,
            charge: true,
            release_lane: true,
            subscription: SubscriptionEffect::None,
        };
        let attempt = Attempt {
            delivery: id,
            number: 1,
            started_at: now(),
            took: Span::from_millis(12),
            timings: posthorn_domain::Timings::default(),
            status: Some(200),
            failure: None,
            detail: String::new(),
            response: Bytes::from_static(b"ok"),
            late: false,
            manual: false,
            response_expunged_at: None,
            request: None,
        };
        Record {
            fence: Fence { shard, epoch: self.grants[&shard].epoch, node: self.node },
            tenant: TenantId::DEFAULT,
            delivery: id,
            expected_attempts: 0,
            expected_revival: 0,
            ordered: true,
            step,
            attempt: Some(attempt),
            standing: None,
            told: Vec::new(),
            at: now(),
        }
    }

    async fn work(self: Arc<Self>, until: Instant) {
        let mut waiting: Vec<(DeliveryId, SubscriptionId)> = Vec::new();
        while Instant::now() < until {
            let batch: Vec<NewEvent> = (0..self.settings.batch).map(|_| self.new_event()).collect();
            let plans: Vec<NewDelivery> =
                batch.iter().flat_map(|new| new.deliveries.clone()).collect();
            let began = Instant::now();
            let replies = self.store.accept(batch).await.expect("accept");
            self.accept_micros.fetch_add(began.elapsed().as_micros() as u64, Ordering::Relaxed);
            for (reply, plan) in replies.iter().zip(plans) {
                let Accepted::Stored(placed) = reply else { panic!("{reply:?}") };
                if !placed[0].parked {
                    waiting.push((plan.id, plan.subscription));
                }
            }
            let records: Vec<Record> =
                waiting.drain(..).map(|(id, to)| self.delivered(id, to)).collect();
            let began = Instant::now();
            let replies = self.store.record(records).await.expect("record");
            self.record_micros.fetch_add(began.elapsed().as_micros() as u64, Ordering::Relaxed);
            self.done.fetch_add(replies.len() as u64, Ordering::Relaxed);
            for reply in replies {
                let Recorded::Written { promoted } = reply else { panic!("{reply:?}") };
                if let Some(work) = promoted {
                    self.promoted.fetch_add(1, Ordering::Relaxed);
                    waiting.push((work.delivery.id, work.delivery.subscription));
                }
            }
        }
    }
}

/// Rows a second into a table with the payload and one index.
async fn bare(url: &str, settings: &Settings, payload: &Bytes) -> f64 {
    let connect = || async {
        let (client, connection) =
            tokio_postgres::connect(url, tokio_postgres::NoTls).await.expect("a connection");
        tokio::spawn(connection);
        client
    };
    let client = connect().await;
    let table = "create table bare (id int8 primary key, payload bytea not null)";
    client.batch_execute(table).await.expect("a table");
    client.batch_execute("create sequence bare_seq").await.expect("a sequence");
    let (began, until) =
        (Instant::now(), Instant::now() + Duration::from_secs(settings.seconds / 3 + 1));
    let workers: Vec<_> = (0..settings.workers)
        .map(|_| {
            let (payload, batch, url) = (payload.clone(), settings.batch, url.to_owned());
            tokio::spawn(async move {
                let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls)
                    .await
                    .expect("a connection");
                tokio::spawn(connection);
                let text = "insert into bare \
                            select nextval('bare_seq'), p from unnest($1::bytea[]) as p";
                let insert = client.prepare(text).await.expect("a statement");
                let mut rows = 0;
                while Instant::now() < until {
                    let payloads = vec![&payload[..]; batch];
                    rows += client.execute(&insert, &[&payloads]).await.expect("an insert");
                }
                rows
            })
        })
        .collect();
    let mut rows = 0;
    for worker in workers {
        rows += worker.await.expect("a worker");
    }
    client.batch_execute("drop table bare; drop sequence bare_seq").await.expect("a drop");
    rows as f64 / began.elapsed().as_secs_f64()
}

#[tokio::main]
async fn main() {
    let settings = Settings::read();
    let server = match settings.url {
        Some(_) => None,
        None => Some(TestPostgres::start().expect("a server")),
    };
    let url = match (&settings.url, &server) {
        (Some(url), _) => url.clone(),
        (None, Some(server)) => server.create_database("bench").expect("a database"),
        (None, None) => unreachable!("one of the two is there"),
    };
    let bench = Arc::new(Bench::new(&url, settings).await);
    let bare = bare(&url, &bench.settings, &bench.payload).await;
    let began = Instant::now();
    let until = began + Duration::from_secs(bench.settings.seconds);
    let workers: Vec<_> =
        (0..bench.settings.workers).map(|_| tokio::spawn(Arc::clone(&bench).work(until))).collect();
    for worker in workers {
        worker.await.expect("a worker");
    }
    let took = began.elapsed().as_secs_f64();
    bench.store.depart(bench.node).await.expect("the shards are free for the next run");
    let done = bench.done.load(Ordering::Relaxed);
    let rate = done as f64 / took;
    let batches = done.max(1) as f64 / bench.settings.batch as f64;
    let mean = |total: &AtomicU64| total.load(Ordering::Relaxed) as f64 / batches / 1000.0;
    #[expect(clippy::print_stdout, reason = "a bench prints its result")]
    {
        println!(
            "{rate:.0} life cycles/s, {:.0} % of a bare table ({bare:.0} rows/s); \
             batch {}, {} workers, ordered: {}, promoted {}; accept {:.1} ms, record {:.1} ms",
            rate / bare * 100.0,
            bench.settings.batch,
            bench.settings.workers,
            bench.settings.ordered,
            bench.promoted.load(Ordering::Relaxed),
            mean(&bench.accept_micros),
            mean(&bench.record_micros),
        );
    }
}
