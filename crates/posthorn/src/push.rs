//! A node of Web Push in the same process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use posthorn_domain::{Clock, Span};
use posthorn_engine::PushDelivery;
use posthorn_push::{endpoint::Limits, session};
use posthorn_push_node::upkeep::Upkeep;
use posthorn_push_node::{Direct, Mailboxes, Node, Options, Parts, Roles, broadcasts};
use posthorn_sealing::endpoint_token::{EndpointKey, EndpointTokens};
use posthorn_sealing::vault::VaultKey;
use tokio_util::sync::CancellationToken;

use crate::open::Opened;

/// Agents that were not seen for so long are removed.
const AGENT_TTL: Span = Span::from_secs(60 * 86_400);
/// How often what has expired is removed.
const UPKEEP: Duration = Duration::from_secs(60);
/// Messages stored for an agent that comes back, as the server has it.
const STORED_LIMIT: u32 = 10_000;

/// The node, and what stops it.
pub(crate) struct Push {
    node: Node,
    mailboxes: Mailboxes,
    stop: CancellationToken,
}

impl Push {
    pub(crate) fn start(
        endpoint_url: &str,
        opened: &Opened,
        key: &VaultKey,
        clock: &Arc<dyn Clock>,
    ) -> Self {
        let options = options(endpoint_url);
        let mailboxes = Mailboxes::new(options.limits);
        let tokens = EndpointTokens::new(vec![EndpointKey::derived_from(key)]);
        let stop = CancellationToken::new();
        let parts = Parts {
            store: opened.push_store(),
            tokens: tokens.expect("there is one key"),
            reach: None,
            clock: Arc::clone(clock),
            broadcasts: broadcasts::table(&BTreeMap::new()).expect("there are none"),
            accepting: Arc::new(|| true),
            options,
        };
        let node = Node::start(parts, stop.clone());
        mailboxes.serve(node.clone());
        let upkeep = Upkeep {
            store: opened.push_store(),
            clock: Arc::clone(clock),
            agent_ttl: AGENT_TTL,
            every: UPKEEP,
        };
        tokio::spawn(upkeep.run(stop.clone()));
        Self { node, mailboxes, stop }
    }

    /// Where events for agents are delivered.
    pub(crate) fn mailboxes(&self) -> Arc<dyn PushDelivery> {
        Arc::new(self.mailboxes.clone())
    }

    pub(crate) fn routes(&self) -> Router {
        self.node.router()
    }

    /// Sends all agents away; what they had not acknowledged is stored.
    pub(crate) async fn stop(&self) {
        self.node.drain().await;
        self.stop.cancel();
    }
}

impl Drop for Push {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// What the server has by default, for a node alone.
fn options(endpoint_url: &str) -> Options {
    Options {
        roles: Roles { connection: true, endpoint: true },
        endpoint_url: endpoint_url.trim_end_matches('/').to_owned(),
        node: "alone".to_owned(),
        session: session::Options { stored_max: STORED_LIMIT, ..session::Options::default() },
        limits: Limits::default(),
        direct: Direct::Memory,
        channels_max: 1_000,
        opens_per_second: 2_000,
        frames_per_second: 50,
        drain: Duration::from_secs(10),
    }
}
