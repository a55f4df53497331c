//! What is asked of a provider: its endpoints, its keys, and the ID token of a code.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use parking_lot::Mutex;
use posthorn_domain::Timestamp;
use posthorn_sealing::id_token::{self, Expected, IdTokenRefusal, Keys};
use posthorn_sealing::login::Login;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio::sync::Semaphore;
use url::{Url, form_urlencoded};

use super::{Ask, Issuer, Options, Question};
use crate::text;

/// How long one login may take here, with everything that is asked.
const LOGIN_TIME: Duration = Duration::from_secs(10);
/// Logins that may ask the provider at the same time.
const LOGINS_MAX: usize = 32;
/// How long endpoints and keys are used before they are asked for again.
const KNOWN_TIME: Duration = Duration::from_secs(3_600);
/// The least time between two looks for a key that is not known.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// By how much the clocks may differ, in seconds.
const LEEWAY: i64 = 60;
/// Groups of a token that are read.
const GROUPS_MAX: usize = 1_000;

/// Why somebody cannot be logged in.
#[derive(Debug)]
pub(crate) enum LoginTrouble {
    /// The provider cannot be asked, or not in time.
    Away(String),
    /// What it answers cannot be used.
    Nonsense(String),
    /// It does not let them in.
    Refused(String),
    /// Its token is not to be believed.
    Token(IdTokenRefusal),
    /// Too many log in at once.
    Busy,
}

/// Who has logged in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Person {
    pub(crate) name: String,
    pub(crate) groups: Vec<String>,
}

/// Where things are, by the provider's own word.
#[derive(Debug)]
struct Endpoints {
    authorization: Url,
    token: Url,
    keys: Url,
    /// Whether the secret of the client is part of the form, for those who take it no other way.
    secret_in_form: bool,
}

#[derive(Default)]
struct Known {
    endpoints: Option<(Arc<Endpoints>, Timestamp)>,
    keys: Option<(Arc<Keys>, Timestamp)>,
}

/// The provider of the configuration.
pub(crate) struct Provider {
    issuer: Issuer,
    client_id: String,
    pub(crate) options: Options,
    ask: Ask,
    known: Mutex<Known>,
    places: Semaphore,
}

impl Provider {
    /// The one that the options name, if they do.
    pub(crate) fn new(options: Options, ask: Option<Ask>) -> Option<Self> {
        let (issuer, client_id) = (options.issuer.clone()?, options.client_id.clone()?);
        let known = Mutex::default();
        let places = Semaphore::new(LOGINS_MAX);
        Some(Self { issuer, client_id, options, ask: ask?, known, places })
    }

    /// Whether somebody else answers in its name.
    pub(crate) fn is_issuer(&self, shown: &str) -> bool {
        self.issuer.as_str() == shown
    }

    /// Where a browser goes to log in.
    pub(crate) async fn entrance(
        &self,
        login: &Login,
        back: &str,
        now: Timestamp,
    ) -> Result<String, LoginTrouble> {
        self.in_time(async {
            let mut url = self.endpoints(now).await?.authorization.clone();
            let mut scopes = vec!["openid"];
            let wanted = self.options.scopes.iter().map(String::as_str);
            scopes.extend(wanted.filter(|scope| *scope != "openid"));
            url.query_pairs_mut()
                .append_pair("response_type", "code")
                .append_pair("client_id", &self.client_id)
                .append_pair("redirect_uri", back)
                .append_pair("scope", &scopes.join(" "))
                .append_pair("state", &login.state())
                .append_pair("nonce", &login.nonce())
                .append_pair("code_challenge", &login.challenge())
                .append_pair("code_challenge_method", "S256");
            Ok(String::from(url))
        })
        .await
    }

    /// Who a code is about.
    pub(crate) async fn person(
        &self,
        login: &Login,
        code: &str,
        back: &str,
        now: Timestamp,
    ) -> Result<Person, LoginTrouble> {
        self.in_time(async {
            let endpoints = self.endpoints(now).await?;
            let token = self.redeem(&endpoints, login, code, back).await?;
            let claims = self.proven(&endpoints, &token, &login.nonce(), now).await?;
            Ok(self.person_of(&claims))
        })
        .await
    }

    /// Nothing here takes longer than people wait, and not more of it goes on at once than a login page needs.
    async fn in_time<T>(
        &self,
        work: impl Future<Output = Result<T, LoginTrouble>>,
    ) -> Result<T, LoginTrouble> {
        let _place = self.places.try_acquire().map_err(|_| LoginTrouble::Busy)?;
        match tokio::time::timeout(LOGIN_TIME, work).await {
            Ok(done) => done,
            Err(_) => Err(LoginTrouble::Away("it took too long to answer".to_owned())),
        }
    }

    async fn read(&self, question: Question) -> Result<(u16, bytes::Bytes), LoginTrouble> {
        let place = question.url.to_string();
        self.ask.ask(question).await.map_err(|e| LoginTrouble::Away(format!("{place}: {e}")))
    }

    /// The JSON that is at a URL.
    async fn get(&self, url: Url) -> Result<bytes::Bytes, LoginTrouble> {
        let place = url.to_string();
        let question = Question { url, form: None, authorization: None };
        match self.read(question).await? {
            (200, body) => Ok(body),
            (status, _) => Err(LoginTrouble::Away(format!("{place} answered {status}"))),
        }
    }

    async fn endpoints(&self, now: Timestamp) -> Result<Arc<Endpoints>, LoginTrouble> {
        #[derive(Deserialize)]
        struct Discovery {
            issuer: String,
            authorization_endpoint: String,
            token_endpoint: String,
            jwks_uri: String,
            #[serde(default)]
            token_endpoint_auth_methods_supported: Vec<String>,
        }
        let before = self.known.lock().endpoints.clone();
        if let Some((endpoints, at)) = &before
            && now < at.plus(KNOWN_TIME.into())
        {
            return Ok(Arc::clone(endpoints));
        }
        let place = self.issuer.discovery();
        let url = Url::parse(&place).map_err(|e| LoginTrouble::Nonsense(e.to_string()))?;
        let found: Result<Discovery, LoginTrouble> = match self.get(url).await {
            Ok(body) => json(&place, &body),
            Err(trouble) => Err(trouble),
        };
        let found = match (found, before) {
            (Ok(found), _) => found,
            // What was right an hour ago is better than nobody being let in.
            (Err(_), Some((endpoints, _))) => return Ok(endpoints),
            (Err(trouble), None) => return Err(trouble),
        };
        if found.issuer != self.issuer.as_str() {
            let named = text::line(&found.issuer, 200);
            let why = format!("{place} is of another issuer: {named}");
            return Err(LoginTrouble::Nonsense(why));
        }
        let endpoint = |name: &str, text: &str| {
            self.issuer.endpoint(text).ok_or_else(|| {
                let text = text::line(text, 200);
                LoginTrouble::Nonsense(format!("{place}: {name} cannot be used: {text}"))
            })
        };
        let methods = &found.token_endpoint_auth_methods_supported;
        let has = |name: &str| methods.iter().any(|method| method == name);
        let endpoints = Arc::new(Endpoints {
            authorization: endpoint("authorization_endpoint", &found.authorization_endpoint)?,
            token: endpoint("token_endpoint", &found.token_endpoint)?,
            keys: endpoint("jwks_uri", &found.jwks_uri)?,
            secret_in_form: has("client_secret_post") && !has("client_secret_basic"),
        });
        self.known.lock().endpoints = Some((Arc::clone(&endpoints), now));
        Ok(endpoints)
    }

    /// The keys that were read last, or new ones when these are too old.
    async fn keys(
        &self,
        endpoints: &Endpoints,
        now: Timestamp,
        at_most: Duration,
    ) -> Result<Arc<Keys>, LoginTrouble> {
        let before = self.known.lock().keys.clone();
        if let Some((keys, at)) = before
            && now < at.plus(at_most.into())
        {
            return Ok(keys);
        }
        let body = self.get(endpoints.keys.clone()).await?;
        let keys = Keys::parse(&body)
            .map_err(|e| LoginTrouble::Nonsense(format!("{}: {e}", endpoints.keys)))?;
        let keys = Arc::new(keys);
        self.known.lock().keys = Some((Arc::clone(&keys), now));
        Ok(keys)
    }

    /// What a token says, when it may be believed. A key that is not known may be a new one: it is looked for once.
    async fn proven(
        &self,
        endpoints: &Endpoints,
        token: &str,
        nonce: &str,
        now: Timestamp,
    ) -> Result<Map<String, Value>, LoginTrouble> {
        let expected = Expected {
            issuer: self.issuer.as_str(),
            client_id: &self.client_id,
            nonce,
            now: now.as_millis().div_euclid(1_000),
            leeway: LEEWAY,
        };
        let keys = self.keys(endpoints, now, KNOWN_TIME).await?;
        let said = match id_token::verify(token, &keys, &expected) {
            Err(IdTokenRefusal::UnknownKey) => {
                let keys = self.keys(endpoints, now, LOOK_AGAIN).await?;
                id_token::verify(token, &keys, &expected)
            }
            said => said,
        };
        said.map_err(LoginTrouble::Token)
    }

    /// The form that gives a code back, and the header that shows who we are.
    fn question(
        &self,
        endpoints: &Endpoints,
        login: &Login,
        code: &str,
        back: &str,
    ) -> (String, Option<String>) {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", "authorization_code")
            .append_pair("code", code)
            .append_pair("redirect_uri", back)
            .append_pair("code_verifier", &login.verifier());
        let secret = self.options.client_secret.as_ref().and_then(|secret| secret.expose_str());
        let authorization = match secret {
            None => {
                form.append_pair("client_id", &self.client_id);
                None
            }
            Some(secret) if endpoints.secret_in_form => {
                form.append_pair("client_id", &self.client_id);
                form.append_pair("client_secret", secret);
                None
            }
            Some(secret) => {
                // Both are written as in a form first (RFC 6749, section 2.3.1).
                let part = |text: &str| {
                    form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>()
                };
                let pair = format!("{}:{}", part(&self.client_id), part(secret));
                Some(format!("Basic {}", STANDARD.encode(pair)))
            }
        };
        (form.finish(), authorization)
    }

    /// Gives a code back for an ID token.
    async fn redeem(
        &self,
        endpoints: &Endpoints,
        login: &Login,
        code: &str,
        back: &str,
    ) -> Result<String, LoginTrouble> {
        #[derive(Deserialize)]
        struct Tokens {
            id_token: Option<String>,
        }
        #[derive(Deserialize)]
        struct Refusal {
            error: String,
            #[serde(default)]
            error_description: Option<String>,
        }
        let (form, authorization) = self.question(endpoints, login, code, back);
        let url = endpoints.token.clone();
        let place = url.to_string();
        let question = Question { url, form: Some(form), authorization };
        let (status, body) = self.read(question).await?;
        if status == 200 {
            let tokens: Tokens = json(&place, &body)?;
            return tokens.id_token.ok_or_else(|| {
                LoginTrouble::Nonsense(format!(
                    "{place} gave no id_token; ask for the scope openid"
                ))
            });
        }
        match serde_json::from_slice::<Refusal>(&body) {
            Ok(refusal) if (400..500).contains(&status) => Err(LoginTrouble::Refused(
                refusal_text(&refusal.error, refusal.error_description.as_deref()),
            )),
            _ => Err(LoginTrouble::Away(format!("{place} answered {status}"))),
        }
    }

    fn person_of(&self, claims: &Map<String, Value>) -> Person {
        let said = ["email", "preferred_username", "sub"].into_iter();
        let mut said = said.filter_map(|name| claims.get(name).and_then(Value::as_str));
        let name = said.find(|name| !name.trim().is_empty()).unwrap_or_default();
        let groups = match claim(claims, &self.options.groups_claim) {
            Some(Value::String(one)) => vec![one.clone()],
            Some(Value::Array(all)) => {
                let texts = all.iter().filter_map(Value::as_str).take(GROUPS_MAX);
                texts.map(str::to_owned).collect()
            }
            _ => Vec::new(),
        };
        Person { name: name.to_owned(), groups }
    }
}

/// A claim by its name, or by the names that lead to it.
fn claim<'c>(claims: &'c Map<String, Value>, name: &str) -> Option<&'c Value> {
    if let Some(found) = claims.get(name) {
        return Some(found);
    }
    let (first, rest) = name.split_once('.')?;
    claim(claims.get(first)?.as_object()?, rest)
}

/// What a provider says when it says no, as one line of text.
pub(super) fn refusal_text(error: &str, description: Option<&str>) -> String {
    let error = text::line(error, 100);
    match description.filter(|text| !text.trim().is_empty()) {
        Some(description) => format!("{error}: {}", text::line(description, 300)),
        None => error,
    }
}

fn json<T: DeserializeOwned>(place: &str, body: &[u8]) -> Result<T, LoginTrouble> {
    serde_json::from_slice(body)
        .map_err(|e| LoginTrouble::Nonsense(format!("{place}: the answer cannot be read: {e}")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_claim_is_found_by_its_name_or_by_its_way() {
        let claims = json!({
            "groups": ["a"], "https://id.example.com/groups": ["b"],
            "realm_access": {"roles": ["c"], "deep.er": ["d"]},
        });
        let claims = claims.as_object().unwrap();
        let found = |name: &str| claim(claims, name).map(|value| value[0].as_str().unwrap());
        assert_eq!(found("groups"), Some("a"));
        assert_eq!(found("https://id.example.com/groups"), Some("b"));
        assert_eq!(found("realm_access.roles"), Some("c"));
        assert_eq!(found("realm_access.deep.er"), Some("d"));
        assert_eq!(claim(claims, "realm_access.nothing"), None);
        assert_eq!(claim(claims, "groups.x"), None);
    }
}
