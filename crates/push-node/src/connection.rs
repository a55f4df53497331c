//! One connection: its session, what waits to be written, and what waits to be asked.
//!
//! The session is behind a lock, because three parties call it: the socket's task, whoever pushes,
//! and whoever brings an answer of the store. What it wants done is sorted here: frames go into the
//! outbox, which only the socket's task empties; questions go to the clerk one at a time, so that
//! they are carried out in their order; the rest is done after the lock is released.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Waker;

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use posthorn_domain::{AgentId, PushMessage, Timestamp};
use posthorn_push::protocol::{ClientMessage, Close, read};
use posthorn_push::session::{Answer, Ask, Context, Output, Pushed, Session, Summary};
use tokio_tungstenite::tungstenite::Utf8Bytes;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::node::Shared;
use crate::removals::Acks;

/// With more bytes than this waiting to be written, an agent is not reading: nothing more is pushed
/// to it and nothing is read for it, so that the messages stay in the store and not in memory.
const OUTBOX_BYTES_MAX: usize = 64 * 1024;

/// What the socket's task has to write.
#[derive(Debug)]
pub(crate) enum Frame {
    /// A text.
    Text(Utf8Bytes),
    /// An empty ping.
    Ping,
    /// The last one.
    Close(Close),
}

struct Inner {
    session: Session,
    outbox: VecDeque<Frame>,
    outbox_bytes: usize,
    asks: VecDeque<Ask>,
    acks: Acks,
    /// Keeps the node from ending while something of this session is under way.
    under_way: Option<TaskTrackerToken>,
    /// The clerk has a question of this session.
    asking: bool,
    /// How many notifications were sent whose acks may come at once.
    credit: u32,
    /// When the wheel will ask.
    timer: Timestamp,
}

impl Inner {
    /// Whether the next question would read more than the window has room for, as long as messages
    /// that were acknowledged are still in the store.
    fn is_beyond_window(&self, node: &Shared) -> bool {
        let Some(Ask::Read { limit, .. }) = self.asks.front() else { return false };
        let window = usize::from(node.options.session.unacked_window.max(1));
        let unremoved = self.acks.unremoved();
        unremoved > 0 && self.session.outstanding() + unremoved + limit > window
    }
}

/// One connection.
pub(crate) struct Connection {
    inner: Mutex<Inner>,
    writer: AtomicWaker,
    /// How many channels its agent has, as far as is known here.
    channels: AtomicUsize,
}

/// Who calls. The socket's task looks for work by itself when it comes back.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Caller {
    Socket,
    Other,
}

/// What is done after the lock is released.
#[derive(Default)]
struct After {
    replaced: Option<Arc<Connection>>,
    save: Vec<PushMessage>,
    ended: Option<Summary>,
}

impl Connection {
    /// A socket that was just upgraded.
    pub(crate) fn open(node: &Arc<Shared>) -> Arc<Self> {
        let broadcasts = node.broadcasts.load();
        let cx = node.context(&broadcasts, node.clock.now());
        let mut out = Vec::new();
        let session = Session::new(AgentId::from_random(rand::random()), &cx, &mut out);
        let connection = Arc::new(Self {
            inner: Mutex::new(Inner {
                session,
                outbox: VecDeque::new(),
                outbox_bytes: 0,
                asks: VecDeque::new(),
                acks: Acks::default(),
                under_way: None,
                asking: false,
                credit: 0,
                timer: Timestamp::MAX,
            }),
            writer: AtomicWaker::new(),
            channels: AtomicUsize::new(0),
        });
        let mut inner = connection.inner.lock();
        connection.apply(node, &mut inner, &cx, out);
        drop(inner);
        connection
    }

    /// The agent sent a text. Called by the socket's task.
    pub(crate) fn text(self: &Arc<Self>, node: &Arc<Shared>, text: &str) {
        let (first, opened_at) = {
            let session = &self.inner.lock().session;
            (session.agent().is_none(), session.connected_at())
        };
        // What time it is when an agent says hello tells this connection from its others.
        let now = match first.then(|| read(text)) {
            Some(Ok(ClientMessage::Hello { agent: Some(agent), .. })) => {
                Some(node.hello_time(agent, opened_at))
            }
            Some(Ok(ClientMessage::Hello { agent: None, .. })) => {
                node.meter.new.increment(1);
                None
            }
            _ => None,
        };
        self.run(node, now, Caller::Socket, |inner, cx, out| {
            inner.session.text_frame(text, cx, out);
        });
    }

    /// Something else came from the socket. Called by its task.
    pub(crate) fn came(
        self: &Arc<Self>,
        node: &Arc<Shared>,
        call: impl FnOnce(&mut Session, &Context<'_>, &mut Vec<Output>),
    ) {
        self.run(node, None, Caller::Socket, |inner, cx, out| {
            call(&mut inner.session, cx, out);
        });
    }

    /// Somebody has a message for the agent.
    pub(crate) fn push(self: &Arc<Self>, node: &Arc<Shared>, message: PushMessage) -> Pushed {
        self.run(node, None, Caller::Other, |inner, cx, out| {
            if inner.outbox_bytes > OUTBOX_BYTES_MAX || node.memory.is_full() {
                // It is stored, and this session is told to look there.
                return Pushed::Full;
            }
            inner.session.push(message, cx, out)
        })
    }

    /// Something was stored for the agent. Says whether it is here.
    pub(crate) fn hint(self: &Arc<Self>, node: &Arc<Shared>) -> bool {
        self.run(node, None, Caller::Other, |inner, cx, out| inner.session.check_storage(cx, out))
    }

    /// The clerk has an answer.
    pub(crate) fn answer(self: &Arc<Self>, node: &Arc<Shared>, answer: Answer) {
        self.run(node, None, Caller::Other, |inner, cx, out| {
            inner.asking = false;
            inner.session.answer(answer, cx, out);
        });
    }

    /// Acknowledged messages are removed, or could not be.
    pub(crate) fn forgot(self: &Arc<Self>, node: &Arc<Shared>, removed: bool) {
        self.run(node, None, Caller::Other, |inner, cx, out| {
            inner.acks.done();
            if !removed {
                inner.session.answer(Answer::Failed, cx, out);
            }
        });
    }

    /// The wheel asks, having turned as far as `turned`.
    pub(crate) fn tick(self: &Arc<Self>, node: &Arc<Shared>, turned: Timestamp) {
        self.run(node, None, Caller::Other, |inner, cx, out| {
            if inner.timer > turned {
                // A place in the wheel that was given up for an earlier one.
                return;
            }
            inner.timer = Timestamp::MAX;
            inner.session.tick(cx, out);
        });
    }

    /// The node is going away.
    pub(crate) fn send_away(self: &Arc<Self>, node: &Arc<Shared>) {
        self.run(node, None, Caller::Other, |inner, cx, out| {
            inner.session.drain_node(cx, out);
        });
    }

    /// A newer connection of the same agent is found instead of this one.
    fn make_way(self: &Arc<Self>, node: &Arc<Shared>) {
        // Through a pointer, because this is called by what it calls.
        let replaced: fn(&mut Inner, &Context<'_>, &mut Vec<Output>) =
            |inner, cx, out| inner.session.replaced(cx, out);
        self.run(node, None, Caller::Other, replaced);
    }

    fn run<R>(
        self: &Arc<Self>,
        node: &Arc<Shared>,
        now: Option<Timestamp>,
        caller: Caller,
        call: impl FnOnce(&mut Inner, &Context<'_>, &mut Vec<Output>) -> R,
    ) -> R {
        let broadcasts = node.broadcasts.load();
        let mut out = Vec::new();
        let mut inner = self.inner.lock();
        let stalled = !inner.session.wants_frames();
        // Time does not go backwards for a session, whatever the clock does.
        let now = now.unwrap_or_else(|| node.clock.now()).max(inner.session.connected_at());
        let cx = node.context(&broadcasts, now);
        let counted = *inner.session.counters();
        let weighed = inner.session.weight();
        let result = call(&mut inner, &cx, &mut out);
        let counts = *inner.session.counters();
        node.meter.session(&counted, &counts);
        node.memory.changed(weighed, inner.session.weight());
        let sent =
            counts.direct_sent - counted.direct_sent + counts.stored_sent - counted.stored_sent;
        inner.credit = inner.credit.saturating_add(sent);
        let after = self.apply(node, &mut inner, &cx, out);
        let work = !inner.outbox.is_empty() || (stalled && inner.session.wants_frames());
        let connected_at = inner.session.connected_at();
        drop(inner);
        if work && caller == Caller::Other {
            self.writer.wake();
        }
        if let Some(replaced) = after.replaced {
            replaced.make_way(node);
        }
        if let Some(summary) = after.ended {
            node.ended(summary, connected_at, after.save);
        }
        result
    }

    fn apply(
        self: &Arc<Self>,
        node: &Arc<Shared>,
        inner: &mut Inner,
        cx: &Context<'_>,
        out: Vec<Output>,
    ) -> After {
        let mut after = After::default();
        let mut out = VecDeque::from(out);
        while let Some(output) = out.pop_front() {
            match output {
                Output::Send(text) => {
                    inner.outbox_bytes += text.len();
                    inner.outbox.push_back(Frame::Text(text.into()));
                }
                Output::Ping => inner.outbox.push_back(Frame::Ping),
                Output::Close(close) => inner.outbox.push_back(Frame::Close(close)),
                Output::Enter(agent) => {
                    node.note_hello(agent, inner.session.connected_at());
                    after.replaced = node
                        .registry
                        .enter(agent, Arc::clone(self))
                        .filter(|found| !Arc::ptr_eq(found, self));
                }
                Output::Leave(agent) => node.registry.leave(agent, self),
                Output::Ask(Ask::Forget { agent, seqs }) => {
                    // Nothing the session does next depends on it, so it need not wait.
                    if inner.acks.add(agent, seqs) {
                        node.forgetting.begin(agent);
                    }
                    let mut more = Vec::new();
                    inner.session.answer(Answer::Forgotten, cx, &mut more);
                    out.extend(more);
                }
                Output::Ask(ask) => {
                    if let Ask::DropAgent(agent) = ask {
                        // Who goes without waiting for the end and comes back is not met halfway.
                        node.forgetting.begin(agent);
                    }
                    inner.asks.push_back(ask);
                }
                Output::WakeAt(at) if at < inner.timer => {
                    inner.timer = node.wheel.insert(Arc::downgrade(self), at, cx.now);
                }
                Output::WakeAt(_) => {}
                Output::Save(messages) => after.save = messages,
                Output::Ended(summary) => after.ended = Some(summary),
            }
        }
        if inner.session.is_closed() {
            // What the agent asked for is carried out, also when it does not wait for the answer; and
            // who is to be dropped does not stay by leaving first.
            inner.asks.retain(|ask| {
                matches!(ask, Ask::Register { .. } | Ask::Unregister { .. } | Ask::DropAgent(_))
            });
        }
        self.ask_next(node, inner);
        after
    }

    /// Hands the next question to the clerk, unless one is there already or the agent does not read.
    fn ask_next(self: &Arc<Self>, node: &Arc<Shared>, inner: &mut Inner) {
        if let Some((agent, seqs)) = inner.acks.next() {
            node.session_queries.forget(Arc::clone(self), agent, seqs);
        }
        let crowded = inner.outbox_bytes > OUTBOX_BYTES_MAX || inner.is_beyond_window(node);
        if !inner.asking && (!crowded || inner.session.is_closed()) {
            if let Some(ask) = inner.asks.pop_front() {
                inner.asking = true;
                node.session_queries.hand_in(
                    Arc::clone(self),
                    ask,
                    &node.options.node,
                    node.clock.now(),
                );
            } else if inner.asks.capacity() > 0 {
                // Most connections wait for most of their lives; they keep no room for it.
                inner.asks = VecDeque::new();
            }
        }
        if !inner.asking && !inner.acks.is_busy() {
            inner.under_way = None;
        } else if inner.under_way.is_none() {
            inner.under_way = Some(node.work.token());
        }
    }

    /// How many channels the agent has. Only the clerk asks and tells, one question at a time.
    pub(crate) fn channels(&self) -> usize {
        self.channels.load(Ordering::Relaxed)
    }

    /// See [`Connection::channels`].
    pub(crate) fn set_channels(&self, channels: usize) {
        self.channels.store(channels, Ordering::Relaxed);
    }

    /// For the socket's task: wakes it when there is something to write.
    pub(crate) fn watch(&self, waker: &Waker) {
        self.writer.register(waker);
    }

    /// For the socket's task: the next frame to be written.
    pub(crate) fn next_frame(self: &Arc<Self>, node: &Arc<Shared>) -> Option<Frame> {
        let mut inner = self.inner.lock();
        let Some(frame) = inner.outbox.pop_front() else {
            if inner.outbox.capacity() > 0 {
                inner.outbox = VecDeque::new();
            }
            return None;
        };
        if let Frame::Text(text) = &frame {
            let before = inner.outbox_bytes;
            inner.outbox_bytes -= text.len();
            if before > OUTBOX_BYTES_MAX {
                self.ask_next(node, &mut inner);
            }
        }
        Some(frame)
    }

    /// For the socket's task: how many more frames may come because notifications were sent.
    pub(crate) fn take_credit(&self) -> u32 {
        std::mem::take(&mut self.inner.lock().credit)
    }

    /// For the socket's task: whether the agent has not said hello.
    pub(crate) fn is_unknown(&self) -> bool {
        self.inner.lock().session.agent().is_none()
    }

    /// For the socket's task: whether the session is over.
    pub(crate) fn is_closed(&self) -> bool {
        self.inner.lock().session.is_closed()
    }

    /// For the socket's task: whether frames may be read.
    pub(crate) fn wants_frames(&self) -> bool {
        let inner = self.inner.lock();
        inner.session.wants_frames() && inner.outbox_bytes <= OUTBOX_BYTES_MAX
    }
}
