//! `egress.proxies`: the proxies that profiles may choose, and whom they are open to.

use std::collections::{BTreeMap, BTreeSet};

use posthorn_domain::policy::Auth;
use posthorn_domain::{Policy, ProfileName, ProxyName};
use posthorn_egress::{Proxy, ProxyError, ProxyMode};
use serde::Deserialize;

use super::reading::Reading;

const SECTION: &str = "egress.proxies";

/// A proxy as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    url: String,
    #[serde(default)]
    user: Option<String>,
    #[serde(default)]
    password: Option<String>,
    #[serde(default)]
    mode: ProxyMode,
    #[serde(default)]
    tenants: Option<BTreeSet<String>>,
}

/// What egress and the catalog need to know: where proxies are, and whom they are open to.
#[derive(Debug, Default)]
pub(super) struct Proxies {
    pub(super) all: BTreeMap<ProxyName, Proxy>,
    pub(super) tenants: BTreeMap<ProxyName, Option<BTreeSet<String>>>,
}

/// Reads them all. What is wrong with one is reported with its key.
pub(super) fn build(read: &mut Reading<'_>) -> Proxies {
    let mut proxies = Proxies::default();
    for (name, written) in read.at::<BTreeMap<ProxyName, Written>>(SECTION) {
        let key = |part: &str| format!("{SECTION}.{name}.{part}");
        let (user, password) = (written.user.as_deref(), written.password.as_deref());
        let alone = user.is_some() && password.is_none();
        read.require(!alone, &key("password"), "must be given with the user");
        let nameless = user.is_none() && password.is_some();
        read.require(!nameless, &key("user"), "must be given with the password");
        let proxy = Proxy::new(&written.url, user.zip(password), written.mode);
        let part = if matches!(&proxy, Err(ProxyError::User)) { "user" } else { "url" };
        if let Some(proxy) = read.accept(&key(part), proxy) {
            proxies.tenants.insert(name.clone(), written.tenants);
            proxies.all.insert(name, proxy);
        }
    }
    proxies
}

/// Whether the proxy of a dialect's profile is open to the dialect's own tenant.
pub(super) fn check_tenant(
    read: &mut Reading<'_>,
    open_to: &BTreeMap<ProxyName, Option<BTreeSet<String>>>,
    policy: Option<&Policy>,
    tenant: &str,
) {
    let Some(name) = policy.and_then(|policy| policy.proxy.as_ref()) else { return };
    if let Some(Some(tenants)) = open_to.get(name) {
        let problem = format!("must name `{tenant}`, whose profile leads through this proxy");
        read.require(tenants.contains(tenant), &format!("{SECTION}.{name}.tenants"), problem);
    }
}

/// Whether profiles choose proxies that there are, and that can do what the profile asks for.
pub(super) fn check_profiles(
    read: &mut Reading<'_>,
    proxies: &BTreeMap<ProxyName, Proxy>,
    profiles: &BTreeMap<ProfileName, Policy>,
) {
    for (profile, policy) in profiles {
        let Some(name) = &policy.proxy else { continue };
        let key = format!("profiles.{profile}.policy.proxy");
        let Some(proxy) = proxies.get(name) else {
            read.refuse(&key, format!("there is no proxy `{name}` in {SECTION}"));
            continue;
        };
        let shows = policy.auth.iter().any(|auth| matches!(auth, Auth::ClientCertificate(_)));
        if proxy.mode() == ProxyMode::Forward && (shows || !policy.tls.authorities.is_empty()) {
            let problem = format!(
                "the proxy `{name}` (mode forward) makes the TLS itself, so that neither a client \
                 certificate nor tls.authorities can be used with it; use mode connect"
            );
            read.refuse(&key, problem);
        }
    }
}
