//! Forms: what was typed, and the token that shows a form to be ours.
//!
//! The token is made of the session's own secret, so it needs no place in the store, ends with the session, and is of
//! no use in another. On each page it looks different: pages are packed, and how long a packed page is tells something
//! about what repeats in it.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use url::form_urlencoded;

/// The field with the token.
pub(crate) const TOKEN_FIELD: &str = "csrf";

/// What belongs to the session whose token this is.
fn own(session_token: &str) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(b"posthorn form\0");
    hash.update(session_token.as_bytes());
    hash.finalize().into()
}

/// The token of a form, under a mask that nobody has seen before.
pub(crate) fn token(session_token: &str, mask: [u8; 32]) -> String {
    let own = own(session_token);
    let mut bytes = [0; 64];
    bytes[..32].copy_from_slice(&mask);
    for (place, byte) in bytes[32..].iter_mut().enumerate() {
        *byte = own[place] ^ mask[place];
    }
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Whether a form is one of this session's.
pub(crate) fn is_own(session_token: &str, shown: &str) -> bool {
    let Ok(bytes) = URL_SAFE_NO_PAD.decode(shown) else { return false };
    let Some((mask, masked)) = bytes.split_at_checked(32) else { return false };
    let own = own(session_token);
    // All of it is compared, wherever the first difference is.
    let apart = mask.iter().zip(masked).zip(own).fold(0, |apart, ((m, b), o)| apart | (m ^ b ^ o));
    masked.len() == 32 && apart == 0
}

/// Fields by name, as they were sent; a name may be there several times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fields(Vec<(String, String)>);

impl Fields {
    /// From a query or the body of a form.
    pub(crate) fn parse(text: &[u8]) -> Self {
        let pairs = form_urlencoded::parse(text).take(1_000);
        Self(pairs.map(|(name, value)| (name.into_owned(), value.into_owned())).collect())
    }

    /// With what a form has at first.
    pub(crate) fn of(pairs: impl IntoIterator<Item = (&'static str, String)>) -> Self {
        Self(pairs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// The same without a field, which is not to be shown again.
    pub(crate) fn without(&self, name: &str) -> Self {
        Self(self.0.iter().filter(|(own, _)| own != name).cloned().collect())
    }

    /// The same with these fields written otherwise.
    pub(crate) fn rewritten(&self, names: &[&str], write: impl Fn(&str) -> String) -> Self {
        let pairs = self.0.iter().map(|(name, value)| match names.contains(&name.as_str()) {
            true => (name.clone(), write(value)),
            false => (name.clone(), value.clone()),
        });
        Self(pairs.collect())
    }

    /// The same with a field for each of the words that were typed in one, separated by commas.
    pub(crate) fn split(&self, name: &str) -> Self {
        let pairs = self.0.iter().flat_map(|(own, value)| {
            let words: Vec<&str> = match own == name {
                true => value.split(',').map(str::trim).filter(|word| !word.is_empty()).collect(),
                false => vec![value],
            };
            words.into_iter().map(|word| (own.clone(), word.to_owned())).collect::<Vec<_>>()
        });
        Self(pairs.collect())
    }

    /// All that was typed in fields of one name, separated by commas.
    pub(crate) fn joined(&self, name: &str) -> String {
        self.all(name).collect::<Vec<_>>().join(", ")
    }

    /// As a query, with one field in place of all others of its name.
    pub(crate) fn with(&self, name: &str, value: &str) -> String {
        let mut out = form_urlencoded::Serializer::new(String::new());
        out.extend_pairs(self.0.iter().filter(|(own, _)| own != name));
        out.append_pair(name, value);
        out.finish()
    }

    /// What was typed in a field; nothing typed is nothing.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(own, _)| own == name);
        found.map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
    }

    /// The same, as it was typed.
    pub(crate) fn typed(&self, name: &str) -> &str {
        self.0.iter().find(|(own, _)| own == name).map_or("", |(_, value)| value)
    }

    /// Everything that has a name.
    pub(crate) fn all<'f>(&'f self, name: &'f str) -> impl Iterator<Item = &'f str> {
        let named = self.0.iter().filter(move |(own, _)| own == name);
        named.map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
    }

    /// Whether a form has a field, also an empty one.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(own, _)| own == name)
    }

    /// All of them, as they were typed.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Whether a box is checked.
    pub(crate) fn is_checked(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// As a query, only with these names, and with others in place of those that are given.
    pub(crate) fn query(&self, keep: &[&str], other: &[(&str, &str)]) -> String {
        let mut out = form_urlencoded::Serializer::new(String::new());
        for (name, value) in &self.0 {
            let replaced = other.iter().any(|(own, _)| own == name);
            if keep.contains(&name.as_str()) && !replaced && !value.trim().is_empty() {
                out.append_pair(name, value.trim());
            }
        }
        for (name, value) in other.iter().filter(|(_, value)| !value.is_empty()) {
            out.append_pair(name, value);
        }
        out.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_is_of_one_session() {
        let (one, other) = (token("ses_1.abc", [7; 32]), token("ses_1.abc", [9; 32]));
        assert_ne!(one, other, "it looks different each time");
        assert!(is_own("ses_1.abc", &one) && is_own("ses_1.abc", &other));
        assert!(!is_own("ses_2.abc", &one));
        for bad in ["", "x", &one[1..], &format!("{one}AA"), "AAAA"] {
            assert!(!is_own("ses_1.abc", bad), "{bad}");
        }
    }

    #[test]
    fn queries_keep_what_they_are_told_to() {
        let fields = Fields::parse(b"state=dead&type=a&type=b&cursor=x&other=1&empty=&q=a%26b+c");
        assert_eq!(
            fields.query(&["state", "type", "q"], &[]),
            "state=dead&type=a&type=b&q=a%26b+c"
        );
        assert_eq!(fields.query(&["state", "cursor"], &[("cursor", "y")]), "state=dead&cursor=y");
        assert_eq!(fields.query(&["state"], &[("state", "")]), "");
        assert_eq!(fields.all("type").collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(fields.joined("type"), "a, b");
        let typed = Fields::parse(b"type=a%2C+b%2C%2C&type=c&key=x%2Cy");
        assert_eq!(
            typed.split("type").query(&["type", "key"], &[]),
            "type=a&type=b&type=c&key=x%2Cy"
        );
        assert!(fields.get("empty").is_none() && !fields.is_checked("nope"));
    }
}
