//! Days of history that are dropped whole, and those that cannot be.

use std::sync::Arc;

use posthorn_conformance::builders::{Setting, at, dead_block, dead_skip, delivered, event, whole};
use posthorn_domain::Timestamp;
use posthorn_store::{Counts, NewEvent, Prune, Pruned};
use tokio_postgres::Client;

use crate::fixture::{Databases, connect, raw};

/// The day of [`at`]`(0)`.
const DAY: &str = "d20231114";

/// Makes the partitions that would have been made three years ago.
async fn with_partitions(client: &Client) {
    for table in ["event", "delivery_done", "attempt"] {
        let text = format!(
            "create table {table}_{DAY} (like {table} including all); \
             alter table {table} attach partition {table}_{DAY} for values \
             from ('018bcb20-b400-0000-0000-000000000000') \
             to ('018bd047-1000-0000-0000-000000000000')"
        );
        client.batch_execute(&text).await.expect("a partition");
    }
}

async fn has_day(client: &Client) -> bool {
    let text = format!("select to_regclass('event_{DAY}') is not null");
    client.query_one(&text, &[]).await.expect("an answer").get(0)
}

async fn setting() -> (Setting, Client) {
    let (setting, client, _) = setting_at().await;
    (setting, client)
}

/// The same, and where it is.
async fn setting_at() -> (Setting, Client, String) {
    let databases = Databases::default();
    let setting = Setting::new(&databases).await;
    let url = databases.url_of(&setting.store);
    let client = raw(&url).await;
    with_partitions(&client).await;
    (setting, client, url)
}

async fn prune(setting: &Setting, ended: i64, dead: i64) -> Pruned {
    let prune = Prune {
        ended_before: at(ended),
        dead_before: at(dead),
        keys_before: Timestamp::MIN,
        recalls_before: Timestamp::MIN,
        limit: 100,
    };
    setting.store.prune(prune).await.expect("prune")
}

const DAYS: i64 = 86_400_000;

#[tokio::test]
async fn finished_day_is_dropped_whole() {
    let (setting, client) = setting().await;
    let to = setting.subscribe().await;
    for _ in 0..10 {
        let id = setting.publish_one(to).await;
        setting.record(id, delivered(), at(10)).await;
    }
    let rows = client.query_one(&format!("select count(*) from event_{DAY}"), &[]).await;
    assert_eq!(rows.expect("a count").get::<_, i64>(0), 10, "the rows are in their partition");
    assert_eq!(prune(&setting, 5, 5).await.events, 0);
    assert!(has_day(&client).await);
    assert_eq!(prune(&setting, 10 * DAYS, 10 * DAYS).await.events, 10);
    assert!(!has_day(&client).await);
    let counts = setting.store.counts(None).await.expect("counts");
    assert_eq!((counts.events, counts.deliveries()), (0, 0));
    // What comes late for the day is stored all the same.
    let id = setting.publish_one(to).await;
    setting.record(id, delivered(), at(20)).await;
    assert_eq!(prune(&setting, 10 * DAYS, 10 * DAYS).await.events, 1);
}

#[tokio::test]
async fn day_with_something_to_keep_is_removed_in_bites() {
    let (setting, client) = setting().await;
    let (to, ordered) = (setting.subscribe().await, setting.subscribe().await);
    for _ in 0..5 {
        let id = setting.publish_one(to).await;
        setting.record(id, delivered(), at(10)).await;
    }
    let unfinished = setting.publish_one(to).await;
    let dead = setting.publish_one(to).await;
    setting.record(dead, dead_skip(), at(10)).await;
    let blocker = setting.publish_in(ordered, whole()).await;
    setting.record(blocker, dead_block(), at(10)).await;

    assert_eq!(prune(&setting, 10 * DAYS, 5).await.events, 5);
    assert!(has_day(&client).await);
    assert_eq!(prune(&setting, 10 * DAYS, 10 * DAYS).await.events, 1, "the free dead letter");
    setting.record(unfinished, delivered(), at(30)).await;
    assert!(has_day(&client).await);
    assert_eq!(prune(&setting, 10 * DAYS, 10 * DAYS).await.events, 1);
    setting.look(blocker).await;
    setting.store.cancel_delivery(setting.tenant, blocker, at(40)).await.expect("a cancel");
    assert_eq!(prune(&setting, 10 * DAYS, 10 * DAYS).await.events, 1);
    assert!(!has_day(&client).await);
}

/// What goes with a day, whole or in bites, goes out of the counts of every tenant.
#[tokio::test]
async fn dropping_a_day_keeps_the_tally_right() {
    let (setting, client, url) = setting_at().await;
    let to = setting.subscribe().await;
    let other = setting.other_tenant().await;
    for number in 0..9 {
        let id = setting.publish_one(to).await;
        let step = if number % 3 == 0 { dead_skip() } else { delivered() };
        setting.record(id, step, at(10)).await;
    }
    let theirs = NewEvent {
        event: Arc::new(event(other)),
        idempotency: None,
        catalog: setting.version_of(other).await,
        deliveries: vec![],
    };
    setting.store.accept(vec![theirs]).await.expect("accepted");
    let counts = setting.store.counts(None).await.expect("counts");
    assert_eq!((counts.events, counts.delivered, counts.dead), (10, 6, 3));
    assert_eq!(prune(&setting, 10 * DAYS, 10 * DAYS).await.events, 10);
    assert!(!has_day(&client).await, "dropped whole");
    for tenant in [Some(setting.tenant), Some(other), None] {
        let counts = setting.store.counts(tenant).await.expect("counts");
        assert_eq!(counts, Counts::default());
    }
    assert_eq!(connect(&url).await.recount().await.expect("a count"), 0);
}

/// Today's partition is there before anything needs it, and the next days' as well.
#[tokio::test]
async fn partitions_are_made_ahead() {
    let (_setting, client) = setting().await;
    let text = "select to_regclass('event_d' || to_char(clock_timestamp() at time zone 'UTC' \
                + n * interval '1 day', 'YYYYMMDD')) is not null from generate_series(0, 3) as n";
    for row in client.query(text, &[]).await.expect("an answer") {
        assert!(row.get::<_, bool>(0));
    }
}
