//! Values with a name of their own, which every template of a policy may use as `{values.NAME}`.
//!
//! What differs between two environments, or where an event carries something, is said once here
//! and not in every header, URL and log line that needs it. A value may use other values.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, MapAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};
use serde::{Deserialize, Serialize};

use super::{Policy, PolicyError, refuse};
use crate::limits::HEADER_VALUE_BYTES_MAX;
use crate::{Lookup, Template};

/// How placeholders of values begin.
const PREFIX: &str = "values.";
/// How many a policy may have.
pub(super) const VALUES_MAX: usize = 50;
/// How deep values may use values, itself included. Circles are refused; this bounds the rest.
const DEPTH_MAX: usize = 3;
/// Placeholders of one value. With the depth it bounds what filling one in may cost.
const PLACEHOLDERS_MAX: usize = 8;
/// The longest value; what is longer could be sent in no header.
const BYTES_MAX: usize = HEADER_VALUE_BYTES_MAX;

/// One value: a text, or `{"from": text, "after": prefix}`.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedValue {
    /// What it is, with placeholders.
    pub from: Template,
    /// Only what comes after this beginning. Without the beginning, or with nothing after it, there
    /// is no value.
    pub after: Option<String>,
}

impl NamedValue {
    /// A value that is a template as it stands.
    pub fn plain(from: Template) -> Self {
        Self { from, after: None }
    }
}

/// The long form.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "PolicyValue")]
pub(crate) struct Long {
    /// What it is.
    from: Template,
    /// Use only what comes after this prefix; there is no value without the prefix.
    #[serde(default)]
    after: Option<String>,
}

impl Serialize for NamedValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.after {
            None => self.from.serialize(serializer),
            Some(after) => {
                let mut map = serializer.serialize_map(Some(2))?;
                map.serialize_entry("from", &self.from)?;
                map.serialize_entry("after", after)?;
                map.end()
            }
        }
    }
}

impl<'de> Deserialize<'de> for NamedValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ShortOrLong;
        impl<'de> Visitor<'de> for ShortOrLong {
            type Value = NamedValue;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text, or an object with `from` and `after`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<NamedValue, E> {
                text.parse().map(NamedValue::plain).map_err(E::custom)
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<NamedValue, A::Error> {
                let Long { from, after } = Long::deserialize(MapAccessDeserializer::new(map))?;
                Ok(NamedValue { from, after })
            }
        }
        deserializer.deserialize_any(ShortOrLong)
    }
}

/// What templates of a policy may ask for: its values, and whatever else there is.
pub struct WithValues<'a> {
    /// The policy's values.
    pub values: &'a BTreeMap<String, NamedValue>,
    /// Everything else.
    pub others: &'a dyn Lookup,
}

impl Lookup for WithValues<'_> {
    fn lookup(&self, name: &str) -> Option<Cow<'_, str>> {
        match name.strip_prefix(PREFIX) {
            Some(value) => self.resolve(value, DEPTH_MAX).map(Cow::Owned),
            None => self.others.lookup(name),
        }
    }
}

impl WithValues<'_> {
    fn resolve(&self, name: &str, depth: usize) -> Option<String> {
        struct Deeper<'a, 'b>(&'b WithValues<'a>, usize);
        impl Lookup for Deeper<'_, '_> {
            fn lookup(&self, name: &str) -> Option<Cow<'_, str>> {
                match name.strip_prefix(PREFIX) {
                    Some(value) => self.0.resolve(value, self.1).map(Cow::Owned),
                    None => self.0.others.lookup(name),
                }
            }
        }
        let value = self.values.get(name)?;
        let inner = Deeper(self, depth.checked_sub(1)?);
        let text = value.from.render(&inner, str::to_owned).ok()?;
        let text = match &value.after {
            None => text,
            Some(after) => text.strip_prefix(after.as_str()).filter(|t| !t.is_empty())?.to_owned(),
        };
        (text.len() <= BYTES_MAX).then_some(text)
    }
}

pub(super) fn validate(values: &BTreeMap<String, NamedValue>) -> Result<(), PolicyError> {
    if values.len() > VALUES_MAX {
        return refuse("values", format!("must be at most {VALUES_MAX}"));
    }
    for (name, value) in values {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
            return refuse("values", format!("`{name}` is not a name: 1 to 64 of A-Z a-z 0-9 _ -"));
        }
        if value.from.names().count() > PLACEHOLDERS_MAX || value.from.source().len() > BYTES_MAX {
            let most =
                format!("must have at most {PLACEHOLDERS_MAX} placeholders, {BYTES_MAX} bytes");
            return refuse(&format!("values.{name}"), most);
        }
        if depth_of(values, name, DEPTH_MAX).is_none() {
            let problem = format!("uses itself, or is more than {DEPTH_MAX} values deep");
            return refuse(&format!("values.{name}"), problem);
        }
    }
    Ok(())
}

/// How deep a value goes; `None` when deeper than allowed, as a circle always is.
fn depth_of(values: &BTreeMap<String, NamedValue>, name: &str, left: usize) -> Option<usize> {
    let left = left.checked_sub(1)?;
    let Some(value) = values.get(name) else { return Some(0) };
    let mut deepest = 0;
    for other in value.from.names().filter_map(|n| n.strip_prefix(PREFIX)) {
        deepest = deepest.max(depth_of(values, other, left)? + 1);
    }
    Some(deepest)
}

/// Whether an event alone can supply a placeholder.
fn is_of_an_event(name: &str) -> bool {
    const WHOLE: [&str; 8] = [
        "event.id",
        "event.type",
        "event.family",
        "event.topic",
        "event.key",
        "event.accepted_at",
        "event.date",
        "tenant.id",
    ];
    let parts = ["event.attributes.", "event.payload."];
    WHOLE.contains(&name)
        || parts.iter().any(|part| name.len() > part.len() && name.starts_with(part))
}

impl Policy {
    /// Whether a placeholder means one of a policy's values.
    pub fn is_value(name: &str) -> bool {
        name.starts_with(PREFIX)
    }

    /// What templates of this policy may ask for, besides `others`.
    pub fn with_values<'a>(&'a self, others: &'a dyn Lookup) -> WithValues<'a> {
        WithValues { values: &self.values, others }
    }

    /// Refuses a policy that uses values nobody gave. A profile may leave them open for others to
    /// fill in; a subscription may not.
    pub fn check_complete(&self) -> Result<(), PolicyError> {
        for (path, template) in self.templates() {
            for names in template.placeholders() {
                let given = |name: &String| match name.strip_prefix(PREFIX) {
                    Some(value) => self.values.contains_key(value),
                    None => true,
                };
                // One of the alternatives is enough.
                let missing = names.first().and_then(|name| name.strip_prefix(PREFIX));
                if let Some(name) = missing.filter(|_| !names.iter().any(given)) {
                    let problem = format!(
                        "is missing, but {path} uses it; set it in the profile or in the \
                         subscription's own policy"
                    );
                    return refuse(&format!("values.{name}"), problem);
                }
            }
        }
        Ok(())
    }

    /// Refuses a key of lanes that no event can ever supply: lanes are found when an event is accepted,
    /// before there is a delivery, let alone an attempt.
    pub(super) fn check_order_key(&self) -> Result<(), PolicyError> {
        let Some(key) = &self.order.key else { return Ok(()) };
        key.validate()?;
        let mut templates = key.templates().iter();
        match templates.find_map(|template| self.never_known(template, DEPTH_MAX)) {
            None => Ok(()),
            Some(name) => {
                let problem = format!(
                    "uses `{name}`, which is not known when an event is accepted; use event.key, \
                     event.type, event.family, event.topic, event.id, event.attributes.…, \
                     event.payload.…, event.date, event.accepted_at or tenant.id"
                );
                refuse("order.key", problem)
            }
        }
    }

    /// The first placeholder none of whose alternatives an event can supply.
    fn never_known(&self, template: &Template, depth: usize) -> Option<String> {
        let known = |name: &String| match name.strip_prefix(PREFIX) {
            // One that is not given yet is somebody else's to give.
            Some(value) => match (self.values.get(value), depth.checked_sub(1)) {
                (Some(value), Some(depth)) => self.never_known(&value.from, depth).is_none(),
                _ => true,
            },
            None => is_of_an_event(name),
        };
        let never = template.placeholders().find(|names| !names.iter().any(known))?;
        Some(never.join("|"))
    }

    /// Every template that requests cannot do without, with its place.
    pub(super) fn templates(&self) -> Vec<(String, &Template)> {
        let mut all: Vec<(String, &Template)> = Vec::new();
        let request = &self.request;
        all.extend(request.path.iter().map(|t| ("request.path".to_owned(), t)));
        all.extend(request.source.iter().map(|t| ("request.source".to_owned(), t)));
        all.extend(request.query.iter().map(|(n, t)| (format!("request.query.{n}"), t)));
        for (name, template) in request.headers.iter().filter(|(name, _)| !name.ends_with('?')) {
            all.push((format!("request.headers.{name}"), template));
        }
        for (family, path) in &request.families {
            all.extend(path.template().map(|t| (format!("request.families.{family}"), t)));
        }
        let keys = self.order.key.iter().flat_map(super::OrderKey::templates);
        all.extend(keys.map(|t| ("order.key".to_owned(), t)));
        all.extend(self.gate.iter().map(|gate| ("gate.url".to_owned(), &gate.url)));
        for (index, auth) in self.auth.iter().enumerate() {
            let values = auth.otp().into_iter().flat_map(|otp| &otp.values);
            all.extend(values.map(|(n, t)| (format!("auth[{index}].values.{n}"), t)));
        }
        all.extend(self.values.iter().map(|(name, v)| (format!("values.{name}"), &v.from)));
        all
    }
}
