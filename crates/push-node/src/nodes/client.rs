//! Calling other nodes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method};
use posthorn_domain::{
    AgentId, AttemptOutcome, Clock, FailureCode, Problem, PushMessage, TenantId,
};
use posthorn_egress::{
    AddressRule, Deadlines, Egress, Error, NameRule, Options, PoolKey, Request, Target,
};
use posthorn_push::endpoint::NodeAnswer;
use posthorn_sealing::node_key::{NodeCall, NodeKeys};

use super::wire;
use crate::log::Seldom;
use crate::metrics;

const CONNECT: Duration = Duration::from_secs(1);
const PUSH: Duration = Duration::from_secs(3);
const HINT: Duration = Duration::from_secs(1);
/// Less than listeners keep an idle connection, so that a call seldom meets one that just closes.
const IDLE: Duration = Duration::from_secs(5);
/// Idle connections to one node.
const IDLE_PER_NODE: usize = 64;
const CONNECTIONS_MAX: usize = 8_192;

/// The other nodes, as this one calls them.
pub struct Nodes {
    egress: Egress,
    keys: Arc<NodeKeys>,
    clock: Arc<dyn Clock>,
    complaints: Seldom,
}

/// One kind of call.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    path: &'static str,
    within: Duration,
}

const PUSHES: Kind = Kind { name: "push", path: "/push/", within: PUSH };
const HINTS: Kind = Kind { name: "hint", path: "/notif/", within: HINT };

/// Why a node gave no answer that means anything.
enum Silence {
    NotAUrl(Problem),
    NotSent(String),
    Late(String),
    Answered(u16),
}

impl Nodes {
    /// Ready to call, over connections of its own: nodes live at private addresses and have inner
    /// names, and their URLs come from our own records, so what is closed to receivers is open here,
    /// except for metadata services. `extra_roots` are trusted besides the public roots where
    /// nodes listen with TLS.
    pub fn new(
        keys: Arc<NodeKeys>,
        clock: Arc<dyn Clock>,
        extra_roots: Option<String>,
    ) -> Result<Self, Error> {
        let network = |text: &str| text.parse::<AddressRule>().expect("a network");
        let egress = Egress::new(Options {
            allow: vec![network("0.0.0.0/0"), network("[::]/0")],
            names: vec![NameRule::every()],
            idle_timeout: IDLE,
            idle_per_subscription: IDLE_PER_NODE,
            connections: CONNECTIONS_MAX,
            extra_roots,
            ..Options::default()
        })?;
        Ok(Self { egress, keys, clock, complaints: Seldom::default() })
    }

    /// Why a text cannot be the URL of a node; to be asked about one's own at start. A name needs a
    /// port at which something that speaks HTTP is expected.
    pub fn check(&self, node: &str) -> Result<(), Problem> {
        self.target(node).map(|_| ())
    }

    /// Gives a message to the node its agent is connected to.
    pub async fn push(&self, node: &str, message: &PushMessage) -> NodeAnswer {
        let answer = match wire::write(message) {
            Ok(body) => self.call(PUSHES, node, message.agent, body.into()).await,
            Err(e) => Err(Silence::NotSent(e.to_string())),
        };
        self.conclude(PUSHES, node, answer)
    }

    /// Tells the node an agent is connected to that something was stored for it.
    pub async fn hint(&self, node: &str, agent: AgentId) -> NodeAnswer {
        let answer = self.call(HINTS, node, agent, Bytes::new()).await;
        self.conclude(HINTS, node, answer)
    }

    fn target(&self, node: &str) -> Result<Target, Problem> {
        let target = self.egress.guard().check_url(node).map_err(|e| e.to_string())?;
        if target.path_and_query() == "/" {
            Ok(target)
        } else {
            Err("the URL of a node ends after its port".into())
        }
    }

    async fn call(
        &self,
        kind: Kind,
        node: &str,
        agent: AgentId,
        body: Bytes,
    ) -> Result<NodeAnswer, Silence> {
        let target = self.target(node).map_err(Silence::NotAUrl)?;
        let path = format!("{}{agent}", kind.path);
        let call = NodeCall { method: Method::PUT.as_str(), path: &path, body: &body };
        let signature = self.keys.sign(call, self.clock.now());
        let signature =
            HeaderValue::try_from(signature).map_err(|e| Silence::NotSent(e.to_string()))?;
        let mut headers = HeaderMap::with_capacity(2);
        headers.insert(AUTHORIZATION, signature);
        if !body.is_empty() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        let request = Request {
            // Nobody's, and one pool for all: calls carry nothing that belongs to a connection.
            tenant: TenantId::DEFAULT,
            pool: PoolKey::new([0; 16]),
            target: Arc::new(target),
            tls: None,
            proxy: None,
            vet_always: false,
            path_and_query: Some(path),
            method: Method::PUT,
            headers,
            body,
            deadlines: Deadlines {
                connect: CONNECT,
                tls: CONNECT,
                response: kind.within,
                total: kind.within,
            },
        };
        match self.egress.send(request).await.outcome {
            AttemptOutcome::Answered(answer) => match answer.status {
                200 => Ok(NodeAnswer::Accepted),
                404 => Ok(NodeAnswer::NotConnected),
                503 => Ok(NodeAnswer::Full),
                status => Err(Silence::Answered(status)),
            },
            AttemptOutcome::Failed { code, detail } => {
                let reason = format!("{}: {detail}", code.as_str());
                Err(match code {
                    // It is there, and slow; it may have taken the message.
                    FailureCode::ResponseTimeout | FailureCode::AttemptTimeout => {
                        Silence::Late(reason)
                    }
                    _ => Silence::NotSent(reason),
                })
            }
        }
    }

    fn conclude(&self, kind: Kind, node: &str, answer: Result<NodeAnswer, Silence>) -> NodeAnswer {
        let answer = answer.unwrap_or_else(|silence| {
            // Only a node that cannot be called is taken off the record: an agent that is there would
            // not be found again before its next renewal.
            let answer = match &silence {
                Silence::NotAUrl(_) | Silence::NotSent(_) => NodeAnswer::Unreachable,
                Silence::Late(_) | Silence::Answered(_) => NodeAnswer::Full,
            };
            self.complain(kind, node, silence);
            answer
        });
        let outcome = match answer {
            NodeAnswer::Accepted => "accepted",
            NodeAnswer::Full => "full",
            NodeAnswer::NotConnected => "not_connected",
            NodeAnswer::Unreachable => "unreachable",
        };
        ::metrics::counter!(metrics::NODE_CALLS, "call" => kind.name, "outcome" => outcome)
            .increment(1);
        answer
    }

    /// A node that is gone fails every call until its agents are somewhere else.
    fn complain(&self, kind: Kind, node: &str, silence: Silence) {
        if !self.complaints.may(self.clock.now()) {
            return;
        }
        let call = kind.name;
        match silence {
            Silence::NotAUrl(problem) => {
                let reason = problem.as_str();
                tracing::warn!(
                    node,
                    call,
                    reason,
                    "a record names a node whose address is not a URL"
                );
            }
            Silence::NotSent(reason) => {
                tracing::warn!(node, call, reason, "a node cannot be reached");
            }
            Silence::Late(reason) => {
                tracing::warn!(node, call, reason, "a node does not answer in time");
            }
            Silence::Answered(401) => tracing::warn!(
                node,
                call,
                "a node refuses our calls; all nodes need the same key and correct clocks"
            ),
            Silence::Answered(status) => {
                tracing::warn!(node, call, status, "a node did not understand a call");
            }
        }
    }
}
