//! Publishers: they publish one event, or one batch, after the other, each with an idempotency key,
//! and repeat what got no answer until it gets one. Some give up, as clients that crash do.
//!
//! A publisher waits for the answer before it goes on, so it knows an order: what was acknowledged
//! before something else was sent also comes before it in every lane they share.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::crash::dice::Dice;
use crate::crash::evidence::{Ack, Intent, Journal, PublishRecord};
use crate::crash::later::Later;
use crate::crash::plan::{KINDS, TOPICS};
use crate::crash::signature::sha256_hex;
use crate::crash::wire::{Answer, Call, Client, Silence};

/// How long a publisher waits for an answer. Shorter than a pause of the server, so that the same
/// publish is often under way at two nodes at once.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long what is still unanswered is repeated once no new load is made.
const LAST_PATIENCE: Duration = Duration::from_secs(60);
/// In so many of a hundred cases a publisher gives up on a publish that got no answer.
const ABANDON_PERCENT: u64 = 8;
/// In so many of a hundred cases an acknowledged publish is repeated instead of a new one made.
const REPEAT_PERCENT: u64 = 3;
/// The same, with other contents.
const CONFLICT_PERCENT: u64 = 1;
/// Acknowledged publishes remembered for that.
const PAST_MAX: usize = 64;
/// Events of a batch.
const BATCH_MAX: u64 = 12;

/// Where the nodes listen at present.
#[derive(Debug)]
pub struct Targets(Vec<Mutex<Option<SocketAddr>>>);

impl Targets {
    /// So many nodes, none of which listens.
    pub fn new(count: usize) -> Self {
        Self((0..count).map(|_| Mutex::new(None)).collect())
    }

    /// Notes where a node listens.
    pub fn set(&self, node: usize, address: Option<SocketAddr>) {
        *self.0[node].lock() = address;
    }

    /// Where a node listens.
    pub fn get(&self, node: usize) -> Option<SocketAddr> {
        *self.0[node].lock()
    }

    /// One of those that listen.
    pub fn pick(&self, dice: &mut Dice) -> Option<SocketAddr> {
        let open: Vec<SocketAddr> = self.0.iter().filter_map(|slot| *slot.lock()).collect();
        dice.pick(&open).copied()
    }
}

/// What publishers share.
#[derive(Debug)]
pub struct Shared {
    /// The logs.
    pub journal: Arc<Journal>,
    /// The nodes.
    pub targets: Arc<Targets>,
    /// The number of the next event.
    pub numbers: AtomicU64,
    /// What the server answered, by status and code.
    pub answers: Mutex<BTreeMap<String, u64>>,
}

impl Shared {
    /// Nothing published yet.
    pub fn new(journal: Arc<Journal>, targets: Arc<Targets>) -> Self {
        let answers = Mutex::new(BTreeMap::new());
        Self { journal, targets, numbers: AtomicU64::new(0), answers }
    }

    fn count(&self, status: u16, code: &str) {
        let name = if code.is_empty() { status.to_string() } else { format!("{status} {code}") };
        *self.answers.lock().entry(name).or_default() += 1;
    }
}

/// What kind of publisher it is.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its name, unique in the run.
    pub name: String,
    /// Whom it publishes for.
    pub tenant: String,
    /// The API key.
    pub api_key: String,
    /// Whether it publishes in batches.
    pub batches: bool,
    /// How long it waits between two requests.
    pub pace: Duration,
    /// The length of the filling in a payload, at most.
    pub filling: u64,
    /// Whether it sometimes repeats itself, contradicts itself and gives up.
    pub mischief: bool,
}

/// One publisher.
#[derive(Debug)]
pub struct Publisher {
    options: Options,
    shared: Arc<Shared>,
    dice: Dice,
    client: Client,
    past: Vec<Item>,
}

/// An event on its way.
#[derive(Clone, Debug)]
struct Item {
    intent: Intent,
    payload: String,
    tries: u32,
    uncertain: bool,
}

/// What became of one try.
enum Verdict {
    Acked { id: String, deliveries: u64, duplicate: bool },
    NotDone,
    Unknown,
    Refused { status: u16, code: String },
}

impl Publisher {
    /// One that has published nothing.
    pub fn new(options: Options, shared: Arc<Shared>, seed: u64) -> Self {
        let dice = Dice::part(seed, &options.name);
        Self { options, shared, dice, client: Client::default(), past: Vec::new() }
    }

    /// Publishes until it is told to stop, and then sees what is under way through.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let stopped = stop.clone();
        let is_over = move || *stopped.borrow();
        while !is_over() {
            let pace = self.options.pace.mul_f64(0.5 + self.dice.within(0..=100) as f64 / 100.0);
            tokio::select! {
                () = sleep(pace) => {}
                _ = stop.wait_for(|over| *over) => break,
            }
            let mischief = self.options.mischief;
            if mischief && self.dice.percent(REPEAT_PERCENT) {
                self.repeat().await;
            } else if mischief && self.dice.percent(CONFLICT_PERCENT) {
                self.contradict().await;
            } else {
                self.publish(&is_over).await;
            }
        }
    }

    async fn publish(&mut self, is_over: &(impl Fn() -> bool + Sync)) {
        let count = if self.options.batches { self.dice.within(2..=BATCH_MAX) } else { 1 };
        let first = self.shared.numbers.fetch_add(count, Ordering::Relaxed);
        let mut items: Vec<Item> =
            (0..count).map(|index| self.make(first + index, first, index)).collect();
        for item in &items {
            self.shared.journal.publish(&PublishRecord::Intent(item.intent.clone()));
        }
        let mut last_call = None;
        while !items.is_empty() {
            let silent = self.try_once(&mut items).await;
            if items.is_empty() {
                break;
            }
            if is_over() && last_call.is_none() {
                last_call = Some(Instant::now() + LAST_PATIENCE);
            }
            let hopeless = last_call.is_some_and(|at| Instant::now() >= at);
            let tired = silent && self.options.mischief && self.dice.percent(ABANDON_PERCENT);
            if hopeless || tired {
                for item in items.drain(..) {
                    let at = self.shared.journal.now();
                    let record = PublishRecord::Abandoned { n: item.intent.n, at };
                    self.shared.journal.publish(&record);
                }
            } else {
                sleep(self.dice.millis(30..=150)).await;
            }
        }
    }

    fn make(&mut self, n: u64, batch: u64, index: u64) -> Item {
        let dice = &mut self.dice;
        let mut share = dice.within(0..=99);
        let topic = TOPICS.iter().find(|(_, part)| {
            let hit = share < *part;
            share = share.saturating_sub(*part);
            hit
        });
        let topic = topic.map_or(TOPICS[0].0, |(name, _)| name);
        let kind = dice.pick(&KINDS).copied().unwrap_or(KINDS[0]);
        // Two keys each, and some events without one.
        let key = match dice.within(0..=9) {
            0 => None,
            other => Some(format!("{}-{}", self.options.name, other % 2)),
        };
        // Bytes that a careless server would tidy up: blanks, exponents, escapes, order of fields.
        let filling =
            "x".repeat(usize::try_from(dice.within(0..=self.options.filling)).unwrap_or(0));
        let payload = format!(
            "{{ \"n\":{n}, \"z\" : 1.50e+02,\"a\":\"\\u00e9 é \\/\",\n\t\"filling\":\"{filling}\"}}"
        );
        // Some are for a moment later: between two kills, or after the next.
        let ahead = (dice.within(0..=19) == 0).then(|| dice.within(500..=2_500));
        let journal = &self.shared.journal;
        let deliver_at = ahead.map(|millis| Later::after(millis, || journal.now()));
        let intent = Intent {
            n,
            at: self.shared.journal.now(),
            tenant: self.options.tenant.clone(),
            topic: topic.to_owned(),
            kind: kind.to_owned(),
            key,
            idempotency: format!("run-{n}"),
            sha: sha256_hex(payload.as_bytes()),
            batch: self
                .options
                .batches
                .then_some((batch, u32::try_from(index).unwrap_or(u32::MAX))),
            deliver_at,
        };
        Item { intent, payload, tries: 0, uncertain: false }
    }

    /// Sends what is left, and keeps what got no final answer; true when there was none at all.
    async fn try_once(&mut self, items: &mut Vec<Item>) -> bool {
        for item in items.iter_mut() {
            item.tries += 1;
        }
        let answer = self.send(items).await;
        let mut silent = false;
        let verdicts: Vec<Verdict> = match answer {
            Err(Silence::NotSent) => items.iter().map(|_| Verdict::NotDone).collect(),
            Err(Silence::Unknown) => {
                silent = true;
                items.iter().map(|_| Verdict::Unknown).collect()
            }
            Ok(answer) if self.options.batches && answer.is_success() => {
                let answers = answer.body["items"].as_array().cloned().unwrap_or_default();
                let mut answers = answers.into_iter();
                items.iter().map(|_| self.judge_item(answers.next())).collect()
            }
            Ok(answer) => items.iter().map(|_| self.judge(&answer)).collect(),
        };
        let mut left = Vec::new();
        for (mut item, verdict) in items.drain(..).zip(verdicts) {
            let (n, at) = (item.intent.n, self.shared.journal.now());
            match verdict {
                Verdict::Acked { id, deliveries, duplicate } => {
                    let Item { tries, uncertain, .. } = item;
                    let ack = Ack { n, at, id, deliveries, duplicate, tries, uncertain };
                    self.shared.journal.publish(&PublishRecord::Ack(ack));
                    self.remember(item);
                }
                Verdict::Refused { status, code } => {
                    self.shared.journal.publish(&PublishRecord::Refused { n, at, status, code });
                }
                Verdict::NotDone => left.push(item),
                Verdict::Unknown => {
                    item.uncertain = true;
                    left.push(item);
                }
            }
        }
        *items = left;
        silent
    }

    async fn send(&mut self, items: &[Item]) -> Result<Answer, Silence> {
        let Some(address) = self.shared.targets.pick(&mut self.dice) else {
            return Err(Silence::NotSent);
        };
        let call = Call {
            method: "POST",
            path: "/v1/events",
            key: &self.options.api_key,
            headers: &[],
            body: "",
        };
        if self.options.batches {
            let events: Vec<String> = items.iter().map(|item| item.json(true)).collect();
            let body = format!("{{\"events\":[{}]}}", events.join(","));
            let call = Call { path: "/v1/events/batch", body: &body, ..call };
            return self.client.call(address, call, PATIENCE).await;
        }
        let Some(item) = items.first() else { return Err(Silence::NotSent) };
        let headers = [("idempotency-key", item.intent.idempotency.as_str())];
        let body = item.json(false);
        let call = Call { headers: &headers, body: &body, ..call };
        self.client.call(address, call, PATIENCE).await
    }

    fn judge_item(&self, item: Option<Value>) -> Verdict {
        let Some(item) = item else {
            return self.judge(&Answer { status: 500, body: "an item has no answer".into() });
        };
        let status = item["status"].as_u64().and_then(|status| u16::try_from(status).ok());
        let status = status.unwrap_or(500);
        let body = if status < 300 { item } else { item["error"].clone() };
        self.judge(&Answer { status, body })
    }

    fn judge(&self, answer: &Answer) -> Verdict {
        self.shared.count(answer.status, answer.code());
        let body = &answer.body;
        match answer.status {
            200..300 => match (body["id"].as_str(), body["deliveries"].as_u64()) {
                (Some(id), Some(deliveries)) => Verdict::Acked {
                    id: id.to_owned(),
                    deliveries,
                    duplicate: body["duplicate"].as_bool().unwrap_or(false),
                },
                _ => self.defect(answer),
            },
            503 if answer.code() == "outcome_unknown" => Verdict::Unknown,
            408 | 429 | 503 | 507 => Verdict::NotDone,
            400..500 => Verdict::Refused { status: answer.status, code: answer.code().to_owned() },
            _ => self.defect(answer),
        }
    }

    /// A 500, or an answer without sense. Nobody knows what it did.
    fn defect(&self, answer: &Answer) -> Verdict {
        let at = self.shared.journal.now();
        let text = answer.body.to_string();
        let record = PublishRecord::Defect { at, status: answer.status, text };
        self.shared.journal.publish(&record);
        Verdict::Unknown
    }

    fn remember(&mut self, item: Item) {
        if self.past.len() < PAST_MAX {
            self.past.push(item);
        } else {
            let index = usize::try_from(self.dice.roll()).unwrap_or(0) % PAST_MAX;
            self.past[index] = item;
        }
    }

    /// Publishes once more what was acknowledged before. The answer must be the same event.
    async fn repeat(&mut self) {
        let Some(item) = self.dice.pick(&self.past).cloned() else { return };
        let mut items = vec![Item { tries: 0, uncertain: true, ..item }];
        // One try is enough: no answer says nothing, and the next repeat is not far.
        self.try_once(&mut items).await;
    }

    /// Uses the key of an acknowledged event for other contents. It must be refused.
    async fn contradict(&mut self) {
        let Some(mut item) = self.dice.pick(&self.past).cloned() else { return };
        item.payload = format!("{{\"n\":{},\"forged\":true}}", item.intent.n);
        let Ok(answer) = self.send(&[item.clone()]).await else { return };
        let status = match answer.body["items"][0]["status"].as_u64() {
            Some(status) => u16::try_from(status).unwrap_or(0),
            None => answer.status,
        };
        self.shared.count(status, "(other contents)");
        let at = self.shared.journal.now();
        self.shared.journal.publish(&PublishRecord::Conflict { n: item.intent.n, at, status });
    }
}

impl Item {
    fn json(&self, with_idempotency: bool) -> String {
        let Intent { topic, kind, key, idempotency, deliver_at, .. } = &self.intent;
        let mut text = format!("{{\"topic\":\"{topic}\",\"type\":\"{kind}\"");
        if let Some(key) = key {
            text.push_str(&format!(",\"key\":\"{key}\""));
        }
        if let Some(later) = deliver_at {
            text.push_str(&format!(",\"deliver_at\":\"{}\"", later.text));
        }
        if with_idempotency {
            text.push_str(&format!(",\"idempotency_key\":\"{idempotency}\""));
        }
        text.push_str(&format!(",\"payload\":{}}}", self.payload));
        text
    }
}
