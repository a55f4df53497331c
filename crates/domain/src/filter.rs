//! Filters: which events a subscription wants.
//!
//! A filter is an OR of groups; a group is an AND of conditions on topic, type, attributes and
//! payload. An empty list of groups wants nothing; one empty group wants everything.

mod condition;
mod cost;
mod document;
mod glob;
#[cfg(test)]
mod tests;
mod values;

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::limits::{
    ATTRIBUTE_NAME_BYTES_MAX, ATTRIBUTE_VALUE_BYTES_MAX, CONDITION_DEPTH_MAX, CONDITION_NODES_MAX,
    FILTER_BYTES_MAX, FILTER_CONDITIONS_MAX, FILTER_GROUPS_MAX, FILTER_VALUES_MAX,
    PATTERN_BYTES_MAX, POINTER_BYTES_MAX,
};
use crate::{Event, TopicName, alternatives};

use cost::CONDITION;
use document::Document;

pub use condition::{Condition, Operator, Pointer};
pub use cost::{Cost, Meter};
pub use glob::Glob;
pub use values::AttributeValues;

/// Which events a subscription matches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Filter {
    /// An event matches when any of these groups matches.
    #[schemars(length(max = FILTER_GROUPS_MAX))]
    pub any_of: Vec<Group>,
    /// The result of a condition on an attribute that the event does not have.
    #[serde(default)]
    pub missing_attribute: MissingAttribute,
    /// How attribute names are compared.
    #[serde(default)]
    pub attribute_names: AttributeNames,
}

// Payload conditions hold JSON numbers, which are compared exactly as written.
impl Eq for Filter {}

/// Conditions that must all hold.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "FilterGroup")]
pub struct Group {
    /// The event's topic is one of these; empty means any but `posthorn.operational`, which must be
    /// named.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub topics: Vec<TopicName>,
    /// The event's type matches one of these; empty means any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<Glob>,
    /// Each attribute has this value, or one of the values in the list; `*` stands for any value.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, AttributeValues>,
    /// The JSON payload satisfies this.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Condition>,
}

/// The result of a condition on an attribute that the event does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum MissingAttribute {
    /// The group does not match.
    #[default]
    Mismatch,
    /// The condition is ignored, as the Notificaties API has it.
    Ignore,
}

/// How attribute names are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum AttributeNames {
    /// Byte for byte.
    #[default]
    Exact,
    /// `objectType` and `object_type` are the same name.
    CamelOrSnake,
}

/// What is wrong with a filter.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// Too many groups.
    #[error("a filter may have at most {FILTER_GROUPS_MAX} groups, {0} were given")]
    TooManyGroups(usize),
    /// Too many conditions in all groups together.
    #[error(
        "a filter may have at most {FILTER_CONDITIONS_MAX} conditions in all its groups, {0} were given"
    )]
    TooManyConditions(usize),
    /// A payload condition is too large or too deep.
    #[error(
        "a payload condition may have at most {CONDITION_NODES_MAX} nodes, {CONDITION_DEPTH_MAX} levels deep"
    )]
    ConditionTooLarge,
    /// A list of values has none.
    #[error(
        "the list of values of attribute `{0}` is empty; give at least one value, or leave the \
         attribute out"
    )]
    NoValues(String),
    /// A list of values is too long.
    #[error("{place} may have at most {FILTER_VALUES_MAX} values, {count} were given")]
    TooManyValues {
        /// Whose values.
        place: String,
        /// How many.
        count: usize,
    },
    /// `in` with something else than a list.
    #[error("the test `in` of `{0}` needs a list of values in `value`")]
    NotAList(String),
    /// A text of it is too long.
    #[error("{what} may have at most {max} bytes")]
    TooLong {
        /// Which text.
        what: &'static str,
        /// The longest allowed.
        max: usize,
    },
    /// With the largest payload it would cost more than an event may.
    #[error(
        "matching it with a payload of {payload} bytes may cost {cost}; the limit for one event \
         is {limit} (quotas.match_cost_per_event); use fewer `contains` tests"
    )]
    TooCostly {
        /// The largest payload.
        payload: usize,
        /// What it may cost then.
        cost: u64,
        /// What an event may cost.
        limit: u64,
    },
}

/// Why a group does not want an event, for people who ask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// Wrong topic.
    Topic,
    /// Wrong type.
    Type,
    /// This attribute differs or is missing.
    Attribute(String),
    /// This attribute has none of the values in the list, or is missing.
    NoneOf(String),
    /// The payload does not satisfy the condition.
    Payload,
    /// The filter has no groups, so it wants nothing.
    NoGroups,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Topic => f.write_str("the topic is not one of the filter's"),
            Self::Type => f.write_str("the event type matches none of the filter's patterns"),
            Self::Attribute(name) => write!(f, "attribute `{name}` differs or is missing"),
            Self::NoneOf(name) => {
                write!(f, "attribute `{name}` is none of the filter's values or is missing")
            }
            Self::Payload => f.write_str("the payload does not satisfy the filter's condition"),
            Self::NoGroups => f.write_str("the filter has no groups and matches nothing"),
        }
    }
}

/// An event with its payload parsed at most once, and only if some filter looks at it.
pub struct Candidate<'a> {
    event: &'a Event,
    json: OnceCell<Option<serde_json::Value>>,
    /// The attributes by their names in snake case.
    snaked: OnceCell<HashMap<String, &'a String>>,
    /// Where names of filters are put into snake case.
    scratch: RefCell<String>,
    meter: Meter,
}

impl<'a> Candidate<'a> {
    /// Wraps an event for matching against many filters, whatever it costs.
    pub fn new(event: &'a Event) -> Self {
        Self::metered(event, u64::MAX)
    }

    /// The same, up to a limit: once [`Candidate::meter`] is spent, answers mean nothing.
    pub fn metered(event: &'a Event, limit: u64) -> Self {
        Self {
            event,
            json: OnceCell::new(),
            snaked: OnceCell::new(),
            scratch: RefCell::default(),
            meter: Meter::new(limit),
        }
    }

    /// What matching has cost so far.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// The payload as JSON, if any filter asked for it.
    pub fn into_json(self) -> Option<Option<serde_json::Value>> {
        self.json.into_inner()
    }

    fn json(&self) -> Option<&serde_json::Value> {
        let parse = || {
            self.meter.parse(self.event.payload.len());
            alternatives::usual_json(self.event)
        };
        self.json.get_or_init(parse).as_ref()
    }

    /// The attribute whose name is the same in snake case. Of several, the first by name.
    fn snaked(&self, name: &str) -> Option<&'a String> {
        let attributes = self.snaked.get_or_init(|| {
            let mut all = HashMap::with_capacity(self.event.attributes.len());
            for (name, value) in &self.event.attributes {
                all.entry(snake(name)).or_insert(value);
            }
            all
        });
        if is_snake(name) {
            return attributes.get(name).copied();
        }
        let mut scratch = self.scratch.borrow_mut();
        scratch.clear();
        snake_into(name, &mut scratch);
        attributes.get(scratch.as_str()).copied()
    }
}

/// One event and many filters: places in the payload are looked up once for all of them.
pub struct Matching<'c, 'a> {
    candidate: &'c Candidate<'a>,
    document: OnceCell<Option<Document<'c>>>,
}

impl<'c, 'a> Matching<'c, 'a> {
    /// Begins.
    pub fn new(candidate: &'c Candidate<'a>) -> Self {
        Self { candidate, document: OnceCell::new() }
    }

    fn document(&self) -> Option<&Document<'c>> {
        let read = || Some(Document::new(self.candidate.json()?, &self.candidate.meter));
        self.document.get_or_init(read).as_ref()
    }

    /// Whether a filter wants the event.
    pub fn wants(&self, filter: &'c Filter) -> bool {
        self.candidate.meter.spend(Cost::FILTER.fixed);
        filter.any_of.iter().any(|group| filter.group_mismatch(group, self).is_none())
    }

    /// The first group of a filter that wants the event.
    pub fn group(&self, filter: &'c Filter) -> Option<usize> {
        self.candidate.meter.spend(Cost::FILTER.fixed);
        filter.any_of.iter().position(|group| filter.group_mismatch(group, self).is_none())
    }

    /// Why a filter does not want the event, group by group; `None` when it does.
    pub fn explain(&self, filter: &'c Filter) -> Option<Vec<Mismatch>> {
        if filter.any_of.is_empty() {
            return Some(vec![Mismatch::NoGroups]);
        }
        self.candidate.meter.spend(Cost::FILTER.fixed);
        filter.any_of.iter().map(|group| filter.group_mismatch(group, self)).collect()
    }
}

impl Filter {
    /// Whether it names the reserved topic, without which it matches nothing on it.
    pub fn names_reserved(&self) -> bool {
        self.any_of.iter().any(|group| group.topics.iter().any(TopicName::is_reserved))
    }
}

impl Group {
    /// How many conditions it has besides that on the payload. Each value of a list counts.
    fn plain_conditions(&self) -> usize {
        let values: usize = self.attributes.values().map(|values| values.all().len()).sum();
        self.topics.len() + self.types.len() + values
    }
}

impl Default for Filter {
    fn default() -> Self {
        Self::everything()
    }
}

impl Filter {
    /// Wants every event of the tenant.
    pub fn everything() -> Self {
        Self {
            any_of: vec![Group::default()],
            missing_attribute: MissingAttribute::default(),
            attribute_names: AttributeNames::default(),
        }
    }

    /// Checks the limits.
    pub fn validate(&self) -> Result<(), FilterError> {
        if self.any_of.len() > FILTER_GROUPS_MAX {
            return Err(FilterError::TooManyGroups(self.any_of.len()));
        }
        let mut conditions = 0;
        for group in &self.any_of {
            conditions += group.plain_conditions();
            for (name, values) in &group.attributes {
                match values.all().len() {
                    0 => return Err(FilterError::NoValues(name.clone())),
                    1..=FILTER_VALUES_MAX => {}
                    count => {
                        let place = format!("attribute `{name}`");
                        return Err(FilterError::TooManyValues { place, count });
                    }
                }
            }
            let Some(condition) = &group.payload else { continue };
            let (nodes, depth) = condition.size();
            if nodes > CONDITION_NODES_MAX || depth > CONDITION_DEPTH_MAX {
                return Err(FilterError::ConditionTooLarge);
            }
            conditions += nodes;
        }
        if conditions > FILTER_CONDITIONS_MAX {
            return Err(FilterError::TooManyConditions(conditions));
        }
        Ok(())
    }

    /// The limits on what it may be made of, for one that is about to be written down. Those that were
    /// before there were such limits go on.
    pub fn check_size(&self, payload_bytes: usize, match_units: u64) -> Result<(), FilterError> {
        let short = |what: &'static str, text: &str, max: usize| match text.len() > max {
            true => Err(FilterError::TooLong { what, max }),
            false => Ok(()),
        };
        for group in &self.any_of {
            for pattern in &group.types {
                short("a pattern of types", pattern.as_str(), PATTERN_BYTES_MAX)?;
            }
            for (name, values) in &group.attributes {
                short("the name of an attribute", name, ATTRIBUTE_NAME_BYTES_MAX)?;
                for value in values.all() {
                    short("the value of an attribute", value, ATTRIBUTE_VALUE_BYTES_MAX)?;
                }
            }
            for (path, op, value) in group.payload.iter().flat_map(Condition::tests) {
                short("a path", path.as_str(), POINTER_BYTES_MAX)?;
                if op == Operator::In {
                    check_list(path, value)?;
                }
            }
        }
        let bytes = serde_json::to_vec(self).map_or(usize::MAX, |text| text.len());
        if bytes > FILTER_BYTES_MAX {
            return Err(FilterError::TooLong { what: "a filter", max: FILTER_BYTES_MAX });
        }
        let cost = self.cost().of(payload_bytes);
        if cost > match_units {
            let (payload, limit) = (payload_bytes, match_units);
            return Err(FilterError::TooCostly { payload, cost, limit });
        }
        Ok(())
    }

    /// What matching it may cost at most.
    pub fn cost(&self) -> Cost {
        let of_group = |group: &Group| {
            let named = CONDITION * (group.topics.len() + group.types.len()) as u64;
            let values: u64 = group.attributes.values().map(AttributeValues::cost).sum();
            let fixed = named + values;
            let payload = group.payload.as_ref().map(Condition::cost).unwrap_or_default();
            Cost { fixed, ..Cost::default() } + payload
        };
        Cost::FILTER + self.any_of.iter().map(of_group).sum()
    }

    /// Whether it wants the event.
    pub fn wants(&self, candidate: &Candidate<'_>) -> bool {
        Matching::new(candidate).wants(self)
    }

    /// Why it does not want the event, group by group; `None` when it does.
    pub fn explain(&self, candidate: &Candidate<'_>) -> Option<Vec<Mismatch>> {
        Matching::new(candidate).explain(self)
    }

    fn group_mismatch<'c>(
        &'c self,
        group: &'c Group,
        matching: &Matching<'c, '_>,
    ) -> Option<Mismatch> {
        let candidate = matching.candidate;
        let (event, meter) = (candidate.event, &candidate.meter);
        if !group.topics.is_empty() {
            meter.spend(CONDITION * group.topics.len() as u64);
            if !group.topics.contains(&event.topic) {
                return Some(Mismatch::Topic);
            }
        } else if event.topic.is_reserved() {
            // Who wants everything wants what publishers say. The reserved topic must be named.
            return Some(Mismatch::Topic);
        }
        if !group.types.is_empty() {
            meter.spend(CONDITION * group.types.len() as u64);
            if !group.types.iter().any(|glob| glob.matches(event.event_type.as_str())) {
                return Some(Mismatch::Type);
            }
        }
        for (name, wanted) in &group.attributes {
            meter.spend(wanted.cost());
            let fits = match self.attribute(candidate, name) {
                Some(value) => wanted.hold(value),
                None => self.missing_attribute == MissingAttribute::Ignore,
            };
            if !fits {
                return Some(match wanted {
                    AttributeValues::One(_) => Mismatch::Attribute(name.clone()),
                    AttributeValues::AnyOf(_) => Mismatch::NoneOf(name.clone()),
                });
            }
        }
        match &group.payload {
            Some(condition)
                if !matching.document().is_some_and(|document| condition.holds(document)) =>
            {
                Some(Mismatch::Payload)
            }
            _ => None,
        }
    }

    fn attribute<'e>(&self, candidate: &Candidate<'e>, name: &str) -> Option<&'e String> {
        match self.attribute_names {
            AttributeNames::Exact => candidate.event.attributes.get(name),
            AttributeNames::CamelOrSnake => candidate.snaked(name),
        }
    }
}

/// The values of `in`.
fn check_list(path: &Pointer, value: &serde_json::Value) -> Result<(), FilterError> {
    match value.as_array().map(Vec::len) {
        None => Err(FilterError::NotAList(path.as_str().to_owned())),
        Some(count) if count > FILTER_VALUES_MAX => {
            let place = format!("the test `in` of `{}`", path.as_str());
            Err(FilterError::TooManyValues { place, count })
        }
        Some(_) => Ok(()),
    }
}

/// `objectType` → `object_type`; what is snake already stays. Names of attributes that differ only in
/// this are the same to [`AttributeNames::CamelOrSnake`].
pub fn snake(name: &str) -> String {
    let mut out = String::with_capacity(name.len() + 4);
    snake_into(name, &mut out);
    out
}

fn is_snake(name: &str) -> bool {
    !name.bytes().any(|byte| byte.is_ascii_uppercase())
}

/// Appends to an empty text.
fn snake_into(name: &str, out: &mut String) {
    for (index, c) in name.chars().enumerate() {
        if c.is_ascii_uppercase() {
            if index > 0 && !out.ends_with('_') {
                out.push('_');
            }
            out.push(c.to_ascii_lowercase());
        } else {
            out.push(c);
        }
    }
}
