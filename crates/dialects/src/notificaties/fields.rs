//! Reading the fields of a document, and collecting everything that is wrong with them.
//!
//! Codes are those that clients of the original know; texts are for people. What a document has
//! besides the fields one asks for is nobody's business here.

use std::collections::BTreeMap;

pub(crate) use posthorn_domain::filter::snake;
use serde_json::{Map, Value};

use super::problem::{Fault, NO_FIELD, Problem};

/// Whether a field has to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    Required,
    Optional,
}

/// What a text may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text {
    pub(crate) need: Need,
    /// In characters.
    pub(crate) max: usize,
    pub(crate) blank: bool,
}

impl Text {
    pub(crate) const fn required(max: usize) -> Self {
        Self { need: Need::Required, max, blank: false }
    }

    pub(crate) const fn optional(max: usize) -> Self {
        Self { need: Need::Optional, max, blank: true }
    }

    /// May be absent, but not empty.
    pub(crate) const fn given(max: usize) -> Self {
        Self { need: Need::Optional, max, blank: false }
    }

    /// The same, where what is not given stays as it is.
    pub(crate) const fn in_patch(self, patch: bool) -> Self {
        if patch { Self { need: Need::Optional, ..self } } else { self }
    }
}

/// One object, being read.
pub(crate) struct Fields<'a> {
    members: &'a Map<String, Value>,
    /// What stands before the names of its fields in messages.
    path: String,
    faults: Vec<Fault>,
}

impl<'a> Fields<'a> {
    /// A whole document, which must be an object.
    pub(crate) fn of(document: &'a Value) -> Result<Self, Problem> {
        match document {
            Value::Object(members) => Ok(Self { members, path: String::new(), faults: Vec::new() }),
            other => {
                let reason = format!("Expected an object, but got {}.", kind(other));
                Err(Problem::field(NO_FIELD, "invalid", reason))
            }
        }
    }

    /// Everything that was found wrong.
    pub(crate) fn faults(self) -> Vec<Fault> {
        self.faults
    }

    /// Fails when anything was found wrong.
    pub(crate) fn finish(self) -> Result<(), Problem> {
        if self.faults.is_empty() { Ok(()) } else { Err(Problem::invalid(self.faults)) }
    }

    pub(crate) fn fault(&mut self, name: &str, code: &'static str, reason: impl Into<String>) {
        self.faults.push(Fault::new(format!("{}{name}", self.path), code, reason));
    }

    fn given(&mut self, name: &str, need: Need) -> Option<&'a Value> {
        match self.members.get(name) {
            None => {
                if need == Need::Required {
                    self.fault(name, "required", "This field is required.");
                }
                None
            }
            Some(Value::Null) => {
                self.fault(name, "null", "This field may not be null.");
                None
            }
            some => some,
        }
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.members.contains_key(name)
    }

    pub(crate) fn text(&mut self, name: &str, rule: Text) -> Option<String> {
        let value = self.given(name, rule.need)?;
        match check_text(value, rule.max, rule.blank) {
            Ok(text) => Some(text),
            Err((code, reason)) => {
                self.fault(name, code, reason);
                None
            }
        }
    }

    /// An absolute http or https URL, as it was written. A host needs no dot: inside of a cluster
    /// many have none.
    pub(crate) fn url(&mut self, name: &str, rule: Text) -> Option<String> {
        let text = self.text(name, rule)?;
        if !text.is_empty() && !is_url(&text) {
            self.fault(name, "invalid", "Enter a valid URL that begins with http:// or https://.");
            return None;
        }
        Some(text)
    }

    pub(crate) fn boolean(&mut self, name: &str) -> Option<bool> {
        match self.given(name, Need::Optional)? {
            Value::Bool(value) => Some(*value),
            _ => {
                self.fault(name, "invalid", "Must be a valid boolean.");
                None
            }
        }
    }

    /// A whole number within bounds.
    pub(crate) fn number(&mut self, name: &str, min: u32, max: u32) -> Option<u32> {
        let value = self.given(name, Need::Optional)?.as_u64();
        let fits = value.and_then(|value| u32::try_from(value).ok());
        let fits = fits.filter(|value| (min..=max).contains(value));
        if fits.is_none() {
            self.fault(name, "invalid", format!("Must be a whole number from {min} to {max}."));
        }
        fits
    }

    /// Finds fault with every field but these.
    pub(crate) fn only(&mut self, known: &[&str]) {
        for name in self.members.keys().filter(|name| !known.contains(&name.as_str())) {
            let reason = format!("Unknown field. Known are: {}.", known.join(", "));
            self.fault(name, "unknown-field", reason);
        }
    }

    fn list(&mut self, name: &str, need: Need) -> Option<&'a Vec<Value>> {
        match self.given(name, need)? {
            Value::Array(items) => Some(items),
            other => {
                let reason = format!("Expected a list of items but got {}.", kind(other));
                self.fault(name, "not_a_list", reason);
                None
            }
        }
    }

    /// A list of texts.
    pub(crate) fn texts(
        &mut self,
        name: &str,
        max: usize,
        items_max: usize,
    ) -> Option<Vec<String>> {
        let items = self.list(name, Need::Optional)?;
        if !self.is_short(name, items.len(), items_max) {
            return None;
        }
        let mut texts = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            match check_text(item, max, false) {
                Ok(text) => texts.push(text),
                Err((code, reason)) => self.fault(&format!("{name}.{index}"), code, reason),
            }
        }
        Some(texts)
    }

    /// A list of objects, each read by `read`.
    pub(crate) fn objects<T>(
        &mut self,
        name: &str,
        items_max: usize,
        mut read: impl FnMut(&mut Fields<'a>) -> Option<T>,
    ) -> Option<Vec<T>> {
        let items = self.list(name, Need::Optional)?;
        if !self.is_short(name, items.len(), items_max) {
            return None;
        }
        let mut all = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let path = format!("{}{name}.{index}", self.path);
            let Value::Object(members) = item else {
                let reason = format!("Expected an object, but got {}.", kind(item));
                let name = format!("{path}.{NO_FIELD}");
                self.faults.push(Fault::new(name, "invalid", reason));
                continue;
            };
            let mut inner = Fields { members, path: format!("{path}."), faults: Vec::new() };
            all.extend(read(&mut inner));
            self.faults.append(&mut inner.faults);
        }
        Some(all)
    }

    fn is_short(&mut self, name: &str, count: usize, max: usize) -> bool {
        if count > max {
            let reason = format!("Ensure this field has no more than {max} elements.");
            self.fault(name, "max_length", reason);
        }
        count <= max
    }

    /// A map of texts.
    pub(crate) fn map(&mut self, name: &str, rule: MapRule) -> Option<BTreeMap<String, String>> {
        let members = match self.given(name, Need::Optional)? {
            Value::Object(members) => members,
            other => {
                let reason = format!("Expected a dictionary of items but got {}.", kind(other));
                self.fault(name, "not_a_dict", reason);
                return None;
            }
        };
        if !self.is_short(name, members.len(), rule.items_max) {
            return None;
        }
        let mut map = BTreeMap::new();
        for (key, value) in members {
            let place = format!("{name}.{key}");
            let fits = !key.is_empty()
                && key.len() <= rule.key_bytes_max
                && !key.chars().any(char::is_control);
            if !fits {
                let reason = format!("A key must be 1 to {} printable bytes.", rule.key_bytes_max);
                self.fault(name, "invalid", reason);
                continue;
            }
            match check_text(value, rule.value_max, rule.blank) {
                Ok(text) => drop(map.insert(key.clone(), text)),
                Err((code, reason)) => self.fault(&place, code, reason),
            }
        }
        Some(map)
    }
}

/// What a map of texts may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MapRule {
    pub(crate) items_max: usize,
    pub(crate) key_bytes_max: usize,
    /// In characters.
    pub(crate) value_max: usize,
    pub(crate) blank: bool,
}

/// A text, without the space around it. Numbers are taken for their text, as the original does.
fn check_text(value: &Value, max: usize, blank: bool) -> Result<String, (&'static str, String)> {
    let text = match value {
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        Value::Null => return Err(("null", "This field may not be null.".to_owned())),
        _ => return Err(("invalid", "Not a valid string.".to_owned())),
    };
    if text.is_empty() && !blank {
        return Err(("blank", "This field may not be blank.".to_owned()));
    }
    if text.contains('\0') {
        return Err(("null_characters_not_allowed", "Null characters are not allowed.".to_owned()));
    }
    if text.chars().count() > max {
        let reason = format!("Ensure this field has no more than {max} characters.");
        return Err(("max_length", reason));
    }
    Ok(text)
}

pub(crate) fn is_url(text: &str) -> bool {
    let clean = !text.chars().any(|c| c.is_whitespace() || c.is_control());
    // The parser repairs what has no authority where one should be.
    let authority = text.split_once("://").is_some_and(|(scheme, rest)| {
        scheme.bytes().all(|b| b.is_ascii_alphabetic()) && !rest.starts_with('/')
    });
    clean
        && authority
        && url::Url::parse(text)
            .is_ok_and(|url| matches!(url.scheme(), "http" | "https") && url.has_host())
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Whether the names of filters fit those of a kanaal: one is part of the other.
pub(crate) fn consistent<'a>(kanaal: &[String], names: impl Iterator<Item = &'a String>) -> bool {
    use std::collections::BTreeSet;
    let kanaal: BTreeSet<String> = kanaal.iter().map(|name| snake(name)).collect();
    let names: BTreeSet<String> =
        names.filter(|name| !is_own(name)).map(|name| snake(name)).collect();
    names.is_subset(&kanaal) || kanaal.is_subset(&names)
}

/// What every notification can be filtered on besides its kenmerken.
pub(crate) const RESOURCE: &str = "#resource";
pub(crate) const ACTIE: &str = "#actie";

fn is_own(name: &str) -> bool {
    name == RESOURCE || name == ACTIE
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check_url_text(text: &str, fine: bool) {
        assert_eq!(is_url(text), fine, "{text}");
    }

    #[test]
    fn urls_need_a_scheme_and_a_host_but_no_dot() {
        check_url_text("https://example.com/a?b=c", true);
        check_url_text("http://openzaak:8000/zaken/1", true);
        check_url_text("http://localhost/", true);
        check_url_text("http://[::1]:8000/", true);
        for bad in [
            "",
            "x",
            "/zaken/1",
            "ftp://a/b",
            "http://",
            "https:// a/",
            "http://a/\n",
            "mailto:a@b",
            "http:a",
            "https:/a/b",
            "http:///a",
            "http:s://a/",
        ] {
            check_url_text(bad, false);
        }
    }

    #[track_caller]
    fn check_consistent(kanaal: &[&str], names: &[&str], fine: bool) {
        let owned = |list: &[&str]| list.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>();
        assert_eq!(consistent(&owned(kanaal), owned(names).iter()), fine, "{kanaal:?} {names:?}");
    }

    #[test]
    fn names_are_consistent_when_one_list_is_part_of_the_other() {
        check_consistent(&["bron", "type"], &["bron"], true);
        check_consistent(&["bron"], &["bron", "type"], true);
        check_consistent(&[], &["anything"], true);
        check_consistent(&["bron"], &[], true);
        check_consistent(&["bron", "type"], &["bron", "other"], false);
        check_consistent(&["object_type"], &["objectType"], true);
        check_consistent(&["objectType"], &["object_type", "x"], true);
        check_consistent(&["bron"], &["other", "#actie"], false);
        check_consistent(&["bron"], &["#actie", "#resource"], true);
    }

    #[test]
    fn every_fault_is_named() {
        let document = json!({"a": 5, "b": null, "c": " ", "d": "xxxx", "e": {}, "f": "a\u{0}b",
            "list": [1, {}, {"n": true}], "map": {"k": [], "": "x", "ok": ""}, "flag": "yes"});
        let mut fields = Fields::of(&document).expect("an object");
        assert_eq!(fields.text("a", Text::required(3)).as_deref(), Some("5"));
        for name in ["b", "c", "d", "e", "f", "g"] {
            assert_eq!(fields.text(name, Text::required(3)), None);
        }
        assert_eq!(fields.text("c", Text::optional(3)).as_deref(), Some(""));
        fields.objects("list", 5, |item| item.text("n", Text::required(9)));
        let rule = MapRule { items_max: 9, key_bytes_max: 9, value_max: 9, blank: true };
        fields.map("map", rule);
        fields.boolean("flag");
        let found: Vec<(String, &str)> =
            fields.faults().into_iter().map(|fault| (fault.name, fault.code)).collect();
        let found: Vec<(&str, &str)> = found.iter().map(|(n, c)| (n.as_str(), *c)).collect();
        assert_eq!(
            found,
            [
                ("b", "null"),
                ("c", "blank"),
                ("d", "max_length"),
                ("e", "invalid"),
                ("f", "null_characters_not_allowed"),
                ("g", "required"),
                ("list.0.nonFieldErrors", "invalid"),
                ("list.1.n", "required"),
                ("list.2.n", "invalid"),
                ("map", "invalid"),
                ("map.k", "invalid"),
                ("flag", "invalid"),
            ]
        );
        assert!(Fields::of(&json!([])).is_err());
    }
}
