//! Reading what clients send: a JSON object of which unknown members are passed over, and every fault of which is said with its
//! place.

use std::collections::{BTreeMap, BTreeSet};

use posthorn_domain::Timestamp;
use serde_json::{Map, Value};

use super::failure::{Failure, SHAPE, VALUE, Wrong};

/// What a member says: absent, null, or something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Given<T> {
    Absent,
    Null,
    Some(T),
}

impl<T> Given<T> {
    /// Null means the same as absent.
    pub(super) fn or_absent(self) -> Option<T> {
        match self {
            Self::Some(value) => Some(value),
            Self::Absent | Self::Null => None,
        }
    }

    /// As a change: nothing to change, to clear, to set.
    pub(super) fn change(self) -> Option<Option<T>> {
        match self {
            Self::Absent => None,
            Self::Null => Some(None),
            Self::Some(value) => Some(Some(value)),
        }
    }
}

/// An object whose members are read one by one. Faults are gathered, so that all are said at once.
pub(super) struct Object {
    members: Map<String, Value>,
    place: Vec<String>,
    wrong: Vec<Wrong>,
}

impl Object {
    /// From a whole body.
    pub(super) fn read(value: Value) -> Result<Self, Failure> {
        match value {
            Value::Object(members) => Ok(Self::of(members, vec!["body".to_owned()])),
            _ => Err(Failure::shape("must be a JSON object")),
        }
    }

    fn of(members: Map<String, Value>, place: Vec<String>) -> Self {
        Self { members, place, wrong: Vec::new() }
    }

    /// Notes what is wrong with a member.
    pub(super) fn refuse(&mut self, name: &str, problem: impl Into<String>) {
        self.note(name, problem.into(), VALUE);
    }

    fn note(&mut self, name: &str, problem: String, kind: &'static str) {
        let mut place = self.place.clone();
        place.push(name.to_owned());
        self.wrong.push(Wrong { place, problem, kind });
    }

    /// All that was wrong, if anything was.
    pub(super) fn done(self) -> Result<(), Failure> {
        if self.wrong.is_empty() { Ok(()) } else { Err(Failure::Invalid(self.wrong)) }
    }

    /// A member, and whether it is there.
    pub(super) fn value(&mut self, name: &str) -> Given<Value> {
        match self.members.remove(name) {
            None => Given::Absent,
            Some(Value::Null) => Given::Null,
            Some(value) => Given::Some(value),
        }
    }

    /// A member under its name or, where that is absent, under the name it had before.
    pub(super) fn value_of(&mut self, name: &str, former: &str) -> Given<Value> {
        let old = self.value(former);
        match self.value(name) {
            Given::Absent => old,
            given => given,
        }
    }

    fn typed<T>(
        &mut self,
        name: &str,
        given: Given<Value>,
        what: &str,
        read: impl FnOnce(Value) -> Option<T>,
    ) -> Given<T> {
        match given {
            Given::Absent => Given::Absent,
            Given::Null => Given::Null,
            Given::Some(value) => match read(value) {
                Some(value) => Given::Some(value),
                None => {
                    self.note(name, format!("must be {what}"), SHAPE);
                    Given::Absent
                }
            },
        }
    }

    pub(super) fn text(&mut self, name: &str) -> Given<String> {
        let given = self.value(name);
        self.typed(name, given, "a string", |value| match value {
            Value::String(text) => Some(text),
            _ => None,
        })
    }

    /// A text that must be there.
    pub(super) fn needed(&mut self, name: &str) -> String {
        match self.text(name) {
            Given::Some(text) => text,
            Given::Null => {
                self.note(name, "must not be null".to_owned(), SHAPE);
                String::new()
            }
            Given::Absent if self.wrong.is_empty() => {
                self.note(name, "field required".to_owned(), SHAPE);
                String::new()
            }
            Given::Absent => String::new(),
        }
    }

    pub(super) fn flag(&mut self, name: &str) -> Given<bool> {
        let given = self.value(name);
        self.typed(name, given, "true or false", |value| value.as_bool())
    }

    pub(super) fn number(&mut self, name: &str) -> Given<u64> {
        let given = self.value(name);
        self.typed(name, given, "a whole number", |value| value.as_u64())
    }

    /// A number under its name, or the one it had before.
    pub(super) fn number_of(&mut self, name: &str, former: &str) -> Given<u64> {
        let given = self.value_of(name, former);
        self.typed(name, given, "a whole number", |value| value.as_u64())
    }

    pub(super) fn time(&mut self, name: &str) -> Given<Timestamp> {
        let given = self.value(name);
        self.typed(name, given, "a time such as 2026-01-31T12:00:00Z", |value| {
            read_time(value.as_str()?)
        })
    }

    /// Names and texts.
    pub(super) fn texts(&mut self, name: &str) -> Given<BTreeMap<String, String>> {
        let given = self.value(name);
        self.typed(name, given, "an object of strings", |value| match value {
            Value::Object(members) => members
                .into_iter()
                .map(|(name, value)| value.as_str().map(|text| (name, text.to_owned())))
                .collect(),
            _ => None,
        })
    }

    /// A set of texts; what stands twice counts once.
    pub(super) fn set(&mut self, name: &str, former: Option<&str>) -> Given<BTreeSet<String>> {
        let given = match former {
            Some(former) => self.value_of(name, former),
            None => self.value(name),
        };
        self.typed(name, given, "a list of strings", |value| match value {
            Value::Array(items) => {
                items.into_iter().map(|item| item.as_str().map(str::to_owned)).collect()
            }
            _ => None,
        })
    }

    /// An object below this one.
    pub(super) fn object(&mut self, name: &str) -> Given<Self> {
        let mut place = self.place.clone();
        place.push(name.to_owned());
        let given = self.value(name);
        self.typed(name, given, "an object", |value| match value {
            Value::Object(members) => Some(Self::of(members, place)),
            _ => None,
        })
    }
}

/// A time with a zone.
pub(super) fn read_time(text: &str) -> Option<Timestamp> {
    let at: jiff::Timestamp = text.parse().ok()?;
    Some(Timestamp::from_millis(at.as_millisecond()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_faults_are_said_with_their_places() {
        let body = json!({"name": 5, "throttleRate": "x", "metadata": {"a": 1}, "more": true});
        let mut body = Object::read(body).unwrap();
        assert_eq!(body.needed("name"), "");
        assert_eq!(body.number_of("throttleRate", "rateLimit"), Given::Absent);
        assert_eq!(body.texts("metadata"), Given::Absent);
        let Err(Failure::Invalid(wrong)) = body.done() else { panic!("it has faults") };
        let places: Vec<_> = wrong.iter().map(|wrong| wrong.place.join(".")).collect();
        assert_eq!(places, ["body.name", "body.throttleRate", "body.metadata"]);
        assert!(wrong.iter().all(|wrong| wrong.kind == SHAPE));
    }

    #[test]
    fn a_new_name_wins_over_its_former_one() {
        let mut body = Object::read(json!({"rateLimit": 5, "throttleRate": 7})).unwrap();
        assert_eq!(body.number_of("throttleRate", "rateLimit"), Given::Some(7));
        let mut body = Object::read(json!({"rateLimit": 5})).unwrap();
        assert_eq!(body.number_of("throttleRate", "rateLimit"), Given::Some(5));
        let mut body = Object::read(json!({"throttleRate": null, "rateLimit": 5})).unwrap();
        assert_eq!(body.number_of("throttleRate", "rateLimit"), Given::Null);
    }

    #[test]
    fn times_have_a_zone() {
        assert!(read_time("2026-01-31T12:00:00.123456789+02:00").is_some());
        assert_eq!(read_time("2026-01-31T12:00:00"), None);
    }
}
