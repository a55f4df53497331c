//! Mailboxes of agents, and one node's way to them: deliveries whose destination is a channel.
//!
//! Messages are not encrypted here, so that what an agent would read can be compared with what was
//! published. Whoever is out of order, or gone, is so by the mood of its subscription's receiver.

use std::sync::Arc;
use std::time::Duration;

use posthorn_domain::{AgentId, ChannelId, Clock, EventId, FailureCode, PushMessage};
use posthorn_engine::{
    Delivering, Looking, Opening, PushDelivery, PushLimits, PushOutcome, PushProblem,
};
use posthorn_sealing::endpoint_token::Endpoint;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::sleep;

use super::oracle::{Message, Seen};
use super::plan::Mood;
use super::receivers::Abandoned;
use super::world::{Link, World};

/// What every endpoint begins with; the rest is the number of the receiver.
pub(crate) const ENDPOINTS: &str = "https://push/";
/// What a kept message is answered with, and one for an agent that is gone.
const KEPT: u16 = 201;
const GONE: u16 = 410;

/// One node's way to the mailboxes.
pub(crate) struct SimMailboxes {
    world: Arc<World>,
    link: Arc<Link>,
}

impl SimMailboxes {
    pub(crate) fn new(world: Arc<World>, link: Arc<Link>) -> Self {
        Self { world, link }
    }
}

/// What an agent reads.
#[derive(Deserialize)]
struct Envelope<'a> {
    id: EventId,
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
}

impl PushDelivery for SimMailboxes {
    fn limits(&self) -> PushLimits {
        PushLimits::default()
    }

    fn open(&self, endpoint: &str) -> Opening {
        let number = endpoint.strip_prefix(ENDPOINTS).and_then(|text| text.parse::<u64>().ok());
        let opened = number.map(|number| Endpoint {
            agent: AgentId::from_random(u128::from(number)),
            channel: ChannelId::from_random(u128::from(number)),
            key: None,
        });
        Box::pin(async move { opened.ok_or(PushProblem::NotOurs) })
    }

    fn look_up(&self, _: Endpoint) -> Looking {
        Box::pin(async { Ok(()) })
    }

    fn deliver(&self, message: PushMessage) -> Delivering {
        let body = message.body.clone().unwrap_or_default();
        let read = serde_json::from_slice::<Envelope<'_>>(&body).ok();
        let (world, link) = (Arc::clone(&self.world), Arc::clone(&self.link));
        let now = world.now();
        world.note("message", &(link.life, message.id, &body[..]));
        let index = world.oracle.lock().message_began(
            now,
            &Message {
                life: link.life,
                node: link.node(),
                node_now: link.clock.now(),
                id: message.id,
                channel: message.channel,
                event: read.as_ref().map(|envelope| envelope.id),
                payload: read.as_ref().and_then(|e| Some(e.payload?.get().as_bytes())),
            },
        );
        let mood = {
            let number = world.oracle.lock().receiver_of(message.channel);
            let moods = world.faults.lock().moods;
            if moods { world.plan.mood(&format!("{ENDPOINTS}{number}")) } else { Mood::Well }
        };
        let (after, outcome) = self.decide(mood);
        let mut guard = Abandoned { world: Arc::clone(&world), index };
        Box::pin(async move {
            sleep(Duration::from_millis(after)).await;
            let mut seen = match outcome {
                PushOutcome::Kept => Seen { status: Some(KEPT), taken: true, ..Seen::default() },
                PushOutcome::Gone => Seen { status: Some(GONE), ..Seen::default() },
                PushOutcome::Unavailable(_) => unavailable(),
            };
            let mut outcome = outcome;
            if link.is_cut() {
                let taken = seen.taken;
                seen = Seen { taken, ..unavailable() };
                outcome = PushOutcome::Unavailable("the node is cut off".to_owned());
            }
            world.note("kept", &(link.life, index, seen.status, seen.taken));
            guard.finish(&seen);
            outcome
        })
    }
}

fn unavailable() -> Seen {
    Seen { failure: Some(FailureCode::PushUnavailable), ..Seen::default() }
}

impl SimMailboxes {
    fn decide(&self, mood: Mood) -> (u64, PushOutcome) {
        let elapsed = self.world.clock.elapsed();
        let mut dice = self.world.receiver_dice.lock();
        let (quick, roll) = (dice.between(0, 40), dice.below(1_000) as u32);
        let down = || PushOutcome::Unavailable("the simulator says so".to_owned());
        match mood {
            Mood::Slow(most) => (dice.between(500, most.clamp(500, 1_500)), PushOutcome::Kept),
            Mood::Gone(permille) if roll < permille => (quick, PushOutcome::Gone),
            Mood::Down if roll < 500 => (quick, down()),
            Mood::Flaky(permille) if roll < permille => (quick, down()),
            Mood::Outage { from, to } if (from..to).contains(&elapsed) => (quick, down()),
            _ => (quick, PushOutcome::Kept),
        }
    }
}
