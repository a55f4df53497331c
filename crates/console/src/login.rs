//! Logging in with a key, logging out, and the pages one sees without either. Other ways in are in `oidc.rs` and `entry.rs`.

use std::net::IpAddr;
use std::sync::Arc;

use askama::Template;
use axum::body::Body;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri, header};
use posthorn_access::Denied;
use posthorn_domain::{Home, Opener, Scope};
use posthorn_engine::{Acting, Principal};
use posthorn_listener::Peer;
use url::form_urlencoded;

use crate::cookie::{self, Kept};
use crate::entry::{self, Entrant};
use crate::form::Fields;
use crate::frame::{Frame, Place};
use crate::metrics::{Outcome, Way, login as count};
use crate::trouble::Trouble;
use crate::visit::{Visit, page, see};
use crate::{Console, assets, gate, text, words};

/// A key is short; a form with one is as well.
const LOGIN_BYTES_MAX: usize = 16 << 10;

/// What a page says above itself when the form that was on it was not sent.
pub(crate) const UNSENT: &str = "unsent";

#[derive(Template)]
#[template(path = "login.html")]
struct LoginPage<'p> {
    next: &'p str,
    wrong: Option<String>,
    /// Something to say that is nobody's mistake.
    note: Option<&'static str>,
    /// The button of the provider, and where it leads.
    provider: Option<(&'p str, String)>,
    /// Whom a proxy in front has logged in.
    person: Option<String>,
    keys: bool,
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
    /// Where to try again, when that is the login.
    again: Option<&'p str>,
    theme: Option<&'static str>,
}

impl OutsidePage<'_> {
    fn asset(&self, name: &str) -> &'static str {
        assets::url(name)
    }
}

/// Where somebody logs in who wanted to be elsewhere.
pub(crate) fn path_for(uri: &Uri) -> String {
    path_to(uri.path_and_query().map_or("/console/", |path| path.as_str()))
}

/// The same for somebody who goes on to another page.
pub(crate) fn path_to(next: &str) -> String {
    let next: String = form_urlencoded::byte_serialize(next.as_bytes()).collect();
    format!("/console/login?next={next}")
}

/// Where to go after the login: a page of ours, or the first.
pub(crate) fn next_of(fields: &Fields) -> &str {
    let wanted = fields.get("next").unwrap_or("/console/");
    let strange = |c: char| c == '\\' || c.is_control();
    let own = wanted.starts_with("/console/") && !wanted.contains(strange);
    // Dots would lead out of the console again.
    let path = wanted.split(['?', '#']).next().unwrap_or_default().to_ascii_lowercase();
    let climbs = path.replace("%2e", ".").split('/').any(|part| part == "..");
    if own && !climbs && !path.starts_with("/console/log") { wanted } else { "/console/" }
}

/// `GET /console/login`.
pub(crate) async fn show(console: Arc<Console>, request: Request<Body>) -> Response {
    let fields = Fields::parse(request.uri().query().unwrap_or_default().as_bytes());
    let entrance = Entrance {
        console: &console,
        headers: request.headers(),
        peer: request.extensions().get::<Peer>(),
    };
    entrance.form(StatusCode::OK, next_of(&fields), None)
}

/// The page where people log in.
struct Entrance<'e> {
    console: &'e Console,
    headers: &'e HeaderMap,
    peer: Option<&'e Peer>,
}

impl Entrance<'_> {
    fn form(&self, status: StatusCode, next: &str, wrong: Option<String>) -> Response {
        let query = next.split_once('?').map(|(_, query)| Fields::parse(query.as_bytes()));
        let unsent = query.is_some_and(|query| query.get("done") == Some(UNSENT));
        let note = unsent.then_some(
            "Your session has ended, so the form was not sent. Log in: you come back to its page, and can send it again.",
        );
        let provider = self.console.provider.as_ref().map(|provider| {
            let place: String = form_urlencoded::byte_serialize(next.as_bytes()).collect();
            (provider.options.button.as_str(), format!("/console/login/oidc?next={place}"))
        });
        let person = entry::told(self.console, self.headers, self.peer);
        let login = LoginPage {
            next,
            wrong,
            note,
            provider,
            person: person.map(|(name, _)| text::line(&name, 100)),
            keys: self.console.options.key_login,
            theme: cookie::theme(self.headers),
        };
        match login.render() {
            Ok(html) => page(self.headers, status, html),
            Err(e) => page(self.headers, StatusCode::INTERNAL_SERVER_ERROR, e.to_string()),
        }
    }
}

/// `POST /console/login`.
pub(crate) async fn check(console: Arc<Console>, request: Request<Body>) -> Response {
    let (parts, body) = request.into_parts();
    let headers = &parts.headers;
    let peer = parts.extensions.get::<Peer>();
    let entrance = Entrance { console: &console, headers, peer };
    let refuse = |status, next: &str, why: String| entrance.form(status, next, Some(why));
    if !console.options.key_login {
        let why = "Keys do not open this console. Log in in another way.".to_owned();
        return refuse(StatusCode::FORBIDDEN, "/console/", why);
    }
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
    let Some(principal) = fields.get("key").and_then(|key| console.callers.key(key)) else {
        count(Way::Key, Outcome::Refused);
        return match console.callers.unknown(peer) {
            Denied::TooManyFailures(wait) => {
                let until = words::span(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
                let why =
                    format!("Too many wrong keys came from your address. Try again in {until}.");
                let mut response = refuse(StatusCode::TOO_MANY_REQUESTS, next, why);
                entry::retry_after(&mut response, wait);
                response
            }
            _ => {
                let why = "No valid key. It may be mistyped, expired or revoked.".to_owned();
                refuse(StatusCode::UNAUTHORIZED, next, why)
            }
        };
    };
    if !principal.key.allows(Scope::Read) {
        count(Way::Key, Outcome::NoRights);
        let why = "This key may not read. The console needs one with the scope read.".to_owned();
        return refuse(StatusCode::FORBIDDEN, next, why);
    }
    match open(&console, &principal, peer).await {
        Ok(cookie) => {
            count(Way::Key, Outcome::Opened);
            let mut response = see(next);
            response.headers_mut().append(header::SET_COOKIE, cookie);
            response
        }
        Err(trouble) => {
            count(Way::Key, Outcome::Failed);
            let why = match trouble {
                Trouble::Away => {
                    "The store does not answer, so nobody can be logged in. Try again in a moment."
                        .to_owned()
                }
                ref trouble => trouble.text(),
            };
            refuse(trouble.status(), next, why)
        }
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
    let (opener, scopes) = (Opener::Key { id: key.id }, key.scopes.clone());
    let entrant = Entrant { opener, name: &name, home, scopes, groups: Vec::new() };
    let by = Acting::principal(principal, "console", peer.map(Peer::address));
    let (_, cookie) = entry::open(console, entrant, by, peer).await?;
    Ok(cookie)
}

/// Whether cookies are only for TLS.
pub(crate) fn is_secure(console: &Console, peer: Option<&Peer>) -> bool {
    let public = console.options.public_url.as_deref();
    peer.is_some_and(Peer::is_tls) || public.is_some_and(|url| url.starts_with("https://"))
}

/// `POST /console/logout`. Ends the session for all tabs, on every node; without one there is nothing to end. Nobody is
/// told that they are out while the store still lets them in.
pub(crate) async fn leave(console: Arc<Console>, request: Request<Body>) -> Response {
    let headers = request.headers();
    if gate::is_from_here(headers)
        && let Some(token) = cookie::read(headers, cookie::SESSION)
    {
        let address = request.extensions().get::<Peer>().map(Peer::address);
        match end(&console, &token, address).await {
            Ok(()) => {}
            Err(Trouble::Away) => return away_changing(headers, gate::page_of_form(headers)),
            Err(trouble) => return trouble_page_of(headers, request.uri(), &trouble),
        }
    }
    let secure = is_secure(&console, request.extensions().get());
    let mut response = see("/console/login");
    let gone = cookie::write(cookie::SESSION, "", &Kept::Gone, secure);
    response.headers_mut().append(header::SET_COOKIE, gone);
    response
}

async fn end(console: &Console, token: &str, address: Option<IpAddr>) -> Result<(), Trouble> {
    let Some(session) = console.engine.authenticate_session(token).await? else { return Ok(()) };
    let (id, home) = (session.id.to_string(), session.home.clone());
    let by = Acting::session(&id, &session.name, home, "console", address);
    Ok(console.engine.acting(by).end_session(session.id).await?)
}

/// A page that says what is wrong, within the frame.
pub(crate) async fn trouble_page(
    visit: Option<&Visit>,
    headers: &HeaderMap,
    trouble: &Trouble,
) -> Response {
    let bare = matches!(trouble, Trouble::Away | Trouble::TooFast(_));
    let Some(visit) = visit.filter(|_| !bare) else {
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
    let again = matches!(trouble, Trouble::NoRights(_)).then_some("/console/login");
    let mut response =
        outside_page(headers, trouble.status(), trouble.title(), trouble.text(), again);
    match trouble {
        Trouble::Away => {
            response.headers_mut().insert("refresh", HeaderValue::from_static("5"));
        }
        Trouble::TooFast(wait) => entry::retry_after(&mut response, *wait),
        _ => {}
    }
    response
}

/// The store went away while something was to be changed: back to the page of the form.
pub(crate) fn away_changing(headers: &HeaderMap, back: &str) -> Response {
    let mut response = outside(headers, &Trouble::AwayChanging);
    let back = HeaderValue::from_str(&format!("5; url={back}"));
    let back = back.unwrap_or(HeaderValue::from_static("5; url=/console/"));
    response.headers_mut().insert("refresh", back);
    response
}

/// A page for somebody who is not in. `again`: where to log in.
pub(crate) fn outside_page(
    headers: &HeaderMap,
    status: StatusCode,
    title: &str,
    text: String,
    again: Option<&str>,
) -> Response {
    let html = OutsidePage { title, text, again, theme: cookie::theme(headers) };
    page(headers, status, html.render().unwrap_or_else(|e| e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_leads_to_pages_of_ours_only() {
        let next = |wanted: &str| {
            let fields = Fields::of([("next", wanted.to_owned())]);
            next_of(&fields).to_owned()
        };
        for own in ["/console/", "/console/t/acme/events?type=a&q=..%2F..", "/console/keys#x"] {
            assert_eq!(next(own), own);
        }
        for foreign in [
            "",
            "//evil.test",
            "/\\evil.test",
            "/console/\\evil.test",
            "https://evil.test/console/",
            "javascript:alert(1)",
            "/console",
            "/consoleevil",
            "/console/../v1/events",
            "/console/%2E%2e//evil.test",
            "/console/\r\nSet-Cookie: a=b",
            "/console/\t/evil.test",
            "/console/login",
            "/console/logout",
        ] {
            assert_eq!(next(foreign), "/console/", "{foreign}");
        }
    }
}
