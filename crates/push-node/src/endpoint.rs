//! What senders call: they post messages for a channel, and take them back.
//!
//! The checks and the way of a message are decided by [`posthorn_push::endpoint`]; here requests are
//! read, the store and the nodes are asked, and answers are written.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, Request, State};
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::routing::{delete, post};
use http::header::CONTENT_LENGTH;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use posthorn_domain::{MessageId, PushMessage};
use posthorn_listener::{BodyError, body};
use posthorn_push::endpoint::{
    Addressed, Found, Headers, Opened, Outcome, Recipient, Refusal, Step, StoreAnswer, created,
    route,
};
use posthorn_sealing::endpoint_token::MessageName;
use posthorn_store::push::{Kept, Route};

use crate::ending::whereabouts;
use crate::log::chain;
use crate::meter::Meter;
use crate::node::Shared;
use crate::options::Direct;

/// What senders call.
pub(crate) fn router(node: Arc<Shared>) -> Router {
    Router::new()
        .route("/wpush/{token}", post(post_plain).options(preflight))
        .route("/wpush/{version}/{token}", post(post_versioned).options(preflight))
        .route("/m/{message}", delete(take_back).options(preflight))
        .layer(from_fn(cross_origin))
        .with_state(node)
}

/// Scheme, host and port of a URL.
pub(crate) fn origin(url: &str) -> String {
    let rest = url.find("://").map_or(0, |at| at + 3);
    let end = url[rest..].find('/').map_or(url.len(), |at| rest + at);
    url[..end].to_owned()
}

type FromPath<T> = Result<Path<T>, PathRejection>;

/// What is no text in a path becomes an empty one, which is the name of nothing.
fn readable<T: Default>(path: FromPath<T>) -> T {
    path.map(|Path(path)| path).unwrap_or_default()
}

async fn post_plain(
    State(node): State<Arc<Shared>>,
    token: FromPath<String>,
    request: Request,
) -> Response {
    respond(&node, None, &readable(token), request).await
}

async fn post_versioned(
    State(node): State<Arc<Shared>>,
    path: FromPath<(String, String)>,
    request: Request,
) -> Response {
    let (version, token) = readable(path);
    respond(&node, Some(&version), &token, request).await
}

async fn respond(
    node: &Arc<Shared>,
    version: Option<&str>,
    token: &str,
    request: Request,
) -> Response {
    let began = Instant::now();
    node.requests.fetch_add(1, Ordering::Relaxed);
    let (head, body) = request.into_parts();
    let answer = match take(node, version, token, &head, body).await {
        Ok((message, outcome)) => match outcome {
            Outcome::Refused(refusal) => Err(refusal),
            accepted => Ok((message, accepted)),
        },
        Err(refusal) => Err(refusal),
    };
    node.meter.request(began.elapsed());
    match answer {
        Ok((message, accepted)) => {
            node.meter.accepted(&accepted, message.body.as_ref().map_or(0, bytes::Bytes::len));
            accept(node, &message)
        }
        Err(refusal) => {
            Meter::refused(&refusal);
            refuse(&refusal)
        }
    }
}

/// One post, from the checks to where the message went.
async fn take(
    node: &Arc<Shared>,
    version: Option<&str>,
    token: &str,
    head: &Parts,
    body: Body,
) -> Result<(PushMessage, Outcome), Refusal> {
    let joined = Joined::of(&head.headers);
    let headers = joined.headers();
    let now = node.clock.now();
    let opened = Opened::open(&node.tokens, version, token)?;
    let authorized = opened.sender(&headers, &node.proven, &node.origin, now)?;
    node.meter.sender(authorized.vapid());
    let (agent, channel) = (authorized.agent(), authorized.channel());
    let found =
        node.request_queries.route_to(agent, channel).await.map_err(|()| Refusal::unavailable())?;
    let addressed = authorized.recipient(match &found {
        Some(Route { channel: Some(_), .. }) => Recipient::Registered,
        Some(_) => Recipient::NoChannel,
        None => Recipient::NoAgent,
    })?;
    let body = read_body(node, &addressed, &head.headers, body).await?;
    let id = MessageId::from_random(rand::random());
    let message = addressed.message(&headers, body, id, now, &node.options.limits)?;
    let outcome = send(node, found.as_ref(), &message).await;
    Ok((message, outcome))
}

async fn read_body(
    node: &Shared,
    addressed: &Addressed,
    headers: &HeaderMap,
    body: Body,
) -> Result<bytes::Bytes, Refusal> {
    let limits = &node.options.limits;
    let announced = headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse().ok());
    addressed.body_size(announced.unwrap_or(0), limits)?;
    // Messages are a few kilobytes, so that nobody lends them memory.
    let read = body::read(headers, body, limits.body_max, None).await;
    read.map(|whole| whole.bytes).map_err(|e| match e {
        BodyError::TooLarge { limit } => Refusal::too_large(limit as u64 + 1, limit),
        _ => Refusal::broken_body(),
    })
}

/// Brings a message to its agent's node or into the store.
async fn send(node: &Arc<Shared>, found: Option<&Route>, message: &PushMessage) -> Outcome {
    let there = match found.map(whereabouts) {
        Some(Found::Connected(connection)) => Some(connection),
        _ => None,
    };
    // What is worth nothing later has no use for the store.
    let begin = match node.options.direct {
        Direct::Stored if message.ttl > 0 => route(None, message.ttl),
        Direct::Stored | Direct::Memory => route(there, message.ttl),
    };
    walk(node, begin, message).await
}

/// Keeps a message in the store in any case, then tells the agent's node.
pub(crate) async fn keep(node: &Arc<Shared>, message: &PushMessage) -> Outcome {
    walk(node, route(None, message.ttl.max(1)), message).await
}

async fn walk(node: &Arc<Shared>, mut step: Step, message: &PushMessage) -> Outcome {
    loop {
        step = match step {
            Step::Done(outcome) => return outcome,
            // From here on to its end, also when the sender hangs up: who stores has to tell.
            Step::Store(_) => {
                let rest = tokio::spawn(walk_on(Arc::clone(node), step, message.clone()));
                return rest.await.unwrap_or(Outcome::Refused(Refusal::not_stored()));
            }
            step => take_step(node, step, message).await,
        }
    }
}

async fn walk_on(node: Arc<Shared>, mut step: Step, message: PushMessage) -> Outcome {
    loop {
        step = match step {
            Step::Done(outcome) => return outcome,
            step => take_step(&node, step, &message).await,
        }
    }
}

async fn take_step(node: &Arc<Shared>, step: Step, message: &PushMessage) -> Step {
    match step {
        Step::Push(push) => {
            let answer = node.push_to(&push.connection.node, message).await;
            push.answered(answer)
        }
        Step::Clear(step) => {
            node.request_queries.clear(message.agent, step.connection.clone()).await;
            step.done()
        }
        Step::Store(step) => step.answered(store(node, message).await),
        Step::LookAgain(step) => {
            step.found(match node.request_queries.route_to(message.agent, message.channel).await {
                Ok(Some(route)) => whereabouts(&route),
                Ok(None) => Found::NoAgent,
                Err(()) => {
                    // Where the agent is cannot be read; if it is here, it need not be.
                    node.hint_here(message.agent);
                    Found::Failed
                }
            })
        }
        Step::Hint(hint) => {
            let answer = node.hint_to(&hint.connection.node, message.agent).await;
            hint.answered(answer)
        }
        Step::Done(outcome) => Step::Done(outcome),
    }
}

async fn store(node: &Shared, message: &PushMessage) -> StoreAnswer {
    if !(node.accepting)() {
        return StoreAnswer::Failed;
    }
    match node.request_queries.store(message.clone()).await {
        Ok(Kept::Stored(_) | Kept::Again(_) | Kept::Outdated) => StoreAnswer::Stored,
        Ok(Kept::AgentGone | Kept::ChannelGone) => StoreAnswer::Gone,
        Err(()) => StoreAnswer::Failed,
    }
}

fn accept(node: &Shared, message: &PushMessage) -> Response {
    let name = node.tokens.seal_message(&MessageName {
        agent: message.agent,
        channel: message.channel,
        message: message.id,
        topic: message.topic.clone(),
    });
    let mut response = Response::builder().status(StatusCode::CREATED);
    for (header, value) in created(&node.options.endpoint_url, &name, message.ttl) {
        response = response.header(header, value);
    }
    response.body(Body::empty()).unwrap_or_default()
}

fn refuse(refusal: &Refusal) -> Response {
    let mut response = Response::builder().status(refusal.status());
    for (header, value) in refusal.headers() {
        response = response.header(header, value);
    }
    response.body(Body::from(refusal.body())).unwrap_or_default()
}

async fn take_back(State(node): State<Arc<Shared>>, name: FromPath<String>) -> Response {
    let Ok(name) = node.tokens.open_message(&readable(name)) else {
        return refuse(&Refusal::bad_message_name());
    };
    match node.store.delete_messages(vec![(name.agent, name.message)]).await {
        Ok(_) => {
            let mut response = Response::default();
            *response.status_mut() = StatusCode::NO_CONTENT;
            response
        }
        Err(e) => {
            tracing::warn!(error = %chain(&e), "the store could not remove a message");
            refuse(&Refusal::unavailable())
        }
    }
}

async fn preflight() -> StatusCode {
    StatusCode::OK
}

/// Senders may be pages in browsers.
async fn cross_origin(request: Request, next: Next) -> Response {
    let preflight = request.method() == Method::OPTIONS;
    let asked = request.headers().get("access-control-request-headers").cloned();
    let mut response = next.run(request).await;
    let mut set = |name: &'static str, value: HeaderValue| {
        response.headers_mut().insert(HeaderName::from_static(name), value);
    };
    set("access-control-allow-origin", HeaderValue::from_static("*"));
    set("access-control-expose-headers", HeaderValue::from_static("location, ttl"));
    if preflight {
        let methods = HeaderValue::from_static("GET, PUT, POST, DELETE");
        set("access-control-allow-methods", methods);
        set("access-control-max-age", HeaderValue::from_static("3600"));
        // A star does not stand for Authorization, so what is asked for is repeated.
        let headers = asked.unwrap_or_else(|| HeaderValue::from_static("*"));
        set("access-control-allow-headers", headers);
    }
    response
}

/// The headers that matter, each as one text.
struct Joined([Option<String>; 8]);

const NAMES: [&str; 8] = [
    "authorization",
    "crypto-key",
    "encryption",
    "encryption-key",
    "content-encoding",
    "ttl",
    "topic",
    "urgency",
];

impl Joined {
    fn of(headers: &HeaderMap) -> Self {
        Self(NAMES.map(|name| {
            let mut all = headers.get_all(name).iter();
            let first = text(all.next()?);
            Some(all.fold(first, |joined, value| format!("{joined},{}", text(value))))
        }))
    }

    fn headers(&self) -> Headers<'_> {
        let [authorization, crypto_key, encryption, encryption_key, coding, ttl, topic, urgency] =
            self.0.each_ref().map(Option::as_deref);
        Headers {
            authorization,
            crypto_key,
            encryption,
            encryption_key,
            content_encoding: coding,
            ttl,
            topic,
            urgency,
        }
    }
}

/// What is no text becomes one that no check lets pass.
fn text(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_origin_has_no_path() {
        assert_eq!(origin("https://push.example.org"), "https://push.example.org");
        assert_eq!(origin("https://push.example.org/push"), "https://push.example.org");
        assert_eq!(origin("http://127.0.0.1:8080/a/b"), "http://127.0.0.1:8080");
    }

    #[test]
    fn headers_that_come_twice_are_joined() {
        let mut headers = HeaderMap::new();
        headers.append("crypto-key", HeaderValue::from_static("dh=a"));
        headers.append("crypto-key", HeaderValue::from_static("p256ecdsa=b"));
        headers.append("ttl", HeaderValue::from_bytes(b"\xff").expect("allowed in a header"));
        let joined = Joined::of(&headers);
        assert_eq!(joined.headers().crypto_key, Some("dh=a,p256ecdsa=b"));
        assert_eq!(joined.headers().ttl, Some("\u{fffd}"));
        assert_eq!(joined.headers().topic, None);
    }
}
