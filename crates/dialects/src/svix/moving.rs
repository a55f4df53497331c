//! What things of another Svix server become here, as bodies of the native API.
//!
//! # Theory of operation
//! Nothing is read or sent here: whoever moves gives what the other server answered, and gets what to write, together with a list of
//! what has no counterpart. Each thing keeps its former id as a label, so that paths with that id go on working, and so that a
//! second move finds what the first one made. What is there already is compared, and comes back as a change.
//!
//! An endpoint that cannot be sent to as before, because the other server does not show a header or a key, is made disabled: it
//! keeps its messages until somebody completes it.
//!
//! # Where to start
//! [`event_type`], [`application`] and [`endpoint`].

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use posthorn_domain::limits::DESCRIPTION_BYTES_MAX;
use posthorn_domain::{
    EventType, ExternalId, Filter, ProfileName, RealmName, SchemaVersion, SubscriptionName,
    TopicName, check_feature_flags,
};
use posthorn_sealing::hash;
use posthorn_sealing::standard_webhooks::SigningSecret;
use serde_json::{Map, Value, json};

use super::access::FORMER_ID;
use super::application::{NAME, NAME_BYTES_MAX, slug};
use super::endpoint::headers::{self, Custom};
use super::endpoint::{CHANNEL_BYTES_MAX, SIGNING, Wanted};
use super::event_type::examples;
use super::id;

/// The label with a little of a hash of the secret that was taken over: enough to see that it is another one by now, too little to
/// find it.
const SECRET_MARK: &str = "svix.secret";
/// How much of a hash stands behind the name of a tenant.
const TAIL_BYTES: usize = 6;

/// Something that has no counterpart here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// Stable.
    pub code: &'static str,
    /// Which header, key or name it is about.
    pub about: String,
    /// For people.
    pub detail: String,
}

impl Left {
    fn new(code: &'static str, about: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { code, about: about.into(), detail: detail.into() }
    }
}

/// What a thing becomes here.
#[derive(Clone, Debug)]
pub struct Moved {
    /// The id it had, or its name.
    pub id: String,
    /// What is written when it is not there yet: a body of the native API.
    pub body: Value,
    /// What of it has no counterpart.
    pub left: Vec<Left>,
    /// Whether it cannot be used as before until somebody completes it.
    pub incomplete: bool,
}

/// What has to change in a thing that is there.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The body of a PATCH; an empty object when nothing differs.
    pub patch: Value,
    /// The secret that signs from now on, where it is another one.
    pub secret: Option<String>,
}

impl Change {
    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        self.secret.is_none() && self.patch.as_object().is_none_or(Map::is_empty)
    }
}

/// The former id of a thing of ours that was taken over.
pub fn former_id(there: &Value) -> Option<&str> {
    there.get("labels")?.get(FORMER_ID)?.as_str()
}

fn text<'a>(thing: &'a Value, name: &str) -> Option<&'a str> {
    thing.get(name).and_then(Value::as_str)
}

/// A member under its name, or under the one it had before.
fn number(thing: &Value) -> Option<u64> {
    let of = |name: &str| thing.get(name).and_then(Value::as_u64);
    of("throttleRate").or_else(|| of("rateLimit"))
}

fn texts(value: Option<&Value>) -> BTreeMap<String, String> {
    let members = value.and_then(Value::as_object).into_iter().flatten();
    members.filter_map(|(name, own)| Some((name.clone(), own.as_str()?.to_owned()))).collect()
}

/// At most so many bytes, without half a character at the end.
fn cut(text: &str, most: usize) -> &str {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or(0)]
}

fn description(thing: &Value, left: &mut Vec<Left>) -> String {
    let whole = text(thing, "description").unwrap_or_default();
    let kept = cut(whole, DESCRIPTION_BYTES_MAX);
    if kept.len() < whole.len() {
        let detail = format!("the description was cut to {DESCRIPTION_BYTES_MAX} bytes");
        left.push(Left::new("description", "", detail));
    }
    kept.to_owned()
}

/// The id of a thing that begins as it should; what else could it be found by?
fn id_of(thing: &Value, prefix: &str) -> Result<String, Left> {
    let id = text(thing, "id").filter(|id| id.starts_with(prefix) && id.len() > prefix.len());
    id.map(str::to_owned).ok_or_else(|| Left::new("unreadable", "", "it has no id"))
}

/// An event type, for `PUT /v1/event-types/{name}`.
pub fn event_type(thing: &Value) -> Result<Moved, Left> {
    let name = text(thing, "name").unwrap_or_default();
    if let Err(error) = EventType::new(name) {
        return Err(Left::new("name", name, error.to_string()));
    }
    let mut left = Vec::new();
    let mut schemas = BTreeMap::new();
    for (version, schema) in thing.get("schemas").and_then(Value::as_object).into_iter().flatten() {
        match SchemaVersion::try_from(version.clone()) {
            Ok(number) => drop(schemas.insert(number, schema.clone())),
            Err(error) => left.push(Left::new("schema", version, error.to_string())),
        }
    }
    let former = text(thing, "featureFlag").into_iter();
    let more = thing.get("featureFlags").and_then(Value::as_array).into_iter().flatten();
    let mut flags: BTreeSet<&str> = former.chain(more.filter_map(Value::as_str)).collect();
    if let Err(problem) = check_feature_flags(&flags.iter().map(|&own| own.to_owned()).collect()) {
        for flag in std::mem::take(&mut flags) {
            let detail = format!(
                "the feature flag {flag} is not kept, every application sees the type: {problem}"
            );
            left.push(Left::new("feature_flag", flag, detail));
        }
    }
    let flag = |name: &str| thing.get(name).and_then(Value::as_bool).unwrap_or(false);
    let mut body = json!({
        "description": description(thing, &mut left),
        "examples": examples(&schemas).unwrap_or_default(),
        "schemas": schemas,
        "archived": flag("archived"),
        "deprecated": flag("deprecated"),
    });
    if !flags.is_empty() {
        body["feature_flags"] = json!(flags);
    }
    if let Some(group) = text(thing, "groupName") {
        body["group"] = json!(group);
    }
    Ok(Moved { id: name.to_owned(), body, left, incomplete: false })
}

/// Whether an event type that is there says something else.
pub fn event_type_differs(there: &Value, moved: &Moved) -> bool {
    let names =
        ["description", "group", "schemas", "examples", "archived", "deprecated", "feature_flags"];
    names.into_iter().any(|name| there.get(name) != moved.body.get(name))
}

/// The same event type without its schemas, where these cannot be kept.
pub fn without_schemas(moved: &Moved, problem: &str) -> Moved {
    let mut fewer = moved.clone();
    fewer.body["schemas"] = json!({});
    let detail = format!("its schemas are not kept: {problem}");
    fewer.left.push(Left::new("schema", "", detail));
    fewer
}

/// An application, for `POST /v1/tenants`.
pub fn application(thing: &Value, realm: &RealmName) -> Result<Moved, Left> {
    let id = id_of(thing, id::APPLICATION)?;
    let mut left = Vec::new();
    let whole = text(thing, "name").unwrap_or_default();
    let name = cut(whole, NAME_BYTES_MAX);
    if name.len() < whole.len() {
        let detail = format!("the name was cut to {NAME_BYTES_MAX} bytes");
        left.push(Left::new("name", cut(name, 40), detail));
    }
    // The same name each time, so that two moves at once make one tenant.
    let hash = hash::fingerprint(&[b"svix tenant", realm.as_str().as_bytes(), id.as_bytes()]);
    let tail = hex(&hash[..TAIL_BYTES]);
    let mut body = json!({
        "realm": realm,
        "name": format!("{}-{tail}", slug(name)),
        "metadata": texts(thing.get("metadata")),
        "labels": {FORMER_ID: id, NAME: name},
    });
    match text(thing, "uid").map(|uid| (uid, uid.parse::<ExternalId>())) {
        Some((_, Ok(uid))) => body["external_id"] = json!(uid),
        Some((uid, Err(error))) => {
            let detail = format!("the uid is not kept, use the id in paths: {error}");
            left.push(Left::new("uid", uid, detail));
        }
        None => {}
    }
    if let Some(rate) = number(thing) {
        body["deliveries_per_second"] = json!(rate);
    }
    Ok(Moved { id, body, left, incomplete: false })
}

/// What has to change in a tenant that is there.
pub fn application_change(there: &Value, moved: &Moved) -> Change {
    let mut patch = Map::new();
    for name in ["external_id", "deliveries_per_second"] {
        differing(&mut patch, there, &moved.body, name, &Value::Null);
    }
    differing(&mut patch, there, &moved.body, "metadata", &json!({}));
    labels(&mut patch, there, &moved.body);
    Change { patch: Value::Object(patch), secret: None }
}

/// The first change of a thing that nobody took over yet and that has the same uid: from now on it has the former id as well.
pub fn adoption(there: &Value, moved: &Moved) -> Option<Value> {
    if former_id(there).is_some() {
        return None;
    }
    let mut all = texts(there.get("labels"));
    all.insert(FORMER_ID.to_owned(), moved.id.clone());
    Some(json!({ "labels": all }))
}

/// Notes a field that differs; `absent` is what a field that is not there means.
fn differing(
    patch: &mut Map<String, Value>,
    there: &Value,
    wanted: &Value,
    name: &str,
    absent: &Value,
) {
    let wanted = wanted.get(name).unwrap_or(absent);
    if there.get(name).unwrap_or(absent) != wanted {
        patch.insert(name.to_owned(), wanted.clone());
    }
}

/// The labels of a move are set, others stay.
fn labels(patch: &mut Map<String, Value>, there: &Value, wanted: &Value) {
    let own = texts(there.get("labels"));
    let mut all = own.clone();
    all.extend(texts(wanted.get("labels")));
    if all != own {
        patch.insert("labels".to_owned(), json!(all));
    }
}

/// What the other server says about an endpoint, in its several answers.
#[derive(Clone, Copy, Debug)]
pub struct Endpoint<'a> {
    /// An item of the list of endpoints.
    pub thing: &'a Value,
    /// The key of `…/secret`, where it is shown.
    pub secret: Option<&'a str>,
    /// The answer of `…/headers`.
    pub headers: &'a Value,
    /// The answer of `…/transformation`, where there is one.
    pub transformation: Option<&'a Value>,
}

/// An endpoint, for `POST /v1/subscriptions`.
pub fn endpoint(
    given: &Endpoint<'_>,
    topic: &TopicName,
    profile: &ProfileName,
) -> Result<Moved, Left> {
    let thing = given.thing;
    let id = id_of(thing, id::ENDPOINT)?;
    let mut left = Vec::new();
    let url = text(thing, "url").unwrap_or_default();
    let url = url::Url::parse(url).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let url = url.ok_or_else(|| Left::new("url", "", "its URL is not one of http or https"))?;
    let mut overrides = json!({});
    if let Some(rate) = number(thing) {
        overrides["limits"]["rate"] = json!(rate as f64);
    }
    let (custom, mut secrets) = custom_headers(given.headers, &mut left)?;
    let mut marks = json!({FORMER_ID: id});
    let kind = signing(given.secret, &mut secrets, &mut left)?;
    if let Some(secret) = given.secret {
        marks[SECRET_MARK] = json!(mark(&id, secret));
    }
    let changed = given.transformation.is_some_and(|own| {
        own.get("enabled") == Some(&Value::Bool(true)) || text(own, "code").is_some()
    });
    if changed {
        let detail = "it has a transformation; messages are sent as they come";
        left.push(Left::new("transformation", "", detail));
    }
    let incomplete =
        left.iter().any(|left| matches!(left.code, "sensitive_header" | "private_key"));
    let disabled = thing.get("disabled").and_then(Value::as_bool).unwrap_or(false);
    let mut body = json!({
        "url": url.as_str(),
        "description": description(thing, &mut left),
        "labels": marks,
        "metadata": texts(thing.get("metadata")),
        "filter": wanted(thing)?.filter(topic),
        "profile": profile,
        "policy": custom.write(overrides),
        "secrets": secrets,
        "paused": disabled || incomplete,
    });
    if let Some(kind) = kind {
        body["secret_kind"] = json!(kind);
    }
    match text(thing, "uid").map(|uid| (uid, uid.parse::<SubscriptionName>())) {
        Some((_, Ok(uid))) => body["name"] = json!(uid),
        Some((uid, Err(error))) => {
            let detail = format!("the uid is not kept, use the id in paths: {error}");
            left.push(Left::new("uid", uid, detail));
        }
        None => {}
    }
    Ok(Moved { id, body, left, incomplete })
}

/// Which event types and channels it wants.
fn wanted(thing: &Value) -> Result<Wanted, Left> {
    let set = |name: &str| {
        let all = thing.get(name).and_then(Value::as_array)?;
        let all: BTreeSet<String> =
            all.iter().filter_map(|own| own.as_str().map(str::to_owned)).collect();
        (!all.is_empty()).then_some(all)
    };
    let channels = set("channels");
    if let Some(long) = channels.iter().flatten().find(|own| own.len() > CHANNEL_BYTES_MAX) {
        let detail = format!("a channel may have at most {CHANNEL_BYTES_MAX} characters here");
        return Err(Left::new("channel", long, detail));
    }
    Ok(Wanted { types: set("eventTypes").or_else(|| set("filterTypes")), channels })
}

/// Headers that can be kept, with secrets for those that open something.
fn custom_headers(
    given: &Value,
    left: &mut Vec<Left>,
) -> Result<(Custom, BTreeMap<String, String>), Left> {
    let unfit = |name: &str| {
        let detail = format!("the header {name} may not be set here");
        Left::new("header", name, detail)
    };
    let mut plain = BTreeMap::new();
    for (name, value) in texts(given.get("headers")) {
        match headers::check(&name, &value) {
            Ok(()) => drop(plain.insert(name, value)),
            Err(_) => left.push(unfit(&name)),
        }
    }
    let hidden = given.get("sensitive").and_then(Value::as_array).into_iter().flatten();
    for name in hidden.filter_map(Value::as_str) {
        let detail = format!(
            "the value of the header {name} is not shown; the endpoint is disabled until you set the \
             header and enable it"
        );
        left.push(Left::new("sensitive_header", name, detail));
    }
    let custom = Custom::default().put(&plain).map_err(|_| unfit("of the endpoint"))?;
    let secrets = custom.secrets().map_err(|_| unfit("of the endpoint"))?;
    let secrets = secrets.into_iter().map(|own| (own.name.to_string(), own.value)).collect();
    Ok((custom, secrets))
}

/// What it signs with, or which kind is to be made.
fn signing(
    given: Option<&str>,
    secrets: &mut BTreeMap<String, String>,
    left: &mut Vec<Left>,
) -> Result<Option<&'static str>, Left> {
    match given {
        Some(public) if public.starts_with("whpk_") => {
            let detail = "only the public half of its key is shown; the endpoint has a new pair and \
                          is disabled: set the former whsk_ key, or give its receiver the new public \
                          key, then enable it";
            left.push(Left::new("private_key", public, detail));
            Ok(Some("ed25519"))
        }
        Some(secret) => match SigningSecret::parse(secret) {
            Ok(_) => {
                secrets.insert(SIGNING.to_owned(), secret.to_owned());
                Ok(None)
            }
            Err(error) => Err(Left::new("secret", "", error.to_string())),
        },
        None => {
            let detail = "its secret is not shown; the endpoint has a new one and is disabled: give \
                          it to the receiver, then enable the endpoint";
            left.push(Left::new("private_key", "", detail));
            Ok(None)
        }
    }
}

fn mark(id: &str, secret: &str) -> String {
    let whole = hash::fingerprint(&[b"svix import", id.as_bytes(), secret.as_bytes()]);
    hex(&whole[..4])
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What has to change in a subscription that is there.
pub fn endpoint_change(there: &Value, moved: &Moved) -> Change {
    let wanted = &moved.body;
    let mut patch = Map::new();
    for (name, absent) in [
        ("url", Value::Null),
        ("name", Value::Null),
        ("description", json!("")),
        ("metadata", json!({})),
    ] {
        differing(&mut patch, there, wanted, name, &absent);
    }
    let filter = |thing: &Value| -> Option<Filter> {
        serde_json::from_value(thing.get("filter")?.clone()).ok()
    };
    if filter(there) != filter(wanted) {
        patch.insert("filter".to_owned(), wanted["filter"].clone());
    }
    if let Some(policy) = policy(there, wanted) {
        patch.insert("policy".to_owned(), policy);
    }
    let mut secret = None;
    if there.pointer("/labels/svix.secret") != wanted.pointer("/labels/svix.secret") {
        secret = wanted.pointer("/secrets/signing").and_then(Value::as_str).map(str::to_owned);
    }
    labels(&mut patch, there, wanted);
    let paused = wanted.get("paused") == Some(&Value::Bool(true));
    let turns = match text(there, "status") {
        Some("active") => paused,
        Some("paused") => !paused,
        // It was disabled here for its failures, which is for people to judge.
        _ => false,
    };
    // Whoever completed it has enabled it, too.
    if turns && !moved.incomplete {
        patch.insert("paused".to_owned(), json!(paused));
    }
    Change { patch: Value::Object(patch), secret }
}

/// The policy with headers and rate as wanted, where these differ. Everything else that was set here stays.
fn policy(there: &Value, wanted: &Value) -> Option<Value> {
    const HEADERS: &str = "/policy/request/headers";
    const RATE: &str = "/policy/limits/rate";
    let none = json!({});
    let rate = |thing: &Value| thing.pointer(RATE).and_then(Value::as_f64);
    let headers = |thing: &Value| thing.pointer(HEADERS).unwrap_or(&none).clone();
    if rate(there) == rate(wanted) && headers(there) == headers(wanted) {
        return None;
    }
    let mut policy = there.get("policy").filter(|own| own.is_object()).cloned();
    let policy = policy.get_or_insert_with(|| json!({}));
    let set = |policy: &mut Value, group: &str, name: &str, value: Option<Value>| {
        if let Some(value) = value {
            policy[group][name] = value;
        } else if let Some(own) = policy.get_mut(group).and_then(Value::as_object_mut) {
            own.remove(name);
        }
    };
    set(policy, "request", "headers", wanted.pointer(HEADERS).cloned());
    set(policy, "limits", "rate", wanted.pointer(RATE).cloned());
    Some(policy.clone())
}

/// Whether somebody has completed here what the other server does not show.
pub fn is_settled(there: &Value, left: &Left) -> bool {
    let list = |place: &str| there.pointer(place).and_then(Value::as_array).into_iter().flatten();
    match left.code {
        "sensitive_header" => list("/policy/auth")
            .filter_map(|way| text(way, "header"))
            .any(|own| own.eq_ignore_ascii_case(&left.about)),
        "private_key" => {
            list("/public_keys").filter_map(|own| text(own, "key")).any(|own| own == left.about)
        }
        _ => false,
    }
}
