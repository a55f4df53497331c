//! From a request to its operation, and from what that says to a response.

use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Body;
use axum::response::Response;
use axum::routing::any;
use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD,
};
use http::request::Parts;
use http::{HeaderValue, Method, Request, StatusCode, header};
use percent_encoding::percent_decode_str;
use posthorn_domain::{SubscriptionId, Tenant, TenantId};
use posthorn_engine::SubscriptionView;
use posthorn_listener::{Loan, Owner, Peer, body};
use serde::Serialize;
use serde_json::Value;

use super::access::{self, Caller, FORMER_ID, Needs};
use super::body::Object;
use super::endpoint::Kind;
use super::failure::Failure;
use super::page::Query;
use super::{Service, id, once, operational, route};
use crate::document;

pub(super) type Answer = Result<Response, Failure>;

/// Requests answered, by `dialect`, `operation` and `class`.
const REQUESTS: &str = "posthorn_dialect_requests_total";
/// What is counted: the first parts of paths.
const OPERATIONS: [&str; 5] =
    ["app", "event-type", "auth", "background-task", "operational-webhook"];
/// How long a browser may remember what it may do, in seconds.
const MAX_AGE: HeaderValue = HeaderValue::from_static("600");

pub(super) fn describe() {
    for operation in OPERATIONS {
        for class in ["2xx", "4xx", "5xx"] {
            metrics::counter!(
                REQUESTS, "dialect" => "svix", "operation" => operation, "class" => class
            )
            .increment(0);
        }
    }
}

pub(super) fn router(service: Service) -> axum::Router {
    let prefix = service.options.prefix.clone();
    let handler = move |request: Request<Body>| serve(service.clone(), request);
    // All paths below the prefix are ours, so that what does not exist is said our way too. Clients whose base URL ends in a
    // slash send two of them.
    axum::Router::new()
        .route(&prefix, any(handler.clone()))
        .route(&format!("{prefix}/{{*rest}}"), any(handler.clone()))
        .route(&format!("/{prefix}/{{*rest}}"), any(handler))
}

async fn serve(service: Service, request: Request<Body>) -> Response {
    let path = request.uri().path().trim_start_matches('/');
    let own = service.options.prefix.trim_start_matches('/');
    let path = path.strip_prefix(own).unwrap_or_default();
    let segments: Vec<String> =
        path.split('/').filter(|part| !part.is_empty()).map(plain).collect();
    let operation = segments.first().map_or("other", |first| {
        OPERATIONS.into_iter().find(|name| *name == first).unwrap_or("other")
    });
    let asked = request.headers().get(ACCESS_CONTROL_REQUEST_HEADERS).cloned();
    let beforehand = request.method() == Method::OPTIONS
        && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD);
    let head = request.method() == Method::HEAD;
    let mut response = match beforehand {
        true => nothing(),
        false => {
            let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
            let answer = route::answer(service, &segments, request).await;
            answer.unwrap_or_else(Failure::respond)
        }
    };
    // Pages of customers call with a token of their application; cookies play no part.
    let headers = response.headers_mut();
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
    if beforehand {
        let methods = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE");
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, methods);
        headers.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE);
        if let Some(asked) = asked {
            headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, asked);
        }
    }
    if head {
        *response.body_mut() = Body::empty();
    }
    let class = match response.status().as_u16() {
        500.. => "5xx",
        400.. => "4xx",
        _ => "2xx",
    };
    metrics::counter!(REQUESTS, "dialect" => "svix", "operation" => operation, "class" => class)
        .increment(1);
    response
}

/// A part of a path as it was meant.
fn plain(part: &str) -> String {
    percent_decode_str(part).decode_utf8_lossy().into_owned()
}

/// One request that is let in.
pub(super) struct Call {
    pub(super) service: Service,
    pub(super) caller: Caller,
    pub(super) query: Query,
    pub(super) parts: Parts,
    /// Behind a lock only so that a call can be shared between threads.
    body: Mutex<Body>,
    /// The memory of the body, until the call has been answered.
    _loan: Option<Loan>,
}

/// Whose endpoints a path is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Whose<'a> {
    /// Those of the application that the path names.
    Application(&'a str),
    /// Those of the organisation itself, which is told what happens to all its applications.
    Organisation,
}

/// Lets a request in, or not. Nothing of the body is read before.
pub(super) async fn enter(
    service: &Service,
    request: Request<Body>,
    needs: Needs,
) -> Result<Call, Failure> {
    let (parts, body) = request.into_parts();
    let (service, caller) = access::admit(service, needs, &parts).await?;
    let query = Query::read(parts.uri.query());
    Ok(Call { service, caller, query, parts, body: Mutex::new(body), _loan: None })
}

impl Call {
    /// The whole body.
    pub(super) async fn bytes(&mut self, owner: TenantId) -> Result<Bytes, Failure> {
        let headers = &self.parts.headers;
        body::check_coding(headers).map_err(Failure::from)?;
        let peer = self.parts.extensions.get::<Peer>();
        let lender = peer.and_then(Peer::bodies).map(|bodies| (bodies, Owner::Tenant(owner)));
        let body = self.body.get_mut().unwrap_or_else(PoisonError::into_inner);
        let body = std::mem::take(body);
        let whole = body::read(headers, body, self.service.options.body_bytes, lender).await?;
        self._loan = whole.loan;
        Ok(whole.bytes)
    }

    /// The body as a JSON object. Bodies that nobody wrote count as an empty one where that makes sense.
    pub(super) async fn object(&mut self, owner: TenantId) -> Result<Object, Failure> {
        let bytes = self.bytes(owner).await?;
        let value = match bytes.trim_ascii() {
            b"" | b"null" => Value::Object(serde_json::Map::new()),
            bytes => document::read(bytes).map_err(|e| Failure::shape(e.to_string()))?,
        };
        Object::read(value)
    }

    pub(super) fn application(&self, text: &str) -> Result<Tenant, Failure> {
        self.caller.application(&self.service, text)
    }

    /// The endpoint that a path names, by id or by the name its maker gave it.
    pub(super) fn endpoint(
        &self,
        tenant: TenantId,
        text: &str,
    ) -> Result<Arc<SubscriptionView>, Failure> {
        self.find(tenant, text, |kind| kind == Kind::Endpoint)
    }

    /// The destination that a path names.
    pub(super) fn destination(
        &self,
        tenant: TenantId,
        text: &str,
    ) -> Result<Arc<SubscriptionView>, Failure> {
        self.find(tenant, text, |kind| kind != Kind::Endpoint)
    }

    /// What a path names to which messages are sent: an endpoint, or a destination that is one too.
    pub(super) fn receiver(
        &self,
        tenant: TenantId,
        text: &str,
    ) -> Result<Arc<SubscriptionView>, Failure> {
        self.find(tenant, text, |kind| kind != Kind::Polling)
    }

    fn find(
        &self,
        tenant: TenantId,
        text: &str,
        of: impl Fn(Kind) -> bool,
    ) -> Result<Arc<SubscriptionView>, Failure> {
        let catalog = self.service.engine.catalog();
        let by_id = |id: SubscriptionId| catalog.subscription(tenant, id).ok();
        let id = id::read_endpoint(text).or_else(|| id::read_destination(text));
        let found = id.and_then(by_id);
        let found = found.or_else(|| catalog.subscription_named(tenant, &text.parse().ok()?));
        let found = found.or_else(|| {
            let former = text.starts_with(id::ENDPOINT).then_some(text)?;
            let mut all = catalog.subscriptions(tenant).into_iter();
            all.find(|view| view.subscription.labels.get(FORMER_ID) == Some(former))
        });
        let is_one =
            |view: &Arc<SubscriptionView>| Kind::of_url(&view.subscription).is_some_and(of);
        found.filter(is_one).ok_or(Failure::NotFound)
    }

    /// The tenant that has these endpoints.
    pub(super) fn home(&self, whose: Whose<'_>) -> Result<TenantId, Failure> {
        match whose {
            Whose::Application(app) => Ok(self.application(app)?.id),
            Whose::Organisation => Ok(TenantId::SYSTEM),
        }
    }

    /// The endpoint that a path names.
    pub(super) fn endpoint_of(
        &self,
        whose: Whose<'_>,
        text: &str,
    ) -> Result<Arc<SubscriptionView>, Failure> {
        match whose {
            Whose::Application(app) => self.receiver(self.application(app)?.id, text),
            Whose::Organisation => operational::find(self, text),
        }
    }

    /// Whether contents are to be shown, which they are unless somebody says no.
    pub(super) fn with_content(&self) -> Result<bool, Failure> {
        Ok(self.query.flag("with_content")?.unwrap_or(true))
    }

    /// Who asks, for jobs.
    pub(super) fn who(&self) -> String {
        match self.caller.key {
            Some(key) => key.to_string(),
            None => "svix".to_owned(),
        }
    }

    /// Does something once for each idempotency key, however often it is asked for.
    pub(super) async fn once<F, Fut>(self, act: F) -> Answer
    where
        F: FnOnce(Self, Option<once::Seed>) -> Fut,
        Fut: Future<Output = Answer>,
    {
        once::answer(self, act).await
    }
}

pub(super) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    let bytes = serde_json::to_vec(body).unwrap_or_default();
    raw(status, bytes.into())
}

/// An answer whose bytes are JSON already.
pub(super) fn raw(status: StatusCode, bytes: Bytes) -> Response {
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

pub(super) fn ok(body: &impl Serialize) -> Answer {
    Ok(json(StatusCode::OK, body))
}

pub(super) fn created(body: &impl Serialize) -> Answer {
    Ok(json(StatusCode::CREATED, body))
}

pub(super) fn nothing() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_paths_are_read_as_they_were_meant() {
        for (written, meant) in
            [("a.b", "a.b"), ("a%2Fb", "a/b"), ("100%", "100%"), ("%zz", "%zz"), ("%C3%A4", "ä")]
        {
            assert_eq!(plain(written), meant);
        }
    }
}
