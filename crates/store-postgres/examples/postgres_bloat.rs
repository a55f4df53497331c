//! Whether tables and indexes stay as large as what is in them, when history comes and goes for days.
//!
//! ```text
//! cargo run --release -p posthorn-store-postgres --example postgres_bloat -- \
//!     [events=1000000] [days=2] [json=0] [naptime=1] [url=postgres://…]
//! ```
//! Time is virtual. A week is filled with `events`, as many in each hour. Then `days` more days go by at the same pace: each hour publishes,
//! delivers, tries again what failed in the hour before, gives signs of life, and removes what is older than a week, as the server's
//! upkeep does. After each hour it asks the database how large everything is. It ends with 1 when a table grew from the first of
//! these days to the last, though there is as much in it.
//!
//! An hour takes seconds here, so the autovacuum of its own server looks every `naptime` seconds instead of every minute. On a server that it did not
//! start (`url`, an empty database) it changes no setting.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use posthorn_conformance::builders::{
    Setting, attempt, delivered, event, failed, idempotency, lane, subscription,
};
use posthorn_domain::delivery::Step;
use posthorn_domain::{
    Attempt, CatalogVersion, DeliveryId, Event, EventId, NodeId, SubscriptionId, TenantId,
    Timestamp,
};
use posthorn_store::{
    Accepted, CatalogChange, Heartbeat, NewDelivery, NewEvent, Prune, Record, Recorded, Store,
};
use posthorn_store_postgres::{Options, PostgresStore};
use posthorn_testkit::postgres::TestPostgres;
use serde_json::{Value, json};
use tokio_postgres::{Client, NoTls};

/// 2024-01-01, the first day of the history.
const BEGIN: i64 = 1_704_067_200_000;
const HOUR: i64 = 3_600_000;
/// How long events are kept.
const WEEK: i64 = 7 * 24 * HOUR;
/// How long keys of idempotency are kept.
const KEYS: i64 = 2 * 24 * HOUR;
const PAYLOAD_BYTES: usize = 1024;
const SUBSCRIPTIONS: u128 = 100;
/// Events of one transaction.
const BATCH: u64 = 250;
/// One in so many has a lane, and one in so many fails at first.
const ORDERED: u64 = 10;
const FAILS: u64 = 10;
/// A sign of life for so many events, and at most so many in an hour; a real one has 3,600.
const EVENTS_PER_BEAT: u64 = 100;
const BEATS_MAX: u64 = 60;
/// What a table may grow by from the first day to the last: a day that is begun is not yet removed.
const GROWTH_MAX: f64 = 1.2;
/// Tables below this are not judged: a few pages more or less say nothing.
const JUDGED_BYTES: i64 = 4 << 20;

struct Settings {
    events: u64,
    days: u64,
    json: bool,
    naptime: u64,
    url: Option<String>,
}

impl Settings {
    fn read() -> Result<Self, String> {
        let mut settings = Self { events: 1_000_000, days: 2, json: false, naptime: 1, url: None };
        for argument in std::env::args().skip(1) {
            let (name, value) =
                argument.split_once('=').ok_or(format!("{argument} is not name=value"))?;
            let number = || value.parse::<u64>().map_err(|e| format!("{name}={value}: {e}"));
            match name {
                "events" => settings.events = number()?,
                "days" => settings.days = number()?,
                "json" => settings.json = number()? != 0,
                "naptime" => settings.naptime = number()?.max(1),
                "url" => settings.url = Some(value.to_owned()),
                other => return Err(format!("unknown argument {other}")),
            }
        }
        if settings.events < 168 || settings.days == 0 {
            return Err("events must be at least 168, days at least 1".to_owned());
        }
        Ok(settings)
    }
}

/// A delivery that failed and is tried again in the next hour.
struct Again {
    delivery: DeliveryId,
    subscription: SubscriptionId,
    ordered: bool,
}

struct Churn {
    store: Arc<PostgresStore>,
    setting: Setting,
    subscriptions: Vec<SubscriptionId>,
    catalog: CatalogVersion,
    /// Events so far.
    number: u64,
    again: Vec<Again>,
}

impl Churn {
    async fn new(url: &str, days: i64) -> Self {
        let store = PostgresStore::connect(Options::new(url)).await.expect("the database");
        let store = Arc::new(store);
        store.make_days(Timestamp::from_millis(BEGIN), days).await.expect("partitions");
        let begin = Timestamp::from_millis(BEGIN);
        let shared: Arc<dyn Store> = Arc::<PostgresStore>::clone(&store);
        let setting = Setting::on(shared, TenantId::DEFAULT, NodeId::new(begin, 1)).await;
        let mut subscriptions = Vec::new();
        for number in 0..SUBSCRIPTIONS {
            let mut new = subscription(TenantId::DEFAULT);
            new.id = SubscriptionId::new(begin, number);
            subscriptions.push(new.id);
            let change = CatalogChange::CreateSubscription(Box::new(new));
            setting.store.change_catalog(change).await.expect("a subscription");
        }
        let catalog = setting.version_of(TenantId::DEFAULT).await;
        Self { store, setting, subscriptions, catalog, number: 0, again: Vec::new() }
    }

    /// Publishes and delivers one hour's events, and tries again what failed in the one before.
    async fn hour(&mut self, hour: i64, events: u64) {
        let begin = BEGIN + hour * HOUR;
        let again = std::mem::take(&mut self.again);
        for some in again.chunks(BATCH as usize) {
            let records = some.iter().map(|again| self.record(again, 1, delivered(), begin));
            self.write(records.collect()).await;
        }
        let mut left = events;
        let step = (HOUR / 2) / i64::try_from(events.div_ceil(BATCH)).unwrap_or(1).max(1);
        let mut at = begin;
        while left > 0 {
            let count = left.min(BATCH);
            self.batch(at, count).await;
            left -= count;
            at += step;
        }
        for _ in 0..(events / EVENTS_PER_BEAT).clamp(1, BEATS_MAX) {
            let catalog = self.catalog;
            let ttl = Duration::from_secs(600);
            let beat = Heartbeat { node: self.setting.node, ttl, catalog, version: "bloat" };
            self.store.heartbeat(beat).await.expect("a sign of life");
        }
        self.prune(begin + HOUR).await;
    }

    async fn batch(&mut self, at: i64, count: u64) {
        let now = Timestamp::from_millis(at);
        let (mut new, mut made) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let number = self.number;
            self.number += 1;
            let to = self.subscriptions[(number % self.subscriptions.len() as u64) as usize];
            let ordered = number.is_multiple_of(ORDERED);
            let delivery = DeliveryId::new(now, u128::from(number));
            made.push((number, Again { delivery, subscription: to, ordered }));
            let key = ordered.then(|| lane(&format!("customer-{number}"))).flatten();
            new.push(self.event(now, number, delivery, to, key));
        }
        let accepted = self.store.accept(new).await.expect("events are stored");
        assert!(accepted.iter().all(|one| matches!(one, Accepted::Stored(_))), "none is repeated");
        let mut records = Vec::new();
        for (number, one) in made {
            let fails = number % FAILS == 3;
            let step = if fails { failed(Timestamp::from_millis(at + HOUR)) } else { delivered() };
            records.push(self.record(&one, 0, step, at + 20));
            if fails {
                self.again.push(one);
            }
        }
        self.write(records).await;
    }

    fn event(
        &self,
        now: Timestamp,
        number: u64,
        id: DeliveryId,
        subscription: SubscriptionId,
        lane: Option<posthorn_domain::Lane>,
    ) -> NewEvent {
        let event = Event {
            id: EventId::new(now, u128::from(number)),
            payload: Bytes::from(vec![b'x'; PAYLOAD_BYTES]),
            accepted_at: now,
            ..event(TenantId::DEFAULT)
        };
        NewEvent {
            event: Arc::new(event),
            idempotency: Some(idempotency(&format!("key-{number}"), 1)),
            catalog: self.catalog,
            deliveries: vec![NewDelivery { id, subscription, lane, due_at: now }],
        }
    }

    fn record(&self, one: &Again, attempts: u32, step: Step, at: i64) -> Record {
        let at = Timestamp::from_millis(at);
        let made = Attempt { started_at: at, ..attempt(one.delivery, attempts + 1, 200) };
        Record {
            fence: self.setting.fence(one.subscription),
            tenant: TenantId::DEFAULT,
            delivery: one.delivery,
            expected_attempts: attempts,
            expected_revival: 0,
            ordered: one.ordered,
            step,
            attempt: Some(made),
            standing: None,
            told: Vec::new(),
            at,
        }
    }

    async fn write(&self, records: Vec<Record>) {
        let recorded = self.store.record(records).await.expect("outcomes are recorded");
        let written = recorded.iter().all(|one| matches!(one, Recorded::Written { .. }));
        assert!(written, "each outcome is written");
    }

    async fn prune(&self, now: i64) {
        let before = |millis: i64| Timestamp::from_millis(now - millis);
        let prune = Prune {
            now: Timestamp::from_millis(now),
            ended_before: before(WEEK),
            dead_before: before(WEEK),
            keys_before: before(KEYS),
            recalls_before: before(KEYS),
            audit_before: before(WEEK),
            limit: 10_000,
        };
        while self.store.prune(prune).await.expect("upkeep").more {}
    }
}

/// What the database says of a table with all its partitions.
#[derive(Clone, Debug, Default)]
struct Size {
    table_bytes: i64,
    index_bytes: i64,
    rows: i64,
    dead: i64,
    autovacuums: i64,
}

impl Size {
    fn bytes(&self) -> i64 {
        self.table_bytes + self.index_bytes
    }

    fn shown(&self) -> Value {
        json!({
            "table_bytes": self.table_bytes, "index_bytes": self.index_bytes, "rows": self.rows,
            "dead_rows": self.dead, "autovacuums": self.autovacuums,
        })
    }
}

async fn sizes(client: &Client) -> BTreeMap<String, Size> {
    let text = "select coalesce(p.relname, c.relname)::text,
            sum(pg_table_size(c.oid))::int8, sum(pg_indexes_size(c.oid))::int8,
            sum(coalesce(s.n_live_tup, 0))::int8, sum(coalesce(s.n_dead_tup, 0))::int8,
            sum(coalesce(s.autovacuum_count, 0))::int8
        from pg_class c
        left join pg_inherits i on i.inhrelid = c.oid
        left join pg_class p on p.oid = i.inhparent
        left join pg_stat_user_tables s on s.relid = c.oid
        where c.relkind = 'r' and c.relnamespace = current_schema()::regnamespace
        group by 1";
    let rows = client.query(text, &[]).await.expect("sizes");
    let size = |row: &tokio_postgres::Row| Size {
        table_bytes: row.get(1),
        index_bytes: row.get(2),
        rows: row.get(3),
        dead: row.get(4),
        autovacuums: row.get(5),
    };
    rows.iter().map(|row| (row.get(0), size(row))).collect()
}

/// How far the write-ahead log has come.
async fn wal(client: &Client) -> i64 {
    let text = "select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::int8";
    client.query_one(text, &[]).await.expect("a place").get(0)
}

fn total(sizes: &BTreeMap<String, Size>) -> i64 {
    sizes.values().map(Size::bytes).sum()
}

fn mib(bytes: i64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

/// The tables that grew, with how much.
fn grown(first: &BTreeMap<String, Size>, last: &BTreeMap<String, Size>) -> Vec<(String, f64)> {
    let ratio = |(name, size): (&String, &Size)| {
        let before = first.get(name)?.bytes().max(JUDGED_BYTES);
        let ratio = size.bytes() as f64 / before as f64;
        (ratio > GROWTH_MAX).then(|| (name.clone(), ratio))
    };
    last.iter().filter_map(ratio).collect()
}

#[tokio::main]
async fn main() -> ExitCode {
    let settings = match Settings::read() {
        Ok(settings) => settings,
        Err(problem) => {
            eprintln!("{problem}");
            return ExitCode::from(2);
        }
    };
    let own = settings.url.is_none().then(|| TestPostgres::start().expect("a server"));
    if let Some(server) = &own {
        let naptime = format!("alter system set autovacuum_naptime = '{}s'", settings.naptime);
        server.sql(&naptime).expect("a setting");
        server.sql("select pg_reload_conf()").expect("the setting counts");
    }
    let url = settings.url.clone().or(own.as_ref().map(TestPostgres::url)).expect("one of the two");
    let (client, connection) = tokio_postgres::connect(&url, NoTls).await.expect("the database");
    tokio::spawn(connection);
    measure(&settings, &url, &client).await
}

async fn measure(settings: &Settings, url: &str, client: &Client) -> ExitCode {
    let began = Instant::now();
    let days = i64::try_from(settings.days).expect("few days");
    let per_hour = settings.events / 168;
    // A day more than there will be, as the server makes them.
    let mut churn = Churn::new(url, 7 + days + 1).await;
    let wal_before = wal(client).await;
    for hour in 0..168 {
        churn.hour(hour, per_hour).await;
    }
    let filled = began.elapsed().as_secs_f64();
    let wal_per_event = (wal(client).await - wal_before) / i64::try_from(churn.number).unwrap_or(1);
    eprintln!("{} events in {filled:.0} s, {wal_per_event} bytes of log for each", churn.number);
    let start = sizes(client).await;
    let mut hours = Vec::new();
    let mut peaks: Vec<BTreeMap<String, Size>> = Vec::new();
    let mut ends = Vec::new();
    for day in 0..days {
        let mut peak: BTreeMap<String, Size> = BTreeMap::new();
        for hour in 0..24 {
            churn.hour(168 + day * 24 + hour, per_hour).await;
            let found = sizes(client).await;
            let dead: i64 = found.values().map(|size| size.dead).sum();
            let vacuums: i64 = found.values().map(|size| size.autovacuums).sum();
            eprintln!(
                "day {day} hour {hour:2}: {:9.1} MiB, live deliveries {:7.2} MiB, {dead} dead rows, {vacuums} autovacuums",
                mib(total(&found)),
                mib(found.get("delivery_live").map_or(0, Size::bytes)),
            );
            hours.push(json!({
                "hour": day * 24 + hour, "bytes": total(&found), "dead_rows": dead, "autovacuums": vacuums,
            }));
            for (name, size) in &found {
                let most = peak.entry(name.clone()).or_insert_with(|| size.clone());
                if size.bytes() > most.bytes() {
                    *most = size.clone();
                }
            }
            if hour == 23 {
                ends.push(found);
            }
        }
        peaks.push(peak);
    }
    let (first, last) = (&peaks[0], &peaks[peaks.len() - 1]);
    let grown = grown(first, last);
    let end = &ends[ends.len() - 1];
    let figures = json!({
        "scenario": "bloat", "events": churn.number, "kept": per_hour * 168, "days": days,
        "payload_bytes": PAYLOAD_BYTES, "naptime_s": settings.url.is_none().then_some(settings.naptime),
        "fill_s": filled, "seconds": began.elapsed().as_secs_f64(),
        "wal_bytes_per_event": wal_per_event,
        "start_bytes": total(&start), "end_bytes": total(end),
        "end_to_start": total(end) as f64 / total(&start) as f64,
        "peak_last_to_first": total(last) as f64 / total(first) as f64,
        "bytes_per_event": total(&start) / i64::try_from(per_hour * 168).unwrap_or(1),
        "grown": grown, "hours": hours,
        "tables": end.iter().map(|(name, size)| (name.clone(), size.shown())).collect::<BTreeMap<_, _>>(),
    });
    if settings.json {
        println!("{figures}");
    } else {
        println!("{figures:#}");
    }
    ExitCode::from(u8::from(!grown.is_empty()))
}
