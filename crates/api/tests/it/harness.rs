//! A server to talk to, a transport that records, and a small HTTP client.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use parking_lot::Mutex;
use posthorn_api::{Options, router};
use posthorn_conformance::model::ModelStore;
use posthorn_domain::{Answer, AttemptOutcome, Clock, FailureCode, Scope, TenantId, Timestamp};
use posthorn_engine::transport::Sending;
use posthorn_engine::{Engine, Outbound, Parts, PushDelivery, Transport, UrlProblem};
use posthorn_listener::{ServeLimits, serve};
use posthorn_sealing::vault::{Vault, VaultKey};
use posthorn_testkit::caller::{Call, Reply, call};
use posthorn_testkit::clock::Wall;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::schema;

/// One request that left.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) url: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// Answers by host name and remembers what was sent.
#[derive(Default)]
pub(crate) struct Recorder {
    sent: Mutex<Vec<Sent>>,
}

impl Recorder {
    pub(crate) fn sent_to(&self, host: &str) -> Vec<Sent> {
        self.sent.lock().iter().filter(|sent| sent.url.contains(host)).cloned().collect()
    }
}

impl Transport for Recorder {
    fn check_url(&self, url: &str) -> Result<String, UrlProblem> {
        let host = url.strip_prefix("https://").ok_or_else(|| UrlProblem {
            code: "scheme",
            message: "only https is allowed".to_owned(),
        })?;
        if host.starts_with("10.") || host.starts_with("localhost") {
            let message = "the address is private".to_owned();
            return Err(UrlProblem { code: "private", message });
        }
        Ok(url.to_owned())
    }

    fn send(&self, request: Outbound) -> Sending {
        let url = request.endpoint.url.clone();
        if !url.contains("void.example") {
            let (headers, body) = (request.headers, request.body);
            self.sent.lock().push(Sent { url: url.clone(), headers, body });
        }
        let answered = |status, body: &'static str| {
            AttemptOutcome::Answered(Answer {
                status,
                retry_after: None,
                content_type: None,
                body: Bytes::from_static(body.as_bytes()),
            })
        };
        // One of all receivers takes the fifth request, and all after it.
        let flaky = url.contains("flaky.example") && self.sent_to("flaky.example").len() < 5;
        let outcome = if url.contains("dead.example") || flaky {
            answered(500, "no")
        } else if url.contains("unreachable.example") {
            let detail = "connect to 192.0.2.7:443 refused".to_owned();
            AttemptOutcome::Failed { code: FailureCode::ConnectFailed, detail }
        } else {
            answered(200, "thanks")
        };
        let mut answer = posthorn_engine::transport::Sent::from(outcome);
        // One of all receivers allows us to send, if not often.
        if url.contains("consent.example") {
            let said = [("webhook-allowed-origin", "*"), ("webhook-allowed-rate", "120")];
            let said = said.map(|(name, value)| {
                (http::HeaderName::from_static(name), http::HeaderValue::from_static(value))
            });
            answer.headers = Some(Box::new(HeaderMap::from_iter(said)));
        }
        Box::pin(async move { answer })
    }
}

/// What every problem document must have.
pub(crate) trait Problem {
    fn expect_problem(&self, status: u16, code: &str) -> Value;
}

impl Problem for Reply {
    #[track_caller]
    fn expect_problem(&self, status: u16, code: &str) -> Value {
        let problem = self.expect(status);
        assert_eq!(self.headers["content-type"], "application/problem+json");
        assert_eq!(self.headers["x-content-type-options"], "nosniff");
        assert_eq!(self.headers["cache-control"], "no-store");
        assert_eq!(problem["code"], code, "{problem}");
        assert_eq!(problem["status"], status);
        assert_eq!(problem["type"], format!("urn:posthorn:error:{code}"));
        assert!(!problem["title"].as_str().unwrap().is_empty());
        assert!(!problem["detail"].as_str().unwrap().is_empty());
        problem
    }
}

/// Keys of all kinds.
pub(crate) struct Keys {
    pub(crate) operator: String,
    /// Everything but `operator`, in tenant `acme`.
    pub(crate) acme: String,
    /// The same in tenant `other`.
    pub(crate) other: String,
    /// One scope only, in tenant `acme`.
    pub(crate) only: HashMap<Scope, String>,
    pub(crate) revoked: String,
    pub(crate) expired: String,
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pub(crate) engine: Engine,
    pub(crate) transport: Arc<Recorder>,
    pub(crate) acme: TenantId,
    pub(crate) keys: Keys,
    stop: Option<oneshot::Sender<()>>,
    task: Option<JoinHandle<()>>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::start_with(ServeLimits::default()).await
    }

    pub(crate) async fn start_with(limits: ServeLimits) -> Self {
        Self::start_as(limits, Options::default()).await
    }

    pub(crate) async fn start_as(limits: ServeLimits, options: Options) -> Self {
        Self::start_whole(limits, posthorn_engine::Options::default(), options, None).await
    }

    /// With agents that events can be delivered to.
    pub(crate) async fn start_pushing(push: Arc<dyn PushDelivery>) -> Self {
        let (limits, options) = (ServeLimits::default(), Options::default());
        Self::start_whole(limits, posthorn_engine::Options::default(), options, Some(push)).await
    }

    pub(crate) async fn start_limited(
        limits: ServeLimits,
        options: posthorn_engine::Options,
        who: Options,
    ) -> Self {
        Self::start_whole(limits, options, who, None).await
    }

    async fn start_whole(
        limits: ServeLimits,
        engine_options: posthorn_engine::Options,
        options: Options,
        push: Option<Arc<dyn PushDelivery>>,
    ) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(Wall);
        let transport = Arc::new(Recorder::default());
        let engine = Engine::start(Parts {
            store: Arc::new(ModelStore::new(Arc::clone(&clock))),
            transport: Arc::clone(&transport) as Arc<dyn Transport>,
            push,
            vault: Arc::new(Vault::new(vec![VaultKey::generate()]).unwrap()),
            clock,
            seed: [7; 32],
            tracer: None,
            options: engine_options,
        })
        .await
        .unwrap();
        let acme = engine.create_tenant("acme".to_owned()).await.unwrap().id;
        let other = engine.create_tenant("other".to_owned()).await.unwrap().id;
        let keys = Keys::make(&engine, acme, other).await;
        let render = || "posthorn_up 1\n".to_owned();
        let options = Options { metrics: Some(Arc::new(render)), ..options };
        let router = router(engine.clone(), options);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(serve(listener, router, limits, None, async {
            drop(stopped.await);
        }));
        Self { address, engine, transport, acme, keys, stop: Some(stop), task: Some(task) }
    }

    /// Asks the listener to stop, and returns what ends when it has.
    pub(crate) fn begin_stop(&mut self) -> JoinHandle<()> {
        drop(self.stop.take());
        self.task.take().unwrap()
    }

    pub(crate) fn as_acme(&self, method: &str, path: &str) -> Call {
        self.ask(method, path).key(&self.keys.acme)
    }

    pub(crate) fn as_operator(&self, method: &str, path: &str) -> Call {
        self.ask(method, path).key(&self.keys.operator)
    }

    pub(crate) fn ask(&self, method: &str, path: &str) -> Call {
        let url = format!("http://{}", self.address);
        call(&url, method, path).header("host", "api.test").checked(schema::check_answer)
    }

    /// A topic `orders` and a subscription to everything, at this URL.
    pub(crate) async fn subscribe(&self, url: &str, more: Value) -> Value {
        self.as_acme("PUT", "/v1/topics/orders").json(json!({})).await.expect(200);
        let mut body = json!({"url": url});
        for (name, value) in more.as_object().into_iter().flatten() {
            body[name] = value.clone();
        }
        self.as_acme("POST", "/v1/subscriptions").json(&body).await.expect(201)
    }

    /// Publishes one event as tenant `acme` and returns its id.
    pub(crate) async fn publish(&self, payload: &str) -> String {
        let body = format!(r#"{{"topic":"orders","type":"order.created","payload":{payload}}}"#);
        let reply = self.as_acme("POST", "/v1/events").text(&body).await.expect(202);
        reply["id"].as_str().unwrap().to_owned()
    }

    /// The only delivery of an event, once it is in this state.
    pub(crate) async fn delivery_in(&self, event: &str, state: &str) -> Value {
        let path = format!("/v1/deliveries?event={event}");
        for _ in 0..1_000 {
            let list = self.as_acme("GET", &path).await.expect(200);
            if list["items"][0]["state"] == state {
                return list["items"][0].clone();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the delivery of {event} never was {state}");
    }
}

impl Keys {
    async fn make(engine: &Engine, acme: TenantId, other: TenantId) -> Self {
        let key = async |tenant, scopes: &[Scope], expires| {
            engine.create_key(tenant, scopes.to_vec(), String::new(), expires, None).await.unwrap()
        };
        let all = [Scope::Publish, Scope::Manage, Scope::Read];
        let mut only = HashMap::new();
        for scope in all {
            only.insert(scope, key(Some(acme), &[scope], None).await.text);
        }
        let revoked = key(Some(acme), &all, None).await;
        engine.revoke_key(revoked.key.id).await.unwrap();
        Self {
            operator: key(None, &[Scope::Operator], None).await.text,
            acme: key(Some(acme), &all, None).await.text,
            other: key(Some(other), &all, None).await.text,
            only,
            revoked: revoked.text,
            expired: key(Some(acme), &all, Some(Timestamp::from_millis(1))).await.text,
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the test's own client talks to its own server")]
pub(crate) async fn connect(address: SocketAddr) -> TcpStream {
    TcpStream::connect(address).await.unwrap()
}
