//! Certificates in a request: shown in the handshake, or named in a header for an outbound proxy.
//! They come from the registry as it is at this moment, so that a revocation counts at once.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::HeaderMap;
use posthorn_domain::policy::{Auth, Policy};
use posthorn_domain::{Thumbprint, Timestamp};

use super::{BuildError, SubscriptionLookup, authenticate};
use crate::catalog::certificates::{NoCertificate, Purpose};
use crate::catalog::{Catalog, SubscriptionView, TlsChoice};
use crate::endpoint::Endpoint;

/// Adds what the policy asks for. Without a usable certificate there is no request.
pub(super) fn add(
    catalog: &Catalog,
    policy: &Policy,
    view: &SubscriptionView,
    endpoint: &Endpoint,
    now: Timestamp,
    headers: &mut HeaderMap,
) -> Result<Option<Arc<TlsChoice>>, BuildError> {
    let tenant = view.subscription.tenant;
    let parts = endpoint.parts();
    let values = SubscriptionLookup::of(&view.subscription);
    let mut identity = None;
    for auth in &policy.auth {
        match auth {
            Auth::ClientCertificate(choice) => {
                if !parts.https {
                    let problem = "a client certificate can only be used with https";
                    return Err(BuildError::Request(problem.to_owned()));
                }
                let (host, purpose) = (parts.host, Purpose::Show);
                let found =
                    catalog.client_certificate(tenant, choice, &values, host, purpose, now)?;
                // A key that cannot be opened is found out here, not in the middle of a handshake.
                let id = found.certificate.id;
                found.identity().map_err(|problem| NoCertificate::Unusable { id, problem })?;
                identity = Some(found);
            }
            Auth::CertificateThumbprint(scheme) => {
                let found = catalog.client_certificate(
                    tenant,
                    &scheme.choice,
                    &values,
                    parts.host,
                    Purpose::Name,
                    now,
                )?;
                let Thumbprint(bytes) = found.certificate.thumbprint;
                let text = match scheme.encoding.as_str() {
                    "base64" => STANDARD.encode(bytes),
                    _ => found.certificate.thumbprint.to_string(),
                };
                authenticate::set_identity(headers, &scheme.header, &text)?;
            }
            _ => {}
        }
    }
    if identity.is_none() && policy.tls.authorities.is_empty() {
        return Ok(None);
    }
    Ok(Some(catalog.tls(tenant, identity, &policy.tls.authorities, now)?))
}
