//! The way of a browser to the provider and back.

use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::body::Body;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use posthorn_access::Denied;
use posthorn_domain::Opener;
use posthorn_engine::Acting;
use posthorn_listener::Peer;
use posthorn_sealing::login::Login;
use tracing::warn;

use super::provider::{LoginTrouble, Person, Provider, refusal_text};
use crate::cookie::{self, Kept};
use crate::entry::{self, Entrant};
use crate::form::Fields;
use crate::login::{is_secure, next_of, outside_page};
use crate::metrics::{Outcome, Way, login as count};
use crate::trouble::Trouble;
use crate::visit::page;
use crate::{Console, assets, words};

/// The path that the provider sends people back to.
pub(crate) const BACK: &str = "/console/login/oidc/callback";
/// How long somebody may take to log in at the provider.
const PATIENCE: Duration = Duration::from_secs(600);
/// The longest way to a page that is remembered over a login.
const NEXT_BYTES_MAX: usize = 2_000;

/// The page after the login. The browser goes on by itself, and from here: on the way from the provider it would not
/// show a cookie that is for our own site alone.
#[derive(Template)]
#[template(path = "entered.html")]
struct EnteredPage<'p> {
    next: &'p str,
    theme: Option<&'static str>,
}

impl EnteredPage<'_> {
    fn asset(&self, name: &str) -> &'static str {
        assets::url(name)
    }
}

/// One request of the way.
struct Step<'s> {
    console: &'s Console,
    headers: &'s HeaderMap,
    peer: Option<&'s Peer>,
}

impl Step<'_> {
    fn cookie(&self) -> &'static str {
        cookie::login_name(is_secure(self.console, self.peer))
    }

    /// Where the provider sends people back to: as the configuration says, or where they are now. The provider knows
    /// which addresses are ours, and sends nobody elsewhere.
    fn back(&self) -> Option<String> {
        if let Some(url) = &self.console.options.public_url {
            return Some(format!("{}{BACK}", url.trim_end_matches('/')));
        }
        let host = self.headers.get(header::HOST)?.to_str().ok()?;
        let scheme = if is_secure(self.console, self.peer) { "https" } else { "http" };
        Some(format!("{scheme}://{host}{BACK}"))
    }

    /// Takes the browser's half of the login away: it is used once.
    fn over(&self, mut response: Response) -> Response {
        let secure = is_secure(self.console, self.peer);
        let gone = cookie::write_login("", &Kept::Gone, secure);
        response.headers_mut().append(header::SET_COOKIE, gone);
        response
    }

    fn say(&self, status: StatusCode, title: &str, text: String) -> Response {
        outside_page(self.headers, status, title, text, Some("/console/login"))
    }

    fn trouble(&self, trouble: &LoginTrouble) -> Response {
        let (outcome, status, text) = match trouble {
            LoginTrouble::Away(detail) | LoginTrouble::Nonsense(detail) => {
                let detail = crate::text::line(detail, 500);
                warn!(detail, "the login provider of the console cannot be used");
                let text = match trouble {
                    LoginTrouble::Away(_) => {
                        "The login provider cannot be reached, or does not answer in time. Try again in a \
                                              moment. Whoever operates this server finds the reason in its log."
                    }
                    _ => {
                        "The login provider gave an answer that cannot be used. Whoever operates this server finds the \
                          reason in its log."
                    }
                };
                (Outcome::ProviderFailed, StatusCode::BAD_GATEWAY, text.to_owned())
            }
            LoginTrouble::Busy => {
                let text = "Too many people log in at this moment. Try again in a few seconds.";
                (Outcome::ProviderFailed, StatusCode::SERVICE_UNAVAILABLE, text.to_owned())
            }
            LoginTrouble::Refused(why) => {
                let text = format!("The login provider did not log you in: {why}.");
                (Outcome::Refused, StatusCode::FORBIDDEN, text)
            }
            LoginTrouble::Token(refusal) => {
                warn!(%refusal, "an ID token of the login provider is not believed");
                let text =
                    format!("The login provider sent a token that is not accepted: {refusal}.");
                (Outcome::BadToken, StatusCode::FORBIDDEN, text)
            }
        };
        count(Way::Provider, outcome);
        self.say(status, "You could not be logged in", text)
    }

    /// Without a provider there is no such page.
    fn nowhere(&self) -> Response {
        let trouble = Trouble::NotFound("page");
        outside_page(self.headers, trouble.status(), trouble.title(), trouble.text(), None)
    }

    /// Somebody who comes back from a login that is not this browser's, or not any more.
    fn stranger(&self) -> Response {
        count(Way::Provider, Outcome::Refused);
        if let Denied::TooManyFailures(wait) = self.console.callers.unknown(self.peer) {
            let wait_text = words::span(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
            let text =
                format!("Too many logins from your address have failed. Try again in {wait_text}.");
            let title = "Too many failed logins";
            let mut response = self.say(StatusCode::TOO_MANY_REQUESTS, title, text);
            entry::retry_after(&mut response, wait);
            return response;
        }
        let text = "This login was not started in this browser, took longer than ten minutes, or was used already. \
                    Please log in again.";
        self.say(StatusCode::FORBIDDEN, "Please log in again", text.to_owned())
    }
}

/// `GET /console/login/oidc`: off to the provider.
pub(crate) async fn begin(console: Arc<Console>, request: Request<Body>) -> Response {
    let (headers, peer) = (request.headers(), request.extensions().get::<Peer>());
    let step = Step { console: &console, headers, peer };
    let Some(provider) = &console.provider else { return step.nowhere() };
    let fields = Fields::parse(request.uri().query().unwrap_or_default().as_bytes());
    let next = Some(next_of(&fields)).filter(|next| next.len() <= NEXT_BYTES_MAX);
    let now = console.engine.now();
    let about = about(now.as_millis(), next.unwrap_or("/console/"));
    let login = Login::begin(about.as_str());
    let Some(back) = step.back() else { return step.stranger() };
    let place = match provider.entrance(&login, &back, now).await {
        Ok(place) => place,
        Err(trouble) => return step.trouble(&trouble),
    };
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    let Ok(place) = HeaderValue::from_str(&place) else {
        let why = "the address of the login page cannot be sent".to_owned();
        return step.trouble(&LoginTrouble::Nonsense(why));
    };
    response.headers_mut().insert(header::LOCATION, place);
    let value = format!("{}.{about}", login.secret().as_str());
    let kept = Kept::Seconds(PATIENCE.as_secs());
    let cookie = cookie::write_login(&value, &kept, is_secure(&console, peer));
    response.headers_mut().append(header::SET_COOKIE, cookie);
    response
}

/// What a login remembers: when it began, and where to go afterwards.
fn about(began: i64, next: &str) -> String {
    format!("{began}.{}", URL_SAFE_NO_PAD.encode(next))
}

/// The login that a browser has begun, if it was not too long ago.
fn begun(cookie: &str, now: i64) -> Option<(Login, String)> {
    let (secret, about) = cookie.split_once('.')?;
    let (began, next) = about.split_once('.')?;
    let age = now.checked_sub(began.parse().ok()?)?;
    let next = String::from_utf8(URL_SAFE_NO_PAD.decode(next).ok()?).ok()?;
    let in_time = u64::try_from(age).is_ok_and(|age| u128::from(age) <= PATIENCE.as_millis());
    in_time.then_some(())?;
    Some((Login::resume(secret, about)?, next))
}

/// `GET /console/login/oidc/callback`: back from the provider.
pub(crate) async fn finish(console: Arc<Console>, request: Request<Body>) -> Response {
    let (headers, peer) = (request.headers(), request.extensions().get::<Peer>());
    let step = Step { console: &console, headers, peer };
    let Some(provider) = &console.provider else { return step.nowhere() };
    let fields = Fields::parse(request.uri().query().unwrap_or_default().as_bytes());
    let now = console.engine.now();
    let kept = cookie::read(headers, step.cookie());
    let begun = kept.and_then(|kept| begun(&kept, now.as_millis()));
    let state = fields.get("state").unwrap_or_default();
    let Some((login, next)) = begun.filter(|(login, _)| login.is_state(state)) else {
        // The cookie stays: another tab may be on its way with the right one.
        return step.stranger();
    };
    let response = match person(&step, provider, &login, &fields).await {
        Ok(person) => enter(&step, provider, person, &next).await,
        Err(trouble) => step.trouble(&trouble),
    };
    step.over(response)
}

/// Whom the provider sends back.
async fn person(
    step: &Step<'_>,
    provider: &Provider,
    login: &Login,
    fields: &Fields,
) -> Result<Person, LoginTrouble> {
    if fields.get("iss").is_some_and(|issuer| !provider.is_issuer(issuer)) {
        return Err(LoginTrouble::Nonsense("the way back is of another issuer".to_owned()));
    }
    if let Some(error) = fields.get("error") {
        let why = refusal_text(error, fields.get("error_description"));
        return Err(LoginTrouble::Refused(why));
    }
    let Some((code, back)) = fields.get("code").zip(step.back()) else {
        return Err(LoginTrouble::Nonsense("the way back has no code".to_owned()));
    };
    provider.person(login, code, &back, step.console.engine.now()).await
}

/// Opens a session for somebody, if they may do anything here.
async fn enter(step: &Step<'_>, provider: &Provider, person: Person, next: &str) -> Response {
    let rights = &provider.options.rights;
    let Some((home, scopes)) = rights.of(&person.groups, &step.console.engine) else {
        count(Way::Provider, Outcome::NoRights);
        let trouble = Trouble::no_rights(&person.name, &person.groups);
        return step.say(trouble.status(), trouble.title(), trouble.text());
    };
    let by = Acting::visitor("console", step.peer.map(Peer::address));
    let groups = rights.kept(&person.groups);
    let entrant = Entrant { opener: Opener::Provider, name: &person.name, home, scopes, groups };
    match entry::open(step.console, entrant, by, step.peer).await {
        Ok((_, cookie)) => {
            count(Way::Provider, Outcome::Opened);
            let fields = Fields::of([("next", next.to_owned())]);
            let html = EnteredPage { next: next_of(&fields), theme: cookie::theme(step.headers) };
            let html = html.render().unwrap_or_else(|e| e.to_string());
            let mut response = page(step.headers, StatusCode::OK, html);
            response.headers_mut().append(header::SET_COOKIE, cookie);
            response
        }
        Err(trouble) => {
            count(Way::Provider, Outcome::Failed);
            step.say(trouble.status(), trouble.title(), trouble.text())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_is_remembered_by_the_browser_for_ten_minutes() {
        let about = about(1_000_000, "/console/events?q=a&b=ü");
        let login = Login::begin(about.as_str());
        let cookie = format!("{}.{about}", login.secret().as_str());
        let (again, next) = begun(&cookie, 1_600_000).expect("in time");
        assert!(again.is_state(&login.state()));
        assert_eq!(next, "/console/events?q=a&b=ü");
        assert!(begun(&cookie, 1_600_001).is_none(), "too late");
        assert!(begun(&cookie, 999_999).is_none(), "before it began");
        // What was changed in the browser is not what the provider sends back.
        let elsewhere = URL_SAFE_NO_PAD.encode("/console/x");
        let changed = format!("{}.1000000.{elsewhere}", login.secret().as_str());
        let (other, _) = begun(&changed, 1_000_000).expect("its form is right");
        assert!(!other.is_state(&login.state()));
        let later = cookie.replace(".1000000.", ".1500000.");
        assert!(!begun(&later, 1_700_000).expect("its form is right").0.is_state(&login.state()));
        for broken in ["", ".", "a.b.c", "..", &cookie[1..]] {
            assert!(begun(broken, 1_000_000).is_none(), "{broken}");
        }
    }
}
