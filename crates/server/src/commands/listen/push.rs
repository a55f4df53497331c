//! `posthorn listen --push`: events over a socket that this side opens, so that nobody must reach
//! it: no public URL, no open port. The contents are encrypted for this agent alone.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use posthorn_agent::{Ack, Agent, DECRYPTION_ERROR, DELIVERED, Error, Event, Message};
use posthorn_domain::{AgentId, Clock as _};

use super::Args;
use super::identity::Identity;
use super::refusals::{failure, no_push, not_there};
use super::shown::Pushed;
use super::subscription;
use crate::client::{self, Access};
use crate::clock::WallClock;
use crate::commands::{Context, send};
use crate::exit::{Code, Failure};
use crate::lifecycle::Signals;
use crate::terminal;

/// Waits between attempts to connect again: from the first, doubled up to the last.
const WAIT_MIN: Duration = Duration::from_millis(250);
const WAIT_MAX: Duration = Duration::from_secs(30);
/// After so long without a word the server is asked whether it is there.
const SILENCE: Duration = Duration::from_secs(90);
/// And so long it has for the answer.
const ANSWER: Duration = Duration::from_secs(20);
/// Messages that are remembered, to show each once though its acknowledgement was lost.
const REMEMBERED: usize = 1_024;

struct Listener<'a> {
    context: Context,
    args: &'a Args,
    topic: &'a str,
    url: String,
    options: posthorn_agent::Options,
    /// Which sender the channel is for: the tenant's own.
    sender: String,
    identity: Option<Identity>,
    /// Whether the subscription was looked for since the start.
    looked: bool,
    /// Before the next attempt to connect. It grows while sockets break without having been of use.
    wait: Duration,
    shown: u64,
    unreadable: bool,
    recent: VecDeque<String>,
}

/// Why a socket is left.
enum Left {
    /// As many events as were asked for, or nobody reads them any more.
    Enough,
    /// It broke.
    Broken(String),
}

/// Runs it.
pub(super) async fn run(
    access: &Access,
    json: bool,
    args: &Args,
    topic: &str,
) -> anyhow::Result<()> {
    let mut signals = Signals::listen()?;
    let mut listener = Listener::new(access, json, args, topic).await?;
    let mut agent = tokio::select! {
        greeted = listener.greet() => {
            let (mut agent, known) = greeted.map_err(|error| failure(&error))?;
            // Only now: a server without agents is left as it was.
            send::ensure_topic(&listener.context, topic).await?;
            listener.settle(&mut agent, known).await?;
            Some(agent)
        }
        _ = signals.next() => None,
    };
    if agent.is_some() {
        listener.welcome();
    }
    while let Some(socket) = &mut agent {
        let left = tokio::select! {
            left = listener.take_all(socket) => left,
            _ = signals.next() => Left::Enough,
        };
        let Left::Broken(why) = left else { break };
        terminal::note(format!("the socket broke ({why}); connecting again"));
        agent = listener.again(&mut signals).await;
    }
    listener.leave(agent).await
}

impl<'a> Listener<'a> {
    async fn new(
        access: &Access,
        json: bool,
        args: &'a Args,
        topic: &'a str,
    ) -> anyhow::Result<Self> {
        let context = Context::new(access, json)?;
        let server = access.server.trim_end_matches('/');
        let identity = match &args.keep {
            Some(file) => Identity::load(file, server, topic)?,
            None => None,
        };
        let key = context.client.get("/v1/push/key").await.map_err(|error| {
            let refused = error.downcast_ref::<Failure>().and_then(|it| it.problem.as_deref());
            match refused {
                Some("push_not_enabled" | "not_found") => no_push().into(),
                _ => error,
            }
        })?;
        let sender = terminal::cell(&key, "public_key");
        let roots = client::roots(access.ca.as_deref())?;
        Ok(Self {
            context,
            args,
            topic,
            url: format!("{server}/"),
            options: posthorn_agent::Options {
                roots: Some(Arc::new(roots)),
                ..posthorn_agent::Options::default()
            },
            sender,
            identity,
            looked: false,
            wait: WAIT_MIN,
            shown: 0,
            unreadable: false,
            recent: VecDeque::new(),
        })
    }

    /// Connects as whoever we are; whether the server knows us. Changes nothing and may be given up.
    async fn greet(&self) -> Result<(Agent, Option<AgentId>), Error> {
        let mut agent = Agent::connect(&self.url, &self.options).await?;
        let known = self.identity.as_ref().map(|identity| identity.agent);
        let hello = agent.hello(known, &[]).await?;
        Ok((agent, (!hello.known).then_some(hello.agent)))
    }

    /// Sees to it that there is a channel and a subscription that leads to it. `stranger` is the new
    /// name of an agent that the server did not know.
    async fn settle(&mut self, agent: &mut Agent, stranger: Option<AgentId>) -> anyhow::Result<()> {
        let server = self.context.client.server().trim_end_matches('/').to_owned();
        let mut identity = match (&self.identity, stranger) {
            (Some(identity), None) => identity.clone(),
            (former, stranger) => {
                let fresh = stranger.context("an agent that nobody knows has a name")?;
                if let Some(former) = former {
                    terminal::note(
                        "the server has forgotten this agent; what it had not got is lost",
                    );
                    self.unsubscribe(former).await?;
                }
                Identity::fresh(&server, self.topic, fresh)
            }
        };
        if !self.looked || identity.subscription.is_none() {
            self.subscribe(agent, &mut identity).await?;
        }
        self.looked = true;
        self.identity = Some(identity);
        Ok(())
    }

    /// Finds the subscription of this agent and sees to it that it works, or makes one.
    async fn subscribe(&self, agent: &mut Agent, identity: &mut Identity) -> anyhow::Result<()> {
        let (client, profile) = (&self.context.client, self.args.profile.as_deref());
        let found = subscription::find(client, identity).await?;
        match (&found, &identity.subscription) {
            (Some(found), _) => found.refuse_paused()?,
            // A second one for the same channel is not what anybody means by another key.
            (None, Some(id)) => return Err(not_there(id).into()),
            (None, None) => {}
        }
        let endpoint = agent.register(identity.channel, Some(&self.sender)).await;
        let endpoint = endpoint.map_err(|error| failure(&error))?;
        if let Some(found) = found {
            found.freshen(client, identity, &endpoint, profile).await?;
            identity.subscription = Some(found.id);
            return self.keep(identity);
        }
        // First the agent, then what leads to it, so that no run leaves a subscription behind that
        // the next one does not find.
        self.keep(identity)?;
        let id = subscription::create(client, identity, &endpoint, profile).await?;
        identity.subscription = Some(id);
        if let Err(error) = self.keep(identity) {
            self.unsubscribe(identity).await?;
            return Err(error);
        }
        Ok(())
    }

    fn keep(&self, identity: &Identity) -> anyhow::Result<()> {
        match &self.args.keep {
            Some(file) => identity.save(file),
            None => Ok(()),
        }
    }

    async fn unsubscribe(&self, identity: &Identity) -> anyhow::Result<()> {
        let client = &self.context.client;
        let id = match &identity.subscription {
            Some(id) => Some(id.clone()),
            None => subscription::find(client, identity).await?.map(|found| found.id),
        };
        match id {
            Some(id) => subscription::remove(client, &id).await,
            None => Ok(()),
        }
    }

    fn subscription(&self) -> &str {
        self.identity.as_ref().and_then(|it| it.subscription.as_deref()).unwrap_or("-")
    }

    fn welcome(&self) {
        let (topic, id) = (self.topic, self.subscription());
        terminal::note(match &self.args.keep {
            None => format!("subscribed to {topic} with {id}; Ctrl-C ends and removes it"),
            Some(file) => format!(
                "subscribed to {topic} with {id}; Ctrl-C ends, and what comes meanwhile waits for \
                 the next start with --keep {}",
                file.display()
            ),
        });
    }

    /// Connects until it works, or a signal comes. Waiting and connecting are given up then, but not
    /// what changes the server.
    async fn again(&mut self, signals: &mut Signals) -> Option<Agent> {
        loop {
            let wait = self.wait;
            self.wait = (wait * 2).min(WAIT_MAX);
            let greeting = async {
                tokio::time::sleep(wait).await;
                self.greet().await
            };
            let greeted = tokio::select! {
                greeted = greeting => greeted,
                _ = signals.next() => return None,
            };
            let problem = match greeted {
                Ok((mut agent, stranger)) => match self.settle(&mut agent, stranger).await {
                    Ok(()) => return Some(agent),
                    Err(error) => format!("{error:#}"),
                },
                Err(error) => error.to_string(),
            };
            terminal::note(format!("{problem}; trying again in {:?}", self.wait));
        }
    }

    async fn take_all(&mut self, agent: &mut Agent) -> Left {
        let began = Instant::now();
        loop {
            let left = match self.take(agent).await {
                Ok(None) => {
                    self.wait = WAIT_MIN;
                    continue;
                }
                Ok(Some(left)) => left,
                Err(error) => Left::Broken(error.to_string()),
            };
            if began.elapsed() > WAIT_MAX {
                self.wait = WAIT_MIN;
            }
            return left;
        }
    }

    /// Takes what comes next: shows it, then acknowledges it.
    async fn take(&mut self, agent: &mut Agent) -> Result<Option<Left>, Error> {
        let event = match tokio::time::timeout(SILENCE, agent.next()).await {
            Ok(event) => event?,
            Err(_) => {
                // As a frame: how often an agent may send `{}` is the server's to say.
                agent.send(Message::Ping(Bytes::new())).await?;
                let answer = tokio::time::timeout(ANSWER, agent.next()).await;
                answer.map_err(|_| Error::Late("the answer to a ping"))??
            }
        };
        let notification = match event {
            Event::Notification(notification) => notification,
            Event::Closed(closed) => return Ok(Some(Left::Broken(closed.to_string()))),
            _ => return Ok(None),
        };
        let mut code = DELIVERED;
        let mut enough = false;
        if !self.recent.contains(&notification.version) {
            let Some(identity) = &self.identity else { return Ok(Some(Left::Enough)) };
            let opened = notification.open(&identity.keys);
            let opened = opened.map_err(|error| error.to_string().into());
            if opened.is_err() {
                code = DECRYPTION_ERROR;
                self.unreadable = true;
            }
            let number = self.shown + 1;
            let at = WallClock.now();
            let pushed = Pushed { number, at, notification: &notification, opened: &opened, code };
            let written = if self.context.json { pushed.as_json() } else { pushed.as_text() };
            if written.is_err() {
                // Nobody saw it: it is not acknowledged, and stays.
                return Ok(Some(Left::Enough));
            }
            self.shown = number;
            if self.recent.len() == REMEMBERED {
                self.recent.pop_front();
            }
            self.recent.push_back(notification.version.clone());
            enough = self.args.count.is_some_and(|count| number >= count);
        }
        let (channel, version) = (notification.channel, notification.version.as_str());
        agent.ack(&[Ack { channel, version, code: Some(code) }]).await?;
        Ok(enough.then_some(Left::Enough))
    }

    /// Leaves nothing behind, or all of it.
    async fn leave(mut self, agent: Option<Agent>) -> anyhow::Result<()> {
        let Some(identity) = self.identity.take() else { return Ok(()) };
        let mut agent = agent;
        match &self.args.keep {
            Some(file) => terminal::note(format!("{} keeps the agent", file.display())),
            None => {
                self.unsubscribe(&identity).await?;
                if let Some(agent) = &mut agent {
                    // The channel leads nowhere any more; a server that is gone will notice itself.
                    drop(agent.unregister(identity.channel).await);
                }
                if let Some(id) = &identity.subscription {
                    terminal::note(format!("removed {id}"));
                }
            }
        }
        if let Some(agent) = agent {
            // What was acknowledged has been sent before; a close that is not answered harms nobody.
            drop(agent.close().await);
        }
        if self.args.count.is_some() && self.unreadable {
            return Err(Failure::new(Code::Failure, "at least one message did not open").into());
        }
        Ok(())
    }
}
