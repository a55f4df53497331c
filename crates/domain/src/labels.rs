//! Labels: what people, and dialects, want to remember of a thing beside what the engine needs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::limits::{LABEL_NAME_BYTES_MAX, LABELS_BYTES_MAX, LABELS_MAX};

/// Names and texts. The engine only keeps them, and lets templates use them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "BTreeMap<String, String>", into = "BTreeMap<String, String>")]
pub struct Labels(BTreeMap<String, String>);

/// What is wrong with labels.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LabelsError {
    /// Too many.
    #[error("at most {LABELS_MAX} labels are allowed, {0} were given")]
    TooMany(usize),
    /// Too much text.
    #[error("labels may have at most {LABELS_BYTES_MAX} bytes together, these have {0}")]
    TooLarge(usize),
    /// Not a name.
    #[error(
        "label `{0}`: a name must be 1 to {LABEL_NAME_BYTES_MAX} characters of A-Z a-z 0-9 . _ -"
    )]
    Name(String),
}

impl Labels {
    /// Checks the rules.
    pub fn new(labels: BTreeMap<String, String>) -> Result<Self, LabelsError> {
        if labels.len() > LABELS_MAX {
            return Err(LabelsError::TooMany(labels.len()));
        }
        let bytes = labels.iter().map(|(name, value)| name.len() + value.len()).sum();
        if bytes > LABELS_BYTES_MAX {
            return Err(LabelsError::TooLarge(bytes));
        }
        // What a placeholder of a template can name.
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let proper = |name: &str| {
            !name.is_empty() && name.len() <= LABEL_NAME_BYTES_MAX && name.chars().all(plain)
        };
        match labels.keys().find(|name| !proper(name)) {
            Some(name) => Err(LabelsError::Name(name.clone())),
            None => Ok(Self(labels)),
        }
    }

    /// The text of a label.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl TryFrom<BTreeMap<String, String>> for Labels {
    type Error = LabelsError;

    fn try_from(labels: BTreeMap<String, String>) -> Result<Self, LabelsError> {
        Self::new(labels)
    }
}

impl From<Labels> for BTreeMap<String, String> {
    fn from(labels: Labels) -> Self {
        labels.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(pairs: &[(&str, &str)]) -> Result<Labels, LabelsError> {
        Labels::new(pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect())
    }

    #[test]
    fn rules_hold() {
        let good = labels(&[("team", "payments"), ("a.b-c_1", "")]).expect("proper");
        assert_eq!(good.get("team"), Some("payments"));
        assert_eq!(good.get("other"), None);
        assert_eq!(labels(&[("", "x")]), Err(LabelsError::Name(String::new())));
        assert_eq!(labels(&[("a b", "x")]), Err(LabelsError::Name("a b".to_owned())));
        let long = "n".repeat(LABEL_NAME_BYTES_MAX + 1);
        assert_eq!(labels(&[(&long, "x")]), Err(LabelsError::Name(long.clone())));
        let text = "v".repeat(LABELS_BYTES_MAX);
        assert_eq!(labels(&[("a", &text)]), Err(LabelsError::TooLarge(LABELS_BYTES_MAX + 1)));
        let many = (0..=LABELS_MAX).map(|n| (n.to_string(), String::new())).collect();
        assert_eq!(Labels::new(many), Err(LabelsError::TooMany(LABELS_MAX + 1)));
    }

    #[test]
    fn their_json_is_an_object_and_is_checked() {
        let read = |text: &str| serde_json::from_str::<Labels>(text);
        let good = read(r#"{"a":"b"}"#).expect("proper");
        assert_eq!(serde_json::to_string(&good).expect("JSON"), r#"{"a":"b"}"#);
        assert!(read(r#"{"a":1}"#).is_err());
        assert!(read(r#"{"":"b"}"#).is_err());
    }
}
