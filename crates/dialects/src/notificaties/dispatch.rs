//! From a request to its handler, and from what the handler says to a response.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use axum::routing::any;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use posthorn_access::Denied;
use posthorn_domain::ClientName;
use posthorn_engine::Acting;
use posthorn_listener::{BodyError, Loan, Owner, Peer, body, only, site};
use serde_json::Value;

use super::access::{Client, Scope, missing};
use super::notificatie::{CLOUDEVENT, JSON};
use super::problem::{PROBLEM, Problem, plain, seconds};
use super::uuid::Uuid;
use super::{Service, handlers, openapi};
use crate::document;

pub(crate) type Answer = Result<Response, Problem>;

const EITHER: &[Scope] = &[Scope::Publish, Scope::Consume];
const PUBLISH: &[Scope] = &[Scope::Publish];
const CONSUME: &[Scope] = &[Scope::Consume];

/// Requests answered, by `dialect`, `operation` and `class`.
const REQUESTS: &str = "posthorn_dialect_requests_total";

/// The version of the API, in every response.
const VERSION: (&str, &str) = ("api-version", "1.0.0");

pub(super) fn router(service: Service) -> axum::Router {
    let prefix = service.options.prefix.clone();
    let handler = move |request: Request<Body>| serve(service.clone(), request);
    // All paths below the prefix are ours, so that what does not exist is said our way too.
    axum::Router::new()
        .route(&prefix, any(handler.clone()))
        .route(&format!("{prefix}/{{*rest}}"), any(handler))
}

/// One request that is let in.
pub(crate) struct Call {
    pub(crate) service: Service,
    pub(crate) client: Client,
    /// What stands before the paths of this API in URLs.
    pub(crate) base: String,
    parts: Parts,
    body: Body,
    /// The memory of the body, until the call has been answered.
    loan: Option<Loan>,
}

async fn serve(service: Service, request: Request<Body>) -> Response {
    let options = &service.options;
    let site = site(options.base_url.as_deref(), options.https, request.headers());
    let instance = Uuid::random(|| service.engine.dice());
    let head = request.method() == Method::HEAD;
    let operation = operation(&service, &request);
    let answer = route(service, &site, request).await;
    let mut response = answer.unwrap_or_else(|problem| {
        tracing::debug!(%instance, status = problem.status.as_u16(), code = problem.code,
            "a request was refused");
        problem.respond(&site, instance)
    });
    response.headers_mut().insert(VERSION.0, HeaderValue::from_static(VERSION.1));
    if head {
        *response.body_mut() = Body::empty();
    }
    count(operation, response.status());
    response
}

/// What may be asked for.
const OPERATIONS: [&str; 5] = ["kanaal", "abonnement", "notificaties", "cloudevents", "callbacks"];

/// What is asked for, for those who count: a few fixed names, whatever clients send.
fn operation(service: &Service, request: &Request<Body>) -> &'static str {
    let path = request.uri().path().get(service.options.prefix.len()..).unwrap_or_default();
    let first = path.trim_start_matches('/').split('/').next().unwrap_or_default();
    OPERATIONS.into_iter().find(|name| *name == first).unwrap_or("other")
}

/// Tells the recorder what is counted here.
pub(super) fn describe() {
    metrics::describe_counter!(
        REQUESTS,
        "Requests in other systems' dialects, by dialect, operation and class"
    );
    // There from the start, so that a rate misses nothing.
    for operation in OPERATIONS {
        for class in ["2xx", "4xx", "5xx"] {
            metrics::counter!(
                REQUESTS, "dialect" => "notificaties", "operation" => operation, "class" => class
            )
            .increment(0);
        }
    }
}

fn count(operation: &'static str, status: StatusCode) {
    let class = match status.as_u16() {
        500.. => "5xx",
        400.. => "4xx",
        _ => "2xx",
    };
    metrics::counter!(
        REQUESTS, "dialect" => "notificaties", "operation" => operation, "class" => class
    )
    .increment(1);
}

async fn route(service: Service, site: &str, request: Request<Body>) -> Answer {
    let prefix = service.options.prefix.len();
    let path = request.uri().path().get(prefix..).unwrap_or_default().to_owned();
    let base = format!("{site}{}", service.options.prefix);
    let segments: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let method = match request.method() {
        &Method::HEAD => Method::GET,
        other => other.clone(),
    };
    let wrong = |allow| Err(Problem::method(request.method(), allow));
    let enter = |request, scopes: &'static [Scope], answers: &'static str| {
        enter(&service, base.clone(), request, scopes, answers)
    };
    match (segments.as_slice(), &method) {
        (["kanaal"], &Method::GET) => handlers::list_kanalen(&enter(request, EITHER, JSON).await?),
        (["kanaal"], &Method::POST) => {
            handlers::create_kanaal(enter(request, PUBLISH, JSON).await?).await
        }
        (["kanaal"], _) => wrong("GET, POST"),
        (["kanaal", uuid], &Method::GET) => {
            handlers::read_kanaal(enter(request, EITHER, JSON).await?, named(uuid)?).await
        }
        (["kanaal", uuid], &Method::PUT | &Method::PATCH) => {
            let patch = method == Method::PATCH;
            let call = enter(request, PUBLISH, JSON).await?;
            handlers::update_kanaal(call, named(uuid)?, patch).await
        }
        (["kanaal", _], _) => wrong("GET, PUT, PATCH"),
        (["abonnement"], &Method::GET) => {
            handlers::list_abonnementen(&enter(request, EITHER, JSON).await?)
        }
        (["abonnement"], &Method::POST) => {
            handlers::create_abonnement(enter(request, CONSUME, JSON).await?).await
        }
        (["abonnement"], _) => wrong("GET, POST"),
        (["abonnement", uuid], &Method::GET) => {
            handlers::read_abonnement(enter(request, EITHER, JSON).await?, named(uuid)?).await
        }
        (["abonnement", uuid], &Method::PUT | &Method::PATCH) => {
            let patch = method == Method::PATCH;
            let call = enter(request, CONSUME, JSON).await?;
            handlers::update_abonnement(call, named(uuid)?, patch).await
        }
        (["abonnement", uuid], &Method::DELETE) => {
            handlers::delete_abonnement(enter(request, CONSUME, JSON).await?, named(uuid)?).await
        }
        (["abonnement", _], _) => wrong("GET, PUT, PATCH, DELETE"),
        (["notificaties"], &Method::POST) => {
            handlers::publish(enter(request, PUBLISH, JSON).await?).await
        }
        (["cloudevents"], &Method::POST) => {
            handlers::publish_cloudevent(enter(request, PUBLISH, CLOUDEVENT).await?).await
        }
        (["callbacks"], &Method::POST) => {
            handlers::receive(enter(request, PUBLISH, JSON).await?).await
        }
        (["notificaties" | "cloudevents" | "callbacks"], _) => wrong("POST"),
        (["openapi.yaml"], &Method::GET) => Ok(openapi::yaml(&base)),
        (["openapi.json"], &Method::GET) => Ok(openapi::json(&base)),
        (["schema"] | ["schema", ""] | ["schema", "openapi.yaml"], &Method::GET) => {
            Ok(moved(&format!("{base}/openapi.yaml")))
        }
        (["schema", "openapi.json"], &Method::GET) => Ok(moved(&format!("{base}/openapi.json"))),
        (["openapi.yaml" | "openapi.json" | "schema", ..], _) => wrong("GET"),
        _ => Err(Problem::not_found()),
    }
}

fn named(uuid: &str) -> Result<Uuid, Problem> {
    uuid.parse().map_err(|_| Problem::not_found())
}

fn moved(to: &str) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::FOUND;
    if let Ok(to) = HeaderValue::from_str(to) {
        response.headers_mut().insert(header::LOCATION, to);
    }
    response
}

/// Lets a request in, or not. Nothing of the body is read before.
async fn enter(
    service: &Service,
    base: String,
    request: Request<Body>,
    scopes: &'static [Scope],
    answers: &'static str,
) -> Result<Call, Problem> {
    let (parts, body) = request.into_parts();
    let now = service.engine.now();
    let at_run_time = |name: &ClientName| service.engine.catalog().client(service.tenant, name);
    let known = service.clients.authenticate(&parts.headers, now, at_run_time);
    let mut client =
        known.map_err(|problem| match service.callers.unknown(parts.extensions.get::<Peer>()) {
            Denied::TooManyFailures(wait) => Problem::throttled(
                "Too many requests without a valid token came from this address.",
                seconds(wait),
            ),
            _ => problem,
        })?;
    service.rates.take(Arc::clone(&client.id), service.engine.admission().nanos()).map_err(
        |wait| {
            let detail = "This client exceeded its rate limit (admission.key_requests_per_second).";
            Problem::throttled(detail, seconds(wait))
        },
    )?;
    if let Some(rights) = service.rights.as_ref().filter(|_| client.is_unsaid()) {
        let found = rights.of(&client.id, &|| service.engine.now()).await;
        client = client.with(found.map_err(|()| {
            Problem::unavailable(
                "The permissions of this client cannot be read from the Autorisaties API at the \
                 moment.",
            )
        })?);
    }
    if !client.may(scopes) {
        return Err(missing(scopes));
    }
    if !accepts(&parts.headers, answers) {
        return Err(Problem::not_acceptable(answers));
    }
    let address = parts.extensions.get::<Peer>().map(Peer::address);
    let by = Acting::client(service.tenant, Arc::clone(&client.id), "notificaties", address);
    let service = Service { engine: service.engine.acting(by), ..service.clone() };
    Ok(Call { service, client, base, parts, body, loan: None })
}

/// Whether the client takes an answer of this type.
fn accepts(headers: &HeaderMap, answers: &str) -> bool {
    let mut given = false;
    for value in headers.get_all(header::ACCEPT) {
        for range in value.to_str().unwrap_or_default().split(',') {
            let mut parts = range.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default();
            let refused = parts.any(|parameter| {
                let weight = parameter.strip_prefix("q=").and_then(|q| q.parse::<f32>().ok());
                weight == Some(0.0)
            });
            given |= !kind.is_empty();
            let fits = ["*/*", "application/*", answers]
                .iter()
                .any(|fitting| kind.eq_ignore_ascii_case(fitting));
            if fits && !refused {
                return true;
            }
        }
    }
    // Those who only take problems are still told of theirs.
    !given || headers.get(header::ACCEPT).is_some_and(|only| only == PROBLEM)
}

impl Call {
    /// The query must not have any parameters but these.
    pub(crate) fn query(&self, known: &[&str]) -> Result<Vec<(String, String)>, Problem> {
        let query = self.parts.uri.query().unwrap_or_default();
        let pairs: Vec<(String, String)> =
            url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        let strange: Vec<&str> = pairs
            .iter()
            .map(|(name, _)| name.as_str())
            .filter(|name| !known.contains(name))
            .collect();
        if strange.is_empty() {
            return Ok(pairs);
        }
        let reason = format!("Unknown query parameters: {}.", strange.join(", "));
        Err(Problem::field(super::problem::NO_FIELD, "unknown-parameters", reason))
    }

    /// The body, as bytes and as what they mean; it must say that it is of this type.
    pub(crate) async fn document(&mut self, kind: &str) -> Result<(Bytes, Value), Problem> {
        let bytes = self.bytes(kind).await?;
        let value = document::read(&bytes)
            .map_err(|e| Problem::malformed(format!("JSON parse error - {e}")))?;
        Ok((bytes, value))
    }

    async fn bytes(&mut self, kind: &str) -> Result<Bytes, Problem> {
        let headers = &self.parts.headers;
        let said = only(headers, &header::CONTENT_TYPE);
        if !is_kind(said.unwrap_or_default(), kind) {
            let said = said.unwrap_or_default();
            let detail =
                format!("Unsupported media type \"{said}\" in request; send {kind} in UTF-8.");
            return Err(Problem::media_type(detail));
        }
        let limit = self.service.options.body_bytes;
        body::check_coding(headers).map_err(|e| Problem::media_type(e.to_string()))?;
        let body = std::mem::take(&mut self.body);
        let peer = self.parts.extensions.get::<Peer>();
        let owner = Owner::Tenant(self.service.tenant);
        let lender = peer.and_then(Peer::bodies).map(|bodies| (bodies, owner));
        let read = body::read(headers, body, limit, lender).await;
        let whole = read.map_err(|error| match error {
            BodyError::TooLarge { limit } => Problem::too_large(limit),
            BodyError::TooSlow { .. } => Problem::too_slow(),
            BodyError::ShareTaken => Problem::throttled(error.to_string(), 1),
            BodyError::NoRoom => Problem::unavailable(error.to_string()),
            other => Problem::malformed(other.to_string()),
        })?;
        self.loan = whole.loan;
        Ok(whole.bytes)
    }
}

/// Whether a content type is this one, in UTF-8.
fn is_kind(said: &str, kind: &str) -> bool {
    let mut parts = said.split(';').map(str::trim);
    parts.next().is_some_and(|said| said.eq_ignore_ascii_case(kind))
        && parts.all(|parameter| match parameter.split_once('=') {
            Some((name, value)) if name.trim().eq_ignore_ascii_case("charset") => {
                let value = value.trim().trim_matches('"');
                value.eq_ignore_ascii_case("utf-8") || value.eq_ignore_ascii_case("utf8")
            }
            _ => true,
        })
}

/// An answer with a document.
pub(crate) fn json(status: StatusCode, value: &Value) -> Response {
    plain(status, JSON, value.to_string())
}

/// The answer to what was made.
pub(crate) fn created(value: &Value, location: &str) -> Response {
    let mut response = json(StatusCode::CREATED, value);
    if let Ok(location) = HeaderValue::from_str(location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(accept: &[&str], fine: bool) {
        let mut headers = HeaderMap::new();
        for value in accept {
            headers.append(header::ACCEPT, HeaderValue::from_str(value).expect("a value"));
        }
        assert_eq!(accepts(&headers, JSON), fine, "{accept:?}");
    }

    #[test]
    fn answers_are_given_in_json_to_those_who_take_it() {
        check(&[], true);
        check(&[""], true);
        check(&["*/*"], true);
        check(&["text/html, application/*;q=0.5"], true);
        check(&["text/html", "Application/JSON; indent=4"], true);
        check(&["application/problem+json"], true);
        check(&["text/html"], false);
        check(&["application/json;q=0"], false);
        check(&["application/xml, text/*"], false);
    }

    #[test]
    fn content_types_may_name_a_charset_when_it_is_utf_8() {
        for said in ["application/json", "Application/Json; charset=UTF-8", "application/json;x=y"]
        {
            assert!(is_kind(said, JSON), "{said}");
        }
        for said in ["", "text/plain", "application/json; charset=latin1", "application/jsonx"] {
            assert!(!is_kind(said, JSON), "{said}");
        }
    }
}
