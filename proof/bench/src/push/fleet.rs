//! Many agents.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use posthorn_agent::{Agent, Event, Notification, Options};
use posthorn_domain::{AgentId, ChannelId};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::progress::say;
use crate::sink::Sink;

/// Connections that are opened at the same time.
const OPENING: usize = 256;

/// One agent that said hello.
pub(super) struct Connected {
    pub(super) agent: Agent,
    pub(super) id: AgentId,
    pub(super) known: bool,
}

/// Connects many and says hello for each; how many per second. `ids` are who they are.
pub(super) async fn open(
    url: &str,
    options: &Options,
    ids: Vec<Option<AgentId>>,
) -> anyhow::Result<(Vec<Connected>, f64)> {
    let (count, began) = (ids.len(), Instant::now());
    let (url, options) = (Arc::<str>::from(url), Arc::new(options.clone()));
    let opened = in_turns(ids, "opened", move |id: Option<AgentId>| {
        let (url, options) = (Arc::clone(&url), Arc::clone(&options));
        async move {
            let mut agent = Agent::connect(&url, &options).await?;
            let hello = agent.hello(id, &[]).await?;
            Ok(Connected { agent, id: hello.agent, known: hello.known })
        }
    });
    let opened = opened.await?;
    Ok((opened, count as f64 / began.elapsed().as_secs_f64().max(1e-6)))
}

/// The channel of an agent; each has one.
pub(super) fn channel(id: AgentId) -> ChannelId {
    ChannelId::from_random(u128::from_be_bytes(*id.as_bytes()))
}

/// Registers a channel for each, perhaps for the sender with this key; the endpoints, in order, and
/// how many per second.
pub(super) async fn register(
    agents: Vec<Connected>,
    keys: &[String],
) -> anyhow::Result<(Vec<(Connected, String)>, f64)> {
    let (count, began) = (agents.len(), Instant::now());
    let work = agents.into_iter().enumerate().map(|(turn, connected)| {
        let key = (!keys.is_empty()).then(|| keys[turn % keys.len()].clone());
        (connected, key)
    });
    let work = work.collect();
    let registered = in_turns(
        work,
        "registered",
        |(mut connected, key): (Connected, Option<String>)| async move {
            let channel = channel(connected.id);
            let endpoint = connected.agent.register(channel, key.as_deref()).await?;
            Ok((connected, endpoint))
        },
    );
    let registered = registered.await?;
    Ok((registered, count as f64 / began.elapsed().as_secs_f64().max(1e-6)))
}

/// Does something for each, so many at a time; the results in order.
async fn in_turns<A, B, F>(
    work: Vec<A>,
    done: &str,
    each: impl Fn(A) -> F,
) -> anyhow::Result<Vec<B>>
where
    B: Send + 'static,
    F: Future<Output = Result<B, posthorn_agent::Error>> + Send + 'static,
{
    let total = work.len();
    let mut results: Vec<Option<B>> = (0..total).map(|_| None).collect();
    let mut tasks = JoinSet::new();
    let mut finished = 0;
    let mut work = work.into_iter().enumerate();
    loop {
        while tasks.len() < OPENING
            && let Some((turn, item)) = work.next()
        {
            let doing = each(item);
            tasks.spawn(async move { (turn, doing.await) });
        }
        let Some(next) = tasks.join_next().await else { break };
        let (turn, result) = next.context("an agent crashed")?;
        results[turn] = Some(result.with_context(|| format!("agent {turn} of {total}"))?);
        finished += 1;
        if finished % 2_000 == 0 {
            say(&format!("{done}: {finished} of {total}"));
        }
    }
    Ok(results.into_iter().flatten().collect())
}

/// Agents that take what comes, count it, and acknowledge all of it that came at once in one frame.
pub(super) struct Receivers {
    stop: CancellationToken,
    tasks: JoinSet<anyhow::Result<()>>,
}

impl Receivers {
    pub(super) fn start(agents: Vec<Agent>, sink: &Sink) -> Self {
        let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
        for agent in agents {
            tasks.spawn(receive(agent, sink.clone(), stop.clone()));
        }
        Self { stop, tasks }
    }

    /// Closes their sockets. An error when one was closed by the server before.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        self.stop.cancel();
        while let Some(ended) = self.tasks.join_next().await {
            ended.context("an agent crashed")??;
        }
        Ok(())
    }
}

async fn receive(mut agent: Agent, sink: Sink, stop: CancellationToken) -> anyhow::Result<()> {
    let mut batch: Vec<Notification> = Vec::new();
    loop {
        let mut event = tokio::select! {
            biased;
            event = agent.next() => Some(event),
            () = stop.cancelled() => break,
        };
        while let Some(got) = event.take() {
            match got? {
                Event::Notification(notification) => {
                    sink.take(notification.data.as_deref().unwrap_or_default(), sink.now());
                    batch.push(notification);
                }
                Event::Closed(closed) => anyhow::bail!("the server closed a socket: {closed}"),
                _ => {}
            }
            event = agent.ready();
        }
        let acks: Vec<_> = batch.iter().map(Notification::ack).collect();
        if !acks.is_empty() {
            agent.ack(&acks).await?;
        }
        batch.clear();
    }
    agent.close().await?;
    Ok(())
}
