//! Who is alive and who owns which shards, judged by the database's clock alone.

use std::time::Duration;

use posthorn_domain::{CatalogVersion, Epoch, NodeId, Shard};
use posthorn_store::{Grant, Heartbeat, LiveNode, Membership, Result, ShardHolder, Sign};
use tokio_postgres::Row;

use crate::codec::{Reader, Uid};
use crate::failure::{Corrupt, Outcome};
use crate::session::{Operation, Param, Session, begin, commit, execute, pipeline, query, step};
use crate::{lock, sql};

const HEARTBEAT: Operation = Operation::write("heartbeat", "renew the record of this node");
const ACQUIRE: Operation = Operation::write("acquire_shards", "take shards");
const RELEASE: Operation = Operation::write("release_shards", "release shards");
const DEPART: Operation = Operation::write("depart", "remove the record of this node");

pub(crate) fn millis(ttl: Duration) -> i64 {
    // A lease of centuries would overflow the server's time, and is a mistake anyway.
    const YEAR: i64 = 366 * 86_400_000;
    i64::try_from(ttl.as_millis()).unwrap_or(YEAR).min(YEAR)
}

pub(crate) async fn heartbeat(session: &Session, beat: Heartbeat) -> Result<Membership> {
    session
        .run(HEARTBEAT, move |client| {
            Box::pin(async move {
                let node = Uid::from(beat.node);
                let catalog = i64::try_from(beat.catalog.0).unwrap_or(i64::MAX);
                let ttl = millis(beat.ttl);
                let params: [Param<'_>; 4] = [&node, &ttl, &catalog, &beat.version];
                let steps = [
                    step(client, sql::HEARTBEAT, &params).await?,
                    step(client, sql::NODES, &[]).await?,
                    step(client, sql::HOLDERS, &[]).await?,
                    step(client, sql::CATALOG_VERSION, &[]).await?,
                ];
                let rows = pipeline(client, &steps).await?;
                membership(&rows)
            })
        })
        .await
}

fn membership(rows: &[Vec<Row>]) -> Outcome<Membership> {
    let [_, nodes, holders, catalog] = rows else {
        return Ok(Membership::default());
    };
    let alive = |row: &&Row| row.try_get::<_, bool>("alive").unwrap_or(false);
    let lost = nodes.iter().filter(|row| !alive(row));
    let lost = lost.map(|row| Reader::new(row, "node", "id").id("id")).collect::<Result<_, _>>()?;
    let node = |row: &Row| -> Result<LiveNode, Corrupt> {
        let reader = Reader::new(row, "node", "id");
        Ok(LiveNode { node: reader.id("id")?, catalog: CatalogVersion(reader.number("catalog")?) })
    };
    let sign = |row: &Row| -> Result<Sign, Corrupt> {
        let reader = Reader::new(row, "node", "id");
        Ok(Sign {
            node: reader.id("id")?,
            ago: Duration::from_millis(reader.number("ago")?),
            version: reader.get("version")?,
        })
    };
    let holder = |row: &Row| -> Result<ShardHolder, Corrupt> {
        let reader = Reader::new(row, "shard_lease", "node");
        Ok(ShardHolder {
            shard: shard(&reader)?,
            node: reader.id("node")?,
            epoch: Epoch(reader.number("epoch")?),
        })
    };
    Ok(Membership {
        nodes: nodes.iter().filter(alive).map(node).collect::<Result<_, _>>()?,
        lost,
        signs: nodes.iter().map(sign).collect::<Result<_, _>>()?,
        holders: holders.iter().map(holder).collect::<Result<_, _>>()?,
        catalog: match catalog.first() {
            Some(row) => CatalogVersion(Reader::new(row, "catalog", "one").number("version")?),
            None => CatalogVersion(0),
        },
    })
}

fn shard(reader: &Reader<'_>) -> Result<Shard, Corrupt> {
    let raw: i16 = reader.get("shard")?;
    u16::try_from(raw)
        .ok()
        .and_then(Shard::new)
        .ok_or_else(|| reader.corrupt("shard", format!("{raw} is not a shard")))
}

pub(crate) fn numbers(shards: &[Shard]) -> Vec<i16> {
    shards.iter().map(|shard| i16::try_from(shard.number()).unwrap_or(i16::MAX)).collect()
}

pub(crate) async fn acquire(
    session: &Session,
    node: NodeId,
    shards: &[Shard],
    ttl: Duration,
) -> Result<Vec<Grant>> {
    let wanted = shards.to_vec();
    session
        .run(ACQUIRE, move |client| {
            let wanted = wanted.clone();
            Box::pin(async move {
                let node = Uid::from(node);
                begin(client).await?;
                // Only the locks of shards that may be had: waiting for the writes of their owners
                // would be in vain for the others, and hold those up.
                let free = query(client, sql::SHARDS_FREE, &[&node, &numbers(&wanted)]).await?;
                let free: Vec<i32> =
                    free.iter().map(|row| row.try_get(0)).collect::<Result<_, _>>()?;
                lock::hold(client, lock::SHARDS, &free).await?;
                let free: Vec<i16> =
                    free.iter().map(|n| i16::try_from(*n).unwrap_or(i16::MAX)).collect();
                let rows = query(client, sql::SHARDS_TAKE, &[&node, &free, &millis(ttl)]).await?;
                commit(client).await?;
                grants(&rows, &wanted)
            })
        })
        .await
}

fn grants(rows: &[Row], wanted: &[Shard]) -> Outcome<Vec<Grant>> {
    let mut grants = Vec::with_capacity(rows.len());
    for row in rows {
        let reader = Reader::new(row, "shard_lease", "node");
        grants.push(Grant { shard: shard(&reader)?, epoch: Epoch(reader.number("epoch")?) });
    }
    let place = |grant: &Grant| wanted.iter().position(|shard| *shard == grant.shard);
    grants.sort_by_key(place);
    Ok(grants)
}

pub(crate) async fn release(session: &Session, node: NodeId, grants: &[Grant]) -> Result<()> {
    let shards = numbers(&grants.iter().map(|grant| grant.shard).collect::<Vec<_>>());
    let epochs: Vec<i64> =
        grants.iter().map(|grant| i64::try_from(grant.epoch.0).unwrap_or(i64::MAX)).collect();
    session
        .run(RELEASE, move |client| {
            let (shards, epochs) = (shards.clone(), epochs.clone());
            Box::pin(async move {
                let node = Uid::from(node);
                let params: [Param<'_>; 3] = [&node, &shards, &epochs];
                let steps = [step(client, sql::SHARDS_RELEASE, &params).await?];
                pipeline(client, &steps).await.map(drop)
            })
        })
        .await
}

pub(crate) async fn depart(session: &Session, node: NodeId) -> Result<()> {
    session
        .run(DEPART, move |client| {
            Box::pin(async move {
                begin(client).await?;
                execute(client, sql::DEPART, &[&Uid::from(node)]).await?;
                commit(client).await
            })
        })
        .await
}
