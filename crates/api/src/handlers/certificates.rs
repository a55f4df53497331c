//! The registry of certificates.

use std::sync::Arc;

use http::StatusCode;
use posthorn_domain::{CertificateId, CertificateKind};
use posthorn_engine::{CertificateContents, CertificateView, NewCertificate};
use serde::Deserialize;

use super::check_description;
use super::scopes::{self, ScopeInput};
use crate::call::{Answer, Call};
use crate::cursor::{self, List};
use crate::problem::Problem;
use crate::wire::{CertificateBody, Page};
use crate::{codes, respond};

/// `GET /v1/certificates`.
pub(crate) async fn list(call: Call) -> Answer {
    let after = call.query.text("cursor").map(|text| cursor::decode_id(List::Certificates, text));
    let after = after.transpose()?.map(CertificateId::from_bytes);
    let limit = call.query.limit()?;
    let now = call.engine().now();
    let all = call.engine().catalog().certificates(call.tenant());
    let mut rest =
        all.iter().filter(|view| after.is_none_or(|after| view.certificate.id > after)).peekable();
    let shown: Vec<&Arc<CertificateView>> = rest.by_ref().take(limit).collect();
    let more = rest.peek().is_some();
    let next = shown
        .last()
        .filter(|_| more)
        .map(|view| cursor::encode(List::Certificates, view.certificate.id.as_bytes()));
    let items = shown.iter().map(|view| CertificateBody::new(&view.certificate, now)).collect();
    respond::ok(&Page::forward(items, next))
}

/// `GET /v1/certificates/{id}`.
pub(crate) async fn one(mut call: Call) -> Answer {
    let id = call.named("certificate").await?;
    let found = call.engine().catalog().certificate(call.tenant(), id);
    let view = found.ok_or_else(|| Problem::not_found("certificate"))?;
    respond::ok(&CertificateBody::new(&view.certificate, call.engine().now()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    kind: CertificateKind,
    #[serde(default)]
    description: String,
    #[serde(default)]
    owner: String,
    #[serde(default)]
    host: String,
    #[serde(default)]
    scopes: Vec<ScopeInput>,
    certificate: String,
    key: Option<String>,
}

/// `POST /v1/certificates`.
pub(crate) async fn create(mut call: Call) -> Answer {
    let Contents { kind, description, owner, host, scopes, certificate, key } = call.json().await?;
    // Whoever could register callers could give themselves scopes they do not have.
    if kind == CertificateKind::Caller && !call.is_operator() {
        let detail = "only an operator may register a caller";
        return Err(Problem::new(codes::FORBIDDEN, detail).at("kind"));
    }
    if kind == CertificateKind::Client && key.is_none() && !call.is_operator() {
        return Err(keyless());
    }
    check_description(&description)?;
    let scopes = scopes::distinct(scopes);
    let contents = CertificateContents { certificate, key };
    let new = NewCertificate { kind, description, owner, host, scopes, contents };
    let view = call.engine().create_certificate(call.tenant(), new).await?;
    let place = format!("/v1/certificates/{}", view.certificate.id);
    respond::created(place, &CertificateBody::new(&view.certificate, call.engine().now()))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rotation {
    certificate: String,
    key: Option<String>,
}

/// `POST /v1/certificates/{id}/rotate`.
pub(crate) async fn rotate(mut call: Call) -> Answer {
    let (id, kind) = owned(&mut call).await?;
    let Rotation { certificate, key } = call.json().await?;
    if kind == CertificateKind::Client && key.is_none() && !call.is_operator() {
        return Err(keyless());
    }
    let contents = CertificateContents { certificate, key };
    let view = call.engine().rotate_certificate(call.tenant(), id, contents).await?;
    respond::ok(&CertificateBody::new(&view.certificate, call.engine().now()))
}

/// `POST /v1/certificates/{id}/revoke`.
pub(crate) async fn revoke(mut call: Call) -> Answer {
    let id = call.named("certificate").await?;
    let view = call.engine().revoke_certificate(call.tenant(), id).await?;
    respond::ok(&CertificateBody::new(&view.certificate, call.engine().now()))
}

/// `DELETE /v1/certificates/{id}`.
pub(crate) async fn delete(mut call: Call) -> Answer {
    let (id, _) = owned(&mut call).await?;
    call.engine().delete_certificate(call.tenant(), id).await?;
    Ok(respond::empty(StatusCode::NO_CONTENT))
}

/// A certificate the caller may change. Callers are the operator's; taking one back is not more
/// than its tenant may do, replacing it would be.
async fn owned(call: &mut Call) -> crate::problem::Result<(CertificateId, CertificateKind)> {
    let id = call.named("certificate").await?;
    let found = call.engine().catalog().certificate(call.tenant(), id);
    let view = found.ok_or_else(|| Problem::not_found("certificate"))?;
    if view.certificate.kind == CertificateKind::Caller && !call.is_operator() {
        let detail = "only an operator may change a caller; revoking it is allowed";
        return Err(Problem::new(codes::FORBIDDEN, detail));
    }
    Ok((id, view.certificate.kind))
}

/// Whoever shows no key may not be its owner, and a proxy that holds it would not ask again.
fn keyless() -> Problem {
    let detail = "only an operator may register a client certificate without its key";
    Problem::new(codes::FORBIDDEN, detail).at("key")
}
