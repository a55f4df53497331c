//! Before a page: is somebody logged in, is the form ours, may they do this.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{FromRequestParts as _, RawPathParams};
use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header};
use posthorn_domain::{Scope, SessionKind};
use posthorn_listener::Peer;

use crate::form::{self, Fields};
use crate::pages::{Needs, PageRoute};
use crate::trouble::Trouble;
use crate::visit::{Arrival, Visit, page, see};
use crate::{Console, assets, cookie, login};

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
    match arrive(&console, &parts.headers, parts.uri.clone(), None).await {
        Ok(arrival) => {
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

/// Who arrives with this cookie.
async fn arrive(
    console: &Console,
    headers: &HeaderMap,
    uri: Uri,
    peer: Option<Peer>,
) -> Result<Arrival, Trouble> {
    let token = cookie::read(headers, cookie::SESSION).ok_or(Trouble::LoggedOut)?;
    let session = console.engine.authenticate_session(&token).await?;
    let session = session.filter(|session| session.kind == SessionKind::Console);
    let session = session.ok_or(Trouble::LoggedOut)?;
    let principal = console.engine.principal_of(&session).ok_or(Trouble::LoggedOut)?;
    Ok(Arrival {
        session,
        principal,
        token,
        headers: headers.clone(),
        uri,
        peer,
        form: Fields::default(),
        named: Vec::new(),
    })
}

/// Lets a visitor through to a page, or says why not.
pub(crate) async fn pass(
    console: Arc<Console>,
    route: &'static PageRoute,
    request: Request<Body>,
) -> Response {
    let (mut parts, body) = request.into_parts();
    let (headers, uri) = (parts.headers.clone(), parts.uri.clone());
    let peer = parts.extensions.get::<Peer>().cloned();
    let mut arrival = match arrive(&console, &headers, uri.clone(), peer).await {
        Ok(arrival) => arrival,
        Err(Trouble::LoggedOut) if route.method == Method::GET => {
            return see(&login::path_for(&uri));
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
        Ok(visit) => {
            let visit = Arc::new(visit);
            match (route.handler)(Arc::clone(&visit)).await {
                Ok(response) => response,
                Err(trouble) => login::trouble_page(Some(&visit), &headers, &trouble).await,
            }
        }
        Err((Some(visit), trouble)) => login::trouble_page(Some(&visit), &headers, &trouble).await,
        Err((None, trouble)) => login::trouble_page_of(&headers, &uri, &trouble),
    }
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
