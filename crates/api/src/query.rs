//! Query parameters. What a route does not know is refused, so that a typing error in a filter does
//! not silently list everything.

use std::collections::BTreeMap;
use std::str::FromStr;

use posthorn_domain::FailureCode;
use posthorn_store::{OutcomeFilter, Period};
use url::form_urlencoded;

use crate::problem::{Problem, Result};

/// Items on a page when the client does not say.
const LIMIT_DEFAULT: usize = 50;
/// Items on a page at most.
const LIMIT_MAX: usize = 200;

/// Parameters that may be given several times: one of the values must fit, or all of them where it says so.
const MANY: [&str; 3] = ["topic", "type", "attribute"];
/// How often at most.
const MANY_MAX: usize = 20;

/// The parameters of one request.
#[derive(Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads a query of which only `known` parameters may be part, most of them once.
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
            let given = pairs.iter().filter(|(seen, _)| *seen == name).count();
            if given > 0 && !MANY.contains(&name.as_ref()) {
                return Err(Problem::field(name.into_owned(), "is given more than once"));
            }
            if given >= MANY_MAX {
                let detail = format!("is given more than {MANY_MAX} times");
                return Err(Problem::field(name.into_owned(), detail));
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

    /// A parameter that may be given several times, as values. Empty ones count as absent.
    pub(crate) fn values<T>(&self, name: &'static str) -> Result<Vec<T>>
    where
        T: FromStr<Err: ToString>,
    {
        let parse =
            |text: &str| text.parse().map_err(|e: T::Err| Problem::field(name, e.to_string()));
        self.texts(name).map(parse).collect()
    }

    fn texts<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> + 'a {
        let own = self.0.iter().filter(move |(own, value)| own == name && !value.is_empty());
        own.map(|(_, value)| value.as_str())
    }

    /// Attributes, each as `name=value`.
    pub(crate) fn attributes(&self) -> Result<BTreeMap<String, String>> {
        let mut all = BTreeMap::new();
        for text in self.texts("attribute") {
            let (name, value) = text
                .split_once('=')
                .ok_or_else(|| Problem::field("attribute", "must have the form name=value"))?;
            if all.insert(name.to_owned(), value.to_owned()).is_some_and(|old| old != value) {
                let detail = format!("`{name}` is given with two values; no event has both");
                return Err(Problem::field("attribute", detail));
            }
        }
        Ok(all)
    }

    /// `true` or `false`.
    pub(crate) fn flag(&self, name: &'static str) -> Result<Option<bool>> {
        match self.text(name) {
            None => Ok(None),
            Some("true") => Ok(Some(true)),
            Some("false") => Ok(Some(false)),
            Some(_) => Err(Problem::field(name, "must be true or false")),
        }
    }

    /// `from` and `until`.
    pub(crate) fn period(&self) -> Result<Period> {
        let period = Period { from: self.value("from")?, until: self.value("until")? };
        match period {
            Period { from: Some(from), until: Some(until) } if from >= until => {
                Err(Problem::field("until", "must be later than `from`"))
            }
            period => Ok(period),
        }
    }

    /// `status` or `failure`: what attempts came to.
    pub(crate) fn outcome(&self, operator: bool) -> Result<Option<OutcomeFilter>> {
        outcome_of(self.text("status"), self.text("failure"), operator)
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

/// What attempts came to: a status or a failure.
pub(crate) fn outcome_of(
    of_status: Option<&str>,
    failure: Option<&str>,
    operator: bool,
) -> Result<Option<OutcomeFilter>> {
    match (of_status, failure) {
        (None, None) => Ok(None),
        (Some(_), Some(_)) => Err(Problem::field(
            "failure",
            "cannot be combined with `status`: an attempt has one of them",
        )),
        (Some(text), None) => status(text).map(Some),
        (None, Some(text)) => failures(text, operator).map(Some),
    }
}

/// A status, or a class of them: `404`, `5xx`.
fn status(text: &str) -> Result<OutcomeFilter> {
    let class = text.strip_suffix("xx").and_then(|class| class.parse::<u16>().ok());
    match (class, text.parse::<u16>()) {
        (Some(class @ 1..=5), _) => Ok(OutcomeFilter::Status(class * 100, class * 100 + 99)),
        (None, Ok(status @ 100..=599)) => Ok(OutcomeFilter::Status(status, status)),
        _ => Err(Problem::field(
            "status",
            "must be an HTTP status such as 404, or a class such as 5xx",
        )),
    }
}

/// The codes that the caller sees as this one.
fn failures(text: &str, operator: bool) -> Result<OutcomeFilter> {
    let shown = |code: FailureCode| if operator { code } else { code.for_tenants() };
    let codes: Vec<FailureCode> =
        FailureCode::ALL.into_iter().filter(|code| shown(*code).as_str() == text).collect();
    if codes.is_empty() {
        let all: Vec<&str> = FailureCode::ALL.map(shown).iter().map(|code| code.as_str()).collect();
        return Err(Problem::field("failure", format!("must be one of: {}", all.join(", "))));
    }
    Ok(OutcomeFilter::Failures(codes))
}
