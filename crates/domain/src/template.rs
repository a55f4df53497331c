//! Texts with `{placeholders}`, for URLs, headers, query parameters and log lines.
//!
//! There is no logic in templates: a placeholder is replaced by what it names, `{{` is a brace. Several
//! names with bars between them stand for the first that has a value, as in `{event.key|event.id}`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// What a template may ask for.
pub trait Lookup {
    /// The value of a name, or `None` when there is no such thing here.
    fn lookup(&self, name: &str) -> Option<Cow<'_, str>>;
}

/// A parsed template.
#[derive(Clone, PartialEq, Eq)]
pub struct Template {
    source: String,
    parts: Vec<Part>,
}

#[derive(Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    /// The names of a placeholder, at least one; the first that has a value counts.
    Names(Vec<String>),
}

/// What is wrong with a template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    /// A brace is open.
    #[error("template `{0}` has an unclosed or stray brace; write {{{{ for a literal one")]
    Brace(String),
    /// A placeholder is empty or has odd characters.
    #[error("template placeholder `{0}` is not a name")]
    Name(String),
    /// Rendering asked for something that is not there.
    #[error("template placeholder `{0}` has no value here")]
    Missing(String),
}

impl Template {
    /// Fills it in. `escape` is applied to every value, not to the template's own text.
    pub fn render(
        &self,
        values: &dyn Lookup,
        escape: impl Fn(&str) -> String,
    ) -> Result<String, TemplateError> {
        let mut out = String::with_capacity(self.source.len() + 16);
        for part in &self.parts {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Names(names) => match names.iter().find_map(|name| values.lookup(name)) {
                    Some(value) => out.push_str(&escape(&value)),
                    None => return Err(TemplateError::Missing(names.join("|"))),
                },
            }
        }
        Ok(out)
    }

    /// As it was written.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Its placeholders, each with its alternatives, the preferred one first.
    pub fn placeholders(&self) -> impl Iterator<Item = &[String]> {
        self.parts.iter().filter_map(|part| match part {
            Part::Names(names) => Some(names.as_slice()),
            Part::Text(_) => None,
        })
    }

    /// All names its placeholders use.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().flat_map(|part| match part {
            Part::Names(names) => names.iter().map(String::as_str),
            Part::Text(_) => [].iter().map(String::as_str),
        })
    }
}

impl FromStr for Template {
    type Err = TemplateError;

    fn from_str(source: &str) -> Result<Self, TemplateError> {
        let mut parts = Vec::new();
        let mut text = String::new();
        let mut chars = source.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '{' | '}' if chars.peek() == Some(&c) => {
                    chars.next();
                    text.push(c);
                }
                '{' => {
                    let mut name = String::new();
                    loop {
                        match chars.next() {
                            Some('}') => break,
                            Some(c) => name.push(c),
                            None => return Err(TemplateError::Brace(source.to_owned())),
                        }
                    }
                    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
                    let names: Vec<String> = name.split('|').map(str::to_owned).collect();
                    if names.iter().any(|name| name.is_empty() || !name.chars().all(plain)) {
                        return Err(TemplateError::Name(name));
                    }
                    if !text.is_empty() {
                        parts.push(Part::Text(std::mem::take(&mut text)));
                    }
                    parts.push(Part::Names(names));
                }
                '}' => return Err(TemplateError::Brace(source.to_owned())),
                c => text.push(c),
            }
        }
        if !text.is_empty() {
            parts.push(Part::Text(text));
        }
        Ok(Self { source: source.to_owned(), parts })
    }
}

impl fmt::Debug for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.source, f)
    }
}

impl Serialize for Template {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.source)
    }
}

impl<'de> Deserialize<'de> for Template {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct One;
    impl Lookup for One {
        fn lookup(&self, name: &str) -> Option<Cow<'_, str>> {
            (name == "event.id").then_some(Cow::Borrowed("e 1"))
        }
    }

    #[track_caller]
    fn check(source: &str, expected: Result<&str, ()>) {
        let rendered =
            source.parse::<Template>().and_then(|t| t.render(&One, |v| v.replace(' ', "+")));
        assert_eq!(rendered.as_deref().map_err(|_| ()), expected, "{source}");
    }

    #[test]
    fn placeholders_are_replaced_and_escaped() {
        check("a/{event.id}?x={{y}}", Ok("a/e+1?x={y}"));
        check("plain", Ok("plain"));
        check("{nothing}", Err(()));
        check("{open", Err(()));
        check("close}", Err(()));
        check("{}", Err(()));
        check("{a b}", Err(()));
        check("{nothing|event.id}/{event.id|nothing}", Ok("e+1/e+1"));
        for bad in ["{nothing|neither}", "{|}", "{event.id|}", "{|event.id}", "{event.id||b}"] {
            check(bad, Err(()));
        }
    }
}
