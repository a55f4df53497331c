//! Days of history that are dropped whole, and those that cannot be.

use std::sync::Arc;

use posthorn_conformance::builders::{
    Setting, at, dead_block, dead_skip, delivered, event, failed, whole,
};
use posthorn_domain::{DeliveryId, Event, EventId, ReplayStatus, Timestamp};
use posthorn_store::{Counts, NewEvent, Prune, Pruned, Redelivery};
use tokio_postgres::Client;

use crate::fixture::{Databases, connect, raw};
use crate::jobs::replay;

/// The day of [`at`]`(0)`.
const DAY: &str = "d20231114";

/// Four days later.
const LATER: &str = "d20231118";

/// Makes the partitions that would have been made three years ago.
async fn with_partitions(client: &Client) {
    let days = [(DAY, "018bcb20-b400", "018bd047-1000"), (LATER, "018bdfba-2400", "018be4e0-8000")];
    for (day, from, to) in days {
        for table in ["event", "delivery_done", "attempt"] {
            let text = format!(
                "create table {table}_{day} (like {table} including all); \
                 alter table {table} attach partition {table}_{day} for values \
                 from ('{from}-0000-0000-000000000000') to ('{to}-0000-0000-000000000000')"
            );
            client.batch_execute(&text).await.expect("a partition");
        }
    }
}

async fn has(client: &Client, day: &str) -> bool {
    let text = format!("select to_regclass('event_{day}') is not null");
    client.query_one(&text, &[]).await.expect("an answer").get(0)
}

async fn has_day(client: &Client) -> bool {
    has(client, DAY).await
}

async fn rows(client: &Client, table: &str) -> i64 {
    let text = format!("select count(*) from {table}");
    client.query_one(&text, &[]).await.expect("a count").get(0)
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
        now: at(0),
        ended_before: at(ended),
        dead_before: at(dead),
        keys_before: Timestamp::MIN,
        recalls_before: Timestamp::MIN,
        audit_before: Timestamp::MIN,
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

/// A delivery that a job makes of an old event lies in another day than its event. Neither day goes without the
/// other, and nothing of them while it is needed.
#[tokio::test]
async fn days_that_share_a_delivery_keep_each_other() {
    let (setting, client, url) = setting_at().await;
    let (old, new) = (setting.subscribe().await, setting.subscribe().await);
    let past = setting.publish(&[(old, None)]).await;
    setting.record(past.deliveries[0], delivered(), at(10)).await;
    let gone = setting.publish_one(old).await;
    setting.record(gone, delivered(), at(10)).await;
    // An event of the later day, a delivery of that day of the first event, and one of a third day of the second.
    let mut next = setting.planned(vec![]).await;
    let time = at(4 * DAYS);
    next.event =
        Arc::new(Event { id: EventId::new(time, 1), accepted_at: time, ..event(setting.tenant) });
    let next = setting.accept(next).await;
    let (made, even_later) = (DeliveryId::new(time, 2), DeliveryId::new(at(9 * DAYS), 2));
    for (event, id) in [(past.event.id, made), (next.event.id, even_later)] {
        let status = ReplayStatus::Missed;
        let deed = Redelivery { event, subscription: new, id, lane: None, status };
        assert_eq!(replay(&setting, vec![deed], id.made_at()).await, 1);
    }
    setting.record(made, failed(at(5 * DAYS)), at(4 * DAYS + 5)).await;
    assert_eq!(rows(&client, &format!("attempt_{LATER}")).await, 1);

    // While it is tried, nothing of it goes; everything else does.
    assert_eq!(prune(&setting, 20 * DAYS, 20 * DAYS).await.events, 1);
    prune(&setting, 20 * DAYS, 20 * DAYS).await;
    assert!(has(&client, DAY).await && has(&client, LATER).await);
    let attempts = setting.store.attempts(setting.tenant, made).await.expect("attempts");
    assert_eq!(attempts.len(), 1, "its attempts are kept");

    // Nor when it has ended and must be kept. By numbers alone it would fit to the event of its day.
    setting.record(made, dead_skip(), at(5 * DAYS)).await;
    assert_eq!(rows(&client, &format!("delivery_done_{LATER}")).await, 1);
    for _ in 0..2 {
        assert_eq!(prune(&setting, 20 * DAYS, 5 * DAYS).await.events, 0);
        assert!(has(&client, DAY).await && has(&client, LATER).await);
    }
    setting.look(made).await;
    setting.look(past.deliveries[0]).await;
    assert_eq!(connect(&url).await.recount().await.expect("a count"), 0);

    setting.record(even_later, delivered(), at(9 * DAYS)).await;
    assert_eq!(prune(&setting, 20 * DAYS, 20 * DAYS).await.events, 2, "with all they have");
    for table in ["event", "delivery_live", "delivery_done", "attempt"] {
        assert_eq!(rows(&client, table).await, 0, "{table}");
    }
    prune(&setting, 20 * DAYS, 20 * DAYS).await;
    assert!(!has(&client, DAY).await && !has(&client, LATER).await);
    assert_eq!(setting.store.counts(None).await.expect("counts"), Counts::default());
    assert_eq!(connect(&url).await.recount().await.expect("a count"), 0);
}
