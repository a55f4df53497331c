//! Who publishes what, and who is to get it: the run's cast, from which everything expected follows.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::crash::evidence::{Intent, Micros};
use crate::crash::signature;

/// The tenants. Both have the same topics, so that a leak from one to the other would be seen.
pub const TENANTS: [&str; 2] = ["alpha", "beta"];
/// The topics, with the share in a hundred of all events each one gets. `ledger` has the lanes that
/// span a whole subscription: they are slow by nature, so little goes there.
pub const TOPICS: [(&str, u64); 3] = [("orders", 80), ("ledger", 10), ("audit", 10)];
/// The types of events.
pub const KINDS: [&str; 3] = ["order.created", "order.paid", "note.added"];

/// Attempts under way at once that a subscription allows.
const CONCURRENCY: u64 = 16;

/// Everything the checker must know beforehand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// What chance was seeded with.
    pub seed: u64,
    /// Who is to get what.
    pub subscriptions: Vec<Subscription>,
}

/// A subscription and its receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subscription {
    /// Its name in this run; the server knows it as the path of the URL.
    pub name: String,
    /// Whose it is.
    pub tenant: String,
    /// The topics it wants.
    pub topics: Vec<String>,
    /// The types it wants; all of them when empty.
    pub kinds: Vec<String>,
    /// The order it asks for.
    pub order: Order,
    /// How its receiver behaves.
    pub temper: Temper,
    /// Whether attempts under way are written down before they start.
    pub durable: bool,
    /// Attempts under way at once.
    pub concurrency: u64,
    /// Whether it begins in the past: then it is to get everything of the run, whatever came before it.
    #[serde(default)]
    pub from_start: bool,
    /// When its creation was asked for.
    pub asked: Micros,
    /// When the server said 201; absent when it never did. Publishes in between may be seen or not.
    pub created: Option<Micros>,
}

/// Which deliveries wait for which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// None.
    None,
    /// All of them, one after the other.
    Subscription,
    /// Those with the same key.
    Key,
}

/// How a receiver behaves. All of them behave well once the faults have stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Temper {
    /// Well.
    Good,
    /// Refuses some events a few times before it takes them.
    BadAtFirst {
        /// So many of a hundred events.
        percent: u64,
        /// So often.
        times: u32,
    },
    /// Takes its time.
    Slow {
        /// At most so long.
        millis: u64,
    },
    /// Reads the request, and resets the connection.
    Resets {
        /// For so many of a hundred requests.
        percent: u64,
    },
    /// A server error, an overload or a reset now and then.
    Flaky {
        /// For so many of a hundred requests.
        percent: u64,
    },
    /// Is down for a while, comes back, goes down again.
    Moody {
        /// Up for so long.
        up_millis: u64,
        /// Down for so long.
        down_millis: u64,
    },
}

impl Plan {
    /// The usual cast.
    pub fn new(seed: u64) -> Self {
        use Order::{Key, None as Free, Subscription as Line};
        let orders: &[&str] = &["orders"];
        let ledger: &[&str] = &["ledger"];
        let of = |tenant: usize, name: &str, topics: &[&str], order, temper| {
            Subscription::new(TENANTS[tenant], name, topics, order, temper)
        };
        let bad = Temper::BadAtFirst { percent: 10, times: 2 };
        let moody = Temper::Moody { up_millis: 2_500, down_millis: 1_200 };
        let mut subscriptions = vec![
            of(0, "plain", orders, Free, Temper::Good),
            of(0, "durable", &["orders", "audit"], Free, Temper::Good),
            of(0, "bad-at-first", orders, Free, bad),
            of(0, "by-key", orders, Key, Temper::Flaky { percent: 5 }),
            of(0, "in-line", ledger, Line, Temper::Good),
            of(0, "resets", &["audit", "ledger"], Free, Temper::Resets { percent: 20 }),
            of(1, "slow-by-key", orders, Key, Temper::Slow { millis: 60 }),
            of(1, "moody", orders, Free, moody),
            of(1, "line-flaky", ledger, Line, Temper::Flaky { percent: 5 }),
            of(1, "created-only", &["orders", "audit"], Free, Temper::Slow { millis: 20 }),
        ];
        for subscription in &mut subscriptions {
            match subscription.name.as_str() {
                "durable" => subscription.durable = true,
                "created-only" => subscription.kinds = vec![KINDS[0].to_owned()],
                _ => {}
            }
        }
        Self { seed, subscriptions }
    }
}

impl Subscription {
    /// One that nothing is known of yet but its wishes.
    pub fn new(tenant: &str, name: &str, topics: &[&str], order: Order, temper: Temper) -> Self {
        Self {
            name: name.to_owned(),
            tenant: tenant.to_owned(),
            topics: topics.iter().map(|topic| (*topic).to_owned()).collect(),
            kinds: Vec::new(),
            order,
            temper,
            durable: false,
            concurrency: CONCURRENCY,
            from_start: false,
            asked: 0,
            created: None,
        }
    }

    /// Whether it wants such an event.
    pub fn wants(&self, event: &Intent) -> bool {
        self.tenant == event.tenant
            && self.topics.contains(&event.topic)
            && (self.kinds.is_empty() || self.kinds.contains(&event.kind))
    }

    /// The lane such an event is in; `None` when it is free.
    pub fn lane<'a>(&self, event: &'a Intent) -> Option<&'a str> {
        match self.order {
            Order::None => None,
            Order::Subscription => Some(""),
            Order::Key => event.key.as_deref(),
        }
    }

    /// The secret it signs with: its own, so that a mix-up would be seen.
    pub fn secret(&self, seed: u64) -> [u8; 32] {
        Sha256::digest(format!("{seed} {} {}", self.tenant, self.name)).into()
    }

    /// What is posted to make it.
    pub fn request(&self, seed: u64, url: &str) -> Value {
        let scope = match self.order {
            Order::None => "none",
            Order::Subscription => "subscription",
            Order::Key => "key",
        };
        let mut group = json!({"topics": self.topics});
        if !self.kinds.is_empty() {
            group["types"] = json!(self.kinds);
        }
        json!({
            "url": url,
            "description": self.name,
            "filter": {"any_of": [group]},
            "secrets": {"signing": signature::secret_text(&self.secret(seed))},
            "policy": {
                "schedule": {
                    "backoff": {"list": {"waits": ["200ms", "300ms", "500ms", "1s", "2s"]}},
                    // No outage of a run is long enough to exhaust this: a dead letter is a defect.
                    "max_attempts": 1000,
                },
                "limits": {
                    "connect": "2s", "response": "4s", "total": "5s",
                    "concurrency": self.concurrency,
                },
                "order": {"scope": scope},
                // A durable lease outlives the crash, so it also is how long recovery may take.
                "lease": {"time": "6s", "durable": self.durable},
            },
        })
    }
}
