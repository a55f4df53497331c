//! The real way out.

use std::sync::Arc;

use posthorn_domain::{AttemptOutcome, FailureCode};
use posthorn_egress::{self as egress, Egress, PoolKey};

use super::{Outbound, Sending, Transport, UrlProblem};

/// [`Transport`] over the egress room.
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

    fn send(&self, request: Outbound) -> Sending {
        let egress = self.0.clone();
        Box::pin(async move {
            // Parsed and vetted once for each version of a subscription.
            let target = request.endpoint.target.get_or_init(|| {
                egress
                    .guard()
                    .check_url(&request.endpoint.url)
                    .map(Arc::new)
                    .map_err(|refusal| refusal.for_tenants().1)
            });
            let target = match target {
                Ok(target) => Arc::clone(target),
                Err(detail) => {
                    let detail = detail.clone();
                    return AttemptOutcome::Failed { code: FailureCode::UrlNotAllowed, detail };
                }
            };
            let request = egress::Request {
                tenant: request.tenant,
                pool: PoolKey::new(*request.subscription.as_bytes()),
                target,
                tls: None,
                path_and_query: request.path_and_query,
                method: request.method,
                headers: request.headers,
                body: request.body,
                deadlines: egress::Deadlines {
                    connect: request.deadlines.connect.to_duration(),
                    tls: request.deadlines.tls.to_duration(),
                    response: request.deadlines.response.to_duration(),
                    total: request.deadlines.total.to_duration(),
                },
            };
            egress.send(request).await.outcome
        })
    }
}
