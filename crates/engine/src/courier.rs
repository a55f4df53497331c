//! Attempts for events that no store keeps: one destination, one policy, one event at a time.
//!
//! A courier builds and sends exactly the request the scheduler would send, and moves the delivery on
//! by the same state machine. What it does not have is a store, shards and a schedule of its own:
//! whoever uses it keeps the work, and waits until it is due.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use posthorn_domain::delivery::{Input as Happening, step};
use posthorn_domain::policy::profiles;
use posthorn_domain::{
    Attempt, CatalogVersion, Clock, Delivery, DeliveryState, Destination, Epoch, Event, EventType,
    Fence, Filter, Labels, Metadata, NodeId, Policy, ProfileName, Shard, Stops, Subscription,
    SubscriptionStatus, Tenant, TenantId, Timestamp, TopicName,
};
use posthorn_sealing::vault::{Vault, VaultKey};
use posthorn_store::{CatalogDelta, TenantEntry, Work};
use tokio::time::Instant;

use crate::attempt::{self, Context, Ended, Job, Needs};
use crate::catalog::{Catalog, SubscriptionView};
use crate::chance::Chance;
use crate::destination::push::PushOptions;
use crate::endpoint::Endpoint;
use crate::error::{Error, Result};
use crate::hold::Hold;
use crate::policy_log::{PolicyLog, PolicyLogOptions};
use crate::scheduler::{LeaseTerm, Slot, history};
use crate::subscriptions::{SecretInput, check_secrets, seal};
use crate::tokens::Tokens;
use crate::transport::Transport;

/// What a courier is made of.
pub struct CourierParts {
    /// The way out.
    pub transport: Arc<dyn Transport>,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// The seed of all chance.
    pub seed: [u8; 32],
}

/// Makes attempts for events that no store keeps.
pub struct Courier {
    around: Arc<Context>,
    view: Arc<SubscriptionView>,
    policy: Arc<Policy>,
    clock: Arc<dyn Clock>,
    chance: Chance,
}

impl Courier {
    /// A courier to one URL. Refuses what a subscription would be refused for: a URL that is not
    /// allowed, a policy that cannot work, a secret that is missing.
    pub fn new(
        parts: CourierParts,
        url: &str,
        policy: Policy,
        secrets: &[SecretInput],
    ) -> Result<Self> {
        let CourierParts { transport, clock, seed } = parts;
        policy.validate()?;
        let url = transport.check_url(url)?;
        Endpoint::new(url.clone()).parts().check(&policy.url)?;
        let chance = Chance::new(seed);
        let (tenant, now) = (TenantId::DEFAULT, clock.now());
        let id = chance.subscription_id(now);
        // Secrets stay in this process, sealed with a key that nobody else ever sees.
        let vault = Arc::new(Vault::new(vec![VaultKey::generate()]).expect("there is one key"));
        let secrets: Vec<_> = secrets
            .iter()
            .map(|secret| seal(&vault, tenant, id, secret, now))
            .collect::<Result<_>>()?;
        check_secrets(&policy, &secrets)?;
        let profile = ProfileName::new(profiles::DEFAULT).expect("a valid name");
        let catalog =
            Catalog::new(&BTreeMap::from([(profile.clone(), policy)]), BTreeMap::new(), vault);
        let subscription = Subscription {
            id,
            tenant,
            name: None,
            description: String::new(),
            labels: Labels::default(),
            metadata: Metadata::default(),
            destination: Destination::Webhook { url },
            filter: Filter::default(),
            profile,
            overrides: serde_json::Value::Null,
            secrets,
            status: SubscriptionStatus::Active,
            stops: Stops::default(),
            created_at: now,
            updated_at: now,
            version: CatalogVersion(1),
        };
        let home = Tenant::new(tenant, "default".to_owned(), now);
        catalog.apply(CatalogDelta {
            version: CatalogVersion(1),
            tenants: vec![TenantEntry { tenant: home, version: CatalogVersion(1), removed: false }],
            subscriptions: vec![subscription],
            ..CatalogDelta::default()
        });
        let view = catalog.view(id).ok_or(Error::NotFound("subscription"))?;
        let policy = view.usable_policy()?;
        let around = Arc::new(Context {
            hold: Hold::default(),
            transport,
            push: None,
            push_options: PushOptions::default(),
            clock: Arc::clone(&clock),
            catalog: Arc::new(catalog),
            term: LeaseTerm::default(),
            tokens: Tokens::default(),
            origin: None,
            // Its policy is the embedding program's own.
            log: Arc::new(PolicyLog::new(PolicyLogOptions {
                policy: true,
                policy_lines_per_second: 0,
            })),
            tracer: None,
        });
        Ok(Self { around, view, policy, clock, chance })
    }

    /// Where it brings things.
    pub fn url(&self) -> &str {
        self.view.subscription.destination.url().unwrap_or_default()
    }

    /// The policy it follows.
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// An event with its delivery, due now.
    pub fn work(
        &self,
        topic: TopicName,
        event_type: EventType,
        content_type: String,
        payload: Bytes,
    ) -> Work {
        let now = self.clock.now();
        let event = Event {
            id: self.chance.event_id(now),
            tenant: self.view.subscription.tenant,
            topic,
            event_type,
            attributes: BTreeMap::new(),
            key: None,
            content_type,
            payload,
            accepted_at: now,
            publisher_id: None,
            deliver_at: None,
            retention: None,
            expunged_at: None,
            trace: None,
        };
        work_outside(&self.chance, &self.view, event, now)
    }

    /// Makes one attempt and moves the delivery on: what is not terminal afterwards is due again at
    /// its `due_at`. `None` when a closed gate kept the attempt from being made.
    pub async fn attempt(&self, work: &mut Work) -> Result<Option<Attempt>> {
        let job = job_outside(
            Arc::clone(&self.view),
            Arc::clone(&self.policy),
            work.clone(),
            Needs::Subscription,
        );
        let done = attempt::run(Arc::clone(&self.around), job).await;
        let now = self.clock.now();
        let happening = match &done.result {
            Ended::Outcome(outcome) => Happening::Attempted(outcome),
            Ended::GateClosed => Happening::GateClosed,
            Ended::Overtaken => return Err(Error::Busy("the courier was replaced")),
        };
        let delivery = &mut work.delivery;
        let next = step(delivery, &happening, &self.policy, now, self.chance.dice())
            .map_err(|_| Error::Ended)?;
        delivery.attempts += u32::from(next.charge);
        delivery.state = next.state;
        delivery.due_at = next.due_at;
        delivery.ended_at = next.state.is_terminal().then_some(now);
        Ok(match &done.result {
            Ended::Outcome(outcome) => Some(history(&done, outcome)),
            _ => None,
        })
    }
}

/// An event with a delivery that no store knows, due now.
pub(crate) fn work_outside(
    chance: &Chance,
    view: &SubscriptionView,
    event: Event,
    now: Timestamp,
) -> Work {
    let delivery = Delivery {
        id: chance.delivery_id(now),
        event: event.id,
        subscription: view.subscription.id,
        tenant: event.tenant,
        lane: None,
        seq: 0,
        state: DeliveryState::Pending,
        due_at: now,
        attempts: 0,
        budget_base: 0,
        budget: posthorn_domain::Budget::Fresh,
        budget_began: now,
        revival: 0,
        created_at: now,
        ended_at: None,
        last_outcome: None,
    };
    Work { delivery, event: Arc::new(event) }
}

/// An attempt outside of shards and leases: nobody counts it, and nothing fences it.
pub(crate) fn job_outside(
    view: Arc<SubscriptionView>,
    policy: Arc<Policy>,
    work: Work,
    needs: Needs,
) -> Job {
    let shard = Shard::of(view.subscription.id);
    let fence = Fence { shard, epoch: Epoch(0), node: NodeId::from_bytes([0; 16]) };
    Job {
        work,
        view,
        policy,
        fence,
        slot: Slot::UNCOUNTED,
        needs,
        held: None,
        made: Instant::now(),
    }
}
