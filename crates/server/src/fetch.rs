//! Questions that a dialect has to somebody else's API, sent over the way out that everything takes.

use std::sync::Arc;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION};
use http::{HeaderMap, HeaderValue, Method};
use posthorn_dialects::notificaties::{Fetch, Fetching};
use posthorn_domain::{AttemptOutcome, Problem, TenantId};
use posthorn_egress::{Deadlines, Egress, PoolKey, Request};
use posthorn_engine::Engine;

/// The largest answer: applications can have many rights, each with a URL of its own.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// Asks through `egress`, whose rules judge each URL.
pub fn through(egress: Egress, engine: Engine) -> Fetch {
    Arc::new(move |url: String, authorization: String| {
        if engine.is_on_hold() {
            let problem: Problem = "the server is on hold and sends nothing".to_owned().into();
            return Box::pin(std::future::ready(Err(problem)));
        }
        let egress = egress.clone();
        let asked: Fetching = Box::pin(async move { ask(&egress, &url, &authorization).await });
        asked
    })
}

async fn ask(egress: &Egress, url: &str, authorization: &str) -> Result<(u16, Bytes), Problem> {
    let target = egress.guard().check_url(url).map_err(|e| e.to_string())?;
    let mut token = HeaderValue::from_str(authorization).map_err(|e| e.to_string())?;
    token.set_sensitive(true);
    let mut headers = HeaderMap::with_capacity(2);
    headers.insert(AUTHORIZATION, token);
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    let request = Request {
        tenant: TenantId::DEFAULT,
        pool: PoolKey::new(*b"authorizations\0\0"),
        target: Arc::new(target),
        tls: None,
        proxy: None,
        vet_always: false,
        path_and_query: None,
        method: Method::GET,
        headers,
        body: Bytes::new(),
        deadlines: Deadlines::default(),
    };
    match egress.fetch(request, ANSWER_BYTES_MAX).await.outcome {
        AttemptOutcome::Answered(answer) if answer.body.len() >= ANSWER_BYTES_MAX => {
            Err(format!("the answer has {ANSWER_BYTES_MAX} bytes or more").into())
        }
        AttemptOutcome::Answered(answer) => Ok((answer.status, answer.body)),
        AttemptOutcome::Failed { code, detail } => {
            Err(format!("{}: {detail}", code.as_str()).into())
        }
    }
}
