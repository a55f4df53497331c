//! Logging in with a key, logging out, and the pages one sees without either.

use std::sync::Arc;

use askama::Template;
use axum::body::Body;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri, header};
use posthorn_access::Denied;
use posthorn_domain::{Home, Opener, Scope};
use posthorn_engine::{Acting, NewSession, Principal};
use posthorn_listener::Peer;
use url::form_urlencoded;

use crate::cookie::{self, Kept};
use crate::form::Fields;
use crate::frame::{Frame, Place};
use crate::trouble::Trouble;
use crate::visit::{Visit, page, see};
use crate::{Console, assets, gate, words};

/// A key is short; a form with one is as well.
const LOGIN_BYTES_MAX: usize = 16 << 10;

#[derive(Template)]
#[template(path = "login.html")]
struct LoginPage<'p> {
    next: &'p str,
    wrong: Option<String>,
    theme: Option<&'static str>,
}

impl LoginPage<'_> {
    fn asset(&self, name: &str) -> &'static str {
        assets::url(name)
    }
}

#[derive(Template)]
#[template(path = "trouble.html")]
struct TroublePage {
    frame: Frame,
    text: String,
}

#[derive(Template)]
#[template(path = "outside.html")]
struct OutsidePage<'p> {
    title: &'p str,
    text: String,
    theme: Option<&'static str>,
}

impl OutsidePage<'_> {
    fn asset(&self, name: &str) -> &'static str {
        assets::url(name)
    }
}

/// Where somebody logs in who wanted to be elsewhere.
pub(crate) fn path_for(uri: &Uri) -> String {
    let wanted = uri.path_and_query().map_or("/console/", |path| path.as_str());
    let next: String = form_urlencoded::byte_serialize(wanted.as_bytes()).collect();
    format!("/console/login?next={next}")
}

/// Where to go after the login: a page of ours, or the first.
fn next_of(fields: &Fields) -> &str {
    let wanted = fields.get("next").unwrap_or("/console/");
    let own = wanted.starts_with("/console/") && !wanted.contains(['\\', '\r', '\n']);
    if own && !wanted.starts_with("/console/log") { wanted } else { "/console/" }
}

/// `GET /console/login`.
pub(crate) async fn show(_: Arc<Console>, request: Request<Body>) -> Response {
    let fields = Fields::parse(request.uri().query().unwrap_or_default().as_bytes());
    form(request.headers(), StatusCode::OK, next_of(&fields), None)
}

fn form(headers: &HeaderMap, status: StatusCode, next: &str, wrong: Option<String>) -> Response {
    let login = LoginPage { next, wrong, theme: cookie::theme(headers) };
    match login.render() {
        Ok(html) => page(headers, status, html),
        Err(e) => page(headers, StatusCode::INTERNAL_SERVER_ERROR, e.to_string()),
    }
}

/// `POST /console/login`.
pub(crate) async fn check(console: Arc<Console>, request: Request<Body>) -> Response {
    let (parts, body) = request.into_parts();
    let headers = &parts.headers;
    let refuse = |status, next: &str, why: String| form(headers, status, next, Some(why));
    let Ok(bytes) = axum::body::to_bytes(body, LOGIN_BYTES_MAX).await else {
        let why = "That is too long for a key.".to_owned();
        return refuse(StatusCode::PAYLOAD_TOO_LARGE, "/console/", why);
    };
    let fields = Fields::parse(&bytes);
    let next = next_of(&fields);
    if !gate::is_from_here(headers) {
        let why = "This form came from another site. Please log in here.".to_owned();
        return refuse(StatusCode::FORBIDDEN, next, why);
    }
    let peer = parts.extensions.get::<Peer>();
    let Some(principal) = fields.get("key").and_then(|key| console.callers.key(key)) else {
        return match console.callers.unknown(peer) {
            Denied::TooManyFailures(wait) => {
                let wait = words::span(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
                let why =
                    format!("Too many wrong keys came from your address. Try again in {wait}.");
                refuse(StatusCode::TOO_MANY_REQUESTS, next, why)
            }
            _ => {
                let why = "No valid key. It may be mistyped, expired or revoked.".to_owned();
                refuse(StatusCode::UNAUTHORIZED, next, why)
            }
        };
    };
    if !principal.key.allows(Scope::Read) {
        let why = "This key may not read. The console needs one with the scope read.".to_owned();
        return refuse(StatusCode::FORBIDDEN, next, why);
    }
    match open(&console, &principal, peer).await {
        Ok(cookie) => {
            let mut response = see(next);
            response.headers_mut().append(header::SET_COOKIE, cookie);
            response
        }
        Err(trouble) => refuse(trouble.status(), next, trouble.text()),
    }
}

async fn open(
    console: &Console,
    principal: &Principal,
    peer: Option<&Peer>,
) -> Result<HeaderValue, Trouble> {
    let key = &principal.key;
    let home = match (key.tenant, &key.realm) {
        (Some(tenant), _) => Home::Tenant(tenant),
        (None, Some(realm)) => Home::Realm(realm.clone()),
        (None, None) => Home::Operator,
    };
    let name = match key.description.is_empty() {
        true => key.id.to_string(),
        false => key.description.chars().take(60).collect(),
    };
    let new = NewSession {
        opener: Opener::Key { id: key.id },
        name,
        home,
        scopes: key.scopes.clone(),
        lasts: console.options.session_time,
    };
    let by = Acting::principal(principal, "console", peer.map(Peer::address));
    let (_, token) = console.engine.acting(by).open_session(new).await?;
    let kept = Kept::Seconds(console.options.session_time.as_secs());
    let token = String::from_utf8_lossy(token.expose());
    Ok(cookie::write(cookie::SESSION, &token, &kept, is_secure(console, peer)))
}

fn is_secure(console: &Console, peer: Option<&Peer>) -> bool {
    let public = console.options.public_url.as_deref();
    peer.is_some_and(Peer::is_tls) || public.is_some_and(|url| url.starts_with("https://"))
}

/// `POST /console/logout`. Ends the session for all tabs, on every node; without one there is nothing to end.
pub(crate) async fn leave(console: Arc<Console>, request: Request<Body>) -> Response {
    let headers = request.headers();
    if gate::is_from_here(headers)
        && let Some(token) = cookie::read(headers, cookie::SESSION)
        && let Ok(Some(session)) = console.engine.authenticate_session(&token).await
    {
        let (id, home) = (session.id.to_string(), session.home.clone());
        let address = request.extensions().get::<Peer>().map(Peer::address);
        let by = Acting::session(&id, &session.name, home, "console", address);
        if let Err(e) = console.engine.acting(by).end_session(session.id).await {
            return trouble_page_of(headers, request.uri(), &e.into());
        }
    }
    let secure = is_secure(&console, request.extensions().get());
    let mut response = see("/console/login");
    let gone = cookie::write(cookie::SESSION, "", &Kept::Gone, secure);
    response.headers_mut().append(header::SET_COOKIE, gone);
    response
}

/// A page that says what is wrong, within the frame.
pub(crate) async fn trouble_page(
    visit: Option<&Visit>,
    headers: &HeaderMap,
    trouble: &Trouble,
) -> Response {
    let Some(visit) = visit.filter(|_| !matches!(trouble, Trouble::Away)) else {
        return outside(headers, trouble);
    };
    let frame = Frame::new(visit, Place::Overview, trouble.title()).await;
    let html = TroublePage { frame, text: trouble.text() }.render();
    page(headers, trouble.status(), html.unwrap_or_else(|e| e.to_string()))
}

/// The same for somebody who is not known, or when there is nothing to fill the frame with.
pub(crate) fn trouble_page_of(headers: &HeaderMap, uri: &Uri, trouble: &Trouble) -> Response {
    match trouble {
        Trouble::LoggedOut => see(&path_for(uri)),
        trouble => outside(headers, trouble),
    }
}

fn outside(headers: &HeaderMap, trouble: &Trouble) -> Response {
    let html =
        OutsidePage { title: trouble.title(), text: trouble.text(), theme: cookie::theme(headers) };
    let html = html.render().unwrap_or_else(|e| e.to_string());
    let mut response = page(headers, trouble.status(), html);
    if matches!(trouble, Trouble::Away) {
        response.headers_mut().insert("refresh", HeaderValue::from_static("5"));
    }
    response
}
