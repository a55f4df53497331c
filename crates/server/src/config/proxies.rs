//! `egress.proxies`: the proxies that profiles may choose, and whom they are open to.

use std::collections::{BTreeMap, BTreeSet};

use posthorn_domain::policy::Auth;
use posthorn_domain::{Policy, ProfileName, ProxyName};
use posthorn_egress::{Proxy, ProxyMode};
use serde::Deserialize;

use super::Check;
use super::values::SecretRef;

const SECTION: &str = "egress.proxies";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawProxy {
    url: String,
    #[serde(default)]
    user: Option<String>,
    #[serde(default)]
    password: Option<String>,
    #[serde(default)]
    mode: Option<String>,
    #[serde(default)]
    tenants: Option<Vec<String>>,
}

/// What egress and the catalog need to know: where proxies are, and whom they are open to.
#[derive(Debug, Default)]
pub(super) struct Proxies {
    pub(super) all: BTreeMap<ProxyName, Proxy>,
    pub(super) tenants: BTreeMap<ProxyName, Option<BTreeSet<String>>>,
}

/// Reads them all. What is wrong with one is reported with its key.
pub(super) fn build(check: &mut Check<'_>, raw: BTreeMap<String, RawProxy>) -> Proxies {
    let mut proxies = Proxies::default();
    for (name, raw) in raw {
        let key = format!("{SECTION}.{name}");
        let Some(name) = check.accept(&key, ProxyName::new(&name)) else { continue };
        if let Some(proxy) = proxy(check, &key, &raw) {
            proxies.tenants.insert(name.clone(), raw.tenants.map(BTreeSet::from_iter));
            proxies.all.insert(name, proxy);
        }
    }
    proxies
}

fn proxy(check: &mut Check<'_>, key: &str, raw: &RawProxy) -> Option<Proxy> {
    let mode = match raw.mode.as_deref() {
        None | Some("connect") => Ok(ProxyMode::Connect),
        Some("forward") => Ok(ProxyMode::Forward),
        Some(other) => Err(format!("`{other}` is neither connect nor forward")),
    };
    let mode = check.accept(&format!("{key}.mode"), mode)?;
    let credentials = match (&raw.user, &raw.password) {
        (None, None) => None,
        (Some(user), Some(reference)) => {
            let key = format!("{key}.password");
            let place = SecretRef::parse(reference)
                .ok_or("must be env:NAME or file:PATH, so that it is not shown");
            let place = check.accept(&key, place)?;
            Some((user.as_str(), check.resolve(&key, &place)?))
        }
        (Some(_), None) => {
            check.refuse(&format!("{key}.password"), "must be given with the user");
            return None;
        }
        (None, Some(_)) => {
            check.refuse(&format!("{key}.user"), "must be given with the password");
            return None;
        }
    };
    let credentials = credentials.as_ref().map(|(user, password)| (*user, password.as_str()));
    let read = Proxy::new(&raw.url, credentials, mode);
    let part = match &read {
        Err(posthorn_egress::ProxyError::User) => "user",
        _ => "url",
    };
    check.accept(&format!("{key}.{part}"), read)
}

/// Whether the proxy of a dialect's profile is open to the dialect's own tenant.
pub(super) fn check_tenant(
    check: &mut Check<'_>,
    open_to: &BTreeMap<ProxyName, Option<BTreeSet<String>>>,
    policy: Option<&Policy>,
    tenant: &str,
) {
    let Some(name) = policy.and_then(|policy| policy.proxy.as_ref()) else { return };
    if let Some(Some(tenants)) = open_to.get(name)
        && !tenants.contains(tenant)
    {
        let problem = format!("must name `{tenant}`, whose profile leads through this proxy");
        check.refuse(&format!("{SECTION}.{name}.tenants"), problem);
    }
}

/// Whether profiles choose proxies that there are, and that can do what the profile asks for.
pub(super) fn check_profiles(
    check: &mut Check<'_>,
    proxies: &BTreeMap<ProxyName, Proxy>,
    profiles: &BTreeMap<ProfileName, Policy>,
) {
    for (profile, policy) in profiles {
        let Some(name) = &policy.proxy else { continue };
        let key = format!("profiles.{profile}.policy.proxy");
        let Some(proxy) = proxies.get(name) else {
            check.refuse(&key, format!("there is no proxy `{name}` in {SECTION}"));
            continue;
        };
        let shows = policy.auth.iter().any(|auth| matches!(auth, Auth::ClientCertificate(_)));
        if proxy.mode() == ProxyMode::Forward && (shows || !policy.tls.authorities.is_empty()) {
            let problem = format!(
                "the proxy `{name}` (mode forward) makes the TLS itself, so that neither a client \
                 certificate nor tls.authorities can be used with it; use mode connect"
            );
            check.refuse(&key, problem);
        }
    }
}
