//! The world of the model check: dice, a store, two nodes, posts, and agents that do as they like.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use posthorn_domain::{
    AgentId, ChannelId, MessageSeq, PushMessage, Span, StoredMessage, Timestamp,
};
use posthorn_push::endpoint::{
    Connection, Found, NodeAnswer, Outcome, Step, StoreAnswer, hint_after_save, route,
};
use posthorn_push::session::{ASKS_MAX, Answer, Ask, Broadcasts, Context, Output, Pushed, Session};
use posthorn_testkit::dice::Dice;

use super::plan::{Plan, Stats};
use crate::rig::{id, number, versions};

const AGENTS: u128 = 3;
const NODES: usize = 2;
const STEPS: usize = 500;

#[derive(Default)]
struct Shelf {
    connection: Option<Connection>,
    connected_at: Timestamp,
    messages: BTreeMap<MessageSeq, PushMessage>,
    last: u64,
}

struct Line {
    session: Session,
    node: usize,
    asks: VecDeque<Ask>,
    answers: VecDeque<Answer>,
    /// Sent to the agent and not acknowledged by it.
    unacked: Vec<u128>,
    /// Everything that was ever sent on this line.
    seen: HashSet<u128>,
    topics_upto: MessageSeq,
    others_upto: MessageSeq,
    /// Entered in the registry under this agent (a planted bug does it late).
    late_entry: Option<AgentId>,
}

struct Post {
    message: PushMessage,
    step: Step,
}

enum Save {
    Storing(AgentId, Vec<PushMessage>),
    Looking(AgentId),
}

pub(super) struct World<'p> {
    plan: &'p Plan,
    dice: Dice,
    now: Timestamp,
    broadcasts: Broadcasts,
    shelves: BTreeMap<AgentId, Shelf>,
    registry: [HashMap<AgentId, usize>; NODES],
    lines: Vec<Line>,
    posts: Vec<Post>,
    saves: Vec<Save>,
    last_hello: [Timestamp; NODES],
    next_message: u128,
    /// Accepted, with the agent's chance to get it: number → message.
    accepted: BTreeMap<u128, PushMessage>,
    received: BTreeSet<u128>,
    /// Acknowledged, and gone from everywhere.
    done: HashSet<u128>,
    /// Posts whose node had the message although the endpoint did not hear it.
    may_repeat: HashSet<u128>,
    /// The latest post with a topic.
    latest: HashMap<(AgentId, String), u128>,
    /// The dice have been put away, and the store does not fail any more.
    settling: bool,
    stats: Stats,
}

type Checked = Result<(), String>;

pub(super) fn run(plan: &Plan, seed: u64) -> Result<Stats, String> {
    let mut world = World::new(plan, seed);
    for _ in 0..STEPS {
        world.step()?;
    }
    world.settle()?;
    Ok(world.stats)
}

fn agent(number: u128) -> AgentId {
    AgentId::from_random(number + 100)
}

impl<'p> World<'p> {
    fn new(plan: &'p Plan, seed: u64) -> Self {
        Self {
            plan,
            dice: Dice(seed),
            now: Timestamp::from_millis(1_700_000_000_000),
            broadcasts: Broadcasts::default(),
            shelves: (0..AGENTS).map(|n| (agent(n), Shelf::default())).collect(),
            registry: Default::default(),
            lines: Vec::new(),
            posts: Vec::new(),
            saves: Vec::new(),
            last_hello: [Timestamp::MIN; NODES],
            next_message: 0,
            accepted: BTreeMap::new(),
            received: BTreeSet::new(),
            done: HashSet::new(),
            may_repeat: HashSet::new(),
            latest: HashMap::new(),
            settling: false,
            stats: Stats::default(),
        }
    }

    fn step(&mut self) -> Checked {
        let (posts, saves) = (self.posts.len(), self.saves.len());
        match self.dice.below(100) {
            0..12 => self.begin_post(),
            12..42 if posts > 0 => {
                let at = self.dice.below(posts);
                self.advance_post(at)?;
            }
            42..67 => {
                if let Some(at) = self.pick(|l| !l.asks.is_empty() || !l.answers.is_empty()) {
                    self.advance_line(at)?;
                }
            }
            67..82 => {
                if let Some(at) = self.pick(|line| !line.unacked.is_empty()) {
                    self.acknowledge(at)?;
                }
            }
            82..90 if saves > 0 => {
                let at = self.dice.below(saves);
                self.advance_save(at)?;
            }
            90..93 => self.connect(None)?,
            93..95 => {
                if let Some(at) = self.pick(|line| !line.session.is_closed()) {
                    self.call(at, Session::gone)?;
                }
            }
            95 if self.dice.percent(20) => {
                let node = self.dice.below(NODES);
                for at in 0..self.lines.len() {
                    if self.lines[at].node == node {
                        self.call(at, Session::drain_node)?;
                    }
                }
            }
            96..99 => self.pass_time()?,
            _ => {}
        }
        Ok(())
    }

    /// Any of the lines to which something can happen.
    fn pick(&mut self, can: impl Fn(&Line) -> bool) -> Option<usize> {
        let able: Vec<usize> = (0..self.lines.len()).filter(|at| can(&self.lines[*at])).collect();
        (!able.is_empty()).then(|| able[self.dice.below(able.len())])
    }

    fn pass_time(&mut self) -> Checked {
        let millis = [1, 40, 900, 20_000][self.dice.below(4)];
        self.now = self.now.plus(Span::from_millis(millis));
        for at in 0..self.lines.len() {
            if self.lines[at].session.wake_at() <= self.now {
                self.call(at, Session::tick)?;
                if self.dice.percent(80) {
                    self.call(at, Session::pong_frame)?;
                }
            }
        }
        Ok(())
    }

    // ---- posts ---------------------------------------------------------------------------------

    fn begin_post(&mut self) {
        let agent = agent(u128::from(self.dice.roll()) % AGENTS);
        self.next_message += 1;
        let number = self.next_message;
        let topic = self.dice.percent(15).then(|| ["a", "b"][self.dice.below(2)].to_owned());
        let ttl = match self.dice.below(10) {
            0 => 0,
            1 => 5,
            _ => 1_000_000,
        };
        if let Some(topic) = &topic {
            // The clock tells posts with one topic apart.
            self.now = self.now.plus(Span::from_millis(1));
            self.latest.insert((agent, topic.clone()), number);
        }
        let message = PushMessage {
            agent,
            channel: ChannelId::from_random(1),
            id: id(number),
            topic: topic.map(|topic| topic.parse().expect("a topic")),
            ttl,
            received_at: self.now,
            headers: None,
            body: None,
        };
        let step = route(self.shelves[&agent].connection.clone(), ttl);
        // One that is only worth something at once, for an agent that is nowhere, is done already.
        if !matches!(step, Step::Done(_)) {
            self.posts.push(Post { message, step });
        }
    }

    fn advance_post(&mut self, at: usize) -> Checked {
        let Post { message, step } = self.posts.swap_remove(at);
        let agent = message.agent;
        let step = match step {
            Step::Push(push) => {
                let mut answer = self.push(&push.connection, &message)?;
                if answer == NodeAnswer::Accepted
                    && self.plan.answers_get_lost
                    && self.dice.percent(10)
                {
                    self.stats.lost_answers += 1;
                    self.may_repeat.insert(number(message.id));
                    answer = NodeAnswer::Unreachable;
                }
                push.answered(answer)
            }
            Step::Clear(clear) => {
                let shelf = self.shelves.get_mut(&agent).expect("an agent");
                if shelf.connection.as_ref() == Some(&clear.connection) {
                    shelf.connection = None;
                }
                clear.done()
            }
            Step::Store(store) => {
                self.store(message.clone());
                self.stats.stored += 1;
                store.answered(StoreAnswer::Stored)
            }
            Step::LookAgain(look) => look.found(self.found(agent)),
            Step::Hint(hint) => {
                let answer = self.hint(&hint.connection, agent)?;
                hint.answered(answer)
            }
            Step::Done(_) => unreachable!("posts that are done are taken away"),
        };
        if let Step::Done(outcome) = step {
            self.stats.direct += u64::from(outcome == Outcome::Direct);
            if outcome != Outcome::Dropped {
                self.accepted.insert(number(message.id), message);
            }
        } else {
            self.posts.push(Post { message, step });
        }
        Ok(())
    }

    fn node(&self, connection: &Connection) -> usize {
        connection.node.parse().expect("a node")
    }

    fn push(
        &mut self,
        connection: &Connection,
        message: &PushMessage,
    ) -> Result<NodeAnswer, String> {
        let Some(at) = self.registry[self.node(connection)].get(&message.agent).copied() else {
            return Ok(NodeAnswer::NotConnected);
        };
        let mut pushed = Pushed::NotConnected;
        let message = message.clone();
        self.call(at, |session, context, out| pushed = session.push(message, context, out))?;
        Ok(match pushed {
            Pushed::Accepted => NodeAnswer::Accepted,
            Pushed::Full => {
                self.stats.refused += 1;
                NodeAnswer::Full
            }
            Pushed::NotConnected => NodeAnswer::NotConnected,
        })
    }

    fn hint(&mut self, connection: &Connection, agent: AgentId) -> Result<NodeAnswer, String> {
        if !self.plan.hints {
            return Ok(NodeAnswer::Accepted);
        }
        self.stats.hints += 1;
        let Some(at) = self.registry[self.node(connection)].get(&agent).copied() else {
            return Ok(NodeAnswer::NotConnected);
        };
        let mut here = false;
        self.call(at, |session, context, out| here = session.check_storage(context, out))?;
        Ok(if here { NodeAnswer::Accepted } else { NodeAnswer::NotConnected })
    }

    // ---- the store -----------------------------------------------------------------------------

    fn found(&self, agent: AgentId) -> Found {
        match &self.shelves[&agent].connection {
            Some(connection) => Found::Connected(connection.clone()),
            None => Found::NotConnected,
        }
    }

    fn store(&mut self, message: PushMessage) {
        let shelf = self.shelves.get_mut(&message.agent).expect("an agent");
        if shelf.messages.values().any(|stored| stored.id == message.id) {
            return;
        }
        if message.topic.is_some() {
            let same = |stored: &PushMessage| stored.topic == message.topic;
            if shelf.messages.values().any(|s| same(s) && s.received_at > message.received_at) {
                return;
            }
            shelf.messages.retain(|_, stored| !same(stored));
        }
        shelf.last += 1;
        shelf.messages.insert(MessageSeq(shelf.last), message);
    }

    fn carry_out(&mut self, node: usize, ask: Ask) -> Answer {
        if self.plan.store_fails && !self.settling && self.dice.percent(2) {
            self.stats.failures += 1;
            return Answer::Failed;
        }
        match ask {
            Ask::Connect { agent, connected_at, .. } => {
                let Some(shelf) = self.shelves.get_mut(&agent) else { return Answer::Unknown };
                let here = Connection { node: node.to_string(), connected_at };
                let same = shelf.connected_at == connected_at
                    && shelf.connection.as_ref().is_none_or(|on_record| *on_record == here);
                if shelf.connected_at >= connected_at && !same {
                    return Answer::AlreadyConnected;
                }
                shelf.connected_at = connected_at;
                shelf.connection = Some(here);
                Answer::Connected { stored: 0, outdated: false }
            }
            Ask::Renew { agent, connected_at } => {
                let shelf = self.shelves.get_mut(&agent).expect("an agent");
                let here = Connection { node: node.to_string(), connected_at };
                let other = shelf.connection.as_ref().is_some_and(|on_record| *on_record != here);
                if shelf.connected_at != connected_at || other {
                    return Answer::AlreadyConnected;
                }
                shelf.connection = Some(here);
                Answer::Renewed
            }
            Ask::Read { agent, after_topics, after, limit } => {
                let messages = self.shelves[&agent].messages.iter();
                let unexpired = messages.filter(|(_, message)| !message.is_expired(self.now));
                let mut read: Vec<_> = if self.plan.one_order {
                    unexpired.filter(|(seq, _)| **seq > after.max(after_topics)).collect()
                } else {
                    let (topics, others): (Vec<_>, Vec<_>) =
                        unexpired.partition(|(_, message)| message.topic.is_some());
                    let topics = topics.into_iter().filter(|(seq, _)| **seq > after_topics);
                    topics.chain(others.into_iter().filter(|(seq, _)| **seq > after)).collect()
                };
                read.truncate(limit);
                let copied = |(seq, message): (&MessageSeq, &PushMessage)| StoredMessage {
                    seq: *seq,
                    message: message.clone(),
                };
                Answer::Read(read.into_iter().map(copied).collect())
            }
            // The planted bug says that it was done.
            Ask::Forget { agent, seqs } if !self.plan.forgets => {
                let shelf = &self.shelves[&agent];
                let said = seqs.iter().filter_map(|seq| shelf.messages.get(seq));
                self.done.extend(said.map(|message| number(message.id)));
                Answer::Forgotten
            }
            Ask::Forget { agent, seqs } => {
                let shelf = self.shelves.get_mut(&agent).expect("an agent");
                let mut gone: Vec<u128> = Vec::new();
                for seq in seqs {
                    gone.extend(shelf.messages.remove(&seq).map(|message| number(message.id)));
                }
                self.note_done(&gone);
                Answer::Forgotten
            }
            ask => panic!("nobody should ask {ask:?} here"),
        }
    }

    // ---- sessions ------------------------------------------------------------------------------

    fn connect(&mut self, who: Option<AgentId>) -> Checked {
        let who = who.unwrap_or_else(|| agent(u128::from(self.dice.roll()) % AGENTS));
        let node = self.dice.below(NODES);
        // On two nodes the same moment may happen, on one it may not.
        if self.last_hello[node] == self.now {
            self.now = self.now.plus(Span::from_millis(1));
        }
        self.last_hello[node] = self.now;
        let context =
            Context { now: self.now, options: &self.plan.options, broadcasts: &self.broadcasts };
        let mut out = Vec::new();
        let session = Session::new(AgentId::from_random(1), &context, &mut out);
        self.lines.push(Line {
            session,
            node,
            asks: VecDeque::new(),
            answers: VecDeque::new(),
            unacked: Vec::new(),
            seen: HashSet::new(),
            topics_upto: MessageSeq::START,
            others_upto: MessageSeq::START,
            late_entry: None,
        });
        let hello = format!(r#"{{"messageType":"hello","uaid":"{who}"}}"#);
        self.call(self.lines.len() - 1, |session, context, out| {
            session.text_frame(&hello, context, out);
        })
    }

    /// Lets something happen to a session, and does what it says.
    fn call(
        &mut self,
        at: usize,
        what: impl FnOnce(&mut Session, &Context<'_>, &mut Vec<Output>),
    ) -> Checked {
        let context =
            Context { now: self.now, options: &self.plan.options, broadcasts: &self.broadcasts };
        let mut out = Vec::new();
        let line = &mut self.lines[at];
        what(&mut line.session, &context, &mut out);
        let window = usize::from(self.plan.options.unacked_window);
        if line.session.outstanding() > window {
            return Err(format!("{} are outstanding", line.session.outstanding()));
        }
        for version in versions(&out) {
            line.unacked.push(version);
            let again = !line.seen.insert(version) || self.done.contains(&version);
            if again && !self.may_repeat.contains(&version) {
                return Err(format!("message {version} came again"));
            }
        }
        if line.session.is_closed() {
            line.unacked.clear();
            line.answers.clear();
        }
        let node = line.node;
        let mut replaced = None;
        for output in out {
            match output {
                Output::Enter(agent) if self.plan.enters_first => {
                    replaced = self.registry[node].insert(agent, at);
                }
                Output::Enter(agent) => self.lines[at].late_entry = Some(agent),
                Output::Leave(agent) if self.registry[node].get(&agent) == Some(&at) => {
                    self.registry[node].remove(&agent);
                }
                Output::Ask(ask) => self.lines[at].asks.push_back(ask),
                Output::Save(messages) if self.plan.saves => {
                    self.stats.saved += messages.len() as u64;
                    let whose = messages[0].agent;
                    self.saves.push(Save::Storing(whose, messages));
                }
                _ => {}
            }
        }
        if self.lines[at].asks.len() + self.lines[at].answers.len() > usize::from(ASKS_MAX) + 2 {
            return Err("too many asks wait".into());
        }
        if let Some(older) = replaced.filter(|older| *older != at) {
            self.stats.replaced += u64::from(!self.lines[older].session.is_closed());
            self.call(older, Session::replaced)?;
        }
        Ok(())
    }

    /// The store works on what a session asked, or its answer arrives.
    fn advance_line(&mut self, at: usize) -> Checked {
        let line = &mut self.lines[at];
        let answers_wait = !line.answers.is_empty();
        if answers_wait && (line.asks.is_empty() || self.dice.percent(50)) {
            let Some(answer) = self.lines[at].answers.pop_front() else { return Ok(()) };
            self.check_order(at, &answer)?;
            self.call(at, |session, context, out| session.answer(answer, context, out))?;
            let line = &mut self.lines[at];
            // The bug of entering only when storage was read.
            if let Some(agent) = line.late_entry.filter(|_| line.asks.is_empty()) {
                line.late_entry = None;
                if !line.session.is_closed() {
                    let node = line.node;
                    self.registry[node].insert(agent, at);
                }
            }
        } else if let Some(ask) = line.asks.pop_front() {
            let node = line.node;
            let answer = self.carry_out(node, ask);
            self.lines[at].answers.push_back(answer);
        }
        Ok(())
    }

    /// What is read comes in the order of the store, and after what was read before.
    fn check_order(&mut self, at: usize, answer: &Answer) -> Checked {
        let Answer::Read(messages) = answer else { return Ok(()) };
        let line = &mut self.lines[at];
        for StoredMessage { seq, message } in messages {
            let upto = match message.topic {
                Some(_) => &mut line.topics_upto,
                None => &mut line.others_upto,
            };
            if seq <= upto {
                return Err(format!("{seq} was read after {upto}"));
            }
            *upto = *seq;
        }
        Ok(())
    }

    /// The agent acknowledges some of what it got.
    fn acknowledge(&mut self, at: usize) -> Checked {
        if !self.lines[at].session.wants_frames() || self.lines[at].unacked.is_empty() {
            return Ok(());
        }
        let count = 1 + self.dice.below(self.lines[at].unacked.len());
        let mut acked = Vec::new();
        for _ in 0..count {
            let pick = self.dice.below(self.lines[at].unacked.len());
            acked.push(self.lines[at].unacked.remove(pick));
        }
        self.send_acks(at, &acked)
    }

    fn send_acks(&mut self, at: usize, acked: &[u128]) -> Checked {
        let channel = ChannelId::from_random(1);
        let updates: Vec<String> = acked
            .iter()
            .map(|n| format!(r#"{{"channelID":"{channel}","version":"{}"}}"#, id(*n)))
            .collect();
        let text = format!(r#"{{"messageType":"ack","updates":[{}]}}"#, updates.join(","));
        self.call(at, |session, context, out| session.text_frame(&text, context, out))?;
        // What was sent may have been lost with the connection; what was acknowledged was not.
        self.received.extend(acked);
        self.note_done(acked);
        Ok(())
    }

    /// What was acknowledged and is nowhere else may never come again. Where it is elsewhere it may:
    /// on its way to another connection, or unacknowledged on one.
    fn note_done(&mut self, acked: &[u128]) {
        let has = |messages: &[PushMessage], number| messages.iter().any(|m| m.id == id(number));
        for number in acked {
            let stored = |shelf: &Shelf| shelf.messages.values().any(|m| m.id == id(*number));
            let coming = |line: &Line| {
                let read = line.answers.iter().any(|answer| match answer {
                    Answer::Read(read) => read.iter().any(|s| s.message.id == id(*number)),
                    _ => false,
                });
                read || line.unacked.contains(number)
            };
            let saving = |save: &Save| match save {
                Save::Storing(_, messages) => has(messages, *number),
                Save::Looking(_) => false,
            };
            if !self.shelves.values().any(stored)
                && !self.lines.iter().any(coming)
                && !self.saves.iter().any(saving)
            {
                self.done.insert(*number);
            }
        }
    }

    fn advance_save(&mut self, at: usize) -> Checked {
        match self.saves.swap_remove(at) {
            Save::Storing(agent, messages) => {
                for message in messages {
                    self.store(message);
                }
                self.saves.push(Save::Looking(agent));
            }
            Save::Looking(agent) => {
                let found = self.found(agent);
                if let Some(connection) = hint_after_save(&found) {
                    self.hint(connection, agent)?;
                }
            }
        }
        Ok(())
    }

    // ---- the end -------------------------------------------------------------------------------

    /// Everything that waits goes on until nothing waits, and agents acknowledge all they get.
    fn finish(&mut self) -> Checked {
        for _ in 0..100_000 {
            if !self.posts.is_empty() {
                self.advance_post(0)?;
            } else if !self.saves.is_empty() {
                self.advance_save(0)?;
            } else if let Some(at) =
                self.lines.iter().position(|line| !line.asks.is_empty() || !line.answers.is_empty())
            {
                self.advance_line(at)?;
            } else if let Some(at) = self
                .lines
                .iter()
                .position(|line| line.session.wants_frames() && !line.unacked.is_empty())
            {
                let acked = std::mem::take(&mut self.lines[at].unacked);
                self.send_acks(at, &acked)?;
            } else {
                return Ok(());
            }
        }
        Err("it never comes to rest".into())
    }

    fn settle(&mut self) -> Checked {
        self.settling = true;
        // Connections that the record does not name end: what they saved must reach the others.
        for at in 0..self.lines.len() {
            let line = &self.lines[at];
            let current = line.session.agent().is_some_and(|agent| {
                self.shelves[&agent].connected_at == line.session.connected_at()
                    && self.registry[line.node].get(&agent) == Some(&at)
            });
            if !current {
                self.call(at, Session::gone)?;
            }
        }
        self.finish()?;
        if self.plan.answers_get_lost {
            // A connection that was taken for dead finds out in time.
            let due = self.now.plus(self.plan.options.renew_interval);
            while self.now < due {
                self.now = self.now.plus(self.plan.options.ping_interval);
                for at in 0..self.lines.len() {
                    self.call(at, Session::tick)?;
                    self.call(at, Session::pong_frame)?;
                }
            }
            self.finish()?;
        }
        for at in 0..self.lines.len() {
            let Some(agent) = self.lines[at].session.agent() else { continue };
            let mut waits = self.shelves[&agent].messages.values();
            if let Some(message) = waits.find(|message| !message.is_expired(self.now)) {
                let number = number(message.id);
                return Err(format!("message {number} is stuck in the store of a connected agent"));
            }
        }
        // Later than whatever is on record.
        self.now = self.now.plus(Span::from_millis(1));
        for number in 0..AGENTS {
            self.connect(Some(agent(number)))?;
        }
        self.finish()?;
        for (number, message) in &self.accepted {
            let replaced = message
                .topic
                .as_ref()
                .is_some_and(|topic| self.latest[&(message.agent, topic.to_string())] != *number);
            if !message.is_expired(self.now) && !replaced && !self.received.contains(number) {
                return Err(format!("message {number} is lost"));
            }
        }
        Ok(())
    }
}
