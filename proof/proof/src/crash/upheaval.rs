//! What is done to a database on two machines: they are killed, frozen and cut off, and so are etcd and single nodes.
//!
//! Each upheaval ends when the database is whole again: one machine is the primary, the other its synchronous standby.
//! So one fault strikes at a time; against two at once nobody promises anything.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use posthorn_testkit::link::Link;
use posthorn_testkit::patroni::{MACHINES, MEMBERS, Patroni};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::crash::cluster::LEASE;
use crate::crash::dice::Dice;
use crate::crash::evidence::{Journal, Micros};
use crate::crash::run::say;
use crate::crash::wire::{Answer, Call, Client};

/// How long another machine may take to become the primary.
const PROMOTE_PATIENCE: Duration = Duration::from_secs(60);
/// How long the database may take to be whole again.
const WHOLE_PATIENCE: Duration = Duration::from_secs(240);
/// How long a machine may take to find back by itself. After that it is built anew, as an operator would have it: Patroni
/// does not always notice that a former primary went another way.
const REBUILD_AFTER: Duration = Duration::from_secs(30);
/// How long one question to Patroni may take.
const ASK_PATIENCE: Duration = Duration::from_secs(2);
/// Between two questions.
const ASK_PAUSE: Duration = Duration::from_millis(20);

/// The database, and the ways of the nodes to it.
#[derive(Debug)]
pub struct Ground {
    patroni: Arc<Patroni>,
    /// For each node, its ways to the machines.
    ways: Vec<Vec<Link>>,
}

/// Who is struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// The machine that is the primary.
    Primary,
    /// The other one.
    Standby,
    /// PostgreSQL on the primary, and nothing else of the machine.
    Postgres,
    /// A member of etcd.
    Member(usize),
    /// All of etcd.
    Etcd,
    /// The way of a node to the database.
    Node(usize),
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// `SIGKILL`.
    Kill,
    /// `SIGSTOP`, and `SIGCONT` later.
    Freeze,
    /// Silence on its wires.
    Cut,
    /// Patroni is asked to make the other machine the primary.
    Move,
}

/// One upheaval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upheaval {
    /// Who is struck.
    pub whom: Whom,
    /// What is done.
    pub how: How,
    /// How long; after the primary was struck, how much longer than until another one was there.
    pub away: Duration,
}

impl Upheaval {
    /// What happens in a cycle; none when it is a node's turn to be killed or paused.
    pub fn choose(dice: &mut Dice, cycle: u64, nodes: usize) -> Option<Self> {
        use {How as H, Whom as W};
        let of = |dice: &mut Dice, count: usize| {
            usize::try_from(dice.roll()).unwrap_or(0) % count.max(1)
        };
        let lease = u64::try_from(LEASE.as_millis()).unwrap_or(u64::MAX);
        let any = [H::Kill, H::Freeze, H::Cut][of(dice, 3)];
        let (member, node) = (of(dice, MEMBERS), of(dice, nodes));
        let (whom, how, away) = match cycle % 12 {
            0 => (W::Primary, H::Kill, 0..=3_000),
            2 => (W::Primary, H::Freeze, 0..=3_000),
            3 => (W::Standby, any, 1_000..=6_000),
            4 => (W::Primary, H::Cut, 0..=3_000),
            5 => (W::Member(member), if any == H::Cut { H::Kill } else { any }, 1_000..=5_000),
            7 => (W::Postgres, H::Kill, 0..=0),
            8 => (W::Node(node), H::Cut, lease..=lease * 5 / 2),
            9 => (W::Primary, H::Move, 0..=0),
            10 => (W::Etcd, H::Freeze, 2_000..=6_000),
            11 => (W::Primary, any, 0..=3_000),
            _ => return None,
        };
        Some(Self { whom, how, away: dice.millis(away) })
    }

    /// In words.
    pub fn describe(&self) -> String {
        let whom = match self.whom {
            Whom::Primary => "the primary's machine".to_owned(),
            Whom::Standby => "the standby's machine".to_owned(),
            Whom::Postgres => "the primary's PostgreSQL alone".to_owned(),
            Whom::Member(index) => format!("member {index} of etcd"),
            Whom::Etcd => "all of etcd".to_owned(),
            Whom::Node(index) => format!("node {index}'s way to the database"),
        };
        let how = match self.how {
            How::Kill => "killed",
            How::Freeze => "froze",
            How::Cut => "cut off",
            How::Move => return "moved the primary to the other machine".to_owned(),
        };
        format!("{how} {whom} for {} ms", self.away.as_millis())
    }
}

impl Ground {
    /// Starts the database and waits until it is whole; also what each node is to be told of where it is.
    pub async fn prepare(
        nodes: usize,
        database: &str,
        logs: &Path,
    ) -> anyhow::Result<(Self, Vec<String>)> {
        let patroni = Arc::new(Patroni::start(logs).await?);
        let mut ways = Vec::new();
        let mut urls = Vec::new();
        for _ in 0..nodes {
            let mut own = Vec::new();
            for machine in 0..MACHINES {
                own.push(patroni.reach(machine).await?);
            }
            let hosts: Vec<String> =
                own.iter().map(|way| format!("127.0.0.1:{}", way.port())).collect();
            let hosts = hosts.join(",");
            urls.push(format!(
                "postgres://postgres@{hosts}/{database}?target_session_attrs=read-write"
            ));
            ways.push(own);
        }
        let ground = Self { patroni, ways };
        let primary = ground.whole().await?;
        let (patroni, statement) =
            (Arc::clone(&ground.patroni), format!("create database {database}"));
        tokio::task::spawn_blocking(move || patroni.sql(primary, &statement)).await??;
        Ok((ground, urls))
    }

    /// Strikes, and waits until the database is whole again. When another machine became the primary by that, the moment.
    pub async fn strike(
        &self,
        upheaval: &Upheaval,
        journal: &Journal,
    ) -> anyhow::Result<Option<Micros>> {
        let primary = self.whole().await?;
        let other = MACHINES - 1 - primary;
        let promoted = match upheaval.whom {
            Whom::Primary => {
                self.begin(upheaval.how, primary).await?;
                let promoted = self.promotion(other, journal).await?;
                sleep(upheaval.away).await;
                self.end(upheaval.how, primary).await?;
                Some(promoted)
            }
            Whom::Standby => {
                self.begin(upheaval.how, other).await?;
                sleep(upheaval.away).await;
                self.end(upheaval.how, other).await?;
                None
            }
            Whom::Postgres => {
                self.with(move |patroni| patroni.kill_postgres(primary)).await?;
                None
            }
            Whom::Member(index) => {
                let kill = upheaval.how == How::Kill;
                self.with(move |patroni| match kill {
                    true => patroni.kill_member(index),
                    false => patroni.freeze_member(index),
                })
                .await?;
                sleep(upheaval.away).await;
                self.with(move |patroni| match kill {
                    true => patroni.start_member(index),
                    false => patroni.thaw_member(index),
                })
                .await?;
                None
            }
            Whom::Etcd => {
                let all = |act: fn(&Patroni, usize) -> posthorn_testkit::postgres::Result<()>| {
                    self.with(move |patroni| {
                        (0..MEMBERS).try_for_each(|member| act(patroni, member))
                    })
                };
                all(Patroni::freeze_member).await?;
                sleep(upheaval.away).await;
                all(Patroni::thaw_member).await?;
                None
            }
            Whom::Node(index) => {
                self.ways[index].iter().for_each(Link::cut);
                sleep(upheaval.away).await;
                self.ways[index].iter().for_each(Link::mend);
                None
            }
        };
        self.whole().await?;
        Ok(promoted)
    }

    async fn begin(&self, how: How, machine: usize) -> anyhow::Result<()> {
        match how {
            How::Kill => self.with(move |patroni| patroni.kill_machine(machine)).await,
            How::Freeze => self.with(move |patroni| patroni.freeze_machine(machine)).await,
            How::Cut => {
                self.patroni.cut_machine(machine);
                self.ways.iter().for_each(|way| way[machine].cut());
                Ok(())
            }
            How::Move => {
                let wish = json!({"leader": Patroni::name(machine), "candidate": Patroni::name(MACHINES - 1 - machine)});
                let answer = self.ask(machine, "POST", "/switchover", &wish, PROMOTE_PATIENCE);
                let answer = answer.await.context("Patroni does not answer")?;
                if !answer.is_success() {
                    bail!("Patroni does not move the primary: {} {}", answer.status, answer.body);
                }
                Ok(())
            }
        }
    }

    async fn end(&self, how: How, machine: usize) -> anyhow::Result<()> {
        match how {
            How::Kill => self.with(move |patroni| patroni.start_machine(machine)).await,
            How::Freeze => self.with(move |patroni| patroni.thaw_machine(machine)).await,
            How::Cut => {
                self.patroni.mend_machine(machine);
                self.ways.iter().for_each(|way| way[machine].mend());
                Ok(())
            }
            How::Move => Ok(()),
        }
    }

    /// Does something that takes a while to the machines.
    async fn with(
        &self,
        act: impl FnOnce(&Patroni) -> posthorn_testkit::postgres::Result<()> + Send + 'static,
    ) -> anyhow::Result<()> {
        let patroni = Arc::clone(&self.patroni);
        Ok(tokio::task::spawn_blocking(move || act(&patroni)).await??)
    }

    /// When a machine says that it is the primary.
    async fn promotion(&self, machine: usize, journal: &Journal) -> anyhow::Result<Micros> {
        let deadline = Instant::now() + PROMOTE_PATIENCE;
        loop {
            let answer = self.ask(machine, "GET", "/primary", &Value::Null, ASK_PATIENCE).await;
            if answer.is_some_and(|answer| answer.is_success()) {
                return Ok(journal.now());
            }
            if Instant::now() >= deadline {
                let log = self.patroni.log(&Patroni::name(machine));
                bail!("no other machine became the primary; see {}", log.display());
            }
            sleep(ASK_PAUSE).await;
        }
    }

    /// Waits until one machine is the primary and the other its synchronous standby; which is the primary.
    async fn whole(&self) -> anyhow::Result<usize> {
        let deadline = Instant::now() + WHOLE_PATIENCE;
        let mut help = Instant::now() + REBUILD_AFTER;
        let mut was_restarted = false;
        loop {
            for machine in 0..MACHINES {
                let answer = self.ask(machine, "GET", "/primary", &Value::Null, ASK_PATIENCE).await;
                if !answer.is_some_and(|answer| answer.is_success()) {
                    continue;
                }
                if Instant::now() >= help && !was_restarted {
                    // Patroni 3.0.2 may read etcd from a copy in memory that is out of date for good after its process was
                    // frozen. Then it cannot say any more which standby is the synchronous one.
                    was_restarted = true;
                    help = Instant::now() + REBUILD_AFTER;
                    let name = Patroni::name(machine);
                    say(&format!(
                        "  {name} does not name its standby; its Patroni is started anew"
                    ));
                    self.with(move |patroni| patroni.restart_patroni(machine)).await?;
                } else if Instant::now() >= help {
                    // Once more if even that one does not find back, as on a busy machine.
                    help = Instant::now() + REBUILD_AFTER * 2;
                    let other = MACHINES - 1 - machine;
                    say(&format!(
                        "  {} does not find back; it is built anew",
                        Patroni::name(other)
                    ));
                    let wish = json!({"force": true});
                    self.ask(other, "POST", "/reinitialize", &wish, PROMOTE_PATIENCE).await;
                }
                let answer = self.ask(machine, "GET", "/cluster", &Value::Null, ASK_PATIENCE).await;
                let body = answer.map(|answer| answer.body).unwrap_or_default();
                let members = body["members"].as_array().map(Vec::as_slice).unwrap_or_default();
                let is_standby = |member: &Value| {
                    member["role"] == "sync_standby"
                        && (member["state"] == "running" || member["state"] == "streaming")
                };
                if members.iter().any(is_standby) {
                    return Ok(machine);
                }
            }
            if Instant::now() >= deadline {
                bail!("the database is not whole again; see {}", self.patroni.log("db0").display());
            }
            sleep(ASK_PAUSE * 5).await;
        }
    }

    async fn ask(
        &self,
        machine: usize,
        method: &str,
        path: &str,
        body: &Value,
        patience: Duration,
    ) -> Option<Answer> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let call = Call { method, path, key: "", headers: &[], body: &body };
        Client::default().call(self.patroni.rest(machine), call, patience).await.ok()
    }
}
