//! What is left to do when a connection is over: its line in the log, the messages that only it had,
//! and its place on the router record.

use std::sync::Arc;
use std::time::Duration;

use posthorn_domain::{PushMessage, Timestamp};
use posthorn_push::endpoint::{Connection, Found, NodeAnswer, hint_after_save};
use posthorn_push::protocol::Close;
use posthorn_push::session::Summary;
use posthorn_store::push::Route;

use crate::log::chain;
use crate::node::Shared;

/// Waits between tries to store what was left behind.
const WAITS: [Duration; 6] = [
    Duration::from_millis(100),
    Duration::from_millis(500),
    Duration::from_secs(2),
    Duration::from_secs(5),
    Duration::from_secs(10),
    Duration::from_secs(20),
];

/// One line for each connection.
pub(crate) fn log(summary: &Summary) {
    let counted = &summary.counters;
    tracing::info!(
        agent = summary.agent.map(tracing::field::display),
        close = summary.close.as_str(),
        connection_time_ms = summary.lived.as_millis(),
        direct_sent = counted.direct_sent,
        direct_acked = counted.direct_acked,
        direct_storage = counted.direct_saved,
        direct_refused = counted.direct_refused,
        stored_retrieved = counted.stored_sent,
        stored_acked = counted.stored_acked,
        expired = counted.expired,
        nacks = counted.nacks,
        registers = counted.registers,
        unregisters = counted.unregisters,
        "connection ended"
    );
}

/// Stores what was left behind, then tells whoever has the agent now; or takes the connection off the
/// record.
pub(crate) async fn settle(
    node: Arc<Shared>,
    summary: Summary,
    connected_at: Timestamp,
    save: Vec<PushMessage>,
) {
    let Some(agent) = summary.agent else { return };
    let ours = Connection { node: node.options.node.clone(), connected_at };
    let Some(first) = save.first() else {
        // Who took over is on the record already, or there is no record.
        if !matches!(summary.close, Close::Replaced | Close::AlreadyConnected | Close::Reset) {
            node.questions.clear(agent, ours).await;
        }
        return;
    };
    let channel = first.channel;
    if !keep(&node, &save).await {
        tracing::error!(
            agent = %agent,
            messages = save.len(),
            "messages that were sent and not acknowledged could not be stored; they are lost"
        );
    }
    let found = match node.questions.route_to(agent, channel).await {
        Ok(None) => Found::NoAgent,
        Ok(Some(route)) => whereabouts(&route),
        Err(()) => Found::Failed,
    };
    match hint_after_save(&found) {
        Some(there) if *there == ours => node.questions.clear(agent, ours).await,
        Some(there) => match node.hint_to(&there.node, agent).await {
            NodeAnswer::Accepted | NodeAnswer::Full => {}
            // If it is there all the same, it finds itself off the record and looks by itself.
            NodeAnswer::NotConnected | NodeAnswer::Unreachable => {
                node.questions.clear(agent, there.clone()).await;
            }
        },
        None => {}
    }
}

/// Where the record says that an agent is.
pub(crate) fn whereabouts(route: &Route) -> Found {
    match &route.router.node {
        Some(node) => Found::Connected(Connection {
            node: node.clone(),
            connected_at: route.router.connected_at,
        }),
        None => Found::NotConnected,
    }
}

/// Tries for a while. Trying again is harmless: a message is known by its id.
async fn keep(node: &Arc<Shared>, save: &[PushMessage]) -> bool {
    let mut waits = WAITS.into_iter();
    loop {
        match node.store.store_messages(save.to_vec()).await {
            Ok(_) => return true,
            Err(e) => {
                tracing::warn!(error = %chain(&e), "what a connection left behind could not be stored");
                let Some(wait) = waits.next() else { return false };
                tokio::time::sleep(wait).await;
            }
        }
    }
}
