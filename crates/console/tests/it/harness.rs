//! A console to look at, and a browser without a window.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, header};
use posthorn_access::Callers;
use posthorn_conformance::model::ModelStore;
use posthorn_console::Options;
use posthorn_domain::{Answer, AttemptOutcome, Clock, RealmName, Scope, TenantId};
use posthorn_engine::transport::Sending;
use posthorn_engine::{Bound, Engine, Outbound, Parts, RealmContents, Transport, UrlProblem};
use posthorn_sealing::vault::{Vault, VaultKey};
use posthorn_testkit::clock::Wall;
use tower::ServiceExt as _;
use url::form_urlencoded;

/// Markup that does something when it is shown as it is.
pub(crate) const MARKUP: &str = "<img src=x onerror=alert(1)>";
/// The host that the console is asked under.
const HOST: &str = "console.test";

/// Answers everything with 200.
struct Yes;

impl Transport for Yes {
    fn check_url(&self, url: &str) -> Result<String, UrlProblem> {
        Ok(url.to_owned())
    }

    fn send(&self, _: Outbound) -> Sending {
        let outcome = AttemptOutcome::Answered(Answer {
            status: 200,
            retry_after: None,
            content_type: None,
            body: Bytes::from_static(MARKUP.as_bytes()),
        });
        Box::pin(async move { posthorn_engine::transport::Sent::from(outcome) })
    }
}

/// The console of a server with the tenants `acme` and `other`, and the realm `live`.
pub(crate) struct Site {
    pub(crate) engine: Engine,
    pub(crate) acme: TenantId,
    router: Router,
}

impl Site {
    pub(crate) async fn open() -> Self {
        let clock: Arc<dyn Clock> = Arc::new(Wall);
        let engine = Engine::start(Parts {
            store: Arc::new(ModelStore::new(Arc::clone(&clock))),
            transport: Arc::new(Yes),
            push: None,
            vault: Arc::new(Vault::new(vec![VaultKey::generate()]).unwrap()),
            clock,
            seed: [7; 32],
            tracer: None,
            options: posthorn_engine::Options::default(),
        })
        .await
        .unwrap();
        let acme = engine.create_tenant("acme".to_owned()).await.unwrap().id;
        engine.create_tenant("other".to_owned()).await.unwrap();
        let empty = RealmContents {
            description: String::new(),
            defaults: posthorn_domain::RealmDefaults::default(),
            validation: posthorn_domain::Validation::Off,
        };
        engine.put_realm(RealmName::new("live").unwrap(), empty).await.unwrap();
        let api = posthorn_api::router(engine.clone(), posthorn_api::Options::default());
        let callers = Callers::new(engine.clone(), Arc::default());
        let options = Options { store: Some("a model"), ..Options::default() };
        let router = posthorn_console::router(engine.clone(), api, callers, options);
        Self { engine, acme, router }
    }

    /// A browser that nobody has logged in with.
    pub(crate) fn stranger(&self) -> Browser {
        Browser { router: self.router.clone(), cookie: None }
    }

    /// Somebody who is logged in with a new key.
    pub(crate) async fn login(&self, bound: Bound, scopes: &[Scope]) -> Browser {
        let made = self.engine.create_key(bound, scopes.to_vec(), "a key".to_owned(), None, None);
        let key = made.await.unwrap().text;
        let mut browser = self.stranger();
        let answer = browser.send("/console/login", &[("key", &key)], &[]).await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.text);
        let cookie = answer.headers[header::SET_COOKIE].to_str().unwrap();
        browser.cookie = cookie.split(';').next().map(str::to_owned);
        browser
    }

    pub(crate) async fn operator(&self) -> Browser {
        self.login(Bound::Nobody, &[Scope::Operator]).await
    }

    /// Somebody of tenant `acme`.
    pub(crate) async fn of_acme(&self, scopes: &[Scope]) -> Browser {
        self.login(Bound::Tenant(self.acme), scopes).await
    }
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Shown {
    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> String {
        assert_eq!(self.status.as_u16(), status, "{}", self.text);
        self.text
    }

    /// Where it leads.
    #[track_caller]
    pub(crate) fn leads(&self) -> String {
        assert_eq!(self.status, StatusCode::SEE_OTHER, "{}", self.text);
        self.headers[header::LOCATION].to_str().unwrap().to_owned()
    }
}

/// A browser, as far as the console can tell.
pub(crate) struct Browser {
    router: Router,
    cookie: Option<String>,
}

impl Browser {
    async fn ask(&self, mut request: Request<Body>) -> Shown {
        let headers = request.headers_mut();
        headers.insert(header::HOST, HOST.parse().unwrap());
        if let Some(cookie) = &self.cookie {
            headers.insert(header::COOKIE, cookie.parse().unwrap());
        }
        let answer =
            self.router.clone().oneshot(request).await.unwrap_or_else(|never| match never {});
        let (parts, body) = answer.into_parts();
        let bytes = axum::body::to_bytes(body, 32 << 20).await.unwrap();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        Shown { status: parts.status, headers: parts.headers, text }
    }

    pub(crate) async fn get(&self, path: &str) -> Shown {
        self.ask(Request::builder().uri(path).body(Body::empty()).unwrap()).await
    }

    /// Sends a form as it is given.
    pub(crate) async fn send(
        &self,
        path: &str,
        fields: &[(&str, &str)],
        heads: &[(&str, &str)],
    ) -> Shown {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.extend_pairs(fields);
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(path)
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        if heads.is_empty() {
            request = request.header(header::ORIGIN, format!("http://{HOST}"));
        }
        for (name, value) in heads {
            request = request.header(*name, *value);
        }
        self.ask(request.body(Body::from(form.finish())).unwrap()).await
    }

    /// Sends a form as its page would, with the token.
    pub(crate) async fn submit(&self, path: &str, fields: &[(&str, &str)]) -> Shown {
        let token = self.token().await;
        let mut whole = vec![("csrf", token.as_str())];
        whole.extend(fields);
        self.send(path, &whole, &[]).await
    }

    /// A token of this session's forms.
    pub(crate) async fn token(&self) -> String {
        let page = self.get("/console/audit").await.expect(200);
        let (_, rest) = page.split_once("name=\"csrf\" value=\"").unwrap();
        rest.split('"').next().unwrap().to_owned()
    }
}
