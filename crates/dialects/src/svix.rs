//! The Svix API, so that whoever has one of its clients changes one URL.
//!
//! # Theory of operation
//! An *organisation* is a realm, an *application* a tenant of it, an *endpoint* a subscription, a *message* an event on one
//! topic, an *event type* an entry of the realm's catalogue, a *background task* a job. Nothing else is kept: ids are ours in
//! another writing (`id.rs`), names that clients give are the names our things have anyway, and what only this API knows of a
//! thing is a label of it.
//!
//! Clients put an idempotency key on every POST and repeat it after a broken connection. So every POST is done once: a message by
//! the key of its event, everything else by an answer that is kept for twelve hours (`once.rs`).
//!
//! # What it must not know
//! SQL, sockets, schedules: when and how often something is sent is the profile's affair.
//!
//! # Where to start
//! `Svix::start`; `route.rs` for what there is, `access.rs` for who may ask.

mod access;
mod application;
mod attempt;
mod body;
mod call;
mod destination;
mod endpoint;
mod event_type;
mod failure;
mod health;
mod id;
mod message;
pub mod moving;
mod once;
mod operational;
mod page;
mod poller;
mod portal;
mod replay;
mod route;
mod task;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use posthorn_access::Callers;
use posthorn_domain::{ProfileName, Rate, RealmName, TopicName};
use posthorn_engine::Engine;
use posthorn_listener::Table;
use posthorn_sealing::vault::Secret;
use serde::{Deserialize, Deserializer};

use crate::{Around, Dialect, Home, Services, Settings, StartError, Started};

/// Where its settings are.
const SECTION: &str = "dialects.svix";
/// Beginnings of paths that are taken.
const TAKEN: [&str; 9] =
    ["v1", "jwks", "healthz", "readyz", "metrics", "openapi.json", "admin", "console", "portal"];
/// Holders of tokens of the former server that are counted at once.
const HOLDERS_COUNTED: usize = 10_000;

/// Knobs: the section `dialects.svix` of the configuration.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    /// Whether it is served at all.
    enabled: bool,
    /// What stands before all paths.
    #[serde(deserialize_with = "prefix")]
    prefix: String,
    /// The realm that an operator's key stands for, and tokens of all organisations where `organisations` names none.
    realm: RealmName,
    /// The topic of all messages; it is made where it is not there.
    topic: TopicName,
    /// The profile of all endpoints.
    profile: ProfileName,
    /// What tokens of the former server are signed with.
    jwt_secret: Option<Secret>,
    /// Which realm the tokens of an organisation of the former server open; those of others open nothing, unless none is named.
    organisations: BTreeMap<String, RealmName>,
    /// What becomes of messages for an endpoint that is disabled.
    disabled: Disabled,
    /// Where the portal is that links lead to; the address of each request when absent.
    #[serde(skip)]
    portal_url: Option<String>,
    /// Whether requests come over https.
    #[serde(skip)]
    https: bool,
    /// The largest body.
    #[serde(skip)]
    body_bytes: usize,
}

/// What becomes of messages for an endpoint that is disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Disabled {
    /// They wait until it is enabled again.
    Keep,
    /// It does not get them, as with the original.
    Drop,
}

fn prefix<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    crate::prefix(deserializer, &TAKEN)
}

/// The API, when it is on.
pub(crate) fn configured(
    read: &mut impl Settings,
    around: &Around<'_>,
) -> Option<Box<dyn Dialect>> {
    let mut options: Options = read.at(SECTION);
    options.https = around.https;
    options.body_bytes = around.body_bytes;
    options.portal_url.clone_from(&around.portal_url);
    if !options.enabled {
        return None;
    }
    let there = around.profiles.contains_key(&options.profile);
    let problem = format!("there is no profile `{}`", options.profile);
    read.require(there, &format!("{SECTION}.profile"), problem);
    let named = options.organisations.keys().find(|name| !name.starts_with(id::ORGANISATION));
    let problem =
        format!("`{}` is no organisation: these begin with org_", named.map_or("", |n| n));
    read.require(named.is_none(), &format!("{SECTION}.organisations"), problem);
    Some(Box::new(Svix { options }))
}

/// The API as it was configured.
#[derive(Debug)]
struct Svix {
    options: Options,
}

/// What a request works with: an engine that acts for its caller, and what all requests share.
#[derive(Clone)]
struct Service {
    engine: Engine,
    shared: Arc<Shared>,
}

impl std::ops::Deref for Service {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.shared
    }
}

/// What all requests share.
struct Shared {
    options: Options,
    callers: Callers,
    /// How much each holder of a token used of the rate that keys have too.
    rates: Table<Arc<str>>,
}

#[async_trait]
impl Dialect for Svix {
    fn name(&self) -> &'static str {
        "svix"
    }

    fn tenant(&self) -> &str {
        "default"
    }

    fn home(&self) -> Option<Home<'_>> {
        None
    }

    fn prefix(&self) -> Option<(&'static str, &str)> {
        Some(("dialects.svix.prefix", &self.options.prefix))
    }

    async fn start(self: Box<Self>, services: Services) -> Result<Started, StartError> {
        let Services { engine, callers, .. } = services;
        let options = self.options;
        call::describe();
        let per_second = engine.admission().options().key_requests_per_second;
        let rate = Rate::new(per_second, Duration::from_secs(1));
        let rates = Table::new(rate, HOLDERS_COUNTED);
        let service = Service { engine, shared: Arc::new(Shared { options, callers, rates }) };
        Ok(Started { routes: call::router(service), ..Started::default() })
    }
}
