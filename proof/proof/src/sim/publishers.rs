//! Publishers: they repeat what they are not sure of, and never take yes for more than it is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use posthorn_domain::{
    EventId, EventType, Idempotency, IdempotencyKey, LaneKey, Span, TenantId, Timestamp, TopicName,
};
use posthorn_engine::{Error, Publish, Published};
use sha2::{Digest, Sha256};
use tokio::time::sleep;

use super::cluster::Cluster;
use super::dice::Dice;
use super::oracle::{Invariant, PublishVerdict};

/// Names of topics; each tenant has them all.
pub(crate) const TOPICS: [&str; 2] = ["orders", "alerts"];
/// Keys of lanes; few, so that lanes get long.
const KEYS: [&str; 4] = ["ann", "bob", "cleo", "dan"];
/// Tries of one publish before its publisher gives up.
const TRIES: usize = 12;

/// One publisher.
pub(crate) struct Publisher {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) tenants: Arc<Vec<TenantId>>,
    pub(crate) dice: Dice,
    pub(crate) name: String,
    pub(crate) count: usize,
}

impl Publisher {
    /// Publishes so many events, with pauses of so many milliseconds on average.
    pub(crate) async fn run(&mut self, events: usize, pause: u64) {
        for _ in 0..events {
            let wait = if self.dice.chance(0.3) { 0 } else { self.dice.between(0, pause * 2) };
            if wait > 0 {
                sleep(Duration::from_millis(wait)).await;
            }
            if self.dice.chance(0.1) {
                self.burst().await;
            } else {
                self.one().await;
            }
        }
    }

    /// Several at once, without keys: each answer stands for itself.
    async fn burst(&mut self) {
        let count = self.dice.between(2, 8);
        let tenants = Arc::clone(&self.tenants);
        let tenant = *self.dice.pick(&tenants);
        let batch: Vec<Publish> =
            (0..count).map(|_| Publish { idempotency: None, ..self.draw() }).collect();
        let Some(node) = self.cluster.any(&mut self.dice) else { return };
        let call = node.engine.publish_batch(tenant, batch.clone());
        let answers = self.cluster.ask(&node, call).await.and_then(Result::ok).unwrap_or_default();
        let told: Vec<_> = answers.iter().map(|a| a.as_ref().ok().map(|told| told.id)).collect();
        self.cluster.world.note("burst", &(node.link.life, &told));
        for (index, publish) in batch.iter().enumerate() {
            let (verdict, id) = match answers.get(index) {
                Some(Ok(told)) => {
                    self.told(publish, told);
                    (PublishVerdict::Accepted, Some(told.id))
                }
                Some(Err(Error::Store(posthorn_store::Error::Unavailable { .. }))) => {
                    (PublishVerdict::Refused, None)
                }
                _ => (PublishVerdict::Unknown, None),
            };
            self.check(publish, verdict, id);
        }
    }

    fn draw(&mut self) -> Publish {
        self.count += 1;
        let (name, count) = (&self.name, self.count);
        let padding = "x".repeat(self.dice.below(80) as usize);
        let payload = format!(r#"{{"by":"{name}","n":{count},"pad":"{padding}"}}"#);
        let keyed = self.dice.chance(0.7);
        let key = keyed.then(|| LaneKey::new(self.dice.word(&KEYS)).expect("a valid key"));
        let color = if self.dice.chance(0.5) { "red" } else { "blue" };
        let idempotency = self.dice.chance(0.6).then(|| Idempotency {
            key: IdempotencyKey::new(&format!("{name}-{count}")).expect("a valid key"),
            fingerprint: Sha256::digest(&payload).into(),
        });
        let (deliver_at, retention) = self.draw_times();
        Publish {
            topic: TopicName::new(self.dice.word(&TOPICS)).expect("a valid name"),
            event_type: EventType::new(self.dice.word(&["thing.made", "thing.gone"]))
                .expect("a valid type"),
            attributes: BTreeMap::from([("color".to_owned(), color.to_owned())]),
            key,
            content_type: "application/json".to_owned(),
            payload: Bytes::from(payload),
            publisher_id: idempotency.as_ref().map(|own| own.key.clone()),
            idempotency,
            deliver_at,
            retention,
            trace: None,
        }
    }

    /// Some are to be delivered later, in the past, or kept for a short time only.
    fn draw_times(&mut self) -> (Option<Timestamp>, Option<Span>) {
        let now = self.cluster.world.now();
        let deliver_at = match self.dice.below(10) {
            0 => Some(now.plus(Span::from_millis(self.dice.between(1, 8_000)))),
            1 => Some(now.plus(Span::from_secs(self.dice.between(10, 120)))),
            2 if self.dice.chance(0.3) => {
                Some(now.minus(Span::from_secs(self.dice.between(1, 60))))
            }
            _ => None,
        };
        let brief = self.dice.chance(0.1);
        let retention = brief.then(|| Span::from_secs(self.dice.between(60, 300)));
        (deliver_at, retention)
    }

    async fn one(&mut self) {
        let publish = self.draw();
        let tenants = Arc::clone(&self.tenants);
        let tenant = *self.dice.pick(&tenants);
        let mut verdict = PublishVerdict::Refused;
        let mut id = None;
        for _ in 0..TRIES {
            let Some(answer) = self.publish(tenant, &publish).await else {
                sleep(Duration::from_millis(500)).await;
                continue;
            };
            match answer {
                Ok(told) => {
                    self.told(&publish, &told);
                    verdict = PublishVerdict::Accepted;
                    id = Some(told.id);
                    break;
                }
                Err(Error::Store(posthorn_store::Error::Unavailable { .. })) => {}
                Err(Error::KeyReused { event }) => {
                    self.blame(Invariant::I11, format!("a fresh key is taken by {event}"));
                    return;
                }
                // The answer got lost with the node or the connection.
                Err(_) => verdict = PublishVerdict::Unknown,
            }
            if publish.idempotency.is_none() && verdict == PublishVerdict::Unknown {
                break;
            }
            let pause = self.dice.between(100, 3_000);
            sleep(Duration::from_millis(pause)).await;
        }
        self.check(&publish, verdict, id);
        if let (Some(id), Some(_)) = (id, &publish.idempotency) {
            self.repeat(tenant, publish, id).await;
        }
    }

    /// `None`: nobody is there to be asked. A node that died is an unknown outcome.
    async fn publish(
        &mut self,
        tenant: TenantId,
        publish: &Publish,
    ) -> Option<Result<Published, Error>> {
        let node = self.cluster.any(&mut self.dice)?;
        let call = node.engine.publish(tenant, publish.clone());
        let answer = self.cluster.ask(&node, call).await;
        let answer = answer.unwrap_or(Err(Error::Busy("it died")));
        let told = answer.as_ref().ok().map(|told| (told.id, told.duplicate));
        self.cluster.world.note("publish", &(node.link.life, told));
        Some(answer)
    }

    /// The same again is the same event; other contents under the same key are refused.
    async fn repeat(&mut self, tenant: TenantId, mut publish: Publish, id: EventId) {
        let conflict = self.dice.chance(0.3);
        if !conflict && !self.dice.chance(0.3) {
            return;
        }
        if conflict {
            publish.payload = Bytes::from(format!(r#"{{"other":"{}-{}"}}"#, self.name, self.count));
            if let Some(idempotency) = &mut publish.idempotency {
                idempotency.fingerprint = Sha256::digest(&publish.payload).into();
            }
        }
        match self.publish(tenant, &publish).await {
            Some(Ok(told)) if conflict => {
                let what = format!("other contents under the key of {id} became {}", told.id);
                self.blame(Invariant::I11, what);
            }
            Some(Ok(told)) if told.id != id || !told.duplicate => {
                self.blame(Invariant::I11, format!("{id} repeated became {told:?}"));
            }
            Some(Err(Error::KeyReused { event })) if !conflict || event != id => {
                self.blame(Invariant::I11, format!("{id} repeated was refused for {event}"));
            }
            _ => {}
        }
        if conflict {
            self.check(&publish, PublishVerdict::Refused, None);
        }
    }

    fn told(&self, publish: &Publish, told: &Published) {
        let world = &self.cluster.world;
        world.oracle.lock().published(world.now(), &publish.payload, told);
    }

    fn check(&self, publish: &Publish, verdict: PublishVerdict, id: Option<EventId>) {
        let world = &self.cluster.world;
        world.oracle.lock().check_publish(world.now(), &publish.payload, verdict, id);
    }

    fn blame(&self, invariant: Invariant, what: String) {
        let world = &self.cluster.world;
        world.oracle.lock().blame(invariant, world.now(), what);
    }
}
