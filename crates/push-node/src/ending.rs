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

/// The first wait between tries to store what was left behind; it doubles up to the longest.
const WAIT_FIRST: Duration = Duration::from_millis(100);
const WAIT_MAX: Duration = Duration::from_secs(20);
/// So many connections' messages are stored at once: when a network breaks, all of them end together.
pub(crate) const SAVES_ABREAST: usize = 64;

/// One line for each connection.
pub(crate) fn log(node: &Shared, summary: &Summary) {
    let counted = &summary.counters;
    tracing::info!(
        agent = summary.agent.map(|agent| node.tokens.pseudonym(agent)),
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
            node.request_queries.clear(agent, ours).await;
        }
        return;
    };
    let channel = first.channel;
    let expires_at = save.iter().map(PushMessage::expires_at).max().unwrap_or(connected_at);
    if !keep(&node, &save, expires_at).await {
        tracing::error!(
            agent = node.tokens.pseudonym(agent),
            messages = save.len(),
            "messages that were sent and not acknowledged could not be stored; they are lost"
        );
    }
    let found = match node.request_queries.route_to(agent, channel).await {
        Ok(None) => Found::NoAgent,
        Ok(Some(route)) => whereabouts(&route),
        Err(()) => Found::Failed,
    };
    match hint_after_save(&found) {
        Some(there) if *there == ours => node.request_queries.clear(agent, ours).await,
        Some(there) => match node.hint_to(&there.node, agent).await {
            NodeAnswer::Accepted | NodeAnswer::Full => {}
            // If it is there all the same, it finds itself off the record and looks by itself.
            NodeAnswer::NotConnected | NodeAnswer::Unreachable => {
                node.request_queries.clear(agent, there.clone()).await;
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

/// Tries for as long as they are worth anything. Trying again is harmless: a message is known by its
/// id. What waits here is part of what the node keeps in memory, so new messages go to the store.
async fn keep(node: &Arc<Shared>, save: &[PushMessage], expires_at: Timestamp) -> bool {
    let bytes = save.iter().map(PushMessage::weight).sum();
    let _kept = node.memory.hold(bytes);
    let mut wait = WAIT_FIRST;
    loop {
        let stored = {
            // Never closed.
            let _place = node.saves.acquire().await;
            node.store.store_messages(save.to_vec()).await
        };
        let Err(e) = stored else { return true };
        tracing::warn!(error = %chain(&e), "messages that a closed connection left behind could \
                                            not be stored");
        if node.clock.now() >= expires_at {
            return false;
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(WAIT_MAX);
    }
}
