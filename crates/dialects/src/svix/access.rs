//! Who asks, and what their token opens: an organisation, or one application of it.
//!
//! A token is a key of ours, one that the former server signed, or that of somebody in the portal. Which of these it is makes no
//! difference afterwards.

use std::sync::Arc;

use http::request::Parts;
use posthorn_access::bearer;
use posthorn_domain::{
    Capability, Home, KeyId, KnownType, RealmName, Scope, SessionKind, Tenant, TenantId,
};
use posthorn_engine::{Acting, Principal, TenantFilter};
use posthorn_listener::Peer;
use posthorn_sealing::{hash, jwt};
use serde::Deserialize;

use super::failure::Failure;
use super::{Service, id};

/// The name of this surface in the audit log.
const SURFACE: &str = "svix";
/// The label of a tenant or subscription with the id it had on the server it was taken over from.
pub(super) const FORMER_ID: &str = "svix.id";

/// What a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needs {
    /// A token of the organisation, with this right.
    Organisation(Scope),
    /// A token of the organisation or of the application, with this right.
    Application(Capability),
}

/// Somebody whose token opens something.
pub(super) struct Caller {
    pub(super) realm: RealmName,
    /// The only application that it opens; all of the realm when absent.
    pub(super) only: Option<TenantId>,
    /// The key that it is, or stands on.
    pub(super) key: Option<KeyId>,
    /// A name for what is kept for this token alone.
    pub(super) token: [u8; 32],
    /// The flags of an application's token: which event types it may see, of those that not every application may.
    flags: Vec<String>,
}

/// What the former server says in a token.
#[derive(Deserialize)]
struct Claims {
    sub: String,
    /// Only in the token of an application: whose application it is.
    #[serde(default)]
    org: Option<String>,
    #[serde(default)]
    feature_flags: Option<Vec<String>>,
}

/// Lets a request in, or not. Returns the service as it acts for whoever asks.
pub(super) async fn admit(
    service: &Service,
    needs: Needs,
    parts: &Parts,
) -> Result<(Service, Caller), Failure> {
    let peer = parts.extensions.get::<Peer>();
    let text = bearer(&parts.headers).unwrap_or_default();
    let token = hash::fingerprint(&[b"svix token", text.as_bytes()]);
    let address = peer.map(Peer::address);
    let (caller, by) = if let Some(principal) = service.callers.key(text) {
        let by = Acting::principal(&principal, SURFACE, address);
        (of_key(service, needs, principal, peer, token)?, by)
    } else if let Some(claims) = claims(service, text) {
        let caller = of_claims(service, needs, &claims, token)?;
        let home = match caller.only {
            Some(tenant) => Home::Tenant(tenant),
            None => Home::Realm(caller.realm.clone()),
        };
        let by =
            Acting::session(&claims.sub, "a token of the former server", home, SURFACE, address);
        (caller, by)
    } else if let Some(session) = service.engine.authenticate_session(text).await? {
        let tenant = session.tenant().filter(|_| session.kind == SessionKind::Portal);
        let tenant = tenant.ok_or(Failure::Unauthorized)?;
        match needs {
            Needs::Application(capability) if session.can(capability) => {}
            Needs::Application(_) | Needs::Organisation(_) => return Err(Failure::Forbidden),
        }
        count(service, &session.id.to_string())?;
        let realm = service.engine.catalog().realm_of(tenant)?;
        let (id, home) = (session.id.to_string(), session.home.clone());
        let by = Acting::session(&id, &session.name, home, SURFACE, address);
        let (key, flags) = (session.opener.key(), session.feature_flags.clone());
        (Caller { realm, only: Some(tenant), key, token, flags }, by)
    } else {
        return Err(service.callers.unknown(peer).into());
    };
    let engine = service.engine.acting(by);
    Ok((Service { engine, ..service.clone() }, caller))
}

/// The right of a key that goes with what may be done in the portal.
const fn scope_of(needs: Needs) -> Scope {
    match needs {
        Needs::Organisation(scope) => scope,
        Needs::Application(Capability::View) => Scope::Read,
        Needs::Application(_) => Scope::Manage,
    }
}

fn of_key(
    service: &Service,
    needs: Needs,
    principal: Principal,
    peer: Option<&Peer>,
    token: [u8; 32],
) -> Result<Caller, Failure> {
    let key = principal.key.id;
    let (realm, only) = match (principal.key.tenant, principal.realm()) {
        (Some(tenant), _) => (service.engine.catalog().realm_of(tenant)?, Some(tenant)),
        (None, Some(realm)) => (realm.clone(), None),
        (None, None) if principal.is_operator() => (service.options.realm.clone(), None),
        (None, None) => return Err(Failure::Forbidden),
    };
    if only.is_some() && matches!(needs, Needs::Organisation(_)) {
        return Err(Failure::Forbidden);
    }
    service.callers.admit_to_realm(Some(principal), scope_of(needs), peer)?;
    Ok(Caller { realm, only, key: Some(key), token, flags: Vec::new() })
}

fn claims(service: &Service, text: &str) -> Option<Claims> {
    let secret = service.options.jwt_secret.as_ref()?;
    // An empty secret would let in everybody who thinks of signing with nothing.
    let secret = Some(secret.expose()).filter(|secret| !secret.is_empty())?;
    jwt::verify_as(text, secret, service.engine.now().as_seconds(), 0).ok()
}

fn of_claims(
    service: &Service,
    needs: Needs,
    claims: &Claims,
    token: [u8; 32],
) -> Result<Caller, Failure> {
    let options = &service.options;
    // A server has one secret for all its organisations. Once they are named, those that are not have no business here.
    let realm = |organisation: &str| match options.organisations.get(organisation) {
        Some(realm) => Ok(realm.clone()),
        None if options.organisations.is_empty() => Ok(options.realm.clone()),
        None => Err(Failure::Unauthorized),
    };
    count(service, &claims.sub)?;
    match &claims.org {
        None if claims.sub.starts_with(id::ORGANISATION) => {
            let flags = Vec::new();
            Ok(Caller { realm: realm(&claims.sub)?, only: None, key: None, token, flags })
        }
        None => Err(Failure::bad_request("bad token", "The token names no organisation.")),
        Some(organisation) => {
            if matches!(needs, Needs::Organisation(_)) {
                return Err(Failure::Forbidden);
            }
            let flags = claims.feature_flags.clone().unwrap_or_default();
            let realm = realm(organisation)?;
            let caller = Caller { realm, only: None, key: None, token, flags };
            let tenant = caller.application(service, &claims.sub).ok();
            let tenant = tenant.ok_or(Failure::Unauthorized)?;
            Ok(Caller { only: Some(tenant.id), ..caller })
        }
    }
}

/// Counts a request of somebody who has no key.
fn count(service: &Service, who: &str) -> Result<(), Failure> {
    let now = service.engine.admission().nanos();
    let taken = service.rates.take(Arc::from(who), now);
    taken.map_err(|wait| posthorn_access::Denied::RateLimited(wait).into())
}

impl Caller {
    /// Whether an event type is there for this caller.
    pub(super) fn sees(&self, known: &KnownType) -> bool {
        self.only.is_none()
            || known.feature_flags.is_empty()
            || self.flags.iter().any(|own| known.feature_flags.contains(own))
    }

    /// The application that a path names, by id or by the name its maker gave it. What is not the caller's is not there.
    pub(super) fn application(&self, service: &Service, text: &str) -> Result<Tenant, Failure> {
        let catalog = service.engine.catalog();
        let found = match id::read_application(text) {
            Some(id) => catalog.tenant(id).ok(),
            None => None,
        };
        let found = found.or_else(|| {
            let external_id = text.parse().ok()?;
            let filter = TenantFilter {
                realm: Some(self.realm.clone()),
                external_id: Some(external_id),
                name_prefix: None,
            };
            catalog.tenants_page(&filter, None, 1).0.into_iter().next()
        });
        let found = found.or_else(|| {
            // What was taken over from another server is still called by its former id.
            let former = text.starts_with(id::APPLICATION).then_some(text)?;
            catalog.tenant_labelled(&self.realm, FORMER_ID, former)
        });
        let own = found.filter(|tenant| {
            let mine = self.only.is_none_or(|only| only == tenant.id);
            mine && tenant.realm == self.realm && is_application(tenant)
        });
        own.ok_or(Failure::NotFound)
    }
}

/// Whether a tenant is an application: those that every server has are not.
pub(super) fn is_application(tenant: &Tenant) -> bool {
    let its_own = [TenantId::DEFAULT, TenantId::SYSTEM];
    !its_own.contains(&tenant.id) && tenant.deletion.is_none()
}
