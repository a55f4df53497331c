//! What the listener itself says no to, before any route is asked.
//!
//! The answers are problem documents with codes of their own, which the API's list of error codes
//! explains like all others.

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use http::{HeaderMap, StatusCode, Version, header};

use crate::metrics;

/// The code of a request that is not HTTP as it should be.
pub const MALFORMED_REQUEST: &str = "malformed_request";
/// The code of a connection for which there is no place.
pub const TOO_MANY_CONNECTIONS: &str = "too_many_connections";

/// Whether a head names one host, as it must; before HTTP/1.1 it may name none.
pub(crate) fn names_one_host(version: Version, headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    match (hosts.next(), hosts.next()) {
        (None, _) => version < Version::HTTP_11,
        (Some(_), Some(_)) => false,
        (Some(host), None) => is_host(host.as_bytes()),
    }
}

/// Whether it can be a host and a port. Empty is allowed where a URI has no host.
fn is_host(text: &[u8]) -> bool {
    text.iter().all(|byte| byte.is_ascii_graphic() && !b"/\\@?#,\"<>".contains(byte))
}

/// Refuses every request for this reason.
pub(crate) fn malformed(detail: &'static str) -> Router {
    Router::new().fallback(async move || {
        let title = "Malformed request";
        problem(StatusCode::BAD_REQUEST, MALFORMED_REQUEST, title, detail)
    })
}

/// Refuses every request that a reserve does not serve.
pub(crate) async fn crowded() -> Response {
    ::metrics::counter!(metrics::ADMISSION_REFUSED, "reason" => "connections").increment(1);
    let detail = "too many connections, in total or from this address";
    let status = StatusCode::SERVICE_UNAVAILABLE;
    problem(status, TOO_MANY_CONNECTIONS, "Too many connections", detail)
}

fn problem(status: StatusCode, code: &str, title: &str, detail: &str) -> Response {
    // The texts are our own, and need no escapes.
    let body = format!(
        "{{\"type\":\"urn:posthorn:error:{code}\",\"code\":\"{code}\",\"title\":\"{title}\",\
         \"status\":{},\"detail\":\"{detail}\"}}",
        status.as_u16()
    );
    let mut response = Response::builder()
        .status(status)
        .header(header::CONTENT_TYPE, "application/problem+json")
        .header(header::CONNECTION, "close");
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response = response.header(header::RETRY_AFTER, "1");
    }
    // Our own names and values are valid.
    response.body(Body::from(body)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_one_host() {
        let check = |version, hosts: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for host in hosts {
                headers.append(header::HOST, http::HeaderValue::from_static(host));
            }
            names_one_host(version, &headers)
        };
        assert!(check(Version::HTTP_11, &["api.test"]) && check(Version::HTTP_11, &["[::1]:80"]));
        assert!(check(Version::HTTP_10, &[]) && check(Version::HTTP_11, &[""]));
        assert!(!check(Version::HTTP_11, &[]) && !check(Version::HTTP_11, &["a", "a"]));
        assert!(!check(Version::HTTP_10, &["a", "b"]));
        for host in ["a b", "a/b", "a@b", "a,b", "a#b"] {
            assert!(!check(Version::HTTP_11, &[host]), "{host}");
        }
    }
}
