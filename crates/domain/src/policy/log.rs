//! Log lines that operators of a system search for by their exact text.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{PolicyError, refuse};
use crate::Template;

/// How many fields a line may have.
const FIELDS_MAX: usize = 20;
/// What every line has of itself.
const RESERVED: [&str; 5] = ["timestamp", "level", "target", "span", "spans"];

/// Extra log lines, for operators who search for exact texts. Placeholders without a value are
/// empty in a text; fields without a value are left out. The line is always written.
#[derive(Clone, Debug, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "LogPolicy")]
pub struct LogTemplates {
    /// The field that carries the text; `message` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// Logged before each request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Template>,
    /// Logged after each request without success; may use `{response.body}`, `{response.status}`
    /// and `{response.json.NAME}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Template>,
    /// Further fields of these lines.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: BTreeMap<String, Template>,
}

impl LogTemplates {
    /// The field that carries the text.
    pub fn text_field(&self) -> &str {
        self.field.as_deref().unwrap_or("message")
    }

    pub(super) fn validate(&self) -> Result<(), PolicyError> {
        if let Some(name) = &self.field {
            check_name("log.field", name)?;
        }
        if self.fields.len() > FIELDS_MAX {
            return refuse("log.fields", format!("must be at most {FIELDS_MAX}"));
        }
        for name in self.fields.keys() {
            check_name("log.fields", name)?;
            if name == self.text_field() {
                return refuse("log.fields", format!("`{name}` is already the field of the text"));
            }
        }
        Ok(())
    }
}

fn check_name(path: &str, name: &str) -> Result<(), PolicyError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '@');
    if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
        return refuse(path, format!("`{name}` is not a name: 1 to 64 of A-Z a-z 0-9 _ - . @"));
    }
    if RESERVED.contains(&name) {
        return refuse(path, format!("`{name}` is a field that every line already has"));
    }
    Ok(())
}
