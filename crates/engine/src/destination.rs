//! Where deliveries go: one trait, and a module for each kind of destination.
//!
//! # Theory of operation
//! A subscription stores a [`posthorn_domain::Destination`]. [`of`] turns it into a [`Destination`], which checks
//! policies and makes attempts. Everything else (schedules, lanes, leases, history) is the same for all kinds.
//! What somebody asks for is a [`DestinationInput`]; [`Engine::open_destination`] checks it and says what is stored.
//!
//! # What it must not know
//! When and how often anything is attempted.
//!
//! # To add a kind
//! A variant of `posthorn_domain::Destination` (what is stored) and of [`DestinationInput`] (what is asked for), a
//! module here that implements [`Destination`], and a line in [`of`] and in [`Engine::open_destination`]. Then its JSON
//! form in `posthorn-api` (`handlers/destinations.rs`) and its flags in the command line.

pub(crate) mod handshake;
pub(crate) mod push;
pub(crate) mod webhook;

use std::future::Future;
use std::pin::Pin;

use posthorn_domain::{Destination as Stored, Policy, SubscriptionId, TenantId};

use crate::attempt::{Context, Ended, Job, Made};
use crate::catalog::SubscriptionView;
use crate::engine::Engine;
use crate::error::Result;
use crate::preview::RequestPreview;
use crate::request::SubscriptionLookup;
use crate::subscriptions::SecretInput;
use push::service::PushService;
use push::{Push, PushInput};
use webhook::Webhook;

/// An attempt on its way.
pub(crate) type Attempting<'a> = Pin<Box<dyn Future<Output = Made> + Send + 'a>>;
/// A check that may have to ask somebody.
pub(crate) type Checking<'a> = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

/// One destination, ready for use.
pub(crate) trait Destination: Send + Sync {
    /// Makes one attempt of a delivery.
    fn attempt<'a>(&'a self, around: &'a Context, job: &'a Job) -> Attempting<'a>;

    /// What an attempt would send now, without sending anything or asking anybody. `Err` says how it would
    /// fail before.
    fn preview(&self, around: &Context, job: &Job) -> Result<RequestPreview, Ended>;

    /// Refuses a policy that can never work here.
    fn check_policy(&self, engine: &Engine, policy: &Policy) -> Result<()>;

    /// Refuses what cannot work at this moment, when it is written down: names that do not resolve, certificates that
    /// do not exist.
    fn check_now<'a>(&'a self, _engine: &'a Engine, _wanted: &'a Wanted<'a>) -> Checking<'a> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// Asks the other end whether it wants deliveries, when the policy says so: the last question before a
    /// subscription is saved.
    fn ask_permission<'a>(&'a self, _engine: &'a Engine, _wanted: &'a Wanted<'a>) -> Checking<'a> {
        Box::pin(std::future::ready(Ok(())))
    }

    /// What its kind is called where policies that hold for a kind are shared.
    fn kind(&self) -> &'static str;

    /// Whether a policy holds here as it is written.
    fn takes(&self, _policy: &Policy) -> bool {
        true
    }

    /// A policy as it holds here: the same for all destinations of the kind.
    fn fit(&self, policy: &Policy) -> Policy {
        policy.clone()
    }

    /// Why its subscriber gives no secrets, where that is so.
    fn takes_no_secrets(&self) -> Option<&'static str> {
        None
    }

    /// The names of the secrets that the destination itself keeps in the subscription.
    fn own_secrets(&self) -> &'static [&'static str] {
        &[]
    }

    /// Why its subscription is disabled when it says that it is gone.
    fn gone(&self) -> &'static str {
        "the receiver answered 410 Gone"
    }
}

/// Whose subscription is to be checked, and with which policy.
pub(crate) struct Wanted<'a> {
    pub(crate) id: SubscriptionId,
    pub(crate) tenant: TenantId,
    pub(crate) subscription: SubscriptionLookup<'a>,
    pub(crate) policy: &'a Policy,
}

/// Where a subscriber wants deliveries to go.
#[derive(Clone, Debug)]
pub enum DestinationInput {
    /// Requests to this URL.
    Webhook(String),
    /// Messages to a channel of Web Push.
    Push(PushInput),
}

impl Default for DestinationInput {
    fn default() -> Self {
        Self::Webhook(String::new())
    }
}

impl<T: Into<String>> From<T> for DestinationInput {
    fn from(url: T) -> Self {
        Self::Webhook(url.into())
    }
}

/// A destination that may be used: what is stored of it, and its own secrets, which are yet to be sealed.
pub(crate) struct Opened {
    pub(crate) stored: Stored,
    pub(crate) secrets: Vec<SecretInput>,
}

/// The destination of a subscription, ready for use.
pub(crate) fn of(stored: &Stored) -> Box<dyn Destination> {
    match stored {
        Stored::Webhook { url } => Box::new(Webhook::new(url.clone())),
        Stored::Push(target) => Box::new(Push(target.clone())),
        Stored::PushService(target) => Box::new(PushService::new(target.clone())),
    }
}

impl Engine {
    /// Checks where somebody wants deliveries to go: those of a new subscription, or of one that is there.
    pub(crate) async fn open_destination(
        &self,
        tenant: TenantId,
        input: &DestinationInput,
        present: Option<&SubscriptionView>,
    ) -> Result<Opened> {
        match input {
            DestinationInput::Webhook(url) => {
                let stored = Stored::Webhook { url: self.check_url(url)? };
                Ok(Opened { stored, secrets: Vec::new() })
            }
            DestinationInput::Push(input) => self.open_push(tenant, input, present).await,
        }
    }
}
