//! A client of the native API, for the commands that talk to a server.
//!
//! It speaks HTTP/1.1 over connections of its own, with TLS for `https` addresses. It follows no
//! redirects and takes no proxy from the environment: a key is sent to the server that was named
//! and to nobody else.

mod connect;
mod stream;

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::SendRequest;
use serde::Deserialize;
use serde_json::Value;

use crate::exit::{Code, Failure};
use connect::Origin;
pub(crate) use connect::roots;
pub use stream::Stream;

/// For one call, connecting included. Generous: the server has deadlines of its own.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// The largest answer that is read: a page of events with payloads.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Items of one page; the API's own limit.
const PAGE_MAX: usize = 200;

/// Which server, and who we are.
#[derive(clap::Args, Clone, Debug)]
pub struct Access {
    /// The server's address
    #[arg(
        long,
        env = "POSTHORN_SERVER",
        default_value = "http://127.0.0.1:8080",
        value_name = "URL",
        global = true,
        help_heading = "The server to talk to"
    )]
    pub server: String,
    /// The API key, or file:PATH to read it from
    #[arg(
        long,
        env = "POSTHORN_KEY",
        hide_env_values = true,
        value_name = "KEY",
        global = true,
        help_heading = "The server to talk to"
    )]
    pub key: Option<String>,
    /// The tenant to act for, by id or name; only operator keys need it
    #[arg(
        long,
        env = "POSTHORN_TENANT",
        value_name = "TENANT",
        global = true,
        help_heading = "The server to talk to"
    )]
    pub tenant: Option<String>,
    /// A PEM file with certificates to trust besides the public ones, for https addresses
    #[arg(
        long,
        env = "POSTHORN_CA",
        value_name = "FILE",
        global = true,
        help_heading = "The server to talk to"
    )]
    pub ca: Option<PathBuf>,
}

/// A problem document.
#[derive(Clone, Debug, Deserialize)]
pub struct Problem {
    /// Stable.
    pub code: String,
    /// A few words.
    #[serde(default)]
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What exactly is wrong.
    #[serde(default)]
    pub detail: String,
    /// The field at fault.
    #[serde(default)]
    pub field: Option<String>,
}

impl Problem {
    fn into_failure(self) -> Failure {
        let field = self.field.map(|field| format!(" (field `{field}`)")).unwrap_or_default();
        let text = if self.detail.is_empty() { self.title } else { self.detail };
        let code = match self.status {
            401 | 403 => Code::Denied,
            502..=504 => Code::Unavailable,
            _ => Code::Failure,
        };
        let hint = match self.code.as_str() {
            "unauthorized" => {
                "give the operator key with --key or POSTHORN_KEY; the first start wrote it to \
                 operator.key in the data folder; see `posthorn explain unauthorized`"
                    .to_owned()
            }
            code => format!("posthorn explain {code}"),
        };
        let mut failure = Failure::new(code, format!("{}: {text}{field}", self.code)).hint(hint);
        failure.problem = Some(self.code);
        failure
    }
}

/// An answer of the server that is not an error.
#[derive(Debug)]
pub struct Reply {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body.
    pub body: Bytes,
}

impl Reply {
    /// The body as JSON; null when there is none.
    pub fn json(&self) -> anyhow::Result<Value> {
        if self.body.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&self.body)
            .map_err(|_| Failure::new(Code::Failure, "the server's answer is not JSON").into())
    }
}

/// One call.
#[derive(Clone, Debug)]
pub struct Call {
    method: Method,
    path: String,
    body: Option<Bytes>,
    headers: Vec<(HeaderName, String)>,
}

impl Call {
    /// A call without a body.
    pub fn new(method: Method, path: impl Into<String>) -> Self {
        Self { method, path: path.into(), body: None, headers: Vec::new() }
    }

    /// With a JSON body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = Some(body.into());
        self
    }

    /// With a header.
    #[must_use]
    pub fn header(mut self, name: HeaderName, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }
}

/// A server with what is needed to talk to it.
pub struct Client {
    origin: Origin,
    key: Option<String>,
    tenant: Option<String>,
    /// Connections that wait for their next call.
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
}

impl Client {
    /// Reads the address; connects to nothing yet.
    pub fn new(access: &Access) -> anyhow::Result<Self> {
        let origin = Origin::parse(&access.server, access.ca.as_deref())?;
        let key = match access.key.as_deref() {
            Some(text) => Some(match text.strip_prefix("file:") {
                Some(path) => std::fs::read_to_string(path)
                    .map_err(|e| {
                        Failure::new(
                            Code::Usage,
                            format!("the key file {path} cannot be read: {e}"),
                        )
                    })?
                    .trim()
                    .to_owned(),
                None => text.trim().to_owned(),
            }),
            None => None,
        };
        let idle = Mutex::new(Vec::new());
        Ok(Self { origin, key, tenant: access.tenant.clone(), idle })
    }

    /// The address as it was given.
    pub fn server(&self) -> &str {
        self.origin.text()
    }

    /// Makes a call; a problem document becomes an error.
    pub async fn call(&self, call: Call) -> anyhow::Result<Reply> {
        let reply = self.exchange(call).await?;
        if reply.status.is_success() { Ok(reply) } else { Err(self.refusal(&reply).into()) }
    }

    /// What an answer says that is not a success.
    pub(crate) fn refusal(&self, reply: &Reply) -> Failure {
        match serde_json::from_slice::<Problem>(&reply.body) {
            Ok(problem) => problem.into_failure(),
            Err(_) => Failure::new(
                Code::Failure,
                format!(
                    "{} answered {}; it may not be a Posthorn server",
                    self.server(),
                    reply.status
                ),
            )
            .hint("check the address given with --server or POSTHORN_SERVER"),
        }
    }

    /// Opens a stream, after what was told last. It has a connection of its own, and no end.
    pub async fn stream(&self, path: &str, last: Option<&str>) -> anyhow::Result<Stream> {
        let mut call = Call::new(Method::GET, path);
        if let Some(last) = last {
            call = call.header(HeaderName::from_static("last-event-id"), last);
        }
        let request = self.request(call)?;
        let opening = async {
            let mut sender = self.origin.connect().await?;
            let response = sender.send_request(request).await.map_err(|e| self.broken(&e))?;
            if !response.status().is_success() {
                let reply = self.read(sender, response).await?;
                return Err(self.refusal(&reply).into());
            }
            Ok(Stream::new(sender, response.into_body()))
        };
        tokio::time::timeout(CALL_TIMEOUT, opening).await.map_err(|_| self.silent())?
    }

    /// Makes a call; every status is an answer.
    pub async fn exchange(&self, call: Call) -> anyhow::Result<Reply> {
        let asked = tokio::time::timeout(CALL_TIMEOUT, self.exchange_untimed(call));
        asked.await.map_err(|_| self.silent())?
    }

    async fn exchange_untimed(&self, call: Call) -> anyhow::Result<Reply> {
        let request = self.request(call)?;
        let waiting = self.idle.lock().ok().and_then(|mut idle| idle.pop());
        if let Some(mut sender) = waiting
            && sender.ready().await.is_ok()
        {
            match sender.try_send_request(request).await {
                Ok(response) => return self.read(sender, response).await,
                // The connection was closed before anything was sent; a fresh one will do.
                Err(mut error) => match error.take_message() {
                    Some(request) => return self.fresh(request).await,
                    None => return Err(self.broken(&error.into_error()).into()),
                },
            }
        }
        self.fresh(request).await
    }

    async fn fresh(&self, request: Request<Full<Bytes>>) -> anyhow::Result<Reply> {
        let mut sender = self.origin.connect().await?;
        let response = sender.send_request(request).await.map_err(|e| self.broken(&e))?;
        self.read(sender, response).await
    }

    async fn read(
        &self,
        sender: SendRequest<Full<Bytes>>,
        response: http::Response<hyper::body::Incoming>,
    ) -> anyhow::Result<Reply> {
        let (parts, body) = response.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await.map_err(|e| {
            Failure::new(
                Code::Failure,
                format!("the response of {} ended early: {e}", self.server()),
            )
        })?;
        if let Ok(mut idle) = self.idle.lock() {
            idle.push(sender);
        }
        Ok(Reply { status: parts.status, headers: parts.headers, body: body.to_bytes() })
    }

    /// Makes a call whose answer may be long, and hands it over part by part; a problem document becomes an error.
    pub async fn download(
        &self,
        call: Call,
        mut take: impl FnMut(&[u8]) -> std::io::Result<()>,
    ) -> anyhow::Result<()> {
        let mut sender = self.origin.connect().await?;
        let request = self.request(call)?;
        let asked = tokio::time::timeout(CALL_TIMEOUT, sender.send_request(request));
        let response = asked.await.map_err(|_| self.silent())?.map_err(|e| self.broken(&e))?;
        if !response.status().is_success() {
            return Err(self.refusal(&self.read(sender, response).await?).into());
        }
        let mut body = response.into_body();
        loop {
            // Each part in time; the whole may take as long as it is.
            let part = tokio::time::timeout(CALL_TIMEOUT, body.frame());
            let Some(part) = part.await.map_err(|_| self.silent())? else { return Ok(()) };
            let part = part.map_err(|e| {
                let text = format!("the response of {} ended early: {e}", self.server());
                Failure::new(Code::Failure, text)
            })?;
            if let Some(data) = part.data_ref() {
                take(data)?;
            }
        }
    }

    fn silent(&self) -> Failure {
        Failure::new(
            Code::Unavailable,
            format!("{} did not answer within {} s", self.server(), CALL_TIMEOUT.as_secs()),
        )
    }

    fn broken(&self, error: &hyper::Error) -> Failure {
        Failure::new(
            Code::Unavailable,
            format!("the connection to {} broke: {error}", self.server()),
        )
        .hint("the request may or may not have been processed; check before you repeat it")
    }

    fn request(&self, call: Call) -> anyhow::Result<Request<Full<Bytes>>> {
        let unusable = |what: &str| {
            Failure::new(Code::Usage, format!("{what} has characters that HTTP does not allow"))
        };
        let mut builder = Request::builder()
            .method(call.method)
            .uri(format!("{}{}", self.origin.prefix(), call.path))
            .header(HOST, self.origin.authority())
            .header(USER_AGENT, concat!("posthorn-cli/", env!("CARGO_PKG_VERSION")));
        if let Some(key) = &self.key {
            let mut value = HeaderValue::from_str(&format!("Bearer {key}"))
                .map_err(|_| unusable("the API key"))?;
            value.set_sensitive(true);
            builder = builder.header(AUTHORIZATION, value);
        }
        if let Some(tenant) = &self.tenant {
            let value = HeaderValue::from_str(tenant).map_err(|_| unusable("the tenant"))?;
            builder = builder.header("posthorn-tenant", value);
        }
        for (name, value) in call.headers {
            let value =
                HeaderValue::from_bytes(value.as_bytes()).map_err(|_| unusable(name.as_str()))?;
            builder = builder.header(name, value);
        }
        if call.body.is_some() {
            builder = builder.header(CONTENT_TYPE, "application/json");
        }
        builder
            .body(Full::new(call.body.unwrap_or_default()))
            .map_err(|_| unusable("the request").into())
    }

    /// `GET` as JSON.
    pub async fn get(&self, path: impl Into<String>) -> anyhow::Result<Value> {
        self.call(Call::new(Method::GET, path)).await?.json()
    }

    /// `POST` of JSON, as JSON.
    pub async fn post(&self, path: impl Into<String>, body: &Value) -> anyhow::Result<Value> {
        self.call(Call::new(Method::POST, path).body(body.to_string())).await?.json()
    }

    /// Up to `limit` items of a list, over as many pages as that takes. `next` is there when there
    /// are more.
    pub async fn list(
        &self,
        path: &str,
        query: &[(&str, String)],
        limit: usize,
    ) -> anyhow::Result<Value> {
        let mut items: Vec<Value> = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let page = (limit - items.len()).min(PAGE_MAX);
            let mut pairs: Vec<(&str, String)> = query.to_vec();
            pairs.push(("limit", page.to_string()));
            pairs.extend(cursor.take().map(|cursor| ("cursor", cursor)));
            let mut answer = self.get(with_query(path, &pairs)).await?;
            if let Some(Value::Array(more)) = answer.get_mut("items").map(Value::take) {
                items.extend(more);
            }
            cursor = answer.get("next").and_then(Value::as_str).map(str::to_owned);
            if cursor.is_none() || items.len() >= limit {
                break;
            }
        }
        let mut whole = serde_json::json!({ "items": items });
        if let (Some(cursor), Some(fields)) = (cursor, whole.as_object_mut()) {
            fields.insert("next".to_owned(), Value::String(cursor));
        }
        Ok(whole)
    }
}

/// A path with a query.
pub fn with_query(path: &str, pairs: &[(&str, String)]) -> String {
    if pairs.is_empty() {
        return path.to_owned();
    }
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    for (name, value) in pairs {
        query.append_pair(name, value);
    }
    format!("{path}?{}", query.finish())
}

/// One segment of a path: names may contain slashes.
pub fn segment(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_queries_are_escaped() {
        assert_eq!(segment("a/b:c ä"), "a%2Fb%3Ac%20%C3%A4");
        assert_eq!(with_query("/v1/x", &[]), "/v1/x");
        assert_eq!(with_query("/v1/x", &[("a", "b&c=d".to_owned())]), "/v1/x?a=b%26c%3Dd");
    }

    #[test]
    fn problems_say_what_to_do() {
        let problem = Problem {
            code: "unknown_topic".to_owned(),
            title: "Unknown topic".to_owned(),
            status: 422,
            detail: "there is no topic `x`".to_owned(),
            field: Some("topic".to_owned()),
        };
        let failure = problem.into_failure();
        assert_eq!(failure.message, "unknown_topic: there is no topic `x` (field `topic`)");
        assert_eq!(failure.hint.as_deref(), Some("posthorn explain unknown_topic"));
    }
}
