//! The handle on everything that runs.

use std::sync::Arc;

use parking_lot::Mutex;
use posthorn_domain::{Labels, TenantId, TopicName};
use posthorn_engine::{Engine, Error as EngineError, NewSubscription, OutcomeStream, Published};
use posthorn_sealing::vault::Secret;

use crate::builder::{Builder, Started};
use crate::error::Error;
use crate::event::Event;
use crate::open::Opened;
use crate::outcomes::Outcomes;
use crate::subscription::{Subscribed, Subscription};

/// Whose everything is: a program that embeds Posthorn is one tenant.
const TENANT: TenantId = TenantId::DEFAULT;

/// Delivery inside your own process. Clones share it. Dropping the last one stops it at once, as a crash would, and on a
/// database nothing is lost; [`Posthorn::shutdown`] is kinder to receivers.
#[derive(Clone)]
pub struct Posthorn(Arc<Inner>);

struct Inner {
    engine: Engine,
    #[cfg(feature = "push")]
    push: Option<crate::push::Push>,
    /// Outcomes from the very first on, until somebody asks for them.
    first: Mutex<Option<OutcomeStream>>,
    /// Last, so that it is let go of last.
    opened: Opened,
}

impl Posthorn {
    /// Begins to put one together.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn new(opened: Opened, started: Started) -> Self {
        Self(Arc::new(Inner {
            engine: started.engine,
            #[cfg(feature = "push")]
            push: started.push,
            first: Mutex::new(Some(started.outcomes)),
            opened,
        }))
    }

    /// Publishes an event. `Ok` means that it is committed with all its deliveries. A topic that is not there is made.
    pub async fn publish(&self, event: Event) -> Result<Published, Error> {
        let publish = event.into_publish()?;
        self.ensure_topic(&publish.topic).await?;
        Ok(self.engine().publish(TENANT, publish).await?)
    }

    /// Makes a subscription. One with a name that is there already is changed where it differs, and left alone when it
    /// does not. Topics that are not there are made. Whether it is paused is left alone.
    pub async fn subscribe(&self, subscription: Subscription) -> Result<Subscribed, Error> {
        let (topics, wanted) = subscription.into_parts()?;
        for topic in &topics {
            self.ensure_topic(topic).await?;
        }
        if let Some(made) = self.make(&wanted).await? {
            return Ok(made);
        }
        let (view, changed) = self.engine().ensure_subscription(TENANT, wanted).await?;
        Ok(Subscribed { id: view.subscription.id, secret: None, changed })
    }

    /// Makes a subscription, unless there is one of its name.
    async fn make(&self, wanted: &NewSubscription) -> Result<Option<Subscribed>, Error> {
        let engine = self.engine();
        let named = |name| engine.catalog().subscription_named(TENANT, name);
        if wanted.name.as_ref().and_then(named).is_some() {
            return Ok(None);
        }
        match engine.create_subscription(TENANT, wanted.clone()).await {
            Ok((view, secret)) => {
                let (id, secret) = (view.subscription.id, secret.map(Secret::from));
                Ok(Some(Subscribed { id, secret, changed: true }))
            }
            // Made meanwhile by somebody else.
            Err(EngineError::AlreadyExists("subscription")) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn ensure_topic(&self, topic: &TopicName) -> Result<(), Error> {
        let engine = self.engine();
        if engine.catalog().topic(TENANT, topic).is_err() {
            let (text, names, labels) = (String::new(), Vec::new(), Labels::default());
            engine.put_topic(TENANT, topic.clone(), text, names, labels).await?;
        }
        Ok(())
    }

    /// Deliveries as they end. The first who asks is told from the start of the engine on, as far back as is kept (about
    /// a thousand); everybody else from now on.
    pub fn outcomes(&self) -> Outcomes {
        Outcomes::new(self.outcome_stream())
    }

    /// The same as the engine has it, which can also be asked for what was told already.
    pub fn outcome_stream(&self) -> OutcomeStream {
        let first = self.0.first.lock().take();
        first.unwrap_or_else(|| self.engine().outcomes())
    }

    /// The engine, for everything else one may want to ask or do.
    pub fn engine(&self) -> &Engine {
        &self.0.engine
    }

    /// What agents and senders of Web Push call, for your program to serve below the URL of [`Builder::push`]. Empty
    /// without one.
    #[cfg(feature = "push")]
    pub fn push_routes(&self) -> axum::Router {
        self.0.push.as_ref().map(crate::push::Push::routes).unwrap_or_default()
    }

    /// Stops: takes nothing more in, waits for attempts under way (at most `drain` of the engine's options), and closes
    /// the database. What is not delivered by then is resumed at the next start.
    pub async fn shutdown(&self) {
        #[cfg(feature = "push")]
        if let Some(push) = &self.0.push {
            push.stop().await;
        }
        self.engine().stop().await;
        self.0.opened.close().await;
    }
}
