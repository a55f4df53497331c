//! Web Push: who is connected where, how much waits, and one agent with its channels. What messages say and which keys
//! channels are bound to is shown nowhere.

use std::sync::Arc;

use askama::Template;
use http::{Method, StatusCode};
use posthorn_domain::{AgentId, Timestamp};
use serde::Deserialize;
use serde_json::json;

use super::Answer;
use super::show::{Shown, Time};
use super::typed::{self, Typed, Wrong};
use crate::form::Fields;
use crate::frame::{Frame, Place};
use crate::text;
use crate::trouble::Trouble;
use crate::visit::{Visit, page, see};
use crate::words;

const FIELDS: &[&str] = &["find"];
/// Channels that are shown.
const CHANNELS_MAX: usize = 200;

#[derive(Deserialize)]
struct Overview {
    enabled: bool,
    agents: u64,
    messages: u64,
    more: bool,
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    node: String,
    here: bool,
    agents: u64,
    sockets: Option<u64>,
}

#[derive(Deserialize)]
struct Agent {
    uaid: String,
    node: Option<String>,
    connected_at: Timestamp,
    created_at: Timestamp,
    seen_at: Timestamp,
    channels: Vec<Channel>,
    channel_count: usize,
    waiting: u64,
    more_waiting: bool,
    channel: Option<String>,
}

#[derive(Deserialize)]
struct Channel {
    id: String,
    restricted: bool,
}

struct NodeLine {
    name: String,
    here: bool,
    agents: String,
    sockets: Option<String>,
}

#[derive(Template)]
#[template(path = "push.html")]
struct PushPage {
    frame: Frame,
    enabled: bool,
    figures: Vec<(&'static str, String, String)>,
    nodes: Vec<NodeLine>,
    form: Typed,
}

/// `GET /console/push`.
pub(crate) async fn show(visit: Arc<Visit>) -> Answer {
    list(&visit, Fields::default(), None).await
}

async fn list(visit: &Visit, typed: Fields, wrong: Option<Wrong>) -> Answer {
    let overview: Overview = visit.get("/v1/push").await?;
    let form = Typed::new(FIELDS, typed).wrong(wrong);
    let status = form.status();
    let connected: u64 = overview.nodes.iter().map(|node| node.agents).sum();
    let least = |count: u64| match overview.more {
        true => format!("{} or more", words::number(count)),
        false => words::number(count),
    };
    let line = |node: &Node| NodeLine {
        name: text::line(&node.node, 200),
        here: node.here,
        agents: words::number(node.agents),
        sockets: node.sockets.map(words::number),
    };
    let html = PushPage {
        frame: Frame::new(visit, Place::Push, "Push").await,
        enabled: overview.enabled,
        figures: vec![
            ("Connected agents", least(connected), "now, on all nodes".to_owned()),
            ("Messages stored", least(overview.messages), "for agents that are away".to_owned()),
            ("Agents", least(overview.agents), "connected or not".to_owned()),
        ],
        nodes: overview.nodes.iter().map(line).collect(),
        form,
    };
    Ok(page(&visit.headers, status, html.render()?))
}

/// `POST /console/push/find`. What is looked for is a secret of an agent or of its senders, so it stands in no address.
pub(crate) async fn find(visit: Arc<Visit>) -> Answer {
    let Some(text) = visit.form.get("find") else {
        let wrong = ("find".to_owned(), "type an endpoint or the UAID of an agent".to_owned());
        return list(&visit, visit.form.clone(), Some(wrong)).await;
    };
    let found: Result<Agent, Trouble> = match text.parse::<AgentId>() {
        Ok(id) => visit.get(&format!("/v1/push/agents/{id}")).await,
        Err(_) => {
            let body = json!({"endpoint": text});
            visit.send(Method::POST, "/v1/push/agents/find", Some(&body)).await
        }
    };
    let none = |text: String| Some(("find".to_owned(), text));
    let wrong = match found {
        Ok(agent) => {
            let channel =
                agent.channel.map(|channel| format!("?channel={}", typed::part(&channel)));
            let channel = channel.unwrap_or_default();
            return Ok(see(&format!("/console/push/agents/{}{channel}", agent.uaid)));
        }
        Err(Trouble::Refused(refusal)) if refusal.status == 404 => none("no such agent".to_owned()),
        Err(trouble) => none(typed::refused(trouble)?.1),
    };
    list(&visit, visit.form.clone(), wrong).await
}

struct ChannelLine {
    id: String,
    restricted: bool,
    asked: bool,
}

#[derive(Template)]
#[template(path = "push_agent.html")]
struct AgentPage {
    frame: Frame,
    uaid: String,
    shown: Shown,
    node: Option<String>,
    connected: Time,
    made: Time,
    seen: Time,
    waiting: String,
    channels: Vec<ChannelLine>,
    channel_count: usize,
    /// The channel of an endpoint that was looked for and is not registered any more.
    gone: Option<String>,
}

/// `GET /console/push/agents/{id}`.
pub(crate) async fn agent(visit: Arc<Visit>) -> Answer {
    let id = visit.named.first().and_then(|text| text.parse::<AgentId>().ok());
    let id = id.ok_or(Trouble::NotFound("agent"))?;
    let agent: Agent = visit.get(&format!("/v1/push/agents/{id}")).await?;
    let asked = visit.query.get("channel");
    let now = visit.now();
    let mut channels = agent.channels;
    // The one that was looked for comes first, however many there are.
    channels.sort_by_key(|channel| Some(channel.id.as_str()) != asked);
    let found = channels.iter().any(|channel| Some(channel.id.as_str()) == asked);
    let line = |channel: &Channel| ChannelLine {
        id: text::line(&channel.id, 64),
        restricted: channel.restricted,
        asked: Some(channel.id.as_str()) == asked,
    };
    let waiting = words::number(agent.waiting);
    let html = AgentPage {
        frame: Frame::new(&visit, Place::Push, "Agent").await.below("/console/push", "Push"),
        uaid: agent.uaid,
        shown: match &agent.node {
            Some(_) => Shown::new("good", "connected"),
            None => Shown::new("off", "away"),
        },
        node: agent.node.map(|node| text::line(&node, 200)),
        connected: Time::new(agent.connected_at, now),
        made: Time::new(agent.created_at, now),
        seen: Time::new(agent.seen_at, now),
        waiting: if agent.more_waiting { format!("{waiting} or more") } else { waiting },
        channel_count: agent.channel_count,
        channels: channels.iter().take(CHANNELS_MAX).map(line).collect(),
        gone: asked.filter(|_| !found).map(|channel| text::line(channel, 64)),
    };
    Ok(page(&visit.headers, StatusCode::OK, html.render()?))
}
