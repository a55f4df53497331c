//! What agents get: each message is compared with the account as a request would be.

use bytes::Bytes;
use posthorn_domain::{
    ChannelId, Destination, EventId, MessageId, NodeId, SubscriptionId, Timestamp,
};

use super::requests::Arrival;
use super::{Invariant, Oracle};

/// A message on its way into a mailbox.
pub(crate) struct Message<'a> {
    /// Which life of which node sends it.
    pub(crate) life: usize,
    pub(crate) node: Option<NodeId>,
    /// What the sender's clock says.
    pub(crate) node_now: Timestamp,
    pub(crate) id: MessageId,
    pub(crate) channel: ChannelId,
    /// What its envelope says.
    pub(crate) event: Option<EventId>,
    pub(crate) payload: Option<&'a [u8]>,
}

impl Oracle {
    /// A message begins. Returns its number among the requests, to be told when it ends.
    pub(crate) fn message_began(&mut self, now: Timestamp, message: &Message<'_>) -> Option<usize> {
        let Some((subscription, event)) = self.subscriber(message.channel).zip(message.event)
        else {
            self.blame(Invariant::I4, now, format!("a message for nobody: {}", message.id));
            return None;
        };
        let deliveries = self.by_event.get(&event).cloned().unwrap_or_default();
        let own = deliveries.iter().filter_map(|id| self.deliveries.get(id));
        let found = own.map(|entry| &entry.delivery).find(|d| d.subscription == subscription);
        let (delivery, number, tenant) = match found {
            Some(delivery) => (delivery.id, delivery.attempts + 1, delivery.tenant),
            // It was forgotten; whether that may be is checked there.
            None => match self.messages.get(&message.id) {
                Some(delivery) => (*delivery, 1, posthorn_domain::TenantId::DEFAULT),
                None => return None,
            },
        };
        let first = *self.messages.entry(message.id).or_insert(delivery);
        self.expect(first == delivery, Invariant::I4, now, || {
            format!("{} is the message of {first} and of {delivery}", message.id)
        });
        let body = message.payload.map(Bytes::copy_from_slice).unwrap_or_default();
        let arrival = Arrival {
            life: message.life,
            node: message.node,
            node_now: message.node_now,
            tenant,
            subscription,
            delivery: Some(delivery),
            event: Some(event),
            number,
            url: "",
            label: "",
            profile: "",
            body: &body,
            signature: None,
        };
        self.request_began(now, &arrival)
    }

    /// Its bytes are those that were published.
    pub(super) fn check_message(&mut self, now: Timestamp, arrival: &Arrival<'_>, event: EventId) {
        use posthorn_domain::policy::BodySource;
        let Some(known) = self.subscriptions.get(&arrival.subscription) else { return };
        let payload = self.events.get(&event).map(|event| event.payload.clone());
        let right = match known.policy.request.body {
            BodySource::Payload => payload.as_ref() == Some(arrival.body),
            BodySource::Empty => arrival.body.is_empty(),
        };
        self.expect(right, Invariant::I4, now, || {
            format!("{:?}: an agent reads other bytes than were published", arrival.delivery)
        });
    }

    fn subscriber(&self, channel: ChannelId) -> Option<SubscriptionId> {
        let of = |id: &&SubscriptionId| self.channel(**id) == Some(channel);
        self.subscriptions.keys().find(of).copied()
    }

    fn channel(&self, id: SubscriptionId) -> Option<ChannelId> {
        match &self.subscriptions.get(&id)?.current()?.subscription.destination {
            Destination::Push(target) => Some(target.channel),
            Destination::Webhook { .. } | Destination::PushService(_) => None,
        }
    }

    /// Whether a subscription's destination is a channel.
    pub(super) fn is_push(&self, id: SubscriptionId) -> bool {
        self.channel(id).is_some()
    }

    /// The number that a channel was made from.
    pub(crate) fn receiver_of(&self, channel: ChannelId) -> u64 {
        (0..).find(|number| ChannelId::from_random(u128::from(*number)) == channel).unwrap_or(0)
    }
}
