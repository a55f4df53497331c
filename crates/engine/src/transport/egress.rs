//! The real way out.

use std::sync::Arc;
use std::time::Duration;

use posthorn_domain::{AttemptOutcome, FailureCode, Problem};
use posthorn_egress::{self as egress, Egress, PoolKey, Target, UrlRefusal};

use super::{Outbound, Sending, Transport, UrlProblem, Vetting};
use crate::catalog::TlsChoice;
use crate::endpoint::Endpoint;

/// How long a look at a host's addresses may take when a URL is written down.
const VET_WITHIN: Duration = Duration::from_secs(5);

/// [`Transport`] over `posthorn-egress`.
pub struct EgressTransport(Egress);

impl EgressTransport {
    /// Wraps the one way out.
    pub fn new(egress: Egress) -> Self {
        Self(egress)
    }
}

impl Transport for EgressTransport {
    fn check_url(&self, url: &str) -> Result<String, UrlProblem> {
        match self.0.guard().check_url(url) {
            Ok(target) => Ok(target.as_str().to_owned()),
            Err(refusal) => {
                let (code, message) = refusal.for_tenants();
                Err(UrlProblem { code, message })
            }
        }
    }

    fn vet(&self, url: &str) -> Vetting {
        let egress = self.0.clone();
        let target = egress.guard().check_url(url);
        Box::pin(async move {
            let target = target.map_err(|refusal| {
                let (code, message) = refusal.for_tenants();
                UrlProblem { code, message }
            })?;
            // What the resolver said stays with the operator: it may describe an inner network.
            egress.vet(&target, VET_WITHIN).await.map_err(|(code, detail)| {
                tracing::debug!(%detail, "a host was refused when its URL was saved");
                // That a name exists inside is not told either: it reads as one that does not.
                let (code, message) = match code {
                    FailureCode::DnsTimeout => (code, "its host could not be resolved in time"),
                    _ => (
                        FailureCode::DnsFailed,
                        "its host cannot be resolved to addresses that are allowed",
                    ),
                };
                UrlProblem { code: code.as_str(), message: message.to_owned() }
            })
        })
    }

    fn send(&self, request: Outbound) -> Sending {
        let egress = self.0.clone();
        Box::pin(async move {
            let tls = match request.tls.as_deref().map(|choice| client_tls(&egress, choice)) {
                None => None,
                Some(Ok(tls)) => Some(tls),
                Some(Err(problem)) => {
                    let code = FailureCode::CertificateUnavailable;
                    let detail = problem.into();
                    return AttemptOutcome::Failed { code, detail }.into();
                }
            };
            let target = match target(&egress, &request.endpoint) {
                Ok(target) => target,
                Err((code, detail)) => return AttemptOutcome::Failed { code, detail }.into(),
            };
            let request = egress::Request {
                tenant: request.tenant,
                pool: PoolKey::new(*request.subscription.as_bytes()),
                target,
                tls,
                proxy: request.proxy,
                vet_always: request.vet_always,
                path_and_query: request.path_and_query,
                method: request.method,
                headers: request.headers,
                body: request.body,
                deadlines: request.deadlines,
            };
            // Nothing is delivered so: who asks for the options wants to know what is in the head.
            match request.method {
                http::Method::OPTIONS => egress.ask(request).await,
                _ => egress.send(request).await,
            }
        })
    }
}

/// Parsed once for each version of a subscription. That its address is closed may change without the
/// subscription: it is neither remembered nor for good.
fn target(egress: &Egress, endpoint: &Endpoint) -> Result<Arc<Target>, (FailureCode, String)> {
    let shape = |problem: &Problem| (FailureCode::UrlNotAllowed, problem.to_string());
    if let Some(known) = endpoint.target.get() {
        return known.as_ref().map(Arc::clone).map_err(shape);
    }
    let fresh = match egress.guard().check_url(&endpoint.url) {
        Ok(target) => Ok(Arc::new(target)),
        Err(refusal @ (UrlRefusal::Address(_) | UrlRefusal::HostOwn)) => {
            return Err((FailureCode::AddressNotAllowed, refusal.to_string()));
        }
        Err(refusal) => Err(refusal.for_tenants().1.into()),
    };
    endpoint.target.get_or_init(|| fresh).as_ref().map(Arc::clone).map_err(shape)
}

/// Made once for each version of the certificates in it.
fn client_tls(egress: &Egress, choice: &TlsChoice) -> Result<Arc<egress::ClientTls>, Problem> {
    let built = choice.built.get_or_init(|| {
        let identity = choice.identity.as_ref().map(|view| view.identity()).transpose()?;
        let authorities: Vec<&[u8]> =
            choice.authorities.iter().map(|view| view.certificate.pem.as_bytes()).collect();
        egress
            .client_tls(identity.as_deref(), &authorities)
            .map(Arc::new)
            .map_err(|e| Problem::new(e.to_string()))
    });
    built.clone()
}
