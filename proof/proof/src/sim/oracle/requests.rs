//! What receivers see: each request is compared with the account at the moment it begins.

use bytes::Bytes;
use posthorn_domain::policy::{Auth, BodySource, Policy};
use posthorn_domain::{
    DeliveryId, Epoch, EventId, FailureCode, Lane, NodeId, Shard, Span, SubscriptionId, TenantId,
    Timestamp,
};

use super::catalog::Known;
use super::{Invariant, Oracle};

/// A request as it arrives.
pub(crate) struct Arrival<'a> {
    /// Which life of which node sends it.
    pub(crate) life: usize,
    pub(crate) node: Option<NodeId>,
    /// What the sender's clock says.
    pub(crate) node_now: Timestamp,
    pub(crate) tenant: TenantId,
    pub(crate) subscription: SubscriptionId,
    pub(crate) delivery: Option<DeliveryId>,
    pub(crate) event: Option<EventId>,
    pub(crate) number: u32,
    pub(crate) url: &'a str,
    /// The version in the headers.
    pub(crate) label: &'a str,
    /// The version of the tenant's own profile in the headers, if it has one.
    pub(crate) profile: &'a str,
    pub(crate) body: &'a Bytes,
    pub(crate) signature: Option<(&'a str, &'a str, &'a str)>,
}

/// What a receiver answered, or the sender saw.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Seen {
    pub(crate) status: Option<u16>,
    pub(crate) failure: Option<FailureCode>,
    pub(crate) retry_after_ms: Option<u64>,
    /// The body says no, for good.
    pub(crate) refuses: bool,
    /// The receiver has taken it, whatever the sender saw.
    pub(crate) taken: bool,
}

/// A request that was made.
pub(super) struct Request {
    pub(super) delivery: DeliveryId,
    pub(super) subscription: SubscriptionId,
    pub(super) lane: Option<Lane>,
    pub(super) life: usize,
    pub(super) node: NodeId,
    pub(super) epoch: Option<Epoch>,
    pub(super) number: u32,
    /// Under which of its delivery's budgets it began.
    budget: u32,
    pub(super) started: Timestamp,
    pub(super) ended: Option<Timestamp>,
    pub(super) seen: Option<Seen>,
}

/// How late a healthy receiver's delivery may be while nothing is wrong.
const LATE_MAX: Span = Span::from_secs(30);
/// How long a disturbance explains lateness.
const CALM: Span = Span::from_secs(120);
/// A call that takes as long costs a slot. A little less than the engine's second: clocks differ.
const COSTLY: Span = Span::from_millis(950);
/// Attempts that began under an ownership that was lost just now may still come.
const AFTERMATH: Span = Span::from_secs(60);

impl Oracle {
    /// A request begins. Returns its number, to be told when it ends.
    pub(crate) fn request_began(&mut self, now: Timestamp, arrival: &Arrival<'_>) -> Option<usize> {
        self.tally.requests += 1;
        let (Some(id), Some(node)) = (arrival.delivery, arrival.node) else {
            self.blame(Invariant::I4, now, format!("a request without a name: {}", arrival.url));
            return None;
        };
        if let Some(forgotten) = self.forgotten.get(&id) {
            let at = forgotten.at;
            let excused = !forgotten.promised && now <= at.plus(self.hearsay());
            self.expect(excused, Invariant::I12, now, || format!("{id} was forgotten at {at}"));
            return None;
        }
        let Some(entry) = self.deliveries.get(&id) else {
            self.blame(Invariant::I4, now, format!("a request for {id}, which is not committed"));
            return None;
        };
        let (quiet, handled_at) = (entry.quiet, entry.handled_at);
        let (lane, event) = (entry.delivery.lane.clone(), entry.delivery.event);
        let budget = entry.budgets;
        let own = entry.delivery.subscription == arrival.subscription
            && entry.delivery.tenant == arrival.tenant
            && arrival.event == Some(event);
        self.expect(own, Invariant::I4, now, || {
            format!("{id} went to {} of {}", arrival.subscription, arrival.tenant)
        });
        self.expect(!quiet, Invariant::I12, now, || {
            format!("{id} was promised to be quiet after it was cancelled at {handled_at:?}")
        });
        self.check_payload_is_there(now, event);
        match self.is_push(arrival.subscription) {
            true => self.check_message(now, arrival, event),
            false => self.check_contents(now, arrival, event),
        }
        self.check_subscription(now, arrival);
        self.check_time(now, arrival, event);
        let shard = Shard::of(arrival.subscription);
        let lease = self.lease_of(node, shard, now);
        let holder = self.leases.get(&shard).copied();
        self.expect(lease.is_some(), Invariant::I7, now, || {
            format!("{node} attempts {id} without a lease on {shard:?}: {holder:?}")
        });
        let request = Request {
            delivery: id,
            subscription: arrival.subscription,
            lane,
            life: arrival.life,
            node,
            epoch: lease.map(|lease| lease.epoch),
            number: arrival.number,
            budget,
            started: now,
            ended: None,
            seen: None,
        };
        let fresh = lease.is_some_and(|lease| lease.since.plus(AFTERMATH) > now);
        self.check_turn(now, arrival, &request, fresh);
        self.check_company(now, &request);
        self.check_pace(now, &request, lease.map_or(now, |lease| lease.since));
        let index = self.requests.len();
        self.open.entry(request.subscription).or_default().push(index);
        self.last_of_subscription.insert(request.subscription, index);
        if let Some(entry) = self.deliveries.get_mut(&id) {
            entry.requests.push(index);
        }
        self.requests.push(request);
        Some(index)
    }

    /// Bytes and signature are right, by one consistent version of the subscription.
    fn check_contents(&mut self, now: Timestamp, arrival: &Arrival<'_>, event: EventId) {
        let Some(known) = self.subscriptions.get(&arrival.subscription) else { return };
        let payload = self.events.get(&event).map(|event| event.payload.clone());
        let body_right = match known.policy.request.body {
            BodySource::Payload => payload.as_ref() == Some(arrival.body),
            BodySource::Empty => arrival.body.is_empty(),
        };
        let signs = known.policy.auth.iter().any(|a| matches!(a, Auth::StandardWebhooks { .. }));
        let mut of_label = 0;
        let mut consistent = false;
        let mut signed = false;
        for version in &known.versions {
            if !version.url.ends_with(&format!("/v{}", arrival.label)) {
                continue;
            }
            of_label += 1;
            if version.version < known.settled || version.url != arrival.url {
                continue;
            }
            consistent = true;
            signed |= !signs || signed_by(version, arrival);
        }
        let profiled = self.has_profile(arrival.subscription, arrival.profile);
        let settled = known.settled;
        let what =
            |problem: &str| format!("{:?} attempt {}: {problem}", arrival.delivery, arrival.number);
        self.expect(body_right, Invariant::I4, now, || what("other bytes than were published"));
        self.expect(consistent, Invariant::I13, now, || {
            let (url, label) = (arrival.url, arrival.label);
            what(&format!("{url} with v{label} ({of_label} known), settled {settled:?}"))
        });
        self.expect(profiled, Invariant::I13, now, || {
            what(&format!("a profile that was replaced (`{}`)", arrival.profile))
        });
        self.expect(!consistent || signed, Invariant::I17, now, || {
            what("the signatures are not those of the secrets valid now")
        });
    }

    /// The time at which the event is to be delivered has come, by the clock of whoever sends it. The only excuse is
    /// somebody who retried it, by whose clock it had come.
    fn check_time(&mut self, now: Timestamp, arrival: &Arrival<'_>, event: EventId) {
        let later = self.events.get(&event).and_then(|event| event.deliver_at);
        let entry = arrival.delivery.and_then(|id| self.deliveries.get(&id));
        let excused = entry.is_some_and(|entry| entry.budgets > 0);
        let early = later.is_some_and(|later| later > arrival.node_now);
        self.expect(!early || excused, Invariant::I9, now, || {
            format!("{:?} is to be delivered at {later:?}", arrival.delivery)
        });
    }

    /// The subscription takes part.
    fn check_subscription(&mut self, now: Timestamp, arrival: &Arrival<'_>) {
        let Some(known) = self.subscriptions.get(&arrival.subscription) else { return };
        let promised = known.promised_stop;
        let stopped = known.stopped_at;
        let long = self.hearsay();
        self.expect(promised.is_none(), Invariant::I12, now, || {
            format!("{} was promised to be quiet since {promised:?}", arrival.subscription)
        });
        self.expect(stopped.is_none_or(|at| now <= at.plus(long)), Invariant::I12, now, || {
            format!("{} has been stopped since {stopped:?}", arrival.subscription)
        });
    }

    /// It is this delivery's turn: not ended, at the head of its lane, due, the right attempt.
    fn check_turn(
        &mut self,
        now: Timestamp,
        arrival: &Arrival<'_>,
        request: &Request,
        fresh: bool,
    ) {
        let Some(entry) = self.deliveries.get(&request.delivery) else { return };
        let delivery = entry.delivery.clone();
        let (claimed, ready_at) = (entry.claimed, entry.ready_at);
        let handled = entry.handled_at.is_some_and(|at| now <= at.plus(self.hearsay()));
        let accepted = entry.accepted;
        let budgets = entry.budgets;
        let deleted = self.subscriptions.get(&delivery.subscription).is_none_or(|s| s.deleted);
        let id = delivery.id;
        if accepted == Some(budgets) {
            self.tally.repeats += 1;
            self.check_repeat(now, request);
        }
        // What was under way when the shard changed hands, or was cancelled by hand, may still come.
        let excused = fresh || handled || deleted;
        self.expect(excused || !delivery.state.is_terminal(), Invariant::I15, now, || {
            format!("{id} is attempted again after it ended: {:?}", delivery.state)
        });
        if delivery.state.is_terminal() {
            return;
        }
        self.expect(excused || !delivery.is_parked(), Invariant::I5, now, || {
            format!("{id} is attempted before those ahead of it in {:?}", delivery.lane)
        });
        let right = arrival.number == delivery.attempts + 1;
        self.expect(excused || right, Invariant::I15, now, || {
            format!("{id}: attempt {} after {} others", arrival.number, delivery.attempts)
        });
        let own = claimed.is_some_and(|f| f.node == request.node && Some(f.epoch) == request.epoch);
        let due = if own { ready_at } else { delivery.due_at };
        let policy = self.subscriptions.get(&delivery.subscription).map(|s| &s.policy);
        let durable = policy.is_some_and(|policy| policy.lease.durable);
        self.expect(excused || own || !durable, Invariant::I7, now, || {
            format!("{id} is attempted without the durable lease its policy asks for")
        });
        let early = !delivery.is_parked() && due > arrival.node_now;
        self.expect(excused || !early, Invariant::I9, now, || {
            format!("{id} is due at {due}, its node says it is {}", arrival.node_now)
        });
        let Some(known) = self.subscriptions.get(&delivery.subscription) else { return };
        let excuses = [
            due.minus(Span::from_millis(5_000)),
            self.disturbed.plus(CALM),
            known.troubled.plus(CALM),
            self.leases.get(&Shard::of(delivery.subscription)).map_or(now, |l| l.since.plus(CALM)),
        ];
        let latest = excuses.into_iter().max().unwrap_or(now).plus(LATE_MAX);
        // Only where nothing but the engine itself can hold a delivery up.
        let limits = &known.policy.limits;
        let plain = limits.rate.is_none()
            && limits.concurrency >= 8
            && known.policy.spacing.is_none()
            && known.policy.gate.is_none()
            && self.slots >= 16;
        self.expect(!plain || now <= latest, Invariant::I9, now, || {
            format!("{id} was due at {due} and nothing explains why it comes only now")
        });
    }

    /// A repeat needs a reason: the sender died, lost its shard, or did not see the success.
    fn check_repeat(&mut self, now: Timestamp, request: &Request) {
        let Some(entry) = self.deliveries.get(&request.delivery) else { return };
        let unexplained = entry.requests.iter().map(|index| &self.requests[*index]).find(|old| {
            let success = old.seen.as_ref().and_then(|seen| seen.status) == Some(200);
            success
                && old.budget == request.budget
                && old.epoch == request.epoch
                && !self.dead_lives.contains(&old.life)
        });
        if let Some(old) = unexplained {
            let what = format!("{} succeeded at {:?} and is sent again", old.delivery, old.ended);
            self.blame(Invariant::I3, now, what);
        }
    }

    /// Nothing else of its lane is under way, and no more than its subscription allows.
    fn check_company(&mut self, now: Timestamp, request: &Request) {
        let open = self.open.get(&request.subscription).cloned().unwrap_or_default();
        let mut company = 0;
        for index in open {
            let other = &self.requests[index];
            let excused = self.dead_lives.contains(&other.life) || other.epoch != request.epoch;
            if excused {
                continue;
            }
            company += 1;
            // Also what was cancelled or brought back by hand, on whatever node, holds its lane while
            // it is under way.
            let same_lane = request.lane.is_some() && other.lane == request.lane;
            if other.delivery == request.delivery || same_lane {
                let what = format!(
                    "{} begins while {} is under way since {}",
                    request.delivery, other.delivery, other.started
                );
                self.blame(Invariant::I6, now, what);
            }
        }
        let Some(known) = self.subscriptions.get(&request.subscription) else { return };
        let cap = known.policy.limits.concurrency;
        self.expect(company < cap, Invariant::I18, now, || {
            format!(
                "{} has {} requests at once, allowed are {cap}",
                request.subscription,
                company + 1
            )
        });
    }

    /// Rate and spacing.
    fn check_pace(&mut self, now: Timestamp, request: &Request, since: Timestamp) {
        let Some(known) = self.subscriptions.get(&request.subscription) else { return };
        let policy = std::sync::Arc::clone(&known.policy);
        let last = self.last_of_subscription.get(&request.subscription).map(|i| &self.requests[*i]);
        if let (Some(rate), Some(last)) = (policy.limits.rate, last)
            && immediate(&policy)
            && last.epoch == request.epoch
        {
            let gap = (1_000.0 / rate) as u64;
            let pause = now.since(last.started).as_millis();
            self.expect(pause + 2 >= gap, Invariant::I18, now, || {
                format!(
                    "{} gets requests {pause} ms apart, allowed are {gap}",
                    request.subscription
                )
            });
        }
        let (Some(gap), Some(lane)) = (policy.spacing, &request.lane) else { return };
        self.expect(now >= since.plus(gap), Invariant::I18, now, || {
            format!("{} begins {gap} too soon after its shard was gained", request.delivery)
        });
        let key = (request.subscription, lane.clone());
        if let Some(last) = self.last_of_lane.get(&key).map(|index| &self.requests[*index])
            && last.epoch == request.epoch
            && let Some(ended) = last.ended
        {
            self.expect(now >= ended.plus(gap), Invariant::I18, now, || {
                format!("{} begins sooner than {gap} after {ended} in its lane", request.delivery)
            });
        }
    }

    /// A request has ended, or was abandoned when its node died (`None`).
    pub(crate) fn request_ended(&mut self, now: Timestamp, index: usize, seen: Option<&Seen>) {
        let request = &mut self.requests[index];
        request.ended = Some(now);
        let took = now.since(request.started);
        request.seen = seen.cloned();
        let (id, subscription, lane) =
            (request.delivery, request.subscription, request.lane.clone());
        if let Some(open) = self.open.get_mut(&subscription) {
            open.retain(|other| *other != index);
        }
        if let Some(lane) = lane {
            self.last_of_lane.insert((subscription, lane), index);
        }
        let taken = seen.is_some_and(|seen| seen.taken);
        if let Some(known) = self.subscriptions.get_mut(&subscription) {
            note_health(known, seen, took, now);
        }
        if taken {
            self.check_first_success(now, id, index);
        }
    }

    /// The first success of each delivery of a lane comes in commit order. One that was brought back goes
    /// before what came later, but for what was under way by then.
    fn check_first_success(&mut self, now: Timestamp, id: DeliveryId, index: usize) {
        let (began, heard) = (self.requests[index].started, self.hearsay());
        let Some(entry) = self.deliveries.get_mut(&id) else { return };
        let first = entry.accepted.is_none();
        entry.accepted = Some(entry.budgets);
        if !first {
            return;
        }
        let (seq, subscription, lane) =
            (entry.delivery.seq, entry.delivery.subscription, entry.delivery.lane.clone());
        let Some(members) = lane.and_then(|lane| self.lanes.get(&(subscription, lane))) else {
            return;
        };
        let ahead = members.iter().filter_map(|other| self.deliveries.get(other)).find(|other| {
            other.delivery.seq < seq
                && !other.delivery.state.is_terminal()
                && other.accepted.is_none()
                && other.behind != Some(id)
                && other.handled_at.is_none_or(|at| began > at.plus(heard))
        });
        if let Some(ahead) = ahead {
            let what = format!("{id} arrived before {}, which was ahead of it", ahead.delivery.id);
            self.blame(Invariant::I5, now, what);
        }
    }
}

/// Whether nothing lies between the decision to send and the sending.
fn immediate(policy: &Policy) -> bool {
    policy.gate.is_none() && !policy.lease.durable
}

/// A receiver that fails quickly keeps its schedule. Only calls that take long may hold others back: they
/// count towards the concurrency, and open the breaker for up to five minutes. And `Retry-After` holds
/// everything back, as long as that.
fn note_health(known: &mut Known, seen: Option<&Seen>, took: Span, now: Timestamp) {
    let asked = seen.is_some_and(|seen| seen.retry_after_ms.is_some());
    // A 410 stops the subscription for a moment, until it is disabled.
    let gone = seen.is_some_and(|seen| seen.status == Some(410));
    if took >= COSTLY || asked || gone || seen.is_none() {
        known.troubled = known.troubled.max(now.plus(Span::from_secs(300)));
    }
}

/// Exactly the secrets that count at the sender's time have signed.
fn signed_by(version: &super::catalog::Version, arrival: &Arrival<'_>) -> bool {
    let Some((id, timestamp, signatures)) = arrival.signature else { return false };
    let Ok(seconds) = timestamp.parse::<i64>() else { return false };
    let now = arrival.node_now;
    if seconds != now.as_seconds() || Some(id.to_owned()) != arrival.event.map(|e| e.to_string()) {
        return false;
    }
    let live: Vec<_> =
        version.signing.iter().filter(|s| s.expires_at.is_none_or(|at| now < at)).collect();
    live.len() == signatures.split(' ').count()
        && live.iter().all(|signing| {
            signing.secret.verify(id, seconds, signatures, arrival.body, seconds, 1).is_ok()
        })
}
