//! Logging in with a provider of identities, by OpenID Connect: the code flow with PKCE.
//!
//! # Theory of operation
//! `flow.rs` sends a browser to the provider and takes it back; what belongs to one login is in a cookie of the browser
//! and nowhere else. `provider.rs` asks the provider: where its endpoints are, which keys it signs with, and for the ID
//! token of a code. Whom the token names gets an ordinary session, with the rights that the operator's configuration
//! gives to their groups (`rights.rs`).
//!
//! A provider is somebody else's server: everything it answers is bounded in size and time, and nothing but a login ever
//! waits for it. Nothing is asked before somebody wants to log in, so that a provider that is away keeps no server from
//! starting.
//!
//! # What it must not know
//! Sockets: who starts the console hands over a way to ask ([`Ask`]).

pub(crate) mod flow;
pub(crate) mod provider;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;
use posthorn_domain::{Problem, setting};
use posthorn_sealing::vault::Secret;
use serde::{Deserialize, Deserializer};
use url::Url;

use crate::rights::Rights;

/// Where people log in: the section `console.oidc` of the configuration.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Options {
    /// The provider; nobody logs in this way without one.
    #[serde(deserialize_with = "setting::text_if_any")]
    pub issuer: Option<Issuer>,
    /// Who we are there.
    pub client_id: Option<String>,
    /// What shows that we are; public clients have none.
    #[serde(deserialize_with = "secret")]
    pub client_secret: Option<Secret>,
    /// What we want to be told.
    pub scopes: Vec<String>,
    /// What the login page says on the button.
    #[serde(deserialize_with = "setting::some_text")]
    pub button: String,
    /// The claim that names the groups.
    #[serde(deserialize_with = "setting::some_text")]
    pub groups_claim: String,
    /// What groups stand for.
    pub rights: Rights,
}

fn secret<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Secret>, D::Error> {
    Ok(Option::<String>::deserialize(deserializer)?.map(Secret::from))
}

/// Who issues ID tokens: a URL, compared as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Issuer {
    text: String,
    url: Url,
}

impl Issuer {
    /// As it is written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether a URL is on the same host and port, and under TLS if this is.
    pub fn is_home_of(&self, url: &Url) -> bool {
        self.url.origin() == url.origin()
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.url.port_or_known_default().unwrap_or(443)
    }

    fn discovery(&self) -> String {
        format!("{}/.well-known/openid-configuration", self.text.trim_end_matches('/'))
    }

    /// Reads the address of one of its endpoints. What is under TLS leads nowhere without.
    fn endpoint(&self, text: &str) -> Option<Url> {
        let url = Url::parse(text).ok()?;
        let safe = url.scheme() == "https" || (url.scheme() == "http" && self.is_home_of(&url));
        let bare = url.username().is_empty() && url.password().is_none();
        (safe && bare && url.has_host() && url.fragment().is_none()).then_some(url)
    }
}

impl FromStr for Issuer {
    type Err = Problem;

    fn from_str(text: &str) -> Result<Self, Problem> {
        let problem = "must be the https URL of the provider as it names itself, such as \
                       https://id.example.com/realms/main; http is only for a provider on this machine";
        let url = Url::parse(text).map_err(|_| problem)?;
        let near = match url.host() {
            Some(url::Host::Domain(name)) => name == "localhost",
            Some(url::Host::Ipv4(ip)) => ip.is_loopback(),
            Some(url::Host::Ipv6(ip)) => ip.is_loopback(),
            None => false,
        };
        let safe = url.scheme() == "https" || (url.scheme() == "http" && near);
        let bare = url.username().is_empty() && url.password().is_none();
        let plain = url.query().is_none() && url.fragment().is_none();
        if safe && bare && plain && url.has_host() {
            return Ok(Self { text: text.to_owned(), url });
        }
        Err(problem.into())
    }
}

/// A question to a provider.
#[derive(Debug)]
pub struct Question {
    /// Where.
    pub url: Url,
    /// The form that is posted; a plain GET without one.
    pub form: Option<String>,
    /// The value of the header `Authorization`.
    pub authorization: Option<String>,
}

/// An answer under way: status and body, or why there is none.
pub type Asking = Pin<Box<dyn Future<Output = Result<(u16, Bytes), Problem>> + Send>>;

/// The way to a provider. Whoever hands it over bounds what comes back.
#[derive(Clone)]
pub struct Ask(Arc<dyn Fn(Question) -> Asking + Send + Sync>);

impl Ask {
    /// Asks like this.
    pub fn new(ask: impl Fn(Question) -> Asking + Send + Sync + 'static) -> Self {
        Self(Arc::new(ask))
    }

    fn ask(&self, question: Question) -> Asking {
        (self.0)(question)
    }
}

impl fmt::Debug for Ask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ask")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issuer_is_under_tls_or_on_this_machine() {
        for text in ["https://id.example.com/realms/main", "http://127.0.0.1:8080", "http://[::1]/"]
        {
            assert_eq!(text.parse::<Issuer>().expect(text).as_str(), text);
        }
        for text in [
            "",
            "id.example.com",
            "http://id.example.com",
            "https://user:pw@id.example.com",
            "https://id.example.com/?realm=main",
            "https://id.example.com/#x",
            "ftp://127.0.0.1",
        ] {
            assert!(text.parse::<Issuer>().is_err(), "{text}");
        }
    }

    #[test]
    fn endpoints_do_not_leave_tls() {
        let issuer: Issuer = "https://id.example.com/main/".parse().expect("an issuer");
        assert_eq!(
            issuer.discovery(),
            "https://id.example.com/main/.well-known/openid-configuration"
        );
        assert!(issuer.endpoint("https://keys.example.com/jwks").is_some());
        for text in ["http://id.example.com/token", "file:///etc/passwd", "https://a:b@x/", "token"]
        {
            assert!(issuer.endpoint(text).is_none(), "{text}");
        }
        let near: Issuer = "http://127.0.0.1:9".parse().expect("an issuer");
        assert!(near.endpoint("http://127.0.0.1:9/token").is_some());
        assert!(near.endpoint("http://127.0.0.1:10/token").is_none());
        assert!(near.endpoint("http://169.254.169.254/token").is_none());
    }
}
