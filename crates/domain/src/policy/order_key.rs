//! What lanes of order `key` go by: a template, or a list of them for events that lack what the first
//! one needs.

use std::borrow::Cow;

use serde::de::{self, Deserializer};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};

use super::{PolicyError, refuse};
use crate::{Lookup, Template};

/// Templates in one key. Each may be filled in for every event, so there are few.
const TEMPLATES_MAX: usize = 5;

/// One template, or several in the order in which they are tried: the first for which an event has every
/// value, none of them empty, makes the key. An event that fits none has no lane.
#[derive(Clone, Debug, PartialEq)]
pub struct OrderKey(Vec<Template>);

impl OrderKey {
    /// The key that the first fitting of these makes.
    pub fn first_of(templates: Vec<Template>) -> Self {
        Self(templates)
    }

    /// Its templates, the preferred one first.
    pub fn templates(&self) -> &[Template] {
        &self.0
    }

    /// The key of whatever has these values, if it has one.
    pub fn render(&self, values: &dyn Lookup) -> Option<String> {
        let there = NotEmpty(values);
        let rendered = |template: &Template| template.render(&there, str::to_owned).ok();
        self.0.iter().find_map(|template| rendered(template).filter(|text| !text.is_empty()))
    }

    pub(super) fn validate(&self) -> Result<(), PolicyError> {
        if self.0.is_empty() || self.0.len() > TEMPLATES_MAX {
            let problem =
                format!("must be a template, or a list of 1 to {TEMPLATES_MAX} templates");
            return refuse("order.key", problem);
        }
        let mut before_last = self.0.iter().rev().skip(1);
        if let Some(fixed) = before_last.find(|t| t.placeholders().next().is_none()) {
            let problem = format!(
                "`{}` fits every event, so the templates after it are never used; put it last",
                fixed.source()
            );
            return refuse("order.key", problem);
        }
        Ok(())
    }
}

/// Values that are there and not empty: many events without a user must not look like those of one.
struct NotEmpty<'a>(&'a dyn Lookup);

impl Lookup for NotEmpty<'_> {
    fn lookup(&self, name: &str) -> Option<Cow<'_, str>> {
        self.0.lookup(name).filter(|value| !value.is_empty())
    }
}

impl From<Template> for OrderKey {
    fn from(template: Template) -> Self {
        Self(vec![template])
    }
}

impl Serialize for OrderKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0[..] {
            [one] => one.serialize(serializer),
            several => several.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for OrderKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match serde_json::Value::deserialize(deserializer)? {
            serde_json::Value::String(text) => {
                text.parse::<Template>().map(Self::from).map_err(de::Error::custom)
            }
            list @ serde_json::Value::Array(_) => {
                Vec::deserialize(list).map(Self).map_err(de::Error::custom)
            }
            _ => Err(de::Error::custom("order.key is a template, or a list of templates")),
        }
    }
}
