//! Who asks, and for which tenant.

use http::request::Parts;
use http::{HeaderMap, header};
use posthorn_domain::{KeyId, Scope, TenantId};
use posthorn_engine::{Engine, Principal};
use posthorn_listener::Peer;

use super::Service;
use super::failure::Failure;

/// The header in which admin pages send a key.
const API_KEY: &str = "x-api-key";
/// The header with which an operator names a tenant, as in the native API.
const TENANT: &str = "posthorn-tenant";

/// Somebody who may do what they ask for.
pub(super) struct Caller {
    pub(super) key: KeyId,
    pub(super) tenant: TenantId,
}

impl Caller {
    /// Who sends this, if they may. Whoever shows no valid key is counted with those who do so on
    /// the server's other surfaces.
    pub(super) fn of(service: &Service, scope: Scope, parts: &Parts) -> Result<Self, Failure> {
        let principal = key_of(&parts.headers).and_then(|text| service.engine.authenticate(text));
        let Some(principal) = principal else {
            let peer = parts.extensions.get::<Peer>();
            return Err(match service.failures.count(peer) {
                Ok(()) => Failure::Unauthorized,
                Err(wait) => Failure::RateLimited(wait),
            });
        };
        principal.key.take(service.engine.admission()).map_err(Failure::RateLimited)?;
        if !principal.key.allows(scope) {
            return Err(Failure::Forbidden(match scope {
                Scope::Read => "the key needs the scope `read`",
                _ => "the key needs the scope `subscriptions`",
            }));
        }
        let tenant = tenant_of(service, &principal, &parts.headers)?;
        Ok(Self { key: principal.key.id, tenant })
    }
}

/// The text of the key, when there is exactly one.
fn key_of(headers: &HeaderMap) -> Option<&str> {
    let one = |name: &str| {
        let mut values = headers.get_all(name).iter();
        let value = values.next()?.to_str().ok()?;
        values.next().is_none().then_some(value)
    };
    let bearer = || {
        let (scheme, text) = one(header::AUTHORIZATION.as_str())?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| text.trim())
    };
    match (headers.contains_key(header::AUTHORIZATION), headers.contains_key(API_KEY)) {
        (true, false) => bearer(),
        (false, true) => one(API_KEY).map(str::trim),
        // The same key twice is one key; two keys are none.
        (true, true) => bearer().filter(|text| one(API_KEY).map(str::trim) == Some(text)),
        (false, false) => None,
    }
}

/// The tenant a key acts for. Naming another tenant than one's own is like naming none there is.
fn tenant_of(
    service: &Service,
    principal: &Principal,
    headers: &HeaderMap,
) -> Result<TenantId, Failure> {
    let own = principal.key.tenant;
    let mut values = headers.get_all(TENANT).iter();
    let Some(wanted) = values.next() else {
        return match own {
            Some(own) => Ok(own),
            None if principal.is_operator() => Ok(service.tenant),
            None => Err(Failure::Forbidden("the key belongs to no tenant")),
        };
    };
    let wanted = wanted.to_str().ok().filter(|_| values.next().is_none());
    match wanted.and_then(|text| find_tenant(&service.engine, text)) {
        Some(tenant) if principal.is_operator() || own == Some(tenant) => Ok(tenant),
        _ => Err(Failure::NotFound),
    }
}

fn find_tenant(engine: &Engine, text: &str) -> Option<TenantId> {
    match text.parse::<TenantId>() {
        Ok(id) => engine.catalog().tenant(id).ok().map(|tenant| tenant.id),
        Err(_) => engine.catalog().tenant_named(text).map(|tenant| tenant.id),
    }
}
