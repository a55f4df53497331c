//! Before a page of the portal: is somebody in, do they ask too often, is the form ours, does their link allow it.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequestParts as _, RawPathParams};
use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header};
use posthorn_domain::{Capability, Session, SessionKind};
use posthorn_listener::Peer;

use super::entrance::{self, Outside};
use super::guest::Guest;
use super::{PageRoute, Portal};
use crate::form::{self, Fields};
use crate::gate::is_from_here;
use crate::trouble::Trouble;
use crate::visit::{Arrival, Visit};
use crate::{cookie, words};

/// The session of the portal.
pub(crate) const SESSION: &str = "posthorn-portal";

/// What no page may do, told to the browser as well. Pictures may come from sites that have the portal in a frame.
pub(crate) fn policy(ancestors: &[String]) -> String {
    let sites = ancestors.join(" ");
    let framing = if ancestors.is_empty() { "'none'" } else { &sites };
    format!(
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; worker-src 'self'; \
         img-src 'self' data: {sites}; font-src 'self'; form-action 'self'; base-uri 'none'; \
         frame-ancestors {framing}"
    )
}

/// Puts the heads on every answer that keep it where it belongs.
pub(crate) async fn harden(portal: Arc<Portal>, mut response: Response) -> Response {
    let headers = response.headers_mut();
    if !headers.contains_key(header::CONTENT_SECURITY_POLICY) {
        headers.insert(header::CONTENT_SECURITY_POLICY, portal.policy.clone());
    }
    let mut put = |name: &'static str, value: &'static str| {
        headers.entry(HeaderName::from_static(name)).or_insert(HeaderValue::from_static(value));
    };
    put("x-content-type-options", "nosniff");
    // The older word for it knows no list.
    if portal.options.frame_ancestors.is_empty() {
        put("x-frame-options", "DENY");
    }
    put("referrer-policy", "same-origin");
    put("cross-origin-opener-policy", "same-origin");
    put("cache-control", "no-store");
    response
}

/// Who arrives with this cookie, and the token of it.
pub(crate) async fn session_of(
    portal: &Portal,
    headers: &HeaderMap,
) -> Result<(Arc<Session>, String), Trouble> {
    let token = cookie::read(headers, SESSION).ok_or(Trouble::LoggedOut)?;
    let session = portal.console.engine.authenticate_session(&token).await?;
    let session = session.filter(|session| session.kind == SessionKind::Portal);
    Ok((session.ok_or(Trouble::LoggedOut)?, token))
}

async fn arrive(
    portal: &Arc<Portal>,
    headers: &HeaderMap,
    uri: Uri,
    peer: Option<Peer>,
) -> Result<Arrival, Trouble> {
    let (session, token) = session_of(portal, headers).await?;
    let engine = &portal.console.engine;
    if let Err(wait) = portal.console.pace.take(session.id, engine.admission().nanos()) {
        crate::metrics::limited();
        return Err(Trouble::TooFast(wait));
    }
    let principal = engine.principal_of(&session).ok_or(Trouble::LoggedOut)?;
    Ok(Arrival {
        session,
        principal,
        token,
        headers: headers.clone(),
        uri,
        peer,
        form: Fields::default(),
        named: Vec::new(),
        surface: "portal",
    })
}

/// Every path that is no page.
pub(crate) async fn lost(portal: Arc<Portal>, request: Request<Body>) -> Response {
    let (parts, _) = request.into_parts();
    match arrive(&portal, &parts.headers, parts.uri, None)
        .await
        .and_then(|arrival| enter(&portal, arrival))
    {
        Ok(guest) => guest.trouble(&Trouble::NotFound("page")).await,
        Err(trouble) => refuse(&portal, &parts.headers, &trouble),
    }
}

fn enter(portal: &Arc<Portal>, arrival: Arrival) -> Result<Guest, Trouble> {
    let tenant = arrival.session.tenant().ok_or(Trouble::LoggedOut)?;
    let visit = Visit::new(Arc::clone(&portal.console), arrival).about(&tenant.to_string())?;
    Ok(Guest::new(Arc::clone(portal), visit))
}

/// A page for somebody who is not in, or asks too often.
fn refuse(portal: &Arc<Portal>, headers: &HeaderMap, trouble: &Trouble) -> Response {
    let outside = Outside::new(portal, headers);
    let t = outside.t;
    match trouble {
        Trouble::LoggedOut => {
            outside.page(StatusCode::UNAUTHORIZED, t.ended_title, t.ended_text.to_owned())
        }
        Trouble::TooFast(wait) => {
            let shown = words::span(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
            let text = t.too_often_text.replace("{}", &shown);
            let mut page = outside.page(StatusCode::TOO_MANY_REQUESTS, t.too_often_title, text);
            page.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds(*wait)));
            page
        }
        Trouble::Away | Trouble::AwayChanging => {
            outside.page(trouble.status(), t.away_title, t.away_text.to_owned())
        }
        trouble => outside.page(trouble.status(), t.fault_title, t.fault_text.to_owned()),
    }
}

fn seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

/// Lets a visitor through to a page, or says why not.
pub(crate) async fn pass(
    portal: Arc<Portal>,
    route: &'static PageRoute,
    request: Request<Body>,
) -> Response {
    let looks = route.method == Method::GET;
    let mut response = answer(portal, route, request).await;
    // It comes back by itself; a form that was not sent is not sent again for anybody.
    if looks && response.status() == StatusCode::SERVICE_UNAVAILABLE {
        response.headers_mut().insert("refresh", HeaderValue::from_static("5"));
    }
    response
}

async fn answer(
    portal: Arc<Portal>,
    route: &'static PageRoute,
    request: Request<Body>,
) -> Response {
    let (mut parts, body) = request.into_parts();
    let headers = parts.headers.clone();
    let peer = parts.extensions.get::<Peer>().cloned();
    let mut arrival = match arrive(&portal, &headers, parts.uri.clone(), peer).await {
        Ok(arrival) => arrival,
        Err(trouble) => return refuse(&portal, &headers, &trouble),
    };
    if let Ok(params) = RawPathParams::from_request_parts(&mut parts, &()).await {
        arrival.named.extend(params.iter().map(|(_, value)| value.to_owned()));
    }
    let mut too_large = false;
    if route.method != Method::GET {
        match axum::body::to_bytes(body, crate::FORM_BYTES_MAX).await {
            Ok(bytes) => arrival.form = Fields::parse(&bytes),
            Err(_) => too_large = true,
        }
    }
    let own = form::is_own(&arrival.token, arrival.form.typed(form::TOKEN_FIELD));
    let is_foreign = route.method != Method::GET && !(own && is_from_here(&headers));
    let guest = match enter(&portal, arrival) {
        Ok(guest) => Arc::new(guest),
        Err(trouble) => return refuse(&portal, &headers, &trouble),
    };
    let answer = match (too_large, is_foreign, guest.can(route.needs)) {
        (true, ..) => Err(Trouble::Fault("the form is too large".to_owned())),
        (_, true, _) => Err(Trouble::Foreign),
        (_, _, false) => Err(Trouble::Forbidden(needed(route.needs))),
        (false, false, true) => (route.handler)(Arc::clone(&guest)).await,
    };
    let mut response = match answer {
        Ok(response) => response,
        Err(trouble) => guest.trouble(&trouble).await,
    };
    // A language that was asked for in the address is kept.
    if let Some(cookie) = entrance::language_cookie(&guest) {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
    response
}

const fn needed(capability: Capability) -> &'static str {
    capability.as_str()
}
