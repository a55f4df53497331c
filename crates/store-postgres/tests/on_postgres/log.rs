//! Lists of a long history read a few ranges of indexes, whatever is asked for: nothing is read from end to end,
//! and nothing is sorted but what is shown.

use posthorn_domain::{
    CancelReason, DeadReason, DeliveryState, EventType, FailureCode, IdempotencyKey, LaneKey,
    SubscriptionId, TenantId, Timestamp, TopicName,
};
use posthorn_store::{
    AttemptFilter, DeliveryFilter, EventFilter, Listing, Order, OutcomeFilter, Period, Place,
    StateKind, Store,
};
use posthorn_store_postgres::{PostgresStore, sql};
use tokio_postgres::Client;

use crate::fixture::{connect, database, options, raw};
use crate::plans::plan;

/// Two tenants, the second with one row in a hundred; a history over the days for which there are partitions,
/// one that went wrong in a hundred, and a backlog.
const HISTORY: &str = "
    create function id_at(at int8, no int8) returns uuid language sql immutable as $$
        select (lpad(to_hex(at), 12, '0') || '70008' || lpad(to_hex(no), 15, '0'))::uuid
    $$;
    create function half(name text) returns int8 language sql immutable as $$
        with recursive fnv(place, hash) as (
            select 0, 2166136261::int8
            union all
            select place + 1, ((hash # ascii(substr(name, place + 1, 1))) * 16777619) & 4294967295
            from fnv
            where place < length(name)
        )
        select hash from fnv order by place desc limit 1
    $$;
    create temporary table made as
    select
        n, id_at(at, n) as id, at,
        case when n in (19, 24019, 59995) then 'type-rare' else 'type-' || n % 7 end as type,
        ('00000000-0000-0000-0000-00000000000' || case when n % 100 = 0 then 2 else 1 end)::uuid
            as tenant,
        (
            '00000000-0000-0000-0000-0000000001'
            || case when n % 100 = 0 then '99' else lpad((n % 20)::text, 2, '0') end
        )::uuid as subscription,
        case
            when n % 400 = 7 then 10 when n % 400 = 8 then 11 when n % 400 = 9 then 20
            when n % 400 = 10 then 21 else 2
        end::int2 as state,
        case when n % 400 = 7 then 503 when n % 400 = 8 then -235982690 else 200 end as outcome
    from (
        select n, (
            (extract(epoch from date_trunc('day', clock_timestamp() at time zone 'UTC')) * 1000)::int8
            + n::int8 * 4 * 86400000 / 60000
        ) as at
        from generate_series(1, 60000 - 1) as n
    ) as moments;
    insert into tenant (id, version) select distinct tenant, 1 from made;
    insert into subscription (id, tenant) select distinct subscription, tenant from made;
    insert into event (
        id, tenant, topic, type, attributes, key, content_type, payload, accepted_at, deliveries,
        publisher_id, unwanted, kind
    )
    select
        id, tenant, 'topic-' || n % 5, type, '{}',
        case n % 3 when 0 then 'key-' || n % 50 when 1 then 'key-rare' end, 'text/plain', 'x', at,
        case when n % 8 <> 3 then array[id] else '{}' end,
        case when n % 4 = 0 then 'own-' || n end, n % 8 = 3,
        (half('topic-' || n % 5) << 32) | half(type)
    from made;
    insert into delivery_done (
        id, event, subscription, tenant, seq, budget_began, created_at, ended_at, attempts,
        budget_base, state, lane, outcome
    )
    select id, id, subscription, tenant, n, at, at, at, 1, 0, state, null, outcome
    from made where n % 10 <> 5;
    insert into delivery_live (
        id, event, subscription, tenant, seq, due_at, budget_began, created_at, attempts,
        budget_base, shard, state, lane_slot, lane, outcome
    )
    select
        id, id, subscription, tenant, n, at, at, at, 1, 0, 7, case when n % 1000 = 5 then 1 else 0 end,
        null, null, case when n % 500 = 25 then 503 end
    from made where n % 10 = 5;
    insert into attempt (
        delivery, started_at, took, number, status, late, failure, detail, response, manual, tenant,
        subscription, no
    )
    select
        id, at, 1, 1, case when outcome > 0 then outcome end, false,
        case when outcome < 0 then 'connect_failed' end, '', '', n % 1000 = 1, tenant,
        subscription, nextval('attempt_no')
    from made;
    -- A receiver in trouble: most failures are of one kind, and say nothing of where the others are.
    insert into attempt (
        delivery, started_at, took, number, status, late, failure, detail, response, manual, tenant,
        subscription, no
    )
    select
        id, at + 1, 1, 2,
        case
            when n in (9, 20007, 59907, 100, 30000) then 404 when n % 2 = 0 then 500
            when n % 4000 = 3 then 429
        end,
        false,
        case
            when n in (9, 20007, 59907, 100, 30000) or n % 2 = 0 or n % 4000 = 3 then null
            when n % 4000 = 5 then 'tls_failed' else 'response_timeout'
        end,
        '', '', false, tenant, subscription, nextval('attempt_no')
    from made;
";

async fn history() -> (String, Client) {
    let url = database().await;
    let client = raw(&url).await;
    client.batch_execute(HISTORY).await.expect("a history");
    client.batch_execute("vacuum analyze").await.expect("a vacuum");
    let setup = PostgresStore::session_statements(&options(&url));
    client.batch_execute(&setup).await.expect("the settings");
    let settings = PostgresStore::list_settings().replace("set local", "set");
    client.batch_execute(&settings).await.expect("the settings of lists");
    // So that plans show all days, which are otherwise left out where the bounds are not known.
    client.batch_execute("set enable_partition_pruning = off").await.expect("a setting");
    (url, client)
}

/// What a list of this name must look up, besides its owner.
fn looked_up(name: &str) -> Vec<&'static str> {
    let all = [
        (" Kind", "(kind = "),
        ("Key", "(key = "),
        (" Key", "(key = "),
        ("events Key", "(kind = "),
        ("PublisherId", "(publisher_id = "),
        ("Unwanted ", "_tenant_id_idx"),
        ("UnwantedKind", "_tenant_kind_id_idx1 on"),
        ("DeadLetters", "(event > "),
        (" States", "(state = "),
        (" Failed(", "(outcome = "),
        ("deliveries All", "using delivery_live_place"),
        ("deliveries Failed", "using delivery_live_failed"),
        ("Leased", "using delivery_live_leased"),
        ("attempts Tenant", "_tenant_started_at_no_idx on"),
        ("attempts Subscription", "_subscription_started_at_no_idx on"),
        ("FailedOfTenant", "_tenant_coalesce_started_at_no_idx on"),
        ("FailedToSubscription", "_subscription_coalesce_started_at_no_idx on"),
        ("Manual", "_tenant_started_at_no_idx1 on"),
    ];
    all.iter().filter(|(part, _)| name.contains(part)).map(|(_, wanted)| *wanted).collect()
}

#[tokio::test]
async fn every_list_is_made_of_ranges_of_indexes() {
    let (_, client) = history().await;
    let named = |wanted: &str| sql::ALL.iter().find(|(name, _)| *name == wanted).expect(wanted).1;
    let skip = ("kinds of Key".to_owned(), named("event_key_kinds").to_owned());
    for (name, text) in PostgresStore::list_statements().into_iter().chain([skip]) {
        let plan = plan(&client, &name, &text).await;
        for never in ["Seq Scan", "Sort  (", "Bitmap", "Hash"] {
            assert!(!plan.contains(never), "{name}: {never}\n{plan}");
        }
        for wanted in looked_up(&name) {
            assert!(plan.contains(wanted), "{name}: {wanted}\n{plan}");
        }
        let days = plan.matches("_d2").count();
        assert!(days == 0 || plan.contains("Merge Append"), "{name}: days are merged\n{plan}");
    }
}

#[tokio::test]
async fn redrives_look_at_dead_letters_alone() {
    let (_, client) = history().await;
    for name in ["redrive_next", "redrive_count"] {
        let (_, text) = sql::ALL.iter().find(|(n, _)| *n == name).expect("a statement");
        let plan = plan(&client, name, text).await;
        // Of the rest partition, which is empty, any index will do.
        let days = plan.lines().filter(|line| line.contains(" on delivery_done_d2"));
        for day in days {
            let dead = day.contains("_tenant_state_id_idx") || day.contains("_tenant_event_idx");
            assert!(dead, "{name}: {day}\n{plan}");
        }
    }
}

/// Indexes that have a condition every row fulfils are for lists alone.
#[tokio::test]
async fn hot_statements_do_not_touch_the_indexes_of_lists() {
    let url = database().await;
    let client = raw(&url).await;
    client.batch_execute("vacuum analyze").await.expect("a vacuum");
    let setup = PostgresStore::session_statements(&options(&url));
    client.batch_execute(&setup).await.expect("the settings");
    client.batch_execute("set enable_partition_pruning = off").await.expect("a setting");
    let theirs = [
        "_tenant_kind_id_idx",
        "delivery_live_place",
        "_subscription_state_id_idx",
        "_started_at_no_idx",
    ];
    let lists = ["event_topics", "event_types", "counts", "counts_each", "counts_of", "recount"];
    for (name, text) in sql::ALL {
        if lists.contains(name) || text.contains('{') {
            continue;
        }
        let plan = plan(&client, name, text).await;
        for index in theirs {
            assert!(!plan.contains(index), "{name}: {index}\n{plan}");
        }
    }
}

fn tenant(number: u8) -> TenantId {
    TenantId::from_bytes([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, number])
}

fn subscription(number: u8) -> SubscriptionId {
    let digits = (number / 10) * 16 + number % 10;
    SubscriptionId::from_bytes([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, digits])
}

enum Ask {
    Events(EventFilter),
    Deliveries(DeliveryFilter),
    Attempts(AttemptFilter),
}

struct Part {
    items: usize,
    last: Option<Place>,
    more: bool,
    scanned_until: Option<Timestamp>,
}

impl Ask {
    async fn page(&self, store: &PostgresStore, tenant: TenantId, listing: Listing) -> Part {
        macro_rules! part {
            ($page:expr) => {{
                let page = $page.await.expect("a page");
                let (last, more, scanned_until) = (page.last, page.more, page.scanned_until);
                Part { items: page.items.len(), last, more, scanned_until }
            }};
        }
        match self {
            Self::Events(filter) => part!(store.events(tenant, filter.clone(), listing)),
            Self::Deliveries(filter) => part!(store.deliveries(tenant, filter.clone(), listing)),
            Self::Attempts(filter) => part!(store.attempts_made(tenant, filter.clone(), listing)),
        }
    }

    /// How many there are, with pages that no search has ended early.
    async fn count(&self, store: &PostgresStore, tenant: TenantId, order: Order) -> usize {
        let mut listing = Listing { order, after: None, limit: 700 };
        let mut number = 0;
        loop {
            let part = self.page(store, tenant, listing).await;
            assert_eq!(part.scanned_until, None, "served by an index");
            number += part.items;
            if !part.more {
                return number;
            }
            listing.after = part.last;
        }
    }
}

/// Filters, and the condition that says the same in SQL.
fn asks() -> Vec<(Ask, &'static str, &'static str)> {
    let topic = |text: &str| TopicName::new(text).expect("a name");
    let kind = |text: &str| EventType::new(text).expect("a type");
    let event = EventFilter::default;
    let key = Some(LaneKey::new("key-6").expect("a key"));
    let rare = Some(LaneKey::new("key-rare").expect("a key"));
    let publisher_id = Some(IdempotencyKey::new("own-4004").expect("a key"));
    let (topics, types) = (vec![topic("topic-1")], vec![kind("type-2"), kind("type-3")]);
    let events = [
        (EventFilter { topics: topics.clone(), ..event() }, "topic = 'topic-1'"),
        (EventFilter { types: types.clone(), ..event() }, "type in ('type-2', 'type-3')"),
        (
            EventFilter { topics, types, ..event() },
            "topic = 'topic-1' and type in ('type-2', 'type-3')",
        ),
        (EventFilter { types: vec![kind("none")], ..event() }, "false"),
        (EventFilter { key: key.clone(), ..event() }, "key = 'key-6'"),
        (
            EventFilter { key: key.clone(), types: vec![kind("type-3")], ..event() },
            "key = 'key-6' and type = 'type-3'",
        ),
        (
            EventFilter { key, topics: vec![topic("topic-1")], ..event() },
            "key = 'key-6' and topic = 'topic-1'",
        ),
        (EventFilter { key: rare.clone(), ..event() }, "key = 'key-rare'"),
        (
            EventFilter { key: rare, types: vec![kind("type-rare")], ..event() },
            "key = 'key-rare' and type = 'type-rare'",
        ),
        (
            EventFilter { unwanted: true, types: vec![kind("type-rare")], ..event() },
            "unwanted and type = 'type-rare'",
        ),
        (
            EventFilter { unwanted: true, topics: vec![topic("topic-0")], ..event() },
            "unwanted and topic = 'topic-0'",
        ),
        (EventFilter { publisher_id, ..event() }, "publisher_id = 'own-4004'"),
        (EventFilter { unwanted: true, ..event() }, "unwanted"),
        (
            EventFilter { with_dead_letters: true, ..event() },
            "id in (select event from delivery_done where state between 10 and 19)",
        ),
    ];
    let delivery = DeliveryFilter::default;
    let state = |kind| DeliveryFilter { state: Some(kind), ..delivery() };
    let to = Some(subscription(7));
    let exactly = |state| DeliveryFilter { exactly: Some(state), ..delivery() };
    let outcome = |outcome| DeliveryFilter { outcome: Some(outcome), ..delivery() };
    let failures = || OutcomeFilter::Failures(vec![FailureCode::ConnectFailed]);
    let errors = || OutcomeFilter::Status(500, 599);
    let to_7 = "subscription = '00000000-0000-0000-0000-000000000107'";
    let deliveries = [
        (state(StateKind::Pending), "state < 2".to_owned()),
        (state(StateKind::InFlight), "state = 1".to_owned()),
        (
            DeliveryFilter { subscription: Some(subscription(5)), ..state(StateKind::InFlight) },
            "subscription = '00000000-0000-0000-0000-000000000105' and state = 1".to_owned(),
        ),
        (
            DeliveryFilter { subscription: to, ..state(StateKind::InFlight) },
            format!("{to_7} and state = 1"),
        ),
        (state(StateKind::Dead), "state between 10 and 19".to_owned()),
        (state(StateKind::Cancelled), "state >= 20".to_owned()),
        (exactly(DeliveryState::Dead(DeadReason::Permanent)), "state = 11".to_owned()),
        (exactly(DeliveryState::Cancelled(CancelReason::Operator)), "state = 21".to_owned()),
        (DeliveryFilter { subscription: to, ..delivery() }, to_7.to_owned()),
        (
            DeliveryFilter { subscription: to, ..state(StateKind::Dead) },
            format!("{to_7} and state between 10 and 19"),
        ),
        (
            DeliveryFilter { subscription: to, ..state(StateKind::Pending) },
            format!("{to_7} and state < 2"),
        ),
        (outcome(errors()), "outcome = 503".to_owned()),
        (outcome(failures()), "outcome = -235982690".to_owned()),
        (
            DeliveryFilter { subscription: to, ..outcome(errors()) },
            format!("{to_7} and outcome = 503"),
        ),
    ];
    let attempt = AttemptFilter::default;
    let status = |status| Some(OutcomeFilter::Status(status, status));
    let all_failures = || Some(OutcomeFilter::Failures(FailureCode::ALL.to_vec()));
    let attempts = [
        (attempt(), "true".to_owned()),
        (AttemptFilter { subscription: to, ..attempt() }, to_7.to_owned()),
        (
            AttemptFilter { outcome: Some(errors()), ..attempt() },
            "status between 500 and 599".to_owned(),
        ),
        (AttemptFilter { outcome: status(404), ..attempt() }, "status = 404".to_owned()),
        (AttemptFilter { outcome: status(503), ..attempt() }, "status = 503".to_owned()),
        (AttemptFilter { outcome: status(418), ..attempt() }, "status = 418".to_owned()),
        (
            AttemptFilter { outcome: status(404), subscription: to, ..attempt() },
            format!("{to_7} and status = 404"),
        ),
        (
            AttemptFilter { outcome: Some(OutcomeFilter::Status(400, 499)), ..attempt() },
            "status between 400 and 499".to_owned(),
        ),
        (
            AttemptFilter { outcome: Some(failures()), ..attempt() },
            "failure = 'connect_failed'".to_owned(),
        ),
        (
            AttemptFilter { outcome: Some(failures()), subscription: to, ..attempt() },
            format!("{to_7} and failure = 'connect_failed'"),
        ),
        (
            AttemptFilter { outcome: all_failures(), subscription: to, ..attempt() },
            format!("{to_7} and failure is not null"),
        ),
        (AttemptFilter { manual: Some(true), ..attempt() }, "manual".to_owned()),
    ];
    let leak = |text: String| -> &'static str { text.leak() };
    let events = events.into_iter().map(|(f, sql)| (Ask::Events(f), "event", sql));
    let all = "(select id, tenant, subscription, state, outcome, created_at from delivery_live \
               union all \
               select id, tenant, subscription, state, outcome, created_at from delivery_done)";
    let deliveries = deliveries.into_iter().map(|(f, sql)| (Ask::Deliveries(f), all, leak(sql)));
    let attempts = attempts.into_iter().map(|(f, sql)| (Ask::Attempts(f), "attempt", leak(sql)));
    events.chain(deliveries).chain(attempts).collect()
}

#[tokio::test]
async fn long_histories_over_several_days_are_listed_without_searching() {
    let (url, _) = history().await;
    let (store, client) = (connect(&url).await, raw(&url).await);
    for (ask, table, condition) in asks() {
        for number in [1, 2] {
            let text = format!(
                "select count(*) from {table} as t where {condition} \
                 and tenant = '00000000-0000-0000-0000-00000000000{number}'"
            );
            let wanted: i64 = client.query_one(&text, &[]).await.expect("a count").get(0);
            for order in [Order::NewestFirst, Order::OldestFirst] {
                let found = ask.count(&store, tenant(number), order).await;
                assert_eq!(i64::try_from(found), Ok(wanted), "{table}: {condition}, {order:?}");
            }
        }
    }
}

/// A period is a range of ids: what came before and after it is not looked at.
#[tokio::test]
async fn periods_are_found_without_searching() {
    let (url, _) = history().await;
    let (store, client) = (connect(&url).await, raw(&url).await);
    let row = client
        .query_one("select min(accepted_at), count(*) from event", &[])
        .await
        .expect("the beginning");
    let begin: i64 = row.get(0);
    let hours = |number: i64| Timestamp::from_millis(begin + number * 3_600_000);
    let period = Period { from: Some(hours(40)), until: Some(hours(42)) };
    let asks = [
        (Ask::Events(EventFilter { accepted: period, ..EventFilter::default() }), "event"),
        (Ask::Attempts(AttemptFilter { started: period, ..AttemptFilter::default() }), "attempt"),
    ];
    for (ask, table) in asks {
        let column = if table == "event" { "accepted_at" } else { "started_at" };
        let text = format!(
            "select count(*) from {table} where {column} >= $1 and {column} < $2 \
             and tenant = '00000000-0000-0000-0000-000000000001'"
        );
        let (from, until) = (hours(40).as_millis(), hours(42).as_millis());
        let row = client.query_one(&text, &[&from, &until]).await.expect("a count");
        for order in [Order::NewestFirst, Order::OldestFirst] {
            let found = ask.count(&store, tenant(1), order).await;
            assert_eq!(i64::try_from(found), Ok(row.get(0)), "{table}, {order:?}");
        }
    }
    let created = DeliveryFilter { created: period, ..DeliveryFilter::default() };
    let found = Ask::Deliveries(created).count(&store, tenant(1), Order::NewestFirst).await;
    assert!(found > 1_000, "{found}");
}

/// What no index knows ends early, says how far it came, and can be gone on with.
#[tokio::test]
async fn searches_give_up_and_go_on() {
    let (url, _) = history().await;
    let store = connect(&url).await;
    let attributes = [("no".to_owned(), "such".to_owned())].into();
    let ask = Ask::Events(EventFilter { attributes, ..EventFilter::default() });
    let mut listing = Listing::newest(10);
    let mut pages = 0;
    loop {
        let part = ask.page(&store, tenant(1), listing).await;
        assert_eq!(part.items, 0);
        assert_eq!(part.scanned_until.is_some(), part.more);
        pages += 1;
        if !part.more {
            break;
        }
        listing.after = part.last;
    }
    assert!((10..=13).contains(&pages), "{pages} pages for 59,400 events");
}
