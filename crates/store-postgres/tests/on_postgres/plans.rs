//! Every statement is valid, and the hot ones use their indexes, with and without a backlog.

use posthorn_store_postgres::{PostgresStore, sql};
use tokio_postgres::Client;

use crate::fixture::{database, options, raw};

/// Tables that grow; reading one from end to end is never right, except to count.
const LARGE: [&str; 12] = [
    "event",
    "delivery_live",
    "delivery_done",
    "attempt",
    "audit",
    "idempotency",
    "page_session",
    "push_agent",
    "push_channel",
    "push_message",
    "rollup",
    "rollup_hour",
];
/// Statements that may: they count; they look at so many rows and no more; or they are maintenance of days that no
/// longer grow, so that what the server believes of them is true.
const MAY_SCAN: [&str; 6] =
    ["pending_by_subscription", "prune_bite", "prune_old", "push_census", "recount", "tally_drop"];

fn statements() -> Vec<(String, String)> {
    PostgresStore::every_statement()
}

/// A connection with the settings of the store's own.
async fn session(url: &str) -> Client {
    let client = raw(url).await;
    let setup = PostgresStore::session_statements(&options(url));
    client.batch_execute(&setup).await.expect("the settings");
    client
}

pub(crate) async fn plan(client: &Client, name: &str, text: &str) -> String {
    let params = client.prepare(text).await.unwrap_or_else(|e| panic!("{name}: {e:?}"));
    let nulls = vec!["null"; params.params().len()].join(", ");
    let nulls = if nulls.is_empty() { String::new() } else { format!("({nulls})") };
    client.batch_execute(&format!("prepare it as {text}")).await.expect(name);
    let rows = client.query(&format!("explain execute it{nulls}"), &[]).await.expect(name);
    client.batch_execute("deallocate it").await.expect(name);
    rows.iter().map(|row| format!("{}\n", row.get::<_, &str>(0))).collect()
}

/// Lines of a plan that read a large table, or a whole index of one, from end to end.
fn scans(plan: &str) -> Vec<String> {
    let lines: Vec<&str> = plan.lines().collect();
    let mut found = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let large = LARGE.iter().any(|table| {
            line.contains(&format!(" on {table} ")) || line.contains(&format!(" on {table}_"))
        });
        let whole_table = line.contains("Seq Scan");
        // A condition that every row fulfils is none.
        let narrows = |line: &&str| {
            let always = "Index Cond: (due_at < '9223372036854775807'::bigint)";
            line.contains("Index Cond") && !line.contains(always)
        };
        let whole_index = line.contains("Index")
            && line.contains("Scan")
            && !lines.iter().skip(index + 1).take(2).any(narrows);
        // In order, with an end in sight.
        let limited = lines[..index].iter().rev().take(4).any(|above| above.contains("Limit"));
        if large && (whole_table || (whole_index && !limited)) {
            found.push((*line).to_owned());
        }
    }
    found
}

async fn check_all(client: &Client) {
    for (name, text) in statements() {
        let plan = plan(client, &name, &text).await;
        if !MAY_SCAN.contains(&name.as_str()) {
            assert!(scans(&plan).is_empty(), "{name}: {:?}\n{plan}", scans(&plan));
        }
    }
}

#[tokio::test]
async fn statements_use_indexes_while_tables_are_empty() {
    let client = session(&database().await).await;
    check_all(&client).await;
}

/// What a queue looks like to the server most of the time.
#[tokio::test]
async fn statements_use_indexes_while_tables_are_known_to_be_empty_or_small() {
    let client = session(&database().await).await;
    client.batch_execute("vacuum analyze").await.expect("a vacuum");
    check_all(&client).await;
    let few = BACKLOG.replace("4000", "1").replace("(1, 50)", "(1, 5)");
    client.batch_execute(&few).await.expect("a few rows");
    client.batch_execute("vacuum analyze").await.expect("a vacuum");
    check_all(&client).await;
}

const BACKLOG: &str = "
    insert into delivery_live (
        id, event, subscription, tenant, seq, due_at, budget_began, created_at, attempts,
        budget_base, shard, state, lane_slot, lane
    )
    select
        gen_random_uuid(), gen_random_uuid(), s.id, s.id, n, 1000 + n, 0, 0, 0, 0, 7, 0, null, null
    from generate_series(1, 4000) as n,
        (select gen_random_uuid() as id from generate_series(1, 50)) as s;
    analyze delivery_live;
    insert into push_agent (id, node, connected_at, created_at, seen_at)
    select gen_random_uuid(), null, n, n, n from generate_series(1, 4000) as n;
    insert into push_channel (agent, id, created_at)
    select a.id, gen_random_uuid(), 0 from push_agent a, generate_series(1, 5);
    insert into push_message (agent, seq, channel, id, topic, received_at, ttl, expires_at, body)
    select
        c.agent, nextval('push_seq'), c.id, gen_random_uuid(),
        case when random() < 0.1 then 'topic' end, 0, 60,
        60000 + (random() * 1000000)::int8, 'x'
    from push_channel c;
    analyze push_agent, push_channel, push_message;
";

#[tokio::test]
async fn statements_use_indexes_with_a_backlog() {
    let client = session(&database().await).await;
    client.batch_execute(BACKLOG).await.expect("a backlog");
    check_all(&client).await;
    let due = plan(&client, "due", text_of("due_subscriptions")).await;
    assert!(due.matches("delivery_live_due").count() >= 2, "{due}");
    let pending = plan(&client, "pending", text_of("pending")).await;
    assert!(pending.contains("delivery_live_due"), "{pending}");
    assert!(!pending.contains("Sort Key: d."), "the index has the order\n{pending}");
    let messages = plan(&client, "messages", text_of("push_messages")).await;
    for index in ["push_message_topics", "push_message_pkey"] {
        assert!(messages.contains(&format!("Index Scan using {index}")), "{messages}");
    }
    assert!(!messages.contains("Sort Key: p."), "the indexes have the order\n{messages}");

    // A skip scan reads a few pages for each subscription, not the backlog.
    let text = text_of("due_subscriptions");
    let explain = format!(
        "explain (analyze, buffers, format json) {}",
        text.replace("$1::int2[]", "array[7]::int2[]")
    );
    let row = client.query_one(&explain, &[]).await.expect("a plan");
    let found: serde_json::Value = row.get::<_, Json>(0).0;
    let plan = &found[0]["Plan"];
    assert_eq!(plan["Actual Rows"].as_f64(), Some(50.0), "{found}");
    let blocks = plan["Shared Hit Blocks"].as_u64().zip(plan["Shared Read Blocks"].as_u64());
    let blocks = blocks.map(|(hit, read)| hit + read).expect("numbers of blocks");
    assert!(blocks < 1_000, "{blocks} blocks for 50 subscriptions");
}

fn text_of(name: &str) -> &'static str {
    sql::ALL.iter().find(|(n, _)| *n == name).expect("a statement").1
}

/// The driver's JSON support is not compiled in; the text is enough.
struct Json(serde_json::Value);

impl<'a> tokio_postgres::types::FromSql<'a> for Json {
    fn from_sql(
        _: &tokio_postgres::types::Type,
        raw: &'a [u8],
    ) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(Self(serde_json::from_slice(raw)?))
    }

    tokio_postgres::types::accepts!(JSON);
}
