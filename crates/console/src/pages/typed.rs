//! Forms that are shown again when they are refused: what was typed, and what is wrong with which field.

use http::StatusCode;
use serde_json::Value;
use url::form_urlencoded;

use super::show::Listed;
use crate::form::Fields;
use crate::trouble::{Refusal, Trouble};

/// A field, and what is wrong with it.
pub(crate) type Wrong = (String, String);

/// A form on a page.
pub(crate) struct Typed {
    fields: &'static [&'static str],
    typed: Fields,
    wrong: Option<Wrong>,
}

impl Typed {
    /// One with these fields, as somebody is to fill it in.
    pub(crate) fn new(fields: &'static [&'static str], typed: Fields) -> Self {
        Self { fields, typed, wrong: None }
    }

    /// The same after it was refused.
    pub(crate) fn wrong(self, wrong: Option<Wrong>) -> Self {
        Self { wrong, ..self }
    }

    pub(crate) fn value(&self, name: &str) -> &str {
        self.typed.typed(name)
    }

    /// Whether one of several things is chosen.
    pub(crate) fn has(&self, name: &str, value: &str) -> bool {
        self.typed.all(name).any(|own| own == value)
    }

    pub(crate) fn wrong_at(&self, name: &str) -> Option<&str> {
        let (field, text) = self.wrong.as_ref()?;
        (field == name).then_some(text.as_str())
    }

    /// What is wrong with no field of the form.
    pub(crate) fn wrong_elsewhere(&self) -> Option<String> {
        let (field, text) = self.wrong.as_ref()?;
        match (self.fields.contains(&field.as_str()), field.is_empty()) {
            (true, _) => None,
            (false, true) => Some(text.clone()),
            (false, false) => Some(format!("{field}: {text}")),
        }
    }

    pub(crate) fn status(&self) -> StatusCode {
        if self.wrong.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK }
    }
}

/// What the API found wrong with what was typed. Anything else is no matter of the form.
pub(crate) fn refused(trouble: Trouble) -> Result<Wrong, Trouble> {
    match trouble {
        Trouble::Refused(Refusal {
            status: 400 | 409 | 413 | 422 | 429, field, detail, ..
        }) => {
            let field = field.unwrap_or_default();
            let end = field.find(['.', '[']).unwrap_or(field.len());
            // Where in a document something is wrong is worth saying.
            let detail = match &field[end..] {
                "" => detail,
                rest => format!("{}: {detail}", rest.trim_start_matches('.')),
            };
            Ok((field[..end].to_owned(), detail))
        }
        Trouble::Refused(Refusal { status: 403, field: Some(field), detail, .. }) => {
            Ok((field, detail))
        }
        trouble => Err(trouble),
    }
}

/// A list whose filter may be one that cannot be read: then it is empty, and says what is wrong.
pub(crate) fn filtered<T>(
    answer: Result<Listed<T>, Trouble>,
) -> Result<(Listed<T>, Option<Wrong>), Trouble> {
    match answer {
        Ok(list) => Ok((list, None)),
        Err(Trouble::Refused(Refusal { status: 400 | 404 | 422, field, detail, .. })) => {
            Ok((Listed::none(), Some((field.unwrap_or_default(), detail))))
        }
        Err(trouble) => Err(trouble),
    }
}

/// A whole number that was typed, or nothing.
pub(crate) fn number(form: &Fields, name: &str) -> Result<Value, Wrong> {
    let Some(text) = form.get(name) else { return Ok(Value::Null) };
    let number: u32 =
        text.parse().map_err(|_| (name.to_owned(), "must be a whole number".to_owned()))?;
    Ok(Value::from(number))
}

/// Names that were typed with commas or on lines of their own.
pub(crate) fn list<'f>(form: &'f Fields, name: &str) -> Vec<&'f str> {
    let parts = form.typed(name).split([',', '\n']);
    parts.map(str::trim).filter(|part| !part.is_empty()).collect()
}

/// JSON that was typed, or what stands for nothing.
pub(crate) fn json(form: &Fields, name: &str, nothing: Value) -> Result<Value, Wrong> {
    let Some(text) = form.get(name) else { return Ok(nothing) };
    serde_json::from_str(text).map_err(|e| (name.to_owned(), format!("is not valid JSON: {e}")))
}

/// A text as one part of a path.
pub(crate) fn part(text: &str) -> String {
    // Spaces are written otherwise in a path than in a query.
    form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>().replace('+', "%20")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(status: u16, field: Option<&str>) -> Trouble {
        let field = field.map(str::to_owned);
        Trouble::Refused(Refusal { status, code: "x".to_owned(), detail: "no".to_owned(), field })
    }

    #[test]
    fn what_is_wrong_stands_beside_its_field() {
        let wrong = |status, field| refused(refusal(status, field)).ok();
        let said = |field: &str, text: &str| Some((field.to_owned(), text.to_owned()));
        assert_eq!(wrong(422, Some("name")), said("name", "no"));
        assert_eq!(wrong(422, Some("schemas.1.type")), said("schemas", "1.type: no"));
        assert_eq!(wrong(409, None), said("", "no"));
        assert_eq!(wrong(403, Some("kind")), said("kind", "no"));
        assert_eq!(wrong(403, None), None, "that is no matter of the form");
        assert_eq!(wrong(404, Some("name")), None);
    }

    #[test]
    fn a_form_says_once_what_is_wrong() {
        let typed = Fields::parse(b"name=a&scope=read&scope=manage");
        let form = Typed::new(&["name"], typed.clone()).wrong(Some(("name".into(), "no".into())));
        assert_eq!((form.wrong_at("name"), form.wrong_elsewhere()), (Some("no"), None));
        assert_eq!(form.status(), StatusCode::BAD_REQUEST);
        let form = Typed::new(&["name"], typed).wrong(Some(("other".into(), "no".into())));
        assert_eq!(
            (form.wrong_at("name"), form.wrong_elsewhere()),
            (None, Some("other: no".into()))
        );
        assert!(form.has("scope", "manage") && !form.has("scope", "publish"));
    }

    #[test]
    fn numbers_and_json_are_read() {
        let form = Fields::parse(b"n=12&bad=x&j=%7B%22a%22%3A1%7D&k=%7B");
        assert_eq!(number(&form, "n"), Ok(Value::from(12)));
        assert_eq!(number(&form, "none"), Ok(Value::Null));
        assert!(number(&form, "bad").is_err());
        assert_eq!(json(&form, "j", Value::Null), Ok(serde_json::json!({"a": 1})));
        assert_eq!(json(&form, "none", Value::Bool(true)), Ok(Value::Bool(true)));
        assert!(json(&form, "k", Value::Null).is_err());
    }

    #[test]
    fn names_are_one_part_of_a_path() {
        assert_eq!(part("a/b c?d%"), "a%2Fb%20c%3Fd%25");
        assert_eq!(part("order.paid"), "order.paid");
    }
}
