//! Who arrives: whose session it is, with which rights, and how many requests it may make.
//!
//! A session that was opened with a key asks with that key as it is now. One that a provider or a proxy has vouched for
//! has the rights that the configuration gives to its groups now. What a proxy says counts for as long as it says it: a
//! session that it has opened opens nothing for somebody who comes around it, or under another name.

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use http::{HeaderMap, HeaderValue, header};
use posthorn_domain::{Home, Opener, SESSION_NAME_BYTES_MAX, Scope, Session, SessionKind};
use posthorn_engine::{Acting, NewSession, Principal};
use posthorn_listener::{Peer, Told};
use tracing::debug;

use crate::Console;
use crate::cookie::{self, Kept};
use crate::login::is_secure;
use crate::metrics::{self, Outcome, Way};
use crate::trouble::Trouble;

/// The longest session of somebody whom others vouch for.
const VOUCHED_MAX: Duration = Duration::from_secs(8 * 3_600);

/// Somebody who is known.
pub(crate) struct Entered {
    pub(crate) session: Arc<Session>,
    pub(crate) principal: Principal,
    /// As the browser shows it.
    pub(crate) token: String,
    /// The cookie of a session that was just opened.
    pub(crate) cookie: Option<HeaderValue>,
}

/// Somebody who gets a session.
pub(crate) struct Entrant<'e> {
    pub(crate) opener: Opener,
    pub(crate) name: &'e str,
    pub(crate) home: Home,
    pub(crate) scopes: Vec<Scope>,
    pub(crate) groups: Vec<String>,
}

/// Opens a session; its token, and the cookie for it.
pub(crate) async fn open(
    console: &Console,
    entrant: Entrant<'_>,
    by: Acting,
    peer: Option<&Peer>,
) -> Result<((Session, String), HeaderValue), Trouble> {
    let Entrant { opener, name, home, scopes, groups } = entrant;
    let lasts = match opener {
        Opener::Proxy | Opener::Provider => console.options.session_time.min(VOUCHED_MAX),
        Opener::Key { .. } | Opener::Link { .. } => console.options.session_time,
    };
    let new = NewSession { opener, name: bounded(name), home, scopes, groups, lasts };
    let (session, token) = console.engine.acting(by).open_session(new).await?;
    let token = String::from_utf8_lossy(token.expose()).into_owned();
    let kept = Kept::Seconds(lasts.as_secs());
    let cookie = cookie::write(cookie::SESSION, &token, &kept, is_secure(console, peer));
    Ok(((session, token), cookie))
}

/// A name as a session can have it.
fn bounded(name: &str) -> String {
    let mut out = String::new();
    for c in name.trim().chars().filter(|c| !c.is_control()) {
        if out.len() + c.len_utf8() > SESSION_NAME_BYTES_MAX {
            break;
        }
        out.push(c);
    }
    out
}

/// The person whom the proxy in front has logged in, and their groups.
type Person = (String, Vec<String>);

/// The person whom the proxy in front has logged in.
pub(crate) fn told(console: &Console, headers: &HeaderMap, peer: Option<&Peer>) -> Option<Person> {
    match console.options.proxy_login.told(peer, headers) {
        Told::Nothing => None,
        Told::Foreign => {
            let address = peer.map(|peer| peer.address().to_string()).unwrap_or_default();
            debug!(address, "headers of console.proxy_login came from elsewhere; they are ignored");
            metrics::login(Way::Proxy, Outcome::ForeignHeader);
            None
        }
        Told::Person { user, groups } => Some((bounded(&user), groups)),
    }
}

/// Who arrives with these headers. `opens`: whether a session is opened for whom the proxy vouches.
pub(crate) async fn arrive(
    console: &Console,
    headers: &HeaderMap,
    peer: Option<&Peer>,
    opens: bool,
) -> Result<Entered, Trouble> {
    let told = told(console, headers, peer);
    let known = match cookie::read(headers, cookie::SESSION) {
        Some(token) => known(console, &token, told.as_ref())
            .await
            .map(|(session, principal)| Entered { session, principal, token, cookie: None }),
        None => Err(Trouble::LoggedOut),
    };
    let entered = match (known, told) {
        (Err(Trouble::LoggedOut), Some((user, groups))) if opens => {
            open_vouched(console, &user, &groups, peer).await?
        }
        (known, _) => known?,
    };
    let now = console.engine.admission().nanos();
    match console.pace.take(entered.session.id, now) {
        Ok(()) => Ok(entered),
        Err(wait) => {
            metrics::limited();
            Err(Trouble::TooFast(wait))
        }
    }
}

/// As whom somebody who stays asks now: with the rights that their next page would have. Nobody, when it would be none.
pub(crate) async fn still(
    console: &Console,
    token: &str,
    headers: &HeaderMap,
    peer: Option<&Peer>,
) -> Result<Option<Principal>, Trouble> {
    // What comes from elsewhere was told when they came.
    let told = match console.options.proxy_login.told(peer, headers) {
        Told::Person { user, groups } => Some((bounded(&user), groups)),
        Told::Nothing | Told::Foreign => None,
    };
    match known(console, token, told.as_ref()).await {
        Ok((_, principal)) => Ok(Some(principal)),
        Err(Trouble::LoggedOut | Trouble::NoRights(_)) => Ok(None),
        Err(trouble) => Err(trouble),
    }
}

/// The session that a token opens, with the rights it has now.
async fn known(
    console: &Console,
    token: &str,
    told: Option<&Person>,
) -> Result<(Arc<Session>, Principal), Trouble> {
    let engine = &console.engine;
    let session = engine.authenticate_session(token).await?;
    let session = session.filter(|session| session.kind == SessionKind::Console);
    let session = session.ok_or(Trouble::LoggedOut)?;
    let (rights, groups) = match (session.opener, &console.provider) {
        (Opener::Key { .. }, _) if console.options.key_login => {
            let principal = engine.principal_of(&session).ok_or(Trouble::LoggedOut)?;
            return Ok((session, principal));
        }
        (Opener::Provider, Some(provider)) => (&provider.options.rights, &session.groups),
        (Opener::Proxy, _) => match told {
            Some((user, groups)) if *user == session.name => {
                (&console.options.proxy_rights, groups)
            }
            _ => return Err(Trouble::LoggedOut),
        },
        // That way in is closed, or was never one into the console.
        _ => return Err(Trouble::LoggedOut),
    };
    let (home, scopes) =
        rights.of(groups, engine).ok_or_else(|| Trouble::no_rights(&session.name, groups))?;
    let found = engine.principal_with(&session, home, scopes);
    let (session, principal) = found.ok_or(Trouble::LoggedOut)?;
    Ok((Arc::new(session), principal))
}

/// Opens a session for somebody whom the proxy has logged in.
async fn open_vouched(
    console: &Console,
    user: &str,
    groups: &[String],
    peer: Option<&Peer>,
) -> Result<Entered, Trouble> {
    let rights = &console.options.proxy_rights;
    let Some((home, scopes)) = rights.of(groups, &console.engine) else {
        metrics::login(Way::Proxy, Outcome::NoRights);
        return Err(Trouble::no_rights(user, groups));
    };
    // A program without cookies would get a new one with each request.
    let now = console.engine.admission().nanos();
    console.openings.take(user.to_owned(), now).map_err(Trouble::TooFast)?;
    let by = Acting::visitor("console", peer.map(Peer::address));
    let groups = rights.kept(groups);
    let entrant = Entrant { opener: Opener::Proxy, name: user, home, scopes, groups };
    let opened = open(console, entrant, by, peer).await;
    let outcome = if opened.is_ok() { Outcome::Opened } else { Outcome::Failed };
    metrics::login(Way::Proxy, outcome);
    let ((session, token), cookie) = opened?;
    let principal = console.engine.principal_of(&session).ok_or(Trouble::LoggedOut)?;
    Ok(Entered { session: Arc::new(session), principal, token, cookie: Some(cookie) })
}

/// Says when to come back, in whole seconds.
pub(crate) fn retry_after(response: &mut Response, wait: Duration) {
    let seconds = wait.as_secs().saturating_add(1);
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bounded() {
        assert_eq!(bounded(" Jo\u{7}\n "), "Jo");
        let long = bounded(&"ü".repeat(500));
        assert_eq!(long.len(), SESSION_NAME_BYTES_MAX);
    }
}
