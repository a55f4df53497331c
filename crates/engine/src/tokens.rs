//! OAuth 2.0 access tokens for receivers that ask for one.
//!
//! # Theory of operation
//! A token is fetched when the first attempt needs it, kept in memory, and replaced some time before
//! its end. Attempts that need the same token at the same time share one call. Who may share is
//! decided by the [`Key`]: the tenant, and everything that the token server is told, the client
//! secret included; a token never crosses a tenant.
//!
//! The token server is reached through the same [`Transport`] as receivers: the same URL guard, the
//! tenant's own connections, deadlines and byte caps. When it fails, the attempt fails with a code
//! of its own that nobody holds against the receiver, and for a few seconds everybody else is given
//! the same answer without a call.
//!
//! # What it must not know
//! Which delivery a token is for, and when to try again.

mod cache;
mod response;

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use parking_lot::Mutex;
use posthorn_domain::policy::{Auth, ClientAuth, Oauth2, Policy, UrlPolicy};
use posthorn_domain::{AttemptOutcome, Clock, Problem, Span, TenantId, Timestamp};
use posthorn_sealing::hash::fingerprint;
use posthorn_sealing::vault::Secret;
use tokio::time::{Instant, timeout_at};
use tracing::debug;
use zeroize::Zeroizing;

use crate::catalog::SubscriptionView;
use crate::endpoint::Endpoint;
use crate::metrics;
use crate::request::percent_encode;
use crate::transport::{Deadlines, Outbound, Transport, UrlProblem};
use cache::{Cache, Key};

/// How long a failure of the token server is remembered: long enough to spare one that is down,
/// short enough to notice when it is back.
pub(crate) const FAILURE_KEPT: Span = Span::from_secs(5);

/// All tokens of this node.
#[derive(Default)]
pub(crate) struct Tokens {
    cache: Cache,
}

/// One token, and the right to fetch the next.
#[derive(Default)]
struct Entry {
    state: Mutex<State>,
    /// Held by the one that fetches. The others wait for it, and take what it brought.
    fetching: tokio::sync::Mutex<()>,
}

impl Entry {
    /// Whether its token can still be used.
    fn is_alive(&self, now: Timestamp) -> bool {
        self.state.lock().held.as_ref().is_some_and(|held| now < held.valid_until)
    }
}

#[derive(Default)]
struct State {
    held: Option<Held>,
    failure: Option<RecentFailure>,
    /// Calls that have ended, so that those who waited know that one has.
    calls: u64,
}

#[derive(Clone)]
struct Held {
    token: Arc<Secret>,
    renew_at: Timestamp,
    valid_until: Timestamp,
}

struct RecentFailure {
    problem: Problem,
    until: Timestamp,
}

/// A token in use, and where it came from.
pub(crate) struct Lent {
    key: Key,
    token: Arc<Secret>,
}

impl Lent {
    /// The token; a header value by construction.
    pub(crate) fn text(&self) -> &str {
        self.token.expose_str().unwrap_or_default()
    }
}

/// Why there is no token.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TokenError {
    /// The subscription lacks what the token server asks for.
    Secret(Problem),
    /// The token server did not give one.
    Unavailable(Problem),
}

/// What fetching needs besides the subscription.
pub(crate) struct Way<'a> {
    pub(crate) transport: &'a dyn Transport,
    pub(crate) clock: &'a dyn Clock,
}

impl Tokens {
    /// The token that a policy asks for, if it does. Ends within half of the attempt's time, so that
    /// the other half is the receiver's.
    pub(crate) async fn for_attempt(
        &self,
        way: &Way<'_>,
        view: &SubscriptionView,
        policy: &Policy,
    ) -> Result<Option<Lent>, TokenError> {
        let client = policy.auth.iter().find_map(|auth| match auth {
            Auth::Oauth2(client) => Some(client),
            _ => None,
        });
        let Some(client) = client else { return Ok(None) };
        let usual = Deadlines::from(&policy.limits);
        let deadlines = usual.at_most((usual.total / 2).max(Deadlines::SHORTEST));
        self.get(way, view, client, &policy.url, deadlines).await.map(Some)
    }

    async fn get(
        &self,
        way: &Way<'_>,
        view: &SubscriptionView,
        client: &Oauth2,
        rules: &UrlPolicy,
        deadlines: Deadlines,
    ) -> Result<Lent, TokenError> {
        let deadline = Instant::now() + deadlines.total;
        let too_long = || Problem::new("the token server did not answer in time");
        let now = way.clock.now();
        let secrets = view.secrets().map_err(|e| TokenError::Secret(e.into()))?;
        let secret = secrets.current(&client.secret, now).ok_or_else(|| {
            let problem = format!("the subscription has no secret `{}`", client.secret);
            TokenError::Secret(problem.into())
        })?;
        let key = key(view.subscription.tenant, client, secret);
        let entry = self.cache.entry(key, now);
        let lend = |held: &Held| Lent { key, token: Arc::clone(&held.token) };

        let calls = {
            let state = entry.state.lock();
            let valid = state.held.as_ref().filter(|held| now < held.valid_until);
            match (valid, &state.failure) {
                (Some(held), _) if now < held.renew_at => return Ok(lend(held)),
                // What is still good is used while its replacement is being fetched, or cannot be.
                (Some(held), Some(failure)) if now < failure.until => return Ok(lend(held)),
                (Some(held), _) if entry.fetching.try_lock().is_err() => return Ok(lend(held)),
                (None, Some(failure)) if now < failure.until => {
                    return Err(TokenError::Unavailable(failure.problem.clone()));
                }
                _ => state.calls,
            }
        };
        let Ok(_right) = timeout_at(deadline, entry.fetching.lock()).await else {
            return Err(TokenError::Unavailable(too_long()));
        };
        {
            // Somebody else has called meanwhile: what it brought is ours as well.
            let state = entry.state.lock();
            if state.calls != calls {
                let now = way.clock.now();
                return match (&state.held, &state.failure) {
                    (Some(held), None) => Ok(lend(held)),
                    (Some(held), _) if now < held.valid_until => Ok(lend(held)),
                    (_, Some(failure)) => Err(TokenError::Unavailable(failure.problem.clone())),
                    // The token came, and a receiver has refused it already.
                    (None, None) => Err(TokenError::Unavailable("the token was refused".into())),
                };
            }
        }
        let fetching = fetch(way.transport, view, client, rules, secret, deadlines);
        let fetched = timeout_at(deadline, fetching).await.unwrap_or_else(|_| Err(too_long()));
        let label = if fetched.is_ok() { "success" } else { "failure" };
        ::metrics::counter!(metrics::TOKEN_CALLS, "outcome" => label).increment(1);
        let now = way.clock.now();
        let mut state = entry.state.lock();
        state.calls += 1;
        match fetched {
            Ok(granted) => {
                let held = Held {
                    token: Arc::new(granted.token),
                    renew_at: now.plus(client.use_for(granted.life)),
                    valid_until: now.plus(granted.life),
                };
                state.failure = None;
                let lent = lend(&held);
                state.held = Some(held);
                Ok(lent)
            }
            Err(problem) => {
                let until = now.plus(FAILURE_KEPT);
                state.failure = Some(RecentFailure { problem: problem.clone(), until });
                match state.held.as_ref().filter(|held| now < held.valid_until) {
                    Some(held) => Ok(lend(held)),
                    None => Err(TokenError::Unavailable(problem)),
                }
            }
        }
    }

    /// Forgets a token that a receiver did not accept, unless it was replaced already.
    pub(crate) fn refused(&self, lent: &Lent) {
        let Some(entry) = self.cache.find(&lent.key) else { return };
        let mut state = entry.state.lock();
        if state.held.as_ref().is_some_and(|held| Arc::ptr_eq(&held.token, &lent.token)) {
            state.held = None;
        }
    }
}

/// What a token is for: tenant, token server, client, scope, audience, and the secret itself. Only a
/// fingerprint of the last is kept.
fn key(tenant: TenantId, client: &Oauth2, secret: &Secret) -> Key {
    // Absent and empty are different things to a token server.
    let optional = |text: &Option<String>| text.as_ref().map_or(String::new(), |t| format!("={t}"));
    let (scope, audience) = (optional(&client.scope), optional(&client.audience));
    let form = match client.client_auth {
        ClientAuth::Basic => "basic",
        ClientAuth::Post => "post",
    };
    let parts = fingerprint(&[
        client.token_url.as_bytes(),
        client.client_id.as_bytes(),
        scope.as_bytes(),
        audience.as_bytes(),
        form.as_bytes(),
        secret.expose(),
    ]);
    (tenant, parts)
}

/// Where the token server is, when the guard allows it and a secret may be sent there.
pub(crate) fn token_endpoint(
    transport: &dyn Transport,
    client: &Oauth2,
    rules: &UrlPolicy,
) -> Result<Endpoint, UrlProblem> {
    let endpoint = Endpoint::new(transport.check_url(&client.token_url)?);
    endpoint.parts().check_private(rules)?;
    Ok(endpoint)
}

/// Asks the token server, once. What is wrong is said without anything it sent, since that could be
/// a token, and without what was met on the way to it.
async fn fetch(
    transport: &dyn Transport,
    view: &SubscriptionView,
    client: &Oauth2,
    rules: &UrlPolicy,
    secret: &Secret,
    deadlines: Deadlines,
) -> Result<response::Granted, Problem> {
    let endpoint = token_endpoint(transport, client, rules)
        .map_err(|problem| format!("auth.token_url: {problem}"))?;
    let secret = secret.expose_str().ok_or("the client secret is not text")?;
    let mut headers = HeaderMap::with_capacity(3);
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/x-www-form-urlencoded"),
    );
    headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
    let mut form = Zeroizing::new(String::from("grant_type=client_credentials"));
    let mut add = |name: &str, value: &str| {
        form.push('&');
        form.push_str(name);
        form.push('=');
        form.push_str(&percent_encode(value));
    };
    if let Some(scope) = &client.scope {
        add("scope", scope);
    }
    if let Some(audience) = &client.audience {
        add("audience", audience);
    }
    match client.client_auth {
        ClientAuth::Post => {
            add("client_id", &client.client_id);
            add("client_secret", secret);
        }
        ClientAuth::Basic => {
            let pair = Zeroizing::new(format!(
                "{}:{}",
                percent_encode(&client.client_id),
                percent_encode(secret)
            ));
            let mut value =
                HeaderValue::try_from(format!("Basic {}", STANDARD.encode(pair.as_bytes())))
                    .map_err(|_| "the client credentials do not fit into a header")?;
            value.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, value);
        }
    }
    let sent = transport
        .send(Outbound {
            tenant: view.subscription.tenant,
            subscription: view.subscription.id,
            endpoint: Arc::new(endpoint),
            path_and_query: None,
            method: Method::POST,
            headers,
            tls: None,
            // Where the way out leads through a proxy, so does the way to its tokens.
            proxy: view.policy.as_ref().ok().and_then(|policy| policy.proxy.clone()),
            vet_always: false,
            body: Bytes::copy_from_slice(form.as_bytes()),
            deadlines,
        })
        .await;
    match sent.outcome {
        AttemptOutcome::Answered(answer) => response::read(&answer),
        AttemptOutcome::Failed { code, detail } => {
            debug!(subscription = %view.subscription.id, code = code.as_str(), detail,
                "the token server could not be reached");
            let code = code.for_tenants().as_str();
            Err(format!("the token server could not be called: {code}").into())
        }
    }
}
