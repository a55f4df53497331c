//! Nodes and shards. Only new epochs touch the file.

use std::time::{Duration, Instant};

use posthorn_domain::{NodeId, Shard};
use posthorn_store::{Grant, Heartbeat, Membership};
use rusqlite::params;

use crate::codec::int;
use crate::error::Failure;
use crate::writer::Writer;

pub(crate) fn heartbeat(writer: &mut Writer, beat: Heartbeat) -> Membership {
    writer.leases.heartbeat(beat, Instant::now(), writer.cache.version)
}

pub(crate) fn acquire(
    writer: &mut Writer,
    node: NodeId,
    shards: &[Shard],
    ttl: Duration,
) -> Result<Vec<Grant>, Failure> {
    let grants = writer.leases.acquire(node, shards, ttl, Instant::now());
    let mut store = writer
        .conn
        .prepare_cached("insert or replace into shard (number, epoch) values (?1, ?2)")?;
    for grant in &grants {
        store.execute(params![grant.shard.number(), int(grant.epoch.0)])?;
    }
    Ok(grants)
}
