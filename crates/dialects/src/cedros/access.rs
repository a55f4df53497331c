//! Who asks, and for which tenant.

use http::request::Parts;
use http::{HeaderMap, HeaderName, header};
use posthorn_access::{Caller, Denied, bearer};
use posthorn_domain::Scope;
use posthorn_engine::Acting;
use posthorn_listener::{Peer, only};

use super::Service;
use super::failure::Failure;

/// The header in which admin pages send a key.
const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// Who sends this, if they may, and the service as it acts for them.
pub(super) fn admit(
    service: &Service,
    scope: Scope,
    parts: &Parts,
) -> Result<(Service, Caller), Failure> {
    let (peer, headers) = (parts.extensions.get::<Peer>(), &parts.headers);
    let found = key_of(headers).and_then(|text| service.callers.key(text));
    let caller = service.callers.admit(found, Some(scope), peer, headers, service.tenant)?;
    let by = Acting::principal(&caller.principal, "cedros", peer.map(Peer::address));
    Ok((Service { engine: service.engine.acting(by), ..service.clone() }, caller))
}

/// The text of the key, when there is exactly one.
fn key_of(headers: &HeaderMap) -> Option<&str> {
    let api_key = || only(headers, &API_KEY).map(str::trim);
    match (headers.contains_key(header::AUTHORIZATION), headers.contains_key(API_KEY)) {
        (true, false) => bearer(headers),
        (false, true) => api_key(),
        // The same key twice is one key; two keys are none.
        (true, true) => bearer(headers).filter(|text| api_key() == Some(text)),
        (false, false) => None,
    }
}

impl From<Denied> for Failure {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::Unknown => Self::Unauthorized,
            Denied::TooManyFailures(wait) | Denied::RateLimited(wait) => Self::RateLimited(wait),
            Denied::Scope(Scope::Read) => Self::Forbidden("the key needs the scope `read`"),
            Denied::Scope(_) => Self::Forbidden("the key needs the scope `manage`"),
            Denied::NoTenant => Self::Forbidden("the key belongs to no tenant"),
            Denied::TenantNeeded => {
                Self::Forbidden("the key belongs to a realm; name the tenant in Posthorn-Tenant")
            }
            Denied::UnknownTenant | Denied::TenantDeleted => Self::NotFound,
        }
    }
}
