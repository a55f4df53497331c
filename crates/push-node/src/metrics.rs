//! Names, units and labels of the metrics of Web Push. Labels are bounded: never an id, never a text
//! that a stranger wrote.

use metrics::{Unit, counter, describe_counter, describe_gauge, describe_histogram};

/// Sockets open.
pub const CONNECTIONS: &str = "posthorn_push_connections";
/// Sockets opened.
pub const CONNECTIONS_OPENED: &str = "posthorn_push_connections_opened_total";
/// Sockets ended, by `close`: why, as in [`posthorn_push::protocol::Close`].
pub const CONNECTIONS_ENDED: &str = "posthorn_push_connections_ended_total";
/// Sockets that were not let in, by `reason` (`pace`, `draining`).
pub const CONNECTIONS_REFUSED: &str = "posthorn_push_connections_refused_total";
/// How long sockets were open.
pub const CONNECTION_SECONDS: &str = "posthorn_push_connection_seconds";
/// Agents that said hello, by `agent` (`known`, `new`,
/// `already_connected`).
pub const HELLOS: &str = "posthorn_push_hellos_total";
/// Channels registered.
pub const REGISTERS: &str = "posthorn_push_registers_total";
/// Channels unregistered.
pub const UNREGISTERS: &str = "posthorn_push_unregisters_total";
/// Notifications sent to agents, by `source` (`direct`, `stored`).
pub const NOTIFICATIONS_SENT: &str = "posthorn_push_notifications_sent_total";
/// Messages acknowledged, by `source` (`direct`, `stored`).
pub const ACKS: &str = "posthorn_push_acks_total";
/// Messages that an agent got and could not use.
pub const NACKS: &str = "posthorn_push_nacks_total";
/// Posts that were accepted, by `outcome` (`direct`, `stored`, `dropped`).
pub const MESSAGES: &str = "posthorn_push_messages_total";
/// Bytes of the bodies that were accepted, by `outcome` as in [`MESSAGES`].
pub const MESSAGE_BYTES: &str = "posthorn_push_message_bytes_total";
/// Posts and deletions that were refused, by `status` and `errno`.
pub const REFUSED: &str = "posthorn_push_refused_total";
/// How long posts took.
pub const REQUEST_SECONDS: &str = "posthorn_push_request_seconds";
/// Posts by how their senders showed who they are, by `form` (`none`, `rfc8292`,
/// `draft01`).
pub const VAPID: &str = "posthorn_push_vapid_total";
/// Calls of other nodes, by `call` (`push`, `hint`) and `outcome` (`accepted`, `full`,
/// `not_connected`, `unreachable`).
pub const NODE_CALLS: &str = "posthorn_push_node_calls_total";
/// Calls of other nodes that were not let in, by `reason` (`form`, `unknown`, `time`).
pub const NODE_CALLS_REFUSED: &str = "posthorn_push_node_calls_refused_total";
/// Messages that were stored because their socket ended before they were acknowledged.
pub const SAVED_AT_END: &str = "posthorn_push_saved_at_end_total";
/// Messages removed from the store because their time was over.
pub const EXPIRED_MESSAGES: &str = "posthorn_push_expired_messages_total";
/// Agents removed because they were not seen for long.
pub const EXPIRED_AGENTS: &str = "posthorn_push_expired_agents_total";
/// Agents that were dropped with everything they had, and told so.
pub const AGENTS_DROPPED: &str = "posthorn_push_agents_dropped_total";
/// RequestQueries to the store that failed, by `operation`.
pub const STORE_ERRORS: &str = "posthorn_push_store_errors_total";
/// Polls of the table of broadcasts, by `outcome` (`ok`, `failed`).
pub const BROADCAST_POLLS: &str = "posthorn_push_broadcast_polls_total";

/// Registers the descriptions; once, at start.
pub fn describe() {
    describe_gauge!(CONNECTIONS, "Open sockets of agents");
    describe_counter!(CONNECTIONS_OPENED, "Sockets of agents opened");
    describe_counter!(CONNECTIONS_ENDED, "Sockets of agents closed, by reason");
    describe_counter!(CONNECTIONS_REFUSED, "Sockets of agents refused, by reason");
    describe_histogram!(CONNECTION_SECONDS, Unit::Seconds, "How long sockets were open");
    describe_counter!(HELLOS, "Agents that said hello, known or new");
    describe_counter!(REGISTERS, "Channels registered");
    describe_counter!(UNREGISTERS, "Channels unregistered");
    describe_counter!(NOTIFICATIONS_SENT, "Notifications sent to agents, by source");
    describe_counter!(ACKS, "Messages acknowledged by agents, by source");
    describe_counter!(NACKS, "Messages that agents got and could not use");
    describe_counter!(MESSAGES, "Messages accepted from senders, by outcome");
    describe_counter!(MESSAGE_BYTES, Unit::Bytes, "Bytes of accepted bodies, by outcome");
    describe_counter!(REFUSED, "Requests from senders refused, by status and errno");
    describe_histogram!(REQUEST_SECONDS, Unit::Seconds, "Duration of requests from senders");
    describe_counter!(VAPID, "Requests from senders, by form of VAPID authentication");
    describe_counter!(NODE_CALLS, "Calls to other nodes, by call and outcome");
    describe_counter!(NODE_CALLS_REFUSED, "Calls from other nodes refused, by reason");
    describe_counter!(SAVED_AT_END, "Messages stored because their socket closed before the ack");
    describe_counter!(EXPIRED_MESSAGES, "Stored messages removed because they expired");
    describe_counter!(
        EXPIRED_AGENTS,
        "Agents removed because they did not connect for a long time"
    );
    describe_counter!(AGENTS_DROPPED, "Agents removed with all their channels and messages");
    describe_counter!(STORE_ERRORS, "Web Push queries to the store that failed");
    describe_counter!(BROADCAST_POLLS, "Polls of the table of broadcasts, by outcome");
    at_zero();
}

/// Counters that are not kept at hand are there from the start all the same, so that a rate misses
/// nothing. Of those whose labels depend on what senders do wrong, one stands for all.
fn at_zero() {
    for name in [AGENTS_DROPPED, EXPIRED_MESSAGES, EXPIRED_AGENTS] {
        counter!(name).increment(0);
    }
    for close in ["gone", "reset", "draining"] {
        counter!(CONNECTIONS_ENDED, "close" => close).increment(0);
    }
    counter!(REFUSED, "status" => "401", "errno" => "109").increment(0);
    for call in ["push", "hint"] {
        for outcome in ["accepted", "full", "not_connected", "unreachable"] {
            counter!(NODE_CALLS, "call" => call, "outcome" => outcome).increment(0);
        }
    }
    for reason in ["time", "unknown", "form"] {
        counter!(NODE_CALLS_REFUSED, "reason" => reason).increment(0);
    }
    for operation in ["expire_messages", "expire_agents"] {
        counter!(STORE_ERRORS, "operation" => operation).increment(0);
    }
    for outcome in ["ok", "failed"] {
        counter!(BROADCAST_POLLS, "outcome" => outcome).increment(0);
    }
}
