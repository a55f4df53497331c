//! Who calls, and for which tenant. The native API and every dialect ask here.
//!
//! # Theory of operation
//! A caller shows a key or a client certificate. A certificate comes from the handshake, or from the
//! headers of a proxy that the configuration names. Requests that show nothing valid are counted for each
//! address over all surfaces of the process, so that nobody can guess in several places at once. How a
//! refusal looks on the wire is the surface's affair: [`Denied`] says only why.
//!
//! # What it must not know
//! Routes, status codes, bodies.
//!
//! # Where to start
//! [`Callers::admit`].

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, header};
use posthorn_domain::{Scope, Tenant, TenantId};
use posthorn_engine::{Engine, Principal};
use posthorn_listener::{Failures, Peer, ProxyIdentity, only, shown};

/// The header with which an operator names a tenant.
pub const TENANT_HEADER: HeaderName = HeaderName::from_static("posthorn-tenant");

/// Why a request is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// It shows no valid key and no known certificate.
    Unknown,
    /// The same, and too many like it came from this address: so long to be quiet.
    TooManyFailures(Duration),
    /// The caller is known and has not this scope.
    Scope(Scope),
    /// The caller makes more requests than it may: so long to wait.
    RateLimited(Duration),
    /// The key belongs to no tenant, and is no operator's.
    NoTenant,
    /// The tenant that is named is not there, or not the caller's.
    UnknownTenant,
    /// The key is a realm's, and names none of its tenants.
    TenantNeeded,
    /// The tenant is being deleted, or was.
    TenantDeleted,
}

/// Somebody who may do what they ask for.
pub struct Caller {
    /// Whose key or certificate it is.
    pub principal: Principal,
    /// The tenant they act for.
    pub tenant: TenantId,
}

/// Knows callers. All surfaces of a process share one.
#[derive(Clone)]
pub struct Callers {
    engine: Engine,
    failures: Arc<Failures>,
}

impl Callers {
    /// With the failures counted so far.
    pub fn new(engine: Engine, failures: Arc<Failures>) -> Self {
        Self { engine, failures }
    }

    /// Who shows this key.
    pub fn key(&self, text: &str) -> Option<Principal> {
        self.engine.authenticate(text)
    }

    /// Who shows a certificate, in the handshake or to this proxy.
    pub fn certificate(
        &self,
        proxy: Option<&ProxyIdentity>,
        peer: Option<&Peer>,
        headers: &HeaderMap,
    ) -> Option<Principal> {
        let shown = shown(proxy, peer, headers)?;
        self.engine.authenticate_certificate(shown.thumbprint, shown.country.as_deref())
    }

    /// Lets in whoever was found, if they may: scope, tenant, rate, in this order. An operator that names
    /// no tenant acts for `usual`.
    pub fn admit(
        &self,
        found: Option<Principal>,
        scope: Option<Scope>,
        peer: Option<&Peer>,
        headers: &HeaderMap,
        usual: TenantId,
    ) -> Result<Caller, Denied> {
        let principal = found.ok_or_else(|| self.unknown(peer))?;
        check_scope(&principal, scope)?;
        let tenant = match scope {
            Some(Scope::Operator) => usual,
            _ => self.tenant(&principal, headers, usual)?,
        };
        self.count(&principal)?;
        Ok(Caller { principal, tenant })
    }

    /// Lets in whoever was found to look at what a realm owns, or to change it: scope, then rate. Which realm is
    /// the caller's affair.
    pub fn admit_to_realm(
        &self,
        found: Option<Principal>,
        scope: Scope,
        peer: Option<&Peer>,
    ) -> Result<Caller, Denied> {
        let principal = found.ok_or_else(|| self.unknown(peer))?;
        check_scope(&principal, Some(scope))?;
        self.count(&principal)?;
        let tenant = principal.key.tenant.unwrap_or(TenantId::DEFAULT);
        Ok(Caller { principal, tenant })
    }

    /// Lets a certificate act for the tenant it was registered for.
    pub fn permit(&self, principal: &Principal, scope: Scope) -> Result<(), Denied> {
        check_scope(principal, Some(scope))?;
        self.count(principal)
    }

    /// Counts somebody nobody knows.
    pub fn unknown(&self, peer: Option<&Peer>) -> Denied {
        self.failures.count(peer).map_or_else(Denied::TooManyFailures, |()| Denied::Unknown)
    }

    /// The tenant a caller acts for. Naming another tenant than one's own is like naming none there is.
    pub fn tenant(
        &self,
        principal: &Principal,
        headers: &HeaderMap,
        usual: TenantId,
    ) -> Result<TenantId, Denied> {
        let own = principal.key.tenant;
        if !headers.contains_key(TENANT_HEADER) {
            return match own {
                Some(own) => Ok(own),
                None if principal.is_everywhere() => Ok(usual),
                None if principal.realm().is_some() => Err(Denied::TenantNeeded),
                None => Err(Denied::NoTenant),
            };
        }
        // Two names are none: who could say which one a proxy in front went by?
        let named = only(headers, &TENANT_HEADER).and_then(|text| find_tenant(&self.engine, text));
        let named = named.ok_or(Denied::UnknownTenant)?;
        match (principal.acts_for(&named), named.deletion) {
            (false, _) => Err(Denied::UnknownTenant),
            (true, Some(_)) => Err(Denied::TenantDeleted),
            (true, None) => Ok(named.id),
        }
    }

    fn count(&self, principal: &Principal) -> Result<(), Denied> {
        principal.key.take(self.engine.admission()).map_err(Denied::RateLimited)
    }
}

fn check_scope(principal: &Principal, scope: Option<Scope>) -> Result<(), Denied> {
    let Some(scope) = scope else { return Ok(()) };
    let allowed = match scope {
        // A key bound to a tenant is never an operator, whatever its scopes say.
        Scope::Operator => principal.is_operator(),
        scope => principal.key.allows(scope),
    };
    if allowed { Ok(()) } else { Err(Denied::Scope(scope)) }
}

/// The key of `Authorization: Bearer`, when there is exactly one.
pub fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, text) = only(headers, &header::AUTHORIZATION)?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| text.trim())
}

/// A tenant by id or name, also one that is being deleted; by its id even one that was.
pub fn find_tenant(engine: &Engine, text: &str) -> Option<Tenant> {
    match text.parse::<TenantId>() {
        Ok(id) => engine.catalog().tenant_or_tombstone(id).map(|(tenant, _)| tenant),
        Err(_) => engine.catalog().tenant_named(text),
    }
}
