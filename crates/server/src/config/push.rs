//! `push`: Web Push, the sockets of agents and the endpoints of senders.
//!
//! What depends on the port that is really listened on (the URL of endpoints, the name of this node)
//! is settled at the start; everything else is checked here.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::SocketAddr;
use std::time::Duration;

use posthorn_domain::{Span, setting};
use posthorn_push::session;
use posthorn_push_node::Options;
use posthorn_sealing::endpoint_token::EndpointKey;
use posthorn_sealing::node_key::NodeKey;
use serde::{Deserialize, Deserializer, de::Error};
use serde_json::Value;
use url::Url;

use super::reading::Reading;
use super::values::address_if_any;
use super::{Server, Store, StoreKind};

/// Of other nodes, which keep theirs open; the rest wait for a moment.
const INTERNAL_CONNECTIONS: usize = 4_096;

/// Web Push as it was configured.
#[derive(Clone, Debug, Deserialize)]
pub struct Push {
    enabled: bool,
    /// The knobs of the node, but for its name and the URL of its endpoints.
    #[serde(skip)]
    pub options: Options,
    /// Sockets of agents at once.
    #[serde(deserialize_with = "setting::at_least_one")]
    pub connections: usize,
    /// Sockets of agents at once from one address; 0: no limit.
    pub connections_per_address: usize,
    /// What stands in front of `/wpush/…`; the server's own URL when it is not given.
    #[serde(deserialize_with = "base_url")]
    pub endpoint_url: Option<String>,
    /// What endpoints are made with, before the keys that come from the seal keys.
    #[serde(deserialize_with = "endpoint_keys")]
    pub endpoint_keys: Vec<EndpointKey>,
    /// Where other nodes call.
    pub internal: Internal,
    /// Agents that were not seen for so long are removed.
    pub agent_ttl: Span,
    /// How often the expired are removed.
    #[serde(deserialize_with = "setting::some_time")]
    pub maintenance_interval: Duration,
    /// Texts that every agent may follow.
    pub broadcasts: Broadcasts,
}

/// Where other nodes call.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Internal {
    /// Where it listens; when it does not, other nodes cannot call this one.
    #[serde(deserialize_with = "address_if_any")]
    pub listen: Option<SocketAddr>,
    /// What the others call; made from `listen` when it is not given.
    #[serde(deserialize_with = "base_url")]
    pub url: Option<String>,
    /// What calls between nodes are signed with; those that come from the seal keys when empty.
    #[serde(rename = "key", deserialize_with = "node_keys")]
    pub keys: Vec<NodeKey>,
    /// Connections of other nodes at once.
    #[serde(skip, default = "internal_connections")]
    pub connections: usize,
}

/// Texts that every agent may follow.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Broadcasts {
    /// Where they are asked for.
    #[serde(deserialize_with = "web_url")]
    pub url: Option<Url>,
    /// How often.
    #[serde(deserialize_with = "setting::some_time")]
    pub interval: Duration,
    /// Those that are known without asking: the version of each.
    #[serde(deserialize_with = "versions")]
    pub values: BTreeMap<String, String>,
}

impl Push {
    /// The knobs of a node that has this name and makes endpoints below this URL.
    pub fn options(&self, endpoint_url: String, node: String) -> Options {
        Options { endpoint_url, node, ..self.options.clone() }
    }
}

/// `None` when it is off.
pub(super) fn build(read: &mut Reading<'_>, server: &Server, store: &Store) -> Option<Push> {
    let mut push: Push = read.at("push");
    push.options =
        Options { session: read.at("push"), limits: read.at("push"), ..read.at::<Options>("push") };
    let seen = push.agent_ttl > push.options.session.renew_interval;
    let problem =
        "must be more than push.renew_interval: agents that are connected would be removed";
    read.require(seen, "push.agent_ttl", problem);
    let mut table = session::Broadcasts::default();
    for (id, version) in &push.broadcasts.values {
        read.accept(&format!("push.broadcasts.values.{id}"), table.set(id, version));
    }
    check_internal(read, &push.internal);
    if !push.enabled {
        return None;
    }
    if push.internal.listen.is_none() {
        push.internal.connections = 0;
    }
    fit(read, &push, server, store);
    Some(push)
}

/// Other nodes need one address of this one.
fn check_internal(read: &mut Reading<'_>, internal: &Internal) {
    const URL: &str = "push.internal.url";
    let bare = |text: &String| Url::parse(text).is_ok_and(|url| url.path() == "/");
    let problem = "must end after its port: calls are signed with their whole path";
    read.require(internal.url.as_ref().is_none_or(bare), URL, problem);
    match (internal.listen, &internal.url) {
        (None, Some(_)) => {
            let problem = "must be given too: it is what push.internal.url leads to";
            read.refuse("push.internal.listen", problem);
        }
        (Some(listen), None) => {
            let problem = "must be given, since push.internal.listen names all addresses and no \
                           single one: the other nodes call it, e.g. http://10.0.0.5:8081";
            read.require(!listen.ip().is_unspecified(), URL, problem);
        }
        _ => {}
    }
}

/// What Web Push needs of the rest of the configuration.
fn fit(read: &mut Reading<'_>, push: &Push, server: &Server, store: &Store) {
    const LISTEN: &str = "push.internal.listen";
    let known = push.endpoint_url.is_some() || !server.listen.ip().is_unspecified();
    let problem = "must be given, since server.listen names all addresses and no single one: \
                   browsers give this URL to senders, who keep it, e.g. https://push.example.com";
    read.require(known, "push.endpoint_url", problem);
    let listen = push.internal.listen;
    let apart = listen != Some(server.listen) || server.listen.port() == 0;
    let problem = "must not be that of server.listen: other nodes call it, and nobody else should \
                   reach it";
    read.require(apart, LISTEN, problem);
    match store.kind {
        StoreKind::Postgres(_) => {
            let problem = "must be given with PostgreSQL, where there may be other nodes: they hand \
                           over messages for the agents that are connected to this one; name an \
                           address that only they reach, e.g. 10.0.0.5:8081";
            read.require(listen.is_some(), LISTEN, problem);
        }
        // Nobody else has the store of one process, so that a role which is not here is nowhere.
        StoreKind::Sqlite => {
            let roles = push.options.roles;
            let problem = "must name both connection and endpoint with SQLite, whose store belongs to \
                           one process; roles apart need PostgreSQL (store.url)";
            read.require(roles.connection && roles.endpoint, "push.roles", problem);
        }
    }
}

const fn internal_connections() -> usize {
    INTERNAL_CONNECTIONS
}

fn endpoint_keys<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<EndpointKey>, D::Error> {
    keys(Vec::deserialize(deserializer)?, EndpointKey::parse)
}

fn node_keys<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<NodeKey>, D::Error> {
    keys(Option::deserialize(deserializer)?, NodeKey::parse)
}

/// All keys of these texts, which may hold several, one a line.
fn keys<K, P: Display, E: Error>(
    texts: impl IntoIterator<Item = String>,
    parse: impl Fn(&str) -> Result<K, P>,
) -> Result<Vec<K>, E> {
    let mut found = Vec::new();
    for text in texts {
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            found.push(parse(line).map_err(Error::custom)?);
        }
    }
    Ok(found)
}

fn versions<'de, D>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error>
where
    D: Deserializer<'de>,
{
    struct Version(String);
    impl<'de> Deserialize<'de> for Version {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            match Value::deserialize(deserializer)? {
                Value::String(text) if !text.is_empty() => Ok(Self(text)),
                Value::Number(number) => Ok(Self(number.to_string())),
                _ => Err(Error::custom("must be the version, a text")),
            }
        }
    }
    let versions = BTreeMap::<String, Version>::deserialize(deserializer)?;
    Ok(versions.into_iter().map(|(id, Version(version))| (id, version)).collect())
}

fn web_url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Url>, D::Error> {
    let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
    let url = Url::parse(&text).ok().filter(is_web);
    url.map(Some).ok_or_else(|| {
        Error::custom(format_args!("`{text}` is not a URL: write https://example.com/broadcasts"))
    })
}

/// Scheme, host and perhaps a path that others are put behind. In the spelling that everybody makes of
/// it who reads it as a URL: senders sign for that one.
pub(super) fn base_url<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<String>, D::Error> {
    let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
    let plain = |url: &Url| {
        is_web(url)
            && url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none()
    };
    let Some(url) = Url::parse(&text).ok().filter(|url| !text.ends_with('/') && plain(url)) else {
        return Err(Error::custom(format_args!(
            "`{text}` is not the beginning of a URL: write https://push.example.com, perhaps with a \
             path, without a slash at its end"
        )));
    };
    let path = url.path().trim_end_matches('/');
    Ok(Some(format!("{}{path}", url.origin().ascii_serialization())))
}

fn is_web(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https") && url.has_host()
}
