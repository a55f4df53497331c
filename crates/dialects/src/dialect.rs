//! What every dialect is: a section of the configuration that becomes routes.
//!
//! A dialect lives in a folder of its own and implements [`Dialect`]; the list of all of them is in
//! `lib.rs`. It does not know how settings are layered nor which listener serves its routes.

use std::collections::BTreeMap;
use std::fmt;

use async_trait::async_trait;
use axum::Router;
use ipnet::IpNet;
use posthorn_access::Callers;
use posthorn_domain::{Policy, Problem, ProfileName};
use posthorn_engine::Engine;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::notificaties::{Fetch, Management};

/// Another system's API that is on.
#[async_trait]
pub trait Dialect: fmt::Debug + Send + Sync {
    /// What it is called in the configuration.
    fn name(&self) -> &'static str;

    /// The tenant that it works for unless it is told otherwise, by name.
    fn tenant(&self) -> &str;

    /// The tenant and the profile it takes for its own. Of two dialects with one tenant, the second is
    /// refused.
    fn home(&self) -> Option<Home<'_>>;

    /// What stands before all its paths, with the key of the configuration that says so. Two dialects cannot have the same.
    fn prefix(&self) -> Option<(&'static str, &str)> {
        None
    }

    /// URLs that it asks by itself, each with the key of the configuration it comes from.
    fn asks(&self) -> Vec<(&'static str, &str)> {
        Vec::new()
    }

    /// Makes what it needs in the catalog, adds its checks of publishes, and gives its routes.
    async fn start(self: Box<Self>, services: Services) -> Result<Started, StartError>;
}

/// What a dialect takes for its own.
#[derive(Clone, Copy, Debug)]
pub struct Home<'a> {
    /// The key that names the tenant.
    pub key: &'static str,
    /// The tenant, by name.
    pub tenant: &'a str,
    /// The profile of its subscriptions.
    pub profile: &'a str,
}

/// What a dialect stands on.
#[derive(Clone)]
pub struct Services {
    /// What delivers.
    pub engine: Engine,
    /// Who calls.
    pub callers: Callers,
    /// Asks other servers.
    pub fetch: Fetch,
}

/// A dialect at work.
#[derive(Default)]
pub struct Started {
    /// Everything it serves.
    pub routes: Router,
    /// What operators do with it over the native API.
    pub management: Option<Management>,
}

/// Why a dialect cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The engine could not do it.
    #[error(transparent)]
    Engine(#[from] posthorn_engine::Error),
    /// What was declared cannot be made so.
    #[error("setup_configuration: {0}")]
    Setup(String),
}

/// The configuration, as a dialect reads its section of it. What is wrong is noted, so that everything is
/// said at once.
pub trait Settings {
    /// A section or a single key. What cannot be read is noted, and its default is given.
    fn at<T: DeserializeOwned>(&mut self, key: &str) -> T;
    /// Notes what is wrong with a key.
    fn refuse(&mut self, key: &str, problem: String);
    /// A variable of the environment.
    fn variable(&self, name: &str) -> Option<String>;
    /// A YAML document.
    fn yaml(&self, text: &str) -> Result<Value, Problem>;

    /// Notes a problem unless something holds that must.
    fn require(&mut self, holds: bool, key: &str, problem: impl Into<String>) {
        if !holds {
            self.refuse(key, problem.into());
        }
    }
}

/// What the rest of the configuration says that dialects go by.
#[derive(Debug)]
pub struct Around<'a> {
    /// Whether the listener speaks TLS.
    pub https: bool,
    /// Whether it asks callers for certificates.
    pub asks_for_certificates: bool,
    /// Where the proxy connects from that names callers.
    pub proxies: &'a [IpNet],
    /// The largest body.
    pub body_bytes: usize,
    /// The tenant of `callbacks`.
    pub callbacks_tenant: String,
    /// Where the portal is that links lead to, if that was said.
    pub portal_url: Option<String>,
    /// The profile that callbacks have, when there are any.
    pub callbacks_profile: Option<&'static str>,
    /// All policies by name.
    pub profiles: &'a mut BTreeMap<ProfileName, Policy>,
}
