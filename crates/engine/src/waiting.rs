//! Why deliveries wait: what is written down, and what their owner knows besides.
//!
//! One question for a whole list goes to the scheduler, which answers from memory. What another node
//! works on is told from the rows alone.

use std::time::Duration;

use posthorn_domain::{Delivery, SubscriptionId, TenantId, Waiting};
use tokio::sync::oneshot;

use crate::engine::Engine;
use crate::scheduler::{Asked, Input, Live, SubscriptionState};

/// How long the scheduler may take to answer before the rows have to do.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);

impl Engine {
    /// For each delivery: why it waits; `None` for those that have ended or are under way.
    pub async fn waiting(&self, tenant: TenantId, deliveries: &[Delivery]) -> Vec<Option<Waiting>> {
        let now = self.now();
        let asked: Vec<Asked> = deliveries
            .iter()
            .filter(|delivery| !delivery.state.is_terminal())
            .map(Asked::from)
            .collect();
        let mut answers = self.ask_live(asked).await.into_iter();
        let row = |delivery: &Delivery| {
            let view = self.catalog().subscription(tenant, delivery.subscription).ok()?;
            let gated = view.policy.as_ref().is_ok_and(|policy| policy.gate.is_some());
            Waiting::of_row(delivery, &view.subscription.status, gated, now)
        };
        deliveries
            .iter()
            .map(|delivery| {
                if delivery.state.is_terminal() {
                    return None;
                }
                let live = answers.next().unwrap_or(Live::Unknown);
                match live {
                    // The scheduler does not know whose wish a due time is.
                    Live::Waits(_) if delivery.scheduled_until(now).is_some() => row(delivery),
                    Live::UnderWay => None,
                    Live::Waits(waiting) => Some(waiting),
                    Live::Unknown => row(delivery),
                }
            })
            .collect()
    }

    async fn ask_live(&self, asked: Vec<Asked>) -> Vec<Live> {
        if asked.is_empty() {
            return Vec::new();
        }
        let (answer, answers) = oneshot::channel();
        let ask = async {
            self.inner.scheduler.send(Input::Waits((asked, answer))).await.ok()?;
            answers.await.ok()
        };
        tokio::time::timeout(PATIENCE, ask).await.ok().flatten().unwrap_or_default()
    }

    /// How a subscription stands: what its due deliveries wait for, and since when it only fails. What
    /// another node works on is told from its status alone.
    pub async fn subscription_state(
        &self,
        tenant: TenantId,
        id: SubscriptionId,
    ) -> SubscriptionState {
        let (answer, state) = oneshot::channel();
        let ask = async {
            self.inner.scheduler.send(Input::StateOf(id, answer)).await.ok()?;
            state.await.ok()
        };
        let known = tokio::time::timeout(PATIENCE, ask).await.ok().flatten().unwrap_or_default();
        let view = self.catalog().subscription(tenant, id).ok();
        match view.and_then(|view| Waiting::of_status(&view.subscription.status)) {
            Some(stopped) => SubscriptionState { waiting: Some(stopped), ..known },
            None => known,
        }
    }
}
