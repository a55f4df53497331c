//! Which country calls.

use http::StatusCode;
use http::request::Parts;
use posthorn_access::Denied;
use posthorn_domain::{CertificateId, Scope};
use posthorn_engine::Acting;
use posthorn_listener::{Peer, shown};
use tracing::warn;

use super::Service;
use super::answer::Refusal;

impl Service {
    /// The country of whoever calls, as its certificate and the registry say, in capitals; and the service as it acts
    /// for them.
    pub(super) fn enter(&self, parts: &Parts) -> Result<(Self, String), Refusal> {
        let peer = parts.extensions.get::<Peer>();
        let Some(shown) = shown(Some(&self.options.identity), peer, &parts.headers) else {
            return Err(self.unknown(peer, "no client certificate was shown"));
        };
        let country = shown.country.filter(|country| {
            country.len() == 2 && country.bytes().all(|byte| byte.is_ascii_alphabetic())
        });
        let Some(country) = country else {
            let problem = "the subject of the client certificate must contain a country (C)";
            return Err(Refusal::new(StatusCode::BAD_REQUEST, problem));
        };
        let found = self.engine.authenticate_certificate(shown.thumbprint, Some(&country));
        let known = found.filter(|principal| {
            // A certificate is somebody's only when the registry says whose, whatever its subject says.
            let id = CertificateId::from_bytes(*principal.key.id.as_bytes());
            let view = self.engine.catalog().certificate(self.tenant, id);
            view.is_some_and(|view| view.certificate.owner.eq_ignore_ascii_case(&country))
        });
        let Some(principal) = known else {
            return Err(self.unknown(peer, "the client certificate is not known"));
        };
        self.callers.permit(&principal, Scope::Manage).map_err(|denied| match denied {
            Denied::RateLimited(wait) => {
                Refusal::slow_down("too many requests with this certificate", wait)
            }
            _ => {
                let problem = "the client certificate may not manage callbacks";
                Refusal::new(StatusCode::FORBIDDEN, problem)
            }
        })?;
        let by = Acting::principal(&principal, "efgs", peer.map(Peer::address));
        let service = Self { engine: self.engine.acting(by), ..self.clone() };
        Ok((service, country.to_ascii_uppercase()))
    }

    /// What somebody nobody knows is told: at first that, later to stop.
    fn unknown(&self, peer: Option<&Peer>, problem: &'static str) -> Refusal {
        match self.callers.unknown(peer) {
            Denied::TooManyFailures(wait) => {
                let problem = "too many requests without a known client certificate";
                Refusal::slow_down(problem, wait)
            }
            _ => {
                warn!(address = ?peer.map(Peer::address), problem, "a caller was refused");
                Refusal::new(StatusCode::FORBIDDEN, problem)
            }
        }
    }
}
