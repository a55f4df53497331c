//! The nodes as the page of the system shows them, and the configuration in effect.

use std::sync::Arc;

use askama::Template;
use http::StatusCode;
use posthorn_domain::{NodeId, Timestamp};
use serde::Deserialize;
use serde_json::Value;

use super::Answer;
use super::show::{Shown, Time};
use crate::frame::{Frame, Place};
use crate::text;
use crate::trouble::Trouble;
use crate::visit::{Visit, page};

#[derive(Deserialize)]
struct Items<T> {
    items: Vec<T>,
}

#[derive(Deserialize)]
struct Node {
    id: NodeId,
    here: bool,
    alive: bool,
    seen_at: Timestamp,
    #[serde(default)]
    version: String,
    shards: Vec<ShardRow>,
}

#[derive(Deserialize)]
struct ShardRow {
    shard: u16,
    epoch: u64,
}

/// A node in a row.
pub(crate) struct NodeLine {
    pub(crate) id: String,
    pub(crate) here: bool,
    pub(crate) shown: Shown,
    pub(crate) version: String,
    pub(crate) seen: Time,
    pub(crate) held: usize,
    pub(crate) shards: String,
}

/// All nodes, the one that answers first.
pub(crate) async fn lines(visit: &Visit) -> Result<Vec<NodeLine>, Trouble> {
    let mut nodes: Items<Node> = visit.get("/v1/nodes").await?;
    nodes.items.sort_by_key(|node| !node.here);
    let now = visit.now();
    let line = |node: Node| NodeLine {
        id: node.id.to_string(),
        here: node.here,
        shown: match node.alive {
            true => Shown::new("good", "alive"),
            false => Shown::new("bad", "lost"),
        },
        version: match node.version.is_empty() {
            true => "not told".to_owned(),
            false => text::line(&node.version, 40),
        },
        seen: Time::new(node.seen_at, now),
        held: node.shards.len(),
        shards: in_words(&node.shards),
    };
    Ok(nodes.items.into_iter().map(line).collect())
}

/// Shards with their epochs; neighbours of one epoch together.
fn in_words(shards: &[ShardRow]) -> String {
    let mut parts: Vec<(u16, u16, u64)> = Vec::new();
    for row in shards {
        match parts.last_mut() {
            Some((_, last, epoch)) if *epoch == row.epoch && *last + 1 == row.shard => {
                *last = row.shard;
            }
            _ => parts.push((row.shard, row.shard, row.epoch)),
        }
    }
    let words = parts.iter().map(|(first, last, epoch)| match first == last {
        true => format!("{first} (epoch {epoch})"),
        false => format!("{first}–{last} (epoch {epoch})"),
    });
    words.collect::<Vec<String>>().join(", ")
}

#[derive(Deserialize)]
struct Entry {
    key: String,
    value: Value,
    source: String,
}

struct EntryLine {
    key: String,
    value: String,
    source: String,
    own: bool,
}

#[derive(Template)]
#[template(path = "config.html")]
struct ConfigPage<'p> {
    frame: Frame,
    visit: &'p Visit,
    lines: Vec<EntryLine>,
    all: usize,
}

/// `GET /console/system/config`.
pub(crate) async fn config(visit: Arc<Visit>) -> Answer {
    let entries: Items<Entry> = visit.get("/v1/config").await?;
    let wanted = visit.query.get("q").unwrap_or_default().to_lowercase();
    let changed = visit.query.is_checked("changed");
    let all = entries.items.len();
    let line = |entry: Entry| {
        let value = match &entry.value {
            Value::String(text) => text::line(text, 300),
            other => text::line(&other.to_string(), 300),
        };
        // The defaults are the layer that is always there.
        let own = entry.source != "default";
        EntryLine { key: entry.key, value, source: text::line(&entry.source, 120), own }
    };
    let lines = entries.items.into_iter().map(line);
    let fits = |line: &EntryLine| line.key.contains(&wanted) && (line.own || !changed);
    let html = ConfigPage {
        frame: Frame::new(&visit, Place::System, "Configuration")
            .await
            .below("/console/system", "System"),
        lines: lines.filter(fits).collect(),
        visit: &visit,
        all,
    };
    Ok(page(&visit.headers, StatusCode::OK, html.render()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_one_epoch_stand_together() {
        let row = |shard, epoch| ShardRow { shard, epoch };
        let shards = [row(0, 1), row(1, 1), row(2, 3), row(3, 1), row(5, 1)];
        let wanted = "0–1 (epoch 1), 2 (epoch 3), 3 (epoch 1), 5 (epoch 1)";
        assert_eq!(in_words(&shards), wanted);
        assert_eq!(in_words(&[]), "");
    }
}
