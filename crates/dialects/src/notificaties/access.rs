//! Who asks, and what they may do: ZGW tokens, and the rights of applications.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use http::{HeaderMap, header};
use posthorn_domain::{ClientName, Timestamp, setting};
use posthorn_engine::ClientView;
use posthorn_listener::only;
use posthorn_sealing::jwt::{self, JwtRefusal, Terms};
use posthorn_sealing::vault::Secret;
use serde::Deserialize;

use super::problem::Problem;

/// What an application may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub enum Scope {
    /// `notificaties.consumeren`: have subscriptions.
    Consume,
    /// `notificaties.publiceren`: have channels, publish.
    Publish,
}

impl Scope {
    /// As in the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Consume => "notificaties.consumeren",
            Self::Publish => "notificaties.publiceren",
        }
    }

    /// By its name in the API.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Consume, Self::Publish].into_iter().find(|scope| scope.as_str() == text)
    }
}

impl TryFrom<String> for Scope {
    type Error = posthorn_domain::Problem;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let [consume, publish] = [Self::Consume, Self::Publish].map(Self::as_str);
        let bad = || format!("`{text}` is not a scope: write {consume} or {publish}");
        Self::parse(&text).ok_or_else(|| bad().into())
    }
}

/// A client with its secret.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Credential {
    /// The `client_id` of its tokens.
    #[serde(deserialize_with = "setting::some_text")]
    pub identifier: String,
    /// What its tokens are signed with.
    #[serde(deserialize_with = "setting::some_text")]
    pub secret: Secret,
}

/// An application: some clients, and what they may do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Application {
    /// Its clients.
    pub client_ids: Vec<String>,
    /// Whether they may do everything.
    #[serde(default)]
    pub all: bool,
    /// What they may do otherwise.
    #[serde(default)]
    pub scopes: Vec<Scope>,
}

impl Application {
    /// Everything that its clients may do.
    pub(crate) fn all_scopes(&self) -> Vec<Scope> {
        if self.all { vec![Scope::Consume, Scope::Publish] } else { self.scopes.clone() }
    }
}

/// Everybody whom the configuration names. What was said of a client at run time stands before it.
pub(crate) struct Clients {
    secrets: BTreeMap<String, Secret>,
    rights: BTreeMap<String, BTreeSet<Scope>>,
    terms: Terms,
}

/// Somebody with a valid token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Client {
    pub(crate) id: Arc<str>,
    /// What is said here of what it may do; `None`: nothing.
    scopes: Option<BTreeSet<Scope>>,
}

impl Client {
    /// Whether it may do one of these.
    pub(crate) fn may(&self, any_of: &[Scope]) -> bool {
        self.scopes.as_ref().is_some_and(|own| any_of.iter().any(|scope| own.contains(scope)))
    }

    /// Whether somebody else has to be asked what it may do.
    pub(crate) fn is_unsaid(&self) -> bool {
        self.scopes.is_none()
    }

    /// The same with what somebody else said.
    pub(crate) fn with(self, scopes: BTreeSet<Scope>) -> Self {
        Self { scopes: Some(scopes), ..self }
    }
}

impl Clients {
    pub(crate) fn new(
        credentials: Vec<Credential>,
        applications: &[Application],
        terms: Terms,
    ) -> Self {
        let mut rights: BTreeMap<String, BTreeSet<Scope>> = BTreeMap::new();
        for application in applications {
            for id in &application.client_ids {
                rights.entry(id.clone()).or_default().extend(application.all_scopes());
            }
        }
        let secrets = credentials.into_iter().map(|c| (c.identifier, c.secret)).collect();
        Self { secrets, rights, terms }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.secrets.len()
    }

    /// Who asks. Without a valid token, that is an answer of 403 with a code that says why. `at_run_time`
    /// knows what was said of a client at run time.
    pub(crate) fn authenticate(
        &self,
        headers: &HeaderMap,
        now: Timestamp,
        at_run_time: impl Fn(&ClientName) -> Option<Arc<ClientView>>,
    ) -> Result<Client, Problem> {
        let Some(value) = only(headers, &header::AUTHORIZATION) else {
            return Err(Problem::forbidden(
                "permission_denied",
                "Send one header Authorization: Bearer with a JWT.",
            ));
        };
        let scheme = value.split_once(' ').filter(|(name, _)| name.eq_ignore_ascii_case("bearer"));
        let Some((_, token)) = scheme else {
            return Err(Problem::forbidden(
                "permission_denied",
                "The header Authorization must begin with Bearer.",
            ));
        };
        let view = OnceCell::new();
        let secret_of = |id: &str| {
            let find = || ClientName::new(id).ok().and_then(|name| at_run_time(&name));
            let own = view.get_or_init(find).as_deref().and_then(ClientView::secret);
            own.or_else(|| self.secrets.get(id)).map(Secret::expose)
        };
        let claims = jwt::admit(token.trim(), now.as_seconds(), self.terms, secret_of)
            .map_err(|refusal| Problem::forbidden(code(refusal), sentence(refusal)))?;
        if claims.iat.is_some_and(|iat| iat > now.as_seconds()) {
            tracing::warn!(
                client_id = claims.client_id,
                "a token was created in the future; check the clocks"
            );
        }
        let said = view.get().and_then(Option::as_ref).and_then(|view| view.client.scopes.as_ref());
        let scopes = match said {
            Some(texts) => Some(texts.iter().filter_map(|text| Scope::parse(text)).collect()),
            None => self.rights.get(&claims.client_id).cloned(),
        };
        Ok(Client { id: claims.client_id.into(), scopes })
    }
}

/// The codes that clients know. Those of `exp`, `nbf` and the algorithm carry the names that the
/// library of the original gives these errors.
fn code(refusal: JwtRefusal) -> &'static str {
    match refusal {
        JwtRefusal::NoClient => "missing-client-identifier",
        JwtRefusal::UnknownClient => "invalid-client-identifier",
        JwtRefusal::Signature => "invalid-jwt-signature",
        JwtRefusal::Algorithm => "jwt-invalidalgorithmerror",
        JwtRefusal::NoIat => "jwt-missing-iat-claim",
        JwtRefusal::Ended => "jwt-expiredsignatureerror",
        JwtRefusal::NotYetValid => "jwt-immaturesignatureerror",
        JwtRefusal::Expired => "jwt-expired",
        _ => "jwt-decode-error",
    }
}

fn sentence(refusal: JwtRefusal) -> String {
    let text = refusal.to_string();
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => format!("{}{}.", first.to_uppercase(), letters.as_str()),
        None => text,
    }
}

/// The answer to a client that may not do this.
pub(crate) fn missing(any_of: &[Scope]) -> Problem {
    let names: Vec<&str> = any_of.iter().map(|scope| scope.as_str()).collect();
    Problem::forbidden(
        "permission_denied",
        format!("The application of this client needs the scope {}.", names.join(" or ")),
    )
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use posthorn_sealing::jwt::{ZgwClaims, sign};

    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_500);

    fn clients() -> Clients {
        let credential = |id: &str, secret: &str| Credential {
            identifier: id.to_owned(),
            secret: Secret::from(secret.as_bytes()),
        };
        let application = |id: &str, all, scopes: &[Scope]| Application {
            client_ids: vec![id.to_owned()],
            all,
            scopes: scopes.to_vec(),
        };
        Clients::new(
            vec![credential("all", "s1"), credential("some", "s2"), credential("none", "s3")],
            &[application("all", true, &[]), application("some", false, &[Scope::Consume])],
            Terms { expiry: 3_600, leeway: 0 },
        )
    }

    fn ask(value: &str) -> Result<Client, Problem> {
        let mut headers = HeaderMap::new();
        headers.insert(header::AUTHORIZATION, HeaderValue::from_str(value).expect("a value"));
        clients().authenticate(&headers, NOW, |_| None)
    }

    #[track_caller]
    fn refused(value: &str, code: &str) {
        let problem = ask(value).expect_err(value);
        assert_eq!((problem.status.as_u16(), problem.code), (403, code), "{value}");
    }

    #[test]
    fn clients_have_the_rights_of_their_applications() {
        let token = |id: &str, secret: &str| {
            let claims = ZgwClaims::of_client(id, NOW.as_seconds(), 60);
            format!("Bearer {}", sign(secret.as_bytes(), &claims))
        };
        let all = ask(&token("all", "s1")).expect("let in");
        assert!(ask(&token("all", "s1").replace("Bearer", "bearer")).is_ok());
        assert!(all.may(&[Scope::Consume]) && all.may(&[Scope::Publish]));
        let some = ask(&token("some", "s2")).expect("let in");
        assert!(some.may(&[Scope::Publish, Scope::Consume]) && !some.may(&[Scope::Publish]));
        let none = ask(&token("none", "s3")).expect("let in");
        assert!(!none.may(&[Scope::Consume]) && none.is_unsaid() && !some.is_unsaid());
        assert!(none.with(BTreeSet::from([Scope::Consume])).may(&[Scope::Consume]));
        refused(&token("all", "s2"), "invalid-jwt-signature");
        refused(&token("other", "s1"), "invalid-client-identifier");
    }

    #[test]
    fn every_refusal_has_its_code() {
        let claims = |at: i64| ZgwClaims { exp: None, ..ZgwClaims::of_client("all", at, 0) };
        let bearer = |claims: &ZgwClaims| format!("Bearer {}", sign(b"s1", claims));
        let now = NOW.as_seconds();
        refused("Basic YTpi", "permission_denied");
        refused("Bearer", "permission_denied");
        refused("Bearer x", "jwt-decode-error");
        refused(&bearer(&claims(now - 3_600)), "jwt-expired");
        assert!(ask(&bearer(&claims(now - 3_599))).is_ok());
        assert!(ask(&bearer(&claims(now + 900))).is_ok(), "a clock ahead is only warned of");
        refused(&bearer(&ZgwClaims { iat: None, ..claims(now) }), "jwt-missing-iat-claim");
        refused(&bearer(&ZgwClaims { exp: Some(now), ..claims(now) }), "jwt-expiredsignatureerror");
        let later = ZgwClaims { nbf: Some(now + 1), ..claims(now) };
        refused(&bearer(&later), "jwt-immaturesignatureerror");
        let nobody = ZgwClaims { client_id: String::new(), ..claims(now) };
        refused(&bearer(&nobody), "missing-client-identifier");
        // {"alg":"none"}.{"client_id":"all","iat":1}.
        let none = "Bearer eyJhbGciOiJub25lIn0.eyJjbGllbnRfaWQiOiJhbGwiLCJpYXQiOjF9.";
        refused(none, "jwt-invalidalgorithmerror");
        let problem =
            clients().authenticate(&HeaderMap::new(), NOW, |_| None).expect_err("no header");
        assert_eq!(problem.code, "permission_denied");
    }
}
