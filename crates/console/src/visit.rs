//! One visitor on the way to a page: who they are, whose things they look at, and what they asked.
//!
//! Pages do not decide who may see what. They ask the native API, within the process and in the name of the session, so
//! that a page can do nothing a key with the same rights could not, and every rule is written once.

use std::sync::{Arc, OnceLock};

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri, header};
use posthorn_access::TENANT_HEADER;
use posthorn_api::Vouched;
use posthorn_domain::{Home, RealmName, Scope, Session, Tenant, TenantId, Timestamp};
use posthorn_engine::{Acting, Engine, Principal, TenantFilter};
use posthorn_listener::Peer;
use posthorn_store::Counts;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tower::ServiceExt as _;

use crate::Console;
use crate::entry;
use crate::form::{self, Fields};
use crate::trouble::{Refusal, Trouble};

/// The largest answer of the API that a page reads: an event with its payload.
const ANSWER_MAX: usize = 32 << 20;

/// A visitor who is logged in.
pub(crate) struct Visit {
    pub(crate) console: Arc<Console>,
    pub(crate) session: Arc<Session>,
    principal: Principal,
    /// As the browser showed it.
    token: String,
    /// Whose things this page is about, where it is about a tenant's.
    tenant: Option<Tenant>,
    pub(crate) headers: HeaderMap,
    peer: Option<Peer>,
    /// The parameters of the query.
    pub(crate) query: Fields,
    /// What was typed, in a request that sends a form.
    pub(crate) form: Fields,
    /// What the path names after the tenant.
    pub(crate) named: Vec<String>,
    pub(crate) uri: Uri,
    /// Which pages they are on, for the audit log.
    surface: &'static str,
    /// How things were before the page was made, for its stream.
    pub(crate) mark: Option<String>,
    /// What its tenant had then.
    counts: OnceLock<Counts>,
}

/// What a visit is made of.
pub(crate) struct Arrival {
    pub(crate) session: Arc<Session>,
    pub(crate) principal: Principal,
    pub(crate) token: String,
    pub(crate) headers: HeaderMap,
    pub(crate) uri: Uri,
    pub(crate) peer: Option<Peer>,
    pub(crate) form: Fields,
    pub(crate) named: Vec<String>,
    pub(crate) surface: &'static str,
}

impl Visit {
    pub(crate) fn new(console: Arc<Console>, arrival: Arrival) -> Self {
        let Arrival { session, principal, token, headers, uri, peer, form, named, surface } =
            arrival;
        let query = Fields::parse(uri.query().unwrap_or_default().as_bytes());
        let tenant = None;
        Self {
            console,
            session,
            principal,
            token,
            tenant,
            headers,
            peer,
            query,
            form,
            named,
            uri,
            surface,
            mark: None,
            counts: OnceLock::new(),
        }
    }

    /// What the tenant of the page has, counted before it was made.
    pub(crate) fn counted(&self, counts: Counts) {
        // The first count is as good as another.
        let _ = self.counts.set(counts);
    }

    /// What a tenant has, for the navigation; nothing while the store does not answer.
    pub(crate) async fn counts(&self, tenant: TenantId) -> Option<Counts> {
        let own = self.tenant.as_ref().is_some_and(|own| own.id == tenant);
        match self.counts.get().filter(|_| own) {
            Some(counts) => Some(*counts),
            None => self.engine().store().counts(Some(tenant)).await.ok(),
        }
    }

    /// The same, about a tenant that the path names. One that the visitor may not see is not there.
    pub(crate) fn about(mut self, text: &str) -> Result<Self, Trouble> {
        let found = self.find_tenant(text).ok_or(Trouble::NotFound("tenant"))?;
        self.tenant = Some(found);
        Ok(self)
    }

    /// The tenant that a name or an id means, if the visitor may act for it.
    pub(crate) fn find_tenant(&self, text: &str) -> Option<Tenant> {
        let catalog = self.engine().catalog();
        let found = match text.parse::<TenantId>() {
            Ok(id) => catalog.tenant(id).ok(),
            Err(_) => catalog.tenant_named(text),
        };
        found.filter(|tenant| self.principal.acts_for(tenant))
    }

    pub(crate) fn engine(&self) -> &Engine {
        &self.console.engine
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.engine().now()
    }

    /// Whose things the page is about.
    pub(crate) fn tenant(&self) -> Result<&Tenant, Trouble> {
        self.tenant.as_ref().ok_or(Trouble::NotFound("tenant"))
    }

    /// The tenant that pages of the navigation are about: that of this page, or the visitor's own, or the one they looked
    /// at last.
    pub(crate) fn usual_tenant(&self) -> Option<Tenant> {
        if let Some(tenant) = &self.tenant {
            return Some(tenant.clone());
        }
        if let Home::Tenant(own) = self.session.home {
            return self.engine().catalog().tenant(own).ok();
        }
        let last = crate::cookie::read(&self.headers, crate::cookie::TENANT);
        let last = last.and_then(|name| self.find_tenant(&name));
        let usual = last.or_else(|| self.find_tenant(&TenantId::DEFAULT.to_string()));
        // A realm may have none of both.
        usual.or_else(|| {
            let filter =
                TenantFilter { realm: Some(self.realm()?.clone()), ..TenantFilter::default() };
            let (some, _) = self.engine().catalog().tenants_page(&filter, None, 20);
            some.into_iter().find(|tenant| tenant.deletion.is_none())
        })
    }

    pub(crate) fn allows(&self, scope: Scope) -> bool {
        self.principal.is_operator() || self.principal.key.allows(scope)
    }

    pub(crate) fn is_operator(&self) -> bool {
        self.principal.is_operator()
    }

    /// Whether the visitor sees all tenants, also without being an operator.
    pub(crate) fn is_everywhere(&self) -> bool {
        self.principal.is_everywhere()
    }

    /// The realm that the session is bound to.
    pub(crate) fn realm(&self) -> Option<&RealmName> {
        self.principal.realm()
    }

    /// Where the visitor comes from, if that is known.
    pub(crate) fn peer(&self) -> Option<&Peer> {
        self.peer.as_ref()
    }

    /// Whether somebody who stays may still look: the session is there, what it stands on is, and so is the tenant. It is
    /// judged by the rights that a page would have now, so that no page is called over that could be opened again.
    pub(crate) async fn is_still_allowed(&self) -> Result<bool, Trouble> {
        let peer = self.peer.as_ref();
        let still = entry::still(&self.console, &self.token, &self.headers, peer).await?;
        let Some(principal) = still else { return Ok(false) };
        let reads = principal.is_operator() || principal.key.allows(Scope::Read);
        let own = match &self.tenant {
            None => principal.is_operator(),
            Some(tenant) => {
                let tenant = self.engine().catalog().tenant(tenant.id);
                tenant.is_ok_and(|tenant| principal.acts_for(&tenant))
            }
        };
        Ok(reads && own)
    }

    /// A token for the forms of one page.
    pub(crate) fn form_token(&self) -> String {
        let mut mask = [0; 32];
        for part in mask.chunks_exact_mut(8) {
            part.copy_from_slice(&self.engine().dice().to_le_bytes());
        }
        form::token(&self.token, mask)
    }

    /// In whose name a visitor changes things.
    pub(crate) fn acting(&self) -> Acting {
        let (id, home) = (self.session.id.to_string(), self.session.home.clone());
        let address = self.peer.as_ref().map(Peer::address);
        Acting::session(&id, &self.session.name, home, self.surface, address)
    }

    async fn ask(
        &self,
        tenant: Option<&Tenant>,
        method: Method,
        path: &str,
        body: Option<Bytes>,
    ) -> Result<Response, Trouble> {
        let mut request = Request::new(body.clone().map_or_else(Body::empty, Body::from));
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().map_err(|_| Trouble::NotFound("page"))?;
        let headers = request.headers_mut();
        if let Some(body) = &body {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
        }
        if let Some(tenant) = tenant
            && let Ok(name) = HeaderValue::from_str(&tenant.id.to_string())
        {
            headers.insert(TENANT_HEADER, name);
        }
        // Links that the API makes lead to where the visitor is.
        if let Some(host) = self.headers.get(header::HOST) {
            headers.insert(header::HOST, host.clone());
        }
        let vouched = Vouched { principal: self.principal.clone(), by: self.acting() };
        request.extensions_mut().insert(vouched);
        if let Some(peer) = &self.peer {
            request.extensions_mut().insert(peer.clone());
        }
        let answer = self.console.api.clone().oneshot(request).await;
        Ok(answer.unwrap_or_else(|never| match never {}))
    }

    async fn read(&self, answer: Response) -> Result<Bytes, Trouble> {
        let status = answer.status();
        let bytes = axum::body::to_bytes(answer.into_body(), ANSWER_MAX).await;
        let bytes =
            bytes.map_err(|_| Trouble::Fault("the answer is too large to be shown".to_owned()))?;
        if status.is_success() {
            return Ok(bytes);
        }
        match serde_json::from_slice::<Refusal>(&bytes) {
            Ok(refusal) => Err(refusal.into()),
            Err(_) => Err(Trouble::Fault(format!("the API answered {status}"))),
        }
    }

    /// Asks the API for something.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Trouble> {
        let answer = self.ask(self.tenant.as_ref(), Method::GET, path, None).await?;
        decode(&self.read(answer).await?)
    }

    /// The same for another tenant than the page's.
    pub(crate) async fn get_of<T: DeserializeOwned>(
        &self,
        tenant: &Tenant,
        path: &str,
    ) -> Result<T, Trouble> {
        let answer = self.ask(Some(tenant), Method::GET, path, None).await?;
        decode(&self.read(answer).await?)
    }

    /// The same, where there may be no such thing.
    pub(crate) async fn find<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, Trouble> {
        match self.get(path).await {
            Ok(found) => Ok(Some(found)),
            Err(Trouble::Refused(refusal)) if refusal.status == 404 => Ok(None),
            Err(trouble) => Err(trouble),
        }
    }

    /// Has the API do something.
    pub(crate) async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<T, Trouble> {
        let body = body.map(|body| Bytes::from(body.to_string()));
        let answer = self.ask(self.tenant.as_ref(), method, path, body).await?;
        decode(&self.read(answer).await?)
    }

    /// The same for another tenant than the page's.
    pub(crate) async fn send_for<T: DeserializeOwned>(
        &self,
        tenant: &Tenant,
        method: Method,
        path: &str,
        body: &Value,
    ) -> Result<T, Trouble> {
        let body = Some(Bytes::from(body.to_string()));
        let answer = self.ask(Some(tenant), method, path, body).await?;
        decode(&self.read(answer).await?)
    }

    /// The same with a body as it was typed, and where nobody needs the answer.
    pub(crate) async fn send_bytes(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
    ) -> Result<Bytes, Trouble> {
        let answer = self.ask(self.tenant.as_ref(), method, path, body).await?;
        self.read(answer).await
    }
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Trouble> {
    let bytes = if bytes.is_empty() { b"null" } else { bytes };
    serde_json::from_slice(bytes)
        .map_err(|e| Trouble::Fault(format!("the API's answer cannot be read: {e}")))
}

/// A page, to be kept by nobody.
pub(crate) fn page(headers: &HeaderMap, status: StatusCode, html: String) -> Response {
    const GZIP_FROM: usize = 1_024;
    let gzip = html.len() >= GZIP_FROM && crate::assets::takes_gzip(headers);
    let body = if gzip { crate::assets::gzip(html.as_bytes(), 4) } else { Bytes::from(html) };
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    let own = response.headers_mut();
    own.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    own.insert(header::VARY, HeaderValue::from_static("accept-encoding, cookie"));
    if gzip {
        own.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    response
}

/// On to another page, with a GET.
pub(crate) fn see(path: &str) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    let place = HeaderValue::from_str(path).unwrap_or(HeaderValue::from_static("/console/"));
    response.headers_mut().insert(header::LOCATION, place);
    response
}
