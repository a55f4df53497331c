//! How a server ends. Written once, here.
//!
//! # The order
//! 1. A signal comes (SIGTERM or SIGINT).
//! 2. With Web Push, no agent is let in any more, and those that are connected are sent away in waves
//!    over `push.drain_timeout`, while everything else still works: they go to another node, and what they
//!    had not acknowledged is stored.
//! 3. Nothing new is accepted; requests under way end, or are cut after `server.stop_timeout`.
//! 4. The engine stops: attempts under way end, or are given up after `engine.drain_timeout`, and the node
//!    gives its shards back.
//! 5. Spans and metrics that are left are sent to the collector, or given up after
//!    `telemetry.otlp.stop_timeout`.
//! 6. The store closes.
//!
//! A second signal ends the process at once. That is safe at any moment: what was accepted is on
//! disk, and a restart recovers. Only push messages of other senders that went straight to a socket
//! and were not acknowledged yet are in memory, unless `push.direct` is `stored`. When the engine
//! fails, there is nothing to wait for but these: they are stored if that can be done in a moment,
//! and the process ends without steps 2 to 6.
//!
//! SIGHUP asks for something else, to read files again ([`crate::tls`]), and ends a server only when the
//! terminal that it was started at is gone.

use std::future::Future as _;
use std::io::{IsTerminal as _, stderr};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use posthorn_engine::{Engine, Health};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::exit::{Code, Failure};
use crate::push;
use crate::storage::{self, Opened};
use crate::telemetry::otlp::Otlp;

/// What the steps may take beyond their own limits, closing the store included.
const MARGIN: Duration = Duration::from_secs(5);
/// How long a server that has failed tries to store what agents had not acknowledged.
const LAST_SAVES: Duration = Duration::from_secs(2);

/// SIGTERM and SIGINT, from the moment this is made.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    /// SIGHUP, for a server that was started at a terminal.
    hangup: Option<Signal>,
}

impl Signals {
    /// Takes the signals over from the system's default, which is to die.
    pub fn listen() -> anyhow::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: None,
        })
    }

    /// As a server needs them, with every SIGHUP there will be. `systemctl reload` sends it to any server, also to one
    /// that has nothing to read again, so its default, which is to die, is taken over before anything starts.
    pub fn of_server() -> anyhow::Result<(Self, Signal)> {
        let hangup = stderr().is_terminal().then(|| signal(SignalKind::hangup())).transpose()?;
        Ok((Self { hangup, ..Self::listen()? }, signal(SignalKind::hangup())?))
    }

    /// The next one that is a wish to end, by name.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
            () = terminal_gone(&mut self.hangup) => "SIGHUP",
        }
    }
}

/// Resolves when a SIGHUP comes and the terminal is there no more: nobody could see or stop what is left running.
async fn terminal_gone(hangup: &mut Option<Signal>) {
    let Some(hangup) = hangup else { return std::future::pending().await };
    while hangup.recv().await.is_some() && stderr().is_terminal() {}
}

/// Waits for one signal, for commands that only need to end.
pub async fn any_signal() -> anyhow::Result<()> {
    Signals::listen()?.next().await;
    Ok(())
}

/// A server at work.
pub struct Running {
    /// The engine.
    pub engine: Engine,
    /// Its store.
    pub opened: Opened,
    /// The accept loops, which end when `stop` is cancelled.
    pub serving: Vec<JoinHandle<()>>,
    /// Web Push, when it is on.
    pub push: Option<push::Running>,
    /// What is sent to a collector, when there is one.
    pub otlp: Option<Otlp>,
    /// Stops the accept loop, and whatever else listens to it.
    pub stop: CancellationToken,
    /// How long steps 2 to 5 may take together.
    pub patience: Duration,
}

impl Running {
    /// Works until a signal or a failure, and ends in good order.
    pub async fn until_stopped(mut self, mut signals: Signals) -> anyhow::Result<()> {
        let mut health = self.engine.health();
        tokio::select! {
            name = signals.next() => info!(signal = name, "stopping"),
            reason = failed(&mut health) => return Err(self.fail(&reason).await),
            reason = any_ended(&mut self.serving) => {
                return Err(self.fail(&format!("the accept loop ended: {reason}")).await);
            }
            reason = internal_ended(&mut self.push) => {
                return Err(self.fail(&format!("the internal listener ended: {reason}")).await);
            }
        }
        let patience = self.patience + MARGIN;
        tokio::select! {
            done = tokio::time::timeout(patience, self.wind_down()) => match done {
                Ok(()) => {
                    info!("stopped");
                    Ok(())
                }
                Err(_) => {
                    warn!(?patience, "the shutdown took too long and was aborted; the next start \
                                      recovers");
                    Err(Failure::new(Code::Failure, "the shutdown took too long").into())
                }
            },
            name = signals.next() => {
                warn!(signal = name, "second signal received: ending at once; the next start \
                                      recovers");
                Err(Failure::new(Code::Interrupted, "ended by a second signal").into())
            }
        }
    }

    async fn wind_down(&mut self) {
        if let Some(push) = &self.push {
            push.drain().await;
        }
        self.stop.cancel();
        for serving in &mut self.serving {
            if let Err(e) = serving.await {
                error!(error = %e, "an accept loop ended with an error");
            }
        }
        self.engine.stop().await;
        if let Some(otlp) = &mut self.otlp {
            otlp.stop().await;
        }
        self.opened.close().await;
    }

    async fn fail(&self, reason: &str) -> anyhow::Error {
        let damaged = self.opened.is_damaged();
        if damaged {
            error!(reason, "the server has failed and stops; restore the database from a backup");
        } else {
            error!(reason, "the server has failed and stops; a restart recovers");
        }
        self.engine.kill();
        if let Some(push) = &self.push {
            push.hurry(LAST_SAVES).await;
        }
        self.stop.cancel();
        if damaged {
            let message = format!("the database is damaged: {reason}");
            return Failure::new(Code::Damaged, message).hint(storage::RESTORE).into();
        }
        Failure::new(Code::Software, format!("the server has failed: {reason}"))
            .hint(
                "restart it; accepted events are safe on disk. If it happens again: posthorn \
                 check store",
            )
            .into()
    }
}

/// Resolves when an accept loop has ended, though nobody stopped it.
async fn any_ended(serving: &mut [JoinHandle<()>]) -> String {
    let next = std::future::poll_fn(|cx| {
        for task in serving.iter_mut() {
            if let Poll::Ready(ended) = Pin::new(task).poll(cx) {
                return Poll::Ready(ended);
            }
        }
        Poll::Pending
    });
    next.await.err().map_or_else(|| "it ended".to_owned(), |e| e.to_string())
}

/// Resolves when other nodes cannot call any more, though nobody stopped that.
async fn internal_ended(push: &mut Option<push::Running>) -> String {
    match push {
        Some(push) => push.ended().await,
        None => std::future::pending().await,
    }
}

/// Resolves when the engine has failed for good.
async fn failed(health: &mut watch::Receiver<Health>) -> String {
    let state = health.wait_for(|health| matches!(health, Health::Failed(_))).await;
    match state.as_deref() {
        Ok(Health::Failed(reason)) => reason.clone(),
        // The engine is gone, which it says before it goes.
        _ => "the engine ended".to_owned(),
    }
}
