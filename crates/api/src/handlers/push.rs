//! What operators see of Web Push: how much there is, and one agent with its channels. Never what a message says, nor a
//! key: of a channel that is bound to a sender's key, only that it is.

use posthorn_domain::{AgentId, ChannelId, Timestamp};
use posthorn_engine::PushProblem;
use posthorn_store::push::Agent;
use serde::{Deserialize, Serialize};

use crate::PushSight;
use crate::call::{Answer, Call};
use crate::codes;
use crate::problem::{Problem, Result, chain};
use crate::respond;

/// Rows of each kind that are looked at for figures: more would keep readers busy for long.
const COUNTED_MAX: u64 = 200_000;
/// Messages of one agent that are counted.
const WAITING_MAX: u64 = 10_000;
/// Channels that are shown.
const CHANNELS_MAX: usize = 1_000;

#[derive(Default, Serialize)]
struct Overview {
    enabled: bool,
    agents: u64,
    messages: u64,
    /// Whether there is more than was counted.
    more: bool,
    nodes: Vec<NodeView>,
}

#[derive(Serialize)]
struct NodeView {
    node: String,
    here: bool,
    agents: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    sockets: Option<usize>,
}

#[derive(Serialize)]
struct AgentView {
    uaid: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    connected_at: Timestamp,
    created_at: Timestamp,
    seen_at: Timestamp,
    channels: Vec<ChannelView>,
    channel_count: usize,
    waiting: u64,
    /// Whether more wait than were counted.
    more_waiting: bool,
    /// The channel of the endpoint that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    channel: Option<String>,
}

#[derive(Serialize)]
struct ChannelView {
    id: String,
    /// Whether only the sender of one key may post to it.
    restricted: bool,
}

fn sight(call: &Call) -> Result<PushSight> {
    let off = "Web Push is off; operators turn it on with push.enabled";
    call.api.options.push.clone().ok_or_else(|| Problem::new(codes::NOT_FOUND, off))
}

/// `GET /v1/push`.
pub(crate) async fn overview(call: Call) -> Answer {
    let Some(sight) = &call.api.options.push else {
        return respond::ok(&Overview::default());
    };
    let census = sight.store.census(COUNTED_MAX).await.map_err(|e| unreadable(&e))?;
    let here = (sight.here)();
    let mut nodes: Vec<NodeView> = census
        .connected
        .into_iter()
        .map(|(node, agents)| NodeView { node, here: false, agents, sockets: None })
        .collect();
    if let Some((own, sockets)) = here {
        if !nodes.iter().any(|node| node.node == own) {
            nodes.push(NodeView { node: own.clone(), here: false, agents: 0, sockets: None });
        }
        for node in nodes.iter_mut().filter(|node| node.node == own) {
            (node.here, node.sockets) = (true, Some(sockets));
        }
    }
    respond::ok(&Overview {
        enabled: true,
        agents: census.agents,
        messages: census.messages,
        more: census.more,
        nodes,
    })
}

/// `GET /v1/push/agents/{id}`.
pub(crate) async fn agent(mut call: Call) -> Answer {
    let sight = sight(&call)?;
    let id: AgentId = call.named("agent").await?;
    show(&call, &sight, id, None).await
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Find {
    endpoint: String,
}

/// `POST /v1/push/agents/find`. An endpoint is what senders need to know, so it stands in a body and not in a URL, which
/// others write down.
pub(crate) async fn find(mut call: Call) -> Answer {
    let Find { endpoint } = call.json().await?;
    let sight = sight(&call)?;
    let opened = sight.mailboxes.open(&endpoint).await.map_err(|problem| match problem {
        PushProblem::NotOurs => Problem::field("endpoint", "is not an endpoint of this server"),
        PushProblem::Altered => Problem::field(
            "endpoint",
            "was altered, or made with a key that this server does not have",
        ),
        PushProblem::Gone => Problem::not_found("agent"),
        PushProblem::Unavailable(problem) => {
            tracing::warn!(problem, "an endpoint cannot be looked up");
            Problem::new(codes::UNAVAILABLE, "Web Push does not answer at the moment; try again")
        }
    })?;
    show(&call, &sight, opened.agent, Some(opened.channel)).await
}

async fn show(call: &Call, sight: &PushSight, id: AgentId, channel: Option<ChannelId>) -> Answer {
    let mut found = sight.store.agents(vec![id]).await.map_err(|e| unreadable(&e))?;
    let Some(Agent { router, channels, .. }) = found.pop().flatten() else {
        return Err(Problem::not_found("agent"));
    };
    let now = call.engine().now();
    let counted = sight.store.count_messages(vec![id], now, WAITING_MAX + 1).await;
    let waiting = counted.map_err(|e| unreadable(&e))?.first().copied().unwrap_or(0);
    respond::ok(&AgentView {
        uaid: id.to_string(),
        node: router.node,
        connected_at: router.connected_at,
        created_at: router.created_at,
        seen_at: router.seen_at,
        channel_count: channels.len(),
        channels: channels
            .iter()
            .take(CHANNELS_MAX)
            .map(|own| ChannelView { id: own.id.to_string(), restricted: own.key.is_some() })
            .collect(),
        waiting: waiting.min(WAITING_MAX),
        more_waiting: waiting > WAITING_MAX,
        channel: channel.map(|channel| channel.to_string()),
    })
}

fn unreadable(error: &posthorn_store::Error) -> Problem {
    tracing::warn!(error = %chain(error), "Web Push cannot be looked at");
    Problem::new(codes::UNAVAILABLE, "the store cannot be reached at the moment; try again")
}
