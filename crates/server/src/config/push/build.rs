//! From what is written below `push` to what is meant.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

use posthorn_domain::Span;
use posthorn_push::{endpoint, session};
use posthorn_push_node::{Direct, Options, Roles};
use posthorn_sealing::endpoint_token::EndpointKey;
use posthorn_sealing::node_key::NodeKey;
use serde::Deserialize;
use serde_json::Value;
use url::Url;

use super::{Broadcasts, Internal, Push};
use crate::config::values::{ByteSize, SecretRef};
use crate::config::{Check, Server, Store, StoreKind};

/// With less, senders could not send what RFC 8030 lets them.
const BODY_BYTES_MIN: usize = 4_096;
/// More is no notification, and every one of them is kept in memory while it is under way.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// Of other nodes, which keep theirs open; the rest wait for a moment.
const INTERNAL_CONNECTIONS: usize = 4_096;
const WINDOW_MAX: u16 = 4_096;
const BATCH_MAX: u16 = 128;
const SECRET_HINT: &str =
    "must be env:NAME or file:PATH; secrets are not written into the configuration";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct RawPush {
    pub(in crate::config) enabled: bool,
    roles: Vec<String>,
    endpoint_url: Option<String>,
    endpoint_keys: Vec<String>,
    internal: RawInternal,
    unacked_window: u16,
    batch: u16,
    ack: session::AckMode,
    stored_limit: u32,
    on_overflow: session::Overflow,
    direct: RawDirect,
    handshake_timeout: Span,
    ping_interval: Span,
    pong_timeout: Span,
    ping_gap: Span,
    renew_interval: Span,
    agent_ttl: Span,
    ttl_max: Span,
    body: ByteSize,
    channels_max: usize,
    connections: usize,
    connections_per_address: usize,
    opens_per_second: u32,
    frames_per_second: u32,
    drain: Span,
    upkeep: Span,
    broadcasts: RawBroadcasts,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawInternal {
    listen: Option<String>,
    url: Option<String>,
    key: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RawDirect {
    Memory,
    Stored,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawBroadcasts {
    url: Option<String>,
    interval: Span,
    values: BTreeMap<String, Value>,
}

/// `None` when it is off, or when something is wrong, which was said then.
pub(in crate::config) fn build(
    check: &mut Check<'_>,
    raw: RawPush,
    server: Option<&Server>,
    store: Option<&Store>,
) -> Option<Push> {
    let session = session_options(check, &raw);
    let limits = limits(check, &raw);
    let roles = roles(check, &raw.roles);
    let endpoint_url = raw.endpoint_url.as_deref();
    let endpoint_url = given(endpoint_url, |text| base_url(check, "push.endpoint_url", text));
    let endpoint_keys = keys(check, "push.endpoint_keys", &raw.endpoint_keys, EndpointKey::parse);
    let node_key: Vec<String> = raw.internal.key.iter().cloned().collect();
    let node_keys = keys(check, "push.internal.key", &node_key, NodeKey::parse);
    let internal = internal(check, &raw.internal);
    let broadcasts = broadcasts(check, raw.broadcasts);
    let channels_max = check.at_least_one("push.channels_max", raw.channels_max);
    for (name, number) in
        [("opens_per_second", raw.opens_per_second), ("frames_per_second", raw.frames_per_second)]
    {
        if number == 0 {
            check.refuse(&format!("push.{name}"), "must be at least 1");
        }
    }
    if raw.agent_ttl <= raw.renew_interval {
        let problem = "must be more than push.renew_interval: agents that are connected would be \
                       removed";
        check.refuse("push.agent_ttl", problem);
    }
    let upkeep = check.some_time("push.upkeep", raw.upkeep);
    if !raw.enabled {
        return None;
    }
    let (endpoint_url, internal) = (endpoint_url?, internal?);
    fit(check, endpoint_url.as_deref(), internal.as_ref(), server, store);
    together(check, roles.as_ref(), store);
    Some(Push {
        connections: check.at_least_one("push.connections", raw.connections),
        connections_per_address: raw.connections_per_address,
        options: Options {
            roles: roles?,
            endpoint_url: String::new(),
            node: String::new(),
            session,
            limits,
            direct: match raw.direct {
                RawDirect::Memory => Direct::Memory,
                RawDirect::Stored => Direct::Stored,
            },
            channels_max,
            opens_per_second: raw.opens_per_second,
            frames_per_second: raw.frames_per_second,
            drain: raw.drain.to_duration(),
        },
        endpoint_url,
        endpoint_keys: endpoint_keys?,
        internal,
        node_keys: node_keys?,
        agent_ttl: raw.agent_ttl,
        upkeep,
        broadcasts: broadcasts?,
    })
}

/// What Web Push needs of the rest of the configuration.
fn fit(
    check: &mut Check<'_>,
    endpoint_url: Option<&str>,
    internal: Option<&Internal>,
    server: Option<&Server>,
    store: Option<&Store>,
) {
    let listen = server.map(|server| server.listen);
    if endpoint_url.is_none() && listen.is_some_and(|listen| listen.ip().is_unspecified()) {
        let problem = "must be given, since server.listen names all addresses and no single one: \
                       browsers give this URL to senders, who keep it, e.g. \
                       https://push.example.com";
        check.refuse("push.endpoint_url", problem);
    }
    let shared = store.is_some_and(|store| matches!(store.kind, StoreKind::Postgres(_)));
    match internal {
        None if shared => {
            let problem = "must be given with PostgreSQL, where there may be other nodes: they hand \
                           over messages for the agents that are connected to this one; name an \
                           address that only they reach, e.g. 10.0.0.5:8081";
            check.refuse("push.internal.listen", problem);
        }
        Some(internal) if internal.listen.port() != 0 && listen == Some(internal.listen) => {
            let problem = "must not be that of server.listen: other nodes call it, and nobody else \
                           should reach it";
            check.refuse("push.internal.listen", problem);
        }
        _ => {}
    }
}

/// Nobody else has the store of one process, so that a role which is not here is nowhere.
fn together(check: &mut Check<'_>, roles: Option<&Roles>, store: Option<&Store>) {
    let alone = store.is_some_and(|store| matches!(store.kind, StoreKind::Sqlite));
    if alone && roles.is_some_and(|roles| !(roles.connection && roles.endpoint)) {
        let problem = "must name both connection and endpoint with SQLite, whose store belongs to one \
                       process; roles apart need PostgreSQL (store.url)";
        check.refuse("push.roles", problem);
    }
}

fn session_options(check: &mut Check<'_>, raw: &RawPush) -> session::Options {
    for (name, number, max) in
        [("unacked_window", raw.unacked_window, WINDOW_MAX), ("batch", raw.batch, BATCH_MAX)]
    {
        if !(1..=max).contains(&number) {
            check.refuse(&format!("push.{name}"), format!("must be 1 to {max}"));
        }
    }
    for (name, span) in [
        ("handshake_timeout", raw.handshake_timeout),
        ("ping_interval", raw.ping_interval),
        ("pong_timeout", raw.pong_timeout),
        ("renew_interval", raw.renew_interval),
    ] {
        check.some_time(&format!("push.{name}"), span);
    }
    session::Options {
        unacked_window: raw.unacked_window,
        batch: raw.batch,
        ack: raw.ack,
        stored_limit: raw.stored_limit,
        on_overflow: raw.on_overflow,
        handshake_timeout: raw.handshake_timeout,
        ping_interval: raw.ping_interval,
        pong_timeout: raw.pong_timeout,
        renew_interval: raw.renew_interval,
        ping_gap: raw.ping_gap,
    }
}

fn limits(check: &mut Check<'_>, raw: &RawPush) -> endpoint::Limits {
    if !(BODY_BYTES_MIN..=BODY_BYTES_MAX).contains(&raw.body.0) {
        let (min, max) = (ByteSize(BODY_BYTES_MIN), ByteSize(BODY_BYTES_MAX));
        check.refuse("push.body", format!("must be {min} to {max}: RFC 8030 promises the former"));
    }
    let seconds = u32::try_from(raw.ttl_max.as_millis() / 1_000);
    let seconds = seconds.map_err(|_| "must be less than 100 years");
    let ttl_max = check.accept("push.ttl_max", seconds).unwrap_or(endpoint::TTL_MAX);
    if ttl_max == 0 {
        check.refuse("push.ttl_max", "must be at least 1s: nothing would ever be stored");
    }
    endpoint::Limits { body_bytes_max: raw.body.0, ttl_max }
}

fn roles(check: &mut Check<'_>, names: &[String]) -> Option<Roles> {
    let mut roles = Roles { connection: false, endpoint: false };
    for name in names {
        match name.as_str() {
            "connection" => roles.connection = true,
            "endpoint" => roles.endpoint = true,
            other => {
                let problem = format!("`{other}` is neither connection nor endpoint");
                check.refuse("push.roles", problem);
                return None;
            }
        }
    }
    if names.is_empty() {
        check.refuse("push.roles", "must name connection, endpoint or both");
        return None;
    }
    Some(roles)
}

/// `Some(None)` when other nodes cannot call this one.
fn internal(check: &mut Check<'_>, raw: &RawInternal) -> Option<Option<Internal>> {
    const LISTEN: &str = "push.internal.listen";
    const URL: &str = "push.internal.url";
    let url = given(raw.url.as_deref(), |text| base_url(check, URL, text));
    if let Some(Some(text)) = &url
        && Url::parse(text).is_ok_and(|url| url.path() != "/")
    {
        check.refuse(URL, "must end after its port: calls are signed with their whole path");
    }
    let Some(text) = &raw.listen else {
        if raw.url.is_some() {
            check.refuse(LISTEN, "must be given too: it is what push.internal.url leads to");
        }
        return Some(None);
    };
    let listen = text
        .parse::<SocketAddr>()
        .map_err(|_| format!("`{text}` is not an address: write 10.0.0.5:8081 or [fd00::5]:8081"));
    let (listen, url) = (check.accept(LISTEN, listen)?, url?);
    if url.is_none() && listen.ip().is_unspecified() {
        let problem = "must be given, since push.internal.listen names all addresses and no single \
                       one: the other nodes call it, e.g. http://10.0.0.5:8081";
        check.refuse(URL, problem);
    }
    Some(Some(Internal { listen, url, connections: INTERNAL_CONNECTIONS }))
}

fn broadcasts(check: &mut Check<'_>, raw: RawBroadcasts) -> Option<Broadcasts> {
    const VALUES: &str = "push.broadcasts.values";
    let parse = |text: &str| match Url::parse(text) {
        Ok(url) if is_web(&url) => Ok(url),
        _ => Err(format!("`{text}` is not a URL: write https://example.com/broadcasts")),
    };
    let url = given(raw.url.as_deref(), |text| check.accept("push.broadcasts.url", parse(text)));
    let interval = check.some_time("push.broadcasts.interval", raw.interval);
    let mut table = session::Broadcasts::default();
    let mut values = BTreeMap::new();
    for (id, value) in raw.values {
        let version = match value {
            Value::String(text) if !text.is_empty() => text,
            Value::Number(number) => number.to_string(),
            _ => {
                check.refuse(&format!("{VALUES}.{id}"), "must be the version, a text");
                continue;
            }
        };
        check.accept(&format!("{VALUES}.{id}"), table.set(&id, &version));
        values.insert(id, version);
    }
    Some(Broadcasts { url: url?, interval, values })
}

/// All keys of these references, which may hold several, one a line.
fn keys<K, E: fmt::Display>(
    check: &mut Check<'_>,
    key: &str,
    references: &[String],
    parse: impl Fn(&str) -> Result<K, E>,
) -> Option<Vec<K>> {
    let mut found = Vec::new();
    for reference in references {
        let place = check.accept(key, SecretRef::parse(reference).ok_or(SECRET_HINT))?;
        let text = check.resolve(key, &place)?;
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            found.push(check.accept(key, parse(line))?);
        }
    }
    Some(found)
}

/// Scheme, host and perhaps a path that others are put behind. In the spelling that everybody makes of
/// it who reads it as a URL: senders sign for that one.
fn base_url(check: &mut Check<'_>, key: &str, text: &str) -> Option<String> {
    let plain = |url: &Url| {
        is_web(url)
            && url.username().is_empty()
            && url.password().is_none()
            && url.query().is_none()
            && url.fragment().is_none()
    };
    let url = Url::parse(text).ok().filter(|url| !text.ends_with('/') && plain(url));
    let Some(url) = url else {
        let problem = format!(
            "`{text}` is not the beginning of a URL: write https://push.example.com, perhaps with a \
             path, without a slash at its end"
        );
        check.refuse(key, problem);
        return None;
    };
    let path = url.path().trim_end_matches('/');
    Some(format!("{}{path}", url.origin().ascii_serialization()))
}

fn is_web(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https") && url.has_host()
}

/// Reads what is given, if anything is; `None` when it cannot be read.
fn given<T>(text: Option<&str>, read: impl FnOnce(&str) -> Option<T>) -> Option<Option<T>> {
    match text {
        None => Some(None),
        Some(text) => read(text).map(Some),
    }
}
