//! Query parameters. What a route does not know is refused, so that a typing error in a filter does
//! not silently list everything.

use std::str::FromStr;

use url::form_urlencoded;

use crate::problem::{Problem, Result};

/// Items on a page when the client does not say.
const LIMIT_DEFAULT: usize = 50;
/// Items on a page at most.
const LIMIT_MAX: usize = 200;

/// The parameters of one request.
#[derive(Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads a query of which only `known` parameters may be part, each once.
    pub(crate) fn parse(query: Option<&str>, known: &[&str]) -> Result<Self> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            if !known.contains(&name.as_ref()) {
                let detail = match known {
                    [] => "no query parameters are allowed here".to_owned(),
                    _ => format!("unknown query parameter `{name}`; allowed: {}", known.join(", ")),
                };
                return Err(Problem::field(name.into_owned(), detail));
            }
            if pairs.iter().any(|(seen, _)| *seen == name) {
                return Err(Problem::field(name.into_owned(), "is given more than once"));
            }
            if value.contains('\0') {
                return Err(Problem::field(
                    name.into_owned(),
                    "must not contain the character U+0000",
                ));
            }
            pairs.push((name.into_owned(), value.into_owned()));
        }
        Ok(Self(pairs))
    }

    /// One parameter as text. An empty one counts as absent.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(own, _)| own == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// One parameter as a value.
    pub(crate) fn value<T>(&self, name: &'static str) -> Result<Option<T>>
    where
        T: FromStr<Err: ToString>,
    {
        let parse =
            |text: &str| text.parse().map_err(|e: T::Err| Problem::field(name, e.to_string()));
        self.text(name).map(parse).transpose()
    }

    /// How many items the client wants.
    pub(crate) fn limit(&self) -> Result<usize> {
        match self.text("limit") {
            None => Ok(LIMIT_DEFAULT),
            Some(text) => text
                .parse()
                .ok()
                .filter(|limit| (1..=LIMIT_MAX).contains(limit))
                .ok_or_else(|| Problem::field("limit", format!("must be 1 to {LIMIT_MAX}"))),
        }
    }
}
