//! Before a page: is somebody logged in, is the form ours, may they do this.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequestParts as _, RawPathParams};
use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header};
use posthorn_domain::Scope;
use posthorn_listener::Peer;
use tokio::time::Instant;

use crate::form::{self, Fields};
use crate::pages::{Needs, PageRoute, ROUTES};
use crate::trouble::Trouble;
use crate::visit::{Arrival, Visit, page, see};
use crate::{Console, assets, entry, login};

/// What no page may do, told to the browser as well.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
    img-src 'self' data:; font-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Puts the heads on every answer that keep it where it belongs.
pub(crate) async fn harden(mut response: Response) -> Response {
    let headers = response.headers_mut();
    let mut put = |name: &'static str, value: &'static str| {
        headers.entry(HeaderName::from_static(name)).or_insert(HeaderValue::from_static(value));
    };
    put("content-security-policy", POLICY);
    put("x-content-type-options", "nosniff");
    put("x-frame-options", "DENY");
    put("referrer-policy", "same-origin");
    put("cross-origin-opener-policy", "same-origin");
    put("cache-control", "no-store");
    response
}

/// Files that pages load.
pub(crate) async fn asset(uri: Uri, headers: HeaderMap) -> Response {
    let found = assets::serve(uri.path(), &headers);
    found.unwrap_or_else(|| page(&headers, StatusCode::NOT_FOUND, "no such file".to_owned()))
}

/// Every path that is no page.
pub(crate) async fn lost(console: Arc<Console>, request: Request<Body>) -> Response {
    let (parts, _) = request.into_parts();
    let peer = parts.extensions.get::<Peer>().cloned();
    match arrive(&console, &parts.headers, parts.uri.clone(), peer, false).await {
        Ok((arrival, _)) => {
            let visit = Visit::new(console, arrival);
            login::trouble_page(Some(&visit), &parts.headers, &Trouble::NotFound("page")).await
        }
        Err(trouble) => login::trouble_page_of(&parts.headers, &parts.uri, &trouble),
    }
}

/// Whether a form was sent from a page of ours, as far as the browser says where it was sent from.
pub(crate) fn is_from_here(headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(site) = text("sec-fetch-site") {
        return site == "same-origin";
    }
    let host = headers.get(header::HOST).and_then(|value| value.to_str().ok());
    let origin = headers.get(header::ORIGIN).and_then(|value| value.to_str().ok());
    let origin = origin.and_then(|origin| origin.split_once("://")).map(|(_, host)| host);
    host.is_some() && origin.is_some_and(|origin| Some(origin) == host)
}

/// Who arrives, and the cookie they get if their session is new.
async fn arrive(
    console: &Console,
    headers: &HeaderMap,
    uri: Uri,
    peer: Option<Peer>,
    opens: bool,
) -> Result<(Arrival, Option<HeaderValue>), Trouble> {
    let entered = entry::arrive(console, headers, peer.as_ref(), opens).await?;
    let arrival = Arrival {
        session: entered.session,
        principal: entered.principal,
        token: entered.token,
        headers: headers.clone(),
        uri,
        peer,
        form: Fields::default(),
        named: Vec::new(),
        surface: "console",
    };
    Ok((arrival, entered.cookie))
}

/// The page that a form was on, as far as the browser says: where it was sent to is no page.
pub(crate) fn page_of_form(headers: &HeaderMap) -> &str {
    let text = |name| headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
    let here = || {
        let (_, rest) = text(header::REFERER)?.split_once("://")?;
        let (host, _) = rest.split_once('/')?;
        (Some(host) == text(header::HOST)).then(|| &rest[host.len()..])
    };
    here().filter(|path| is_page(path)).unwrap_or("/console/")
}

/// Whether there is a page at a path: what is only posted to shows nothing when it is looked at.
fn is_page(path: &str) -> bool {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let leads_there = |route: &str| {
        let same = route.split('/').zip(path.split('/')).all(|(own, shown)| {
            own == shown || (own.starts_with('{') && !shown.is_empty() && shown != "..")
        });
        same && route.split('/').count() == path.split('/').count()
    };
    ROUTES.iter().any(|route| route.method == Method::GET && leads_there(route.path))
}

/// Back to the page of a form that was not sent, which says so.
fn unsent(headers: &HeaderMap) -> String {
    let (path, query) = match page_of_form(headers).split_once('?') {
        Some((path, query)) => (path, query),
        None => (page_of_form(headers), ""),
    };
    let query = Fields::parse(query.as_bytes()).with("done", login::UNSENT);
    format!("{path}?{query}")
}

/// Lets a visitor through to a page, or says why not.
pub(crate) async fn pass(
    console: Arc<Console>,
    route: &'static PageRoute,
    request: Request<Body>,
) -> Response {
    let headers = request.headers().clone();
    let looks = route.method == Method::GET;
    let mut cookie = None;
    let mut response = answer(console, route, request, &mut cookie).await;
    if let Some(cookie) = cookie {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    // A browser that looks again asks for the page, not for the change.
    if !looks && response.headers().contains_key("refresh") {
        return login::away_changing(&headers, page_of_form(&headers));
    }
    response
}

async fn answer(
    console: Arc<Console>,
    route: &'static PageRoute,
    request: Request<Body>,
    cookie: &mut Option<HeaderValue>,
) -> Response {
    let (mut parts, body) = request.into_parts();
    let (headers, uri) = (parts.headers.clone(), parts.uri.clone());
    let peer = parts.extensions.get::<Peer>().cloned();
    let looks = route.method == Method::GET;
    let mut arrival = match arrive(&console, &headers, uri.clone(), peer.clone(), looks).await {
        Ok((arrival, new)) => {
            *cookie = new;
            arrival
        }
        Err(Trouble::LoggedOut) if looks => return see(&login::path_for(&uri)),
        Err(Trouble::LoggedOut) => {
            // Whom a proxy vouches for has no login to go through.
            let next = unsent(&headers);
            let vouched = entry::told(&console, &headers, peer.as_ref()).is_some();
            return see(&if vouched { next } else { login::path_to(&next) });
        }
        Err(trouble) => return login::trouble_page_of(&headers, &uri, &trouble),
    };
    let mut tenant = None;
    if let Ok(params) = RawPathParams::from_request_parts(&mut parts, &()).await {
        for (name, value) in &params {
            match name {
                "tenant" => tenant = Some(value.to_owned()),
                _ => arrival.named.push(value.to_owned()),
            }
        }
    }
    if route.method != Method::GET {
        let read = axum::body::to_bytes(body, crate::FORM_BYTES_MAX).await;
        let Ok(bytes) = read else {
            let visit = Visit::new(console, arrival);
            let trouble = Trouble::Fault("the form is too large".to_owned());
            return login::trouble_page(Some(&visit), &headers, &trouble).await;
        };
        arrival.form = Fields::parse(&bytes);
    }
    let own = form::is_own(&arrival.token, arrival.form.typed(form::TOKEN_FIELD));
    let is_foreign = route.method != Method::GET && !(own && is_from_here(&headers));
    let visit = Visit::new(Arc::clone(&console), arrival);
    let answer = match (is_foreign, check(&visit, route.needs)) {
        (true, _) => Err((Some(visit), Trouble::Foreign)),
        (false, Err(trouble)) => Err((Some(visit), trouble)),
        (false, Ok(())) => match tenant {
            None => Ok(visit),
            Some(text) => visit.about(&text).map_err(|trouble| (None, trouble)),
        },
    };
    match answer {
        Ok(mut visit) => {
            // Before anything is read for the page: what happens from now on is told by its stream.
            if looks
                && !route.path.ends_with("/live")
                && (route.path == "/console/" || visit.tenant().is_ok())
            {
                visit.mark = crate::live::mark(&visit).await;
            }
            let visit = Arc::new(visit);
            let began = Instant::now();
            match (route.handler)(Arc::clone(&visit)).await {
                Ok(response) => {
                    // A stream has only begun.
                    if looks && !is_stream(&response) {
                        console.streams.page_took(began.elapsed());
                    }
                    response
                }
                Err(trouble) => login::trouble_page(Some(&visit), &headers, &trouble).await,
            }
        }
        Err((Some(visit), trouble)) => login::trouble_page(Some(&visit), &headers, &trouble).await,
        Err((None, trouble)) => login::trouble_page_of(&headers, &uri, &trouble),
    }
}

fn is_stream(response: &Response) -> bool {
    response.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == "text/event-stream")
}

/// What the API refuses anyway is refused here before anything is read; and where a page shows what no route of the API
/// does, this is the only check.
fn check(visit: &Visit, needs: Needs) -> Result<(), Trouble> {
    match needs {
        Needs::Read if visit.allows(Scope::Read) => Ok(()),
        Needs::Read => Err(Trouble::Forbidden("it needs the scope `read`")),
        Needs::Manage if visit.allows(Scope::Manage) => Ok(()),
        Needs::Manage => Err(Trouble::Forbidden("it needs the scope `manage`")),
        Needs::Publish if visit.allows(Scope::Publish) => Ok(()),
        Needs::Publish => Err(Trouble::Forbidden("it needs the scope `publish`")),
        Needs::Operator if visit.is_operator() => Ok(()),
        Needs::Operator => Err(Trouble::Forbidden("it is for operators")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_back_is_a_page() {
        let from = |referer: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, HeaderValue::from_static("console.test:8080"));
            headers.insert(header::REFERER, HeaderValue::from_str(referer).unwrap());
            unsent(&headers)
        };
        let cases = [
            ("https://console.test:8080/console/", "/console/?done=unsent"),
            ("http://console.test:8080/console/keys/new", "/console/keys/new?done=unsent"),
            (
                "http://console.test:8080/console/t/acme/deliveries/dlv_1?done=retried&a=1%262",
                "/console/t/acme/deliveries/dlv_1?a=1%262&done=unsent",
            ),
            (
                "http://console.test:8080/console/t/acme/deliveries/dlv_1/retry",
                "/console/?done=unsent",
            ),
            ("http://console.test:8080/console/t/../keys", "/console/?done=unsent"),
            ("http://console.test:8080/v1/events", "/console/?done=unsent"),
            ("http://evil.test/console/keys/new", "/console/?done=unsent"),
            ("http://console.test:8080@evil.test/console/keys/new", "/console/?done=unsent"),
            ("nonsense", "/console/?done=unsent"),
        ];
        for (referer, wanted) in cases {
            assert_eq!(from(referer), wanted, "{referer}");
        }
        assert_eq!(unsent(&HeaderMap::new()), "/console/?done=unsent");
    }
}
