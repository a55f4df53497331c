//! The server as its operators see it: nodes with their shards, and the configuration in effect.

use posthorn_domain::{NodeId, Timestamp};
use posthorn_engine::KnownNode;
use serde::Serialize;

use crate::ConfigEntry;
use crate::call::{Answer, Call};
use crate::respond;

#[derive(Serialize)]
struct NodeView<'a> {
    id: NodeId,
    /// Whether it is the one that answers.
    here: bool,
    alive: bool,
    seen_at: Timestamp,
    #[serde(skip_serializing_if = "str::is_empty")]
    version: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    catalog_version: Option<u64>,
    shards: Vec<ShardView>,
}

#[derive(Serialize)]
struct ShardView {
    shard: u16,
    epoch: u64,
}

#[derive(Serialize)]
struct List<T> {
    items: T,
}

impl<'a> NodeView<'a> {
    fn new(node: &'a KnownNode, own: NodeId) -> Self {
        let shard = |(shard, epoch): &(posthorn_domain::Shard, posthorn_domain::Epoch)| ShardView {
            shard: shard.number(),
            epoch: epoch.0,
        };
        Self {
            id: node.id,
            here: node.id == own,
            alive: node.alive,
            seen_at: node.seen_at,
            version: &node.version,
            catalog_version: node.catalog.map(|version| version.0),
            shards: node.shards.iter().map(shard).collect(),
        }
    }
}

/// `GET /v1/nodes`.
pub(crate) async fn nodes(call: Call) -> Answer {
    let (own, all) = (call.engine().node(), call.engine().nodes());
    let items: Vec<NodeView<'_>> = all.iter().map(|node| NodeView::new(node, own)).collect();
    respond::ok(&List { items })
}

#[derive(Serialize)]
struct Resumed {
    was_on_hold: bool,
}

/// `POST /v1/resume`.
pub(crate) async fn resume(call: Call) -> Answer {
    let was_on_hold = call.engine().resume().await?;
    respond::ok(&Resumed { was_on_hold })
}

/// `GET /v1/config`.
pub(crate) async fn config(call: Call) -> Answer {
    respond::ok(&List::<&[ConfigEntry]> { items: &call.api.options.config })
}
