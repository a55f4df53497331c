//! The way to the provider of identities where people log in to the console (`console.oidc`).
//!
//! Its address is the operator's word, as that of a collector: it has a way out of its own, with a guard that opens its
//! port everywhere but for metadata services. A provider may have endpoints on other hosts; these are its own word, so
//! they are asked over the way that everything takes, which leads to no private address that `egress.allow` does not open.
//!
//! It is no address that must be kept from tenants: whoever can reach it sees a login page, and nothing there trusts this
//! server's address.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use posthorn_console::{Ask, Asking, Issuer, Question};
use posthorn_domain::{AttemptOutcome, Problem, TenantId};
use posthorn_egress::{self as egress, Deadlines, Egress, PoolKey, Request};

/// The largest answer: a token with a thousand groups, or some dozens of keys.
const ANSWER_BYTES_MAX: usize = 256 * 1024;
/// How long one question may take.
const QUESTION_TIME: Duration = Duration::from_secs(5);

/// The way to the host of the issuer. Where names are looked up and which certificates are trusted is as for everything
/// else.
fn way_to(issuer: &Issuer, around: &egress::Options) -> Result<Egress, egress::Error> {
    let everywhere = |text: &str| {
        let net = text.parse::<egress::AddressRule>().expect("a network").net;
        egress::AddressRule { net, port: Some(issuer.port()) }
    };
    Egress::new(egress::Options {
        allow: vec![everywhere("0.0.0.0/0"), everywhere("[::]/0")],
        names: vec![egress::NameRule::every()],
        ports: vec![issuer.port()],
        connections: 32,
        source: around.source,
        resolvers: around.resolvers.clone(),
        extra_roots: around.extra_roots.clone(),
        user_agent: around.user_agent.clone(),
        ..egress::Options::default()
    })
}

/// Asks a provider: its own host over a way of its own, others over `usual`.
pub fn ask(issuer: &Issuer, around: &egress::Options, usual: Egress) -> Result<Ask, egress::Error> {
    let (own, issuer) = (way_to(issuer, around)?, issuer.clone());
    Ok(Ask::new(move |question: Question| {
        let way = if issuer.is_home_of(&question.url) { own.clone() } else { usual.clone() };
        let asking: Asking = Box::pin(async move { send(&way, question).await });
        asking
    }))
}

async fn send(way: &Egress, question: Question) -> Result<(u16, Bytes), Problem> {
    let Question { url, form, authorization } = question;
    let target = way.guard().check_url(url.as_str()).map_err(|e| e.to_string())?;
    let mut headers = HeaderMap::with_capacity(3);
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    if let Some(authorization) = authorization {
        let mut value = HeaderValue::from_str(&authorization).map_err(|e| e.to_string())?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
    }
    if form.is_some() {
        let kind = HeaderValue::from_static("application/x-www-form-urlencoded");
        headers.insert(CONTENT_TYPE, kind);
    }
    let request = Request {
        tenant: TenantId::SYSTEM,
        pool: PoolKey::new(*b"console provider"),
        target: Arc::new(target),
        tls: None,
        proxy: None,
        vet_always: false,
        path_and_query: None,
        method: if form.is_some() { Method::POST } else { Method::GET },
        headers,
        body: form.map(Bytes::from).unwrap_or_default(),
        deadlines: Deadlines::all(QUESTION_TIME),
    };
    match way.fetch(request, ANSWER_BYTES_MAX).await.outcome {
        AttemptOutcome::Answered(answer) if answer.body.len() >= ANSWER_BYTES_MAX => {
            Err(format!("the answer has {ANSWER_BYTES_MAX} bytes or more").into())
        }
        AttemptOutcome::Answered(answer) => Ok((answer.status, answer.body)),
        AttemptOutcome::Failed { code, detail } => {
            Err(format!("{}: {detail}", code.as_str()).into())
        }
    }
}
