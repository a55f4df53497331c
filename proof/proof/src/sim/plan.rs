//! The plan of one run, drawn from its seed: who there is, and what goes wrong how often.

use std::collections::BTreeMap;
use std::time::Duration;

use posthorn_domain::policy::{
    Auth, Backoff, BodyRule, BodySource, DeadHead, FieldType, Gate, Gone, Jitter, Lease, MaxAge,
    Method, OnClosed, OnExhausted, OnPermanent, Order, OrderScope, Policy, RetryAfter, Schedule,
    StatusSet, profiles,
};
use posthorn_domain::{ProfileName, Span, Template};
use posthorn_engine::Options;

use super::dice::Dice;
use super::world::Faults;

/// How a receiver behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mood {
    /// Takes everything at once.
    Well,
    /// Refuses the first so many attempts of each delivery.
    FailsFirst(u32),
    /// Cannot be reached.
    Down,
    /// Takes its time, up to so many milliseconds.
    Slow(u64),
    /// Takes it, and answers too late, so many times in a thousand.
    TimesOut(u32),
    /// Says that it is gone, so many times in a thousand.
    Gone(u32),
    /// Asks for less.
    Throttles {
        /// So many times in a thousand.
        permille: u32,
        /// To come back after so many seconds.
        seconds: u64,
    },
    /// Refuses for good, so many times in a thousand.
    Refuses(u32),
    /// Fails so many times in a thousand.
    Flaky(u32),
    /// Is out of reach between these milliseconds of the run.
    Outage {
        /// From.
        from: i64,
        /// To.
        to: i64,
    },
    /// Takes it and breaks the connection, so many times in a thousand.
    Resets(u32),
}

/// The plan of one run.
pub struct Plan {
    /// The seed it was drawn from.
    pub seed: u64,
    /// Machines.
    pub nodes: usize,
    /// How wrong the clock of each is, in milliseconds.
    pub skews: Vec<i64>,
    /// Tenants.
    pub tenants: usize,
    /// Subscriptions at the beginning.
    pub subscriptions: usize,
    /// The mood of each receiver; the first ones are those of the first subscriptions.
    pub moods: Vec<Mood>,
    /// Publishers, and the events of each.
    pub publishers: usize,
    /// Events each publisher publishes.
    pub events: usize,
    /// Milliseconds the storm lasts.
    pub storm: u64,
    /// Milliseconds between two acts of chaos, on average.
    pub chaos_every: u64,
    /// Milliseconds between two acts of operators, on average.
    pub operator_every: u64,
    /// Whole days after the storm.
    pub days: u64,
    /// The engine's knobs.
    pub options: Options,
    pub(crate) faults: Faults,
}

impl Plan {
    /// Draws the plan of a seed.
    pub fn draw(seed: u64) -> Self {
        let mut dice = Dice::new(seed, "plan");
        let dice = &mut dice;
        let nodes = 1 + dice.weighted(&[30, 30, 25, 15]);
        let skewed = dice.chance(0.3);
        let skews = (0..nodes)
            .map(|_| if skewed { dice.between(0, 3_000) as i64 - 1_500 } else { 0 })
            .collect();
        let storm = dice.between(60, 240) * 1_000;
        let moods = (0..24).map(|_| mood(dice, storm)).collect();
        let mut profiles = BTreeMap::new();
        for number in 0..dice.between(4, 7) {
            let name = ProfileName::new(&format!("p{number}")).expect("a valid name");
            profiles.insert(name, policy(dice));
        }
        let rough = dice.chance(0.6);
        let rate = |dice: &mut Dice, most: u64| {
            if rough { dice.between(0, most) as f64 / 1_000.0 } else { 0.0 }
        };
        Self {
            seed,
            nodes,
            skews,
            tenants: dice.between(1, 3) as usize,
            subscriptions: dice.between(3, 9) as usize,
            moods,
            publishers: dice.between(1, 3) as usize,
            events: dice.between(12, 36) as usize,
            storm,
            chaos_every: if dice.chance(0.8) { dice.between(8_000, 40_000) } else { u64::MAX },
            operator_every: dice.between(4_000, 15_000),
            days: dice.between(3, 7),
            options: options(dice, profiles),
            faults: Faults {
                unavailable: rate(dice, 30),
                unknown: rate(dice, 40),
                slow: rate(dice, 25),
                hint_loss: rate(dice, 500),
                outage: false,
                moods: true,
            },
        }
    }

    /// The mood of the receiver behind a URL.
    pub(crate) fn mood(&self, url: &str) -> Mood {
        let number = url.split('/').nth(3).and_then(|n| n.parse::<usize>().ok()).unwrap_or(0);
        self.moods[number % self.moods.len()]
    }
}

fn options(dice: &mut Dice, profiles: BTreeMap<ProfileName, Policy>) -> Options {
    let ttl = *dice.pick(&[8_000, 12_000, 20_000]);
    let tiny = dice.chance(0.4);
    Options {
        profiles,
        accept_pipeline: dice.between(1, 3) as usize,
        record_pipeline: dice.between(1, 3) as usize,
        accept_batch: *dice.pick(&[1, 3, 1_000]),
        slots: *dice.pick(&[2, 4, 16, 128]),
        window: if tiny { 16 } else { 1_024 },
        window_per_subscription: if tiny { 8 } else { 256 },
        horizon: Span::from_secs(dice.between(5, 60)),
        lease: Duration::from_millis(ttl),
        heartbeat_interval: Duration::from_millis(ttl / dice.between(4, 6)),
        poll_interval: Duration::from_secs(dice.between(3, 8)),
        maintenance_interval: Duration::from_secs(dice.between(10, 40)),
        event_retention: Span::from_secs(*dice.pick(&[300, 3_600, 7 * 86_400])),
        dead_letter_retention: Span::from_secs(*dice.pick(&[900, 86_400, 30 * 86_400])),
        idempotency_retention: Span::from_secs(2 * 86_400),
        drain_timeout: Duration::from_secs(dice.between(1, 15)),
        ..Options::default()
    }
}

fn mood(dice: &mut Dice, storm: u64) -> Mood {
    let permille = dice.between(100, 600) as u32;
    match dice.weighted(&[25, 12, 8, 8, 7, 6, 8, 7, 8, 6, 6]) {
        0 => Mood::Well,
        1 => Mood::FailsFirst(dice.between(1, 3) as u32),
        2 => Mood::Down,
        3 => Mood::Slow(dice.between(600, 4_000)),
        4 => Mood::TimesOut(permille),
        5 => Mood::Gone(permille / 4),
        6 => Mood::Throttles { permille, seconds: dice.between(1, 90) },
        7 => Mood::Refuses(permille),
        8 => Mood::Flaky(permille),
        9 => {
            let from = dice.below(storm) as i64;
            Mood::Outage { from, to: from + dice.between(5_000, 90_000) as i64 }
        }
        _ => Mood::Resets(permille),
    }
}

fn template(text: &str) -> Template {
    text.parse().expect("a valid template")
}

fn policy(dice: &mut Dice) -> Policy {
    let mut policy = profiles::default_profile();
    for (name, value) in [
        ("x-delivery", "{delivery.id}"),
        ("x-attempt", "{attempt.number}"),
        ("x-event", "{event.id}"),
        ("x-version", "0"),
    ] {
        policy.request.headers.insert(name.to_owned(), template(value));
    }
    if dice.chance(0.1) {
        policy.request.method = Method::Get;
        policy.request.body = BodySource::Empty;
    }
    if dice.chance(0.4) {
        policy.auth = Vec::<Auth>::new();
    }
    policy.order = order(dice);
    policy.schedule = schedule(dice);
    policy.limits.total = Span::from_secs(dice.between(2, 8));
    policy.limits.response = policy.limits.total;
    policy.limits.concurrency = *dice.pick(&[1, 2, 8, 32]);
    if dice.chance(0.2) {
        policy.limits.rate = Some(*dice.pick(&[0.5, 2.0, 10.0]));
    }
    if policy.order.scope == OrderScope::Key && dice.chance(0.5) {
        policy.spacing = Some(Span::from_millis(dice.between(500, 4_000)));
    }
    if dice.chance(0.15) {
        policy.gate = Some(gate(dice));
    }
    policy.permanent.gone = if dice.chance(0.8) { Gone::Disable } else { Gone::Retry };
    if dice.chance(0.3) {
        policy.permanent.body = Some(BodyRule {
            fields: BTreeMap::from([
                ("status".to_owned(), FieldType::Number),
                ("trace".to_owned(), FieldType::String),
            ]),
            except: StatusSet::of(&[409, 500]),
        });
    }
    policy.on_exhausted = *dice.pick(&[
        OnExhausted::DeadLetter,
        OnExhausted::DeadLetter,
        OnExhausted::DeadLetter,
        OnExhausted::DeadLetter,
        OnExhausted::Drop,
        OnExhausted::DisableSubscription,
    ]);
    if dice.chance(0.05) {
        policy.on_exhausted = OnExhausted::DeleteSubscription;
    }
    if dice.chance(0.2) {
        policy.on_permanent = OnPermanent::Drop;
    }
    let busy = policy.limits.total.as_millis()
        + policy.gate.as_ref().map_or(0, |gate| gate.timeout.as_millis());
    policy.lease = Lease {
        time: Span::from_millis(busy + dice.between(1_000, 40_000)),
        durable: dice.chance(0.3),
    };
    policy.validate().expect("the simulator draws valid policies");
    policy
}

fn order(dice: &mut Dice) -> Order {
    let scope = *dice.pick(&[OrderScope::None, OrderScope::Key, OrderScope::Subscription]);
    let dead_head = if dice.chance(0.3) { DeadHead::Block } else { DeadHead::Skip };
    Order { scope, key: None, dead_head }
}

fn gate(dice: &mut Dice) -> Gate {
    Gate {
        url: template("https://gate/{subscription.id}"),
        timeout: Span::from_secs(dice.between(1, 5)),
        status: StatusSet::two_hundreds(),
        expect: None,
        on_closed: if dice.chance(0.6) {
            OnClosed::Postpone { wait: Span::from_secs(dice.between(1, 20)) }
        } else {
            OnClosed::DeadLetter
        },
    }
}

fn schedule(dice: &mut Dice) -> Schedule {
    let seconds = |list: &[u64]| list.iter().copied().map(Span::from_secs).collect();
    let backoff = match dice.weighted(&[3, 3, 3, 2]) {
        0 => Backoff::Fixed { wait: Span::from_secs(dice.between(1, 15)) },
        1 => Backoff::Exponential {
            initial: Span::from_millis(dice.between(200, 3_000)),
            factor: *dice.pick(&[1.5, 2.0, 4.0]),
            cap: Span::from_secs(dice.between(20, 600)),
        },
        2 => Backoff::List { waits: seconds(&[1, 3, 10, 30]) },
        _ => Backoff::List { waits: seconds(&[5, 30, 600, 3_600, 21_600, 86_400]) },
    };
    let long = matches!(&backoff, Backoff::List { waits } if waits.len() > 4);
    let jitter = match dice.below(3) {
        0 => Jitter::None,
        1 => Jitter::Ratio { ratio: *dice.pick(&[0.1, 0.3]) },
        _ => Jitter::Add {
            from: Span::from_secs(1),
            to: Span::from_secs(dice.between(1, 5)),
            step: Span::from_millis(500),
        },
    };
    Schedule {
        backoff,
        jitter,
        max_attempts: Some(if long { 7 } else { dice.between(1, 6) as u32 }),
        max_age: (!long && dice.chance(0.2))
            .then(|| MaxAge::Is(Span::from_secs(dice.between(20, 300)))),
        retry_after: RetryAfter {
            honour: dice.chance(0.7),
            cap: Span::from_secs(dice.between(10, 3_600)),
        },
    }
}
