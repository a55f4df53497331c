//! The way in, by a link; the way out; and what is served to everybody: the page that redeems a link, pictures and the
//! style sheet of the brand.

use std::sync::Arc;

use askama::Template;
use axum::body::Body;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use posthorn_access::Denied;
use posthorn_domain::Session;
use posthorn_engine::{Acting, Error};
use posthorn_listener::Peer;

use super::frame::{Badge, back};
use super::gate::{SESSION, session_of};
use super::guest::Guest;
use super::look::{self, Look};
use super::texts::{Language, Texts};
use super::{Portal, brand};
use crate::form::{self, Fields};
use crate::gate::is_from_here;
use crate::pages::Answer;
use crate::trouble::Trouble;
use crate::visit::{page, see};
use crate::{assets, cookie, words};

/// Where the customer of this browser came from last.
const BACK: &str = "posthorn-portal-back";
/// What was chosen is kept for so long.
const LOOK_SECONDS: u64 = 365 * 86_400;
const BACK_SECONDS: u64 = 30 * 86_400;
/// A token is short; a form with one is as well.
const REDEEM_BYTES_MAX: usize = 16 << 10;

/// A page for somebody who is not in.
pub(crate) struct Outside<'r> {
    portal: &'r Portal,
    headers: &'r HeaderMap,
    look: Look,
    language: Language,
    pub(crate) t: &'static Texts,
    back: Option<String>,
}

#[derive(Template)]
#[template(path = "portal/outside.html")]
struct OutsidePage {
    t: &'static Texts,
    lang: &'static str,
    theme: Option<&'static str>,
    base: String,
    badge: Badge,
    title: &'static str,
    text: String,
    back: Option<String>,
    /// Whether it is the page that redeems.
    entrance: bool,
}

impl OutsidePage {
    fn asset(&self, name: &str) -> String {
        assets::portal_url(&self.base, name)
    }
}

impl<'r> Outside<'r> {
    pub(crate) fn new(portal: &'r Portal, headers: &'r HeaderMap) -> Self {
        Self::asked(portal, headers, &Fields::default())
    }

    fn asked(portal: &'r Portal, headers: &'r HeaderMap, query: &Fields) -> Self {
        let look = Look::read(headers).with_query(query, &portal.options.frame_ancestors);
        let language = look.language.or_else(|| Language::accepted(headers));
        let language = language.unwrap_or(portal.options.language);
        let kept = cookie::read(headers, BACK).unwrap_or_default();
        let kept = Fields::parse(kept.as_bytes());
        let back = back(kept.get("to"), portal.options.return_url.as_deref());
        Self { portal, headers, look, language, t: language.texts(), back }
    }

    pub(crate) fn page(self, status: StatusCode, title: &'static str, text: String) -> Response {
        self.render(status, title, text, false)
    }

    fn render(
        self,
        status: StatusCode,
        title: &'static str,
        text: String,
        entrance: bool,
    ) -> Response {
        let html = OutsidePage {
            t: self.t,
            lang: self.language.code(),
            theme: self.look.theme,
            base: self.portal.base.clone(),
            badge: Badge::of(self.portal, &self.look),
            back: self.back,
            title,
            text,
            entrance,
        };
        page(self.headers, status, html.render().unwrap_or_else(|_| title.to_owned()))
    }
}

/// `GET /portal`: redeems the token behind `#`, which only the browser knows.
pub(crate) async fn show(portal: Arc<Portal>, request: Request<Body>) -> Response {
    let query = Fields::parse(request.uri().query().unwrap_or_default().as_bytes());
    let outside = Outside::asked(&portal, request.headers(), &query);
    let t = outside.t;
    outside.render(StatusCode::OK, t.entering_title, t.scripts_needed.to_owned(), true)
}

/// How cookies of one browser are sent: within a page of others only where that was configured.
#[derive(Clone, Copy)]
struct Sent {
    framed: bool,
    secure: bool,
}

impl Sent {
    fn of(portal: &Portal, headers: &HeaderMap, peer: Option<&Peer>, framed: bool) -> Self {
        let inside = headers.get("sec-fetch-dest").and_then(|value| value.to_str().ok());
        let inside = matches!(inside, Some("iframe" | "frame" | "embed" | "object"));
        let public = portal.options.public_url.as_deref();
        Self {
            framed: (inside || framed) && !portal.options.frame_ancestors.is_empty(),
            secure: peer.is_some_and(Peer::is_tls)
                || public.is_some_and(|url| url.starts_with("https://")),
        }
    }

    /// A cookie that scripts cannot read.
    fn cookie(self, portal: &Portal, name: &str, value: &str, seconds: u64) -> HeaderValue {
        let kind = match (self.framed, self.secure) {
            (true, _) => "SameSite=None; Secure; Partitioned",
            (false, true) => "SameSite=Lax; Secure",
            (false, false) => "SameSite=Lax",
        };
        let base = &portal.base;
        let text = format!("{name}={value}; Path={base}; HttpOnly; {kind}; Max-Age={seconds}");
        HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""))
    }
}

/// `POST /portal/redeem`.
pub(crate) async fn redeem(portal: Arc<Portal>, request: Request<Body>) -> Response {
    let (parts, body) = request.into_parts();
    let headers = &parts.headers;
    let peer = parts.extensions.get::<Peer>();
    let read = axum::body::to_bytes(body, REDEEM_BYTES_MAX).await.unwrap_or_default();
    let fields = Fields::parse(&read);
    let asked = Fields::parse(fields.typed("look").as_bytes());
    let outside = Outside::asked(&portal, headers, &asked);
    let t = outside.t;
    if !is_from_here(headers) {
        return outside.page(StatusCode::FORBIDDEN, t.foreign_title, t.foreign_text.to_owned());
    }
    let token = fields.get("token").unwrap_or_default();
    let engine = &portal.console.engine;
    let visitor = engine.acting(Acting::visitor("portal", peer.map(Peer::address)));
    let (session, secret) = match visitor.redeem_portal_link(token).await {
        Ok(redeemed) => redeemed,
        Err(Error::NotFound(_)) => return not_redeemed(&portal, outside, token, peer).await,
        Err(error) => {
            let trouble = Trouble::from(error);
            return outside.page(trouble.status(), t.away_title, t.away_text.to_owned());
        }
    };
    // Whoever was in before cannot come back: their cookie is replaced.
    if let Ok((before, _)) = session_of(&portal, headers).await {
        let by = acting(&before, peer);
        drop(engine.acting(by).end_session(before.id).await);
    }
    let sent = Sent::of(&portal, headers, peer, fields.is_checked("framed"));
    let lasts = session.expires_at.as_millis() - engine.now().as_millis();
    let seconds = u64::try_from(lasts / 1_000).unwrap_or(0).max(1);
    let secret = String::from_utf8_lossy(secret.expose()).into_owned();
    let mut response = see(&format!("{}/", portal.base));
    let mut keep = |name: &str, value: &str, seconds: u64| {
        let cookie = sent.cookie(&portal, name, value, seconds);
        response.headers_mut().append(header::SET_COOKIE, cookie);
    };
    keep(SESSION, &secret, seconds);
    if let Some(url) = back(session.back.as_deref(), None) {
        let mut text = url::form_urlencoded::Serializer::new(String::new());
        text.append_pair("to", &url);
        keep(BACK, &text.finish(), BACK_SECONDS);
    }
    if outside.look != Look::default() {
        keep(look::COOKIE, &outside.look.to_text(), LOOK_SECONDS);
    }
    response
}

/// A link that nobody knows any more, or that never was one.
async fn not_redeemed(
    portal: &Portal,
    mut outside: Outside<'_>,
    token: &str,
    peer: Option<&Peer>,
) -> Response {
    let t = outside.t;
    if let Denied::TooManyFailures(wait) = portal.console.callers.unknown(peer) {
        let wait = words::span(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        let text = t.too_often_text.replace("{}", &wait);
        return outside.page(StatusCode::TOO_MANY_REQUESTS, t.too_often_title, text);
    }
    // Whoever has the token may know where it is from.
    if let Ok(Some(url)) = portal.console.engine.portal_link_back(token).await {
        outside.back = back(Some(&url), None).or(outside.back);
    }
    outside.page(StatusCode::GONE, t.link_over_title, t.link_over_text.to_owned())
}

fn acting(session: &Session, peer: Option<&Peer>) -> Acting {
    let (id, home) = (session.id.to_string(), session.home.clone());
    Acting::session(&id, &session.name, home, "portal", peer.map(Peer::address))
}

/// `POST /portal/logout`. Ends the session for all tabs, on every node; without one there is nothing to end.
pub(crate) async fn leave(portal: Arc<Portal>, request: Request<Body>) -> Response {
    let (parts, body) = request.into_parts();
    let (headers, peer) = (&parts.headers, parts.extensions.get::<Peer>());
    let read = axum::body::to_bytes(body, REDEEM_BYTES_MAX).await.unwrap_or_default();
    let fields = Fields::parse(&read);
    if let Ok((session, token)) = session_of(&portal, headers).await {
        let own = form::is_own(&token, fields.typed(form::TOKEN_FIELD));
        let outside = Outside::new(&portal, headers);
        let t = outside.t;
        if !own || !is_from_here(headers) {
            return outside.page(StatusCode::FORBIDDEN, t.foreign_title, t.foreign_text.to_owned());
        }
        let ended =
            portal.console.engine.acting(acting(&session, peer)).end_session(session.id).await;
        match ended {
            Ok(()) | Err(Error::NotFound(_)) => {}
            Err(_) => {
                let status = StatusCode::SERVICE_UNAVAILABLE;
                return outside.page(status, t.away_title, t.away_text.to_owned());
            }
        }
    }
    let sent = Sent::of(&portal, headers, peer, false);
    let mut response = see(&format!("{}/left", portal.base));
    let gone = sent.cookie(&portal, SESSION, "", 0);
    response.headers_mut().append(header::SET_COOKIE, gone);
    response
}

/// `GET /portal/left`.
pub(crate) async fn left(portal: Arc<Portal>, request: Request<Body>) -> Response {
    let outside = Outside::new(&portal, request.headers());
    let t = outside.t;
    outside.page(StatusCode::OK, t.left_title, t.left_text.to_owned())
}

/// `GET /portal/brand/{name}`.
pub(crate) async fn picture(portal: Arc<Portal>, request: Request<Body>) -> Response {
    let name = request.uri().path().rsplit('/').next().unwrap_or_default();
    match portal.picture(name) {
        Some(picture) => picture.serve(),
        None => page(request.headers(), StatusCode::NOT_FOUND, "no such picture".to_owned()),
    }
}

/// `GET /portal/look.css`: variables only, made of checked values.
pub(crate) async fn sheet(_: Arc<Portal>, request: Request<Body>) -> Response {
    let query = Fields::parse(request.uri().query().unwrap_or_default().as_bytes());
    let accent = query.get("accent").and_then(|text| text.parse().ok());
    let font = query.get("font").filter(|font| brand::is_font(font));
    let mut response = Response::new(Body::from(brand::sheet(accent, font)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/css; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("public, max-age=86400"));
    response
}

/// `POST /portal/look`: theme and language, kept in a cookie.
pub(crate) async fn choose(guest: Arc<Guest>) -> Answer {
    let look = guest.look.clone().with_choice(&guest.form);
    let wanted = guest.form.get("here").unwrap_or_default();
    let own = wanted.starts_with(&format!("{}/", guest.portal.base))
        && !wanted.contains(['\\', '\r', '\n']);
    let mut response = see(if own { wanted } else { &guest.portal.base });
    response.headers_mut().append(header::SET_COOKIE, look_cookie(&guest, &look));
    Ok(response)
}

fn look_cookie(guest: &Guest, look: &Look) -> HeaderValue {
    let sent = Sent::of(&guest.portal, &guest.headers, guest.peer(), false);
    sent.cookie(&guest.portal, look::COOKIE, &look.to_text(), LOOK_SECONDS)
}

/// The cookie for a language that the address asks for.
pub(crate) fn language_cookie(guest: &Guest) -> Option<HeaderValue> {
    let asked = guest.query.get("lang").and_then(Language::named)?;
    let look = Look { language: Some(asked), ..guest.look.clone() };
    (look != guest.look).then(|| look_cookie(guest, &look))
}
