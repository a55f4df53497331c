//! How fast messages go through: straight to connected agents, into the store for those who are away,
//! and out of it when they come back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use posthorn_agent::{Agent, Options};
use posthorn_domain::AgentId;
use posthorn_sealing::vapid::SenderKey;
use serde::Serialize;
use url::Url;

use super::fleet::{self, Connected, Receivers};
use super::{home, store_name, url};
use crate::child::Server;
use crate::load::{Form, Load, Target};
use crate::progress::{self, say};
use crate::scenarios::{PATIENCE, WARM_UP};
use crate::sink::Sink;
use crate::{Args, VapidForm};

/// How long senders' proofs hold; longer than any run.
const PROOF_SECONDS: i64 = 12 * 3_600;

/// How long nothing may come when everything was acknowledged.
const QUIET: Duration = Duration::from_secs(2);

/// What the server counts for each message it accepts.
const OUTCOMES: [&str; 3] = ["direct", "stored", "dropped"];

/// What was found.
#[derive(Debug, Default, Serialize)]
pub(super) struct Report {
    scenario: &'static str,
    store: &'static str,
    vapid: &'static str,
    agents: usize,
    senders: usize,
    body_bytes: usize,
    /// Messages per second through the bare server.
    bare_per_s: f64,
    /// Messages per second to connected agents, who acknowledge them.
    direct_per_s: f64,
    direct_ratio: f64,
    /// Of these, what the server says it sent straight on; the others were stored first.
    direct_share: f64,
    /// From the sender's first byte to the agent, in a closed loop.
    p50_ms: f64,
    p99_ms: f64,
    /// Messages per second stored for agents who are away.
    stored_per_s: f64,
    stored_ratio: f64,
    /// Stored messages per second that agents who come back get and acknowledge.
    drained_per_s: f64,
    drained_ratio: f64,
    /// Messages that were accepted, by the server, those of the warm-up included.
    accepted: u64,
    /// Accepted, but never arrived.
    lost: u64,
    /// Arrived again, at any time.
    duplicates: u64,
    /// Arrived when all had been acknowledged and the agents came once more.
    returned: u64,
    /// Answered with something else than a 2xx.
    refused: u64,
    rss_mib: f64,
    seconds: f64,
    floor: Marks,
    goal: Marks,
}

/// What is wanted, in a release build with 64 agents and bodies of 1,000 bytes.
#[derive(Debug, Default, Serialize)]
struct Marks {
    direct_per_s: f64,
}

impl Report {
    /// Promises that were not kept. Speeds are none: they are the machine's too.
    pub(super) fn broken(&self) -> Vec<String> {
        let mut broken = Vec::new();
        if self.lost > 0 {
            broken.push(format!("{} accepted messages were lost", self.lost));
        }
        if self.returned > 0 {
            broken.push(format!("{} acknowledged messages came again", self.returned));
        }
        broken
    }
}

struct Bench<'a> {
    args: &'a Args,
    sink: Sink,
    numbers: Arc<AtomicU64>,
    options: Options,
}

/// What came of one phase.
struct Phase {
    refused: u64,
    accepted_per_s: f64,
    arrived_per_s: f64,
}

pub(super) async fn run(args: &Args) -> anyhow::Result<Report> {
    let bench = Bench {
        args,
        sink: Sink::new(),
        numbers: Arc::new(AtomicU64::new(0)),
        options: Options {
            patience: Duration::from_secs(30),
            read_buffer_bytes: 16 * 1024,
            ..Options::default()
        },
    };
    say("measuring the bare server");
    let bare = bench.bare().await?;
    let mut home = home(args)?;
    let server = home.start().await?;
    let mut report = bench.server(&server).await?;
    report.rss_mib = server.peak_mib();
    server.kill().await?;
    report.bare_per_s = bare;
    report.direct_ratio = report.direct_per_s / bare.max(1.0);
    report.stored_ratio = report.stored_per_s / bare.max(1.0);
    report.drained_ratio = report.drained_per_s / bare.max(1.0);
    Ok(report)
}

impl Bench<'_> {
    async fn bare(&self) -> anyhow::Result<f64> {
        let server = Server::bare_sockets(true).await?;
        let (agents, _) =
            fleet::open(&url(&server), &self.options, vec![None; self.args.agents]).await?;
        let (agents, _) = fleet::register(agents, &[]).await?;
        let path = |id: AgentId| format!("/wpush/v1/{id}");
        let targets: Vec<Target> = agents
            .iter()
            .map(|(connected, _)| self.target(&server, path(connected.id), ""))
            .collect();
        let receivers = Receivers::start(sockets(agents), &self.sink);
        self.warm_up(&targets).await?;
        let phase = self.phase(&targets, true).await?;
        receivers.stop().await?;
        server.kill().await?;
        Ok(phase.arrived_per_s)
    }

    async fn server(&self, server: &Server) -> anyhow::Result<Report> {
        let senders: Vec<SenderKey> = match self.args.vapid {
            VapidForm::V2 => (0..self.args.agents).map(|_| SenderKey::generate()).collect(),
            VapidForm::None => Vec::new(),
        };
        let keys: Vec<String> = senders.iter().map(|key| key.public_key().to_text()).collect();
        let (agents, _) =
            fleet::open(&url(server), &self.options, vec![None; self.args.agents]).await?;
        let (agents, _) = fleet::register(agents, &keys).await?;
        let ids: Vec<Option<AgentId>> =
            agents.iter().map(|(connected, _)| Some(connected.id)).collect();
        let mut targets = Vec::new();
        for (turn, (_, endpoint)) in agents.iter().enumerate() {
            let endpoint = Url::parse(endpoint).context("an endpoint is no URL")?;
            let proof = senders.get(turn).map(|key| proof(key, &endpoint)).unwrap_or_default();
            targets.push(self.target(server, endpoint.path().to_owned(), &proof));
        }
        let receivers = Receivers::start(sockets(agents), &self.sink);
        let (first, duplicates) = (self.next_number(), self.sink.duplicates());
        say("measuring messages to connected agents");
        self.warm_up(&targets).await?;
        self.sink.reset_latency();
        let before = outcomes(server).await?;
        let direct = self.phase(&targets, true).await?;
        let after = outcomes(server).await?;
        let (p50_ms, p99_ms) = (self.sink.latency_ms(0.5), self.sink.latency_ms(0.99));
        receivers.stop().await?;

        say("measuring messages to agents who are away");
        let arrived = self.sink.arrived();
        let stored = self.phase(&targets, false).await?;
        ensure!(self.sink.arrived() == arrived, "a message arrived though nobody was there");

        say("measuring their return");
        let began = self.sink.now();
        let (agents, _) = fleet::open(&url(server), &self.options, ids.clone()).await?;
        ensure!(agents.iter().all(|connected| connected.known), "an agent was forgotten");
        let receivers = self.receive(agents);
        self.sink.wait_for_owed(first, PATIENCE).await;
        let (accepted, lost) = self.sink.owed(first);
        let drained = self.sink.arrived() - arrived;
        let drained_seconds = self.sink.last().saturating_sub(began) as f64 / 1e6;
        receivers.stop().await?;

        say("looking whether anything comes that was acknowledged");
        let repeated = self.sink.duplicates();
        let (agents, _) = fleet::open(&url(server), &self.options, ids).await?;
        let receivers = self.receive(agents);
        tokio::time::sleep(QUIET).await;
        receivers.stop().await?;
        let sent: Vec<f64> = after.iter().zip(before).map(|(a, b)| (a - b) as f64).collect();
        Ok(Report {
            scenario: "push",
            store: store_name(self.args),
            vapid: self.args.vapid.name(),
            agents: self.args.agents,
            senders: self.args.publishers,
            body_bytes: self.args.body,
            direct_per_s: direct.arrived_per_s,
            direct_share: sent[0] / sent.iter().sum::<f64>().max(1.0),
            p50_ms,
            p99_ms,
            stored_per_s: stored.accepted_per_s,
            drained_per_s: drained as f64 / drained_seconds.max(1e-6),
            accepted,
            lost,
            duplicates: self.sink.duplicates() - duplicates,
            returned: self.sink.duplicates() - repeated,
            refused: direct.refused + stored.refused,
            seconds: self.args.phase().as_secs_f64(),
            floor: Marks { direct_per_s: 6_000.0 },
            goal: Marks { direct_per_s: 12_000.0 },
            ..Report::default()
        })
    }

    fn target(&self, server: &Server, path: String, proof: &str) -> Target {
        Target {
            address: server.address,
            path,
            headers: format!("ttl: 3600\r\ncontent-encoding: aes128gcm\r\n{proof}"),
            form: Form::Bare,
            keyed: false,
            batch: 1,
            payload: self.args.body,
        }
    }

    async fn warm_up(&self, targets: &[Target]) -> anyhow::Result<()> {
        let (arrived, first) = (self.sink.arrived(), self.next_number());
        let load = self.load(targets);
        tokio::time::sleep(WARM_UP).await;
        load.stop().await?;
        self.sink.wait_for_owed(first, PATIENCE).await;
        ensure!(self.sink.arrived() > arrived, "no message arrived");
        Ok(())
    }

    /// The number of the message that is sent next.
    fn next_number(&self) -> u64 {
        self.numbers.load(Ordering::Relaxed)
    }

    fn receive(&self, agents: Vec<Connected>) -> Receivers {
        let agents = agents.into_iter().map(|connected| connected.agent).collect();
        Receivers::start(agents, &self.sink)
    }

    fn load(&self, targets: &[Target]) -> Load {
        Load::spread(targets, self.args.publishers, None, &self.numbers, &self.sink)
    }

    /// Sends for a phase, and waits for what is owed when somebody is there to get it.
    async fn phase(&self, targets: &[Target], connected: bool) -> anyhow::Result<Phase> {
        let (before, began, first) = (self.sink.arrived(), self.sink.now(), self.next_number());
        let load = self.load(targets);
        progress::wait(self.args.phase()).await;
        let (accepted, refused) = load.stop().await?;
        let accepted_seconds = (self.sink.now() - began) as f64 / 1e6;
        if connected {
            self.sink.wait_for_owed(first, PATIENCE).await;
        }
        let arrived = self.sink.arrived() - before;
        let arrived_seconds = self.sink.last().saturating_sub(began) as f64 / 1e6;
        Ok(Phase {
            refused,
            accepted_per_s: accepted as f64 / accepted_seconds.max(1e-6),
            arrived_per_s: arrived as f64 / arrived_seconds.max(1e-6),
        })
    }
}

/// What became of the messages that the server has accepted so far, by its own account.
async fn outcomes(server: &Server) -> anyhow::Result<[u64; OUTCOMES.len()]> {
    let mut counts = [0; OUTCOMES.len()];
    for (count, outcome) in counts.iter_mut().zip(OUTCOMES) {
        let name = format!("posthorn_push_messages_total{{outcome=\"{outcome}\"}}");
        *count = server.gauge(&name).await?;
    }
    Ok(counts)
}

fn sockets(agents: Vec<(Connected, String)>) -> Vec<Agent> {
    agents.into_iter().map(|(connected, _)| connected.agent).collect()
}

/// The header with which a sender shows that an endpoint was made for it.
fn proof(key: &SenderKey, endpoint: &Url) -> String {
    let origin = endpoint.origin().ascii_serialization();
    let expires_at = now_seconds() + PROOF_SECONDS;
    let subject = "mailto:bench@example.com";
    format!("authorization: {}\r\n", key.authorization(&origin, expires_at, Some(subject)))
}

fn now_seconds() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs() as i64)
}
