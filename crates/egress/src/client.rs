//! The handle everybody sends through.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use http::header::{
    ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, EXPECT, HOST, HeaderName, PROXY_AUTHORIZATION, TE,
    TRAILER, TRANSFER_ENCODING, UPGRADE, USER_AGENT,
};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use http_body_util::Full;
use posthorn_domain::{AttemptOutcome, FailureCode, ProxyName, TenantId, policy, setting};
use serde::{Deserialize, Deserializer, de};
use tokio::time::Instant;

use crate::certificate::{CertificateError, Identity};
use crate::counters::Counters;
use crate::dial::{Dialer, Through, Wanted};
use crate::exchange::{Appetite, Exchanged, Message, Until, exchange};
use crate::failure::SendFailure;
use crate::guard::{AddressRule, Guard, NameRule, Rules};
use crate::link::Link;
use crate::pool::{Key, Limits, Pool, PoolKey};
use crate::proxy::{self, Proxy, ProxyMode};
use crate::resolve::Names;
use crate::source::{Source, SourceError};
use crate::target::{Scheme, Target};
use crate::tls::{ClientTls, Tls};

const USER_AGENT_DEFAULT: &str = concat!("Posthorn/", env!("CARGO_PKG_VERSION"));

/// What the operator decides: the section `egress` of the configuration.
#[derive(Clone, Debug, Deserialize)]
pub struct Options {
    /// Networks opened in spite of the address policy.
    #[serde(deserialize_with = "setting::texts")]
    pub allow: Vec<AddressRule>,
    /// Networks closed in spite of the address policy; these win over `allow`.
    #[serde(deserialize_with = "setting::texts")]
    pub deny: Vec<AddressRule>,
    /// Host names opened although they have no domain, or one that is not public.
    #[serde(deserialize_with = "setting::texts")]
    pub names: Vec<NameRule>,
    /// The only ports open to receivers; when empty, those where receivers are expected.
    #[serde(deserialize_with = "ports")]
    pub ports: Vec<u16>,
    /// Refuse plain http.
    pub https_only: bool,
    /// Accept hosts outside ASCII and use their `xn--` form.
    pub allow_idn: bool,
    /// Judge addresses of the well-known NAT64 prefix by the IPv4 address inside.
    pub nat64: bool,
    /// Let `allow` open even link-local addresses and cloud metadata services.
    pub dangerously_allow_metadata: bool,
    /// Idle connections kept per subscription and origin.
    pub idle_per_subscription: usize,
    /// How long a connection is kept idle.
    #[serde(deserialize_with = "setting::some_time")]
    pub idle_timeout: Duration,
    /// How long a connection is used at all, so that a receiver that moved is found.
    #[serde(deserialize_with = "setting::some_time")]
    pub connection_age_max: Duration,
    /// Open connections in all, busy and idle.
    #[serde(deserialize_with = "setting::at_least_one")]
    pub connections: usize,
    /// Proxies that requests may name. Whoever knows whom they are open to reads them.
    #[serde(skip)]
    pub proxies: BTreeMap<ProxyName, Proxy>,
    /// Where connections come from.
    pub source: Source,
    /// Name servers that are asked; those of `/etc/resolv.conf` when empty.
    #[serde(deserialize_with = "name_servers")]
    pub resolvers: Vec<SocketAddr>,
    /// Certificates trusted besides the public roots, as PEM.
    pub extra_roots: Option<String>,
    /// Sent unless a request brings its own.
    #[serde(deserialize_with = "user_agent")]
    pub user_agent: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            deny: Vec::new(),
            names: Vec::new(),
            ports: Vec::new(),
            https_only: false,
            allow_idn: false,
            nat64: false,
            dangerously_allow_metadata: false,
            idle_per_subscription: 64,
            idle_timeout: Duration::from_secs(30),
            connection_age_max: Duration::from_secs(300),
            connections: 2_000,
            proxies: BTreeMap::new(),
            source: Source::default(),
            resolvers: Vec::new(),
            extra_roots: None,
            user_agent: USER_AGENT_DEFAULT.to_owned(),
        }
    }
}

fn user_agent<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let named = Option::deserialize(deserializer)?;
    Ok(named.unwrap_or_else(|| USER_AGENT_DEFAULT.to_owned()))
}

fn name_servers<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<SocketAddr>, D::Error> {
    let read = |text: String| {
        text.parse().map_err(|_| {
            de::Error::custom(format_args!(
                "`{text}` is not a name server: write 192.0.2.53:53 or [2001:db8::53]:53"
            ))
        })
    };
    Vec::<String>::deserialize(deserializer)?.into_iter().map(read).collect()
}

/// Ports, as numbers or, from an environment, as their texts.
fn ports<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u16>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a port is a number from 1 to 65535")]
    enum Port {
        Number(NonZeroU16),
        Text(String),
    }
    let read = |port: Port| match port {
        Port::Number(port) => Ok(port.get()),
        Port::Text(text) => text
            .parse()
            .map(NonZeroU16::get)
            .map_err(|_| de::Error::custom("a port is a number from 1 to 65535")),
    };
    Vec::<Port>::deserialize(deserializer)?.into_iter().map(read).collect()
}

/// Why egress cannot be set up.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Not PEM.
    #[error("read the extra root certificates")]
    RootsPem(#[source] rustls_pki_types::pem::Error),
    /// PEM without a certificate.
    #[error("find a certificate among the extra root certificates")]
    RootsEmpty,
    /// Refused by the TLS library.
    #[error("set up TLS")]
    Tls(#[source] rustls::Error),
    /// Not addresses of this machine.
    #[error("use the addresses of egress.source")]
    Source(#[source] SourceError),
    /// Cannot be a header value.
    #[error("use the user agent text as a header value")]
    UserAgent(#[source] http::header::InvalidHeaderValue),
}

/// How long the phases of one attempt may take. All are absolute: trickling bytes extend nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadlines {
    /// DNS and TCP.
    pub connect: Duration,
    /// The TLS handshake.
    pub tls: Duration,
    /// From sending the request to the response head.
    pub response: Duration,
    /// The whole attempt, response body included.
    pub total: Duration,
}

impl Deadlines {
    /// Whatever was spent before, this much is left.
    pub const SHORTEST: Duration = Duration::from_millis(1);

    /// Everything within the same time.
    pub const fn all(within: Duration) -> Self {
        Self { connect: within, tls: within, response: within, total: within }
    }

    /// The same, with no phase longer than this.
    #[must_use]
    pub fn at_most(&self, within: Duration) -> Self {
        Self {
            connect: self.connect.min(within),
            tls: self.tls.min(within),
            response: self.response.min(within),
            total: self.total.min(within),
        }
    }
}

impl From<&policy::Limits> for Deadlines {
    fn from(limits: &policy::Limits) -> Self {
        Self {
            connect: limits.connect.to_duration(),
            tls: limits.tls.to_duration(),
            response: limits.response.to_duration(),
            total: limits.total.to_duration(),
        }
    }
}

impl Default for Deadlines {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            tls: Duration::from_secs(5),
            response: Duration::from_secs(15),
            total: Duration::from_secs(20),
        }
    }
}

/// One request.
#[derive(Clone, Debug)]
pub struct Request {
    /// Whose it is; connections are not shared between tenants.
    pub tenant: TenantId,
    /// Which subscription's; connections are not shared between these either.
    pub pool: PoolKey,
    /// Where to.
    pub target: Arc<Target>,
    /// A client certificate or a trust of its own; the default ones when absent.
    pub tls: Option<Arc<ClientTls>>,
    /// The proxy it leaves through, one of [`Options::proxies`]; directly when absent.
    pub proxy: Option<ProxyName>,
    /// Whether the target's name is looked up and judged also when a connection is open already.
    pub vet_always: bool,
    /// Replaces the target's path and query when they were rendered for this request.
    pub path_and_query: Option<String>,
    /// The method.
    pub method: Method,
    /// Headers, without those that describe the connection or the length: these are ours.
    pub headers: HeaderMap,
    /// The body, verbatim.
    pub body: Bytes,
    /// How long it may take.
    pub deadlines: Deadlines,
}

/// What the phases took. Absent when a phase did not happen or did not end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timings {
    /// Resolving the name.
    pub dns: Option<Duration>,
    /// Connecting.
    pub connect: Option<Duration>,
    /// The TLS handshake.
    pub tls: Option<Duration>,
    /// From the beginning to the response head.
    pub first_byte: Option<Duration>,
    /// Everything.
    pub total: Duration,
}

impl From<Timings> for posthorn_domain::Timings {
    fn from(timings: Timings) -> Self {
        let Timings { dns, connect, tls, first_byte, .. } = timings;
        let span = |time: Option<Duration>| time.map(Into::into);
        Self {
            dns: span(dns),
            connect: span(connect),
            tls: span(tls),
            first_byte: span(first_byte),
            held: None,
        }
    }
}

/// What came of a request.
#[derive(Clone, Debug)]
pub struct Sent {
    /// An answer or a typed failure.
    pub outcome: AttemptOutcome,
    /// Where a redirect leads. Nothing here follows it; see [`Egress::redirect`].
    pub location: Option<String>,
    /// The headers of the answer, where they were asked for; see [`Egress::ask`].
    pub headers: Option<Box<HeaderMap>>,
    /// What it took.
    pub timings: Timings,
    /// Whether it went over a connection that was open already.
    pub reused: bool,
}

impl From<AttemptOutcome> for Sent {
    /// What came of a request that nobody measured.
    fn from(outcome: AttemptOutcome) -> Self {
        Self { outcome, location: None, headers: None, timings: Timings::default(), reused: false }
    }
}

/// A cheap handle; clones share connections.
#[derive(Clone)]
pub struct Egress {
    inner: Arc<Inner>,
}

struct Inner {
    dialer: Dialer,
    pool: Arc<Pool>,
    user_agent: HeaderValue,
    proxies: BTreeMap<ProxyName, Proxy>,
    counters: Counters,
}

impl Egress {
    /// Sets up TLS and limits, and looks whether the source addresses are of this machine. Connects to nothing and
    /// reads no resolver configuration yet.
    pub fn new(options: Options) -> Result<Self, Error> {
        options.source.check().map_err(Error::Source)?;
        let tls = Tls::new(options.extra_roots.as_deref().map(str::as_bytes))?;
        let user_agent = HeaderValue::try_from(options.user_agent).map_err(Error::UserAgent)?;
        let pool = Pool::new(Limits {
            idle_per_key: options.idle_per_subscription,
            idle_timeout: options.idle_timeout,
            age_max: options.connection_age_max,
            open_max: options.connections,
        });
        let guard = Guard::new(Rules {
            allow: options.allow,
            deny: options.deny,
            names: options.names,
            ports: options.ports,
            https_only: options.https_only,
            allow_idn: options.allow_idn,
            nat64: options.nat64,
            dangerously_allow_metadata: options.dangerously_allow_metadata,
        });
        guard.refresh(Instant::now());
        let dialer = Dialer {
            guard,
            names: Names::new(options.resolvers),
            tls,
            pool: Arc::clone(&pool),
            source: options.source,
        };
        let (proxies, counters) = (options.proxies, Counters::new());
        Ok(Self { inner: Arc::new(Inner { dialer, pool, user_agent, proxies, counters }) })
    }

    /// The rules, for whoever takes URLs from tenants.
    pub fn guard(&self) -> &Guard {
        &self.inner.dialer.guard
    }

    /// Where the proxies are, by what their names say now, for whoever tells the guard what is no
    /// receiver; and whether every name was found.
    pub async fn places_of_proxies(&self) -> (Vec<SocketAddr>, bool) {
        let places = self.inner.proxies.iter().map(|(name, proxy)| {
            let through = Through { name, proxy };
            self.inner.dialer.places_of(through)
        });
        let places = join_all(places).await;
        let complete = places.iter().all(|found| !found.is_empty());
        (places.concat(), complete)
    }

    /// What to present and whom to trust instead of the default: `identity` is presented to
    /// receivers that ask for it; when there are `authorities_pem`, only these are trusted, and
    /// otherwise the same roots as by default. Make it once and share it between requests.
    pub fn client_tls(
        &self,
        identity: Option<&Identity>,
        authorities_pem: &[&[u8]],
    ) -> Result<ClientTls, CertificateError> {
        self.inner.dialer.tls.client(identity, authorities_pem)
    }

    /// Resolves the target and judges every address it has, without connecting: what can be known
    /// about a URL when it is written down. It may look different when something is sent, and is
    /// judged again then. The text is for the operator and may name addresses.
    pub async fn vet(
        &self,
        target: &Target,
        within: Duration,
    ) -> Result<(), (FailureCode, String)> {
        let vetted = self.inner.dialer.vet(target, Instant::now() + within).await;
        vetted.map_err(|failure| (failure.code, failure.detail))
    }

    /// Where a target is, by what its name says now; nowhere when it cannot be resolved or is closed.
    pub async fn places_of(&self, target: &Target, within: Duration) -> Vec<SocketAddr> {
        self.inner.dialer.places(target, Instant::now() + within).await
    }

    /// Where a redirect leads, for those few who follow one: `None` unless it stays with the scheme,
    /// the host and the port of what was asked, and is a URL that may be asked.
    pub fn redirect(&self, asked: &Target, location: &str) -> Option<Target> {
        let there = url::Url::parse(asked.as_str()).ok()?.join(location).ok()?;
        let there = self.guard().check_url(there.as_str()).ok()?;
        (there.origin() == asked.origin()).then_some(there)
    }

    /// Sends one request and says what came of it. Dropping the future closes the connection it
    /// was using and leaves nothing behind.
    pub async fn send(&self, request: Request) -> Sent {
        self.send_for(request, Appetite::default()).await
    }

    /// The same where the answer is what is wanted: up to so many bytes of its body are kept, and no
    /// more are read.
    pub async fn fetch(&self, request: Request, bytes_max: usize) -> Sent {
        self.send_for(request, Appetite { kept: bytes_max, read: bytes_max, headers: false }).await
    }

    /// The same where the headers of the answer are what is wanted.
    pub async fn ask(&self, request: Request) -> Sent {
        self.send_for(request, Appetite { headers: true, ..Appetite::default() }).await
    }

    async fn send_for(&self, request: Request, appetite: Appetite) -> Sent {
        let began = Instant::now();
        let nothing = AttemptOutcome::Failed { code: FailureCode::Internal, detail: String::new() };
        let mut sent = Sent::from(nothing);
        sent.outcome = match self.attempt(request, began, appetite, &mut sent).await {
            Ok(outcome) => outcome,
            Err(failure) => failure.into_outcome(),
        };
        sent.timings.total = began.elapsed();
        sent
    }

    async fn attempt(
        &self,
        request: Request,
        began: Instant,
        appetite: Appetite,
        sent: &mut Sent,
    ) -> Result<AttemptOutcome, SendFailure> {
        let inner = &*self.inner;
        let Request { tenant, pool, target, tls, proxy, deadlines, vet_always, .. } = &request;
        let vet_always = *vet_always;
        let through = proxy.as_ref().map(|name| inner.proxy(name)).transpose()?;
        let key = Key {
            tenant: *tenant,
            pool: *pool,
            origin: Arc::clone(target.origin()),
            tls: tls.as_deref().map(ClientTls::id),
            proxy: proxy.clone(),
        };
        let (target, tls, deadlines) = (Arc::clone(target), tls.clone(), *deadlines);
        let total = began + deadlines.total;
        let forwarded = through.filter(|through| through.proxy.mode == ProxyMode::Forward);
        let mut message = inner.message(request, forwarded)?;
        let mut idle = inner.idle(&key, began);
        loop {
            sent.reused = idle.is_some();
            let (mut link, start) = match idle.take() {
                Some(link) => {
                    if vet_always {
                        let until = (began + deadlines.connect).min(total);
                        Box::pin(inner.dialer.vet(&target, until)).await?;
                    }
                    inner.counters.reused.increment(1);
                    (link, began)
                }
                None => {
                    // Boxed, because most attempts need none of it and all would carry its size.
                    let (tenant, tls) = (key.tenant, tls.as_deref());
                    let wanted = Wanted { tenant, target: &target, tls, through };
                    let opening = inner.dialer.open(wanted, &deadlines, total, &mut sent.timings);
                    let link = Box::pin(opening).await?;
                    inner.counters.opened.increment(1);
                    (link, Instant::now())
                }
            };
            let until = Until { head: start + deadlines.response, total };
            match exchange(&mut link, message, until, appetite).await {
                Exchanged::Answered { answer, location, headers, head_at, clean } => {
                    sent.location = location;
                    sent.headers = headers;
                    sent.timings.first_byte = Some(head_at.duration_since(began));
                    if let Some(through) = forwarded {
                        // Its target is judged for every request, so the connection is not used again.
                        if answer.status == StatusCode::PROXY_AUTHENTICATION_REQUIRED.as_u16() {
                            let detail = "refused its user and password (407)";
                            return Err(proxy::failed(through.name, detail));
                        }
                    } else if clean {
                        inner.pool.put(key, link, head_at);
                    }
                    return Ok(AttemptOutcome::Answered(answer));
                }
                // The receiver closed the idle connection while we picked it up. Not a byte was
                // sent, so a fresh connection cannot make it arrive twice.
                Exchanged::NotSent(unsent, _) if sent.reused => message = *unsent,
                Exchanged::NotSent(_, failure) | Exchanged::Failed(failure) => return Err(failure),
            }
        }
    }
}

impl Inner {
    /// A link to use again, if its address is still allowed.
    fn idle(&self, key: &Key, now: Instant) -> Option<Box<Link>> {
        let link = self.pool.take(key, now)?;
        self.dialer.guard.refresh(now);
        self.dialer.guard.check_address(link.peer.ip(), link.peer.port()).is_ok().then_some(link)
    }

    fn proxy<'a>(&'a self, name: &ProxyName) -> Result<Through<'a>, SendFailure> {
        match self.proxies.get_key_value(name) {
            Some((name, proxy)) => Ok(Through { name, proxy }),
            None => Err(proxy::failed(name, "is not configured (egress.proxies)")),
        }
    }

    /// The message as it is written. To a proxy that makes the connection itself, with the whole URL.
    fn message(
        &self,
        request: Request,
        forwarded: Option<Through<'_>>,
    ) -> Result<Message, SendFailure> {
        let Request { target, path_and_query, method, headers, body, .. } = request;
        if method == Method::CONNECT {
            return Err(invalid("CONNECT is not a request for a receiver"));
        }
        if let Some(name) = headers.keys().find(|name| is_ours(name)) {
            return Err(invalid(format!(
                "the header {name} is set by the connection, not by requests"
            )));
        }
        let path = match path_and_query {
            None => target.parsed_path_and_query().clone(),
            Some(text) => rendered(text)?,
        };
        let mut message = Message::new(Full::new(body));
        *message.method_mut() = method;
        *message.uri_mut() = match forwarded {
            None => Uri::from(path),
            Some(_) => whole_uri(&target, path)?,
        };
        *message.headers_mut() = headers;
        let headers = message.headers_mut();
        headers.insert(HOST, target.host_header().clone());
        // Whatever arrives is kept raw, so nothing must arrive compressed.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        headers.entry(USER_AGENT).or_insert_with(|| self.user_agent.clone());
        if let Some(value) = forwarded.and_then(|through| through.proxy.authorization.clone()) {
            headers.insert(PROXY_AUTHORIZATION, value);
        }
        Ok(message)
    }
}

fn whole_uri(target: &Target, path: PathAndQuery) -> Result<Uri, SendFailure> {
    let scheme = match target.scheme() {
        Scheme::Http => "http",
        Scheme::Https => "https",
    };
    Uri::builder()
        .scheme(scheme)
        .authority(target.host_header().as_bytes())
        .path_and_query(path)
        .build()
        .map_err(|_| invalid("the URL cannot be written for a proxy"))
}

fn invalid(detail: impl Into<String>) -> SendFailure {
    SendFailure::new(FailureCode::RequestInvalid, detail)
}

/// A rendered path must be one already: whatever a parser would repair or cut is refused.
fn rendered(text: String) -> Result<PathAndQuery, SendFailure> {
    if !text.starts_with('/') || text.contains('#') || !text.is_ascii() {
        return Err(invalid("the rendered path must begin with / and be percent-encoded"));
    }
    PathAndQuery::try_from(text)
        .map_err(|_| invalid("the rendered path has characters that cannot be sent"))
}

/// Headers that say where a message ends or what happens to the connection. A tenant who could
/// set them could make two requests out of one.
fn is_ours(name: &HeaderName) -> bool {
    *name == HOST
        || *name == CONTENT_LENGTH
        || *name == TRANSFER_ENCODING
        || *name == CONNECTION
        || *name == UPGRADE
        || *name == TE
        || *name == TRAILER
        || *name == EXPECT
        || *name == PROXY_AUTHORIZATION
        || matches!(name.as_str(), "keep-alive" | "proxy-connection")
}
