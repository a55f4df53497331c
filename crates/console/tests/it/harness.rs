//! A console to look at, and a browser without a window.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode, header};
use posthorn_access::Callers;
use posthorn_conformance::model::ModelStore;
use posthorn_console::Options;
use posthorn_console::portal;
use posthorn_domain::{
    Answer, AttemptOutcome, Capability, Clock, FailureCode, RealmName, Scope, TenantId,
};
use posthorn_engine::transport::Sending;
use posthorn_engine::{
    Bound, Engine, NewPortalLink, Outbound, Parts, RealmContents, Transport, UrlProblem,
};
use posthorn_listener::Peer;
use posthorn_sealing::vault::{Vault, VaultKey};
use posthorn_testkit::clock::Wall;
use serde_json::Value;
use tower::ServiceExt as _;
use url::form_urlencoded;

/// Markup that does something when it is shown as it is.
pub(crate) const MARKUP: &str = "<img src=x onerror=alert(1)>";
/// The host that the console is asked under.
const HOST: &str = "console.test";

/// An address that customers must never see.
pub(crate) const INNER: &str = "10.98.76.54:8080";

/// Answers everything with 200, but what is sent to a place whose name says that it fails.
struct Yes;

impl Transport for Yes {
    fn check_url(&self, url: &str) -> Result<String, UrlProblem> {
        Ok(url.to_owned())
    }

    fn send(&self, outbound: Outbound) -> Sending {
        let url = &outbound.endpoint.url;
        let fails = url.contains("fails.example");
        let status = match () {
            () if url.contains("gone.example") => 410,
            () if url.contains("fails") => 503,
            () => 200,
        };
        let answered = AttemptOutcome::Answered(Answer {
            status,
            retry_after: None,
            content_type: None,
            body: Bytes::from_static(MARKUP.as_bytes()),
        });
        let failed = AttemptOutcome::Failed {
            code: FailureCode::ConnectFailed,
            detail: format!("{INNER} refused the connection"),
        };
        let outcome = if fails { failed } else { answered };
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
        Self::open_with(posthorn_api::Options::default()).await
    }

    /// The same with an API that knows more. Tenant `acme` is also the one of all other systems.
    pub(crate) async fn open_with(api: posthorn_api::Options) -> Self {
        Self::open_on(api, posthorn_engine::Options::default()).await
    }

    /// The same on an engine of its own kind.
    pub(crate) async fn open_on(
        api: posthorn_api::Options,
        engine: posthorn_engine::Options,
    ) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(Wall);
        let engine = Engine::start(Parts {
            store: Arc::new(ModelStore::new(Arc::clone(&clock))),
            transport: Arc::new(Yes),
            push: None,
            vault: Arc::new(Vault::new(vec![VaultKey::generate()]).unwrap()),
            clock,
            seed: [7; 32],
            tracer: None,
            options: engine,
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
        let systems = ["notificaties", "efgs", "cedros"].map(|name| (name, "acme".to_owned()));
        let options = Options {
            // Tests ask more often than people.
            requests_per_second: 1_000,
            store: Some("a model"),
            systems: systems.to_vec(),
            exit_codes: vec![(75, "in use", "Stop the other process.")],
            ..Options::default()
        };
        let router = pages(&engine, api, options);
        Self { engine, acme, router }
    }

    /// A browser in front of a console with other options, with the token of a session that is open already.
    pub(crate) fn with_session(&self, options: Options, token: &str) -> Browser {
        let router = pages(&self.engine, posthorn_api::Options::default(), options);
        let cookie = Some(format!("posthorn-console={token}"));
        Browser { router, cookie, page: "/console/audit", heads: Vec::new() }
    }

    /// A browser that nobody has logged in with.
    pub(crate) fn stranger(&self) -> Browser {
        Browser {
            router: self.router.clone(),
            cookie: None,
            page: "/console/audit",
            heads: Vec::new(),
        }
    }

    /// The same, in front of the portal.
    pub(crate) fn visitor(&self, options: portal::Options) -> Browser {
        let api = posthorn_api::router(self.engine.clone(), posthorn_api::Options::default());
        let callers = Callers::new(self.engine.clone(), Arc::default());
        let router = portal::router(self.engine.clone(), api, callers, options);
        Browser { router, cookie: None, page: "/portal/notifications", heads: Vec::new() }
    }

    /// A link into the portal of tenant `acme`.
    pub(crate) async fn link(&self, new: NewPortalLink) -> String {
        let (_, token) = self.engine.create_portal_link(self.acme, new).await.unwrap();
        token.expose_str().unwrap().to_owned()
    }

    /// A customer of tenant `acme` who may do this.
    pub(crate) async fn customer(&self, capabilities: &[Capability]) -> Browser {
        let options = portal::Options { requests_per_second: 1_000, ..portal::Options::default() };
        let mut browser = self.visitor(options);
        let new = NewPortalLink {
            name: MARKUP.to_owned(),
            capabilities: capabilities.to_vec(),
            ..NewPortalLink::default()
        };
        let token = self.link(new).await;
        let answer = browser.send("/portal/redeem", &[("token", &token)], &[]).await;
        assert_eq!(answer.leads(), "/portal/");
        browser.keep(&answer);
        browser
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

    /// Waits until a tenant has so many deliveries that ended well, and so many dead letters.
    pub(crate) async fn settles(&self, delivered: u64, dead: u64) {
        for _ in 0..500 {
            let counts = self.engine.store().counts(Some(self.acme)).await.unwrap();
            if (counts.delivered, counts.dead, counts.pending) == (delivered, dead, 0) {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        panic!("{:?}", self.engine.store().counts(Some(self.acme)).await);
    }

    /// Waits until tenant `acme` has so many dead letters.
    pub(crate) async fn settles_dead(&self, dead: u64) {
        for _ in 0..500 {
            if self.engine.store().counts(Some(self.acme)).await.unwrap().dead == dead {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        panic!("{:?}", self.engine.store().counts(Some(self.acme)).await);
    }

    /// Somebody of tenant `acme`.
    pub(crate) async fn of_acme(&self, scopes: &[Scope]) -> Browser {
        self.login(Bound::Tenant(self.acme), scopes).await
    }
}

/// The pages on an engine.
fn pages(engine: &Engine, api: posthorn_api::Options, options: Options) -> Router {
    let api = posthorn_api::router(engine.clone(), api);
    let callers = Callers::new(engine.clone(), Arc::default());
    posthorn_console::router(engine.clone(), api, callers, options)
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
    pub(crate) cookie: Option<String>,
    /// Where it finds a token for forms.
    page: &'static str,
    /// What a proxy on this machine adds to every request.
    pub(crate) heads: Vec<(&'static str, &'static str)>,
}

impl Browser {
    /// Keeps the first cookie of an answer, which is that of the session.
    pub(crate) fn keep(&mut self, answer: &Shown) {
        let cookie = answer.headers[header::SET_COOKIE].to_str().unwrap();
        self.cookie = cookie.split(';').next().map(str::to_owned);
    }

    /// Asks with heads of its own.
    pub(crate) async fn get_with(&self, path: &str, heads: &[(&str, &str)]) -> Shown {
        let mut request = Request::builder().uri(path);
        for (name, value) in heads {
            request = request.header(*name, *value);
        }
        self.ask(request.body(Body::empty()).unwrap()).await
    }

    async fn ask(&self, mut request: Request<Body>) -> Shown {
        let headers = request.headers_mut();
        headers.insert(header::HOST, HOST.parse().unwrap());
        if let Some(cookie) = &self.cookie {
            headers.append(header::COOKIE, cookie.parse().unwrap());
        }
        self.pass(&mut request);
        let answer =
            self.router.clone().oneshot(request).await.unwrap_or_else(|never| match never {});
        let (parts, body) = answer.into_parts();
        let bytes = axum::body::to_bytes(body, 32 << 20).await.unwrap();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        Shown { status: parts.status, headers: parts.headers, text }
    }

    /// Opens something that goes on, and leaves it open.
    pub(crate) async fn open(&self, path: &str) -> axum::response::Response {
        self.open_with(path, &[]).await
    }

    /// The same with heads of its own.
    pub(crate) async fn open_with(
        &self,
        path: &str,
        heads: &[(&'static str, &str)],
    ) -> axum::response::Response {
        let mut request = Request::builder().uri(path).body(Body::empty()).unwrap();
        let headers = request.headers_mut();
        for (name, value) in heads {
            headers.insert(*name, value.parse().unwrap());
        }
        headers.insert(header::HOST, HOST.parse().unwrap());
        if let Some(cookie) = &self.cookie {
            headers.insert(header::COOKIE, cookie.parse().unwrap());
        }
        self.pass(&mut request);
        self.router.clone().oneshot(request).await.unwrap_or_else(|never| match never {})
    }

    /// Through the proxy, if there is one.
    fn pass(&self, request: &mut Request<Body>) {
        for (name, value) in &self.heads {
            request.headers_mut().insert(*name, value.parse().unwrap());
            let here = std::net::Ipv4Addr::LOCALHOST.into();
            request.extensions_mut().insert(Peer::new(here, None));
        }
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

    /// Asks the API with a key of its own, for what pages do not make.
    pub(crate) async fn api(site: &Site, method: &str, path: &str, body: Value) -> Value {
        let scopes = vec![Scope::Read, Scope::Publish, Scope::Manage];
        let key = site.engine.create_key(Some(site.acme), scopes, String::new(), None, None);
        let key = key.await.unwrap().text;
        ask(site, &key, method, path, body).await
    }

    /// A token of this session's forms.
    pub(crate) async fn token(&self) -> String {
        let page = self.get(self.page).await.expect(200);
        let (_, rest) = page.split_once("name=\"csrf\" value=\"").unwrap();
        rest.split('"').next().unwrap().to_owned()
    }
}

/// Asks the API with a key.
pub(crate) async fn ask(site: &Site, key: &str, method: &str, path: &str, body: Value) -> Value {
    let api = posthorn_api::router(site.engine.clone(), posthorn_api::Options::default());
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("authorization", format!("Bearer {key}"))
        .header("content-type", "application/json")
        .body(Body::from(body.to_string()))
        .unwrap();
    let answer = api.oneshot(request).await.unwrap();
    let status = answer.status();
    let bytes = axum::body::to_bytes(answer.into_body(), 1 << 20).await.unwrap();
    let answer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
    assert!(status.is_success(), "{method} {path}: {answer}");
    answer
}
