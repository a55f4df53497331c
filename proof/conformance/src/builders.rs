//! Things to store, made with as few words as possible, and a ready-made setting to store them in.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use posthorn_domain::delivery::{Step, SubscriptionEffect};
use posthorn_domain::filter::Group;
use posthorn_domain::{
    ApiKey, Attempt, CancelReason, CatalogVersion, Certificate, CertificateId, CertificateKind,
    DeadReason, Delivery, DeliveryId, DeliveryState, Destination, Event, EventId, EventType, Fence,
    Filter, Idempotency, IdempotencyKey, KeyId, Labels, Lane, LaneKey, Metadata, NodeId,
    ProfileName, Redrive, RedriveFilter, RedriveId, RedriveState, SHARD_COUNT, Scope, Shard, Span,
    Stops, Subscription, SubscriptionId, SubscriptionStatus, Tenant, TenantId, Thumbprint,
    Timestamp, Timings, Topic, TopicName,
};

use super::Fixture;
use posthorn_store::{
    Accepted, CatalogChange, Claim, Grant, Heartbeat, NewDelivery, NewEvent, PendingAsk, Placed,
    Record, Recorded, Store, Work,
};

/// How long a setting holds its shards: longer than any case runs.
pub const LONG: Duration = Duration::from_secs(600);
/// How long a lease lasts in cases about expiry.
pub const SHORT: Duration = Duration::from_millis(300);

/// Milliseconds after the suite's arbitrary beginning of time.
pub fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(1_700_000_000_000 + millis)
}

/// A number no other call in this process gets. Ids made from it sort by it.
pub fn unique() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// A fresh tenant.
pub fn tenant() -> Tenant {
    let number = unique();
    let id = TenantId::new(at(0), number.into());
    Tenant::new(id, format!("tenant-{number}"), at(0))
}

/// A topic of a tenant.
pub fn topic(tenant: TenantId, name: &str) -> Topic {
    Topic {
        tenant,
        name: TopicName::new(name).expect("the case chose a proper name"),
        description: format!("about {name}"),
        attributes: vec!["colour".to_owned()],
        labels: labels(&[("link", "https://example.test/")]),
        created_at: at(0),
    }
}

/// Labels of these names and texts.
pub fn labels(pairs: &[(&str, &str)]) -> Labels {
    let pairs = pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
    Labels::new(pairs.collect()).expect("the case chose proper labels")
}

/// A subscription to everything.
pub fn subscription(tenant: TenantId) -> Subscription {
    let number = unique();
    Subscription {
        id: SubscriptionId::new(at(0), number.into()),
        tenant,
        name: None,
        description: String::new(),
        labels: Labels::default(),
        metadata: Metadata::default(),
        destination: Destination::Webhook { url: format!("https://example.test/{number}") },
        filter: Filter {
            any_of: vec![Group::default()],
            missing_attribute: posthorn_domain::filter::MissingAttribute::default(),
            attribute_names: posthorn_domain::filter::AttributeNames::default(),
        },
        profile: ProfileName::new("default").expect("a proper name"),
        overrides: serde_json::Value::Null,
        secrets: Vec::new(),
        status: SubscriptionStatus::Active,
        stops: Stops::default(),
        created_at: at(0),
        updated_at: at(0),
        version: CatalogVersion(0),
    }
}

/// An API key.
pub fn api_key(tenant: Option<TenantId>) -> ApiKey {
    let scopes = match tenant {
        Some(_) => vec![Scope::Publish, Scope::Read],
        None => vec![Scope::Operator],
    };
    ApiKey {
        rate_limit: Some(250),
        id: KeyId::new(at(0), unique().into()),
        tenant,
        realm: None,
        description: "a key".to_owned(),
        scopes,
        hash: [7; 32],
        created_at: at(0),
        expires_at: Some(at(1_000_000)),
        revoked_at: None,
    }
}

/// A certificate with a thumbprint of its own.
pub fn certificate(tenant: TenantId, kind: CertificateKind) -> Certificate {
    let number = unique();
    let mut thumbprint = [7; 32];
    thumbprint[..8].copy_from_slice(&number.to_be_bytes());
    Certificate {
        id: CertificateId::new(at(0), number.into()),
        tenant,
        kind,
        description: "a certificate".to_owned(),
        owner: "DE".to_owned(),
        host: "receiver.example".to_owned(),
        scopes: vec![Scope::Read],
        thumbprint: Thumbprint(thumbprint),
        subject: "CN=receiver, C=DE".to_owned(),
        pem: "-----BEGIN CERTIFICATE-----\n".to_owned(),
        sealed_key: Some(Bytes::from_static(&[0, 255, 1])),
        not_before: at(-5),
        not_after: at(5_000),
        created_at: at(0),
        updated_at: at(0),
        revoked_at: None,
        version: CatalogVersion(0),
    }
}

/// An event accepted at [`at`]`(0)`.
pub fn event(tenant: TenantId) -> Event {
    let number = unique();
    Event {
        id: EventId::new(at(0), number.into()),
        tenant,
        topic: TopicName::new("orders").expect("a proper name"),
        event_type: EventType::new("order.created").expect("a proper type"),
        attributes: BTreeMap::new(),
        key: None,
        content_type: "application/json".to_owned(),
        payload: Bytes::from(format!("{{\"number\":{number}}}")),
        accepted_at: at(0),
        publisher_id: None,
        deliver_at: None,
        retention: None,
        expunged_at: None,
        trace: None,
    }
}

/// A delivery to be made at [`at`]`(0)`.
pub fn delivery(subscription: SubscriptionId, lane: Option<Lane>) -> NewDelivery {
    let id = DeliveryId::new(at(0), unique().into());
    NewDelivery { id, subscription, lane, due_at: at(0) }
}

/// Protection by a key, for contents summed up in one byte.
pub fn idempotency(key: &str, contents: u8) -> Idempotency {
    let key = IdempotencyKey::new(key).expect("the case chose a proper key");
    Idempotency { key, fingerprint: [contents; 32] }
}

/// The lane of a key.
pub fn lane(key: &str) -> Option<Lane> {
    Some(Lane::Key(LaneKey::new(key).expect("the case chose a proper key")))
}

/// The lane of a whole subscription.
pub fn whole() -> Option<Lane> {
    Some(Lane::Subscription)
}

/// An attempt with an answer.
pub fn attempt(delivery: DeliveryId, number: u32, status: u16) -> Attempt {
    Attempt {
        delivery,
        number,
        started_at: at(i64::from(number)),
        took: Span::from_millis(12),
        timings: Timings::default(),
        status: Some(status),
        failure: None,
        detail: String::new(),
        response: Bytes::new(),
        late: false,
        manual: false,
        response_expunged_at: None,
        request: None,
    }
}

/// A redrive of everything that died before `until`.
pub fn redrive(tenant: TenantId, until: Timestamp) -> Redrive {
    Redrive {
        id: RedriveId::new(at(0), unique().into()),
        tenant,
        filter: RedriveFilter { until: Some(until), ..RedriveFilter::default() },
        per_second: 100,
        state: RedriveState::Running,
        total: 0,
        moved: 0,
        created_at: at(0),
        finished_at: None,
    }
}

fn step(state: DeliveryState, due_at: Timestamp, charge: bool, release_lane: bool) -> Step {
    Step { state, due_at, charge, release_lane, subscription: SubscriptionEffect::None }
}

/// The receiver has it.
pub fn delivered() -> Step {
    step(DeliveryState::Delivered, Timestamp::MAX, true, true)
}

/// Again at `due`.
pub fn failed(due: Timestamp) -> Step {
    step(DeliveryState::Pending, due, true, false)
}

/// Later, without an attempt.
pub fn postponed(due: Timestamp) -> Step {
    step(DeliveryState::Pending, due, false, false)
}

/// A dead letter that lets the next of its lane go on.
pub fn dead_skip() -> Step {
    step(DeliveryState::Dead(DeadReason::Exhausted), Timestamp::MAX, true, true)
}

/// A dead letter that stops its lane.
pub fn dead_block() -> Step {
    Step { release_lane: false, ..dead_skip() }
}

/// Ended without a dead letter.
pub fn dropped() -> Step {
    step(DeliveryState::Cancelled(CancelReason::Dropped), Timestamp::MAX, true, true)
}

/// A node's id.
pub fn node() -> NodeId {
    NodeId::new(at(0), unique().into())
}

/// All shards.
pub fn all_shards() -> Vec<Shard> {
    Shard::all().collect()
}

/// One published event.
#[derive(Clone, Debug)]
pub struct Published {
    /// As it was handed in.
    pub event: Arc<Event>,
    /// Its deliveries, in the order of the plan.
    pub deliveries: Vec<DeliveryId>,
    /// Where they stand.
    pub placed: Vec<Placed>,
}

/// A store with one tenant, and one node that holds every shard.
pub struct Setting {
    /// The store.
    pub store: Arc<dyn Store>,
    /// The tenant.
    pub tenant: TenantId,
    /// The node.
    pub node: NodeId,
    grants: HashMap<Shard, Grant>,
}

impl Setting {
    /// On a fresh store of the fixture.
    pub async fn new(fixture: &dyn Fixture) -> Self {
        let store = fixture.store().await;
        let tenant = tenant();
        let id = tenant.id;
        store.change_catalog(CatalogChange::CreateTenant(tenant)).await.expect("a new tenant");
        Self::on(store, id, node()).await
    }

    /// On a store that has the tenant already, and whose shards nobody else holds.
    pub async fn on(store: Arc<dyn Store>, tenant: TenantId, node: NodeId) -> Self {
        let mut setting = Self { store, tenant, node, grants: HashMap::new() };
        setting.hold().await;
        setting
    }

    /// The same after the store was reopened.
    pub async fn reopen(mut self, fixture: &dyn Fixture) -> Self {
        self.store = fixture.reopen(self.store).await;
        self.hold().await;
        self
    }

    /// Takes all shards. Those that another setting of the same node has already stay under their epochs.
    async fn hold(&mut self) {
        let beat =
            Heartbeat { node: self.node, ttl: LONG, catalog: CatalogVersion(1), version: "0" };
        let held = self.store.heartbeat(beat).await.expect("an answer").holders;
        let own = held.iter().filter(|held| held.node == self.node);
        let own = own.map(|held| Grant { shard: held.shard, epoch: held.epoch });
        self.grants = own.map(|grant| (grant.shard, grant)).collect();
        let mut rest = all_shards();
        rest.retain(|shard| !self.grants.contains_key(shard));
        let grants = self.store.acquire_shards(self.node, &rest, LONG).await;
        let grants = grants.expect("free shards are granted");
        self.grants.extend(grants.into_iter().map(|grant| (grant.shard, grant)));
        assert_eq!(self.grants.len(), usize::from(SHARD_COUNT), "nobody else holds a shard");
    }

    /// Another tenant.
    pub async fn other_tenant(&self) -> TenantId {
        let tenant = tenant();
        let id = tenant.id;
        let change = CatalogChange::CreateTenant(tenant);
        self.store.change_catalog(change).await.expect("a new tenant");
        id
    }

    /// A subscription of the tenant.
    pub async fn subscribe(&self) -> SubscriptionId {
        self.subscribe_for(self.tenant).await
    }

    /// A subscription of any tenant.
    pub async fn subscribe_for(&self, tenant: TenantId) -> SubscriptionId {
        let subscription = subscription(tenant);
        let id = subscription.id;
        let change = CatalogChange::CreateSubscription(Box::new(subscription));
        self.store.change_catalog(change).await.expect("a new subscription");
        id
    }

    /// Deletes a subscription of the tenant.
    pub async fn unsubscribe(&self, id: SubscriptionId, when: Timestamp) {
        let change = CatalogChange::DeleteSubscription { tenant: self.tenant, id, at: when };
        self.store.change_catalog(change).await.expect("an existing subscription");
    }

    /// The version plans of a tenant must be made on.
    pub async fn version_of(&self, tenant: TenantId) -> CatalogVersion {
        let delta = self.store.catalog_since(CatalogVersion(0)).await.expect("the whole catalog");
        let entry = delta.tenants.iter().find(|entry| entry.tenant.id == tenant);
        entry.expect("the tenant is in the catalog").version
    }

    /// An event of the tenant with a current plan.
    pub async fn planned(&self, deliveries: Vec<NewDelivery>) -> NewEvent {
        let catalog = self.version_of(self.tenant).await;
        NewEvent { event: Arc::new(event(self.tenant)), idempotency: None, catalog, deliveries }
    }

    /// Publishes one event to these subscriptions and lanes.
    pub async fn publish(&self, to: &[(SubscriptionId, Option<Lane>)]) -> Published {
        let deliveries = to.iter().map(|(id, lane)| delivery(*id, lane.clone())).collect();
        let new = self.planned(deliveries).await;
        self.accept(new).await
    }

    /// Publishes one event to one subscription, without order.
    pub async fn publish_one(&self, to: SubscriptionId) -> DeliveryId {
        self.publish(&[(to, None)]).await.deliveries[0]
    }

    /// Publishes one event into one lane.
    pub async fn publish_in(&self, to: SubscriptionId, lane: Option<Lane>) -> DeliveryId {
        self.publish(&[(to, lane)]).await.deliveries[0]
    }

    /// Has one event stored.
    pub async fn accept(&self, new: NewEvent) -> Published {
        let event = Arc::clone(&new.event);
        let deliveries = new.deliveries.iter().map(|delivery| delivery.id).collect();
        let mut replies = self.store.accept(vec![new]).await.expect("accept");
        match (replies.pop(), replies.pop()) {
            (Some(Accepted::Stored(placed)), None) => Published { event, deliveries, placed },
            other => panic!("a proper event is stored, not {other:?}"),
        }
    }

    /// What the node's writes about a subscription carry.
    pub fn fence(&self, subscription: SubscriptionId) -> Fence {
        let shard = Shard::of(subscription);
        let grant = self.grants.get(&shard).expect("the setting holds every shard");
        Fence { shard, epoch: grant.epoch, node: self.node }
    }

    /// A delivery of the tenant as it stands.
    pub async fn look(&self, id: DeliveryId) -> Delivery {
        let found = self.store.delivery(self.tenant, id).await.expect("a lookup");
        found.expect("the delivery is there")
    }

    /// A record by the node about a delivery as it stands, with an attempt when one is charged.
    pub async fn report(&self, id: DeliveryId, step: Step, when: Timestamp) -> Record {
        let seen = self.look(id).await;
        let number = seen.attempts + 1;
        Record {
            fence: self.fence(seen.subscription),
            tenant: seen.tenant,
            delivery: id,
            expected_attempts: seen.attempts,
            expected_revival: seen.revival,
            ordered: seen.lane.is_some(),
            step,
            attempt: step.charge.then(|| attempt(id, number, 200)),
            standing: None,
            told: Vec::new(),
            at: when,
        }
    }

    /// Writes down that an attempt of a delivery is under way until then.
    pub async fn lease(&self, id: DeliveryId, until: Timestamp) {
        let seen = self.look(id).await;
        let claim = Claim {
            fence: self.fence(seen.subscription),
            delivery: id,
            expected_attempts: seen.attempts,
            expected_revival: seen.revival,
            until,
        };
        assert_eq!(self.store.claim(vec![claim]).await.expect("an answer"), [true]);
    }

    /// Writes down what became of a delivery; the new head of its lane, if any.
    pub async fn record(&self, id: DeliveryId, step: Step, when: Timestamp) -> Option<Work> {
        let record = self.report(id, step, when).await;
        match self.record_one(record).await {
            Recorded::Written { promoted } => promoted,
            other => panic!("{id} is written down, not {other:?}"),
        }
    }

    /// Writes down one record.
    pub async fn record_one(&self, record: Record) -> Recorded {
        let mut replies = self.store.record(vec![record]).await.expect("record");
        assert_eq!(replies.len(), 1, "one reply for one item");
        replies.remove(0)
    }

    /// Everything of a subscription that is due by `until`.
    pub async fn pending(&self, subscription: SubscriptionId, until: Timestamp) -> Vec<Work> {
        let ask = PendingAsk { subscription, from: Timestamp::MIN, until, limit: 10_000 };
        let mut replies = self.store.pending(vec![ask], usize::MAX).await.expect("pending");
        assert_eq!(replies.len(), 1, "one reply for one ask");
        replies.remove(0)
    }

    /// The ids of everything of a subscription that is not parked.
    pub async fn ready(&self, subscription: SubscriptionId) -> Vec<DeliveryId> {
        let works = self.pending(subscription, Timestamp::MAX).await;
        works.into_iter().map(|work| work.delivery.id).collect()
    }
}
