//! One authenticated request on its way to a handler.

use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use axum::extract::{FromRequestParts as _, Path};
use axum::response::Response;
use bytes::Bytes;
use http::request::Parts;
use http::{Request, header};
use posthorn_access::{Caller, Callers, Denied, TENANT_HEADER, bearer};
use posthorn_domain::{
    Home, KeyId, RealmName, Scope, SubscriptionId, SubscriptionName, Tenant, TenantId,
};
use posthorn_engine::{Acting, Engine, Error as EngineError, Principal};
use posthorn_listener::{Loan, Owner, Peer, body};
use serde::de::DeserializeOwned;

use crate::handlers::stream::Streams;
use crate::limits::{Limits, rate_limited};
use crate::problem::{Problem, Result};
use crate::query::Query;
use crate::router::Overloaded;
use crate::routes::{Access, Route};
use crate::{Options, codes, json};

/// What all requests share.
pub(crate) struct Api {
    pub(crate) engine: Engine,
    pub(crate) callers: Callers,
    pub(crate) options: Options,
    pub(crate) limits: Limits,
    pub(crate) overloaded: Overloaded,
    pub(crate) streams: Streams,
}

/// Somebody for whom another surface of the same process vouches, in place of a key. It is an extension of a request, so
/// that nobody can send it.
#[derive(Clone)]
pub struct Vouched {
    /// As whom they ask.
    pub principal: Principal,
    /// In whose name they change things.
    pub by: Acting,
}

/// One request that may be served.
pub(crate) struct Call {
    pub(crate) api: Arc<Api>,
    /// Acts for the caller.
    engine: Engine,
    caller: Option<Caller>,
    pub(crate) query: Query,
    pub(crate) parts: Parts,
    /// Bodies cannot be shared between threads; in this shell a call can.
    body: Mutex<Body>,
    /// The memory of the body, until the call has been answered.
    loan: Option<Loan>,
}

impl Call {
    /// Lets a request in, or not: key, scope, tenant, limits, then query parameters. Nothing of the
    /// body is read before.
    pub(crate) fn admit(
        api: &Arc<Api>,
        route: &'static Route,
        request: Request<Body>,
    ) -> Result<Self> {
        let (parts, body) = request.into_parts();
        let scope = match route.access {
            Access::Open | Access::Key => None,
            Access::Scope(scope) | Access::Realm(scope) => Some(scope),
        };
        let (caller, query) = match route.access {
            Access::Open => (None, Query::default()),
            Access::Key | Access::Scope(_) | Access::Realm(_) => {
                let caller = match route.access {
                    Access::Realm(scope) => authorize_for_realm(api, scope, &parts)?,
                    _ => authorize(api, scope, &parts)?,
                };
                let query = match parts.uri.query() {
                    None => Query::default(),
                    query => Query::parse(query, route.query)?,
                };
                (Some(caller), query)
            }
        };
        let address = parts.extensions.get::<Peer>().map(Peer::address);
        let by = match (parts.extensions.get::<Vouched>(), &caller) {
            (Some(vouched), _) => vouched.by.clone(),
            (None, Some(caller)) => Acting::principal(&caller.principal, "api", address),
            (None, None) => Acting::SERVER,
        };
        let engine = api.engine.acting(by);
        let body = Mutex::new(body);
        Ok(Self { api: Arc::clone(api), engine, caller, query, parts, body, loan: None })
    }

    /// The engine, whose changes are made in the caller's name.
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// As whom the caller reads what others have done.
    pub(crate) fn reader(&self) -> Home {
        let key = self.caller.as_ref().map(|caller| &caller.principal.key);
        match key.map(|key| (key.tenant, key.realm.clone())) {
            Some((Some(tenant), _)) => Home::Tenant(tenant),
            Some((None, Some(realm))) => Home::Realm(realm),
            // Routes without a key have nothing of this to show.
            Some((None, None)) | None => Home::Operator,
        }
    }

    /// The tenant that the header of the request names, if it does.
    pub(crate) fn header_tenant(&self) -> Result<Option<TenantId>> {
        if !self.parts.headers.contains_key(TENANT_HEADER) {
            return Ok(None);
        }
        self.named_tenant().map(Some)
    }

    /// The tenant the caller acts for. Routes without a key have none and must not ask.
    pub(crate) fn tenant(&self) -> TenantId {
        self.caller.as_ref().expect("a route that needs a key has a caller").tenant
    }

    /// The tenant that an operator names, where a route is for operators and yet of one tenant.
    pub(crate) fn named_tenant(&self) -> Result<TenantId> {
        let caller = self.caller.as_ref().ok_or_else(Problem::unauthorized)?;
        let headers = &self.parts.headers;
        Ok(self.api.callers.tenant(&caller.principal, headers, TenantId::DEFAULT)?)
    }

    /// The realm that a request is about: that of the caller, or one that an operator names. Whoever names another
    /// than its own names none there is.
    pub(crate) fn realm(&self) -> Result<RealmName> {
        let caller = self.caller.as_ref().ok_or_else(Problem::unauthorized)?;
        let catalog = self.engine().catalog();
        let own = match (caller.principal.realm(), caller.principal.key.tenant) {
            (Some(realm), _) => Some(realm.clone()),
            (None, Some(tenant)) => Some(catalog.realm_of(tenant)?),
            (None, None) => None,
        };
        let named: Option<RealmName> = self.query.value("realm")?;
        let realm = match (own, named) {
            (Some(own), Some(named)) if own != named => return Err(Problem::not_found("realm")),
            (Some(own), _) => own,
            (None, named) => named.unwrap_or_default(),
        };
        Ok(catalog.realm(&realm)?.name.clone())
    }

    /// The same, for changes: what all tenants of a realm share is not for one of them to change.
    pub(crate) fn realm_to_change(&self) -> Result<RealmName> {
        match self.is_bound_to_tenant() {
            false => self.realm(),
            true => {
                let detail = "event types are shared by all tenants of a realm; changing them needs \
                              a key of the realm, or of an operator";
                Err(Problem::new(codes::FORBIDDEN, detail))
            }
        }
    }

    /// Whether the key is of one tenant.
    pub(crate) fn is_bound_to_tenant(&self) -> bool {
        self.caller.as_ref().is_some_and(|caller| caller.principal.key.tenant.is_some())
    }

    /// On a route that is also for keys of realms: from here on the call is of one tenant, as on other routes.
    pub(crate) fn settle_tenant(&mut self) -> Result<()> {
        let tenant = self.named_tenant()?;
        if let Some(caller) = &mut self.caller {
            caller.tenant = tenant;
        }
        Ok(())
    }

    /// Whether the caller may act for a tenant.
    pub(crate) fn acts_for(&self, tenant: &Tenant) -> bool {
        self.caller.as_ref().is_some_and(|caller| caller.principal.acts_for(tenant))
    }

    /// Counts more against the rate of the key than the one request that was let in.
    pub(crate) fn charge(&self, more: usize) {
        if let Some(caller) = &self.caller {
            caller.principal.key.charge(self.engine().admission(), more as u64);
        }
    }

    /// Who calls, for what is written down about it.
    pub(crate) fn who(&self) -> String {
        let caller = self.caller.as_ref();
        caller.map(|caller| caller.principal.key.id.to_string()).unwrap_or_default()
    }

    /// The key that was shown, or what stands for the certificate. Somebody in a session that was opened without a key
    /// has shown none.
    pub(crate) fn key(&self) -> Option<KeyId> {
        let key = self.caller.as_ref().map(|caller| caller.principal.key.id)?;
        let vouched = self.parts.extensions.get::<Vouched>().is_some();
        (!vouched || self.engine().catalog().key(key).is_some()).then_some(key)
    }

    pub(crate) fn is_operator(&self) -> bool {
        self.caller.as_ref().is_some_and(|caller| caller.principal.is_operator())
    }

    /// Whether the caller may still see what it has asked for, long after it was let in.
    pub(crate) fn is_still_allowed(&self) -> bool {
        let found = principal(&self.api, &self.parts);
        // A tenant that is being deleted is nobody's.
        let Ok(tenant) = self.engine().catalog().tenant(self.tenant()) else { return false };
        let Some(found) = found else { return false };
        found.acts_for(&tenant) && found.key.allows(Scope::Read)
    }

    /// The id or name at the end of the path. A malformed one is answered like an unknown one.
    pub(crate) async fn named<T: FromStr>(&mut self, what: &'static str) -> Result<T> {
        match Path::<String>::from_request_parts(&mut self.parts, &()).await {
            Ok(Path(text)) => text.parse().map_err(|_| Problem::not_found(what)),
            Err(_) => Err(Problem::not_found(what)),
        }
    }

    /// What a path names, and what it names within that, as it stands: it means nothing before the first is found.
    pub(crate) async fn named_within<T: FromStr>(
        &mut self,
        what: &'static str,
    ) -> Result<(T, String)> {
        match Path::<(String, String)>::from_request_parts(&mut self.parts, &()).await {
            Ok(Path((outer, inner))) => {
                Ok((outer.parse().map_err(|_| Problem::not_found(what))?, inner))
            }
            Err(_) => Err(Problem::not_found(what)),
        }
    }

    /// The subscription at the end of the path, by id or name.
    pub(crate) async fn subscription(&mut self) -> Result<SubscriptionId> {
        let text: String = self.named("subscription").await?;
        self.find_subscription(&text).ok_or_else(|| Problem::not_found("subscription"))
    }

    /// The subscription a text means: an id, whether there is such a one or not, or a name.
    pub(crate) fn find_subscription(&self, text: &str) -> Option<SubscriptionId> {
        if let Ok(id) = text.parse() {
            return Some(id);
        }
        let name = SubscriptionName::new(text).ok()?;
        let view = self.engine().catalog().subscription_named(self.tenant(), &name)?;
        Some(view.subscription.id)
    }

    pub(crate) fn body(&mut self) -> &mut Body {
        self.body.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the caller says who it is, as a route asks that everybody may use.
    pub(crate) fn has_credentials(&self) -> bool {
        let headers = &self.parts.headers;
        let peer = self.parts.extensions.get::<Peer>();
        headers.contains_key(header::AUTHORIZATION)
            || self
                .api
                .callers
                .certificate(self.api.options.identity.as_ref(), peer, headers)
                .is_some()
    }

    /// Lets the caller of such a route in after all, or not.
    pub(crate) fn authorize(&self, scope: Scope) -> Result<Caller> {
        authorize(&self.api, Some(scope), &self.parts)
    }

    /// The body's bytes; it must be JSON by its type.
    pub(crate) async fn bytes(&mut self, limit: usize) -> Result<Bytes> {
        body::check_json(&self.parts.headers)?;
        self.any_bytes(limit).await
    }

    /// The body's bytes, whatever they are.
    pub(crate) async fn any_bytes(&mut self, limit: usize) -> Result<Bytes> {
        body::check_coding(&self.parts.headers)?;
        let body = std::mem::take(self.body());
        let peer = self.parts.extensions.get::<Peer>();
        let lender = peer.and_then(|peer| {
            let owner = match &self.caller {
                Some(caller) => Owner::Tenant(caller.tenant),
                None => Owner::at(peer.address()),
            };
            Some((peer.bodies()?, owner))
        });
        let whole = body::read(&self.parts.headers, body, limit, lender).await?;
        self.loan = whole.loan;
        Ok(whole.bytes)
    }

    /// The body of a management request.
    pub(crate) async fn json<T: DeserializeOwned>(&mut self) -> Result<T> {
        let limit = self.api.options.body_bytes;
        let bytes = self.bytes(limit).await?;
        json::parse_strict(json::utf8(&bytes)?)
    }

    /// The same where all fields are optional and no body at all is fine too.
    pub(crate) async fn json_or_default<T: DeserializeOwned + Default>(&mut self) -> Result<T> {
        let bare = self.parts.headers.get(header::CONTENT_TYPE).is_none();
        if bare && http_body::Body::is_end_stream(self.body()) {
            return Ok(T::default());
        }
        self.json().await
    }
}

/// Whoever says who they are, or is vouched for.
fn principal(api: &Api, parts: &Parts) -> Option<Principal> {
    if let Some(vouched) = parts.extensions.get::<Vouched>() {
        return Some(vouched.principal.clone());
    }
    let (callers, headers) = (&api.callers, &parts.headers);
    // A key that does not work is not mended by a certificate.
    if headers.contains_key(header::AUTHORIZATION) {
        bearer(headers).and_then(|text| callers.key(text))
    } else {
        callers.certificate(api.options.identity.as_ref(), parts.extensions.get(), headers)
    }
}

/// Who sends this, and may they look at what a realm owns, or change it?
fn authorize_for_realm(api: &Api, scope: Scope, parts: &Parts) -> Result<Caller> {
    Ok(api.callers.admit_to_realm(principal(api, parts), scope, parts.extensions.get())?)
}

/// Who sends this, and may they?
fn authorize(api: &Api, scope: Option<Scope>, parts: &Parts) -> Result<Caller> {
    let found = principal(api, parts);
    let (peer, headers) = (parts.extensions.get(), &parts.headers);
    let caller = api.callers.admit(found, scope, peer, headers, TenantId::DEFAULT)?;
    if scope == Some(Scope::Publish) {
        api.engine.admission().publish(caller.tenant)?;
    }
    Ok(caller)
}

impl From<Denied> for Problem {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::Unknown => Self::unauthorized(),
            Denied::TooManyFailures(wait) => {
                let detail = "too many requests without a valid key came from this address";
                Self::new(codes::TOO_MANY_FAILURES, detail).retry_after(wait)
            }
            Denied::Scope(scope) => {
                let name = scope_name(scope);
                Self::new(codes::FORBIDDEN, format!("the key needs the scope `{name}`"))
            }
            Denied::RateLimited(wait) => rate_limited("the key exceeded its rate limit", wait),
            Denied::NoTenant => Self::new(codes::FORBIDDEN, "the key belongs to no tenant"),
            Denied::TenantNeeded => {
                let detail = "the key belongs to a realm; name one of its tenants in the header \
                              Posthorn-Tenant";
                Self::field("Posthorn-Tenant", detail)
            }
            Denied::TenantDeleted => EngineError::TenantDeleted.into(),
            Denied::UnknownTenant => Self::not_found("tenant").at("Posthorn-Tenant"),
        }
    }
}

/// What a scope is called on the wire.
pub(crate) const fn scope_name(scope: Scope) -> &'static str {
    match scope {
        Scope::Publish => "publish",
        Scope::Manage => "manage",
        Scope::Read => "read",
        Scope::Operator => "operator",
    }
}

/// What a handler makes of a call.
pub(crate) type Answer = Result<Response>;
