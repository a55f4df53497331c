//! Operators: they make, change, pause and delete subscriptions, and meddle with deliveries.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use posthorn_domain::delivery::Wish;
use posthorn_domain::filter::{Glob, Group};
use posthorn_domain::policy::Auth;
use posthorn_domain::{
    Clock as _, DeliveryFilter, DeliveryId, Filter, JobId, Period, ProfileName, RedriveFilter,
    RedriveId, ReplayStatus, SecretName, Selection, Span, StateKind, SubscriptionId, TenantId,
    TopicName, policy::profiles,
};
use posthorn_engine::{
    Beginning, DestinationInput, Expunge, NewBulk, NewExpunge, NewReplay, NewSubscription,
    PushInput, Rotation, SecretInput, Start, SubscriptionChange,
};
use posthorn_sealing::standard_webhooks::SigningSecret;
use tokio::time::sleep;

use super::cluster::{Cluster, Node};
use super::dice::Dice;
use super::mailboxes::ENDPOINTS;
use super::publishers::TOPICS;

/// All operators as one.
pub(crate) struct Operator {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) tenants: Arc<Vec<TenantId>>,
    pub(crate) dice: Dice,
    pub(crate) made: usize,
    pub(crate) redrives: Vec<(TenantId, RedriveId)>,
    pub(crate) jobs: Vec<(TenantId, JobId)>,
}

impl Operator {
    /// Does something every now and then, until the time is over.
    pub(crate) async fn run(&mut self, until: i64, every: u64) {
        loop {
            let wait = self.dice.between(every / 4, every * 2);
            sleep(Duration::from_millis(wait)).await;
            if self.cluster.world.clock.elapsed() >= until {
                return;
            }
            self.act().await;
        }
    }

    /// A fresh signing secret of either kind, from the run's own chance: the engine's own would not
    /// replay.
    fn secret(&mut self) -> String {
        let bytes: [u8; 32] = self.dice.bytes();
        let prefix = if self.dice.chance(0.25) { "whsk_" } else { "whsec_" };
        let text = base64(prefix, &bytes);
        debug_assert!(SigningSecret::parse(&text).is_ok());
        text
    }

    fn filter(&mut self) -> Filter {
        let group = match self.dice.below(4) {
            0 | 1 => Group::default(),
            2 => Group {
                topics: vec![TopicName::new(self.dice.word(&TOPICS)).expect("a valid name")],
                ..Group::default()
            },
            _ => Group {
                types: vec![Glob::new("*.made")],
                attributes: BTreeMap::from([("color".to_owned(), "red".into())]),
                ..Group::default()
            },
        };
        Filter { any_of: vec![group], ..Filter::everything() }
    }

    /// Makes a subscription on a node.
    pub(crate) async fn create(&mut self, node: &Node) {
        let number = self.made;
        self.made += 1;
        let tenants = Arc::clone(&self.tenants);
        let tenant = *self.dice.pick(&tenants);
        let profiles: Vec<ProfileName> =
            self.cluster.world.plan.options.profiles.keys().cloned().collect();
        let own = self.cluster.world.oracle.lock().own_profiles(tenant);
        let profile = match own.first() {
            Some(own) if self.dice.chance(0.4) => own.clone(),
            _ => self.dice.pick(&profiles).clone(),
        };
        let policy = self.cluster.world.oracle.lock().profile_of(tenant, &profile);
        let signed = policy.auth.iter().any(|auth| matches!(auth, Auth::StandardWebhooks { .. }));
        let push = self.dice.chance(0.15).then(|| PushInput {
            endpoint: format!("{ENDPOINTS}{number}"),
            ttl: Some(3_600),
            ..PushInput::default()
        });
        let destination = match push {
            Some(push) => DestinationInput::Push(push),
            None => format!("https://r/{number}/v0").into(),
        };
        let secrets = if signed && matches!(destination, DestinationInput::Webhook(_)) {
            vec![SecretInput { name: signing(), value: self.secret() }]
        } else {
            Vec::new()
        };
        let start = self.start(tenant, node).await;
        let new = NewSubscription {
            destination,
            filter: Some(self.filter()),
            profile: Some(profile),
            secrets,
            paused: self.dice.chance(0.05),
            start,
            ..NewSubscription::default()
        };
        let call = node.engine.create_subscription(tenant, new);
        let made = self.cluster.ask(node, call).await.and_then(Result::ok);
        self.cluster.world.note("create", &made.map(|(view, _)| view.subscription.id));
    }

    /// Makes a subscription to operational events, alone or beside others. Only in the beginning.
    pub(crate) async fn listen(&mut self, node: &Node, tenant: TenantId, dice: &mut Dice) {
        let number = self.made;
        self.made += 1;
        let topic = |name: &str| TopicName::new(name).expect("a valid name");
        let mut group = Group { topics: vec![TopicName::operational()], ..Group::default() };
        match dice.below(4) {
            0 => group.types = vec![Glob::new("delivery.*")],
            1 => group.topics.push(topic(dice.word(&TOPICS))),
            _ => {}
        }
        let mut any_of = vec![group];
        if dice.chance(0.2) {
            any_of.push(Group::default());
        }
        let profiles: Vec<ProfileName> =
            self.cluster.world.plan.options.profiles.keys().cloned().collect();
        let profile = dice.pick(&profiles).clone();
        let policy = self.cluster.world.oracle.lock().profile_of(tenant, &profile);
        let signed = policy.auth.iter().any(|auth| matches!(auth, Auth::StandardWebhooks { .. }));
        let secret = |dice: &mut Dice| SecretInput {
            name: signing(),
            value: base64("whsec_", &dice.bytes::<32>()),
        };
        let new = NewSubscription {
            destination: format!("https://r/{number}/v0").into(),
            filter: Some(Filter { any_of, ..Filter::everything() }),
            profile: Some(profile),
            secrets: if signed { vec![secret(dice)] } else { Vec::new() },
            ..NewSubscription::default()
        };
        let made = node.engine.create_subscription(tenant, new).await.ok();
        self.cluster.world.note("listen", &made.map(|(view, _)| view.subscription.id));
    }

    fn some(&mut self) -> Option<(TenantId, SubscriptionId, bool)> {
        let living = self.cluster.world.oracle.lock().living();
        if living.is_empty() { None } else { Some(*self.dice.pick(&living)) }
    }

    async fn act(&mut self) {
        let Some(node) = self.cluster.any(&mut self.dice) else { return };
        match self.dice.weighted(&[6, 5, 7, 4, 2, 3, 8, 8, 3, 1, 3, 4, 4, 3, 1, 1, 3]) {
            0 => self.pause(&node).await,
            1 => self.resume(&node).await,
            2 => self.update(&node).await,
            3 => self.rotate(&node).await,
            4 => self.delete(&node).await,
            5 => self.create(&node).await,
            6 => self.cancel(&node).await,
            7 => self.retry(&node).await,
            8 => self.redrive(&node).await,
            9 => self.stop_redrive(&node).await,
            10 => self.forget(&node).await,
            11 => self.put_profile(&node).await,
            12 => self.replay(&node).await,
            13 => self.expunge(&node).await,
            14 => self.delete_tenant(&node).await,
            15 => self.stop_job(&node).await,
            _ => self.bulk(&node).await,
        }
    }

    /// Makes a tenant's own profile, or changes it: a header tells the versions apart.
    pub(crate) async fn put_profile(&mut self, node: &Node) {
        let tenants = Arc::clone(&self.tenants);
        let tenant = *self.dice.pick(&tenants);
        let bases = &self.cluster.world.plan.options.profiles;
        // Always the same for a tenant, so that only the header changes.
        let place = tenants.iter().position(|other| *other == tenant).unwrap_or(0);
        let Some(base) = bases.keys().nth(place % bases.len()).cloned() else { return };
        let name = ProfileName::new("own").expect("a valid name");
        self.made += 1;
        let label = self.made.to_string();
        let policy = serde_json::json!({ "request": { "headers": { "x-profile": &label } } });
        let call = node.engine.put_profile(tenant, name.clone(), Some(base), policy);
        let put = matches!(self.cluster.ask(node, call).await, Some(Ok(_)));
        self.cluster.world.note("profile", &(tenant, &label, put));
        if put {
            self.cluster.world.oracle.lock().profile_settled(tenant, &name, &label);
        }
    }

    async fn pause(&mut self, node: &Node) {
        let Some((tenant, id, _)) = self.some() else { return };
        let call = node.engine.pause_subscription(tenant, id);
        let paused = self.cluster.ask(node, call).await.and_then(Result::ok);
        let world = &self.cluster.world;
        world.note("pause", &(id, paused.is_some()));
        if let Some(view) = paused {
            let mut oracle = world.oracle.lock();
            oracle.promised_stop(world.now(), id);
            oracle.settled(id, view.subscription.version);
        }
    }

    async fn resume(&mut self, node: &Node) {
        let living = self.cluster.world.oracle.lock().living();
        let stopped: Vec<_> = living.into_iter().filter(|(_, _, active)| !active).collect();
        if stopped.is_empty() {
            return;
        }
        let (tenant, id, _) = *self.dice.pick(&stopped);
        self.resume_one(node, tenant, id).await;
    }

    /// Lets one go on; true when that was confirmed.
    pub(crate) async fn resume_one(
        &mut self,
        node: &Node,
        tenant: TenantId,
        id: SubscriptionId,
    ) -> bool {
        self.cluster.world.oracle.lock().asked_to_resume(id);
        let call = node.engine.resume_subscription(tenant, id);
        let view = self.cluster.ask(node, call).await.and_then(Result::ok);
        self.cluster.world.note("resume", &(id, view.is_some()));
        if let Some(view) = &view {
            self.cluster.world.oracle.lock().settled(id, view.subscription.version);
        }
        view.is_some()
    }

    /// Changes URL and header together: a request that mixes versions shows.
    async fn update(&mut self, node: &Node) {
        let Some((tenant, id, _)) = self.some() else { return };
        let Ok(view) = node.engine.catalog().subscription(tenant, id) else { return };
        let url = view.subscription.destination.url();
        let Some((base, _)) = url.and_then(|url| url.rsplit_once("/v")) else { return };
        self.made += 1;
        let label = 1_000 + self.made;
        let change = SubscriptionChange {
            destination: Some(format!("{base}/v{label}").into()),
            overrides: Some(
                serde_json::json!({ "request": { "headers": { "x-version": label.to_string() } } }),
            ),
            filter: self.dice.chance(0.3).then(|| self.filter()),
            ..SubscriptionChange::default()
        };
        let call = node.engine.update_subscription(tenant, id, change);
        let changed = self.cluster.ask(node, call).await.and_then(Result::ok);
        self.cluster.world.note("update", &(id, label, changed.is_some()));
        if let Some(view) = changed {
            self.cluster.world.oracle.lock().settled(id, view.subscription.version);
        }
    }

    async fn rotate(&mut self, node: &Node) {
        let Some((tenant, id, _)) = self.some() else { return };
        let Ok(view) = node.engine.catalog().subscription(tenant, id) else { return };
        if view.subscription.secrets.is_empty() {
            return;
        }
        let secret = self.secret();
        let overlap = Span::from_secs(self.dice.between(0, 120));
        let rotation =
            Rotation { value: Some(secret), overlap: Some(overlap), ..Rotation::of(signing()) };
        let call = node.engine.rotate_secret(tenant, id, rotation);
        let rotated = self.cluster.ask(node, call).await.and_then(Result::ok);
        self.cluster.world.note("rotate", &(id, rotated.is_some()));
        if let Some((view, _)) = rotated {
            self.cluster.world.oracle.lock().settled(id, view.subscription.version);
        }
    }

    async fn delete(&mut self, node: &Node) {
        let Some((tenant, id, _)) = self.some() else { return };
        let call = node.engine.delete_subscription(tenant, id);
        let deleted = self.cluster.ask(node, call).await.is_some_and(|d| d.is_ok());
        let world = &self.cluster.world;
        world.note("delete", &(id, deleted));
        if deleted {
            world.oracle.lock().promised_stop(world.now(), id);
        }
    }

    async fn cancel(&mut self, node: &Node) {
        let at = self.dice.below(u64::MAX);
        let found = self.cluster.world.oracle.lock().some_delivery(false, at);
        let blocker = self.cluster.world.oracle.lock().blockers().first().copied();
        let Some((tenant, id)) = blocker.or(found) else { return };
        let node = &self.stranger(node, id);
        let call = node.engine.cancel_delivery(tenant, id);
        if let Some(Ok(_)) = self.cluster.ask(node, call).await {
            self.cluster.world.oracle.lock().promised_quiet(id);
        }
    }

    /// Removes a delivery for good, ended or not.
    async fn forget(&mut self, node: &Node) {
        let at = self.dice.below(u64::MAX);
        let ended = self.dice.chance(0.4);
        let found = self.cluster.world.oracle.lock().some_delivery(ended, at);
        let Some((tenant, id)) = found else { return };
        let node = &self.stranger(node, id);
        let call = node.engine.forget_delivery(tenant, id);
        if let Some(Ok(_)) = self.cluster.ask(node, call).await {
            self.cluster.world.oracle.lock().promised_quiet(id);
        }
    }

    /// Half of the time, a node that does not own the delivery's shard, if there is one.
    fn stranger(&mut self, node: &Node, id: DeliveryId) -> Node {
        let owner = self.cluster.world.oracle.lock().owner_of(id);
        let others: Vec<Node> =
            self.cluster.running().into_iter().filter(|n| n.link.node() != owner).collect();
        if !others.is_empty() && self.dice.chance(0.5) {
            return self.dice.pick(&others).clone();
        }
        node.clone()
    }

    async fn retry(&mut self, node: &Node) {
        let at = self.dice.below(u64::MAX);
        let ended = !self.dice.chance(0.3);
        let found = self.cluster.world.oracle.lock().some_delivery(ended, at);
        let gone = self.cluster.world.oracle.lock().some_expunged(at);
        let gone = gone.filter(|_| self.dice.chance(0.1));
        let Some((tenant, id)) = gone.or(found) else { return };
        let node = &self.stranger(node, id);
        let _ = match self.dice.chance(0.3) {
            true => self.cluster.ask(node, node.engine.retry_delivery_once(tenant, id)).await,
            false => self.cluster.ask(node, node.engine.retry_delivery(tenant, id)).await,
        };
    }

    async fn redrive(&mut self, node: &Node) {
        let tenants = Arc::clone(&self.tenants);
        let tenant = *self.dice.pick(&tenants);
        let subscription = match self.some() {
            Some((owner, id, _)) if owner == tenant && self.dice.chance(0.5) => Some(id),
            _ => None,
        };
        let filter = RedriveFilter { subscription, ..RedriveFilter::default() };
        let pace = self.dice.between(1, 20) as u32;
        let call = node.engine.create_redrive(tenant, filter, pace);
        if let Some(Ok(redrive)) = self.cluster.ask(node, call).await {
            self.redrives.push((tenant, redrive.id));
        }
    }

    /// Where in the past a new subscription begins, if it does: at a time, or with an event.
    async fn start(&mut self, tenant: TenantId, node: &Node) -> Option<Start> {
        let newest = self.cluster.world.oracle.lock().newest_event(tenant);
        // Before there is a past, hardly anybody begins in it.
        if !self.dice.chance(if newest.is_some() { 0.9 } else { 0.1 }) {
            return None;
        }
        if newest.is_some() && self.dice.chance(0.7) {
            self.after_a_publish(tenant, node).await;
        }
        let now = self.cluster.world.now();
        let at = self.dice.below(u64::MAX);
        let event = match self.dice.chance(0.3) {
            true => self.cluster.world.oracle.lock().some_event(tenant, at),
            false => None,
        };
        let from = match event {
            Some(id) => Beginning::Event { id, accepted_at: now },
            None => Beginning::Time(now.minus(Span::from_secs(self.dice.between(1, 60)))),
        };
        Some(Start { from, created_by: "somebody".to_owned() })
    }

    /// Waits a little for an event that a node accepts later than it is on this one: clocks differ, and what is accepted in
    /// the very moment is what is most easily missed.
    async fn after_a_publish(&mut self, tenant: TenantId, node: &Node) {
        for _ in 0..100 {
            let newest = self.cluster.world.oracle.lock().newest_event(tenant);
            if newest.is_some_and(|newest| newest >= node.link.clock.now()) {
                return;
            }
            sleep(Duration::from_millis(10)).await;
        }
    }

    /// Delivers events of the past: to one subscription, again to all, or one event whatever the filter.
    async fn replay(&mut self, node: &Node) {
        let Some((tenant, id, _)) = self.some() else { return };
        let created_by = "somebody".to_owned();
        if self.dice.chance(0.3) {
            let at = self.dice.below(u64::MAX);
            let Some(event) = self.cluster.world.oracle.lock().some_event(tenant, at) else {
                return;
            };
            let call = node.engine.deliver_event(tenant, event, id, created_by);
            let _ = self.cluster.ask(node, call).await;
            return;
        }
        let (subscription, status) = match self.dice.below(6) {
            0 => (None, ReplayStatus::Failed),
            1 => (None, ReplayStatus::Delivered),
            2 => (Some(id), ReplayStatus::All),
            3 => (Some(id), ReplayStatus::Failed),
            _ => (Some(id), ReplayStatus::Missed),
        };
        let ago = Span::from_secs(self.dice.between(1, 120));
        let from = self.dice.chance(0.5).then(|| self.cluster.world.now().minus(ago));
        let events = Selection { from, ..Selection::default() };
        let per_second = self.dice.between(1, 30) as u32;
        let new = NewReplay { subscription, events, status, per_second, created_by };
        let call = node.engine.create_replay(tenant, new);
        if let Some(Ok(job)) = self.cluster.ask(node, call).await {
            self.jobs.push((tenant, job.id));
        }
    }

    /// Removes the payload of an event, of one that is on its way as well, or those of many.
    async fn expunge(&mut self, node: &Node) {
        let tenants = Arc::clone(&self.tenants);
        let tenant = *self.dice.pick(&tenants);
        if self.dice.chance(0.2) {
            let ago = Span::from_secs(self.dice.between(1, 30));
            let until = Some(self.cluster.world.now().minus(ago));
            let events = Selection { until, ..Selection::default() };
            let per_second = self.dice.between(1, 5) as u32;
            let created_by = "somebody".to_owned();
            let new = NewExpunge { events, responses: false, per_second, created_by };
            let call = node.engine.create_expunge(tenant, new);
            if let Some(Ok(job)) = self.cluster.ask(node, call).await {
                self.jobs.push((tenant, job.id));
            }
            return;
        }
        let at = self.dice.below(u64::MAX);
        let Some(event) = self.cluster.world.oracle.lock().some_event(tenant, at) else { return };
        let how = Expunge { responses: self.dice.chance(0.3), cancel: self.dice.chance(0.5) };
        let call = node.engine.expunge_event(tenant, event, how);
        if let Some(Ok(_)) = self.cluster.ask(node, call).await {
            self.cluster.world.oracle.lock().promised_gone(event);
        }
    }

    /// Deletes a tenant with everything it has; one of them stays.
    async fn delete_tenant(&mut self, node: &Node) {
        let (doomed, open) = {
            let oracle = self.cluster.world.oracle.lock();
            let open = self.tenants.iter().filter(|tenant| !oracle.is_closed(**tenant));
            (self.tenants.last().copied(), open.count())
        };
        let Some(tenant) = doomed.filter(|_| open > 1) else { return };
        let call = node.engine.delete_tenant(tenant, "somebody".to_owned());
        let deleted = matches!(self.cluster.ask(node, call).await, Some(Ok(_)));
        let world = &self.cluster.world;
        world.note("delete tenant", &(tenant, deleted));
        if deleted {
            world.oracle.lock().promised_deletion(world.now(), tenant);
        }
    }

    /// Cancels, removes or retries many deliveries, of one subscription or by their state.
    async fn bulk(&mut self, node: &Node) {
        let Some((tenant, id, _)) = self.some() else { return };
        let wish = if self.dice.chance(0.6) { Wish::Cancel } else { Wish::Forget };
        let ago = Span::from_secs(self.dice.between(1, 60));
        let until = Some(self.cluster.world.now().minus(ago));
        let deliveries = DeliveryFilter {
            subscription: self.dice.chance(0.7).then_some(id),
            state: match self.dice.below(3) {
                0 => Some(StateKind::Dead),
                _ => Some(StateKind::Pending),
            },
            created: Period { from: None, until },
            ..DeliveryFilter::default()
        };
        // Of dead letters those that block a lane can be cancelled; all can be tried again.
        let wish = match deliveries.state {
            Some(StateKind::Dead) if self.dice.chance(0.5) => Wish::Retry,
            _ => wish,
        };
        let per_second = self.dice.between(1, 30) as u32;
        let new = NewBulk { wish, deliveries, per_second, created_by: "somebody".to_owned() };
        if let Some(Ok(job)) = self.cluster.ask(node, node.engine.create_bulk(tenant, new)).await {
            self.jobs.push((tenant, job.id));
        }
    }

    async fn stop_job(&mut self, node: &Node) {
        let Some((tenant, id)) = self.jobs.pop() else { return };
        let _ = self.cluster.ask(node, node.engine.cancel_job(tenant, id)).await;
    }

    async fn stop_redrive(&mut self, node: &Node) {
        let Some((tenant, id)) = self.redrives.pop() else { return };
        let _ = self.cluster.ask(node, node.engine.cancel_redrive(tenant, id)).await;
    }
}

fn signing() -> SecretName {
    SecretName::new(profiles::SIGNING_SECRET).expect("a valid name")
}

/// `whsec_` and the bytes in standard base64.
fn base64(prefix: &str, bytes: &[u8; 32]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::from(prefix);
    for chunk in bytes.chunks(3) {
        let word = chunk.iter().fold(0u32, |word, byte| (word << 8) | u32::from(*byte));
        let word = word << (8 * (3 - chunk.len()));
        for place in 0..4 {
            if place <= chunk.len() {
                out.push(char::from(ALPHABET[(word >> (18 - 6 * place) & 63) as usize]));
            } else {
                out.push('=');
            }
        }
    }
    out
}
