//! Those who may want an event, and what it may cost to ask them all.

use std::sync::Arc;

use posthorn_domain::SubscriptionId;
use posthorn_domain::filter::Cost;

use super::SubscriptionView;

/// Subscriptions that are asked together.
#[derive(Default)]
pub(super) struct Listeners {
    pub(super) views: Vec<Arc<SubscriptionView>>,
    pub(super) cost: Cost,
}

impl Listeners {
    pub(super) fn push(&mut self, view: Arc<SubscriptionView>) {
        self.cost += view.cost;
        self.views.push(view);
    }

    pub(super) fn remove(&mut self, id: SubscriptionId) {
        let Some(place) = self.views.iter().position(|view| view.subscription.id == id) else {
            return;
        };
        let view = self.views.remove(place);
        self.cost -= view.cost;
        if self.views.is_empty() {
            self.cost = Cost::default();
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.views.is_empty()
    }
}
