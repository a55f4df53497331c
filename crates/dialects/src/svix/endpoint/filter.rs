//! What an endpoint wants, as event types and channels, and as a filter.

use std::collections::{BTreeMap, BTreeSet};

use posthorn_domain::filter::{AttributeValues, Glob, Group};
use posthorn_domain::{Filter, TopicName};

/// A channel of a message is an attribute with this before its name.
pub(crate) const ATTRIBUTE_PREFIX: &str = "channel.";
/// The value of such an attribute.
pub(crate) const PRESENT: &str = "1";

/// What an endpoint wants; everything where nothing is said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) types: Option<BTreeSet<String>>,
    pub(crate) channels: Option<BTreeSet<String>>,
}

impl Wanted {
    /// As a filter: a group for each channel, or one.
    pub(crate) fn filter(&self, topic: &TopicName) -> Filter {
        let group = |channel: Option<&String>| Group {
            topics: vec![topic.clone()],
            types: self.types.iter().flatten().map(|name| Glob::new(name.as_str())).collect(),
            attributes: channel
                .map(|name| {
                    let value = AttributeValues::One(PRESENT.to_owned());
                    BTreeMap::from([(format!("{ATTRIBUTE_PREFIX}{name}"), value)])
                })
                .unwrap_or_default(),
            payload: None,
        };
        let any_of = match &self.channels {
            Some(channels) => channels.iter().map(|name| group(Some(name))).collect(),
            None => vec![group(None)],
        };
        Filter {
            any_of,
            missing_attribute: Default::default(),
            attribute_names: Default::default(),
        }
    }

    /// Back from a filter. One that was made elsewhere may say more than can be shown here: then nothing is said.
    pub(crate) fn read(filter: &Filter, topic: &TopicName) -> Self {
        let Some(first) = filter.any_of.first() else { return Self::default() };
        let same = filter.any_of.iter().all(|group| {
            group.topics == [topic.clone()] && group.types == first.types && group.payload.is_none()
        });
        if !same {
            return Self::default();
        }
        let types: BTreeSet<String> =
            first.types.iter().map(|own| own.as_str().to_owned()).collect();
        let channels: Option<BTreeSet<String>> = filter
            .any_of
            .iter()
            .map(|group| {
                let (name, _) = group.attributes.first_key_value()?;
                name.strip_prefix(ATTRIBUTE_PREFIX).map(str::to_owned)
            })
            .collect();
        Self { types: (!types.is_empty()).then_some(types), channels }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wanted_comes_back_from_its_filter() {
        let topic: TopicName = "messages".parse().unwrap();
        let set = |all: &[&str]| Some(all.iter().map(|own| (*own).to_owned()).collect());
        let all = [
            Wanted::default(),
            Wanted { types: set(&["a.b", "c"]), channels: None },
            Wanted { types: None, channels: set(&["x", "y"]) },
            Wanted { types: set(&["a"]), channels: set(&["x", "y", "z"]) },
        ];
        for wanted in all {
            let filter = wanted.filter(&topic);
            filter.validate().unwrap();
            assert_eq!(Wanted::read(&filter, &topic), wanted);
        }
    }

    #[test]
    fn a_filter_of_another_making_says_nothing() {
        let topic: TopicName = "messages".parse().unwrap();
        let other = Wanted { types: None, channels: None }.filter(&"orders".parse().unwrap());
        assert_eq!(Wanted::read(&other, &topic), Wanted::default());
    }
}
