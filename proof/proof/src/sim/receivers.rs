//! Receivers with moods, and the network between a node and them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use posthorn_domain::{Answer, AttemptOutcome, Clock, FailureCode};
use posthorn_engine::transport::Sending;
use posthorn_engine::{Outbound, Transport, UrlProblem};
use tokio::time::{Instant, sleep, sleep_until};

use super::dice::Dice;
use super::oracle::{Arrival, Seen};
use super::plan::Mood;
use super::world::{Link, World};

/// One node's way to the receivers.
pub(crate) struct SimTransport {
    world: Arc<World>,
    link: Arc<Link>,
}

/// What a receiver will do with one request.
struct Reply {
    after: u64,
    seen: Seen,
    body: &'static str,
}

/// Closes the account of a request that nobody waits for any more.
pub(super) struct Abandoned {
    pub(super) world: Arc<World>,
    pub(super) index: Option<usize>,
}

impl Abandoned {
    /// Closes the account in good order. A method, so that a future that calls it holds the whole
    /// guard and not a copy of its field.
    pub(super) fn finish(&mut self, seen: &Seen) {
        if let Some(index) = self.index.take() {
            let now = self.world.now();
            self.world.oracle.lock().request_ended(now, index, Some(seen));
        }
    }
}

impl Drop for Abandoned {
    fn drop(&mut self) {
        if let Some(index) = self.index.take() {
            let now = self.world.now();
            self.world.note("abandoned", &index);
            self.world.oracle.lock().request_ended(now, index, None);
        }
    }
}

impl SimTransport {
    pub(crate) fn new(world: Arc<World>, link: Arc<Link>) -> Self {
        Self { world, link }
    }

    /// Tells the oracle that a request begins.
    fn arrive(&self, request: &Outbound) -> (Option<usize>, u32) {
        let header = |name: &str| text(&request.headers, name);
        let delivery = header("x-delivery").parse().ok();
        let number = header("x-attempt").parse().unwrap_or(0);
        let signature = request.headers.contains_key("webhook-signature").then(|| {
            (header("webhook-id"), header("webhook-timestamp"), header("webhook-signature"))
        });
        let arrival = Arrival {
            life: self.link.life,
            node: self.link.node(),
            node_now: self.link.clock.now(),
            tenant: request.tenant,
            subscription: request.subscription,
            delivery,
            event: header("x-event").parse().ok(),
            number,
            url: &request.endpoint.url,
            label: header("x-version"),
            profile: header("x-profile"),
            body: &request.body,
            signature,
        };
        let now = self.world.now();
        let seen = (self.link.life, delivery, number, &request.body, signature.map(|s| s.2));
        self.world.note("request", &seen);
        (self.world.oracle.lock().request_began(now, &arrival), number)
    }

    fn ask_gate(&self, total: u64) -> Sending {
        let (open, after) = {
            let moods = self.world.faults.lock().moods;
            let mut dice = self.world.receiver_dice.lock();
            (!moods || dice.chance(0.7), dice.between(0, if moods { 3_000 } else { 20 }))
        };
        let world = Arc::clone(&self.world);
        let link = Arc::clone(&self.link);
        Box::pin(async move {
            sleep(Duration::from_millis(after.min(total))).await;
            world.note("gate", &(link.life, open));
            if after > total || link.is_cut() {
                return failed(FailureCode::ResponseTimeout).into();
            }
            answered(if open { 200 } else { 503 }, None, "{}").into()
        })
    }
}

impl Transport for SimTransport {
    fn check_url(&self, url: &str) -> Result<String, UrlProblem> {
        Ok(url.to_owned())
    }

    fn send(&self, request: Outbound) -> Sending {
        let total = request.deadlines.total.as_millis() as u64;
        if request.endpoint.url.starts_with("https://gate/") {
            return self.ask_gate(total);
        }
        let (index, number) = self.arrive(&request);
        let reply = {
            let moods = self.world.faults.lock().moods;
            let mood = if moods { self.world.plan.mood(&request.endpoint.url) } else { Mood::Well };
            let elapsed = self.world.clock.elapsed();
            let mut dice = self.world.receiver_dice.lock();
            decide(mood, number, elapsed, &mut dice)
        };
        let response = (request.deadlines.response.as_millis() as u64).min(total);
        let (world, link) = (Arc::clone(&self.world), Arc::clone(&self.link));
        let deadline = Instant::now() + Duration::from_millis(response);
        let mut guard = Abandoned { world: Arc::clone(&world), index };
        Box::pin(async move {
            let Reply { after, mut seen, body } = reply;
            if link.is_cut() {
                seen = Seen { failure: Some(FailureCode::ConnectFailed), ..Seen::default() };
                sleep(Duration::from_millis(50)).await;
            } else if after >= response {
                sleep_until(deadline).await;
                let taken = seen.taken;
                seen =
                    Seen { failure: Some(FailureCode::ResponseTimeout), taken, ..Seen::default() };
            } else {
                sleep(Duration::from_millis(after)).await;
                if link.is_cut() {
                    sleep_until(deadline).await;
                    let taken = seen.taken;
                    let failure = Some(FailureCode::ResponseTimeout);
                    seen = Seen { failure, taken, ..Seen::default() };
                }
            }
            let outcome = match (seen.status, seen.failure) {
                (Some(status), _) => answered(status, seen.retry_after_ms, body),
                (None, code) => failed(code.unwrap_or(FailureCode::ConnectFailed)),
            };
            world.note("answer", &(link.life, index, seen.status, seen.failure, seen.taken));
            guard.finish(&seen);
            outcome.into()
        })
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn failed(code: FailureCode) -> AttemptOutcome {
    AttemptOutcome::Failed { code, detail: String::new() }
}

fn answered(status: u16, retry_after_ms: Option<u64>, body: &'static str) -> AttemptOutcome {
    AttemptOutcome::Answered(Answer {
        status,
        retry_after: retry_after_ms.map(|ms| (ms / 1_000).to_string()),
        content_type: Some("application/json".to_owned()),
        body: Bytes::from_static(body.as_bytes()),
    })
}

/// The body that some policies take for a refusal for good.
const REFUSAL: &str = r#"{"status":400,"code":"x","message":"no","domain":"d","trace":"t"}"#;

fn decide(mood: Mood, number: u32, elapsed: i64, dice: &mut Dice) -> Reply {
    let quick = dice.between(0, 40);
    let roll = dice.below(1_000) as u32;
    let yes = || Reply {
        after: quick,
        seen: Seen { status: Some(200), taken: true, ..Seen::default() },
        body: "{}",
    };
    let status = |status: u16| Reply {
        after: quick,
        seen: Seen { status: Some(status), ..Seen::default() },
        body: "{}",
    };
    match mood {
        Mood::Well => yes(),
        Mood::FailsFirst(count) if number <= count => status(500),
        Mood::FailsFirst(_) => yes(),
        Mood::Down => Reply {
            after: quick,
            seen: Seen { failure: Some(FailureCode::ConnectFailed), ..Seen::default() },
            body: "",
        },
        Mood::Slow(most) => Reply { after: dice.between(500, most), ..yes() },
        // The receiver takes it and answers too late.
        Mood::TimesOut(permille) if roll < permille => Reply { after: u64::MAX, ..yes() },
        Mood::TimesOut(_) => yes(),
        Mood::Gone(permille) if roll < permille => status(410),
        Mood::Gone(_) => yes(),
        Mood::Throttles { permille, seconds } if roll < permille => {
            let mut reply = status(429);
            reply.seen.retry_after_ms = Some(seconds * 1_000);
            reply
        }
        Mood::Throttles { .. } => yes(),
        Mood::Refuses(permille) if roll < permille => {
            let mut reply = status(400);
            reply.seen.refuses = true;
            Reply { body: REFUSAL, ..reply }
        }
        Mood::Refuses(_) => yes(),
        Mood::Flaky(permille) if roll < permille => status(503),
        Mood::Flaky(_) => Reply { after: dice.between(0, 1_500), ..yes() },
        Mood::Outage { from, to } if (from..to).contains(&elapsed) => Reply {
            after: quick,
            seen: Seen { failure: Some(FailureCode::ConnectTimeout), ..Seen::default() },
            body: "",
        },
        Mood::Outage { .. } => yes(),
        Mood::Resets(permille) if roll < permille => Reply {
            after: quick,
            seen: Seen {
                failure: Some(FailureCode::ConnectionClosed),
                taken: true,
                ..Seen::default()
            },
            body: "",
        },
        Mood::Resets(_) => yes(),
    }
}
