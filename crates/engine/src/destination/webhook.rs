//! Requests to a URL: ask the gate, fetch a token, build the request, send it, say how it went.

use std::sync::Arc;

use posthorn_domain::policy::{Auth, Gate, Handshake, OnClosed, Policy, PolicyError};
use posthorn_domain::{Answer, AttemptOutcome, FailureCode, Problem, SentRequest};
use tokio::time::Instant;
use tracing::info;

use super::handshake::REQUEST_ORIGIN;
use super::{Attempting, Checking, Destination, Wanted};
use crate::attempt::{Context, Ended, Job, Made, failed, is_overtaken};
use crate::catalog::TlsChoice;
use crate::catalog::certificates::{NoCertificate, Purpose};
use crate::endpoint::Endpoint;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::preview::{NO_TOKEN, RequestPreview};
use crate::request::{
    self, AttemptLookup, BuildError, EventLookup, Redaction, as_sent, render_path,
};
use crate::tokens::{Lent, TokenError, Way, token_endpoint};
use crate::trace;
use crate::transport::{Deadlines, Outbound, Sent, UrlProblem};

/// A URL that gets requests.
pub(crate) struct Webhook(Arc<Endpoint>);

impl Webhook {
    pub(crate) fn new(url: String) -> Self {
        Self(Arc::new(Endpoint::new(url)))
    }
}

impl Destination for Webhook {
    fn kind(&self) -> &'static str {
        "webhook"
    }

    fn attempt<'a>(&'a self, around: &'a Context, job: &'a Job) -> Attempting<'a> {
        Box::pin(async move {
            match send(around, job, &self.0).await {
                Ok((Sent { outcome, timings, .. }, sent)) => {
                    Made { result: Ended::Outcome(outcome), timings: timings.into(), sent }
                }
                Err(unsent) => unsent.into(),
            }
        })
    }

    fn preview(&self, around: &Context, job: &Job) -> Result<RequestPreview, Ended> {
        let event = EventLookup::new(&job.work.event);
        let now = around.clock.now();
        let values = AttemptLookup::new(&job.view, &job.policy, &job.work, &event, now);
        let (outbound, _) = assemble(around, &self.0, &values, Some(NO_TOKEN))?;
        Ok(RequestPreview::of(&outbound))
    }

    /// Refuses a token server that could never be reached or told a secret, and a gate that could never be asked, as far
    /// as their URLs tell. What a template becomes is checked when it is used.
    fn check_policy(&self, engine: &Engine, policy: &Policy) -> Result<()> {
        engine.check_other_urls(policy)
    }

    fn check_now<'a>(&'a self, engine: &'a Engine, wanted: &'a Wanted<'a>) -> Checking<'a> {
        Box::pin(async move { engine.check_endpoint(&self.0, wanted).await.map(drop) })
    }

    fn ask_permission<'a>(&'a self, engine: &'a Engine, wanted: &'a Wanted<'a>) -> Checking<'a> {
        Box::pin(async move {
            if wanted.policy.request.handshake == Handshake::None {
                return Ok(());
            }
            let tls = engine.check_endpoint(&self.0, wanted).await?;
            engine.shake_hands(&self.0, wanted, tls).await
        })
    }
}

impl Engine {
    /// A URL as a subscription would keep it, when the guard has nothing against it.
    pub fn check_url(&self, url: &str) -> Result<String> {
        Ok(self.inner.around.transport.check_url(url)?)
    }

    /// What a policy demands of a URL beyond what the guard demands of all: its own rules, names that resolve, and
    /// certificates that exist. Returns what a handshake would be made with.
    async fn check_endpoint(
        &self,
        endpoint: &Endpoint,
        wanted: &Wanted<'_>,
    ) -> Result<Option<Arc<TlsChoice>>> {
        let Wanted { tenant, subscription, policy, .. } = wanted;
        let parts = endpoint.parts();
        parts.check(&policy.url)?;
        if policy.url.resolve {
            self.inner.around.transport.vet(&endpoint.url).await?;
        }
        let now = self.now();
        let missing = |field: &'static str| {
            move |e: NoCertificate| Error::Certificate { field, problem: e.to_string() }
        };
        let mut identity = None;
        for auth in &policy.auth {
            let Some(choice) = auth.certificate() else { continue };
            let shown = matches!(auth, Auth::ClientCertificate(_));
            if shown && !parts.https {
                let message = "a client certificate can only be used with https".to_owned();
                return Err(UrlProblem { code: "https_only", message }.into());
            }
            let purpose = if shown { Purpose::Show } else { Purpose::Name };
            let found = self
                .catalog()
                .client_certificate(*tenant, choice, subscription, parts.host, purpose, now)
                .map_err(missing("policy.auth"))?;
            if shown {
                found.identity().map_err(|problem| Error::Certificate {
                    field: "policy.auth",
                    problem: format!("certificate {} {problem}", found.certificate.id),
                })?;
                identity = Some(found);
            }
        }
        let authorities = &policy.tls.authorities;
        if identity.is_none() && authorities.is_empty() {
            return Ok(None);
        }
        let tls = self.catalog().tls(*tenant, identity, authorities, now);
        Ok(Some(tls.map_err(missing("policy.tls.authorities"))?))
    }

    /// Refuses a policy whose token server or gate could never be asked.
    pub(crate) fn check_other_urls(&self, policy: &Policy) -> Result<()> {
        for (index, auth) in policy.auth.iter().enumerate() {
            if let Auth::Oauth2(client) = auth
                && let Err(problem) =
                    token_endpoint(&*self.inner.around.transport, client, &policy.url)
            {
                let path = format!("auth[{index}].token_url");
                return Err(PolicyError { path, problem: problem.to_string() }.into());
            }
        }
        if let Some(gate) = &policy.gate
            && gate.url.source().to_ascii_lowercase().starts_with("http://")
            && let Err(problem) =
                Endpoint::new(gate.url.source().to_owned()).parts().check_scheme(&policy.url)
        {
            let path = "gate.url".to_owned();
            return Err(PolicyError { path, problem: problem.to_string() }.into());
        }
        Ok(())
    }
}

/// Sends the request of an attempt; with what it sent when it failed. `Err` says why it was not even tried.
async fn send(
    around: &Context,
    job: &Job,
    endpoint: &Arc<Endpoint>,
) -> Result<(Sent, Option<Box<SentRequest>>), Ended> {
    let event = EventLookup::new(&job.work.event);
    if let Some(gate) = &job.policy.gate {
        match ask(around, job, &event, gate).await {
            Ok(true) => {}
            Ok(false) => {
                if gate.on_closed == OnClosed::DeadLetter {
                    let delivery = job.work.delivery.id;
                    info!(%delivery, "the gate is closed: nothing was sent, and the delivery is a \
                                      dead letter");
                }
                return Err(Ended::GateClosed);
            }
            Err(problem) => return Err(failed(FailureCode::RequestInvalid, problem.into())),
        }
    }
    let before_token = Instant::now();
    let way = Way { transport: &*around.transport, clock: &*around.clock };
    let token = around.tokens.for_attempt(&way, &job.view, &job.policy).await;
    let token = token.map_err(|problem| match problem {
        TokenError::Secret(problem) => failed(FailureCode::AuthUnavailable, problem.into()),
        TokenError::Unavailable(problem) => failed(FailureCode::TokenUnavailable, problem.into()),
    })?;
    let now = around.clock.now();
    let text = token.as_ref().map(Lent::text);
    let values = AttemptLookup::new(&job.view, &job.policy, &job.work, &event, now);
    let (mut outbound, redaction) = assemble(around, endpoint, &values, text)?;
    // What the token took is taken off, so that the whole attempt keeps its deadline.
    let left = outbound.deadlines.total.saturating_sub(before_token.elapsed());
    outbound.deadlines.total = left.max(Deadlines::SHORTEST);
    if is_overtaken(around, job) {
        return Err(Ended::Overtaken);
    }
    around.log.before(job, &values);
    let mut sent = around.transport.send(outbound).await;
    redaction.apply(&mut sent.outcome);
    let unauthorised =
        matches!(&sent.outcome, AttemptOutcome::Answered(Answer { status: 401, .. }));
    if let Some(token) = token.as_ref().filter(|_| unauthorised) {
        around.tokens.refused(token);
    }
    around.log.failure(job, &values, &sent.outcome);
    let again = || assemble(around, endpoint, &values, text).ok();
    let written = as_sent(&sent.outcome, &job.policy, None, again);
    Ok((sent, written))
}

/// The request of an attempt, ready to be sent or shown. `Err` says how the attempt fails without it.
fn assemble(
    around: &Context,
    endpoint: &Arc<Endpoint>,
    values: &AttemptLookup<'_>,
    token: Option<&str>,
) -> Result<(Outbound, Redaction), Ended> {
    let built = request::build(&around.catalog, endpoint, values, token);
    let (mut outbound, redaction) = built.map_err(|problem| match problem {
        BuildError::Request(detail) => failed(FailureCode::RequestInvalid, detail),
        BuildError::Url(detail) => failed(FailureCode::UrlRefused, detail),
        BuildError::Auth(detail) => failed(FailureCode::AuthUnavailable, detail),
        BuildError::Certificate(missing) => {
            failed(FailureCode::CertificateUnavailable, missing.to_string())
        }
    })?;
    // Who was allowed to send says in every request who it is.
    let handshake = values.policy.request.handshake;
    if let (Handshake::Cloudevents, Some(origin)) = (handshake, &around.origin) {
        outbound.headers.insert(REQUEST_ORIGIN, origin.to_header());
    }
    // A header of the policy's own wins.
    if let Some(told) = trace::header(around, values.policy.request.traceparent, values.work) {
        outbound.headers.entry(trace::TRACEPARENT).or_insert(told);
    }
    Ok((outbound, redaction))
}

/// Asks the gate. `Err` means the question itself could not be put together.
async fn ask(
    around: &Context,
    job: &Job,
    event: &EventLookup<'_>,
    gate: &Gate,
) -> Result<bool, Problem> {
    let now = around.clock.now();
    let values = AttemptLookup::new(&job.view, &job.policy, &job.work, event, now);
    let url = render_path(&gate.url, &values).map_err(|e| format!("gate.url: {e}"))?;
    let problem = |e: UrlProblem| format!("gate.url: {e}");
    let endpoint = Endpoint::new(around.transport.check_url(&url).map_err(problem)?);
    endpoint.parts().check_scheme(&job.policy.url).map_err(problem)?;
    let question = Outbound {
        tenant: job.view.subscription.tenant,
        subscription: job.view.subscription.id,
        endpoint: Arc::new(endpoint),
        path_and_query: None,
        method: http::Method::GET,
        headers: http::HeaderMap::new(),
        tls: None,
        proxy: job.policy.proxy.clone(),
        vet_always: false,
        body: bytes::Bytes::new(),
        deadlines: Deadlines::all(gate.timeout.to_duration()),
    };
    Ok(match around.transport.send(question).await.outcome {
        AttemptOutcome::Answered(answer) => is_open(gate, &answer),
        AttemptOutcome::Failed { .. } => false,
    })
}

fn is_open(gate: &Gate, answer: &Answer) -> bool {
    if !gate.status.contains(answer.status) {
        return false;
    }
    let Some(expect) = &gate.expect else { return true };
    let Ok(json) = serde_json::from_slice::<serde_json::Value>(&answer.body) else { return false };
    expect.is_met(&json)
}
